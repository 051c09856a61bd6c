/* Any bytes as a file of scaling curves: refused with a sentence, or a curve that can be drawn. */
#include "harness/fuzz.h"
#include "viz/scaling_file.h"

static Status look(Fuzz *f)
{
    Scaling s;
    Text text = { 0 };
    TRY(scaling_read(fuzz_file("scaling.json", f->data, f->bytes), f->a, &s));
    need(s.points > 0 && s.points <= SCALING_POINTS);
    for (int i = 1; i < s.points; i++) need(s.gpus[i] > s.gpus[i - 1]);
    TRY(text_init(&text, f->page));
    return scaling_section(&text, &s, 1);
}

const Fuzzer fuzzer = { .look = look };
