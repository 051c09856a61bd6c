/* init.frozen over ranks: what it names stays what it was to the bit; all else moves as it does
 * where nothing is frozen and these parameters are put back after each step; and the gradient norm
 * is that of what is trained, wherever the shards' borders lie. */
#include "harness/many.h"
#include "harness/param_view.h"

#include "engine/count/layer_count.h"
#include "engine/step/copies.h"

#include <fnmatch.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* MIXED: a whole bucket, parts of a dense bucket, of experts', of small ones, and a state. ROLES:
 * all that a product has gradients of. LOW: the first blocks with the table, and their biases.
 * BULK: all but norms. PART: all before the last experts of a layer.
 * HEAD: all but what the losses are made of. */
enum { MIXED, ROLES, LOW, BULK, PART, HEAD, SETS, PATTERNS_MAX = 8, STEPS = 3 };
static const char *const sets[SETS][PATTERNS_MAX] = {
    [MIXED] = { "model.embed_tokens.weight", "model.layers.0.self_attn.o_proj.weight",
                "*.mlp.experts.1.*", "model.layers.[01].input_layernorm.weight",
                "*.1.mlp.gate.e_score_correction_bias" },
    [ROLES] = { "model.layers.1.mlp.experts.*", "*.2.mlp.experts.*.down_proj.*", "*.2.mlp.gate.*",
                "*.self_attn.o_proj.*", "model.layers.1.self_attn.kv_*", "*.0.mlp.gate_proj.*",
                "*norm.weight", "lm_head.weight" },
    [LOW] = { "model.embed_tokens.weight", "model.layers.[01].*" },
    [BULK] = { "model.embed_tokens.weight", "*_proj*", "*.mlp.gate.weight", "lm_head.weight" },
    [PART] = { "model.embed_tokens.weight", "model.layers.0.*", "model.layers.1.[!m]*",
               "model.layers.1.mlp.[!e]*", "model.layers.1.mlp.experts.[0-2].*" },
    [HEAD] = { "model.embed_tokens.weight", "model.layers.*" },
};

#define TP2 "mesh.tp=2", "model.vocab=64"

typedef struct Case {
    int set;
    double norm; /* how far from that of the set's first case; 0: another model */
    ManyCase what;
} Case;

static const Case cases[] = {
    { MIXED, 1e-5, { "one", 1, { "run.compute=f32" } } },
    { MIXED, 2e-2, { "one in bf16", 1, { "run.compute=bf16" } } },
    { MIXED, 1e-5, { "whole", 2, { "mesh.zero=0" } } },
    { MIXED, 1e-5, { "main weights", 2, { "mesh.zero=1" } } },
    { MIXED, 2e-2, { "main weights in bf16", 4, { "mesh.zero=1", "run.compute=bf16" } } },
    { MIXED, 1e-5, { "gradients", 4, { "mesh.zero=2", "mesh.ep=2" } } },
    { MIXED, 1e-5, { "weights", 4, { "mesh.zero=3" } } },
    { MIXED, 1e-5, { "replicas", 4, { "mesh.zero=3", "mesh.shard=2" } } },
    { MIXED, 1e-5, { "stages", 4, { "mesh.pp=2", "mesh.zero=2" } } },
    { MIXED,
      0,
      { "a table at both ends",
        4,
        { "mesh.pp=2", "mesh.ep=2", "model.tied=true", "mesh.zero=1" } } },
    { ROLES, 1e-5, { "roles of one", 1, { "run.compute=f32" } } },
    { ROLES, 1e-5, { "roles, main weights", 4, { "mesh.zero=1", "mesh.ep=2" } } },
    { ROLES, 2e-2, { "roles, gradients in bf16", 4, { "mesh.zero=2", "mesh.reduce=bf16" } } },
    { ROLES, 2e-2, { "roles, weights", 4, { "mesh.zero=3", "mesh.ep=2", "run.compute=bf16" } } },
    { ROLES, 1e-5, { "roles, context", 4, { "mesh.cp=2", "mesh.zero=2" } } },
    { ROLES,
      0,
      { "roles, keys in a ring", 2, { "mesh.cp=2", "attention.kind=gqa", "mesh.zero=1" } } },
    { ROLES,
      1e-5,
      { "roles, weights' gradients apart",
        4,
        { "mesh.pp=2", "mesh.schedule=zb-h1", "mesh.zero=1" } } },
    { LOW, 1e-5, { "low of one", 1, { "run.compute=f32" } } },
    { LOW,
      1e-5,
      { "low, computed again", 2, { "mesh.zero=3", "mesh.ep=2", "recompute.layers=[0,1,2]" } } },
    { LOW,
      1e-5,
      { "low, pieces again",
        2,
        { "mesh.ep=2", "recompute.layers=[0,1,2]",
          "recompute.pieces=[norm,attn_up,act,shared,exchange]" } } },
    { LOW, 1e-5, { "low, a stage of it", 4, { "mesh.pp=2", "mesh.zero=2" } } },
    { LOW, 1e-5, { "low, apart", 3, { "mesh.pp=3", "mesh.schedule=zb-h1" } } },
    { LOW,
      0,
      { "low, a V", 2, { "mesh.pp=2", "mesh.vpp=2", "mesh.schedule=zbv", "model.layers=4" } } },
    { LOW,
      0,
      { "low, phases",
        4,
        { "mesh.pp=2", "mesh.vpp=2", "mesh.ep=2", "mesh.schedule=dualpipe", "model.layers=4",
          "mesh.zero=1" } } },
    { LOW,
      0,
      { "low, phases of a V",
        4,
        { "mesh.pp=2", "mesh.vpp=2", "mesh.ep=2", "mesh.schedule=dualpipe-v", "model.layers=4",
          "mesh.zero=2" } } },
    { LOW,
      0,
      { "low, beside",
        4,
        { "mesh.pp=2", "mesh.vpp=2", "mesh.ep=2", "mesh.schedule=1f1b-overlap",
          "model.layers=4" } } },
    { LOW, 0, { "low, two predictions", 2, { "mesh.pp=2", "mtp.layers=2" } } },
    { LOW, 1e-5, { "low, context", 4, { "mesh.cp=2", "mesh.zero=3" } } },
    { LOW, 0, { "low, keys in a ring", 2, { "mesh.cp=2", "attention.kind=gqa" } } },
    { MIXED, 0, { "parts", 4, { TP2, "mesh.zero=1", "mesh.ep=2" } } },
    { ROLES, 0, { "roles, parts", 4, { TP2, "mesh.zero=2" } } },
    { ROLES, 0, { "roles, keys of several", 2, { TP2, "attention.kind=gqa", "mesh.zero=0" } } },
    { LOW, 0, { "low, parts in stages", 4, { TP2, "mesh.pp=2", "mesh.zero=3" } } },
    { HEAD, 0, { "head and predictions", 2, { "mtp.layers=2", "mesh.zero=2" } } },
    { HEAD,
      0,
      { "head and predictions in stages", 4, { "mtp.layers=2", "mesh.pp=2", "mesh.zero=1" } } },
    { HEAD, 0, { "head, apart", 2, { "mtp.layers=1", "mesh.pp=2", "mesh.schedule=zb-h1" } } },
    { PART, 1e-5, { "experts of one rank", 2, { "mesh.ep=2", "mesh.zero=1" } } },
    { PART, 1e-5, { "experts of one rank in stages", 4, { "mesh.ep=2", "mesh.pp=2" } } },
    { BULK, 1e-5, { "bulk, main weights", 2, { "mesh.zero=1" } } },
    { BULK, 1e-5, { "bulk, weights", 4, { "mesh.zero=3", "mesh.reduce=bf16" } } },
    { LOW, 1e-5, { "low, a pool", 2, { "mesh.ep=2", "moe.buffers=pooled" } } },
};
enum { CASES = sizeof cases / sizeof *cases };

/* back: nothing is frozen, what is named is put back. moved: the main weights by their place in the
 * table of one rank. */
typedef struct Turn {
    const Case *what;
    const char *list; /* init.frozen= */
    bool back;
    const ParamTable *whole;
    _Atomic uint32_t *moved;
    double norm;
    EnginePlan plan; /* of rank 0 */
} Turn;

static bool named(const Turn *t, const Param *p)
{
    for (int i = 0; i < PATTERNS_MAX && sets[t->what->set][i] != NULL; i++) {
        if (fnmatch(sets[t->what->set][i], p->name, 0) == 0) return true;
    }
    return false;
}

static bool is_state(const Param *p) { return p->first[BUF_STATE] >= 0; }

static ParamPiece piece_of(const ManyRank *r, const Param *p)
{
    const Engine *e = &r->t.engine;
    return param_piece(&e->params.table, p, &e->params.memory, is_state(p) ? BUF_STATE : BUF_MAIN);
}

static Status begun(ManyRank *r, const Param *p, const ParamPiece *at, float **out)
{
    const int64_t n = piece_elems(&at->in);
    TRY(ARENA_ZEROED(&r->t.arena, n, out));
    if (!is_state(p)) param_fill(p, 42, &at->in, 0, n, *out);
    return OK;
}

static Status put_back(Turn *t, ManyRank *r)
{
    Engine *e = &r->t.engine;
    for (int i = 0; i < e->params.table.n; i++) {
        const Param *p = &e->params.table.at[i];
        ParamPiece at = piece_of(r, p);
        float *was = NULL;
        if (!named(t, p) || piece_elems(&at.in) == 0) continue;
        TRY(begun(r, p, &at, &was));
        memcpy(at.at.data, was, (size_t)piece_elems(&at.in) * sizeof *was);
    }
    return copies_refresh(&e->params);
}

static Status check_param(Turn *t, ManyRank *r, const Param *p)
{
    ParamPiece at = piece_of(r, p);
    float *was = NULL;
    const int64_t n = piece_elems(&at.in);
    if (n == 0) return OK;
    TRY(begun(r, p, &at, &was));
    bool still = memcmp(was, at.at.data, (size_t)n * sizeof *was) == 0;
    if (still != named(t, p))
        return FAIL(ERR_NUMERIC, "%s: %s", p->name, still ? "did not move" : "moved");
    if (!t->back && (p->rule == NULL) != named(t, p)) return FAIL(ERR_NUMERIC, "%s", p->name);
    return OK;
}

static Status note_param(Turn *t, const ManyRank *r, const Param *p)
{
    ParamPiece at = piece_of(r, p);
    int of = 0;
    if (is_state(p)) return OK;
    while (strcmp(t->whole->at[of].name, p->name) != 0) of++;
    for (int64_t i = 0; i < piece_elems(&at.in); i++) {
        uint32_t bits;
        memcpy(&bits, (const float *)at.at.data + i, sizeof bits);
        const int64_t element = piece_element(&at.in, i);
        atomic_store(&t->moved[t->whole->at[of].first[BUF_MAIN] + element], bits);
    }
    return OK;
}

/* The norm of what is trained, of the gradients that one rank holds whole. */
static double norm_of(const Turn *t, const Engine *e)
{
    double sum = 0;
    for (int i = 0; i < e->params.table.n; i++) {
        const Param *p = &e->params.table.at[i];
        if (is_state(p) || named(t, p)) continue;
        Tensor g = param_view(p, &e->params.memory, BUF_GRAD);
        const float *x = g.data;
        for (int64_t k = 0; k < tensor_elems(&g); k++) sum += (double)x[k] * (double)x[k];
    }
    return sqrt(sum);
}

static Status steps(Turn *t, ManyRank *r)
{
    StepResult result = { 0 };
    const ParamTable *table = &r->t.engine.params.table;
    for (int64_t i = 0; i < STEPS; i++) {
        TRY(many_step(r, i, &result));
        if (t->back) TRY(put_back(t, r));
    }
    for (int i = 0; i < table->n; i++) {
        TRY(check_param(t, r, &table->at[i]));
        TRY(note_param(t, r, &table->at[i]));
    }
    TRY(many_as_planned(r));
    if (r->mesh.rank > 0) return OK;
    t->plan = r->t.plan;
    if (t->back) return OK;
    t->norm = result.grad_norm;
    if (t->what->what.ranks > 1) return OK;
    double norm = norm_of(t, &r->t.engine);
    if (fabs(norm / t->norm - 1) <= 1e-5) return OK;
    return FAIL(ERR_NUMERIC, "norm %g, of what is trained %g", t->norm, norm);
}

static Status take_turn(void *state, Comm *world)
{
    Turn *t = state;
    const char *const also[] = { "moe.bias_rate=0.01", "train.micro_batch=1",    "train.batch=8",
                                 "train.clip_norm=0",  t->back ? NULL : t->list, NULL };
    ManyRank r = { .also = also };
    Status s = many_open(&r, &t->what->what, world->size == 1 ? NULL : world);
    if (s == OK) s = steps(t, &r);
    many_close(&r);
    return s;
}

/* The parameters of the whole model. */
static void open_whole(Tiny *t, const Case *c, ParamTable *out)
{
    ModelSpec spec;
    CHECK_OK(arena_init(&t->arena, "whole", MEM_HOST, (size_t)1 << 26));
    CHECK_OK(config_default(&t->config, &t->arena));
    for (size_t i = 0; i < sizeof tiny_base / sizeof *tiny_base; i++)
        CHECK_OK(config_override(&t->config, &t->arena, tiny_base[i]));
    for (int i = 0; c->what.settings[i] != NULL; i++)
        CHECK_OK(config_override(&t->config, &t->arena, c->what.settings[i]));
    Config alone = t->config;
    config_alone(&alone);
    CHECK_OK(spec_build(&alone, &t->arena, &spec));
    CHECK_OK(params_build(&spec, 0, NULL, &t->arena, out));
}

static void write_list(int set, char *out, size_t bytes)
{
    int n = snprintf(out, bytes, "init.frozen=[");
    for (int i = 0; i < PATTERNS_MAX && sets[set][i] != NULL; i++)
        n += snprintf(out + n, bytes - (size_t)n, "%s\"%s\"", i > 0 ? ", " : "", sets[set][i]);
    (void)snprintf(out + n, bytes - (size_t)n, "]");
}

static void run_case(const Case *c, double norm[SETS])
{
    Tiny one = { 0 };
    ParamTable whole;
    char list[1024];
    _Atomic uint32_t *moved[2];
    EnginePlan plan[2];
    print_message("%s\n", c->what.name);
    open_whole(&one, c, &whole);
    write_list(c->set, list, sizeof list);
    Turn t = { .what = c, .list = list, .whole = &whole };
    for (int back = 0; back < 2; back++) {
        int failed = -1;
        moved[back] = calloc((size_t)whole.spaces.of[BUF_MAIN].flat, sizeof **moved);
        assert_non_null(moved[back]);
        t.moved = moved[back];
        t.back = back;
        CHECK_OK(comm_threads(c->what.ranks, 100, take_turn, &t, &failed));
        plan[back] = t.plan;
    }
    for (int i = 0; i < whole.n; i++) {
        const Param *p = &whole.at[i];
        for (int64_t k = 0; k < param_elems(p) && !is_state(p); k++) {
            int64_t at = p->first[BUF_MAIN] + k;
            if (moved[0][at] != moved[1][at]) print_message("%s, %lld\n", p->name, (long long)k);
            CHECK_INT(moved[0][at], moved[1][at]);
        }
    }
    for (int i = 0; i < 2; i++) free(moved[i]);
    CHECK(plan[0].step.flops < plan[1].step.flops);
    CHECK(plan[0].bytes[ENGINE_RUN] < plan[1].bytes[ENGINE_RUN]);
    CHECK(plan[0].step.comm_bytes <= plan[1].step.comm_bytes);
    if (c->what.ranks > one.config.mesh_pp) /* gradients are added over ranks */
        CHECK(plan[0].step.comm_bytes < plan[1].step.comm_bytes);
    if (c->set == BULK && one.config.mesh_zero < 3) /* neither reduced nor gathered */
        CHECK(plan[0].step.comm_bytes < 0.1 * plan[1].step.comm_bytes);
    if (norm[c->set] == 0) norm[c->set] = t.norm;
    if (c->norm > 0) CHECK_NEAR(t.norm / norm[c->set], 1, c->norm);
    arena_free(&one.arena);
}

static void what_is_frozen_stays_and_leaves_the_norm(void **state)
{
    (void)state;
    double norm[SETS] = { 0 };
    for (int i = 0; i < CASES; i += RUNS(1, 2)) run_case(&cases[i], norm);
}

/* Of a step of one rank on N tokens, each of which takes K of E experts: parameters, rounded up to
 * where the next ones begin; FLOPs of each row with each element, which a step does without. Not the
 * update's. */
enum { N = 8 * 24, D = 32, F = 20, E = 6, K = 2, V = 61, UPDATE = 17 };
static const struct {
    const char *list;
    int64_t elems;
    double flops;
} spared[] = {
    { "model.layers.0.self_attn.o_proj.weight", D * 20, 2. * N },
    { "*.self_attn.kv_a_proj_with_mqa.weight", 3 * D * 16, 2. * N },
    { "model.layers.1.mlp.experts.*", 3 * E *F *D, 2. * N *K / E },
    { "model.layers.1.mlp.experts.*.down_proj.weight", E *F *D, 2. * N *K / E },
    { "model.layers.1.mlp.experts.[0-4].*", 3 * 5 * F *D, 0 },
    { "model.layers.1.mlp.gate.weight", E *D, 2. * N },
    { "lm_head.weight", (V + 1) * D, 2. * N *V / (V + 1) },
    { "model.embed_tokens.weight", (V + 1) * D, 1. * N / (V + 1) },
};

static EnginePlan plan_of(const char *setting)
{
    const char *const also[] = { "train.batch=8", setting, NULL };
    const ManyCase one = { .name = "one", .ranks = 1 };
    ManyRank r = { .also = also };
    CHECK_OK(many_open(&r, &one, NULL));
    EnginePlan plan = r.t.plan;
    many_close(&r);
    return plan;
}

/* A gradient and two moments. */
static void products_of_frozen_roles_are_not_computed_nor_what_an_update_reads_kept(void **state)
{
    (void)state;
    const EnginePlan all = plan_of(NULL);
    for (size_t i = 0; i < sizeof spared / sizeof *spared; i++) {
        char setting[128];
        print_message("%s\n", spared[i].list);
        (void)snprintf(setting, sizeof setting, "init.frozen=[\"%s\"]", spared[i].list);
        double want = (double)spared[i].elems * (UPDATE + spared[i].flops);
        EnginePlan plan = plan_of(setting);
        size_t kept = spared[i].flops > 0 ? 3 * (size_t)spared[i].elems * sizeof(float) : 0;
        CHECK_NEAR(all.step.flops - plan.step.flops, want, 1e-3);
        CHECK_INT(all.bytes[ENGINE_RUN] - plan.bytes[ENGINE_RUN], kept);
    }
}

/* What the layers of the first two blocks would take, and the update of their parameters. */
static double spared_by_low(void)
{
    const char *const also[] = { "train.batch=8", NULL };
    const ManyCase one = { .name = "one", .ranks = 1 };
    ManyRank r = { .also = also };
    double flops = 0;
    CHECK_OK(many_open(&r, &one, NULL));
    const ModelSpec *s = &r.t.engine.spec;
    const int64_t b = r.t.shape.micro_batch;
    for (int i = 0; i < s->block_first[2]; i++) {
        LayerCount l;
        CHECK_OK(layer_count(s, i, b, r.t.shape.sequence, NULL, &r.t.arena, &l));
        flops += (l.pass[PASS_INPUT].flops + l.pass[PASS_WEIGHT].flops) * 8 / (double)b;
        flops += UPDATE * (double)l.params.of[BUF_MAIN].flat;
    }
    many_close(&r);
    return flops;
}

static void nothing_goes_back_below_what_is_trained(void **state)
{
    (void)state;
    char list[1024];
    write_list(LOW, list, sizeof list);
    const EnginePlan all = plan_of(NULL), low = plan_of(list);
    CHECK_NEAR(all.step.flops - low.step.flops, spared_by_low(), 1e-3);
    CHECK(low.bytes[ENGINE_SLOT] < 0.7 * (double)all.bytes[ENGINE_SLOT]); /* nor is it kept */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_frozen_stays_and_leaves_the_norm),
        cmocka_unit_test(products_of_frozen_roles_are_not_computed_nor_what_an_update_reads_kept),
        cmocka_unit_test(nothing_goes_back_below_what_is_trained),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
