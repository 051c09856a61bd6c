/* tools/gpu_table with scripts in place of switchyard, nvidia-smi and peers: order of work, the table, what fails, hangs
 * or has other losses, calls that are ended and go on. Then the program itself, on two ranks of the processor. */
#include "harness/program.h"

#include <sys/wait.h>

#define HEAD                                                                                       \
    "deepseek-v2-lite\\tdata.sequence=4096\\tmesh.ep={N} train.batch={8*N} train.micro_batch=4\\t"
#define ROW(name) name "\\t2-4\\t" HEAD "bf16\\talltoall\\trandom\\t8\\t\\n"

/* Runs `script` in sh: $LAB is a new folder, `table ARGUMENT...` the tool with two GPUs and stand-ins, $OUT its results. */
static int run_script(Lab *lab, const char *script)
{
    char line[8192];
    snprintf(
        line, sizeof line,
        "LAB='%s'; OUT=$LAB/out; export CALLS=$LAB/calls; unset CUDA_VISIBLE_DEVICES HANGS FAILS "
        "LOSES UNPLANNED SLOW;"
        "table() { PATH=$LAB/bin:$PATH tools/gpu_table --gpus 2 --table $LAB/rows"
        " --program tests/app/system/gpu_table/switchyard --out $OUT \"$@\" >$LAB/said 2>&1; };"
        "smi() { mkdir -p $LAB/bin; printf '#!/bin/sh\\nseq -f \"GPU %%%%g\" %%s\\n' $1 "
        ">$LAB/bin/nvidia-smi;"
        " chmod +x $LAB/bin/nvidia-smi; };"
        "%s",
        lab_path(lab, "%d", lab->children), script);
    int rc = system(line);
    return WIFEXITED(rc) ? WEXITSTATUS(rc) : -1;
}

/* A folder for a test, with as many GPUs as that. */
static void open_folder(Lab *lab, const char *rows, int gpus)
{
    char line[4096];
    lab->children++;
    snprintf(line, sizeof line, "mkdir $LAB; smi %d; printf '%s' >$LAB/rows", gpus, rows);
    CHECK_INT(run_script(lab, line), 0);
}

static const char *text(Lab *lab, const char *name)
{
    return lab_read(lab, lab_path(lab, "%d/%s", lab->children, name), NULL);
}

static void says_not(const char *where, const char *part)
{
    if (strstr(where, part) != NULL) fail_msg("\"%s\" is in: %s", part, where);
}

static int count(const char *where, const char *part)
{
    int n = 0;
    for (const char *at = where; (at = strstr(at, part)) != NULL; at++) n++;
    return n;
}

/* The value of a column of table.tsv, or of another file, in the line of this row. */
static const char *value(Lab *lab, const char *file, const char *row, const char *column)
{
    char script[512];
    snprintf(
        script, sizeof script,
        "awk -F '\\t' -v c='%s' -v r='%s' 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == c) k = i }"
        " $1 == r { printf \"%%s\", $k }' $OUT/%s >$LAB/value",
        column, row, file);
    CHECK_INT(run_script(lab, script), 0);
    return text(lab, "value");
}

/* The recorded step has 65,536 tokens on two GPUs in 0.4096 s. Its plan is 0.402437 s, and with the rows of its busiest
 * rank 0.41 s. */
static void plans_come_first_and_each_row_is_checked_timed_and_exposed(void **state)
{
    Lab *lab = *state;
    open_folder(lab, ROW("one") "two\\t8\\t" HEAD "bf16\\talltoall\\trandom\\t8\\t\\n", 4);
    CHECK_INT(run_script(lab, "table"), 0);
    const char *calls = text(lab, "calls");
    const char *const order[] = {
        "plan NVLS=0 GPUS=0,1 plan deepseek-v2-lite data.sequence=4096 run.compute=bf16 "
        "mesh.ep=2 train.batch=16 train.micro_batch=4 moe.exchange=alltoall --cluster h200:2",
        "doctor NVLS=0 GPUS=0,1",
        "--shrink",
        "mesh.ep=2 moe.exchange=alltoall --ranks 2",
        "--shrink",
        "--ranks 1",
        "--ranks 2 --steps 8 --json\n",
        "--json plan.imbalance=1.0550\n",
        "--json --exposed\n"
    };
    const char *at = calls;
    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        CHECK_SAYS(at, order[i]);
        at = strstr(at, order[i]) + 1;
    }
    CHECK_INT(count(calls, "\n"), 7);
    CHECK_TEXT(value(lab, "plan.tsv", "one", "tokens_s_gpu"), "81423.9");
    const char *const cells[][2] = {
        { "state", "ok" },
        { "tokens_s_gpu", "80000.0" },
        { "plan_tokens_s_gpu", "81423.9" },
        { "mfu", "0.4725" },
        { "mfu_torchtitan", "0.5301" },
        { "joules_a_token", "0.008500" },
        { "gib", "61.19" },
        { "plan_gib", "61.09" },
        { "ratio", "1.0178" },
        { "balanced_ratio", "0.9990" },
        { "exposed_ep_s", "0.009500" },
        { "plan_ep_s", "0.010658" },
        { "exposed_zero_s", "0.012000" },
        { "exposed_all_s", "0.020100" },
        { "exposed_tp_s", "" },
        { "micro_batch", "4" },
        { "busiest_rank", "1.055" },
    };
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++)
        CHECK_TEXT(value(lab, "table.tsv", "one", cells[i][0]), cells[i][1]);
    CHECK_TEXT(value(lab, "table.tsv", "two", "state"), "needs 8 GPUs");
    const char *page = text(lab, "out/table.md");
    CHECK_SAYS(page, "UTC: nothing is slow\n");
    CHECK_SAYS(page, "| one | bf16 | 80,000 | 81,424 | 47.2; 53.0 | 8.5 | 61.2 (61.1) | 409.6 | "
                     "+1.8 % (-0.1 %) |");
    CHECK_SAYS(page, "| one | 9.5 (10.7) | 12.0 (0.0) |  |  |  | 20.1 |");
    CHECK_SAYS(page, "- two: needs 8 GPUs\n");
    CHECK_SAYS(
        page,
        "switchyard bench step deepseek-v2-lite data.sequence=4096 run.compute=bf16 mesh.ep=2 ");
}

static void what_fails_or_hangs_says_so_and_the_rest_goes_on(void **state)
{
    Lab *lab = *state;
    open_folder(lab,
                "bad\\t2\\tqwen3-8b\\t\\tmesh.zero=3\\tbf16\\t-\\trandom\\t8\\t\\n"
                "late\\t2\\tllama3-8b\\t\\tmesh.zero=3\\tbf16\\t-\\trandom\\t8\\t\\n"
                "deep\\t2\\tllama-7b\\t\\tmesh.pp=2 mesh.vpp=4\\tbf16\\t-\\trandom\\t8\\t\\n"
                "wide\\t2\\tllama2-7b\\t\\tmesh.zero=3\\tbf16\\t-\\trandom\\t8\\t\\n" ROW("last"),
                2);
    CHECK_INT(run_script(lab, "export FAILS='qwen3-8b run.compute=bf16 mesh.zero=3 --ranks'"
                              " HANGS='llama3-8b run.compute=bf16 mesh.zero=3 --ranks'"
                              " UNPLANNED='plan llama2-7b'; table --limit 5"),
              3);
    CHECK_TEXT(value(lab, "table.tsv", "bad", "state"),
               "failed: exit code 3: error: rank 1: device out of memory");
    CHECK_SAYS(value(lab, "table.tsv", "late", "state"), "hung: no end after 5 s;");
    CHECK_TEXT(value(lab, "table.tsv", "wide", "state"), "does not fit by its plan");
    CHECK_TEXT(value(lab, "table.tsv", "last", "state"), "ok");
    says_not(text(lab, "calls"), "bench step llama2-7b");
    /* The shrunk model has a layer for each stage. */
    CHECK_SAYS(text(lab, "calls"), "run.tune=false model.layers=8 train.batch=8 --steps 1");
    CHECK_SAYS(text(lab, "out/table.md"),
               "- bad: failed: exit code 3: error: rank 1: device out of memory\n");
    /* Neither what is there nor what failed is run again; --again runs what failed. */
    CHECK_INT(run_script(lab, "rm $CALLS; table"), 3);
    says_not(text(lab, "calls"), "bench");
    CHECK_INT(run_script(lab, "rm $CALLS; table --again --rows 'bad|late|last'"), 0);
    CHECK_INT(count(text(lab, "calls"), "bench step"), 4);
    CHECK_TEXT(value(lab, "table.tsv", "bad", "state"), "ok");
}

static void other_losses_than_one_gpus_are_marked_and_not_timed(void **state)
{
    Lab *lab = *state;
    open_folder(lab, ROW("one") "eight\\t2\\t" HEAD "block\\talltoall\\trandom\\t8\\t\\n", 2);
    CHECK_INT(run_script(lab, "export LOSES='mesh.ep=2 moe.exchange=alltoall --ranks 2'; table"),
              3);
    CHECK_TEXT(value(lab, "table.tsv", "one", "state"),
               "CHECK FAILED: other losses than one GPU's: step 1 has 6.39498016, not 6.39478016 "
               "(limit 1e-05)");
    CHECK_TEXT(value(lab, "table.tsv", "one", "tokens_s_gpu"), "");
    says_not(text(lab, "calls"), "run.compute=bf16 mesh.ep=2 train.batch=16 train.micro_batch=4 "
                                 "moe.exchange=alltoall --ranks 2 --steps 8");
    /* Of 8-bit products a last bit may turn a code. */
    CHECK_TEXT(value(lab, "table.tsv", "eight", "state"), "ok");
    CHECK_SAYS(text(lab, "calls"), "--shrink run.compute=bf16 fp8.recipe=block model.hidden=512");
    CHECK_INT(run_script(lab, "table"), 3);
    CHECK_SAYS(value(lab, "table.tsv", "one", "state"), "CHECK FAILED: ");
    CHECK_INT(run_script(lab, "export FAILS='--ranks 1'; table --out $LAB/other"), 3);
    CHECK_SAYS(text(lab, "other/table.md"),
               "- one: CHECK FAILED: its check on one GPU ended: exit code 3: error: rank 1");
}

static void a_call_that_is_ended_goes_on_where_it_was(void **state)
{
    Lab *lab = *state;
    open_folder(lab, ROW("one") "two\\t2\\tqwen3-8b\\t\\tmesh.zero=3\\tbf16\\t-\\tzipf\\t8\\t\\n",
                2);
    CHECK_INT(run_script(lab, "export HANGS='--zipf --ranks'; table & it=$!;"
                              "until test -s $CALLS.hanging; do sleep 0.1; done;"
                              "pkill -TERM -P $it; wait $it"),
              130);
    CHECK_SAYS(text(lab, "said"), "interrupted; the same command continues from there");
    CHECK_TEXT(value(lab, "table.tsv", "one", "state"), "ok");
    CHECK_TEXT(value(lab, "table.tsv", "two", "state"), "not run");
    CHECK_INT(run_script(
                  lab, "p=/proc/$(cat $CALLS.hanging); test ! -e $p || grep -q State:.Z $p/status"),
              0);
    /* A call that is killed may leave half a line. Plans stay those of before the runs. */
    CHECK_INT(run_script(lab, "printf '{\"kind\": \"ro' >>$OUT/results.jsonl; rm $CALLS; table"),
              0);
    const char *calls = text(lab, "calls");
    CHECK_INT(count(calls, " plan "), count(calls, "plan.imbalance=1.0550"));
    CHECK_INT(count(calls, "--steps 8"), 1);
    CHECK_SAYS(calls, "qwen3-8b run.compute=bf16 mesh.zero=3 --zipf --ranks 2 --steps 8");
    CHECK_TEXT(value(lab, "table.tsv", "two", "state"), "ok");
    CHECK_INT(run_script(lab, "rm $CALLS; table"), 0);
    CHECK_INT(count(text(lab, "calls"), "\n"), 1); /* doctor */
}

/* 45 s are expected of the first start, 11 steps of 0.4 s, and 20 s of each of two checks. */
static void no_row_begins_that_would_not_end_in_time(void **state)
{
    Lab *lab = *state;
    open_folder(lab, ROW("one"), 2);
    CHECK_INT(run_script(lab, "table --seconds 80"), 0);
    CHECK_SAYS(value(lab, "table.tsv", "one", "state"), "no time: it needs about 90 s, ");
    says_not(text(lab, "calls"), "bench");
    CHECK_INT(run_script(lab, "table --seconds 200"), 0);
    CHECK_TEXT(value(lab, "table.tsv", "one", "state"), "ok");
}

static void a_slow_gpu_is_said_at_the_top(void **state)
{
    Lab *lab = *state;
    open_folder(lab, ROW("one"), 4);
    CHECK_INT(run_script(lab, "export SLOW=1 CUDA_VISIBLE_DEVICES=3,1,0; table"), 0);
    CHECK_SAYS(text(lab, "calls"), "doctor NVLS=0 GPUS=3,1 doctor");
    CHECK_SAYS(text(lab, "out/table.md"),
               " UTC: slow: GPU, products (rank 1 of node: 433.5 TFLOP/s)\n");
    CHECK_SAYS(text(lab, "said"), "doctor: slow: GPU, products (rank 1 of node");
    CHECK_INT(run_script(lab, "export FAILS=doctor; table --out $LAB/other"), 0);
    CHECK_SAYS(text(lab, "other/table.md"),
               " UTC: failed, exit code 3: error: rank 1: device out of memory\n");
}

static void peers_are_asked_row_by_row(void **state)
{
    Lab *lab = *state;
    open_folder(lab, ROW("one"), 2);
    CHECK_INT(run_script(lab, "table --peer tests/app/system/gpu_table"), 0);
    const char *page = text(lab, "out/table.md"), *question = text(lab, "calls.question");
    CHECK_SAYS(page, "| one | torchtitan 0.3.0 | 50,000 | 1.60 | 101.5 | FSDP |\n");
    CHECK_SAYS(page, "| one | megatron-core |  |  |  | not installed |\n");
    says_not(page, "no peer");
    CHECK_SAYS(question, "\"name\": \"one\", \"gpus\": 2, \"model\": \"deepseek-v2-lite\"");
    CHECK_SAYS(question, "\"mesh.ep\": \"2\"");
    CHECK_INT(run_script(lab, "rm $CALLS.question; table --peer tests/app/system/gpu_table; test ! "
                              "-e $CALLS.question"),
              0);
    /* The peers that the project has. */
    CHECK_INT(run_script(lab, "mkdir -p $LAB/packages/torchtitan; touch "
                              "$LAB/packages/torchtitan/__init__.py;"
                              "cp tests/app/system/gpu_peers/torchrun $LAB/bin; export "
                              "SWITCHYARD_PEERS=$LAB/packages;"
                              "table --peer tools/peers --out $LAB/other"),
              0);
    page = text(lab, "other/table.md");
    CHECK_SAYS(page, "| one | torchtitan 0.3.0 | 5,000 | 16.00 | 101.5 | FSDP over 2 GPUs, ");
    CHECK_SAYS(page, "| one | megatron-core |  |  |  | not run: it needs Transformer Engine");
}

/* Only what was measured becomes a section, between its markers. */
static void a_page_gets_the_section_between_its_markers(void **state)
{
    Lab *lab = *state;
    const char *mark = "<!-- gpu_table: made by tools/gpu_table --markdown -->";
    open_folder(lab, ROW("one") "two\\t8\\t" HEAD "bf16\\talltoall\\trandom\\t8\\t\\n", 2);
    CHECK_INT(run_script(lab, "table --rows two; tools/gpu_table --markdown $OUT 2>$LAB/why"), 2);
    CHECK_SAYS(text(lab, "why"), "has no row that was measured: there is nothing to write");
    CHECK_INT(
        run_script(lab,
                   "table; printf 'before\\n<!-- gpu_table: made by tools/gpu_table --markdown "
                   "-->\\nold\\n"
                   "<!-- end -->\\nafter\\n' >$LAB/page; tools/gpu_table --markdown $OUT $LAB/page;"
                   "cp $LAB/page $LAB/first; tools/gpu_table --markdown $OUT $LAB/page; cmp "
                   "$LAB/page $LAB/first"),
        0);
    const char *page = text(lab, "page");
    CHECK(strncmp(page, "before\n", 7) == 0 && strncmp(page + 7, mark, strlen(mark)) == 0);
    CHECK_SAYS(page, "2 x NVIDIA H200, 20");
    CHECK_SAYS(page, "| one | bf16 | 80,000 |");
    CHECK_SAYS(page, "\n<!-- end -->\nafter\n");
    says_not(page, "old");
    says_not(page, "two");
    CHECK_INT(
        run_script(lab,
                   "echo nothing >$LAB/page; tools/gpu_table --markdown $OUT $LAB/page 2>$LAB/why"),
        2);
    CHECK_SAYS(text(lab, "why"), "put both where the section is to stand");
}

static void plans_are_held_against_what_was_measured(void **state)
{
    Lab *lab = *state;
    open_folder(lab, "one\\t2\\t" HEAD "bf16\\talltoall\\trandom\\t8\\t\\t80000\\n", 0);
    CHECK_INT(run_script(lab, "table --plan"), 0);
    CHECK_SAYS(text(lab, "said"), "81423.9  0.40243   61.09     80000  yes, +1.8 %\n");
    CHECK_SAYS(text(lab, "said"), "median |error| 1.8 %, largest 1.8 %\n");
    CHECK_INT(count(text(lab, "calls"), "\n"), 1);
}

static void bad_input_is_refused_by_name(void **state)
{
    static const struct {
        const char *script, *says;
    } bad[] = {
        { "table --gpus 0", "--gpus N: give the number of GPUs, from 1 on" },
        { "table --gpus 4", "--gpus 4: 2 may be used here (nvidia-smi -L, CUDA_VISIBLE_DEVICES)" },
        { "export CUDA_VISIBLE_DEVICES=1; table", "--gpus 2: 1 may be used here" },
        { "rm $LAB/bin/nvidia-smi; table",
          "no GPU: nvidia-smi does not run here; --machine cpu uses the processor" },
        { "smi 2; table --rows '('", "--rows ( is no regular expression" },
        { "table --rows three", "--rows three: no name in " },
        { "table --table $LAB/none", "/none: No such file or directory" },
        { "table --program $LAB/none", "no program at " },
        { "table --peer $LAB", "there is no program " },
        { "printf 'a\\tb\\n' >$LAB/short; table --table $LAB/short",
          "/short:1: 2 columns, not 10 or 11: name, gpus" },
        { "sed s/bf16/fp4/ $LAB/rows >$LAB/fp4; table --table $LAB/fp4",
          "/fp4:1: precision is fp4; known are bf16, block, f32" },
        { "cat $LAB/rows $LAB/rows >$LAB/twice; table --table $LAB/twice",
          "/twice:2: one stands there twice for 2 GPUs" },
        { "sed 's|{N}|{N/3}|' $LAB/rows >$LAB/third; table --table $LAB/third",
          "mesh.ep={N/3}: 2 GPUs do not divide by 3" },
    };
    Lab *lab = *state;
    open_folder(lab, ROW("one"), 2);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_INT(run_script(lab, bad[i].script), 2);
        CHECK_SAYS(text(lab, "said"), bad[i].says);
        says_not(text(lab, "said"), "Traceback");
    }
}

/* A row of the processor, in a pack where nothing else of the tree is. */
static void a_pack_measures_two_ranks_of_the_processor(void **state)
{
    Lab *lab = *state;
    open_folder(lab,
                "tiny\\t2\\tdeepseek-v2-lite\\tmodel.layers=2 model.hidden=64 model.ffn=64 "
                "moe.ffn=32 model.vocab=512"
                " data.sequence=32\\tmesh.ep={N} train.batch={2*N} "
                "train.micro_batch=2\\tf32\\talltoall\\tzipf\\t3\\t\\n",
                0);
    CHECK_INT(
        run_script(
            lab, "tools/gpu_report pack_table_built build/release/switchyard $LAB/pack >/dev/null;"
                 "mkdir $LAB/there; tar -C $LAB/there -xJf $LAB/pack; cd $LAB; env -i PATH=$PATH "
                 "HOME=/none"
                 " there/tools/gpu_table --gpus 2 --machine cpu --table rows --out out >said 2>&1"),
        0);
    CHECK_TEXT(value(lab, "table.tsv", "tiny", "state"), "ok");
    CHECK_TEXT(value(lab, "table.tsv", "tiny", "routing"), "zipf");
    CHECK(strtod(value(lab, "table.tsv", "tiny", "tokens_s_gpu"), NULL) > 0);
    CHECK(value(lab, "table.tsv", "tiny", "exposed_ep_s")[0] != 0);
    CHECK_SAYS(text(lab, "said"), "1 of 1 rows are in out/table.md");
    CHECK_INT(run_script(lab, "$LAB/there/tools/peers/peer --help >/dev/null &&"
                              "test -e $LAB/there/tools/peers/torchtitan_step.py"),
              0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LAB_TEST(plans_come_first_and_each_row_is_checked_timed_and_exposed),
        LAB_TEST(what_fails_or_hangs_says_so_and_the_rest_goes_on),
        LAB_TEST(other_losses_than_one_gpus_are_marked_and_not_timed),
        LAB_TEST(a_call_that_is_ended_goes_on_where_it_was),
        LAB_TEST(no_row_begins_that_would_not_end_in_time),
        LAB_TEST(a_slow_gpu_is_said_at_the_top),
        LAB_TEST(peers_are_asked_row_by_row),
        LAB_TEST(a_page_gets_the_section_between_its_markers),
        LAB_TEST(plans_are_held_against_what_was_measured),
        LAB_TEST(bad_input_is_refused_by_name),
        LAB_TEST(a_pack_measures_two_ranks_of_the_processor),
    };
    return LAB_RUN_ALL(tests);
}
