/* Any text as config.json: refused with a sentence, or a configuration. One that passes the checks of
 * settings and that is not too large to write down is written as some family's config.json, which
 * gives the same model. */
#include "convert/family.h"
#include "harness/fuzz.h"

static Status look(Fuzz *f)
{
    Config c, theirs;
    const Family *family = NULL, *written = NULL;
    Json *json = NULL, *again = NULL;
    size_t bad = 0;
    TRY(json_parse((const char *)f->data, f->bytes, f->a, &json, &bad));
    need(json != NULL || bad <= f->bytes);
    if (json == NULL) return OK;
    TRY(config_default(&c, f->a));
    TRY(family_read("fuzz", json, f->a, &c, &family));
    TRY(config_check(&c));
    if (c.model_layers > 100) return OK; /* a list of all layers in each family */
    Status s = family_write(&c, json, f->a, &again, &written, &theirs);
    need(s != OK ? again == NULL : theirs.model_hidden == c.model_hidden && again != NULL);
    return s;
}

const Fuzzer fuzzer = { .look = look };
