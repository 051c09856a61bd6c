/* fuzz_record: chunks of any content, whose sums are right, are refused with a sentence, or are a
 * recording that becomes events and sheets. The input: for each chunk a byte that chooses its tag, two
 * of its length, its data; what is left behind is a damaged end. */
#include "harness/fuzz.h"
#include "traces/read/recording.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { FILE_BYTES = 1 << 20 };

static uint8_t file[FILE_BYTES];

static size_t put(size_t at, const void *what, size_t n)
{
    memcpy(file + at, what, n);
    return at + n;
}

static size_t build(const uint8_t *data, size_t bytes)
{
    static const char tags[][5] = { "META", "NAME", "ROWS", "STEP", "OPS_", "LATE" };
    const uint32_t head[2] = { RECORD_VERSION, 0x01020304 };
    size_t at = put(put(0, RECORD_MAGIC, 8), head, sizeof head);
    while (bytes >= 3 && at + bytes + 64 < FILE_BYTES) {
        uint64_t n = (uint64_t)data[1] | (uint64_t)data[2] << 8;
        uint32_t spare = 0;
        if (n > bytes - 3) break;
        uint64_t sum = XXH3_64bits(data + 3, n);
        at = put(put(at, tags[data[0] % 6], 4), &spare, 4);
        at = put(put(put(at, &n, 8), &sum, 8), data + 3, n);
        data += 3 + n;
        bytes -= 3 + n;
    }
    return put(at, data, bytes < 64 ? bytes : 64);
}

static void use(const Recorded *r, const Fuzz *f)
{
    Recording whole = { .path = "fuzz", .file = *r, .device = "", .ranks = 1, .experts = 3 };
    const Recording *const all[] = { &whole };
    Table table[RECORDING_SHEETS];
    Text text = { 0 };
    int n = 0;
    if (r->steps == 0) return;
    need(recording_tables(&whole, f->a, table, &n) == OK && n == RECORDING_SHEETS);
    need(text_init(&text, f->page) == OK && recording_json(all, 1, &text) == OK);
}

static Status look(Fuzz *f)
{
    Recorded r;
    TRY(record_parse("fuzz", file, build(f->data, f->bytes), f->a, &r));
    use(&r, f);
    return OK;
}

const Fuzzer fuzzer = { .look = look, .most_bytes = FILE_BYTES / 2 };
