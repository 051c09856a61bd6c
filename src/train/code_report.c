/* code_report: see the header. */
#include "train/code_report.h"

#include "backend/backend.h"
#include "base/log.h"
#include "op/moe.h"
#include "op/quant.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TENSORS_MAX = 8192, SAMPLE = 1 << 20, PRINTED = 12 };

static CodeShares *shares_of(CodeReport *r, const Exec *ex, const OpDesc *op, const char *port,
                             const char *of)
{
    for (int i = 0; i < r->n; i++) {
        CodeShares *s = &r->at[i];
        if (s->layer == ex->layer && s->of == of && s->op == op->name && s->port == port) return s;
    }
    if (r->n == TENSORS_MAX) {
        r->dropped++;
        return NULL;
    }
    r->at[r->n] = (CodeShares){ .layer = ex->layer, .of = of, .op = op->name, .port = port };
    return &r->at[r->n++];
}

/* The codes of rows that this call has written. In a pool the rows before belong to other layers. */
static Status read_sample(Exec *ex, const OpDesc *op, const void *args, const Operand *q,
                          uint8_t *sample, size_t *n)
{
    int32_t first = 0;
    for (const OpPort *p = op->ports; p->dir != PORT_END; p++) {
        const Rows *rows = (const Rows *)(const void *)op_port_tensor(p, args);
        if (p->dir != PORT_ROWS || rows->first == NULL) continue;
        TRY(ex->backend->copy(ex, &first, rows->first, sizeof first));
        TRY(ex->backend->sync(ex));
    }
    size_t skip = (size_t)first * (size_t)tensor_cols(&q->data), all = tensor_bytes(&q->data);
    if (skip >= all) skip = 0; /* this output is not in the pool */
    *n = all - skip < SAMPLE ? all - skip : SAMPLE;
    TRY(ex->backend->copy(ex, sample, (const uint8_t *)q->data.data + skip, *n));
    return ex->backend->sync(ex);
}

static void count_codes(CodeShares *s, const uint8_t *code, size_t n, Dtype type)
{
    const uint8_t largest = type == DTYPE_E4M3 ? 0x7e : 0x7b;
    int64_t zeros = 0, most = 0;
    for (size_t i = 0; i < n; i++) {
        uint8_t magnitude = code[i] & 0x7f;
        zeros += magnitude == 0;
        most += magnitude == largest;
    }
    s->n += (double)n, s->zero += (double)zeros, s->largest += (double)most;
}

/* What the tensor of a port is an operand of. The rows of a QuantOut are its first member. */
static const char *operand_of(const OpDesc *op, const OpPort *p, const void *args, const Tensor *t)
{
    const char *end = strrchr(p->name, '.');
    if (op == op_desc(OP_QUANTIZE)) return ((const Quantize *)args)->of;
    bool out = end != NULL && strcmp(end, ".rows") == 0;
    return out ? ((const QuantOut *)(const void *)t)->of : NULL;
}

static bool is_eight_bit(Dtype t) { return t == DTYPE_E4M3 || t == DTYPE_E5M2; }

/* An operand's data and scales are two ports; the first stands for both. */
static Status look_at_op(Exec *ex, int level, const OpDesc *op, const void *args)
{
    CodeReport *r = ex->front[level]->self;
    TRY(op_next(ex, level, op, args));
    for (const OpPort *p = op->ports; p->dir != PORT_END; p++) {
        const Tensor *t = op_port_tensor(p, args);
        bool in = p->dir == PORT_IN || p->dir == PORT_IN_OPT || p->dir == PORT_IN_SCALE ||
                  p->dir == PORT_ROWS;
        if (in || t->data == NULL || !is_eight_bit(t->dtype)) continue;
        const Operand *q = (const Operand *)(const void *)t;
        const char *of = operand_of(op, p, args, t);
        CodeShares *s = q->transposed ? NULL : shares_of(r, ex, op, p->name, of);
        size_t n = 0;
        if (s == NULL) continue;
        TRY(read_sample(ex, op, args, q, r->sample, &n));
        count_codes(s, r->sample, n, t->dtype);
    }
    return OK;
}

Status code_report_open(CodeReport *r)
{
    *r = (CodeReport){ .look = { .run = look_at_op, .self = r } };
    size_t bytes = arena_rounded(TENSORS_MAX * sizeof *r->at) + arena_rounded(SAMPLE);
    TRY(arena_init(&r->arena, "8-bit report", MEM_HOST, bytes));
    TRY(ARENA_NEW(&r->arena, TENSORS_MAX, &r->at));
    return ARENA_NEW(&r->arena, SAMPLE, &r->sample);
}

void code_report_close(CodeReport *r) { arena_free(&r->arena); }
void code_report_begin(CodeReport *r, Exec *ex) { exec_push(ex, &r->look); }
void code_report_end(Exec *ex) { exec_pop(ex); }

static int by_zeros(const void *a, const void *b)
{
    const CodeShares *x = a, *y = b;
    double zx = x->zero / x->n, zy = y->zero / y->n;
    return (zx < zy) - (zx > zy);
}

void code_report_print(CodeReport *r, int64_t step)
{
    qsort(r->at, (size_t)r->n, sizeof *r->at, by_zeros);
    log_info("step %" PRId64 ": codes of %d 8-bit tensors; the largest shares of zeros:", step,
             r->n);
    for (int i = 0; i < r->n && i < PRINTED; i++) {
        const CodeShares *s = &r->at[i];
        char name[96];
        (void)snprintf(name, sizeof name, "%s.%s", s->op, s->port);
        log_info("  %6.2f %% are 0, %5.2f %% the largest: layer %d, %s", 100 * s->zero / s->n,
                 100 * s->largest / s->n, s->layer, s->of != NULL ? s->of : name);
    }
    if (r->dropped > 0) log_warn("%d more tensors were not looked at", r->dropped);
    r->n = r->dropped = 0;
}
