/* Gated delta nets as layers: which blocks have them, what they hold, what they learn, and what is refused. */
#include "harness/tiny.h"

#include "engine/model/params.h"

#define DELTA                                                                                      \
    "delta.full_every=3", "delta.key_heads=2", "delta.heads=4", "delta.key_dim=6",                 \
        "delta.value_dim=5", "delta.taps=3"

static void every_third_block_and_modules_of_mtp_have_attention(void **state)
{
    (void)state;
    Tiny t;
    tiny_open(&t, TINY(DELTA, "model.layers=4", "mtp.layers=2", "attention.document_mask=false"));
    int deltas = 0;
    for (int i = 0; i < t.engine.spec.n_layers; i++) {
        const LayerSpec *l = &t.engine.spec.layers[i];
        if (l->kind == LAYER_ATTENTION) CHECK(l->block == 2 || l->block >= 4);
        if (l->kind != LAYER_DELTA) continue;
        const DeltaSpec *d = &l->as.delta;
        CHECK(l->block == 0 || l->block == 1 || l->block == 3);
        CHECK(d->dims.key_heads == 2 && d->dims.heads == 4 && d->dims.key == 6);
        CHECK(d->dims.value == 5 && d->taps == 3 && !d->document_mask);
        deltas++;
    }
    CHECK_INT(deltas, 3);
    tiny_close(&t);
}

/* By hand, D = 32: q and k of 2 x 6, v and z of 4 x 5. */
static void its_parameters_have_the_names_and_shapes_of_qwen3_next(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int64_t rows, cols;
    } want[] = {
        { "model.layers.0.input_layernorm.weight", 32, 0 },
        { "model.layers.0.linear_attn.in_proj_qkvz.weight", 2 * 12 + 2 * 20, 32 },
        { "model.layers.0.linear_attn.in_proj_ba.weight", 8, 32 },
        { "model.layers.0.linear_attn.conv1d.weight", 2 * 12 + 20, 3 },
        { "model.layers.0.linear_attn.A_log", 4, 0 },
        { "model.layers.0.linear_attn.dt_bias", 4, 0 },
        { "model.layers.0.linear_attn.norm.weight", 5, 0 },
        { "model.layers.0.linear_attn.out_proj.weight", 32, 20 },
    };
    Tiny t;
    tiny_open(&t, TINY(DELTA));
    const Param *p = t.engine.params.table.at;
    while (p->layer != 1) p++;
    for (size_t i = 0; i < sizeof want / sizeof *want; i++, p++) {
        CHECK_TEXT(p->name, want[i].name);
        CHECK_INT(p->dim[0], want[i].rows);
        CHECK_INT(p->rank, want[i].cols == 0 ? 1 : 2);
        if (p->rank == 2) CHECK_INT(p->dim[1], want[i].cols);
    }
    CHECK_INT(p->layer, 2);
    tiny_close(&t);
}

/* A is between 0 and 16, dt between 0.001 and 0.1; no two heads begin alike. */
static void a_state_first_decays_slowly(void **state)
{
    (void)state;
    Tiny t;
    tiny_open(&t, TINY(DELTA));
    const LayerWeights *w = &t.engine.params.layer[1];
    const float *decay = w->w[ROLE_DECAY].data.data;
    for (int h = 0; h < 4; h++) {
        const double a = exp((double)decay[h]), dt = log1p(exp((double)decay[4 + h]));
        CHECK(a > 0 && a < 16 && dt > 0.000999 && dt < 0.1001);
        CHECK(h == 0 || (decay[h] != decay[0] && decay[4 + h] != decay[4]));
    }
    tiny_close(&t);
}

/* Where a document begins is all that differs: the loss of the documents alone is that of both in a row. */
static void a_document_does_not_see_the_one_before(void **state)
{
    (void)state;
    double loss[2];
    for (int i = 0; i < 2; i++) {
        Tiny t;
        StepResult r;
        tiny_open(&t, TINY(DELTA, "model.layers=2", "model.dense_layers=2", "train.batch=2",
                           "train.micro_batch=2"));
        int32_t *id = t.batch.id.data, *target = t.batch.target.data, *doc = t.batch.doc.data;
        for (int j = 0; j < 48; j++) {
            doc[j] = j % 24 < 11 ? 0 : 11;
            if (j % 24 < 11 && i == 1) id[j] = (id[j] + 7) % 61;
            if (j % 24 < 11) target[j] = -1;
        }
        t.batch.targets = 0;
        for (int j = 0; j < 48; j++) t.batch.targets += target[j] >= 0;
        CHECK_OK(engine_step(&t.engine, &t.batch, 0, 1, &r));
        loss[i] = r.loss;
        tiny_close(&t);
    }
    CHECK(loss[0] > 0 && loss[0] == loss[1]);
}

static void what_is_not_built_yet_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *set, *part;
    } cases[] = {
        { "mesh.tp=4", "mesh.tp 4 does not divide delta.key_heads 2; 2 is the nearest" },
        { "mesh.cp=6",
          "mesh.cp 6 cuts sequences into pieces of 2 tokens, and delta.taps 4 joins 3 before "
          "each: set mesh.cp=4 or less" },
        { "delta.full_every=1", "delta.full_every 1 leaves no layer" },
        { "delta.key_heads=3", "delta.key_heads 3 does not divide delta.heads 4; 2 and 4" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Tiny t = { 0 };
        CHECK_FAILS(tiny_config(&t, TINY(DELTA, "delta.taps=4", cases[i].set, "attention.heads=4")),
                    ERR_ARG, cases[i].part);
        arena_free(&t.arena);
    }
}

static void gates_that_are_not_built_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *set[3], *part;
        Status status;
    } cases[] = {
        { { "attention.gate=true" }, "set both, or attention.gate=false", ERR_ARG },
        { { "attention.gate=true", "attention.kind=gqa" },
          "set both, or attention.gate=false",
          ERR_ARG },
        { { "attention.gate=true", "attention.kind=gqa", "attention.qk_norm=l2" },
          "set both, or attention.gate=false",
          ERR_ARG },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Tiny t = { 0 };
        CHECK_FAILS(tiny_config(&t, TINY(cases[i].set[0], cases[i].set[1], cases[i].set[2])),
                    cases[i].status, cases[i].part);
        arena_free(&t.arena);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_third_block_and_modules_of_mtp_have_attention),
        cmocka_unit_test(its_parameters_have_the_names_and_shapes_of_qwen3_next),
        cmocka_unit_test(a_state_first_decays_slowly),
        cmocka_unit_test(a_document_does_not_see_the_one_before),
        cmocka_unit_test(what_is_not_built_yet_is_refused),
        cmocka_unit_test(gates_that_are_not_built_are_refused),
    };
    return TEST_RUN(tests);
}
