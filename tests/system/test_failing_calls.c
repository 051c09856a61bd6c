/* Library calls that fail, one at a time, in every command: memory, maps, files, threads, processes. Each failure ends
 * in one sentence and exit code 2 or 3, or the command goes on to the results of an undisturbed run. Nothing crashes,
 * hangs or leaks; what is left can be read whole or is refused, and the same command works once the failure is gone.
 *
 * `test_failing_calls [SEED]` draws calls, as the hash of the commit chooses without SEED.
 * `test_failing_calls all [BOUND]` (make failing-calls) fails each call of a kind up to BOUND, and BOUND more of the
 * others. `test_failing_calls COMMAND KIND N HOW` repeats one of them, as its line says. */
#include "harness/program.h"

#include "base/text.h"

#include <errno.h>
#include <fnmatch.h>
#include <ftw.h>

/* ---- what fails ---- */

enum { HOWS = 4, KINDS = 8, HANG_LOOKS = 120000 }; /* 60 s at least */

/* A way to fail; error 0: half of the bytes are taken. */
typedef struct How {
    const char *name;
    int error;
    bool goes_on; /* no failure at all for who writes loops */
} How;

typedef struct Kind {
    const char *name; /* of failing_calls.c */
    How how[HOWS];
} Kind;

static const Kind kinds[KINDS] = {
    { "malloc", { { "ENOMEM", ENOMEM, false } } },
    { "mmap", { { "ENOMEM", ENOMEM, false } } },
    { "open", { { "EMFILE", EMFILE, false }, { "EACCES", EACCES, false }, { "EIO", EIO, false } } },
    { "read", { { "EIO", EIO, false }, { "EINTR", EINTR, true }, { "half", 0, true } } },
    { "write",
      { { "ENOSPC", ENOSPC, false },
        { "EIO", EIO, false },
        { "EINTR", EINTR, true },
        { "half", 0, true } } },
    { "sync", { { "EIO", EIO, false } } },
    { "rename", { { "ENOSPC", ENOSPC, false }, { "EACCES", EACCES, false } } },
    { "start", { { "EAGAIN", EAGAIN, false } } },
};

static int count_hows(const Kind *k)
{
    int n = 0;
    while (n < HOWS && k->how[n].name != NULL) n++;
    return n;
}

/* ---- commands ---- */

enum { WORDS = 20, RESULTS = 4, LEFT = 4 };

typedef struct Command {
    const char *name;
    const char *words[WORDS];
    const char *results[RESULTS]; /* files and folders with the same bytes in every run: there whole, or not there */
    const char *left[LEFT];       /* patterns of what else may be there after a failure, which has no value of its own */
    const char *reader[WORDS];    /* refuses what a failure left, or says what it says of the undisturbed run's */
    const char *again;            /* one more word when the command is repeated after a failure */
    bool timed;                   /* what it prints has times */
} Command;

#define TINY_RUN "../tiny.yaml", "train.steps=4", "checkpoint.every=2"
#define RUN_LEFT "run", "run/*"
#define STEPS    "run/checkpoints/step-0000000002", "run/checkpoints/step-0000000004"

static const Command commands[] = {
    { .name = "train",
      .words = { "train", TINY_RUN, "run.tensorboard=true", "run.trace_steps=[3]" },
      .results = { STEPS },
      .left = { RUN_LEFT },
      .again = "--resume=auto",
      .timed = true },
    { .name = "plan", .words = { "plan", "../tiny.yaml", "--cluster", "h100:2" } },
    { .name = "data-prepare",
      .words = { "data", "prepare", "--tokenizer", "../tokenizer.json", "--threads", "2", "--out",
                 "web", "../web.jsonl" },
      .results = { "web.bin", "web.idx" },
      .left = { "web.*" },
      .reader = { "data", "inspect", "web" },
      .timed = true },
};
enum { COMMANDS = sizeof commands / sizeof *commands };

/* ---- a run ---- */

static Lab *lab;
static int passed, failed, skipped; /* calls */

typedef struct Tried {
    Outcome outcome;
    const char *report;
    bool hung;
} Tried;

static long report_number(const char *report, const char *what, const char *name)
{
    char line[256];
    snprintf(line, sizeof line, "%s %s ", what, name);
    const char *at = report == NULL ? NULL : strstr(report, line);
    return at == NULL ? 0 : strtol(at + strlen(line), NULL, 10);
}

/* One more word than a command has. */
static const char *const *with_word(const Command *c, const char *word)
{
    static const char *words[WORDS + 2];
    int n = 0;
    for (; n < WORDS && c->words[n] != NULL; n++) words[n] = c->words[n];
    words[n] = word;
    words[n + 1] = NULL;
    return words;
}

/* A process of its own group, whose end is waited for up to a minute. */
static Outcome run_to_end(const char *cell, const char *const *words, bool *hung)
{
    Child c = lab_start(lab, &(Launch){ .cell = cell, .args = words });
    c.looks = CHILD_LOOKS - HANG_LOOKS;
    while (child_runs(&c)) child_sleep();
    *hung = c.looks > CHILD_LOOKS;
    if (*hung) kill(c.pid, SIGKILL);
    return lab_wait(lab, &c);
}

/* With call n of the kind failing; kind NULL: none. */
static Tried try_call(const char *cell, const Command *c, const Kind *k, long n, const How *how)
{
    char order[64], self[FILE_PATH_MAX] = "", library[FILE_PATH_MAX];
    const char *report = lab_path(lab, "report");
    Tried t = { 0 };
    CHECK(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    CHECK_OK(file_join(library, dirname(self), "failing_calls.so"));
    CHECK_OK(file_remove_tree(report));
    if (k != NULL) snprintf(order, sizeof order, "%s:%ld:%d", k->name, n, how->error);
    setenv("LD_PRELOAD", library, 1);
    setenv("FAIL_REPORT", report, 1);
    setenv("FAIL_CALL", k == NULL ? "" : order, 1);
    t.outcome = run_to_end(cell, c->words, &t.hung);
    unsetenv("LD_PRELOAD");
    unsetenv("FAIL_CALL");
    if (file_exists(report)) t.report = lab_read(lab, report, NULL);
    return t;
}

/* ---- what a run left ---- */

static char wrong[2048]; /* why a call's end is not as it should be; empty: it is */
static size_t root_length;
static const Command *looking_at;

__attribute__((format(printf, 1, 2))) static void is_wrong(const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    if (wrong[0] == '\0') vsnprintf(wrong, sizeof wrong, format, ap);
    va_end(ap);
}

static const char *whole_cell(const Command *c) { return lab_path(lab, "whole-%s", c->name); }

/* Is the path one of these, or in one of them? */
static bool is_in(const char *path, const char *const *folders)
{
    for (int i = 0; i < RESULTS && folders[i] != NULL; i++) {
        size_t n = strlen(folders[i]);
        if (strncmp(path, folders[i], n) == 0 && (path[n] == '\0' || path[n] == '/')) return true;
    }
    return false;
}

static int look_at_left(const char *path, const struct stat *info, int kind, struct FTW *place)
{
    (void)info, (void)kind, (void)place;
    const Command *c = looking_at;
    const char *name = path + root_length;
    if (*name == '\0') return 0;
    name++;
    if (is_in(name, c->results)) return 0;
    for (int i = 0; i < LEFT && c->left[i] != NULL; i++)
        if (fnmatch(c->left[i], name, 0) == 0 && strstr(name, "step-") == NULL) return 0;
    is_wrong("it left %s", name);
    return 0;
}

static int compare_one(const char *path, const struct stat *info, int kind, struct FTW *place)
{
    (void)info, (void)place;
    if (kind != FTW_F) return 0;
    const char *name = path + root_length;
    const char *other = lab_path(lab, "fail%s", name);
    if (!file_is_file(other))
        is_wrong("%s is missing", name + 1);
    else if (!lab_same_files(lab, path, other))
        is_wrong("%s is not the undisturbed run's", name + 1);
    return 0;
}

/* Each result is there whole, or absent; `all`: is there. */
static void compare_results(const Command *c, bool all)
{
    const char *whole = whole_cell(c);
    root_length = strlen(whole);
    for (int i = 0; i < RESULTS && c->results[i] != NULL; i++) {
        if (!all && !file_exists(lab_path(lab, "fail/%s", c->results[i]))) continue;
        nftw(lab_path(lab, "whole-%s/%s", c->name, c->results[i]), compare_one, 8, FTW_PHYS);
    }
}

static bool left_nothing(void)
{
    const char *const *names = NULL;
    int n = 0;
    CHECK_OK(file_list(lab_path(lab, "fail"), &lab->arena, &names, &n));
    return n == 0;
}

/* A reader takes nothing for whole that is not, and the command can be repeated. */
static void look_after_failure(const Command *c)
{
    bool hung = false;
    const char *root = lab_path(lab, "fail");
    root_length = strlen(root);
    looking_at = c;
    nftw(root, look_at_left, 8, FTW_PHYS);
    compare_results(c, false);
    if (left_nothing()) return;
    if (c->reader[0] != NULL) {
        Outcome o = run_to_end("fail", c->reader, &hung);
        Outcome whole = run_to_end(lab_path(lab, "whole-%s", c->name) + strlen(lab->folder) + 1,
                                   c->reader, &hung);
        if (o.code == 0 && strcmp(o.out, whole.out) != 0)
            is_wrong("%s %s takes what is left for whole: %s", c->reader[0], c->reader[1], o.out);
        if (o.code != 0 && o.code != 2 && o.code != 3) is_wrong("the reader ends with %d", o.code);
    }
    Outcome again = run_to_end("fail", with_word(c, c->again), &hung);
    if (again.code != 0) is_wrong("repeated, it ends with %d: %s", again.code, again.err);
    compare_results(c, true);
}

/* Memory, maps and descriptors, by who asked for them: not more than the undisturbed run has at its end. */
static void look_at_leaks(const char *report, const char *whole)
{
    char what[32], who[96];
    int n = 0;
    for (const char *at = report; at != NULL && (at = strstr(at, "left ")) != NULL; at++) {
        if (sscanf(at, "left %31s %95s %d", what, who, &n) != 3) continue;
        char name[160];
        snprintf(name, sizeof name, "%s %s", what, who);
        if (n > report_number(whole, "left", name)) is_wrong("it left %s %d", name, n);
    }
}

/* ---- verdicts ---- */

static void judge(const Command *c, const How *how, const Tried *t, const Tried *whole)
{
    const Outcome *o = &t->outcome;
    if (t->hung) is_wrong("it still ran after a minute");
    if (o->code == 0) {
        compare_results(c, true);
        if (!c->timed && strcmp(o->out, whole->outcome.out) != 0) is_wrong("it printed %s", o->out);
    } else if (how->goes_on || (o->code != 2 && o->code != 3)) {
        is_wrong("it ends with %d: %s", o->code, o->err);
    } else if (!one_sentence(o->err)) {
        is_wrong("no one sentence: %s", o->err);
    } else {
        look_after_failure(c);
    }
    if (o->code < 128 && t->report == NULL) is_wrong("main did not end: %s", o->err);
    look_at_leaks(t->report, whole->report);
}

static void fail_one(const Command *c, const Kind *k, long n, const How *how, const Tried *whole,
                     bool say)
{
    wrong[0] = '\0';
    CHECK_OK(file_remove_tree(lab_path(lab, "fail")));
    Tried t = try_call("fail", c, k, n, how);
    const char *by = t.report == NULL ? NULL : strstr(t.report, "failed ");
    if (say) print_message("exit code %d, %s\n%s\n", t.outcome.code, t.outcome.err,
                           t.report == NULL ? "no report" : t.report);
    judge(c, how, &t, whole);
    if (wrong[0] != '\0') {
        failed++;
        print_message("FAILED test_failing_calls %s %s %ld %s: %s (%.60s)\n", c->name, k->name, n,
                      how->name, wrong, by == NULL ? "" : by + 7);
    } else if (t.report != NULL && by == NULL) {
        skipped++; /* fewer calls than the undisturbed run made */
    } else {
        passed++;
    }
}

/* The undisturbed run, whose calls are counted. */
static Tried whole_run(const Command *c)
{
    CHECK_OK(file_remove_tree(whole_cell(c)));
    Tried t = try_call(whole_cell(c) + strlen(lab->folder) + 1, c, NULL, 0, NULL);
    CHECK_EXIT(t.outcome, 0);
    CHECK(t.report != NULL);
    return t;
}

/* ---- which calls ---- */

static long bound;
static uint64_t seed;
enum { DRAWN = 3 }; /* of each command in a slice */

/* All calls up to the bound, then evenly spread ones, as many again. */
static void fail_all(const Command *c, const Kind *k, const Tried *whole)
{
    long calls = report_number(whole->report, "count", k->name), before = passed, rest = 0;
    const int lost = failed;
    ArenaMark mark = arena_mark(&lab->arena);
    if (calls > bound) rest = calls - bound < bound ? calls - bound : bound;
    long some = calls < bound ? calls : bound;
    for (long i = 0; i < some + rest; i++) {
        long n = i < some ? i + 1 : bound + 1 + (i - some) * (calls - bound) / rest;
        for (int h = 0; h < count_hows(k); h++) {
            fail_one(c, k, n, &k->how[h], whole, false);
            arena_release(&lab->arena, mark);
        }
    }
    print_message("%-24s %-8s %6ld calls %6ld passed %4d failed\n", c->name, k->name, calls,
                  passed - before, failed - lost);
}

/* Every kind is as likely, however many calls it has. */
static void fail_some(const Command *c, const Tried *whole)
{
    const uint64_t stream = rng_stream(c->name);
    for (uint64_t i = 0; i < DRAWN; i++) {
        const Kind *k = &kinds[rng_below(seed, stream, 3 * i, KINDS)];
        long calls = report_number(whole->report, "count", k->name);
        if (calls == 0) continue;
        long n = 1 + (long)rng_below(seed, stream, 3 * i + 1, (uint64_t)calls);
        const How *how = &k->how[rng_below(seed, stream, 3 * i + 2, (uint64_t)count_hows(k))];
        fail_one(c, k, n, how, whole, false);
    }
}

static void each_failing_call_is_a_sentence_or_changes_nothing(void **state)
{
    const Command *c = *state;
    Tried whole = whole_run(c);
    const int before = failed;
    for (int k = 0; bound > 0 && k < KINDS; k++) fail_all(c, &kinds[k], &whole);
    if (bound == 0) fail_some(c, &whole);
    arena_release(&lab->arena, (ArenaMark){ 0 });
    CHECK_INT(failed, before);
}

/* The commit's, as the program prints it. */
static uint64_t seed_of_commit(void)
{
    bool hung = false;
    Outcome o = run_to_end(".", ARGS("--version"), &hung);
    const char *at = strstr(o.out, "commit");
    return rng_stream(at == NULL ? o.out : strtok((char *)(uintptr_t)at, "\n")) % 1000000;
}

static int repeat(char **argv)
{
    for (int c = 0; c < COMMANDS; c++) {
        for (int k = 0; k < KINDS; k++) {
            for (int h = 0; h < count_hows(&kinds[k]); h++) {
                if (strcmp(argv[1], commands[c].name) != 0 || strcmp(argv[2], kinds[k].name) != 0 ||
                    strcmp(argv[4], kinds[k].how[h].name) != 0)
                    continue;
                Tried whole = whole_run(&commands[c]);
                fail_one(&commands[c], &kinds[k], atol(argv[3]), &kinds[k].how[h], &whole, true);
                return failed;
            }
        }
    }
    print_message("there is no such call\n");
    return 2;
}

int main(int argc, char **argv)
{
    struct CMUnitTest tests[COMMANDS];
    void *opened = NULL;
    if (lab_open(&opened) != 0) return 2;
    lab = opened;
    int rc = 0;
    for (int i = 0; i < COMMANDS; i++)
        tests[i] = (struct CMUnitTest){ .name = commands[i].name,
                                        .test_func =
                                            each_failing_call_is_a_sentence_or_changes_nothing,
                                        .initial_state = (void *)(uintptr_t)&commands[i] };
    if (argc == 5) {
        rc = repeat(argv);
    } else {
        const bool all = argc > 1 && strcmp(argv[1], "all") == 0;
        if (all) bound = argc > 2 ? atol(argv[2]) : 60;
        if (!all) seed = argc > 1 ? strtoull(argv[1], NULL, 10) : seed_of_commit();
        if (!all) print_message("seed %llu\n", (unsigned long long)seed);
        rc = cmocka_run_group_tests(tests, NULL, NULL);
        print_message("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
    }
    lab_close(&opened);
    return rc;
}
