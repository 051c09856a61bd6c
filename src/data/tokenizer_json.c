/* tokenizer_json: reads and writes Hugging Face's tokenizer.json. It reads the parts that determine a
 * text's ids: added_tokens, normalizer, pre_tokenizer and model. A feature that would change the ids and
 * is not supported is an error that names it. Encoding is in tokenizer.c. */
#include "data/tokenizer_private.h"

#include "base/file.h"
#include "base/json.h"

#include <math.h>
#include <string.h>

enum { SENTENCE_BYTES = 512, SHOWN = 60 /* bytes of a token or pattern in a message */ };

/* The document separator of files that this program writes. */
static const char END_OF_TEXT[] = "<|endoftext|>";

/* Names of the document separator in published vocabularies, in order of preference. It must be a
 * special token of the file. */
static const char *const END_OF_TEXT_NAMES[] = {
    END_OF_TEXT, "<|end_of_text|>", "<\uFF5Cend\u2581of\u2581sentence\uFF5C>",
    "</s>",      "<eos>",           "[EOS]",
};

typedef struct Reader {
    const char *name; /* of the file */
    Arena *arena;
    Tokenizer *t;
    char *pool;         /* where the bytes of the next token go */
    const Json **added; /* (vocab) by id: its entry of added_tokens, or NULL */
} Reader;

/* ---- the byte alphabet ---- */

static bool printable(uint32_t c)
{
    return (c >= '!' && c <= '~') || (c >= 0xA1 && c <= 0xAC) || (c >= 0xAE && c <= 0xFF);
}

int32_t tokenizer_code_point(uint8_t byte)
{
    if (printable(byte)) return byte;
    int32_t c = 256;
    for (uint32_t b = 0; b < byte; b++) c += !printable(b);
    return c;
}

int tokenizer_byte(uint32_t code_point)
{
    if (code_point < 256) return printable(code_point) ? (int)code_point : -1;
    if (code_point >= TOKENIZER_ALPHABET) return -1;
    uint32_t left = code_point - 256, b = 0;
    for (;; b++) {
        if (printable(b)) continue;
        if (left-- == 0) return (int)b;
    }
}

/* The bytes that a token's characters stand for into `out`, or -1 if one stands for none (or the
 * token is empty). */
static int32_t token_from_text(const char *text, size_t bytes, char *out)
{
    int32_t n = 0;
    const uint8_t *at = (const uint8_t *)text, *end = at + bytes;
    for (; at < end; at++) {
        uint32_t c = *at;
        if (c >= 0xC2 && c <= 0xDF && (at[1] & 0xC0) == 0x80) {
            c = (c & 0x1F) << 6 | (*++at & 0x3F);
        } else if (c >= 0x80) {
            return -1;
        }
        int byte = tokenizer_byte(c);
        if (byte < 0) return -1;
        out[n++] = (char)byte;
    }
    return n == 0 ? -1 : n;
}

/* ---- values of the file ---- */

/* `key` of the object as text; "" if it is absent or something else. */
static const char *get_text(const Json *object, const char *key)
{
    const char *text = json_string(json_get(object, key));
    return text == NULL ? "" : text;
}

static bool is_absent(const Json *item) { return item == NULL || item->type == JSON_NULL; }

static bool get_flag(const Json *object, const char *key, bool fallback)
{
    const Json *item = json_get(object, key);
    return json_is(item, JSON_BOOL) ? item->truth : fallback;
}

/* `added` is an entry of added_tokens, or NULL. */
static bool is_special(const Json *added) { return get_flag(added, "special", false); }

/* Lengths of tokens are int32_t throughout, so a larger file is refused here once. */
static Status parse_json(const char *name, const char *text, size_t n, Arena *a, Json **out)
{
    size_t bad = 0;
    if (n == 0) return FAIL(ERR_FORMAT, "%s is empty, not a tokenizer.json", name);
    if (n > INT32_MAX) return FAIL(ERR_UNSUPPORTED, "%s has %zu bytes, over 2 GiB", name, n);
    TRY(json_parse(text, n, a, out, &bad));
    if (*out == NULL) return FAIL(ERR_FORMAT, "%s is broken JSON at byte %zu of %zu", name, bad, n);
    if ((*out)->type == JSON_OBJECT) return OK;
    return FAIL(ERR_FORMAT, "%s: the JSON value is not an object", name);
}

/* ---- normalizer ---- */

static Status read_normalizer(const Reader *r, const Json *item)
{
    if (is_absent(item)) return OK;
    const char *type = get_text(item, "type");
    const Json *list = json_get(item, "normalizers");
    if (strcmp(type, "Sequence") != 0 || !json_is(list, JSON_ARRAY))
        return FAIL(ERR_UNSUPPORTED,
                    "%s: normalizer of type \"%.*s\" is not supported; only null or an empty "
                    "Sequence is",
                    r->name, SHOWN, type);
    for (const Json *each = json_first(list); each != NULL; each = each->next)
        TRY(read_normalizer(r, each));
    return OK;
}

/* ---- pre_tokenizer ---- */

/* Adds the file's name to the splitter's error about a pattern. */
static Status named_status(const Reader *r, Status s)
{
    if (s == OK) return OK;
    char why[SENTENCE_BYTES];
    status_sentence(why, sizeof why);
    return FAIL(s, "%s: pre_tokenizer: %s", r->name, why);
}

static Status add_regex(const Reader *r, const char *pattern)
{
    SplitRule rule = { .pattern = pattern, .pattern_bytes = strlen(pattern) };
    return named_status(r, splitter_add_rule(&r->t->splitter, &rule, r->arena));
}

/* Hugging Face's defaults apply to absent members: a space before the text, and GPT-2's pattern. */
static Status read_byte_level(const Reader *r, const Json *item)
{
    if (get_flag(item, "add_prefix_space", true))
        TRY(named_status(r, splitter_add_prefix_space(&r->t->splitter)));
    return get_flag(item, "use_regex", true) ? add_regex(r, SPLIT_GPT2_PATTERN) : OK;
}

/* `invert` exchanges the matches and the text between them. For Isolated that changes nothing. */
static Status read_split(const Reader *r, const Json *item)
{
    const Json *pattern = json_get(item, "pattern");
    const char *regex = json_string(json_get(pattern, "Regex"));
    const char *literal = json_string(json_get(pattern, "String"));
    const char *text = regex != NULL ? regex : literal, *behavior = get_text(item, "behavior");
    if (text == NULL)
        return FAIL(ERR_FORMAT, "%s: pre_tokenizer Split has no pattern Regex or String", r->name);
    bool removed = strcmp(behavior, "Removed") == 0, invert = get_flag(item, "invert", false);
    if (!removed && strcmp(behavior, "Isolated") != 0)
        return FAIL(ERR_UNSUPPORTED,
                    "%s: pre_tokenizer Split has the behavior \"%.*s\"; only Isolated and Removed "
                    "are supported",
                    r->name, SHOWN, behavior);
    SplitRule rule = { .pattern = text,
                       .pattern_bytes = strlen(text),
                       .literal = regex == NULL,
                       .remove_matches = removed && !invert,
                       .remove_others = removed && invert };
    return named_status(r, splitter_add_rule(&r->t->splitter, &rule, r->arena));
}

/* One pre-tokenizer of the pipeline; the last one must be ByteLevel, and only it. */
static Status read_pre_tokenizer(const Reader *r, const Json *item, bool last)
{
    const char *type = get_text(item, "type");
    bool byte_level = strcmp(type, "ByteLevel") == 0;
    if (byte_level && last) return read_byte_level(r, item);
    if (byte_level || last)
        return FAIL(ERR_UNSUPPORTED,
                    "%s: pre_tokenizer ends with \"%.*s\" where ByteLevel must come last, once: "
                    "only byte-level vocabularies are supported",
                    r->name, SHOWN, type);
    if (strcmp(type, "Split") == 0) return read_split(r, item);
    if (strcmp(type, "Digits") == 0)
        return add_regex(r, get_flag(item, "individual_digits", false) ? "\\p{N}" : "\\p{N}+");
    return FAIL(ERR_UNSUPPORTED, "%s: pre_tokenizer of type \"%.*s\" is not supported", r->name,
                SHOWN, type);
}

static Status read_pre_tokenizers(const Reader *r, const Json *item)
{
    if (is_absent(item))
        return FAIL(ERR_UNSUPPORTED, "%s has no pre_tokenizer; ByteLevel is needed", r->name);
    if (strcmp(get_text(item, "type"), "Sequence") != 0) return read_pre_tokenizer(r, item, true);
    const Json *list = json_get(item, "pretokenizers");
    if (!json_is(list, JSON_ARRAY) || list->child == NULL)
        return FAIL(ERR_FORMAT, "%s: pre_tokenizer Sequence has no pretokenizers", r->name);
    for (const Json *each = json_first(list); each != NULL; each = each->next)
        TRY(read_pre_tokenizer(r, each, each->next == NULL));
    return OK;
}

/* ---- tokens ---- */

static Status read_id(const Reader *r, const Json *item, const char *text, int32_t *out)
{
    double v = json_is(item, JSON_NUMBER) ? item->number : -1;
    if (!(v >= 0 && v < TOKENIZER_MAX_VOCAB) || v != floor(v))
        return FAIL(ERR_FORMAT, "%s: the id of token \"%.*s\" is not a whole number from 0 to %d",
                    r->name, SHOWN, text, TOKENIZER_MAX_VOCAB - 1);
    *out = (int32_t)v;
    return OK;
}

/* First pass over vocab and added_tokens, for sizes: one past the largest id, tokens of the vocabulary,
 * and bytes of all texts. */
static Status measure_tokens(const Reader *r, const Json *vocab, const Json *added,
                             int64_t *n_tokens, size_t *text_bytes)
{
    int32_t id = 0;
    *n_tokens = 0;
    *text_bytes = 0;
    for (const Json *each = json_first(vocab); each != NULL; each = each->next) {
        TRY(read_id(r, each, each->name, &id));
        if (id >= r->t->vocab) r->t->vocab = id + 1;
        *text_bytes += strlen(each->name);
        ++*n_tokens;
    }
    for (const Json *each = json_first(added); each != NULL; each = each->next) {
        const char *content = json_string(json_get(each, "content"));
        if (content == NULL)
            return FAIL(ERR_FORMAT, "%s: an entry of added_tokens has no content", r->name);
        TRY(read_id(r, json_get(each, "id"), content, &id));
        if (id >= r->t->vocab) r->t->vocab = id + 1;
        *text_bytes += strlen(content);
    }
    return OK;
}

/* Writes the bytes of a token to the end of the pool, without taking the room. If a character stands for
 * no byte, these are the bytes of the text itself. */
static TokenText token_of(const Reader *r, const char *text, bool *of_bytes)
{
    int32_t n = token_from_text(text, strlen(text), r->pool);
    *of_bytes = n >= 0;
    if (n < 0) {
        n = (int32_t)strlen(text);
        memcpy(r->pool, text, (size_t)n);
    }
    return (TokenText){ .bytes = r->pool, .n = n };
}

/* One of added_tokens into its set; there is room for it. */
static Status read_added_token(Reader *r, const Json *item)
{
    const char *content = get_text(item, "content");
    size_t n = strlen(content);
    int32_t id = (int32_t)json_get(item, "id")->number;
    if (r->added[id] != NULL)
        return FAIL(ERR_FORMAT, "%s: added_tokens gives id %d twice, the second time to \"%.*s\"",
                    r->name, id, SHOWN, content);
    r->added[id] = item;
    if (get_flag(item, "single_word", false))
        return FAIL(ERR_UNSUPPORTED,
                    "%s: added token \"%.*s\" is single_word, which is not "
                    "supported",
                    r->name, SHOWN, content);
    if (n == 0) return OK; /* an empty text never matches */
    memcpy(r->pool, content, n);
    AddedSet *s = &r->t->added[get_flag(item, "normalized", false)];
    s->at[s->n++] = (AddedText){ .text = r->pool,
                                 .n = (int32_t)n,
                                 .id = id,
                                 .lstrip = get_flag(item, "lstrip", false),
                                 .rstrip = get_flag(item, "rstrip", false) };
    r->pool += n;
    return OK;
}

static Status read_added_tokens(Reader *r, const Json *added)
{
    for (const Json *each = json_first(added); each != NULL; each = each->next)
        TRY(read_added_token(r, each));
    for (int i = 0; i < ADDED_SETS; i++) {
        const AddedSet *s = &r->t->added[i];
        int32_t twice = added_sort(&r->t->added[i]);
        if (twice >= 0)
            return FAIL(ERR_FORMAT, "%s: added_tokens has \"%.*s\" twice", r->name,
                        s->at[twice].n < SHOWN ? s->at[twice].n : SHOWN, s->at[twice].text);
    }
    return OK;
}

/* A token that is in both the vocabulary and added_tokens must have the same id in both. */
static Status check_added_id(const Reader *r, const char *text, int32_t id)
{
    size_t n = strlen(text);
    for (int i = 0; i < ADDED_SETS; i++) {
        const AddedText *a = added_longest(&r->t->added[i], text, n);
        if (a != NULL && (size_t)a->n == n && a->id != id)
            return FAIL(ERR_FORMAT, "%s: \"%.*s\" is id %d in model.vocab and %d in added_tokens",
                        r->name, SHOWN, text, id, a->id);
    }
    return OK;
}

/* A special token has no bytes here: it is matched as an added token and decodes to nothing. */
static Status read_vocab_token(Reader *r, const Json *item)
{
    Tokenizer *t = r->t;
    int32_t id = (int32_t)item->number;
    const char *added = get_text(r->added[id], "content");
    if (t->token[id].bytes != NULL)
        return FAIL(ERR_FORMAT, "%s: model.vocab gives id %d twice, the second time to \"%.*s\"",
                    r->name, id, SHOWN, item->name);
    if (r->added[id] != NULL && strcmp(added, item->name) != 0)
        return FAIL(ERR_FORMAT, "%s: id %d is \"%.*s\" in model.vocab and \"%.*s\" in added_tokens",
                    r->name, id, SHOWN, item->name, SHOWN, added);
    TRY(check_added_id(r, item->name, id));
    if (is_special(r->added[id])) {
        t->token[id].bytes = "";
        return OK;
    }
    bool of_bytes = false;
    TokenText token = token_of(r, item->name, &of_bytes);
    if (of_bytes && tokenizer_find(t, token.bytes, token.n) != TOKENIZER_NO_TOKEN)
        return FAIL(ERR_FORMAT, "%s: model.vocab has the token \"%.*s\" twice", r->name, SHOWN,
                    item->name);
    t->token[id] = token;
    r->pool += token.n;
    if (of_bytes) tokenizer_put(t, id); /* a token of other characters is never encoded to */
    return OK;
}

/* Decoding: an added token gives its text, a special one gives nothing. */
static void take_added_tokens(Reader *r)
{
    for (int i = 0; i < ADDED_SETS; i++) {
        const AddedSet *s = &r->t->added[i];
        for (const AddedText *a = s->at; a < s->at + s->n; a++) {
            TokenText *token = &r->t->token[a->id];
            if (token->bytes != NULL) continue; /* it is in model.vocab */
            *token = (TokenText){ .bytes = a->text, .n = is_special(r->added[a->id]) ? 0 : a->n };
        }
    }
}

static int32_t find_end_of_text(const Json *added)
{
    enum { NAMES = sizeof END_OF_TEXT_NAMES / sizeof END_OF_TEXT_NAMES[0] };
    for (int i = 0; i < NAMES; i++) {
        for (const Json *each = json_first(added); each != NULL; each = each->next) {
            bool named_so = strcmp(get_text(each, "content"), END_OF_TEXT_NAMES[i]) == 0;
            if (named_so && is_special(each)) return (int32_t)json_get(each, "id")->number;
        }
    }
    return TOKENIZER_NO_TOKEN;
}

/* Order matters. Added tokens come first, since the vocabulary is checked against them; tokens come
 * before merges, which are looked up among them. The list `added` is only needed meanwhile. */
static Status read_tokens(Reader *r, const Json *vocab, const Json *added, int64_t n_merges)
{
    Tokenizer *t = r->t;
    int64_t n_tokens = 0;
    size_t text_bytes = 0;
    TRY(measure_tokens(r, vocab, added, &n_tokens, &text_bytes));
    TRY(ARENA_ZEROED(r->arena, t->vocab, &t->token));
    TRY(ARENA_NEW(r->arena, text_bytes, &r->pool));
    TRY(tokenizer_tables(t, n_tokens, r->arena));
    TRY(tokenizer_merge_table(t, n_merges, r->arena));
    for (int i = 0; i < ADDED_SETS; i++)
        TRY(ARENA_NEW(r->arena, json_count(added), &t->added[i].at));
    ArenaMark mark = arena_mark(r->arena);
    TRY(ARENA_ZEROED(r->arena, t->vocab, &r->added));
    TRY(read_added_tokens(r, added));
    for (const Json *each = json_first(vocab); each != NULL; each = each->next)
        TRY(read_vocab_token(r, each));
    take_added_tokens(r);
    arena_release(r->arena, mark);
    t->end_of_text = find_end_of_text(added);
    return tokenizer_find_bytes(t, r->name);
}

/* ---- merges ---- */

/* The two texts of "left right" or ["left", "right"]. */
static Status merge_halves(const Reader *r, const Json *item, int64_t at, const char *half[2],
                           size_t n[2])
{
    const char *a = json_string(item), *b = NULL;
    if (a != NULL) {
        const char *space = strchr(a, ' ');
        if (space != NULL && strchr(space + 1, ' ') == NULL) b = space + 1;
        n[0] = b == NULL ? 0 : (size_t)(space - a);
    } else if (json_count(item) == 2) {
        a = json_string(item->child);
        b = json_string(item->child->next);
        n[0] = a == NULL ? 0 : strlen(a);
    }
    if (a == NULL || b == NULL)
        return FAIL(ERR_FORMAT, "%s: model.merges[%lld] is not two tokens", r->name, (long long)at);
    half[0] = a;
    half[1] = b;
    n[1] = strlen(b);
    return OK;
}

/* The bytes of the halves, one behind the other, are those of the result. */
static Status read_merge(const Reader *r, const Json *item, int64_t at)
{
    const char *half[2];
    char *bytes = NULL;
    size_t n[2] = { 0 };
    int32_t id[2], used = 0;
    ArenaMark mark = arena_mark(r->arena);
    TRY(merge_halves(r, item, at, half, n));
    TRY(ARENA_NEW(r->arena, n[0] + n[1], &bytes));
    for (int k = 0; k < 2; k++) {
        int32_t length = token_from_text(half[k], n[k], bytes + used);
        id[k] = length < 0 ? TOKENIZER_NO_TOKEN : tokenizer_find(r->t, bytes + used, length);
        if (id[k] == TOKENIZER_NO_TOKEN)
            return FAIL(ERR_FORMAT,
                        "%s: model.merges[%lld] names \"%.*s\", which is no token of bytes",
                        r->name, (long long)at, n[k] < SHOWN ? (int)n[k] : SHOWN, half[k]);
        used += length;
    }
    int32_t result = tokenizer_find(r->t, bytes, used);
    arena_release(r->arena, mark);
    if (result == TOKENIZER_NO_TOKEN)
        return FAIL(ERR_FORMAT, "%s: model.merges[%lld] joins ids %d and %d to what is no token",
                    r->name, (long long)at, id[0], id[1]);
    tokenizer_put_merge(r->t, id[0], id[1], (uint32_t)at, result);
    return OK;
}

/* ---- model ---- */

/* What would change the ids and is not implemented must be refused, or a model would train on wrong
 * ids without a sign. */
static Status check_model(const Reader *r, const Json *model)
{
    if (!json_is(model, JSON_OBJECT)) return FAIL(ERR_FORMAT, "%s has no model", r->name);
    const char *type = get_text(model, "type");
    if (strcmp(type, "BPE") != 0)
        return FAIL(ERR_UNSUPPORTED, "%s: model of type \"%.*s\" is not supported; BPE is", r->name,
                    SHOWN, type);
    static const char *const AFFIX[] = { "continuing_subword_prefix", "end_of_word_suffix" };
    for (int i = 0; i < 2; i++) {
        if (*get_text(model, AFFIX[i]) == '\0') continue;
        return FAIL(ERR_UNSUPPORTED, "%s: model.%s is not supported", r->name, AFFIX[i]);
    }
    const Json *dropout = json_get(model, "dropout");
    if (json_is(dropout, JSON_NUMBER) && dropout->number != 0)
        return FAIL(ERR_UNSUPPORTED, "%s: model.dropout is %g; random merges are not supported",
                    r->name, dropout->number);
    if (!json_is(json_get(model, "vocab"), JSON_OBJECT))
        return FAIL(ERR_FORMAT, "%s: model.vocab is not an object of tokens and ids", r->name);
    if (!json_is(json_get(model, "merges"), JSON_ARRAY))
        return FAIL(ERR_FORMAT, "%s: model.merges is not a list", r->name);
    return OK;
}

static Status read_file(Reader *r, const Json *root)
{
    const Json *model = json_get(root, "model"), *added = json_get(root, "added_tokens");
    TRY(check_model(r, model));
    if (!is_absent(added) && !json_is(added, JSON_ARRAY))
        return FAIL(ERR_FORMAT, "%s: added_tokens is not a list", r->name);
    TRY(read_normalizer(r, json_get(root, "normalizer")));
    TRY(read_pre_tokenizers(r, json_get(root, "pre_tokenizer")));
    const Json *merges = json_get(model, "merges");
    TRY(read_tokens(r, json_get(model, "vocab"), added, json_count(merges)));
    int64_t at = 0;
    for (const Json *each = json_first(merges); each != NULL; each = each->next)
        TRY(read_merge(r, each, at++));
    return tokenizer_mark_whole(r->t, get_flag(model, "ignore_merges", false), r->arena);
}

static Status parse_file(Reader *r, const char *text, size_t bytes, Arena *scratch)
{
    Json *root = NULL;
    TRY(parse_json(r->name, text, bytes, scratch, &root));
    return read_file(r, root);
}

Status tokenizer_parse(const char *name, const char *text, size_t bytes, Arena *a, Tokenizer **out)
{
    Arena scratch = { 0 }; /* the file's tree, in which an element takes two bytes of text */
    Reader r = { .name = name, .arena = a };
    TRY(ARENA_ZEROED(a, 1, &r.t));
    TRY(arena_init(&scratch, "tokenizer.json", MEM_HOST, 2 * sizeof(Json) * bytes + (1 << 16)));
    Status s = parse_file(&r, text, bytes, &scratch);
    arena_free(&scratch);
    if (s != OK) {
        tokenizer_free(r.t);
        return s;
    }
    *out = r.t;
    return OK;
}

/* ---- writing ---- */

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

/* Members at their defaults are written too, as Hugging Face's own writer does. */
static Status write_file(Text *t, const TokenizerLearned *l, char *scratch)
{
    static const char BYTE_LEVEL[] = "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
                                     "\"trim_offsets\":true,\"use_regex\":true}";
    TRY(text_printf(t,
                    "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":["
                    "{\"id\":%d,\"content\":\"%s\",\"single_word\":false,\"lstrip\":false,"
                    "\"rstrip\":false,\"normalized\":false,\"special\":true}],"
                    "\"normalizer\":null,\"pre_tokenizer\":%s,\"post_processor\":null,"
                    "\"decoder\":%s,\"model\":{\"type\":\"BPE\",\"dropout\":null,"
                    "\"unk_token\":null,\"continuing_subword_prefix\":null,"
                    "\"end_of_word_suffix\":null,\"fuse_unk\":false,\"byte_fallback\":false,"
                    "\"ignore_merges\":false,\"vocab\":{",
                    l->n_tokens, END_OF_TEXT, BYTE_LEVEL, BYTE_LEVEL));
    for (int32_t i = 0; i < l->n_tokens; i++) {
        write_token_text(scratch, &l->token[i]);
        TRY(text_json(t, "%s:%d,", scratch, i));
    }
    TRY(text_json(t, "%s:%d},\"merges\":[", END_OF_TEXT, l->n_tokens));
    for (int64_t i = 0; i < l->n_merges; i++) {
        char *end = write_token_text(scratch, &l->token[l->merge[i].left]);
        *end++ = ' ';
        write_token_text(end, &l->token[l->merge[i].right]);
        TRY(text_append(t, ",", i > 0));
        TRY(text_json(t, "%s", scratch));
    }
    return text_printf(t, "]}}\n");
}

Status tokenizer_write(const char *path, const TokenizerLearned *l, Arena *a)
{
    int32_t longest = 0;
    for (int32_t i = 0; i < l->n_tokens; i++) {
        if (l->token[i].n > longest) longest = l->token[i].n;
    }
    char *scratch = NULL; /* two tokens of two-byte characters, a space and NULs */
    Text text;
    TRY(ARENA_NEW(a, 4 * longest + 3, &scratch));
    TRY(text_init(&text, a));
    TRY(write_file(&text, l, scratch));
    return file_write_whole(path, text.data, text.used);
}
