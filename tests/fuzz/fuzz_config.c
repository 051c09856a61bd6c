/* fuzz_config: any bytes as a configuration either fail with a message or give a Config that prints
 * and reads back to the same print. */
#include "engine/config/config.h"
#include "harness/fuzz.h"

enum { LINE_BYTES = 256 }; /* longer texts are no override */

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

static Status make_default(Arena *a, void **out)
{
    TRY(arena_alloc(a, sizeof(Config), out));
    return config_default(*out, a);
}

static Status look(Fuzz *f)
{
    Config c;
    const char *text = fuzz_text(f);
    if (config_parse(&c, f->a, "fuzz", text, f->bytes) == OK)
        read_back(&c, f->a);
    else
        need(*status_message() != '\0');
    if (f->bytes >= LINE_BYTES) return OK;
    c = *(const Config *)fuzz_once(make_default);
    TRY(config_override(&c, f->a, text));
    read_back(&c, f->a);
    return OK;
}

const Fuzzer fuzzer = { .look = look };
