/* engine_cached_logits: sequences of several lengths in one cache. The reference is each sequence alone, in one call of
 * a cache of its own. */
#include "harness/tiny.h"

enum { SEQUENCES = 3, CALL = 16, LONGEST = 14 };

static const char *const kinds[][5] = {
    { "attention.kind=mla" },
    { "attention.kind=mla", "attention.q_rank=16" },
    { "attention.kind=gqa", "attention.qk_norm=rms" },
    { "attention.kind=gqa", "attention.sinks=true" },
    { "attention.kind=gqa", "attention.window=5" },
    { "attention.kind=gqa", "attention.chunk=4", "attention.rope_interleaved=false" },
    { "fp8.recipe=block", "fp8.head=true", "model.vocab=64", "model.loss_chunk=128" },
    { "attention.kind=gqa", "attention.qk_norm=rms", "attention.gate=true" },
    { "delta.full_every=3", "delta.key_dim=6", "delta.value_dim=5", "model.norm_eps=0.01" },
    { "delta.full_every=2", "delta.taps=1", "delta.heads=4", "model.norm_eps=0.01" },
};
enum { KINDS = sizeof kinds / sizeof *kinds, STATES = KINDS - 2 };

static const int64_t lengths[SEQUENCES] = { LONGEST, 9, 12 };

typedef struct Lab {
    Arena arena;
    Config config;
    EnginePlan plan;
    Engine engine;
    int64_t vocab;
} Lab;

static void open_lab(Lab *lab, int kind, int64_t sequences, int64_t positions)
{
    Tiny t = { 0 };
    *lab = (Lab){ 0 };
    CHECK_OK(tiny_config(&t, kinds[kind]));
    lab->arena = t.arena;
    lab->config = t.config;
    lab->vocab = t.config.model_vocab;
    const EngineShape shape = { .batch = 1,
                                .micro_batch = 1,
                                .sequence = CALL,
                                .positions = positions,
                                .domains = 1,
                                .threads = 2,
                                .cache = sequences,
                                .logit_rows = CALL };
    CHECK_OK(engine_plan(&lab->config, ENGINE_INFER, &shape, &lab->plan));
    CHECK_OK(engine_open(&lab->engine, &lab->config, ENGINE_INFER, &shape, &lab->plan));
    CHECK_OK(engine_init_weights(&lab->engine.params, 42));
}

static void close_lab(Lab *lab)
{
    engine_close(&lab->engine);
    arena_free(&lab->arena);
}

static int32_t token(int64_t sequence, int64_t i)
{
    return (int32_t)rng_below((uint64_t)sequence, rng_stream("cached"), (uint64_t)i, 61);
}

/* Logits of all tokens of one sequence that is alone: (length, vocab). */
static float *alone(int kind, int64_t sequence)
{
    Lab lab;
    const float *logits = NULL;
    int32_t id[LONGEST];
    const int64_t n = lengths[sequence];
    open_lab(&lab, kind, 1, CALL);
    for (int64_t i = 0; i < n; i++) id[i] = token(sequence, i);
    CHECK_OK(engine_next_logits(&lab.engine, id, n, &logits));
    float *out = malloc((size_t)(n * lab.vocab) * sizeof *out);
    CHECK(out != NULL);
    memcpy(out, logits, (size_t)(n * lab.vocab) * sizeof *out);
    close_lab(&lab);
    return out;
}

/* One call; each part's logits are those of its sequence alone. */
static void call(Lab *lab, float *const want[], const CachePart *part, int parts)
{
    int32_t id[CALL] = { 0 };
    const float *logits = NULL;
    int64_t n = 0;
    for (int k = 0; k < parts; k++) {
        for (int64_t i = 0; i < part[k].n; i++) id[n++] = token(part[k].sequence, part[k].used + i);
    }
    CHECK_OK(engine_cached_logits(&lab->engine, part, parts, id, &logits));
    for (int k = 0; k < parts; k++) {
        const float *w = want[part[k].sequence] + part[k].used * lab->vocab;
        for (int64_t i = 0; i < part[k].n * lab->vocab; i++)
            CHECK_NEAR((double)logits[i], (double)w[i], 1e-5);
        logits += part[k].n * lab->vocab;
    }
}

/* A full call, a part in the middle of others, single tokens, a sequence that is taken up at an earlier token. */
static void parts_give_each_sequence_s_own_logits(void **state)
{
    (void)state;
    static const CachePart first[] = { { 0, 0, 6 }, { 2, 0, 1 }, { 1, 0, 9 } };
    static const CachePart second[] = { { 2, 1, 3 }, { 0, 6, 1 } };
    static const CachePart third[] = { { 0, 7, 7 }, { 2, 4, 8 } };
    static const CachePart again[] = { { 0, 3, 4 }, { 1, 8, 1 } };
    for (int kind = 0; kind < KINDS; kind++) {
        Lab lab;
        float *want[SEQUENCES];
        for (int64_t s = 0; s < SEQUENCES; s++) want[s] = alone(kind, s);
        open_lab(&lab, kind, SEQUENCES, CALL);
        call(&lab, want, first, 3);
        call(&lab, want, second, 2);
        call(&lab, want, third, 2);
        if (kind < STATES) call(&lab, want, again, 2);
        if (kind < STATES) call(&lab, want, &again[1], 1);
        for (int a = 0; a < ENGINE_ARENAS; a++)
            CHECK(engine_peak_bytes(&lab.engine, (EngineArena)a) <= lab.plan.bytes[a]);
        close_lab(&lab);
        for (int s = 0; s < SEQUENCES; s++) free(want[s]);
    }
}

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    static const CachePart many[] = { { 0, 0, 9 }, { 1, 0, 8 } }, far = { 1, 20, 5 },
                           other = { 2, 0, 1 };
    const int32_t id[CALL + 1] = { 0 };
    const float *logits = NULL;
    Lab lab;
    open_lab(&lab, 0, 2, 24);
    CHECK_FAILS(engine_cached_logits(&lab.engine, many, 2, id, &logits), ERR_ARG,
                "16 fit at a time");
    CHECK_FAILS(engine_cached_logits(&lab.engine, &far, 1, id, &logits), ERR_ARG, "24 in all");
    CHECK_FAILS(engine_cached_logits(&lab.engine, &other, 1, id, &logits), ERR_ARG, "tokens");
    close_lab(&lab);
}

static void states_only_go_on_behind_their_last_token(void **state)
{
    (void)state;
    Lab lab;
    const float *logits = NULL;
    const int32_t id[] = { 3, 1, 4, 1, 5, 9 };
    const CachePart begin = { 1, 0, 4 }, on = { 1, 4, 2 }, back = { 1, 3, 2 };
    open_lab(&lab, STATES, 2, CALL);
    float first[61];
    CHECK_OK(engine_cached_logits(&lab.engine, &begin, 1, id, &logits));
    memcpy(first, logits + 3 * lab.vocab, sizeof first);
    CHECK_OK(engine_cached_logits(&lab.engine, &on, 1, id + 4, &logits));
    CHECK_FAILS(engine_cached_logits(&lab.engine, &back, 1, id, &logits), ERR_UNSUPPORTED,
                "token 3: the states of gated delta nets go on after token 6 alone");
    CHECK_OK(engine_cached_logits(&lab.engine, &begin, 1, id, &logits));
    for (int i = 0; i < 61; i++) CHECK(logits[3 * lab.vocab + i] == first[i]);
    close_lab(&lab);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_give_each_sequence_s_own_logits),
        cmocka_unit_test(states_only_go_on_behind_their_last_token),
        cmocka_unit_test(what_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
