/* A layout that a search recommends runs. Rows are drawn from searches over 2, 4 and 8 GPUs. Of each
 * row the whole step's list is launched on the streams of GPUs (lanes.h), and a small model with the
 * same mesh does a step on the CPU and is compared with one rank. DRAWN=FIRST:N asks for other rows:
 * DRAWN=0:300 takes half a minute on two cores. */
#include "harness/draw_mesh.h"
#include "harness/lanes.h"
#include "harness/question.h"
#include "kernels/exchange/exchange.h"

#include "planner/search/search.h"

enum { ROWS_EACH = 10, DRAWN_ROWS = RUNS(100, 10), FAR = 1 << 28, NEAR = 1 };

typedef struct Asked {
    Question q;
    SearchResult found;
    int number; /* of the search; -1: none yet */
} Asked;

/* Three of four searches ask for stages, as most of the best rows have none. */
static void ask(Asked *s, int number)
{
    static const struct {
        const char *model;
        int gpus;
    } what[] = { { "deepseek-v2-lite", 2 }, { "gpt-oss-20b", 4 },      { "qwen3-30b-a3b", 8 },
                 { "llama2-7b", 2 },        { "qwen3-30b-a3b", 4 },    { "glm-4.5-air", 8 },
                 { "qwen3-8b", 4 },         { "deepseek-v2-lite", 8 }, { "gpt-oss-20b", 2 },
                 { "deepseek-v2-lite", 4 }, { "mixtral-8x7b", 8 },     { "llama3-8b", 8 } };
    enum { WHAT = sizeof what / sizeof *what };
    static const char *const stages[] = { "search.pp=[]", "search.pp=[2,4,8]",
                                          "search.vpp=[3,4,5,6,7,8]",
                                          "search.schedule=[interleaved,1f1b-overlap,zbv,"
                                          "dualpipe,dualpipe-v]" };
    Draws d = { .seed = (uint64_t)number, .stream = "searches" };
    char batch[32], sequence[32];
    snprintf(batch, sizeof batch, "train.batch=%d", 32 << draw_int(&d, 0, 2));
    snprintf(sequence, sizeof sequence, "data.sequence=%d", 1024 << draw_int(&d, 0, 2));
    const char *set[] = { batch, sequence, stages[number % 4], "run.compute=bf16",
                          number % 2 == 0 ? "moe.buffers=pooled" : "moe.buffers=worst" };
    if (s->number >= 0) question_close(&s->q);
    s->number = number;
    question_load(&s->q, what[number % WHAT].model, "mi355x", what[number % WHAT].gpus,
                  "switchyard", set, 5);
    question_open(&s->q);
    SearchAxes axes;
    CHECK_OK(search_axes(&s->q.config, &axes));
    SearchOptions o = { .axes = &axes, .pricer = &search_planner, .top = 50, .threads = 2 };
    CHECK_OK(search_run(&s->q.request, &o, &s->q.arena, &s->found));
    if (s->found.n_best == 0) fail_msg("search %d: nothing fits", number);
}

static const SearchRow *draw_row(Asked *s, int i)
{
    Draws d = { .seed = (uint64_t)i, .stream = "rows" };
    if (s->number != i / ROWS_EACH) ask(s, i / ROWS_EACH);
    int at = draw_int(&d, 0, s->found.n_best + s->found.n_front - 1);
    return at < s->found.n_best ? &s->found.best[at] : &s->found.front[at - s->found.n_best];
}

/* The same mesh, schedule, sharing and recomputation over a layer a stage. */
static void shrink_row(const Config *c, const SearchRow *row, Drawn *out)
{
    static const char *const buffers[] = { [BUFFERS_POOLED] = "pooled", [BUFFERS_WORST] = "worst" };
    const PlanLayout *l = &row->layout;
    int layers = l->pp * (l->schedule->placement == PLACE_BOTH ? 1 : l->vpp);
    int64_t micros = c->train_batch / (l->dp * l->micro_batch);
    if (micros > 2 * l->pp) micros = 2 * l->pp;
    if (layers < 2) layers = 2;
    *out = (Drawn){ .what = { .name = "a row", .ranks = l->pp * l->cp * (int)l->dp } };
    push(out, "model.layers=%d model.dense_layers=%d moe.experts=8", layers,
         config_moe_layers(c) == 0 ? layers : 1);
    push(out, "attention.kind=%s", c->attention_kind == ATTENTION_MLA ? "mla" : "gqa");
    push(out, "data.sequence=48 train.micro_batch=1 train.batch=%d", (int)(micros * l->dp));
    push(out, "mesh.pp=%d mesh.vpp=%d mesh.cp=%d mesh.ep=%d", l->pp, l->vpp, l->cp, l->ep);
    push(out, "mesh.schedule=%s mesh.zero=%d mesh.shard=%d", l->schedule->name, l->zero,
         (int)l->shard);
    push(out, "moe.buffers=%s", buffers[row->price.buffers]);
    if (row->price.exchange >= 0)
        push(out, "moe.exchange=%s", exchange_kinds[row->price.exchange]->name);
    if (l->recompute == 0 || l->recompute_blocks == 0) return;
    ConfigTexts names = { 0 };
    char list[512] = "[0";
    spec_recompute_names(l->recompute, &names);
    for (int i = 1; i < layers; i++) snprintf(list + strlen(list), 16, ",%d", i);
    push(out, "recompute.layers=%s]", list);
    list[0] = '\0';
    for (int i = 0; i < names.n; i++)
        snprintf(list + strlen(list), 32, "%s%s", i > 0 ? "," : "[", names.at[i]);
    push(out, "recompute.pieces=%s]", list);
}

/* The streams of all ranks for the list that `train` would run, of the model as it is. */
static Status launch_row(Asked *s, const SearchRow *row, LaneNeeds *needs)
{
    static const int ahead[] = { NEAR, FAR };
    Arena a = { 0 };
    PlanStep step;
    CHECK_OK(arena_init(&a, "lanes", MEM_HOST, (size_t)1 << 36));
    Status status = planner_simulate(s->q.planner, &row->layout, true, &a, &step);
    for (int i = 0; i < 2 && status == OK; i++)
        status = lanes_of(&step.pipeline, true, ahead[i], &a, needs);
    arena_free(&a);
    return status;
}

static void most_of(LaneNeeds *most, const LaneNeeds *n)
{
    most->streams = n->streams > most->streams ? n->streams : most->streams;
    most->groups = n->groups > most->groups ? n->groups : most->groups;
    most->events = n->events > most->events ? n->events : most->events;
    most->calls = n->calls > most->calls ? n->calls : most->calls;
}

static bool row_runs(Asked *s, int i, LaneNeeds *most, bool *chunks)
{
    static Drawn c;
    int failed = -1;
    LaneNeeds needs = { 0 };
    const SearchRow *row = draw_row(s, i);
    Many m = { .steps = 1, .alike = 1, .limit = 1e-5, .what = &c.what };
    shrink_row(&s->q.config, row, &c);
    Status status = launch_row(s, row, &needs);
    most_of(most, &needs);
    *chunks = row->layout.vpp > 2;
    if (status == OK) status = comm_threads(c.what.ranks, 120, many_run, &m, &failed);
    if (status == OK) return true;
    print_error("%d, %s on %d GPUs: rank %d: %s\n   ", i, s->q.config.model_name, c.what.ranks,
                failed, status_message());
    print_case(&c);
    status_clear();
    return false;
}

static void rows_of_searches_run(void **state)
{
    (void)state;
    static Asked s;
    LaneNeeds most = { 0 };
    int first = 0, n = DRAWN_ROWS, wrong = 0, many = 0;
    const char *other = getenv("DRAWN");
    if (other != NULL) CHECK_INT(sscanf(other, "%d:%d", &first, &n), 2);
    s.number = -1;
    for (int i = first; i < first + n; i++) {
        bool chunks = false;
        wrong += !row_runs(&s, i, &most, &chunks);
        many += chunks;
    }
    question_close(&s.q);
    print_message(
        "%d of %d with three chunks or more; at most %d streams, %d groups, %d events, %d "
        "calls of a rank's step\n",
        many, n, most.streams, most.groups, most.events, most.calls);
    CHECK_INT(wrong, 0);
    CHECK(most.streams <= QUEUES_MAX);
    if (other == NULL) CHECK(many >= n / 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = { TEST(rows_of_searches_run) };
    return TEST_RUN(tests);
}
