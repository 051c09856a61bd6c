/* Any bytes as what `bench ops` and `bench contention` print: refused with a sentence, or rates that are those of a GPU:
 * above 0, not above the peak. */
#include "calibrate/calibrate.h"
#include "harness/fuzz.h"

static Status make_base(Arena *a, void **out)
{
    TRY(arena_alloc(a, sizeof(Hardware), out));
    return hardware_load(*out, a, "h800");
}

static void use(const Hardware *h)
{
    need(h->contention_blocks == 0 || h->contention_blocks >= 1);
    need(h->contention_blocks == 0 || h->contention_blocks < h->gpu_multiprocessors);
    for (int work = WORK_GEMM; work < WORK_COMM; work++) {
        double rate = 1;
        if (hardware_rate(h, (OpWork)work, HARDWARE_BF16, 4096, &rate) != OK) continue;
        need(rate > 0 && rate <= hardware_peak(h, HARDWARE_BF16) * (1 + 1e-9));
    }
}

static Status look(Fuzz *f)
{
    Hardware h = *(const Hardware *)fuzz_once(make_base);
    TRY(calibrate("fuzz", fuzz_text(f), f->a, &h));
    use(&h);
    return OK;
}

const Fuzzer fuzzer = { .look = look };
