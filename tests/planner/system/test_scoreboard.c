/* tools/scoreboard: every published run is planned or refused with a sentence; errors, rankings and
 * what a constant replaces are counted by hand on files of a few runs. */
#include "harness/program.h"

/* DeepSeek-V2-Lite on 8 MI355X: on this stack more sequences at a time are faster. */
#define ABOUT                                                                                      \
    "title: a table # of nobody\ndate: 2026-01\nsource: \"a: b\"\ntrust: measured\n"               \
    "model: deepseek-v2-lite\ncluster: mi355x:8\nstack: primus\noptions: deepep=0\n"               \
    "run.compute: bf16\ntrain.batch: 64\nmesh.ep: 8\nladder: up\nruns:\n"
#define ONE "  - name: one\n    train.micro_batch: 1\n"

static bool has_python(void)
{
    if (access("/usr/bin/python3", X_OK) == 0) return true;
    print_message("there is no python3\n");
    return false;
}

/* Runs the tool on the folder `data` with more arguments; the answer is JSON. */
static Outcome score(Lab *lab, const char *data, const char *more)
{
    char script[FILE_PATH_MAX], line[4 * FILE_PATH_MAX];
    CHECK(realpath("tools/scoreboard", script) != NULL);
    snprintf(line, sizeof line, "exec %s \"$0\" --json --data %s %s", script, data, more);
    return SHELL(lab, "cell", line);
}

/* The same for one file of this text. */
static Outcome score_text(Lab *lab, const char *text, const char *more)
{
    static int folders;
    const char *folder = lab_path(lab, "published-%d", folders++);
    CHECK_OK(file_make_folders(folder));
    char path[FILE_PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/made.yaml", folder);
    lab_write_text(lab, path, text);
    return score(lab, folder, more);
}

static int count(const char *text, const char *part)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, part)) != NULL; at++) n++;
    return n;
}

static void every_published_run_is_planned_or_refused_with_a_sentence(void **state)
{
    char data[FILE_PATH_MAX];
    if (!has_python()) skip();
    CHECK(realpath("tests/published", data) != NULL);
    Outcome o = score(*state, data, "");
    CHECK_EXIT(o, 0);
    const char *rows = strstr(o.out, "\"runs\": ["), *rest = strstr(o.out, "\"summary\"");
    CHECK(rows != NULL && rest != NULL);
    int runs = count(rows, "\"id\": "), planned = count(rows, "\"ours\": ");
    int refused = runs - count(rows, "\"refused\": null");
    CHECK(runs >= 2 * 45); /* each as its file says, and as typed */
    CHECK_INT(planned + refused, runs);
    CHECK_INT(count(o.out, "no sentence"), 0);
    int fitted = count(rows, "\"fit\": true");
    CHECK(4 * fitted >= runs && 5 * fitted <= 2 * runs);
    int files = 0;
    CHECK(sscanf(strstr(rest, "\"sources\": "), "\"sources\": %d", &files) == 1 && files >= 8);
}

/* Published 1, 3, 2 and 2, ours rises: of 5 pairs that differ 3 agree. */
static void a_ladders_tau_counts_pairs_that_are_published_as_different(void **state)
{
    if (!has_python()) skip();
    Outcome o =
        score_text(*state,
                   ABOUT ONE "    tokens_s_gpu: 1\n"
                             "  - name: two\n    train.micro_batch: 2\n    tokens_s_gpu: 3\n"
                             "  - name: four\n    train.micro_batch: 4\n    tokens_s_gpu: 2\n"
                             "  - name: eight\n    train.micro_batch: 8\n    tokens_s_gpu: 2\n",
                   "");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "\"runs\": 4,\n    \"tau\": 0.2\n");
}

static void shares_of_the_ladders_base_are_compared_with_ours(void **state)
{
    if (!has_python()) skip();
    Outcome o = score_text(*state,
                           ABOUT ONE "    relative: 1\n    fit: true\n"
                                     "  - name: half\n    train.micro_batch: 1\n    relative: 0.5\n"
                                     "  - name: same\n    train.micro_batch: 1\n"
                                     "    relative: 1.0\n    fit: true\n",
                           "");
    CHECK_EXIT(o, 0);
    CHECK_INT(count(o.out, "\"error\": 1.0"), 2); /* as the file says, and as typed */
    CHECK_INT(count(o.out, "\"error\": 0.0"), 2);
    CHECK_SAYS(o.out, "\"never fitted\": {\n    \"runs\": 1,\n    \"median\": 1.0,\n    "
                      "\"within\": 0.0,\n    \"inside\": 0\n");
    CHECK_SAYS(o.out, "\"fitted\": {\n    \"runs\": 1,\n    \"median\": 0.0,\n    \"within\": "
                      "1.0,\n    \"inside\": 1\n");
}

/* Stops leave less than the speed of the base; the run without them has all of it. */
static void a_whole_training_is_compared_with_its_stops(void **state)
{
    if (!has_python()) skip();
    Outcome o = score_text(*state,
                           ABOUT ONE "    relative: 1\n"
                                     "  - name: whole\n    train.micro_batch: 1\n"
                                     "    tokens: 1e12\n    relative: 1.0\n"
                                     "  - name: same\n    train.micro_batch: 1\n"
                                     "    relative: 1.0\n",
                           "");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "--tokens 1e12 ");
    CHECK_INT(count(o.out, "\"error\": -0.0"), 2);
    CHECK_INT(count(o.out, "\"error\": 0.0"), 2);
}

static void a_constant_is_set_where_the_run_does_not_give_it(void **state)
{
    const char *text = ABOUT ONE "    tokens_s_gpu: 1\n    recompute.layers: [0..2]\n"
                                 "  - name: ours\n    stack: switchyard\n    options: bound=0\n"
                                 "    tokens_s_gpu: 1\n";
    if (!has_python()) skip();
    Outcome o = score_text(*state, text,
                           "--fit primus.deepep=1 --fit primus.base_gib=3 --fit share_links=0.5");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "--stack primus,deepep=0,base_gib=3,share_links=0.5 ");
    CHECK_SAYS(o.out, "--stack switchyard,bound=0,share_links=0.5 ");
    CHECK_SAYS(o.out, "recompute.layers=[0,1,2]");
    o = score_text(*state, text, "--only ours --fit half");
    CHECK_EXIT(o, 2);
    CHECK_TEXT(o.err, "scoreboard: --fit half: write NAME=NUMBER or STACK.NAME=NUMBER\n");
}

/* Graphs and moments were looked up; a ladder's own option, here compiled, is what its table compares. */
static void a_typed_run_has_what_its_table_names(void **state)
{
    const char *text = "title: a\ndate: b\nsource: c\ntrust: measured\nmodel: llama3-8b\n"
                       "stack: torchtitan\nladder: up\nrun.compute: bf16\nmesh.zero: 3\n"
                       "optimizer.moments: bf16\nplan.imbalance: 1.4\nmesh.reduce: bf16\n"
                       "data.sequence: 4096\ntrain.batch: 16\ntrain.micro_batch: 1\n"
                       "recompute.pieces: [layer]\nrecompute.layers: [0..2]\nruns:\n"
                       "  - name: one\n    hardware: gb200_trays.yaml\n    gpus: 8\n"
                       "    options: graphs=1,op_ac=1,compiled=0\n    tokens_s_gpu: 1\n"
                       "  - name: two\n    cluster: h200:8\n    options: graphs=1,op_ac=1\n"
                       "    tokens_s_gpu: 1\n";
    if (!has_python()) skip();
    Outcome o = score_text(*state, text, "--only one --fit base_gib=3");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "--stack torchtitan,op_ac=1,compiled=0,base_gib=3 --json");
    CHECK_SAYS(o.out, "--cluster gb200:8 run.compute=bf16 mesh.zero=3 data.sequence=4096 "
                      "train.batch=16 train.micro_batch=1 recompute.pieces=[layer] "
                      "recompute.layers=[0,1,2]\"");
    CHECK_INT(count(o.out, "optimizer.moments=bf16"), 1);
    CHECK_INT(count(o.out, "\"typed\": {"), 2); /* of the run, and in the summary */
}

/* A load that was looked up makes the step slower; as typed both runs are the same. */
static void what_was_looked_up_shows_in_the_typed_line_alone(void **state)
{
    if (!has_python()) skip();
    Outcome o = score_text(*state,
                           ABOUT ONE "    relative: 1\n    fit: true\n"
                                     "  - name: lost\n    train.micro_batch: 1\n"
                                     "    plan.imbalance: 3\n    relative: 1.0\n",
                           "");
    CHECK_EXIT(o, 0);
    const char *as_typed = strstr(strstr(o.out, "\"summary\""), "\"typed\": {");
    CHECK(as_typed != NULL);
    CHECK_SAYS(as_typed, "\"never fitted\": {\n    \"runs\": 1,\n    \"median\": 0.0,\n    "
                         "\"within\": 1.0,\n    \"inside\": 1\n");
    CHECK(strstr(strstr(o.out, "\"summary\""), "\"median\": 0.0,") > as_typed);
}

static void a_run_that_cannot_be_planned_says_why(void **state)
{
    if (!has_python()) skip();
    Outcome o = score_text(*state,
                           ABOUT ONE "    tokens_s_gpu: 1\n    stack: none\n"
                                     "  - name: large\n    train.micro_batch: 32\n    fits: false\n"
                                     "    train.batch: 256\n",
                           "");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "\"there is no stack none: ");
    CHECK_SAYS(o.out, "\"fit_wrong\": []");
}

static void a_wrong_file_is_refused_with_its_line(void **state)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        { ABOUT ONE "    tokens_s_gpu: 0\n", "run one: tokens_s_gpu is 0, must be above 0" },
        { ABOUT ONE, "run one: has none of tokens_s_gpu, relative, memory_gib" },
        { ABOUT ONE "    speed: 1\n", "run one: there is no key speed" },
        { ABOUT ONE "    name: two\n", "made.yaml:16: name stands twice" },
        { ABOUT ONE "  deep: 1\n", "made.yaml:16: not `key: value`" },
        { ABOUT ONE "trust: chart\n", "made.yaml:16: trust stands at the wrong depth" },
        { "title: a\n  - name: one\n", "made.yaml:2: name stands at the wrong depth" },
        { "title: a\n", "made.yaml: has no runs" },
        { "runs:\n  - name: one\n    relative: 1\n", "run one: title is missing" },
        { ABOUT ONE "    trust: hope\n", "run one: trust is hope, not one of" },
    };
    if (!has_python()) skip();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Outcome o = score_text(*state, cases[i].text, "");
        CHECK_EXIT(o, 2);
        CHECK_SAYS(o.err, cases[i].says);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_published_run_is_planned_or_refused_with_a_sentence),
        TEST(a_ladders_tau_counts_pairs_that_are_published_as_different),
        TEST(shares_of_the_ladders_base_are_compared_with_ours),
        TEST(a_whole_training_is_compared_with_its_stops),
        TEST(a_constant_is_set_where_the_run_does_not_give_it),
        TEST(a_typed_run_has_what_its_table_names),
        TEST(what_was_looked_up_shows_in_the_typed_line_alone),
        TEST(a_run_that_cannot_be_planned_says_why),
        TEST(a_wrong_file_is_refused_with_its_line),
    };
    return cmocka_run_group_tests(tests, lab_open, lab_close);
}
