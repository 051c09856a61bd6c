/* A training that begins with another one's checkpoint (--init), and the rows init.*: what is taken
 * over, what differs, what is frozen. */
#include "corpus/shard/shard.h"
#include "harness/run_folder.h"

static void train_twelve(Lab *lab)
{
    if (file_exists(lab_path(lab, "look"))) return;
    CHECK_EXIT(RUN(lab, "look", "train", "../tiny.yaml", "train.steps=12", "moe.aux_loss=0.01"), 0);
}

static void init_takes_the_weights_of_a_checkpoint(void **state)
{
    Lab *lab = *state;
    train_twelve(lab);
    Outcome o = RUN(lab, "init", "train", "../tiny.yaml", "train.steps=0", "moe.aux_loss=0.01",
                    "--init", "../look/run");
    CHECK_EXIT(o, 0);
    size_t n = 0, m = 0;
    char *a =
        lab_read(lab, lab_path(lab, "look/run/checkpoints/step-0000000012/rank-00000.bin"), &n);
    char *b =
        lab_read(lab, lab_path(lab, "init/run/checkpoints/step-0000000000/rank-00000.bin"), &m);
    CHECK_INT(n, m);
    CHECK(memcmp(a, b, n / 4) == 0); /* weights come first */
    size_t moved = 0; /* both moments, which start at 0, are the two thirds behind them */
    for (size_t i = n / 3 + 64; i < n; i++) moved += b[i] != 0;
    CHECK_INT(moved, 0);
}

static void init_says_what_differs_and_refuses_other_parameters(void **state)
{
    Lab *lab = *state;
    train_twelve(lab);
    Outcome o = RUN(lab, "differs", "train", "../tiny.yaml", "train.steps=1", "moe.aux_loss=0.02",
                    "attention.rope_theta=5e5", "moe.top_k=1", "--init", "../look/run");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.err, "init: moe.aux_loss is 0.02, was 0.01\n");
    CHECK_SAYS(o.err, "init: attention.rope_theta is 500000, was 10000\n");
    CHECK_SAYS(o.err, "init: moe.top_k is 1, was 2\n");
    o = RUN(lab, "shapes", "train", "../tiny.yaml", "model.hidden=48", "moe.top_k=1",
            "moe.bias_rate=0.01", "--init", "../look/run");
    CHECK_REFUSED(o, 2, "model.hidden is 32 there, 48 here, moe.bias_rate is 0 there, 0.01 here;");
    CHECK(strstr(strstr(o.err, "of other names"), "top_k") == NULL);
    CHECK_OK(file_make_folders(lab_path(lab, "hf")));
    lab_write_text(lab, lab_path(lab, "hf/config.json"), "{}");
    o = RUN(lab, "shapes", "train", "../tiny.yaml", "--init", "../hf");
    CHECK_REFUSED(o, 2, "hf/config.json has no model_type");
}

static const char *const steady[] = { "data.shuffle=false", "optimizer.min_lr=1e-3",
                                      "optimizer.warmup_steps=0", "data.validation=0",
                                      "data.sources=[{name: one, path: ../one}]" };

static Outcome run_steady(Lab *lab, const char *cell, const char *steps, const char *const more[4])
{
    const char *args[] = { "train",   "../tiny.yaml", steps,     steady[0], steady[1],
                           steady[2], steady[3],      steady[4], more[0],   more[1],
                           more[2],   more[3],        NULL };
    Outcome o = lab_run(lab, &(Launch){ .cell = cell, .args = args });
    CHECK_EXIT(o, 0);
    return o;
}

static bool same_weights(Lab *lab, const char *a, int step, const char *b, int other)
{
    const char *x = lab_path(lab, "%s/run/checkpoints/step-%010d/rank-00000.bin", a, step);
    return lab_same_files(lab, x,
                          lab_path(lab, "%s/run/checkpoints/step-%010d/rank-00000.bin", b, other));
}

/* Each step reads the same four sequences, at the same rate. So a training that begins with the
 * weights and moments of step 3 makes the fourth step of the training that they are from. */
static void train_three(Lab *lab)
{
    ShardWriter w = { 0 };
    if (file_exists(lab_path(lab, "three"))) return;
    CHECK_OK(shard_create(&w, lab_path(lab, "one"), 512, 0, &lab->arena));
    for (int32_t i = 0; i < 129; i++) CHECK_OK(shard_append(&w, &(int32_t){ i * i % 509 }, 1));
    CHECK_OK(shard_end_document(&w));
    CHECK_OK(shard_commit(&w));
    run_steady(lab, "three", "train.steps=3", (const char *[4]){ 0 });
}

static void init_moments_goes_on_with_the_optimizer(void **state)
{
    Lab *lab = *state;
    train_three(lab);
    const char *const take[] = { "init.moments=true", "--init", "../three/run", NULL };
    const char *const again[] = { "init.moments=true", "--resume", "--change", "train.steps" };
    run_steady(lab, "five", "train.steps=5", (const char *[4]){ 0 });
    Outcome o = run_steady(lab, "on", "train.steps=2", take);
    CHECK_SAYS(o.err, "weights and moments of ../three/run/checkpoints/step-0000000003, step 3");
    CHECK(same_weights(lab, "on", 2, "five", 5));
    run_steady(lab, "off", "train.steps=1", take);
    run_steady(lab, "off", "train.steps=2", again);
    CHECK(same_weights(lab, "off", 2, "five", 5));
    run_steady(lab, "anew", "train.steps=2", (const char *[4]){ "--init", "../three/run" });
    CHECK(!same_weights(lab, "anew", 2, "five", 5));
}

/* Begun, stopped and resumed; and without the modules again. */
static void init_adds_modules_and_leaves_them_out(void **state)
{
    static const char begun[] = "init: 16,304 parameters of multi-token prediction (model.layers.3 "
                                "on) begin as run.seed gives them\n";
    static const char manifest[] = "%s/run/checkpoints/step-0000000002/manifest.jsonl";
    Lab *lab = *state;
    train_three(lab);
    const char *const take[] = { "mtp.layers=1", "init.moments=true", "--init", "../three/run" };
    const char *const again[] = { "mtp.layers=1", "--resume", "--change", "train.steps" };
    const char *const more[] = { "mtp.layers=1", "init.moments=true", "--init", "../grown/run" };
    const char *const less[] = { "mtp.layers=0", "init.moments=true", "--init", "../bud/run" };
    Outcome o = run_steady(lab, "grown", "train.steps=2", take);
    CHECK_SAYS(o.err, begun);
    run_steady(lab, "stopped", "train.steps=1", take);
    run_steady(lab, "stopped", "train.steps=2", again);
    CHECK(same_weights(lab, "stopped", 2, "grown", 2));
    CHECK_SAYS(lab_read(lab, lab_path(lab, manifest, "stopped"), NULL),
               "\"moment_steps\":3,\"module_moment_steps\":0,\"cpu\":\"");
    run_steady(lab, "older", "train.steps=2", more);
    CHECK_SAYS(lab_read(lab, lab_path(lab, manifest, "older"), NULL),
               "\"moment_steps\":5,\"module_moment_steps\":2,\"cpu\":\"");
    run_steady(lab, "bud", "train.steps=0", take);
    o = run_steady(lab, "cut", "train.steps=0", less);
    CHECK_SAYS(o.err, "16,304 parameters of multi-token prediction (model.layers.3 on) are left");
    CHECK(same_weights(lab, "cut", 0, "three", 3));
    o = RUN(lab, "two", "train", "../tiny.yaml", "mtp.layers=2", more[1], more[2], more[3]);
    CHECK_REFUSED(o, 2, "step-0000000002 has moments of 1 of 2 modules");
    o = RUN(lab, "two", "train", "../tiny.yaml", "mtp.layers=2", "model.hidden=48", "--init",
            "../three/run");
    CHECK_REFUSED(o, 2, "names or shapes: model.hidden is 32 there, 48 here; take");
}

static void frozen_parameters_are_counted_and_named(void **state)
{
    Outcome o = RUN(*state, "frozen", "train", "../tiny.yaml", "train.steps=1",
                    "init.frozen=[model.embed_tokens.weight, \"*norm.weight\"]");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.err, "init.frozen: 16,656 of 68,240 parameters are not trained");
    o = RUN(*state, "frozen2", "train", "../tiny.yaml", "init.frozen=[\"*.bias\"]");
    CHECK_REFUSED(o, 2, "init.frozen: *.bias");
    o = RUN(*state, "frozen2", "train", "../tiny.yaml", "init.frozen=[\"*\"]");
    CHECK_REFUSED(o, 2, "nothing is left to train");
}

/* Thawed, they would begin at 0 beside moments that are further on. */
static void frozen_roles_have_no_moments_to_go_on_with(void **state)
{
    static const char frozen[] = "init.frozen=[model.embed_tokens.weight]";
    Lab *lab = *state;
    train_three(lab);
    const char *const freeze[] = { frozen, "init.moments=true", "--init", "../three/run" };
    const char *const thaw[4] = { "--init", "../ice/run" };
    run_steady(lab, "ice", "train.steps=2", freeze);
    run_steady(lab, "stop", "train.steps=1", freeze);
    const char *const again[] = { frozen, "--resume", "--change", "train.steps" };
    run_steady(lab, "stop", "train.steps=2", again);
    CHECK(same_weights(lab, "stop", 2, "ice", 2));
    run_steady(lab, "thaw", "train.steps=1", thaw);
    Outcome o = RUN(lab, "water", "train", "../tiny.yaml", "init.moments=true", thaw[0], thaw[1]);
    CHECK_REFUSED(o, 2,
                  "has no moments of model.embed_tokens.weight, which was frozen there: take");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LAB_TEST(init_takes_the_weights_of_a_checkpoint),
        LAB_TEST(init_says_what_differs_and_refuses_other_parameters),
        LAB_TEST(init_moments_goes_on_with_the_optimizer),
        LAB_TEST(init_adds_modules_and_leaves_them_out),
        LAB_TEST(frozen_parameters_are_counted_and_named),
        LAB_TEST(frozen_roles_have_no_moments_to_go_on_with),
    };
    return LAB_RUN_ALL(tests);
}
