/* Results that cannot be written are failures, and closed streams are no trap for the next file. */
#include "harness/test.h"

#include "engine/base/out.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

/* Puts `fd` in the place of stdout while `write` runs. */
static Status with_stdout(int fd, Status (*write)(void))
{
    fflush(stdout);
    int kept = dup(STDOUT_FILENO);
    CHECK(fd < 0 ? close(STDOUT_FILENO) == 0 : dup2(fd, STDOUT_FILENO) == STDOUT_FILENO);
    Status s = write();
    CHECK(dup2(kept, STDOUT_FILENO) == STDOUT_FILENO);
    close(kept);
    return s;
}

static Status write_word(void) { return out_write("word", 4); }
static Status write_nothing(void) { return out_text(&(Text){ 0 }); }

static void a_full_disk_is_a_failure_with_the_reason(void **state)
{
    (void)state;
    int full = open("/dev/full", O_WRONLY);
    CHECK(full > 0);
    CHECK_FAILS(with_stdout(full, write_word), ERR_DISK,
                "stdout: cannot write: No space left on device");
    CHECK_OK(with_stdout(full, write_nothing));
    close(full);
}

static void a_reader_that_is_gone_is_told_from_a_failure(void **state)
{
    (void)state;
    int ends[2];
    CHECK_INT(pipe(ends), 0);
    close(ends[0]);
    out_begin();
    CHECK_INT(FAIL(ERR_ARG, "the failure before"), ERR_ARG);
    CHECK_INT(with_stdout(ends[1], write_word), ERR_CLOSED);
    CHECK(strstr(status_message(), "the failure before") != NULL);
    CHECK_INT(status_exit_code(ERR_CLOSED), 0);
    close(ends[1]);
}

static Status write_escape(void) { return out_write("a\033[2Jb\n", 7); }

/* What write_escape sends to the other end of `fd`. */
static const char *sent_to(int fd, int other, char out[64])
{
    CHECK_OK(with_stdout(fd, write_escape));
    ssize_t n = read(other, out, 63);
    CHECK(n > 0);
    out[n] = '\0';
    return out;
}

static void a_terminal_is_not_sent_control_characters_but_a_pipe_is(void **state)
{
    (void)state;
    char got[64];
    int ends[2], terminal = posix_openpt(O_RDWR | O_NOCTTY);
    CHECK(terminal >= 0 && grantpt(terminal) == 0 && unlockpt(terminal) == 0);
    int shown = open(ptsname(terminal), O_RDWR | O_NOCTTY);
    CHECK(shown >= 0);
    CHECK_TEXT(sent_to(shown, terminal, got), "a\\x1b[2Jb\r\n"); /* the terminal adds the \r */
    CHECK_INT(pipe(ends), 0);
    CHECK_TEXT(sent_to(ends[1], ends[0], got), "a\033[2Jb\n");
    close(shown);
    close(terminal);
    close(ends[0]);
    close(ends[1]);
}

static Status begin_and_open(void)
{
    out_begin();
    int fd = open("/dev/null", O_WRONLY);
    CHECK(fd > STDERR_FILENO);
    close(fd);
    return out_write("word", 4);
}

static void a_closed_stdout_stays_closed_and_no_file_takes_its_place(void **state)
{
    (void)state;
    CHECK_FAILS(with_stdout(-1, begin_and_open), ERR_DISK, "stdout: cannot write: Bad file");
}

static void what_is_written_arrives_whole(void **state)
{
    (void)state;
    char got[8] = "";
    int ends[2];
    CHECK_INT(pipe(ends), 0);
    CHECK_OK(with_stdout(ends[1], write_word));
    CHECK_INT(read(ends[0], got, sizeof got), 4);
    CHECK_TEXT(got, "word");
    CHECK_OK(out_end());
    close(ends[0]);
    close(ends[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_full_disk_is_a_failure_with_the_reason),
        TEST(a_reader_that_is_gone_is_told_from_a_failure),
        TEST(a_terminal_is_not_sent_control_characters_but_a_pipe_is),
        TEST(a_closed_stdout_stays_closed_and_no_file_takes_its_place),
        TEST(what_is_written_arrives_whole),
    };
    return TEST_RUN(tests);
}
