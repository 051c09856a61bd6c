/* comm_exchange: how long tokens take to the ranks of their experts and back, for every kind of the
 * table. dispatch is places, rows, their experts and weights; combine brings one row a received one
 * back and adds them up.
 *
 * Room is that of a training, moe.buffer_factor over the balanced need, or as much as the routing
 * takes: blocks with gaps travel whole. Each rank draws all ranks' experts, so it knows the need, and
 * the rows that come, without asking. Hidden states are ones: what comes back is how many rows came
 * back, which is looked at. */
#include "bench/comm.h"
#include "op/exchange.h"

#include "base/rng.h"
#include "train/agree.h"

#include <math.h>
#include <stdio.h>

typedef struct Shape {
    const char *name;
    int64_t tokens, hidden, experts, top_k; /* tokens of a rank */
} Shape;

static const Shape shapes[] = {
    { "V2-Lite", 16384, 2048, 64, 6 }, /* DeepSeek-V2-Lite */
    { "V3", 16384, 7168, 256, 8 },     /* DeepSeek-V3 */
};
enum { HOST_TOKENS = 64, HOST_HIDDEN = 8, CHECKED = 64 }; /* on the host: parts of these sizes */

static const char *const routings[] = { "uniform", "zipf" };

/* One exchange: its ops, over tensors of b->r.block. */
typedef struct Exchange {
    ExchangePlace place;
    ExchangeDispatch dispatch;
    ExchangeCombine combine;
    Shape shape;
    const ExchangeDesc *kind;
    const int32_t *index;          /* (ranks, N, K) of all ranks, on the host */
    int64_t blocks, rows, relayed; /* rows that a rank has room for, and relays */
    double come, pass;             /* that come to a rank, and to a relay, on average */
} Exchange;

/* How many tokens of `rank` have experts on ranks [first, first + n). */
static int64_t tokens_to(const Exchange *x, int64_t ranks, int64_t rank, int64_t first, int64_t n)
{
    const int32_t *index = x->index + rank * x->shape.tokens * x->shape.top_k;
    int64_t here = x->shape.experts / ranks, sum = 0;
    for (int64_t t = 0; t < x->shape.tokens; t++, index += x->shape.top_k) {
        bool goes = false;
        for (int64_t k = 0; k < x->shape.top_k; k++)
            goes |= index[k] / here >= first && index[k] / here < first + n;
        sum += goes;
    }
    return sum;
}

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* As in training: moe.buffer_factor times the mean, but never more rows than can come. */
static int64_t room_for(const CommBench *b, double mean, int64_t most)
{
    return (int64_t)fmin(ceil(mean * b->r.config->moe_buffer_factor), (double)most);
}

/* Sets how many rows a rank has memory for. With places the blocks are equal: as long as the longest
 * block that a rank sends, or as training makes them. */
static void count_rows(const CommBench *b, Exchange *x)
{
    const Shape *s = &x->shape;
    int64_t ranks = b->host->size, inside = b->mesh.shape.inside, of = ranks / x->blocks;
    double come = 0;
    int64_t sent = 0, passed = 0, most = 0; /* most: of all ranks that come to one */
    for (int64_t r = 0; r < ranks; r++) {
        for (int64_t i = 0; i < x->blocks; i++) {
            int64_t rows = tokens_to(x, ranks, r, i * of, of);
            sent = larger(sent, rows);
            x->pass += (double)rows / (double)ranks;
        }
    }
    for (int64_t q = 0; q < ranks; q++) {
        int64_t here = 0;
        for (int64_t r = 0; r < ranks; r++) {
            int64_t through = 0; /* the relays with number r, to q */
            here += tokens_to(x, ranks, r, q, 1);
            for (int64_t h = r; h < ranks && x->kind->relays && r < inside; h += inside)
                through += tokens_to(x, ranks, h, q, 1);
            passed = larger(passed, through);
        }
        come += (double)here;
        most = larger(most, here);
    }
    x->come = x->kind->places ? come / (double)ranks : (double)(s->tokens * ranks);
    x->rows = s->tokens * ranks;
    if (!x->kind->places) return;
    double mean = (double)s->tokens * x->kind->rows(s->experts, s->top_k, ranks);
    double to_hosts = (double)s->tokens * exchange_distinct(s->experts, s->top_k, x->blocks);
    int64_t last = x->kind->relays ? inside : ranks;
    if (x->kind->gapless) {
        x->rows = larger(most, room_for(b, mean, s->tokens * ranks));
        return;
    }
    x->rows = larger(room_for(b, mean / (double)last, s->tokens * ranks / last),
                     x->kind->relays ? passed : sent);
    x->rows *= last;
    if (x->kind->relays)
        x->relayed = x->blocks * larger(room_for(b, to_hosts / (double)x->blocks, s->tokens), sent);
    while (x->rows % ranks != 0) x->rows += last; /* equal blocks of either size */
}

/* The ops' arguments, in `a`, which may only count. */
static Status make_arguments(CommBench *b, Exchange *x, Arena *a)
{
    const Shape *s = &x->shape;
    int64_t n = s->tokens, k = s->top_k, m = x->rows, ranks = b->host->size;
    ExchangeDispatch d = { .ranks = ranks,
                           .experts = s->experts,
                           .kind = x->dispatch.kind,
                           .received = { .bound = m, .expected = x->come } };
    Tensor y, board;
    TRY(tensor_new1(a, DTYPE_I32, (int64_t)(x->kind->header_bytes / sizeof(int32_t)), &board));
    TRY(tensor_new2(a, b->type, n, s->hidden, &d.x));
    TRY(tensor_new2(a, DTYPE_I32, n, k, &d.index));
    TRY(tensor_new2(a, DTYPE_F32, n, k, &d.weight));
    if (x->kind->places) TRY(tensor_new2(a, DTYPE_I32, n, k, &d.place));
    if (x->kind->gapless) TRY(tensor_new2(a, DTYPE_I32, 1, ranks, &d.count));
    if (x->kind->gapless) TRY(tensor_new2(a, DTYPE_I32, 1, ranks + 1, &d.first));
    if (x->kind->relays) {
        d.relay = (ExchangeRelay){ .inside = b->mesh.shape.inside, .expected = x->pass };
        TRY(tensor_new2(a, DTYPE_I32, x->relayed, k, &d.relay.place));
    }
    TRY(tensor_new1(a, DTYPE_F32, 1, &d.overflow));
    TRY(tensor_new2(a, b->type, m, s->hidden, &d.rows));
    TRY(tensor_new2(a, DTYPE_I32, m, k, &d.rows_index));
    TRY(tensor_new2(a, DTYPE_F32, m, k, &d.rows_weight));
    TRY(tensor_new2(a, b->type, n, s->hidden, &y));
    x->dispatch = d;
    x->place = (ExchangePlace){ .index = d.index,
                                .place = d.place,
                                .overflow = d.overflow,
                                .count = d.count,
                                .experts = s->experts,
                                .ranks = x->blocks,
                                .room = (x->kind->relays ? x->relayed : m) / x->blocks };
    if (x->kind->gapless) x->place.room = n;
    x->combine = (ExchangeCombine){ .x = d.rows,
                                    .place = d.place,
                                    .first = d.first,
                                    .relay = d.relay,
                                    .y = y,
                                    .received = d.received,
                                    .ranks = ranks,
                                    .kind = d.kind };
    return OK;
}

static size_t workspace(const Exec *ex, OpId id, const void *args)
{
    const OpDesc *op = op_desc(id);
    OpSpace *space = ex->gpu != NULL ? op->cuda_workspace : op->workspace;
    return space == NULL ? 0 : space(ex, args);
}

static Status take_memory(CommBench *b, Exchange *x)
{
    Arena count = { 0 };
    TRY(arena_init(&count, "count", MEM_COUNT, (size_t)1 << 50));
    TRY(make_arguments(b, x, &count));
    size_t most = workspace(&b->r.ex, OP_EXCHANGE_DISPATCH, &x->dispatch);
    size_t other = workspace(&b->r.ex, OP_EXCHANGE_COMBINE, &x->combine);
    if (other > most) most = other;
    if (x->kind->places) other = workspace(&b->r.ex, OP_EXCHANGE_PLACE, &x->place);
    TRY(comm_bench_take(b, count.peak_bytes, other > most ? other : most));
    return make_arguments(b, x, &b->r.block);
}

/* This rank's hidden states and experts onto the device. */
static Status fill_inputs(CommBench *b, const Exchange *x)
{
    const Backend *k = b->r.ex.backend;
    const Tensor *h = &x->dispatch.x, *index = &x->dispatch.index;
    size_t bytes = tensor_bytes(h), own = tensor_bytes(index);
    char *ones = NULL;
    const float one = 1;
    TRY(ARENA_NEW(&b->r.tables, bytes, &ones));
    for (size_t at = 0; at < bytes; at += dtype_bytes(h->dtype))
        dtype_from_f32(ones + at, h->dtype, &one, 1);
    TRY(k->copy(&b->r.ex, h->data, ones, bytes));
    TRY(k->copy(&b->r.ex, index->data, (const char *)x->index + (size_t)b->host->rank * own, own));
    TRY(k->fill(&b->r.ex, x->dispatch.overflow.data, 0, tensor_bytes(&x->dispatch.overflow)));
    TRY(k->fill(&b->r.ex, x->dispatch.weight.data, 0, tensor_bytes(&x->dispatch.weight)));
    return k->sync(&b->r.ex);
}

/* Every row was sent as ones. So the sum that comes back for a token is how many rows it had, and no
 * row may have lacked room. */
static Status check_rows_came_back(CommBench *b, const Exchange *x)
{
    const Exchange own = {
        .shape = { .tokens = 1, .experts = x->shape.experts, .top_k = x->shape.top_k }
    };
    int64_t ranks = b->host->size, d = x->shape.hidden, n = x->shape.tokens;
    char raw[sizeof(float)];
    float full = 0, have = 0;
    TRY(b->r.ex.backend->read(&b->r.ex, &full, x->dispatch.overflow.data, sizeof full));
    if (full != 0)
        return FAIL(ERR_NUMERIC, "exchange %s: rows of rank %d had no room among %lld",
                    x->kind->name, b->host->rank, (long long)x->rows);
    for (int64_t t = 0; t < n && t < CHECKED; t++) {
        Exchange one = own;
        int64_t want = x->kind->places ? 0 : ranks;
        one.index = x->index + (b->host->rank * n + t) * x->shape.top_k;
        for (int64_t q = 0; q < ranks && x->kind->places; q++)
            want += tokens_to(&one, ranks, 0, q, 1);
        TRY(b->r.ex.backend->read(&b->r.ex, raw, tensor_at(&x->combine.y, (t + 1) * d - 1),
                                  dtype_bytes(b->type)));
        dtype_to_f32(&have, raw, b->type, 1);
        if (have != (float)want)
            return FAIL(ERR_NUMERIC,
                        "exchange %s: %g rows of token %lld came back to rank %d of %lld",
                        x->kind->name, (double)have, (long long)t, b->host->rank, (long long)want);
    }
    return OK;
}

static Status dispatch(CommBench *b, void *state)
{
    const Exchange *x = state;
    if (x->kind->places) TRY(exchange_place(&b->r.ex, x->place));
    return exchange_dispatch(&b->r.ex, x->dispatch);
}

static Status combine(CommBench *b, void *state)
{
    return exchange_combine(&b->r.ex, ((Exchange *)state)->combine);
}

/* Bytes are of the rows that come to a rank, those on the bus of rows that crossed a link. */
static Status run_both(CommBench *b, Exchange *x, const char *routing)
{
    double row = (double)x->shape.hidden * (double)dtype_bytes(b->type);
    char call[48], size[32];
    CommRow r = { .call = call, .shape = size, .routing = routing };
    r.room = (double)x->rows / x->come;
    (void)snprintf(size, sizeof size, "%s %lld", x->shape.name, (long long)x->shape.tokens);
    (void)snprintf(call, sizeof call, "%s dispatch", x->kind->name);
    r.bytes = x->come * (row + (double)x->shape.top_k * (sizeof(int32_t) + sizeof(float)));
    r.bus_bytes = op_desc(OP_EXCHANGE_DISPATCH)->cost(&x->dispatch).comm_bytes;
    TRY(comm_bench_row(b, dispatch, x, r));
    (void)snprintf(call, sizeof call, "%s combine", x->kind->name);
    r.bytes = x->come * row;
    r.bus_bytes = op_desc(OP_EXCHANGE_COMBINE)->cost(&x->combine).comm_bytes;
    TRY(comm_bench_row(b, combine, x, r));
    return agree_status(b->host, check_rows_came_back(b, x));
}

/* ERR_UNSUPPORTED: these ranks do not exchange in this way. */
static Status can_exchange(CommBench *b, const Exchange *x)
{
    int64_t ranks = b->host->size, inside = b->mesh.shape.inside;
    if (x->shape.experts % ranks != 0)
        return FAIL(ERR_UNSUPPORTED, "%lld experts do not divide over %lld ranks",
                    (long long)x->shape.experts, (long long)ranks);
    if (x->kind->relays && (inside == 1 || inside == ranks))
        return FAIL(ERR_UNSUPPORTED,
                    "%lld of %lld ranks are on each host: nothing is passed on "
                    "(mesh.ranks_per_host can be set)",
                    (long long)inside, (long long)ranks);
    return OK;
}

/* Says why a kind cannot run, once for both routings. */
static Status say_why(CommBench *b, const Exchange *x, int routing)
{
    if (routing == 0) return comm_bench_why(b, x->kind->name, x->shape.name);
    return status_clear(), OK;
}

static Status run_kind(CommBench *b, ExchangeKind kind, const Shape *shape, int routing)
{
    Exchange x = { .shape = *shape, .kind = exchange_kinds[kind], .dispatch.kind = kind };
    int32_t *index = NULL;
    x.blocks = exchange_blocks(kind, b->host->size, b->mesh.shape.inside);
    Status s = agree_status(b->host, can_exchange(b, &x));
    if (s == ERR_UNSUPPORTED) return say_why(b, &x, routing);
    TRY(s);
    TRY(bench_experts(routing == 1 ? BENCH_ZIPF : BENCH_UNIFORM, rng_stream(shape->name),
                      b->host->size * shape->tokens, shape->top_k, shape->experts, &b->r.tables,
                      &index));
    x.index = index;
    count_rows(b, &x);
    s = take_memory(b, &x);
    if (s == ERR_MEMORY) return comm_bench_why(b, x.kind->name, shape->name);
    TRY(s);
    s = agree_status(b->host, exchange_open(&b->r.ex, kind, b->r.block.base, b->r.block.cap_bytes,
                                            &b->r.tables));
    if (s == OK) s = fill_inputs(b, &x);
    if (s == OK) s = run_both(b, &x, routings[routing]);
    exchange_close(&b->r.ex);
    bench_runner_give(&b->r);
    return s == ERR_UNSUPPORTED ? say_why(b, &x, routing) : s;
}

Status comm_bench_exchanges(CommBench *b)
{
    bool host = !b->r.ex.backend->apart;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        Shape s = shapes[i];
        s.tokens = larger(s.tokens / b->options->shrink / (host ? HOST_TOKENS : 1), 16);
        if (host) s.hidden /= HOST_HIDDEN;
        for (int k = 0; k < EXCHANGE_KINDS * 2; k++) {
            ArenaMark mark = arena_mark(&b->r.tables);
            TRY(run_kind(b, (ExchangeKind)(k / 2), &s, k % 2));
            arena_release(&b->r.tables, mark);
        }
    }
    return OK;
}
