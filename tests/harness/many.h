/*
 * many: the tiny model (tiny.h) on many ranks, beside one rank that does all of it.
 *
 * Every rank runs the reference first, alone and on the same global batches, then its part of the
 * mesh, and compares what it holds: so the same test runs over threads, processes and GPUs.
 */
#ifndef TESTS_HARNESS_MANY_H
#define TESTS_HARNESS_MANY_H

#include "harness/param_view.h"
#include "harness/tiny.h"

#include "harness/sink_terms.h"
#include "harness/ties.h"

#include "engine/backend/backend.h"

#include "engine/step/copies.h"
#include "engine/step/shards.h"
#include "engine/train/train.h"

/* A sanitizer watches how memory and threads are used, and that is alike from the second step on. */
enum { MANY_STEPS = RUNS(10, 2) };
/* Gates on attention, as Qwen3-Next has them. */
#define GATE "attention.qk_norm=rms", "attention.gate=true", "attention.rotary=0.5"
/* Gated delta nets in two of three blocks. */
#define DELTA                                                                                      \
    "delta.full_every=3", "delta.key_heads=2", "delta.heads=4", "delta.key_dim=6",                 \
        "delta.value_dim=5", "model.norm_eps=0.01"

enum { MANY_SETTINGS = 56, MANY_MORE = 16 };

typedef struct ManyCase {
    const char *name;
    int ranks;
    const char *settings[MANY_SETTINGS]; /* of model and mesh; the one rank gets mesh.* = 1 */
} ManyCase;

typedef struct Many {
    const ManyCase *what;
    int steps;
    double limit;            /* of relative differences */
    double whole;            /* above 0: that of gradients that every rank holds whole */
    double cosine;           /* above 0: gradients are as close as that instead */
    const char *const *also; /* more settings, of mesh and lone rank; NULL: none */
    ParamCut cut;            /* of the mesh's buckets */
    const char *const *lone; /* instead of these, those of the lone rank; NULL: the same */
    /* Steps whose routes must be the same; after them a rounding may send a token elsewhere, and as
     * two trainings are then compared, that is the end of it. 0: all. */
    int alike;
    /* Every so many steps the mesh takes over the weights and moments of the lone rank, and gradients
     * are compared; 0: once, at the beginning. Roundings differ from rank to rank, and a training lets
     * a difference grow without a bound: what a mesh promises holds for steps from equal weights. */
    int afresh;
} Many;

/* One rank's share of a tiny model. */
typedef struct ManyRank {
    Tiny t;
    Mesh mesh;
    ParamCut cut; /* of the mesh's buckets */
    ParamShards shards;
    EnginePlan again;
    Batch own;
    Ties ties;               /* how close its routes came to a tie */
    SinkTerms sinks;         /* of the running step */
    const char *const *also; /* set before it is opened, as is the number of its GPU */
    int device;
} ManyRank;

/* The settings, those of a lone rank behind them, and at last `also`. */
static inline void many_settings(const ManyCase *c, bool alone, const char *const *also,
                                 const char *out[MANY_SETTINGS + MANY_MORE])
{
    static const char *const one[] = { "mesh.pp=1",    "mesh.vpp=1",   "mesh.ep=1",
                                       "mesh.etp=1",   "mesh.cp=1",    "mesh.schedule=1f1b",
                                       "mesh.layout=", "mesh.shard=0", "mesh.tp=1" };
    int n = 0;
    for (; n < MANY_SETTINGS && c->settings[n] != NULL; n++) out[n] = c->settings[n];
    for (size_t i = 0; alone && i < sizeof one / sizeof *one; i++) out[n++] = one[i];
    for (int i = 0; also != NULL && also[i] != NULL; i++) out[n++] = also[i];
    out[n] = NULL;
}

/* Sequences [first, first + n) of the global batch. */
static inline Batch many_rows(const Batch *b, int64_t first, int64_t n, int64_t seq)
{
    Batch out = *b;
    out.id = tensor_rows(&b->id, first * seq, n * seq);
    out.target = tensor_rows(&b->target, first * seq, n * seq);
    out.pos = tensor_rows(&b->pos, first * seq, n * seq);
    out.doc = tensor_rows(&b->doc, first, n);
    out.domain = tensor_rows(&b->domain, first, n);
    for (int d = 0; d < b->depths; d++) {
        out.next[d].id = tensor_rows(&b->next[d].id, first * seq, n * seq);
        out.next[d].target = tensor_rows(&b->next[d].target, first * seq, n * seq);
    }
    return out;
}

/* Fails through Status: threads other than the test's own cannot fail a test. */
static inline Status many_open(ManyRank *r, const ManyCase *c, Comm *world)
{
    const char *set[MANY_SETTINGS + MANY_MORE];
    Tiny *t = &r->t;
    MeshShape shape;
    many_settings(c, world == NULL, r->also, set);
    TRY(arena_init(&t->arena, "tiny", MEM_HOST, (size_t)1 << 30));
    TRY(config_default(&t->config, &t->arena));
    for (size_t i = 0; i < sizeof tiny_base / sizeof *tiny_base; i++) {
        TRY(config_override(&t->config, &t->arena, tiny_base[i]));
    }
    for (int i = 0; set[i] != NULL; i++) TRY(config_override(&t->config, &t->arena, set[i]));
    TRY(config_check(&t->config));
    TRY(config_check_ops(&t->config, world == NULL ? 1 : world->size));
    if (gpu_devices() > 0) t->config.run_gpu = r->device % gpu_devices();
    const Config *k = &t->config;
    TRY(train_mesh(k, world == NULL ? 1 : world->size, &shape));
    if (world != NULL) TRY(mesh_make(world, &shape, false, &t->arena, &r->mesh));
    t->shape = (EngineShape){ .batch = k->train_batch / (shape.shard * shape.replicate),
                              .micro_batch = k->train_micro_batch,
                              .sequence = k->data_sequence / shape.cp,
                              .positions = k->data_sequence,
                              .domains = 2,
                              .threads = 1,
                              .pp_rank = world == NULL ? 0 : r->mesh.at.stage,
                              .mesh = world == NULL ? NULL : &r->mesh };
    if (world != NULL && r->cut != CUT_ELEMENTS) {
        r->shards = shards_of(k, &r->mesh);
        r->shards.cut = r->cut;
        t->shape.shards = &r->shards;
    }
    TRY(engine_plan(k, ENGINE_TRAIN, &t->shape, &t->plan));
    TRY(engine_plan_retry(k, &t->shape, &t->plan, &r->again));
    TRY(engine_open(&t->engine, k, ENGINE_TRAIN, &t->shape, &t->plan));
    TRY(engine_prepare(&t->engine, NULL));
    TRY(engine_init_weights(&t->engine.params, 42));
    TRY(batch_new_deep(&t->arena, k->train_batch, k->data_sequence, (int)k->mtp_layers, &t->batch));
    int64_t d = world == NULL ? 0 : r->mesh.at.replica * shape.shard + r->mesh.at.shard;
    r->own = many_rows(&t->batch, d * t->shape.batch, t->shape.batch, k->data_sequence);
    return OK;
}

/* Other room for rows between two steps. */
static inline Status many_resize(ManyRank *r, const RowCapacity *room)
{
    Tiny *t = &r->t;
    t->shape.capacity = *room, t->shape.retry = NULL;
    TRY(engine_plan(&t->config, ENGINE_TRAIN, &t->shape, &t->plan));
    TRY(engine_plan_retry(&t->config, &t->shape, &t->plan, &r->again));
    return engine_resize(&t->engine, &t->shape, &t->plan);
}

static inline void many_close(ManyRank *r)
{
    engine_close(&r->t.engine);
    mesh_free(&r->mesh);
    arena_free(&r->t.arena);
    *r = (ManyRank){ 0 };
}

static inline void many_batch(ManyRank *r, int64_t step)
{
    EngineShape local = r->t.shape;
    r->t.shape.sequence = r->t.config.data_sequence; /* batches are made whole */
    tiny_batch(&r->t, step);
    r->t.shape = local;
}

static inline Status many_step(ManyRank *r, int64_t step, StepResult *out)
{
    many_batch(r, step);
    r->own.targets = r->t.batch.targets;
    for (int d = 0; d < r->own.depths; d++) r->own.next[d].targets = r->t.batch.next[d].targets;
    return engine_step(&r->t.engine, &r->own, 1e-2, step + 1, out);
}

/* What this rank has of a parameter's gradient after it was added over the ranks. */
static inline ParamPiece many_gradient(const Engine *e, const Param *p)
{
    const ParamTable *t = &e->params.table;
    ParamPiece none = { 0 };
    if (p->first[BUF_GRAD] < 0) return none;
    const ParamBucket *k = &t->bucket[p->bucket];
    ParamPiece all = param_piece(t, p, &e->params.memory, BUF_GRAD);
    if (t->sharded[BUF_GRAD] || t->shards.zero == 0 || k->ranks == 1) return all;
    int64_t own = bucket_cut(k, k->own), behind = bucket_cut(k, k->own + 1);
    int64_t at = p->first[BUF_GRAD] - k->first, n = param_elems(p);
    int64_t first = at > own ? at : own, end = at + n < behind ? at + n : behind;
    if (first >= end) return none;
    Tensor flat = tensor_rows(&e->params.memory.buffer[BUF_GRAD], k->first + first, end - first);
    const Piece part = param_part(p);
    return (ParamPiece){ piece_part(&part, first - at, end - first), flat };
}

static inline const Param *many_find(const Engine *e, const char *name)
{
    for (int i = 0; i < e->params.table.n; i++) {
        if (strcmp(e->params.table.at[i].name, name) == 0) return &e->params.table.at[i];
    }
    return NULL;
}

/* Elements that may lie on a GPU, in host memory of `a`. */
static inline Status many_floats(Engine *e, const Tensor *t, Arena *a, float **out)
{
    size_t bytes = tensor_bytes(t), most = engine_piece_bytes(&e->arenas);
    TRY(ARENA_NEW(a, tensor_elems(t), out));
    for (size_t at = 0; at < bytes; at += most) {
        const void *piece = NULL;
        size_t n = bytes - at < most ? bytes - at : most;
        TRY(engine_get(&e->arenas, (char *)t->data + at, n, &piece));
        memcpy((char *)*out + at, piece, n);
        if (n < most) break;
    }
    return OK;
}

/* rounding: what f32 allows beside the limit (sink_terms.h). */
static inline Status many_same_gradient(const Many *m, const Param *p, const float *have,
                                        const ParamPiece *piece, const float *want, double rounding)
{
    double square = 0, own = 0, dot = 0, mine = 0, error = 0;
    for (int64_t k = 0; k < param_elems(p); k++) square += (double)want[k] * (double)want[k];
    for (int64_t k = 0; k < piece_elems(&piece->in); k++) {
        double x = (double)have[k], y = (double)want[piece_element(&piece->in, k)];
        error += (x - y) * (x - y), dot += x * y, own += x * x, mine += y * y;
    }
    /* of the same length, too: nothing points everywhere */
    bool long_enough = fabs(sqrt(own) - sqrt(mine)) <= fmax(0.1, 1 - m->cosine) * sqrt(mine);
    /* a part may be one small element, as a head's sink: its error is small beside the parameter */
    bool part = piece_elems(&piece->in) < param_elems(p);
    bool small = part && sqrt(error) <= fmax(0.5 * (1 - m->cosine), 0.005) * sqrt(square);
    double limit = m->whole > 0 && p->keep_f32 ? m->whole : m->limit;
    bool close = m->cosine > 0 ? small || (long_enough && dot >= m->cosine * sqrt(own * mine))
                               : sqrt(error) <= limit * sqrt(square) + 1e-9 + rounding;
    if (close) return OK;
    return FAIL(ERR_NUMERIC, "gradient of %s [%lld, +%lld): off by %g of %g, cosine %.6f", p->name,
                (long long)piece->in.first, (long long)piece->in.n, sqrt(error), sqrt(square),
                dot / sqrt(own * mine));
}

/* Each parameter's gradient here beside the lone rank's, relative to that parameter's norm. */
static inline Status many_same_gradients(const Many *m, Tiny *one, const SinkTerms *sinks,
                                         Engine *e)
{
    for (int i = 0; i < e->params.table.n; i++) {
        const Param *p = &e->params.table.at[i], *q = many_find(&one->engine, p->name);
        float *have = NULL, *want = NULL;
        if (q == NULL) return FAIL(ERR_NUMERIC, "one rank has no %s", p->name);
        ParamPiece piece = many_gradient(e, p);
        if (piece_elems(&piece.in) == 0) continue;
        ArenaMark mark = arena_mark(&one->arena);
        Tensor whole = param_view(q, &one->engine.params.memory, BUF_GRAD);
        TRY(many_floats(e, &piece.at, &one->arena, &have));
        TRY(many_floats(&one->engine, &whole, &one->arena, &want));
        TRY(many_same_gradient(m, q, have, &piece, want, sink_terms_rounding(sinks, whole.data)));
        arena_release(&one->arena, mark);
    }
    return OK;
}

static inline Status many_same(const char *what, int64_t step, double have, double want,
                               double limit)
{
    if (fabs(have - want) <= limit * fabs(want)) return OK;
    return FAIL(ERR_NUMERIC, "step %lld: %s %.9g, one rank has %.9g", (long long)step, what, have,
                want);
}

/* Weights, moments and state of the lone rank, as far as this rank holds them. Of the CPU alone. */
static inline Status many_take_over(const Engine *one, Engine *e)
{
    static const ParamBuffer buffers[] = { BUF_MAIN, BUF_OPTIMIZER, BUF_OPTIMIZER + 1, BUF_STATE };
    for (int i = 0; i < e->params.table.n * 4; i++) {
        ParamBuffer b = buffers[i % 4];
        const Param *p = &e->params.table.at[i / 4], *q = many_find(one, p->name);
        if (p->first[b] < 0) continue;
        ParamPiece piece = param_piece(&e->params.table, p, &e->params.memory, b);
        const Tensor from = param_view(q, &one->params.memory, b);
        for (int64_t k = 0, n = 0, all = piece_elems(&piece.in); k < all; k += n) {
            n = piece_run(&piece.in, k);
            memcpy(tensor_at(&piece.at, k), tensor_at(&from, piece_element(&piece.in, k)),
                   (size_t)n * dtype_bytes(from.dtype));
        }
    }
    return copies_refresh(&e->params);
}

static inline Status many_same_step(const Many *m, int64_t i, const ManyRank *one,
                                    const StepResult *have, const StepResult *want)
{
    for (int l = 0; want->dropped != NULL && m->cosine == 0 && l < one->t.engine.spec.n_moe; l++)
        TRY(many_same("dropped", i, have->dropped[l], want->dropped[l], 0));
    TRY(many_same("loss", i, have->loss, want->loss, m->limit));
    TRY(many_same("auxiliary loss", i, have->aux_loss, want->aux_loss, m->limit));
    for (int d = 0; d < CONFIG_DEPTHS_MAX; d++)
        TRY(many_same("loss of a depth", i, have->next_loss[d], want->next_loss[d], m->limit));
    for (int l = 0; l < one->t.engine.spec.n_moe; l++)
        TRY(many_same("router z", i, (double)have->router_z[l], (double)want->router_z[l],
                      m->limit));
    const Config *c = &one->t.config;
    if (c->optimizer_qk_clip > 0 && c->init_frozen.n == 0 && i == 0 && want->clipped == 0)
        return FAIL(ERR_NUMERIC, "QK-clip clips no head");
    TRY(many_same("clipped heads", i, (double)have->clipped, (double)want->clipped, 0));
    TRY(many_same("largest logit", i, have->logit, want->logit, m->limit));
    return OK;
}

/* Norms by group, as close as the gradients that they are of. */
static inline Status many_same_norms(const Many *m, int64_t i, const StepResult *have,
                                     const StepResult *want)
{
    double limit = m->cosine > 0 ? fmax(0.1, 1 - m->cosine) : fmax(m->limit, m->whole);
    TRY(many_same("gradient norm", i, have->grad_norm, want->grad_norm, m->limit));
    for (int g = 0; g < GRAD_GROUPS; g++)
        TRY(many_same(grad_group_names[g], i, have->group_norm[g], want->group_norm[g], limit));
    return OK;
}

/* Where loads differ the lone rank must have had a tie. A step with a tie cannot be compared; after
 * it the mesh starts afresh. Two such steps are no chance. */
static inline Status many_compare(const Many *m, ManyRank *one, ManyRank *r)
{
    int ties = 0;
    for (int64_t i = 0; i < m->steps; i++) {
        StepResult want, have;
        one->ties.closest = INFINITY;
        one->sinks.layers = 0;
        TRY(many_step(one, i, &want));
        TRY(many_step(r, i, &have));
        bool equal = i == 0 || (m->afresh > 0 && i % m->afresh == 0); /* weights before the step */
        bool starts = m->afresh > 0 && (i + 1) % m->afresh == 0;
        bool routed =
            one->t.engine.spec.n_moe == 0 || m->cosine > 0 ||
            memcmp(want.load, have.load, tensor_bytes(&one->t.engine.io.record.load)) == 0;
        if (!routed && m->alike > 0 && i >= m->alike) return OK;
        if (!routed && (m->afresh == 0 || one->ties.closest > TIE || ++ties > 1))
            return FAIL(ERR_NUMERIC,
                        "step %lld: experts' loads differ; one rank's closest scores are %g apart",
                        (long long)i, one->ties.closest);
        if (routed) TRY(many_same_step(m, i, one, &have, &want));
        if (routed && equal) {
            TRY(many_same_norms(m, i, &have, &want));
            TRY(many_same_gradients(m, &one->t, &one->sinks, &r->t.engine));
        }
        if (starts || !routed) TRY(many_take_over(&one->t.engine, &r->t.engine));
    }
    return OK;
}

/* An evaluation beside the lone rank's: of each sequence a context rank has two pieces. */
static inline Status many_evaluate(const Many *m, ManyRank *one, ManyRank *r)
{
    const float *want = NULL, *have = NULL;
    int64_t n = r->t.shape.micro_batch, seq = r->t.config.data_sequence, t = r->t.shape.sequence;
    many_batch(r, 0);
    Batch some = many_rows(&r->t.batch, 0, n, seq);
    TRY(engine_losses(&one->t.engine, &some, &want));
    TRY(engine_losses(&r->t.engine, &some, &have));
    for (int64_t i = 0; i < n * t && have != NULL && m->cosine == 0; i++) {
        int64_t at = i % t, half = t / 2, cp = r->mesh.shape.cp, rank = r->mesh.at.cp;
        if (cp > 1) at = at % half + half * (at < half ? rank : 2 * cp - 1 - rank);
        TRY(many_same("evaluated loss", i, have[i], want[i / t * seq + at], m->limit));
    }
    return OK;
}

/* Planned bytes are used bytes, with an evaluation, which may take the most of the first slot; but
 * where steps may run twice what they take then is planned. */
static inline Status many_as_planned(ManyRank *r)
{
    for (int a = 0; a < ENGINE_ARENAS; a++) {
        size_t used = engine_peak_bytes(&r->t.engine, (EngineArena)a), planned = r->t.plan.bytes[a];
        if (used == planned || r->t.shape.retry != NULL) continue;
        return FAIL(ERR_NUMERIC, "%s: %zu bytes, planned %zu", engine_arena_names[a], used,
                    planned);
    }
    return OK;
}

/* The body of a rank: m->what on the world beside one rank. */
static inline Status many_run(void *state, Comm *world)
{
    const Many *m = state;
    ManyRank one = { .also = m->also, .device = world->rank }, r = one;
    if (m->lone != NULL) one.also = m->lone;
    r.cut = m->cut;
    Status s = many_open(&one, m->what, NULL);
    if (s == OK) s = many_open(&r, m->what, world);
    if (s == OK) ties_watch(&one.ties, &one.t.engine.ex);
    if (s == OK) sink_terms_watch(&one.sinks, &one.t.engine.ex);
    if (s == OK) s = many_evaluate(m, &one, &r);
    if (s == OK) s = many_compare(m, &one, &r);
    if (s == OK && !r.t.engine.ex.backend->apart) s = many_as_planned(&r);
    many_close(&r);
    many_close(&one);
    return s;
}

#endif
