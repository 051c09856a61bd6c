#include "schedule/estimate.h"

#include "schedule/graph.h"
#include "schedule/lower.h"

#include <math.h>
#include <string.h>

/* A round is a multiple of the stages, as groups of micro-batches are, and not too few to measure
 * growth over. What has more than FEW + MANY rounds is walked for either. */
enum { ROUND_LEAST = 8, FEW = 4, MANY = 6 };

enum { TABLE = 1 << 14, SHARES = 24 };

/* Reserved, and used as far as the largest shape's Programs need. */
static const size_t SCRATCH_BYTES = (size_t)4 << 30;

static const double TIE = 1e-9; /* of the step: times that differ less are the same moment */

static double total(const double phase[PHASES])
{
    return phase[PHASE_ATTENTION] + phase[PHASE_DISPATCH] + phase[PHASE_EXPERTS] +
           phase[PHASE_COMBINE];
}

static double computing(const double phase[PHASES])
{
    return phase[PHASE_ATTENTION] + phase[PHASE_EXPERTS];
}

ScheduleShape estimate_shape(const EstimateInput *in)
{
    double sum[3] = { 0 };
    for (int i = 0; i < in->stages * in->chunks; i++) {
        sum[0] += total(in->time[i].forward);
        sum[1] += total(in->time[i].input);
        sum[2] += total(in->time[i].weight);
    }
    double all = sum[0] + sum[1] + sum[2], part = all > 0 ? SHARES / all : 0;
    double forward = fmin(fmax(1, round(part * sum[0])), SHARES - 2);
    double input = fmin(fmax(1, round(part * sum[1])), SHARES - 1 - forward);
    return (ScheduleShape){ in->stages, in->chunks, in->micros,
                            forward,    input,      SHARES - forward - input,
                            .blocks = in->blocks };
}

/* Costs as the nodes of a graph name them. */
static Status make_costs(const EstimateInput *in, Arena *scratch, double **out)
{
    void *memory = NULL;
    int places = in->stages * in->chunks;
    TRY(arena_alloc(scratch, ((size_t)places * COSTS + 1) * sizeof(double), &memory));
    double *cost = memory, least = in->send_s, sum = in->send_s;
    for (int i = 0; i < places; i++) {
        const ChunkTimes *t = &in->time[i];
        double *of = &cost[(size_t)i * COSTS];
        of[COST_FORWARD] = total(t->forward);
        of[COST_INPUT] = total(t->input);
        of[COST_WEIGHT] = total(t->weight);
        of[COST_BACKWARD] = of[COST_INPUT] + of[COST_WEIGHT];
        for (int k = 0; k < COSTS; k++) sum += of[k];
        for (int k = 0; k < PHASES; k++) {
            least = fmin(least, fmin(t->forward[k], fmin(t->input[k], t->weight[k])));
        }
    }
    cost[(size_t)places * COSTS] = in->send_s;
    *out = cost;
    if (least >= 0 && isfinite(sum)) return OK;
    return FAIL(ERR_ARG,
                "estimate: the times of passes and transfers add up to %g, the least is %g; legal "
                "are finite ones from 0",
                sum, least);
}

static double later(double x, double y) { return x > y ? x : y; }

/* `at`: the time of the first of them. The lane comes last: it is what was just written. */
static void walk_nodes(const GraphNode *node, int n, const double *cost, double *t, int at)
{
    for (int i = 0; i < n; i++) {
        const GraphNode *x = &node[i];
        t[at + i] = later(later(t[x->before[1]], t[x->before[2]]), t[x->before[0]]) + cost[x->cost];
    }
}

/* Row x of a matrix: what each of the PAIR_STATE has to be waited for before x. */
typedef struct Matrix {
    double row[PAIR_STATE][PAIR_STATE];
} Matrix;

/* One part after the lane's last and its own pass's last; a backward's combine after the weight
 * gradients of the block before it, too, whose memory it takes. */
static void add_phase(Matrix *m, const BlockPhase *x, double cost)
{
    double *lane = m->row[x->phase % 2 == 0 ? PAIR_COMPUTE : PAIR_COMM];
    double *pass = m->row[x->kind == ACTION_FORWARD ? PAIR_FORWARD : PAIR_BACKWARD];
    bool weight = x->kind == ACTION_BACKWARD_WEIGHT;
    bool opens = x->kind == ACTION_BACKWARD_INPUT && x->phase == PHASE_COMBINE;
    for (int i = 0; i < PAIR_STATE; i++) {
        double before = weight ? lane[i] : later(lane[i], pass[i]);
        if (opens) before = later(before, m->row[PAIR_COMPUTE][i]);
        double end = before + cost;
        lane[i] = end;
        if (!weight) pass[i] = end;
    }
}

static double phase_cost(const EstimateInput *in, const GraphPairing *p, const BlockPhase *x)
{
    const ChunkTimes *t = &in->time[p->place[x->kind != ACTION_FORWARD]];
    const double *of = x->kind == ACTION_FORWARD          ? t->forward
                       : x->kind == ACTION_BACKWARD_INPUT ? t->input
                                                          : t->weight;
    return of[x->phase] / in->blocks;
}

static Matrix pair_matrix(const EstimateInput *in, const GraphPairing *p)
{
    Matrix m;
    for (int i = 0; i < PAIR_STATE; i++) {
        for (int k = 0; k < PAIR_STATE; k++) m.row[i][k] = i == k ? 0 : -INFINITY;
    }
    m.row[PAIR_FORWARD][PAIR_COMM] = 0; /* the forward before it has left its memory */
    for (int block = 0; block < in->blocks; block++) {
        for (int k = 0; k < BLOCK_PHASES; k++) {
            const BlockPhase *x = &block_phases[k];
            if (p->place[x->kind != ACTION_FORWARD] < 0) continue;
            add_phase(&m, x, phase_cost(in, p, x));
        }
    }
    return m;
}

/* A rank while pairs are walked. */
typedef struct PairRank {
    double live, peak;
    SlotBytes ends; /* what the pair before gives back: input at the end of its input gradients, the
                       rest at its end */
} PairRank;

typedef struct PairWalk {
    const EstimateInput *in;
    const Graph *g;
    const Matrix *matrix; /* by pairing */
    PairRank *rank;
    double *t;
} PairWalk;

/* The backward of a pair may begin, and keep gradients, before the one before it is done. */
static void follow_memory(const PairWalk *w, const GraphPair *x, const GraphPairing *p,
                          double begins)
{
    PairRank *r = &w->rank[x->rank];
    const SlotBytes *f = p->place[0] < 0 ? NULL : &w->in->slot[p->place[0]];
    const SlotBytes *b = p->place[1] < 0 ? NULL : &w->in->slot[p->place[1]];
    double rest = r->ends.weight + r->ends.gradients;
    if (b != NULL && x->lane > 0) {
        const double *last = w->t + x->lane;
        double now = begins * (1 + TIE), live = r->live + b->gradients;
        if (now < last[PAIR_BACKWARD]) r->peak = later(r->peak, live);
        if (now < last[PAIR_COMPUTE]) r->peak = later(r->peak, live - r->ends.input);
    }
    r->live -= r->ends.input + rest;
    if (f != NULL) r->live += f->input + f->weight;
    if (b != NULL) r->live += b->gradients;
    r->ends = b != NULL ? *b : (SlotBytes){ 0 };
    r->peak = later(r->peak, r->live);
}

static double backward_begins(const double begin[PAIR_STATE])
{
    return later(later(begin[PAIR_COMM], begin[PAIR_BACKWARD]), begin[PAIR_COMPUTE]);
}

static void walk_pair(const PairWalk *w, const GraphPair *x, double *out)
{
    const GraphPairing *p = &w->g->pairing[x->pairing];
    const Matrix *m = &w->matrix[x->pairing];
    const double *t = w->t, *lane = t + x->lane;
    double begin[PAIR_STATE] = { 0, 0, t[x->in[0]], t[x->in[1]] };
    if (x->lane > 0) memcpy(begin, lane, 2 * sizeof *begin);
    for (int i = 0; i < PAIR_STATE; i++) {
        out[i] = begin[0] + m->row[i][0];
        for (int k = 1; k < PAIR_STATE; k++) out[i] = later(out[i], begin[k] + m->row[i][k]);
    }
    out[PAIR_READ] = out[PAIR_READ + 1] = 0;
    if (p->place[0] >= 0) { /* the last phase of forward writes the output, the last of its lane */
        const BlockPhase first = { ACTION_FORWARD, PHASE_ATTENTION };
        const BlockPhase last = { ACTION_FORWARD, PHASE_COMBINE };
        out[PAIR_READ] = later(later(begin[PAIR_COMPUTE], begin[PAIR_FORWARD]), begin[PAIR_COMM]);
        out[PAIR_READ] += phase_cost(w->in, p, &first);
        double end = t[x->out[0]] + phase_cost(w->in, p, &last);
        out[PAIR_FORWARD] = later(out[PAIR_FORWARD], end);
        out[PAIR_COMM] = later(out[PAIR_COMM], end);
    }
    if (p->place[1] < 0) {
        out[PAIR_BACKWARD] = 0;
    } else { /* that of backward is followed by the weights' of the same phase */
        const BlockPhase first = { ACTION_BACKWARD_INPUT, PHASE_COMBINE };
        const BlockPhase last = { ACTION_BACKWARD_INPUT, PHASE_ATTENTION };
        const BlockPhase weight = { ACTION_BACKWARD_WEIGHT, PHASE_ATTENTION };
        out[PAIR_READ + 1] = backward_begins(begin);
        out[PAIR_READ + 1] += phase_cost(w->in, p, &first);
        double end = t[x->out[1]] + phase_cost(w->in, p, &last);
        out[PAIR_BACKWARD] = later(out[PAIR_BACKWARD], end);
        out[PAIR_COMPUTE] = later(out[PAIR_COMPUTE], end + phase_cost(w->in, p, &weight));
    }
    if (w->in->slot != NULL) {
        follow_memory(w, x, p, backward_begins(begin));
    }
}

/* Into t, by time; peaks of ranks whose passes are taken apart. */
static Status walk_pairs(PairWalk *w, const double *cost, Arena *scratch)
{
    void *memory = NULL;
    const Graph *g = w->g;
    TRY(arena_alloc(scratch, (size_t)g->pairings * sizeof(Matrix), &memory));
    Matrix *matrix = memory;
    for (int i = 0; i < g->pairings; i++) matrix[i] = pair_matrix(w->in, &g->pairing[i]);
    w->matrix = matrix;
    int node = 0, at = 1;
    for (int i = 0; i < g->pairs; i++) {
        const GraphPair *x = &g->pair[i];
        walk_nodes(&g->node[node], x->nodes, cost, w->t, at);
        node += x->nodes;
        at += x->nodes;
        walk_pair(w, x, &w->t[at]);
        at += PAIR_TIMES;
    }
    return OK;
}

static void add_arenas(const EstimateInput *in, const Graph *g, int rank, EstimateRank *out)
{
    const GraphRank *r = &g->rank[rank];
    out->slots = r->slots;
    out->grad_arenas = 0;
    out->slot_arena_bytes = out->grad_bytes = 0;
    for (int i = 0; i < r->uses && in->slot != NULL; i++) {
        const SlotUse *use = &r->use[i];
        double most = 0;
        for (int c = 0; c < in->chunks; c++) {
            if ((use->chunks >> c & 1) == 0) continue;
            const SlotBytes *s = &in->slot[rank * in->chunks + c];
            most = later(most, use->gradients ? s->gradients : s->input + s->weight);
        }
        if (i == 0) out->first_slot_bytes = most;
        out->slot_arena_bytes += most * use->count;
        if (!use->gradients) continue;
        out->grad_arenas += use->count;
        out->grad_bytes += most * use->count;
    }
}

static double peak_bytes(const GraphRank *r, const SlotBytes *slot, int chunks)
{
    double peak = 0;
    for (int i = 0; i < r->peaks; i++) {
        const int *live = &r->peak[(size_t)i * (size_t)chunks * LIVE_PARTS];
        double sum = 0;
        for (int c = 0; c < chunks; c++, live += LIVE_PARTS) {
            sum += live[LIVE_INPUT] * slot[c].input + live[LIVE_WEIGHT] * slot[c].weight +
                   live[LIVE_GRADIENTS] * slot[c].gradients;
        }
        peak = later(peak, sum);
    }
    return peak;
}

/* When a rank begins: its first pass is a forward. */
static double first_start(const Graph *g, const GraphRank *x, const double *cost, const double *t)
{
    if (g->pairs > 0) return t[g->pair[x->first].in[0]];
    const GraphNode *first = &g->node[x->first - 1];
    return t[x->first] - cost[first->cost];
}

/* Step time of the graph, and what each rank keeps; busy_s is from its first to its last pass. */
static Status walk(const EstimateInput *in, const Graph *g, Arena *scratch, EstimateRank *rank,
                   double *step)
{
    void *memory = NULL;
    double *cost = NULL;
    TRY(make_costs(in, scratch, &cost));
    TRY(arena_alloc(scratch, (size_t)g->times * sizeof(double), &memory));
    double *t = memory;
    t[0] = 0;
    TRY(arena_alloc_zero(scratch, (size_t)in->stages * sizeof(PairRank), &memory));
    PairWalk w = { .in = in, .g = g, .rank = memory, .t = t };
    if (g->pairs > 0)
        TRY(walk_pairs(&w, cost, scratch));
    else
        walk_nodes(g->node, g->nodes, cost, t, 1);
    *step = 0;
    for (int r = 0; r < in->stages; r++) {
        const GraphRank *x = &g->rank[r];
        double from = first_start(g, x, cost, t), until = t[x->last];
        rank[r] = (EstimateRank){ until - from, .entries = x->entries };
        add_arenas(in, g, r, &rank[r]);
        *step = later(*step, t[x->last]);
        if (in->slot == NULL) continue;
        const SlotBytes *slot = &in->slot[(size_t)r * (size_t)in->chunks];
        rank[r].peak_bytes = g->pairs > 0 ? w.rank[r].peak : peak_bytes(x, slot, in->chunks);
    }
    return OK;
}

static void forget(Estimator *e)
{
    memset(e->graph, 0, TABLE * sizeof(Graph *));
    arena_release(&e->kept, (ArenaMark){ 0 });
    e->graphs = 0;
}

static bool is_of(const Graph *g, const ScheduleDesc *d, const ScheduleShape *s)
{
    return g->schedule == d && g->shape.stages == s->stages && g->shape.chunks == s->chunks &&
           g->shape.micros == s->micros && g->shape.forward == s->forward &&
           (!g->apart || (g->shape.input == s->input && g->shape.weight == s->weight));
}

static Status find(Estimator *e, const ScheduleDesc *d, const ScheduleShape *s, GraphMake make,
                   Graph **out)
{
    const uint64_t part[] = { (uint64_t)(d - schedule_table), (uint64_t)s->stages,
                              (uint64_t)s->chunks, (uint64_t)s->micros, (uint64_t)s->forward };
    uint64_t hash = 0;
    for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
        hash = (hash ^ part[i]) * 0x9E3779B97F4A7C15ULL;
        hash ^= hash >> 32;
    }
    uint64_t at = hash % TABLE;
    for (; e->graph[at] != NULL; at = (at + 1) % TABLE) {
        if (!is_of(e->graph[at], d, s)) continue;
        *out = e->graph[at];
        return OK;
    }
    if (e->graphs == TABLE / 2) forget(e);
    Status status = make(d, s, &e->kept, &e->scratch, out);
    if (status == ERR_MEMORY && e->graphs > 0) {
        forget(e);
        status = make(d, s, &e->kept, &e->scratch, out);
    }
    if (status != OK) return status;
    if (e->graphs == 0) at = hash % TABLE;
    e->graph[at] = *out;
    e->graphs++;
    return OK;
}

static Status walk_shape(Estimator *e, const EstimateInput *in, const ScheduleShape *s,
                         EstimateRank *rank, double *step)
{
    Graph *g = NULL;
    TRY(find(e, in->schedule, s, graph_make, &g));
    ArenaMark mark = arena_mark(&e->scratch);
    Status status = walk(in, g, &e->scratch, rank, step);
    arena_release(&e->scratch, mark);
    return status;
}

/* Of two ways each chunk has half of the micro-batches; else all come to all chunks. */
static double busy_s(const EstimateInput *in, int rank)
{
    double sum = 0;
    for (int c = 0; c < in->chunks; c++) {
        const ChunkTimes *t = &in->time[rank * in->chunks + c];
        double (*of)(const double *) = in->schedule->phases ? computing : total;
        sum += of(t->forward) + of(t->input) + of(t->weight);
    }
    return sum * in->micros / (in->schedule->placement == PLACE_BOTH ? 2 : 1);
}

/* A line through what two numbers of micro-batches give. */
typedef struct Line {
    int few, many, all; /* micro-batches */
} Line;

static double extend(const Line *l, double few, double many)
{
    return many + (l->all - l->many) * ((many - few) / (l->many - l->few));
}

/* GPipe's memory grows, too. */
static void extend_rank(const Line *l, const EstimateRank *few, EstimateRank *many)
{
    if (few->slots == many->slots) return;
    many->slots = (int)lround(extend(l, few->slots, many->slots));
    many->entries = (int)lround(extend(l, few->entries, many->entries));
    many->peak_bytes = extend(l, few->peak_bytes, many->peak_bytes);
    many->slot_arena_bytes = extend(l, few->slot_arena_bytes, many->slot_arena_bytes);
}

/* few == all: the step is walked whole. */
static Line line_of(const EstimateInput *in)
{
    int round = (ROUND_LEAST + in->stages - 1) / in->stages * in->stages, all = in->micros;
    bool whole = all <= (FEW + MANY) * round || in->schedule->irregular;
    return whole ? (Line){ all, all, all } : (Line){ FEW * round, MANY * round, all };
}

/* Chunks of different sizes go on mixing in slots, and gradients in arenas, so that those of all
 * micro-batches are followed; else `many` tell. */
static Status find_slots(Estimator *e, const EstimateInput *in, const Line *l, Graph **out)
{
    ScheduleShape s = estimate_shape(in);
    s.micros = l->many;
    TRY(find(e, in->schedule, &s, graph_make, out));
    if (l->many == l->all || (s.chunks == 1 && !(*out)->apart)) return OK;
    s.micros = l->all;
    return find(e, in->schedule, &s, graph_slots, out);
}

Status estimate_passes(Estimator *e, const EstimateInput *in, unsigned *out)
{
    Graph *g = NULL;
    ScheduleShape s = { in->stages, in->chunks, in->micros, 1, 1, 1, .blocks = in->blocks };
    TRY(schedule_legal(in->schedule, &s));
    Line l = line_of(in);
    TRY(find_slots(e, in, &l, &g));
    for (int i = 0; i < in->stages * in->chunks; i++) {
        out[i] = g->rank[i / in->chunks].passes[i % in->chunks];
    }
    return OK;
}

/* From two walks of fewer micro-batches. */
static Status extrapolate(Estimator *e, const EstimateInput *in, const Line *l, double *step)
{
    Graph *slots = NULL;
    ScheduleShape s = estimate_shape(in);
    double few = 0, many = 0;
    s.micros = l->few;
    TRY(walk_shape(e, in, &s, e->before, &few));
    s.micros = l->many;
    TRY(walk_shape(e, in, &s, e->rank, &many));
    *step = extend(l, few, many);
    for (int r = 0; r < s.stages; r++) {
        /* a rank that would take longer still sets the pace when its gaps are used up */
        double each = busy_s(in, r) / in->micros, gaps = e->rank[r].busy_s - each * l->many;
        *step = later(*step, many - gaps + each * (l->all - l->many));
        extend_rank(l, &e->before[r], &e->rank[r]);
    }
    TRY(find_slots(e, in, l, &slots));
    for (int r = 0; r < s.stages && slots->shape.micros == l->all; r++) {
        add_arenas(in, slots, r, &e->rank[r]);
    }
    return OK;
}

static Status find_step(Estimator *e, const EstimateInput *in, double *step)
{
    ScheduleShape s = estimate_shape(in);
    Line l = line_of(in);
    if (l.many == l.all) return walk_shape(e, in, &s, e->rank, step);
    return extrapolate(e, in, &l, step);
}

Status estimate(Estimator *e, const EstimateInput *in, Estimate *out)
{
    ScheduleShape s = { in->stages, in->chunks, in->micros, 1, 1, 1, .blocks = in->blocks };
    Estimate x = { .rank = e->rank };
    TRY(schedule_legal(in->schedule, &s));
    TRY(find_step(e, in, &x.step_s));
    double busy = 0;
    for (int r = 0; r < in->stages; r++) {
        x.rank[r].busy_s = busy_s(in, r);
        busy += x.rank[r].busy_s;
        if (x.rank[r].peak_bytes > x.rank[x.worst_rank].peak_bytes) x.worst_rank = r;
    }
    x.bubble = x.step_s > 0 ? 1 - busy / in->stages / x.step_s : 0;
    *out = x;
    return OK;
}

Status estimator_init(Estimator *e, size_t cap_bytes)
{
    void *memory = NULL;
    *e = (Estimator){ 0 };
    TRY(arena_init(&e->kept, "estimator", MEM_HOST, cap_bytes));
    Status status = arena_init(&e->scratch, "estimator scratch", MEM_HOST, SCRATCH_BYTES);
    if (status == OK) status = arena_alloc_zero(&e->scratch, TABLE * sizeof(Graph *), &memory);
    if (status == OK) e->graph = memory;
    size_t ranks = (size_t)2 * SCHEDULE_STAGES_MAX * sizeof(EstimateRank);
    if (status == OK) status = arena_alloc(&e->scratch, ranks, &memory);
    if (status == OK) e->rank = memory, e->before = e->rank + SCHEDULE_STAGES_MAX;
    if (status != OK) estimator_free(e);
    return status;
}

void estimator_free(Estimator *e)
{
    arena_free(&e->kept);
    arena_free(&e->scratch);
}
