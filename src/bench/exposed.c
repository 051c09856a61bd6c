/*
 * exposed: what communication adds to a step (`bench step --exposed`): the step's time minus that
 * of the same step without one kind of traffic (bench/null.h). Both are measured in one process,
 * one after the other. Ranks still synchronise once a step. At the end the whole step runs again:
 * the change of its time is noise, and says how far to trust small differences.
 *
 * The exposed time has two parts. Waiting: the compute lane is idle until such traffic ends
 * (bench/idle.h); a pipeline's bubble counts, too. What the lane waits without the traffic is
 * subtracted, because an exchange still copies its own rows then. The rank that waits least counts,
 * since the others wait for it at the step's end in any case. Slowing: the rest, which is compute
 * that takes longer while traffic runs.
 */
#include "bench/bench.h"

#include <inttypes.h>

/* A kind of traffic, or all kinds together. */
typedef struct Row {
    const char *word;
    int first, end;         /* rows of null_traffic that are left out */
    BenchMedian without;    /* the step without them */
    double least_s, most_s; /* waiting on the rank that waits least, and most */
} Row;

/* A row: the step with this traffic minus the step without it, and the two parts of the
 * difference. */
static Status print_traffic(const Row *r, const BenchStep *o, const BenchMedian *with, Text *out)
{
    double s = with->seconds - r->without.seconds, slowing = s - r->least_s;
    if (o->json)
        return text_json(out,
                         "{\"traffic\":%s,\"exposed_s\":%g,\"waiting_s\":%g,\"waiting_most_s\":%g,"
                         "\"slowing_s\":%g,\"without_p50_s\":%g,\"again\":%lld}",
                         r->word, s, r->least_s, r->most_s, slowing, r->without.seconds,
                         (long long)r->without.twice);
    TRY(text_printf(
        out, "  exposed      %-5s %.1f ms, %.1f %% of the step: %.1f ms p50 with it, %.1f without",
        r->word, s * 1e3, 100 * s / with->seconds, with->seconds * 1e3, r->without.seconds * 1e3));
    TRY(text_printf(out, "; waiting %.1f ms (%.1f on another rank), slowing %.1f ms",
                    r->least_s * 1e3, r->most_s * 1e3, slowing * 1e3));
    if (with->twice != r->without.twice)
        TRY(text_printf(out, "; ran twice: %" PRId64 " and %" PRId64 " of %" PRId64 " steps",
                        with->twice, r->without.twice, o->steps));
    return text_printf(out, "\n");
}

/* Times the step without traffic first .. end - 1. A loss that is not finite is an error: routing,
 * and so the time, would mean nothing. */
static Status run_without(int first, int end, const Config *c, Comm *world, const BenchStep *o,
                          BenchMedian *out)
{
    BenchModel m;
    BenchOpen how = { .recorded = true, .tokens = o->tokens };
    for (int i = first; i < end; i++) how.silent |= 1U << i;
    TRY(bench_open(&m, c, world, how));
    Status s = o->data ? bench_read_data(&m) : OK;
    if (s == OK) s = bench_time_steps(&m, 3, o->steps, out);
    if (s == OK && !m.result.finite)
        s = FAIL(ERR_NUMERIC, "bench step: a step without %s is not finite",
                 end - first == 1 ? null_traffic[first].word : "communication");
    if (s != OK) bench_abort_ranks(world);
    bench_close(&m);
    return s;
}

Status bench_exposed_check(const Comm *world)
{
    if (world != NULL && world->size > 1) return OK;
    return FAIL(ERR_ARG, "bench step: --exposed measures what communication between ranks "
                         "costs: give --ranks 2 or more");
}

/* Finds how long ranks wait for the traffic beyond what they wait without it. One reduction gives
 * both ends: the maximum of -x is minus the minimum of x. */
static Status compare_idle(const BenchMedian *whole, Comm *world, Row *r)
{
    float idle[2] = { 0 };
    for (int k = r->first; k < r->end; k++)
        idle[0] += (float)(whole->idle_s[k] - r->without.idle_s[k]);
    idle[1] = -idle[0];
    TRY(comm_all_reduce(world, &(Tensor){ idle, DTYPE_F32, 1, { 2 } }, REDUCE_MAX));
    r->most_s = (double)idle[0];
    r->least_s = -(double)idle[1];
    return OK;
}

/* A kind of traffic that the mesh does not have gets no row; "all" only if there are several. */
Status bench_exposed(const Config *c, Comm *world, const BenchStep *o, const BenchMedian *with,
                     Text *out)
{
    Row row[NULL_TRAFFICS + 1];
    BenchMedian last = { 0 }; /* how far to trust small differences */
    MeshShape shape;
    int n = 0;
    TRY(train_mesh(c, world->size, &shape));
    for (int i = 0; i < NULL_TRAFFICS; i++)
        if (null_moves(&null_traffic[i], &shape))
            row[n++] = (Row){ .word = null_traffic[i].word, .first = i, .end = i + 1 };
    if (n > 1) row[n++] = (Row){ .word = "all", .end = NULL_TRAFFICS };
    for (int i = 0; i < n; i++)
        TRY(run_without(row[i].first, row[i].end, c, world, o, &row[i].without));
    TRY(run_without(0, 0, c, world, o, &last));
    for (int i = 0; i < n; i++) {
        TRY(compare_idle(&last, world, &row[i]));
        if (o->json) TRY(text_json(out, i == 0 ? ",\"exposed\":[" : ","));
        TRY(print_traffic(&row[i], o, with, out));
    }
    if (o->json) return text_json(out, "],\"step_again_p50_s\":%g", last.seconds);
    return text_printf(out, "  exposed      none: the same step again %.1f ms p50\n",
                       last.seconds * 1e3);
}
