/* pattern: a recursive descent over the pattern that writes as it reads. Only quantifiers look back: they may
 * have to put a group around the piece before them. */
#include "corpus/tokenizer/pattern.h"

#include "corpus/tokenizer/pattern_private.h"

#include <string.h>

enum { REPEATS_MAX = 1000 /* far below what the programs take */, DEPTH_MAX = 100, ENDLESS = -1 };

typedef enum PieceKind { PIECE_ITEM, PIECE_ASSERTION, PIECE_NOTHING } PieceKind;

typedef struct Piece {
    size_t start; /* in what is written */
    PieceKind kind;
    bool one;   /* a character, not a group */
    bool empty; /* may match nothing */
} Piece;

typedef struct Repeat {
    int32_t least, most;
    char mode;  /* '?' lazy, '+' possessive, 0 */
    bool fixed; /* {n} */
} Repeat;

static Status read_alternatives(PatternReader *r, PatternFlags flags, bool *empty);

/* ---- messages ---- */

Status pattern_refuse(const PatternReader *r, size_t from, const char *why)
{
    size_t n = (r->at > from ? r->at : from + 1) - from;
    if (from >= r->n) return FAIL(ERR_FORMAT, "pattern \"%.60s\" ends too early: %s", r->text, why);
    while (from + n < r->n && ((unsigned char)r->text[from + n] & 0xC0) == 0x80) n++;
    if (n > r->n - from) n = r->n - from;
    return FAIL(ERR_UNSUPPORTED, "pattern \"%.60s\": \"%.*s\" at byte %zu %s", r->text,
                n < 40 ? (int)n : 40, r->text + from, from, why);
}

/* ---- characters ---- */

uint32_t pattern_character(PatternReader *r)
{
    unsigned char lead = (unsigned char)r->text[r->at++];
    int more = lead < 0xC0 ? 0 : lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
    uint32_t c = more == 0 ? lead : lead & (0x3FU >> more);
    while (more-- > 0) c = c << 6 | ((unsigned char)r->text[r->at++] & 0x3F);
    return c;
}

static Status write_literal(Text *out, uint32_t c)
{
    if (c < ' ' || c > '~') return text_printf(out, "\\x{%X}", c);
    return text_printf(out, strchr("\\^$.[]|()?*+{}#", (int)c) != NULL ? "\\%c" : "%c", (char)c);
}

/* Without case Oniguruma also compares single characters with two: "ss" with U+00DF. */
static Status check_folds(PatternReader *r, size_t from, uint32_t c, uint32_t lowest)
{
    static const char *const PAIRS[] = { "SS", "FF", "FI", "FL", "ST" };
    bool joins = r->before == 0x2BC || (lowest >= 0x2BE && lowest <= 0x36F && r->before != 0) ||
                 (lowest >= 0x531 && lowest <= 0x556 && r->before != 0);
    for (size_t i = 0; i < sizeof PAIRS / sizeof *PAIRS; i++)
        joins |= r->before == (uint32_t)PAIRS[i][0] && lowest == (uint32_t)PAIRS[i][1];
    r->before = lowest;
    if (!joins && !charset_has(r->long_folds, c)) return OK;
    return pattern_refuse(r, from,
                          "without case is equal to several characters in Oniguruma; "
                          "write out which characters are meant");
}

static Status read_literal(PatternReader *r, const PatternFlags *f, size_t from, uint32_t c)
{
    CharSet same;
    if (!f->any_case) r->before = 0;
    if (!f->any_case) return write_literal(r->out, c);
    TRY(charset_range(r->scratch, c, c, &same));
    TRY(charset_fold(r->scratch, same, &same));
    if (r->ruby) TRY(check_folds(r, from, c, same.edge[0]));
    if (same.n == 2 && same.edge[1] == same.edge[0] + 1) return write_literal(r->out, c);
    return charset_write(&r->reader, r->scratch, same, r->out);
}

/* ---- what is between pieces ---- */

/* Comments, and blanks where (?x) is on. */
static Status skip_blanks(PatternReader *r, const PatternFlags *f)
{
    while (r->at < r->n) {
        const char *at = r->text + r->at;
        if (f->extended && strchr(" \t\n\r", *at) != NULL) {
            r->at++;
        } else if (f->extended && strchr("\f\v", *at) != NULL) {
            return pattern_refuse(r, r->at, "is no blank for all programs; take it out");
        } else if (f->extended && *at == '#') {
            const char *end = strchr(at, '\n');
            r->at = end == NULL ? r->n : (size_t)(end + 1 - r->text);
        } else if (text_starts(at, "(?#")) {
            const char *end = strchr(at, ')');
            if (end == NULL) return pattern_refuse(r, r->at, "is not closed: add a )");
            if (memchr(at, '\\', (size_t)(end - at)) != NULL)
                return pattern_refuse(r, r->at, "has a \\ in a comment; take it out");
            r->at = (size_t)(end + 1 - r->text);
        } else {
            break;
        }
    }
    return OK;
}

/* ---- quantifiers ---- */

static bool digits(PatternReader *r, int32_t *out)
{
    size_t from = r->at;
    for (*out = 0; r->at < r->n && r->text[r->at] >= '0' && r->text[r->at] <= '9'; r->at++) {
        if (*out <= REPEATS_MAX) *out = *out * 10 + (r->text[r->at] - '0');
    }
    return r->at > from;
}

/* {n}, {n,}, {,m} or {n,m}; anything else is a text. */
static Status read_braces(PatternReader *r, Repeat *out, bool *is)
{
    size_t from = r->at++;
    bool least = digits(r, &out->least), most = false;
    bool comma = r->at < r->n && r->text[r->at] == ',';
    out->most = out->least;
    out->fixed = !comma;
    if (comma) {
        r->at++;
        most = digits(r, &out->most);
        if (!most) out->most = ENDLESS;
    }
    *is = (least || most) && r->at < r->n && r->text[r->at] == '}';
    r->at++;
    if (*is && (out->least > REPEATS_MAX || out->most > REPEATS_MAX))
        return pattern_refuse(r, from, "repeats more often than 1000 times");
    if (*is && out->most != ENDLESS && out->most < out->least)
        return pattern_refuse(r, from, "has a lower bound above the upper one; exchange them");
    if (*is) return OK;
    size_t inside = strspn(r->text + from + 1, "0123456789, ");
    r->at = from;
    if (r->ruby || inside == 0 || r->text[from + 1 + inside] != '}') return OK;
    return pattern_refuse(r, from, "is no number of times; write {n}, {n,} or {n,m}");
}

/* Oniguruma knows no lazy {n} and no possessive braces: what follows repeats the whole again. */
static Status read_repeat(PatternReader *r, Repeat *out, bool *is)
{
    char c = '\0', next = '\0';
    if (r->at < r->n) c = r->text[r->at];
    bool braces = c == '{';
    *out = (Repeat){ .least = c == '+', .most = c == '?' ? 1 : ENDLESS };
    *is = c == '*' || c == '+' || c == '?';
    if (*is) r->at++;
    if (braces) TRY(read_braces(r, out, is));
    if (*is && r->at < r->n) next = r->text[r->at];
    if ((next == '?' && !(out->fixed && r->ruby)) || (next == '+' && !(braces && r->ruby))) {
        out->mode = next;
        r->at++;
    }
    return OK;
}

/* Puts a text before the piece that begins at `start`. */
static Status put_before(Text *out, size_t start, const char *text)
{
    size_t n = strlen(text);
    TRY(text_append(out, text, n));
    memmove(out->data + start + n, out->data + start, out->used - n - start);
    memcpy(out->data + start, text, n);
    return OK;
}

static Status write_repeat(PatternReader *r, const Piece *p, const Repeat *q, bool again)
{
    bool sign = (q->most == ENDLESS && q->least <= 1) || (q->least == 0 && q->most == 1);
    bool group = q->mode == '+' && !sign;
    if (again) TRY(put_before(r->out, p->start, "(?:"));
    if (again) TRY(text_printf(r->out, ")"));
    if (group) TRY(put_before(r->out, p->start, "(?>"));
    if (sign)
        TRY(text_printf(r->out, "%c", q->most == 1 ? '?' : q->least == 1 ? '+' : '*'));
    else if (q->most == ENDLESS)
        TRY(text_printf(r->out, "{%d,}", q->least));
    else if (q->least == q->most)
        TRY(text_printf(r->out, "{%d}", q->least));
    else
        TRY(text_printf(r->out, "{%d,%d}", q->least, q->most));
    if (group) return text_printf(r->out, ")");
    bool fixed = q->least == q->most; /* lazy or not, it takes as many */
    return q->mode == 0 || fixed ? OK : text_printf(r->out, "%c", q->mode);
}

/* Oniguruma's X{1,3}+ is (?:X{1,3})+. For one character that is X+, which no search takes long for. */
static bool joins_repeats(const PatternReader *r, const Piece *p, Repeat *q)
{
    const char *at = r->text + r->at;
    if (!r->ruby || !p->one || q->mode != 0 || at[-1] != '}' || *at != '+') return false;
    if (at[1] == '?' || at[1] == '+' || (q->least > 1 && q->most != ENDLESS)) return false;
    q->most = ENDLESS;
    return true;
}

static Status read_repeats(PatternReader *r, const PatternFlags *f, Piece *p)
{
    for (int n = 0;; n++) {
        Repeat q;
        bool is = false;
        TRY(skip_blanks(r, f));
        size_t from = r->at;
        TRY(read_repeat(r, &q, &is));
        if (!is) return OK;
        if (p->kind != PIECE_ITEM)
            return pattern_refuse(r, from, "repeats what is no character or group");
        if (n > 0 && !r->ruby)
            return pattern_refuse(r, from, "repeats a repetition; put that into (?:...)");
        if (p->empty && (n == 0 || q.most == ENDLESS))
            return pattern_refuse(r, from,
                                  "repeats what may match nothing; let it match at least "
                                  "one character");
        if (joins_repeats(r, p, &q)) r->at++;
        TRY(write_repeat(r, p, &q, n > 0));
        p->empty |= q.least == 0;
        r->before = 0;
    }
}

/* ---- groups ---- */

/* The body of a group up to its ); `open` is written before it. */
static Status read_body(PatternReader *r, PatternFlags f, size_t from, const char *open,
                        bool *empty)
{
    if (++r->depth > DEPTH_MAX) return pattern_refuse(r, from, "nests more than 100 groups");
    TRY(text_printf(r->out, "%s", open));
    TRY(read_alternatives(r, f, empty));
    r->depth--;
    if (r->at >= r->n) {
        r->at = from + 1;
        return pattern_refuse(r, from, "is not closed: add a )");
    }
    r->at++;
    return text_printf(r->out, ")");
}

/* Letters that switch something, up to : or ). Ruby's m is the s of others, and its ^ and $ always know
 * lines. */
static Status read_flags(PatternReader *r, size_t from, PatternFlags *f)
{
    bool on = true;
    for (; r->at < r->n && r->text[r->at] != ':' && r->text[r->at] != ')'; r->at++) {
        switch (r->text[r->at]) {
        case '-': on = false; continue;
        case 'i': f->any_case = on; continue;
        case 'x': f->extended = on; continue;
        case 'm': *(r->ruby ? &f->dot_all : &f->lines) = on; continue;
        case 's':
            if (r->ruby) break;
            f->dot_all = on;
            continue;
        case 'u':
            if (r->ruby || !on) break;
            continue;
        default: break;
        }
        r->at++;
        return pattern_refuse(r, from,
                              r->ruby ? "is no group that can be translated; its options "
                                        "may be i, m and x"
                                      : "is no group that can be translated; its flags "
                                        "may be i, m, s, x and u");
    }
    if (r->at >= r->n) return pattern_refuse(r, from, "is not closed: add a )");
    bool none = r->at == from + 2 && r->text[r->at] == ')';
    return none ? pattern_refuse(r, from, "has no flag; take it out") : OK;
}

static Status read_flag_group(PatternReader *r, PatternFlags *f, size_t from, Piece *p)
{
    PatternFlags inner = *f;
    TRY(read_flags(r, from, &inner));
    if (r->text[r->at++] == ':') return read_body(r, inner, from, "(?:", &p->empty);
    p->kind = PIECE_NOTHING;
    p->empty = true;
    if (!r->ruby && r->depth > 0) /* fancy-regex keeps some of these beyond their group */
        return pattern_refuse(r, from, "sets a flag within a group; write (?i:...)");
    if (!r->ruby) {
        *f = inner;
        return OK;
    }
    if (++r->depth > DEPTH_MAX) return pattern_refuse(r, from, "nests more than 100 groups");
    TRY(text_printf(r->out, "(?:")); /* the rest of the group, with its other alternatives */
    TRY(read_alternatives(r, inner, &p->empty));
    r->depth--;
    return text_printf(r->out, ")");
}

static Status read_look(PatternReader *r, const PatternFlags *f, size_t from, const char *open,
                        Piece *p)
{
    bool behind = open[2] == '<';
    if (r->ruby && r->behind > 0)
        return pattern_refuse(r, from, "looks around within a lookbehind; take one apart");
    p->kind = PIECE_ASSERTION;
    r->behind += behind;
    TRY(read_body(r, *f, from, open, &p->empty));
    r->behind -= behind;
    p->empty = true;
    r->before = 0;
    return OK;
}

static Status read_group(PatternReader *r, PatternFlags *f, Piece *p)
{
    static const char *const LOOKS[] = { "(?=", "(?!", "(?<=", "(?<!" };
    size_t from = r->at;
    const char *at = r->text + from;
    if (at[1] == '*') {
        r->at += 2;
        return pattern_refuse(r, from, "is a callout or a verb; write \\( for the sign");
    }
    for (size_t i = 0; i < sizeof LOOKS / sizeof *LOOKS; i++) {
        if (!text_starts(at, LOOKS[i])) continue;
        r->at += strlen(LOOKS[i]);
        return read_look(r, f, from, LOOKS[i], p);
    }
    r->at += at[1] == '?' ? 3 : 1;
    if (at[1] != '?' && r->ruby && r->behind > 0)
        return pattern_refuse(r, from, "is a capture in a lookbehind; write (?:...)");
    if (at[1] != '?' || at[2] == ':') return read_body(r, *f, from, "(?:", &p->empty);
    if (at[2] == '<' || at[2] == '\'' || at[2] == 'P')
        return pattern_refuse(r, from, "is a group with a name or a reference; write (?:...)");
    if (at[2] == '>' && r->ruby && r->behind > 0)
        return pattern_refuse(r, from, "is atomic within a lookbehind; write (?:...)");
    if (at[2] == '>') return read_body(r, *f, from, "(?>", &p->empty);
    r->at = from + 2;
    return read_flag_group(r, f, from, p);
}

/* ---- escapes ---- */

static Status write_boundary(PatternReader *r, bool negated)
{
    static const char *const PART[2][4] = { { "(?:(?<=", ")(?!", ")|(?<!", ")(?=" },
                                            { "(?:(?<=", ")(?=", ")|(?<!", ")(?!" } };
    CharSet word;
    TRY(pattern_words(r, true, &word));
    for (int i = 0; i < 4; i++) {
        TRY(text_printf(r->out, "%s", PART[negated][i]));
        TRY(charset_write(&r->reader, r->scratch, word, r->out));
    }
    return text_printf(r->out, "))");
}

static Status read_assertion(PatternReader *r, const PatternFlags *f, size_t from, char c, Piece *p)
{
    p->kind = PIECE_ASSERTION;
    p->empty = true;
    r->before = 0;
    if (c == 'b' || c == 'B') {
        if (!r->ruby && r->at < r->n && r->text[r->at] == '{')
            return pattern_refuse(r, from, "with a { has another meaning; write a lookaround");
        return write_boundary(r, c == 'B');
    }
    if (c == 'Z' && !r->ruby)
        return pattern_refuse(r, from, "is before all newlines at the end; write (?=\\n*\\z)");
    if (c == '^' || c == '$') {
        if (r->ruby) return text_printf(r->out, "%c", c);
        if (f->lines) return text_printf(r->out, c == '^' ? "(?<![^\\x{A}])" : "(?![^\\x{A}])");
        c = c == '^' ? 'A' : 'z';
    }
    return text_printf(r->out, "\\%c", c);
}

static Status read_escape(PatternReader *r, const PatternFlags *f, Piece *p)
{
    size_t from = r->at++;
    if (r->at >= r->n) return pattern_refuse(r, r->n, "a \\ has nothing after it");
    char c = r->text[r->at];
    CharSet set;
    bool is = false;
    if (strchr("bBAzZ", c) != NULL) {
        r->at++;
        return read_assertion(r, f, from, c, p);
    }
    if (c == 'R') {
        r->at++;
        p->one = false;
        return text_printf(r->out, "(?>\\r\\n|[\\x{A}-\\x{D}\\x{85}\\x{2028}\\x{2029}])");
    }
    if (c == 'N' || c == 'O') {
        r->at++;
        return text_printf(r->out, c == 'N' ? "[^\\x{A}]" : "[\\x{0}-\\x{10FFFF}]");
    }
    TRY(pattern_class_escape(r, f, from, false, &set, &is));
    if (is) return charset_write(&r->reader, r->scratch, set, r->out);
    uint32_t literal = 0;
    TRY(pattern_character_escape(r, from, false, &literal));
    return read_literal(r, f, from, literal);
}

/* ---- pieces, sequences, alternatives ---- */

static Status read_item(PatternReader *r, PatternFlags *f, Piece *p)
{
    size_t from = r->at;
    char c = r->text[from];
    CharSet set;
    Repeat q;
    bool is = false;
    if (c == '(') return read_group(r, f, p);
    p->one = true;
    if (c == '\\') return read_escape(r, f, p);
    if (c == '[') {
        r->at++;
        r->before = 0;
        TRY(pattern_class(r, f, 0, &set));
        return charset_write(&r->reader, r->scratch, set, r->out);
    }
    if (c == '.') {
        r->at++;
        r->before = 0;
        return text_printf(r->out, f->dot_all ? "[\\x{0}-\\x{10FFFF}]" : "[^\\x{A}]");
    }
    if (c == '^' || c == '$') {
        r->at++;
        return read_assertion(r, f, from, c, p);
    }
    TRY(read_repeat(r, &q, &is));
    if (is) return pattern_refuse(r, from, "has nothing before it to repeat; write \\ before it");
    return read_literal(r, f, from, pattern_character(r));
}

static Status read_sequence(PatternReader *r, PatternFlags *f, bool *empty)
{
    *empty = true;
    for (;;) {
        TRY(skip_blanks(r, f));
        if (r->at >= r->n || r->text[r->at] == '|' || r->text[r->at] == ')') return OK;
        Piece p = { .start = r->out->used };
        ArenaMark mark = arena_mark(r->scratch);
        TRY(read_item(r, f, &p));
        TRY(read_repeats(r, f, &p));
        arena_release(r->scratch, mark);
        *empty &= p.empty;
    }
}

static Status read_alternatives(PatternReader *r, PatternFlags flags, bool *empty)
{
    *empty = false;
    for (;;) {
        bool none = false;
        TRY(read_sequence(r, &flags, &none));
        *empty |= none;
        if (r->at >= r->n || r->text[r->at] == ')') return OK;
        r->at++;
        r->before = 0;
        TRY(text_printf(r->out, "|"));
    }
}

static Status translate(PatternReader *r, int unicode)
{
    CharSetKind kind;
    bool empty = false;
    size_t bad = 0;
    if (!text_utf8_valid(r->text, r->n, &bad))
        return FAIL(ERR_FORMAT, "a pattern has no UTF-8 at byte %zu", bad);
    TRY(charset_reader(r->scratch, unicode, &r->reader));
    TRY(charset_named(r->scratch, "FOLDS", 5, &r->long_folds, &kind));
    TRY(read_alternatives(r, (PatternFlags){ 0 }, &empty));
    if (r->at < r->n) return pattern_refuse(r, r->at, "closes no group; write \\)");
    return OK;
}

Status pattern_translate(const char *pattern, PatternDialect dialect, int unicode, Text *out)
{
    Arena scratch = { 0 };
    PatternReader r = { .text = pattern,
                        .n = strlen(pattern),
                        .ruby = dialect == PATTERN_ONIGURUMA,
                        .scratch = &scratch,
                        .out = out };
    TRY(text_append(out, "", 0));
    TRY(arena_reserve(&scratch, "pattern", (size_t)1 << 28));
    Status s = translate(&r, unicode);
    arena_free(&scratch);
    return s;
}
