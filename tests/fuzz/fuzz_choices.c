/* Any bytes as kept choices either fail with a message or print to a text that reads back to the
 * same print: as they are, and as lines of a text whose first lines and sum are right. */
#include "base/text.h"
#include "op/choices.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { INPUT_MAX = 1 << 14, ARENA_BYTES = 4 << 20 };

static const char MACHINE[] = "m";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void need(bool condition)
{
    if (!condition) abort();
}

static void read_back(Arena *a, const char *text)
{
    Choices *first = NULL, *second = NULL;
    const char *printed = NULL, *again = NULL;
    int taken = 0, more = 0;
    need(choices_make(a, MACHINE, &first) == OK && choices_make(a, MACHINE, &second) == OK);
    if (choices_take(first, "fuzz", text, &taken) != OK) {
        need(*status_message() != '\0' && first->n == 0);
        return;
    }
    need(taken == first->n);
    need(choices_text(first, a, &printed) == OK);
    need(choices_take(second, "printed", printed, &more) == OK && more == taken);
    need(choices_text(second, a, &again) == OK && strcmp(printed, again) == 0);
}

/* Lines of choices in a right frame. */
static void framed(Arena *a, const char *lines)
{
    Text t;
    int n = 0;
    for (const char *c = lines; *c != '\0'; c++) n += *c == '\n';
    need(text_init(&t, a) == OK);
    need(text_printf(&t, "switchyard products 1\nmachine %s\n", MACHINE) == OK);
    need(text_append(&t, lines, strlen(lines)) == OK);
    uint64_t sum = XXH3_64bits(t.data, t.used);
    need(text_printf(&t, "end %d %016" PRIx64 "\n", n, sum) == OK);
    read_back(a, t.data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    Arena a = { 0 };
    const char *text = NULL;
    if (bytes > INPUT_MAX) return 0;
    need(arena_init(&a, "fuzz", MEM_HOST, ARENA_BYTES) == OK);
    need(arena_text(&a, (const char *)data, bytes, &text) == OK);
    read_back(&a, text);
    framed(&a, text);
    arena_free(&a);
    return 0;
}
