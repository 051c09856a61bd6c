/* Any bytes as tokenizer_config.json: refused with a sentence, or a template that passed the checks. From a line of %% on
 * it is chat_template.jinja. */
#include "corpus/tokenizer/chat.h"
#include "harness/fuzz.h"

static Status look(Fuzz *f)
{
    ChatTemplate t;
    char tokenizer[FILE_PATH_MAX];
    const FuzzPart config = fuzz_part(f, "\n%%\n");
    (void)fuzz_file("tokenizer_config.json", config.data, config.bytes);
    const char *jinja = fuzz_file("chat_template.jinja", f->data, f->bytes);
    TRY(file_join(tokenizer, fuzz_folder(), "tokenizer.json"));
    TRY(chat_load(f->bytes > 0 ? jinja : "tokenizer", tokenizer, f->a, &t));
    need(t.text != NULL && t.name != NULL);
    return chat_check(&t, f->page);
}

const Fuzzer fuzzer = { .look = look };
