/* normalize: forms of Unicode, replacing, and putting a text before a text. Only the parts of a text
 * that a form can change go through utf8proc. Those are characters that decompose, combine or are
 * reordered, and the character before them, which may combine with them. */
#include "corpus/tokenizer/normalize.h"

#include "engine/base/text.h"

#include <string.h>
#include <utf8proc.h>

enum {
    FORM_GROWTH = 3,    /* of UTF-8 bytes, at most (Unicode Standard Annex 15) */
    FIRST_MARK = 0x300, /* all characters below are their own composed form */
    FIRST_JAMO = 0x1100,
    LAST_JAMO = 0x11FF,
    NO_TAIL = 0x11A7, /* utf8proc 2.8 drops it behind a syllable, with which it does not combine */
    FIRST_SYLLABLE = 0xAC00, /* of Hangul */
    LAST_SYLLABLE = 0xD7A3,
    NFC = UTF8PROC_STABLE | UTF8PROC_COMPOSE,
};

bool normalize_form(const char *name, NormalizeStep *out)
{
    static const struct {
        const char *name;
        int form;
    } FORMS[] = {
        { "NFC", NFC },
        { "NFD", UTF8PROC_STABLE | UTF8PROC_DECOMPOSE },
    };
    for (size_t i = 0; i < sizeof FORMS / sizeof *FORMS; i++) {
        if (strcmp(FORMS[i].name, name) != 0) continue;
        *out = (NormalizeStep){ .kind = NORMALIZE_FORM, .form = FORMS[i].form };
        return true;
    }
    return false;
}

static size_t step_growth(const NormalizeStep *s, size_t growth)
{
    if (s->kind == NORMALIZE_FORM) return growth * FORM_GROWTH;
    if (s->kind == NORMALIZE_REPLACE) return growth * (1 + strlen(s->to) / strlen(s->from));
    return growth + strlen(s->to);
}

size_t normalizer_growth(const Normalizer *z)
{
    size_t growth = 1;
    for (const NormalizeStep *s = z->step; s < z->step + z->n; s++) growth = step_growth(s, growth);
    return growth;
}

Status normalizer_add(Normalizer *z, const NormalizeStep *step)
{
    if (z->n == NORMALIZE_STEPS_MAX)
        return FAIL(ERR_UNSUPPORTED, "more than %d steps one after another", NORMALIZE_STEPS_MAX);
    size_t growth = step_growth(step, normalizer_growth(z));
    if (growth > NORMALIZE_GROWTH_MAX)
        return FAIL(ERR_UNSUPPORTED, "a text can become %zu times as long, more than %d times",
                    growth, NORMALIZE_GROWTH_MAX);
    z->step[z->n++] = *step;
    return OK;
}

/* ---- forms ---- */

/* The character at byte `at` of valid UTF-8; *end is where the next one begins. */
static utf8proc_int32_t character_at(const char *text, size_t n, size_t at, size_t *end)
{
    utf8proc_int32_t c = (uint8_t)text[at];
    *end = at + 1;
    if (c >= 0x80)
        *end = at + (size_t)utf8proc_iterate((const utf8proc_uint8_t *)text + at,
                                             (utf8proc_ssize_t)(n - at), &c);
    return c;
}

/* Does the form leave the character alone, whatever stands behind it? Then it is none that decomposes,
 * is reordered or combines with the one before it. (comb_index marks those that it combines with, too.) */
static bool is_quiet(int form, utf8proc_int32_t c)
{
    if (c < 0x80 || (c < FIRST_MARK && form == NFC)) return true;
    if (c >= FIRST_JAMO && c <= LAST_JAMO) return c == NO_TAIL;
    if (c >= FIRST_SYLLABLE && c <= LAST_SYLLABLE) return (form & UTF8PROC_COMPOSE) != 0;
    const utf8proc_property_t *p = utf8proc_get_property(c);
    return p->combining_class == 0 && p->decomp_seqindex == UINT16_MAX &&
           p->comb_index == UINT16_MAX;
}

/* The next part [*from, *to) that the form may change: loud characters and the one before them. Empty
 * at the end of the text if there is none. */
static void next_loud(int form, const char *text, size_t n, size_t at, size_t *from, size_t *to)
{
    size_t before = at, end = at;
    for (; at < n && is_quiet(form, character_at(text, n, at, &end)); at = end) before = at;
    *from = at < n ? before : n;
    for (; at < n && !is_quiet(form, character_at(text, n, at, &end)); at = end) continue;
    *to = at;
}

/* Appends the form of n bytes to out, and returns its bytes in *used. */
static Status put_form(int form, Arena *a, const char *text, size_t n, char *out, size_t *used)
{
    utf8proc_int32_t *wide = NULL;
    size_t most = FORM_GROWTH * n + 1; /* characters; the form is written over them in UTF-8 */
    TRY(ARENA_NEW(a, 2 * most, &wide));
    utf8proc_ssize_t count =
        utf8proc_decompose((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)n, wide,
                           (utf8proc_ssize_t)(2 * most), (utf8proc_option_t)form);
    if (count >= 0) count = utf8proc_reencode(wide, count, (utf8proc_option_t)form);
    if (count < 0) return FAIL(ERR_UNSUPPORTED, "utf8proc: %s", utf8proc_errmsg(count));
    memcpy(out + *used, wide, (size_t)count);
    *used += (size_t)count;
    return OK;
}

static Status copy_form(const NormalizeStep *s, Arena *a, const char **text, size_t *n, size_t good)
{
    size_t used = 0;
    char *out = NULL;
    TRY(ARENA_NEW(a, *n * FORM_GROWTH, &out));
    for (size_t at = 0, from = 0, to = 0; at < good; at = to) {
        next_loud(s->form, *text, good, at, &from, &to);
        memcpy(out + used, *text + at, from - at);
        used += from - at;
        ArenaMark mark = arena_mark(a);
        if (from < to) TRY(put_form(s->form, a, *text + from, to - from, out, &used));
        arena_release(a, mark);
    }
    memcpy(out + used, *text + good, *n - good);
    *text = out;
    *n = used + *n - good;
    return OK;
}

/* A text without loud characters is not copied. */
static Status apply_form(const NormalizeStep *s, Arena *a, const char **text, size_t *n)
{
    size_t good = *n, from = 0, to = 0;
    if (text_utf8_valid(*text, *n, &good)) good = *n;
    next_loud(s->form, *text, good, 0, &from, &to);
    return from == to ? OK : copy_form(s, a, text, n, good);
}

/* ---- replacing ---- */

static Status apply_replace(const NormalizeStep *s, Arena *a, const char **text, size_t *n)
{
    size_t n_from = strlen(s->from), n_to = strlen(s->to), used = 0;
    const char *at = *text, *end = *text + *n, *found = NULL;
    char *out = NULL;
    if (memmem(at, *n, s->from, n_from) == NULL) return OK;
    TRY(ARENA_NEW(a, *n * (1 + n_to / n_from), &out));
    while ((found = memmem(at, (size_t)(end - at), s->from, n_from)) != NULL) {
        memcpy(out + used, at, (size_t)(found - at));
        used += (size_t)(found - at);
        memcpy(out + used, s->to, n_to);
        used += n_to;
        at = found + n_from;
    }
    memcpy(out + used, at, (size_t)(end - at));
    *text = out;
    *n = used + (size_t)(end - at);
    return OK;
}

static Status apply_prepend(const NormalizeStep *s, bool first, Arena *a, const char **text,
                            size_t *n)
{
    size_t n_to = strlen(s->to);
    char *out = NULL;
    if (s->only_first && !first) return OK;
    if (s->unless_there && *n >= n_to && memcmp(*text, s->to, n_to) == 0) return OK;
    TRY(ARENA_NEW(a, *n + n_to, &out));
    memcpy(out, s->to, n_to);
    memcpy(out + n_to, *text, *n);
    *text = out;
    *n += n_to;
    return OK;
}

Status normalize(const Normalizer *z, bool first, Arena *a, const char **text, size_t *n)
{
    for (const NormalizeStep *s = z->step; s<z->step + z->n && * n> 0; s++) {
        if (s->kind == NORMALIZE_FORM) TRY(apply_form(s, a, text, n));
        if (s->kind == NORMALIZE_REPLACE) TRY(apply_replace(s, a, text, n));
        if (s->kind == NORMALIZE_PREPEND) TRY(apply_prepend(s, first, a, text, n));
    }
    return OK;
}

/* ---- characters of words ---- */

/* Alphabetic characters that are neither letters nor marks are letter numbers and encircled letters. */
static bool is_word(utf8proc_int32_t c)
{
    utf8proc_category_t k = utf8proc_category(c);
    bool encircled = (c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) ||
                     (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
    return (k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_NL) || k == UTF8PROC_CATEGORY_PC ||
           encircled || c == 0x200C || c == 0x200D;
}

static bool word_of(const char *text, size_t n)
{
    utf8proc_int32_t c = 0;
    return utf8proc_iterate((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)n, &c) > 0 &&
           is_word(c);
}

bool normalize_word_before(const char *text, size_t at)
{
    size_t start = at;
    while (start > 0 && at - start < 4 && (start == at || ((uint8_t)text[start] & 0xC0) == 0x80))
        start--;
    return start < at && word_of(text + start, at - start);
}

bool normalize_word_at(const char *text, size_t n, size_t at)
{
    return at < n && word_of(text + at, n - at);
}
