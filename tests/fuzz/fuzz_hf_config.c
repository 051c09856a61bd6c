/* Any text as config.json: refused with a sentence, or a configuration. One that passes the checks of
 * settings and that is not too large to write down is written as some family's config.json, which
 * gives the same model. */
#include "convert/family.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static Status look(Arena *a, const uint8_t *data, size_t bytes)
{
    Config c, theirs;
    const Family *family = NULL, *written = NULL;
    Json *json = NULL, *again = NULL;
    size_t bad = 0;
    TRY(json_parse((const char *)data, bytes, a, &json, &bad));
    if (json == NULL && bad > bytes) abort();
    if (json == NULL) return OK;
    TRY(config_default(&c, a));
    TRY(family_read("fuzz", json, a, &c, &family));
    TRY(config_check(&c));
    if (c.model_layers > 100) return OK; /* a list of all layers in each family */
    Status s = family_write(&c, json, a, &again, &written, &theirs);
    if (s == OK && (theirs.model_hidden != c.model_hidden || again == NULL)) abort();
    if (s != OK && again != NULL) abort();
    return s;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    Arena a = { 0 };
    if (arena_init(&a, "fuzz", MEM_HOST, (size_t)1 << 28) != OK) abort();
    (void)look(&a, data, bytes);
    arena_free(&a);
    return 0;
}
