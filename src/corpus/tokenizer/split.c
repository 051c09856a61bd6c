/* split: compiles the patterns of a pipeline with PCRE2, and splits a text by them, stage by stage. The
 * stages are a recursion: each piece goes through all later stages before the next piece. */
#include "corpus/tokenizer/split.h"

#include "corpus/tokenizer/charset.h"
#include "corpus/tokenizer/pattern.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

enum { SENTENCE_BYTES = 128, STEPS_FREE = 1000000, STEPS_PER_BYTE = 32 };

const char SPLIT_GPT2_PATTERN[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

/* ---- PCRE2's memory ---- */

static void *arena_give(size_t bytes, void *arena)
{
    void *at = NULL;
    return arena_alloc(arena, bytes, &at) == OK ? at : NULL;
}

/* Does nothing: memory from an arena is given back with the arena. */
static void arena_take_back(void *at, void *arena)
{
    (void)at;
    (void)arena;
}

static Status pcre2_context(Arena *a, pcre2_general_context **out)
{
    *out = pcre2_general_context_create(arena_give, arena_take_back, a);
    if (*out == NULL) return FAIL(ERR_MEMORY, "arena %s: no room for a pattern", a->name);
    return OK;
}

static const char *pcre2_sentence(int code, char out[SENTENCE_BYTES])
{
    PCRE2_UCHAR text[SENTENCE_BYTES] = { 0 };
    (void)pcre2_get_error_message(code, text, SENTENCE_BYTES);
    memcpy(out, text, SENTENCE_BYTES);
    return out;
}

/* ---- stages ---- */

static Status check_room(const Splitter *s)
{
    if (s->n_stages < SPLIT_STAGES_MAX) return OK;
    return FAIL(ERR_UNSUPPORTED, "more than %d patterns one after another", SPLIT_STAGES_MAX);
}

/* The version of Unicode that PCRE2's tables have; 0: it has none. */
static int unicode_version(void)
{
    char text[SENTENCE_BYTES] = { 0 };
    if (pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, NULL) > SENTENCE_BYTES) return 0;
    (void)pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, text);
    return (int)strtol(text, NULL, 10);
}

static Status compile(const char *pattern, const Text *text, uint32_t options, Arena *a,
                      pcre2_code **out)
{
    pcre2_general_context *memory = NULL;
    TRY(pcre2_context(a, &memory));
    pcre2_compile_context *how = pcre2_compile_context_create(memory);
    if (how == NULL) return FAIL(ERR_MEMORY, "arena %s: no room for a pattern", a->name);
    pcre2_set_newline(how, PCRE2_NEWLINE_LF);
    int code = 0;
    size_t at = 0;
    *out = pcre2_compile((PCRE2_SPTR)text->data, text->used, options | PCRE2_UTF, &code, &at, how);
    if (*out == NULL) {
        char why[SENTENCE_BYTES];
        return FAIL(code == PCRE2_ERROR_HEAP_FAILED ? ERR_MEMORY : ERR_FORMAT,
                    "pattern \"%.60s\": PCRE2, which matches it here: %s", pattern,
                    pcre2_sentence(code, why));
    }
    /* If the system allows no machine code, PCRE2 interprets: slower, with the same matches. */
    (void)pcre2_jit_compile(*out, PCRE2_JIT_COMPLETE);
    return OK;
}

static Status compile_regex(const char *pattern, int unicode, Arena *a, pcre2_code **out)
{
    Text text;
    TRY(text_init(&text, a));
    TRY(pattern_translate(pattern, PATTERN_ONIGURUMA, unicode, &text));
    return compile(pattern, &text, PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, a, out);
}

/* Compiled patterns lie in the arena, but their machine code does not: splitter_free must be called. Ranges
 * for the characters that PCRE2's tables lack make classes slow, so texts without these have a pattern of their own. */
Status splitter_add_rule(Splitter *s, const char *pattern, SplitSyntax syntax, SplitKeep keep,
                         Arena *a)
{
    TRY(check_room(s));
    int unicode = unicode_version();
    bool regex = syntax != SPLIT_TEXT, old = regex && unicode >= 14 && unicode < CHARSET_UNICODE;
    SplitStage *stage = &s->stage[s->n_stages];
    *stage = (SplitStage){ .keep = keep };
    if (!regex) {
        Text text;
        TRY(text_init(&text, a));
        TRY(text_append(&text, pattern, strlen(pattern)));
        TRY(compile(pattern, &text, PCRE2_LITERAL, a, &stage->code));
    }
    if (old && s->later == NULL) TRY(charset_later(a, &s->later));
    if (regex) TRY(compile_regex(pattern, old ? CHARSET_UNICODE : unicode, a, &stage->code));
    s->n_stages++; /* from here on splitter_free frees it */
    return old ? compile_regex(pattern, unicode, a, &stage->later) : OK;
}

Status splitter_add_prefix_space(Splitter *s)
{
    TRY(check_room(s));
    if (s->prefix_space) return FAIL(ERR_UNSUPPORTED, "a space put before pieces twice");
    s->prefix_space = true;
    s->stage[s->n_stages++] = (SplitStage){ 0 };
    return OK;
}

void splitter_free(Splitter *s)
{
    for (int i = 0; i < s->n_stages; i++) {
        pcre2_code_free(s->stage[i].code);
        pcre2_code_free(s->stage[i].later);
    }
    *s = (Splitter){ 0 };
}

/* ---- cutting ---- */

static Status cut_stage(SplitCut *c, int stage, const char *text, size_t n);

/* The next character's first byte at or after `at`: the first byte that is no continuation byte. */
static size_t next_character(const char *text, size_t n, size_t at)
{
    do at++;
    while (at < n && ((unsigned char)text[at] & 0xC0) == 0x80);
    return at;
}

/* The first match at or after `from`; *start is SIZE_MAX if there is none. */
static Status find_match(SplitCut *c, const SplitStage *stage, const char *text, size_t n,
                         size_t from, size_t *start, size_t *end)
{
    PCRE2_SPTR subject = (PCRE2_SPTR)text;
    const pcre2_code *code = c->later && stage->later != NULL ? stage->later : stage->code;
    int rc = pcre2_match(code, subject, n, from, PCRE2_NO_UTF_CHECK, c->match, c->limits);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) { /* the interpreter's stack is the arena */
        rc = pcre2_match(code, subject, n, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, c->match,
                         c->limits);
    }
    *start = SIZE_MAX;
    if (rc == PCRE2_ERROR_NOMATCH) return OK;
    if (rc < 0) {
        char why[SENTENCE_BYTES];
        return FAIL(rc == PCRE2_ERROR_NOMEMORY ? ERR_MEMORY : ERR_UNSUPPORTED,
                    "a pattern of the tokenizer gave up at byte %zu of a piece of %zu: %s", from, n,
                    pcre2_sentence(rc, why));
    }
    const size_t *found = pcre2_get_ovector_pointer(c->match);
    if (found[0] < from || found[1] < found[0])
        return FAIL(ERR_UNSUPPORTED,
                    "a pattern of the tokenizer moves the start of its match by \\K");
    *start = found[0];
    *end = found[1];
    return OK;
}

/* The text [done, start) between two matches and the match [start, end) go on as the stage says.
 * *done becomes the first byte that has not gone on. */
static Status cut_at_match(SplitCut *c, int stage, const char *text, size_t *done, size_t start,
                           size_t end)
{
    SplitKeep keep = c->splitter->stage[stage].keep;
    size_t from = *done, match = start;
    if (keep == SPLIT_WITH_PREVIOUS && start > from) start = match = end;
    if (start > from && keep != SPLIT_ONLY_MATCHES)
        TRY(cut_stage(c, stage + 1, text + from, start - from));
    *done = keep == SPLIT_WITH_NEXT ? start : end;
    if (keep == SPLIT_WITH_NEXT || keep == SPLIT_ONLY_OTHERS || end == match) return OK;
    return cut_stage(c, stage + 1, text + match, end - match);
}

static Status cut_by_pattern(SplitCut *c, int stage, const char *text, size_t n)
{
    const SplitStage *s = &c->splitter->stage[stage];
    size_t done = 0, from = 0;
    while (from < n) {
        size_t start = 0, end = 0;
        TRY(find_match(c, s, text, n, from, &start, &end));
        if (start >= n) break;
        TRY(cut_at_match(c, stage, text, &done, start, end));
        from = end > start ? end : next_character(text, n, end); /* an empty match only cuts */
    }
    if (done == n || s->keep == SPLIT_ONLY_MATCHES) return OK;
    return cut_stage(c, stage + 1, text + done, n - done);
}

static Status cut_with_prefix_space(SplitCut *c, int stage, const char *text, size_t n)
{
    if (text[0] == ' ') return cut_stage(c, stage + 1, text, n);
    char *with_space = c->prefixed;
    assert(with_space != NULL); /* make_room_for_spaces saw this stage */
    with_space[0] = ' ';
    memcpy(with_space + 1, text, n);
    c->prefixed += n + 1;
    return cut_stage(c, stage + 1, with_space, n + 1);
}

/* After the last stage a piece goes to the caller. Before that, the next stage cuts it further. */
static Status cut_stage(SplitCut *c, int stage, const char *text, size_t n)
{
    if (stage < c->splitter->n_stages) {
        if (c->splitter->stage[stage].code == NULL) return cut_with_prefix_space(c, stage, text, n);
        return cut_by_pattern(c, stage, text, n);
    }
    if (n > INT32_MAX) return FAIL(ERR_UNSUPPORTED, "a piece of %zu bytes without a cut", n);
    return c->sink(c->context, text, (int32_t)n);
}

Status split_begin(SplitCut *c, const Splitter *s, SplitSink sink, void *context, Arena *a)
{
    *c = (SplitCut){ .splitter = s, .sink = sink, .context = context, .arena = a };
    pcre2_general_context *memory = NULL;
    TRY(pcre2_context(a, &memory));
    c->match = pcre2_match_data_create(1, memory);
    c->limits = pcre2_match_context_create(memory);
    if (c->match == NULL || c->limits == NULL)
        return FAIL(ERR_MEMORY, "arena %s: no room for a match", a->name);
    return OK;
}

/* Each piece that the prefix stage gets has at least one byte, so its output is at most twice the
 * text. */
static Status make_room_for_spaces(SplitCut *c, size_t n)
{
    c->prefixed = NULL;
    if (!c->splitter->prefix_space || n == 0) return OK;
    return ARENA_NEW(c->arena, 2 * n, &c->prefixed);
}

/* Limits the steps of a match to a constant plus a multiple of the text's length. Linear patterns fit
 * (a run of white space is scanned and backtracked once). Patterns that need n^2 or 2^n steps fail
 * instead of hanging. */
static void set_limit(SplitCut *c, size_t n)
{
    size_t steps = (size_t)STEPS_FREE + STEPS_PER_BYTE * n;
    pcre2_set_match_limit(c->limits, steps < UINT32_MAX ? (uint32_t)steps : UINT32_MAX);
}

/* Has valid UTF-8 characters that are marked? */
static bool has_later(const uint64_t *later, const char *text, size_t n)
{
    const unsigned char *at = (const unsigned char *)text, *end = at + n;
    for (uint64_t eight = 0; at < end; at++) {
        while (end - at > 8 && (memcpy(&eight, at, 8), eight & 0x8080808080808080U) == 0) at += 8;
        if (*at < 0xE0) continue; /* ASCII, continuations, and nothing new below U+0800 */
        uint32_t c = (*at & 0x0FU) << 12 | (at[1] & 0x3FU) << 6 | (at[2] & 0x3F);
        if (*at >= 0xF0) c = c << 6 | (at[3] & 0x3F);
        if ((later[c / 64] >> c % 64 & 1) != 0) return true;
    }
    return false;
}

Status split_text(SplitCut *c, const char *text, size_t n, size_t *used)
{
    TRY(make_room_for_spaces(c, n));
    set_limit(c, n);
    if (text_utf8_valid(text, n, used)) *used = n;
    c->later = c->splitter->later != NULL && has_later(c->splitter->later, text, *used);
    return *used == 0 ? OK : cut_stage(c, 0, text, *used);
}
