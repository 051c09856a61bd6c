/* The examples that follow a run's metrics.jsonl: what is read of it, and that Weights & Biases and MLflow keep it. */
#include "harness/python.h"

#define FOLLOW "$python \"$examples/follow_metrics.py\" run --once"

static void a_line_becomes_numbers_with_names(void **state)
{
    Lab *lab = *state;
    static const char lines[] =
        "{\"kind\":\"start\",\"model\":\"m\",\"moe_layers\":[2,5],\"arenas_planned\":{\"run\":9}}\n"
        "{\"kind\":\"step\",\"step\":1,\"loss\":2.5,\"grad_norm\":null,\"skipped\":true,\"alert\":["
        "\"loss\"],"
        "\"memory_bytes\":{\"run\":7},\"router_z\":[0.5,null],\"expert_load\":[[3,1],[0,4]]}\n"
        "{\"kind\":\"step\",\"step\":2,\"lo\n"
        "{\"kind\":\"eval\",\"step\":1,\"loss\":2.25,\"bits_per_byte\":null,\"domains\":{\"a\":"
        "null,"
        "\"b\":{\"loss\":2.25,\"bits_per_byte\":null}}}\n"
        "{\"kind\":\"later\",\"step\":3}\n"
        "{\"kind\":\"step\",\"step\":1,\"loss\":9}\n"
        "{\"kind\":\"step\",\"step\":2,\"loss\":2}\n"
        "{\"kind\":\"step\",\"step\":3,\"loss\":1.5}";
    CHECK_OK(file_make_folders(lab_path(lab, "lines/run")));
    lab_write_text(lab, lab_path(lab, "lines/run/metrics.jsonl"), lines);
    Outcome o = with_python(lab, "lines", "json", FOLLOW);
    CHECK_EXIT(o, 0);
    CHECK_TEXT(o.out, "{\"step\": 1, \"loss\": 2.5, \"skipped\": 1, \"memory_bytes/run\": 7, "
                      "\"router_z/layer_2\": 0.5, \"expert_load_max/layer_2\": 1.5, "
                      "\"expert_load_min/layer_2\": 0.5, \"expert_load_max/layer_5\": 2.0, "
                      "\"expert_load_min/layer_5\": 0.0}\n"
                      "{\"step\": 1, \"eval_loss\": 2.25, \"source_eval_loss/b\": 2.25}\n"
                      "{\"step\": 2, \"loss\": 2}\n");
}

/* Four steps, of which the last two are written again after a loss of their checkpoint: the last lines are those of
 * the file, and each step comes once, also to a follower that was stopped between. */
static void a_resumed_run_is_followed_once(void **state)
{
    Lab *lab = *state;
    Outcome o = with_python(
        lab, "again", "json",
        "set -e\n"
        "run() { \"$0\" train ../tiny.yaml train.steps=4 checkpoint.every=2 train.eval_every=2 "
        "\"$@\" 2>>log >>log; }\n"
        "run\n"
        "cat >some.py <<'END'\n"
        "import sys\n"
        "from follow_metrics import follow, remember, remembered\n"
        "state = remembered('run', 'test')\n"
        "for n, (step, row) in enumerate(follow('run', state, True)):\n"
        "    print(step, 'eval' if 'eval_loss' in row else 'step')\n"
        "    remember('run', 'test', state)\n"
        "    if n + 1 == int(sys.argv[1]): break\n"
        "END\n"
        "$python some.py 4 >parts\n"
        "rm -r run/checkpoints/step-0000000004\n"
        "run --resume\n"
        "grep -c '\"kind\":\"step\"' run/metrics.jsonl\n"
        "$python some.py 99 >>parts\n"
        "tr '\\n' ' ' <parts\n" FOLLOW " | grep -c .\n"
        "last=$(sed -n 's/.*\"step\":4,\"loss\":\\([0-9.]*\\).*\"grad_norm\".*/\\1/p' "
        "run/metrics.jsonl | tail -n 1)\n" FOLLOW " | grep -cF \"\\\"loss\\\": $last\"\n"
        ": >run/metrics.jsonl\n"
        "$python some.py 1 || echo shorter\n");
    CHECK_EXIT(o, 0);
    CHECK_TEXT(o.out, "6\n0 eval 1 step 2 step 2 eval 3 step 4 step 4 eval 7\n1\nshorter\n");
    CHECK_SAYS(o.err, "another run began there");
}

#define TWICE(what, settings)                                                                      \
    "set -e\nexport " settings "\n"                                                                \
    "run() { \"$0\" train ../tiny.yaml optimizer.schedule=constant train.eval_every=2 \"$@\" "     \
    "2>>log >>log; }\n"                                                                            \
    "run train.steps=3\n"                                                                          \
    "$python \"$examples/follow_" what ".py\" run --once 2>>log\n"                                 \
    "run train.steps=5 --resume\n"                                                                 \
    "$python \"$examples/follow_" what ".py\" run --once 2>>log\n"

static void wandb_has_each_step_once_offline(void **state)
{
    Outcome o = with_python(
        *state, "wandb", "wandb, yaml",
        TWICE("wandb",
              "WANDB_MODE=offline WANDB_SILENT=true") "echo $(ls -d wandb/offline-run-* | wc -l)\n"
                                                      "last=$(tail -n 2 run/metrics.jsonl | sed -n "
                                                      "'s/.*\"step\":5,\"loss\":\\([0-9.]*\\).*"
                                                      "\"grad_norm\".*/\\1/p')\n"
                                                      "grep -cFa \"$last\" "
                                                      "wandb/offline-run-*/*.wandb | grep -vc "
                                                      "':0'\n");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "run: 6 rows in run ");
    CHECK_SAYS(o.out, "run: 10 rows in run ");
    CHECK_SAYS(o.out, " of wandb\n2\n1\n");
}

static void mlflow_has_each_step_once_without_a_server(void **state)
{
    Outcome o = with_python(
        *state, "mlflow", "mlflow, sqlalchemy, alembic, yaml",
        TWICE("mlflow",
              "MLFLOW_TRACKING_URI=sqlite:///mlflow.db") "cat >steps.py <<'END'\n"
                                                         "import mlflow\n"
                                                         "client = mlflow.MlflowClient()\n"
                                                         "(run,) = client.search_runs(['0'])\n"
                                                         "print([m.step for m in "
                                                         "client.get_metric_history(run.info.run_"
                                                         "id, 'loss')], "
                                                         "run.data.params['model.hidden'])\n"
                                                         "print([m.step for m in "
                                                         "client.get_metric_history(run.info.run_"
                                                         "id, 'eval_loss')], run.info.status)\n"
                                                         "END\n"
                                                         "$python steps.py 2>>log\n");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "run: 6 rows in run ");
    CHECK_SAYS(o.out, "run: 10 rows in run ");
    CHECK_SAYS(o.out, " of MLflow\n[1, 2, 3, 4, 5] 32\n[0, 2, 3, 4, 5] FINISHED\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LAB_TEST(a_line_becomes_numbers_with_names),
        LAB_TEST(a_resumed_run_is_followed_once),
        LAB_TEST(wandb_has_each_step_once_offline),
        LAB_TEST(mlflow_has_each_step_once_without_a_server),
    };
    return LAB_RUN_ALL(tests);
}
