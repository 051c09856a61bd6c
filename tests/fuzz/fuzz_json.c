/* fuzz_json: any bytes are JSON or are refused at one of their bytes. What is JSON is written, and what
 * was written reads back as the same text, in one line and in several. */
#include "engine/base/json.h"
#include "harness/fuzz.h"

static Status print(const Json *json, bool lines, Arena *a, Text *out)
{
    TRY(text_init(out, a));
    return json_print(json, lines, out);
}

static Status look(Fuzz *f)
{
    Json *json = NULL, *again = NULL;
    size_t bad = 0;
    need(json_parse((const char *)f->data, f->bytes, f->a, &json, &bad) == OK);
    need(json != NULL || bad <= f->bytes);
    for (int lines = 0; json != NULL && lines < 2; lines++) {
        Text first = { 0 }, second = { 0 };
        need(print(json, lines == 1, f->a, &first) == OK);
        need(json_parse(first.data, first.used, f->a, &again, &bad) == OK && again != NULL);
        need(print(again, lines == 1, f->a, &second) == OK);
        need(strcmp(first.data, second.data) == 0);
    }
    return OK;
}

const Fuzzer fuzzer = { .look = look };
