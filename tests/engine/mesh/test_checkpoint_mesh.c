/* Checkpoints over ranks, as threads: any mesh loads any mesh's to the bit, every element is
 * written once, and what goes wrong on one rank is known to all and costs at most the newest. */
#include "harness/checkpoint_ranks.h"
#include "harness/forge.h"

#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/checkpoint_folder.h"
#include "engine/checkpoint/init.h"
#include "engine/checkpoint/manifest.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* Settings of a mesh; beside them, what all have. */
static const ManyCase layouts[] = {
    { .ranks = 1, .settings = { "run.compute=f32" } },
    { .ranks = 2, .settings = { "mesh.zero=0" } },
    { .ranks = 2, .settings = { "mesh.zero=1", "run.compute=bf16" } },
    { .ranks = 2, .settings = { "mesh.zero=3", "mesh.shard=1" } },
    { .ranks = 4, .settings = { "mesh.zero=2", "run.compute=bf16" } },
    { .ranks = 4, .settings = { "mesh.zero=3", "mesh.shard=2", "run.compute=bf16" } },
    { .ranks = 4, .settings = { "mesh.zero=3" } },
    { .ranks = 4, .settings = { "mesh.zero=1", "mesh.ep=2" } },
    { .ranks = 4, .settings = { "mesh.zero=3", "mesh.ep=2", "mesh.cp=2", "run.compute=bf16" } },
    { .ranks = 4, .settings = { "mesh.ep=2", "moe.exchange=hier", "mesh.ranks_per_host=1" } },
    { .ranks = 4, .settings = { "mesh.zero=1", "mesh.pp=2" } },
    { .ranks = 4, .settings = { "mesh.zero=2", "mesh.pp=2", "mesh.ep=2", "run.compute=bf16" } },
    { .ranks = 2,
      .settings = { "mesh.zero=0", "mesh.pp=2", "mesh.vpp=2", "mesh.schedule=dualpipe" } },
};

/* Ranks of tp have parts of matrices, by rows or by columns: sizes that four divide. Of four, two
 * hold the same head of keys. */
#define PARTS                                                                                      \
    "model.vocab=64", "model.dense_layers=1", "attention.kind=gqa", "attention.heads=4",           \
        "attention.kv_heads=2", "attention.bias=true", "attention.out_bias=true",                  \
        "attention.sinks=true"
static const ManyCase divided[] = {
    { .ranks = 1, .settings = { PARTS } },
    { .ranks = 4, .settings = { PARTS, "mesh.zero=3", "mesh.ep=2" } },
    { .ranks = 2, .settings = { PARTS, "mesh.tp=2", "mesh.zero=0" } },
    { .ranks = 2, .settings = { PARTS, "mesh.tp=2", "mesh.zero=1", "run.compute=bf16" } },
    { .ranks = 4, .settings = { PARTS, "mesh.tp=4", "mesh.zero=0" } },
    { .ranks = 4, .settings = { PARTS, "mesh.tp=4", "mesh.zero=2", "mesh.ep=2" } },
    { .ranks = 4, .settings = { PARTS, "mesh.tp=2", "mesh.zero=2", "run.compute=bf16" } },
    { .ranks = 4, .settings = { PARTS, "mesh.tp=2", "mesh.zero=3", "mesh.shard=1" } },
    { .ranks = 4, .settings = { PARTS, "mesh.tp=2", "mesh.zero=1", "mesh.cp=2" } },
    { .ranks = 4, .settings = { PARTS, "mesh.tp=2", "mesh.zero=2", "mesh.pp=2" } },
    { .ranks = 4,
      .settings = { PARTS, "mesh.tp=2", "mesh.zero=0", "mesh.pp=2", "mesh.vpp=2",
                    "mesh.schedule=dualpipe" } },
    { .ranks = 8, .settings = { PARTS, "mesh.tp=4", "mesh.zero=3", "run.compute=bf16" } },
};

/* Ranks have parts of experts, and the first of them their second biases. */
static const ManyCase shared[] = {
    { .ranks = 1, .settings = { PARTS } },
    { .ranks = 2, .settings = { PARTS, "mesh.zero=0", "mesh.etp=2" } },
    { .ranks = 4, .settings = { PARTS, "mesh.zero=1", "mesh.ep=2", "mesh.etp=2" } },
    { .ranks = 4,
      .settings = { PARTS, "mesh.tp=2", "mesh.zero=3", "mesh.etp=4", "run.compute=bf16" } },
    { .ranks = 8, .settings = { PARTS, "mesh.zero=2", "mesh.pp=2", "mesh.ep=2", "mesh.etp=2" } },
};

/* Gated delta nets: vectors of a head, a convolution that ranks of tp hold whole, a matrix that four ranks cut. */
static const ManyCase delta[] = {
    { .ranks = 1, .settings = { DELTA, "model.vocab=64", "mesh.zero=0" } },
    { .ranks = 4, .settings = { DELTA, "model.vocab=64", "mesh.zero=3", "mesh.ep=2" } },
    { .ranks = 4,
      .settings = { DELTA, "model.vocab=64", "mesh.zero=1", "mesh.pp=2", "run.compute=bf16" } },
    { .ranks = 4,
      .settings = { DELTA, "model.vocab=64", "mesh.zero=1", "mesh.tp=2", "run.compute=bf16" } },
};

enum {
    DELTAS = sizeof delta / sizeof *delta,
    LAYOUTS = sizeof layouts / sizeof *layouts,
    DIVIDED = sizeof divided / sizeof *divided,
    SHARED = sizeof shared / sizeof *shared
};

/* Under a sanitizer each of so many layouts is loaded by another, and goes on. */
enum { LOADED = RUNS(1, 4), RESUMED = RUNS(1, 6), SAVED = RUNS(1, 5) };

/* ---- folders ---- */

static char place[64];

static int make_place(void **state)
{
    (void)state;
    (void)snprintf(place, sizeof place, "/tmp/switchyard_test_XXXXXX");
    return mkdtemp(place) == NULL;
}

static int remove_place(void **state)
{
    (void)state;
    return file_remove_tree(place) != OK;
}

#define PLACE_TEST(name) cmocka_unit_test_setup_teardown(name, make_place, remove_place)

static const char *in_step(int step, const char *file)
{
    static char path[256];
    (void)snprintf(path, sizeof path, "%s/checkpoints/step-%010d/%s", place, step, file);
    return path;
}

/* ---- from mesh to mesh ---- */

static void check_pairs(const ManyCase *meshes, int n, const char *saver, const char *loader,
                        int step)
{
    for (int a = 0; a < n; a += SAVED) {
        RUN_CASE(.layout = &meshes[a], .dir = place, .more = saver, .body = save_two);
        for (int b = a % step; b < n; b += step) {
            Case c = { .layout = &meshes[b], .dir = place, .more = loader, .body = expect_two };
            Status s = run_case(c);
            if (s != OK) fail_msg("from mesh %d to %d: %s", a, b, status_message());
        }
        CHECK_OK(file_remove_tree(place));
    }
}

static void check_all_pairs(const char *saver, const char *loader, int step)
{
    check_pairs(layouts, LAYOUTS, saver, loader, step);
}

static void any_mesh_loads_any_mesh_s_to_the_bit(void **state)
{
    (void)state;
    check_all_pairs("moe.shared=1", "moe.shared=1", LOADED);
}

static void parts_of_matrices_go_from_mesh_to_mesh(void **state)
{
    static const struct {
        const char *more;
        int step;
    } cases[] = { { "moe.shared=1", LOADED },
                  { "attention.kind=mla", LOADED + 1 },
                  { "model.tied=true", LOADED + 3 },
                  { "mtp.layers=1", LOADED + 3 },
                  { "optimizer.ema=0.9", LOADED + 4 } };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_pairs(divided, DIVIDED, cases[i].more, cases[i].more, cases[i].step);
}

static void parts_of_experts_go_from_mesh_to_mesh(void **state)
{
    (void)state;
    check_pairs(shared, SHARED, "moe.shared=1", "moe.shared=1", LOADED);
    check_pairs(delta, DELTAS, "moe.shared=1", "moe.shared=1", LOADED);
    check_pairs(shared, SHARED, "moe.expert_bias=true", "moe.expert_bias=true", LOADED + 1);
}

static void averages_of_weights_go_from_mesh_to_mesh(void **state)
{
    (void)state;
    check_all_pairs("optimizer.ema=0.9", "optimizer.ema=0.9", LOADED + 4);
}

/* Parts that end between matrices, and parts of equal length. */
static void owners_of_matrices_and_of_elements_load_each_other_s(void **state)
{
    (void)state;
    static const int pairs[] = { 0, 3, 6, 7, 8, 11 };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        const ManyCase *c = &layouts[pairs[i]];
        const ManyCase *other = &layouts[pairs[(i + 1) % (sizeof pairs / sizeof *pairs)]];
        RUN_CASE(.layout = c, .dir = place, .cut = CUT_MATRICES, .body = save_two);
        RUN_CASE(.layout = other, .dir = place, .cut = CUT_MATRICES, .body = expect_two);
        RUN_CASE(.layout = c, .dir = place, .body = expect_two);
        CHECK_OK(file_remove_tree(place));
        RUN_CASE(.layout = other, .dir = place, .body = save_two);
        RUN_CASE(.layout = c, .dir = place, .cut = CUT_MATRICES, .body = expect_two);
        CHECK_OK(file_remove_tree(place));
    }
}

/* Kept as they are, widened or rounded. */
static void bf16_moments_go_from_mesh_to_mesh(void **state)
{
    static const char f32[] = "optimizer.moments=f32", bf16[] = "optimizer.moments=bf16";
    (void)state;
    rounded = true;
    check_all_pairs(bf16, bf16, LOADED + 4);
    check_all_pairs(bf16, f32, LOADED + 4);
    check_all_pairs(f32, bf16, LOADED + 4);
    rounded = false;
}

static void momenta_of_whole_matrices_go_from_mesh_to_mesh(void **state)
{
    (void)state;
    check_all_pairs("optimizer.kind=muon", "optimizer.kind=muon", LOADED + 3);
    check_pairs(divided, DIVIDED, "optimizer.kind=muon", "optimizer.kind=muon", LOADED + 3);
}

/* Elements of the tensor that `e` holds all of, as an entry of another file. */
static Status recut(ManifestShard *w, ManifestEntry e, const float *x, Piece piece,
                    const char *file)
{
    float *part = malloc((size_t)piece_elems(&piece) * sizeof(float));
    for (int64_t i = 0; i < piece_elems(&piece); i++) part[i] = x[piece_element(&piece, i)];
    e.piece = piece;
    e.file = file;
    Status s = manifest_write_entry(w, &e, part);
    free(part);
    return s;
}

/* A lone rank's checkpoint as two ranks would have written it that cut matrices by column, and so
 * that the left one has a third. */
static Status recut_all(ManifestShard w[2], const char *folder, const ManifestEntry *e)
{
    char path[FILE_PATH_MAX];
    const size_t bytes = (size_t)piece_elems(&e->piece) * sizeof(float);
    const int64_t left = e->dim[1] / 3;
    float *x = malloc(bytes);
    TRY(file_join(path, folder, e->file));
    TRY(read_at(path, e->offset, x, bytes));
    Status s;
    if (e->rank == 2 && left > 0) {
        const Piece right = { left, e->dim[1] - left, e->dim[1], e->dim[0], 0, 0 };
        s = recut(&w[1], *e, x, right, "right.bin");
        if (s == OK)
            s = recut(&w[0], *e, x, (Piece){ 0, left, e->dim[1], e->dim[0], 0, 0 }, "left.bin");
    } else {
        s = recut(&w[0], *e, x, e->piece, "left.bin");
    }
    free(x);
    return s;
}

static void cut_by_column(const char *folder)
{
    Arena a = { 0 }, text = { 0 };
    Text lines = { 0 };
    CheckpointInfo info;
    ManifestEntry *entry = NULL;
    ManifestShard w[2] = { { .lines = &lines }, { .lines = &lines } };
    static const char *const files[2] = { "left.bin", "right.bin" };
    int64_t n = 0;
    CHECK_OK(arena_init(&a, "forge", MEM_HOST, (size_t)1 << 30));
    CHECK_OK(arena_init(&text, "lines", MEM_HOST, (size_t)1 << 30));
    CHECK_OK(text_init(&lines, &text));
    CHECK_OK(manifest_read(folder, &a, &info, &entry, &n));
    for (int i = 0; i < 2; i++) {
        char path[FILE_PATH_MAX];
        CHECK_OK(file_join(path, folder, files[i]));
        CHECK_OK(manifest_sum_new(&a, &w[i].sum));
        CHECK_OK(file_create_temp(&w[i].file, path, &a));
    }
    for (int64_t i = 0; i < n; i++) CHECK_OK(recut_all(w, folder, &entry[i]));
    CHECK(w[0].file.written_bytes > 0 && w[1].file.written_bytes > w[0].file.written_bytes);
    for (int i = 0; i < 2; i++) CHECK_OK(file_commit(&w[i].file));
    forge_manifest(folder, &info, &lines, &a);
    CHECK_OK(file_remove_tree(in_step(2, "rank-00000.bin")));
    arena_free(&text);
    arena_free(&a);
}

static void check_cut_by_column(const ManyCase *meshes, int n)
{
    RUN_CASE(.layout = &meshes[0], .dir = place, .body = save_two);
    cut_by_column(in_step(2, ""));
    for (int b = 0; b < n; b++) {
        Status s = run_case((Case){ .layout = &meshes[b], .dir = place, .body = expect_two });
        if (s != OK) fail_msg("to mesh %d: %s", b, status_message());
    }
}

static void what_was_cut_by_column_is_loaded_by_any_mesh(void **state)
{
    (void)state;
    check_cut_by_column(divided, DIVIDED);
    CHECK_OK(file_remove_tree(place));
    check_cut_by_column(layouts, LAYOUTS);
    flip(in_step(2, "right.bin"), 200); /* no rank of some meshes wants it whole */
    RUN_CASE(.layout = &layouts[0], .dir = place, .body = expect_one);
    RUN_CASE(.layout = &layouts[6], .dir = place, .body = expect_one);
}

/* Two stages hold one table. */
static void a_tied_table_goes_from_mesh_to_mesh(void **state)
{
    (void)state;
    check_all_pairs("model.tied=true", "model.tied=true", 4);
}

/* Likewise; and the head's weights are those of several layers. */
static void multi_token_prediction_goes_from_mesh_to_mesh(void **state)
{
    (void)state;
    check_all_pairs("mtp.layers=1", "mtp.layers=1", 4);
}

/* ---- modules that one model has and the other lacks ---- */

static Status may_begin(const void *rank, const char *path, CheckpointInfo *info, Arena *a)
{
    const Rank *r = rank;
    return init_check(&r->t->config, path, info, false, a);
}

/* Is a parameter of a module that a model with so many lacks? */
static bool beyond(const Engine *e, const Param *p, int64_t modules)
{
    return param_block(p->name) >= e->config->model_layers + modules;
}

/* What a parameter is from scratch: random numbers of many_open's seed, zero in other buffers. */
static Status expect_new(const Param *p, ParamBuffer b, const ParamPiece *piece)
{
    enum { MOST = 4096 };
    float want[MOST] = { 0 };
    EXPECT(piece_elems(&piece->in) <= MOST);
    if (b == BUF_MAIN) param_fill(p, 42, &piece->in, 0, piece_elems(&piece->in), want);
    for (int64_t i = 0; i < piece_elems(&piece->in); i++) {
        if (get(&piece->at, i) == want[i]) continue;
        return FAIL(ERR_NUMERIC, "%s (%s), element %lld is %g, from scratch %g", p->name,
                    buffer_desc(&optimizer_adamw, b).name, (long long)i, (double)get(&piece->at, i),
                    (double)want[i]);
    }
    return OK;
}

/* The common part is the checkpoint's, the rest as from scratch. */
static Status expect_begun(Rank *r)
{
    Engine *e = &r->t->engine;
    const CheckpointGate gate = { .may = may_begin, .self = r };
    CheckpointInfo info;
    char path[FILE_PATH_MAX];
    TRY(init_resolve(r->dir, &r->scratch, path));
    TRY(checkpoint_load_init(&e->params, path, &gate, true, &r->scratch, &info));
    for (int k = 0; k < e->params.table.n * CHECKPOINT_BUFFERS; k++) {
        const Param *p = &e->params.table.at[k / CHECKPOINT_BUFFERS];
        ParamBuffer b = checkpoint_buffer(k % CHECKPOINT_BUFFERS);
        ParamPiece piece = param_piece(&e->params.table, p, &e->params.memory, b);
        if (!beyond(e, p, info.modules)) continue;
        TRY(expect_new(p, b, &piece));
        for (int64_t i = 0; i < piece_elems(&piece.in); i++)
            put(&piece.at, i, value_of(p, b, piece_element(&piece.in, i), 2));
    }
    return expect_state(e, 2);
}

static void a_model_begins_with_one_of_more_or_fewer_modules(void **state)
{
    (void)state;
    static const char *const pairs[][2] = { { "mtp.layers=0", "mtp.layers=1" },
                                            { "mtp.layers=2", "mtp.layers=0" },
                                            { "mtp.layers=2", "mtp.layers=1" } };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        for (int a = (int)i; a < LAYOUTS; a += RUNS(3, 9)) {
            RUN_CASE(.layout = &layouts[a], .dir = place, .more = pairs[i][0], .body = save_two);
            for (int b = a % LOADED; b < LAYOUTS; b += LOADED) {
                Status s = run_case((Case){ .layout = &layouts[b],
                                            .dir = place,
                                            .more = pairs[i][1],
                                            .body = expect_begun });
                if (s != OK) fail_msg("from mesh %d to %d: %s", a, b, status_message());
            }
            CHECK_OK(file_remove_tree(place));
        }
    }
}

/* A manifest that does not name the parameter, in one file or (NULL) in all. */
static void leave_out(const char *folder, const char *param, const char *file)
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
    for (int64_t i = 0; i < n; i++) {
        const bool there = file == NULL || strcmp(entry[i].file, file) == 0;
        if (!there || strcmp(entry[i].param, param) != 0)
            CHECK_OK(manifest_line(&lines, &entry[i]));
    }
    forge_manifest(folder, &info, &lines, &a);
    arena_free(&text);
    arena_free(&a);
}

/* A module with a part of it missing is no new one. */
static void a_model_without_a_module_that_it_should_have_is_refused(void **state)
{
    (void)state;
    RUN_CASE(.layout = &layouts[0], .dir = place, .more = "mtp.layers=1", .body = save_two);
    leave_out(in_step(2, ""), "model.layers.3.eh_proj.weight", NULL);
    CHECK_FAILS(
        run_case((Case){
            .layout = &layouts[1], .dir = place, .more = "mtp.layers=1", .body = expect_begun }),
        ERR_ARG, "model.layers.3.eh_proj.weight (main) has 0 of");
    CHECK_FAILS(
        run_case((Case){
            .layout = &layouts[1], .dir = place, .more = "mtp.layers=2", .body = expect_begun }),
        ERR_ARG, "model.layers.3.eh_proj.weight (main) has 0 of");
}

/* Moments are zero here, so an update is as long as their age makes it: the whole rate where they are
 * as old as the training, (1 - beta1) / sqrt(1 - beta2) of it where they are very old. */
static Status expect_ages(Rank *r)
{
    enum { MOST = 4096 };
    const double want[AGE_COUNT] = { 1e-2 * 0.1 / sqrt(0.05), 1e-2 };
    Engine *e = &r->t->engine;
    float begun[MOST];
    e->params.moment_steps[AGE_MODEL] = 10000;
    r->t->config.optimizer_eps = 1e-20; /* the smallest gradients move weights as far as others */
    TRY(many_step(&r->many, 0, &r->last[r->world->rank]));
    for (int k = 0; k < e->params.table.n; k++) {
        const Param *p = &e->params.table.at[k];
        if (p->first[BUF_MAIN] < 0) continue;
        ParamPiece piece = param_piece(&e->params.table, p, &e->params.memory, BUF_MAIN);
        double most = 0, age = want[beyond(e, p, 0) ? AGE_MODULES : AGE_MODEL];
        EXPECT(piece_elems(&piece.in) <= MOST);
        param_fill(p, 42, &piece.in, 0, piece_elems(&piece.in), begun);
        for (int64_t i = 0; i < piece_elems(&piece.in); i++)
            most = fmax(most, fabs((double)(get(&piece.at, i) - begun[i])));
        if (most < 1e-5 || (most > 0.9 * age && most < 1.1 * age)) continue; /* no row, or right */
        return FAIL(ERR_NUMERIC, "%s moves by %g, not %g", p->name, most, age);
    }
    return OK;
}

static void moments_of_new_modules_are_corrected_as_new(void **state)
{
    (void)state;
    StepResult last[8];
    for (int a = 0; a < LAYOUTS; a++) {
        Status s = run_case((Case){ .layout = &layouts[a],
                                    .dir = place,
                                    .more = "mtp.layers=2",
                                    .body = expect_ages,
                                    .last = last });
        if (s != OK) fail_msg("mesh %d: %s", a, status_message());
    }
}

#define FROZEN "init.frozen=[model.embed_tokens.weight, \"*.0.*\", \"*.1.mlp.experts.*.up_proj.*\"]"

/* Loading has shown that none is missing. */
static int64_t saved_elements(const ManyCase *layout, const char *more)
{
    Arena a;
    CheckpointInfo info;
    ManifestEntry *entry = NULL;
    int64_t elements = 0, n = 0;
    CHECK_OK(arena_init(&a, "manifest", MEM_HOST, (size_t)1 << 28));
    RUN_CASE(.layout = layout, .dir = place, .more = more, .body = save_two);
    CHECK_OK(manifest_read(in_step(2, ""), &a, &info, &entry, &n));
    for (int64_t i = 0; i < n; i++) elements += piece_elems(&entry[i].piece);
    CHECK_OK(file_remove_tree(place));
    arena_free(&a);
    return elements;
}

static void check_elements(const ManyCase *meshes, int n)
{
    static const char *const models[] = { "moe.shared=1", "model.tied=true", "mtp.layers=1",
                                          FROZEN };
    for (int m = 0; m < 4; m++) {
        int64_t alone = saved_elements(&meshes[0], models[m]);
        for (int i = 1; i < n; i += SAVED) CHECK_INT(saved_elements(&meshes[i], models[m]), alone);
    }
}

static void no_element_is_written_twice(void **state)
{
    (void)state;
    check_elements(layouts, LAYOUTS);
    check_elements(divided, DIVIDED);
}

static void a_save_without_a_thread_writes_the_same(void **state)
{
    (void)state;
    RUN_CASE(.layout = &layouts[5], .dir = place, .more = "checkpoint.async=false",
             .body = save_two);
    RUN_CASE(.layout = &layouts[4], .dir = place, .body = expect_two);
}

static Status save_while_training(Rank *r)
{
    const struct timespec step = { 0, 1000000 };
    TRY(checkpointer_open(&r->saver, &r->t->config, &r->t->engine.params, &r->t->arena));
    put_state(&r->t->engine, 1);
    TRY(checkpoint_save(&r->saver, 1, 4));
    EXPECT(r->saver.times.stall_s > 0);
    for (int i = 0; i < 20000 && r->saver.pending; i++) {
        put_state(&r->t->engine, i);
        nanosleep(&step, NULL);
        TRY(checkpoint_poll(&r->saver));
    }
    EXPECT(!r->saver.pending && r->saver.n_steps == 1);
    return OK;
}

static void a_save_ends_at_a_later_step(void **state)
{
    (void)state;
    RUN_CASE(.layout = &layouts[4], .dir = place, .body = save_while_training);
    RUN_CASE(.layout = &layouts[1], .dir = place, .body = expect_one);
}

static Status train_to(Rank *r, int64_t first, int64_t end)
{
    for (int64_t i = first; i < end; i++) {
        TRY(many_step(&r->many, i, &r->last[r->world->rank]));
        if (i == 2) TRY(checkpoint_save(&r->saver, 3, 12));
        TRY(checkpoint_poll(&r->saver));
    }
    return checkpoint_finish(&r->saver);
}

static Status train_through(Rank *r)
{
    TRY(checkpointer_open(&r->saver, &r->t->config, &r->t->engine.params, &r->t->arena));
    return train_to(r, 0, 6);
}

static Status train_on(Rank *r)
{
    CheckpointInfo info;
    TRY(checkpoint_load_newest(&r->t->engine.params, r->dir, NULL, &r->scratch, &info));
    return train_to(r, info.step, 6);
}

static void check_resumed(const ManyCase *mesh, const char *more)
{
    StepResult whole[8] = { 0 }, resumed[8] = { 0 };
    RUN_CASE(.layout = mesh, .dir = place, .more = more, .body = train_through, .last = whole);
    RUN_CASE(.layout = mesh, .dir = place, .more = more, .body = train_on, .last = resumed);
    for (int r = 0; r < mesh->ranks; r++)
        CHECK(whole[r].loss == resumed[r].loss && whole[r].grad_norm == resumed[r].grad_norm);
    CHECK(whole[0].loss > 0);
    CHECK_OK(file_remove_tree(place));
}

static void a_resumed_run_goes_on_with_the_same_bits(void **state)
{
    (void)state;
    static const char *const all[] = { "optimizer.moments=f32", "optimizer.moments=bf16", FROZEN,
                                       "fp8.recipe=block", "optimizer.kind=muon" };
    enum { ALL = sizeof all / sizeof *all };
    for (int k = 0; k < ALL * LAYOUTS; k += RESUMED) check_resumed(&layouts[k / ALL], all[k % ALL]);
    for (int k = 0; k < ALL * DIVIDED; k += RESUMED) check_resumed(&divided[k / ALL], all[k % ALL]);
    for (int k = 1; k < SHARED; k++) check_resumed(&shared[k], all[k - 1]);
    for (int k = 0; k < DELTAS; k++) check_resumed(&delta[k], all[k]);
    /* q of a fused matrix has fewer copies than k and v */
    check_resumed(&divided[4], "fp8.recipe=block");
}

/* ---- what goes wrong ---- */

static Status save_and_leave(Rank *r)
{
    TRY(save_two(r));
    TRY(checkpoint_save(&r->saver, 3, 12));
    EXPECT(worker_wait(&r->saver.writer, INFINITY));
    return comm_barrier(r->world); /* so that no rank writes into what rank 0 removes */
}

static Status reopen(Rank *r)
{
    TRY(checkpointer_open(&r->saver, &r->t->config, &r->t->engine.params, &r->t->arena));
    EXPECT(r->saver.n_steps == 2);
    return expect_two(r);
}

static void a_save_that_was_not_finished_leaves_the_one_before(void **state)
{
    (void)state;
    char temp[128];
    (void)snprintf(temp, sizeof temp, "%s/checkpoints/step-0000000003.tmp", place);
    RUN_CASE(.layout = &layouts[5], .dir = place, .body = save_and_leave);
    CHECK(!file_exists(temp));
    CHECK_OK(file_make_folders(temp)); /* as a crash leaves it */
    RUN_CASE(.layout = &layouts[5], .dir = place, .body = reopen);
    CHECK(!file_exists(temp));
}

/* The file of rank 0, which has the small parameters too, is too long; rank 1's is not. */
static Status fail_on_rank_0(Rank *r)
{
    TRY(save_two(r));
    TRY(comm_barrier(r->world));
    size_t bytes = r->saver.bytes;
    if (r->world->rank == 1) {
        const struct rlimit limit = { bytes, RLIM_INFINITY };
        setrlimit(RLIMIT_FSIZE, &limit);
    }
    TRY(comm_barrier(r->world));
    Status s = save_step(r, 3);
    EXPECT(s == ERR_DISK);
    EXPECT(strstr(status_message(), "checkpoint of step 3: ") != NULL);
    EXPECT((strstr(status_message(), "rank 0: ") != NULL) == (r->world->rank > 0));
    EXPECT(strstr(status_message(), "rank-00000.bin: ") != NULL);
    EXPECT(r->saver.n_steps == 2);
    return OK;
}

static void a_rank_that_cannot_write_fails_the_save_on_all(void **state)
{
    (void)state;
    struct rlimit before;
    CHECK(getrlimit(RLIMIT_FSIZE, &before) == 0 && signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    Status s = run_case((Case){ .layout = &layouts[2], .dir = place, .body = fail_on_rank_0 });
    CHECK(setrlimit(RLIMIT_FSIZE, &before) == 0);
    CHECK_OK(s);
    CHECK(!file_exists(in_step(3, "")));
    RUN_CASE(.layout = &layouts[2], .dir = place, .body = expect_two);
}

static Status missing_is_named(Rank *r)
{
    char path[256];
    (void)snprintf(path, sizeof path, "%s/checkpoints/step-0000000002", r->dir);
    CheckpointInfo info;
    EXPECT(checkpoint_load(&r->t->engine.params, path, &r->scratch, &info) == ERR_IO);
    EXPECT(strstr(status_message(), "rank-00002.bin cannot be read") != NULL);
    return expect_one(r);
}

static void a_missing_file_is_named_and_the_one_before_is_loaded(void **state)
{
    (void)state;
    RUN_CASE(.layout = &layouts[4], .dir = place, .body = save_two);
    CHECK(unlink(in_step(2, "rank-00002.bin")) == 0);
    for (int i = 0; i < LAYOUTS; i += 2) {
        RUN_CASE(.layout = &layouts[i], .dir = place, .body = missing_is_named);
    }
}

/* The second half of the head, which some ranks of tp do not have. */
static void a_part_that_no_file_has_is_missed_by_every_mesh(void **state)
{
    (void)state;
    RUN_CASE(.layout = &divided[2], .dir = place, .body = save_two);
    leave_out(in_step(2, ""), "lm_head.weight", "rank-00001.bin");
    for (int i = 0; i < DIVIDED; i++)
        RUN_CASE(.layout = &divided[i], .dir = place, .body = expect_one);
}

/* In the first entry of one rank's file, of which many ranks want but parts; in one of many. */
static void a_damaged_byte_is_found_by_every_mesh(void **state)
{
    (void)state;
    static const struct {
        const ManyCase *layout;
        const char *file;
    } cases[] = { { &layouts[0], "rank-00000.bin" }, { &layouts[4], "rank-00003.bin" } };
    for (int k = 0; k < 2; k++) {
        RUN_CASE(.layout = cases[k].layout, .dir = place, .body = save_two);
        flip(in_step(2, cases[k].file), 5);
        for (int i = 0; i < LAYOUTS; i += 2) {
            RUN_CASE(.layout = &layouts[i], .dir = place, .body = expect_one);
        }
        CHECK_OK(file_remove_tree(place));
    }
}

/* ---- folders that ranks see differently ---- */

static Status open_apart(Rank *r)
{
    EXPECT(checkpointer_open(&r->saver, &r->t->config, &r->t->engine.params, &r->t->arena) ==
           ERR_ARG);
    EXPECT(strstr(status_message(), "rank 1: ") != NULL);
    EXPECT(strstr(status_message(), "run.dir must be one folder that all ranks share") != NULL);
    return OK;
}

static void ranks_with_folders_of_their_own_are_refused(void **state)
{
    (void)state;
    RUN_CASE(.layout = &layouts[4], .dir = place, .apart = true, .body = open_apart);
}

static Status load_apart(Rank *r)
{
    CheckpointInfo info;
    Status s = checkpoint_load_newest(&r->t->engine.params, r->t->config.run_dir, NULL, &r->scratch,
                                      &info);
    EXPECT(s == ERR_ARG);
    EXPECT(strstr(status_message(), "rank 1: ") != NULL);
    EXPECT(strstr(status_message(), "/1/checkpoints/step-0000000002 is not there as") != NULL);
    return OK;
}

/* Rank 0 has a checkpoint that rank 1 has not; then rank 1 has another one of that step. */
static void a_checkpoint_that_a_rank_does_not_see_is_refused(void **state)
{
    (void)state;
    char own[96];
    (void)snprintf(own, sizeof own, "%s/0", place);
    RUN_CASE(.layout = &layouts[0], .dir = own, .body = save_two);
    RUN_CASE(.layout = &layouts[1], .dir = place, .apart = true, .body = load_apart);
    (void)snprintf(own, sizeof own, "%s/1", place);
    RUN_CASE(.layout = &layouts[1], .dir = own, .body = save_two);
    RUN_CASE(.layout = &layouts[1], .dir = place, .apart = true, .body = load_apart);
}

/* A second moment, of which this rank alone has a part. */
static float *own_moment(Engine *e)
{
    for (int i = 0; i < e->params.table.n; i++) {
        const Param *p = &e->params.table.at[i];
        ParamPiece piece = param_piece(&e->params.table, p, &e->params.memory, BUF_OPTIMIZER + 1);
        int64_t n = piece_elems(&piece.in);
        if (n > 0 && n < param_elems(p)) return piece.at.data;
    }
    return NULL;
}

static Status save_spoiled(Rank *r)
{
    Engine *e = &r->t->engine;
    TRY(checkpointer_open(&r->saver, &r->t->config, &e->params, &r->t->arena));
    TRY(save_step(r, 1));
    put_state(e, 2);
    TRY(engine_check_numbers(&e->params, 2));
    if (r->world->rank == 1) *own_moment(e) = -1;
    EXPECT(engine_check_numbers(&e->params, 2) == ERR_NUMERIC);
    EXPECT(strstr(status_message(), "rank 1: adamw, in step 2 or before, left model.") != NULL);
    Status s = checkpoint_save(&r->saver, 2, 8);
    if (s == OK) s = checkpoint_finish(&r->saver);
    EXPECT(s == ERR_NUMERIC);
    EXPECT(strstr(status_message(), "(moment2) with -1 at element ") != NULL);
    return expect_loaded(r, 1);
}

static void a_number_that_one_rank_spoiled_is_saved_by_none(void **state)
{
    static const int cut[] = { 4, 6, 9 };
    (void)state;
    for (size_t i = 0; i < sizeof cut / sizeof *cut; i++) {
        RUN_CASE(.layout = &layouts[cut[i]], .dir = place, .more = "checkpoint.keep=1",
                 .body = save_spoiled);
        CHECK_OK(file_remove_tree(place));
    }
}

int main(void)
{
    log_set_level(LOG_ERROR);
    const struct CMUnitTest tests[] = {
        PLACE_TEST(any_mesh_loads_any_mesh_s_to_the_bit),
        PLACE_TEST(parts_of_matrices_go_from_mesh_to_mesh),
        PLACE_TEST(parts_of_experts_go_from_mesh_to_mesh),
        PLACE_TEST(averages_of_weights_go_from_mesh_to_mesh),
        PLACE_TEST(owners_of_matrices_and_of_elements_load_each_other_s),
        PLACE_TEST(bf16_moments_go_from_mesh_to_mesh),
        PLACE_TEST(momenta_of_whole_matrices_go_from_mesh_to_mesh),
        PLACE_TEST(what_was_cut_by_column_is_loaded_by_any_mesh),
        PLACE_TEST(a_tied_table_goes_from_mesh_to_mesh),
        PLACE_TEST(multi_token_prediction_goes_from_mesh_to_mesh),
        PLACE_TEST(a_model_begins_with_one_of_more_or_fewer_modules),
        PLACE_TEST(a_model_without_a_module_that_it_should_have_is_refused),
        PLACE_TEST(moments_of_new_modules_are_corrected_as_new),
        PLACE_TEST(no_element_is_written_twice),
        PLACE_TEST(a_save_without_a_thread_writes_the_same),
        PLACE_TEST(a_save_ends_at_a_later_step),
        PLACE_TEST(a_resumed_run_goes_on_with_the_same_bits),
        PLACE_TEST(a_save_that_was_not_finished_leaves_the_one_before),
        PLACE_TEST(a_rank_that_cannot_write_fails_the_save_on_all),
        PLACE_TEST(a_missing_file_is_named_and_the_one_before_is_loaded),
        PLACE_TEST(a_part_that_no_file_has_is_missed_by_every_mesh),
        PLACE_TEST(a_damaged_byte_is_found_by_every_mesh),
        PLACE_TEST(a_number_that_one_rank_spoiled_is_saved_by_none),
        PLACE_TEST(ranks_with_folders_of_their_own_are_refused),
        PLACE_TEST(a_checkpoint_that_a_rank_does_not_see_is_refused),
    };
    return TEST_RUN(tests);
}
