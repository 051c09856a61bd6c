/* A run that is watched, as its user meets it: the page in a browser (Chromium, where it is installed), a
 * port in use, and the files that TensorBoard reads (with Python's tensorboard, where it is installed). */
#include "harness/program.h"

#include <arpa/inet.h>

#define TRAIN "train", "../tiny.yaml"

/* A socket that holds a free port of loopback, and its number. */
static int held_port(int *fd)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t n = sizeof at;
    *fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK_INT(bind(*fd, (const struct sockaddr *)&at, n) + listen(*fd, 1), 0);
    CHECK_INT(getsockname(*fd, (struct sockaddr *)&at, &n), 0);
    return ntohs(at.sin_port);
}

static bool answers(int port)
{
    const struct sockaddr_in to = { .sin_family = AF_INET,
                                    .sin_port = htons((uint16_t)port),
                                    .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    bool ok = connect(fd, (const struct sockaddr *)&to, sizeof to) == 0;
    close(fd);
    return ok;
}

static void a_browser_shows_the_charts_of_a_run_that_trains(void **state)
{
    Lab *lab = *state;
    char setting[32], address[64], program[FILE_PATH_MAX];
    int fd, port = held_port(&fd);
    CHECK_INT(close(fd), 0);
    if (access("/usr/bin/chromium", X_OK) != 0) {
        printf("skip: there is no Chromium\n");
        skip();
    }
    snprintf(setting, sizeof setting, "run.http=%d", port);
    snprintf(address, sizeof address, "http://127.0.0.1:%d/", port);
    Child c = START(lab, "watched", TRAIN, "train.steps=1000000", setting);
    while (child_runs(&c) && !answers(port)) child_sleep();
    memcpy(program, lab->program, sizeof program);
    snprintf(lab->program, sizeof lab->program, "/usr/bin/chromium");
    Outcome o = RUN(lab, "watched", "--headless", "--no-sandbox", "--disable-gpu",
                    "--disable-dev-shm-usage", "--user-data-dir=profile",
                    "--virtual-time-budget=2000", "--dump-dom", address);
    memcpy(lab->program, program, sizeof program);
    CHECK_INT(kill(c.pid, SIGTERM), 0);
    Outcome run = lab_wait(lab, &c);
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "<h1>");
    CHECK_SAYS(o.out, "of 1000000</p>");
    CHECK_SAYS(o.out, "<div class=\"tip\"></div>"); /* which the page's script adds */
    CHECK_SAYS(run.err, address);
    CHECK(!answers(port));
}

static void a_port_in_use_is_refused_before_the_folder_changes(void **state)
{
    Lab *lab = *state;
    char setting[32];
    int fd, port = held_port(&fd);
    snprintf(setting, sizeof setting, "run.http=%d", port);
    Outcome o = RUN(lab, "refused", TRAIN, setting);
    CHECK_REFUSED(o, 2, setting);
    CHECK(!file_exists(lab_path(lab, "refused/run/config.yaml")));
    CHECK_INT(close(fd), 0);
    o = RUN(lab, "refused", TRAIN, "run.http=65536");
    CHECK_REFUSED(o, 2, "run.http");
}

/* A resumed run does steps 4 and 5 again: TensorBoard takes them from its file alone. */
static void tensorboard_reads_a_resumed_run_as_one(void **state)
{
    Lab *lab = *state;
    static const char script[] =
        "import sys\n"
        "from tensorboard.backend.event_processing import event_accumulator as e\n"
        "a = e.EventAccumulator('run')\n"
        "a.Reload()\n"
        "print([s.step for s in a.Scalars('loss')], "
        "len(a.Scalars('expert_load_entropy/layer_1')))\n";
    Outcome o = SHELL(lab, "board", "python3 -c 'import tensorboard'");
    if (o.code != 0) {
        printf("skip: there is no tensorboard for Python\n");
        skip();
    }
    o = RUN(lab, "board", TRAIN, "train.steps=5", "checkpoint.every=3", "run.tensorboard=true");
    CHECK_EXIT(o, 0);
    CHECK_OK(file_remove_tree(lab_path(lab, "board/run/checkpoints/step-0000000005")));
    o = RUN(lab, "board", TRAIN, "train.steps=5", "run.tensorboard=true", "--resume");
    CHECK_EXIT(o, 0);
    lab_write_text(lab, lab_path(lab, "board/read.py"), script);
    o = SHELL(lab, "board", "python3 read.py");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "[1, 2, 3, 4, 5] 5");
}

/* No load is quite even. */
static void a_load_outside_its_band_is_said(void **state)
{
    Outcome o = RUN(*state, "alert", TRAIN, "train.steps=3", "run.alert_load=1.0001");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.err, "warning: step 1: the busiest expert of layer ");
    CHECK(strstr(o.err, "is out of range") == NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LAB_TEST(a_browser_shows_the_charts_of_a_run_that_trains),
        LAB_TEST(a_port_in_use_is_refused_before_the_folder_changes),
        LAB_TEST(tensorboard_reads_a_resumed_run_as_one),
        LAB_TEST(a_load_outside_its_band_is_said),
    };
    return LAB_RUN_ALL(tests);
}
