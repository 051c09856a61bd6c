/* shapes_check: recomputes a sample of a case's outputs on the CPU, and compares them with the
 * device's. A sample is a case with fewer tokens, experts or heads, whose inputs are copied from
 * the device. */
#include "shapes/shapes.h"

#include "engine/base/rng.h"

#include <math.h>
#include <string.h>

enum { TOKENS = 64, EXPERTS = 4, EXPERT_ROWS = 32 };

static const double FLOOR = 0.1; /* smallest reference, as a share of the rows' mean norm (RMS) */

/* The sample of an axis: its entry i is entry at[i] of the whole. at NULL: all n entries. */
typedef struct List {
    int64_t n, *at;
} List;

/* Samples some tokens with all their slots and rows. Row j of the sample belongs to slot j. */
static Status sample_tokens(const ShapeSet *from, ShapeSet *to, List *list)
{
    int64_t n = from->s.n < TOKENS ? from->s.n : TOKENS, k = from->s.k;
    uint64_t stream = rng_stream("bench sample");
    int32_t *slot_row = NULL;
    TRY(ARENA_NEW(to->tables, n * k, &slot_row));
    for (int64_t i = 0; i < n; i++) {
        int64_t token = (int64_t)rng_permute(1, stream, (uint64_t)i, (uint64_t)from->s.n);
        list[OVER_TOKENS].at[i] = token;
        for (int64_t j = i * k; j < (i + 1) * k; j++) {
            slot_row[j] = (int32_t)j;
            list[OVER_SLOTS].at[j] = token * k + j - i * k;
            list[OVER_ROWS].at[j] = from->routing[T_SLOT_ROW][token * k + j - i * k];
        }
    }
    list[OVER_EXPERTS].at = NULL;
    to->s.n = n;
    to->s.r = n * k;
    to->routing[T_SLOT_ROW] = slot_row;
    return OK;
}

/* Samples at most `most` rows of some experts: their last ones, where partial tiles are. Each row
 * becomes a token with one expert. Evenly spaced rows choose the experts, so that none is empty and
 * large ones are likely. */
static Status sample_rows(const ShapeSet *from, ShapeSet *to, List *list, int experts, int64_t most)
{
    const int32_t *begin = from->routing[T_OFFSETS];
    int32_t *offsets = NULL, *number = NULL;
    int64_t n = 0, used = 0, e = 0;
    TRY(ARENA_ZEROED(to->tables, experts + 1, &offsets));
    TRY(ARENA_NEW(to->tables, from->s.r, &number));
    for (int i = 0; i < experts; i++) {
        while (begin[e + 1] <= from->s.r * (2 * (int64_t)i + 1) / (2 * (int64_t)experts)) e++;
        if (used > 0 && list[OVER_EXPERTS].at[used - 1] == e) continue;
        int64_t row = begin[e + 1] - most > begin[e] ? begin[e + 1] - most : begin[e];
        for (; row < begin[e + 1]; row++, n++) {
            number[n] = (int32_t)n;
            list[OVER_ROWS].at[n] = row;
            list[OVER_TOKENS].at[n] = from->routing[T_ROW_TOKEN][row];
            list[OVER_SLOTS].at[n] = from->routing[T_ROW_SLOT][row];
        }
        list[OVER_EXPERTS].at[used++] = e;
        offsets[used] = (int32_t)n;
    }
    to->s.n = n;
    to->s.r = n;
    to->s.e = used;
    to->s.k = 1;
    to->routing[T_OFFSETS] = offsets;
    to->routing[T_ROW_TOKEN] = number;
    to->routing[T_ROW_SLOT] = number;
    return OK;
}

/* Samples the middle head of the last sequence. */
static void sample_head(const ShapeSet *from, ShapeSet *to, List *list)
{
    const ShapeSizes *s = &from->s;
    int64_t b = s->b - 1, h = s->h / 2;
    for (int64_t t = 0; t < s->t; t++) list[OVER_HEADS].at[t] = (b * s->t + t) * s->h + h;
    list[OVER_HEAD].at[0] = b * s->h + h;
    to->s.b = 1;
    to->s.h = 1;
}

/* How many entries each axis has: of the whole case, or of a sample. */
static void count_entries(const ShapeSizes *s, List list[OVER_COUNT])
{
    const int64_t n[OVER_COUNT] = { 1,          s->n, s->n * s->k, s->r, s->e, s->b * s->t * s->h,
                                    s->b * s->h };
    for (int a = 0; a < OVER_COUNT; a++) list[a].n = n[a];
}

/* Chooses the sample: its sizes, its routing, and its entries by axis. */
static Status sample_of(const ShapeSet *from, ShapeSet *to, List list[OVER_COUNT])
{
    ShapeSample sample = from->what->sample;
    count_entries(&from->s, list);
    for (int a = OVER_TOKENS; a < OVER_COUNT && sample != SAMPLE_ALL; a++)
        TRY(ARENA_NEW(to->tables, list[a].n + from->s.r, &list[a].at)); /* rows become tokens */
    if (sample == SAMPLE_TOKENS) TRY(sample_tokens(from, to, list));
    if (sample == SAMPLE_EXPERTS) TRY(sample_rows(from, to, list, EXPERTS, EXPERT_ROWS));
    if (sample == SAMPLE_EXPERT) TRY(sample_rows(from, to, list, 1, from->s.r));
    if (sample == SAMPLE_HEAD) sample_head(from, to, list);
    count_entries(&to->s, list);
    return OK;
}

/* Copies the sample's entries of a tensor to host memory; consecutive entries in one copy. */
static Status fetch_entries(const ShapeSet *from, int id, const List *lists, const Tensor *to)
{
    const List *l = &lists[shape_axis(id)];
    const Backend *b = from->ex->backend;
    const char *data = from->tensor[id].data;
    if (l->at == NULL) return b->read(from->ex, to->data, data, tensor_bytes(to));
    size_t each = tensor_bytes(to) / (size_t)l->n;
    for (int64_t i = 0, end; i < l->n; i = end) {
        for (end = i + 1; end < l->n && l->at[end] == l->at[end - 1] + 1;) end++;
        TRY(b->copy(from->ex, (char *)to->data + (size_t)i * each, data + (size_t)l->at[i] * each,
                    (size_t)(end - i) * each));
    }
    return b->sync(from->ex);
}

/* One element as double, whatever its type: whole numbers up to 2^31 are exact. */
static double element_of(const Tensor *t, int64_t i)
{
    float v;
    if (t->dtype == DTYPE_I32) return ((const int32_t *)t->data)[i];
    dtype_to_f32(&v, tensor_at(t, i), t->dtype, 1);
    return (double)v;
}

/* Raises *error to the largest relative error of a row. !(x <= y) lets a NaN through, and it
 * stays. */
static void compare_rows(const Tensor *got, const Tensor *want, double *error)
{
    int64_t n = tensor_elems(want), cols = tensor_cols(want);
    double all = 1e-60;
    for (int64_t i = 0; i < n; i++) all += pow(element_of(want, i), 2);
    double least = FLOOR * sqrt(all * (double)cols / (double)n);
    for (int64_t row = 0; row < n && !isnan(*error); row += cols) {
        double norm = 0, apart = 0;
        for (int64_t i = row; i < row + cols; i++) {
            norm += pow(element_of(want, i), 2);
            apart += pow(element_of(got, i) - element_of(want, i), 2);
        }
        double relative = sqrt(apart) / fmax(sqrt(norm), least);
        if (!(relative <= *error)) *error = relative;
    }
}

/* Inputs come from the device, so both sides compute on the same numbers. The device runs once more
 * after that copy, so both accumulate onto the same values. */
static Status check_sample(const ShapeSet *from, ShapeSet *sample, double *error)
{
    List lists[OVER_COUNT] = { { 0 } };
    TRY(sample_of(from, sample, lists));
    TRY(shape_set_make(sample));
    for (int id = T_NONE + 1; id < T_COUNT; id++) {
        if (sample->tensor[id].data != NULL && shape_fill(id) < FILL_ROUTING)
            TRY(fetch_entries(from, id, lists, &sample->tensor[id]));
    }
    TRY(shape_set_run(from, from->what->prepare, from->what->calls));
    TRY(shape_set_run(sample, from->what->prepare, from->what->calls));
    for (int id = T_NONE + 1; id < T_COUNT; id++) {
        Tensor got = sample->tensor[id];
        if (!sample->written[id] || shape_fill(id) == FILL_SUM) continue;
        TRY(arena_alloc(sample->arena, tensor_bytes(&got), &got.data));
        TRY(fetch_entries(from, id, lists, &got));
        compare_rows(&got, &sample->tensor[id], error);
    }
    return OK;
}

/* The sample runs on the CPU ops in memory of its own; both marks are released, so checks can
 * follow each other. */
Status shape_check(const ShapeSet *set, Exec *cpu, Arena *arena, double *error)
{
    ArenaMark mark = arena_mark(arena), tables = arena_mark(set->tables);
    ShapeSet sample = *set;
    sample.ex = cpu;
    sample.arena = arena;
    memset(sample.tensor, 0, sizeof sample.tensor);
    *error = 0;
    TRY(check_sample(set, &sample, error));
    arena_release(arena, mark);
    arena_release(set->tables, tables);
    return OK;
}
