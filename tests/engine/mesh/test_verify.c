/* run.verify_every: a flipped bit on one of several ranks is found and the rank is named, nothing of its step is
 * kept, and a run without faults has the bits of one that is not verified. */
#include "engine/step/verify.h"
#include "harness/flip.h"
#include "harness/many.h"

enum { RANKS = 4, CULPRIT = 2, STEPS = 4, EVERY = 2 };

#define DENSE    "model.dense_layers=3", "model.layers=3", "train.batch=8", "train.micro_batch=1"
#define EXPERTS  "moe.experts=8", "model.layers=4", "train.batch=8", "train.micro_batch=1"
#define VERIFIED "run.verify_every=2"

static const ManyCase plain[] = {
    { "dp 4, zero 0", RANKS, { DENSE, "mesh.zero=0" } },
    { "dp 4, zero 1", RANKS, { DENSE, "mesh.zero=1" } },
    { "dp 4, zero 2", RANKS, { DENSE, "mesh.zero=2" } },
    { "dp 4, zero 3", RANKS, { DENSE, "mesh.zero=3" } },
    { "two replicas of two", RANKS, { DENSE, "mesh.zero=3", "mesh.shard=2" } },
    { "four replicas", RANKS, { DENSE, "mesh.zero=1", "mesh.shard=1" } },
    { "experts, bf16 sums", RANKS, { EXPERTS, "mesh.zero=2", "mesh.reduce=bf16" } },
};
enum { PLAIN = sizeof plain / sizeof *plain };

typedef struct Turn {
    const ManyCase *what;
    int nth; /* the call of the op whose output is flipped */
    const char *op;
    bool differs[RANKS], same_state[RANKS];
    char why[RANKS][1024];
} Turn;

/* b takes the steps before the verified one without a fault, as a does. */
static Status flipped_step(Turn *t, ManyRank *a, ManyRank *b, int rank)
{
    StepResult x, y;
    Flip f;
    TRY(many_step(a, 0, &x));
    TRY(many_step(b, 0, &y));
    if (rank == CULPRIT) flip_push(&a->t.engine.ex, &f, t->op, t->nth);
    TRY(many_step(a, 1, &x));
    if (rank == CULPRIT) exec_pop(&a->t.engine.ex);
    t->differs[rank] = x.differs;
    t->same_state[rank] = tiny_same_state(&a->t, &b->t); /* b has not taken the step */
    if (!x.differs) return OK;
    if (verify_explain(&a->t.engine, 2) != ERR_NUMERIC) return FAIL(ERR_ARG, "no explanation");
    status_sentence(t->why[rank], sizeof t->why[0]);
    status_clear();
    return OK;
}

static const char *const verified[] = { VERIFIED, NULL };

static Status run_flipped(void *state, Comm *world)
{
    Turn *t = state;
    ManyRank a = { .also = verified }, b = { 0 };
    Status s = many_open(&a, t->what, world);
    if (s == OK) s = many_open(&b, t->what, world);
    if (s == OK) s = flipped_step(t, &a, &b, world->rank);
    many_close(&b);
    many_close(&a);
    return s;
}

static void check_found(Turn *t, const char *want)
{
    int failed = -1;
    CHECK_OK(comm_threads(RANKS, 60, run_flipped, t, &failed));
    for (int r = 0; r < RANKS; r++) {
        CHECK(t->differs[r]);
        CHECK(t->same_state[r]);
        if (strstr(t->why[r], want) == NULL) print_error("%s: %s\n", t->what->name, t->why[r]);
        CHECK(strstr(t->why[r], want) != NULL);
    }
}

/* Calls 1 and 2 are of the first run, whose gradients are only counted; the last ones are of the second run. A rank has two
 * micro-batches, and each has a product of a weight gradient at least once in the head. */
static void a_flipped_bit_of_a_gradient_names_the_rank(void **state)
{
    (void)state;
    for (int i = 0; i < PLAIN * 2; i += RUNS(1, 5)) {
        Turn t = { .what = &plain[i / 2], .op = "rmsnorm_bwd", .nth = i % 2 == 0 ? 3 : 17 };
        check_found(&t, "step 2 was computed twice, with other bits on rank 2 (host ");
    }
}

/* An activation travels to the ranks that have its experts: all that got it are named, the culprit among them. */
static void what_travels_is_found_too(void **state)
{
    (void)state;
    const ManyCase experts = { "ep 4", RANKS, { EXPERTS, "mesh.ep=4", "moe.buffers=worst" } };
    Turn forward = { .what = &experts, .op = "rmsnorm_fwd", .nth = 3 };
    Turn backward = { .what = &experts, .op = "rmsnorm_bwd", .nth = 2 };
    check_found(&forward, "2 (host ");
    check_found(&backward, "2 (host ");
}

/* The step before is not verified: a fault there is not found, and this is what the setting says. */
static Status flip_unverified(void *state, Comm *world)
{
    Turn *t = state;
    ManyRank a = { .also = verified };
    StepResult x = { 0 };
    Flip f;
    Status s = many_open(&a, t->what, world);
    if (s == OK && world->rank == CULPRIT) flip_push(&a.t.engine.ex, &f, "rmsnorm_bwd", 1);
    if (s == OK) s = many_step(&a, 0, &x);
    t->differs[world->rank] = x.differs || x.verify_s > 0;
    many_close(&a);
    return s;
}

static void other_steps_run_once(void **state)
{
    (void)state;
    Turn t = { .what = &plain[0] };
    int failed = -1;
    CHECK_OK(comm_threads(RANKS, 60, flip_unverified, &t, &failed));
    for (int r = 0; r < RANKS; r++) CHECK(!t.differs[r]);
}

/* Steps that keep other things between them: router biases, averages, caps of logits, matrices of Muon, moments on the
 * host, rows without room, stages, experts that travel. */
static const ManyCase kept[] = {
    { "zero 3, biases", RANKS, { EXPERTS, "mesh.zero=3", "moe.bias_rate=0.01" } },
    { "muon, averages, clipped heads",
      RANKS,
      { EXPERTS, "optimizer.kind=muon", "optimizer.ema=0.9", "optimizer.qk_clip=0.5" } },
    { "spikes, bf16 moments",
      RANKS,
      { DENSE, "optimizer.skip_spikes=2", "optimizer.moments=bf16", "optimizer.beta2=0.95" } },
    { "f16", RANKS, { DENSE, "run.compute=f16" } },
    { "bf16, stages, experts without room",
      RANKS,
      { EXPERTS, "run.compute=bf16", "mesh.pp=2", "mesh.ep=2", "moe.top_k=1",
        "moe.pool_factor=0.9" } },
    { "dualpipe, mtp 1",
      RANKS,
      { EXPERTS, "mesh.pp=2", "mesh.vpp=2", "mesh.schedule=dualpipe", "moe.buffers=worst" } },
    { "tensor, context",
      RANKS,
      { EXPERTS, "mesh.tp=2", "model.vocab=64", "mesh.cp=2", "mesh.zero=2" } },
};
enum { KEPT = sizeof kept / sizeof *kept };

static Status same_steps(ManyRank *a, ManyRank *b)
{
    StepResult x, y;
    for (int64_t i = 0; i < STEPS; i++) {
        TRY(many_step(a, i, &x));
        TRY(many_step(b, i, &y));
        if ((x.verify_s > 0) != ((i + 1) % EVERY == 0) || x.differs || y.verify_s > 0)
            return FAIL(ERR_NUMERIC, "step %lld: verified %g s, differs %d", (long long)i + 1,
                        x.verify_s, x.differs);
        if (memcmp(&x.loss, &y.loss, sizeof x.loss) != 0 || x.grad_norm != y.grad_norm ||
            x.skipped != y.skipped || !tiny_same_state(&a->t, &b->t))
            return FAIL(ERR_NUMERIC, "step %lld: loss %.9g, %.9g without, or other weights",
                        (long long)i + 1, x.loss, y.loss);
    }
    for (EngineArena i = ENGINE_RUN; i < ENGINE_PINNED; i++) {
        const size_t used = engine_peak_bytes(&a->t.engine, i);
        if (used > a->t.plan.bytes[i] || (i == ENGINE_STEP && used != a->t.plan.bytes[i]))
            return FAIL(ERR_NUMERIC, "%s: %zu bytes used, %zu planned", engine_arena_names[i], used,
                        a->t.plan.bytes[i]);
    }
    return verify_replicas(&a->t.engine.params, STEPS);
}

static Status run_both(void *state, Comm *world)
{
    ManyRank a = { .also = verified }, b = { 0 };
    Status s = many_open(&a, state, world);
    if (s == OK) s = many_open(&b, state, world);
    if (s == OK) s = same_steps(&a, &b);
    many_close(&b);
    many_close(&a);
    return s;
}

static void a_verified_run_has_the_bits_of_one_that_is_not(void **state)
{
    (void)state;
    int wrong = 0;
    for (int i = 0; i < KEPT + PLAIN; i += RUNS(1, 3)) {
        const ManyCase *c = i < KEPT ? &kept[i] : &plain[i - KEPT];
        int failed = -1;
        Status s = comm_threads(RANKS, 60, run_both, (void *)(uintptr_t)c, &failed);
        if (s != OK) print_error("%s, rank %d: %s\n", c->name, failed, status_message());
        wrong += s != OK;
    }
    CHECK_INT(wrong, 0);
}

/* ---- replicas ---- */

typedef struct Drift {
    const ManyCase *what;
    ParamBuffer buffer;
    char why[RANKS][1024];
} Drift;

static Status run_drifted(void *state, Comm *world)
{
    Drift *d = state;
    ManyRank a = { .also = verified };
    StepResult x;
    Status s = many_open(&a, d->what, world);
    if (s == OK) s = many_step(&a, 0, &x);
    if (s == OK && world->rank == CULPRIT)
        ((uint8_t *)a.t.engine.params.memory.buffer[d->buffer].data)[0] ^= 1;
    if (s == OK && verify_replicas(&a.t.engine.params, 1) == OK)
        s = FAIL(ERR_ARG, "rank %d: no difference was found", world->rank);
    status_sentence(d->why[world->rank], sizeof d->why[0]);
    many_close(&a);
    return s;
}

static void weights_and_moments_that_drift_name_the_rank(void **state)
{
    (void)state;
    static const ManyCase low = { "bf16", RANKS, { DENSE, "mesh.zero=1", "run.compute=bf16" } };
    static const ManyCase two = { "two replicas", RANKS, { DENSE, "mesh.zero=3", "mesh.shard=2" } };
    const struct {
        const ManyCase *what;
        ParamBuffer buffer;
        const char *want;
    } cases[] = {
        { &plain[0], BUF_MAIN, "on rank 2 (host " },       { &plain[0], BUF_OPTIMIZER, "moments" },
        { &plain[5], BUF_OPTIMIZER + 1, "on rank 2 (ho" }, { &low, BUF_WEIGHT, "copies of" },
        { &two, BUF_MAIN, "on ranks 0 (host " }, /* of two nobody knows which is right */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Drift d = { .what = cases[i].what, .buffer = cases[i].buffer };
        int failed = -1;
        CHECK_OK(comm_threads(RANKS, 60, run_drifted, &d, &failed));
        for (int r = 0; r < RANKS; r++) {
            CHECK(strstr(d.why[r], "after step 1 ranks that hold the same numbers") != NULL);
            if (strstr(d.why[r], cases[i].want) == NULL) print_error("%zu: %s\n", i, d.why[r]);
            CHECK(strstr(d.why[r], cases[i].want) != NULL);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_flipped_bit_of_a_gradient_names_the_rank),
        TEST(what_travels_is_found_too),
        TEST(other_steps_run_once),
        TEST(a_verified_run_has_the_bits_of_one_that_is_not),
        TEST(weights_and_moments_that_drift_name_the_rank),
    };
    return TEST_RUN(tests);
}
