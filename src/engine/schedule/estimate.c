/* estimate: keeps the passes of a shape as one list, and walks it with the times of a layout. The list is
 * sorted so that each pass stands after those it waits for: one walk without a queue gives all times. */
#include "engine/schedule/estimate.h"

#include "engine/schedule/lower.h"
#include "engine/schedule/order.h"

#include <math.h>
#include <string.h>

/* TABLE: lists kept at once. SHARES: durations are rounded to 24ths of a micro-batch's time, so
 * that layouts with nearly the same ratios share one list. */
enum { TABLE = 1 << 14, SHARES = 24 };

/* Of lists; more are made again when they are needed. */
static const size_t KEPT_BYTES = (size_t)96 << 20;

/* Only reserved: memory is used as far as the orders of the largest shape need. */
static const size_t SCRATCH_BYTES = (size_t)4 << 30;

/* Costs of a chunk of a rank, at index rank * chunks + chunk. COST / 2 is the direction: 0 with activations, 1
 * with gradients. cost_of / 2 is therefore the index of the link that brings a pass's input. */
enum { COST_FORWARD, COST_WEIGHT, COST_BACKWARD, COST_INPUT, COSTS };

typedef struct ListedPass {
    unsigned rank : 12, chunk : 6, cost : 2, paired : 1;
    int from; /* the pass of another rank whose output it reads; -1: none */
} ListedPass;

typedef struct PassesRank {
    int slots, uses;
    SlotUse *use; /* of the first slot, then the others */
    int *
        waiting; /* the most split passes whose weight gradients wait, by the number of micro-batches that are
                     kept for their input gradients; -1: never so many */
    unsigned char passes[SCHEDULE_CHUNKS_MAX]; /* by chunk: set of CHUNK_ */
} PassesRank;

/* What is kept of a shape. Orders depend on sizes alone. So do lists and slots, which are kept once for all
 * durations. */
typedef enum PassesPart { OF_TIME, OF_SLOTS, OF_ENTRIES } PassesPart;

typedef struct Passes {
    const ScheduleDesc *schedule;
    ScheduleShape shape;
    PassesPart part;
    ListedPass *at; /* OF_TIME */
    int n;
    PassesRank *rank; /* OF_SLOTS */
    int *entries;     /* OF_ENTRIES: by rank */
} Passes;

/* ---- times ---- */

/* The time of a pass whose phases run one after the other on one lane. */
static double sum_phases(const double phase[PHASES])
{
    return phase[PHASE_ATTENTION] + phase[PHASE_DISPATCH] + phase[PHASE_EXPERTS] +
           phase[PHASE_COMBINE];
}

/* The time of the same pass on the compute lane, where exchanges have a lane of their own. */
static double sum_compute(const double phase[PHASES])
{
    return phase[PHASE_ATTENTION] + phase[PHASE_EXPERTS];
}

/* Forward, input and weight gradients get whole shares, at least one each, which add up to
 * SHARES. */
ScheduleShape estimate_shape(const EstimateInput *in)
{
    double sum[3] = { 0 };
    for (int i = 0; i < in->stages * in->chunks; i++) {
        sum[0] += sum_phases(in->time[i].forward);
        sum[1] += sum_phases(in->time[i].input);
        sum[2] += sum_phases(in->time[i].weight);
    }
    double all = sum[0] + sum[1] + sum[2], part = all > 0 ? SHARES / all : 0;
    double forward = fmin(fmax(1, round(part * sum[0])), SHARES - 2);
    double input = fmin(fmax(1, round(part * sum[1])), SHARES - 1 - forward);
    return (ScheduleShape){
        in->stages,          in->chunks, in->micros, forward, input, SHARES - forward - input,
        .blocks = in->blocks
    };
}

/* Times are summed once for each chunk. One comparison of the sum finds a time that is NaN or
 * infinite; `least` finds a negative one. */
static Status make_costs(const EstimateInput *in, Arena *scratch, double **out)
{
    int places = in->stages * in->chunks;
    TRY(ARENA_NEW(scratch, places * COSTS, out));
    double least = in->send_s, sum = in->send_s;
    for (int i = 0; i < places; i++) {
        const ChunkTimes *t = &in->time[i];
        double *of = &(*out)[(size_t)i * COSTS];
        of[COST_FORWARD] = sum_phases(t->forward);
        of[COST_INPUT] = sum_phases(t->input);
        of[COST_WEIGHT] = sum_phases(t->weight);
        of[COST_BACKWARD] = of[COST_INPUT] + of[COST_WEIGHT];
        for (int k = 0; k < COSTS; k++) sum += of[k];
        for (int k = 0; k < PHASES; k++) {
            least = fmin(least, fmin(t->forward[k], fmin(t->input[k], t->weight[k])));
        }
    }
    if (least >= 0 && isfinite(sum)) return OK;
    return FAIL(ERR_ARG,
                "estimate: the times of passes and transfers add up to %g, the least is %g; legal "
                "are finite ones from 0",
                sum, least);
}

/* ---- the passes of a shape ---- */

/* The use of slot i, and of arena i of the pool of gradients: there are never more arenas than slots. mine:
 * the arena that slot i has now; taken: arena i is in use. */
typedef struct SlotState {
    uint64_t chunks, whole, gradient_chunks;
    int mine;
    bool taken;
} SlotState;

/* Follows one pass: which chunks use its slot, and which arena of the pool its split gradients
 * take. The lowest free arena is taken, as pool_take does in the engine. */
static void use_slot(const ScheduleDesc *d, SlotState *of, const Pass *x, int slot, PassesRank *out)
{
    uint64_t chunk = 1ULL << x->chunk;
    unsigned char *passes = &out->passes[x->chunk];
    of[slot].chunks |= chunk;
    if (x->kind == ACTION_BACKWARD) {
        *passes |= d->phases ? CHUNK_PHASED : CHUNK_WHOLE;
        of[slot].whole |= chunk;
    } else if (x->kind == ACTION_BACKWARD_WEIGHT) {
        of[of[slot].mine].taken = false;
    } else if (x->kind == ACTION_BACKWARD_INPUT) {
        int i = 0;
        while (of[i].taken) i++;
        of[i].taken = true;
        of[i].gradient_chunks |= chunk;
        of[slot].mine = i;
        *passes |= CHUNK_SPLIT;
    }
}

/* Arenas that serve the same set of chunks have the same size, so one record with a count stands
 * for all of them. */
static void count_use(PassesRank *out, uint64_t chunks, uint64_t whole, bool gradients)
{
    SlotUse *x = out->use, *end = x + out->uses;
    while (x < end && (x->chunks != chunks || x->whole != whole || x->gradients != gradients)) x++;
    if (x == end) out->use[out->uses++] = (SlotUse){ chunks, whole, gradients, 0 };
    x->count++;
}

/* Fills PassesRank.waiting. While input gradients are made, both what forward kept and what will wait live. */
static Status follow_waiting(const Order *o, Arena *a, PassesRank *out)
{
    int kept = 0, wait = 0;
    TRY(ARENA_NEW(a, out->slots + 1, &out->waiting));
    for (int i = 0; i <= out->slots; i++) out->waiting[i] = -1;
    for (int i = 0; i < o->n; i++) {
        ActionKind kind = (ActionKind)o->at[i].kind;
        kept += kind == ACTION_FORWARD;
        wait += kind == ACTION_BACKWARD_INPUT;
        if (wait > out->waiting[kept]) out->waiting[kept] = wait;
        kept -= kind == ACTION_BACKWARD || kind == ACTION_BACKWARD_INPUT;
        wait -= kind == ACTION_BACKWARD_WEIGHT;
    }
    return OK;
}

/* Follows the slots through an order, and counts arenas with the same use together: their size is the same. */
static Status follow_slots(const Passes *l, const Order *o, Arena *a, Arena *scratch,
                           PassesRank *out)
{
    SlotTable slots;
    SlotState *of = NULL;
    SlotUse *use = NULL;
    TRY(slots_make(&l->shape, scratch, &slots));
    TRY(ARENA_ZEROED(scratch, slots.most, &of));
    for (int i = 0; i < o->n; i++)
        use_slot(l->schedule, of, &o->at[i], slots_pass(&slots, &o->at[i]), out);
    out->slots = slots.n;
    TRY(ARENA_NEW(scratch, 2 * slots.n, &out->use));
    for (int i = 0; i < slots.n; i++) count_use(out, of[i].chunks, of[i].whole, false);
    for (int i = 0; i < slots.n && of[i].gradient_chunks != 0; i++)
        count_use(out, of[i].gradient_chunks, 0, true);
    TRY(ARENA_NEW(a, out->uses, &use));
    out->use = memcpy(use, out->use, (size_t)out->uses * sizeof *use);
    return follow_waiting(o, a, out);
}

/* Both directions of every chunk have a ring for what arrives and one for what leaves. */
static int count_entries(const OrderTimes *t, const Order *o, int rank)
{
    int entries = 0;
    for (int c = 0; c < t->like->chunks; c++) {
        OrderRings forward = order_rings(t, o, (StageAt){ rank, c }, ACTION_FORWARD);
        OrderRings backward = order_rings(t, o, (StageAt){ rank, c }, ACTION_BACKWARD);
        entries += forward.in + forward.out + backward.in + backward.out;
    }
    return entries;
}

/* Lists the passes of all ranks in the order in which they ran (OrderTimes.rank). */
static Status list_passes(const Order *ranks, const OrderTimes *t, Arena *a, Arena *scratch,
                          Passes *l)
{
    static const unsigned char costs[ACTION_KIND_COUNT] = {
        [ACTION_FORWARD] = COST_FORWARD,
        [ACTION_BACKWARD] = COST_BACKWARD,
        [ACTION_BACKWARD_INPUT] = COST_INPUT,
        [ACTION_BACKWARD_WEIGHT] = COST_WEIGHT,
    };
    const ScheduleShape *s = &l->shape;
    int places = s->stages * s->chunks;
    int *next = NULL, *made = NULL; /* made: by index of a time in t, the pass that ends then */
    l->n = t->ran;
    TRY(ARENA_NEW(a, l->n, &l->at));
    TRY(ARENA_ZEROED(scratch, s->stages, &next));
    TRY(ARENA_NEW(scratch, 2 * (size_t)places * (size_t)s->micros, &made));
    for (int i = 0; i < l->n; i++) {
        int rank = t->rank[i];
        const Pass *p = &ranks[rank].at[next[rank]++];
        int place = rank * s->chunks + p->chunk, back = p->kind != ACTION_FORWARD;
        int source = t->source[2 * place + back];
        l->at[i] = (ListedPass){ .rank = (unsigned)rank & 0xFFF,
                                 .chunk = (unsigned)p->chunk & 0x3F,
                                 .cost = costs[p->kind] & 3,
                                 .paired = p->paired,
                                 .from = -1 };
        if (p->kind == ACTION_BACKWARD_WEIGHT) continue;
        made[(back * places + place) * s->micros + p->micro] = i;
        int from = source < 0 ? i : made[source + p->micro];
        if (l->at[from].rank != (unsigned)rank) l->at[i].from = from;
    }
    return OK;
}

/* Slots need only the orders; entries and the list need one run of them. The orders lie in scratch and are
 * not kept. */
static Status fill_passes(Passes *l, Arena *a, Arena *scratch)
{
    const ScheduleShape *s = &l->shape;
    Order *ranks = NULL;
    OrderTimes times;
    Program like = { .micros = s->micros,
                     .chunks = s->chunks,
                     .stages = s->stages,
                     .placement = l->schedule->placement };
    TRY(schedule_orders(l->schedule, s, scratch, &ranks));
    if (l->part == OF_SLOTS) TRY(ARENA_ZEROED(a, s->stages, &l->rank));
    for (int r = 0; r < s->stages && l->part == OF_SLOTS; r++) {
        ArenaMark mark = arena_mark(scratch);
        TRY(follow_slots(l, &ranks[r], a, scratch, &l->rank[r]));
        arena_release(scratch, mark);
    }
    if (l->part == OF_SLOTS) return OK;
    TRY(order_run(&like, s, ranks, scratch, &times));
    if (l->part == OF_TIME) return list_passes(ranks, &times, a, scratch, l);
    TRY(ARENA_NEW(a, s->stages, &l->entries));
    for (int r = 0; r < s->stages; r++) l->entries[r] = count_entries(&times, &ranks[r], r);
    return OK;
}

/* On failure nothing stays in `kept`, so that a list that did not fit can be made again after the
 * others are gone. */
static Status make_passes(Estimator *e, const Passes *wanted, Passes **out)
{
    ArenaMark kept = arena_mark(&e->kept), mark = arena_mark(&e->scratch);
    Passes *l = NULL;
    TRY(ARENA_NEW(&e->kept, 1, &l));
    *l = *wanted;
    Status status = fill_passes(l, &e->kept, &e->scratch);
    arena_release(&e->scratch, mark);
    if (status != OK) arena_release(&e->kept, kept);
    if (status == OK) *out = l;
    return status;
}

static bool is_passes_of(const Passes *l, const Passes *wanted)
{
    const ScheduleShape *x = &l->shape, *s = &wanted->shape;
    return l->schedule == wanted->schedule && l->part == wanted->part && x->stages == s->stages &&
           x->chunks == s->chunks && x->micros == s->micros && x->forward == s->forward &&
           x->input == s->input;
}

/* ---- fewer micro-batches ---- */

static const double EVEN = 1e-9; /* times that differ by rounding alone */

int estimate_period(const ScheduleDesc *d, int stages)
{
    return isfinite(d->least.slots) ? stages : 0; /* GPipe keeps a slot for each */
}

int estimate_enough(const ScheduleDesc *d, int stages, int micros, int periods)
{
    int period = estimate_period(d, stages), least = periods * period;
    if (period == 0 || micros < least + period) return micros;
    return least + (micros - least) % period;
}

/* Micro-batches whose passes stand for those of all. */
static int enough_micros(const EstimateInput *in, int periods)
{
    return estimate_enough(in->schedule, in->stages, in->micros, periods);
}

/* Those with the same slots. With chunks in a loop, which chunks share a slot repeats only later. */
static int enough_for_slots(const EstimateInput *in)
{
    bool loop = in->schedule->placement == PLACE_LOOP && in->chunks > 1;
    return loop ? in->micros : enough_micros(in, ESTIMATE_PERIODS);
}

static void drop_passes(Estimator *e)
{
    memset(e->passes, 0, TABLE * sizeof(Passes *));
    arena_release(&e->kept, (ArenaMark){ 0 });
}

static Passes **passes_place(Estimator *e, const Passes *wanted)
{
    const ScheduleShape *s = &wanted->shape;
    const uint64_t part[] = { (uint64_t)(wanted->schedule - schedule_table),
                              (uint64_t)wanted->part,
                              (uint64_t)s->stages,
                              (uint64_t)s->chunks,
                              (uint64_t)s->micros,
                              (uint64_t)s->forward,
                              (uint64_t)s->input };
    uint64_t hash = 0;
    for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
        hash = (hash ^ part[i]) * 0x9E3779B97F4A7C15ULL;
        hash ^= hash >> 32;
    }
    return &e->passes[hash % TABLE];
}

/* One part of the passes of `micros` micro-batches, out of the hash table or made now. A collision replaces the older
 * ones. When they take KEPT_BYTES, or memory is full, all are dropped, and the table starts empty. */
static Status find_passes(Estimator *e, const EstimateInput *in, int micros, PassesPart part,
                          Passes **out)
{
    const ScheduleDesc *d = in->schedule;
    ScheduleShape legal = { in->stages, in->chunks, in->micros, 1, 1, 1, .blocks = in->blocks };
    TRY(schedule_legal(d, &legal));
    Passes wanted = { .schedule = d, .shape = estimate_shape(in), .part = part };
    wanted.shape.micros = micros;
    if (part != OF_ENTRIES) wanted.shape.forward = wanted.shape.input = wanted.shape.weight = 1;
    Passes **place = passes_place(e, &wanted);
    if (*place == NULL || !is_passes_of(*place, &wanted)) {
        if (e->kept.used_bytes > KEPT_BYTES) drop_passes(e);
        Status status = make_passes(e, &wanted, place);
        if (status == ERR_MEMORY) {
            drop_passes(e);
            status = make_passes(e, &wanted, place);
        }
        TRY(status);
    }
    *out = *place;
    return OK;
}

/* ---- a walk ---- */

typedef struct Walk {
    const EstimateInput *in;
    const double *cost;
    ChunkTimes *block; /* of one block, by rank * chunks + chunk */
    double (*lane)[2]; /* by rank: when compute and exchanges are free again */
    double *way;       /* by link (cost_of / 2): when the last input arrived */
    double *end;       /* by pass */
    bool alone;        /* inputs are always there */
} Walk;

static int cost_of(const Walk *w, const ListedPass *x)
{
    return (int)(x->rank * (unsigned)w->in->chunks + x->chunk) * COSTS + (int)x->cost;
}

/* When the input of a pass has arrived: transfers of one link run one after the other. */
static double input_arrives(const Walk *w, const ListedPass *x)
{
    if (x->from < 0 || w->alone) return 0;
    double *way = &w->way[cost_of(w, x) / 2];
    *way = later_of(*way, w->end[x->from]) + w->in->send_s;
    return *way;
}

/* Passes [i, i + n): a forward, a backward, a half of a backward, or a pair, phase by phase on two lanes. */
static void walk_phases(const Walk *w, const ListedPass *x, int n, double *end)
{
    const ChunkTimes *time[2] = { NULL, NULL };
    double at[2] = { 0 }, *lane = w->lane[x->rank];
    bool left_out[] = { false, false }; /* input or weight gradients */
    for (int k = 0; k < n; k++) {
        int back = x[k].cost != COST_FORWARD;
        left_out[0] |= x[k].cost == COST_WEIGHT;
        left_out[1] |= x[k].cost == COST_INPUT;
        time[back] = &w->block[cost_of(w, &x[k]) / COSTS];
        at[back] = input_arrives(w, &x[k]);
    }
    at[0] = later_of(at[0], lane[1]); /* the forward before it still uses the same memory */
    for (int b = 0; b < w->in->blocks; b++) {
#pragma GCC unroll 10
        for (int i = 0; i < BLOCK_PHASES; i++) {
            const BlockPhase *p = &block_phases[i];
            bool back = p->kind != ACTION_FORWARD, weight = p->kind == ACTION_BACKWARD_WEIGHT;
            if (time[back] == NULL || (back && left_out[weight])) continue;
            const double *of = !back ? time[0]->forward : weight ? time[1]->weight : time[1]->input;
            double *free = &lane[p->phase % 2], start = weight ? *free : later_of(*free, at[back]);
            /* it reuses the memory of the weight gradients of the block before it */
            if (p->kind == ACTION_BACKWARD_INPUT && p->phase == PHASE_COMBINE)
                start = later_of(start, lane[0]);
            *free = start + of[p->phase];
            if (!weight) at[back] = *free;
        }
    }
    for (int k = 0; k < n; k++) end[k] = at[x[k].cost != COST_FORWARD];
}

/* Without phases a pass occupies its rank until it ends, and one addition for each pass gives the
 * step's time. */
static void walk_passes(const Walk *w, const Passes *l)
{
    if (l->schedule->phases) {
        for (int i = 0, n; i < l->n; i += n) {
            n = l->at[i].paired ? 2 : 1;
            walk_phases(w, &l->at[i], n, &w->end[i]);
        }
        return;
    }
    for (int i = 0; i < l->n; i++) {
        const ListedPass *x = &l->at[i];
        double *lane = w->lane[x->rank];
        *lane = w->end[i] = later_of(*lane, input_arrives(w, x)) + w->cost[cost_of(w, x)];
    }
}

/* end: when the last lane of each rank is free. `alone`: as if no rank waited for others. */
static Status walk_list(const EstimateInput *in, const Passes *l, bool alone, Arena *scratch,
                        double *end)
{
    Walk w = { .in = in, .alone = alone };
    double *cost = NULL;
    TRY(make_costs(in, scratch, &cost));
    w.cost = cost;
    TRY(ARENA_NEW(scratch, in->stages * in->chunks, &w.block));
    for (int i = 0; i < in->stages * in->chunks; i++)
        for (int k = 0; k < CHUNK_PASSES * PHASES; k++)
            w.block[i].of[k / PHASES][k % PHASES] =
                in->time[i].of[k / PHASES][k % PHASES] / in->blocks;
    TRY(ARENA_ZEROED(scratch, in->stages, &w.lane));
    TRY(ARENA_ZEROED(scratch, in->stages * in->chunks * COSTS / 2, &w.way));
    TRY(ARENA_NEW(scratch, l->n, &w.end));
    walk_passes(&w, l);
    for (int r = 0; r < in->stages; r++) end[r] = later_of(w.lane[r][0], w.lane[r][1]);
    return OK;
}

/* With two copies of the model each chunk has half of the micro-batches, else all of them. */
static double mean_busy_s(const EstimateInput *in)
{
    double sum = 0;
    double (*of)(const double *) = in->schedule->phases ? sum_compute : sum_phases;
    for (int i = 0; i < in->stages * in->chunks; i++) {
        const ChunkTimes *t = &in->time[i];
        sum += of(t->forward) + of(t->input) + of(t->weight);
    }
    return sum * in->micros / in->stages / (in->schedule->placement == PLACE_BOTH ? 2 : 1);
}

/* The most that lives on a rank at a moment, if all micro-batches take as much as the largest chunk. */
static EstimateAlive most_alive(const EstimateInput *in, const PassesRank *r, int rank)
{
    double kept = 0, waits = 0;
    EstimateAlive most = { 0 };
    for (int c = 0; c < in->chunks; c++) {
        const SlotBytes *s = &in->slot[rank * in->chunks + c];
        kept = later_of(kept, s->input + s->weight);
        waits = later_of(waits, s->weight + s->gradients);
    }
    for (int i = 0; i <= r->slots; i++) {
        const EstimateAlive at = { i, r->waiting[i], kept, waits };
        if (r->waiting[i] >= 0 && estimate_alive_bytes(&at) > estimate_alive_bytes(&most))
            most = at;
    }
    return most;
}

int estimate_largest_chunk(const EstimateInput *in, int rank, const SlotUse *use)
{
    int largest = -1;
    double most = 0;
    for (int c = 0; c < in->chunks; c++) {
        if ((use->chunks >> c & 1) == 0) continue;
        double bytes = estimate_use_bytes(in, rank, c, use);
        if (largest >= 0 && bytes <= most) continue;
        most = bytes;
        largest = c;
    }
    return largest;
}

/* The bytes of a rank's arenas: each as large as the largest chunk that uses it. */
static EstimateRank add_arenas(const EstimateInput *in, const Passes *l, int rank)
{
    const PassesRank *r = &l->rank[rank];
    EstimateRank out = { .slots = r->slots, .use = r->use, .uses = r->uses };
    for (int i = 0; i < r->uses && in->slot != NULL; i++) {
        const SlotUse *use = &r->use[i];
        const int largest = estimate_largest_chunk(in, rank, use);
        double most = largest < 0 ? 0 : estimate_use_bytes(in, rank, largest, use), pool = 0;
        for (int c = 0; c < in->chunks; c++) {
            if ((use->chunks >> c & 1) == 0) continue;
            pool = later_of(pool, in->slot[rank * in->chunks + c].pool);
        }
        if (i == 0) out.first_slot_bytes = most;
        out.slot_arena_bytes += most * use->count;
        if (!use->gradients) {
            out.pool_bytes += pool * use->count;
            continue;
        }
        out.grad_arenas += use->count;
        out.grad_bytes += most * use->count;
    }
    if (!in->frees || out.grad_arenas == 0) return out;
    out.alive = most_alive(in, r, rank);
    out.slot_arena_bytes = estimate_alive_bytes(&out.alive);
    return out;
}

Status estimate_passes(Estimator *e, const EstimateInput *in, unsigned *out)
{
    Passes *l = NULL;
    TRY(find_passes(e, in, enough_for_slots(in), OF_SLOTS, &l));
    for (int i = 0; i < in->stages * in->chunks; i++)
        out[i] = l->rank[i / in->chunks].passes[i % in->chunks];
    return OK;
}

/* Walks the passes of this number of micro-batches, which are looked up. *most: the largest of `end`. */
static Status walk_micros(Estimator *e, const EstimateInput *in, int micros, bool alone,
                          double *end, double *most)
{
    Passes *l = NULL;
    TRY(find_passes(e, in, micros, OF_TIME, &l));
    ArenaMark mark = arena_mark(&e->scratch);
    Status status = walk_list(in, l, alone, &e->scratch, end);
    arena_release(&e->scratch, mark);
    *most = 0;
    for (int r = 0; r < in->stages && status == OK; r++) *most = later_of(*most, end[r]);
    return status;
}

/* What a period adds to the slowest rank if no rank waits for others: a step cannot grow by less for ever. */
static Status slowest_rank(Estimator *e, const EstimateInput *in, int micros, double *period_s)
{
    double *end = NULL, *more = NULL, most;
    TRY(ARENA_NEW(&e->scratch, in->stages, &end));
    TRY(ARENA_NEW(&e->scratch, in->stages, &more));
    TRY(walk_micros(e, in, micros, true, end, &most));
    TRY(walk_micros(e, in, micros + estimate_period(in->schedule, in->stages), true, more, &most));
    *period_s = 0;
    for (int r = 0; r < in->stages; r++) *period_s = later_of(*period_s, more[r] - end[r]);
    return OK;
}

/* The time of a step, from those of three numbers of micro-batches: once the slowest rank is never idle, it grows by
 * the same time in each period. Until that is so, the numbers are doubled. */
static Status find_step(Estimator *e, const EstimateInput *in, double *step_s)
{
    const int period = estimate_period(in->schedule, in->stages);
    double *end = NULL, least_s = 0;
    int enough = enough_micros(in, ESTIMATE_PERIODS);
    TRY(ARENA_NEW(&e->scratch, in->stages, &end));
    if (enough < in->micros) TRY(slowest_rank(e, in, enough - 2 * period, &least_s));
    for (int n = ESTIMATE_PERIODS; (enough = enough_micros(in, n)) < in->micros; n *= 2) {
        double at[3];
        for (int i = 0; i < 3; i++)
            TRY(walk_micros(e, in, enough - i * period, false, end, &at[i]));
        double last_s = at[0] - at[1], before_s = at[1] - at[2];
        const int periods = (in->micros - enough) / period;
        *step_s = at[0] + periods * last_s;
        if (fabs(last_s - before_s) <= EVEN * last_s && last_s >= (1 - EVEN) * least_s) return OK;
    }
    return walk_micros(e, in, enough, false, end, step_s);
}

Status estimate_memory(Estimator *e, const EstimateInput *in, EstimateRank **out)
{
    Passes *l = NULL;
    TRY(find_passes(e, in, enough_micros(in, ESTIMATE_PERIODS), OF_ENTRIES, &l));
    for (int r = 0; r < in->stages; r++) e->rank[r].entries = l->entries[r];
    TRY(find_passes(e, in, enough_for_slots(in), OF_SLOTS,
                    &l)); /* last, as its uses are returned */
    for (int r = 0; r < in->stages; r++) {
        int entries = e->rank[r].entries;
        e->rank[r] = add_arenas(in, l, r);
        e->rank[r].entries = entries;
    }
    *out = e->rank;
    return OK;
}

Status estimate(Estimator *e, const EstimateInput *in, Estimate *out)
{
    Estimate x = { 0 };
    ArenaMark mark = arena_mark(&e->scratch);
    Status status = find_step(e, in, &x.step_s);
    arena_release(&e->scratch, mark);
    TRY(status);
    TRY(estimate_memory(e, in, &x.rank));
    x.bubble = x.step_s > 0 ? 1 - mean_busy_s(in) / x.step_s : 0;
    *out = x;
    return OK;
}

Status estimator_init(Estimator *e, size_t cap_bytes)
{
    *e = (Estimator){ 0 };
    TRY(arena_reserve(&e->kept, "estimator", cap_bytes));
    Status status = arena_reserve(&e->scratch, "estimator scratch", SCRATCH_BYTES);
    if (status == OK) status = ARENA_ZEROED(&e->scratch, TABLE, &e->passes);
    if (status == OK) status = ARENA_NEW(&e->scratch, SCHEDULE_STAGES_MAX, &e->rank);
    if (status != OK) estimator_free(e);
    return status;
}

void estimator_free(Estimator *e)
{
    arena_free(&e->kept);
    arena_free(&e->scratch);
}
