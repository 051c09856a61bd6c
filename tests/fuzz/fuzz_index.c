/* Any text as model.safetensors.index.json: refused with a sentence, or names of tensors and of files
 * that lie in the same folder. */
#include "convert/weights.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static Status look(Arena *a, const uint8_t *data, size_t bytes)
{
    WeightsEntry *entry = NULL;
    const char *text = NULL;
    int64_t n = 0;
    Names names;
    TRY(arena_text(a, (const char *)data, bytes, &text));
    TRY(weights_parse_index("fuzz", text, bytes, a, &entry, &n));
    if (n == 0) abort();
    TRY(names_init(&names, n, a));
    for (int64_t i = 0; i < n; i++) {
        if (strchr(entry[i].file, '/') != NULL || entry[i].file[0] == '\0') abort();
        int64_t other = names_add(&names, entry[i].tensor, i);
        if (other >= 0 && strcmp(entry[other].tensor, entry[i].tensor) != 0) abort();
        if (names_find(&names, entry[i].tensor) < 0) abort();
    }
    return OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    Arena a = { 0 };
    if (arena_init(&a, "fuzz", MEM_HOST, (size_t)1 << 28) != OK) abort();
    (void)look(&a, data, bytes);
    arena_free(&a);
    return 0;
}
