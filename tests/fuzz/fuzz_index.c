/* Any text as model.safetensors.index.json: refused with a sentence, or names of tensors and of files
 * that lie in the same folder. */
#include "convert/weights.h"
#include "harness/fuzz.h"

static Status look(Fuzz *f)
{
    WeightsEntry *entry = NULL;
    int64_t n = 0;
    Names names;
    TRY(weights_parse_index("fuzz", fuzz_text(f), f->bytes, f->a, &entry, &n));
    need(n > 0);
    TRY(names_init(&names, n, f->a));
    for (int64_t i = 0; i < n; i++) {
        need(strchr(entry[i].file, '/') == NULL && entry[i].file[0] != '\0');
        int64_t other = names_add(&names, entry[i].tensor, i);
        need(other < 0 || strcmp(entry[other].tensor, entry[i].tensor) == 0);
        need(names_find(&names, entry[i].tensor) >= 0);
    }
    return OK;
}

const Fuzzer fuzzer = { .look = look };
