/* plan_run: plans a training before it starts: mesh, batches, sizes, memory and capacity for rows. It is
 * the first half of train.h; run.c is the other. Whether the plan fits is fits.c's. */
#include "corpus/shard/origin.h"
#include "corpus/tokenizer/tokenizer.h"
#include "engine/base/log.h"
#include "engine/count/capacity.h"
#include "engine/gpu/gpu.h"
#include "engine/step/agree.h"
#include "engine/step/engine_memory.h"
#include "engine/train/fits.h"
#include "engine/train/peak.h"
#include "kernels/exchange/exchange.h"

#include <inttypes.h>
#include <malloc.h>
#include <sched.h>
#include <string.h>

/* Measured (VmHWM of runs over that of `switchyard --help`, less what is planned to the byte):
 * pages of code and tables that only a run touches, of this program, libc, libm, libgomp and PCRE2,
 * and the heap of the libraries. They do not depend on the model or its type. */
static const size_t LIBRARY_BYTES = (size_t)1536 << 10;
static const size_t THREAD_BYTES = (size_t)64
                                   << 10; /* a thread's touched stack, and libgomp's data */
/* Buffers of a checkpoint's file and its manifest (checkpoint.h) and of metrics.jsonl. */
static const size_t SAVE_BYTES = (size_t)1280 << 10;

/* The CPUs that this process may use, which a launcher or a container may have limited. */
int train_threads(const Config *c)
{
    if (c->run_threads > 0) return (int)c->run_threads;
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
    return CPU_COUNT(&set);
}

/* Ranks of one host take consecutive GPUs from run.gpu on, and share its cores. */
void train_take_share(Config *own, const Comm *world, BindShare *out)
{
    bool launched = comm_launched() > 1, bind = own->run_bind == BIND_AUTO;
    int local = comm_local_rank(world);
    bind_share(local, comm_local_ranks(world), launched, bind, out);
    own->run_gpu += local;
    if (own->run_threads == 0) own->run_threads = out->threads;
}

/* All sources must have been prepared with one tokenizer, because another one's ids mean other text.
 * *want: data.tokenizer; { 0 }: it is not set, and *want becomes the sources' tokenizer. */
static Status check_origins(const Config *c, bool is_rank0, Origin *want)
{
    const bool set = want->vocab > 0;
    bool logged = !is_rank0 || !set;
    for (int i = 0; i < c->data_sources.n; i++) {
        Origin have;
        const char *path = c->data_sources.at[i].path;
        TRY(origin_read(path, &have));
        if (have.vocab == 0 && !logged)
            log_info("%s.meta does not exist, so %s.bin cannot be checked against %s", path, path,
                     want->tokenizer);
        logged |= have.vocab == 0;
        if (have.vocab > 0 && want->vocab == 0) *want = have;
        if (have.vocab > 0 && strcmp(have.sum, want->sum) != 0)
            return FAIL(ERR_ARG,
                        "%s.bin was prepared with the tokenizer %s, which is not %s%s: prepare it "
                        "again with switchyard data prepare --tokenizer %s --out %s FILE...",
                        path, have.tokenizer, want->tokenizer, set ? " (data.tokenizer)" : "",
                        want->tokenizer, path);
    }
    return OK;
}

/* Bytes of text of each id of data.tokenizer, and the tokenizer's checksum. */
static Status load_token_bytes(const Config *c, int32_t *bytes, Origin *out)
{
    Tokenizer *t = NULL;
    Arena scratch = { 0 };
    TRY(arena_reserve(&scratch, "tokenizer", (size_t)4 << 30));
    Status s = tokenizer_load(c->data_tokenizer, &scratch, &t);
    if (s == OK) s = origin_of(c->data_tokenizer, tokenizer_vocab(t), out);
    for (int32_t id = 0; s == OK && id < c->model_vocab && id < out->vocab; id++) {
        const char *at = NULL;
        tokenizer_bytes(t, id, &at, &bytes[id]);
    }
    tokenizer_free(t);
    arena_free(&scratch);
    malloc_trim(0); /* its JSON tree was the largest thing on the heap: 29 MB for 128,000 ids */
    return s;
}

Status train_token_bytes(const Config *c, bool is_rank0, Arena *a, const int32_t **out)
{
    const int64_t most = c->model_vocab;
    Origin of = { 0 };
    int32_t *bytes = NULL;
    char have[32], want[32];
    if (c->data_tokenizer[0] != '\0') {
        TRY(ARENA_ZEROED(a, most, &bytes));
        TRY(load_token_bytes(c, bytes, &of));
    }
    TRY(check_origins(c, is_rank0, &of));
    (void)text_thousands(have, of.vocab), (void)text_thousands(want, most);
    if (of.vocab > most)
        return FAIL(ERR_ARG, "the tokenizer %s has %s ids, model.vocab is %s: set model.vocab=%d",
                    of.tokenizer, have, want, of.vocab);
    /* models round their vocabulary up: DeepSeek-V2's by 2,398 of 100,002 ids */
    if (is_rank0 && of.vocab > 0 && most - of.vocab > 128 && most - of.vocab > of.vocab / 16)
        log_warn("the tokenizer %s has %s ids, model.vocab is %s: the rest is never used, and "
                 "model.vocab=%d would do",
                 of.tokenizer, have, want, of.vocab);
    *out = bytes;
    return OK;
}

/* Number of sequences of a step on one data-parallel rank. A rank takes consecutive ones. */
static int64_t own_sequences(const Config *c, const Mesh *m)
{
    return m == NULL ? c->train_batch : c->train_batch / mesh_data_ranks(&m->shape);
}

/* Groups inside hosts and across them: only a hierarchical exchange needs them. */
static Status set_inside(const Config *c, int ranks, MeshShape *out)
{
    int per_host = (int)c->mesh_ranks_per_host;
    ExchangeShape shape;
    if (ranks > 1 && per_host > 0 && ranks % per_host != 0)
        return FAIL(ERR_ARG, "mesh.ranks_per_host %d does not divide the %d ranks", per_host,
                    ranks);
    if (!exchange_kinds[spec_exchange(c, &shape)]->hierarchical) return OK;
    return mesh_inside(out->ep, per_host, &out->inside);
}

/* The batches must divide over data-parallel ranks and micro-batches. mesh_shape has checked the
 * rest. */
Status train_mesh(const Config *c, int ranks, MeshShape *out)
{
    TRY(config_check_ranks(c, ranks));
    TRY(mesh_shape(ranks, (int)c->mesh_pp, (int)config_expert_ranks(c), (int)c->mesh_cp,
                   (int)c->mesh_tp, (int)c->mesh_shard, out));
    TRY(set_inside(c, ranks, out));
    if (c->attention_kind == ATTENTION_GQA && c->attention_kv_heads < c->mesh_tp)
        out->keys = (int)(c->mesh_tp / c->attention_kv_heads);
    out->matrices = optimizer_of(c).rule[0]->whole_matrices;
    if (out->matrices) out->parts = (int)c->mesh_etp;
    return ramp_divides(c, mesh_data_ranks(out), c->train_micro_batch);
}

/* A layer waits for its rows four times in each pass over it, and links between hosts are the slowest. */
static Status warn_of_tensor_hosts(const Config *c, Comm *world, Arena *a)
{
    int each = (int)c->mesh_ranks_per_host;
    if (c->mesh_tp == 1) return OK;
    Status s = each > 0 ? OK : comm_hosts(world, a, &each);
    if (s == ERR_ARG) { /* hosts have different numbers of ranks */
        status_clear();
        each = 1, s = OK;
    }
    if (s == OK && each % c->mesh_tp != 0 && world->rank == 0)
        log_warn("mesh.tp %lld gathers rows in every layer between hosts of %d ranks each; "
                 "`switchyard plan` says what that costs",
                 (long long)c->mesh_tp, each);
    return s;
}

/* moe.exchange=auto takes direct if all ranks of each group of experts are NVIDIA GPUs of one host that reach each other's
 * memory: as many rows travel as with alltoall, in 4 % less time of a step (docs/performance.md, four GPUs). */
static Status choose_direct(Config *own, Comm *world)
{
    ExchangeShape shape;
    bool most = spec_exchange(own, &shape) == EXCHANGE_ALLTOALL && shape.inside == shape.ranks &&
                shape.ranks <= exchange_kinds[EXCHANGE_DIRECT]->ranks_most;
    bool gpus = engine_wants_gpu(own) && gpu_runtime == GPU_RUNTIME_CUDA &&
                gpu_devices() >= comm_local_ranks(world) && gpu_all_reach();
    int32_t lacks = !(most && gpus);
    TRY(agree_most(world, &lacks, 1));
    if (lacks) return OK;
    own->moe_exchange = EXCHANGE_DIRECT;
    if (world->rank == 0)
        log_info("moe.exchange=auto takes direct: the GPUs reach each other's memory");
    return OK;
}

/* Asks for hosts only if the answer matters: with experts over ranks and a kind of exchange that
 * relays, or auto. */
Status train_find_hosts(Config *own, Comm *world, Arena *a)
{
    ExchangeShape shape;
    int each = 1;
    bool asks = own->moe_exchange == EXCHANGE_AUTO;
    TRY(warn_of_tensor_hosts(own, world, a));
    bool hierarchical = !asks && exchange_kinds[spec_exchange(own, &shape)]->hierarchical;
    if (config_expert_ranks(own) == 1 || !(asks || hierarchical)) return OK;
    Status s = own->mesh_ranks_per_host != 0 ? OK : comm_hosts(world, a, &each);
    if (s == ERR_ARG &&
        asks) { /* then each rank counts as a host, so no hierarchical kind is taken */
        log_failure(LOG_INFO, "moe.exchange=auto cannot take a kind that relays: ");
        status_clear();
        s = OK;
    }
    if (s == OK && own->mesh_ranks_per_host == 0) own->mesh_ranks_per_host = each;
    return s == OK && asks ? choose_direct(own, world) : s;
}

Status train_exchange_text(const Config *c, Text *out)
{
    ExchangeShape shape;
    const ExchangeKind best = spec_exchange(c, &shape);
    if (c->moe_exchange != EXCHANGE_AUTO || shape.ranks == 1) return OK;
    TRY(text_printf(
        out,
        "moe.exchange=auto takes %s; rows a token between hosts (each counts as %d) and "
        "inside them:",
        exchange_kinds[best]->name, EXCHANGE_BETWEEN));
    for (int i = 0; i < EXCHANGE_KINDS; i++) {
        const ExchangeVolume v = exchange_kinds[i]->volume(&shape);
        if (!exchange_reaches((ExchangeKind)i, &shape)) continue;
        if (exchange_kinds[i]->hierarchical && shape.uneven) continue;
        TRY(text_printf(out, "%s %s %.2f and %.2f", i == 0 ? "" : ",", exchange_kinds[i]->name,
                        v.between, v.inside));
    }
    if (shape.uneven) return text_printf(out, "; groups of experts lie unevenly on hosts");
    return text_printf(out, "; %" PRId64 " of %" PRId64 " ranks are on each host", shape.inside,
                       shape.ranks);
}

/* Each rank reads a contiguous part of the step's sequences. Ranks of one context group read the
 * same ones. */
Status train_loader_config(const Config *c, const Mesh *mesh, const int32_t *token_bytes, Arena *a,
                           LoaderConfig *out)
{
    if (c->data_sources.n == 0) {
        return FAIL(ERR_ARG, "data.sources is empty: name at least one {name, path} prefix of a "
                             ".bin/.idx pair made by `switchyard data prepare`");
    }
    LoaderSource *sources = NULL;
    TRY(ARENA_NEW(a, c->data_sources.n, &sources));
    for (int i = 0; i < c->data_sources.n; i++) {
        const ConfigSource *s = &c->data_sources.at[i];
        sources[i] = (LoaderSource){
            .name = s->name, .path = s->path, .weight = s->weight, .epochs = s->epochs
        };
    }
    LoaderPhase *phases = NULL;
    BatchRamp *ramp = NULL;
    TRY(ARENA_NEW(a, 1, &ramp));
    *ramp = ramp_of(c);
    TRY(ARENA_NEW(a, c->data_curriculum.n, &phases));
    for (int i = 0; i < c->data_curriculum.n; i++)
        TRY(config_curriculum(c, i, &phases[i].step, phases[i].weight));
    *out =
        (LoaderConfig){ .sources = sources,
                        .n_sources = c->data_sources.n,
                        .phases = phases,
                        .n_phases = c->data_curriculum.n,
                        .sequence = c->data_sequence,
                        .batch = c->train_batch,
                        .ramp = ramp,
                        .first = mesh == NULL ? 0 : own_sequences(c, mesh) * mesh_data_rank(mesh),
                        .own = own_sequences(c, mesh),
                        .vocab = c->model_vocab,
                        .seed = (uint64_t)c->run_seed,
                        .validation = c->data_validation,
                        .shuffle = c->data_shuffle,
                        .depths = (int)c->mtp_layers,
                        .token_bytes = token_bytes };
    return OK;
}

/* Tokens are this rank's (a part of each sequence with context ranks), positions the whole
 * sequence's. */
EngineShape train_shape(const Config *c, const Mesh *m)
{
    return (EngineShape){ .batch = own_sequences(c, m),
                          .micro_batch = c->train_micro_batch,
                          .sequence = c->data_sequence / c->mesh_cp,
                          .mesh = m,
                          .pp_rank = m == NULL ? 0 : m->at.stage,
                          .positions = c->data_sequence,
                          .domains = c->data_sources.n > 0 ? c->data_sources.n : 1,
                          .threads = train_threads(c) };
}

/* Counts the step a second time without recompute, and without the products of Muon's update. */
Status train_model_flops(const Config *c, const EngineShape *shape, const EnginePlan *plan,
                         double *out)
{
    *out = plan->step.flops;
    if (c->recompute_layers.n == 0 && c->optimizer_kind == OPTIMIZER_ADAMW) return OK;
    Config plain = *c;
    plain.recompute_layers.n = 0;
    plain.optimizer_kind = OPTIMIZER_ADAMW;
    EnginePlan without = { 0 };
    TRY(engine_plan(&plain, ENGINE_TRAIN, shape, &without));
    *out = without.step.flops;
    return OK;
}

/* Pairs of a head, over a batch. */
static double hidden_pairs(const AttentionSpec *a, const Batch *b)
{
    const int32_t *doc = b->doc.data, *pos = b->pos.data;
    int64_t pairs = 0;
    for (int64_t i = 0; i < tensor_elems(&b->pos); i++)
        pairs += attention_first_seen(a->window, a->chunk, doc[i], pos[i]) -
                 attention_first_seen(a->window, a->chunk, 0, pos[i]);
    return (double)pairs;
}

/* NULL: no attention of this rank that separates documents. */
static const AttentionSpec *masked(const ModelSpec *s, int layer, int pp_rank)
{
    const LayerSpec *l = &s->layers[layer];
    bool is = l->kind == LAYER_ATTENTION && layer_on(l, pp_rank) && l->as.attention.document_mask;
    return is ? &l->as.attention : NULL;
}

/* Layers with the same limits hide the same pairs: the first of them counts for all. */
double train_hidden_flops(const ModelSpec *s, int pp_rank, const Batch *b)
{
    double flops = 0;
    for (int i = 0; i < s->n_layers; i++) {
        const AttentionSpec *first = masked(s, i, pp_rank);
        int64_t width = 0; /* multiply-adds of a pair, forward and backward */
        for (int j = 0; first != NULL && j < s->n_layers; j++) {
            const AttentionSpec *a = masked(s, j, pp_rank);
            if (a == NULL || a->window != first->window || a->chunk != first->chunk) continue;
            if (j < i) break;
            width += a->heads * (4 * attention_qk_dim(a) + 3 * attention_v_dim(a));
        }
        if (width > 0) flops += 2 * (double)width * hidden_pairs(first, b);
    }
    return flops;
}

/* Without sources (a plan of a model alone) there is nothing to count. */
static Status plan_data(const Config *c, const Mesh *mesh, TrainPlan *p)
{
    if (c->data_sources.n == 0) return OK;
    Arena a = { 0 };
    TRY(arena_reserve(&a, "plan", (size_t)1 << 30));
    LoaderConfig loader;
    Status s = train_loader_config(c, mesh, NULL, &a, &loader);
    if (s == OK) s = loader_plan(&loader, &p->need[NEED_LOADER], &p->need[NEED_DATA]);
    arena_free(&a);
    return s;
}

/* Host memory of an evaluation: its batch, and the bytes of text of each id. */
static Status plan_eval(const Config *c, TrainPlan *p)
{
    Arena count = { 0 };
    Batch batch;
    TRY(arena_init(&count, "evaluation", MEM_COUNT, SIZE_MAX / 2));
    TRY(batch_new(&count, p->shape.micro_batch, c->data_sequence, &batch));
    p->need[NEED_LOADER] += count.peak_bytes;
    if (c->data_tokenizer[0] != '\0') {
        p->need[NEED_LOADER] += arena_rounded((size_t)c->model_vocab * sizeof(int32_t));
    }
    return OK;
}

/* Host memory at the peak of the run. The measurement of peak FLOP/s comes first and frees its memory, so
 * the larger of the two counts. */
static size_t total_bytes(const TrainPlan *p)
{
    size_t sum = p->need[NEED_LOADER] + p->need[NEED_DATA] + p->need[NEED_SAVE] +
                 p->need[NEED_PEER] + train_host_bytes(&p->engine);
    return p->need[NEED_LIBRARIES] + (sum > p->need[NEED_PROBE] ? sum : p->need[NEED_PROBE]);
}

/* Counts of the whole model, independent of the mesh. */
typedef struct Whole {
    int64_t params, active, frozen;
} Whole;

static Status count_whole(const Config *c, Whole *out)
{
    Config alone = *c;
    ModelSpec spec;
    ParamTable table;
    Arena a = { 0 };
    config_alone(&alone);
    TRY(arena_reserve(&a, "parameters", (size_t)4 << 30));
    Status s = spec_build(&alone, &a, &spec);
    if (s == OK) s = params_build(&spec, 0, NULL, &a, &table);
    if (s == OK) s = params_check_frozen(&spec, &table);
    if (s == OK) *out = (Whole){ table.total, table.active, table.frozen };
    arena_free(&a);
    return s;
}

/* The plans that a search for a capacity changes, and what they must fit into. */
typedef struct CapacityPlan {
    const Config *c;
    EngineShape *shape;
    EnginePlan *plan, *retry;
    const GpuPlan *gpu;
    uint64_t here, beside; /* ranks of this host; bytes of each in addition to its engine */
    uint64_t taken;        /* bytes that each rank already takes of the host */
    Comm *world;           /* all its ranks must fit; NULL: this rank */
} CapacityPlan;

/* Plans both modes for a capacity. */
static Status plan_capacity(CapacityPlan *p, const RowCapacity *capacity)
{
    p->shape->capacity = *capacity;
    p->shape->retry = NULL;
    TRY(engine_plan(p->c, ENGINE_TRAIN, p->shape, p->plan));
    return engine_plan_retry(p->c, p->shape, p->plan, p->retry);
}

/* Share of a GPU's memory that a chosen capacity leaves free. A plan leaves as much by default (plan.margin). */
static const double MARGIN = 0.05;

/* Does a capacity fit on all ranks? They agree here, so that all search the same way. */
static Status capacity_fits(void *self, const RowCapacity *capacity, bool *fits)
{
    CapacityPlan *p = self;
    TRY(plan_capacity(p, capacity));
    uint64_t host = p->beside + train_host_bytes(p->plan), taken = p->taken;
    bool there = host <= taken || train_host_has(p->here * (host - taken));
    int32_t lacks = !(p->plan->apart ? train_gpu_has(p->gpu, p->plan, MARGIN) : there);
    if (p->world != NULL) TRY(agree_most(p->world, &lacks, 1));
    *fits = !lacks;
    return OK;
}

/* Plans once to find out what is needed, asks the GPU, then searches for the largest capacity that
 * fits. */
Status train_plan_engine(const Config *c, int here, size_t beside, EngineShape *shape,
                         EnginePlan *plan, EnginePlan *retry, GpuPlan *gpu)
{
    CapacityPlan p = { c, shape, plan, retry, gpu, (uint64_t)here, beside, 0, NULL };
    RowCapacity capacity = shape->capacity;
    TRY(plan_capacity(&p, &capacity));
    TRY(train_plan_gpu(c, shape, plan, gpu));
    if (shape->retry == NULL) return OK;
    TRY(capacity_choose(c, config_expert_ranks(c), capacity_fits, &p, &capacity));
    TRY(plan_capacity(&p, &capacity));
    return train_plan_gpu(c, shape, plan, gpu);
}

/* The GPU is probed in train_plan_engine: everything before it needs no device. */
Status train_plan(const Config *c, const Mesh *mesh, int here, TrainPlan *out)
{
    Whole whole;
    TrainPlan p = { .shape = train_shape(c, mesh), .need = { [NEED_SAVE] = SAVE_BYTES } };
    p.need[NEED_LIBRARIES] = LIBRARY_BYTES + (size_t)p.shape.threads * THREAD_BYTES;
    TRY(plan_data(c, mesh, &p));
    TRY(plan_eval(c, &p));
    TRY(peak_plan(c, p.shape.threads, &p.need[NEED_PROBE]));
    size_t beside =
        p.need[NEED_LOADER] + p.need[NEED_SAVE] + p.need[NEED_LIBRARIES]; /* of the host */
    TRY(train_plan_engine(c, here, beside, &p.shape, &p.engine, &p.retry, &p.gpu));
    TRY(train_model_flops(c, &p.shape, &p.engine, &p.model_flops));
    p.need[NEED_SAVE] += p.engine.save_bytes;
    p.need[NEED_PEER] = p.engine.peer_bytes;
    TRY(count_whole(c, &whole));
    p.engine.params_total = whole.params;
    p.engine.params_active = whole.active;
    p.engine.params_frozen = whole.frozen;
    p.total_bytes = total_bytes(&p);
    *out = p;
    if (p.shape.retry != NULL) out->shape.retry = &out->retry;
    return OK;
}

/* The smaller of two capacities, where 0 means all rows. */
static double smaller_capacity(double a, double b) { return a == 0 || (b > 0 && b < a) ? b : a; }

/* Ranks may have planned different capacities, because hosts differ in free memory. All take the
 * smallest of each. */
Status train_agree_capacity(const Config *c, Comm *world, TrainPlan *p)
{
    RowCapacity *all = NULL, *mine = &p->shape.capacity, capacity = *mine;
    Arena a = { 0 };
    Status s = agree_status(world, arena_init(&a, "capacities", MEM_HOST, (size_t)64 << 20));
    if (s == OK) s = ARENA_NEW(&a, world->size, &all);
    Tensor in = { mine, DTYPE_U8, 1, { sizeof capacity } };
    Tensor out = { all, DTYPE_U8, 1, { (int64_t)sizeof capacity * world->size } };
    if (s == OK) s = comm_all_gather(world, &in, &out);
    for (int i = 0; i < world->size && s == OK; i++) {
        capacity.pool = smaller_capacity(capacity.pool, all[i].pool);
        capacity.rows = smaller_capacity(capacity.rows, all[i].rows);
        capacity.blocks = smaller_capacity(capacity.blocks, all[i].blocks);
    }
    arena_free(&a);
    if (s != OK || capacity_same(&capacity, mine)) return s;
    CapacityPlan retry = { .c = c, .shape = &p->shape, .plan = &p->engine, .retry = &p->retry };
    TRY(plan_capacity(&retry, &capacity));
    p->total_bytes = total_bytes(p);
    return train_plan_gpu(c, &p->shape, &p->engine, &p->gpu);
}

/* Plans on a copy: *p changes only if a larger capacity fits on all ranks. */
Status train_grow_capacity(const Config *c, Comm *world, Shortage of, TrainPlan *p, bool *grown)
{
    TrainPlan larger = *p;
    RowCapacity capacity;
    CapacityPlan with = { .c = c,
                          .shape = &larger.shape,
                          .plan = &larger.engine,
                          .retry = &larger.retry,
                          .gpu = &larger.gpu,
                          .here = world == NULL ? 1 : (uint64_t)comm_local_ranks(world),
                          .taken = train_host_bytes(&p->engine),
                          .world = world };
    TRY(capacity_grow(c, &p->shape.capacity, of, capacity_fits, &with, &capacity));
    *grown = !capacity_same(&capacity, &p->shape.capacity);
    if (!*grown) return OK;
    larger.total_bytes = total_bytes(&larger);
    *p = larger;
    p->shape.retry = &p->retry;
    return OK;
}

Status train_capacity_text(const EngineShape *shape, const EnginePlan *plan, Text *out)
{
    char bytes[32], rows[64];
    const RowCapacity *capacity = &shape->capacity;
    if (shape->retry == NULL) return OK;
    return text_printf(out,
                       "pools for %g times the balanced number of rows keep what backward needs, "
                       "%s; buffers of a layer have room for %s",
                       capacity->pool, text_bytes(bytes, (double)plan->pool_bytes),
                       capacity_rows_text(capacity, rows));
}

int64_t train_aux_sequences(const Config *c, int64_t data_ranks)
{
    if (c->moe_aux_scope == AUX_SEQUENCE) return 1;
    return c->train_micro_batch * (c->moe_aux_scope == AUX_GLOBAL ? data_ranks : 1);
}
