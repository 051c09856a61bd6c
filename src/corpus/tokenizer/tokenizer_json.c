/* tokenizer_json: reads Hugging Face's tokenizer.json (tools/tokenizer writes it): the parts that determine a
 * text's ids: added_tokens, normalizer, pre_tokenizer and model. A feature that would change the ids and
 * is not supported is an error that names it. Encoding is in tokenizer.c. */
#include "corpus/tokenizer/tokenizer_private.h"

#include "engine/base/json.h"

#include <math.h>
#include <string.h>

static const char PRE_TOKENIZER[] = "pre_tokenizer";

enum { SENTENCE_BYTES = 512, SHOWN = 60 /* bytes of a token or pattern in a message */ };

/* Names of the document separator in published vocabularies, in order of preference. It must be a
 * special token of the file. */
static const char *const END_OF_TEXT_NAMES[] = {
    TOKENIZER_END_OF_TEXT,
    "<|end_of_text|>",
    "<\uFF5Cend\u2581of\u2581sentence\uFF5C>",
    "</s>",
    "<eos>",
    "[EOS]",
};

/* An entry of added_tokens and its content in the pool; NULL: the id has none. */
typedef struct Entry {
    const Json *item;
    const char *content;
} Entry;

typedef struct Reader {
    const char *name; /* of the file */
    Arena *arena;
    Tokenizer *t;
    char *pool;   /* where the bytes of the next token go */
    Entry *added; /* (vocab) by id */
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
    if (*out == NULL && bad == 0)
        return FAIL(
            ERR_FORMAT,
            "%s is no tokenizer.json: `switchyard data tokenizer convert` writes a .tiktoken file "
            "as one; a tokenizer.model has to be converted by another program",
            name);
    if (*out == NULL) return FAIL(ERR_FORMAT, "%s is broken JSON at byte %zu of %zu", name, bad, n);
    if ((*out)->type == JSON_OBJECT) return OK;
    return FAIL(ERR_FORMAT, "%s: the JSON value is not an object", name);
}

/* ---- normalizer ---- */

/* Adds the file's name and the part to an error about a step or a pattern. */
static Status named_status(const Reader *r, const char *part, Status s)
{
    if (s == OK) return OK;
    char why[SENTENCE_BYTES];
    status_sentence(why, sizeof why);
    return FAIL(s, "%s: %s: %s", r->name, part, why);
}

/* The text outlives the file's tree. */
static Status add_step(const Reader *r, Normalizer *z, NormalizeStep step)
{
    const char **text[] = { &step.from, &step.to };
    for (int i = 0; i < 2; i++) {
        if (*text[i] != NULL) TRY(arena_text(r->arena, *text[i], strlen(*text[i]), text[i]));
    }
    return named_status(r, "normalizer", normalizer_add(z, &step));
}

static Status read_normalizer(const Reader *r, const Json *item)
{
    if (is_absent(item)) return OK;
    const char *type = get_text(item, "type");
    const Json *list = json_get(item, "normalizers");
    const char *from = json_string(json_get(json_get(item, "pattern"), "String"));
    NormalizeStep step = { .to = get_text(item, "content") };
    if (strcmp(type, "Sequence") == 0 && json_is(list, JSON_ARRAY)) {
        for (const Json *each = json_first(list); each != NULL; each = each->next)
            TRY(read_normalizer(r, each));
        return OK;
    }
    if (strcmp(type, "Replace") == 0 && from != NULL && *from != '\0') {
        step.kind = NORMALIZE_REPLACE;
        step.from = from;
    } else if (strcmp(type, "Prepend") == 0) {
        step.kind = NORMALIZE_PREPEND;
        step.to = get_text(item, "prepend");
    } else if (!normalize_form(type, &step)) {
        return FAIL(ERR_UNSUPPORTED,
                    "%s: normalizer of type \"%.*s\" is not supported; NFC, NFD, Prepend, "
                    "Replace of a String and Sequence are",
                    r->name, SHOWN, type);
    }
    return add_step(r, &r->t->normalizer, step);
}

/* ---- pre_tokenizer ---- */

static Status add_rule(const Reader *r, const char *pattern, SplitSyntax syntax, SplitKeep keep)
{
    Status s = splitter_add_rule(&r->t->splitter, pattern, syntax, keep, r->arena);
    return named_status(r, PRE_TOKENIZER, s);
}

static Status add_regex(const Reader *r, const char *pattern)
{
    return add_rule(r, pattern, SPLIT_ONIGURUMA, SPLIT_ISOLATED);
}

/* Hugging Face's defaults apply to absent members: a space before the text, and GPT-2's pattern. */
static Status read_byte_level(const Reader *r, const Json *item)
{
    if (get_flag(item, "add_prefix_space", true))
        TRY(named_status(r, PRE_TOKENIZER, splitter_add_prefix_space(&r->t->splitter)));
    return get_flag(item, "use_regex", true) ? add_regex(r, SPLIT_GPT2_PATTERN) : OK;
}

/* `invert` exchanges the matches and the text between them. For Isolated that changes nothing. */
static Status read_split(const Reader *r, const Json *item)
{
    static const char *const BEHAVIORS[] = { "Isolated", "Removed", "", "MergedWithPrevious",
                                             "MergedWithNext" }; /* by SplitKeep */
    const Json *pattern = json_get(item, "pattern");
    const char *regex = json_string(json_get(pattern, "Regex"));
    const char *literal = json_string(json_get(pattern, "String"));
    const char *text = regex != NULL ? regex : literal, *behavior = get_text(item, "behavior");
    bool invert = get_flag(item, "invert", false);
    int keep = SPLIT_WITH_NEXT;
    if (text == NULL)
        return FAIL(ERR_FORMAT, "%s: pre_tokenizer Split has no pattern Regex or String", r->name);
    while (keep >= 0 && (*behavior == '\0' || strcmp(behavior, BEHAVIORS[keep]) != 0)) keep--;
    if (keep < 0 || (invert && keep > SPLIT_ONLY_MATCHES))
        return FAIL(
            ERR_UNSUPPORTED,
            "%s: pre_tokenizer Split has the behavior \"%.*s\"%s; Isolated, Removed, and not "
            "inverted MergedWithPrevious and MergedWithNext are supported",
            r->name, SHOWN, behavior, invert ? ", inverted" : "");
    if (keep == SPLIT_ONLY_OTHERS && invert) keep = SPLIT_ONLY_MATCHES;
    return add_rule(r, text, regex == NULL ? SPLIT_TEXT : SPLIT_ONIGURUMA, (SplitKeep)keep);
}

/* Spaces become a sign, U+2581 in all published files, and a text gets one at its front. With `split`
 * each sign begins a piece. */
static Status read_metaspace(const Reader *r, const Json *item)
{
    const char *sign = get_text(item, "replacement"), *scheme = get_text(item, "prepend_scheme");
    bool never = strcmp(scheme, "never") == 0 || !get_flag(item, "add_prefix_space", true);
    Normalizer *z = &r->t->metaspace;
    if (*sign == '\0')
        return FAIL(ERR_FORMAT, "%s: pre_tokenizer Metaspace has no replacement", r->name);
    TRY(add_step(r, z, (NormalizeStep){ .kind = NORMALIZE_REPLACE, .from = " ", .to = sign }));
    NormalizeStep prepend = { .kind = NORMALIZE_PREPEND,
                              .to = sign,
                              .unless_there = true,
                              .only_first = strcmp(scheme, "first") == 0 };
    if (!never) TRY(add_step(r, z, prepend));
    if (!get_flag(item, "split", true)) return OK;
    return add_rule(r, sign, SPLIT_TEXT, SPLIT_WITH_NEXT);
}

/* One pre-tokenizer of the pipeline. ByteLevel is the last one of byte-level vocabularies; Metaspace, of
 * those of characters, stands alone. */
static Status read_pre_tokenizer(const Reader *r, const Json *item, bool alone, bool last)
{
    const char *type = get_text(item, "type");
    if (strcmp(type, "ByteLevel") == 0 && last) return read_byte_level(r, item);
    if (strcmp(type, "Metaspace") == 0 && alone) return read_metaspace(r, item);
    if (strcmp(type, "Split") == 0) return read_split(r, item);
    if (strcmp(type, "Digits") == 0)
        return add_regex(r, get_flag(item, "individual_digits", false) ? "\\p{N}" : "\\p{N}+");
    return FAIL(ERR_UNSUPPORTED,
                "%s: pre_tokenizer of type \"%.*s\" is not supported here: Split and Digits are, "
                "ByteLevel at the end, and Metaspace alone",
                r->name, SHOWN, type);
}

static Status read_pre_tokenizers(const Reader *r, const Json *item, bool byte_fallback)
{
    const Json *first = item, *last = item;
    if (!is_absent(item) && strcmp(get_text(item, "type"), "Sequence") == 0) {
        first = last = json_first(json_get(item, "pretokenizers"));
        if (first == NULL)
            return FAIL(ERR_FORMAT, "%s: pre_tokenizer Sequence has no pretokenizers", r->name);
        while (last->next != NULL) last = last->next;
    }
    bool byte_level = !is_absent(last) && strcmp(get_text(last, "type"), "ByteLevel") == 0;
    r->t->of_characters = !byte_level;
    if (!byte_level && !byte_fallback)
        return FAIL(ERR_UNSUPPORTED,
                    "%s: pre_tokenizer does not end with ByteLevel, and model.byte_fallback is not "
                    "true: one of them is needed, so that any text has ids",
                    r->name);
    if (is_absent(item)) return OK;
    if (first == item) return read_pre_tokenizer(r, item, true, true);
    for (const Json *each = first; each != NULL; each = each->next)
        TRY(read_pre_tokenizer(r, each, first == last, each == last));
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
 * no byte, or in a vocabulary of characters, these are the bytes of the text itself. *matches: a text can
 * be encoded to it. */
static TokenText token_of(const Reader *r, const char *text, bool *matches)
{
    bool of_characters = r->t->of_characters;
    int32_t n = of_characters ? -1 : token_from_text(text, strlen(text), r->pool);
    *matches = n >= 0 || (of_characters && *text != '\0');
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
    if (r->added[id].item != NULL)
        return FAIL(ERR_FORMAT, "%s: added_tokens gives id %d twice, the second time to \"%.*s\"",
                    r->name, id, SHOWN, content);
    memcpy(r->pool, content, n);
    r->added[id] = (Entry){ item, r->pool };
    r->pool += n;
    if (n == 0) return OK; /* an empty text never matches */
    AddedSet *s = &r->t->added[get_flag(item, "normalized", false)];
    s->at[s->n++] = (AddedText){ .text = r->added[id].content,
                                 .n = (int32_t)n,
                                 .id = id,
                                 .lstrip = get_flag(item, "lstrip", false),
                                 .rstrip = get_flag(item, "rstrip", false),
                                 .single_word = get_flag(item, "single_word", false) };
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

/* A special token is one as all others here: merges may lead to it, also in pieces where it is not found as an
 * added token. */
static Status read_vocab_token(Reader *r, const Json *item)
{
    Tokenizer *t = r->t;
    int32_t id = (int32_t)item->number;
    const char *added = get_text(r->added[id].item, "content");
    if (t->token[id].bytes != NULL)
        return FAIL(ERR_FORMAT, "%s: model.vocab gives id %d twice, the second time to \"%.*s\"",
                    r->name, id, SHOWN, item->name);
    if (r->added[id].item != NULL && strcmp(added, item->name) != 0)
        return FAIL(ERR_FORMAT, "%s: id %d is \"%.*s\" in model.vocab and \"%.*s\" in added_tokens",
                    r->name, id, SHOWN, item->name, SHOWN, added);
    TRY(check_added_id(r, item->name, id));
    bool matches = false;
    TokenText token = token_of(r, item->name, &matches);
    if (matches && tokenizer_find(t, token.bytes, token.n) != TOKENIZER_NO_TOKEN)
        return FAIL(ERR_FORMAT, "%s: model.vocab has the token \"%.*s\" twice", r->name, SHOWN,
                    item->name);
    t->token[id] = token;
    r->pool += token.n;
    if (matches) tokenizer_put(t, id); /* a token of other characters is never encoded to */
    return OK;
}

/* A normalized token is searched for in a normalized text, in the form that it has there alone. */
static Status normalize_added(const Reader *r)
{
    AddedSet *s = &r->t->added[1];
    for (AddedText *a = s->at; a < s->at + s->n; a++) {
        size_t n = (size_t)a->n;
        TRY(normalize(&r->t->normalizer, true, r->arena, &a->text, &n));
        a->n = (int32_t)n;
    }
    (void)added_sort(s); /* of two that became equal, one is found */
    return OK;
}

/* Decoding: an added token gives its text, a special one gives nothing. */
static void take_added_tokens(Reader *r, TokenText *shown)
{
    for (int32_t id = 0; id < r->t->vocab; id++) {
        TokenText *token = &r->t->token[id];
        const Entry *e = &r->added[id];
        bool special = is_special(e->item);
        if (e->item != NULL && token->bytes == NULL) { /* it is not in model.vocab */
            size_t n = special ? 0 : strlen(get_text(e->item, "content"));
            *token = (TokenText){ .bytes = e->content, .n = (int32_t)n };
        }
        shown[id] = *token;
        if (special) shown[id].n = 0;
    }
    r->t->shown = shown;
}

/* ---- vocabularies of characters ---- */

/* The step that replaces spaces, of the normalizer or of Metaspace; NULL: there is none. */
static const NormalizeStep *space_step(const Tokenizer *t)
{
    const Normalizer *z[] = { &t->normalizer, &t->metaspace };
    for (int i = 0; i < 2; i++) {
        for (const NormalizeStep *s = z[i]->step; s < z[i]->step + z[i]->n; s++) {
            if (s->kind == NORMALIZE_REPLACE && strcmp(s->from, " ") == 0 && *s->to != '\0')
                return s;
        }
    }
    return NULL;
}

static bool puts_space(const Normalizer *z)
{
    return z->n > 0 &&
           (z->step[0].kind == NORMALIZE_PREPEND || z->step[z->n - 1].kind == NORMALIZE_PREPEND);
}

/* What tokens decode to: the token of a byte gives the byte, and the sign for a space gives a space. */
static Status show_tokens(const Reader *r, const NormalizeStep *space, size_t text_bytes)
{
    Tokenizer *t = r->t;
    TokenText *shown = NULL;
    char *at = NULL;
    size_t n_sign = space == NULL ? 0 : strlen(space->to);
    TRY(ARENA_NEW(r->arena, t->vocab, &shown));
    TRY(ARENA_NEW(r->arena, text_bytes + 256, &at));
    for (int32_t id = 0; id < t->vocab; id++) {
        const TokenText *token = &t->token[id];
        shown[id] = (TokenText){ .bytes = token->bytes };
        if (t->shown[id].n == 0) continue;
        shown[id].bytes = at;
        for (int32_t i = 0; i < token->n;) {
            bool sign = n_sign > 0 && token->n - i >= (int32_t)n_sign &&
                        memcmp(token->bytes + i, space->to, n_sign) == 0;
            *at++ = (char)(sign ? ' ' : token->bytes[i]);
            i += sign ? (int32_t)n_sign : 1;
        }
        shown[id].n = (int32_t)(at - shown[id].bytes);
    }
    for (int b = 0; b < 256; b++) {
        *at = (char)b;
        shown[t->byte_id[b]] = (TokenText){ .bytes = at++, .n = 1 };
    }
    t->shown = shown;
    return OK;
}

/* Notes which characters stand beside each other in tokens. Where two never do, no merge reaches over the
 * place between them: cutting there changes no id, and gives pieces that repeat. */
static Status find_joins(const Reader *r, const NormalizeStep *space)
{
    Tokenizer *t = r->t;
    uint8_t *joins = NULL;
    TRY(ARENA_ZEROED(r->arena, TOKENIZER_CLASSES * TOKENIZER_CLASSES, &joins));
    t->sign = space == NULL ? "" : space->to;
    for (const char *c = t->sign; *c != '\0' && c[1] != '\0'; c++) {
        if (((uint8_t)c[1] & 0xC0) != 0x80) t->sign = ""; /* more than one character */
    }
    for (int32_t id = 0; id < t->vocab; id++) {
        const TokenText *token = &t->token[id];
        int before = -1;
        for (int32_t i = 0; i < token->n; i++) {
            int class = tokenizer_class(t, token->bytes + i, token->n - i);
            if (class < 0) continue;
            if (before >= 0) joins[before * TOKENIZER_CLASSES + class] = 1;
            before = class;
        }
    }
    t->joins = joins;
    return OK;
}

/* ignore_merges looks for a token that is the whole piece, so there pieces must stay as they are. */
static Status finish_characters(const Reader *r, size_t text_bytes, bool ignore_merges)
{
    const NormalizeStep *space = space_step(r->t);
    r->t->adds_space =
        space != NULL && (puts_space(&r->t->normalizer) || puts_space(&r->t->metaspace));
    TRY(show_tokens(r, space, text_bytes));
    return ignore_merges ? OK : find_joins(r, space);
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
static Status read_tokens(Reader *r, const Json *vocab, const Json *added, int64_t n_merges,
                          size_t *text_bytes)
{
    Tokenizer *t = r->t;
    TokenText *shown = NULL;
    int64_t n_tokens = 0;
    TRY(measure_tokens(r, vocab, added, &n_tokens, text_bytes));
    TRY(ARENA_ZEROED(r->arena, t->vocab, &t->token));
    TRY(ARENA_NEW(r->arena, t->vocab, &shown));
    TRY(ARENA_NEW(r->arena, *text_bytes, &r->pool));
    TRY(tokenizer_tables(t, n_tokens, r->arena));
    TRY(tokenizer_merge_table(t, n_merges, r->arena));
    for (int i = 0; i < ADDED_SETS; i++)
        TRY(ARENA_NEW(r->arena, json_count(added), &t->added[i].at));
    ArenaMark mark = arena_mark(r->arena);
    TRY(ARENA_ZEROED(r->arena, t->vocab, &r->added));
    TRY(read_added_tokens(r, added));
    for (const Json *each = json_first(vocab); each != NULL; each = each->next)
        TRY(read_vocab_token(r, each));
    take_added_tokens(r, shown);
    arena_release(r->arena, mark);
    TRY(normalize_added(r));
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

/* Tokens of bytes stand for parts of characters, which find_joins does not see in the text of a token. */
static bool is_byte_token(const Tokenizer *t, int32_t id)
{
    return t->shown[id].n == 1 && t->byte_id[(uint8_t)*t->shown[id].bytes] == id;
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
        int32_t length = (int32_t)n[k];
        if (r->t->of_characters)
            memcpy(bytes + used, half[k], n[k]);
        else
            length = token_from_text(half[k], n[k], bytes + used);
        id[k] = length < 0 ? TOKENIZER_NO_TOKEN : tokenizer_find(r->t, bytes + used, length);
        if (id[k] == TOKENIZER_NO_TOKEN)
            return FAIL(ERR_FORMAT, "%s: model.merges[%lld] names \"%.*s\", which is no token",
                        r->name, (long long)at, n[k] < SHOWN ? (int)n[k] : SHOWN, half[k]);
        used += length;
    }
    int32_t result = tokenizer_find(r->t, bytes, used);
    arena_release(r->arena, mark);
    if (result == TOKENIZER_NO_TOKEN)
        return FAIL(ERR_FORMAT, "%s: model.merges[%lld] joins ids %d and %d to what is no token",
                    r->name, (long long)at, id[0], id[1]);
    if (is_byte_token(r->t, id[0]) || is_byte_token(r->t, id[1])) r->t->joins = NULL;
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
    const Json *version = json_get(root, "version");
    if (!is_absent(version) &&
        (json_string(version) == NULL || strcmp(json_string(version), "1.0") != 0))
        return FAIL(ERR_UNSUPPORTED, "%s is of another version than 1.0, the only one that is read",
                    r->name);
    TRY(check_model(r, model));
    if (!is_absent(added) && !json_is(added, JSON_ARRAY))
        return FAIL(ERR_FORMAT, "%s: added_tokens is not a list", r->name);
    TRY(read_normalizer(r, json_get(root, "normalizer")));
    TRY(read_pre_tokenizers(r, json_get(root, "pre_tokenizer"),
                            get_flag(model, "byte_fallback", false)));
    r->t->growth = normalizer_growth(&r->t->normalizer) * normalizer_growth(&r->t->metaspace) *
                   (r->t->splitter.prefix_space ? 2 : 1);
    const Json *merges = json_get(model, "merges");
    size_t text_bytes = 0;
    TRY(read_tokens(r, json_get(model, "vocab"), added, json_count(merges), &text_bytes));
    bool ignore_merges = get_flag(model, "ignore_merges", false);
    if (r->t->of_characters) TRY(finish_characters(r, text_bytes, ignore_merges));
    int64_t at = 0;
    for (const Json *each = json_first(merges); each != NULL; each = each->next)
        TRY(read_merge(r, each, at++));
    return tokenizer_mark_whole(r->t, ignore_merges, r->arena);
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
