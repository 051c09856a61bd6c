/* Preparing whole corpora: folders and patterns, compressed files, threads, a run that goes on where
 * another was stopped, and duplicates. */
#include "corpus/prepare/corpus.h"
#include "corpus/shard/shard.h"
#include "corpus/unit/prepare_place.h"
#include "harness/compressed.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LINES = 400, ROOM = 1 << 20 };

static void write_in(Place *p, const char *name, const char *bytes, size_t n)
{
    char path[FILE_PATH_MAX];
    CHECK_OK(file_join(path, p->data, name));
    CHECK_OK(file_make_parent(path));
    CHECK_OK(file_write_whole(path, bytes, n));
}

/* Every 5th document is one that may have come before. */
static int number_of(int i) { return i % 5 == 4 ? i / 2 : i; }

static size_t make_line(char *out, int number)
{
    size_t used = (size_t)sprintf(out, "{\"a\":{\"text\":\"%d", number);
    for (int k = 0; k < number * 7 % 90; k++) used += (size_t)sprintf(out + used, " the cat%d", k);
    return used + (size_t)sprintf(out + used, "\"}}\n");
}

/* Documents of many lengths. */
static size_t make_lines(char *out, int first, int n)
{
    size_t used = 0;
    for (int i = first; i < first + n; i++) used += make_line(out + used, number_of(i));
    return used;
}

/* A folder with a file of each compression, and what is no part of a corpus. */
static void write_corpus(Place *p)
{
    static char lines[ROOM], packed[ROOM];
    size_t used = 0, n = make_lines(lines, 0, LINES / 4);
    write_in(p, "b/1.jsonl", lines, n);
    n = make_lines(lines, LINES / 4, LINES / 2);
    add_zstd(lines, n, packed, ROOM, &used);
    write_in(p, "b/2.jsonl.zst", packed, used);
    used = 0;
    n = make_lines(lines, LINES * 3 / 4, LINES / 4);
    add_gzip(lines, n / 2, packed, ROOM, &used);
    add_gzip(lines + n / 2, n - n / 2, packed, ROOM, &used);
    write_in(p, "c.json.gz", packed, used);
    write_in(p, "b/.hidden.jsonl", "x", 1);
    write_in(p, "notes.rst", "x", 1);
    write_in(p, "a.txt", "", 0);
}

static int place_open(void **state)
{
    static Place place;
    Place *p = *state = &place;
    place_prepare(p);
    write_corpus(p);
    p->files[0] = p->data;
    p->config.n_files = 1;
    p->config.threads = 1;
    p->config.documents = (DocumentOptions){ .field = "a.text", .block_bytes = 2000 };
    return 0;
}

static void check_same_file(Place *p, const char *ending)
{
    char path[2][FILE_PATH_MAX + 8], *bytes[2];
    size_t n[2];
    ArenaMark mark = arena_mark(&p->arena);
    for (int i = 0; i < 2; i++) {
        (void)snprintf(path[i], sizeof path[i], "%s%s", i == 0 ? p->out : p->again, ending);
        CHECK_OK(file_read_all(path[i], &p->arena, &bytes[i], &n[i]));
    }
    CHECK_INT(n[1], n[0]);
    if (memcmp(bytes[0], bytes[1], n[0]) != 0) fail_msg("%s differs", ending);
    arena_release(&p->arena, mark);
}

/* What is in the folder besides what place_open put there. */
static int count_files(Place *p)
{
    const char *const *names = NULL;
    int n = 0;
    CHECK_OK(file_list(p->folder, &p->arena, &names, &n));
    return n - 3;
}

/* ---- files ---- */

static void folders_and_patterns_stand_for_files_in_order(void **state)
{
    Place *p = *state;
    char pattern[FILE_PATH_MAX + 16];
    Corpus c = { 0 };
    CHECK_OK(corpus_list(p->files, 1, &p->arena, &c));
    static const char *const want[] = { "/a.txt", "/b/1.jsonl", "/b/2.jsonl.zst", "/c.json.gz" };
    CHECK_INT(c.n, 4);
    for (int i = 0; i < 4; i++) CHECK(text_ends(c.files[i], want[i]));
    (void)snprintf(pattern, sizeof pattern, "%s/b/*.j*", p->data);
    p->files[0] = pattern;
    CHECK_OK(corpus_list(p->files, 1, &p->arena, &c));
    CHECK_INT(c.n, 2);
    CHECK(text_ends(c.files[1], "/b/2.jsonl.zst") && c.bytes > 1000);
    (void)snprintf(pattern, sizeof pattern, "%s/*.csv", p->data);
    CHECK_FAILS(corpus_list(p->files, 1, &p->arena, &c), ERR_IO, "no file matches");
    write_in(p, "none/x.md", "x", 1);
    (void)snprintf(pattern, sizeof pattern, "%s/none", p->data);
    CHECK_FAILS(corpus_list(p->files, 1, &p->arena, &c), ERR_IO, "/none holds no .jsonl");
}

static void a_pattern_that_is_a_name_is_that_file(void **state)
{
    Place *p = *state;
    char path[FILE_PATH_MAX];
    Corpus c = { 0 };
    write_in(p, "[1].txt", "x", 1);
    write_in(p, "1.txt", "y", 1);
    CHECK_OK(file_join(path, p->data, "[1].txt"));
    p->files[0] = path;
    CHECK_OK(corpus_list(p->files, 1, &p->arena, &c));
    CHECK_INT(c.n, 1);
    CHECK_TEXT(c.files[0], path);
}

static void a_link_to_its_own_folder_ends(void **state)
{
    Place *p = *state;
    char path[FILE_PATH_MAX];
    Corpus c = { 0 };
    CHECK_OK(file_join(path, p->data, "loop"));
    CHECK_INT(symlink(p->data, path), 0);
    CHECK_FAILS(corpus_list(p->files, 1, &p->arena, &c), ERR_ARG, "does a link lead back?");
}

/* ---- threads, and runs that go on ---- */

static void the_shard_is_the_same_for_all_numbers_of_threads_and_sizes_of_blocks(void **state)
{
    Place *p = *state;
    PrepareStats one = { 0 }, more = { 0 };
    CHECK_OK(prepare_run(&p->config, &one));
    CHECK_INT(one.documents, LINES);
    p->config.out = p->again;
    for (int threads = 1; threads <= 8; threads++) {
        p->config.threads = threads;
        p->config.documents.block_bytes = (size_t)1 << (4 + threads);
        CHECK_OK(prepare_run(&p->config, &more));
        check_same_file(p, ".bin");
        check_same_file(p, ".idx");
        CHECK_INT(more.tokens, one.tokens);
        CHECK_INT(more.text_bytes, one.text_bytes);
    }
    CHECK_INT(count_files(p), 6); /* .bin, .idx and .meta of each */
}

/* Whatever thread is faster: while one encodes a long document before a bad line, the others find that the
 * next file is damaged. */
static void the_first_bad_line_is_the_error(void **state)
{
    enum { N = 300000 };
    static char lines[N + 100];
    Place *p = *state;
    PrepareStats stats;
    size_t n = (size_t)sprintf(lines, "{\"a\":{\"text\":\"");
    for (; n < N; n++) lines[n] = "the cat "[n % 8];
    n += (size_t)sprintf(lines + n, "\"}}\nbad\n");
    write_in(p, "b/1.jsonl", lines, n);
    write_in(p, "b/2.jsonl.zst", "\x28\xB5\x2F\xFDxx", 6);
    p->config.documents.block_bytes = N;
    p->config.threads = 8;
    for (int i = 0; i < RUNS(20, 3); i++)
        CHECK_FAILS(prepare_run(&p->config, &stats), ERR_FORMAT, "b/1.jsonl:2: no JSON");
    CHECK_INT(count_files(p), 0);
}

/* In a process of its own, which may write files of so many bytes at most: then the disk is full. */
static void prepare_on_small_disk(Place *p, rlim_t bytes)
{
    pid_t child = fork();
    if (child == 0) {
        PrepareStats stats;
        struct rlimit limit = { bytes, bytes };
        signal(SIGXFSZ, SIG_IGN);
        setrlimit(RLIMIT_FSIZE, &limit);
        _exit(prepare_run(&p->config, &stats) == ERR_DISK ? 0 : 1);
    }
    int how = 0;
    CHECK_INT(waitpid(child, &how, 0), child);
    if (!WIFEXITED(how) || WEXITSTATUS(how) != 0)
        fail_msg("a disk of %lld bytes", (long long)bytes);
}

static void check_resumed(Place *p, const char *const *endings, int n)
{
    PrepareStats all = { 0 }, rest = { 0 };
    p->config.threads = 2;
    CHECK_OK(prepare_run(&p->config, &all));
    CHECK_INT(all.resumed_bytes, 0);
    p->config.out = p->again;
    p->config.journal_bytes = 2000;
    for (rlim_t most = 5000; most <= 25000; most += 10000) {
        prepare_on_small_disk(p, most);
        CHECK_OK(prepare_run(&p->config, &rest));
        CHECK(rest.resumed_bytes > 0 && rest.resumed_bytes < all.text_bytes);
        CHECK_INT(rest.documents, all.documents);
        CHECK_INT(rest.tokens, all.tokens);
        CHECK_INT(rest.duplicates, all.duplicates);
        for (int i = 0; i < n; i++) check_same_file(p, endings[i]);
    }
}

static void a_stopped_run_goes_on_and_ends_with_the_same_bytes(void **state)
{
    static const char *const ENDINGS[] = { ".bin", ".idx", ".mask" };
    Place *p = *state;
    check_resumed(p, ENDINGS, 2);
    CHECK_INT(count_files(p), 6);
}

static void duplicates_are_known_after_a_stop(void **state)
{
    static const char *const ENDINGS[] = { ".bin", ".idx" };
    Place *p = *state;
    p->config.dedup = true;
    check_resumed(p, ENDINGS, 2);
}

/* A child that is killed at any moment leaves what the next run can go on from, or begin anew. */
static void a_killed_run_goes_on(void **state)
{
    Place *p = *state;
    PrepareStats stats;
    CHECK_OK(prepare_run(&p->config, &stats));
    p->config.out = p->again;
    p->config.journal_bytes = 4000;
    p->config.threads = 3;
    for (int i = 0; i < RUNS(5, 2); i++) {
        pid_t child = fork();
        if (child == 0) _exit(prepare_run(&p->config, &stats));
        usleep((useconds_t)(i * 4000));
        kill(child, SIGKILL);
        CHECK_INT(waitpid(child, NULL, 0), child);
        CHECK_OK(prepare_run(&p->config, &stats));
        check_same_file(p, ".bin");
        check_same_file(p, ".idx");
    }
}

/* The run stops at a bad line near the end, and goes on without it. */
static void after_a_bad_line_the_run_goes_on_without_it(void **state)
{
    Place *p = *state;
    PrepareStats stats = { 0 };
    static const char lines[] = "{\"a\":{\"text\":\"one\"}}\nbad\n{\"a\":{\"text\":\"two\"}}\n";
    write_in(p, "d.jsonl", lines, sizeof lines - 1);
    p->config.journal_bytes = 4000;
    CHECK_FAILS(prepare_run(&p->config, &stats), ERR_FORMAT, "d.jsonl:2");
    p->config.documents.skip_bad = true;
    CHECK_OK(prepare_run(&p->config, &stats));
    CHECK(stats.resumed_bytes > 10000);
    CHECK_INT(stats.documents, LINES + 2);
    CHECK_INT(stats.skipped, 1);
    CHECK_INT(count_files(p), 3);
}

/* Other options, other files or lost temporaries: the journal is of no use. */
static void a_journal_of_another_run_is_not_used(void **state)
{
    Place *p = *state;
    PrepareStats stats;
    char path[FILE_PATH_MAX + 16];
    p->config.journal_bytes = 4000;
    prepare_on_small_disk(p, 25000);
    p->config.dedup = true;
    CHECK_OK(prepare_run(&p->config, &stats));
    CHECK_INT(stats.resumed_bytes, 0);
    p->config.dedup = false;
    prepare_on_small_disk(p, 25000);
    write_in(p, "b/1.jsonl", "{\"a\":{\"text\":\"new\"}}\n", 21);
    CHECK_OK(prepare_run(&p->config, &stats));
    CHECK_INT(stats.resumed_bytes, 0);
    prepare_on_small_disk(p, 25000);
    (void)snprintf(path, sizeof path, "%s.bin.tmp", p->out);
    CHECK_OK(file_write_whole(path, "x", 1));
    CHECK_OK(prepare_run(&p->config, &stats));
    CHECK_INT(stats.resumed_bytes, 0);
    CHECK_INT(stats.documents, LINES - LINES / 4 + 1);
    CHECK_INT(count_files(p), 3);
}

/* ---- duplicates ---- */

/* Prepares the first of each document alone, to p->again, and returns how many they are. */
static int prepare_different(Place *p)
{
    static char lines[ROOM];
    PrepareStats stats = { 0 };
    PrepareConfig c = p->config;
    bool seen[LINES] = { 0 };
    char path[FILE_PATH_MAX];
    const char *file = path;
    size_t used = 0;
    for (int i = 0; i < LINES; i++) {
        if (!seen[number_of(i)]) used += make_line(lines + used, number_of(i));
        seen[number_of(i)] = true;
    }
    CHECK_OK(file_join(path, p->folder, "different.jsonl"));
    CHECK_OK(file_write_whole(path, lines, used));
    c.out = p->again;
    c.files = &file;
    CHECK_OK(prepare_run(&c, &stats));
    CHECK_INT(stats.duplicates, 0);
    CHECK_INT(stats.encoded, stats.documents);
    return (int)stats.documents;
}

/* A lone thread encodes none, be the first one in the same block or in one that is written. */
static void exact_duplicates_are_left_out_and_counted(void **state)
{
    Place *p = *state;
    PrepareStats stats = { 0 };
    int different = prepare_different(p);
    p->config.dedup = true;
    for (int threads = 1; threads <= 4; threads++) {
        for (size_t block = 16; block <= ROOM; block *= 64) {
            p->config.threads = threads;
            p->config.documents.block_bytes = block;
            CHECK_OK(prepare_run(&p->config, &stats));
            check_same_file(p, ".bin");
            check_same_file(p, ".idx");
            CHECK_INT(stats.documents, different);
            CHECK_INT(stats.duplicates, LINES - different);
            CHECK(stats.encoded <= LINES);
            if (threads == 1) CHECK_INT(stats.encoded, different);
        }
    }
}

static void a_million_tiny_documents_are_prepared(void **state)
{
    enum { N = RUNS(1000000, 20000) };
    Place *p = *state;
    PrepareStats stats = { 0 };
    Text t = { 0 };
    Shard s = { 0 };
    CHECK_OK(text_init(&t, &p->arena));
    for (int i = 0; i < N; i++)
        CHECK_OK(text_printf(&t, "{\"a\":{\"text\":\"%d\"}}\n", i % (N - 1)));
    CHECK_OK(file_remove_tree(p->data));
    write_in(p, "x.jsonl", t.data, t.used);
    p->config.dedup = true;
    p->config.threads = 2;
    p->config.documents.block_bytes = 0;
    CHECK_OK(prepare_run(&p->config, &stats));
    CHECK_INT(stats.duplicates, 1);
    CHECK_OK(shard_open(&s, p->out));
    CHECK_INT(s.documents, N - 1);
    shard_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        PLACE_TEST(folders_and_patterns_stand_for_files_in_order),
        PLACE_TEST(a_pattern_that_is_a_name_is_that_file),
        PLACE_TEST(a_link_to_its_own_folder_ends),
        PLACE_TEST(the_shard_is_the_same_for_all_numbers_of_threads_and_sizes_of_blocks),
        PLACE_TEST(the_first_bad_line_is_the_error),
        PLACE_TEST(a_stopped_run_goes_on_and_ends_with_the_same_bytes),
        PLACE_TEST(duplicates_are_known_after_a_stop),
        PLACE_TEST(a_killed_run_goes_on),
        PLACE_TEST(after_a_bad_line_the_run_goes_on_without_it),
        PLACE_TEST(a_journal_of_another_run_is_not_used),
        PLACE_TEST(exact_duplicates_are_left_out_and_counted),
        PLACE_TEST(a_million_tiny_documents_are_prepared),
    };
    return TEST_RUN(tests);
}
