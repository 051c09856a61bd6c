/* docs/explain/compatibility.md: which features work together, as the checks that refuse say it. Each
 * pair of features becomes a small configuration, which goes through the same checks as a training:
 * settings, mesh, schedule, the engine's counting run. A refusal becomes a footnote. `--write` prints
 * the page (make docs); without it the page is held to the program.
 *
 * A GPU is checked without one, so the page is the same in every build. What a device alone can
 * check is left out. */
#include "harness/arena.h"

#include "engine/base/file.h"
#include "engine/schedule/schedule.h"
#include "engine/train/train.h"

#include <stdio.h>
#include <string.h>

enum { SETTINGS_MAX = 4, NOTES_MAX = 64, NOTE_BYTES = 1024, BASE = 6, NAME_BYTES = 64 };

/* A feature: what sets it (the later row of a pair wins). Two of one group exclude each other. */
typedef struct Feature {
    const char *name, *group, *set[SETTINGS_MAX];
} Feature;

/* What all pairs start from: a small model, 4 micro-batches on each of two data-parallel ranks. */
static const char *const base[] = { "model.layers=4", "model.hidden=64",     "data.sequence=32",
                                    "train.batch=8",  "train.micro_batch=1", "run.device=cpu" };

static const Feature features[] = {
    { "mesh.cp=2", "cp", { "mesh.cp=2" } },
    { "mesh.tp=2", "tp", { "mesh.tp=2" } },
    { "mesh.ep=2", "ep", { "mesh.ep=2" } },
    { "mesh.etp=2", "etp", { "mesh.etp=2" } },
    { "mesh.zero=0", "zero", { "mesh.zero=0" } },
    { "mesh.zero=2", "zero", { "mesh.zero=2" } },
    { "mesh.zero=3", "zero", { "mesh.zero=3" } },
    { "mesh.shard=1", "shard", { "mesh.shard=1" } },
    { "mesh.reduce=bf16", "reduce", { "mesh.reduce=bf16" } },
    { "moe.exchange=allgather", "exchange", { "moe.exchange=allgather", "mesh.ep=2" } },
    { "moe.exchange=hier",
      "exchange",
      { "moe.exchange=hier", "mesh.ep=2", "mesh.ranks_per_host=1" } },
    { "moe.exchange=direct", "exchange", { "moe.exchange=direct", "mesh.ep=2" } },
    { "moe.buffers=worst", "buffers", { "moe.buffers=worst", "mesh.ep=2" } },
    { "moe.capacity=1", "capacity", { "moe.capacity=1" } },
    { "moe.bias_rule=quantile", "bias", { "moe.bias_rule=quantile", "moe.bias_rate=0.5" } },
    { "moe.score_input", "score", { "moe.score_input=true", "moe.top_k=1" } },
    { "mtp.layers=1", "mtp", { "mtp.layers=1" } },
    { "model.tied", "tied", { "model.tied=true" } },
    { "attention.kind=gqa", "kind", { "attention.kind=gqa" } },
    { "attention.sinks", "sinks", { "attention.sinks=true" } },
    { "attention.window", "window", { "attention.window=8" } },
    { "attention.qk_norm", "qk", { "attention.kind=gqa", "attention.qk_norm=rms" } },
    { "attention.gate",
      "qk",
      { "attention.kind=gqa", "attention.qk_norm=rms", "attention.gate=true" } },
    { "delta.full_every", "delta", { "delta.full_every=2" } },
    { "attention.kind=mla", "kind", { "attention.kind=mla" } },
    { "attention.kernel=hopper",
      "kernel",
      { "attention.kernel=hopper", "run.device=cuda", "run.compute=bf16" } },
    { "recompute: layer", "recompute", { "recompute.layers=[0,1,2,3]" } },
    { "recompute: exchange",
      "recompute",
      { "recompute.layers=[2]", "recompute.pieces=[exchange]", "mesh.ep=2" } },
    { "init.frozen", "frozen", { "init.frozen=[model.embed_tokens.weight]" } },
    { "optimizer.qk_clip", "qk_clip", { "optimizer.qk_clip=100" } },
    { "run.compute=f32", "compute", { "run.compute=f32" } },
    { "run.compute=bf16", "compute", { "run.compute=bf16" } },
    { "optimizer.moments=bf16", "moments", { "optimizer.moments=bf16" } },
    { "fp8.recipe=block", "recipe", { "fp8.recipe=block" } },
    { "CPU", "device", { "run.device=cpu" } },
    { "GPU", "device", { "run.device=cuda" } },
};

enum { FEATURES = sizeof features / sizeof *features };

/* The sentences of all refusals, each once. */
typedef struct Notes {
    const char *text[NOTES_MAX];
    int n;
    Arena *arena;
} Notes;

/* ---- one pair ---- */

static Status apply(Config *c, Arena *a, const char *const *set, int n)
{
    for (int i = 0; i < n && set[i] != NULL; i++) TRY(config_override(c, a, set[i]));
    return OK;
}

/* What a GPU runs is planned for the CPU. */
static void plan_for_cpu(Config *c)
{
    if (c->run_device != DEVICE_CUDA) return;
    c->run_device = DEVICE_CPU;
    c->attention_kernel = ATTENTION_AUTO;
}

/* The first rank and the last one, which lie on the first and the last stage. */
static Status check_mesh(const Config *c)
{
    const int ranks = (int)(c->mesh_pp * c->mesh_cp * c->mesh_tp * 2);
    MeshShape shape;
    TRY(train_mesh(c, ranks, &shape));
    for (int rank = 0; rank < ranks; rank += ranks - 1) {
        Mesh mesh = mesh_alone(&shape, rank);
        EngineShape engine = train_shape(c, &mesh);
        EnginePlan plan = { 0 }, again = { 0 };
        TRY(engine_plan(c, ENGINE_TRAIN, &engine, &plan));
        TRY(engine_plan_retry(c, &engine, &plan, &again));
    }
    return OK;
}

static Status check_pair(const Feature *one, const Feature *other, Arena *a)
{
    Config c;
    TRY(config_default(&c, a));
    TRY(apply(&c, a, base, BASE));
    TRY(apply(&c, a, one->set, SETTINGS_MAX));
    TRY(apply(&c, a, other->set, SETTINGS_MAX));
    TRY(config_check(&c));
    plan_for_cpu(&c);
    return check_mesh(&c);
}

/* ---- the page ---- */

/* The number of a refusal's footnote, from 1: of its sentence, without the kind of error and the
 * places that follow. */
static Status note_number(Notes *notes, const char *text, int *out)
{
    char *copy = NULL;
    const char *kind = strstr(text, " [");
    const size_t n = kind == NULL ? strlen(text) : (size_t)(kind - text);
    for (int i = 0; i < notes->n; i++) {
        *out = i + 1;
        if (strncmp(notes->text[i], text, n) == 0 && notes->text[i][n] == '\0') return OK;
    }
    if (notes->n == NOTES_MAX) return FAIL(ERR_ARG, "more than %d refusals", NOTES_MAX);
    TRY(ARENA_ZEROED(notes->arena, n + 1, &copy));
    (void)snprintf(copy, n + 1, "%.*s", (int)n, text);
    notes->text[notes->n] = copy;
    *out = ++notes->n;
    return OK;
}

static Status print_cell(const Feature *one, const Feature *other, Notes *notes, Text *out)
{
    Arena a = { 0 };
    int number = 0;
    if (one != other && strcmp(one->group, other->group) == 0) return text_append(out, "|", 1);
    TRY(arena_init(&a, "pair", MEM_HOST, (size_t)64 << 20));
    Status s = check_pair(one, other, &a);
    arena_free(&a);
    if (s == OK) return text_append(out, "+|", 2);
    TRY(note_number(notes, status_message(), &number));
    status_clear();
    return text_printf(out, "%d|", number);
}

/* A row of the table: a feature beside the first `columns` of the list. */
static Status print_row(const char *name, const Feature *row, int columns, Notes *notes, Text *out)
{
    TRY(text_printf(out, "\n|%s|", name));
    for (int i = 0; i < columns; i++) TRY(print_cell(&features[i], row, notes, out));
    return OK;
}

/* Schedules run on two pipeline ranks, with as many chunks as they need. Of features the table has
 * the lower half, and on the diagonal each alone. */
static Status print_table(Notes *notes, Text *out)
{
    char name[2][NAME_BYTES];
    TRY(text_printf(out, "| |"));
    for (int i = 0; i < FEATURES; i++) TRY(text_printf(out, "%d|", i + 1));
    TRY(text_printf(out, "\n|---|"));
    for (int i = 0; i < FEATURES; i++) TRY(text_printf(out, "-|"));
    for (int i = 0; i < schedule_table_n; i++) {
        const ScheduleDesc *d = &schedule_table[i];
        (void)snprintf(name[0], NAME_BYTES, "mesh.schedule=%s", d->name);
        (void)snprintf(name[1], NAME_BYTES, "mesh.vpp=%d", d->chunks_least);
        const Feature schedule = { name[0], "schedule", { "mesh.pp=2", name[0], name[1] } };
        TRY(print_row(d->name, &schedule, FEATURES, notes, out));
    }
    for (int f = 0; f < FEATURES; f++) {
        (void)snprintf(name[0], NAME_BYTES, "%d %s", f + 1, features[f].name);
        TRY(print_row(name[0], &features[f], f + 1, notes, out));
    }
    return text_printf(out, "\n\n## Refusals\n\n");
}

static const char intro[] =
    "# What works with what\n\n"
    "<!-- Written by `make docs` from tests/engine/unit/train/test_compatibility.c: change it "
    "there. "
    "-->\n\n"
    "Each cell is a small configuration with two features. It went through the checks of a\n"
    "training: settings, mesh, schedule, and a counting run of the engine.\n\n"
    "- `+`: the two work together. On the diagonal: the feature works alone.\n"
    "- A number: the pair is refused, with the sentence of that number [below](#refusals).\n"
    "- Empty: two values of one setting.\n\n"
    "Schedules have two pipeline ranks. Exchanges and buffers bring `mesh.ep=2`, Hopper's kernel "
    "brings the\n"
    "GPU and bf16. What only a device can check is left out: memory, compute capability, widths\n"
    "of heads that the kernel takes, access between two GPUs.\n\n";

static Status print_page(Text *out)
{
    Arena a = { 0 };
    char item[NOTE_BYTES];
    TRY(text_append(out, intro, sizeof intro - 1));
    TRY(arena_init(&a, "refusals", MEM_HOST, (size_t)1 << 20));
    Notes notes = { .arena = &a };
    Status s = print_table(&notes, out);
    for (int i = 0; s == OK && i < notes.n; i++) {
        (void)snprintf(item, sizeof item, "%d. %s.", i + 1, notes.text[i]);
        s = text_wrap(out, item, 0, 116, 3);
    }
    arena_free(&a);
    return s;
}

static void the_page_is_current_else_run_make_docs(void **state)
{
    (void)state;
    Arena file = { 0 };
    char *have = NULL;
    size_t bytes = 0;
    Text want;
    CHECK_OK(text_init(&want, &arena));
    CHECK_OK(arena_init(&file, "file", MEM_HOST, (size_t)1 << 20));
    CHECK_OK(file_read_all("docs/explain/compatibility.md", &file, &have, &bytes));
    CHECK_OK(print_page(&want));
    CHECK(strcmp(have, want.data) == 0);
    arena_free(&file);
}

/* A cell says what a training of both says. */
static void cells_are_what_the_checks_say(void **state)
{
    (void)state;
    static const struct {
        Feature one, other;
        const char *want;
    } cases[] = {
        { { "a", "a", { "moe.score_input=true", "moe.top_k=1" } },
          { "b", "b", { "moe.capacity=1" } },
          "moe.capacity 1 drops" },
        { { "a", "a", { "mesh.pp=2", "mesh.schedule=gpipe" } },
          { "b", "b", { "mesh.vpp=2" } },
          "schedule gpipe: 2 chunks a rank" },
        { { "a", "a", { "mesh.shard=1" } },
          { "b", "b", { "mesh.ep=2" } },
          "mesh.ep x mesh.etp 2 does not" },
        { { "a", "a", { "mesh.zero=3" } }, { "b", "b", { "mesh.cp=2" } }, NULL },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Arena a = { 0 };
        CHECK_OK(arena_init(&a, "pair", MEM_HOST, (size_t)64 << 20));
        Status s = check_pair(&cases[i].one, &cases[i].other, &a);
        if (cases[i].want == NULL) CHECK_OK(s);
        if (cases[i].want != NULL) CHECK_FAILS(s, s, cases[i].want);
        arena_free(&a);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(the_page_is_current_else_run_make_docs),
        TEST(cells_are_what_the_checks_say),
    };
    Text page;
    if (argc < 2 || strcmp(argv[1], "--write") != 0) return ARENA_RUN(tests);
    open_arena(NULL);
    CHECK_OK(text_init(&page, &arena));
    CHECK_OK(print_page(&page));
    return fputs(page.data, stdout) < 0;
}
