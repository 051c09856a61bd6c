/* Any bytes as a stack's file either fail with a message, or give values or a message, and every
 * definition can be opened. */
#include "plan/stack.h"

#include <stdlib.h>

enum { INPUT_MAX = 4096, ARENA_BYTES = 32 << 20 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void need(bool condition)
{
    if (!condition) abort();
}

static void need_values(const PlanStack *s, Arena *a)
{
    static const PlanInputs in = { .gpus = 8, .hidden = 64, .tokens = 128, .heads = 4 };
    Sheet sheet;
    StackValues v;
    if (stack_values(s, &in, &v) != OK) need(*status_message() != '\0');
    stack_sheet(s, &in, &sheet);
    for (int i = 0; i < sheet.n; i++) {
        Text t = { 0 };
        ArenaMark mark = arena_mark(a);
        need(text_init(&t, a) == OK && sheet_explain(&sheet, i, 3, &t) == OK);
        need(text_starts(t.data, sheet.row[i].name));
        arena_release(a, mark);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    Arena a = { 0 };
    PlanStack s;
    if (bytes > INPUT_MAX) return 0;
    need(arena_init(&a, "fuzz", MEM_HOST, ARENA_BYTES) == OK);
    if (stack_parse(&s, &a, "fuzz", (const char *)data, bytes) == OK)
        need_values(&s, &a);
    else
        need(*status_message() != '\0');
    arena_free(&a);
    return 0;
}
