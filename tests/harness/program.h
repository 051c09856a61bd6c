/*
 * program: the program as its user meets it: arguments, streams, exit code, signals, memory.
 *
 * A Lab is a folder of its own for a test binary, with a tokenizer and two small shards that the
 * program itself makes of generated text, and the configuration of a tiny model (tiny.yaml). Every
 * run has a working folder in it, its cell, so that two runs with the same arguments write the same
 * bytes. The program is the one of the build that the test binary belongs to.
 *
 *     static void a_run_ends(void **state)
 *     {
 *         Outcome o = RUN(*state, "cell", "train", "../tiny.yaml", "train.steps=3");
 *         CHECK_EXIT(o, 0);
 *     }
 */
#ifndef TESTS_HARNESS_PROGRAM_H
#define TESTS_HARNESS_PROGRAM_H

#include "harness/test.h"

#include "engine/base/file.h"
#include "engine/base/rng.h"

#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Looks at a child before it counts as hanging: 200 s at least. Not seconds of a clock, which goes
 * on while a virtual machine stands still. */
enum { CHILD_LOOKS = 400000, CHILD_LOOK_US = 500 };

typedef struct Lab {
    char folder[FILE_PATH_MAX], program[FILE_PATH_MAX];
    Arena arena; /* texts of the running test */
    int children;
} Lab;

typedef struct Launch {
    const char *cell;
    const char *const *args; /* NULL-terminated, without the program */
    size_t file_limit;       /* no file grows beyond it (0: no limit), as on a full disk */
    bool stop_at_exit;       /* stop before the memory is gone, so that its peak can be read */
    int processes;           /* as which mpirun starts it; 0: without mpirun */
    const char *shell;       /* a line for sh, in which "$0" is the program; instead of args */
} Launch;

typedef struct Child {
    pid_t pid;
    char out[FILE_PATH_MAX], err[FILE_PATH_MAX];
    int looks;
} Child;

typedef struct Outcome {
    int code; /* exit code, or 128 + signal */
    const char *out, *err;
    size_t peak_bytes; /* VmHWM, with stop_at_exit */
} Outcome;

#define ARGS(...) ((const char *const[]){ __VA_ARGS__, NULL })
#define RUN(lab, cell_name, ...)                                                                   \
    lab_run((lab), &(Launch){ .cell = (cell_name), .args = ARGS(__VA_ARGS__) })
#define RUN_MPI(lab, n, cell_name, ...)                                                            \
    lab_run((lab), &(Launch){ .cell = (cell_name), .args = ARGS(__VA_ARGS__), .processes = (n) })
#define START(lab, cell_name, ...)                                                                 \
    lab_start((lab), &(Launch){ .cell = (cell_name), .args = ARGS(__VA_ARGS__) })

#define SHELL(lab, cell_name, line)                                                                \
    lab_run((lab), &(Launch){ .cell = (cell_name), .shell = (line) })

#define CHECK_EXIT(outcome, want)                                                                  \
    do {                                                                                           \
        if ((outcome).code != (want)) {                                                            \
            fail_msg("exit code %d, want %d; it said: %s", (outcome).code, (want), (outcome).err); \
        }                                                                                          \
    } while (0)

#define CHECK_SAYS(text, part)                                                                     \
    do {                                                                                           \
        if (strstr((text), (part)) == NULL) fail_msg("\"%s\" is not in: %s", (part), (text));      \
    } while (0)

/* ---- files ---- */

/* Folder/format, in the lab's arena. */
__attribute__((format(printf, 2, 3))) static inline const char *lab_path(Lab *lab,
                                                                         const char *format, ...)
{
    char name[FILE_PATH_MAX], path[2 * FILE_PATH_MAX];
    const char *out = NULL;
    va_list ap;
    va_start(ap, format);
    vsnprintf(name, sizeof name, format, ap);
    va_end(ap);
    int n = snprintf(path, sizeof path, "%s/%s", lab->folder, name);
    CHECK_OK(arena_text(&lab->arena, path, (size_t)n, &out));
    return out;
}

static inline char *lab_read(Lab *lab, const char *path, size_t *bytes)
{
    char *text = NULL;
    size_t n = 0;
    CHECK_OK(file_read_all(path, &lab->arena, &text, &n));
    if (bytes != NULL) *bytes = n;
    return text;
}

static inline void lab_write(Lab *lab, const char *path, const void *data, size_t bytes)
{
    File f = { 0 };
    CHECK_OK(file_create_temp(&f, path, &lab->arena));
    CHECK_OK(file_write(&f, data, bytes));
    CHECK_OK(file_commit(&f));
}

static inline void lab_write_text(Lab *lab, const char *path, const char *text)
{
    lab_write(lab, path, text, strlen(text));
}

static inline void lab_flip_byte(Lab *lab, const char *path, size_t at)
{
    size_t n = 0;
    char *data = lab_read(lab, path, &n);
    CHECK(at < n);
    data[at] = (char)(data[at] ^ 0x10);
    lab_write(lab, path, data, n);
}

static inline void lab_truncate(Lab *lab, const char *path, size_t cut)
{
    size_t n = 0;
    char *data = lab_read(lab, path, &n);
    CHECK(cut < n);
    lab_write(lab, path, data, n - cut);
}

static inline bool lab_same_files(Lab *lab, const char *a, const char *b)
{
    size_t n = 0, m = 0;
    char *x = lab_read(lab, a, &n), *y = lab_read(lab, b, &m);
    return n == m && memcmp(x, y, n) == 0;
}

/* ---- processes ---- */

static inline void child_become(const Lab *lab, const Launch *l, const Child *c)
{
    const char *argv[64] = { NULL };
    char processes[16];
    int n = 0;
    snprintf(processes, sizeof processes, "%d", l->processes);
    if (l->processes > 0) {
        for (const char *const *a = ARGS("mpirun", "--oversubscribe", "-n", processes); *a; a++)
            argv[n++] = *a;
    }
    if (l->shell != NULL) {
        for (const char *const *a = ARGS("sh", "-c", l->shell); *a; a++) argv[n++] = *a;
    }
    argv[n++] = lab->program;
    for (const char *const *a = l->args; a != NULL && *a != NULL && n < 63; a++) argv[n++] = *a;
    char cell[2 * FILE_PATH_MAX];
    snprintf(cell, sizeof cell, "%s/%s", lab->folder, l->cell);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (l->stop_at_exit) ptrace(PTRACE_TRACEME, 0, NULL, NULL);
    if (l->file_limit > 0) {
        struct rlimit limit = { l->file_limit, l->file_limit };
        setrlimit(RLIMIT_FSIZE, &limit);
    }
    int out = open(c->out, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    int err = open(c->err, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    int in = open("/dev/null", O_RDONLY);
    if (chdir(cell) != 0 || dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0) _exit(126);
    /* threads that wait for each other must not take the processor of who else works here */
    setenv("OMP_WAIT_POLICY", "passive", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    execvp(argv[0], (char *const *)(uintptr_t)argv);
    _exit(127);
}

static inline Child lab_start(Lab *lab, const Launch *l)
{
    Child c = { 0 };
    CHECK_OK(file_make_folders(lab_path(lab, "%s", l->cell)));
    snprintf(c.out, sizeof c.out, "%s", lab_path(lab, "out-%d", lab->children));
    snprintf(c.err, sizeof c.err, "%s", lab_path(lab, "err-%d", lab->children));
    lab->children++;
    lab_write_text(lab, c.out, ""); /* a signal may come before the child opens them */
    lab_write_text(lab, c.err, "");
    c.pid = fork();
    CHECK(c.pid >= 0);
    if (c.pid == 0) child_become(lab, l, &c);
    if (l->stop_at_exit) {
        int status = 0;
        CHECK(waitpid(c.pid, &status, 0) == c.pid && WIFSTOPPED(status)); /* at exec */
        CHECK(ptrace(PTRACE_SETOPTIONS, c.pid, NULL, PTRACE_O_TRACEEXIT | PTRACE_O_EXITKILL) == 0);
        CHECK(ptrace(PTRACE_CONT, c.pid, NULL, NULL) == 0);
    }
    return c;
}

static inline void child_sleep(void) { usleep(CHILD_LOOK_US); }

/* Has it not ended yet? For loops that wait for something that it does. */
static inline bool child_runs(Child *c)
{
    siginfo_t info = { 0 };
    bool ended = waitid(P_PID, (id_t)c->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0;
    return !ended && info.si_pid == 0 && c->looks++ < CHILD_LOOKS;
}

static inline size_t child_peak_bytes(pid_t pid)
{
    char path[64], line[256];
    unsigned long long kib = 0;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *f = fopen(path, "r");
    CHECK(f != NULL);
    while (fgets(line, sizeof line, f) != NULL) {
        if (sscanf(line, "VmHWM: %llu", &kib) == 1) break;
    }
    fclose(f);
    return (size_t)kib * 1024;
}

/* Something the child reached: its end, or a stop that only a traced child makes. */
static inline int child_status(Child *c)
{
    int status = 0;
    for (;;) {
        pid_t pid = waitpid(c->pid, &status, WNOHANG);
        if (pid == c->pid) return status;
        if (pid != 0 || c->looks++ > CHILD_LOOKS) {
            kill(c->pid, SIGKILL);
            fail_msg("the program still runs after %d looks", CHILD_LOOKS);
        }
        child_sleep();
    }
}

static inline Outcome lab_wait(Lab *lab, Child *c)
{
    Outcome o = { 0 };
    int status = child_status(c);
    while (WIFSTOPPED(status)) {
        bool exits = status >> 8 == (SIGTRAP | (PTRACE_EVENT_EXIT << 8));
        if (exits) o.peak_bytes = child_peak_bytes(c->pid);
        int pass = exits || WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status);
        ptrace(PTRACE_CONT, c->pid, NULL, pass);
        status = child_status(c);
    }
    o.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    o.out = lab_read(lab, c->out, NULL);
    o.err = lab_read(lab, c->err, NULL);
    unlink(c->out);
    unlink(c->err);
    return o;
}

static inline Outcome lab_run(Lab *lab, const Launch *l)
{
    Child c = lab_start(lab, l);
    return lab_wait(lab, &c);
}

/* Does the kind of a failure stand in brackets before `end`? It is for programs, not for people. */
static inline bool ends_in_kind(const char *at, const char *end)
{
    for (int s = OK + 1; s <= ERR_CLOSED; s++) {
        char kind[64];
        const int n = snprintf(kind, sizeof kind, " [%s]", status_name((Status)s));
        if (end - at >= n && strncmp(end - n, kind, (size_t)n) == 0) return true;
    }
    return false;
}

/* An error begins with "error: ". It is one line, or goes on in indented lines, one for each way out. What follows are
 * frames, and nothing else; only with them the sentence has its kind. */
static inline bool one_sentence(const char *err)
{
    const char *at = strstr(err, "error: ");
    if (at == NULL || (at > err && at[-1] != '\n')) return false;
    const char *end = strchr(at, '\n');
    while (end != NULL && strncmp(end, "\n  ", 3) == 0 && strncmp(end, "\n  at ", 6) != 0)
        end = strchr(end + 1, '\n');
    if (end == NULL || end == at || ends_in_kind(at, end) != (end[1] != '\0')) return false;
    for (const char *dot = at; (dot = strstr(dot, ". ")) != NULL && dot < end; dot++) {
        if (dot[2] >= 'A' && dot[2] <= 'Z') return false;
    }
    for (at = end + 1; *at != '\0'; at = strchr(at, '\n') + 1) {
        if (strncmp(at, "  at ", 5) != 0 || strchr(at, '\n') == NULL) return false;
    }
    return true;
}

#define CHECK_REFUSED(outcome, exit_code, part)                                                    \
    do {                                                                                           \
        CHECK_EXIT((outcome), (exit_code));                                                        \
        CHECK_SAYS((outcome).err, (part));                                                         \
        if (!one_sentence((outcome).err)) fail_msg("no one sentence: %s", (outcome).err);          \
    } while (0)

/* ---- the lab ---- */

/* Words of one to three syllables; the usual ones come often. Two domains share no word. */
static inline int lab_word(char out[16], uint64_t domain, uint64_t index)
{
    static const char *const syllable[2][8] = {
        { "ba", "ko", "lin", "ter", "sa", "mu", "den", "ri" },
        { "thou", "eth", "wa", "go", "fe", "ll", "ne", "ar" }
    };
    uint64_t stream = rng_stream("words");
    double u = rng_uniform(domain, stream, 2 * index);
    uint64_t word = (uint64_t)(u * u * 300);
    int n = 0;
    for (uint64_t rest = word + 1; rest > 0; rest /= 8) {
        n += snprintf(out + n, 16 - (size_t)n, "%s", syllable[domain][rest % 8]);
    }
    return n;
}

/* Lines of 20 to 120 words: JSON lines, or plain ones. */
static inline void lab_write_texts(Lab *lab, const char *path, uint64_t domain, int lines)
{
    File f = { 0 };
    bool json = domain == 0;
    uint64_t word = 0;
    CHECK_OK(file_create_temp(&f, path, &lab->arena));
    for (int i = 0; i < lines; i++) {
        CHECK_OK(file_printf(&f, "%s", json ? "{\"text\":\"" : ""));
        uint64_t words = 20 + rng_below(domain, rng_stream("lines"), (uint64_t)i, 100);
        for (uint64_t w = 0; w < words; w++) {
            char text[16];
            lab_word(text, domain, word++);
            CHECK_OK(file_printf(&f, "%s%s", w == 0 ? "" : " ", text));
        }
        CHECK_OK(file_printf(&f, "%s\n", json ? ".\"}" : "."));
    }
    CHECK_OK(file_commit(&f));
}

static const char lab_yaml[] =
    "run: {dir: run, threads: 1}\n"
    "model: {vocab: 512, hidden: 32, layers: 3, ffn: 48}\n"
    "attention: {heads: 2, kv_rank: 16, nope_dim: 8, rope_dim: 4, v_dim: 8}\n"
    "moe: {experts: 4, ffn: 24}\n"
    "data:\n"
    "  sequence: 32\n"
    "  tokenizer: ../tokenizer.json\n"
    "  validation: 0.1\n"
    "  sources: [{name: web, path: ../web}, {name: books, path: ../books}]\n"
    "train: {batch: 4, micro_batch: 2, steps: 40, eval_sequences: 16}\n"
    "optimizer: {warmup_steps: 5}\n";

/* The build that the running test belongs to: build/release of build/release/tests/HOUSE/system/test_x. */
static inline void lab_find_build(char build[FILE_PATH_MAX])
{
    ssize_t n = readlink("/proc/self/exe", build, FILE_PATH_MAX - 1);
    CHECK(n > 0);
    build[n] = '\0';
    char *tests = strstr(build, "/tests/");
    CHECK(tests != NULL);
    for (char *later; (later = strstr(tests + 1, "/tests/")) != NULL;) tests = later;
    *tests = '\0';
}

/* build/release has build/switchyard, build/asan has build/asan/switchyard (Makefile). */
static inline void lab_find_program(Lab *lab)
{
    char self[FILE_PATH_MAX], *build = self;
    lab_find_build(self);
    size_t n = strlen(build);
    if (n > 8 && strcmp(build + n - 8, "/release") == 0) build = dirname(build);
    CHECK_OK(file_join(lab->program, build, "switchyard"));
    if (!file_exists(lab->program)) fail_msg("%s is not built", lab->program);
}

static inline int lab_open(void **state)
{
    static Lab lab;
    lab = (Lab){ .folder = "/tmp/switchyard_test_XXXXXX" };
    *state = &lab;
    CHECK_OK(arena_init(&lab.arena, "lab", MEM_HOST, (size_t)16 << 30));
    lab_find_program(&lab);
    CHECK(mkdtemp(lab.folder) != NULL);
    lab_write_texts(&lab, lab_path(&lab, "web.jsonl"), 0, 300);
    lab_write_texts(&lab, lab_path(&lab, "books.txt"), 1, 200);
    lab_write_text(&lab, lab_path(&lab, "tiny.yaml"), lab_yaml);
    Outcome o = RUN(&lab, ".", "data", "tokenizer", "train", "--vocab", "512", "--out",
                    "tokenizer.json", "web.jsonl", "books.txt");
    CHECK_EXIT(o, 0);
    o = RUN(&lab, ".", "data", "prepare", "--tokenizer", "tokenizer.json", "--out", "web",
            "web.jsonl");
    CHECK_EXIT(o, 0);
    o = RUN(&lab, ".", "data", "prepare", "--tokenizer", "tokenizer.json", "--split", "line",
            "--out", "books", "books.txt");
    CHECK_EXIT(o, 0);
    return 0;
}

/* Between tests: what the last one read. */
static inline int lab_forget(void **state)
{
    Lab *lab = *state;
    arena_release(&lab->arena, (ArenaMark){ 0 });
    return 0;
}

static inline int lab_close(void **state)
{
    Lab *lab = *state;
    CHECK_OK(file_remove_tree(lab->folder));
    arena_free(&lab->arena);
    return 0;
}

#define LAB_TEST(name)     cmocka_unit_test_setup(name, lab_forget)
#define LAB_RUN_ALL(tests) cmocka_run_group_tests((tests), lab_open, lab_close)

/* Copies a file or folder of the tree into a cell. */
static inline void lab_copy(Lab *lab, const char *cell, const char *from, const char *to)
{
    char whole[PATH_MAX], line[PATH_MAX + 64];
    CHECK(realpath(from, whole) != NULL);
    (void)snprintf(line, sizeof line, "cp -r '%s' %s", whole, to);
    Outcome o = SHELL(lab, cell, line);
    CHECK_EXIT(o, 0);
}

/* A shell's line (a literal without ') in a cell whose folder disk is a file system of 64 KiB. Where this user may not
 * mount one, there is nothing to test. */
#define ON_SMALL_DISK(lab, cell, line)                                                             \
    lab_on_small_disk(                                                                             \
        (lab), (cell),                                                                             \
        "exec unshare -m sh -c 'mount -t tmpfs -o size=64k small disk || exit 77; " line           \
        "' \"$0\"")
static inline Outcome lab_on_small_disk(Lab *lab, const char *cell, const char *line)
{
    Outcome o = SHELL(lab, cell, "mkdir -p disk && unshare -m true");
    if (o.code != 0) skip();
    o = SHELL(lab, cell, line);
    if (o.code == 77) skip();
    return o;
}

#endif
