/* fuzz_json: any bytes are JSON or are refused at one of their bytes. What is JSON is written, and what
 * was written reads back as the same text, in one line and in several. */
#include "base/json.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static Status write_and_read(Arena *a, const Json *json, bool lines)
{
    Json *again = NULL;
    size_t bad = 0;
    Text first = { 0 }, second = { 0 };
    TRY(text_init(&first, a));
    TRY(json_print(json, lines, &first));
    TRY(json_parse(first.data, first.used, a, &again, &bad));
    if (again == NULL) abort();
    TRY(text_init(&second, a));
    TRY(json_print(again, lines, &second));
    if (strcmp(first.data, second.data) != 0) abort();
    return OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    Arena a = { 0 };
    Json *json = NULL;
    size_t bad = 0;
    if (arena_init(&a, "fuzz", MEM_HOST, (size_t)1 << 30) != OK) abort();
    if (json_parse((const char *)data, bytes, &a, &json, &bad) != OK) abort();
    if (json == NULL && bad > bytes) abort();
    for (int lines = 0; json != NULL && lines < 2; lines++)
        if (write_and_read(&a, json, lines == 1) != OK) abort();
    arena_free(&a);
    return 0;
}
