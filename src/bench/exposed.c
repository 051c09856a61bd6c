/* exposed: what communication adds to a step: its time less that of the same step without one kind
 * of traffic (comm.null), in one process, one after the other. That is waiting for it and the
 * slowing of what runs beside it; of pipelines their bubble, too. Ranks still meet once a step. At
 * last the whole step runs again: what its time has moved is no traffic's. */
#include "bench/bench.h"

#include "train/null.h"

#include <inttypes.h>

enum { WARM_UP = 3 };

static Status time_steps(BenchModel *m, int64_t steps, BenchMedian *out)
{
    double *seconds = NULL, warm = 0;
    TRY(ARENA_NEW(&m->arena, steps, &seconds));
    for (int i = 0; i < WARM_UP; i++) TRY(bench_run_step(m, &warm));
    for (int64_t i = 0; i < steps; i++) {
        TRY(bench_run_step(m, &seconds[i]));
        out->twice += m->result.again;
    }
    if (!m->result.finite)
        return FAIL(ERR_NUMERIC, "bench step: a step with comm.null=[%s] is not finite",
                    m->config->comm_null.n > 0 ? m->config->comm_null.at[0] : "");
    bench_sort(seconds, steps);
    out->seconds = seconds[steps / 2];
    return OK;
}

static Status print(const char *word, const BenchStep *o, const BenchMedian *with,
                    const BenchMedian *without, Text *out)
{
    double s = with->seconds - without->seconds;
    if (o->json)
        return text_json(out,
                         "{\"traffic\":%s,\"exposed_s\":%g,\"without_p50_s\":%g,\"again\":%lld}",
                         word, s, without->seconds, (long long)without->twice);
    TRY(text_printf(
        out, "  exposed      %-5s %.1f ms, %.1f %% of the step: %.1f ms p50 with it, %.1f without",
        word, s * 1e3, 100 * s / with->seconds, with->seconds * 1e3, without->seconds * 1e3));
    if (with->twice != without->twice)
        TRY(text_printf(out, "; ran twice: %" PRId64 " and %" PRId64 " of %" PRId64 " steps",
                        with->twice, without->twice, o->steps));
    return text_printf(out, "\n");
}

/* Without the traffic that `word` of comm.null names; NULL: with all of it. */
static Status run_without(const char *word, const Config *c, Comm *world, const BenchStep *o,
                          BenchMedian *out)
{
    BenchModel m;
    Config less = *c;
    if (word != NULL) less.comm_null = (ConfigTexts){ .n = 1, .at = { word } };
    TRY(bench_open(&m, &less, world));
    Status s = o->data ? bench_read_data(&m) : OK;
    if (s == OK) s = time_steps(&m, o->steps, out);
    if (s != OK) bench_end_others(world);
    bench_close(&m);
    return s;
}

Status bench_exposed_check(const Config *c, const Comm *world)
{
    if (world == NULL || world->size < 2)
        return FAIL(ERR_ARG, "bench step: --exposed measures what communication between ranks "
                             "costs: give --ranks 2 or more");
    if (c->comm_null.n == 0) return OK;
    return FAIL(ERR_ARG, "bench step: --exposed sets comm.null itself: leave comm.null=[%s] away",
                c->comm_null.at[0]);
}

Status bench_exposed(const Config *c, Comm *world, const BenchStep *o, const BenchMedian *with,
                     Text *out)
{
    const char *words[NULL_TRAFFICS + 1];
    MeshShape shape;
    int n = 0;
    TRY(train_mesh(c, world->size, &shape));
    for (int i = 0; i < NULL_TRAFFICS; i++)
        if (null_moves(&null_traffic[i], &shape)) words[n++] = null_traffic[i].word;
    if (n > 1) words[n++] = "all";
    if (o->json) TRY(text_json(out, ",\"exposed\":["));
    for (int i = 0; i < n; i++) {
        BenchMedian without = { 0 };
        TRY(run_without(words[i], c, world, o, &without));
        if (o->json && i > 0) TRY(text_json(out, ","));
        TRY(print(words[i], o, with, &without, out));
    }
    BenchMedian last = { 0 }; /* how far to trust small differences */
    TRY(run_without(NULL, c, world, o, &last));
    if (o->json) return text_json(out, "],\"step_again_p50_s\":%g", last.seconds);
    return text_printf(out, "  exposed      none: the same step again %.1f ms p50\n",
                       last.seconds * 1e3);
}
