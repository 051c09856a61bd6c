/* fuzz_config: any bytes as a configuration either fail with a message or give a Config that prints
 * and reads back to the same print. */
#include "config/config.h"

#include <stdlib.h>
#include <string.h>

enum { INPUT_MAX = 1 << 14, ARENA_BYTES = 1 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void need(bool condition)
{
    if (!condition) abort();
}

static bool print(const Config *c, Arena *a, Text *out)
{
    return text_init(out, a) == OK && config_print(c, out) == OK;
}

static void read_back(const Config *c, Arena *a)
{
    Config back;
    Text first, second;
    need(print(c, a, &first));
    need(config_parse(&back, a, "printed", first.data, first.used) == OK);
    need(print(&back, a, &second));
    need(strcmp(first.data, second.data) == 0);
    if (config_check(c) != OK) need(*status_message() != '\0');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    Arena a = { 0 };
    Config c;
    if (bytes > INPUT_MAX) return 0;
    need(arena_init(&a, "fuzz", MEM_HOST, ARENA_BYTES) == OK);
    if (config_parse(&c, &a, "fuzz", (const char *)data, bytes) == OK) {
        read_back(&c, &a);
    } else {
        need(*status_message() != '\0');
    }
    char line[256];
    if (bytes < sizeof line) {
        memcpy(line, data, bytes);
        line[bytes] = '\0';
        need(config_default(&c, &a) == OK);
        if (config_override(&c, &a, line) == OK) read_back(&c, &a);
    }
    arena_free(&a);
    return 0;
}
