#include "harness/place.h"
#include "harness/read_at.h"

#include "engine/base/rng.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Every test works in a folder of its own and in an arena of its own. */
typedef struct Place {
    char folder[64];
    char path[FILE_PATH_MAX]; /* "x" in the folder */
    char temp[FILE_PATH_MAX]; /* "x.tmp" */
    Arena arena;
} Place;

static int place_open(void **state)
{
    static Place place;
    Place *p = *state = &place;
    *p = (Place){ 0 };
    place_make(p->folder, &p->arena);
    CHECK_OK(file_join(p->path, p->folder, "x"));
    CHECK_OK(file_join(p->temp, p->folder, "x.tmp"));
    return 0;
}

static int place_close(void **state)
{
    Place *p = *state;
    place_drop(p->folder, &p->arena);
    return 0;
}

static void make_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    CHECK(f != NULL);
    CHECK(fputs(text, f) >= 0);
    CHECK_INT(fclose(f), 0);
}

static void check_contents(Place *p, const char *path, const char *want)
{
    char *got = NULL;
    size_t bytes = 0;
    CHECK_OK(file_read_all(path, &p->arena, &got, &bytes));
    CHECK_TEXT(got, want);
    CHECK_INT(bytes, strlen(want));
}

/* ---- atomic writes ---- */

/* In libc's place: which inodes were synced, and whether `watched` stood there by then. */
static struct {
    ino_t inode[8];
    bool in_place[8];
    int n;
    const char *watched;
} synced;

int fsync(int fd)
{
    struct stat st;
    if (synced.watched != NULL && synced.n < 8 && fstat(fd, &st) == 0) {
        synced.inode[synced.n] = st.st_ino;
        synced.in_place[synced.n++] = access(synced.watched, F_OK) == 0;
    }
    return (int)syscall(SYS_fsync, fd);
}

static ino_t inode_of(const char *path)
{
    struct stat st;
    CHECK(stat(path, &st) == 0);
    return st.st_ino;
}

/* A crash at any moment finds the old file or the whole new one: bytes before the name, then the
 * folder that holds the name. */
static void a_commit_syncs_the_file_before_its_name_and_then_the_folder(void **state)
{
    Place *p = *state;
    File f = { 0 };
    CHECK_OK(file_create_temp(&f, p->path, &p->arena));
    CHECK_OK(file_write(&f, "abc", 3));
    synced.n = 0, synced.watched = p->path;
    CHECK_OK(file_commit(&f));
    synced.watched = NULL;
    CHECK_INT(synced.n, 2);
    CHECK(synced.inode[0] == inode_of(p->path) && !synced.in_place[0]);
    CHECK(synced.inode[1] == inode_of(p->folder) && synced.in_place[1]);
}

static void a_committed_file_holds_what_was_written(void **state)
{
    Place *p = *state;
    File f = { 0 };
    CHECK_OK(file_create_temp(&f, p->path, &p->arena));
    CHECK_OK(file_write(&f, "weights", 7));
    CHECK_OK(file_printf(&f, " of step %d\n", 12));
    CHECK_INT(f.written_bytes, 19);
    CHECK_OK(file_commit(&f));
    check_contents(p, p->path, "weights of step 12\n");
}

static void until_the_commit_the_old_file_stands(void **state)
{
    Place *p = *state;
    File f = { 0 };
    make_file(p->path, "old");
    CHECK_OK(file_create_temp(&f, p->path, &p->arena));
    CHECK_OK(file_write(&f, "new", 3));
    CHECK_OK(file_sync(&f));
    check_contents(p, p->path, "old");
    check_contents(p, p->temp, "new");
    CHECK_OK(file_commit(&f));
    check_contents(p, p->path, "new");
    CHECK(!file_exists(p->temp));
}

static void closing_without_commit_leaves_no_trace(void **state)
{
    Place *p = *state;
    File f = { 0 };
    CHECK_OK(file_create_temp(&f, p->path, &p->arena));
    CHECK_OK(file_write(&f, "half", 4));
    CHECK_OK(file_flush(&f));
    file_close(&f);
    CHECK(!file_exists(p->temp) && !file_exists(p->path));
}

static void closing_after_the_commit_keeps_the_file(void **state)
{
    Place *p = *state;
    File f = { 0 };
    CHECK_OK(file_create_temp(&f, p->path, &p->arena));
    CHECK_OK(file_commit(&f));
    file_close(&f);
    file_close(&f);
    CHECK(file_exists(p->path));
}

static void closing_a_zeroed_file_does_nothing(void **state)
{
    (void)state;
    File f = { 0 };
    file_close(&f);
    CHECK(fcntl(STDIN_FILENO, F_GETFD) != -1 || fcntl(STDERR_FILENO, F_GETFD) != -1);
}

static void closing_keeps_the_record_of_the_failure_before(void **state)
{
    Place *p = *state;
    File f = { 0 };
    CHECK_OK(file_create_temp(&f, p->path, &p->arena));
    CHECK_INT(FAIL(ERR_NUMERIC, "the loss is nan"), ERR_NUMERIC);
    file_close(&f);
    CHECK(strstr(status_message(), "the loss is nan") != NULL);
}

static void a_leftover_of_a_crash_is_overwritten(void **state)
{
    Place *p = *state;
    File f = { 0 };
    make_file(p->temp, "a long leftover of a run that was killed");
    CHECK_OK(file_create_temp(&f, p->path, &p->arena));
    CHECK_OK(file_write(&f, "short", 5));
    CHECK_OK(file_commit(&f));
    check_contents(p, p->path, "short");
}

/* Pieces of 0 to 40 bytes through buffers from none to larger than the file. */
static void any_buffer_gives_the_same_file(void **state)
{
    Place *p = *state;
    static const size_t BUFFER[] = { 0, 1, 7, 16, 39, 40, 41, 4096 };
    char piece[64], buffer[4096];
    for (size_t i = 0; i < sizeof piece; i++) piece[i] = (char)('A' + i);
    for (int b = 0; b < 8; b++) {
        File f = { 0 };
        FileMap m = { 0 };
        CHECK_OK(file_create_temp_buffered(&f, p->path, b == 0 ? NULL : buffer, BUFFER[b]));
        for (size_t k = 0; k < 41; k++) CHECK_OK(file_write(&f, piece, k * 17 % 41));
        CHECK_INT(f.written_bytes, 820);
        CHECK_OK(file_commit(&f));
        CHECK_OK(file_map(p->path, &m));
        CHECK_INT(m.bytes, 820);
        size_t at = 0;
        for (size_t k = 0; k < 41; k++) {
            CHECK(memcmp(m.data + at, piece, k * 17 % 41) == 0);
            at += k * 17 % 41;
        }
        file_unmap(&m);
    }
}

static void appending_goes_on_at_the_end(void **state)
{
    Place *p = *state;
    char buffer[64];
    for (int i = 0; i < 3; i++) {
        File f = { 0 };
        CHECK_OK(file_open_append(&f, p->path, buffer, sizeof buffer));
        CHECK_OK(file_printf(&f, "line %d\n", i));
        CHECK_OK(file_flush(&f));
        file_close(&f);
    }
    check_contents(p, p->path, "line 0\nline 1\nline 2\n");
}

static void a_flush_reaches_the_file(void **state)
{
    Place *p = *state;
    File f = { 0 };
    char buffer[64];
    CHECK_OK(file_open_append(&f, p->path, buffer, sizeof buffer));
    CHECK_OK(file_printf(&f, "metrics"));
    check_contents(p, p->path, "");
    CHECK_OK(file_flush(&f));
    check_contents(p, p->path, "metrics");
    file_close(&f);
}

static void closing_an_appended_file_keeps_its_buffer(void **state)
{
    Place *p = *state;
    File f = { 0 };
    char buffer[64];
    CHECK_OK(file_open_append(&f, p->path, buffer, sizeof buffer));
    CHECK_OK(file_printf(&f, "last line"));
    file_close(&f);
    check_contents(p, p->path, "last line");
}

static void a_formatted_line_that_is_too_long_is_refused(void **state)
{
    Place *p = *state;
    File f = { 0 };
    char line[5000];
    memset(line, 'x', sizeof line);
    CHECK_OK(file_create_temp(&f, p->path, &p->arena));
    CHECK_FAILS(file_printf(&f, "%.*s", 5000, line), ERR_ARG, "5000 bytes");
    CHECK_OK(file_printf(&f, "%.*s", 4095, line));
    CHECK_INT(f.written_bytes, 4095);
    file_close(&f);
}

static void a_file_in_a_missing_folder_cannot_be_created(void **state)
{
    Place *p = *state;
    File f = { 0 };
    char path[FILE_PATH_MAX];
    CHECK_OK(file_join(path, p->folder, "missing/x"));
    CHECK_FAILS(file_create_temp(&f, path, &p->arena), ERR_DISK, "missing/x.tmp");
    CHECK_FAILS(file_open_append(&f, path, NULL, 0), ERR_DISK, "No such file or directory");
    file_close(&f);
}

static void a_path_that_is_too_long_is_refused(void **state)
{
    (void)state;
    File f = { 0 };
    char path[FILE_PATH_MAX + 8];
    memset(path, 'x', sizeof path);
    path[FILE_PATH_MAX - 4] = '\0';
    CHECK_FAILS(file_create_temp_buffered(&f, path, NULL, 0), ERR_ARG,
                "1020 characters, at most 1019");
    file_close(&f);
}

/* ---- a full disk ---- */

static void need_dev_full(void)
{
    if (access("/dev/full", W_OK) == 0) return;
    print_message("skip: there is no /dev/full here\n");
    skip();
}

static void a_full_disk_is_an_error_with_path_size_and_reason(void **state)
{
    (void)state;
    need_dev_full();
    File f = { 0 };
    char buffer[64];
    CHECK_OK(file_open_append(&f, "/dev/full", buffer, sizeof buffer));
    CHECK_OK(file_write(&f, "0123456789", 10));
    CHECK_FAILS(file_flush(&f), ERR_DISK, "/dev/full: 10 bytes");
    CHECK(strstr(status_message(), "No space left on device") != NULL);
    CHECK_INT(f.buffered, 10);
    file_close(&f);
}

static void a_full_disk_shows_in_a_write_past_the_buffer(void **state)
{
    (void)state;
    need_dev_full();
    File f = { 0 };
    char buffer[16], data[100] = { 0 };
    CHECK_OK(file_open_append(&f, "/dev/full", buffer, sizeof buffer));
    CHECK_FAILS(file_write(&f, data, sizeof data), ERR_DISK, "100 bytes");
    CHECK_OK(file_write(&f, data, 10));
    CHECK_FAILS(file_write(&f, data, 10), ERR_DISK, "10 bytes");
    file_close(&f);
}

static void a_commit_that_fails_keeps_the_old_file(void **state)
{
    Place *p = *state;
    File f = { 0 };
    struct rlimit before;
    CHECK_INT(getrlimit(RLIMIT_FSIZE, &before), 0);
    CHECK(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    make_file(p->path, "the checkpoint before");
    CHECK_OK(file_create_temp(&f, p->path, &p->arena));
    CHECK_OK(file_write(&f, "the new one", 11));
    CHECK_INT(setrlimit(RLIMIT_FSIZE, &(struct rlimit){ 4, before.rlim_max }), 0);
    Status s = file_commit(&f);
    CHECK_INT(setrlimit(RLIMIT_FSIZE, &before), 0);
    CHECK_FAILS(s, ERR_DISK, "File too large");
    file_close(&f);
    check_contents(p, p->path, "the checkpoint before");
    CHECK(!file_exists(p->temp));
}

/* A limit on the size of files stands for a disk that takes a part and later, when somebody made
 * room, the rest. */
static void a_flush_goes_on_where_a_full_disk_stopped_it(void **state)
{
    Place *p = *state;
    File f = { 0 };
    char buffer[64];
    struct rlimit before;
    CHECK_INT(getrlimit(RLIMIT_FSIZE, &before), 0);
    CHECK(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    CHECK_OK(file_open_append(&f, p->path, buffer, sizeof buffer));
    CHECK_OK(file_write(&f, "0123456789abcdef", 16));
    CHECK_INT(setrlimit(RLIMIT_FSIZE, &(struct rlimit){ 10, before.rlim_max }), 0);
    Status s = file_flush(&f);
    CHECK_INT(setrlimit(RLIMIT_FSIZE, &before), 0);
    CHECK_FAILS(s, ERR_DISK, "16 bytes were to be written after 0, the system took 10");
    CHECK_OK(file_flush(&f));
    check_contents(p, p->path, "0123456789abcdef");
    file_close(&f);
}

/* ---- reading ---- */

static void a_missing_file_names_the_nearest_beside_it(void **state)
{
    Place *p = *state;
    static const char *const there[] = { "mine.yaml", "mine.yamd", "mint.yaml", "other" };
    static const struct {
        const char *asked, *hint;
    } cases[] = {
        { "mine.yamx", "mine.yamd" }, /* as near as mine.yaml, and before it */
        { "mine.yml", "mine.yaml" },
        { "mint.yml", "mint.yaml" },
        { "othr", "other" },
        { "nothing.txt", NULL },
        { "ot", NULL },
    };
    char folder[FILE_PATH_MAX], path[FILE_PATH_MAX], says[2 * FILE_PATH_MAX];
    FileMap m = { 0 };
    (void)snprintf(folder, sizeof folder, "%s", p->path);
    CHECK_OK(file_make_folders(folder));
    for (size_t i = 0; i < sizeof there / sizeof *there; i++) {
        CHECK_OK(file_join(path, folder, there[i]));
        CHECK_OK(file_write_whole(path, "", 0));
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_OK(file_join(path, folder, cases[i].asked));
        (void)snprintf(says, sizeof says, "No such file or directory%s%s%s%s",
                       cases[i].hint == NULL ? " [" : ", did you mean ",
                       cases[i].hint == NULL ? "" : folder, cases[i].hint == NULL ? "" : "/",
                       cases[i].hint == NULL ? "" : cases[i].hint);
        CHECK_FAILS(file_map(path, &m), ERR_IO, says);
    }
    CHECK_FAILS(file_map("s3://a/b", &m), ERR_IO,
                "data prepare reads it as 'cmd: aws s3 cp ADDRESS -'");
    CHECK_OK(file_remove_tree(folder));
}

static void a_missing_file_is_an_error_with_path_and_reason(void **state)
{
    Place *p = *state;
    FileMap m = { 0 };
    char *out = NULL, byte[1];
    size_t bytes = 0;
    uint64_t size = 0;
    CHECK_FAILS(file_map(p->path, &m), ERR_IO, "/x cannot be read: No such file or directory");
    CHECK_FAILS(file_read_all(p->path, &p->arena, &out, &bytes), ERR_IO, p->path);
    CHECK_FAILS(read_at(p->path, 0, byte, 1), ERR_IO, p->path);
    CHECK_FAILS(file_size(p->path, &size), ERR_IO, p->path);
    CHECK(!file_exists(p->path));
}

static void a_folder_is_not_a_file(void **state)
{
    Place *p = *state;
    FileMap m = { 0 };
    char *out = NULL;
    size_t bytes = 0;
    CHECK_FAILS(file_map(p->folder, &m), ERR_IO, "is a folder");
    CHECK_FAILS(file_read_all(p->folder, &p->arena, &out, &bytes), ERR_IO, "is a folder");
}

static void an_empty_file_maps_to_nothing(void **state)
{
    Place *p = *state;
    FileMap m = { .bytes = 99 };
    make_file(p->path, "");
    CHECK_OK(file_map(p->path, &m));
    CHECK(m.data == NULL && m.bytes == 0);
    file_unmap(&m);
    file_unmap(&m);
}

static void a_large_file_is_read_whole(void **state)
{
    Place *p = *state;
    File f = { 0 };
    char *out = NULL;
    size_t bytes = 0, n = 300001;
    CHECK_OK(file_create_temp(&f, p->path, &p->arena));
    for (uint64_t i = 0; i < n; i++) {
        CHECK_OK(file_write(&f, (uint8_t[]){ (uint8_t)rng_u32(1, 0, i) }, 1));
    }
    CHECK_OK(file_commit(&f));
    CHECK_OK(file_read_all(p->path, &p->arena, &out, &bytes));
    CHECK_INT(bytes, n);
    CHECK_INT(out[n], '\0');
    for (uint64_t i = 0; i < n; i++) CHECK_INT((uint8_t)out[i], (uint8_t)rng_u32(1, 0, i));
}

static void a_file_larger_than_the_arena_is_an_error(void **state)
{
    Place *p = *state;
    Arena small = { 0 };
    char *out = NULL, text[2000];
    size_t bytes = 0;
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    make_file(p->path, text);
    CHECK_OK(arena_init(&small, "small", MEM_HOST, 1024));
    CHECK_FAILS(file_read_all(p->path, &small, &out, &bytes), ERR_MEMORY, "arena small");
    CHECK(out == NULL);
    arena_free(&small);
}

static void a_piece_is_read_from_its_offset(void **state)
{
    Place *p = *state;
    char out[4] = "###";
    make_file(p->path, "0123456789");
    CHECK_OK(read_at(p->path, 7, out, 3));
    CHECK_TEXT(out, "789");
    CHECK_OK(read_at(p->path, 10, out, 0));
}

static void a_piece_past_the_end_says_where_the_file_ends(void **state)
{
    Place *p = *state;
    char out[8];
    make_file(p->path, "0123456789");
    CHECK_FAILS(read_at(p->path, 7, out, 4), ERR_FORMAT,
                "ends at byte 10, 4 bytes from byte 7 were wanted");
}

static void size_and_truncation_agree(void **state)
{
    Place *p = *state;
    uint64_t bytes = 0;
    make_file(p->path, "0123456789");
    CHECK_OK(file_size(p->path, &bytes));
    CHECK_INT(bytes, 10);
    CHECK_FAILS(file_size(p->temp, &bytes), ERR_IO, p->temp);
}

/* ---- folders ---- */

static void folders_are_made_with_their_parents(void **state)
{
    Place *p = *state;
    char deep[FILE_PATH_MAX];
    struct stat info;
    CHECK_OK(file_join(deep, p->folder, "a/b//c"));
    CHECK_OK(file_make_folders(deep));
    CHECK_OK(file_make_folders(deep));
    CHECK(stat(deep, &info) == 0 && S_ISDIR(info.st_mode));
    CHECK_OK(file_sync_folder(deep));
}

static void a_file_in_the_way_of_a_folder_is_an_error(void **state)
{
    Place *p = *state;
    char deep[FILE_PATH_MAX];
    make_file(p->path, "here already");
    CHECK_OK(file_join(deep, p->path, "below"));
    CHECK_FAILS(file_make_folders(deep), ERR_DISK, "/x cannot be made: a file of that name");
    CHECK_FAILS(file_make_folders(p->path), ERR_DISK, "in the way");
}

static void a_tree_is_removed_and_what_it_links_to_is_not(void **state)
{
    Place *p = *state;
    char tree[FILE_PATH_MAX], inside[FILE_PATH_MAX], link[FILE_PATH_MAX];
    CHECK_OK(file_join(tree, p->folder, "tree"));
    CHECK_OK(file_join(inside, tree, "a/b"));
    CHECK_OK(file_join(link, tree, "a/link"));
    CHECK_OK(file_make_folders(inside));
    make_file(p->path, "outside");
    CHECK_INT(symlink(p->folder, link), 0);
    CHECK_OK(file_remove_tree(tree));
    CHECK(!file_exists(tree));
    check_contents(p, p->path, "outside");
}

static void removing_what_is_not_there_is_fine(void **state)
{
    Place *p = *state;
    CHECK_OK(file_remove_tree(p->path));
}

static void names_are_listed_in_order(void **state)
{
    Place *p = *state;
    const char *const *name = NULL;
    int n = 0;
    for (int i = 0; i < 100; i++) {
        char path[FILE_PATH_MAX], base[16];
        (void)snprintf(base, sizeof base, "f%02d", i * 37 % 100);
        CHECK_OK(file_join(path, p->folder, base));
        make_file(path, "");
    }
    CHECK_OK(file_list(p->folder, &p->arena, &name, &n));
    CHECK_INT(n, 100);
    for (int i = 0; i < n; i++) {
        char want[16];
        (void)snprintf(want, sizeof want, "f%02d", i);
        CHECK_TEXT(name[i], want);
    }
}

static void an_empty_folder_has_no_names(void **state)
{
    Place *p = *state;
    const char *const *name = NULL;
    int n = 7;
    CHECK_OK(file_list(p->folder, &p->arena, &name, &n));
    CHECK_INT(n, 0);
    CHECK_FAILS(file_list(p->path, &p->arena, &name, &n), ERR_IO, p->path);
}

static void joined_paths_have_one_slash(void **state)
{
    (void)state;
    char out[FILE_PATH_MAX];
    CHECK_OK(file_join(out, "a", "b"));
    CHECK_TEXT(out, "a/b");
    CHECK_OK(file_join(out, "a/", "b"));
    CHECK_TEXT(out, "a/b");
    CHECK_OK(file_join(out, "", "b"));
    CHECK_TEXT(out, "b");
}

static void a_joined_path_that_does_not_fit_is_refused(void **state)
{
    (void)state;
    char out[FILE_PATH_MAX], name[FILE_PATH_MAX] = { 0 };
    memset(name, 'x', FILE_PATH_MAX - 3);
    CHECK_OK(file_join(out, "a", name));
    CHECK_INT(strlen(out), FILE_PATH_MAX - 1);
    CHECK_FAILS(file_join(out, "ab", name), ERR_ARG, "1024 characters, at most 1023");
}

/* ---- locks ---- */

static void a_second_lock_is_refused_and_names_the_holder(void **state)
{
    Place *p = *state;
    int first = -1, second = -1;
    bool held = false;
    long holder = 0;
    CHECK_OK(file_lock(p->path, &first, &held, &holder));
    CHECK(held);
    CHECK_OK(file_lock(p->path, &second, &held, &holder));
    CHECK(!held);
    CHECK_INT(holder, getpid());
    file_unlock(first);
}

static void an_unlocked_file_can_be_locked_again(void **state)
{
    Place *p = *state;
    int fd = -1;
    bool held = false;
    long holder = 0;
    for (int i = 0; i < 3; i++) {
        CHECK_OK(file_lock(p->path, &fd, &held, &holder));
        CHECK(held);
        file_unlock(fd);
    }
    file_unlock(-1);
}

/* What two threads that lock and remove the same file share. */
typedef struct Turns {
    const char *path;
    _Atomic int inside;
    _Atomic bool crowded;
} Turns;

static void *take_turns(void *shared)
{
    Turns *t = shared;
    for (int done = 0; done < RUNS(1500, 300);) {
        int fd = 0;
        bool held = false;
        long holder = 0;
        if (file_lock(t->path, &fd, &held, &holder) != OK) break;
        if (!held) continue;
        if (t->inside++ > 0) t->crowded = true;
        sched_yield();
        if (t->inside-- > 1) t->crowded = true;
        file_unlock_remove(fd, t->path);
        done++;
    }
    return NULL;
}

static void a_lock_whose_file_is_removed_has_one_holder_at_a_time(void **state)
{
    Place *p = *state;
    Turns t = { .path = p->path };
    pthread_t other;
    CHECK_INT(pthread_create(&other, NULL, take_turns, &t), 0);
    (void)take_turns(&t);
    CHECK_INT(pthread_join(other, NULL), 0);
    CHECK(!t.crowded);
    CHECK(!file_exists(p->path));
}

static void lock_and_wait(const char *path, int ready)
{
    int fd = -1;
    bool held = false;
    long holder = 0;
    Status s = file_lock(path, &fd, &held, &holder);
    char answer = s == OK && held ? 'y' : 'n';
    if (write(ready, &answer, 1) == 1) pause();
    _exit(1);
}

static void a_killed_process_lets_go_of_its_lock(void **state)
{
    Place *p = *state;
    int pipe_fd[2], fd = -1;
    bool held = true;
    long holder = 0;
    char answer = 'n';
    CHECK_INT(pipe(pipe_fd), 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) lock_and_wait(p->path, pipe_fd[1]);
    CHECK_INT(read(pipe_fd[0], &answer, 1), 1);
    CHECK_INT(answer, 'y');
    CHECK_OK(file_lock(p->path, &fd, &held, &holder));
    CHECK(!held);
    CHECK_INT(holder, child);
    CHECK_INT(kill(child, SIGKILL), 0);
    CHECK_INT(waitpid(child, NULL, 0), child);
    CHECK_OK(file_lock(p->path, &fd, &held, &holder));
    CHECK(held);
    file_unlock(fd);
    close(pipe_fd[0]);
    close(pipe_fd[1]);
}

static void a_lock_in_a_missing_folder_is_an_error(void **state)
{
    Place *p = *state;
    int fd = -1;
    bool held = false;
    long holder = 0;
    char path[FILE_PATH_MAX];
    CHECK_OK(file_join(path, p->folder, "missing/lock"));
    CHECK_FAILS(file_lock(path, &fd, &held, &holder), ERR_DISK, "missing/lock");
}

/* The two variables are put back: other tests of this process may want them. */
static void a_cache_lies_where_it_is_wanted_or_where_the_user_has_caches(void **state)
{
    (void)state;
    char out[FILE_PATH_MAX], home[FILE_PATH_MAX], cache[FILE_PATH_MAX];
    (void)snprintf(home, sizeof home, "%s", getenv("HOME") != NULL ? getenv("HOME") : "");
    (void)snprintf(cache, sizeof cache, "%s",
                   getenv("XDG_CACHE_HOME") != NULL ? getenv("XDG_CACHE_HOME") : "");
    CHECK_INT(setenv("HOME", "/home/a", 1), 0);
    CHECK_INT(setenv("XDG_CACHE_HOME", "/var/a", 1), 0);
    CHECK_OK(file_cache_folder("here/", out));
    CHECK_TEXT(out, "here/");
    CHECK_OK(file_cache_folder("", out));
    CHECK_TEXT(out, "/var/a/switchyard");
    CHECK_INT(setenv("XDG_CACHE_HOME", "not/absolute", 1), 0);
    CHECK_OK(file_cache_folder("", out));
    CHECK_TEXT(out, "/home/a/.cache/switchyard");
    CHECK_INT(setenv("HOME", "", 1), 0);
    CHECK_FAILS(file_cache_folder("", out), ERR_ARG, "set cache.dir");
    CHECK_INT(setenv("HOME", home, 1), 0);
    CHECK_INT(setenv("XDG_CACHE_HOME", cache, 1), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        PLACE_TEST(a_commit_syncs_the_file_before_its_name_and_then_the_folder),
        PLACE_TEST(a_committed_file_holds_what_was_written),
        PLACE_TEST(until_the_commit_the_old_file_stands),
        PLACE_TEST(closing_without_commit_leaves_no_trace),
        PLACE_TEST(closing_after_the_commit_keeps_the_file),
        TEST(closing_a_zeroed_file_does_nothing),
        PLACE_TEST(closing_keeps_the_record_of_the_failure_before),
        PLACE_TEST(a_leftover_of_a_crash_is_overwritten),
        PLACE_TEST(any_buffer_gives_the_same_file),
        PLACE_TEST(appending_goes_on_at_the_end),
        PLACE_TEST(a_flush_reaches_the_file),
        PLACE_TEST(closing_an_appended_file_keeps_its_buffer),
        PLACE_TEST(a_formatted_line_that_is_too_long_is_refused),
        PLACE_TEST(a_file_in_a_missing_folder_cannot_be_created),
        TEST(a_path_that_is_too_long_is_refused),
        TEST(a_full_disk_is_an_error_with_path_size_and_reason),
        TEST(a_full_disk_shows_in_a_write_past_the_buffer),
        PLACE_TEST(a_commit_that_fails_keeps_the_old_file),
        PLACE_TEST(a_flush_goes_on_where_a_full_disk_stopped_it),
        PLACE_TEST(a_missing_file_is_an_error_with_path_and_reason),
        PLACE_TEST(a_missing_file_names_the_nearest_beside_it),
        PLACE_TEST(a_folder_is_not_a_file),
        PLACE_TEST(an_empty_file_maps_to_nothing),
        PLACE_TEST(a_large_file_is_read_whole),
        PLACE_TEST(a_file_larger_than_the_arena_is_an_error),
        PLACE_TEST(a_piece_is_read_from_its_offset),
        PLACE_TEST(a_piece_past_the_end_says_where_the_file_ends),
        PLACE_TEST(size_and_truncation_agree),
        PLACE_TEST(folders_are_made_with_their_parents),
        PLACE_TEST(a_file_in_the_way_of_a_folder_is_an_error),
        PLACE_TEST(a_tree_is_removed_and_what_it_links_to_is_not),
        PLACE_TEST(removing_what_is_not_there_is_fine),
        PLACE_TEST(names_are_listed_in_order),
        PLACE_TEST(an_empty_folder_has_no_names),
        TEST(joined_paths_have_one_slash),
        TEST(a_joined_path_that_does_not_fit_is_refused),
        PLACE_TEST(a_second_lock_is_refused_and_names_the_holder),
        PLACE_TEST(a_lock_whose_file_is_removed_has_one_holder_at_a_time),
        PLACE_TEST(an_unlocked_file_can_be_locked_again),
        PLACE_TEST(a_killed_process_lets_go_of_its_lock),
        PLACE_TEST(a_lock_in_a_missing_folder_is_an_error),
        TEST(a_cache_lies_where_it_is_wanted_or_where_the_user_has_caches),
    };
    return TEST_RUN(tests);
}
