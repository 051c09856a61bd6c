/* exchange/direct: what else can happen where ranks store into each other's memory. */
#include "exchange_case.h"

#include "engine/comm/comm_private.h"

/* A rank's end amid an exchange */

/* A group whose second barrier, the one behind the stores, fails on rank 1. */
typedef struct Breaking {
    Comm comm, *real;
    int barriers;
} Breaking;

static Status breaking_barrier(Comm *c)
{
    Breaking *b = c->own;
    if (c->rank == 1 && ++b->barriers == 3) return FAIL(ERR_IO, "the disk is full");
    return comm_barrier(b->real);
}

static Status breaking_window(Comm *c, void *base, size_t bytes, Arena *a, CommWindow *w)
{
    return comm_window(((Breaking *)c->own)->real, base, bytes, a, w);
}

static void breaking_close(Comm *c, CommWindow *w)
{
    comm_window_close(((Breaking *)c->own)->real, w);
}

static const CommTable breaking_table = { .barrier = breaking_barrier,
                                          .window = breaking_window,
                                          .window_close = breaking_close };
static char ends[3][256];

/* All memory that others reach goes when the rank ends, as an engine's does: before that nobody may
 * be on his way there. */
static Status break_off(Rank *r, Arena *block)
{
    enum { LONG = 20000, WIDTH = 512 };
    Traveller v = { .kind = EXCHANGE_DIRECT, .experts = 12 };
    void *front = NULL;
    TRY(arena_init(block, "block", MEM_HOST, (size_t)1 << 28));
    TRY(arena_alloc(block, BOARD_MOST, &front));
    TRY(tensor_new2(&r->t.arena, DTYPE_F32, LONG, WIDTH, &v.x.data));
    TRY(tensor_new2(&r->t.arena, DTYPE_I32, LONG, 3, &v.index));
    TRY(tensor_new2(&r->t.arena, DTYPE_F32, LONG, 3, &v.weight));
    TRY(tensor_new2(&r->t.arena, DTYPE_I32, LONG, 3, &v.offset));
    TRY(tensor_new2(&r->t.arena, DTYPE_I32, 1, 3, &v.count));
    TRY(tensor_new2(&r->t.arena, DTYPE_I32, 1, 4, &v.first));
    TRY(tensor_new2(block, DTYPE_F32, 3 * LONG, WIDTH, &v.rows.data));
    TRY(tensor_new2(block, DTYPE_I32, 3 * LONG, 3, &v.rows_index));
    TRY(tensor_new2(block, DTYPE_F32, 3 * LONG, 3, &v.rows_weight));
    memset(v.x.data.data, 0, tensor_bytes(&v.x.data));
    memset(v.weight.data, 0, tensor_bytes(&v.weight));
    /* rank 1 has little to send, and is the first to be done */
    for (int64_t i = 0; i < 3 * LONG; i++)
        ((int32_t *)v.index.data)[i] = r->mesh.rank == 1 && i > 9 ? 4 : (int32_t)(4 * (i % 3));
    TRY(exchange_open(&r->t.ex, v.kind, front, block->cap_bytes, &r->t.scratch));
    TRY(exchange_place(&r->t.ex, to_offsets(&v, 3)));
    return exchange_dispatch(&r->t.ex, going_there(&v, 3));
}

static Status broken_rank(Rank *r)
{
    Arena block = { 0 };
    Breaking b = { .comm = *r->mesh.group[GROUP_EP], .real = r->mesh.group[GROUP_EP] };
    b.comm.table = &breaking_table, b.comm.own = &b;
    r->mesh.group[GROUP_EP] = &b.comm;
    Status s = break_off(r, &block);
    if (s != OK) {
        status_sentence(ends[r->mesh.rank], sizeof ends[0]);
        comm_abort(r->mesh.group[GROUP_WORLD], ends[r->mesh.rank]);
    }
    exchange_close(&r->t.ex);
    arena_free(&block);
    r->mesh.group[GROUP_EP] = b.real;
    return s;
}

static void a_rank_that_fails_amid_an_exchange_ends_the_others(void **state)
{
    (void)state;
    static World w;
    int failed = -1;
    w = (World){ .ranks = 3, .run = broken_rank, .shape = { 1, 1, 3, 3, 1, .inside = 0 } };
    world_open(&w);
    for (int i = 0; i < 3; i++) optest_unguard(&w.rank[i].t);
    CHECK_FAILS(comm_threads(3, 20, world_body, &w, &failed), ERR_IO, "the disk is full");
    CHECK_INT(failed, 1);
    CHECK(strstr(ends[0], "rank 1 failed: the disk is full") != NULL);
    CHECK(strstr(ends[2], "rank 1 failed: the disk is full") != NULL);
    world_close(&w);
}

/* What ranks would store into lies elsewhere, or they are too many. */
static Status stray(Rank *r)
{
    Traveller *v = &r->traveller;
    Comm *c = r->mesh.group[GROUP_EP], many = *c;
    many.size = 65;
    r->mesh.group[GROUP_EP] = &many;
    if (exchange_open(&r->t.ex, v->kind, r->front, WINDOW, &r->t.scratch) != ERR_UNSUPPORTED ||
        strstr(status_message(), "65 ranks with") == NULL)
        return FAIL(ERR_ARG, "no word of 65 ranks");
    r->mesh.group[GROUP_EP] = c;
    TRY(exchange_open(&r->t.ex, v->kind, r->front, WINDOW, &r->t.scratch));
    TRY(exchange_place(&r->t.ex, to_offsets(v, r->mesh.ranks)));
    ExchangeDispatch d = going_there(v, r->mesh.ranks);
    TRY(tensor_new2(&r->t.scratch, DTYPE_I32, d.rows.data.dim[0], 3, &d.rows_index));
    Status s = exchange_dispatch(&r->t.ex, d);
    exchange_close(&r->t.ex);
    return s;
}

static void what_nobody_opened_is_not_stored_into(void **state)
{
    (void)state;
    int failed = -1;
    World w = { .ranks = 2, .run = stray, .shape = { 1, 1, 2, 2, 1, .inside = 0 } };
    open_travel(&w, EXCHANGE_DIRECT, DTYPE_F32, DEAL_RANDOM, TOKENS);
    CHECK_FAILS(comm_threads(2, 20, world_body, &w, &failed), ERR_ARG,
                "exchange_dispatch: rows_index does not lie in the memory that ranks have opened");
    world_close(&w);
}

/* Which collectives of rows peers load: those of tp's rows of the stream, in the window, in whole packs. */
static void rows_of_tp_are_loaded_where_the_window_has_them(void **state)
{
    OpTest *t = *state;
    static char outside[4096];
    char *block = NULL;
    void *peer[2];
    int member[2] = { 0, 1 };
    Comm tp = { .rank = 1, .size = 2, .member = member };
    Mesh mesh = { .ranks = 2 };
    CommWindow w = { .peer = peer, .bytes = 4096, .flags = 256 };
    Exec ex = { .mesh = &mesh };
    ExchangeRows at;
    CHECK_OK(arena_alloc(&t->arena, 4096, (void **)&block));
    peer[0] = outside, peer[1] = block;
    mesh.group[GROUP_TP] = &tp;
    const Collective a = { .in = { outside, DTYPE_BF16, 2, { 4, 24 } },
                           .out = { block + 512, DTYPE_BF16, 2, { 8, 24 } },
                           .kind = COMM_ALL_GATHER,
                           .axis = AXIS_TP,
                           .parts = 2,
                           .ranks = 2 };
    Collective b = a;
    CHECK(!exchange_rows_direct(&ex, &a, &at)); /* nothing is open */
    ex.row_peers = &w;
    CHECK(exchange_rows_direct(&ex, &a, &at) && at.all == &tp && at.peers == &w);
    CHECK_INT(at.at[PEER_ROWS], 512);
    b.kind = COMM_REDUCE_SCATTER, b.in = a.out, b.out = a.in;
    CHECK(exchange_rows_direct(&ex, &b, &at));
    b.in.data = outside;
    CHECK(!exchange_rows_direct(&ex, &b, &at));
    b = a, b.parts = 4, b.in.dim[1] = b.out.dim[1] = 4; /* a part's row has 8 bytes */
    CHECK(!exchange_rows_direct(&ex, &b, &at));
    b = a, b.kind = COMM_ALL_REDUCE;
    CHECK(!exchange_rows_direct(&ex, &b, &at));
    b = a, b.group = GROUP_SHARD;
    CHECK(!exchange_rows_direct(&ex, &b, &at));
    b = a, b.axis = AXIS_CP;
    CHECK(!exchange_rows_direct(&ex, &b, &at));
    b = a, b.in.dtype = DTYPE_I32;
    CHECK(!exchange_rows_direct(&ex, &b, &at));
    b = a, b.out.data = outside;
    CHECK(!exchange_rows_direct(&ex, &b, &at));
    b = a, b.out.data = block + 4096 - 8 * 24; /* its second half lies behind the window */
    CHECK(!exchange_rows_direct(&ex, &b, &at));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        OP_TEST(rows_of_tp_are_loaded_where_the_window_has_them, 1),
        TEST(a_rank_that_fails_amid_an_exchange_ends_the_others),
        TEST(what_nobody_opened_is_not_stored_into),
    };
    return TEST_RUN(tests);
}
