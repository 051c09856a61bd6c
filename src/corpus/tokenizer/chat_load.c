/* chat_load: reads a chat template from a file, or from a tokenizer's folder, and checks it. Rendering
 * is in chat.c. */
#include "corpus/tokenizer/chat.h"

#include "engine/base/file.h"
#include "engine/base/json.h"

#include <stdio.h>
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

/* The path of a file in the tokenizer's folder, and whether it exists. */
static Status beside(const char *tokenizer, const char *name, Arena *a, const char **path,
                     bool *there)
{
    const char *slash = strrchr(tokenizer, '/');
    char text[FILE_PATH_MAX];
    int n = snprintf(text, sizeof text, "%.*s%s", slash == NULL ? 0 : (int)(slash + 1 - tokenizer),
                     tokenizer, name);
    if (n >= (int)sizeof text)
        return FAIL(ERR_ARG, "the path %s%s is longer than %d", tokenizer, name, FILE_PATH_MAX - 1);
    *there = file_exists(text);
    return arena_text(a, text, (size_t)n, path);
}

/* A file chosen by the user wins over chat_template.jinja, which wins over the member of
 * tokenizer_config.json. bos_token and eos_token come from that file in all three cases. */
Status chat_load(const char *path, const char *tokenizer, Arena *a, ChatTemplate *out)
{
    ChatTemplate t = { 0 };
    bool settings = false, own = false;
    const char *config = NULL, *jinja = NULL;
    TRY(beside(tokenizer, "tokenizer_config.json", a, &config, &settings));
    TRY(beside(tokenizer, "chat_template.jinja", a, &jinja, &own));
    if (settings) TRY(read_settings(config, a, &t));
    t.name = config;
    bool chosen = strcmp(path, "tokenizer") != 0;
    if (chosen || own) {
        char *text = NULL;
        size_t n = 0;
        t.name = chosen ? path : jinja;
        TRY(file_read_all(t.name, a, &text, &n));
        /* The interpreter of templates stops at the first NUL, and would ignore what comes after
         * it. */
        if (memchr(text, '\0', n) != NULL)
            return FAIL(ERR_FORMAT, "%s has a NUL character", t.name);
        TRY(arena_text(a, text, n, &t.text));
    }
    if (t.text == NULL)
        return FAIL(ERR_FORMAT,
                    "beside %s there is no chat_template, neither in tokenizer_config.json nor as "
                    "chat_template.jinja: name a file with --chat",
                    tokenizer);
    Arena scratch = { 0 };
    TRY(arena_reserve(&scratch, "template", (size_t)1 << 30));
    Status s = chat_check(&t, &scratch);
    arena_free(&scratch);
    TRY(s);
    *out = t;
    return OK;
}
