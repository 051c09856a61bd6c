/* Processes: what they say, how they end, and that nothing of them stays. */
#include "harness/test.h"

#include "engine/base/clock.h"
#include "engine/host/process.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static Process process;

static void start(const char *script, int death_signal)
{
    const char *const words[] = { "sh", "-c", script, NULL };
    CHECK_OK(process_start(&process, "test", words, &(ProcessHow){ .death_signal = death_signal }));
}

/* Is this process there, and no zombie? */
static bool lives(pid_t pid)
{
    char path[64], state = 'Z';
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "r");
    if (f == NULL) return false;
    const bool read = fscanf(f, "%*d (%*[^)]) %c", &state) == 1;
    fclose(f);
    return read && state != 'Z';
}

static void wait_until_gone(pid_t pid)
{
    for (int i = 0; i < 1000 && lives(pid); i++) usleep(10000);
    CHECK(!lives(pid));
}

static void words_and_the_code_are_read(void **state)
{
    (void)state;
    start("echo out; echo err >&2; exit 7", 0);
    while (!process_look(&process, 50)) {}
    CHECK_INT(process_code(&process), 7);
    CHECK(strstr(process.said, "out\n") != NULL && strstr(process.said, "err\n") != NULL);
    start("kill -9 $$", 0);
    while (!process_look(&process, 50)) {}
    CHECK_INT(process_code(&process), 128 + SIGKILL);
    CHECK_TEXT(process.said, "");
}

static void what_cannot_start_is_named(void **state)
{
    (void)state;
    const char *const words[] = { "/no/such/program", NULL };
    CHECK_FAILS(process_start(&process, "test", words, &(ProcessHow){ 0 }), ERR_ARG,
                "test cannot start /no/such/program: No such file");
}

/* It ignores SIGTERM, and so does what it started in its group. */
static void an_end_is_one_for_its_whole_group(void **state)
{
    (void)state;
    int child = 0;
    start("trap '' TERM; (while :; do sleep 0.05; done) & echo $!; wait", 0);
    while (strchr(process.said, '\n') == NULL) (void)process_look(&process, 50);
    CHECK(sscanf(process.said, "%d", &child) == 1 && lives(child));
    const double start_s = clock_s();
    process_end(&process, SIGTERM, 0.2);
    CHECK(clock_s() - start_s < 60);
    CHECK_INT(process_code(&process), 128 + SIGKILL);
    wait_until_gone(child);
}

/* A child of ours starts it and is killed. */
static void its_parent_s_death_is_told(void **state)
{
    (void)state;
    int ends[2], pid = 0;
    CHECK(pipe(ends) == 0);
    const pid_t parent = fork();
    if (parent == 0) {
        start("while :; do sleep 0.05; done", SIGTERM);
        pid = process.pid;
        if (write(ends[1], &pid, sizeof pid) != sizeof pid) _exit(1);
        for (;;) pause();
    }
    CHECK(parent > 0 && read(ends[0], &pid, sizeof pid) == sizeof pid);
    CHECK(lives(pid));
    kill(parent, SIGKILL);
    CHECK(waitpid(parent, NULL, 0) == parent);
    wait_until_gone(pid);
    close(ends[0]);
    close(ends[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(words_and_the_code_are_read),
        TEST(what_cannot_start_is_named),
        TEST(an_end_is_one_for_its_whole_group),
        TEST(its_parent_s_death_is_told),
    };
    return TEST_RUN(tests);
}
