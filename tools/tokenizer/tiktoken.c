/* tiktoken: a .tiktoken file has a line for each token, with its bytes in base64 and its rank, which is its
 * id. The file has neither the pattern nor the special tokens. Both follow from the number of lines, which
 * differs between the published vocabularies.
 *
 * A pair of neighbours may merge if the bytes of both together are a token; the token of the lowest rank
 * goes first, the leftmost of equal ones. So each split of a token into two tokens is a merge. */
#include "tokenizer/tiktoken.h"

#include "corpus/tokenizer/charset.h"
#include "corpus/tokenizer/pattern.h"
#include "engine/base/file.h"
#include "engine/base/text.h"

#include <stdio.h>
#include <string.h>

enum { SPECIALS_MAX = 8, NAMES_BYTES = 256, SHOWN = 60 /* bytes of a line in a message */ };

typedef struct Special {
    const char *text;
    int32_t id;
} Special;

/* A published vocabulary. llama3 and qwen number their special tokens from the last rank on, of which
 * only those are here that people write in texts. */
typedef struct Encoding {
    const char *name;
    int32_t ranks; /* lines of its file */
    const char *pattern;
    Special special[SPECIALS_MAX]; /* ends at a NULL text */
} Encoding;

#define GPT2                                                                                       \
    "'(?:[sdmt]|ll|ve|re)| ?\\p{L}++| ?\\p{N}++| ?[^\\s\\p{L}\\p{N}]++|\\s++\\z|\\s+(?!\\S)|\\s"
#define MARKS  "\\p{Lm}\\p{Lo}\\p{M}"
#define UPPER  "[\\p{Lu}\\p{Lt}" MARKS "]"
#define LOWER  "[\\p{Ll}" MARKS "]"
#define SHORT  "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define BEFORE "[^\\r\\n\\p{L}\\p{N}]?"
#define SPACES "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

static const Encoding ENCODINGS[] = {
    { "gpt2", 50256, GPT2, { { "<|endoftext|>", 50256 } } },
    { "p50k_base", 50280, GPT2, { { "<|endoftext|>", 50256 } } },
    { "cl100k_base",
      100256,
      "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}++|\\p{N}{1,3}|"
      " ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*+|\\s++\\z|\\s*[\\r\\n]|\\s+(?!\\S)|\\s",
      { { "<|endoftext|>", 100257 },
        { "<|fim_prefix|>", 100258 },
        { "<|fim_middle|>", 100259 },
        { "<|fim_suffix|>", 100260 },
        { "<|endofprompt|>", 100276 } } },
    { "o200k_base",
      199998,
      BEFORE UPPER "*" LOWER "+" SHORT "?|" BEFORE UPPER "+" LOWER "*" SHORT
                   "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*" SPACES,
      { { "<|endoftext|>", 199999 }, { "<|endofprompt|>", 200018 } } },
    { "llama3",
      128000,
      SHORT "|" BEFORE "\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" SPACES,
      { { "<|end_of_text|>", 128001 },
        { "<|begin_of_text|>", 128000 },
        { "<|start_header_id|>", 128006 },
        { "<|end_header_id|>", 128007 },
        { "<|eot_id|>", 128009 } } },
    { "qwen",
      151643,
      SHORT "|" BEFORE "\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*" SPACES,
      { { "<|endoftext|>", 151643 }, { "<|im_start|>", 151644 }, { "<|im_end|>", 151645 } } },
};
enum { N_ENCODINGS = sizeof ENCODINGS / sizeof *ENCODINGS };

/* ---- lines ---- */

static int base64_value(char c)
{
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Writes the bytes of n characters of base64 to out and returns how many; -1: it is no base64. */
static int32_t base64_read(const char *text, size_t n, char *out)
{
    int32_t bytes = 0;
    if (n == 0 || n % 4 != 0) return -1;
    size_t pads = text[n - 1] != '=' ? 0 : text[n - 2] != '=' ? 1 : 2;
    for (size_t i = 0; i < n; i += 4) {
        uint32_t group = 0;
        size_t digits = i + 4 == n ? 4 - pads : 4;
        for (size_t k = 0; k < 4; k++) {
            int value = k < digits ? base64_value(text[i + k]) : 0;
            if (value < 0) return -1;
            group = group << 6 | (uint32_t)value;
        }
        for (size_t k = 0; k + 1 < digits; k++) out[bytes++] = (char)(group >> (16 - 8 * k));
    }
    return bytes;
}

/* One line of the file. */
typedef struct Line {
    const char *base64, *rank;
    size_t n_base64, n_rank;
} Line;

/* Cuts a line at its space; *text moves to the next line. false: it has no space. */
static bool cut_line(const char **text, const char *end, Line *out)
{
    const char *at = *text, *stop = memchr(at, '\n', (size_t)(end - at));
    if (stop == NULL) stop = end;
    *text = stop < end ? stop + 1 : end;
    if (stop > at && stop[-1] == '\r') stop--;
    const char *space = memchr(at, ' ', (size_t)(stop - at));
    if (space == NULL) return false;
    *out = (Line){ at, space + 1, (size_t)(space - at), (size_t)(stop - space - 1) };
    return true;
}

/* Digits alone, as an id; -1: anything else, or an id that is too large. */
static int32_t read_rank(const Line *l)
{
    int32_t rank = 0;
    if (l->n_rank == 0) return -1;
    for (size_t i = 0; i < l->n_rank; i++) {
        if (l->rank[i] < '0' || l->rank[i] > '9') return -1;
        rank = rank * 10 + (l->rank[i] - '0');
        if (rank >= TOKENIZER_MAX_VOCAB) return -1;
    }
    return rank;
}

/* The first line has base64, a space and a digit. */
static bool is_tiktoken(const char *text, size_t n)
{
    Line l = { 0 };
    const char *at = text;
    if (n == 0 || !cut_line(&at, text + n, &l) || l.n_base64 == 0 || l.n_rank == 0) return false;
    if (*l.rank < '0' || *l.rank > '9') return false;
    for (size_t i = 0; i < l.n_base64; i++) {
        if (base64_value(l.base64[i]) < 0 && l.base64[i] != '=') return false;
    }
    return true;
}

/* ---- tokens and merges ---- */

typedef struct Reader {
    const char *name; /* of the file */
    const char *text, *end;
    Arena *arena;
    Tokenizer names; /* the tokens, to be found by their bytes */
    AddedSet special;
    const char *pattern;
    bool own_pattern; /* not one of ENCODINGS */
    int32_t n_ranks;
} Reader;

/* Counts the lines and finds the largest rank, so that the tables can be made. */
static Status measure_lines(Reader *r)
{
    Line l = { 0 };
    for (const char *at = r->text; at < r->end; r->n_ranks++) {
        bool cut = cut_line(&at, r->end, &l);
        int32_t rank = cut ? read_rank(&l) : -1;
        if (rank < 0)
            return FAIL(ERR_FORMAT,
                        "%s: line %d is not a token in base64, a space and a rank from 0 to %d",
                        r->name, r->n_ranks + 1, TOKENIZER_MAX_VOCAB - 1);
        if (rank >= r->names.vocab) r->names.vocab = rank + 1;
    }
    return OK;
}

static Status read_lines(Reader *r)
{
    Tokenizer *t = &r->names;
    char *pool = NULL; /* base64 is longer than its bytes */
    Line l = { 0 };
    int32_t number = 0;
    TRY(ARENA_NEW(r->arena, r->end - r->text, &pool));
    for (const char *at = r->text; at < r->end;) {
        (void)cut_line(&at, r->end, &l); /* measure_lines saw that it can be cut */
        int32_t rank = read_rank(&l), n = base64_read(l.base64, l.n_base64, pool);
        number++;
        if (n < 0)
            return FAIL(ERR_FORMAT, "%s: line %d: \"%.*s\" is not base64", r->name, number,
                        l.n_base64 < SHOWN ? (int)l.n_base64 : SHOWN, l.base64);
        if (t->token[rank].bytes != NULL)
            return FAIL(ERR_FORMAT, "%s: line %d gives rank %d a second time", r->name, number,
                        rank);
        int32_t twin = tokenizer_find(t, pool, n);
        if (twin != TOKENIZER_NO_TOKEN)
            return FAIL(ERR_FORMAT, "%s: line %d has the token of rank %d again, as rank %d",
                        r->name, number, twin, rank);
        t->token[rank] = (TokenText){ .bytes = pool, .n = n };
        tokenizer_put(t, rank);
        pool += n;
    }
    return tokenizer_find_bytes(t, r->name);
}

/* Each split of each token into two tokens, into the list, if there is one. Returns how many there are. */
static int64_t each_split(const Tokenizer *t, TokenizerMerge *list)
{
    int64_t n = 0;
    for (int32_t id = 0; id < t->vocab; id++) {
        TokenText token = t->token[id];
        for (int32_t cut = 1; cut < token.n; cut++) {
            int32_t left = tokenizer_find(t, token.bytes, cut);
            if (left == TOKENIZER_NO_TOKEN) continue;
            int32_t right = tokenizer_find(t, token.bytes + cut, token.n - cut);
            if (right == TOKENIZER_NO_TOKEN) continue;
            if (list != NULL) list[n] = (TokenizerMerge){ left, right };
            n++;
        }
    }
    return n;
}

/* ---- encodings ---- */

/* By name, else by the number of tokens. */
static Status find_encoding(const Reader *r, const char *name, const Encoding **out)
{
    char names[NAMES_BYTES];
    int used = 0;
    for (int i = 0; i < N_ENCODINGS; i++) {
        *out = &ENCODINGS[i];
        if (name == NULL ? (*out)->ranks == r->n_ranks : strcmp((*out)->name, name) == 0) return OK;
        used += snprintf(names + used, sizeof names - (size_t)used, "%s%s of %d", i > 0 ? ", " : "",
                         (*out)->name, (*out)->ranks);
    }
    if (name != NULL)
        return FAIL(ERR_ARG, "encoding \"%s\" is not known (%s tokens are)", name, names);
    return FAIL(ERR_UNSUPPORTED,
                "%s has %d tokens, which is no encoding that is known (%s): give its pattern with "
                "--pattern",
                r->name, r->n_ranks, names);
}

/* "TEXT=ID"; the last = counts. */
static Status parse_special(const char *word, AddedText *out)
{
    const char *equals = strrchr(word, '=');
    Line l = { .rank = equals == NULL ? "" : equals + 1 };
    l.n_rank = strlen(l.rank);
    *out = (AddedText){ .text = word, .id = read_rank(&l) };
    if (equals == NULL || equals == word || out->id < 0)
        return FAIL(ERR_ARG, "special token \"%s\" is not TEXT=ID with an ID from 0 to %d", word,
                    TOKENIZER_MAX_VOCAB - 1);
    out->n = (int32_t)(equals - word);
    return OK;
}

/* Special tokens of the encoding, then those of the conversion, and the pattern of one of them. */
static Status gather(Reader *r, const TokenizerConversion *c)
{
    const Encoding *encoding = NULL;
    AddedSet *set = &r->special;
    bool own = c->pattern != NULL && c->encoding == NULL;
    if (!own) TRY(find_encoding(r, c->encoding, &encoding));
    r->own_pattern = c->pattern != NULL;
    r->pattern = r->own_pattern ? c->pattern : encoding->pattern;
    TRY(ARENA_NEW(r->arena, SPECIALS_MAX + c->n_special, &set->at));
    for (int i = 0; !own && i < SPECIALS_MAX && encoding->special[i].text != NULL; i++) {
        const Special *s = &encoding->special[i];
        set->at[set->n++] =
            (AddedText){ .text = s->text, .n = (int32_t)strlen(s->text), .id = s->id };
    }
    for (int i = 0; i < c->n_special; i++) TRY(parse_special(c->special[i], &set->at[set->n++]));
    for (int32_t i = 0; i < set->n; i++) {
        if (set->at[i].id >= r->names.vocab) r->names.vocab = set->at[i].id + 1;
    }
    return OK;
}

static Status check_specials(Reader *r)
{
    AddedSet *set = &r->special;
    for (const AddedText *a = set->at; a < set->at + set->n; a++) {
        if (r->names.token[a->id].bytes != NULL)
            return FAIL(ERR_FORMAT, "%s: id %d of the special token %.*s is taken", r->name, a->id,
                        a->n, a->text);
        r->names.token[a->id].bytes = "";
    }
    int32_t twice = added_sort(set);
    if (twice < 0) return OK;
    return FAIL(ERR_ARG, "special token %.*s is given twice", set->at[twice].n,
                set->at[twice].text);
}

/* The pattern as a tokenizer.json has it. What cannot be read from there must not be written. */
static Status translate(const Reader *r, const char **out)
{
    Text pattern;
    Splitter splitter = { 0 };
    TRY(text_init(&pattern, r->arena));
    TRY(pattern_translate(r->pattern, PATTERN_FANCY, CHARSET_UNICODE, &pattern));
    *out = pattern.data;
    Status s =
        splitter_add_rule(&splitter, pattern.data, SPLIT_ONIGURUMA, SPLIT_ISOLATED, r->arena);
    splitter_free(&splitter);
    return s;
}

/* tiktoken drops what no match has, which no pattern of ENCODINGS leaves. */
static Status read_file(Reader *r, const TokenizerConversion *c, TokenizerFile *out)
{
    Tokenizer *t = &r->names;
    TokenizerMerge *list = NULL;
    TRY(measure_lines(r));
    TRY(gather(r, c));
    TRY(ARENA_ZEROED(r->arena, t->vocab, &t->token));
    TRY(tokenizer_tables(t, r->n_ranks, r->arena));
    TRY(read_lines(r));
    int64_t n_merges = each_split(t, NULL);
    TRY(ARENA_NEW(r->arena, n_merges, &list));
    (void)each_split(t, list);
    TRY(check_specials(r));
    *out = (TokenizerFile){ .token = t->token,
                            .n_tokens = t->vocab,
                            .merge = list,
                            .n_merges = n_merges,
                            .drops = r->own_pattern,
                            .special = r->special.at,
                            .n_special = r->special.n };
    return translate(r, &out->pattern);
}

Status tiktoken_read(const char *name, const char *text, size_t bytes, const TokenizerConversion *c,
                     Arena *a, TokenizerFile *out)
{
    Reader r = { .name = name, .text = text, .end = text + bytes, .arena = a };
    if (bytes > INT32_MAX)
        return FAIL(ERR_UNSUPPORTED, "%s has %zu bytes, over 2 GiB", name, bytes);
    if (!is_tiktoken(text, bytes))
        return FAIL(ERR_FORMAT,
                    "%s is no .tiktoken file: its first line is not a token in base64, a space and "
                    "a rank",
                    name);
    return read_file(&r, c, out);
}

Status tiktoken_convert(const TokenizerConversion *c, Arena *a)
{
    FileMap map = { 0 };
    TokenizerFile file = { 0 };
    TRY(file_map(c->path, &map));
    Status s = tiktoken_read(c->path, (const char *)map.data, map.bytes, c, a, &file);
    if (s == OK) s = tokenizer_write(c->out_path, &file, a);
    file_unmap(&map);
    return s;
}
