/* A group that sends nothing: each member is a mirror of this rank, whatever the others do. */
#include "harness/test.h"

#include "bench/null.h"

#include "harness/comm_cases.h"

enum { RANKS = 3, N = 5 };

typedef struct Data {
    float in[RANKS * N], out[RANKS * N], part[N];
} Data;

static void fill(Data *d, const Comm *c)
{
    for (int i = 0; i < RANKS * N; i++) d->in[i] = (float)(100 * c->rank + i), d->out[i] = -1;
    for (int i = 0; i < N; i++) d->part[i] = -2;
}

/* Only this rank calls: nothing waits for the others. */
static Status mirrored(Comm *c, Comm *null)
{
    Data d;
    const Tensor in = { d.in, DTYPE_F32, 1, { RANKS * N } },
                 out = { d.out, DTYPE_F32, 1, { RANKS * N } },
                 part = { d.part, DTYPE_F32, 1, { N } };
    fill(&d, c);
    TRY(comm_all_to_all(null, &in, &out));
    EXPECT(memcmp(d.out, d.in, sizeof d.in) == 0);
    TRY(comm_reduce_scatter(null, &in, &part));
    EXPECT(memcmp(d.part, d.in + c->rank * N, sizeof d.part) == 0);
    d.part[0] = 7;
    TRY(comm_all_gather(null, &part, &out));
    for (int r = 0; r < RANKS; r++) EXPECT(memcmp(d.out + r * N, d.part, sizeof d.part) == 0);
    const Tensor own = tensor_rows(&out, c->rank * N, N);
    d.out[c->rank * N] = 9;
    TRY(comm_all_gather(null, &own, &out));
    for (int r = 0; r < RANKS; r++) EXPECT(d.out[r * N] == 9);
    const Data before = d;
    CommRequest going = { 5 }, coming = { 5 };
    bool done = false;
    TRY(comm_all_reduce(null, &in, REDUCE_SUM));
    TRY(comm_broadcast(null, &in, 0));
    TRY(comm_barrier(null));
    TRY(comm_send(null, &in, 0, 1, &going));
    TRY(comm_recv(null, &out, 0, 1, &coming));
    TRY(comm_test(null, &coming, &done));
    TRY(comm_wait(null, &going));
    EXPECT(done && coming.slot == 0 && going.slot == 0);
    EXPECT(memcmp(&before, &d, sizeof d) == 0);
    return OK;
}

static Status body(void *state, Comm *c)
{
    Arena *a = (Arena *)state + c->rank;
    Comm *null = NULL, *half = NULL, *again = NULL, *none = NULL, *group = NULL;
    CommWindow w;
    float memory[4];
    TRY(comm_split(c, 0, c->rank, "group", a, &group));
    TRY(null_comm(group, a, &null));
    EXPECT(null != group && null_real(null) == group && null_real(group) == group);
    EXPECT(null->size == RANKS && null->rank == c->rank && null->member[2] == 2);
    EXPECT(strcmp(null->name, "group") == 0);
    if (c->rank == 1) TRY(mirrored(c, null));
    EXPECT(comm_window(null, memory, sizeof memory, a, &w) == ERR_UNSUPPORTED);
    status_clear();
    TRY(comm_split(null, c->rank == 2 ? -1 : 0, -c->rank, "half", a, &half));
    EXPECT(c->rank == 2 ? half == NULL : half->size == 2 && null_real(half) != half);
    TRY(comm_duplicate(null, NULL, "again", a, &again));
    EXPECT(null_real(again) != again && null_real(again) != group);
    if (c->rank == 0) TRY(comm_barrier(again));
    TRY(null_comm(NULL, a, &none));
    EXPECT(none == NULL && null_real(NULL) == NULL);
    comm_free(again);
    comm_free(half);
    comm_free(null);
    return OK;
}

static void members_are_mirrors_of_this_rank(void **state)
{
    (void)state;
    Arena a[RANKS] = { 0 };
    int failed = -1;
    for (int r = 0; r < RANKS; r++) CHECK_OK(arena_init(&a[r], "test", MEM_HOST, (size_t)1 << 20));
    CHECK_OK(comm_threads(RANKS, 5, body, a, &failed));
    for (int r = 0; r < RANKS; r++) arena_free(&a[r]);
}

int main(void)
{
    const struct CMUnitTest tests[] = { TEST(members_are_mirrors_of_this_rank) };
    return TEST_RUN(tests);
}
