/* Any bytes as kept choices either fail with a message or print to a text that reads back to the
 * same print: as they are, and as lines of a text whose first lines and sum are right. */
#include "harness/fuzz.h"
#include "kernels/core/choices.h"

#include <inttypes.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

static const char MACHINE[] = "m";

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

static Status look(Fuzz *f)
{
    const char *text = fuzz_text(f);
    read_back(f->a, text);
    framed(f->a, text);
    return OK;
}

const Fuzzer fuzzer = { .look = look };
