/* Any bytes as what `bench ops` and `bench contention` print: refused with a sentence, or rates that can be written as a
 * file of a GPU, which reads back. */
#include "harness/fuzz.h"
#include "plan/hardware.h"

static Status make_base(Arena *a, void **out)
{
    TRY(arena_alloc(a, sizeof(Hardware), out));
    return hardware_load(*out, a, "h200");
}

static Status look(Fuzz *f)
{
    Hardware h = *(const Hardware *)fuzz_once(make_base), back;
    Text text = { 0 };
    TRY(calibrate("fuzz", fuzz_text(f), f->a, &h));
    TRY(text_init(&text, f->page));
    TRY(hardware_print(&h, &text));
    need(hardware_parse(&back, f->a, "printed", text.data, text.used) == OK);
    return OK;
}

const Fuzzer fuzzer = { .look = look };
