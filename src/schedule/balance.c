/* balance: spreads blocks over stages so that the slowest stage is as fast as can be. */
#include "schedule/layout.h"

#include <math.h>

/* Pieces in order: the embedding, the layers, the loss. best[k][n]: what the first n pieces cost on
 * k stages; from[k][n]: where the last of these stages begins. */
typedef struct Table {
    int pieces, stages;
    double *sum; /* of the first n pieces */
    double *best;
    int *from;
} Table;

static double stage_cost(const Table *t, int from, int to) { return t->sum[to] - t->sum[from]; }

/* Fills the table for a cost of stages that adds up by `join`; stages above the limit are not
 * legal. Returns the cost of all on all. */
static double fill_stages(Table *t, double limit, double (*join)(double before, double stage))
{
    int row = t->pieces + 1;
    for (int i = 0; i < (t->stages + 1) * row; i++) t->best[i] = INFINITY;
    t->best[0] = 0;
    for (int k = 1; k <= t->stages; k++) {
        for (int n = k; n <= t->pieces - (t->stages - k); n++) {
            for (int b = n - 1; b >= k - 1; b--) {
                double stage = stage_cost(t, b, n);
                if (stage > limit) break;
                double all = join(t->best[(k - 1) * row + b], stage);
                if (all >= t->best[k * row + n]) continue;
                t->best[k * row + n] = all;
                t->from[k * row + n] = b;
            }
        }
    }
    return t->best[t->stages * row + t->pieces];
}

static double dearest(double before, double stage) { return before > stage ? before : stage; }

static double squares(double before, double stage) { return before + stage * stage; }

static Status check_cost(const char *what, int i, double cost)
{
    if (cost >= 0 && isfinite(cost)) return OK;
    return FAIL(ERR_ARG, "layout: %s %d costs %g, legal are finite numbers from 0", what, i, cost);
}

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

static Status balance(const LayoutCost *c, int stages, Arena *scratch, Layout *out)
{
    Table t;
    TRY(make_table(c, stages, scratch, &t));
    (void)fill_stages(&t, fill_stages(&t, INFINITY, dearest), squares);
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

Status layout_balance(const LayoutCost *cost, int stages, Arena *a, Arena *scratch, Layout *out)
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
    Status status = balance(cost, stages, scratch, &l);
    arena_release(scratch, mark);
    if (status == OK) *out = l;
    return status;
}
