/* recording: see recording.h. The bytes of the format are read by engine/trace/record_read.c; here is what
 * they mean. Stamps are nanoseconds from the step's begin; sheets show milliseconds. */
#include "traces/read/recording.h"

#include "engine/base/json.h"
#include "engine/base/lane.h"
#include "traces/table/group.h"
#include "traces/table/spans.h"

#include <limits.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* ---- files ---- */

/* An error is not an answer: what cannot be read is not a recording. */
bool recording_is(const char *path)
{
    File f = { 0 };
    uint8_t head[8] = { 0 };
    bool is = file_is_file(path) && file_open_read(&f, path) == OK &&
              file_read(&f, 0, head, sizeof head) == OK && record_is(head, sizeof head);
    file_close(&f);
    status_clear();
    return is;
}

/* A number of META; `otherwise` if it is not there, NaN if the member is not a number. */
static double meta_number(const Json *meta, const char *key, double otherwise)
{
    const Json *v = json_get(meta, key);
    return v == NULL ? otherwise : v->type == JSON_NUMBER ? v->number : (double)NAN;
}

/* 0: it is not there, or is not a whole number that a double holds. */
static int64_t meta_whole(const Json *meta, const char *key)
{
    const double x = meta_number(meta, key, 0);
    return fabs(x) <= 9007199254740992.0 && x == floor(x) ? (int64_t)x : 0;
}

/* Reads META, a JSON object about the run. A later version of the program may write more members
 * than are read here. */
static Status read_meta(Recording *r)
{
    Json *m = NULL;
    size_t bad = 0;
    TRY(json_parse(r->file.meta, strlen(r->file.meta), &r->arena, &m, &bad));
    const double rank = meta_number(m, "rank", 0), ranks = meta_number(m, "ranks", 1);
    const char *device = json_string(json_get(m, "device"));
    if (!json_is(m, JSON_OBJECT) || !(rank >= 0 && rank < ranks && ranks <= INT_MAX))
        return FAIL(ERR_FORMAT, "%s: what it says of its run is not a JSON object with a rank",
                    r->path);
    r->rank = (int)rank;
    r->ranks = (int)ranks;
    r->experts = meta_whole(m, "experts");
    r->began_us = meta_whole(m, "began_us");
    r->flops = meta_number(m, "flops", 0);
    r->sheet_flops = meta_number(m, "sheet_flops", 0);
    r->roof_flops = meta_number(m, "roof_flops", 0);
    r->device = device == NULL ? "" : device;
    return OK;
}

/* The record lies in its own arena. On failure that arena is freed, so nothing is left to close. */
Status recording_parse(const char *path, const uint8_t *data, size_t bytes, const Recording **out)
{
    Arena a = { 0 };
    Recording *r = NULL;
    TRY(arena_reserve(&a, "recording", (size_t)16 << 30));
    Status s = ARENA_ZEROED(&a, 1, &r);
    if (s != OK) {
        arena_free(&a);
        return s;
    }
    *r = (Recording){ .arena = a, .path = path };
    s = record_parse(path, data, bytes, &r->arena, &r->file);
    if (s == OK) s = read_meta(r);
    if (s == OK && r->file.steps == 0)
        s = FAIL(ERR_FORMAT, "%s has no complete step, so there is nothing to report", path);
    if (s == OK)
        *out = r;
    else
        recording_close(r);
    return s;
}

void recording_close(const Recording *r)
{
    if (r == NULL) return;
    Arena self = r->arena;
    arena_free(&self);
}

/* Times count from the earliest step of all ranks, so that ranks lie side by side in one trace. */
Status recording_json(const Recording *const *r, int n, Text *out)
{
    int64_t base = INT64_MAX;
    for (int i = 0; i < n; i++) {
        int64_t begin = r[i]->file.step[0].head.unix_ns;
        base = begin < base ? begin : base;
    }
    TRY(text_printf(out, "{"));
    if (n == 1)
        TRY(text_json(out, "\"distributedInfo\":{\"rank\":%d,\"world_size\":%d},", r[0]->rank,
                      r[0]->ranks));
    TRY(text_json(out,
                  "\"deviceProperties\":[{\"id\":0,\"name\":%s}],\"displayTimeUnit\":\"ms\","
                  "\"baseTimeNanoseconds\":%lld,\"traceEvents\":[\n",
                  r[0]->device, (long long)base));
    for (int i = 0; i < n; i++) {
        if (i > 0) TRY(text_printf(out, ",\n"));
        TRY(record_events(&r[i]->file, r[i]->rank, base, out));
    }
    return text_printf(out, "\n]}\n");
}

/* ---- times ---- */

/* Duration of action or phase i of a step. */
static double ms_of(const RecordedStep *s, uint32_t i)
{
    return (double)(s->times[i].end - s->times[i].begin) / 1e6;
}

/* When the last action of a step ended, from the step's begin. */
static double end_ms(const RecordedStep *s)
{
    int64_t end = 0;
    for (uint32_t i = 0; i < s->head.rows; i++) end = s->times[i].end > end ? s->times[i].end : end;
    return (double)end / 1e6;
}

/* The peak FLOP/s that MFU is a share of: the data sheet's, else the measured one. */
static double peak_flops(const Recording *r)
{
    return r->sheet_flops > 0 ? r->sheet_flops : r->roof_flops;
}

/* ---- phases ---- */

/* Time of one phase, of one layer or (-1) of all layers. */
typedef struct PhaseSum {
    uint32_t name, part;
    int layer;
    double ms, flops, runs;
} PhaseSum;

/* The longest first. Ties go by the number of the name, then by layer. */
static int by_ms(const void *a, const void *b)
{
    const PhaseSum *x = a, *y = b;
    if (x->ms != y->ms) return x->ms > y->ms ? -1 : 1;
    return x->name != y->name ? (x->name > y->name) - (x->name < y->name) : x->layer - y->layer;
}

/* Finds the sum of a row's phase, or adds it. There are few, so the search is linear. */
static PhaseSum *sum_of(PhaseSum *sums, int64_t *n, const RecordRow *row, bool layers)
{
    int layer = layers ? row->layer : -1;
    for (int64_t i = 0; i < *n; i++) {
        if (sums[i].name == row->name && sums[i].part == row->part && sums[i].layer == layer)
            return &sums[i];
    }
    sums[*n] = (PhaseSum){ row->name, row->part, layer, 0, 0, 0 };
    return &sums[(*n)++];
}

/* Adds up the rows that are phases. Ranges cover several phases and would count them twice. */
static Status add_phases(const Recording *r, bool layers, Arena *a, PhaseSum **out, int64_t *n)
{
    int64_t most = 1;
    for (int w = 0; w < RECORD_WAYS; w++) most += r->file.way[w].rows;
    TRY(ARENA_NEW(a, most, out));
    *n = 0;
    for (int64_t k = 0; k < r->file.steps; k++) {
        const RecordedStep *s = &r->file.step[k];
        const RecordWay *w = &r->file.way[s->head.way];
        for (uint32_t i = 0; i < s->head.rows; i++) {
            if (w->range[i]) continue;
            PhaseSum *sum = sum_of(*out, n, &w->row[i], layers);
            sum->ms += ms_of(s, i);
            sum->flops += w->row[i].flops;
            sum->runs++;
        }
    }
    qsort(*out, (size_t)*n, sizeof **out, by_ms);
    return OK;
}

/* FLOP/s only where the phase computes; MFU only where a peak is known. */
static Status phase_sheet(const Recording *r, bool layers, Arena *a, Table *out)
{
    PhaseSum *sums = NULL;
    int64_t n = 0;
    double steps = (double)r->file.steps, whole = 0;
    TRY(add_phases(r, layers, a, &sums, &n));
    for (int64_t k = 0; k < r->file.steps; k++) whole += end_ms(&r->file.step[k]);
    TRY(table_init(out, layers ? "phases_by_layer" : "phases",
                   "phase|part|layer|ms a step|runs a step|percent|TFLOP/s|MFU (%)", "", a));
    for (int64_t i = 0; i < n; i++) {
        const PhaseSum *s = &sums[i];
        double rate = s->ms > 0 ? s->flops / (s->ms / 1e3) : 0;
        TRY(TABLE_ROW(out, cell_text(r->file.name[s->name]), cell_text(record_part_name[s->part]),
                      cell_count(s->layer), cell_number(s->ms / steps),
                      cell_number(s->runs / steps),
                      cell_number(whole > 0 ? 100 * s->ms / whole : 0)));
        if (s->flops > 0) TABLE_MORE(out, cell_number(rate / 1e12));
        if (s->flops > 0 && peak_flops(r) > 0)
            TABLE_MORE(out, cell_number(100 * rate / peak_flops(r)));
    }
    return OK;
}

/* ---- steps ---- */

/* The merged spans of a step in which lanes compute, or (comm) in which anything communicates. */
static Status lane_spans(const Recording *r, const RecordedStep *s, bool comm, Arena *a, Spans *out)
{
    const RecordWay *w = &r->file.way[s->head.way];
    TRY(ARENA_NEW(a, s->head.rows + 1, &out->at));
    out->n = 0;
    for (uint32_t i = 0; i < s->head.rows; i++) {
        const RecordRow *row = &w->row[i];
        if (w->range[i] || (row->transfer || row->lane == LANE_COMM) != comm) continue;
        /* An action that did not run in this step has no time. */
        if (ms_of(s, i) > 0)
            out->at[out->n++] = (Span){ (double)s->times[i].begin, (double)s->times[i].end };
    }
    spans_merge(out);
    return OK;
}

/* Tokens of the busiest expert of a layer over the mean; 0: the layer got no tokens. */
static double over_mean(const uint32_t *load, int64_t experts)
{
    double sum = 0, top = 0;
    for (int64_t e = 0; e < experts; e++) {
        sum += load[e];
        top = fmax(top, load[e]);
    }
    return sum > 0 ? top * (double)experts / sum : 0;
}

/* A step is computation, exposed communication (that no computation overlaps), and the bubble. */
static Status step_sheet(const Recording *r, Arena *a, Table *out)
{
    TRY(table_init(out, "steps",
                   "step|step ms|tokens/s|loss|ran again|traced|lanes ms|computation ms|"
                   "exposed communication ms|bubble ms|bubble (%)|MFU (%)|"
                   "busiest expert over the mean",
                   "", a));
    for (int64_t k = 0; k < r->file.steps; k++) {
        const RecordedStep *s = &r->file.step[k];
        const RecordStep *h = &s->head;
        Spans comp, comm, exposed;
        double all = end_ms(s), top = 0;
        bool rated = peak_flops(r) > 0 && h->seconds > 0;
        for (int64_t at = 0; r->experts > 0 && at + r->experts <= h->loads; at += r->experts)
            top = fmax(top, over_mean(s->load + at, r->experts));
        /* Exposed communication is what no lane's computation overlaps. */
        TRY(lane_spans(r, s, false, a, &comp));
        TRY(lane_spans(r, s, true, a, &comm));
        TRY(spans_subtract(&comm, &comp, a, &exposed));
        /* ns to ms */
        double busy = spans_length(&comp) / 1e6, alone = spans_length(&exposed) / 1e6;
        TRY(TABLE_ROW(out, cell_whole(h->step), cell_number(1e3 * h->seconds),
                      cell_number(h->seconds > 0 ? h->tokens / h->seconds : 0),
                      cell_number(h->loss), cell_bool((h->flags & RECORD_RAN_AGAIN) != 0),
                      cell_bool((h->flags & RECORD_TRACED) != 0), cell_number(all),
                      cell_number(busy), cell_number(alone), cell_number(all - busy - alone),
                      cell_number(all > 0 ? 100 * (all - busy) / all : 0),
                      rated ? cell_number(100 * r->flops / r->ranks / h->seconds / peak_flops(r))
                            : cell_none(),
                      top > 0 ? cell_number(top) : cell_none()));
    }
    return OK;
}

/* ---- jitter ---- */

/* The smallest number that at least `share` of them do not exceed. */
static double quantile(const double *sorted, int64_t n, double share)
{
    int64_t i = (int64_t)ceil(share * (double)n) - 1;
    return sorted[i < 0 ? 0 : i];
}

/* The median time of an action over the steps of one execution mode, ms. */
static double row_median(const Recording *r, uint32_t way, uint32_t row, double *scratch)
{
    int64_t n = 0;
    for (int64_t k = 0; k < r->file.steps; k++) {
        const RecordedStep *s = &r->file.step[k];
        if (s->head.way == way && row < s->head.rows) scratch[n++] = ms_of(s, row);
    }
    sort_numbers(scratch, n);
    return n > 0 ? quantile(scratch, n, 0.5) : 0;
}

/* Names the action that exceeds its median most in a slow step. */
static void put_slowest_action(const Recording *r, const RecordedStep *s, double *scratch,
                               Table *out)
{
    const RecordWay *w = &r->file.way[s->head.way];
    double most = 0;
    uint32_t worst = 0;
    for (uint32_t i = 0; i < s->head.rows; i++) {
        /* phases are parts of actions, which are compared as a whole */
        if (w->row[i].action != (int32_t)i) continue;
        double more = ms_of(s, i) - row_median(r, s->head.way, i, scratch);
        if (more > most) most = more, worst = i;
    }
    if (most == 0) return;
    TABLE_MORE(out, cell_text(r->file.name[w->row[worst].name]), cell_count(w->row[worst].micro),
               cell_number(most));
}

/* A step is slow if it takes 5 % longer than the median step. */
static Status jitter_sheet(const Recording *r, Arena *a, Table *out)
{
    double *sorted = NULL, *scratch = NULL;
    int64_t n = r->file.steps;
    TRY(ARENA_NEW(a, n, &sorted));
    TRY(ARENA_NEW(a, n, &scratch));
    /* Quantiles of step times, in ms. */
    for (int64_t k = 0; k < n; k++) sorted[k] = 1e3 * r->file.step[k].head.seconds;
    sort_numbers(sorted, n);
    TRY(table_init(out, "jitter", "what|step|ms|action|micro-batch|ms above its median", "", a));
    TRY(TABLE_ROW(out, cell_text("p50"), cell_none(), cell_number(quantile(sorted, n, 0.5))));
    TRY(TABLE_ROW(out, cell_text("p99"), cell_none(), cell_number(quantile(sorted, n, 0.99))));
    for (int64_t k = 0; k < n; k++) {
        const RecordedStep *s = &r->file.step[k];
        double ms = 1e3 * s->head.seconds;
        if (ms <= 1.05 * quantile(sorted, n, 0.5)) continue;
        TRY(TABLE_ROW(out, cell_text("above p50 by 5 % or more"), cell_whole(s->head.step),
                      cell_number(ms)));
        put_slowest_action(r, s, scratch, out);
    }
    return OK;
}

/* ---- experts, memory ---- */

/* Over all steps, and the worst single step. Loads of a step lie layer by layer, E experts each. */
static Status expert_load_sheet(const Recording *r, Arena *a, Table *out)
{
    int64_t E = r->experts, layers = E > 0 ? (int64_t)r->file.step[0].head.loads / E : 0;
    TRY(table_init(out, "expert_load",
                   "MoE layer|experts|busiest over the mean|in the worst step|"
                   "least busy over the mean|never taken",
                   "", a));
    for (int64_t l = 0; l < layers; l++) {
        double all = 0, top = 0, low = INFINITY, worst = 0;
        int64_t never = 0;
        for (int64_t e = 0; e < E; e++) {
            double sum = 0;
            for (int64_t k = 0; k < r->file.steps; k++) sum += r->file.step[k].load[l * E + e];
            all += sum;
            top = fmax(top, sum), low = fmin(low, sum);
            never += sum == 0;
        }
        for (int64_t k = 0; k < r->file.steps; k++)
            worst = fmax(worst, over_mean(&r->file.step[k].load[l * E], E));
        TRY(TABLE_ROW(
            out, cell_whole(l), cell_whole(E),
            all > 0 ? cell_number(top * (double)E / all) : cell_none(), cell_number(worst),
            all > 0 ? cell_number(low * (double)E / all) : cell_none(), cell_whole(never)));
    }
    return OK;
}

/* A row for each name of an action: the most bytes in use at its end, over all actions of that
 * name. The first of them writes the row. */
static Status memory_sheet(const Recording *r, Arena *a, Table *out)
{
    TRY(table_init(out, "memory", "behind|actions|most MiB of work in use", "", a));
    for (int w = 0; w < RECORD_WAYS; w++) {
        const RecordWay *way = &r->file.way[w];
        for (uint32_t i = 0; i < way->rows; i++) {
            bool first = way->row[i].action == (int32_t)i && !way->row[i].transfer;
            uint64_t most = 0;
            int64_t actions = 0;
            for (uint32_t k = 0; k < way->rows && first; k++) {
                if (way->row[k].action != (int32_t)k || way->row[k].name != way->row[i].name)
                    continue;
                first = k >= i;
                most = way->row[k].bytes > most ? way->row[k].bytes : most;
                actions++;
            }
            if (first)
                TRY(TABLE_ROW(out, cell_text(r->file.name[way->row[i].name]), cell_whole(actions),
                              cell_number((double)most / (1 << 20))));
        }
    }
    return OK;
}

/* ---- ops of the last traced step ---- */

/* Calls of one op in the last traced step. */
typedef struct OpSum {
    const char *name;
    double ms, flops, bytes;
    int64_t calls;
} OpSum;

static int longest_op(const void *a, const void *b)
{
    const OpSum *x = a, *y = b;
    if (x->ms != y->ms) return x->ms > y->ms ? -1 : 1;
    return strcmp(x->name, y->name);
}

/* Ops are recorded only in steps that are traced. */
static Status traced_op_sheet(const Recording *r, Arena *a, Table *out)
{
    OpSum *sum = NULL;
    double all = 0;
    TRY(table_init(out, "traced_ops", "op|calls|ms|percent|GFLOP/s|GB/s", "", a));
    TRY(ARENA_ZEROED(a, r->file.names, &sum));
    for (uint32_t i = 0; i < r->file.names; i++) sum[i].name = r->file.name[i];
    for (int64_t i = 0; i < r->file.ops; i++) {
        const RecordOp *o = &r->file.op[i];
        OpSum *s = &sum[o->name];
        s->ms += (double)o->dur_ns / 1e6, s->flops += o->flops, s->bytes += o->bytes, s->calls++;
        all += (double)o->dur_ns / 1e6;
    }
    if (r->file.names > 0) qsort(sum, r->file.names, sizeof *sum, longest_op);
    for (const OpSum *s = sum; s < sum + r->file.names; s++) {
        if (s->calls == 0) continue;
        bool timed = s->ms > 0;
        TRY(TABLE_ROW(out, cell_text(s->name), cell_whole(s->calls), cell_number(s->ms),
                      cell_number(all > 0 ? 100 * s->ms / all : 0),
                      timed && s->flops > 0 ? cell_number(s->flops / s->ms / 1e6) : cell_none(),
                      timed && s->bytes > 0 ? cell_number(s->bytes / s->ms / 1e6) : cell_none()));
    }
    return OK;
}

Status recording_tables(const Recording *r, Arena *a, Table *out, int *n)
{
    *n = 0;
    if (r == NULL) return OK;
    TRY(step_sheet(r, a, &out[(*n)++]));
    TRY(traced_op_sheet(r, a, &out[(*n)++]));
    TRY(phase_sheet(r, false, a, &out[(*n)++]));
    TRY(phase_sheet(r, true, a, &out[(*n)++]));
    TRY(jitter_sheet(r, a, &out[(*n)++]));
    TRY(expert_load_sheet(r, a, &out[(*n)++]));
    return memory_sheet(r, a, &out[(*n)++]);
}
