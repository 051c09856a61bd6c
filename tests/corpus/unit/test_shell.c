/* Commands that stand where a path may stand: what they print, and every way in which they fail. */
#include "harness/test.h"

#include "corpus/command/shell.h"
#include "engine/base/clock.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

static Shell shell;
static char got[1 << 18];
static size_t used;

/* Reads it to its end, in pieces of at most n bytes. */
static Status run(const char *path, double wait_s, size_t n)
{
    size_t now = 0;
    used = 0;
    Status s = shell_start(&shell, path, wait_s);
    if (s != OK) return s;
    do {
        CHECK(used + n < sizeof got);
        s = shell_read(&shell, got + used, n, &now);
        used += now;
    } while (s == OK && now > 0);
    got[used] = '\0';
    shell_stop(&shell);
    return s;
}

static void a_path_is_no_command(void **state)
{
    (void)state;
    CHECK(shell_command("data/cmd:x") == NULL && shell_command("cmd") == NULL);
    CHECK_TEXT(shell_command("cmd:  cat a"), "cat a");
    CHECK_FAILS(shell_start(&shell, "cmd: ", 1), ERR_ARG, "names no command");
}

static void what_a_command_prints_is_read_to_its_end(void **state)
{
    (void)state;
    CHECK_OK(run("cmd: echo warned >&2; printf 'a\\nb'", 60, 1000));
    CHECK_TEXT(got, "a\nb");
    CHECK_OK(run("cmd: head -c 200000 /dev/zero | tr '\\0' x; sleep 0.2; printf y", 60, 1777));
    CHECK_INT(used, 200001);
    CHECK(got[0] == 'x' && got[199999] == 'x' && got[200000] == 'y');
    CHECK_INT(shell.bytes, 200001);
}

/* Also where a later part of a pipeline hides it, and after all of the data. */
static void a_command_that_fails_is_an_error_with_its_last_words(void **state)
{
    static const struct {
        const char *path, *sentence;
    } CASES[] = {
        { "cmd: printf abc; echo first >&2; echo 'no access' >&2; exit 7",
          "ended with exit code 7 after 3 bytes; its stderr ends with: first | no access" },
        { "cmd: (printf abc; exit 3) | cat", "ended with exit code 3 after 3 bytes" },
        { "cmd: printf abc; kill -9 $$", "ended with exit code 137" },
        { "cmd: /no/such/program", "ended with exit code 127" },
        { "cmd: echo data >&2", "printed nothing to its stdout and ended after 0 bytes; its stderr "
                                "ends with: data" },
        { "cmd: true", "ends with: nothing" },
        { "cmd: read -rp password: x </dev/tty", "/dev/tty" },
        { "cmd: read -r x", "ended with exit code 1" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++)
        CHECK_FAILS(run(CASES[i].path, 60, 1000), ERR_IO, CASES[i].sentence);
}

static void a_long_complaint_is_cut_to_its_end(void **state)
{
    (void)state;
    CHECK_FAILS(run("cmd: seq 1 90000 >&2; echo last >&2; exit 1", 60, 1000), ERR_IO,
                "90000 | last");
    CHECK(strlen(status_message()) < 1000);
    CHECK_FAILS(
        run("cmd: yes '' | head -n 2000 | tr -d x >&2; yes x | head -n 900 >&2; exit 1", 60, 1000),
        ERR_IO, "x | x | x");
}

/* Its first part is ended by SIGPIPE, which is no failure. */
static void a_pipeline_may_end_with_enough(void **state)
{
    (void)state;
    CHECK_OK(run("cmd: yes | head -n 3", 60, 1000));
    CHECK_TEXT(got, "y\ny\ny\n");
}

static void a_command_that_hangs_is_ended(void **state)
{
    (void)state;
    const double start_s = clock_s();
    CHECK_FAILS(
        run("cmd: printf abc; echo busy >&2; sleep 1000", 0.3, 1000), ERR_IO,
        "printed nothing for 0.3 s and did not end after 3 bytes; its stderr ends with: busy");
    CHECK_FAILS(run("cmd: printf abc; exec >&-; sleep 1000", 0.3, 1000), ERR_IO, "did not end");
    CHECK(clock_s() - start_s < 60);
    CHECK(kill(-shell.process.pid, 0) != 0);
}

/* Threads that work block all signals, and this program ignores SIGPIPE. */
static void *run_blocked(void *result)
{
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    *(Status *)result = run("cmd: yes | head -n 1; kill -TERM $$; sleep 1000", 60, 1000);
    return NULL;
}

static void a_command_has_the_usual_signals(void **state)
{
    (void)state;
    Status s = OK;
    pthread_t thread;
    (void)signal(SIGPIPE, SIG_IGN);
    CHECK_INT(pthread_create(&thread, NULL, run_blocked, &s), 0);
    CHECK_INT(pthread_join(thread, NULL), 0);
    (void)signal(SIGPIPE, SIG_DFL);
    CHECK_INT(s, ERR_IO);
    CHECK_INT(process_code(&shell.process), 128 + SIGTERM);
    CHECK_TEXT(shell.process.said, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_path_is_no_command),
        TEST(what_a_command_prints_is_read_to_its_end),
        TEST(a_command_that_fails_is_an_error_with_its_last_words),
        TEST(a_long_complaint_is_cut_to_its_end),
        TEST(a_pipeline_may_end_with_enough),
        TEST(a_command_that_hangs_is_ended),
        TEST(a_command_has_the_usual_signals),
    };
    return TEST_RUN(tests);
}
