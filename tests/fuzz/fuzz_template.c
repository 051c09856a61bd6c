/* Any bytes as tokenizer_config.json: refused with a sentence, or a template that passed the checks. From a line of %% on
 * it is chat_template.jinja. */
#include "chat/chat.h"
#include "harness/fuzz.h"

static Status look(Fuzz *f)
{
    ChatTemplate t;
    const FuzzPart config = fuzz_part(f, "\n%%\n");
    (void)fuzz_file("tokenizer_config.json", config.data, config.bytes);
    const char *jinja = fuzz_file("chat_template.jinja", f->data, f->bytes);
    TRY(chat_load(fuzz_folder(), f->bytes > 0 ? jinja : NULL, f->a, &t));
    need(t.text != NULL && t.name != NULL);
    return chat_check(&t, f->page);
}

const Fuzzer fuzzer = { .look = look };
