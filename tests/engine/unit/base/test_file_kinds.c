/* What is no regular file: pipes, which are read to their end or refused, and devices. */
#include "harness/place.h"
#include "harness/read_at.h"

#include <fcntl.h>
#include <sys/resource.h>
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

/* A file that may be left out must not be left out where somebody has put a link whose file is gone. */
static void a_link_to_nowhere_is_there_and_cannot_be_read(void **state)
{
    Place *p = *state;
    char *text = NULL;
    size_t bytes = 0;
    CHECK(!file_exists(p->path) && !file_is_file(p->path));
    CHECK_INT(symlink("nowhere", p->path), 0);
    CHECK(file_exists(p->path) && file_is_file(p->path));
    CHECK_FAILS(file_read_all(p->path, &p->arena, &text, &bytes), ERR_IO, "cannot be read");
    unlink(p->path);
    CHECK_INT(symlink(".", p->path), 0);
    CHECK(file_exists(p->path) && !file_is_file(p->path));
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

/* With a reader at its other end, and without, for which open() would wait. */
static void a_pipe_is_not_written_or_locked(void **state)
{
    Place *p = *state;
    File f = { 0 };
    int lock = 0;
    bool held = false;
    long holder = 0;
    CHECK_INT(mkfifo(p->path, 0600), 0);
    CHECK_FAILS(file_open_append(&f, p->path, NULL, 0), ERR_ARG, "x is a pipe, a device or");
    CHECK_FAILS(file_lock(p->path, &lock, &held, &holder), ERR_ARG, "x is a pipe, a device or");
    const int reader = open(p->path, O_RDONLY | O_NONBLOCK);
    CHECK(reader >= 0);
    CHECK_FAILS(file_open_append(&f, p->path, NULL, 0), ERR_ARG, "x is a pipe, a device or");
    CHECK_FAILS(file_lock(p->path, &lock, &held, &holder), ERR_ARG, "x is a pipe, a device or");
    close(reader);
    CHECK_OK(file_open_append(&f, "/dev/null", NULL, 0)); /* bench trace */
    file_close(&f);
}

/* The name of a device or pipe would afterwards be that of a file: root may do that even to /dev/full. */
static void a_file_does_not_replace_what_is_none(void **state)
{
    Place *p = *state;
    File f = { 0 };
    struct stat info;
    CHECK_INT(mkfifo(p->path, 0600), 0);
    CHECK_FAILS(file_create_temp(&f, p->path, &p->arena), ERR_ARG, "a file would replace it");
    CHECK_INT(stat(p->path, &info), 0);
    CHECK(S_ISFIFO(info.st_mode));
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

/* ---- links, which others may put where files will be ---- */

/* What somebody's file, to which the link leads, holds afterwards. */
static void check_victim(Place *p, const char *victim)
{
    char *text = NULL;
    size_t bytes = 0;
    CHECK_OK(file_read_all(victim, &p->arena, &text, &bytes));
    CHECK_TEXT(text, "precious");
}

static void a_link_in_the_place_of_a_file_is_not_followed(void **state)
{
    Place *p = *state;
    char victim[FILE_PATH_MAX], temp[FILE_PATH_MAX];
    File f = { 0 };
    int lock = 0;
    bool held = false;
    long holder = 0;
    CHECK_OK(file_join(victim, p->folder, "victim"));
    CHECK_OK(file_join(temp, p->folder, "x.tmp"));
    CHECK_OK(file_write_whole(victim, "precious", 8));
    CHECK_INT(symlink(victim, temp), 0);
    CHECK_OK(file_write_whole(p->path, "mine", 4)); /* in place of the link */
    check_victim(p, victim);
    CHECK_INT(symlink(victim, temp), 0);
    CHECK(file_resume_temp(&f, p->path, 0, &p->arena) != OK);
    CHECK_INT(unlink(p->path), 0);
    CHECK_INT(symlink(victim, p->path), 0);
    CHECK_FAILS(file_open_append(&f, p->path, NULL, 0), ERR_DISK, "it is a symbolic link");
    CHECK_FAILS(file_lock(p->path, &lock, &held, &holder), ERR_DISK, "it is a symbolic link");
    check_victim(p, victim);
}

static void a_file_that_another_writer_replaced_is_not_put_in_place(void **state)
{
    Place *p = *state;
    File mine = { 0 }, other = { 0 };
    CHECK_OK(file_create_temp(&mine, p->path, &p->arena));
    CHECK_OK(file_write(&mine, "mine", 4));
    CHECK_OK(file_create_temp(&other, p->path, &p->arena));
    CHECK_OK(file_write(&other, "other's", 7));
    CHECK_FAILS(file_commit(&mine), ERR_DISK, "another program writes there");
    file_close(&mine);
    CHECK(!file_exists(p->path));
    CHECK_OK(file_commit(&other));
    char *text = NULL;
    size_t bytes = 0;
    CHECK_OK(file_read_all(p->path, &p->arena, &text, &bytes));
    CHECK_TEXT(text, "other's");
}

/* It says nothing of the file, so a checkpoint does not count as damaged. */
static void too_many_open_files_are_no_fault_of_the_file(void **state)
{
    Place *p = *state;
    struct rlimit before;
    FileMap map = { 0 };
    CHECK_OK(file_write_whole(p->path, "x", 1));
    CHECK_INT(getrlimit(RLIMIT_NOFILE, &before), 0);
    CHECK_INT(setrlimit(RLIMIT_NOFILE, &(struct rlimit){ 3, before.rlim_max }), 0);
    Status s = file_map(p->path, &map);
    CHECK_INT(setrlimit(RLIMIT_NOFILE, &before), 0);
    CHECK_FAILS(s, ERR_MEMORY, "Too many open files");
    CHECK_FAILS(file_map("/nowhere/x", &map), ERR_IO, "No such file");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        PLACE_TEST(a_link_to_nowhere_is_there_and_cannot_be_read),
        PLACE_TEST(a_pipe_is_read_to_its_end_where_that_is_asked_for),
        PLACE_TEST(a_named_pipe_waits_for_its_writer),
        PLACE_TEST(a_pipe_is_no_file),
        PLACE_TEST(a_pipe_is_not_written_or_locked),
        PLACE_TEST(a_file_does_not_replace_what_is_none),
        PLACE_TEST(a_device_is_no_file),
        PLACE_TEST(a_file_without_a_size_is_read_whole),
#ifdef HOSTILE
        PLACE_TEST(a_pipe_without_end_is_an_error),
#endif
        PLACE_TEST(a_link_in_the_place_of_a_file_is_not_followed),
        PLACE_TEST(a_file_that_another_writer_replaced_is_not_put_in_place),
        PLACE_TEST(too_many_open_files_are_no_fault_of_the_file),
    };
    return TEST_RUN(tests);
}
