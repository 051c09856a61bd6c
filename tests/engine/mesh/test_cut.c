/* ZeRO that cuts buckets between matrices, so that each has one owner: the losses and gradients of one
 * rank, in the memory that was planned, as with parts of equal length. */
#include "harness/mesh_cases.h"

static const ManyCase cases[] = {
    { "zero 1", 4, { MLA, BATCH, WORST, "mesh.zero=1" } },
    { "zero 1, bf16 sums",
      4,
      { MLA, BATCH, WORST, "mesh.zero=1", "mesh.ep=2", "mesh.reduce=bf16" } },
    { "zero 2, ep 2", 4, { MLA, BATCH, WORST, "mesh.zero=2", "mesh.ep=2" } },
    { "zero 3", 2, { GQA, BATCH, WORST, "mesh.zero=3" } },
    { "zero 3, more ranks than matrices of some layers", 8, { MLA, BATCH, WORST, "mesh.zero=3" } },
    { "zero 3, ep 2, cp 2", 4, { MLA, BATCH, WORST, "mesh.zero=3", "mesh.ep=2", "mesh.cp=2" } },
    { "zero 2, tp 2, ep 2, mtp",
      4,
      { MLA, BATCH, WORST, TP2, "mesh.zero=2", "mesh.ep=2", "mtp.layers=1" } },
    { "zero 3, tp 2, one head of keys, biases",
      4,
      { GQA, BATCH, BIASES, WORST, TP2, "mesh.zero=3" } },
    { "zero 2, pp 2, replicas",
      8,
      { MLA, BATCH, WORST, "mesh.zero=2", "mesh.pp=2", "mesh.shard=2", "model.tied=true" } },
};

static void each_matrix_on_one_rank_gives_the_losses_of_one_rank(void **state)
{
    (void)state;
    int wrong = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const ManyCase *c = &cases[i];
        bool low = case_sets(c, "mesh.reduce=bf16");
        Many m = { .what = c,
                   .steps = low ? 1 : 4,
                   .limit = low ? 5e-3 : 1e-5,
                   .afresh = 2,
                   .cut = CUT_MATRICES };
        int failed = -1;
        Status s = comm_threads(c->ranks, 60, many_run, &m, &failed);
        if (s != OK) print_error("%s, rank %d: %s\n", c->name, failed, status_message());
        wrong += s != OK;
    }
    CHECK_INT(wrong, 0);
}

/* What a rank holds of the first state buffer, which every stage of ZeRO shards. */
typedef struct Owned {
    const ManyCase *what;
    int64_t elems[8];
} Owned;

/* A whole matrix, or nothing of it. */
static Status check_owner(const Engine *e, const Param *p)
{
    ParamPiece piece = param_piece(&e->params.table, p, &e->params.memory, BUF_OPTIMIZER);
    int64_t n = piece_elems(&piece.in);
    if (n == 0 || n == param_elems(p)) return OK;
    return FAIL(ERR_NUMERIC, "%lld elements of %s", (long long)n, p->name);
}

static Status look_at_parts(void *state, Comm *world)
{
    Owned *o = state;
    ManyRank r = { .cut = CUT_MATRICES };
    Status s = many_open(&r, o->what, world);
    const Engine *e = &r.t.engine;
    for (int i = 0; i < e->params.table.n && s == OK; i++)
        s = check_owner(e, &e->params.table.at[i]);
    if (s == OK) o->elems[world->rank] = e->params.table.elems[BUF_OPTIMIZER];
    many_close(&r);
    return s;
}

static void no_matrix_has_two_owners_and_ranks_have_different_lengths(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Owned o = { .what = &cases[i] };
        int failed = -1;
        bool same = true;
        CHECK_OK(comm_threads(o.what->ranks, 60, look_at_parts, &o, &failed));
        for (int r = 1; r < o.what->ranks; r++) same &= o.elems[r] == o.elems[0];
        CHECK(!same);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(each_matrix_on_one_rank_gives_the_losses_of_one_rank),
        TEST(no_matrix_has_two_owners_and_ranks_have_different_lengths),
    };
    return TEST_RUN(tests);
}
