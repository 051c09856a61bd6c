/*
 * attention_block: what attention_fwd.c and attention_bwd.c share on the CPU: which keys each row
 * of a block of queries sees, packing of heads, products of a strip with keys, and storing of rows.
 * The products themselves are in attention_tile.c.
 */
#include "kernels/attention/attention_cpu.h"
#include "kernels/attention/attention_pieces.h"

/* The panels of keys that a strip needs: from the first key that any of its rows sees to the last.
 * If a word holds two keys, the first panel is even, so that both keys of a word are scored. */
static StripKeys strip_keys(const QueryBlock *q, Word word, int64_t row)
{
    int64_t first = q->first[row], first_most = first, last = q->last[row], last_least = last;
    bool any = first <= last;
    for (int64_t r = row + 1; r < row + STRIP; r++) {
        first = least(first, q->first[r]);
        first_most = most(first_most, q->first[r]);
        last = most(last, q->last[r]);
        last_least = least(last_least, q->last[r]);
        any = any || q->first[r] <= q->last[r];
    }
    if (!any) return (StripKeys){ .first = INT32_MAX };
    return (StripKeys){ .first = first / (LANES * word_elems(word)) * word_elems(word),
                        .end = last / LANES + 1,
                        .whole_first = panels_of(first_most),
                        .whole_end = (last_least + 1) / LANES };
}

/* Computes once what every strip asks for: the keys that each row sees, as indices among this call's keys. */
void query_block(const Shape *s, int64_t b, int64_t i0, QueryBlock *out)
{
    out->i0 = i0;
    out->n = least(BLOCK_Q, s->Tq - i0);
    out->strips = (out->n + STRIP - 1) / STRIP;
    for (int64_t r = 0; r < out->strips * STRIP; r++) {
        int64_t i = i0 + least(r, out->n - 1); /* filling rows repeat the last one */
        int64_t at = attention_position(&s->pieces, s->Tq, s->Tk, i);
        int64_t doc = s->doc == NULL ? 0 : s->doc[b * s->Tq + i];
        int64_t first = attention_first_seen(s->window, s->chunk, doc, at);
        out->first[r] = (int32_t)attention_keys_before(&s->pieces, s->Tk, first);
        out->last[r] = (int32_t)attention_keys_before(&s->pieces, s->Tk, at + 1) - 1;
    }
    out->panel_first = INT64_MAX;
    out->panel_end = 0;
    for (int64_t i = 0; i < out->strips; i++) {
        out->keys[i] = strip_keys(out, s->word, i * STRIP);
        out->panel_first = least(out->panel_first, out->keys[i].first);
        out->panel_end = most(out->panel_end, out->keys[i].end);
    }
}

float *space_take(Space *space, int64_t floats)
{
    size_t from = space->used;
    space->used += arena_rounded((size_t)floats * sizeof(float));
    return space->at == NULL ? NULL : (float *)(void *)(space->at + from);
}

void *head_row(const Tensor *t, int64_t b, int64_t row, int64_t head)
{
    return tensor_at(t, ((b * t->dim[1] + row) * t->dim[2] + head) * t->dim[3]);
}

Panels pack_columns(float *to, const Tensor *t, Word word, int64_t b, int64_t head)
{
    PackSource o = { .data = head_row(t, b, 0, head),
                     .ld = row_stride(t),
                     .lines = t->dim[1],
                     .elems = t->dim[3],
                     .word = word,
                     .along_k = true };
    panels_pack(to, &o, LANES);
    return (Panels){ to, words_of(o.word, o.elems) * LANES };
}

/* Rows of the tensor become steps of the sum, and its columns the columns of panels. */
Panels pack_steps(float *to, const Tensor *t, Word word, int64_t b, int64_t head, int64_t first,
                  int64_t n)
{
    PackSource o = { .data = head_row(t, b, first, head),
                     .ld = row_stride(t),
                     .lines = t->dim[3],
                     .elems = n,
                     .word = word,
                     .along_k = false };
    panels_pack(to, &o, LANES);
    return (Panels){ to, words_of(o.word, o.elems) * LANES };
}

/* Packs a strip's columns, in f32, as bf16 words of two neighbouring columns into `to`. */
static Panels pair_columns(Panels from, int64_t panels, Panels to)
{
    for (int64_t panel = 0; panel < panels; panel += 2) {
        const float *even = panels_at(from, panel, 0).at, *odd = even + from.stride;
        float *at = panels_at(to, panel / 2, 0).at;
        for (int64_t r = 0; r < (int64_t)STRIP * LANES; r += LANES) {
            Vector next = panel + 1 < panels ? vector_load(odd + r) : (Vector){ 0 };
            vector_store(at + r, vector_pairs_along(vector_load(even + r), next));
        }
    }
    return to;
}

void span_by_keys(const Span *x, Panels rows, Panels keys, Panels c, int64_t width)
{
    StripProduct t = { .pairs = x->word == WORD_BF16_PAIR, .panels = x->end - x->first };
    t.a = panels_at(rows, 0, x->i * STRIP);
    t.b = panels_at(keys, x->first, 0);
    t.c = panels_at(c, x->first - x->block, 0);
    t.steps = words_of(x->word, width);
    strip_product(&t);
}

/* The sum ends at the last key that the strip's last row sees: no row sees a later one. */
void span_by_steps(const Span *x, Panels p, Panels room, Panels steps, Panels c, int64_t width)
{
    int64_t from = x->first * LANES, row = x->i * STRIP;
    int64_t end = least(x->end * LANES, x->queries->last[row + STRIP - 1] + 1);
    StripProduct t = { .pairs = x->word == WORD_BF16_PAIR, .add = true };
    t.a = panels_at(p, x->first - x->block, 0);
    if (t.pairs) t.a = pair_columns(t.a, x->end - x->first, room);
    t.b = panels_at(steps, 0, words_of(x->word, from));
    t.c = panels_at(c, 0, row);
    t.panels = panels_of(width);
    t.steps = words_of(x->word, end - from);
    strip_product(&t);
}

/* An f32 row is stored in place but for its last columns. Those, and all of a bf16 row, go through
 * `room`, because a vector store would reach past the row's end. */
void row_unload(const Sums *x, int64_t b, int64_t row, int64_t head, Panels from, float *room)
{
    const Tensor *to = x->to, *before = x->before;
    bool wide = to->dtype == DTYPE_F32;
    int64_t n = to->dim[3], whole = wide ? n / LANES * LANES : 0;
    char *out = head_row(to, b, row, head);
    for (int64_t d = 0; d < n; d += LANES, from.at += from.stride) {
        Vector v = vector_load(from.at);
        if (before != NULL && before->data != NULL) {
            Word word = word_of(before->dtype, false);
            const char *at = head_row(before, b, row, head);
            v = line_words(at + d * (int64_t)dtype_bytes(before->dtype), word, n - d) +
                v * x->factor;
        } else {
            v = v * x->factor;
        }
        vector_store(d < whole ? (float *)(void *)out + d : room + d, v);
    }
    char *rest = out + (size_t)whole * dtype_bytes(to->dtype);
    if (whole < n) dtype_from_f32(rest, to->dtype, room + whole, n - whole);
}

/* Prefetches STRIP rows into L2; nothing past the last sequence. */
void rows_fetch(const Tensor *t, int64_t b, int64_t head, int64_t first, Use use)
{
    enum { LINE_BYTES = 64 };
    if (b >= t->dim[0] || first >= t->dim[1]) return;
    int64_t each = (int64_t)dtype_bytes(t->dtype), bytes = t->dim[3] * each;
    const char *row = head_row(t, b, first, head);
    for (int64_t r = first; r < least(first + STRIP, t->dim[1]); r++, row += row_stride(t) * each) {
        for (int64_t i = 0; i < bytes; i += LINE_BYTES) {
            use == USE_READ ? __builtin_prefetch(row + i, 0, 2) : __builtin_prefetch(row + i, 1, 2);
        }
    }
}
