/* write: a byte-level vocabulary as Hugging Face's tokenizer.json, with all members, also those at their
 * defaults, as Hugging Face's own writer does. */
#include "tokenizer/write.h"

#include "engine/base/file.h"

/* The characters that stand for the bytes, NUL-terminated; returns where the next would go. */
static char *write_token_text(char *out, const TokenText *token)
{
    for (int32_t i = 0; i < token->n; i++) {
        int32_t c = tokenizer_code_point((uint8_t)token->bytes[i]);
        if (c >= 0x80) *out++ = (char)(0xC0 | c >> 6);
        *out++ = (char)(c >= 0x80 ? 0x80 | (c & 0x3F) : c);
    }
    *out = '\0';
    return out;
}

/* Everything before the vocabulary. */
static Status write_head(Text *t, const TokenizerFile *f)
{
    TRY(text_printf(
        t, "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":["));
    for (int i = 0; i < f->n_special; i++) {
        TRY(text_append(t, ",", i > 0));
        TRY(text_json(t,
                      "{\"id\":%d,\"content\":%.*s,\"single_word\":false,\"lstrip\":false,"
                      "\"rstrip\":false,\"normalized\":false,\"special\":true}",
                      f->special[i].id, f->special[i].n, f->special[i].text));
    }
    TRY(text_printf(t, "],\"normalizer\":null,\"pre_tokenizer\":"));
    if (f->pattern != NULL)
        TRY(text_json(t,
                      "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":"
                      "{\"Regex\":%s},\"behavior\":%s,\"invert\":",
                      f->pattern, f->drops ? "Removed" : "Isolated"));
    if (f->pattern != NULL) TRY(text_printf(t, "%s},", f->drops ? "true" : "false"));
    const char *use_regex = f->pattern == NULL ? "true" : "false";
    for (int i = 0; i < 2; i++)
        TRY(text_printf(t,
                        "%s{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
                        "\"trim_offsets\":true,\"use_regex\":%s}%s",
                        i == 0 ? "" : ",\"post_processor\":null,\"decoder\":",
                        i == 0 ? use_regex : "true", i == 0 && f->pattern != NULL ? "]}" : ""));
    return text_printf(
        t,
        ",\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,"
        "\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,"
        "\"fuse_unk\":false,\"byte_fallback\":false,\"ignore_merges\":%s,\"vocab\":{",
        f->pattern == NULL ? "false" : "true");
}

static Status write_file(Text *t, const TokenizerFile *f, char *scratch)
{
    bool more = false;
    TRY(write_head(t, f));
    for (int32_t i = 0; i < f->n_tokens; i++) {
        if (f->token[i].n == 0) continue;
        write_token_text(scratch, &f->token[i]);
        TRY(text_append(t, ",", more));
        TRY(text_json(t, "%s:%d", scratch, i));
        more = true;
    }
    for (int i = 0; i < f->n_special; i++)
        TRY(text_json(t, ",%.*s:%d", f->special[i].n, f->special[i].text, f->special[i].id));
    TRY(text_printf(t, "},\"merges\":["));
    for (int64_t i = 0; i < f->n_merges; i++) {
        char *end = write_token_text(scratch, &f->token[f->merge[i].left]);
        *end++ = ' ';
        write_token_text(end, &f->token[f->merge[i].right]);
        TRY(text_append(t, ",", i > 0));
        TRY(text_json(t, "%s", scratch));
    }
    return text_printf(t, "]}}\n");
}

Status tokenizer_write(const char *path, const TokenizerFile *f, Arena *a)
{
    int32_t longest = 0;
    for (int32_t i = 0; i < f->n_tokens; i++) {
        if (f->token[i].n > longest) longest = f->token[i].n;
    }
    char *scratch = NULL; /* two tokens of two-byte characters, a space and NULs */
    Text text;
    TRY(ARENA_NEW(a, 4 * longest + 3, &scratch));
    TRY(text_init(&text, a));
    TRY(write_file(&text, f, scratch));
    return file_write_whole(path, text.data, text.used);
}
