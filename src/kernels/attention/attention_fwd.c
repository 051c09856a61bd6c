/*
 * attention_fwd: the forward pass on the CPU. A strip of queries walks its keys in blocks of
 * BLOCK_K with a running maximum and sum: scores, softmax, o += p v. A strip's scores stay in the
 * L1 cache. A sequence of up to BLOCK_K tokens is one block, and then nothing is ever rescaled.
 *
 *     m' = max(m, max of new scores),  sum' = sum 2^(m - m') + sum of p,  o' = o 2^(m - m') + p v
 *
 * 8-bit attention rounds q, k and v first (attention_e4m3.c), and p between the products. Its blocks
 * are those of its scales, so that running maxima are a GPU's.
 *
 * bf16 operands are multiplied without conversion. Where the CPU multiplies bf16 in pairs,
 * probabilities are rounded to bf16 for p v, as FlashAttention does on a GPU. All sums are f32.
 */
#include "kernels/attention/attention_cpu.h"
#include "kernels/core/operand.h"

#include <math.h>
#include <omp.h>
#include <string.h>

#ifdef HOSTILE
enum { BLOCK_K = 2 * LANES };
#else
enum { BLOCK_K = 512 };
#endif

/* One thread's memory, in the op's workspace, and the head and block it works on. */
typedef struct Forward {
    const AttentionFwd *a;
    Shape s;
    Word word;
    float *packed_k, *packed_v;
    Panels k, v;       /* the packed head's keys as columns, its values as steps */
    int64_t packed;    /* b * G + key/value head that is packed now; -1: none */
    Panels q;          /* (BLOCK_Q, dk) words */
    Panels p, p_words; /* (STRIP, BLOCK_K): scores, then probabilities; the same in bf16 words */
    Panels o;          /* (BLOCK_Q, dv) */
    float *row;        /* (dv), whole panels */
    int64_t b, h;
    int64_t panels; /* of a block of keys */
    QueryBlock block;
    Vector max[STRIPS], sum[STRIPS]; /* row r of a strip at lane r * ROW_LANES; max of raw scores */
} Forward;

/* Lays out one thread's memory, or counts its bytes (Space). Panels have BLOCK_Q + 1 rows for the
 * reason that attention_bwd.c gives. */
static Forward forward_make(const Exec *ex, const AttentionFwd *a, Space *space)
{
    Forward f = { .a = a, .s = attention_fwd_shape(a), .packed = -1 };
    const Shape *s = &f.s;
    f.s.word = f.word = word_of(s->act, ex->gemm->pairs);
    f.panels = (a->e4m3 ? (int64_t)OPERAND_BLOCK : BLOCK_K) / LANES;
    int64_t keys = least(f.panels, panels_of(s->Tk)) * LANES;
    f.packed_k = space_take(space, panels_of(s->Tk) * LANES * words_of(f.word, s->dk));
    f.packed_v = space_take(space, panels_of(s->dv) * LANES * words_of(f.word, s->Tk));
    f.q = space_panels(space, BLOCK_Q + 1, words_of(f.word, s->dk));
    f.p = space_panels(space, STRIP, keys);
    if (f.word == WORD_BF16_PAIR) f.p_words = space_panels(space, STRIP, keys);
    f.o = space_panels(space, BLOCK_Q + 1, s->dv);
    f.row = space_take(space, panels_of(s->dv) * LANES);
    return f;
}

/* The key/value head of the query head that runs: H / G neighbours share one. */
static int64_t kv_head(const Forward *f) { return f->h * f->s.G / f->s.H; }

/* Packs the keys and values of this query head, unless the head before it used the same ones: query
 * heads that share keys and values are neighbours. */
static void pack_head(Forward *f)
{
    int64_t head = f->b * f->s.G + kv_head(f);
    if (f->packed == head) return;
    f->packed = head;
    f->k = pack_columns(f->packed_k, &f->a->k, f->word, f->b, kv_head(f));
    f->v = pack_steps(f->packed_v, &f->a->v, f->word, f->b, kv_head(f), 0, f->s.Tk);
}

/* Hides keys that a row does not see, and finds every row's largest score. */
static Vector hide_and_max(const Forward *f, const Span *x)
{
    const StripKeys *keys = &f->block.keys[x->i];
    Vector max[STRIP];
    for (int r = 0; r < STRIP; r++) max[r] = vector_of(-INFINITY);
    for (int64_t panel = x->first; panel < x->end; panel++) {
        float *at = panels_at(f->p, panel - x->block, 0).at;
        bool whole = panel >= keys->whole_first && panel < keys->whole_end;
        for (int r = 0; r < STRIP && !whole; r++, at += LANES) {
            Vector seen = hide_keys(&f->block, x->i * STRIP + r, panel, vector_load(at));
            vector_store(at, seen);
        }
        at = panels_at(f->p, panel - x->block, 0).at;
#pragma GCC unroll 8
        for (int r = 0; r < STRIP; r++) {
            max[r] = vector_larger(vector_load(at + (int64_t)r * LANES), max[r]);
        }
    }
    return rows_fold(max, false);
}

/* Turns row r's scores into 2^(factor * score - shift); returns their sum by lanes. */
static inline Vector exponentials(const Forward *f, const Span *x, int r, float factor, float shift)
{
    float *at = panels_at(f->p, x->first - x->block, r).at;
    Vector sum = { 0 };
    for (int64_t panel = x->first; panel < x->end; panel++, at += f->p.stride) {
        Vector p = vector_exp2(vector_load(at) * factor - shift);
        vector_store(at, f->a->e4m3 ? vector_e4m3(p) : p);
        sum += p;
    }
    return sum;
}

/* o of the strip times factor, when a new maximum was found. */
static void strip_rescale(Forward *f, const Span *x, Vector factor)
{
    for (int64_t p = 0; p < panels_of(f->s.dv); p++) {
        float *o = panels_at(f->o, p, x->i * STRIP).at;
        for (int r = 0; r < STRIP; r++) {
            float *row = o + (int64_t)r * LANES;
            vector_store(row, vector_load(row) * factor[r * ROW_LANES]);
        }
    }
}

/* Turns scores into probabilities that are not yet divided by their sum. begun: o already holds
 * terms of earlier keys, which a new maximum rescales. */
static void strip_softmax(Forward *f, const Span *x, bool begun)
{
    float factor = f->s.scale * log2_e;
    Vector *max = &f->max[x->i], *sum = &f->sum[x->i], before = *max;
    *max = vector_larger(hide_and_max(f, x), before);
    /* a row that has seen no key: -inf - -inf would be NaN */
    Vector shift = vector_choose(*max == -INFINITY, (Vector){ 0 }, *max * factor);
    Vector part[STRIP];
    for (int r = 0; r < STRIP; r++) part[r] = exponentials(f, x, r, factor, shift[r * ROW_LANES]);
    /* 2^-inf = 0 for a row that had seen no key */
    Vector kept = vector_exp2(before * factor - shift);
    *sum = *sum * kept + rows_fold(part, true);
    if (begun) strip_rescale(f, x, kept);
}

/* Clears maximum, sum and o of a block of queries, or starts from the result over other keys: as if
 * each row had seen one key with the scaled score lse and the value o. */
static void begin_rows(Forward *f)
{
    const Shape *s = &f->s;
    const AttentionFwd *a = f->a;
    const QueryBlock *q = &f->block;
    const Tensor *o = &a->o_before;
    for (int64_t i = 0; i < q->strips; i++) {
        f->max[i] = vector_of(-INFINITY);
        f->sum[i] = (Vector){ 0 };
    }
    if (o->data == NULL) {
        memset(f->o.at, 0, (size_t)(panels_of(s->dv) * f->o.stride) * sizeof(float));
        return;
    }
    rows_load(f->o, head_row(o, f->b, q->i0, f->h), WORD_F32, row_stride(o), q->n, s->dv);
    const float *lse = (const float *)a->lse_before.data + (f->b * s->H + f->h) * s->Tq + q->i0;
    for (int64_t r = 0; r < q->n; r++) {
        f->max[r / STRIP][r % STRIP * ROW_LANES] = lse[r] / s->scale;
        f->sum[r / STRIP][r % STRIP * ROW_LANES] = lse[r] > -INFINITY ? 1 : 0;
    }
}

/* o / sum, and lse = scale max + log(sum), for the rows of the block. */
static void store_rows(Forward *f)
{
    const Shape *s = &f->s;
    const QueryBlock *q = &f->block;
    float *lse = (float *)f->a->lse.data + (f->b * s->H + f->h) * s->Tq + q->i0;
    for (int64_t r = 0; r < q->n; r++) {
        float sum = f->sum[r / STRIP][r % STRIP * ROW_LANES];
        float max = f->max[r / STRIP][r % STRIP * ROW_LANES];
        Sums o = { &f->a->o, NULL, sum > 0 ? 1 / sum : 0 }; /* a row without keys becomes 0 */
        row_unload(&o, f->b, q->i0 + r, f->h, panels_at(f->o, 0, r), f->row);
        lse[r] = max * s->scale + logf(sum);
    }
}

/* Runs one strip over one block of keys. With the first block it also prefetches the next head's
 * rows, between the products, so that memory works while the core multiplies. */
static void span_run(Forward *f, const Span *x)
{
    const AttentionFwd *a = f->a;
    int64_t row = f->block.i0 + x->i * STRIP;
    int64_t next = f->b * f->s.H + f->h + 1, b = next / f->s.H, h = next % f->s.H;
    int64_t g = h * f->s.G / f->s.H;
    bool first = x->block == f->block.panel_first, keys = first && b * f->s.G + g != f->packed;
    if (first) rows_fetch(&a->o, f->b, f->h, row, USE_WRITE);
    span_by_keys(x, f->q, f->k, f->p, f->s.dk);
    if (first) rows_fetch(&a->q, b, h, row, USE_READ);
    strip_softmax(f, x, f->block.keys[x->i].first < x->block || a->o_before.data != NULL);
    if (keys) rows_fetch(&a->k, b, g, row, USE_READ);
    span_by_steps(x, f->p, f->p_words, f->v, f->o, f->s.dv);
    if (keys) rows_fetch(&a->v, b, g, row, USE_READ);
}

/* All strips use one block of keys before any goes on to the next, so its packed keys and values
 * are read while they are in a cache. */
static void block_run(Forward *f, int64_t i0)
{
    const Shape *s = &f->s;
    QueryBlock *q = &f->block;
    query_block(s, f->b, i0, q);
    rows_load(f->q, head_row(&f->a->q, f->b, i0, f->h), f->word, row_stride(&f->a->q), q->n, s->dk);
    begin_rows(f);
    int64_t begin = f->a->e4m3 ? q->panel_first / f->panels * f->panels : q->panel_first;
    for (int64_t block = begin; block < q->panel_end; block += f->panels) {
        for (int64_t i = 0; i < q->strips; i++) {
            Span x = { .queries = q, .word = f->word, .i = i, .block = block };
            x.first = most(block, q->keys[i].first);
            x.end = least(block + f->panels, q->keys[i].end);
            if (x.first < x.end) span_run(f, &x);
        }
    }
    store_rows(f);
}

Status attention_fwd_cpu(Exec *ex, const AttentionFwd *given)
{
    AttentionFwd rounded = *given, *a = &rounded;
    char *room = ex->workspace;
    if (a->e4m3) room += attention_e4m3_round(ex, a, room);
    int64_t B = a->q.dim[0], H = a->q.dim[2];
    /* A first layout without memory says how much each thread's layout needs. */
    Space size = { 0 };
    (void)forward_make(ex, a, &size);
#pragma omp parallel num_threads(ex->threads)
    {
        Space own = { .at = room + (size_t)omp_get_thread_num() * size.used };
        Forward f = forward_make(ex, a, &own);
#pragma omp for schedule(static)
        /* Heads of a thread are neighbours, so pack_head often finds what it needs. */
        for (int64_t head = 0; head < B * H; head++) {
            f.b = head / H;
            f.h = head % H;
            pack_head(&f);
            for (int64_t i0 = 0; i0 < f.s.Tq; i0 += BLOCK_Q) block_run(&f, i0);
        }
    }
    return OK;
}

size_t attention_fwd_workspace(const Exec *ex, const AttentionFwd *a)
{
    Space size = { 0 };
    (void)forward_make(ex, a, &size);
    AttentionFwd copies = *a;
    size_t bytes = a->e4m3 ? attention_e4m3_round(ex, &copies, NULL) : 0;
    return bytes + (size_t)ex->threads * size.used;
}
