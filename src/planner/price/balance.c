/* balance: spreads blocks over stages so that the slowest stage is as fast as possible. It is a dynamic
 * program over (stages, pieces), run twice: first for the smallest maximum, then, with that maximum as
 * the limit, for the smallest sum of squares. */
#include "planner/price/balance.h"

#include <math.h>

/* The pieces in order are the embedding, the layers, the loss. best[k][n]: the lowest cost of the first n
 * pieces on k stages; from[k][n]: the first piece of the last of these stages. */
typedef struct Table {
    int pieces, stages;
    double *sum; /* of the first n pieces */
    double *best;
    int *from;
} Table;

static double stage_cost(const Table *t, int from, int to) { return t->sum[to] - t->sum[from]; }

/* Fills the table. `join` combines the cost of earlier stages with that of one more; stages that cost more
 * than the limit are not allowed. Returns the cost of all pieces on all stages. */
static double fill_stages(Table *t, double limit, double (*join)(double before, double stage))
{
    int row = t->pieces + 1;
    for (int i = 0; i < (t->stages + 1) * row; i++) t->best[i] = INFINITY;
    t->best[0] = 0;
    for (int k = 1; k <= t->stages; k++) {
        for (int n = k; n <= t->pieces - (t->stages - k); n++) {
            for (int b = n - 1; b >= k - 1; b--) {
                double stage = stage_cost(t, b, n);
                if (stage > limit || join(0, stage) >= t->best[k * row + n]) break;
                double all = join(t->best[(k - 1) * row + b], stage);
                if (all >= t->best[k * row + n]) continue;
                t->best[k * row + n] = all;
                t->from[k * row + n] = b;
            }
        }
    }
    return t->best[t->stages * row + t->pieces];
}

static double slowest_stage(double before, double stage) { return before > stage ? before : stage; }

static double sum_of_squares(double before, double stage) { return before + stage * stage; }

static Status check_cost(const char *what, int i, double cost)
{
    if (cost >= 0 && isfinite(cost)) return OK;
    return FAIL(ERR_ARG, "layout: %s %d costs %g, legal are finite numbers from 0", what, i, cost);
}

/* sum[n] holds the cost of the first n pieces, so the cost of any stage is one subtraction. */
static Status make_table(const LayoutCost *c, int stages, Arena *a, Table *t)
{
    *t = (Table){ .pieces = c->layers + 2, .stages = stages };
    size_t row = (size_t)t->pieces + 1, cells = row * ((size_t)stages + 1);
    TRY(ARENA_NEW(a, row, &t->sum));
    TRY(ARENA_NEW(a, cells, &t->best));
    TRY(ARENA_ZEROED(a, cells, &t->from));
    t->sum[0] = 0;
    t->sum[1] = c->embedding;
    for (int i = 0; i < c->layers; i++) t->sum[i + 2] = t->sum[i + 1] + c->layer[i];
    t->sum[c->layers + 2] = t->sum[c->layers + 1] + c->loss;
    return OK;
}

/* The inner call finds the smallest maximum. The outer one takes it as the limit and spreads the
 * rest evenly. Stages are then read from the last one to the first. */
static Status balance_stages(const LayoutCost *c, int stages, Arena *scratch, Layout *out)
{
    Table t;
    TRY(make_table(c, stages, scratch, &t));
    (void)fill_stages(&t, fill_stages(&t, INFINITY, slowest_stage), sum_of_squares);
    for (int end = t.pieces, k = stages; k > 0; k--) {
        int begin = t.from[k * (t.pieces + 1) + end];
        LayoutStage s = { .embedding = begin == 0, .loss = end == t.pieces };
        s.first = begin == 0 ? 0 : begin - 1;
        s.layers = end - begin - s.embedding - s.loss;
        out->stage[k - 1] = s;
        end = begin;
    }
    return OK;
}

Status balance_layout(const LayoutCost *cost, int stages, Arena *a, Arena *scratch, Layout *out)
{
    Layout l = { .stages = stages, .layers = cost->layers };
    if (cost->layers < 1 || cost->layers > LAYOUT_BALANCE_MAX) {
        return FAIL(ERR_ARG, "layout: %d layers to balance, legal are 1 to %d", cost->layers,
                    LAYOUT_BALANCE_MAX);
    }
    if (stages < 1 || stages > cost->layers + 2) {
        return FAIL(ERR_ARG,
                    "layout: %d stages for %d layers, an embedding and a loss; legal are 1 to %d",
                    stages, cost->layers, cost->layers + 2);
    }
    TRY(check_cost("embedding", 0, cost->embedding));
    TRY(check_cost("loss", 0, cost->loss));
    for (int i = 0; i < cost->layers; i++) TRY(check_cost("layer", i, cost->layer[i]));
    TRY(ARENA_NEW(a, stages, &l.stage));
    ArenaMark mark = arena_mark(scratch);
    Status status = balance_stages(cost, stages, scratch, &l);
    arena_release(scratch, mark);
    if (status == OK) *out = l;
    return status;
}
