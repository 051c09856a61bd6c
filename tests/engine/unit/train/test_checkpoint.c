/* Checkpoints: everything comes back to the bit, damage is found, other models are refused, the
 * newest are kept. */
#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/manifest.h"
#include "harness/forge.h"
#include "harness/pages.h"
#include "harness/param_view.h"
#include "harness/tiny.h"

#include <float.h>
#include <stdlib.h>
#include <unistd.h>

/* A run's folder and one training in it. */
typedef struct RunPlace {
    Tiny t;
    Checkpointer saver;
    Arena scratch;
    char folder[64], dir[96];
} RunPlace;

static void place_open_in(RunPlace *p, const char *folder, const char *const *settings)
{
    const char *all[16] = { 0 };
    int n = 0;
    for (; *settings != NULL; settings++) all[n++] = *settings;
    snprintf(p->folder, sizeof p->folder, "%s", folder);
    snprintf(p->dir, sizeof p->dir, "run.dir=%s", folder);
    all[n++] = p->dir;
    all[n++] = "run.threads=1"; /* what is saved does not depend on it */
    tiny_open(&p->t, all);
    CHECK_OK(arena_init(&p->scratch, "scratch", MEM_HOST, (size_t)1 << 30));
    CHECK_OK(checkpointer_open(&p->saver, &p->t.config, &p->t.engine.params, &p->t.arena));
}

static void place_open(RunPlace *p, const char *const *settings)
{
    char folder[] = "/tmp/switchyard_test_XXXXXX";
    CHECK(mkdtemp(folder) != NULL);
    place_open_in(p, folder, settings);
}

static void place_leave(RunPlace *p)
{
    checkpointer_close(&p->saver);
    tiny_close(&p->t);
    arena_free(&p->scratch);
}

static void place_close(RunPlace *p)
{
    CHECK_OK(file_remove_tree(p->folder));
    place_leave(p);
}

static void train_and_save(RunPlace *p, int64_t from, int64_t steps)
{
    tiny_steps(&p->t, from, steps);
    CHECK_OK(checkpoint_save(&p->saver, from + steps, (uint64_t)(from + steps) * 4));
    CHECK_OK(checkpoint_finish(&p->saver));
}

static const char *in_step(const RunPlace *p, int step, const char *file)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/checkpoints/step-%010d/%s", p->folder, step, file);
    return path;
}

/* ---- round trips ---- */

static const char *const models[][4] = {
    { "run.compute=f32" },
    { "run.compute=bf16", "moe.bias_rate=0.01" },
    { "attention.kind=gqa", "model.tied=true", "model.dense_layers=3" },
    { "attention.q_rank=9", "moe.shared=2", "moe.bias_rate=0.01" },
    { "optimizer.moments=bf16", "run.compute=bf16", "moe.bias_rate=0.01" },
    { "mtp.layers=2", "moe.bias_rate=0.01" },
};

static void a_loaded_training_goes_on_with_the_same_bits(void **state)
{
    (void)state;
    for (size_t m = 0; m < sizeof models / sizeof *models; m++) {
        RunPlace a, b;
        CheckpointInfo info;
        place_open(&a, models[m]);
        train_and_save(&a, 0, 3);
        place_open_in(&b, a.folder, models[m]);
        tiny_steps(&b.t, 100, 2); /* what is in memory before a load must not matter */
        CHECK_OK(checkpoint_load(&b.t.engine.params, in_step(&a, 3, ""), &b.scratch, &info));
        CHECK_INT(info.step, 3);
        CHECK_INT(info.position, 12);
        CHECK(tiny_same_state(&a.t, &b.t));
        tiny_steps(&a.t, 3, 3);
        tiny_steps(&b.t, 3, 3);
        CHECK(tiny_same_state(&a.t, &b.t));
        place_leave(&b);
        place_close(&a);
    }
}

static void a_save_under_way_is_finished_when_a_run_ends(void **state)
{
    (void)state;
    RunPlace p;
    CheckpointInfo info;
    place_open(&p, TINY("moe.shared=1"));
    tiny_steps(&p.t, 0, 1);
    CHECK_OK(checkpoint_save(&p.saver, 1, 4));
    checkpointer_close(&p.saver);
    CHECK_OK(checkpoint_load_newest(&p.t.engine.params, p.folder, NULL, &p.scratch, &info));
    CHECK_INT(info.step, 1);
    place_close(&p);
}

static Status may_any(const void *self, const char *path, CheckpointInfo *info, Arena *scratch)
{
    (void)self, (void)path, (void)info, (void)scratch;
    return OK;
}

/* A supervisor takes minutes of silence for a hang. */
static void a_load_beats(void **state)
{
    (void)state;
    RunPlace p;
    CheckpointInfo info;
    Heartbeat beat;
    place_open(&p, TINY("moe.shared=1"));
    train_and_save(&p, 0, 1);
    CHECK_OK(heartbeat_init(&beat, p.folder, NULL));
    const CheckpointGate gate = { .may = may_any, .beat = &beat };
    CHECK_OK(checkpoint_load_newest(&p.t.engine.params, p.folder, NULL, &p.scratch, &info));
    CHECK(!file_exists(beat.path));
    CHECK_OK(checkpoint_load_newest(&p.t.engine.params, p.folder, &gate, &p.scratch, &info));
    CHECK(file_exists(beat.path));
    heartbeat_free(&beat);
    place_close(&p);
}

static void weights_alone_are_loaded_for_inference(void **state)
{
    (void)state;
    RunPlace p;
    Engine e;
    EnginePlan plan;
    CheckpointInfo info;
    place_open(&p, TINY("run.compute=bf16"));
    train_and_save(&p, 0, 2);
    CHECK_OK(engine_plan(&p.t.config, ENGINE_INFER, &p.t.shape, &plan));
    CHECK_OK(engine_open(&e, &p.t.config, ENGINE_INFER, &p.t.shape, &plan));
    CHECK_OK(checkpoint_load(&e.params, in_step(&p, 2, ""), &p.scratch, &info));
    for (int i = 0; i < e.params.table.n; i++) {
        Tensor a =
            param_view(&p.t.engine.params.table.at[i], &p.t.engine.params.memory, BUF_WEIGHT);
        Tensor b = param_view(&e.params.table.at[i], &e.params.memory, BUF_WEIGHT);
        CHECK(memcmp(a.data, b.data, tensor_bytes(&a)) == 0);
    }
    CHECK(e.params.memory.buffer[BUF_OPTIMIZER].data == NULL);
    engine_close(&e);
    place_close(&p);
}

/* Memory of a GPU, or of a debug build, is not zero. No entry has the padding, but ops run over it. */
static void padding_is_zero_behind_a_load(void **state)
{
    (void)state;
    RunPlace p;
    CheckpointInfo info;
    place_open(&p, TINY("run.threads=1"));
    train_and_save(&p, 0, 2);
    for (int b = BUF_MAIN; b < BUF_COUNT; b++) {
        Tensor *x = &p.t.engine.params.memory.buffer[b];
        if (x->data != NULL) memset(x->data, 0xFF, tensor_bytes(x));
    }
    CHECK_OK(checkpoint_load(&p.t.engine.params, in_step(&p, 2, ""), &p.scratch, &info));
    for (int b = BUF_MAIN; b < BUF_COUNT; b++) {
        const Tensor *x = &p.t.engine.params.memory.buffer[b];
        for (int64_t i = 0; x->data != NULL && i < tensor_elems(x); i++)
            CHECK(isfinite(((const float *)x->data)[i]));
    }
    place_close(&p);
}

/* The file knows nothing of the compute type: main weights are f32 under either. */
static void a_checkpoint_in_f32_goes_on_in_bf16(void **state)
{
    (void)state;
    RunPlace a, b;
    CheckpointInfo info;
    place_open(&a, TINY("run.compute=f32"));
    train_and_save(&a, 0, 2);
    place_open_in(&b, a.folder, TINY("run.compute=bf16"));
    CHECK_OK(checkpoint_load(&b.t.engine.params, in_step(&a, 2, ""), &b.scratch, &info));
    CHECK(tiny_same_state(&a.t, &b.t));
    const uint16_t *low = b.t.engine.params.memory.buffer[BUF_WEIGHT].data;
    const float *main = b.t.engine.params.memory.buffer[BUF_MAIN].data;
    for (int64_t i = 0; i < b.t.engine.params.table.elems[BUF_MAIN]; i++) {
        CHECK_INT(low[i], bf16_from_f32(main[i]));
    }
    place_leave(&b);
    place_close(&a);
}

/* Both moments of `low` are those of `wide`, rounded; weights are the same. */
static void check_moments(const Tiny *low, const Tiny *wide)
{
    for (int b = BUF_MAIN; b <= BUF_OPTIMIZER + 1; b++) {
        const Tensor *x = &low->engine.params.memory.buffer[b],
                     *y = &wide->engine.params.memory.buffer[b];
        CHECK_INT(y->dtype, DTYPE_F32);
        CHECK_INT(x->dtype, b == BUF_MAIN ? DTYPE_F32 : DTYPE_BF16);
        if (b == BUF_MAIN) CHECK(memcmp(x->data, y->data, tensor_bytes(x)) == 0);
        for (int64_t i = 0; b > BUF_MAIN && i < tensor_elems(x); i++) {
            CHECK_INT(((const uint16_t *)x->data)[i], bf16_from_f32(((const float *)y->data)[i]));
        }
    }
}

/* There and back: what was rounded once stays as it is. */
static void moments_are_rounded_and_widened_between_runs(void **state)
{
    (void)state;
    RunPlace a, b, c;
    CheckpointInfo info;
    place_open(&a, TINY("moe.shared=1"));
    train_and_save(&a, 0, 2);
    place_open_in(&b, a.folder, TINY("optimizer.moments=bf16"));
    CHECK(b.saver.bytes < a.saver.bytes * 3 / 4);
    CHECK_OK(checkpoint_load(&b.t.engine.params, in_step(&a, 2, ""), &b.scratch, &info));
    check_moments(&b.t, &a.t);
    train_and_save(&b, 2, 2);
    place_open_in(&c, a.folder, TINY("moe.shared=1"));
    CHECK_OK(checkpoint_load(&c.t.engine.params, in_step(&a, 4, ""), &c.scratch, &info));
    check_moments(&b.t, &c.t);
    const uint16_t *low = b.t.engine.params.memory.buffer[BUF_OPTIMIZER].data;
    const float *wide = c.t.engine.params.memory.buffer[BUF_OPTIMIZER].data;
    for (int64_t i = 0; i < c.t.engine.params.table.elems[BUF_OPTIMIZER]; i++) {
        CHECK(wide[i] == f32_from_bf16(low[i]));
    }
    place_leave(&c);
    place_leave(&b);
    place_close(&a);
}

/* A set that this build has beside a better one, if it has two. */
static void header_tells_which_instructions_computed(void **state)
{
    (void)state;
    RunPlace p;
    CheckpointInfo info;
    const char *name = cpu_isa_names[op_set_base.isa];
    char setting[40];
    snprintf(setting, sizeof setting, "run.cpu_isa=%s",
             op_set_base.isa == CPU_AUTO ? "auto" : name);
    place_open(&p, TINY(setting));
    CHECK(p.t.engine.ex.set == &op_set_base);
    train_and_save(&p, 0, 1);
    CHECK_OK(checkpoint_info(in_step(&p, 1, ""), &p.scratch, &info));
    CHECK_TEXT(info.cpu, name);
    place_close(&p);
}

static void header_tells_step_position_and_configuration(void **state)
{
    (void)state;
    RunPlace p;
    CheckpointInfo info;
    Config read;
    place_open(&p, TINY("moe.aux_loss=0.125"));
    train_and_save(&p, 0, 1);
    CHECK_OK(checkpoint_info(in_step(&p, 1, ""), &p.scratch, &info));
    CHECK_INT(info.step, 1);
    CHECK_INT(info.position, 4);
    CHECK_OK(config_default(&read, &p.t.arena));
    CHECK_OK(config_parse(&read, &p.t.arena, "header", info.config, strlen(info.config)));
    CHECK_NEAR(read.moe_aux_loss, 0.125, 0);
    CHECK_INT(read.model_vocab, 61);
    place_close(&p);
}

/* ---- the format, as docs/reference/formats.md has it ---- */

static void entries_are_aligned_and_there_for_every_parameter_and_moment(void **state)
{
    (void)state;
    RunPlace p;
    CheckpointInfo info;
    ManifestEntry *entry = NULL;
    int64_t n = 0, wanted = 0;
    place_open(&p, TINY("moe.bias_rate=0.01"));
    train_and_save(&p, 0, 1);
    CHECK_OK(manifest_read(in_step(&p, 1, ""), &p.scratch, &info, &entry, &n));
    for (int64_t i = 0; i < n; i++) {
        CHECK_INT(entry[i].offset % 64, 0);
        CHECK_INT(entry[i].piece.first, 0);
        CHECK_INT(entry[i].piece.rows, 1);
        CHECK_TEXT(entry[i].file, "rank-00000.bin");
    }
    for (int i = 0; i < p.t.engine.params.table.n; i++) {
        wanted += p.t.engine.params.table.at[i].first[BUF_STATE] >= 0 ? 1 : 3;
    }
    CHECK_INT(n, wanted);
    place_close(&p);
}

/* ---- damage ---- */

static void every_flipped_byte_of_the_manifest_is_found(void **state)
{
    (void)state;
    RunPlace p;
    CheckpointInfo info;
    uint64_t bytes = 0;
    place_open(&p, TINY("model.layers=1"));
    train_and_save(&p, 0, 1);
    CHECK_OK(file_size(in_step(&p, 1, MANIFEST_NAME), &bytes));
    /* all of the end line, and places all over the rest */
    for (long at = 0; at < (long)bytes; at += at < (long)bytes - 80 ? 29 : 1) {
        flip(in_step(&p, 1, MANIFEST_NAME), at);
        CHECK_FAILS(checkpoint_info(in_step(&p, 1, ""), &p.scratch, &info), ERR_FORMAT,
                    "is not whole");
        flip(in_step(&p, 1, MANIFEST_NAME), at);
    }
    place_close(&p);
}

static void a_flipped_byte_of_any_entry_is_found_and_named(void **state)
{
    (void)state;
    RunPlace p;
    CheckpointInfo info;
    place_open(&p, TINY("moe.bias_rate=0.01"));
    train_and_save(&p, 0, 1);
    uint64_t bytes = 0;
    CHECK_OK(file_size(in_step(&p, 1, "rank-00000.bin"), &bytes));
    for (int i = 0; i < 7; i++) {
        long at = (long)(bytes - 4) * i / 6; /* the first and the last element, and between */
        flip(in_step(&p, 1, "rank-00000.bin"), at);
        CHECK_FAILS(checkpoint_load(&p.t.engine.params, in_step(&p, 1, ""), &p.scratch, &info),
                    ERR_FORMAT, "rank-00000.bin: the bytes of model.");
        flip(in_step(&p, 1, "rank-00000.bin"), at);
    }
    CHECK_OK(checkpoint_load(&p.t.engine.params, in_step(&p, 1, ""), &p.scratch, &info));
    place_close(&p);
}

static void the_newest_whole_one_is_loaded(void **state)
{
    (void)state;
    RunPlace p;
    CheckpointInfo info;
    place_open(&p, TINY("checkpoint.keep=3"));
    for (int i = 0; i < 3; i++) train_and_save(&p, i, 1);
    flip(in_step(&p, 3, "rank-00000.bin"), 8);
    CHECK(unlink(in_step(&p, 2, MANIFEST_NAME)) == 0);
    CHECK_OK(checkpoint_load_newest(&p.t.engine.params, p.folder, NULL, &p.scratch, &info));
    CHECK_INT(info.step, 1);
    flip(in_step(&p, 1, MANIFEST_NAME), 3);
    CHECK_FAILS(checkpoint_load_newest(&p.t.engine.params, p.folder, NULL, &p.scratch, &info),
                ERR_IO, "there is no whole checkpoint");
    place_close(&p);
}

/* A damaged checkpoint that a resume passed over is replaced when its step comes again. */
static void a_damaged_one_is_replaced_by_the_step_run_again(void **state)
{
    (void)state;
    RunPlace p;
    CheckpointInfo info;
    place_open(&p, TINY("moe.shared=1"));
    train_and_save(&p, 0, 1);
    train_and_save(&p, 1, 1);
    flip(in_step(&p, 2, "rank-00000.bin"), 8);
    CHECK_OK(checkpoint_load_newest(&p.t.engine.params, p.folder, NULL, &p.scratch, &info));
    CHECK_INT(info.step, 1);
    train_and_save(&p, 1, 1);
    CHECK_OK(checkpoint_load_newest(&p.t.engine.params, p.folder, NULL, &p.scratch, &info));
    CHECK_INT(info.step, 2);
    place_close(&p);
}

/* ---- numbers that are not finite ---- */

static bool has(const RunPlace *p, int step) { return file_exists(in_step(p, step, "")); }

static float *element(RunPlace *p, const char *name, ParamBuffer b, int64_t i)
{
    const ParamTable *t = &p->t.engine.params.table;
    for (int at = 0; at < t->n; at++) {
        if (strcmp(t->at[at].name, name) == 0)
            return (float *)param_view(&t->at[at], &p->t.engine.params.memory, b).data + i;
    }
    fail_msg("there is no %s", name);
    return NULL;
}

static const char EMBED[] = "model.embed_tokens.weight";
static const char BIAS[] = "model.layers.1.mlp.gate.e_score_correction_bias";

static const struct Spoiled {
    const char *param;
    ParamBuffer buffer;
    int64_t at;
    float value;
    const char *says;
} spoiled[] = {
    { EMBED, BUF_MAIN, 60 * 32, NAN, "weight (main) with nan at element 1920" },
    { EMBED, BUF_MAIN, 61 * 32 - 1, -INFINITY, "weight (main) with -inf at element 1951" },
    { EMBED, BUF_OPTIMIZER, 0, INFINITY, "weight (moment1) with inf at element 0" },
    { EMBED, BUF_OPTIMIZER + 1, 7, INFINITY, "weight (moment2) with inf at element 7" },
    { EMBED, BUF_OPTIMIZER + 1, 7, -1e-30F, "weight (moment2) with -1e-30 at element 7" },
    { "model.norm.weight", BUF_OPTIMIZER + 1, 31, NAN, "model.norm.weight (moment2) with nan at" },
    { BIAS, BUF_STATE, 5, NAN, "e_score_correction_bias (state) with nan at element 5" },
};
enum { SPOILED = sizeof spoiled / sizeof *spoiled };

/* What a fault of memory or an update has spoiled: saving fails, and the good checkpoint stays
 * although only one is kept. */
static void check_not_saved(const char *async)
{
    for (int i = 0; i < SPOILED; i++) {
        const struct Spoiled *s = &spoiled[i];
        RunPlace p;
        CheckpointInfo info;
        place_open(&p, TINY("checkpoint.keep=1", "moe.bias_rate=0.01", async));
        train_and_save(&p, 0, 1);
        float *at = element(&p, s->param, s->buffer, s->at), good = *at;
        *at = s->value;
        Status saved = checkpoint_save(&p.saver, 2, 8);
        if (saved == OK) saved = checkpoint_finish(&p.saver);
        CHECK_FAILS(saved, ERR_NUMERIC, s->says);
        CHECK_FAILS(saved, ERR_NUMERIC, s->buffer == BUF_STATE ? "moe_bias_update" : "adamw, in");
        CHECK_FAILS(saved, ERR_NUMERIC, "in step 2 or before");
        CHECK(has(&p, 1) && !has(&p, 2));
        CHECK_OK(checkpoint_load_newest(&p.t.engine.params, p.folder, NULL, &p.scratch, &info));
        CHECK_INT(info.step, 1);
        CHECK(*at == good);
        place_close(&p);
    }
}

static void what_is_not_finite_is_never_saved(void **state)
{
    (void)state;
    check_not_saved("checkpoint.async=true");
    check_not_saved("checkpoint.async=false");
}

static void bf16_moments_that_are_not_finite_are_never_saved(void **state)
{
    (void)state;
    static const struct {
        ParamBuffer buffer;
        uint16_t bits;
        const char *says;
    } bad[] = {
        { BUF_OPTIMIZER, 0x7FC0, "(moment1) with nan at element 1951" },
        { BUF_OPTIMIZER, 0xFF80, "(moment1) with -inf at element 1951" },
        { BUF_OPTIMIZER + 1, 0x7F80, "(moment2) with inf at element 1951" },
        { BUF_OPTIMIZER + 1, 0xBF80, "(moment2) with -1 at element 1951" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        RunPlace p;
        place_open(&p, TINY("optimizer.moments=bf16"));
        tiny_steps(&p.t, 0, 1);
        const Param *embed = &p.t.engine.params.table.at[0];
        CHECK_TEXT(embed->name, EMBED);
        uint16_t *x = param_view(embed, &p.t.engine.params.memory, bad[i].buffer).data;
        x[61 * 32 - 1] = bad[i].bits;
        CHECK_FAILS(engine_check_numbers(&p.t.engine.params, 1), ERR_NUMERIC, bad[i].says);
        Status s = checkpoint_save(&p.saver, 1, 4);
        if (s == OK) s = checkpoint_finish(&p.saver);
        CHECK_FAILS(s, ERR_NUMERIC, bad[i].says);
        place_close(&p);
    }
}

/* The largest f32 is finite, and infinite in bf16. */
static void a_moment_that_bf16_cannot_hold_is_not_loaded(void **state)
{
    (void)state;
    RunPlace a, b;
    CheckpointInfo info;
    place_open(&a, TINY("moe.shared=1"));
    tiny_steps(&a.t, 0, 1);
    *element(&a, EMBED, BUF_OPTIMIZER, 3) = FLT_MAX;
    CHECK_OK(checkpoint_save(&a.saver, 1, 4));
    CHECK_OK(checkpoint_finish(&a.saver));
    place_open_in(&b, a.folder, TINY("optimizer.moments=bf16"));
    CHECK_FAILS(checkpoint_load(&b.t.engine.params, in_step(&a, 1, ""), &b.scratch, &info),
                ERR_NUMERIC,
                "read as bf16 holds model.embed_tokens.weight (moment1) with inf at element 3");
    place_leave(&b);
    place_close(&a);
}

/* Zero, least and largest values are as good as any. */
static void what_is_finite_is_saved_whatever_it_is(void **state)
{
    (void)state;
    RunPlace p;
    place_open(&p, TINY("moe.shared=1"));
    float *w = element(&p, EMBED, BUF_MAIN, 0), *v = element(&p, EMBED, BUF_OPTIMIZER + 1, 0);
    w[0] = -FLT_MAX, w[1] = FLT_MAX, w[2] = -0.0F, v[0] = -0.0F, v[1] = FLT_MAX, v[2] = 1e-45F;
    CHECK_OK(checkpoint_save(&p.saver, 1, 4));
    CHECK_OK(checkpoint_finish(&p.saver));
    CHECK(has(&p, 1));
    place_close(&p);
}

/* One whose sums are right all the same: made by an older program, or by a fault before its sum was
 * taken. */
static void a_checkpoint_that_is_not_finite_is_named_and_passed_over(void **state)
{
    (void)state;
    for (int i = 0; i < SPOILED; i++) {
        const struct Spoiled *s = &spoiled[i];
        RunPlace p;
        CheckpointInfo info;
        place_open(&p, TINY("moe.bias_rate=0.01"));
        train_and_save(&p, 0, 1);
        train_and_save(&p, 1, 1);
        forge_number(in_step(&p, 2, ""), s->param, s->buffer, s->at, s->value);
        CHECK_FAILS(checkpoint_load(&p.t.engine.params, in_step(&p, 2, ""), &p.scratch, &info),
                    ERR_NUMERIC, s->says);
        CHECK_FAILS(checkpoint_load(&p.t.engine.params, in_step(&p, 2, ""), &p.scratch, &info),
                    ERR_NUMERIC, "step-0000000002/ holds ");
        CHECK_OK(checkpoint_load_newest(&p.t.engine.params, p.folder, NULL, &p.scratch, &info));
        CHECK_INT(info.step, 1);
        forge_number(in_step(&p, 1, ""), s->param, s->buffer, s->at, s->value);
        CHECK_FAILS(checkpoint_load_newest(&p.t.engine.params, p.folder, NULL, &p.scratch, &info),
                    ERR_NUMERIC, s->says);
        place_close(&p);
    }
}

/* A checkpoint whose entries' pieces are others, with right sums of the manifest. */
static void change_pieces(const char *folder, int64_t which, Piece to)
{
    Arena a = { 0 }, text = { 0 };
    Text lines = { 0 };
    CheckpointInfo info;
    ManifestEntry *entry = NULL;
    int64_t n = 0;
    CHECK_OK(arena_init(&a, "forge", MEM_HOST, (size_t)1 << 30));
    CHECK_OK(arena_init(&text, "lines", MEM_HOST, (size_t)1 << 30));
    CHECK_OK(text_init(&lines, &text));
    CHECK_OK(manifest_read(folder, &a, &info, &entry, &n));
    entry[which].piece = to;
    for (int64_t i = 0; i < n; i++) CHECK_OK(manifest_line(&lines, &entry[i]));
    forge_manifest(folder, &info, &lines, &a);
    arena_free(&text);
    arena_free(&a);
}

/* The first entry is the embedding's, (61, 32). */
static void pieces_that_are_not_the_tensor_are_named_and_passed_over(void **state)
{
    (void)state;
    static const struct {
        Piece piece;
        const char *says;
    } bad[] = {
        { { 0, 32, 32, 62, 0, 0 },
          "elements 0+32 of model.embed_tokens.weight, 62 times, each 32 "
          "further, without 0 at the start and 0 at the end; it has 1952" },
        { { 0, 32, 32, 61, 32, 0 }, "each 32 further, without 32 at the start and 0 at the end" },
        { { 0, 1952, 1952, 1, 952, 1000 }, "without 952 at the start and 1000 at the end" },
        { { 0, 32, 32, 61, 0, 2 },
          "elements 1950 to 1951 of model.embed_tokens.weight (main) are in no entry" },
        { { 1, 1952, 1952, 1, 0, 0 }, "elements 1+1952 of model.embed_tokens.weight" },
        { { 0, 16, 8, 4, 0, 0 }, "elements 0+16 of model.embed_tokens.weight" },
        { { 0, 16, 32, 61, 0, 0 },
          "manifest.jsonl: elements 16 to 31 of model.embed_tokens.weight "
          "(main) are in no entry" },
        { { 0, 1951, 1951, 1, 0, 0 }, "elements 1951 to 1951 of model.embed_tokens.weight (main)" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        RunPlace p;
        CheckpointInfo info;
        place_open(&p, TINY("moe.shared=1"));
        train_and_save(&p, 0, 1);
        train_and_save(&p, 1, 1);
        change_pieces(in_step(&p, 2, ""), 0, bad[i].piece);
        CHECK_FAILS(checkpoint_load(&p.t.engine.params, in_step(&p, 2, ""), &p.scratch, &info),
                    ERR_FORMAT, bad[i].says);
        CHECK_OK(checkpoint_load_newest(&p.t.engine.params, p.folder, NULL, &p.scratch, &info));
        CHECK_INT(info.step, 1);
        place_close(&p);
    }
}

/* The step after: its ops are not to blame. */
static void a_step_that_fails_blames_the_update_that_spoiled_its_weights(void **state)
{
    (void)state;
    RunPlace p;
    StepResult r;
    place_open(&p, TINY("moe.shared=1"));
    tiny_steps(&p.t, 0, 2);
    for (int64_t i = 0; i < 61; i++) *element(&p, EMBED, BUF_OPTIMIZER, i * 32) = NAN;
    CHECK_OK(engine_step(&p.t.engine, &p.t.batch, 1e-2, 3, &r));
    CHECK(r.finite);
    CHECK_FAILS(engine_check_numbers(&p.t.engine.params, 3), ERR_NUMERIC,
                "adamw, in step 3 or before, left model.embed_tokens.weight (main) with");
    CHECK_OK(engine_step(&p.t.engine, &p.t.batch, 1e-2, 4, &r));
    CHECK(!r.finite);
    CHECK_FAILS(engine_explain_nan(&p.t.engine, &p.t.batch, 4), ERR_NUMERIC,
                "adamw, in step 3 or before, left model.embed_tokens.weight (main) with");
    place_close(&p);
}

/* ---- other models ---- */

static void check_other(const char *setting, const char *says)
{
    RunPlace a, b;
    CheckpointInfo info;
    place_open(&a, TINY("moe.shared=1"));
    train_and_save(&a, 0, 1);
    place_open_in(&b, a.folder, TINY(setting));
    CHECK_FAILS(checkpoint_load_newest(&b.t.engine.params, a.folder, NULL, &b.scratch, &info),
                ERR_ARG, says);
    place_leave(&b);
    place_close(&a);
}

static void the_first_parameter_that_differs_is_named(void **state)
{
    (void)state;
    check_other("model.vocab=62",
                "model.embed_tokens.weight is (61, 32) f32 there, (62, 32) f32 here");
    check_other("model.layers=4",
                "model.layers.3.input_layernorm.weight (main) has 0 of 32 elements");
    check_other("model.layers=2",
                "it has model.layers.2.input_layernorm.weight, which this model lacks");
    check_other("moe.bias_rate=0.1",
                "model.layers.1.mlp.gate.e_score_correction_bias (state) has 0 of 6");
}

/* ---- which are kept ---- */

static void the_newest_are_kept_also_by_the_next_process(void **state)
{
    (void)state;
    RunPlace p;
    place_open(&p, TINY("checkpoint.keep=2"));
    for (int i = 0; i < 3; i++) train_and_save(&p, i, 1);
    CHECK(!has(&p, 1) && has(&p, 2) && has(&p, 3));
    checkpointer_close(&p.saver);
    CHECK_OK(checkpointer_open(&p.saver, &p.t.config, &p.t.engine.params, &p.t.arena));
    CHECK_INT(p.saver.n_steps, 2);
    train_and_save(&p, 3, 1);
    CHECK(!has(&p, 2) && has(&p, 3) && has(&p, 4));
    place_close(&p);
}

static void what_was_never_finished_is_removed_and_what_is_foreign_stays(void **state)
{
    (void)state;
    RunPlace p;
    place_open(&p, TINY("moe.shared=1"));
    train_and_save(&p, 0, 1);
    char path[256];
    snprintf(path, sizeof path, "%s/step-0000000002.tmp", p.saver.folder);
    CHECK_OK(file_make_folders(path));
    CHECK_OK(file_make_folders(in_step(&p, 1, "mine")));
    checkpointer_close(&p.saver);
    CHECK_OK(checkpointer_open(&p.saver, &p.t.config, &p.t.engine.params, &p.t.arena));
    CHECK(!file_exists(path));
    CHECK(file_exists(in_step(&p, 1, "mine")));
    CHECK_INT(p.saver.n_steps, 1);
    place_close(&p);
}

static void a_path_is_a_checkpoint_or_a_run(void **state)
{
    (void)state;
    RunPlace p;
    char found[FILE_PATH_MAX], wanted[FILE_PATH_MAX];
    place_open(&p, TINY("checkpoint.keep=3"));
    for (int i = 0; i < 2; i++) train_and_save(&p, i, 1);
    snprintf(wanted, sizeof wanted, "%s/checkpoints/step-0000000002", p.folder);
    CHECK_OK(checkpoint_resolve(p.folder, &p.scratch, found));
    CHECK_TEXT(found, wanted);
    snprintf(wanted, sizeof wanted, "%s/checkpoints/step-0000000001", p.folder);
    CHECK_OK(checkpoint_resolve(wanted, &p.scratch, found));
    CHECK_TEXT(found, wanted);
    flip(in_step(&p, 2, MANIFEST_NAME), 0);
    CHECK_OK(checkpoint_resolve(p.folder, &p.scratch, found));
    CHECK_TEXT(found, wanted);
    CHECK_FAILS(checkpoint_resolve("/nowhere", &p.scratch, found), ERR_IO, "/nowhere");
    place_close(&p);
}

/* The first save would else wait for them, which takes longer than its copy. */
static void pages_for_saves_are_taken_before_the_first(void **state)
{
    (void)state;
    RunPlace p;
    int64_t all = 0;
    skip_under_emulator("madvise takes no pages");
    if (!pages_can_be_taken()) {
        printf("skip: needs Linux 5.14 or later\n");
        skip();
    }
    place_open(&p, TINY("model.vocab=5000"));
    CHECK(worker_wait(&p.saver.writer, INFINITY));
    CHECK_INT(pages_resident(p.saver.image, p.saver.bytes, &all), all);
    CHECK(all > 100);
    train_and_save(&p, 0, 1);
    CHECK(has(&p, 1));
    place_close(&p);
}

/* What a save costs is counted from its begin to its end, over the time since the begin of the one before. */
static void the_wait_for_a_save_is_a_share_of_its_interval(void **state)
{
    RunPlace p = { 0 };
    const SaveTimes *t = &p.saver.times;
    (void)state;
    place_open(&p, models[0]);
    train_and_save(&p, 0, 1);
    CHECK_INT(t->saves, 1);
    const double first_s = t->all_s, began_s = t->began_s;
    CHECK(first_s > 0 && t->share > 0 && t->worst_share == t->share);
    CHECK_NEAR(t->stall_s, first_s, 1e-12);
    p.saver.times.share = 0;
    usleep(20000);
    train_and_save(&p, 1, 1);
    CHECK_INT(t->saves, 2);
    CHECK_NEAR(t->share, (t->all_s - first_s) / (t->began_s - began_s), 1e-9);
    CHECK(t->began_s - began_s >= 0.02); /* the share may be above 1 on a slow disk */
    CHECK(t->worst_share >= t->share);
    place_close(&p);
}

int main(void)
{
    log_set_level(LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_wait_for_a_save_is_a_share_of_its_interval),
        TEST(a_loaded_training_goes_on_with_the_same_bits),
        TEST(a_save_under_way_is_finished_when_a_run_ends),
        TEST(padding_is_zero_behind_a_load),
        TEST(a_load_beats),
        TEST(weights_alone_are_loaded_for_inference),
        TEST(a_checkpoint_in_f32_goes_on_in_bf16),
        TEST(moments_are_rounded_and_widened_between_runs),
        TEST(header_tells_step_position_and_configuration),
        TEST(header_tells_which_instructions_computed),
        TEST(entries_are_aligned_and_there_for_every_parameter_and_moment),
        TEST(every_flipped_byte_of_the_manifest_is_found),
        TEST(a_flipped_byte_of_any_entry_is_found_and_named),
        TEST(the_newest_whole_one_is_loaded),
        TEST(a_damaged_one_is_replaced_by_the_step_run_again),
        TEST(what_is_not_finite_is_never_saved),
        TEST(bf16_moments_that_are_not_finite_are_never_saved),
        TEST(a_moment_that_bf16_cannot_hold_is_not_loaded),
        TEST(what_is_finite_is_saved_whatever_it_is),
        TEST(a_checkpoint_that_is_not_finite_is_named_and_passed_over),
        TEST(pieces_that_are_not_the_tensor_are_named_and_passed_over),
        TEST(a_step_that_fails_blames_the_update_that_spoiled_its_weights),
        TEST(the_first_parameter_that_differs_is_named),
        TEST(the_newest_are_kept_also_by_the_next_process),
        TEST(what_was_never_finished_is_removed_and_what_is_foreign_stays),
        TEST(a_path_is_a_checkpoint_or_a_run),
        TEST(pages_for_saves_are_taken_before_the_first),
    };
    return TEST_RUN(tests);
}
