/* folder: reads and writes JSON files of a Hugging Face folder, and has the list of copied files. */
#include "convert/folder.h"

/* Files that only transformers reads are copied, too, so that a folder survives both conversions.
 * The first ones only from-hf copies: to-hf writes its own. */
enum { WRITTEN = 2 };
static const char *const copied[] = {
    "config.json",     "tokenizer.json", "generation_config.json",  "tokenizer_config.json",
    "tokenizer.model", "tiktoken.model", "special_tokens_map.json", "added_tokens.json",
    "vocab.json",      "merges.txt",     "chat_template.jinja",     "chat_template.json",
};

/* json_parse leaves *out NULL for a text that is not JSON, and `bad` is where it stopped. */
Status folder_json(const char *folder, const char *name, Arena *a, Json **out)
{
    char path[FILE_PATH_MAX], *text = NULL;
    size_t bytes = 0, bad = 0;
    TRY(file_join(path, folder, name));
    TRY(file_read_all(path, a, &text, &bytes));
    TRY(json_parse(text, bytes, a, out, &bad));
    if (json_is(*out, JSON_OBJECT)) return OK;
    *out = NULL;
    return FAIL(ERR_FORMAT, "%s is not a JSON object: %s at byte %zu of %zu", path,
                bad >= bytes ? "it ends" : "an error", bad, bytes);
}

Status folder_put_json(const char *folder, const char *name, const Json *json, Arena *a)
{
    char path[FILE_PATH_MAX];
    Text text = { 0 };
    ArenaMark mark = arena_mark(a);
    TRY(file_join(path, folder, name));
    TRY(text_init(&text, a));
    TRY(json_print(json, true, &text));
    TRY(file_write_whole(path, text.data, text.used));
    arena_release(a, mark);
    return OK;
}

Status folder_copy_file(const char *from, const char *to)
{
    FileMap map = { 0 };
    TRY(file_map(from, &map));
    Status s = file_write_whole(to, map.data, map.bytes);
    file_unmap(&map);
    return s;
}

Status folder_copy_files(const char *from, const char *to, bool model)
{
    char source[FILE_PATH_MAX], target[FILE_PATH_MAX];
    for (size_t i = model ? 0 : WRITTEN; i < sizeof copied / sizeof *copied; i++) {
        TRY(file_join(source, from, copied[i]));
        TRY(file_join(target, to, copied[i]));
        if (file_is_file(source)) TRY(folder_copy_file(source, target));
    }
    return OK;
}
