/* What a training that goes on may change of its configuration. */
#include "engine/config/config.h"
#include "harness/arena.h"

static Config defaults(void)
{
    Config c;
    CHECK_OK(config_default(&c, &arena));
    return c;
}

/* Of two configurations with these overrides (a;b): how many rows differ, and how many of them are not
 * free. NULL: no override. */
static void check_change(const char *before, const char *after, int want, int want_refused)
{
    const char *both[2] = { before, after };
    Config c[2] = { defaults(), defaults() };
    const ConfigChange *changes = NULL;
    int n = 0, refused = 0;
    for (int i = 0; i < 2; i++) {
        char words[256] = "", *rest = words;
        if (both[i] != NULL) (void)snprintf(words, sizeof words, "%s", both[i]);
        for (char *w; (w = strsep(&rest, ";")) != NULL && *w != '\0';)
            CHECK_OK(config_override(&c[i], &arena, w));
    }
    CHECK_OK(config_changes(&c[0], &c[1], &arena, &changes, &n));
    for (int i = 0; i < n; i++) refused += !changes[i].free;
    if (n != want || refused != want_refused)
        fail_msg("%s -> %s: %d differ, %d refused", before, after, n, refused);
    Status s = config_check_changes("it", changes, n, NULL, 0);
    if (refused == 0) CHECK_OK(s);
    for (int i = 0; i < n && refused > 0; i++) {
        if (!changes[i].free) CHECK_FAILS(s, ERR_ARG, changes[i].row->name);
    }
}

static void other_mathematics_and_other_data_are_not_free(void **state)
{
    (void)state;
    static const char *const refused[] = {
        "moe.top_k=1",        "moe.score=sigmoid",
        "moe.scaling=5",      "attention.rope_theta=1e6",
        "model.norm_eps=.1",  "attention.document_mask=false",
        "run.compute=bf16",   "run.seed=99",
        "data.sequence=16",   "data.shuffle=false",
        "train.batch=8",      "optimizer.lr=0.5",
        "data.validation=0",  "data.sources=[{name: b, path: b}]",
        "mesh.reduce=bf16",   "train.clip_norm=0",
        "train.steps=7",      "optimizer.decay_steps=7",
        "fp8.recipe=row",     "fp8.format=hybrid",
        "fp8.scales=pow2",    "fp8.layers=[1]",
        "fp8.wgrad=bf16",     "fp8.products=dense",
        "fp8.kept=plain",     "fp8.dispatch=bf16",
        "fp8.attention=true", "fp8.head=true",
    };
    static const char *const taken[] = {
        "run.dir=x",          "run.threads=3",
        "mesh.pp=2",          "recompute.layers=[1]",
        "moe.buffers=worst",  "moe.exchange=allgather",
        "train.eval_every=2", "checkpoint.keep=5",
        "model.loss_chunk=7", "train.micro_batch=1",
        "model.init_std=1",   "comm.timeout_s=3",
    };
    check_change(NULL, NULL, 0, 0);
    check_change(NULL, "plan.margin=0.1", 0, 0); /* no setting */
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        check_change(NULL, refused[i], 1, 1);
        check_change(refused[i], NULL, 1, 1);
    }
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) check_change(NULL, taken[i], 1, 0);
}

static void steps_are_free_while_the_cosine_ends_where_it_did(void **state)
{
    (void)state;
    check_change("optimizer.decay_steps=9;train.steps=9", "optimizer.decay_steps=9;train.steps=20",
                 1, 0);
    check_change("train.steps=9", "optimizer.decay_steps=9;train.steps=20", 2, 0);
    check_change("train.steps=9", "train.steps=20", 1, 1);
    check_change("train.steps=9", "optimizer.decay_steps=10;train.steps=20", 2, 1);
    check_change("optimizer.decay_steps=9", "train.steps=20", 2, 1);
    check_change("optimizer.schedule=constant", "optimizer.schedule=constant;train.steps=20", 1, 0);
    check_change("optimizer.schedule=wsd", "optimizer.schedule=wsd;train.steps=20", 1, 1);
}

static void a_micro_batch_is_free_unless_it_is_the_group_of_the_balancing_loss(void **state)
{
    (void)state;
    check_change("moe.aux_scope=batch", "moe.aux_scope=batch;train.micro_batch=2", 1, 1);
    check_change("moe.aux_scope=batch;train.micro_batch=2", "moe.aux_scope=batch", 1, 1);
    check_change("moe.aux_scope=batch;moe.aux_loss=0",
                 "moe.aux_scope=batch;moe.aux_loss=0;train.micro_batch=2", 1, 0);
    check_change("moe.aux_scope=batch;model.dense_layers=6",
                 "moe.aux_scope=batch;model.dense_layers=6;train.micro_batch=2", 1, 0);
}

static void what_is_allowed_by_name_may_differ(void **state)
{
    (void)state;
    Config then = defaults(), now = defaults();
    const ConfigChange *c = NULL;
    int n = 0;
    now.moe_top_k = 1, now.run_seed = 5, now.train_steps = 7;
    CHECK_OK(config_changes(&then, &now, &arena, &c, &n));
    CHECK_INT(n, 3);
    CHECK_TEXT(c[1].row->name, "moe.top_k");
    CHECK_TEXT(c[1].then, "2");
    CHECK_TEXT(c[1].now, "1");
    const char *const keys[] = { "train.steps", "moe.top_k", "run.seed", "run.sede" };
    CHECK_FAILS(config_check_changes("it", c, n, keys, 2), ERR_ARG, "with --change run.seed [bad");
    CHECK_FAILS(config_check_changes("it", c, n, keys + 1, 2), ERR_ARG,
                "with --change train.steps; train.steps moves the end of the learning-rate curve:\n"
                "  optimizer.decay_steps=1000 keeps the curve, which ends at step 1000\n"
                "  --change train.steps stretches the curve to step 7 [bad");
    CHECK_OK(config_check_changes("it", c, n, keys, 3));
    CHECK_FAILS(config_check_changes("it", c, n, keys, 4), ERR_ARG,
                "--change: there is no setting run.sede, did you mean run.seed?");
    const char *const plans = "plan.margin";
    CHECK_FAILS(config_check_changes("it", c, 0, &plans, 1), ERR_ARG,
                "--change: plan.margin is an argument of `switchyard plan`");
}

static Status parse(Config *c, const char *yaml)
{
    return config_parse(c, &arena, "a.yaml", yaml, strlen(yaml));
}

/* Checkpoints of older versions have all settings of then. */
static void a_setting_that_was_removed_may_have_its_old_default(void **state)
{
    (void)state;
    Config c;
    CHECK_OK(parse(&c, "comm:\n  null: []\n  timeout_s: 7\n"));
    CHECK_NEAR(c.comm_timeout_s, 7, 0);
    CHECK_FAILS(parse(&c, "comm:\n  null: [pp]\n"), ERR_ARG, "comm.null was removed after 0.9.0");
    CHECK_FAILS(parse(&c, "comm:\n  null: 1\n"), ERR_ARG, "comm.null was removed after 0.9.0");
    CHECK_OK(parse(&c, "data:\n  on_bad_line: fail\n  sequence: 7\n"));
    CHECK_INT(c.data_sequence, 7);
    CHECK_OK(parse(&c, "data:\n  on_bad_line: skip\n")); /* of a checkpoint; a warning says it */
    CHECK_FAILS(parse(&c, "data:\n  on_bad_line: halt\n"), ERR_ARG,
                "data.on_bad_line was removed after 0.9.0: data prepare --on-bad-line");
    CHECK_OK(parse(&c, "attention:\n  deterministic: true\n  heads: 7\n"));
    CHECK_INT(c.attention_heads, 7);
    CHECK_OK(parse(&c, "attention:\n  deterministic: false\n")); /* a warning says it */
    CHECK_FAILS(config_override(&c, &arena, "attention.deterministic=1"), ERR_ARG,
                "attention.deterministic was removed after 0.9.0: gradients of attention always");
    CHECK_OK(parse(&c, "moe:\n  jitter: 0\n  experts: 7\n"));
    CHECK_INT(c.moe_experts, 7);
    CHECK_FAILS(parse(&c, "moe:\n  jitter: 0.01\n"), ERR_ARG,
                "moe.jitter was removed after 0.9.0: logits have no noise now");
    CHECK_OK(
        parse(&c, "run: {loss_scale: 0}\nmesh: {tp_direct: true}\noptimizer: {muon_factor: 1}\n"));
    CHECK_FAILS(parse(&c, "run: {loss_scale: 8}\n"), ERR_ARG,
                "run.loss_scale was removed after 0.9.0: with run.compute=f16 the scale always");
    CHECK_FAILS(parse(&c, "mesh: {tp_direct: false}\n"), ERR_ARG,
                "mesh.tp_direct was removed after 0.9.0: GPUs of mesh.tp store into each other's");
    CHECK_FAILS(config_override(&c, &arena, "optimizer.muon_factor=0.5"), ERR_ARG,
                "optimizer.muon_factor was removed after 0.9.0: optimizer.muon_scale chooses");
    CHECK_FAILS(parse(&c, "comm:\n  nul: []\n"), ERR_ARG, "there is no setting comm.nul");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(other_mathematics_and_other_data_are_not_free),
        TEST(steps_are_free_while_the_cosine_ends_where_it_did),
        TEST(a_micro_batch_is_free_unless_it_is_the_group_of_the_balancing_loss),
        TEST(what_is_allowed_by_name_may_differ),
        TEST(a_setting_that_was_removed_may_have_its_old_default),
    };
    return ARENA_RUN(tests);
}
