/* What steps on ranks as threads wait for: communication that comes late, by sleeping inside its calls,
 * is waited for at least as long. How long anything else takes is not looked at. */
#include "harness/test.h"

#include "bench/bench.h"
#include "engine/comm/comm_private.h"

#include <time.h>

static const double LATE_S = 2e-3;

/* Of this rank: what the calls of its groups are, and how often a late one has been made. */
static _Thread_local const CommTable *real;
static _Thread_local int calls;

static void sleep_late(void)
{
    (void)nanosleep(&(struct timespec){ .tv_nsec = (long)(LATE_S * 1e9) }, NULL);
    calls++;
}

/* A transfer is done when it was waited for. */
static Status late_test(Comm *c, CommRequest *r, bool *done)
{
    (void)c, (void)r;
    *done = false;
    return OK;
}

static Status late_wait(Comm *c, CommRequest *r)
{
    sleep_late();
    return real->wait(c, r);
}

static Status late_all_to_all(Comm *c, const Tensor *in, const Tensor *out)
{
    sleep_late();
    return real->all_to_all(c, in, out);
}

static Status late_all_gather(Comm *c, const Tensor *in, const Tensor *out)
{
    sleep_late();
    return real->all_gather(c, in, out);
}

static Status late_reduce_scatter(Comm *c, const Tensor *in, const Tensor *out)
{
    sleep_late();
    return real->reduce_scatter(c, in, out);
}

/* From here on a group of the engine is late with one kind of call. */
static Status make_late(BenchModel *m, MeshGroup group, Arena *a)
{
    Engine *e = &m->engine;
    Transfers *t = &e->modes[0].step->transfers;
    CommTable *table = NULL;
    Comm *late = NULL;
    TRY(ARENA_NEW(a, 1, &table));
    TRY(ARENA_NEW(a, 1, &late));
    *late = *e->mesh.group[group];
    real = late->table;
    *table = *real;
    late->table = table;
    e->mesh.group[group] = late;
    if (group == GROUP_EP) table->all_to_all = late_all_to_all;
    if (group == GROUP_CP || group == GROUP_TP) table->all_gather = late_all_gather;
    if (group == GROUP_SHARD) table->reduce_scatter = late_reduce_scatter;
    if (group != GROUP_PP) return OK;
    table->test = late_test, table->wait = late_wait;
    t->comm = late;
    for (int i = 0; i < t->n; i++) t->queue[i].comm = late;
    return OK;
}

typedef struct Late {
    const char *set[4];
    MeshGroup group;
    Traffic traffic;
} Late;

static int transfers_of(const Program *p)
{
    int n = 0;
    for (int i = 0; i < p->n; i++) n += action_is_transfer(p->at[i].kind);
    return n;
}

static Status check_step(BenchModel *m, const Late *l)
{
    const Program *p = &m->engine.modes[0].step->program;
    double seconds = 0, sum = 0;
    calls = 0;
    TRY(bench_run_step(m, &seconds));
    for (int k = 0; k < TRAFFICS; k++) sum += m->idle_s[k];
    if (calls == 0 || (l->traffic == TRAFFIC_PP && calls != transfers_of(p)))
        return FAIL(ERR_NUMERIC, "%s: %d late calls", l->set[0], calls);
    if (!(m->idle_s[l->traffic] >= calls * LATE_S - 1e-6 && sum <= seconds))
        return FAIL(ERR_NUMERIC, "%s: waited %g of %g s, of %g in all, for %d late calls",
                    l->set[0], m->idle_s[l->traffic], sum, seconds, calls);
    if (l->traffic == TRAFFIC_PP && sum > m->idle_s[TRAFFIC_PP])
        return FAIL(ERR_NUMERIC, "%s: waited for what is not there", l->set[0]);
    return OK;
}

static Status late_rank(void *state, Comm *world)
{
    static const char *const small[] = {
        "model.vocab=61", "model.hidden=32",     "model.layers=4", "model.ffn=40",
        "moe.experts=6",  "moe.top_k=2",         "moe.ffn=20",     "data.sequence=24",
        "train.batch=4",  "train.micro_batch=1", "run.device=cpu", "run.threads=1",
    };
    const Late *l = state;
    Arena a = { 0 };
    Config c;
    BenchModel m;
    TRY(arena_init(&a, "test", MEM_HOST, (size_t)1 << 26));
    TRY(config_default(&c, &a));
    for (size_t i = 0; i < sizeof small / sizeof *small; i++)
        TRY(config_override(&c, &a, small[i]));
    for (int i = 0; l->set[i] != NULL; i++) TRY(config_override(&c, &a, l->set[i]));
    TRY(config_check(&c));
    TRY(bench_open(&m, &c, world, (BenchOpen){ .recorded = true }));
    Status s = make_late(&m, l->group, &a);
    for (int i = 0; i < 2 && s == OK; i++) s = check_step(&m, l);
    if (s != OK) bench_abort_ranks(world);
    bench_close(&m);
    arena_free(&a);
    return s;
}

static void late_communication_is_waited_for(void **state)
{
    (void)state;
    static const Late cases[] = {
        { { "mesh.pp=2" }, GROUP_PP, TRAFFIC_PP },
        { { "mesh.pp=2", "mesh.vpp=2", "mesh.schedule=zbv" }, GROUP_PP, TRAFFIC_PP },
        { { "mesh.ep=2" }, GROUP_EP, TRAFFIC_EP },
        { { "mesh.cp=2" }, GROUP_CP, TRAFFIC_CP },
        { { "mesh.tp=2", "model.vocab=64" }, GROUP_TP, TRAFFIC_TP },
        { { "mesh.zero=2" }, GROUP_SHARD, TRAFFIC_ZERO },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int failed = -1;
        Late l = cases[i];
        CHECK_OK(comm_threads(2, 60, late_rank, &l, &failed));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(late_communication_is_waited_for),
    };
    return TEST_RUN(tests);
}
