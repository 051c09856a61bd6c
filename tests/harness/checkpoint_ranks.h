/* checkpoint_ranks: ranks as threads that save and load checkpoints of a state whose elements say their
 * own places. */
#ifndef TESTS_HARNESS_CHECKPOINT_RANKS_H
#define TESTS_HARNESS_CHECKPOINT_RANKS_H

#include "harness/many.h"

#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/checkpoint_folder.h"
#include "engine/checkpoint/manifest.h"

static const double TIMEOUT_S = 100;

#define EXPECT(cond)                                                                               \
    do {                                                                                           \
        if (!(cond)) return FAIL(ERR_NUMERIC, "line %d: %s", __LINE__, #cond);                     \
    } while (0)

/* A rank of a run, and what it does. */
typedef struct Rank {
    ManyRank many;
    Tiny *t;
    Checkpointer saver;
    Arena scratch;
    Comm *world;
    const char *dir;
    StepResult *last;
} Rank;

typedef Status Body(Rank *r);

typedef struct Case {
    const ManyCase *layout;
    const char *dir, *more;
    ParamCut cut;
    bool apart; /* each rank in a folder of its own */
    Body *body;
    StepResult *last; /* of each rank's training */
} Case;

static inline Status rank_open(Rank *r, const Case *c)
{
    char dir[96];
    const char *const all[] = { "run.threads=1", "moe.bias_rate=0.01", "train.micro_batch=1", dir,
                                c->more };
    ManyCase what = *c->layout;
    int n = 0;
    (void)snprintf(dir, sizeof dir, "run.dir=%s", c->dir);
    if (c->apart) (void)snprintf(dir, sizeof dir, "run.dir=%s/%d", c->dir, r->world->rank);
    while (what.settings[n] != NULL) n++;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) what.settings[n++] = all[i];
    TRY(arena_init(&r->scratch, "scratch", MEM_HOST, (size_t)1 << 28));
    r->many.cut = c->cut;
    return many_open(&r->many, &what, r->world);
}

static inline Status be_rank(void *state, Comm *world)
{
    const Case *c = state;
    Rank r = { .world = world, .dir = c->dir, .t = &r.many.t, .last = c->last };
    Status s = rank_open(&r, c);
    if (s == OK) s = c->body(&r);
    checkpointer_close(&r.saver);
    many_close(&r.many);
    arena_free(&r.scratch);
    return s;
}

static inline Status run_case(Case c)
{
    int failed = -1;
    if (c.more == NULL) c.more = "moe.shared=1";
    return comm_threads(c.layout->ranks, TIMEOUT_S, be_rank, &c, &failed);
}

#define RUN_CASE(...) CHECK_OK(run_case((Case){ __VA_ARGS__ }))

static inline float value_of(const Param *p, ParamBuffer b, int64_t i, int64_t step)
{
    return (float)((rng_stream(p->name) >> 44) + (uint64_t)b * 77 + (uint64_t)step) + (float)i / 64;
}

/* Moments went through bf16 on their way here. */
static bool rounded;

static inline void put(const Tensor *t, int64_t i, float value)
{
    if (t->dtype == DTYPE_BF16)
        ((uint16_t *)t->data)[i] = bf16_from_f32(value);
    else
        ((float *)t->data)[i] = value;
}

static inline float get(const Tensor *t, int64_t i)
{
    return t->dtype == DTYPE_BF16 ? f32_from_bf16(((const uint16_t *)t->data)[i])
                                  : ((const float *)t->data)[i];
}

static inline void put_state(Engine *e, int64_t step)
{
    for (int k = 0; k < e->params.table.n * CHECKPOINT_BUFFERS; k++) {
        const Param *p = &e->params.table.at[k / CHECKPOINT_BUFFERS];
        ParamBuffer b = checkpoint_buffer(k % CHECKPOINT_BUFFERS);
        ParamPiece piece = param_piece(&e->params.table, p, &e->params.memory, b);
        for (int64_t i = 0; i < piece_elems(&piece.in); i++)
            put(&piece.at, i, value_of(p, b, piece_element(&piece.in, i), step));
    }
}

static inline Status expect_state(const Engine *e, int64_t step)
{
    for (int k = 0; k < e->params.table.n * CHECKPOINT_BUFFERS; k++) {
        const Param *p = &e->params.table.at[k / CHECKPOINT_BUFFERS];
        ParamBuffer b = checkpoint_buffer(k % CHECKPOINT_BUFFERS);
        ParamPiece piece = param_piece(&e->params.table, p, &e->params.memory, b);
        bool low = rounded && (buffer_is_optimizers(b));
        for (int64_t i = 0; i < piece_elems(&piece.in); i++) {
            float want = value_of(p, b, piece_element(&piece.in, i), step);
            if (low) want = f32_from_bf16(bf16_from_f32(want));
            if (get(&piece.at, i) == want) continue;
            return FAIL(ERR_NUMERIC, "%s (%s), element %lld is %g", p->name,
                        buffer_desc(&optimizer_adamw, b).name,
                        (long long)piece_element(&piece.in, i), (double)get(&piece.at, i));
        }
    }
    return OK;
}

static inline Status save_step(Rank *r, int64_t step)
{
    put_state(&r->t->engine, step);
    TRY(checkpoint_save(&r->saver, step, (uint64_t)step * 4));
    put_state(&r->t->engine, -step); /* training goes on while it is written */
    return checkpoint_finish(&r->saver);
}

static inline Status save_two(Rank *r)
{
    TRY(checkpointer_open(&r->saver, &r->t->config, &r->t->engine.params, &r->t->arena));
    TRY(save_step(r, 1));
    return save_step(r, 2);
}

static inline Status expect_loaded(Rank *r, int64_t step)
{
    CheckpointInfo info;
    put_state(&r->t->engine, 100);
    TRY(checkpoint_load_newest(&r->t->engine.params, r->t->config.run_dir, NULL, &r->scratch,
                               &info));
    EXPECT(info.step == step && info.position == (uint64_t)step * 4);
    return expect_state(&r->t->engine, step);
}

static inline Status expect_one(Rank *r) { return expect_loaded(r, 1); }
static inline Status expect_two(Rank *r) { return expect_loaded(r, 2); }

#endif
