/* attention_max: check, cost and CPU version. A thread owns heads, so nothing depends on the number of
 * threads. Logits are the products that attention_fwd.c computes, and the masks are its masks. */
#include "kernels/attention/attention_cpu.h"

#include <omp.h>

Status attention_max_check(const AttentionMax *a)
{
    AttentionFwd as = a->of;
    as.v = as.k;
    Shape s = attention_fwd_shape(&as);
    TRY(attention_check_shape("attention_max", &as, &s));
    TRY(op_expect("attention_max", "lse", &as.lse, s.B * s.H, s.Tq, DTYPE_F32));
    return op_expect("attention_max", "max", &a->max, 1, s.H, DTYPE_F32);
}

/* In most steps of most trainings no lse is above the threshold. */
OpCost attention_max_cost(const AttentionMax *a)
{
    return (OpCost){ .bytes = (double)tensor_bytes(&a->of.lse) };
}

/* One thread's memory, in the op's workspace, and the block of queries it works on. */
typedef struct Scan {
    const AttentionMax *a;
    Shape s;
    float *packed;    /* the keys of a head */
    Panels k, q, p;   /* packed keys; (BLOCK_Q, dk) words; (STRIP, KEYS) scores */
    const float *lse; /* of the head's rows */
    int64_t b, h;
    bool has_keys; /* the head's keys are packed */
    QueryBlock block;
} Scan;

enum { PANELS = 16, KEYS = PANELS * LANES };

/* Lays out one thread's memory, or counts its bytes (Space). */
static Scan scan_make(const Exec *ex, const AttentionMax *a, Space *space)
{
    Scan f = { .a = a, .s = attention_fwd_shape(&a->of) };
    Shape *s = &f.s;
    s->word = word_of(s->act, ex->gemm->pairs);
    f.packed = space_take(space, panels_of(s->Tk) * LANES * words_of(s->word, s->dk));
    f.q = space_panels(space, BLOCK_Q + 1, words_of(s->word, s->dk));
    f.p = space_panels(space, STRIP, KEYS);
    return f;
}

/* Can a row [first, first + n) have a logit above `limit`? */
static bool rows_reach(const Scan *f, int64_t first, int64_t n, float limit)
{
    bool any = false;
    for (int64_t i = first; i < first + n; i++) any |= f->lse[i] > limit * (1 - LSE_SLACK);
    return any;
}

/* The largest product that a row of the strip has with a key of the span that it sees. */
static float span_max(const Scan *f, const Span *x)
{
    const StripKeys *keys = &f->block.keys[x->i];
    Vector max = vector_of(-INFINITY);
    span_by_keys(x, f->q, f->k, f->p, f->s.dk);
    for (int64_t panel = x->first; panel < x->end; panel++) {
        const float *at = panels_at(f->p, panel - x->block, 0).at;
        bool whole = panel >= keys->whole_first && panel < keys->whole_end;
        for (int r = 0; r < STRIP; r++, at += LANES) {
            Vector v = vector_load(at);
            if (!whole) v = hide_keys(&f->block, x->i * STRIP + r, panel, v);
            max = vector_larger(v, max);
        }
    }
    float largest = max[0];
    for (int i = 1; i < LANES; i++) largest = fmaxf(largest, max[i]);
    return largest;
}

static void strip_scan(Scan *f, int64_t i, float *max)
{
    const StripKeys *keys = &f->block.keys[i];
    for (int64_t block = keys->first; block < keys->end; block += PANELS) {
        Span x = { &f->block, f->s.word, i, block, block, least(block + PANELS, keys->end) };
        float logit = span_max(f, &x) * f->s.scale;
        if (logit > f->a->above && logit > *max) *max = logit;
    }
}

/* Rows of one head from i0 on. Keys are packed only once a row needs them. */
static void block_scan(Scan *f, int64_t i0, float *max)
{
    const AttentionMax *a = f->a;
    const Shape *s = &f->s;
    const int64_t n = least(BLOCK_Q, s->Tq - i0);
    if (!rows_reach(f, i0, n, fmaxf(a->above, *max))) return;
    if (!f->has_keys) f->k = pack_columns(f->packed, &a->of.k, s->word, f->b, f->h * s->G / s->H);
    f->has_keys = true;
    query_block(s, f->b, i0, &f->block);
    rows_load(f->q, head_row(&a->of.q, f->b, i0, f->h), s->word, row_stride(&a->of.q), n, s->dk);
    for (int64_t i = 0; i < f->block.strips; i++) {
        int64_t first = i * STRIP;
        if (rows_reach(f, i0 + first, least(STRIP, n - first), fmaxf(a->above, *max)))
            strip_scan(f, i, max);
    }
}

Status attention_max_cpu(Exec *ex, const AttentionMax *a)
{
    Space size = { 0 };
    (void)scan_make(ex, a, &size);
#pragma omp parallel num_threads(ex->threads)
    {
        Space own = { .at = (char *)ex->workspace + (size_t)omp_get_thread_num() * size.used };
        Scan f = scan_make(ex, a, &own);
        const Shape *s = &f.s;
#pragma omp for schedule(static)
        for (int64_t h = 0; h < s->H; h++) {
            float *max = (float *)a->max.data + h;
            for (f.h = h, f.b = 0; f.b < s->B; f.b++) {
                f.has_keys = false;
                f.lse = (const float *)a->of.lse.data + (f.b * s->H + h) * s->Tq;
                for (int64_t i0 = 0; i0 < s->Tq; i0 += BLOCK_Q) block_scan(&f, i0, max);
            }
        }
    }
    return OK;
}

size_t attention_max_workspace(const Exec *ex, const AttentionMax *a)
{
    Space size = { 0 };
    (void)scan_make(ex, a, &size);
    return (size_t)ex->threads * size.used;
}

OP_PORTS(attention_max, IN(AttentionMax, of.q), IN(AttentionMax, of.k),
         IN_OPT(AttentionMax, of.doc), IN(AttentionMax, of.lse), ADD(AttentionMax, max));
