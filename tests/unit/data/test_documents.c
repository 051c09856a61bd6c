#include "data/documents.h"
#include "harness/test.h"

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
    check_lines("{\"text\":\"\xff\"}", "[\xff]"); /* the tokenizer encodes bytes */
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
        TEST(a_whole_file_is_one_document),    TEST(blank_lines_divide_a_text_into_documents),
        TEST(each_line_can_be_a_document),     TEST(json_lines_give_their_field),
        TEST(another_field_can_be_asked_for),  TEST(a_broken_line_is_named_by_file_and_line),
        TEST(a_line_without_the_field_is_bad), TEST(a_nul_is_bad_however_it_is_written),
        TEST(a_field_can_be_a_path),           TEST(a_missing_file_is_named),
    };
    return TEST_RUN(tests);
}
