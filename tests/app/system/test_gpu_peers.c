/* tools/peers/peer with a script in place of torchrun: the order of its tries, memory, time, crashes, what cannot run and
 * bad input. No PyTorch is needed. */
#include "harness/program.h"

#include <sys/wait.h>

#define SETTINGS                                                                                   \
    "\"data.sequence\": \"8192\", \"mesh.zero\": \"3\", \"train.batch\": \"8\", "                  \
    "\"train.micro_batch\": \"1\", \"run.compute\": \"bf16\""
#define LLAMA                                                                                      \
    "{\"name\": \"one\", \"gpus\": 2, \"model\": \"llama3-8b\", \"precision\": \"bf16\", "         \
    "\"routing\": \"random\", \"settings\": {" SETTINGS "}}"

/* Runs `script` in sh. $LAB is a new folder. `ask SECONDS [SED]` asks about two GPUs and Llama 3 8B, after the sed command
 * changed the question. Answers are in $LAB/out, errors in $LAB/err. `memory GIB` gives the GPU that much. */
static int run_script(Lab *lab, const char *script)
{
    char line[8192];
    snprintf(line, sizeof line,
             "LAB='%s'; mkdir -p $LAB/bin $LAB/packages/torchtitan; export CALLS=$LAB/calls;"
             "export SWITCHYARD_PEERS=$LAB/packages;"
             "touch $LAB/packages/torchtitan/__init__.py;"
             "unset FULL CRASHES HANGS SLOW SPEEDS;"
             "cp tests/app/system/gpu_peers/torchrun $LAB/bin;"
             "memory() { printf '#!/bin/sh\\necho %%d\\n' $(($1 * 1024)) >$LAB/bin/nvidia-smi;"
             " chmod +x $LAB/bin/nvidia-smi; };"
             "ask() { rm -f $CALLS*; echo '" LLAMA "' | sed \"$2\" | PATH=$LAB/bin:$PATH "
             "tools/peers/peer $1 >$LAB/out 2>$LAB/err; };"
             "memory 180; %s",
             lab_path(lab, "%d", lab->children), script);
    int rc = system(line);
    return WIFEXITED(rc) ? WEXITSTATUS(rc) : -1;
}

static void open_folder(Lab *lab) { lab->children++; }

static const char *text(Lab *lab, const char *name)
{
    return lab_read(lab, lab_path(lab, "%d/%s", lab->children, name), NULL);
}

static void says_not(const char *where, const char *part)
{
    if (strstr(where, part) != NULL) fail_msg("\"%s\" is in: %s", part, where);
}

/* A fourth of 8 sequences a step are a GPU's, and all fit. */
static void the_row_becomes_a_request_and_the_result_a_line(void **state)
{
    Lab *lab = *state;
    open_folder(lab);
    CHECK_INT(run_script(lab, "ask 60"), 0);
    const char *calls = text(lab, "calls"), *out = text(lab, "out");
    CHECK_SAYS(calls, "NVLS=0 PYTHONPATH=");
    CHECK_SAYS(calls, "/packages");
    CHECK_SAYS(calls, " --nproc_per_node=2 ");
    CHECK_SAYS(calls, "/tools/peers/torchtitan_step.py {\"model\": \"llama3-8b\", \"sequence\": "
                      "8192, \"batch\": 4, \"routing\": \"random\", \"steps\": 10, "
                      "\"micro_batch\": 4, \"checkpointing\": \"none\", \"eight_bits\": []}\n");
    CHECK_TEXT(text(lab, "calls.tries"), "none 4\n");
    CHECK_SAYS(out, "{\"peer\": \"torchtitan 0.3.0\", \"tokens_per_s_per_gpu\": 5000.0, \"gib\": "
                    "101.5, \"note\": \"FSDP over 2 GPUs, micro-batch 4, checkpointing none\"}\n");
    CHECK_SAYS(out, "{\"peer\": \"megatron-core\", \"why\": \"not run: it needs Transformer");
    CHECK_TEXT(text(lab, "err"), "");
}

static void tries_without_memory_are_followed_by_the_next_and_the_best_is_reported(void **state)
{
    Lab *lab = *state;
    open_folder(lab);
    CHECK_INT(run_script(lab, "export FULL='none 4,none 2' SPEEDS='none 1=7000,selective 4=6000';"
                              "ask 60"),
              0);
    CHECK_TEXT(text(lab, "calls.tries"), "none 4\nnone 2\nnone 1\nselective 4\n");
    CHECK_SAYS(text(lab, "out"), "\"tokens_per_s_per_gpu\": 7000.0,");
    CHECK_SAYS(text(lab, "out"), "micro-batch 1 in 4 passes, checkpointing none; tried: none 4: "
                                 "out of memory; none 2: out of memory; selective 4: 6,000 "
                                 "tokens/s\"}");
    CHECK_INT(run_script(lab, "export FULL='none 4,none 2,selective 4,selective 2';"
                              "export SPEEDS='none 1=5000,full 4=6000'; ask 60"),
              0);
    CHECK_TEXT(text(lab, "calls.tries"),
               "none 4\nnone 2\nnone 1\nselective 4\nselective 2\nfull 4\n");
    CHECK_SAYS(text(lab, "out"), "\"tokens_per_s_per_gpu\": 6000.0,");
    CHECK_SAYS(text(lab, "out"), "micro-batch 4, checkpointing full; tried: ");
    CHECK_INT(run_script(lab, "export FULL='none 1,selective 1,full 1';"
                              "ask 60 's/\"train.batch\": \"8\"/\"train.batch\": \"2\"/'"),
              0);
    CHECK_SAYS(text(lab, "out"), "\"why\": \"out of memory: none 1, selective 1, full 1\"}");
}

/* Llama 3 8B has states of 59.8 GiB on each of two GPUs; four sequences without checkpointing keep 92 more. */
static void what_cannot_fit_is_not_tried(void **state)
{
    Lab *lab = *state;
    open_folder(lab);
    CHECK_INT(run_script(lab, "memory 90; export SPEEDS='none 1=7000,selective 2=6000'; ask 60"),
              0);
    CHECK_TEXT(text(lab, "calls.tries"), "none 1\nselective 2\nfull 4\n");
    CHECK_INT(run_script(lab, "memory 48; ask 60; test ! -e $CALLS"), 0);
    CHECK_SAYS(text(lab, "out"), "\"why\": \"does not fit: it needs at least 64.");
    CHECK_SAYS(text(lab, "out"),
               "which has 48.0: f32 weights, gradients and moments are 59.8 of them\"}");
    /* Where nobody says how much there is, all are tried. */
    CHECK_INT(run_script(lab, "memory 48; echo 'exit 1' >$LAB/bin/nvidia-smi; ask 60"), 0);
    CHECK_TEXT(text(lab, "calls.tries"), "none 4\n");
}

static void all_ends_in_time_with_what_it_started(void **state)
{
    Lab *lab = *state;
    open_folder(lab);
    CHECK_INT(run_script(lab, "export HANGS='none 4'; a=$(date +%s); ask 7; b=$(date +%s);"
                              "test $((b - a)) -lt 7 || exit 9; p=/proc/$(cat $CALLS.hanging);"
                              "test ! -e $p || grep -q State:.Z $p/status"),
              0);
    CHECK_SAYS(text(lab, "out"), "\"why\": \"none 4: no end after 2 s\"}");
    /* The third try took 3 s of 5, so a fourth is not begun. */
    CHECK_INT(run_script(lab, "export FULL='none 4,none 2' SLOW='none 1'; ask 10"), 0);
    CHECK_TEXT(text(lab, "calls.tries"), "none 4\nnone 2\nnone 1\n");
    CHECK_SAYS(text(lab, "out"), "\"tokens_per_s_per_gpu\": 5000.0,");
    /* A try that hangs does not lose what was measured. */
    CHECK_INT(run_script(lab, "export FULL='none 4' HANGS='selective 4'; ask 7"), 0);
    CHECK_SAYS(text(lab, "out"), "\"tokens_per_s_per_gpu\": 5000.0,");
    CHECK_SAYS(text(lab, "out"), "; selective 4: no end after 2 s\"}");
}

static void a_signal_ends_what_runs(void **state)
{
    Lab *lab = *state;
    open_folder(lab);
    CHECK_INT(run_script(lab, "export HANGS='none 4'; ask 100 & it=$!;"
                              "until test -s $CALLS.hanging; do sleep 0.1; done;"
                              "pkill -TERM -P $it -f tools/peers/peer; wait $it"),
              143);
    CHECK_SAYS(text(lab, "out"), "\"why\": \"ended by signal 15\"}");
    CHECK_INT(run_script(
                  lab, "p=/proc/$(cat $CALLS.hanging); test ! -e $p || grep -q State:.Z $p/status"),
              0);
}

static void a_crash_is_named_and_nothing_more_is_tried(void **state)
{
    Lab *lab = *state;
    open_folder(lab);
    CHECK_INT(run_script(lab, "export CRASHES='none 4'; ask 60"), 0);
    CHECK_TEXT(text(lab, "calls.tries"), "none 4\n");
    CHECK_SAYS(text(lab, "out"), "\"why\": \"none 4: ValueError: no such mesh\"}");
    CHECK_SAYS(text(lab, "err"), "ChildFailedError");
    CHECK_INT(run_script(lab, "export FULL='none 4' CRASHES='selective 4'; ask 60"), 0);
    CHECK_TEXT(text(lab, "calls.tries"), "none 4\nnone 2\nselective 4\n");
    CHECK_SAYS(text(lab, "out"), "; selective 4: ValueError: no such mesh\"}");
}

static void rows_in_8_bits_are_also_tried_with_linear_layers_alone(void **state)
{
    Lab *lab = *state;
    open_folder(lab);
    CHECK_INT(run_script(lab, "ask 60 's/bf16\",/block\",/; s/llama3-8b/deepseek-v2-lite/; "
                              "s/\"data/\"model.layers\": \"6\", \"data/; "
                              "s/\"run/\"optimizer.moments\": \"bf16\", \"run/'"),
              0);
    CHECK_SAYS(text(lab, "calls"), "\"layers\": 6, \"sequence\": 8192,");
    CHECK_SAYS(text(lab, "calls"), "\"eight_bits\": [\"linear\", \"experts\"]}\n");
    CHECK_SAYS(text(lab, "calls"), "\"eight_bits\": [\"linear\"]}\n");
    CHECK_SAYS(text(lab, "out"),
               "8-bit linear and experts, moments in f32 (the row: bf16); tried: none 4, 8-bit "
               "linear: 5,000 tokens/s\"}");
    CHECK_INT(run_script(lab, "ask 60 's/bf16\",/block\",/'"), 0);
    CHECK_TEXT(text(lab, "calls.tries"), "none 4\n");
    CHECK_SAYS(text(lab, "calls"), "\"eight_bits\": [\"linear\"]}\n");
}

static void what_cannot_run_has_a_reason(void **state)
{
    static const struct {
        const char *script, *says;
    } rows[] = {
        { "ask 60 's/llama3-8b/mixtral-8x7b/'", "\"it has no mixtral-8x7b; known here are " },
        { "ask 60 's/bf16\",/f32\",/'", "\"precision f32: it is compared in bf16 and block\"" },
        { "ask 60 's/random/sorted/'", "\"routing sorted: known here are random, zipf, even\"" },
        { "ask 60 's/train.micro_batch/optimizer.kind/'",
          "\"the row sets optimizer.kind, which is not set here\"" },
        { "ask 60 's/\"mesh.zero/\"moe.experts\": \"8\", \"mesh.zero/'",
          "\"the row sets moe.experts, which is not set here\"" },
        { "ask 60 's/llama3-8b/deepseek-v3/; s/\"mesh.zero/\"mtp.layers\": \"1\", \"mesh.zero/'",
          "\"mtp.layers: prediction of several tokens is not compared\"" },
        { "ask 60 's/\"8\"/\"7\"/'",
          "\"a batch of 7 sequences does not divide by 2 GPUs, as FSDP needs\"" },
        { "SWITCHYARD_PEERS=$LAB/none; ask 60",
          "\"not installed: pip install --no-deps torchtitan==0.3.0 " },
        { "rm $LAB/bin/torchrun; echo '" LLAMA "' | PATH=$LAB/bin $(python3 -c "
          "'import sys; print(sys.executable)') tools/peers/peer 60 >$LAB/out",
          "\"torchrun is not on PATH: install PyTorch 2.11 or newer\"" },
    };
    Lab *lab = *state;
    open_folder(lab);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        CHECK_INT(run_script(lab, rows[i].script), 0);
        CHECK_SAYS(text(lab, "out"), "{\"peer\": \"torchtitan 0.3.0\", \"why\": ");
        CHECK_SAYS(text(lab, "out"), rows[i].says);
    }
    CHECK_INT(run_script(lab, "test ! -e $CALLS"), 0);
}

static void bad_input_is_refused_by_name(void **state)
{
    static const struct {
        const char *script, *says;
    } bad[] = {
        { "ask '' ", "one argument is needed, the seconds within which to end" },
        { "ask soon", "one argument is needed, the seconds within which to end" },
        { "ask 60 's/{//'", "standard input is no JSON object: " },
        { "ask 60 's/.*/[1]/'", "standard input is no JSON object: tools/gpu_table --help" },
        { "ask 60 's/\"gpus\": 2/\"gpus\": \"2\"/'",
          "the question has no gpus, or one that is no int" },
        { "ask 60 's/\"gpus\": 2/\"gpus\": 0/'", "gpus is 0: at least 1" },
        { "ask 60 's/model/name/'", "the question has no model, or one that is no str" },
        { "ask 60 's/8192/long/'",
          "data.sequence is long: a whole number of at least 1 is needed" },
        { "ask 60 's/\"8\"/\"0\"/'", "train.batch is 0: a whole number of at least 1 is needed" },
        { "ask 60 's/train.batch/train.accumulate/'", "train.batch is None: a whole number " },
    };
    Lab *lab = *state;
    open_folder(lab);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK_INT(run_script(lab, bad[i].script), 2);
        CHECK_SAYS(text(lab, "err"), "peer: ");
        CHECK_SAYS(text(lab, "err"), bad[i].says);
        says_not(text(lab, "err"), "Traceback");
        CHECK_TEXT(text(lab, "out"), "");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LAB_TEST(the_row_becomes_a_request_and_the_result_a_line),
        LAB_TEST(tries_without_memory_are_followed_by_the_next_and_the_best_is_reported),
        LAB_TEST(what_cannot_fit_is_not_tried),
        LAB_TEST(all_ends_in_time_with_what_it_started),
        LAB_TEST(a_signal_ends_what_runs),
        LAB_TEST(a_crash_is_named_and_nothing_more_is_tried),
        LAB_TEST(rows_in_8_bits_are_also_tried_with_linear_layers_alone),
        LAB_TEST(what_cannot_run_has_a_reason),
        LAB_TEST(bad_input_is_refused_by_name),
    };
    return LAB_RUN_ALL(tests);
}
