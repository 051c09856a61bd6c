/*
 * slope: `bench step --slope L1,L2`. A cut of a model has as much head and embedding as the whole of it, so its speed
 * misleads: of 6 layers the head takes 20 to 29 %, of the whole model 5 %. The difference of two depths has neither, nor
 * what the host does once a step. What is left of the shallow step is head, embedding, loss and host. The update of a
 * layer's own weights is part of the layer.
 */
#include "bench/bench.h"

#include "hardware/hardware.h"

#include <inttypes.h>
#include <math.h>

/* One depth. */
typedef struct Depth {
    int64_t layers;
    double seconds, flops; /* of a step; FLOPs of one rank */
    double sheet;          /* FLOP/s by the data sheet; 0: unknown */
} Depth;

static Status time_depth(const Config *c, Comm *world, const BenchStep *o, Depth *out)
{
    BenchModel m;
    BenchMedian median = { 0 };
    *out = (Depth){ .layers = c->model_layers };
    TRY(bench_open(&m, c, world, (BenchOpen){ .tokens = o->tokens }));
    Status s = o->data ? bench_read_data(&m) : OK;
    if (s == OK) s = bench_time_steps(&m, 3, o->steps, &median);
    if (s == OK) s = bench_step_flops(&m, &out->flops);
    if (s == OK && m.plan.apart)
        s = hardware_sheet_flops(m.gpu.gpu.name, m.engine.spec.act, &out->sheet);
    out->seconds = median.seconds;
    if (s != OK) bench_abort_ranks(world);
    bench_close(&m);
    return s;
}

static Status print_slope(const Config *c, const Depth at[2], int ranks, bool json, Text *out)
{
    const double tokens = (double)(c->train_batch * c->data_sequence);
    const double layers = (double)(at[1].layers - at[0].layers), s = at[1].seconds - at[0].seconds;
    const bool slower =
        s > 0; /* else noise was larger than the layers, and nothing follows from it */
    const double rate = slower ? (at[1].flops - at[0].flops) / s : (double)NAN;
    const double layer = slower ? s / layers : (double)NAN;
    const double rest = at[0].seconds - layer * (double)at[0].layers;
    if (json)
        return text_json(
            out,
            "{\"kind\":\"slope\",\"model\":%s,\"ranks\":%d,\"tokens\":%g,\"layers\":[%lld,%lld],"
            "\"step_p50_s\":[%g,%g],\"layer_token_s\":%g,\"rest_s\":%g,\"layer_flops_per_s\":%g,"
            "\"sheet_flops\":%g}\n",
            c->model_name, ranks, tokens, (long long)at[0].layers, (long long)at[1].layers,
            at[0].seconds, at[1].seconds, layer / tokens, rest, rate, at[0].sheet);
    for (int i = 0; i < 2; i++) {
        char speed[32];
        TRY(text_printf(out, "%s, %" PRId64 " layers: %.2f ms a step, %s tokens/s\n", c->model_name,
                        at[i].layers, 1e3 * at[i].seconds,
                        text_thousands(speed, (int64_t)(tokens / at[i].seconds))));
    }
    if (!slower)
        return text_printf(
            out, "slope        none: the deeper model is not slower; more --steps, or depths that "
                 "differ more\n");
    TRY(text_printf(out, "slope        %.3f us a token, %.3f a layer; %.1f GFLOP/s",
                    1e6 * s / tokens, 1e6 * layer / tokens, rate / 1e9));
    if (at[0].sheet > 0) TRY(text_printf(out, ", MFU %.1f %%", 100 * rate / at[0].sheet));
    return text_printf(
        out, "\nrest         %.2f ms a step outside of layers, %.1f %% with %" PRId64 " of them\n",
        1e3 * rest, 100 * rest / at[0].seconds, at[0].layers);
}

Status bench_slope(const Config *shallow, const Config *deep, Comm *world, const BenchStep *options,
                   Text *out)
{
    Depth at[2];
    Config own = *deep;
    /* what was bound to this rank when it began (bench_on_rank) */
    own.run_gpu = shallow->run_gpu;
    own.run_threads = shallow->run_threads;
    own.mesh_ranks_per_host = shallow->mesh_ranks_per_host;
    TRY(time_depth(shallow, world, options, &at[0]));
    TRY(time_depth(&own, world, options, &at[1]));
    return print_slope(shallow, at, world == NULL ? 1 : world->size, options->json, out);
}
