/* model: opens a model with its engine for a bench, makes batches, and times steps. Learning rate
 * and tokens are arbitrary: what is measured is time. What is printed is in step.c and ops.c. */
#include "bench/bench.h"

#include "engine/base/clock.h"
#include "engine/base/order.h"
#include "engine/base/rng.h"

#include <math.h>
#include <string.h>

/* The start of each token's document in n tokens of sequences of t. Lengths are lognormal with sigma 1, as those of
 * web text are, and have this mean; 0: a sequence is one document, the longest that attention can meet. */
static void fill_documents(int32_t *doc, int64_t n, int64_t t, int64_t mean, uint64_t first)
{
    uint64_t stream = rng_stream("bench documents");
    int64_t start = 0, end = 0;
    for (int64_t i = 0; i < n; i++) {
        if (i % t == 0) end = start = 0;
        if (mean > 0 && i % t == end) {
            float z;
            rng_fill_normal(&z, 1, 1, stream, first + (uint64_t)i, 1);
            start = end;
            end += (int64_t)fmax(1, (double)mean * exp((double)z - 0.5));
        }
        doc[i] = (int32_t)start;
    }
}

/* A random id below `vocab`. By Zipf's law the logarithm of id + 1 is uniform, as the words of a text about are: few
 * ids are frequent, and their experts have the more rows. */
static int32_t draw_id(bool zipf, uint64_t stream, uint64_t at, int64_t vocab)
{
    if (!zipf) return (int32_t)rng_below(1, stream, at, (uint64_t)vocab);
    const int64_t id = (int64_t)(exp(rng_uniform(1, stream, at) * log((double)vocab + 1)) - 1);
    return (int32_t)(id < vocab ? id : vocab - 1); /* exp may round up to the end */
}

/* Each rank and step has its own draws, so that data-parallel ranks differ. A step's batch is the same on any mesh. */
static void fill_random_tokens(BenchModel *m)
{
    Batch *b = &m->batch;
    const bool zipf = m->tokens.zipf;
    uint64_t stream = rng_stream("bench tokens");
    int64_t n = tensor_elems(&b->id), t = b->doc.dim[1], vocab = m->config->model_vocab;
    int64_t ranks = m->world == NULL ? 1 : mesh_data_ranks(&m->mesh.shape);
    int64_t rank = m->world == NULL ? 0 : mesh_data_rank(&m->mesh);
    int32_t *id = b->id.data, *target = b->target.data, *pos = b->pos.data, *doc = b->doc.data;
    for (int64_t i = 0; i < n; i++) {
        uint64_t at = (uint64_t)((m->step * ranks + rank) * 2 * n + 2 * i);
        id[i] = draw_id(zipf, stream, at, vocab);
        target[i] = draw_id(zipf, stream, at + 1, vocab);
        pos[i] = (int32_t)(i % t);
    }
    fill_documents(doc, n, t, m->tokens.documents, (uint64_t)((m->step * ranks + rank) * n));
    memset(b->domain.data, 0, tensor_bytes(&b->domain));
    b->targets = m->config->train_batch * m->config->data_sequence;
    for (int d = 0; d < b->depths; d++) {
        memcpy(b->next[d].id.data, target, tensor_bytes(&b->id));
        memcpy(b->next[d].target.data, id, tensor_bytes(&b->id));
        b->next[d].targets = b->targets;
    }
}

static Status open_model(BenchModel *m, BenchOpen how)
{
    const Config *c = m->config;
    TRY(arena_reserve(&m->arena, "bench", (size_t)8 << 30));
    MeshShape laid_out;
    TRY(train_mesh(c, m->world == NULL ? 1 : m->world->size, &laid_out));
    if (m->world != NULL) TRY(mesh_make(m->world, &laid_out, false, &m->arena, &m->mesh));
    EngineShape shape = train_shape(c, m->world == NULL ? NULL : &m->mesh);
    m->null = null_groups(how.silent);
    if (how.silent != 0) shape.swap = &m->null.swap;
    int here = m->world == NULL ? 1 : comm_local_ranks(m->world);
    TRY(train_plan_engine(c, here, 0, &shape, &m->plan, &m->again, &m->gpu));
    TRY(train_check_gpu(c, &shape, &m->plan, &m->gpu));
    TRY(engine_open(&m->engine, c, ENGINE_TRAIN, &shape, &m->plan));
    TRY(recorder_open(&m->recorder, &m->engine, NULL, how.recorded ? 1 : 0));
    TRY(engine_prepare(&m->engine, NULL));
    TRY(engine_init_weights(&m->engine.params, (uint64_t)c->run_seed));
    return batch_new_deep(&m->arena, shape.batch, c->data_sequence, (int)c->mtp_layers, &m->batch);
}

Status bench_bind_rank(Config *own, Comm *world, Arena *a)
{
    BindShare share;
    if (world == NULL) return OK;
    train_take_share(own, world, &share);
    return train_find_hosts(own, world, a);
}

Status bench_open(BenchModel *m, const Config *c, Comm *world, BenchOpen how)
{
    *m = (BenchModel){ .config = c, .world = world, .tokens = how.tokens };
    Status s = open_model(m, how);
    if (s != OK) bench_close(m);
    return s;
}

void bench_close(BenchModel *m)
{
    loader_close(m->loader);
    recorder_close(&m->recorder);
    engine_close(&m->engine);
    mesh_free(&m->mesh);
    arena_free(&m->arena);
    *m = (BenchModel){ 0 };
}

void bench_abort_ranks(Comm *world)
{
    char why[1024];
    status_sentence(why, sizeof why);
    if (world != NULL) comm_abort(world, why);
}

/* Only rank 0's text is printed. A rank that fails ends the others before its memory is freed,
 * because they may still read it. */
Status bench_on_rank(void *on, Comm *world)
{
    const BenchOn *b = on;
    Config own = *b->config;
    Arena a = { 0 };
    Text out = { 0 };
    TRY(arena_reserve(&a, "command", (size_t)64 << 30));
    Status s = bench_bind_rank(&own, world, &a);
    if (s == OK) s = text_init(&out, &a);
    if (s == OK) s = b->run(b->state, &own, world, &a, &out);
    if (s == OK && (world == NULL || world->rank == 0)) s = text_append(b->out, out.data, out.used);
    if (s != OK) bench_abort_ranks(world);
    arena_free(&a);
    return s;
}

Status bench_read_data(BenchModel *m)
{
    LoaderConfig loader;
    const Mesh *mesh = m->world == NULL ? NULL : &m->mesh;
    TRY(train_loader_config(m->config, mesh, NULL, &m->arena, &loader));
    return loader_open(&loader, &m->arena, &m->loader);
}

/* Keys that a query sees on average, if documents hide keys of others. */
static double mean_context(const Batch *b, bool masked)
{
    const int32_t *doc = b->doc.data, *pos = b->pos.data;
    int64_t n = tensor_elems(&b->doc);
    double keys = 0;
    for (int64_t i = 0; i < n; i++) keys += (double)(pos[i] + 1 - (masked ? doc[i] : 0));
    return keys / (double)n;
}

Status bench_run_step(BenchModel *m, double *seconds)
{
    const Batch *batch = &m->batch;
    if (m->loader == NULL) fill_random_tokens(m);
    if (m->loader != NULL) TRY(loader_next(m->loader, &batch));
    m->context += mean_context(batch, m->config->attention_document_mask);
    m->hidden_flops += train_hidden_flops(&m->engine.spec, m->engine.shape.pp_rank, batch);
    m->step++;
    double start = clock_s();
    TRY(engine_step(&m->engine, batch, 1e-4, m->step, &m->result)); /* 1e-4: any learning rate */
    *seconds = clock_s() - start;
    Transfers *t = &m->engine.modes[m->result.retried].step->transfers;
    if (m->recorder.steps == 0) return OK;
    transfers_read_stamps(t);
    idle_of(t->program, t->span, t->lanes, m->idle_s);
    return OK;
}

Status bench_step_flops(const BenchModel *m, double *out)
{
    TRY(train_model_flops(m->config, &m->engine.shape, &m->plan, out));
    *out -= m->hidden_flops / (double)m->step;
    return OK;
}

/* Seconds and idle times are separate medians: a step with one late rank must not decide both. */
Status bench_time_steps(BenchModel *m, int warm_up, int64_t steps, BenchMedian *out)
{
    double *v = NULL; /* (1 + TRAFFICS, steps): row 0 seconds, then idle time by traffic */
    TRY(ARENA_NEW(&m->arena, (1 + TRAFFICS) * steps, &v));
    for (int i = 0; i < warm_up; i++) TRY(bench_run_step(m, v));
    for (int64_t i = 0; i < steps; i++) {
        TRY(bench_run_step(m, &v[i]));
        out->twice += m->result.retried;
        for (int k = 0; k < TRAFFICS; k++) v[(k + 1) * steps + i] = m->idle_s[k];
    }
    for (int k = 0; k <= TRAFFICS; k++) sort_doubles(&v[k * steps], steps);
    out->seconds = v[steps / 2];
    for (int k = 0; k < TRAFFICS; k++) out->idle_s[k] = v[(k + 1) * steps + steps / 2];
    return OK;
}
