/* Text that a command prints, as `data prepare` reads it. */
#include "corpus/unit/prepare_place.h"

#include <unistd.h>

enum { LINES = 400 };

static char command[FILE_PATH_MAX + 64];

/* LINES documents in p->lines, of which one is no JSON. */
static void write_lines(Place *p, const char *word, int bad)
{
    Text t = { 0 };
    ArenaMark mark = arena_mark(&p->arena);
    CHECK_OK(text_init(&t, &p->arena));
    for (int i = 0; i < LINES; i++)
        CHECK_OK(text_printf(&t, i == bad ? "bad\n" : "{\"text\":\"the %s %d\"}\n", word, i));
    CHECK_OK(file_write_whole(p->lines, t.data, t.used));
    arena_release(&p->arena, mark);
}

static int place_open(void **state)
{
    static Place place;
    Place *p = *state = &place;
    place_prepare(p);
    write_lines(p, "cat", -1);
    p->config.n_files = 1;
    p->config.threads = 2;
    p->config.documents = (DocumentOptions){ .field = "text", .block_bytes = 1000 };
    p->config.journal_bytes = 500;
    return 0;
}

/* The format has one %s, for p->lines. */
static void take(Place *p, const char *out, const char *format)
{
    (void)snprintf(command, sizeof command, format, p->lines);
    p->files[0] = text_starts(format, "cmd:") ? command : p->lines;
    p->config.out = out;
}

static void check_same_shard(Place *p)
{
    static const char *const ENDINGS[] = { "bin", "idx" };
    for (int i = 0; i < 2; i++) {
        char path[2][FILE_PATH_MAX + 8], sum[2][FILE_SUM_BYTES];
        (void)snprintf(path[0], sizeof path[0], "%s.%s", p->out, ENDINGS[i]);
        (void)snprintf(path[1], sizeof path[1], "%s.%s", p->again, ENDINGS[i]);
        CHECK_OK(file_sum(path[0], sum[0]));
        CHECK_OK(file_sum(path[1], sum[1]));
        CHECK_TEXT(sum[1], sum[0]);
    }
}

static void a_command_gives_the_shard_of_the_file(void **state)
{
    static const char *const FORMATS[] = { "cmd: cat %s", "cmd: gzip -c %s", "cmd: zstd -qc %s",
                                           "cmd:cat < '%s' | cat" };
    Place *p = *state;
    PrepareStats stats = { 0 };
    take(p, p->out, "%s");
    CHECK_OK(prepare_run(&p->config, &stats));
    for (int i = 0; i < 4; i++) {
        take(p, p->again, FORMATS[i]);
        CHECK_OK(prepare_run(&p->config, &stats));
        check_same_shard(p);
    }
}

/* The name in it ends in .jsonl, but what it prints is text. */
static void only_the_first_byte_tells_what_a_command_prints(void **state)
{
    Place *p = *state;
    PrepareStats stats = { 0 };
    take(p, p->out, "cmd: echo the cat # %s");
    CHECK_OK(prepare_run(&p->config, &stats));
    CHECK_INT(stats.text_bytes, 8);
}

static void a_failed_command_leaves_no_shard(void **state)
{
    Place *p = *state;
    PrepareStats stats = { 0 };
    char path[FILE_PATH_MAX + 8];
    take(p, p->out, "cmd: cat %s; echo lost >&2; exit 4");
    CHECK_FAILS(prepare_run(&p->config, &stats), ERR_IO, "exit code 4");
    CHECK(strstr(status_message(), "its stderr ends with: lost") != NULL);
    (void)snprintf(path, sizeof path, "%s.bin", p->out);
    CHECK(!file_exists(path));
}

static void an_interrupted_command_goes_on_with_the_same_data_alone(void **state)
{
    Place *p = *state;
    PrepareStats stats = { 0 };
    write_lines(p, "cat", LINES - 2);
    p->config.documents.skip_bad = true;
    take(p, p->out, "%s");
    CHECK_OK(prepare_run(&p->config, &stats));
    p->config.documents.skip_bad = false;
    take(p, p->again, "cmd: cat %s");
    CHECK_FAILS(prepare_run(&p->config, &stats), ERR_FORMAT, "no JSON");
    p->config.documents.skip_bad = true;
    write_lines(p, "rat", LINES - 2);
    CHECK_FAILS(prepare_run(&p->config, &stats), ERR_CHANGED, "now prints other data in its first");
    write_lines(p, "cat", LINES - 2);
    CHECK_OK(prepare_run(&p->config, &stats));
    CHECK(stats.resumed_bytes > 0);
    check_same_shard(p);
}

static void an_address_is_answered_with_a_command(void **state)
{
    Place *p = *state;
    PrepareStats stats = { 0 };
    static const struct {
        const char *path, *sentence;
    } CASES[] = {
        { "s3://bucket/*.jsonl", "'cmd: aws s3 cp ADDRESS -'" },
        { "gs://bucket/a.jsonl", "'cmd: gcloud storage cat ADDRESS'" },
        { "hf://datasets/a/b", "'cmd: curl -fsSL https://huggingface.co/datasets/" },
        { "https://a.org/b?c=d", "'cmd: curl -fsSL ADDRESS'" },
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        p->files[0] = CASES[i].path;
        CHECK_FAILS(prepare_run(&p->config, &stats), ERR_IO, CASES[i].sentence);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        PLACE_TEST(a_command_gives_the_shard_of_the_file),
        PLACE_TEST(only_the_first_byte_tells_what_a_command_prints),
        PLACE_TEST(a_failed_command_leaves_no_shard),
        PLACE_TEST(an_interrupted_command_goes_on_with_the_same_data_alone),
        PLACE_TEST(an_address_is_answered_with_a_command),
    };
    return TEST_RUN(tests);
}
