/* shapes_check: a sample of a case of shapes.def on the CPU, beside what the device made of it. */
#include "bench/shapes.h"

#include "base/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TOKENS = 64, EXPERT_ROWS = 32, EXPERTS = 4 };

static const double FLOOR = 0.1; /* of the root mean square of the rows' norms */

/* Entry i of the sample is entry at[i] of the whole; NULL: i. */
typedef struct List {
    int64_t n, *at;
} List;

static Status numbers(ShapeSet *to, int id, int64_t n)
{
    int32_t *v = NULL;
    TRY(ARENA_NEW(to->tables, n, &v));
    for (int64_t i = 0; i < n; i++) v[i] = (int32_t)i;
    to->routing[id] = v;
    return OK;
}

static Status sample_tokens(const ShapeSet *from, ShapeSet *to, List *list)
{
    int64_t n = from->s.n < TOKENS ? from->s.n : TOKENS, k = from->s.k;
    const int32_t *slot_row = from->routing[T_SLOT_ROW];
    TRY(ARENA_NEW(to->tables, n, &list[OVER_TOKENS].at));
    TRY(ARENA_NEW(to->tables, n * k, &list[OVER_SLOTS].at));
    TRY(ARENA_NEW(to->tables, n * k, &list[OVER_ROWS].at));
    TRY(numbers(to, T_SLOT_ROW, n * k));
    for (int64_t i = 0; i < n; i++) {
        int64_t token =
            (int64_t)rng_permute(1, rng_stream("bench sample"), (uint64_t)i, (uint64_t)from->s.n);
        list[OVER_TOKENS].at[i] = token;
        for (int64_t j = 0; j < k; j++) {
            list[OVER_SLOTS].at[i * k + j] = token * k + j;
            list[OVER_ROWS].at[i * k + j] = slot_row[token * k + j];
        }
    }
    to->s.n = n;
    to->s.r = n * k;
    return OK;
}

static int64_t rows_of(const ShapeSet *set, int64_t e)
{
    return set->routing[T_OFFSETS][e + 1] - set->routing[T_OFFSETS][e];
}

/* The experts with the most rows and the fewest (of at least TOKENS, where there are such). */
static void extremes(const ShapeSet *set, int64_t *most, int64_t *fewest)
{
    *most = 0;
    for (int64_t e = 1; e < set->s.e; e++) {
        if (rows_of(set, e) > rows_of(set, *most)) *most = e;
    }
    *fewest = *most;
    for (int64_t e = 0; e < set->s.e; e++) {
        if (rows_of(set, e) >= TOKENS && rows_of(set, e) < rows_of(set, *fewest)) *fewest = e;
    }
}

/* Rows become tokens with one expert each. */
static Status sample_rows(const ShapeSet *from, ShapeSet *to, List *list)
{
    int64_t most, fewest, n = 0, used = 0, max_rows = from->s.r;
    extremes(from, &most, &fewest);
    const int64_t wanted[EXPERTS] = { fewest, most, 0, from->s.e - 1 };
    int64_t experts = from->what->sample == SAMPLE_EXPERT ? 1 : EXPERTS;
    int32_t *offsets = NULL;
    if (experts > 1) max_rows = EXPERT_ROWS;
    TRY(ARENA_ZEROED(to->tables, EXPERTS + 1, &offsets));
    TRY(ARENA_NEW(to->tables, EXPERTS, &list[OVER_EXPERTS].at));
    for (int a = OVER_TOKENS; a <= OVER_ROWS; a++)
        TRY(ARENA_NEW(to->tables, experts * max_rows, &list[a].at));
    for (int64_t i = 0; i < experts; i++) {
        int64_t e = wanted[i], rows = rows_of(from, e) < max_rows ? rows_of(from, e) : max_rows;
        bool again = false;
        for (int64_t j = 0; j < used; j++) again |= list[OVER_EXPERTS].at[j] == e;
        if (again) continue;
        for (int64_t row = from->routing[T_OFFSETS][e + 1] - rows; rows > 0; rows--, row++, n++) {
            list[OVER_ROWS].at[n] = row;
            list[OVER_TOKENS].at[n] = from->routing[T_ROW_TOKEN][row];
            list[OVER_SLOTS].at[n] = from->routing[T_ROW_SLOT][row];
        }
        list[OVER_EXPERTS].at[used++] = e;
        offsets[used] = (int32_t)n;
    }
    to->s.n = to->s.r = n;
    to->s.e = used;
    to->s.k = 1;
    to->routing[T_OFFSETS] = offsets;
    TRY(numbers(to, T_ROW_TOKEN, n));
    return numbers(to, T_ROW_SLOT, n);
}

static Status sample_head(const ShapeSet *from, ShapeSet *to, List *list)
{
    const ShapeSizes *s = &from->s;
    int64_t b = s->b - 1, h = s->h / 2;
    TRY(ARENA_NEW(to->tables, s->t, &list[OVER_HEADS].at));
    TRY(ARENA_NEW(to->tables, 1, &list[OVER_HEAD].at));
    for (int64_t t = 0; t < s->t; t++) list[OVER_HEADS].at[t] = (b * s->t + t) * s->h + h;
    list[OVER_HEAD].at[0] = b * s->h + h;
    to->s.b = to->s.h = 1;
    return OK;
}

/* Sizes and routing of the sample, and the lists. */
static Status sample_of(const ShapeSet *from, ShapeSet *to, List list[OVER_COUNT])
{
    switch (from->what->sample) {
    case SAMPLE_TOKENS: TRY(sample_tokens(from, to, list)); break;
    case SAMPLE_EXPERTS:
    case SAMPLE_EXPERT: TRY(sample_rows(from, to, list)); break;
    case SAMPLE_HEAD: TRY(sample_head(from, to, list)); break;
    default: break;
    }
    const ShapeSizes *s = &to->s;
    const int64_t n[OVER_COUNT] = { 1,          s->n, s->n * s->k, s->r, s->e, s->b * s->t * s->h,
                                    s->b * s->h };
    for (int a = 0; a < OVER_COUNT; a++) list[a].n = n[a];
    return OK;
}

/* The sample's entries of a tensor into host memory; neighbours in one copy. */
static Status fetch(const ShapeSet *from, int id, const List *lists, const Tensor *to)
{
    const List *l = &lists[shape_axis(id)];
    const Backend *b = from->ex->backend;
    size_t each = l->n == 0 ? 0 : tensor_bytes(to) / (size_t)l->n;
    for (int64_t i = 0, end; i < l->n; i = end) {
        for (end = i + 1; end < l->n && (l->at == NULL || l->at[end] == l->at[end - 1] + 1);) end++;
        const char *at =
            (const char *)from->tensor[id].data + (size_t)(l->at == NULL ? i : l->at[i]) * each;
        TRY(b->copy(from->ex, (char *)to->data + (size_t)i * each, at, (size_t)(end - i) * each));
    }
    return b->sync(from->ex);
}

static float value(const Tensor *t, int64_t i)
{
    float v;
    if (t->dtype == DTYPE_I32) return (float)((const int32_t *)t->data)[i];
    dtype_to_f32(&v, tensor_at(t, i), t->dtype, 1);
    return v;
}

/* Raises *error; a NaN stays. */
static void compare(const Tensor *got, const Tensor *want, double *error)
{
    int64_t n = tensor_elems(want), cols = tensor_cols(want);
    double all = 1e-60;
    for (int64_t i = 0; i < n; i++) all += pow((double)value(want, i), 2);
    double least = FLOOR * sqrt(all * (double)cols / (double)n);
    for (int64_t row = 0; row < n && !isnan(*error); row += cols) {
        double norm = 0, apart = 0;
        for (int64_t i = row; i < row + cols; i++) {
            norm += pow((double)value(want, i), 2);
            apart += pow((double)value(got, i) - (double)value(want, i), 2);
        }
        double relative = sqrt(apart) / fmax(sqrt(norm), least);
        if (!(relative <= *error)) *error = relative;
    }
}

static Status compare_outputs(const ShapeSet *from, const ShapeSet *sample, const List *lists,
                              double *error)
{
    for (int i = from->what->prepare; i < from->what->calls; i++) {
        const ShapeCall *call = &from->what->call[i];
        const int *id = call->tensor;
        for (const OpPort *p = op_desc(call->op)->ports; p->dir != PORT_END; p++) {
            if (p->dir == PORT_IN_SCALE || p->dir == PORT_ROWS) continue;
            int tensor = *id++;
            if (tensor == T_NONE || p->dir == PORT_IN || p->dir == PORT_IN_OPT ||
                shape_fill(tensor) == FILL_SUM)
                continue;
            Tensor got = sample->tensor[tensor];
            TRY(arena_alloc(sample->arena, tensor_bytes(&got), &got.data));
            TRY(fetch(from, tensor, lists, &got));
            compare(&got, &sample->tensor[tensor], error);
        }
    }
    return OK;
}

static Status check(const ShapeSet *from, ShapeSet *sample, double *error)
{
    List lists[OVER_COUNT] = { { 0 } };
    TRY(sample_of(from, sample, lists));
    TRY(shape_set_make(sample));
    for (int id = T_NONE + 1; id < T_COUNT; id++) {
        bool copied = shape_fill(id) != FILL_ROUTING && shape_fill(id) != FILL_SUM;
        if (copied && sample->tensor[id].data != NULL)
            TRY(fetch(from, id, lists, &sample->tensor[id]));
    }
    TRY(shape_set_run(from, from->what->prepare, from->what->calls));
    TRY(shape_set_run(sample, from->what->prepare, from->what->calls));
    return compare_outputs(from, sample, lists, error);
}

Status shape_check(const ShapeSet *set, Exec *cpu, double *error)
{
    Arena arena = { 0 };
    ArenaMark mark = arena_mark(set->tables);
    ShapeSet sample = { .ex = cpu,
                        .arena = &arena,
                        .tables = set->tables,
                        .config = set->config,
                        .what = set->what,
                        .s = set->s,
                        .pattern = set->pattern };
    memcpy(sample.routing, set->routing, sizeof sample.routing);
    *error = 0;
    TRY(arena_init(&arena, "sample", MEM_HOST, (size_t)64 << 30));
    Status s = check(set, &sample, error);
    arena_free(&arena);
    arena_release(set->tables, mark);
    return s;
}
