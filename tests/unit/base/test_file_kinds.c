/* What is no regular file: pipes, which are read to their end or refused, and devices. */
#include "harness/place.h"
#include "harness/read_at.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PATIENCE_S = 5 }; /* for what waits for ever: SIGALRM ends the test */

typedef struct Place {
    char folder[64];
    char path[FILE_PATH_MAX]; /* "x" in the folder */
    Arena arena;
} Place;

static int place_open(void **state)
{
    static Place place;
    Place *p = *state = &place;
    *p = (Place){ 0 };
    place_make(p->folder, &p->arena);
    CHECK_OK(file_join(p->path, p->folder, "x"));
    alarm(PATIENCE_S);
    return 0;
}

static int place_close(void **state)
{
    Place *p = *state;
    alarm(0);
    place_drop(p->folder, &p->arena);
    return 0;
}

/* A new pipe's end to read as a path; `text` waits in it, and nobody writes to it any more. */
static int pipe_with(const char *text, char path[32])
{
    int end[2];
    CHECK_INT(pipe(end), 0);
    CHECK_INT(write(end[1], text, strlen(text)), strlen(text));
    close(end[1]);
    snprintf(path, 32, "/dev/fd/%d", end[0]);
    return end[0];
}

static void a_pipe_is_read_to_its_end_where_that_is_asked_for(void **state)
{
    Place *p = *state;
    FileMap m = { 0 };
    char path[32], *text = NULL;
    size_t bytes = 0;
    int fd = pipe_with("model: {layers: 5}\n", path);
    CHECK_OK(file_map_input(path, &m));
    CHECK_INT(m.bytes, 19);
    CHECK(file_is_pipe(path) && memcmp(m.data, "model: {layers: 5}\n", 19) == 0);
    file_unmap(&m);
    CHECK_FAILS(file_map_input(path, &m), ERR_IO, "is a pipe and holds nothing");
    CHECK_FAILS(file_read_input(path, &p->arena, &text, &bytes), ERR_IO, "and holds nothing");
    close(fd);
    fd = pipe_with("abc", path);
    CHECK_OK(file_read_input(path, &p->arena, &text, &bytes));
    CHECK_INT(bytes, 3);
    CHECK_TEXT(text, "abc");
    close(fd);
    CHECK_OK(file_write_whole(p->path, "abc", 3));
    CHECK_OK(file_map_input(p->path, &m));
    CHECK(m.bytes == 3 && !file_is_pipe(p->path));
    file_unmap(&m);
}

/* Its writer comes late, and goes on after it has filled the pipe. */
static void a_named_pipe_waits_for_its_writer(void **state)
{
    Place *p = *state;
    enum { LINES = 4000, LINE_BYTES = 20 };
    FileMap m = { 0 };
    CHECK_INT(mkfifo(p->path, 0600), 0);
    pid_t child = fork();
    if (child == 0) {
        alarm(PATIENCE_S); /* a reader that has gone is waited for, too */
        usleep(50000);
        FILE *f = fopen(p->path, "w");
        for (int i = 0; f != NULL && i < LINES; i++) (void)fprintf(f, "%*d\n", LINE_BYTES - 1, i);
        _exit(f == NULL || fclose(f) != 0);
    }
    CHECK_OK(file_map_input(p->path, &m));
    CHECK_INT(m.bytes, LINES * LINE_BYTES);
    CHECK(memcmp(m.data + m.bytes - 5, "3999\n", 5) == 0);
    file_unmap(&m);
    CHECK_INT(waitpid(child, NULL, 0), child);
}

static void a_file_without_a_size_is_read_whole(void **state)
{
    Place *p = *state;
    char *out = NULL;
    size_t bytes = 0;
    CHECK_OK(file_read_all("/proc/self/status", &p->arena, &out, &bytes));
    CHECK(bytes > 100 && strstr(out, "VmRSS:") != NULL);
    FileMap m = { 0 };
    CHECK_OK(file_map("/proc/self/status", &m));
    CHECK(m.bytes > 100 && memcmp(m.data, out, 5) == 0);
    file_unmap(&m);
}

/* Whoever looks into it twice, or at places of it, gets a file or an error; nobody hangs. */
static void a_pipe_is_no_file(void **state)
{
    Place *p = *state;
    FileMap m = { 0 };
    char *text = NULL, byte = 0;
    size_t bytes = 0;
    CHECK_INT(mkfifo(p->path, 0600), 0);
    CHECK_FAILS(file_map(p->path, &m), ERR_IO, "is a pipe");
    CHECK_FAILS(file_read_all(p->path, &p->arena, &text, &bytes), ERR_IO, "is a pipe");
    CHECK_FAILS(read_at(p->path, 0, &byte, 1), ERR_IO, "is a pipe");
}

static void a_device_is_no_file(void **state)
{
    Place *p = *state;
    static const char *const device[] = { "/dev/null", "/dev/zero", "/dev/urandom" };
    FileMap m = { 0 };
    char *text = NULL, byte = 0;
    size_t bytes = 0;
    uint64_t size = 0;
    for (int i = 0; i < 3; i++) {
        CHECK_FAILS(file_map(device[i], &m), ERR_IO, "is a device");
        CHECK_FAILS(file_map_input(device[i], &m), ERR_IO, "is a device");
        CHECK_FAILS(file_read_all(device[i], &p->arena, &text, &bytes), ERR_IO, "is a device");
        CHECK_FAILS(file_read_input(device[i], &p->arena, &text, &bytes), ERR_IO, "is a device");
        CHECK_FAILS(read_at(device[i], 0, &byte, 1), ERR_IO, "is a device");
        CHECK_FAILS(file_size(device[i], &size), ERR_IO, "is a device");
    }
}

#ifdef HOSTILE
static void a_pipe_without_end_is_an_error(void **state)
{
    Place *p = *state;
    FileMap m = { 0 };
    char *text = NULL;
    size_t bytes = 0;
    for (int i = 0; i < 2; i++) {
        FILE *f = popen("yes", "r");
        char path[32];
        CHECK(f != NULL);
        snprintf(path, sizeof path, "/dev/fd/%d", fileno(f));
        Status s =
            i == 0 ? file_map_input(path, &m) : file_read_input(path, &p->arena, &text, &bytes);
        CHECK_FAILS(s, ERR_IO, "is a pipe of more than 131072 bytes");
        pclose(f);
    }
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        PLACE_TEST(a_pipe_is_read_to_its_end_where_that_is_asked_for),
        PLACE_TEST(a_named_pipe_waits_for_its_writer),
        PLACE_TEST(a_pipe_is_no_file),
        PLACE_TEST(a_device_is_no_file),
        PLACE_TEST(a_file_without_a_size_is_read_whole),
#ifdef HOSTILE
        PLACE_TEST(a_pipe_without_end_is_an_error),
#endif
    };
    return TEST_RUN(tests);
}
