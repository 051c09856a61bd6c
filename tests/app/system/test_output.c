/* Results reach stdout or the program fails; messages obey --verbose, --quiet and SWITCHYARD_LOG;
 * every wrong word names the nearest right one. */
#include "harness/run_folder.h"

static const char TRACE[] =
    "{\"traceEvents\": [\n"
    "{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"aten::mm\", \"pid\": 1, \"tid\": 1, "
    "\"ts\": 10, \"dur\": 50},\n"
    "{\"ph\": \"X\", \"cat\": \"cuda_runtime\", \"name\": \"cudaLaunchKernel\", \"pid\": 1, "
    "\"tid\": 1, \"ts\": 20, \"dur\": 5, \"args\": {\"correlation\": 7}},\n"
    "{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"gemm\", \"pid\": 0, \"tid\": 7, \"ts\": 40, "
    "\"dur\": 9, \"args\": {\"correlation\": 7, \"device\": 0, \"stream\": 7}}]}\n";

/* A run of one step and a trace, once. */
static void make_inputs(Lab *lab)
{
    CHECK_OK(file_make_folders(lab_path(lab, "cell/")));
    if (file_exists(lab_path(lab, "cell/trace.json"))) return;
    lab_write_text(lab, lab_path(lab, "cell/trace.json"), TRACE);
    lab_copy(lab, "cell", "tests/golden/dcp/megatron", "dcp");
    Outcome o = RUN(lab, "cell", "train", "../tiny.yaml", "train.steps=1");
    CHECK_EXIT(o, 0);
}

/* Commands that print; %d tells one call's outputs from another's. */
static const char *const printing[] = {
    "--help",
    "--version",
    "help train",
    "train --help",
    "train --settings",
    "plan --settings",
    "train ../tiny.yaml --dry-run",
    "eval run",
    "generate run --prompt a --tokens 3",
    "plan ../tiny.yaml --cluster h200:1",
    "trace --help",
    "trace report trace.json",
    "trace report trace.json --out report%d",
    "bench trace trace.json --steps 1",
    "convert to-hf run hf%d",
    "convert from-dcp dcp/alike dcp%d --config dcp/alike.yaml",
    "data inspect ../web",
    "data prepare --tokenizer ../tokenizer.json --out shard%d ../web.jsonl",
    "data batches ../tiny.yaml --steps 1 --out batches%d",
    "viz --help",
};
enum { PRINTING = sizeof printing / sizeof *printing };

/* The shell's line `before "$0" COMMAND behind`, with the number of the call for each %d. */
static Outcome print_into(Lab *lab, int command, int call, const char *before, const char *behind)
{
    char words[256] = "", line[512];
    const char *number = strstr(printing[command], "%d");
    int head = number == NULL ? (int)strlen(printing[command]) : (int)(number - printing[command]);
    snprintf(words, sizeof words, "%.*s", head, printing[command]);
    if (number != NULL)
        snprintf(words + head, sizeof words - (size_t)head, "%d%s", call, number + 2);
    snprintf(line, sizeof line, "%s \"$0\" %s %s", before, words, behind);
    return SHELL(lab, "cell", line);
}

static void output_that_is_lost_is_a_failure(void **state)
{
    Lab *lab = *state;
    make_inputs(lab);
    for (int i = 0; i < PRINTING; i++) {
        Outcome o = print_into(lab, i, 1, "", ">/dev/full");
        CHECK_REFUSED(o, 3, "stdout: cannot write: No space left on device");
        o = print_into(lab, i, 2, "", ">&-");
        CHECK_REFUSED(o, 3, "stdout: cannot write: Bad file descriptor");
    }
}

/* A file that took number 1 would get the result's text. */
static void files_are_whole_when_stdout_is_closed(void **state)
{
    Lab *lab = *state;
    make_inputs(lab);
    Outcome o = SHELL(lab, "cell",
                      "\"$0\" data prepare --tokenizer ../tokenizer.json --out closed "
                      "../web.jsonl <&- >&- 2>&-");
    CHECK_EXIT(o, 3);
    size_t here = 0, there = 0;
    const char *a = lab_read(lab, lab_path(lab, "cell/closed.bin"), &here);
    const char *b = lab_read(lab, lab_path(lab, "web.bin"), &there);
    CHECK(here == there && memcmp(a, b, here) == 0);
}

static void a_reader_that_leaves_ends_the_program_quietly(void **state)
{
    Lab *lab = *state;
    make_inputs(lab);
    for (int i = 0; i < PRINTING; i++) {
        Outcome o = print_into(lab, i, 3, "{ sleep 0.05;", "; echo $? >code; } | :; cat code");
        CHECK_TEXT(o.out, "0\n");
        CHECK(strstr(o.err, "error") == NULL);
    }
}

static void a_plan_that_does_not_fit_is_printed_and_fails(void **state)
{
    Outcome o = RUN(*state, "cell", "plan", "deepseek-v3", "--cluster", "h200:1");
    CHECK_REFUSED(o, 3, "plan: ");
    CHECK_SAYS(o.out, "GiB");
}

/* ---- messages ---- */

static void source_locations_are_for_those_who_ask(void **state)
{
    static const struct {
        const char *line;
        int frames;
    } rows[] = {
        { "\"$0\" train none.yaml", false },
        { "\"$0\" train --quiet none.yaml", false },
        { "\"$0\" train none.yaml --verbose", true },
        { "\"$0\" --verbose train none.yaml", true },
        { "SWITCHYARD_LOG=debug \"$0\" train none.yaml", true },
        { "SWITCHYARD_LOG=debug \"$0\" train none.yaml --quiet", false },
        { "SWITCHYARD_LOG=error \"$0\" train none.yaml", false },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Outcome o = SHELL(*state, "cell", rows[i].line);
        CHECK_REFUSED(o, 2, "there is neither a file nor a preset none.yaml");
        CHECK_INT(strstr(o.err, "\n  at src/engine/config/") != NULL, rows[i].frames);
    }
    Outcome o = SHELL(*state, "cell", "SWITCHYARD_LOG=loud \"$0\" --help");
    CHECK_REFUSED(o, 2, "SWITCHYARD_LOG is \"loud\", must be error, warn, info or debug");
}

static void quiet_training_says_only_its_result(void **state)
{
    Lab *lab = *state;
    Outcome o = RUN(lab, "quiet", "train", "../tiny.yaml", "train.steps=1", "--quiet");
    CHECK_EXIT(o, 0);
    CHECK_TEXT(o.err, "");
    CHECK_SAYS(o.out, "report ");
}

static void the_version_is_text_or_json(void **state)
{
    Outcome o = RUN(*state, "cell", "--version");
    CHECK_EXIT(o, 0);
    CHECK(strncmp(o.out, "switchyard 0.", 13) == 0);
    CHECK_SAYS(o.out, "\n  zlib ");
    CHECK_SAYS(o.out, "\n  zstd ");
    o = RUN(*state, "cell", "--version", "--json");
    CHECK_EXIT(o, 0);
    CHECK(strncmp(o.out, "{\"version\":\"0.", 14) == 0);
    CHECK_SAYS(o.out, ",\"isa\":\"x86-64-v");
    CHECK_SAYS(o.out, "\"}\n");
}

static void help_of_a_command_is_its_help_option(void **state)
{
    Outcome a = RUN(*state, "cell", "help", "data", "prepare");
    Outcome b = RUN(*state, "cell", "data", "prepare", "--help");
    CHECK_EXIT(a, 0);
    CHECK_TEXT(a.out, b.out);
    a = RUN(*state, "cell", "help");
    b = RUN(*state, "cell", "--help");
    CHECK_TEXT(a.out, b.out);
    a = RUN(*state, "cell", "help", "trian");
    CHECK_REFUSED(a, 2, "no command \"trian\", did you mean train?");
}

/* ---- words ---- */

/* The word behind two blanks at a line's begin: an option's or a command's name. */
static bool row_name(const char *line, char out[64])
{
    size_t n = strcspn(line + 2, " \n");
    if (strncmp(line, "  ", 2) != 0 || line[2] == ' ' || n == 0 || n > 62) return false;
    memcpy(out, line + 2, n);
    out[n] = '\0';
    return true;
}

/* Asks for `name` without its last letter; the answer is the nearest name. */
static void check_shorter(Lab *lab, const char *command, const char *name)
{
    char line[256];
    snprintf(line, sizeof line, "\"$0\" %s %.*s", command, (int)strlen(name) - 1, name);
    Outcome o = SHELL(lab, "cell", line);
    CHECK_REFUSED(o, 2, name[0] == '-' ? "did you mean --" : "did you mean ");
}

/* Every option and every command under `command`. Returns how many were tried. */
static int check_words(Lab *lab, const char *command)
{
    char line[128], name[64], below[128];
    int tried = 0;
    snprintf(line, sizeof line, "\"$0\" %s --help", command);
    Outcome o = SHELL(lab, "cell", line);
    CHECK_EXIT(o, 0);
    bool group = strstr(o.out, " COMMAND ...\n") != NULL;
    const char *end = strstr(o.out, "\nexample:");
    for (const char *at = o.out; at != NULL && (end == NULL || at < end);
         at = strchr(at, '\n') == NULL ? NULL : strchr(at, '\n') + 1) {
        if (!row_name(at, name) || strlen(name) < 4) continue;
        check_shorter(lab, command, name);
        tried++;
        if (!group || name[0] == '-' || strcmp(name, "help") == 0) continue;
        snprintf(below, sizeof below, "%s %s", command, name);
        tried += check_words(lab, below);
    }
    return tried;
}

static void every_wrong_word_names_the_nearest_right_one(void **state)
{
    int tried = check_words(*state, "") + check_words(*state, "plan calibrate");
    if (tried < 150) fail_msg("only %d words were tried", tried);
}

/* Behind the steps that are listed, and no others. */
static void steps_that_are_listed_report_their_8_bit_numbers(void **state)
{
    Lab *lab = *state;
    Outcome o = RUN(lab, "codes", "train", "../tiny.yaml", "train.steps=3", "fp8.recipe=block",
                    "fp8.report_steps=[2]");
    CHECK_EXIT(o, 0);
    const char *line = strstr(o.err, ": codes of ");
    int tensors = 0;
    CHECK_SAYS(o.err, "step 2: codes of ");
    CHECK_INT(sscanf(line, ": codes of %d 8-bit tensors", &tensors), 1);
    CHECK(tensors > 10);
    CHECK_SAYS(line, " are 0, ");
    CHECK(strstr(line + 1, ": codes of ") == NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LAB_TEST(steps_that_are_listed_report_their_8_bit_numbers),
        LAB_TEST(output_that_is_lost_is_a_failure),
        LAB_TEST(files_are_whole_when_stdout_is_closed),
        LAB_TEST(a_reader_that_leaves_ends_the_program_quietly),
        LAB_TEST(a_plan_that_does_not_fit_is_printed_and_fails),
        LAB_TEST(source_locations_are_for_those_who_ask),
        LAB_TEST(quiet_training_says_only_its_result),
        LAB_TEST(the_version_is_text_or_json),
        LAB_TEST(help_of_a_command_is_its_help_option),
        LAB_TEST(every_wrong_word_names_the_nearest_right_one),
    };
    return LAB_RUN_ALL(tests);
}
