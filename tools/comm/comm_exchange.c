/*
 * comm_exchange: how long tokens take to the ranks of their experts and back, for every kind of
 * exchange. dispatch finds offsets and sends rows, experts and weights; combine sends one row back
 * for each received row, and adds them up. `dispatch 8-bit` sends rows of 8-bit numbers with their
 * scales (fp8.dispatch).
 *
 * Memory for rows is as in training, moe.buffer_factor times the balanced rows, or as much as the
 * routing needs if that is more. It matters, because blocks with gaps travel whole. Each rank draws
 * the experts of all ranks, so it knows how many rows arrive without communication. Hidden states
 * are ones: the sum that comes back is the number of rows, which is checked.
 */
#include "comm/comm.h"
#include "kernels/exchange/exchange.h"

#include "engine/base/rng.h"
#include "engine/step/agree.h"

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
/* On the host tokens and width are divided by these. CHECKED: tokens whose result is checked. */
enum { HOST_TOKENS = 64, HOST_HIDDEN = 8, CHECKED = 64 };

static const char *const routings[] = { "uniform", "zipf" };

/* One exchange: its ops, over tensors of b->r.block. */
typedef struct Exchange {
    ExchangePlace place;
    ExchangeDispatch dispatch;
    ExchangeCombine combine;
    Shape shape;
    const ExchangeDesc *kind;
    const int32_t *index;    /* (ranks, N, K): experts of all ranks' tokens, on the host */
    int64_t blocks;          /* ranks, or hosts, that a rank sends to */
    int64_t rows, relayed;   /* rows that a rank has memory for, as receiver and as relay */
    double arriving, passed; /* mean rows that arrive at a rank, and at a relay */
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
static int64_t capacity_for(const CommBench *b, double mean, int64_t most)
{
    return (int64_t)fmin(ceil(mean * b->r.config->moe_buffer_factor), (double)most);
}

/* Sets how many rows a rank has memory for. Kinds with blocks need equal ones: as long as the
 * longest block that a rank sends, or as training makes them if that is more. A compact kind needs
 * the most rows that arrive at one rank; all-gather (no offsets) needs the tokens of all ranks. */
static void count_rows(const CommBench *b, Exchange *x)
{
    const Shape *s = &x->shape;
    int64_t ranks = b->host->size, inside = b->mesh.shape.inside, of = ranks / x->blocks;
    double arriving = 0;
    /* largest numbers: of a sent block, of a relay's rows for one rank, of rows that arrive at a
     * rank */
    int64_t sent = 0, passed = 0, most = 0;
    for (int64_t r = 0; r < ranks; r++) {
        for (int64_t i = 0; i < x->blocks; i++) {
            int64_t rows = tokens_to(x, ranks, r, i * of, of);
            sent = larger(sent, rows);
            x->passed += (double)rows / (double)ranks;
        }
    }
    for (int64_t q = 0; q < ranks; q++) {
        int64_t here = 0;
        for (int64_t r = 0; r < ranks; r++) {
            int64_t through = 0; /* rows to q through the relay with number r */
            here += tokens_to(x, ranks, r, q, 1);
            for (int64_t h = r; h < ranks && x->kind->hierarchical && r < inside; h += inside)
                through += tokens_to(x, ranks, h, q, 1);
            passed = larger(passed, through);
        }
        arriving += (double)here;
        most = larger(most, here);
    }
    x->arriving = x->kind->offsets ? arriving / (double)ranks : (double)(s->tokens * ranks);
    x->rows = s->tokens * ranks;
    if (!x->kind->offsets) return;
    double mean = (double)s->tokens * x->kind->rows(s->experts, s->top_k, ranks);
    double to_hosts = (double)s->tokens * exchange_distinct(s->experts, s->top_k, x->blocks);
    int64_t last = x->kind->hierarchical ? inside : ranks;
    if (x->kind->compact) {
        x->rows = larger(most, capacity_for(b, mean, s->tokens * ranks));
        return;
    }
    x->rows = larger(capacity_for(b, mean / (double)last, s->tokens * ranks / last),
                     x->kind->hierarchical ? passed : sent);
    x->rows *= last;
    if (x->kind->hierarchical)
        x->relayed =
            x->blocks * larger(capacity_for(b, to_hosts / (double)x->blocks, s->tokens), sent);
    while (x->rows % ranks != 0) x->rows += last; /* both `ranks` and `last` blocks must be equal */
}

/* Makes the ops' arguments in `a`. With a counting arena this only finds how many bytes they
 * take. */
static Status make_arguments(CommBench *b, Exchange *x, Arena *a)
{
    const Shape *s = &x->shape;
    int64_t n = s->tokens, k = s->top_k, m = x->rows, ranks = b->host->size;
    ExchangeDispatch d = { .ranks = ranks,
                           .experts = s->experts,
                           .kind = x->dispatch.kind,
                           .received = { .bound = m, .expected = x->arriving } };
    Tensor y,
        header; /* the flag area comes first in a rank's block: other ranks look for it there */
    TRY(tensor_new1(a, DTYPE_I32, (int64_t)(x->kind->header_bytes / sizeof(int32_t)), &header));
    TRY(tensor_new2(a, b->type, n, s->hidden, &d.x.data));
    TRY(tensor_new2(a, DTYPE_I32, n, k, &d.index));
    TRY(tensor_new2(a, DTYPE_F32, n, k, &d.weight));
    if (x->kind->offsets) TRY(tensor_new2(a, DTYPE_I32, n, k, &d.offset));
    if (x->kind->compact) TRY(tensor_new2(a, DTYPE_I32, 1, ranks, &d.count));
    if (x->kind->compact) TRY(tensor_new2(a, DTYPE_I32, 1, ranks + 1, &d.first));
    if (x->kind->hierarchical) {
        d.relay = (ExchangeRelay){ .inside = b->mesh.shape.inside, .expected = x->passed };
        TRY(tensor_new2(a, DTYPE_I32, x->relayed, k, &d.relay.offset));
    }
    TRY(tensor_new1(a, DTYPE_F32, 1, &d.overflow));
    TRY(tensor_new2(a, b->type, m, s->hidden, &d.rows.data));
    TRY(tensor_new2(a, DTYPE_I32, m, k, &d.rows_index));
    TRY(tensor_new2(a, DTYPE_F32, m, k, &d.rows_weight));
    TRY(tensor_new2(a, b->type, n, s->hidden, &y));
    x->dispatch = d;
    x->place = (ExchangePlace){ .index = d.index,
                                .offset = d.offset,
                                .overflow = d.overflow,
                                .count = d.count,
                                .experts = s->experts,
                                .ranks = x->blocks,
                                .room = (x->kind->hierarchical ? x->relayed : m) / x->blocks };
    if (x->kind->compact) x->place.room = n;
    x->combine = (ExchangeCombine){ .x = d.rows.data,
                                    .offset = d.offset,
                                    .first = d.first,
                                    .relay = d.relay,
                                    .y = y,
                                    .received = d.received,
                                    .ranks = ranks,
                                    .kind = d.kind };
    return OK;
}

/* Scratch that an op asks for, by the implementation that will run. */
static size_t workspace_bytes(const Exec *ex, OpId id, const void *args)
{
    const OpDesc *op = op_desc(id);
    OpSpace *space = ex->gpu != NULL ? op->gpu_workspace : op->workspace;
    return space == NULL ? 0 : space(ex, args);
}

/* Allocates the tensors and the largest scratch of the three ops. A counting arena finds the sizes
 * first, since arguments must exist before an op can be asked for its scratch. */
static Status alloc_exchange(CommBench *b, Exchange *x)
{
    Arena count = { 0 };
    TRY(arena_init(&count, "count", MEM_COUNT, (size_t)1 << 50));
    TRY(make_arguments(b, x, &count));
    size_t most = workspace_bytes(&b->r.ex, OP_EXCHANGE_DISPATCH, &x->dispatch);
    size_t other = workspace_bytes(&b->r.ex, OP_EXCHANGE_COMBINE, &x->combine);
    if (other > most) most = other;
    if (x->kind->offsets) other = workspace_bytes(&b->r.ex, OP_EXCHANGE_PLACE, &x->place);
    TRY(comm_bench_alloc(b, count.peak_bytes, other > most ? other : most));
    return make_arguments(b, x, &b->r.block);
}

/* Copies this rank's hidden states (ones) and experts to the device. */
static Status fill_inputs(CommBench *b, const Exchange *x)
{
    const Backend *k = b->r.ex.backend;
    const Tensor *h = &x->dispatch.x.data, *index = &x->dispatch.index;
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

/* Every row was sent as ones, so the sum that comes back for a token must be the number of ranks
 * with its experts. The overflow flag must not be raised. */
static Status check_rows_came_back(CommBench *b, const Exchange *x)
{
    const Exchange own = {
        .shape = { .tokens = 1, .experts = x->shape.experts, .top_k = x->shape.top_k }
    };
    int64_t ranks = b->host->size, d = x->shape.hidden, n = x->shape.tokens;
    char raw[sizeof(float)];
    float overflow = 0, have = 0;
    TRY(b->r.ex.backend->read(&b->r.ex, &overflow, x->dispatch.overflow.data, sizeof overflow));
    if (overflow != 0)
        return FAIL(ERR_NUMERIC, "exchange %s: rows of rank %d did not fit among %lld",
                    x->kind->name, b->host->rank, (long long)x->rows);
    for (int64_t t = 0; t < n && t < CHECKED; t++) {
        Exchange one = own;
        int64_t want = x->kind->offsets ? 0 : ranks;
        one.index = x->index + (b->host->rank * n + t) * x->shape.top_k;
        for (int64_t q = 0; q < ranks && x->kind->offsets; q++)
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

static Status call_dispatch(CommBench *b, void *state)
{
    const Exchange *x = state;
    if (x->kind->offsets) TRY(exchange_place(&b->r.ex, x->place));
    return exchange_dispatch(&b->r.ex, x->dispatch);
}

static Status call_combine(CommBench *b, void *state)
{
    return exchange_combine(&b->r.ex, ((Exchange *)state)->combine);
}

/* 8-bit rows and their scales, in the memory of as many plain ones. */
static Operand in_8_bits(Operand q)
{
    q.kind = OPERAND_1X128, q.data.dtype = DTYPE_E4M3;
    const OperandGrid g = operand_grid_of(&q);
    q.scale = (Tensor){ tensor_at(&q.data, g.n * g.d), DTYPE_F32, 2, { g.rows, g.cols } };
    return q;
}

/* Times dispatch and combine. Bytes are those of the rows that arrive at a rank; bus bytes only
 * those of rows that crossed a link, as the op's cost counts them. */
static Status time_both(CommBench *b, Exchange *x, const char *routing)
{
    double row = (double)x->shape.hidden * (double)dtype_bytes(b->type);
    double choices = (double)x->shape.top_k * (sizeof(int32_t) + sizeof(float));
    char call[48], size[32];
    Exchange narrow = *x;
    CommRow r = { .call = call, .shape = size, .routing = routing };
    r.room = (double)x->rows / x->arriving;
    (void)snprintf(size, sizeof size, "%s %lld", x->shape.name, (long long)x->shape.tokens);
    (void)snprintf(call, sizeof call, "%s dispatch", x->kind->name);
    r.bytes = x->arriving * (row + choices);
    r.bus_bytes = op_desc(OP_EXCHANGE_DISPATCH)->cost(&x->dispatch).comm_bytes;
    TRY(comm_bench_row(b, call_dispatch, x, r));
    (void)snprintf(call, sizeof call, "%s combine", x->kind->name);
    r.bytes = x->arriving * row;
    r.bus_bytes = op_desc(OP_EXCHANGE_COMBINE)->cost(&x->combine).comm_bytes;
    TRY(comm_bench_row(b, call_combine, x, r));
    narrow.dispatch.x = in_8_bits(x->dispatch.x);
    narrow.dispatch.rows = in_8_bits(x->dispatch.rows);
    (void)snprintf(call, sizeof call, "%s dispatch 8-bit", x->kind->name);
    r.bytes = x->arriving * (operand_rows_bytes(&narrow.dispatch.x, 1) + choices);
    r.bus_bytes = op_desc(OP_EXCHANGE_DISPATCH)->cost(&narrow.dispatch).comm_bytes;
    TRY(comm_bench_row(b, call_dispatch, &narrow, r));
    return agree_status(b->host, check_rows_came_back(b, x));
}

/* ERR_UNSUPPORTED: these ranks cannot exchange in this way. */
static Status can_exchange(CommBench *b, const Exchange *x)
{
    int64_t ranks = b->host->size, inside = b->mesh.shape.inside;
    if (x->shape.experts % ranks != 0)
        return FAIL(ERR_UNSUPPORTED, "%lld experts do not divide over %lld ranks",
                    (long long)x->shape.experts, (long long)ranks);
    if (x->kind->hierarchical && (inside == 1 || inside == ranks))
        return FAIL(ERR_UNSUPPORTED,
                    "%lld of %lld ranks are on each host: nothing is passed on "
                    "(mesh.ranks_per_host can be set)",
                    (long long)inside, (long long)ranks);
    return OK;
}

/* Prints why a kind cannot run, once for both routings. */
static Status print_why_once(CommBench *b, const Exchange *x, int routing)
{
    if (routing == 0) return comm_bench_print_why(b, x->kind->name, x->shape.name);
    return status_clear(), OK;
}

/* One kind on one shape with one routing. Ranks agree on every failure: one that leaves alone would
 * let the others wait. */
static Status time_kind(CommBench *b, ExchangeKind kind, const Shape *shape, int routing)
{
    Exchange x = { .shape = *shape, .kind = exchange_kinds[kind], .dispatch.kind = kind };
    int32_t *index = NULL;
    x.blocks = exchange_blocks(kind, b->host->size, b->mesh.shape.inside);
    Status s = agree_status(b->host, can_exchange(b, &x));
    if (s == ERR_UNSUPPORTED) return print_why_once(b, &x, routing);
    TRY(s);
    TRY(bench_experts(routing == 1 ? BENCH_ZIPF : BENCH_UNIFORM, rng_stream(shape->name),
                      b->host->size * shape->tokens, shape->top_k, shape->experts, &b->r.tables,
                      &index));
    x.index = index;
    count_rows(b, &x);
    s = alloc_exchange(b, &x);
    if (s == ERR_MEMORY) return comm_bench_print_why(b, x.kind->name, shape->name);
    TRY(s);
    s = agree_status(b->host, exchange_open(&b->r.ex, kind, b->r.block.base, b->r.block.cap_bytes,
                                            &b->r.tables));
    if (s == OK) s = fill_inputs(b, &x);
    if (s == OK) s = time_both(b, &x, routings[routing]);
    exchange_close(&b->r.ex);
    bench_runner_release(&b->r);
    return s == ERR_UNSUPPORTED ? print_why_once(b, &x, routing) : s;
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
            TRY(time_kind(b, (ExchangeKind)(k / 2), &s, k % 2));
            arena_release(&b->r.tables, mark);
        }
    }
    return OK;
}
