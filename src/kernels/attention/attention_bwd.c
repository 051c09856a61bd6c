/*
 * attention_bwd: the backward pass on the CPU. A block of queries walks its keys in blocks of BLOCK_K. For WIDE panels
 * of keys at a time, every strip computes p and ds while they are in the L1 cache. Then p and ds of the whole block are
 * summed over its queries into dv and dk, and over its keys into dq:
 *
 *     p = 2^(log2(e) (scale q k^T - lse)),   ds / scale = p * (do v^T - delta)
 *     dv += p^T do,   dk += ds^T q,   dq += ds k
 *
 * dq and dk are multiplied by scale when they are stored. Where the CPU multiplies bf16 in pairs, p and ds are rounded
 * to bf16 for the products, in words of two queries or of two keys. Sums are f32.
 *
 * One thread owns a key/value head with all query heads that share it, and walks them in order. So
 * dk and dv have one order of sums, whatever the number of threads.
 */
#include "kernels/attention/attention_cpu.h"

#include <math.h>
#include <omp.h>
#include <string.h>

#ifdef HOSTILE
enum { BLOCK_K = 2 * LANES };
#else
enum { BLOCK_K = 4 * WIDE * LANES };
#endif
enum { BLOCK_PANELS = BLOCK_K / LANES };

/* One thread's memory. A head's keys and values are packed as columns, its keys also as steps. */
typedef struct Backward {
    const AttentionBwd *a;
    Shape s;
    Word word;
    float *packed_k, *packed_v, *packed_rows;
    Panels k, v, k_rows;
    Panels q, d_o; /* (BLOCK_Q, dk or dv) words */
    float *packed_q, *packed_do;
    Panels q_steps, do_steps; /* the same as steps: in f32 the same memory */
    Panels p, ds;             /* (BLOCK_Q, BLOCK_K) */
    Panels p_steps, ds_steps; /* the same as operands of sums over queries: words of two in bf16 */
    Panels ds_words;          /* (STRIP, BLOCK_K) in bf16: words of two keys */
    Panels dq, dk, dv;        /* (BLOCK_Q, dk), (Tk, dk), (Tk, dv) f32 */
    float *row;               /* (dk or dv), whole panels */
    int64_t b, g, h;
    bool last_head; /* the last query head that shares the key/value head */
    QueryBlock block;
    float lse[BLOCK_Q], delta[BLOCK_Q]; /* lse as a logarithm to base 2 */
} Backward;

/* Lays out one thread's memory. With space->at NULL it only counts the bytes (workspace). BLOCK_Q +
 * 1 rows a panel, not BLOCK_Q: strides of a power of two would fall into the same cache sets. */
static Backward backward_make(const Exec *ex, const AttentionBwd *a, Space *space)
{
    Backward f = { .a = a, .s = attention_bwd_shape(a) };
    const Shape *s = &f.s;
    f.s.word = f.word = word_of(s->act, ex->gemm->pairs);
    bool pairs = f.word == WORD_BF16_PAIR;
    int64_t keys = panels_of(s->Tk) * LANES, block = least(BLOCK_K, keys);
    int64_t dk = words_of(f.word, s->dk), dv = words_of(f.word, s->dv);
    f.packed_k = space_take(space, keys * dk);
    f.packed_v = space_take(space, keys * dv);
    f.packed_rows = space_take(space, panels_of(s->dk) * LANES * words_of(f.word, s->Tk));
    f.q = f.q_steps = space_panels(space, BLOCK_Q + 1, dk);
    f.d_o = f.do_steps = space_panels(space, BLOCK_Q + 1, dv);
    f.p = f.p_steps = space_panels(space, BLOCK_Q + 1, block);
    f.ds = f.ds_steps = space_panels(space, BLOCK_Q + 1, block);
    if (pairs) {
        f.packed_q = space_take(space, panels_of(s->dk) * LANES * BLOCK_Q / 2);
        f.packed_do = space_take(space, panels_of(s->dv) * LANES * BLOCK_Q / 2);
        f.p_steps = space_panels(space, BLOCK_Q / 2 + 1, block);
        f.ds_steps = space_panels(space, BLOCK_Q / 2 + 1, block);
        f.ds_words = space_panels(space, STRIP, block);
    }
    f.dq = space_panels(space, BLOCK_Q + 1, s->dk);
    f.dk = space_panels(space, keys, s->dk);
    f.dv = space_panels(space, keys, s->dv);
    f.row = space_take(space, most(panels_of(s->dk), panels_of(s->dv)) * LANES);
    return f;
}

/* Clears the panels that hold `cols` columns, with the rows between them. */
static void panels_clear(Panels p, int64_t cols)
{
    memset(p.at, 0, (size_t)(panels_of(cols) * p.stride) * sizeof *p.at);
}

/* delta_r = sum over d of do * o, for the queries r of strip i. */
static void strip_delta(Backward *f, int64_t i)
{
    const AttentionBwd *a = f->a;
    Word word = word_of(a->o.dtype, false);
    int64_t each = (int64_t)word_elem_bytes(word), width = f->s.dv;
    Vector part[STRIP];
    for (int64_t r = 0; r < STRIP; r++) {
        int64_t row = i * STRIP + r;
        part[r] = (Vector){ 0 };
        /* There is no such query: its delta stays 0, and block_load gives it p = 0. */
        if (row >= f->block.n) continue;
        const char *o = head_row(&a->o, f->b, f->block.i0 + row, f->h);
        const char *d_o = head_row(&a->d_o, f->b, f->block.i0 + row, f->h);
        for (int64_t d = 0; d < width; d += LANES) {
            Vector x = line_words(o + d * each, word, width - d);
            part[r] += x * line_words(d_o + d * each, word, width - d);
        }
    }
    Vector sum = rows_fold(part, true);
    for (int r = 0; r < STRIP; r++) f->delta[i * STRIP + r] = sum[r * ROW_LANES];
}

/* Packs a block of queries and computes lse and delta of its rows. Rows that only fill up the last
 * strip, or saw no key at all, get lse = infinity, and so p = 2^-inf = 0 and ds = 0. */
static void block_load(Backward *f, int64_t i0)
{
    const Shape *s = &f->s;
    const AttentionBwd *a = f->a;
    QueryBlock *q = &f->block;
    query_block(s, f->b, i0, q);
    rows_load(f->q, head_row(&a->q, f->b, i0, f->h), f->word, row_stride(&a->q), q->n, s->dk);
    rows_load(f->d_o, head_row(&a->d_o, f->b, i0, f->h), f->word, row_stride(&a->d_o), q->n, s->dv);
    if (f->word == WORD_BF16_PAIR) {
        f->q_steps = pack_steps(f->packed_q, &a->q, f->word, f->b, f->h, i0, q->n);
        f->do_steps = pack_steps(f->packed_do, &a->d_o, f->word, f->b, f->h, i0, q->n);
    }
    const float *lse = (const float *)a->lse.data + (f->b * s->H + f->h) * s->Tq + i0;
    for (int64_t r = 0; r < q->strips * STRIP; r++) {
        f->lse[r] = r < q->n && lse[r] > -INFINITY ? lse[r] * log2_e : INFINITY;
    }
    for (int64_t i = 0; i < q->strips; i++) strip_delta(f, i);
    panels_clear(f->dq, s->dk);
}

/* Turns scores into p, and dp into ds / scale, in place. The bound on the exponent keeps p finite:
 * vector_exp2 is defined below 126 only. */
static void strip_gradients(const Backward *f, const Span *x)
{
    const StripKeys *keys = &f->block.keys[x->i];
    float factor = f->s.scale * log2_e;
    for (int64_t panel = x->first; panel < x->end; panel++) {
        bool whole = panel >= keys->whole_first && panel < keys->whole_end;
        int64_t row = x->i * STRIP;
        float *p = panels_at(f->p, panel - x->block, row).at;
        float *ds = panels_at(f->ds, panel - x->block, row).at;
        for (int64_t r = row; r < row + STRIP; r++, p += LANES, ds += LANES) {
            Vector score = vector_load(p);
            if (!whole) score = hide_keys(&f->block, r, panel, score);
            Vector weight = vector_exp2(vector_least(score * factor - f->lse[r], 125.0f));
            vector_store(p, weight);
            vector_store(ds, weight * (vector_load(ds) - f->delta[r]));
        }
    }
}

/* Packs rows of p and ds as bf16 words of two queries, operands of sums over queries. */
static void strip_pair(const Backward *f, const Span *x)
{
    const int64_t pair = 2 * (int64_t)LANES;
    int64_t row = x->i * STRIP;
    for (int64_t panel = x->first - x->block; panel < x->end - x->block; panel++) {
        const float *p = panels_at(f->p, panel, row).at, *ds = panels_at(f->ds, panel, row).at;
        float *to_p = panels_at(f->p_steps, panel, row / 2).at;
        float *to_ds = panels_at(f->ds_steps, panel, row / 2).at;
        for (int64_t r = 0; r < STRIP; r += 2, p += pair, ds += pair) {
            vector_store(to_p, vector_pairs_across(vector_load(p), vector_load(p + LANES)));
            vector_store(to_ds, vector_pairs_across(vector_load(ds), vector_load(ds + LANES)));
            to_p += LANES;
            to_ds += LANES;
        }
    }
}

/* Clears p and ds of strip i in panels that it does not see: they add 0 to sums over queries. */
static void strip_clear(const Backward *f, int64_t i, int64_t first, int64_t end)
{
    int64_t row = words_of(f->word, i * STRIP), rows = words_of(f->word, STRIP);
    size_t bytes = (size_t)(rows * LANES) * sizeof(float);
    for (int64_t panel = first; panel < end; panel++) {
        memset(panels_at(f->p_steps, panel, row).at, 0, bytes);
        memset(panels_at(f->ds_steps, panel, row).at, 0, bytes);
    }
}

/* Prefetch rows of the next query head, or key/value head, in the order in which heads are run. */
static void fetch_next_query(const Backward *f, const Tensor *t, int64_t row)
{
    int64_t next = f->b * f->s.H + f->h + 1;
    rows_fetch(t, next / f->s.H, next % f->s.H, row, USE_READ);
}

static void fetch_next_key(const Backward *f, const Tensor *t, int64_t row)
{
    int64_t next = f->b * f->s.G + f->g + 1;
    if (f->last_head) rows_fetch(t, next / f->s.G, next % f->s.G, row, USE_READ);
}

/* Computes p and ds of the block of queries for the panels of keys [block, end). */
static void compute_p_ds(const Backward *f, int64_t block, int64_t end)
{
    const QueryBlock *q = &f->block;
    for (int64_t panel = block; panel < end; panel += WIDE) {
        for (int64_t i = 0; i < q->strips; i++) {
            int64_t group = least(end, panel + WIDE);
            Span x = { q, f->word, i, block, .first = most(panel, q->keys[i].first) };
            x.end = least(group, q->keys[i].end);
            strip_clear(f, i, panel - block, least(x.first, group) - block);
            if (x.first >= x.end) continue;
            bool first = panel == q->panel_first;
            int64_t row = q->i0 + i * STRIP;
            if (first) rows_fetch(&f->a->dq, f->b, f->h, row, USE_WRITE);
            span_by_keys(&x, f->q, f->k, panels_at(f->p, 0, i * STRIP), f->s.dk);
            if (first) fetch_next_query(f, &f->a->q, row);
            span_by_keys(&x, f->d_o, f->v, panels_at(f->ds, 0, i * STRIP), f->s.dv);
            if (first) fetch_next_query(f, &f->a->d_o, row);
            strip_gradients(f, &x);
            if (first) fetch_next_query(f, &f->a->o, row);
            if (f->word == WORD_BF16_PAIR) strip_pair(f, &x);
        }
    }
}

/* Adds to dv and dk at STRIP keys from `key` on, summed over the strips of queries that see one of
 * these keys. The first and the last key that a query sees never decrease from one query to the
 * next, so these strips are neighbours. */
static void add_key_gradients(const Backward *f, int64_t block, int64_t key)
{
    const QueryBlock *q = &f->block;
    int64_t before = 0, end = q->strips * STRIP, panel = key / LANES - block;
    StripProduct t = { .pairs = f->word == WORD_BF16_PAIR, .add = true };
    while (before < q->n && q->last[before + STRIP - 1] < key) before += STRIP;
    while (end > before && q->first[end - STRIP] >= key + STRIP) end -= STRIP;
    if (before >= end) return;
    int64_t row = words_of(f->word, before);
    bool diagonal = f->last_head && key >= q->i0;
    if (diagonal) rows_fetch(&f->a->dv, f->b, f->g, key, USE_WRITE);
    t.steps = words_of(f->word, least(end, q->n) - before);
    t.a = panels_at(f->p_steps, panel, row);
    t.a.at += key % LANES;
    t.b = panels_at(f->do_steps, 0, row);
    t.c = panels_at(f->dv, 0, key);
    t.panels = panels_of(f->s.dv);
    strip_product_turned(&t);
    if (diagonal) rows_fetch(&f->a->dk, f->b, f->g, key, USE_WRITE);
    t.a = panels_at(f->ds_steps, panel, row);
    t.a.at += key % LANES;
    t.b = panels_at(f->q_steps, 0, row);
    t.c = panels_at(f->dk, 0, key);
    t.panels = panels_of(f->s.dk);
    strip_product_turned(&t);
}

/* dq of strip i += ds k, over the block's keys. */
static void add_query_gradients(const Backward *f, int64_t i, int64_t block, int64_t block_end)
{
    const QueryBlock *q = &f->block;
    Span x = { q, f->word, i, block, .first = most(block, q->keys[i].first) };
    x.end = least(block_end, q->keys[i].end);
    if (x.first >= x.end) return;
    span_by_steps(&x, panels_at(f->ds, 0, i * STRIP), f->ds_words, f->k_rows, f->dq, f->s.dk);
}

/* Stores n rows of dq, dk or dv; x names the tensor, what it is added to, and the factor. */
static void store_rows(const Backward *f, Sums x, Panels from, int64_t head, int64_t first,
                       int64_t n)
{
    for (int64_t r = 0; r < n; r++)
        row_unload(&x, f->b, first + r, head, panels_at(from, 0, r), f->row);
}

/* One block of queries against all keys that it sees. Its dq is complete at the end and is stored
 * here; dk and dv take terms from all blocks and heads, and head_run stores them. */
static void block_run(Backward *f, int64_t i0)
{
    const QueryBlock *q = &f->block;
    f->last_head = (f->h + 1) % (f->s.H / f->s.G) == 0;
    block_load(f, i0);
    for (int64_t block = q->panel_first; block < q->panel_end; block += BLOCK_PANELS) {
        int64_t end = least(q->panel_end, block + BLOCK_PANELS);
        compute_p_ds(f, block, end);
        for (int64_t key = block * LANES; key < end * LANES; key += STRIP) {
            add_key_gradients(f, block, key);
        }
        for (int64_t i = 0; i < q->strips; i++) {
            if (block == q->panel_first) fetch_next_key(f, &f->a->k, i0 + i * STRIP);
            add_query_gradients(f, i, block, end);
            if (block == q->panel_first) fetch_next_key(f, &f->a->v, i0 + i * STRIP);
        }
    }
    store_rows(f, (Sums){ &f->a->dq, &f->a->dq_before, f->s.scale }, f->dq, f->h, i0, q->n);
}

/* All query heads of one key/value head. */
static void head_run(Backward *f)
{
    const AttentionBwd *a = f->a;
    const Shape *s = &f->s;
    f->k = pack_columns(f->packed_k, &a->k, f->word, f->b, f->g);
    f->v = pack_columns(f->packed_v, &a->v, f->word, f->b, f->g);
    f->k_rows = pack_steps(f->packed_rows, &a->k, f->word, f->b, f->g, 0, s->Tk);
    panels_clear(f->dk, s->dk);
    panels_clear(f->dv, s->dv);
    int64_t heads = s->H / s->G;
    for (f->h = f->g * heads; f->h < (f->g + 1) * heads; f->h++) {
        for (int64_t i0 = 0; i0 < s->Tq; i0 += BLOCK_Q) block_run(f, i0);
    }
    store_rows(f, (Sums){ &a->dk, &a->dk_before, s->scale }, f->dk, f->g, 0, s->Tk);
    store_rows(f, (Sums){ &a->dv, &a->dv_before, 1 }, f->dv, f->g, 0, s->Tk);
}

Status attention_bwd_cpu(Exec *ex, const AttentionBwd *a)
{
    int64_t B = a->q.dim[0], G = a->k.dim[2];
    Space size = { 0 };
    (void)backward_make(ex, a, &size);
#pragma omp parallel num_threads(ex->threads)
    {
        Space own = { .at = (char *)ex->workspace + (size_t)omp_get_thread_num() * size.used };
        Backward f = backward_make(ex, a, &own);
#pragma omp for schedule(static)
        for (int64_t head = 0; head < B * G; head++) {
            f.b = head / G;
            f.g = head % G;
            head_run(&f);
        }
    }
    return OK;
}

size_t attention_bwd_workspace(const Exec *ex, const AttentionBwd *a)
{
    Space size = { 0 };
    (void)backward_make(ex, a, &size);
    return (size_t)ex->threads * size.used;
}
