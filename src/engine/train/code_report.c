/* code_report: see the header. */
#include "engine/train/code_report.h"

#include "engine/backend/backend.h"
#include "engine/base/log.h"
#include "kernels/quant/quant.h"

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

static void count_codes(CodeShares *s, const uint8_t *code, size_t n, Dtype type)
{
    const float most_of_type = dtype_largest(type);
    uint8_t largest = 0;
    dtype_from_f32(&largest, type, &most_of_type, 1);
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

/* An operand's data and scales are two ports; the first stands for both. */
static Status look_at_op(Exec *ex, int level, const OpDesc *op, const void *args)
{
    CodeReport *r = ex->front[level]->self;
    TRY(op_next(ex, level, op, args));
    LiveRows live;
    TRY(live_rows_read(ex, op, args, &live));
    for (const OpPort *p = op->ports; p->dir != PORT_END; p++) {
        const Tensor *t = op_port_tensor(p, args);
        bool in = p->dir == PORT_IN || p->dir == PORT_IN_OPT || p->dir == PORT_IN_SCALE ||
                  p->dir == PORT_ROWS;
        if (in || t->data == NULL || !dtype_is_narrow(t->dtype)) continue;
        const Operand *q = (const Operand *)(const void *)t;
        const Tensor written = live_rows_of(p, t, &live);
        size_t n = tensor_bytes(&written) < SAMPLE ? tensor_bytes(&written) : SAMPLE;
        if (q->transposed || n == 0) continue;
        CodeShares *s = shares_of(r, ex, op, p->name, operand_of(op, p, args, t));
        if (s == NULL) continue;
        TRY(ex->backend->copy(ex, r->sample, written.data, n));
        TRY(ex->backend->sync(ex));
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
