/* init.frozen over ranks: what it names stays what it was to the bit, all else moves, and the
 * gradient norm is that of what is trained, wherever the shards' borders lie. */
#include "harness/many.h"

#include <fnmatch.h>
#include <math.h>
#include <string.h>

/* A whole bucket, parts of a dense bucket, of experts', of small ones, and a state. */
static const char *const patterns[] = {
    "model.embed_tokens.weight", "model.layers.0.self_attn.o_proj.weight", "*.mlp.experts.1.*",
    "model.layers.[01].input_layernorm.weight", "*.1.mlp.gate.e_score_correction_bias"
};
enum { PATTERNS = sizeof patterns / sizeof *patterns, CASES_MAX = 16, STEPS = 2 };

#define FROZEN                                                                                     \
    "moe.bias_rate=0.01",                                                                          \
        "init.frozen=[model.embed_tokens.weight, model.layers.0.self_attn.o_proj.weight, "         \
        "\"*.mlp.experts.1.*\", \"model.layers.[01].input_layernorm.weight\", "                    \
        "\"*.1.mlp.gate.e_score_correction_bias\"]",                                               \
        "train.micro_batch=1"

/* The list of patterns is one setting, of several literals.
 * NOLINTBEGIN(bugprone-suspicious-missing-comma) */
static const ManyCase cases[] = {
    { "one", 1, { FROZEN } },
    { "one in bf16", 1, { FROZEN, "run.compute=bf16" } },
    { "whole", 2, { FROZEN, "mesh.zero=0" } },
    { "main weights", 2, { FROZEN, "mesh.zero=1" } },
    { "main weights in bf16", 4, { FROZEN, "mesh.zero=1", "run.compute=bf16" } },
    { "gradients", 4, { FROZEN, "mesh.zero=2", "mesh.ep=2" } },
    { "weights", 4, { FROZEN, "mesh.zero=3" } },
    { "replicas", 4, { FROZEN, "mesh.zero=3", "mesh.shard=2" } },
    { "stages", 4, { FROZEN, "mesh.pp=2", "mesh.zero=2" } },
    { "a table at both ends", 4, { FROZEN, "mesh.pp=2", "mesh.ep=2", "model.tied=true" } },
};
/* NOLINTEND(bugprone-suspicious-missing-comma) */
enum { CASES = sizeof cases / sizeof *cases };

typedef struct Turn {
    const ManyCase *what;
    double norm;
} Turn;

static bool frozen(const Param *p)
{
    for (int i = 0; i < PATTERNS; i++) {
        if (fnmatch(patterns[i], p->name, 0) == 0) return true;
    }
    return false;
}

static Status check_param(ManyRank *r, const Param *p)
{
    Engine *e = &r->t.engine;
    bool state = p->first[BUF_STATE] >= 0, still = true;
    ParamPiece at = param_piece(&e->params, p, &e->memory, state ? BUF_STATE : BUF_MAIN);
    int64_t n = at.at.data == NULL ? 0 : tensor_elems(&at.at);
    float *begun = NULL;
    TRY(ARENA_ZEROED(&r->t.arena, n, &begun));
    if (!state) param_fill(p, 42, &at.in, 0, n, begun);
    for (int64_t i = 0; i < n; i++) still &= memcmp(&begun[i], (float *)at.at.data + i, 4) == 0;
    if (n > 0 && still != frozen(p))
        return FAIL(ERR_NUMERIC, "%s, %s: %s", r->t.config.model_name, p->name,
                    still ? "did not move" : "moved");
    if (p->frozen != frozen(p)) return FAIL(ERR_NUMERIC, "%s", p->name);
    return OK;
}

/* The norm of what is trained, of the gradients that one rank holds whole. */
static double norm_of(const Engine *e)
{
    double sum = 0;
    for (int i = 0; i < e->params.n; i++) {
        const Param *p = &e->params.at[i];
        if (p->first[BUF_STATE] >= 0 || frozen(p)) continue;
        Tensor g = param_view(p, &e->memory, BUF_GRAD);
        const float *x = g.data;
        for (int64_t k = 0; k < tensor_elems(&g); k++) sum += (double)x[k] * (double)x[k];
    }
    return sqrt(sum);
}

static Status steps(Turn *t, ManyRank *r)
{
    StepResult result = { 0 };
    for (int64_t i = 0; i < STEPS; i++) TRY(many_step(r, i, &result));
    for (int i = 0; i < r->t.engine.params.n; i++) TRY(check_param(r, &r->t.engine.params.at[i]));
    if (r->mesh.rank > 0) return OK;
    t->norm = result.grad_norm;
    if (t->what->ranks > 1) return OK;
    double norm = norm_of(&r->t.engine);
    if (fabs(norm / t->norm - 1) <= 1e-5) return OK;
    return FAIL(ERR_NUMERIC, "norm %g, of what is trained %g", t->norm, norm);
}

static Status take_turn(void *state, Comm *world)
{
    Turn *t = state;
    ManyRank r = { 0 };
    Status s = many_open(&r, t->what, world->size == 1 ? NULL : world);
    if (s == OK) s = steps(t, &r);
    many_close(&r);
    return s;
}

static void what_is_frozen_stays_and_leaves_the_norm(void **state)
{
    (void)state;
    double norm[2] = { 0 };
    for (int i = 0; i < CASES; i++) {
        Turn t = { .what = &cases[i] };
        print_message("%s\n", cases[i].name);
        int failed = -1;
        CHECK_OK(comm_threads(cases[i].ranks, 100, take_turn, &t, &failed));
        bool low = strstr(cases[i].name, "bf16") != NULL,
             tied = strstr(cases[i].name, "table") != NULL;
        if (tied) continue;
        if (norm[low] == 0) norm[low] = t.norm;
        CHECK_NEAR(t.norm / norm[low], 1, low ? 5e-3 : 1e-5);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(
        what_is_frozen_stays_and_leaves_the_norm) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
