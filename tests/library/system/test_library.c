/* The library as another program meets it: what it exports, and the examples. */
#include "harness/python.h"

#include <dlfcn.h>

static const char SMALL[] =
    "{\"traceEvents\": [\n"
    "{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"aten::mm\", \"pid\": 1, \"tid\": 1, "
    "\"ts\": 0, \"dur\": 9, \"args\": {}},\n"
    "{\"ph\": \"X\", \"cat\": \"cuda_runtime\", \"name\": \"cudaLaunchKernel\", \"pid\": 1, "
    "\"tid\": 1, \"ts\": 2, \"dur\": 1, \"args\": {\"correlation\": 5}},\n"
    "{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"gemm\", \"pid\": 0, \"tid\": 7, \"ts\": 20, "
    "\"dur\": 10, \"args\": {\"correlation\": 5, \"stream\": 7}}\n]}\n";

/* A file of the build that the test belongs to. */
static const char *built(Lab *lab, const char *name)
{
    char build[FILE_PATH_MAX], path[2 * FILE_PATH_MAX];
    const char *out = NULL;
    lab_find_build(build);
    int n = snprintf(path, sizeof path, "%s/%s", build, name);
    CHECK_OK(arena_text(&lab->arena, path, (size_t)n, &out));
    return out;
}

/* Another program than ours. */
static Outcome run(Lab *lab, const char *program, const char *const *args)
{
    char ours[FILE_PATH_MAX];
    memcpy(ours, lab->program, sizeof ours);
    snprintf(lab->program, sizeof lab->program, "%s", program);
    Outcome o = lab_run(lab, &(Launch){ .cell = "cell", .args = args });
    memcpy(lab->program, ours, sizeof ours);
    return o;
}

static const char *write_small(Lab *lab)
{
    const char *path = lab_path(lab, "cell/small.json");
    CHECK_OK(file_make_folders(lab_path(lab, "cell")));
    lab_write_text(lab, path, SMALL);
    return path;
}

/* ---- names ---- */

static bool name_in(const char *text, const char *name, char after)
{
    size_t n = strlen(name);
    for (const char *at = text; (at = strstr(at, name)) != NULL; at += n)
        if (at[n] == after) return true;
    return false;
}

/* Each name that `nm` lists is a function of the header. Returns how many. */
static int check_names(Lab *lab, const char *header, const char *file, const char *flag)
{
    int n = 0;
    Outcome o = run(lab, "nm", ARGS(flag, "--defined-only", built(lab, file)));
    CHECK_EXIT(o, 0);
    for (const char *line = o.out; *line != '\0';
         line += strcspn(line, "\n"), line += *line == '\n') {
        char type = 0, name[128] = "";
        if (sscanf(line, "%*16[0-9a-f] %c %127[^\n]", &type, name) != 2) continue;
        if (!name_in(header, name, '(')) fail_msg("%s exports %s", file, name);
        n++;
    }
    return n;
}

/* How many functions of the header the library has; a function that it lacks is a failure. */
static int count_functions(void *library, const char *header)
{
    int n = 0;
    for (const char *at = header; (at = strstr(at, "switchyard_")) != NULL; at++) {
        char name[128] = "", after = 0;
        if (at[-1] != ' ' && at[-1] != '*') continue;
        if (sscanf(at, "%127[a-z_]%c", name, &after) != 2 || after != '(') continue;
        if (dlsym(library, name) == NULL) fail_msg("the library lacks %s", name);
        n++;
    }
    return n;
}

static void only_the_headers_names_are_visible(void **state)
{
    Lab *lab = *state;
    void *library = dlopen(built(lab, "lib/libswitchyard.so"), RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) fail_msg("%s", dlerror());
    const char *all = lab_read(lab, "include/switchyard.h", NULL);
    const char *traces = lab_read(lab, "include/switchyard_trace.h", NULL);
    CHECK(count_functions(library, all) >= 25);
    CHECK(count_functions(library, traces) >= 11);
    if (access("/usr/bin/nm", X_OK) != 0) {
        print_message("there is no nm\n");
        skip();
    }
    size_t bytes = strlen(all) + strlen(traces) + 1;
    char *headers = NULL;
    CHECK_OK(ARENA_NEW(&lab->arena, bytes, &headers));
    (void)snprintf(headers, bytes, "%s%s", all, traces);
    CHECK_INT(check_names(lab, headers, "lib/libswitchyard.so", "-D"), 36);
    CHECK_INT(check_names(lab, headers, "lib/libswitchyard.a", "-g"), 36);
}

/* ---- examples ---- */

static void the_example_in_c_tells_a_trace(void **state)
{
    Lab *lab = *state;
    const char *program = built(lab, "examples/trace_summary"), *small = write_small(lab);
    Outcome o = run(lab, program, ARGS(small, "ops_summary"));
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "3 events, 1 of them device work; left out: 0 that are not JSON");
    CHECK_SAYS(o.out, "computation 0.010 ms, exposed communication 0.000");
    CHECK_SAYS(o.out, "10.0 us  stream 7  gemm\n");
    CHECK_SAYS(o.out, "ops_summary: 1 rows of");
    CHECK_SAYS(o.out, "name=aten::mm, total_direct_kernel_time_sum=10,");
    o = run(lab, program, ARGS("none.json"));
    CHECK_EXIT(o, 1);
    CHECK_TEXT(o.err, "none.json cannot be opened: No such file or directory\n");
    o = run(lab, program, ARGS(small, "nothing"));
    CHECK_EXIT(o, 1);
    CHECK_SAYS(o.err, "has no sheet nothing");
}

static void the_example_in_python_tells_a_trace(void **state)
{
    Lab *lab = *state;
    char script[FILE_PATH_MAX];
    const char *library = built(lab, "lib/libswitchyard.so"), *small = write_small(lab);
    CHECK(realpath("examples/trace_summary.py", script) != NULL);
    if (access("/usr/bin/python3", X_OK) != 0) {
        print_message("there is no python3\n");
        skip();
    }
    Outcome o = run(lab, "/usr/bin/python3", ARGS(script, small, "gpu_timeline", library));
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "{'type': 'computation_time', 'time ms': 0.01, 'percent': 100.0}\n");
    o = run(lab, "/usr/bin/python3", ARGS(script, small, "idle_by_cause", library));
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "'gaps': ");
    o = run(lab, "/usr/bin/python3", ARGS(script, script, "gpu_timeline", library));
    CHECK_EXIT(o, 1);
    CHECK_SAYS(o.err, "is not a trace");
}

/* A script in which examples/switchyard.py finds the library of this build. */
static const char *with_library(Lab *lab, const char *script)
{
    char text[8192];
    const char *out = NULL;
    int n = snprintf(text, sizeof text, "export SWITCHYARD_LIBRARY='%s'\n%s",
                     built(lab, "lib/libswitchyard.so"), script);
    CHECK_OK(arena_text(&lab->arena, text, (size_t)n, &out));
    return out;
}

/* Plans, trains ten steps, and reads losses, a weight and tokens, as a script would: what the commands give. */
static void python_plans_trains_and_reads(void **state)
{
    Lab *lab = *state;
    const char *script = with_library(
        lab,
        "set -e\n"
        "\"$0\" plan ../tiny.yaml --cluster h100:2 --json >plan.json 2>log\n"
        "\"$0\" train ../tiny.yaml train.steps=10 run.dir=same --ranks 2 >>log 2>>log\n"
        "$python - <<'END'\n"
        "import json\n"
        "import switchyard as sy\n"
        "config = sy.Config('../tiny.yaml', 'train.steps=10', 'run.dir=ten')\n"
        "plan = config.plan('h100:2')\n"
        "print(plan.gpus, plan.fits, 'steps: 10' in str(config))\n"
        "print(plan.details == json.load(open('plan.json')))\n"
        "with config.train(ranks=2) as trainer:\n"
        "    count, before = len(trainer.weights), list(trainer.weights['lm_head.weight'])\n"
        "    losses = [step.loss for step in trainer]\n"
        "    after = list(trainer.weights['lm_head.weight'])\n"
        "    print(len(losses), losses[-1] < losses[0], trainer.weights.shape('lm_head.weight'))\n"
        "print([list(before[i]) == list(after[i]) for i in (0, 1)] if hasattr(before[0], '__len__')"
        " else [before[i] == after[i] for i in (0, 1)])\n"
        "saved = sy.Weights.open('ten')\n"
        "print(str(list(saved['lm_head.weight'])) == str(after), len(saved) == count)\n"
        "steps, curve = sy.Metrics('ten').curve('loss')\n"
        "print(list(steps) == list(range(1, 11)), max(abs(a - b) for a, b in zip(curve, losses)) < "
        "1e-6)\n"
        "text = sy.Tokens('../web')\n"
        "print(len(text), sum(len(document) for document in text) == text.tokens, text[0][3] >= "
        "0)\n"
        "try:\n"
        "    sy.Config('../tiny.yaml', 'train.stps=1')\n"
        "except sy.Error as error:\n"
        "    print(error.code, error)\n"
        "END\n"
        "cmp */checkpoints/step-0000000010/rank-00001.bin && echo same bits\n");
    Outcome o = with_python(lab, "python", "json", script);
    CHECK_EXIT(o, 0);
    CHECK_TEXT(o.err, "");
    CHECK_TEXT(
        o.out,
        "2 1 True\nTrue\n10 True (512, 32)\n[False, False]\nTrue True\nTrue True\n300 True True\n"
        "2 override train.stps=1: there is no setting train.stps, did you mean "
        "train.steps?\nsame bits\n");
}

/* The notebook's cells, one after the other, without Jupyter. */
static void the_notebook_draws_a_run(void **state)
{
    Lab *lab = *state;
    const char *script = with_library(
        lab,
        "set -e\n\"$0\" train ../tiny.yaml train.steps=6 train.eval_every=3 2>log >>log\n"
        "export RUN=run MPLBACKEND=Agg\n"
        "$python - <<'END'\n"
        "import json, os\n"
        "scope = {}\n"
        "cells = json.load(open(os.environ['examples'] + '/watch_a_run.ipynb'))['cells']\n"
        "for cell in cells:\n"
        "    if cell['cell_type'] == 'code': exec(''.join(cell['source']), scope)\n"
        "print(len(scope['left'].lines[0].get_xdata()), len(scope['left'].lines[1].get_xdata()))\n"
        "END\n");
    Outcome o = with_python(lab, "notebook", "numpy, matplotlib", script);
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "4 x H100: ");
    CHECK_SAYS(o.out, " of each GPU\n6 3\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LAB_TEST(only_the_headers_names_are_visible),
        LAB_TEST(the_example_in_c_tells_a_trace),
        LAB_TEST(the_example_in_python_tells_a_trace),
        LAB_TEST(python_plans_trains_and_reads),
        LAB_TEST(the_notebook_draws_a_run),
    };
    return LAB_RUN_ALL(tests);
}
