#include "corpus/prepare/documents.h"
#include "harness/test.h"

#include <unistd.h>

typedef struct Source {
    const char *name;
    bool jsonl;
    DocumentOptions options;
} Source;

/* All documents of a text, each in brackets, into out; *skipped: bad lines left out. */
static Status read_all(const Source *s, const char *text, size_t bytes, char out[1024],
                       int64_t *skipped)
{
    Documents d = { 0 };
    const Block block = { .text = text, .bytes = bytes };
    bool more = true;
    size_t used = 0;
    Status status = OK;
    documents_of_block(&d, s->name, s->jsonl, &block, &s->options);
    out[0] = '\0';
    while (status == OK && more) {
        const char *document = NULL;
        size_t n = 0;
        status = documents_next(&d, &document, &n, &more);
        if (status != OK || !more) break;
        used += (size_t)snprintf(out + used, 1024 - used, "[%.*s]", (int)n, document);
    }
    *skipped = d.skipped;
    documents_close(&d);
    return status;
}

static void check_split(DocumentSplit split, const char *text, const char *want)
{
    char got[1024];
    int64_t skipped = 0;
    const Source s = { .name = "a.txt", .options.split = split };
    CHECK_OK(read_all(&s, text, strlen(text), got, &skipped));
    CHECK_TEXT(got, want);
}

static Source lines(void)
{
    return (Source){ .name = "a.jsonl", .jsonl = true, .options.field = "text" };
}

static void check_lines(const char *text, const char *want)
{
    char got[1024];
    int64_t skipped = 0;
    const Source s = lines();
    CHECK_OK(read_all(&s, text, strlen(text), got, &skipped));
    CHECK_TEXT(got, want);
}

/* The text fails with this sentence; and where bad lines may be skipped, `want` is what is left. */
static void check_bad(const char *text, size_t bytes, const char *sentence, const char *want)
{
    char got[1024];
    int64_t skipped = 0;
    Source s = lines();
    CHECK_FAILS(read_all(&s, text, bytes, got, &skipped), ERR_FORMAT, sentence);
    s.options.skip_bad = true;
    CHECK_OK(read_all(&s, text, bytes, got, &skipped));
    CHECK_TEXT(got, want);
    CHECK_INT(skipped, 1);
}

#define CHECK_BAD(text, sentence, want) check_bad(text, sizeof text - 1, sentence, want)

static void a_whole_file_is_one_document(void **state)
{
    (void)state;
    check_split(SPLIT_FILE, "a\n\nb\r\n", "[a\n\nb\r\n]");
    check_split(SPLIT_FILE, "\n", "[\n]");
    check_split(SPLIT_FILE, "", "");
}

static void blank_lines_divide_a_text_into_documents(void **state)
{
    (void)state;
    check_split(SPLIT_BLANK, "a\nb\n\nc\n", "[a\nb][c]");
    check_split(SPLIT_BLANK, "\n \t\n\na\n  \n\n\nb", "[a][b]");
    check_split(SPLIT_BLANK, "a\r\nb\r\n\r\nc\r\n", "[a\r\nb][c]");
    check_split(SPLIT_BLANK, " a \n\n", "[ a ]");
    check_split(SPLIT_BLANK, "\n\n \n", "");
    check_split(SPLIT_BLANK, "", "");
}

static void each_line_can_be_a_document(void **state)
{
    (void)state;
    check_split(SPLIT_LINE, "a\n\nb\r\n \nc", "[a][b][c]");
    check_split(SPLIT_LINE, "\n", "");
}

static void json_lines_give_their_field(void **state)
{
    (void)state;
    check_lines("{\"text\": \"a\"}\n\n  \r\n{\"id\": {\"text\": 1}, \"text\": \"b\\n\\\"c\"}\r\n",
                "[a][b\n\"c]");
    check_lines("{\"text\":\"\"}\n{\"text\":\"x\"}", "[][x]");
    check_lines("{\"text\":\"\\u00e4\\ud83d\\ude00\"}", "[\xc3\xa4\xf0\x9f\x98\x80]");
    check_lines("", "");
}

static void another_field_can_be_asked_for(void **state)
{
    (void)state;
    char got[1024];
    int64_t skipped = 0;
    Source s = lines();
    const char text[] = "{\"text\":\"a\",\"body\":\"b\"}\n";
    s.options.field = "body";
    CHECK_OK(read_all(&s, text, sizeof text - 1, got, &skipped));
    CHECK_TEXT(got, "[b]");
}

static void a_broken_line_is_named_by_file_and_line(void **state)
{
    (void)state;
    CHECK_BAD("{\"text\":\"a\"}\n{\"text\": }\n{\"text\":\"c\"}\n",
              "a.jsonl:2: no JSON from column 10 on (--on-bad-line skip leaves such lines out)",
              "[a][c]");
    CHECK_BAD("\n\n{\"text\":\"a", "a.jsonl:3: no JSON", "");
    CHECK_BAD("{\"text\":\"a\"} x\n", "a.jsonl:1: no JSON from column 14 on", "");
    CHECK_BAD("{\"text\":\"\\ud800\"}\n", "a.jsonl:1: no JSON", "");
}

static void a_line_without_the_field_is_bad(void **state)
{
    (void)state;
    CHECK_BAD("{\"text\":\"a\"}\n{\"txt\":\"b\"}\n", "a.jsonl:2: no field \"text\"", "[a]");
    CHECK_BAD("{\"Text\":\"b\"}\n", "no field \"text\"", "");
    CHECK_BAD("{\"text\":5}\n", "a.jsonl:1: no text in field \"text\"", "");
    CHECK_BAD("[1, 2]\n", "a.jsonl:1: no JSON object with a field \"text\"", "");
}

static void a_nul_is_bad_however_it_is_written(void **state)
{
    (void)state;
    CHECK_BAD("{\"text\":\"a\\u0000b\"}\n", "a.jsonl:1: a NUL character", "");
    CHECK_BAD("{\"text\":\"a\\\\\\u0000b\"}\n", "a NUL character", "");
    CHECK_BAD("{\"text\":\"a\0b\"}\n", "a NUL character", "");
    check_lines("{\"text\":\"a\\\\u0000b\"}\n", "[a\\u0000b]");
}

/* As Python's json: the last one. */
static void of_a_key_that_stands_twice_the_last_counts(void **state)
{
    (void)state;
    check_lines("{\"text\":\"a\",\"text\":\"b\"}\n", "[b]");
    check_lines("{\"text\":\"a\",\"x\":{\"text\":1},\"te\\u0078t\":\"b\"}\n", "[b]");
    char many[4096] = "{\"k\":0"; /* more members than the reader looks back at */
    for (int i = 0; i < 99; i++)
        snprintf(many + strlen(many), sizeof many - strlen(many), ",\"k%d\":{}", i);
    strcat(many, ",\"text\":\"a\",\"text\":\"b\"}\n");
    check_lines(many, "[b]");
    check_lines("{\"text\":1,\"text\":\"b\"}\n", "[b]");
    CHECK_BAD("{\"text\":\"a\",\"text\":null}\n", "a.jsonl:1: no text in field", "");
}

/* Each of these is an error of Python's json, or of its writers. */
static void what_is_no_json_is_no_document(void **state)
{
    (void)state;
    CHECK_BAD("{\"text\":\"a\tb\"}\n", "a.jsonl:1: no JSON from column 11 on", "");
    CHECK_BAD("{\"text\":\"a\",\"n\":01}\n", "a.jsonl:1: no JSON", "");
    CHECK_BAD("{\"text\":\"a\",\"n\":1.}\n", "a.jsonl:1: no JSON", "");
    CHECK_BAD("{\"text\":\"a\",\"n\":-.5}\n", "a.jsonl:1: no JSON", "");
    CHECK_BAD("{\"text\":\"a\",\"n\":NaN}\n", "a.jsonl:1: no JSON", "");
    CHECK_BAD("{\"text\":\"\\ud800\"}\n", "a.jsonl:1: no JSON", "");
    CHECK_BAD("{\"text\":\"a\xFF\"}\n", "a.jsonl:1: no UTF-8 from byte 11 on", "");
    CHECK_BAD("{\"n\":\"\xC0\x80\",\"text\":\"a\"}\n", "a.jsonl:1: no UTF-8 from byte 7 on", "");
    CHECK_BAD("{\"text\":\"a\"}\r{\"text\":\"b\"}\n", "a.jsonl:1: no JSON", "");
    check_lines("{\"text\":\"a\",\"n\":[0,-0.5e+7,10,1E9,123456789012345678901234567890]}\r\n",
                "[a]");
    check_lines("{\"text\":\"\\ud83d\\ude00\x7f\"}", "[\xF0\x9F\x98\x80\x7f]");
}

static void check_file(const char *name, const char *bytes, size_t n, const char *want)
{
    Documents d = { 0 };
    const DocumentOptions o = { .field = "text", .split = SPLIT_LINE, .block_bytes = 4 };
    char path[64], got[64] = "";
    snprintf(path, sizeof path, "/tmp/switchyard-test-%ld-%s", (long)getpid(), name);
    CHECK_OK(file_write_whole(path, bytes, n));
    Status s = documents_open(&d, path, &o);
    for (bool more = s == OK; more;) {
        const char *text = NULL;
        size_t length = 0;
        CHECK_OK(documents_next(&d, &text, &length, &more));
        if (more)
            snprintf(got + strlen(got), sizeof got - strlen(got), "[%.*s]", (int)length, text);
    }
    documents_close(&d);
    unlink(path);
    if (bytes[0] == '\xFF' || bytes[0] == '\xFE')
        CHECK_FAILS(s, ERR_FORMAT, want);
    else
        CHECK_TEXT(got, want);
}

/* The mark at the front alone; a later one is a character. */
static void a_byte_order_mark_is_no_part_of_the_text(void **state)
{
    (void)state;
    check_file("a.txt", "\xEF\xBB\xBFone\n\xEF\xBB\xBFtwo\n", 14, "[one][\xEF\xBB\xBFtwo]");
    check_file("a.jsonl", "\xEF\xBB\xBF{\"text\":\"a\"}\n", 16, "[a]");
    check_file("b.txt", "\xEF\xBB\xBF", 3, "");
    check_file("c.txt", "\xFF\xFEo\0n\0", 6, "UTF-16 text, which is not read: convert it: iconv");
    check_file("d.jsonl", "\xFE\xFF\0{\0}", 6, "-f UTF-16 ");
    check_file("e.txt", "\xFF\xFE\0\0o\0\0\0", 8,
               "UTF-32 text, which is not read: convert it: iconv");
}

static void a_field_can_be_a_path(void **state)
{
    (void)state;
    char got[1024];
    int64_t skipped = 0;
    Source s = lines();
    const char text[] = "{\"a\":{\"b\":{\"c\":\"1\"},\"b.c\":\"2\"}}\n{\"a.b.c\":\"3\",\"a\":{}}\n"
                        "{\"a\":{\"b\":\"4\"}}\n{\"a\":\"5\"}\n";
    s.options.field = "a.b.c";
    s.options.skip_bad = true;
    CHECK_OK(read_all(&s, text, sizeof text - 1, got, &skipped));
    CHECK_TEXT(got, "[2][3]");
    CHECK_INT(skipped, 2);
    s.options.skip_bad = false;
    CHECK_FAILS(read_all(&s, text, sizeof text - 1, got, &skipped), ERR_FORMAT,
                "a.jsonl:3: no field \"a.b.c\"");
}

static void a_missing_file_is_named(void **state)
{
    (void)state;
    Documents d = { 0 };
    const DocumentOptions o = { .field = "text" };
    CHECK_FAILS(documents_open(&d, "x/no_such.jsonl", &o), ERR_IO, "x/no_such.jsonl");
    documents_close(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_whole_file_is_one_document),
        TEST(blank_lines_divide_a_text_into_documents),
        TEST(each_line_can_be_a_document),
        TEST(json_lines_give_their_field),
        TEST(another_field_can_be_asked_for),
        TEST(a_broken_line_is_named_by_file_and_line),
        TEST(a_line_without_the_field_is_bad),
        TEST(a_nul_is_bad_however_it_is_written),
        TEST(of_a_key_that_stands_twice_the_last_counts),
        TEST(what_is_no_json_is_no_document),
        TEST(a_byte_order_mark_is_no_part_of_the_text),
        TEST(a_field_can_be_a_path),
        TEST(a_missing_file_is_named),
    };
    return TEST_RUN(tests);
}
