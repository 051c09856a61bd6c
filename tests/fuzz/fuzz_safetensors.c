/* Any bytes as a safetensors file: refused with a sentence, or tensors that lie one behind the other
 * inside it, whose elements can all be read. */
#include "convert/weights.h"
#include "harness/fuzz.h"

enum { HEADER_FIRST = 8 };

/* The file as safetensors_open reads it, but from memory. */
static Status parse(Arena *a, const uint8_t *data, size_t bytes, SafeTensor **t, int64_t *n)
{
    uint64_t header = 0;
    SafeHeader h = { 0 };
    for (int i = 7; i >= 0; i--) header = header << 8 | data[i];
    if (header > bytes - HEADER_FIRST) return FAIL(ERR_FORMAT, "fuzz is truncated");
    TRY(ARENA_NEW(a, header + 1, &h.text));
    memcpy(h.text, data + HEADER_FIRST, header);
    h.text[header] = '\0';
    h.bytes = header;
    h.data_first = (int64_t)header + HEADER_FIRST;
    h.data_bytes = (int64_t)bytes - h.data_first;
    return safetensors_parse("fuzz", &h, a, t, n);
}

static Status look(Fuzz *f)
{
    SafeTensor *t = NULL;
    int64_t n = 0, at = 0;
    char text[SAFETENSORS_TEXT_BYTES];
    if (f->bytes < HEADER_FIRST) return OK;
    TRY(parse(f->a, f->data, f->bytes, &t, &n));
    for (int64_t i = 0; i < n; i++) {
        (void)safetensors_text(text, &t[i]);
        need(i == 0 || t[i].begin == at);
        at = t[i].end;
        need(t[i].begin >= HEADER_FIRST && at >= t[i].begin && at <= (int64_t)f->bytes);
        if (t[i].dtype < 0) continue;
        int64_t elems = safetensors_elems(&t[i]), size = (int64_t)dtype_bytes((Dtype)t[i].dtype);
        need(elems * size == at - t[i].begin);
        float *out = NULL;
        uint8_t *aligned = NULL; /* as the reader copies them: a header may have any length */
        ArenaMark mark = arena_mark(f->a);
        TRY(ARENA_NEW(f->a, elems + 1, &out));
        TRY(ARENA_NEW(f->a, elems * size + 1, &aligned));
        memcpy(aligned, f->data + t[i].begin, (size_t)(elems * size));
        dtype_to_f32(out, aligned, (Dtype)t[i].dtype, elems);
        arena_release(f->a, mark);
    }
    return OK;
}

const Fuzzer fuzzer = { .look = look };
