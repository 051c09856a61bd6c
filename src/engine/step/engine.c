/* engine: opens an engine, counts it without memory, and runs its steps and evaluations. Both the
 * counting run and the real one go through engine_setup, so a plan cannot differ from what is allocated.
 *
 * Its parts are elsewhere: arenas (engine_memory.c), programs (engine_program.c), the walk over a program
 * (run_program.c), layers (run_layers.c), parameters (shards.c, update.c). */
#include "engine/step/engine.h"

#include "engine/backend/backend.h"
#include "engine/base/clock.h"
#include "engine/base/rng.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/numbers.h"
#include "engine/model/recipe_text.h"
#include "engine/step/agree.h"
#include "engine/step/checks.h"
#include "engine/step/copies.h"
#include "engine/step/engine_batch.h"
#include "engine/step/engine_device.h"
#include "engine/step/engine_program.h"
#include "engine/step/offload.h"
#include "engine/step/run_layers.h"
#include "engine/step/run_program.h"
#include "engine/step/shards.h"
#include "engine/step/slots.h"
#include "engine/step/update.h"
#include "engine/step/verify.h"
#include "kernels/core/choices.h"
#include "kernels/core/libraries.h"
#include "kernels/exchange/exchange.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

const char *const engine_arena_names[ENGINE_ARENAS] = {
    [ENGINE_RUN] = "run",   [ENGINE_SLOT] = "slot",       [ENGINE_RING] = "ring",
    [ENGINE_STEP] = "step", [ENGINE_SCRATCH] = "scratch", [ENGINE_PINNED] = "pinned",
};

static const size_t TABLES_BYTES = (size_t)4 << 30; /* reserved; only what is written counts */

/* Set-up. */

/* Tables of cosines and sines, (positions, half of the rotary width) each. */
static Status make_rope(EngineArenas *m, const ModelSpec *s, RopeTable *out)
{
    int64_t p = m->shape->positions, half = s->rotary.dim / 2;
    TRY(tensor_new2(&m->at[ENGINE_RUN], DTYPE_F32, p, half, &out->cos));
    TRY(tensor_new2(&m->at[ENGINE_RUN], DTYPE_F32, p, half, &out->sin));
    return OK;
}

/* The host computes these tables also for a GPU, so all devices rotate by the same bits. */
static Status fill_rope(EngineArenas *m, const ModelSpec *s, const RopeTable *out)
{
    if (m->counting) return OK;
    const Backend *b = m->ex->backend;
    float *cos = out->cos.data, *sin = out->sin.data;
    size_t bytes = tensor_bytes(&out->cos);
    ArenaMark mark = arena_mark(m->tables);
    if (b->apart) {
        void *memory = NULL;
        TRY(arena_alloc(m->tables, 2 * bytes, &memory));
        cos = memory, sin = cos + tensor_elems(&out->cos);
    }
    rotary_table(&s->rotary, m->shape->positions, cos, sin);
    if (!b->apart) return OK;
    TRY(b->copy(m->ex, out->cos.data, cos, bytes));
    TRY(b->copy(m->ex, out->sin.data, sin, bytes));
    TRY(b->sync(m->ex));
    arena_release(m->tables, mark);
    return OK;
}

/* The key/value cache: sequences of `positions` tokens, for layers that have one. */
static Status make_cache(EngineArenas *m, const ModelSpec *s, KvCache *out)
{
    if (m->shape->cache == 0) return OK;
    Arena *run = &m->at[ENGINE_RUN];
    int64_t rows = m->shape->cache * m->shape->positions, k = 0, v = 0;
    out->capacity = m->shape->positions;
    TRY(ARENA_ZEROED(m->tables, s->n_layers, &out->k));
    TRY(ARENA_ZEROED(m->tables, s->n_layers, &out->v));
    for (int i = 0; i < s->n_layers; i++) {
        const LayerSpec *l = &s->layers[i];
        const LayerDesc *desc = layer_desc(l->kind);
        if (desc->cache == NULL) continue;
        desc->cache(l, &k, &v);
        const int64_t n = desc->stateful ? m->shape->cache : rows;
        if (n != rows && out->stated == NULL) TRY(ARENA_ZEROED(m->tables, n, &out->stated));
        TRY(tensor_new2(run, s->act, n, k, &out->k[i]));
        TRY(tensor_new2(run, desc->stateful ? DTYPE_F32 : s->act, n, v, &out->v[i]));
    }
    return OK;
}

/* Chooses the device. No other file does: what depends on the device asks the Exec.
 * A counting run of a GPU needs no GPU: it only takes the workspaces that a GPU would. */
static Status make_exec(EngineArenas *m, const Config *c, Arena *scratch)
{
    bool gpu = engine_wants_gpu(c);
    if (gpu && m->counting) return gpu_exec_count(m->ex, m->tables, scratch);
    if (gpu) return gpu_exec_init(m->ex, (int)c->run_gpu, m->tables, scratch);
    TRY(exec_init(m->ex, m->tables, scratch, m->shape->threads, (CpuIsa)c->run_cpu_isa));
    if (m->counting) m->ex->backend = &backend_count;
    return OK;
}

static Status swap_groups(Engine *e)
{
    const GroupSwap *swap = e->shape.swap;
    return swap == NULL ? OK : swap->take(swap, &e->mesh, &e->tables);
}

/* Makes the groups that carry tensors: those of the host, or on GPUs the same groups over NCCL. Groups
 * that exchange rows or store into peers are connected now: NCCL would otherwise do it in the first
 * call, which a capture does not allow. */
static Status join_mesh(Engine *e)
{
    const Mesh *host = e->shape.mesh;
    bool stores = exchange_kinds[e->spec.ranks.exchange]->header_bytes > 0;
    Comm *world = NULL;
    if (host == NULL || e->arenas.counting) return OK;
    e->ex.mesh = &e->mesh;
    if (!e->ex.backend->apart) {
        e->mesh = *host;
        return swap_groups(e);
    }
    const int blocks = e->spec.ranks.tp > 1 ? COMM_TENSOR_BLOCKS : COMM_BLOCKS;
    TRY(comm_nccl(host->group[GROUP_WORLD], e->ex.backend->streams->of_lane(&e->ex, LANE_COMPUTE),
                  blocks, &e->tables, &world));
    e->mesh.group[GROUP_WORLD] = world; /* from here on leave_mesh frees it */
    TRY(mesh_make(world, &host->shape, true, &e->tables, &e->mesh));
    for (MeshGroup g = GROUP_WORLD; g < GROUP_MADE; g++) {
        if (mesh_exchanges(&host->shape, g, stores)) TRY(comm_connect(e->mesh.group[g]));
    }
    return swap_groups(e);
}

/* Frees the groups over GPUs. Groups of the host belong to the caller. */
static void leave_mesh(Mesh *mesh, const Mesh *host, const GroupSwap *swap)
{
    Comm *world = mesh->group[GROUP_WORLD];
    if (world == NULL || world == host->group[GROUP_WORLD]) return;
    if (swap != NULL) swap->give_back(mesh);
    mesh_free(mesh);
    comm_free(world);
}

/* The spec on this rank. Generation and evaluation have no use for multi-token prediction. */
static Status make_spec(Engine *e)
{
    Config c = *e->config;
    if (e->use == ENGINE_INFER) c.mtp_layers = 0;
    TRY(spec_build(&c, &e->tables, &e->spec));
    if (e->shape.mesh != NULL) spec_place(&e->spec, e->shape.mesh);
    spec_set_capacity(&e->spec, &e->shape.capacity);
    return e->shape.all_rows ? engine_retry_spec(&e->spec, &e->tables) : OK;
}

/* Lists the parameters of this rank. Their memory comes with make_params. */
static Status list_params(Engine *e)
{
    const Mesh *host = e->shape.mesh;
    ParamShards mine = { 0 };
    e->params = (EngineParams){ .ex = &e->ex,
                                .config = e->config,
                                .spec = &e->spec,
                                .shape = &e->shape,
                                .groups = &e->mesh,
                                .arenas = &e->arenas,
                                .tables = &e->tables,
                                .io = &e->io,
                                .training = e->use == ENGINE_TRAIN,
                                .kept = rules_begin(e->config, NULL),
                                .both_ways = e->modes[0].step->program.placement == PLACE_BOTH };
    if (host != NULL) mine = shards_of(e->config, host);
    return params_build(&e->spec, e->shape.pp_rank,
                        e->shape.shards != NULL ? e->shape.shards : &mine, &e->tables,
                        &e->params.table);
}

/* The GPU of a counting run is asked, too, if there is one: so that a plan is refused for the reason
 * that its run would be. */
static Status check_recipe(const Engine *e)
{
    GpuInfo info;
    const EngineShape *shape = &e->shape;
    if (!engine_wants_gpu(e->config) || gpu_devices() == 0) return OK;
    TRY(gpu_info((int)e->config->run_gpu, &info));
    char name[sizeof info.name + 16];
    (void)snprintf(name, sizeof name, "GPU %d (%s)", (int)e->config->run_gpu, info.name);
    RecipeGpu gpu = { name, 10 * info.major + info.minor, op_vendor, gpu_code_lacks() };
    const int64_t rows = shape->micro_batch * shape->sequence / e->spec.ranks.tp; /* of experts */
    return recipe_check_gpu(&e->spec, &e->params.table, &gpu, rows);
}

static Status make_params(EngineParams *w)
{
    const bool apart = w->config->optimizer_offload && w->ex->backend->apart;
    Arena *run = &w->arenas->at[ENGINE_RUN], *states = &w->arenas->at[ENGINE_PINNED];
    TRY(params_alloc(w->spec, &w->table, run, apart ? states : run, w->training, &w->memory));
    TRY(params_bind(w->spec, &w->table, &w->memory, w->tables, &w->layer));
    TRY(copies_alloc(w));
    TRY(ARENA_ZEROED(w->tables, w->spec->n_layers, &w->written));
    TRY(shards_make(w));
    return apart ? offload_make(w, OFFLOAD_ELEMS, run) : OK;
}

static Status make_io(EngineArenas *m, const ModelSpec *s, StepTensors *io)
{
    TRY(make_rope(m, s, &io->rope));
    TRY(make_cache(m, s, &io->kv));
    TRY(engine_step_tensors(m, s, io));
    TRY(engine_host_figures(m->tables, io));
    return fill_rope(m, s, &io->rope);
}

/* Fills an entry with random rows about as large as a hidden state. Equal rows would all go to the same
 * experts. Past DRAWN elements the same rows repeat. */
static Status fill_entry(EngineArenas *m, const Tensor *t, uint64_t *at)
{
    enum { N = 1 << 12, DRAWN = 1 << 20 };
    float numbers[N];
    const int64_t all = tensor_elems(t), drawn = all < DRAWN ? all : DRAWN;
    for (int64_t first = 0; first < drawn; first += N, *at += N) {
        int64_t part = drawn - first < N ? drawn - first : N;
        void *to = tensor_at(t, first);
        rng_fill_normal(numbers, part, 1, rng_stream("transfers of nothing"), *at, 0.02);
        dtype_from_f32(engine_staging(m, to), t->dtype, numbers, part);
        TRY(engine_put(m, to, (size_t)part * dtype_bytes(t->dtype)));
    }
    for (int64_t first = drawn; first < all; first += drawn) {
        int64_t part = all - first < drawn ? all - first : drawn;
        TRY(m->ex->backend->copy(m->ex, tensor_at(t, first), t->data,
                                 (size_t)part * dtype_bytes(t->dtype)));
    }
    return OK;
}

/* Fills the entries of n modes. `at` runs on from entry to entry, so no two of them have the same rows. */
static Status fill_entries(EngineArenas *m, const EngineMode *modes, int n)
{
    uint64_t at = 0;
    for (int i = 0; i < n; i++) {
        const EngineMode *w = &modes[i];
        for (int k = 0; k < w->n_entries; k++) TRY(fill_entry(m, &w->entries[k], &at));
    }
    return OK;
}

/* plan NULL: for counting. The order matters: programs need the spec, arenas need the Exec and the
 * programs, and parameters need the arenas. */
static Status engine_setup(Engine *e, const EnginePlan *plan)
{
    EngineArenas *m = &e->arenas;
    *m = (EngineArenas){
        .ex = &e->ex, .shape = &e->shape, .tables = &e->tables, .counting = plan == NULL
    };
    TRY(engine_check_device(e->config));
    TRY(arena_reserve(&e->tables, "tables", TABLES_BYTES));
    TRY(make_spec(e));
    TRY(engine_make_program(e));
    TRY(list_params(e));
    TRY(check_recipe(e));
    TRY(make_exec(m, e->config, &e->mode->arena[ENGINE_SCRATCH]));
    TRY(join_mesh(e));
    TRY(engine_make_arenas(m, e->modes, plan));
    TRY(engine_open_peers(m, &e->spec));
    TRY(engine_make_transfers(e));
    TRY(make_params(&e->params));
    TRY(make_io(m, &e->spec, &e->io));
    /* groups that send nothing leave the entries as they are */
    if (!m->counting && e->shape.swap != NULL) TRY(fill_entries(m, e->modes, e->n_modes));
    TRY(e->ex.backend->streams->event_new(&e->ex, true, &e->clock.begun));
    return e->ex.backend->streams->event_new(&e->ex, true, &e->clock.ended);
}

/* On failure everything is freed, and the engine is { 0 } again. */
Status engine_open(Engine *e, const Config *c, EngineUse use, const EngineShape *shape,
                   const EnginePlan *plan)
{
    *e = (Engine){ .config = c, .use = use, .shape = *shape };
    e->mode = &e->modes[0];
    TRY(config_check_ops(c, shape->mesh != NULL ? shape->mesh->ranks : 1));
    Status s = engine_setup(e, plan);
    if (s != OK) engine_close(e);
    return s;
}

/* The reverse of engine_setup. Each part accepts what was never made. */
void engine_close(Engine *e)
{
    engine_free_graphs(e); /* they hold calls of the groups */
    engine_free_transfers(e);
    exchange_close(&e->ex);
    leave_mesh(&e->mesh, e->shape.mesh, e->shape.swap);
    engine_free_arenas(&e->arenas, e->modes);
    exec_free(&e->ex);
    arena_free(&e->tables);
    *e = (Engine){ 0 };
}

/* Forward without training, losses into e->io.token_loss or logits into e->io.logits. */

/* The first n sequences of the batch. */
static Status run_losses(Engine *e, int64_t n)
{
    e->io.evaluated = run_part(&e->io.batch, 0, n);
    return run_program(e, &e->mode->evaluation);
}

/* New tokens after those in the cache. */
static Status run_next_logits(Engine *e, const CachePart *part, int parts)
{
    int64_t n = 0;
    for (int i = 0; i < parts; i++) n += part[i].n;
    e->io.kv.part = part;
    e->io.kv.parts = parts;
    e->io.evaluated = (MicroBatch){ .b = 1,
                                    .t = n,
                                    .id = tensor_rows(&e->io.batch.id, 0, n),
                                    .pos = tensor_rows(&e->io.batch.pos, 0, n),
                                    .domain = e->io.batch.domain };
    return run_program(e, &e->mode->evaluation);
}

/* Planning: everything the real engine will do, over arenas that only count. */

/* Adds up the slots and their tables: the counting run had only one of them. */
static Status count_slots(const EngineMode *w, Arena *tables, EnginePlan *out)
{
    SlotSizes sizes;
    TRY(slot_sizes_all(w, out, tables, &sizes));
    out->bytes[ENGINE_SLOT] = 0;
    for (int part = 0; part < SLOT_PARTS; part++) {
        for (int i = 0; i < sizes.n[part]; i++) out->bytes[ENGINE_SLOT] += sizes.bytes[part][i];
    }
    out->pool_bytes = 0;
    for (int i = 0; i < sizes.n[SLOT_KEEP]; i++) out->pool_bytes += arena_rounded(sizes.pool[i]);
    out->tables_bytes =
        tables->peak_bytes + (size_t)(sizes.n[SLOT_KEEP] - 1) * engine_slot_tables(w);
    return OK;
}

/* Runs everything once over counting arenas, and reads the peaks. */
static Status count_run(Engine *e, EnginePlan *out)
{
    TRY(engine_setup(e, NULL));
    if (e->use == ENGINE_TRAIN) {
        TRY(run_count(e, out));
        e->mode->slots[0].arena.peak_bytes = 0;
        TRY(run_losses(e, e->shape.micro_batch));
    } else if (e->shape.cache > 0) {
        /* The longest prompt; the same, and one token, at the end of a full cache. */
        const int64_t n = e->shape.sequence, end = e->shape.positions;
        const CachePart part[] = { { 0, 0, n }, { 0, end - n, n }, { 0, end - 1, 1 } };
        for (int i = 0; i < 3; i++) TRY(run_next_logits(e, &part[i], 1));
    } else {
        TRY(run_losses(e, e->shape.micro_batch));
    }
    out->eval_bytes = e->mode->slots[0].arena.peak_bytes;
    for (int i = 0; i < RINGS; i++) out->ring_bytes[i] = e->mode->ring[i].peak_bytes;
    for (int i = 0; i < ENGINE_ARENAS; i++) out->bytes[i] = engine_peak_bytes(e, (EngineArena)i);
    out->comm_scratch_bytes = e->mode->comm_scratch.peak_bytes;
    out->bytes[ENGINE_SCRATCH] += arena_rounded(out->comm_scratch_bytes);
    TRY(count_slots(e->mode, &e->tables, out));
    out->bytes[ENGINE_PINNED] = engine_pinned_bytes(&e->arenas);
    out->apart = e->ex.backend->apart;
    if (e->use == ENGINE_TRAIN)
        out->save_bytes = checkpoint_plan_bytes(&e->params, &out->peer_bytes);
    out->params_total = e->params.table.total;
    out->params_active = e->params.table.active;
    out->params_frozen = e->params.table.frozen;
    return OK;
}

Status engine_plan(const Config *c, EngineUse use, const EngineShape *shape, EnginePlan *out)
{
    Engine e = { .config = c, .use = use, .shape = *shape };
    e.mode = &e.modes[0];
    EnginePlan plan = { 0 };
    Status s = count_run(&e, &plan);
    engine_close(&e);
    if (s == OK) *out = plan;
    return s;
}

/* Only rows over ranks can exceed a capacity, and only pooled buffers have one below the most that can come. */
Status engine_plan_retry(const Config *c, EngineShape *shape, EnginePlan *plan, EnginePlan *retry)
{
    if (shape->mesh == NULL || config_expert_ranks(c) == 1 || c->moe_buffers != BUFFERS_POOLED)
        return OK;
    EngineShape all = *shape;
    all.all_rows = true;
    TRY(engine_plan(c, ENGINE_TRAIN, &all, retry));
    size_t first = engine_work_bytes(plan), second = engine_work_bytes(retry);
    if (second > first) plan->bytes[ENGINE_SCRATCH] += second - first;
    shape->retry = retry;
    return OK;
}

/* Running. */

/* Enqueues a whole step: the batch to the device, the program, the record back. */
static Status enqueue_step(Engine *e)
{
    TRY(engine_copy_in(&e->arenas));
    TRY(run_program(e, &e->mode->step[e->size]));
    return engine_copy_record(&e->arenas);
}

/* A graph bypasses decorators. With a decorator in front, ops are launched one by one. */
static Status start_step(Engine *e)
{
    bool captured = e->mode->graph.exec != NULL && e->ex.depth == 0;
    void *stream = e->ex.backend->streams->of_lane(&e->ex, LANE_COMPUTE);
    TRY(e->ex.backend->streams->record(&e->ex, &e->clock.begun, stream));
    TRY(captured ? e->ex.backend->graphs->launch(&e->ex, &e->mode->graph) : enqueue_step(e));
    TRY(e->ex.backend->streams->record(&e->ex, &e->clock.ended, stream));
    e->clock.launches = captured ? 1 : e->mode->graph.nodes;
    return OK;
}

/* The first launch of a kernel loads it, which waits for everything that its GPU runs. Two ranks of
 * DualPipe send to each other. If each waits for its send and neither has loaded the kernel that
 * receives, both hang. So a step that may load kernels sends nothing. */
static Status rehearse_step(Engine *e, bool tune)
{
    e->mode->step->transfers.quiet = true;
    TRY(exec_tune(&e->ex, tune));
    Status s = enqueue_step(e);
    TRY(exec_tune(&e->ex, false));
    e->mode->step->transfers.quiet = false;
    TRY(s);
    return engine_wait(&e->arenas);
}

/* Merges the choices of all ranks in the order of ranks: for each product the first rank that timed it
 * decides. So ranks that compute the same product get the same bits, and the list that rank 0 saves in a
 * checkpoint holds for all. */
static Status share_choices(struct Choices *choices, Comm *host, Arena *tables)
{
    int taken = 0;
    const char *mine, *const *texts;
    ArenaMark mark = arena_mark(tables);
    TRY(choices_text(choices, tables, &mine));
    TRY(agree_texts(host, mine, tables, &texts));
    choices_clear(choices);
    for (int i = 0; i < host->size; i++) TRY(choices_take(choices, "a rank", texts[i], &taken));
    arena_release(tables, mark);
    return OK;
}

/* Runs steps to load kernels and time products. Their results are dropped. */
static Status rehearse(Engine *e, const char *products)
{
    const Config *c = e->config;
    struct Choices *choices = exec_choices(&e->ex);
    int taken = 0;
    if (products != NULL && products[0] != '\0') {
        TRY(choices_take(choices, "the checkpoint's list of products", products, &taken));
    }
    /* A checkpoint has every choice of its run. The cache may have grown since: taking more from it
     * would change the bits. */
    bool tune = c->run_tune && taken == 0;
    if (tune) choices_load(choices, c->cache_dir, &e->tables);
    TRY(engine_random_weights(&e->params));
    memset(engine_host(&e->arenas, &(Tensor){ .data = e->arenas.at[ENGINE_STEP].base }), 0,
           e->arenas.inputs_end.used_bytes);
    /* Equal tokens would all go to the same few experts: products would be timed for wrong sizes. */
    int32_t *id = engine_host(&e->arenas, &e->io.batch.id);
    for (int64_t i = 0; i < tensor_elems(&e->io.batch.id); i++)
        id[i] = (int32_t)(i % e->spec.vocab);
    TRY(fill_entries(&e->arenas, e->modes, e->n_modes));
    TRY(rehearse_step(e, tune));
    if (tune) choices_save(choices, c->cache_dir, &e->tables);
    if (tune && e->shape.mesh != NULL) {
        TRY(share_choices(choices, e->shape.mesh->group[GROUP_WORLD], &e->tables));
        TRY(rehearse_step(e, false));
    }
    if (e->mode->step->program.entries == 0) return OK;
    TRY(enqueue_step(e));
    return engine_wait(&e->arenas);
}

/* Records a step as a graph of the mode in use. */
static Status capture_step(Engine *e)
{
    if (e->ex.depth > 0) return OK; /* a decorator waits for each op, which no graph can hold */
    char cause[1024];
    TRY(e->ex.backend->graphs->begin(&e->ex));
    Status s = enqueue_step(e);
    (void)snprintf(cause, sizeof cause, "%s", status_message());
    Status end = e->ex.backend->graphs->end(&e->ex, &e->mode->graph);
    if (s != OK) return status_adopt(s, cause); /* the end fails, too, and does not know why */
    TRY(end);
    return engine_wait(&e->arenas);
}

/* Captures the step list in use, unless that is done. The eager executor needs only the numbers of nodes and
 * kernels, for metrics. */
static Status prepare_list(Engine *e)
{
    Graph *g = &e->mode->graph;
    if (!e->prepared || g->nodes > 0) return OK;
    TRY(capture_step(e));
    if (e->config->run_executor == EXECUTOR_CAPTURED || g->exec == NULL) return OK;
    const Graph counted = *g;
    e->ex.backend->graphs->free(g);
    g->nodes = counted.nodes, g->kernels = counted.kernels;
    return OK;
}

/* On a backend without graphs there is nothing to prepare: its steps are launched op by op. The largest step
 * has every kind of pass, so it loads every kernel. */
Status engine_prepare(Engine *e, const char *products)
{
    if (!e->ex.backend->captures) return OK;
    TRY(rehearse(e, products));
    e->prepared = true;
    return prepare_list(e);
}

/* Launches a step in the mode in use and waits for its end. */
static Status run_step_once(Engine *e, int64_t step)
{
    TRY(start_step(e));
    if (e->observer.look != NULL) e->observer.look(e->observer.self);
    Status s = engine_wait(&e->arenas);
    if (s != ERR_DEVICE) return s;
    char why[512];
    status_sentence(why, sizeof why);
    return FAIL(ERR_DEVICE, "step %lld: %s; run.guard=true waits after every op and names the one",
                (long long)step, why);
}

/* Switches to the first (0) or the second mode (1). Both lay their arenas over one block. */
static void use_mode(Engine *e, int mode)
{
    e->mode = &e->modes[mode];
    e->ex.scratch = &e->mode->arena[ENGINE_SCRATCH];
    arena_unpoison(&e->arenas.block);
}

/* Did rows exceed their capacity in the step or evaluation that has ended? All ranks see the same sums,
 * so all run the second mode or none does. */
static bool retry_needed(const Engine *e)
{
    const float *overflow = engine_host(&e->arenas, &e->io.record.overflow);
    return e->shape.retry != NULL && e->mode == &e->modes[0] &&
           (overflow[OVERFLOW_BLOCKS] > 0 || overflow[OVERFLOW_ROWS] > 0);
}

/* Runs the step again in the second mode. Its graph is captured the first time it is needed: most runs
 * never need it. */
static Status run_retry(Engine *e, int64_t step, StepResult *out)
{
    bool captured = e->mode->graph.exec != NULL;
    double start = clock_s();
    use_mode(e, 1);
    Status s = captured && e->mode->graph.exec == NULL ? capture_step(e) : OK;
    out->capture_s = clock_s() - start;
    if (s == OK) s = run_step_once(e, step);
    out->retry_s = clock_s() - start - out->capture_s;
    use_mode(e, 0);
    return s;
}

/* The order matters: graphs hold addresses of the old block, and the exchange has mapped it into peers. */
Status engine_resize(Engine *e, const EngineShape *shape, const EnginePlan *plan)
{
    TRY(engine_wait(&e->arenas));
    engine_free_graphs(e);
    e->shape = *shape;
    spec_set_capacity(&e->spec, &shape->capacity);
    e->modes[0].spec = e->spec;
    exchange_close(&e->ex);
    TRY(engine_remake_modes(&e->arenas, e->modes, plan));
    TRY(engine_open_peers(&e->arenas, &e->spec));
    use_mode(e, 0);
    return prepare_list(e);
}

/* Runs a step, and again in the second mode if rows did not fit. The second run overwrites the record of
 * the first, except what was short. */
static Status run_whole(Engine *e, int64_t step, StepResult *out)
{
    TRY(run_step_once(e, step));
    e->params.copies_old = true;
    out->retried = retry_needed(e);
    const float *overflow = engine_host(&e->arenas, &e->io.record.overflow);
    out->short_of = (Shortage){ overflow[OVERFLOW_BLOCKS] > 0, overflow[OVERFLOW_ROWS] > 0 };
    return out->retried ? run_retry(e, step, out) : OK;
}

/* Sets the scalars of a step with this limit of the norm, and what the next run does with checksums. */
static void write_check(Engine *e, float *hyper, float limit, float what)
{
    hyper[UPDATE_LIMIT] = limit;
    engine_write(&e->arenas, &e->io.hyper, hyper);
    if (e->io.checked.data != NULL) engine_write(&e->arenas, &e->io.checked, &what);
}

/* Runs a step that changes nothing, because no norm is below its limit, and keeps the checksums of its
 * gradients. The run that follows compares them with its own. */
static Status run_unchanged(Engine *e, float *hyper, int64_t step, StepResult *out)
{
    const double start = clock_s();
    const float limit = hyper[UPDATE_LIMIT];
    write_check(e, hyper, -1, CHECKS_ADD);
    TRY(run_whole(e, step, out));
    engine_write(&e->arenas, &e->io.expected, engine_host(&e->arenas, &e->io.record.checks));
    write_check(e, hyper, limit, CHECKS_COMPARE);
    out->verify_s = clock_s() - start;
    return OK;
}

/* The host's part: write inputs, launch, wait once, read the record. */
Status engine_step(Engine *e, const Batch *batch, double lr, int64_t step, StepResult *out)
{
    if (batch->depths < e->spec.depths)
        return FAIL(ERR_ARG,
                    "engine: a batch with %d depths of multi-token prediction, mtp.layers is %d",
                    batch->depths, e->spec.depths);
    TRY(engine_use_size(e, batch->domain.dim[0]));
    e->step = e->ex.step = step;
    float hyper[UPDATE_SCALARS];
    update_scalars(&e->params, lr, step, hyper);
    write_check(e, hyper, hyper[UPDATE_LIMIT], 0);
    engine_write_batch(e, batch);
    TRY(prepare_list(e));
    int64_t waits = e->ex.waits;
    StepResult result = { 0 };
    if (verify_due(e, step)) TRY(run_unchanged(e, hyper, step, &result));
    TRY(run_whole(e, step, &result));
    TRY(e->ex.backend->streams->elapsed_s(&e->ex, &e->clock.begun, &e->clock.ended,
                                          &result.device_s));
    engine_read_record(&e->arenas, &e->spec, &e->io, e->params.kept.loss_scale.now, &result);
    if (result.differs) {
        *out = result;
        return OK;
    }
    result.norm_limit = (double)hyper[UPDATE_LIMIT];
    const StepRule *rule;
    for (int i = 0; (rule = rules_next(&e->spec, &i)) != NULL;)
        if (rule->follow != NULL) rule->follow(&e->params, &result);
    result.launches = e->clock.launches;
    result.kernels = e->mode->graph.kernels;
    result.waits = e->ex.waits - waits;
    *out = result;
    return OK;
}

/* The rerun changes nothing: its update is skipped as the first one was, because the norm is not finite again. */
Status engine_explain_nan(Engine *e, const Batch *batch, int64_t step)
{
    TRY(engine_check_numbers(&e->params, step - 1));
    e->step = e->ex.step = step;
    engine_write_batch(e, batch);
    exec_push(&e->ex, &backend_guard);
    Status s = enqueue_step(e);
    exec_pop(&e->ex);
    TRY(s);
    return FAIL(
        ERR_NUMERIC,
        "step %lld: the loss or the gradient norm is not finite, though the outputs of every "
        "op are",
        (long long)step);
}

/* Runs an evaluation of n sequences and brings the losses to the host. */
static Status launch_losses(Engine *e, int64_t n)
{
    TRY(engine_copy_in(&e->arenas));
    TRY(run_losses(e, n));
    TRY(engine_copy_record(&e->arenas));
    TRY(engine_copy_out(&e->arenas, &e->io.token_loss));
    return engine_wait(&e->arenas);
}

/* Rows may exceed their capacity here, too. The losses then come from the second mode. */
Status engine_losses(Engine *e, const Batch *batch, const float **losses)
{
    int64_t n = batch->domain.dim[0];
    if (n > e->shape.micro_batch) {
        return FAIL(ERR_ARG, "engine_losses: %lld sequences, at most %lld fit", (long long)n,
                    (long long)e->shape.micro_batch);
    }
    engine_write_batch(e, batch);
    TRY(launch_losses(e, n));
    if (retry_needed(e)) {
        use_mode(e, 1);
        Status s = launch_losses(e, n);
        use_mode(e, 0);
        TRY(s);
    }
    const Program *p = &e->list->program;
    StageAt last = hop_stage(p, 0, hop_count(p) - 1);
    *losses = last.rank == p->rank ? engine_host(&e->arenas, &e->io.token_loss) : NULL;
    return OK;
}

const int32_t *engine_load(const Engine *e) { return engine_host(&e->arenas, &e->io.record.load); }

/* Fails at the first logit that is not finite. */
static Status check_logits(const StepTensors *io, const float *logits, int64_t n)
{
    int64_t v = io->logits.dim[1], rows = n < io->logits.dim[0] ? n : io->logits.dim[0];
    int64_t i = numbers_bad(-FLT_MAX, (Numbers){ logits, DTYPE_F32, rows * v });
    if (i < 0) return OK;
    return FAIL(ERR_NUMERIC,
                "the logit of id %lld after new token %lld is %g, though the weights are finite: "
                "take an earlier checkpoint",
                (long long)(i % v), (long long)(n - rows + i / v), (double)logits[i]);
}

/* Writes the parts' tokens and their positions, which go on from the cache, into the batch. */
static Status put_parts(Engine *e, const CachePart *part, int parts, const int32_t *id, int64_t *n)
{
    const EngineShape *s = &e->shape;
    int32_t *at = engine_host(&e->arenas, &e->io.batch.id),
            *pos = engine_host(&e->arenas, &e->io.batch.pos);
    *n = 0;
    for (const CachePart *p = part; p < part + parts; *n += p++->n) {
        if (*n + p->n > s->sequence || p->used + p->n > s->positions || p->sequence >= s->cache)
            return FAIL(ERR_ARG,
                        "generate: %lld tokens after %lld: at most %lld fit at a time, %lld in all",
                        (long long)(*n + p->n), (long long)p->used, (long long)s->sequence,
                        (long long)s->positions);
        int64_t *stated = e->io.kv.stated == NULL ? NULL : &e->io.kv.stated[p->sequence];
        if (stated != NULL && p->used != 0 && p->used != *stated)
            return FAIL(ERR_UNSUPPORTED,
                        "generate: token %lld: the states of gated delta nets go on after token "
                        "%lld alone",
                        (long long)p->used, (long long)*stated);
        if (stated != NULL) *stated = p->used + p->n;
        for (int64_t i = 0; i < p->n; i++) {
            at[*n + i] = id[*n + i];
            pos[*n + i] = (int32_t)(p->used + i);
        }
    }
    return OK;
}

Status engine_cached_logits(Engine *e, const CachePart *part, int parts, const int32_t *id,
                            const float **logits)
{
    int64_t n = 0;
    TRY(put_parts(e, part, parts, id, &n));
    *(int32_t *)engine_host(&e->arenas, &e->io.batch.domain) = 0;
    TRY(engine_copy_in(&e->arenas));
    TRY(run_next_logits(e, part, parts));
    TRY(engine_copy_out(&e->arenas, &e->io.logits));
    TRY(engine_wait(&e->arenas));
    *logits = engine_host(&e->arenas, &e->io.logits);
    return check_logits(&e->io, *logits, n);
}

/* The cache's length grows by n only after the device has finished. */
Status engine_next_logits(Engine *e, const int32_t *id, int64_t n, const float **logits)
{
    const CachePart part = { .used = e->io.kv.used, .n = n };
    TRY(engine_cached_logits(e, &part, 1, id, logits));
    e->io.kv.used += n;
    return OK;
}

void engine_guard(Engine *e) { exec_push(&e->ex, &backend_guard); }
