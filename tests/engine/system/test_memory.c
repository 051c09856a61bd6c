/* The process uses what --dry-run says: the kernel's own figure (VmHWM) of a training with
 * evaluations and checkpoints, against the plan's total and the peak of a program that does
 * nothing. */
#include "harness/run_folder.h"

static const double WITHIN = 0.03;

#define TWO_SOURCES "data.sources=[{name: web, path: ../web}, {name: books, path: ../books}]"

#define MEASURE(lab, ...)                                                                          \
    measure((lab), &(Launch){ .cell = "cell", .args = ARGS(__VA_ARGS__), .stop_at_exit = true })

/* Peak of a run that must end well; its folder is removed. */
static Outcome measure(Lab *lab, const Launch *l)
{
    Outcome o = lab_run(lab, l);
    CHECK_EXIT(o, 0);
    CHECK(o.peak_bytes > 0);
    CHECK_OK(file_remove_tree(lab_path(lab, "cell")));
    return o;
}

static double planned_bytes(const char *dry_run)
{
    static const struct {
        const char *name;
        double bytes;
    } units[] = { { "B", 1 }, { "KiB", 1024 }, { "MiB", 1048576 }, { "GiB", 1073741824 } };
    double value = 0;
    char unit[8] = "";
    const char *at = strstr(dry_run, "\n  total ");
    CHECK(at != NULL);
    CHECK_INT(sscanf(at, " total %lf %7s", &value, unit), 2);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (strcmp(unit, units[i].name) == 0) return value * units[i].bytes;
    }
    fail_msg("unknown unit %s", unit);
    return 0;
}

/* The settings differ in everything that the plan adds up: size of weights, of activations, type,
 * what is kept, data. */
static void check_plan(Lab *lab, const char *config, const char *const *settings)
{
    static const char *const common[] = {
        "train.steps=2",      "train.eval_every=1", "train.eval_sequences=16",
        "checkpoint.every=1", "run.dir=run",        "data.tokenizer=../tokenizer.json",
        TWO_SOURCES
    };
    const char *args[32] = { "train", config };
    int n = 2;
    for (size_t i = 0; i < sizeof common / sizeof *common; i++) args[n++] = common[i];
    for (; *settings != NULL; settings++) args[n++] = *settings;
    double empty = (double)MEASURE(lab, "--help").peak_bytes;
    const Launch launch = { .cell = "cell", .args = args, .stop_at_exit = true };
    double used = (double)measure(lab, &launch).peak_bytes;
    args[n] = "--dry-run";
    double planned = planned_bytes(measure(lab, &launch).out) + empty;
    if (!(fabs(used / planned - 1) <= WITHIN)) {
        fail_msg("the run took %.1f MiB, planned were %.1f MiB with %.1f MiB of the empty program",
                 used / 1048576, planned / 1048576, empty / 1048576);
    }
}

static void quickstart_takes_what_was_planned(void **state)
{
    check_plan(*state, "quickstart", ARGS("run.threads=2"));
}

static void bf16_with_recompute_takes_what_was_planned(void **state)
{
    check_plan(*state, "quickstart",
               ARGS("run.threads=1", "run.compute=bf16", "optimizer.moments=bf16",
                    "recompute.layers=[0, 1, 2, 3]", "train.batch=8", "train.micro_batch=4"));
}

static void many_experts_under_grouped_attention_take_what_was_planned(void **state)
{
    check_plan(*state, "../tiny.yaml",
               ARGS("attention.kind=gqa", "attention.heads=4", "attention.kv_heads=2",
                    "model.hidden=160", "model.layers=5", "moe.experts=24", "moe.ffn=96",
                    "moe.top_k=4", "data.sequence=96", "train.batch=8", "train.micro_batch=8",
                    "moe.bias_rate=0.01", "moe.expert_bias=true", "moe.activation=clamped"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LAB_TEST(quickstart_takes_what_was_planned),
        LAB_TEST(bf16_with_recompute_takes_what_was_planned),
        LAB_TEST(many_experts_under_grouped_attention_take_what_was_planned),
    };
    return LAB_RUN_ALL(tests);
}
