#include "corpus/shard/shard.h"
#include "harness/place.h"
#include "harness/texts.h"
#include "inspect/inspect.h"

typedef struct Place {
    char folder[64], prefix[FILE_PATH_MAX], tokenizer[FILE_PATH_MAX];
    Arena arena;
    Tokenizer *loaded;
} Place;

/* Bytes alone, so that id and byte correspond as the tokenizer says. */
static int place_open(void **state)
{
    static Place place;
    Place *p = *state = &place;
    char path[FILE_PATH_MAX];
    *p = (Place){ 0 };
    place_make(p->folder, &p->arena);
    CHECK_OK(file_join(p->prefix, p->folder, "<x>"));
    CHECK_OK(file_join(p->tokenizer, p->folder, "tokenizer.json"));
    CHECK_OK(file_join(path, p->folder, "a.txt"));
    write_text(path, "abc");
    p->loaded = learn_tokenizer(path, 257, p->tokenizer, &p->arena);
    return 0;
}

static int place_close(void **state)
{
    Place *p = *state;
    tokenizer_free(p->loaded);
    place_drop(p->folder, &p->arena);
    return 0;
}

/* The page of a shard with one document, or (NULL) none. */
static const char *page_of(Place *p, const char *document, bool with_tokenizer)
{
    ShardWriter w = { 0 };
    Inspect r = { 0 };
    Text text = { 0 };
    int32_t *ids = NULL;
    int64_t n = 0;
    CHECK_OK(shard_create(&w, p->prefix, 257, 0, &p->arena));
    if (document != NULL) {
        CHECK_OK(tokenizer_encode(p->loaded, document, strlen(document), &p->arena, &ids, &n));
        CHECK_OK(shard_append(&w, ids, n));
        CHECK_OK(shard_end_document(&w));
    }
    CHECK_OK(shard_commit(&w));
    CHECK_OK(inspect_scan(p->prefix, 4096, &p->arena, &r));
    CHECK_OK(text_init(&text, &p->arena));
    CHECK_OK(inspect_html(&r, with_tokenizer ? p->loaded : NULL, &text));
    return text.data;
}

static void check_has(const char *text, const char *part)
{
    if (strstr(text, part) == NULL) fail_msg("no \"%s\" in: %s", part, text);
}

static void the_page_is_self_contained_and_escapes_markup(void **state)
{
    Place *p = *state;
    const char *page = page_of(p, "a<script>&\"\n", true);
    CHECK(strncmp(page, "<!DOCTYPE html>", 15) == 0);
    check_has(page, "&lt;x&gt;</h1>");
    check_has(page, "<h2>Document 0</h2>");
    check_has(page, "a&lt;script&gt;&amp;&quot;\n</pre>");
    check_has(page, "&quot;a&quot;</text>");
    check_has(page, "</svg>");
    check_has(page, "</body></html>\n");
    static const char *const NEVER[] = { "<script>&", "http", "src=", "@import", "url(", "<x>" };
    for (size_t i = 0; i < sizeof NEVER / sizeof *NEVER; i++) {
        if (strstr(page, NEVER[i]) != NULL) fail_msg("%s in the page", NEVER[i]);
    }
}

static void lengths_and_ids_are_bars(void **state)
{
    Place *p = *state;
    const char *page = page_of(p, "aaab", false);
    check_has(page, ">from 4</text>");
    check_has(page, "times: 3</title>");
    check_has(page, "times: 1</title>");
}

static void an_empty_shard_has_a_page(void **state)
{
    Place *p = *state;
    check_has(page_of(p, NULL, true), "<td>documents</td><td>0</td>");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        PLACE_TEST(the_page_is_self_contained_and_escapes_markup),
        PLACE_TEST(lengths_and_ids_are_bars),
        PLACE_TEST(an_empty_shard_has_a_page),
    };
    return TEST_RUN(tests);
}
