/* pattern_class: classes in brackets, and escapes that stand for a set or a character. */
#include "corpus/tokenizer/pattern_private.h"

#include <string.h>

enum { NEST_MAX = 20, NAME_BYTES = 48 };

/* Sets of names that Oniguruma adds to those of the table: sums, and (-) what is taken away. fancy-regex has them
 * in [[:...:]] alone, and of them ASCII alone. */
static const char *const POSIX[][2] = {
    { "alnum", "+alphabetic+nd" },
    { "alpha", "+alphabetic" },
    { "ascii", "+ascii" },
    { "blank", "+zs" },
    { "cntrl", "+cc" },
    { "digit", "+nd" },
    { "graph", "+assigned-whitespace-cc" },
    { "lower", "+lowercase" },
    { "print", "+assigned-cc-zl-zp" },
    { "punct", "+p+s" },
    { "space", "+whitespace" },
    { "upper", "+uppercase" },
    { "word", "+alphabetic+m+nd+pc" },
};

static Status add_range(Arena *a, uint32_t first, uint32_t last, CharSet *set)
{
    CharSet more;
    TRY(charset_range(a, first, last, &more));
    return charset_combine(a, *set, more, CHARSET_OR, set);
}

static Status formula(Arena *a, const char *at, CharSet *out)
{
    *out = (CharSet){ 0 };
    while (*at != '\0') {
        size_t n = strcspn(at + 1, "+-");
        CharSet part;
        CharSetKind kind = CHARSET_UNKNOWN;
        TRY(charset_named(a, at + 1, n, &part, &kind));
        TRY(charset_combine(a, *out, part, *at == '+' ? CHARSET_OR : CHARSET_MINUS, out));
        at += n + 1;
    }
    return OK;
}

static Status hexadecimal(Arena *a, CharSet *out)
{
    TRY(charset_range(a, '0', '9', out));
    TRY(add_range(a, 'A', 'F', out));
    return add_range(a, 'a', 'f', out);
}

static Status posix(Arena *a, const char *name, size_t n, CharSet *out, bool *is)
{
    *is = n == 6 && memcmp(name, "xdigit", n) == 0;
    if (*is) return hexadecimal(a, out);
    for (size_t i = 0; i < sizeof POSIX / sizeof *POSIX; i++) {
        if (strlen(POSIX[i][0]) != n || memcmp(POSIX[i][0], name, n) != 0) continue;
        *is = true;
        TRY(formula(a, POSIX[i][1], out));
        return strcmp(POSIX[i][0], "blank") == 0 ? add_range(a, '\t', '\t', out) : OK;
    }
    return OK;
}

Status pattern_words(const PatternReader *r, bool outside, CharSet *out)
{
    TRY(formula(r->scratch, "+alphabetic+m+nd+pc", out));
    if (!r->ruby) return add_range(r->scratch, 0x200C, 0x200D, out);
    if (!outside) return OK;
    TRY(add_range(r->scratch, 0xB2, 0xB3, out));
    TRY(add_range(r->scratch, 0xB9, 0xB9, out));
    return add_range(r->scratch, 0xBC, 0xBE, out);
}

/* ---- \p{...} ---- */

/* The name without blanks, - and _, in small letters, as both programs compare it; the length, or 0. */
static size_t plain_name(const char *from, size_t n, char out[NAME_BYTES])
{
    size_t used = 0;
    for (size_t i = 0; i < n; i++) {
        char c = from[i];
        if (c == ' ' || c == '_' || c == '-') continue;
        if (used == NAME_BYTES) return 0;
        out[used++] = (char)(c >= 'A' && c <= 'Z' ? c | 0x20 : c);
    }
    return used;
}

/* "gc=", "sc=" of fancy-regex. The kind that it asks for, or CHARSET_UNKNOWN. */
static CharSetKind prefix(const char *name, size_t n, size_t *bytes)
{
    static const char *const PREFIX[] = { "gc", "generalcategory", "sc", "script" };
    *bytes = 0;
    for (size_t i = 0; i < sizeof PREFIX / sizeof *PREFIX; i++) {
        size_t k = strlen(PREFIX[i]);
        if (n <= k || memcmp(name, PREFIX[i], k) != 0) continue;
        if (name[k] != '=' && name[k] != ':') continue;
        *bytes = k + 1;
        return i < 2 ? CHARSET_CATEGORY : CHARSET_SCRIPT;
    }
    return CHARSET_UNKNOWN;
}

static Status find_property(const PatternReader *r, size_t from, const char *text, size_t n_text,
                            CharSet *out)
{
    static const char WHY[] =
        "is no category, script or property that is known here; write its characters";
    char name[NAME_BYTES];
    size_t n = plain_name(text, n_text, name), skip = 0;
    CharSetKind want = r->ruby ? CHARSET_UNKNOWN : prefix(name, n, &skip), kind;
    bool is = false;
    if (n > skip) TRY(charset_named(r->scratch, name + skip, n - skip, out, &kind));
    if (n <= skip) return pattern_refuse(r, from, WHY);
    if (kind != CHARSET_UNKNOWN && (want == CHARSET_UNKNOWN || want == kind)) return OK;
    if (!r->ruby && skip == 0 && n > 2 && name[0] == 'i' && name[1] == 's')
        return find_property(r, from, name + 2, n - 2, out);
    bool words = n == 4 && memcmp(name, "word", n) == 0; /* another set in a class than outside */
    if (r->ruby && !words) TRY(posix(r->scratch, name, n, out, &is));
    return is ? OK : pattern_refuse(r, from, WHY);
}

/* r->at is behind the p or P. */
static Status read_property(PatternReader *r, const PatternFlags *f, size_t from, bool negated,
                            CharSet *out)
{
    const char *name = r->text + r->at;
    size_t n = 1;
    if (r->at < r->n && *name == '{') {
        const char *end = strchr(name, '}');
        if (end == NULL) return pattern_refuse(r, from, "is not closed: add a }");
        name++;
        n = (size_t)(end - name);
        r->at += n + 2;
    } else {
        if (r->at >= r->n) return pattern_refuse(r, from, "has no name; write \\p{L}");
        (void)pattern_character(r);
        n = (size_t)(r->text + r->at - name);
    }
    bool inverse = n > 0 && *name == '^';
    TRY(find_property(r, from, name + inverse, n - inverse, out));
    if (!r->ruby && f->any_case) TRY(charset_fold(r->scratch, *out, out));
    return negated != inverse ? charset_negate(r->scratch, *out, out) : OK;
}

/* ---- escapes ---- */

Status pattern_class_escape(PatternReader *r, const PatternFlags *f, size_t from, bool inside,
                            CharSet *out, bool *is)
{
    static const char LETTERS[] = "dDwWsShH";
    char c = r->text[r->at];
    bool upper = c >= 'A' && c <= 'Z';
    *is = strchr(LETTERS, c) != NULL;
    if (c == 'p' || c == 'P') {
        /* without braces it is a letter in Oniguruma */
        *is = !r->ruby || (r->at + 1 < r->n && r->text[r->at + 1] == '{');
        if (!*is) return OK;
        r->at++;
        return read_property(r, f, from, c == 'P', out);
    }
    if (!*is) return OK;
    r->at++;
    if ((c | 0x20) == 'w') TRY(pattern_words(r, !inside, out));
    if ((c | 0x20) == 'd') TRY(formula(r->scratch, "+nd", out));
    if ((c | 0x20) == 's') TRY(formula(r->scratch, "+whitespace", out));
    if ((c | 0x20) == 'h') TRY(hexadecimal(r->scratch, out));
    return upper ? charset_negate(r->scratch, *out, out) : OK;
}

static int digit_of(char c, int base)
{
    int value = c >= '0' && c <= '9'                     ? c - '0'
                : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10
                                                         : base;
    return value < base ? value : -1;
}

/* From `least` to `most` digits. */
static bool read_number(PatternReader *r, int base, int least, int most, uint32_t *out)
{
    int n = 0;
    for (*out = 0; n < most && r->at < r->n && digit_of(r->text[r->at], base) >= 0; n++, r->at++)
        *out = *out * (uint32_t)base + (uint32_t)digit_of(r->text[r->at], base);
    return n >= least;
}

/* The number of a character: \xHH, \x{H}, \uHHHH, \u{H}, \UHHHHHHHH, \o{7}, \07. */
static Status read_code(PatternReader *r, size_t from, char c, uint32_t *out)
{
    bool ruby = r->ruby, good = false;
    bool braces = r->at < r->n && r->text[r->at] == '{';
    int base = c == 'o' || c == '0' ? 8 : 16;
    if (braces && (c == 'x' || (c == 'u' && !ruby) || (c == 'o' && ruby))) {
        r->at++;
        good = read_number(r, base, 1, 8, out) && r->at < r->n && r->text[r->at] == '}';
        r->at++;
    } else if (c == 'x') {
        good = read_number(r, 16, ruby ? 1 : 2, 2, out) && (!ruby || *out < 0x80);
    } else if (c == 'u') {
        good = read_number(r, 16, 4, 4, out);
    } else if (c == 'U') {
        good = !ruby && read_number(r, 16, 8, 8, out);
    } else {
        good = c == '0' && ruby && read_number(r, 8, 0, 2, out);
    }
    if (good && *out < CHARSET_END && (*out < 0xD800 || *out > 0xDFFF)) return OK;
    return pattern_refuse(r, from, "is no number of a character; write \\x{...} in hexadecimal");
}

Status pattern_character_escape(PatternReader *r, size_t from, bool inside, uint32_t *out)
{
    static const char SIGNS[] = "ntrfvae", MEANT[] = "\n\t\r\f\v\a\x1B";
    uint32_t c = pattern_character(r);
    const char *sign = c < 0x80 && c != 0 ? strchr(SIGNS, (int)c) : NULL;
    *out = c;
    if (sign != NULL) {
        *out = (uint32_t)MEANT[sign - SIGNS];
        return OK;
    }
    if (inside && c == 'b') {
        *out = '\b';
        return OK;
    }
    if (c == 'x' || c == 'u' || c == 'U' || c == 'o' || c == '0')
        return read_code(r, from, (char)c, out);
    if (r->ruby && (c == 'p' || c == 'P')) return OK;
    bool angle = !r->ruby && !inside && (c == '<' || c == '>');
    bool plain = (c >= '0' && c <= '9') || (c < 0x80 && (c | 0x20) >= 'a' && (c | 0x20) <= 'z');
    if (!angle && !plain) return OK;
    return pattern_refuse(r, from,
                          "has no meaning here that can be translated; write the characters "
                          "that are meant");
}

/* ---- classes ---- */

/* One character of a class, or the end of a range. */
static Status read_end(PatternReader *r, const PatternFlags *f, CharSet *set, uint32_t *c, bool *is)
{
    size_t from = r->at;
    *is = false;
    if (r->text[r->at] != '\\') {
        *c = pattern_character(r);
        return OK;
    }
    r->at++;
    if (r->at >= r->n) return pattern_refuse(r, r->n, "a \\ has nothing after it");
    TRY(pattern_class_escape(r, f, from, true, set, is));
    return *is ? OK : pattern_character_escape(r, from, true, c);
}

static Status read_posix(PatternReader *r, size_t from, CharSet *out)
{
    const char *name = r->text + r->at + 2;
    bool inverse = *name == '^', is = false;
    size_t n = strcspn(name += inverse, ":]");
    r->at = (size_t)(name + n - r->text);
    if (text_starts(name + n, ":]")) TRY(posix(r->scratch, name, n, out, &is));
    if (!is) return pattern_refuse(r, from, "is no POSIX class; write \\[ for the sign");
    r->at += 2;
    CharSet ascii;
    TRY(charset_range(r->scratch, 0, 0x7F, &ascii));
    if (!r->ruby) TRY(charset_combine(r->scratch, *out, ascii, CHARSET_AND, out));
    return inverse ? charset_negate(r->scratch, *out, out) : OK;
}

/* Is there a - that makes a range of the character before it? */
static bool begins_range(const PatternReader *r)
{
    const char *at = r->text + r->at;
    return r->at + 1 < r->n && at[0] == '-' && at[1] != ']' && (r->ruby || at[1] != '-');
}

/* Adds one part of a class to *set; `*nested` notes a class in the class. */
static Status read_part(PatternReader *r, const PatternFlags *f, int depth, bool first,
                        CharSet *set, bool *nested)
{
    size_t from = r->at;
    const char *at = r->text + from;
    CharSet part = { 0 };
    uint32_t low = 0, high = 0;
    bool is = false;
    if (*at == '[') {
        *nested = true;
        if (at[1] == ':') TRY(read_posix(r, from, &part));
        if (at[1] != ':') r->at++;
        if (at[1] != ':') TRY(pattern_class(r, f, depth + 1, &part));
        is = true;
    } else {
        bool dash = *at == '-' && at[1] != ']' && (!first || (!r->ruby && at[1] == '-'));
        if (dash)
            return pattern_refuse(r, from,
                                  "is a - between parts of a class; write \\- for the sign");
        TRY(read_end(r, f, &part, &low, &is));
    }
    if (is && begins_range(r))
        return pattern_refuse(r, r->at, "is a - after a set; write \\- for the sign");
    high = low;
    if (!is && begins_range(r)) {
        r->at++;
        if (r->text[r->at] == '[')
            return pattern_refuse(r, from, "is a range that ends with a class; write \\[");
        TRY(read_end(r, f, &part, &high, &is));
        if (is || high < low)
            return pattern_refuse(r, from, "is a range whose end does not come after its start");
    }
    return is ? charset_combine(r->scratch, *set, part, CHARSET_OR, set)
              : add_range(r->scratch, low, high, set);
}

/* &&, and -- and ~~ of fancy-regex; 0: none of them. */
static int read_operator(const PatternReader *r)
{
    const char *at = r->text + r->at;
    if (text_starts(at, "&&")) return CHARSET_AND;
    if (r->ruby) return 0;
    return text_starts(at, "--") ? CHARSET_MINUS : text_starts(at, "~~") ? CHARSET_XOR : 0;
}

/* The operand that has been read, and what stands before its operator. */
static Status apply(const PatternReader *r, int op, CharSet left, CharSet *set)
{
    return op == 0 ? OK : charset_combine(r->scratch, left, *set, (CharSetOp)op, set);
}

static Status fold_class(PatternReader *r, size_t from, bool complex, bool negated, CharSet *set)
{
    CharSet several;
    if (complex)
        return pattern_refuse(r, from, "is a class of classes without case; write both cases");
    TRY(charset_fold(r->scratch, *set, set));
    TRY(charset_combine(r->scratch, *set, r->long_folds, CHARSET_AND, &several));
    if (!r->ruby || negated || several.n == 0) return OK;
    return pattern_refuse(r, from,
                          "has, without case, characters that equal several in Oniguruma; "
                          "write both cases");
}

Status pattern_class(PatternReader *r, const PatternFlags *f, int depth, CharSet *out)
{
    static const char EMPTY[] = "has an empty part; write what is meant, with \\ before a sign";
    size_t from = r->at - 1;
    CharSet left = { 0 }, set = { 0 };
    bool nested = false, negated = r->text[r->at] == '^', any = false; /* the operand has a part */
    int op = 0;
    r->at += negated;
    if (depth > NEST_MAX) return pattern_refuse(r, from, "nests more than 20 classes");
    for (;;) {
        if (r->at >= r->n) return pattern_refuse(r, from, "is not closed: add a ]");
        bool text = !any && op == 0 && depth == 0; /* the first ] is a character */
        if (r->text[r->at] == ']' && !text) break;
        if (text && !r->ruby && text_starts(r->text + r->at, "]-"))
            return pattern_refuse(r, from, "begins with ]-; write \\]");
        int next = read_operator(r);
        if (next == 0) {
            TRY(read_part(r, f, depth, !any, &set, &nested));
            any = true;
            continue;
        }
        if (!any) return pattern_refuse(r, from, EMPTY);
        TRY(apply(r, op, left, &set));
        r->at += 2;
        left = set;
        set = (CharSet){ 0 };
        op = next;
        any = false;
    }
    if (!any) return pattern_refuse(r, from, EMPTY);
    TRY(apply(r, op, left, &set));
    r->at++;
    *out = set;
    if (f->any_case && depth == 0) TRY(fold_class(r, from, nested || op != 0, negated, out));
    return negated ? charset_negate(r->scratch, *out, out) : OK;
}
