/* charset: the table is decoded where a set is asked for. A set is written by names of categories, which
 * compiled patterns test fast, and by the ranges that these do not cover. Where a category has less to take away than
 * to list, a lookahead takes that away. */
#include "corpus/tokenizer/charset.h"

#include "corpus/tokenizer/charset_table.h"

#include <string.h>

enum {
    ASCII_END = 0x80,
    SURROGATES = 0xD800,
    SURROGATES_END = 0xE000,
    WORTH = 20,         /* edges that a name of a category must save */
    LOOKAHEAD_COST = 10 /* as many ranges */
};

static const char *const CATEGORY[CHARSET_GROUPS + CHARSET_CATEGORIES] = {
    "L",  "M",  "N",  "P",  "S", /* groups come first */
    "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps",
    "Pe", "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Co",
};

/* Names that stand for more than a row: a sum of rows, or (-) what these leave. */
static const char *const SUMS[][2] = {
    { "l|letter", "lu ll lt lm lo" },
    { "lc|casedletter", "lu ll lt" },
    { "m|mark|combiningmark", "mn mc me" },
    { "n|number", "nd nl no" },
    { "p|punctuation|punct", "pc pd ps pe pi pf po" },
    { "s|symbol", "sm sc sk so" },
    { "z|separator", "zs zl zp" },
    { "c|other", "-l m n p s z" },
    { "assigned", "l m n p s z cc cf co" },
    { "cn|unassigned", "-assigned" },
    { "any", "-" },
};

/* ---- sets ---- */

Status charset_range(Arena *a, uint32_t first, uint32_t last, CharSet *out)
{
    uint32_t *edge = NULL;
    TRY(ARENA_NEW(a, 2, &edge));
    edge[0] = first;
    edge[1] = last + 1;
    *out = (CharSet){ edge, 2 };
    return OK;
}

Status charset_combine(Arena *a, CharSet left, CharSet right, CharSetOp op, CharSet *out)
{
    uint32_t *edge = NULL;
    int32_t n = 0;
    TRY(ARENA_NEW(a, left.n + right.n + 1, &edge));
    for (int32_t i = 0, k = 0; i < left.n || k < right.n;) {
        uint32_t x = i < left.n ? left.edge[i] : CHARSET_END;
        uint32_t y = k < right.n ? right.edge[k] : CHARSET_END;
        uint32_t at = x < y ? x : y;
        i += i < left.n && left.edge[i] == at;
        k += k < right.n && right.edge[k] == at;
        if ((((int)op >> (2 * (i & 1) + (k & 1))) & 1) != (n & 1)) edge[n++] = at;
    }
    *out = (CharSet){ edge, n };
    return OK;
}

Status charset_negate(Arena *a, CharSet s, CharSet *out)
{
    CharSet all;
    TRY(charset_range(a, 0, CHARSET_END - 1, &all));
    return charset_combine(a, all, s, CHARSET_MINUS, out);
}

bool charset_has(CharSet s, uint32_t character)
{
    int32_t low = 0, high = s.n; /* how many edges are at or before the character */
    while (low < high) {
        int32_t middle = (low + high) / 2;
        if (s.edge[middle] <= character)
            low = middle + 1;
        else
            high = middle;
    }
    return (low & 1) != 0;
}

/* ---- the table ---- */

static bool names_it(const char *names, size_t n_names, const char *name, size_t n)
{
    for (const char *at = names, *end = names + n_names; at < end;) {
        const char *stop = at;
        while (stop < end && *stop != '|') stop++;
        if ((size_t)(stop - at) == n && memcmp(at, name, n) == 0) return true;
        at = stop + 1;
    }
    return false;
}

/* The numbers of the row; NULL: no row has the name. *place counts rows. */
static const char *find_row(const char *name, size_t n, int *place)
{
    for (*place = 0; *place < charset_table_n; ++*place) {
        const char *at = charset_table[*place], *numbers = strchr(at, ' ') + 1;
        if (names_it(at, (size_t)(numbers - 1 - at), name, n)) return numbers;
    }
    return NULL;
}

static uint32_t next_number(const char **at)
{
    for (uint32_t value = 0, shift = 0;; shift += 5) {
        char c = *(*at)++;
        uint32_t digit = c == '+'   ? 62
                         : c == '-' ? 63
                         : c < 'A'  ? (uint32_t)(c - '0')
                         : c < 'a'  ? (uint32_t)(c - 'A') + 10
                                    : (uint32_t)(c - 'a') + 36;
        value |= (digit & 31) << shift;
        if (digit < 32) return value;
    }
}

/* Pairs of characters outside and inside; (n, 0) repeats the last pair n times. The first pass counts. */
static Status decode(Arena *a, const char *numbers, CharSet *out)
{
    uint32_t *edge = NULL;
    int32_t n = 0;
    for (int pass = 0; pass < 2; pass++) {
        uint32_t place = 0, outside = 0, inside = 0;
        if (pass == 1) TRY(ARENA_NEW(a, n, &edge));
        n = 0;
        for (const char *at = numbers; *at != '\0';) {
            uint32_t first = next_number(&at), second = next_number(&at);
            if (second > 0) {
                outside = first;
                inside = second;
            }
            for (uint32_t times = second > 0 ? 1 : first; times > 0; times--, n += 2) {
                place += outside + inside;
                if (edge == NULL) continue;
                edge[n] = place - inside;
                edge[n + 1] = place;
            }
        }
    }
    *out = (CharSet){ edge, n };
    return OK;
}

static Status add_sum(Arena *a, const char *words, CharSet *out)
{
    bool rest = *words == '-';
    *out = (CharSet){ 0 };
    for (const char *at = words + rest; *at != '\0';) {
        size_t n = strcspn(at, " ");
        CharSet part;
        CharSetKind kind = CHARSET_UNKNOWN;
        TRY(charset_named(a, at, n, &part, &kind));
        TRY(charset_combine(a, *out, part, CHARSET_OR, out));
        at += n + (at[n] == ' ');
    }
    return rest ? charset_negate(a, *out, out) : OK;
}

Status charset_named(Arena *a, const char *name, size_t n, CharSet *out, CharSetKind *kind)
{
    int place = 0;
    *kind = CHARSET_CATEGORY;
    for (size_t i = 0; i < sizeof SUMS / sizeof *SUMS; i++) {
        if (names_it(SUMS[i][0], strlen(SUMS[i][0]), name, n)) return add_sum(a, SUMS[i][1], out);
    }
    if (n == 5 && memcmp(name, "ascii", n) == 0) return charset_range(a, 0, ASCII_END - 1, out);
    const char *numbers = find_row(name, n, &place);
    *kind = numbers == NULL               ? CHARSET_UNKNOWN
            : place >= CHARSET_CATEGORIES ? CHARSET_SCRIPT
                                          : CHARSET_CATEGORY;
    return numbers == NULL ? OK : decode(a, numbers, out);
}

/* ---- characters that differ in case ---- */

/* Each class has one lowest character, to which its others lead. The first pass adds what is the lowest of
 * its class, the second one all that have theirs in the set. */
static Status fold_pass(Arena *a, bool lowest, CharSet *out)
{
    int place = 0;
    uint32_t first = 0;
    const CharSet before = *out;
    for (const char *at = find_row("FOLD", 4, &place); *at != '\0';) {
        first += next_number(&at);
        uint32_t step = next_number(&at), n = next_number(&at), away = next_number(&at);
        for (uint32_t c = first; c < first + n * step; c += step) {
            uint32_t have = lowest ? c : c - away, more = lowest ? c - away : c;
            if (!charset_has(before, have) || charset_has(before, more)) continue;
            CharSet one;
            TRY(charset_range(a, more, more, &one));
            TRY(charset_combine(a, *out, one, CHARSET_OR, out));
        }
    }
    return OK;
}

Status charset_fold(Arena *a, CharSet s, CharSet *out)
{
    *out = s;
    TRY(fold_pass(a, true, out));
    return fold_pass(a, false, out);
}

/* ---- writing ---- */

Status charset_reader(Arena *a, int unicode, CharSetReader *out)
{
    CharSetKind kind;
    CharSet later[2];
    *out = (CharSetReader){ .whole = unicode >= 14 && unicode <= 16 };
    TRY(charset_named(a, "SINCE15", 7, &later[0], &kind));
    TRY(charset_named(a, "SINCE16", 7, &later[1], &kind));
    for (int i = 0; out->whole && i < CHARSET_GROUPS + CHARSET_CATEGORIES; i++) {
        char name[3] = { (char)(CATEGORY[i][0] | 0x20), (char)(CATEGORY[i][1] | 0x20) };
        CharSet *view = &out->view[i];
        TRY(charset_named(a, name, strlen(CATEGORY[i]), view, &kind));
        for (int k = unicode - 14; k < 2; k++)
            TRY(charset_combine(a, *view, later[k], CHARSET_MINUS, view));
    }
    return OK;
}

Status charset_later(Arena *a, uint64_t **out)
{
    TRY(ARENA_ZEROED(a, CHARSET_END / 64, out));
    for (int k = 0; k < 2; k++) {
        CharSet later = { 0 };
        CharSetKind kind;
        TRY(charset_named(a, k == 0 ? "SINCE15" : "SINCE16", 7, &later, &kind));
        for (int32_t i = 0; i < later.n; i += 2) {
            for (uint32_t c = later.edge[i]; c < later.edge[i + 1]; c++)
                (*out)[c / 64] |= (uint64_t)1 << c % 64;
        }
    }
    return OK;
}

/* What a set is written by. */
typedef struct Cover {
    uint64_t names;    /* of categories, a bit for each */
    CharSet all, less; /* what the names have together; what of that the set has not */
    CharSet rest;      /* ranges beside the names */
    int32_t cost;
} Cover;

/* Makes of the characters that ranges must have as few ranges as can be: those of one range of the set are
 * one, whatever is between them. */
static Status widen(Arena *a, CharSet must, CharSet set, CharSet *out)
{
    uint32_t *edge = NULL;
    int32_t n = 0;
    TRY(ARENA_NEW(a, must.n, &edge));
    for (int32_t i = 0, k = 0; i < must.n; i += 2) {
        while (set.edge[k + 1] <= must.edge[i]) k += 2;
        bool same = n > 0 && edge[n - 1] > set.edge[k];
        if (!same) edge[n++] = must.edge[i];
        if (!same) n++;
        edge[n - 1] = must.edge[i + 1];
    }
    *out = (CharSet){ edge, n };
    return OK;
}

static Status cover(const CharSetReader *r, Arena *a, CharSet set, Cover *c)
{
    CharSet ascii, must;
    *c = (Cover){ 0 };
    for (int i = 0; r->whole && i < CHARSET_GROUPS + CHARSET_CATEGORIES; i++) {
        CharSet in, out;
        TRY(charset_combine(a, r->view[i], set, CHARSET_AND, &in));
        if (in.n >= WORTH) TRY(charset_combine(a, in, c->all, CHARSET_MINUS, &in));
        if (in.n < WORTH) continue;
        TRY(charset_combine(a, r->view[i], set, CHARSET_MINUS, &out));
        if (out.n > 0 && in.n < 3 * out.n + WORTH) continue;
        c->names |= (uint64_t)1 << i;
        c->cost += 2;
        TRY(charset_combine(a, c->all, r->view[i], CHARSET_OR, &c->all));
        TRY(charset_combine(a, c->less, out, CHARSET_OR, &c->less));
    }
    TRY(charset_range(a, 0, ASCII_END - 1, &ascii)); /* PCRE2 has a bit for each of these */
    TRY(charset_combine(a, set, c->all, CHARSET_MINUS, &must));
    TRY(charset_combine(a, ascii, set, CHARSET_AND, &ascii));
    TRY(charset_combine(a, must, ascii, CHARSET_OR, &must));
    TRY(widen(a, must, set, &c->rest));
    c->cost += c->rest.n / 2 + (c->less.n > 0 ? c->less.n / 2 + LOOKAHEAD_COST : 0);
    return OK;
}

static Status write_character(Text *out, uint32_t c)
{
    bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
    return plain ? text_printf(out, "%c", (char)c) : text_printf(out, "\\x{%X}", c);
}

static Status write_class(Text *out, bool negated, uint64_t names, CharSet rest)
{
    TRY(text_append(out, "[^", negated ? 2 : 1));
    for (int i = 0; i < CHARSET_GROUPS + CHARSET_CATEGORIES; i++) {
        if ((names >> i & 1) != 0) TRY(text_printf(out, "\\p{%s}", CATEGORY[i]));
    }
    for (int32_t i = 0; i < rest.n; i += 2) {
        uint32_t first = rest.edge[i], last = rest.edge[i + 1] - 1;
        if (first >= SURROGATES && first < SURROGATES_END) first = SURROGATES_END;
        if (last >= SURROGATES && last < SURROGATES_END) last = SURROGATES - 1;
        if (first > last) continue;
        TRY(write_character(out, first));
        if (last > first + 1) TRY(text_printf(out, "-"));
        if (last > first) TRY(write_character(out, last));
    }
    return text_printf(out, "]");
}

static Status write_set(const CharSetReader *r, Arena *a, CharSet s, Text *out)
{
    Cover plain, inverse;
    CharSet others;
    TRY(charset_negate(a, s, &others));
    if (s.n == 0) return text_printf(out, "(?!)");
    if (others.n == 0 || (s.n <= WORTH && s.n <= others.n)) return write_class(out, false, 0, s);
    if (others.n <= WORTH) return write_class(out, true, 0, others);
    TRY(cover(r, a, s, &plain));
    if (plain.less.n == 0 && plain.cost <= WORTH)
        return write_class(out, false, plain.names, plain.rest);
    TRY(cover(r, a, others, &inverse));
    if (inverse.less.n == 0 && inverse.cost < plain.cost)
        return write_class(out, true, inverse.names, inverse.rest);
    if (plain.less.n == 0) return write_class(out, false, plain.names, plain.rest);
    TRY(text_printf(out, "(?:(?!"));
    TRY(write_class(out, false, 0, plain.less));
    TRY(text_printf(out, ")"));
    TRY(write_class(out, false, plain.names, plain.rest));
    return text_printf(out, ")");
}

Status charset_write(const CharSetReader *r, Arena *scratch, CharSet s, Text *out)
{
    ArenaMark mark = arena_mark(scratch);
    TRY(write_set(r, scratch, s, out));
    arena_release(scratch, mark);
    return OK;
}
