/* chat_load: reads a chat template from a file, or from a model's folder, and checks it. Rendering is in
 * chat.c. */
#include "chat/chat.h"

#include "engine/base/file.h"
#include "engine/base/json.h"

#include <string.h>

/* The text of a member, or of its "content" if it is an object (an added token). NULL: none. */
static const char *text_of(const Json *json, const char *key)
{
    const Json *item = json_get(json, key);
    return json_string(json_is(item, JSON_OBJECT) ? json_get(item, "content") : item);
}

/* tokenizer_config.json, as Hugging Face writes it. Members that are missing stay NULL. */
static Status read_settings(const char *path, Arena *a, ChatTemplate *out)
{
    char *text = NULL;
    size_t n = 0, bad = 0;
    Json *json = NULL;
    TRY(file_read_all(path, a, &text, &n));
    TRY(json_parse(text, n, a, &json, &bad));
    if (!json_is(json, JSON_OBJECT)) return FAIL(ERR_FORMAT, "%s is no JSON object", path);
    out->bos = text_of(json, "bos_token");
    out->eos = text_of(json, "eos_token");
    out->text = text_of(json, "chat_template");
    return OK;
}

/* A file chosen by the user wins over chat_template.jinja, which wins over the member of
 * tokenizer_config.json. */
static Status find_template(const char *folder, const char *file, Arena *a, ChatTemplate *t)
{
    char config[FILE_PATH_MAX] = "", jinja[FILE_PATH_MAX] = "";
    if (folder != NULL) {
        TRY(file_join(config, folder, "tokenizer_config.json"));
        TRY(file_join(jinja, folder, "chat_template.jinja"));
        if (file_exists(config)) TRY(read_settings(config, a, t));
    }
    const char *chosen = file != NULL ? file : jinja;
    bool own = file != NULL || (folder != NULL && file_exists(jinja));
    char *text = NULL;
    size_t n = 0;
    TRY(arena_text(a, own ? chosen : config, strlen(own ? chosen : config), &t->name));
    if (!own) return OK;
    TRY(file_read_all(t->name, a, &text, &n));
    /* The interpreter of templates stops at the first NUL, and would ignore what comes after it. */
    if (memchr(text, '\0', n) != NULL) return FAIL(ERR_FORMAT, "%s has a NUL character", t->name);
    return arena_text(a, text, n, &t->text);
}

Status chat_load(const char *folder, const char *file, Arena *a, ChatTemplate *out)
{
    ChatTemplate t = { 0 };
    TRY(find_template(folder, file, a, &t));
    size_t bad = 0;
    if (t.text != NULL && !text_utf8_valid(t.text, strlen(t.text), &bad))
        return FAIL(ERR_FORMAT, "%s is no UTF-8 from byte %zu of the template on", t.name, bad + 1);
    if (t.text == NULL)
        return FAIL(ERR_FORMAT,
                    "the folder %s has no chat_template, neither in tokenizer_config.json nor as "
                    "chat_template.jinja: name a file with --template",
                    folder);
    Arena scratch = { 0 };
    TRY(arena_reserve(&scratch, "template", (size_t)1 << 30));
    Status s = chat_check(&t, &scratch);
    arena_free(&scratch);
    TRY(s);
    *out = t;
    return OK;
}
