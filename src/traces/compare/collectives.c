/*
 * collectives: reads the traces of all ranks, checks that they belong to one run, and measures the
 * collectives that collectives_match has found.
 *
 * The order of steps in collectives_open matters: ranks are sorted before calls refer to them,
 * calls are matched before groups get names, and clocks are known before anything is measured.
 * Times are microseconds. How results are shown is decided in collectives_sheets.c and
 * collectives_text.c.
 */
#include "traces/compare/collectives.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A collective is an outlier if its skew is more than OUTLIER times the median skew of its
 * group. */
enum { OUTLIER = 10 };

/* Our own rules. tools/compat/collectives.c has TraceLens' rules. */
static const CollectiveRules OURS = {
    .lacks = "?",
    .lacks_nodes = "?",
    .mb = 1e6,
    .gb = 1000,
    .causes = true,
};

/* ---- the ranks ---- */

/* The failure to report when several ranks fail: the one of the earliest file in the list. So the
 * error does not depend on which thread was faster. */
typedef struct Failure {
    Status status;
    int at;
    char text[2048];
} Failure;

/* Status records are per thread, so the sentence is copied for the thread that reports it. */
static void note_failure(Failure *f, Status s, int at)
{
#pragma omp critical(collectives_failure)
    if (s != OK && (f->status == OK || at < f->at)) {
        f->status = s;
        f->at = at;
        (void)snprintf(f->text, sizeof f->text, "%s", status_message());
    }
}

/* Reads one trace per thread at a time. Only these traces are whole in memory. */
static Status read_ranks(Collectives *c, const char *const *path, int n)
{
    Failure failure = { 0 };
    const int most = c->options.threads > 0 ? c->options.threads : omp_get_num_procs();
#pragma omp parallel for schedule(dynamic, 1) num_threads(most < n ? most : n) if (most > 1)
    for (int i = 0; i < n; i++)
        note_failure(&failure, collectives_read(c, path[i], &c->ranks[i], i), i);
    return failure.status == OK ? OK : status_adopt(failure.status, failure.text);
}

static int by_number(const void *a, const void *b)
{
    const CollectiveRank *x = a, *y = b;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    return (x->at > y->at) - (x->at < y->at);
}

/* Sorts the ranks by number and gives each call its rank's new row. Until clocks are known, `at`
 * is free: it holds the old row during the sort. */
static Status sort_ranks(Collectives *c)
{
    int32_t *row = NULL;
    TRY(ARENA_NEW(c->arena, c->n_ranks, &row));
    for (int64_t i = 0; i < c->n_ranks; i++) c->ranks[i].at = (double)i;
    qsort(c->ranks, (size_t)c->n_ranks, sizeof *c->ranks, by_number);
    for (int64_t i = 0; i < c->n_ranks; i++) row[(int64_t)c->ranks[i].at] = (int32_t)i;
    for (int64_t i = 0; i < c->n_calls; i++) c->calls[i].rank = row[c->calls[i].rank];
    for (int64_t i = 0; i < c->n_ranks; i++) c->ranks[i].at = 0;
    return OK;
}

/* All files must be different ranks of one run. With --partial, ranks may be missing. */
static Status check_ranks(Collectives *c)
{
    const CollectiveRank *r = c->ranks, *known = NULL, *begun = r;
    for (int64_t i = 0; i < c->n_ranks; i++) {
        if (i > 0 && r[i].rank == r[i - 1].rank)
            return FAIL(ERR_ARG, "%s and %s are both rank %lld by %s: name each rank once",
                        r[i - 1].path, r[i].path, (long long)r[i].rank, r[i].rank_from);
        if (begun->run == 0) begun = &r[i];
        TRY(events_same_run(begun->path, begun->run, r[i].path, r[i].run));
        if (r[i].world < 0) continue;
        if (known != NULL && known->world != r[i].world)
            return FAIL(ERR_ARG,
                        "%s is of a run of %lld ranks, %s of one of %lld: name ranks of one run",
                        known->path, (long long)known->world, r[i].path, (long long)r[i].world);
        known = &r[i];
    }
    c->world = known != NULL ? known->world : r[c->n_ranks - 1].rank + 1;
    int64_t missing = 0;
    while (missing < c->n_ranks && r[missing].rank == missing) missing++;
    if (missing < c->world && !c->options.partial)
        return FAIL(ERR_ARG,
                    "rank %lld of %lld is missing: name all ranks' traces, or say --partial",
                    (long long)missing, (long long)c->world);
    return c->n_calls > 0 ? OK
                          : FAIL(ERR_ARG,
                                 "no collective in %s%s: it has no kernel of NCCL, RCCL or "
                                 "the like",
                                 r[0].path, c->n_ranks > 1 ? " and the others" : "");
}

/* ---- groups ---- */

static int by_value(const void *a, const void *b)
{
    const int32_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Sets the members of a group. The metadata counts if it lists all of them; profilers cut long
 * lists with "...". Otherwise the ranks that took part are the members. A pair of sender and
 * receiver is never listed, since its key is not a process group. */
static Status members_of(Collectives *c, CollectiveGroup *g)
{
    const CollectiveCall *x = &c->calls[g->call];
    bool pair = x->kind == SEND_RECV && x->what.name != 0 && !c->options.rules->by_group;
    int64_t n = 0;
    int64_t size = x->what.group_size > 0 ? x->what.group_size : 0;
    TRY(ARENA_NEW(c->arena, g->calls + size, &g->member));
    if (!pair) n = collectives_wholes(g->ranks, g->member, size);
    bool listed = n > 0 && n == size && strstr(g->ranks, "...") == NULL;
    if (!listed) n = 0;
    for (int64_t i = g->call; i < g->call + g->calls && !listed; i++)
        g->member[n++] = (int32_t)c->ranks[c->calls[i].rank].rank;
    qsort(g->member, (size_t)n, sizeof *g->member, by_value);
    for (int64_t i = 0; i < n; i++) {
        if (i == 0 || g->member[i] != g->member[i - 1]) g->member[g->members++] = g->member[i];
    }
    for (int64_t r = 0; r < c->n_ranks; r++) {
        int32_t rank = (int32_t)c->ranks[r].rank;
        g->present += bsearch(&rank, g->member, (size_t)g->members, sizeof rank, by_value) != NULL;
    }
    /* Ranks are assumed to be numbered node by node, as torchrun does. */
    bool across = false;
    for (int64_t i = 1; i < g->members && c->gpus_per_node > 0; i++)
        across |= g->member[i] / c->gpus_per_node != g->member[0] / c->gpus_per_node;
    g->span = c->gpus_per_node <= 0 ? "unknown" : across ? "inter_node" : "intra_node";
    return OK;
}

/* Names the groups. If no call names a process group and each rank has one stream, there is only
 * one group, called "all". */
static Status name_groups(Collectives *c)
{
    int32_t stream = INT32_MIN;
    bool unknown = true;
    for (int64_t k = 0; k < c->n_calls; k++) {
        const CollectiveCall *x = &c->calls[c->by_rank[k]];
        if (k == c->ranks[x->rank].call) stream = x->stream;
        unknown &= x->what.group == 0 && x->stream == stream;
    }
    c->simplified = c->options.rules->by_group && unknown;
    for (int64_t i = 0; i < c->n_groups; i++) {
        CollectiveGroup *g = &c->groups[i];
        const CollectiveCall *x = &c->calls[g->call];
        g->description = strings_text(&c->strings, x->what.group_description);
        g->ranks = strings_text(&c->strings, x->what.ranks);
        g->name = strings_text(&c->strings,
                               x->what.group != 0 && x->kind != SEND_RECV ? x->what.group : g->key);
        if (unknown && x->what.group == 0) g->name = "all";
        TRY(members_of(c, g));
    }
    return OK;
}

static int by_rank_and_index(const void *a, const void *b)
{
    const CollectiveCall *x = *(const CollectiveCall *const *)a,
                         *y = *(const CollectiveCall *const *)b;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

/* Makes by_rank: calls by rank, then in the order of the file. A rank's calls are then one
 * range. */
static Status sort_by_rank(Collectives *c)
{
    const CollectiveCall **at = NULL;
    TRY(ARENA_NEW(c->arena, c->n_calls, &c->by_rank));
    TRY(ARENA_NEW(c->arena, c->n_calls, &at));
    for (int64_t i = 0; i < c->n_calls; i++) at[i] = &c->calls[i];
    qsort(at, (size_t)c->n_calls, sizeof *at, by_rank_and_index);
    for (int64_t i = 0; i < c->n_calls; i++) {
        c->by_rank[i] = at[i] - c->calls;
        if (i == 0 || at[i]->rank != at[i - 1]->rank) c->ranks[at[i]->rank].call = i;
    }
    return OK;
}

/* ---- one collective ---- */

double collectives_mb(const Collectives *c, const CollectiveCall *x, bool out)
{
    int64_t n = out ? x->what.out_elements : x->what.in_elements;
    double bytes = event_dtype_bytes(strings_text(&c->strings, x->what.dtype));
    return n < 0 ? (double)NAN : (double)n * bytes / c->options.rules->mb;
}

/* Returns the MB that bandwidth counts, as nccl-tests does: the output of gathers, and the input of
 * reductions and exchanges. If ranks bring different amounts, it is their mean. */
static double full_mb(const Collectives *c, const CollectiveSlot *s)
{
    double sum = 0;
    const CollectiveCall *x = &c->calls[s->call];
    if (c->options.rules->first_call) return collectives_mb(c, x, x->kind == ALL_GATHER);
    for (int64_t i = 0; i < s->calls; i++) {
        double in = collectives_mb(c, x + i, false), out = collectives_mb(c, x + i, true);
        sum += x->kind == ALL_TO_ALL || x->kind == ALL_TO_ALLV || x->kind == REDUCE_SCATTER
                   ? in
                   : fmax(in, out);
    }
    return sum / (double)s->calls;
}

/* Algorithm bandwidth is bytes over time. Bus bandwidth is what a link carries: algorithm bandwidth
 * times passes (n - 1) / n (NVIDIA, nccl-tests, doc/PERFORMANCE.md). Example: a ring all-reduce
 * sends each byte 2 (n - 1) / n times. */
static void measure_bandwidth(const Collectives *c, CollectiveSlot *s)
{
    const CollectiveCall *x = &c->calls[s->call];
    const int passes = collective_rule[x->kind].passes;
    double n =
        x->what.group_size > 0 ? (double)x->what.group_size : (double)c->groups[s->group].members;
    bool known =
        x->kind != OTHER_COLLECTIVE && (!c->options.rules->first_call || x->what.group_size > 0);
    s->mb = known ? full_mb(c, s) : (double)NAN;
    s->algorithm_bw =
        s->latency > 0 ? s->mb / c->options.rules->gb / (s->latency / 1e6) : (double)NAN;
    s->bus_bw = s->algorithm_bw * (passes == 0 ? 1 : passes * (n - 1) / n);
}

/* Measures latency, arrivals, waits and skews from the start and end of each call. The shortest
 * kernel is that of the last rank to arrive, so its duration is pure communication. */
static void measure_times(CollectiveCall *const x, CollectiveSlot *s)
{
    double first = x[0].start, ends[2] = { x[0].end, x[0].end };
    s->latency = x[0].dur;
    s->arrived = x[0].start;
    for (int32_t i = 0; i < (int32_t)s->calls; i++) {
        s->latency = fmin(s->latency, x[i].dur);
        if (x[i].start > s->arrived) s->last = i;
        if (x[i].start <= first) s->first = i; /* the last of equal ones, as in TraceLens */
        s->arrived = fmax(s->arrived, x[i].start);
        first = fmin(first, x[i].start);
        ends[0] = fmin(ends[0], x[i].end);
        ends[1] = fmax(ends[1], x[i].end);
    }
    for (int64_t i = 0; i < s->calls; i++) s->wait_sum += s->arrived - x[i].start;
    s->skew_start = s->arrived - first;
    s->skew_end = ends[1] - ends[0];
    s->exchange = ends[1] - s->arrived;
}

/* Returns how long a rank spent on the same work before this collective; 0 if it did not do it. */
static double work_us(const Collectives *c, const CollectiveCall *x, const CollectiveWork *like)
{
    const CollectiveWork *w = &c->works[x->work];
    for (int64_t i = 0; i < x->works; i++) {
        if (w[i].name == like->name && w[i].host == like->host) return w[i].us;
    }
    return 0;
}

/* Finds why the last rank was late. Of the work before its call, takes the piece whose time exceeds
 * the median of the other ranks most. An excess below a tenth of the lateness explains nothing. */
static void find_cause(const Collectives *c, CollectiveSlot *s, double *scratch)
{
    const CollectiveCall *x = &c->calls[s->call], *late = x + s->last;
    for (int64_t i = 0; i < s->calls; i++) scratch[i] = x[i].start;
    s->late = s->arrived - median_of(scratch, s->calls);
    for (int64_t w = late->work; w < late->work + late->works; w++) {
        int64_t n = 0;
        for (int64_t i = 0; i < s->calls; i++) {
            if (i != s->last) scratch[n++] = work_us(c, x + i, &c->works[w]);
        }
        double more = c->works[w].us - median_of(scratch, n);
        if (more <= s->cause_us || more < 0.1 * s->late) continue;
        s->cause_us = more;
        s->cause = c->works[w].name;
        s->cause_host = c->works[w].host;
    }
}

/* Flags collectives that sums should not count. At the borders of a profiler's window, ranks start
 * recording at different times; such a skew says nothing about the run. */
static void flag_outliers(const Collectives *c, const CollectiveGroup *g, double *scratch)
{
    int64_t n = 0, first = -1, last = -1;
    CollectiveSlot *s = &c->slots[g->slot];
    for (int64_t i = 0; i < g->slots; i++) {
        s[i].whole = s[i].calls == g->present;
        s[i].flag = s[i].whole ? "" : "partial";
        if (!s[i].whole) continue;
        first = first < 0 ? i : first;
        last = i;
        scratch[n++] = s[i].skew_start;
    }
    double most = OUTLIER * median_of(scratch, n);
    for (int64_t i = 0; i < g->slots && n > 2; i++) {
        if (s[i].whole && s[i].skew_start > most)
            s[i].flag = i == first || i == last ? "border outlier" : "outlier";
    }
}

/* Needs the clocks. The scratch memory holds the numbers of one median: the calls of a collective,
 * or the collectives of a group. */
Status collectives_measure(Collectives *c)
{
    double *scratch = NULL;
    int64_t most = c->n_slots;
    for (int64_t i = 0; i < c->n_slots; i++)
        most = most > c->slots[i].calls ? most : c->slots[i].calls;
    TRY(ARENA_NEW(c->arena, most, &scratch));
    for (int64_t i = 0; i < c->n_slots; i++) {
        CollectiveSlot *s = &c->slots[i];
        measure_times(&c->calls[s->call], s);
        measure_bandwidth(c, s);
        if (s->calls > 1) find_cause(c, s, scratch);
    }
    for (int64_t i = 0; i < c->n_groups; i++) flag_outliers(c, &c->groups[i], scratch);
    return OK;
}

/* ---- all ---- */

/* A rank that shares no collective with any other rank is probably of another run or of other
 * steps. That is an error unless --partial was given. */
static Status check_matches(const Collectives *c)
{
    const char *none = NULL;
    for (int64_t r = 0; r < c->n_ranks; r++)
        if (c->ranks[r].calls == 0) none = c->ranks[r].path;
    for (int64_t r = 0; r < c->n_ranks && c->n_ranks > 1 && !c->options.partial; r++) {
        const CollectiveRank *rank = &c->ranks[r];
        bool shared = rank->calls == 0;
        for (int64_t i = rank->call; i < rank->call + rank->calls && !shared; i++)
            shared = c->slots[c->calls[c->by_rank[i]].slot].calls > 1;
        if (!shared && none != NULL)
            return FAIL(ERR_ARG,
                        "%s has no collective, no kernel of NCCL, RCCL or the like, but %s has "
                        "%lld (--partial takes both)",
                        none, rank->path, (long long)rank->calls);
        if (!shared)
            return FAIL(ERR_ARG,
                        "%s: none of its %lld collectives is on any other rank: is it of the same "
                        "run and steps? (--partial takes it)",
                        rank->path, (long long)rank->calls);
    }
    return OK;
}

Status collectives_open(Collectives *c, const char *const *path, int n, const CollectivesOptions *o,
                        Arena *a)
{
    const CollectiveRules *rules = o->rules == NULL ? &OURS : o->rules;
    *c =
        (Collectives){ .options = *o, .arena = a, .n_ranks = n, .gpus_per_node = o->gpus_per_node };
    c->options.rules = rules;
    TRY(strings_init(&c->strings));
    TRY(ARENA_ZEROED(a, n, &c->ranks));
    TRY(read_ranks(c, path, n));
    TRY(sort_ranks(c));
    TRY(check_ranks(c));
    /* In a container with one GPU a trace lists one device, which says nothing of the node. */
    if (o->gpus_per_node == 0 && (c->ranks[0].devices > 1 || rules->trust_devices))
        c->gpus_per_node = c->ranks[0].devices;
    TRY(collectives_match(c));
    TRY(sort_by_rank(c));
    TRY(name_groups(c));
    TRY(check_matches(c));
    if (!rules->by_position) TRY(collectives_clocks(c));
    for (int64_t i = 0; i < c->n_calls && rules->by_position; i++) {
        c->calls[i].start = c->calls[i].ts;
        c->calls[i].end = c->calls[i].ts + c->calls[i].dur;
    }
    return collectives_measure(c);
}

void collectives_close(Collectives *c) { strings_free(&c->strings); }
