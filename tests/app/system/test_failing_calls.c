/* Library calls that fail, one at a time, in every command: memory, maps, files, threads, processes. Each failure ends
 * in one sentence and exit code 2 or 3, or the command goes on to the results of an undisturbed run. Nothing crashes,
 * hangs or leaks; what is left can be read whole or is refused, and the same command works once the failure is gone.
 *
 * test_failing_calls [SEED]: draws calls; without SEED the hash of the commit chooses.
 * test_failing_calls all [BOUND [PATTERN]] (make failing-calls): the first BOUND calls of each kind, and BOUND more of
 *     the others, in the commands whose names match PATTERN.
 * test_failing_calls COMMAND KIND N HOW: repeats one of them, as its line says. */
#include "harness/program.h"

#include "engine/base/text.h"

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
    bool heeded; /* nobody goes on without it in silence: bytes would not be where a user thinks */
    How how[HOWS];
} Kind;

static const Kind kinds[KINDS] = {
    { "malloc", false, { { "ENOMEM", ENOMEM, false } } },
    { "mmap", false, { { "ENOMEM", ENOMEM, false } } },
    { "open",
      false,
      { { "EMFILE", EMFILE, false }, { "EACCES", EACCES, false }, { "EIO", EIO, false } } },
    { "read", false, { { "EIO", EIO, false }, { "EINTR", EINTR, true }, { "half", 0, true } } },
    { "write",
      true,
      { { "ENOSPC", ENOSPC, false },
        { "EIO", EIO, false },
        { "EINTR", EINTR, true },
        { "half", 0, true } } },
    { "sync", true, { { "EIO", EIO, false } } },
    { "rename", true, { { "ENOSPC", ENOSPC, false }, { "EACCES", EACCES, false } } },
    { "start", true, { { "EAGAIN", EAGAIN, false } } },
};

static int count_hows(const Kind *k)
{
    int n = 0;
    while (n < HOWS && k->how[n].name != NULL) n++;
    return n;
}

/* ---- commands ---- */

enum { WORDS = 20, RESULTS = 4, LEFT = 6 };

typedef struct Command {
    const char *name;
    const char *words[WORDS];
    const char *results
        [RESULTS]; /* files and folders with the same bytes in every run: there whole, or not there */
    const char *
        left[LEFT]; /* patterns of what else a failure may leave, which nobody takes for a result */
    const char *reader
        [WORDS]; /* refuses what a failure left, or says what it says of the undisturbed run's */
    const char *given,
        *kept; /* a folder of the lab that is copied into the cell, and what of it stays whole */
    const char *again; /* one more word when the command is repeated after a failure */
    bool timed;        /* what it prints has times */
    bool marks; /* writes marks for others, which may be lost: the process in a lock, a heartbeat */
    int slow;   /* how many times fewer calls are failed; 0: all */
} Command;

#define STEP(n)   "run/checkpoints/step-000000000" #n
#define TINY_RUN  "../tiny.yaml", "train.steps=4", "checkpoint.every=2"
#define TOKENIZER "--tokenizer", "../tokenizer.json"
#define RUN_LEFT  "run", "run/[!c]*", "run/config.yaml", "run/checkpoints" /* but no step-N.tmp */
#define RUN_STEPS                                                                                  \
    {                                                                                              \
        STEP(2), STEP(4)                                                                           \
    }
#define TABLES "--out", "tables", "--format", "csv,json,html"
#define SHOWN(title, ...)                                                                          \
    {                                                                                              \
        .name = (title), .words = { __VA_ARGS__ }                                                  \
    }
#define TIMED(title, ...)                                                                          \
    {                                                                                              \
        .name = (title), .words = { __VA_ARGS__ }, .timed = true                                   \
    }
#define MAKES(result, title, ...)                                                                  \
    {                                                                                              \
        .name = (title), .words = { __VA_ARGS__ }, .results = {(result) }                          \
    }

/* A folder has a mark while it is written (engine/base/out_folder.h). */
#define MAKES_FOLDER(result, title, ...)                                                           \
    {                                                                                              \
        .name = (title), .words = { __VA_ARGS__ }, .results = { (result) }, .marks = true          \
    }

static const Command commands[] = {
    { .name = "train",
      .words = { "train", TINY_RUN, "run.tensorboard=true", "run.trace_steps=[3]" },
      .results = RUN_STEPS,
      .left = { RUN_LEFT },
      .again = "--resume=auto",
      .marks = true,
      .timed = true },
    { .name = "train-resume",
      .words = { "train", "../tiny.yaml", "train.steps=6", "checkpoint.every=2", "--resume",
                 "--change", "train.steps" },
      .results = { STEP(4), STEP(6) },
      .left = { RUN_LEFT, STEP(2), STEP(2) "/*" },
      .given = "made/run",
      .kept = STEP(4),
      .marks = true,
      .timed = true },
    { .name = "train-threads",
      .words = { "train", TINY_RUN, "--ranks", "2", "mesh.ep=2", "mesh.zero=2",
                 "checkpoint.async=true", "comm.timeout_s=20" },
      .results = RUN_STEPS,
      .left = { RUN_LEFT },
      .again = "--resume=auto",
      .marks = true,
      .timed = true },
    { .name = "train-init",
      .words = { "train", "../tiny.yaml", "train.steps=2", "--init", "../made/run",
                 "run.threads=2" },
      .results = { STEP(2) },
      .left = { RUN_LEFT },
      .again = "--resume=auto",
      .marks = true,
      .timed = true },
    TIMED("train-dry-run", "train", TINY_RUN, "--dry-run"),
    { .name = "supervise",
      .words = { "supervise", TINY_RUN, "--", "--ranks", "1" },
      .results = RUN_STEPS,
      .left = { RUN_LEFT },
      .marks = true,
      .timed = true },
    SHOWN("generate", "generate", "../made/run", "--prompt", "ba", "--tokens", "5"),
    MAKES("documents", "eval", "eval", "../made/run", "--documents", "documents"),
    MAKES("logits", "logits", "logits", "../made/run", "../made/tokens", "logits"),
    MAKES_FOLDER("hf", "convert-to-hf", "convert", "to-hf", "../made/run", "hf"),
    { .name = "convert-from-hf",
      .words = { "convert", "from-hf", "../made/hf", "run" },
      .results = { "run" },
      .marks = true },
    { .name = "convert-from-dcp",
      .words = { "convert", "from-dcp", "../made/dcp/alike", "run", "--config", "../tiny.yaml",
                 "model.vocab=64", "model.hidden=24", "model.layers=2", "model.dense_layers=0",
                 "attention.kind=gqa", "attention.heads=4", "attention.kv_heads=2",
                 "attention.head_dim=6", "attention.qk_norm=rms", "moe.experts=3", "moe.shared=0",
                 "moe.ffn=11" },
      .results = { "run" },
      .marks = true },
    MAKES("tokenizer.json", "data-tokenizer", "data", "tokenizer", "train", "--vocab", "300",
          "--out", "tokenizer.json", "../books.txt"),
    MAKES("parts.jsonl", "data-chat", "data", "chat", "--template", "../made/chat.jinja", "--out",
          "parts.jsonl", "../made/chats.jsonl"),
    { .name = "data-prepare",
      .words = { "data", "prepare", TOKENIZER, "--threads", "2", "--out", "web", "../web.jsonl" },
      .results = { "web.bin", "web.idx" },
      .left = { "web.*" },
      .reader = { "data", "inspect", "web" },
      .marks = true,
      .timed = true },
    { .name = "data-dedup",
      .words = { "data", "prepare", TOKENIZER, "--dedup", "exact", "--out", "web",
                 "../web.jsonl.gz", "../books.txt" },
      .results = { "web.bin", "web.idx" },
      .left = { "web.*" },
      .reader = { "data", "inspect", "web" },
      .marks = true,
      .timed = true },
    { .name = "data-pack",
      .words = { "data", "pack", TOKENIZER, "--out", "web", "../web" },
      .results = { "web.bin", "web.idx", "web.mask" },
      .left = { "web.*" },
      .reader = { "data", "inspect", "web" },
      .marks = true,
      .timed = true },
    MAKES("page.html", "data-inspect", "data", "inspect", "../web", TOKENIZER, "--html",
          "page.html"),
    SHOWN("data-ngram", "data", "ngram", TOKENIZER, "web=../web"),
    MAKES("batches", "data-batches", "data", "batches", "../tiny.yaml", "--steps", "2", "--out",
          "batches"),
    SHOWN("plan", "plan", "../tiny.yaml", "--cluster", "h100:2"),
    MAKES("plan.html", "plan-page", "plan", "../tiny.yaml", "--cluster", "h100:2", "--html",
          "plan.html"),
    { .name = "plan-search",
      .words = { "plan", "../tiny.yaml", "--cluster", "h100:2", "--search", "--write",
                 "best.yaml" },
      .results = { "best.yaml" },
      .timed = true },
    { .name = "plan-verify",
      .words = { "plan", "../tiny.yaml", "--cluster", "h100:1", "--search", "--verify", "1",
                 "--ranks", "1", "--steps", "1" },
      .timed = true },
    MAKES_FOLDER("tables", "trace-report", "trace", "report", "../made/run/trace.json", TABLES),
    MAKES_FOLDER("tables", "trace-recording", "trace", "report",
                 "../made/run/recording/rank-00000.syr", TABLES),
    MAKES_FOLDER("tables", "trace-collectives", "trace", "collectives", "../made/a.json",
                 "../made/b.json", TABLES),
    MAKES_FOLDER("tables", "trace-diff", "trace", "diff", "../made/old.json", "../made/new.json",
                 TABLES),
    { .name = "trace-replay",
      .words = { "trace", "replay", "../made/old.json", "--out", "replay.json", "--bench",
                 "ops.jsonl" },
      .results = { "replay.json", "ops.jsonl" } },
    MAKES("page.html", "viz", "viz", "../made/stages", "--out", "page.html"),
    MAKES("page.html", "report", "report", "../made/run", "../made/other", "--out", "page.html"),
    TIMED("bench-ops", "bench", "ops", "../tiny.yaml", "--steps", "1"),
    TIMED("bench-step", "bench", "step", "../tiny.yaml", "--steps", "1", "--ranks", "2"),
    TIMED("bench-ladder", "bench", "ladder", "../tiny.yaml", "--steps", "1"),
    TIMED("bench-comm", "bench", "comm", "--ranks", "2", "--shrink", "1024"),
    TIMED("bench-trace", "bench", "trace", "../made/run/trace.json", "--steps", "1"),
    { .name = "bench-shapes",
      .words = { "bench", "shapes", "--list", "../made/ops.jsonl", "--shrink", "16" },
      .timed = true },
    { .name = "doctor", .words = { "doctor" }, .timed = true, .slow = 10 },
    SHOWN("version", "--version"),
    SHOWN("help", "help", "train"),
};
enum { COMMANDS = sizeof commands / sizeof *commands };

#define OP(ts, name, n)                                                                            \
    "{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"" name "\",\"pid\":1,\"tid\":1,\"ts\":" ts        \
    ",\"dur\":50,\"args\":{\"Input type\":[\"float\",\"float\"],"                                  \
    "\"Input Dims\":[[64,32],[32,48]]}},"                                                          \
    "{\"ph\":\"X\",\"cat\":\"cuda_runtime\",\"name\":\"cudaLaunchKernel\",\"pid\":1,\"tid\":1,"    \
    "\"ts\":" ts ",\"dur\":5,\"args\":{\"correlation\":" n "}},"                                   \
    "{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"gemm\",\"pid\":0,\"tid\":7,\"ts\":" ts            \
    ",\"dur\":20,\"args\":{\"correlation\":" n "}}"
#define COLLECTIVE(rank, dur)                                                                      \
    "{\"distributedInfo\":{\"rank\":" rank ",\"world_size\":2},\"traceEvents\":["                  \
    "{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"ncclDevKernel_AllReduce\",\"pid\":0,\"tid\":7,"   \
    "\"ts\":100,\"dur\":" dur ",\"args\":{\"stream\":7,\"correlation\":1,\"dtype\":\"Float\","     \
    "\"Collective name\":\"allreduce\",\"In msg nelems\":1000,\"Out msg nelems\":1000,"            \
    "\"Group size\":2,\"Process Group Name\":\"0\",\"Process Group Ranks\":\"[0, 1]\"}}]}"

/* What commands read, in the folder made. */
static void make_inputs(Lab *l)
{
    static const char made[] =
        "set -e; $0 train ../tiny.yaml train.steps=4 checkpoint.every=2 run.trace_steps=[3]; "
        "$0 train ../tiny.yaml train.steps=2 run.dir=other optimizer.lr=1e-3; "
        "$0 convert to-hf run hf; "
        "$0 bench step ../tiny.yaml --steps 1 --ranks 2 mesh.pp=2 --timeline stages; "
        "$0 trace replay old.json --bench ops.jsonl; gzip -k ../web.jsonl";
    CHECK_OK(file_make_folders(lab_path(l, "made")));
    lab_write_text(
        l, lab_path(l, "made/old.json"),
        "{\"traceEvents\":[" OP("100", "aten::mm", "1") "," OP("200", "aten::mm", "2") "]}");
    lab_write_text(l, lab_path(l, "made/new.json"),
                   "{\"traceEvents\":[" OP("100", "aten::mm", "1") "]}");
    lab_write_text(l, lab_path(l, "made/a.json"), COLLECTIVE("0", "90"));
    lab_write_text(l, lab_path(l, "made/b.json"), COLLECTIVE("1", "50"));
    lab_write_text(l, lab_path(l, "made/chat.jinja"),
                   "{% for m in messages %}{{ m.role + m.content }}{% endfor %}");
    lab_write_text(l, lab_path(l, "made/chats.jsonl"), "{\"prompt\":\"a\",\"answer\":\"b\"}\n");
    lab_write(l, lab_path(l, "made/tokens"), (int32_t[]){ 5, 6, 7 }, 12);
    Outcome o = SHELL(l, "made", made);
    CHECK_EXIT(o, 0);
    lab_copy(l, "made", "tests/golden/dcp/megatron", "dcp");
}

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
    if (c->given != NULL) {
        char copy[FILE_PATH_MAX];
        snprintf(copy, sizeof copy, "cp -r ../%s .", c->given);
        Outcome o = SHELL(lab, cell, copy);
        CHECK_EXIT(o, 0);
    }
    if (k != NULL) snprintf(order, sizeof order, "%s:%ld:%d", k->name, n, how->error);
    setenv("LD_PRELOAD", library, 1);
    setenv("FAIL_REPORT", report, 1);
    setenv("ASAN_OPTIONS", "verify_asan_link_order=0", 0);
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
        if (fnmatch(c->left[i], name, 0) == 0) return 0;
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

static bool has_results(const Command *c)
{
    bool all = true;
    for (int i = 0; i < RESULTS && c->results[i] != NULL; i++)
        all = all && file_exists(lab_path(lab, "fail/%s", c->results[i]));
    return all;
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
    if (c->kept != NULL && !file_exists(lab_path(lab, "fail/%s", c->kept)))
        is_wrong("%s is gone", c->kept);
    if (left_nothing() || (c->results[0] != NULL && c->again == NULL && has_results(c))) return;
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

static bool was_called(const Tried *t)
{
    return t->report != NULL && strstr(t->report, "failed ") != NULL;
}

static bool warns(const char *err) { return strstr(err, "warning: ") != NULL; }

/* The system's words, which a table may have, or ours where a library only says that it has no memory. */
static bool names_reason(const Outcome *o, const How *how)
{
    const char *reason = strerror(how->error);
    return strstr(o->err, reason) != NULL || strstr(o->out, reason) != NULL ||
           strstr(o->err, "no memory") != NULL || strstr(o->err, "no room for") != NULL ||
           strstr(o->err, "zlib cannot start") != NULL || strstr(o->err, "refused") != NULL;
}

static void judge(const Command *c, const Kind *k, const How *how, const Tried *t,
                  const Tried *whole)
{
    const Outcome *o = &t->outcome;
    if (t->hung) is_wrong("it still ran after a minute");
    if (o->code == 0 && !how->goes_on && warns(o->err) && !warns(whole->outcome.err)) {
        /* it went on and said what it did without */
    } else if (o->code == 0) {
        compare_results(c, true);
        if (!c->timed && strcmp(o->out, whole->outcome.out) != 0) is_wrong("it printed %s", o->out);
        const bool mark = c->marks && strcmp(k->name, "write") == 0;
        if (k->heeded && !how->goes_on && !mark && was_called(t)) is_wrong("it went on in silence");
    } else if (how->goes_on || (o->code != 2 && o->code != 3)) {
        is_wrong("it ends with %d: %s", o->code, o->err);
    } else if (!one_sentence(o->err)) {
        is_wrong("no one sentence: %s", o->err);
    } else if (!names_reason(o, how)) {
        is_wrong("it does not say why: %s", o->err);
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
    const char *by = was_called(&t) ? strstr(t.report, "failed ") : NULL;
    if (say)
        print_message("exit code %d, %s\n%s\n", t.outcome.code, t.outcome.err,
                      t.report == NULL ? "no report" : t.report);
    judge(c, k, how, &t, whole);
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
    CHECK_OK(file_remove_tree(lab_path(lab, "fail")));
    Tried t = try_call("fail", c, NULL, 0, NULL);
    CHECK_EXIT(t.outcome, 0);
    CHECK(t.report != NULL);
    CHECK(rename(lab_path(lab, "fail"), whole_cell(c)) == 0);
    return t;
}

/* ---- which calls ---- */

static long bound;
static uint64_t seed;
enum { DRAWN = 2, BOUND = 25 }; /* of each command in a slice */

/* What was broken once and has few calls, or breaks by one in a few: looked at in every slice. */
static const struct Always {
    const char *command, *kind, *how;
    long most, first; /* first: of them, counted from 0 */
} always[] = {
    { "data-pack", "write", "half", 20, 0 }, /* pwrite of a header took a part: "Success" */
    { "data-prepare", "sync", "EIO", 20, 0 },
    { "convert-to-hf", "mmap", "ENOMEM", 20, 0 }, /* an unreadable tokenizer was none */
    { "trace-diff", "mmap", "ENOMEM", 90, 0 },    /* half a table of texts was not given back */
    { "report", "malloc", "ENOMEM", 10, 0 }, /* settings that could not be read now were none */
    { "logits", "rename", "EACCES", 20, 0 },
    { "train-threads", "mmap", "ENOMEM", 16, 0 },  /* the other rank waited for its deadline, */
    { "train-threads", "mmap", "ENOMEM", 10, 84 }, /* also when they agree on capacities */
    { "supervise", "start", "EAGAIN", 20, 0 },
};
enum { ALWAYS = sizeof always / sizeof *always };

static void fail_in_ways(const Command *c, const Kind *k, const char *how, long n,
                         const Tried *whole)
{
    for (int h = 0; h < count_hows(k); h++)
        if (how == NULL || strcmp(how, k->how[h].name) == 0)
            fail_one(c, k, n, &k->how[h], whole, false);
}

/* Up to `most` calls: all, or half of them the first ones and the others evenly spread. how NULL: all ways. */
static void fail_many(const Command *c, const Kind *k, const char *how, long most,
                      const Tried *whole)
{
    const long calls = report_number(whole->report, "count", k->name);
    const long some = calls <= most ? calls : most - most / 2, rest = calls <= most ? 0 : most / 2;
    ArenaMark mark = arena_mark(&lab->arena);
    for (long i = 0; i < some + rest; i++) {
        const long n = i < some ? i + 1 : some + 1 + (i - some) * (calls - some) / rest;
        fail_in_ways(c, k, how, n, whole);
        arena_release(&lab->arena, mark);
    }
}

static void fail_always(const Command *c, const struct Always *a, const Kind *k, const Tried *whole)
{
    ArenaMark mark = arena_mark(&lab->arena);
    if (a->first == 0) fail_many(c, k, a->how, a->most, whole);
    for (long i = 0; a->first > 0 && i < a->most; i++) {
        fail_in_ways(c, k, a->how, a->first + 1 + i, whole);
        arena_release(&lab->arena, mark);
    }
}

static void fail_all(const Command *c, const Tried *whole)
{
    const long most = c->slow > 0 ? 2 * bound / c->slow : 2 * bound;
    for (int k = 0; k < KINDS; k++) {
        const int good = passed, bad = failed, less = skipped;
        fail_many(c, &kinds[k], NULL, most, whole);
        print_message("%-18s %-7s %6ld calls: %5d passed, %d failed, %d skipped\n", c->name,
                      kinds[k].name, report_number(whole->report, "count", kinds[k].name),
                      passed - good, failed - bad, skipped - less);
    }
}

/* Every kind that the command calls is as likely, however many calls it has. */
static void fail_some(const Command *c, const Tried *whole)
{
    const uint64_t stream = rng_stream(c->name);
    for (uint64_t i = 0, at = 0; i < (c->slow > 0 ? 1 : DRAWN); i++) {
        long calls = 0;
        const Kind *k = NULL;
        while (calls == 0) {
            k = &kinds[rng_below(seed, stream, at++, KINDS)];
            calls = report_number(whole->report, "count", k->name);
        }
        const long n = 1 + (long)rng_below(seed, stream, at++, (uint64_t)calls);
        const How *how = &k->how[rng_below(seed, stream, at++, (uint64_t)count_hows(k))];
        fail_one(c, k, n, how, whole, false);
    }
    for (int i = 0; i < ALWAYS; i++) {
        if (strcmp(always[i].command, c->name) != 0) continue;
        for (int k = 0; k < KINDS; k++)
            if (strcmp(always[i].kind, kinds[k].name) == 0)
                fail_always(c, &always[i], &kinds[k], whole);
    }
}

static void each_failing_call_is_a_sentence_or_changes_nothing(void **state)
{
    const Command *c = *state;
    Tried whole = whole_run(c);
    const int before = failed;
    if (bound > 0)
        fail_all(c, &whole);
    else
        fail_some(c, &whole);
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

/* The tests of a slice, or of `all BOUND PATTERN`. */
static int run_matching(const char *pattern)
{
    struct CMUnitTest tests[COMMANDS];
    size_t n = 0;
    for (int i = 0; i < COMMANDS; i++) {
        if (fnmatch(pattern, commands[i].name, 0) != 0) continue;
        tests[n++] =
            (struct CMUnitTest){ .name = commands[i].name,
                                 .test_func = each_failing_call_is_a_sentence_or_changes_nothing,
                                 .initial_state = (void *)(uintptr_t)&commands[i] };
    }
    const int rc = _cmocka_run_group_tests("failing calls", tests, n, NULL, NULL);
    print_message("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
    return rc;
}

int main(int argc, char **argv)
{
    const char *first = argc > 1 ? argv[1] : "";
    void *opened = NULL;
    int rc = 0;
    for (int i = 0; i < COMMANDS && strcmp(first, "names") == 0; i++) puts(commands[i].name);
    if (strcmp(first, "names") == 0) return 0;
    if (lab_open(&opened) != 0) return 2;
    lab = opened;
    make_inputs(lab);
    if (argc == 5) {
        rc = repeat(argv);
    } else if (strcmp(first, "all") == 0) {
        bound = argc > 2 ? atol(argv[2]) : BOUND;
        rc = run_matching(argc > 3 ? argv[3] : "*");
    } else {
        seed = argc > 1 ? strtoull(first, NULL, 10) : seed_of_commit();
        print_message("seed %llu\n", (unsigned long long)seed);
        rc = run_matching("*");
    }
    lab_close(&opened);
    return rc;
}
