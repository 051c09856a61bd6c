#include "corpus/shard/shard.h"
#include "corpus/unit/prepare_place.h"

#include <unistd.h>

static int place_open(void **state)
{
    static Place place;
    Place *p = *state = &place;
    place_prepare(p);
    p->files[0] = p->text;
    p->files[1] = p->lines;
    p->config.n_files = 2;
    p->config.documents.field = "text";
    return 0;
}

/* The documents of the shard, decoded, each in brackets; each must end with the end-of-text id and
 * hold it nowhere else. */
static void check_shard(Place *p, const char *want)
{
    Shard s = { 0 };
    static int32_t ids[4096];
    char got[4096];
    size_t used = 0;
    int32_t end = tokenizer_end_of_text(p->loaded);
    CHECK_OK(shard_open(&s, p->out));
    for (int64_t d = 0; d < s.documents; d++) {
        int64_t first = shard_start(&s, d), n = shard_start(&s, d + 1) - first;
        CHECK(n >= 1 && n <= 4096);
        shard_read(&s, first, n, ids);
        CHECK_INT(ids[n - 1], end);
        got[used++] = '[';
        for (int64_t i = 0; i + 1 < n; i++) {
            const char *bytes = NULL;
            int32_t n_bytes = 0;
            CHECK(ids[i] != end);
            tokenizer_bytes(p->loaded, ids[i], &bytes, &n_bytes);
            memcpy(got + used, bytes, (size_t)n_bytes);
            used += (size_t)n_bytes;
        }
        got[used++] = ']';
    }
    got[used] = '\0';
    shard_close(&s);
    CHECK_TEXT(got, want);
}

/* Whatever failed, no file of the output is there. */
static void check_nothing_written(Place *p)
{
    const char *const *names = NULL;
    int n = 0;
    CHECK_OK(file_list(p->folder, &p->arena, &names, &n));
    for (int i = 0; i < n; i++) {
        if (strncmp(names[i], "out", 3) == 0) fail_msg("%s was left behind", names[i]);
    }
}

static void text_and_json_lines_become_documents_that_decode_to_the_same(void **state)
{
    Place *p = *state;
    PrepareStats stats = { 0 };
    write_text(p->lines, "{\"text\":\"the cat\"}\n{\"text\":\"\\u4e16\\u754c \\\"x\\\"\"}\n");
    CHECK_OK(prepare_run(&p->config, &stats));
    char want[256];
    (void)snprintf(want, sizeof want, "[%s][the cat][\xe4\xb8\x96\xe7\x95\x8c \"x\"]", TRAINING);
    check_shard(p, want);
    CHECK_INT(stats.documents, 3);
    CHECK_INT(stats.text_bytes, strlen(TRAINING) + 7 + 10);
    CHECK_INT(stats.skipped + stats.empty, 0);
    CHECK(stats.tokens > 3 && stats.tokens < stats.text_bytes + 3); /* some merges were used */
}

static void bytes_that_are_no_utf8_are_kept(void **state)
{
    Place *p = *state;
    PrepareStats stats = { 0 };
    CHECK_OK(file_write_whole(p->text, "a\xff\xc3(\x80z", 6));
    p->config.n_files = 1;
    CHECK_OK(prepare_run(&p->config, &stats));
    check_shard(p, "[a\xff\xc3(\x80z]");
}

static void text_files_can_be_split(void **state)
{
    Place *p = *state;
    PrepareStats stats = { 0 };
    write_text(p->text, "one\ntwo\n\nthree\n");
    p->config.n_files = 1;
    p->config.documents.split = SPLIT_BLANK;
    CHECK_OK(prepare_run(&p->config, &stats));
    check_shard(p, "[one\ntwo][three]");
    p->config.documents.split = SPLIT_LINE;
    CHECK_OK(prepare_run(&p->config, &stats));
    check_shard(p, "[one][two][three]");
}

static void empty_documents_are_left_out_and_counted(void **state)
{
    Place *p = *state;
    PrepareStats stats = { 0 };
    write_text(p->text, "");
    write_text(p->lines, "{\"text\":\"\"}\n{\"text\":\"a\"}\n{\"text\":\"\"}\n");
    CHECK_OK(prepare_run(&p->config, &stats));
    check_shard(p, "[a]");
    CHECK_INT(stats.empty, 2);
    CHECK_INT(stats.documents, 1);
}

static void a_bad_line_fails_or_is_skipped_and_counted(void **state)
{
    Place *p = *state;
    PrepareStats stats = { 0 };
    write_text(p->text, "t");
    write_text(p->lines, "{\"text\":\"a\"}\n{\"text\":\nnothing\n{\"text\":\"b\"}\n");
    CHECK_FAILS(prepare_run(&p->config, &stats), ERR_FORMAT, "b.jsonl:2: no JSON from column");
    check_nothing_written(p);
    p->config.documents.skip_bad = true;
    CHECK_OK(prepare_run(&p->config, &stats));
    check_shard(p, "[t][a][b]");
    CHECK_INT(stats.skipped, 2);
}

static void a_corpus_without_documents_is_an_error(void **state)
{
    Place *p = *state;
    PrepareStats stats = { 0 };
    write_text(p->text, "");
    write_text(p->lines, "\n\n{\"text\":\"\"}\nx\n");
    p->config.documents.skip_bad = true;
    CHECK_FAILS(prepare_run(&p->config, &stats), ERR_FORMAT,
                "2 files (16 bytes) hold no document: 1 empty ones and 1 bad lines were left out");
    check_nothing_written(p);
}

/* Of a pipe only the contents tell what it holds. */
static void pipes_hold_text_or_json_lines(void **state)
{
    Place *p = *state;
    static const char *const held[] = { "{\"text\": \"the cat\"}\n{\"text\": \"a hat\"}\n",
                                        "the {mat}\n" };
    char path[2][32];
    int fd[2];
    for (int i = 0; i < 2; i++) {
        int end[2];
        CHECK_INT(pipe(end), 0);
        CHECK_INT(write(end[1], held[i], strlen(held[i])), strlen(held[i]));
        close(end[1]);
        snprintf(path[i], sizeof path[i], "/dev/fd/%d", fd[i] = end[0]);
        p->files[i] = path[i];
    }
    PrepareStats stats;
    CHECK_OK(prepare_run(&p->config, &stats));
    check_shard(p, "[the cat][a hat][the {mat}\n]");
    CHECK_FAILS(prepare_run(&p->config, &stats), ERR_IO, "is a pipe and holds nothing");
    for (int i = 0; i < 2; i++) close(fd[i]);
}

static void a_missing_file_is_named_before_any_work(void **state)
{
    Place *p = *state; /* b.jsonl, the second file, does not exist */
    PrepareStats stats = { 0 };
    CHECK_FAILS(prepare_run(&p->config, &stats), ERR_IO, "b.jsonl");
    check_nothing_written(p);
    p->config.n_files = 1;
    p->config.tokenizer = p->lines;
    CHECK_FAILS(prepare_run(&p->config, &stats), ERR_IO, "b.jsonl");
    check_nothing_written(p);
}

static void an_old_pair_survives_a_failed_run(void **state)
{
    Place *p = *state;
    PrepareStats stats = { 0 };
    write_text(p->text, "old");
    p->config.n_files = 1;
    CHECK_OK(prepare_run(&p->config, &stats));
    write_text(p->text, "new");
    write_text(p->lines, "broken\n");
    p->config.n_files = 2;
    CHECK_FAILS(prepare_run(&p->config, &stats), ERR_FORMAT, "b.jsonl:1");
    check_shard(p, "[old]");
}

static void a_prefix_that_is_being_prepared_is_refused(void **state)
{
    Place *p = *state;
    PrepareStats stats = { 0 };
    char lock[FILE_PATH_MAX + 8];
    int fd = 0;
    bool held = false;
    long holder = 0;
    p->config.n_files = 1;
    (void)snprintf(lock, sizeof lock, "%s.lock", p->out);
    CHECK_OK(file_lock(lock, &fd, &held, &holder));
    CHECK_FAILS(prepare_run(&p->config, &stats), ERR_ARG, "out is being prepared by process ");
    CHECK(file_exists(lock)); /* it is the holder's */
    file_unlock_remove(fd, lock);
    CHECK_OK(prepare_run(&p->config, &stats));
    CHECK(!file_exists(lock));
}

#ifdef ARENA_FAIL_NTH
extern long arena_fail_countdown;

static void every_refused_allocation_is_an_error(void **state)
{
    Place *p = *state;
    PrepareStats stats = { 0 };
    int refused = 0;
    write_text(p->lines, "{\"text\":\"the cat\"}\n");
    for (long n = 0; n < 60; n++) { /* the patterns' compiler can do without some of its own */
        arena_fail_countdown = n;
        Status s = prepare_run(&p->config, &stats);
        arena_fail_countdown = -1;
        if (s == OK) continue;
        CHECK_INT(s, ERR_MEMORY);
        refused++;
    }
    CHECK(refused > 10);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        PLACE_TEST(text_and_json_lines_become_documents_that_decode_to_the_same),
        PLACE_TEST(bytes_that_are_no_utf8_are_kept),
        PLACE_TEST(text_files_can_be_split),
        PLACE_TEST(empty_documents_are_left_out_and_counted),
        PLACE_TEST(a_bad_line_fails_or_is_skipped_and_counted),
        PLACE_TEST(a_corpus_without_documents_is_an_error),
        PLACE_TEST(pipes_hold_text_or_json_lines),
        PLACE_TEST(a_missing_file_is_named_before_any_work),
        PLACE_TEST(an_old_pair_survives_a_failed_run),
        PLACE_TEST(a_prefix_that_is_being_prepared_is_refused),
#ifdef ARENA_FAIL_NTH
        PLACE_TEST(every_refused_allocation_is_an_error),
#endif
    };
    return TEST_RUN(tests);
}
