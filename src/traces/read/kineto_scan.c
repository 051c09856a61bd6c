/*
 * kineto_scan: see kineto_scan.h.
 *
 * Traces are gigabytes of small objects with known keys, and this scanner is made for them.
 * engine/base/scan.h reads other JSON. It walks the text once:
 *
 * - A key is found by a hash of its length and first eight bytes.
 * - Decimals are converted by integer arithmetic.
 * - Strings are searched eight bytes at a time.
 * - The text ends with NULs, which JSON never contains. So a loop need not compare with the end
 *   before it meets one.
 *
 * Where nothing is lost it is tolerant: it takes control characters in strings, unquoted words, NaN
 * and Infinity, numbers in quotes, missing commas between events, and unknown escapes.
 */
#include "traces/read/kineto_scan.h"

#include "engine/base/scan.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What a key is looked up in, and how its value is kept. DEPTH_MAX: nested_end has a bit for
 * each. */
enum { EVENT, ARGS, CATEGORY };
enum { TEXT, WHOLE, REAL };
enum { DEPTH_MAX = 64 };

/* A known key of an event or of its arguments, or a known category. */
typedef struct Key {
    const char *key;
    uint8_t object, form, value; /* value: Field or ElementKind */
} Key;

/* Fields, older spellings of them, and categories. The spellings are those of Kineto (CUDA, HIP,
 * MTIA) and of profilers before it. */
static const Key KEYS[] = {
#define FIELD(name, object, key, form) { key, object, form, FIELD_##name },
#include "traces/read/kineto_fields.def"
#undef FIELD
    { "external id", ARGS, WHOLE, FIELD_EXTERNAL },
    { "cpu_op", CATEGORY, 0, EVENT_CPU_OP },
    { "Operator", CATEGORY, 0, EVENT_CPU_OP },
    { "cuda_runtime", CATEGORY, 0, EVENT_RUNTIME },
    { "hip_runtime", CATEGORY, 0, EVENT_RUNTIME },
    { "mtia_runtime", CATEGORY, 0, EVENT_RUNTIME },
    { "Runtime", CATEGORY, 0, EVENT_RUNTIME },
    { "cuda_driver", CATEGORY, 0, EVENT_DRIVER },
    { "kernel", CATEGORY, 0, EVENT_KERNEL },
    { "Kernel", CATEGORY, 0, EVENT_KERNEL },
    { "gpu_memcpy", CATEGORY, 0, EVENT_MEMCPY },
    { "Memcpy", CATEGORY, 0, EVENT_MEMCPY },
    { "gpu_memset", CATEGORY, 0, EVENT_MEMSET },
    { "Memset", CATEGORY, 0, EVENT_MEMSET },
    { "python_function", CATEGORY, 0, EVENT_PYTHON },
    { "user_annotation", CATEGORY, 0, EVENT_ANNOTATION },
    { "gpu_user_annotation", CATEGORY, 0, EVENT_GPU_ANNOTATION },
    { "cuda_sync", CATEGORY, 0, EVENT_SYNC },
    { "overhead", CATEGORY, 0, EVENT_OVERHEAD },
    { "ac2g", CATEGORY, 0, ELEMENT_FLOW_FROM },
    { "async_cpu_to_gpu", CATEGORY, 0, ELEMENT_FLOW_FROM },
    { "async_gpu", CATEGORY, 0, ELEMENT_FLOW_FROM },
};
enum { N_KEYS = sizeof KEYS / sizeof KEYS[0] };

/* ---- words ---- */

static inline uint64_t word_at(const char *s)
{
    uint64_t w;
    memcpy(&w, s, sizeof w);
    return w;
}

/* Returns the first eight bytes of s, filled up with NULs if it is shorter. At least seven bytes
 * after s must be readable. */
static inline uint64_t head_of(const char *s, size_t n)
{
    return n >= 8 ? word_at(s) : word_at(s) & (((uint64_t)1 << 8 * n) - 1);
}

/* Nine bits of a multiplicative hash: KEY_SLOTS is 512. */
static inline uint32_t key_slot(uint64_t head, size_t n, int object)
{
    uint64_t h = (head ^ (n << 56) ^ ((uint64_t)object << 50)) * 0x9E3779B97F4A7C15u;
    return (uint32_t)(h >> 55);
}

/* Fills the table by open addressing. It is not full, so a search always ends. */
void scan_keys(KeyTable *k)
{
    *k = (KeyTable){ 0 };
    for (int i = 0; i < N_KEYS; i++) {
        char s[32] = "";
        size_t n = strlen(KEYS[i].key);
        memcpy(s, KEYS[i].key, n);
        uint64_t head = head_of(s, n);
        uint32_t at = key_slot(head, n, KEYS[i].object);
        while (k->slot[at].row != 0) at = (at + 1) % KEY_SLOTS;
        k->slot[at].head = head;
        k->slot[at].row = (uint8_t)(i + 1);
        k->slot[at].bytes = (uint8_t)n;
    }
}

/* Compares the head and the length first. Only longer keys need the rest compared. */
static inline const Key *find_key(const KeyTable *k, const char *s, size_t n, int object)
{
    uint64_t head = head_of(s, n);
    uint32_t at = key_slot(head, n, object);
    for (; k->slot[at].row != 0; at = (at + 1) % KEY_SLOTS) {
        const Key *key = &KEYS[k->slot[at].row - 1];
        if (k->slot[at].head == head && k->slot[at].bytes == n && key->object == object &&
            (n <= 8 || memcmp(key->key + 8, s + 8, n - 8) == 0))
            return key;
    }
    return NULL;
}

static inline bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

const char *scan_blank(const char *p)
{
    const uint64_t spaces = 0x2020202020202020u;
    while (is_blank(*p)) {
        p++;
        while (word_at(p) == spaces) p += 8;
    }
    return p;
}

/* Notes that the text is wrong at p: it either ends there (b->ended) or is not JSON. Returns
 * NULL. */
static const char *stop_at(Batch *b, const char *p)
{
    b->ended = p >= b->end;
    return NULL;
}

/* Sets bit 0x80 in each byte of w that equals c. Only the lowest set bit is exact, because the
 * subtraction can borrow into bytes above it. */
static inline uint64_t bytes_equal(uint64_t w, char c)
{
    const uint64_t ones = 0x0101010101010101u;
    uint64_t x = w ^ (ones * (unsigned char)c);
    return (x - ones) & ~x & (ones << 7);
}

/* Finds the closing quote of the string whose text begins at p. *plain: it has no backslash. */
static const char *string_end(Batch *b, const char *p, bool *plain)
{
    *plain = true;
    for (;;) {
        uint64_t hit = 0;
        for (; p < b->end; p += 8) {
            uint64_t w = word_at(p);
            hit = bytes_equal(w, '"') | bytes_equal(w, '\\');
            if (hit != 0) break;
        }
        if (hit == 0) return stop_at(b, b->end);
        p += __builtin_ctzll(hit) / 8;
        if (*p == '"') return p;
        *plain = false;
        p += 2;
        if (p > b->end) return stop_at(b, b->end);
    }
}

/* Returns the position after the bracket that closes the one at p. *blanks is set if there are
 * blanks between its tokens. */
static const char *nested_end(Batch *b, const char *p, bool *blanks)
{
    uint64_t square = 0; /* bit d: the bracket at depth d opens an array */
    int depth = 0;
    bool plain;
    assert(*p == '[' || *p == '{');
    do {
        char c = *p;
        if (c == '"') {
            p = string_end(b, p + 1, &plain);
            if (p == NULL) return NULL;
        } else if (c == '[' || c == '{') {
            if (depth == DEPTH_MAX) return stop_at(b, p);
            uint64_t bit = (uint64_t)1 << depth;
            square = c == '[' ? square | bit : square & ~bit;
            depth++;
        } else if (c == ']' || c == '}') {
            depth--;
            if (depth < 0 || (square >> depth & 1) != (c == ']')) return stop_at(b, p);
        } else if (is_blank(c)) {
            *blanks = true;
        } else if (c == '\0') {
            return stop_at(b, p);
        }
        p++;
    } while (depth > 0);
    return p;
}

/* By character: 1 ends a word, 2 cannot stand in one. */
static const uint8_t WORD_END[256] = {
    ['\0'] = 1, [' '] = 1, ['\n'] = 1, ['\r'] = 1, ['\t'] = 1, [','] = 1,
    ['}'] = 1,  [']'] = 1, ['"'] = 2,  ['{'] = 2,  ['['] = 2,  [':'] = 2
};
static inline bool ends_word(char c) { return WORD_END[(unsigned char)c] == 1; }

/* Skips a number, true, or a word that should have quotes. */
static const char *word_end(Batch *b, const char *p)
{
    const char *begin = p;
    while (WORD_END[(unsigned char)*p] == 0) p++;
    if (p == begin || !ends_word(*p) || p >= b->end) return stop_at(b, p);
    return p;
}

const char *scan_value(Batch *b, const char *p)
{
    bool unused = false;
    if (*p == '{' || *p == '[') return nested_end(b, p, &unused);
    if (*p != '"') return word_end(b, p);
    p = string_end(b, p + 1, &unused);
    return p == NULL ? NULL : p + 1;
}

/* ---- numbers ---- */

/* A number as it is written, before it becomes an integer or a double. */
typedef struct Decimal {
    uint64_t digits; /* value = digits / 10^scale */
    int scale;
    bool negative, exact; /* no more than 19 digits and no exponent */
} Decimal;

/* Reads the number at p and returns the position after it. Digits may overflow; `exact` is then
 * false. */
static inline const char *read_decimal(const char *p, Decimal *d)
{
    uint64_t v = 0;
    d->negative = *p == '-';
    p += d->negative;
    const char *begin = p;
    for (; *p >= '0' && *p <= '9'; p++) v = v * 10 + (uint64_t)(*p - '0');
    int n = p - begin > 64 ? 64 : (int)(p - begin);
    bool any = n > 0;
    d->scale = 0;
    if (*p == '.') {
        begin = ++p;
        for (; *p >= '0' && *p <= '9'; p++) v = v * 10 + (uint64_t)(*p - '0');
        d->scale = p - begin > 64 ? 64 : (int)(p - begin);
    }
    d->digits = v;
    d->exact = any && n + d->scale <= 19 && *p != 'e' && *p != 'E';
    return p;
}

/* Up to 2^53 and 10^19 both operands are exact, and the division rounds once. So the quotient is
 * the nearest double (W. D. Clinger, "How to read floating point numbers accurately", PLDI
 * 1990). */
static bool decimal_real(const Decimal *d, double *out)
{
    static const double TEN[] = { 1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,
                                  1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19 };
    if (!d->exact || d->digits > (uint64_t)1 << 53) return false;
    double v = (double)d->digits / TEN[d->scale];
    *out = d->negative ? -v : v;
    return true;
}

static bool decimal_whole(const Decimal *d, int64_t *out)
{
    if (!d->exact || d->scale > 0 || d->digits > INT64_MAX) return false;
    *out = d->negative ? -(int64_t)d->digits : (int64_t)d->digits;
    return true;
}

/* The slow path: strtod over the token [p, end). False: it is not a number. */
static bool token_real(const char *p, const char *end, double *out)
{
    char copy[400], *stopped = NULL;
    size_t n = (size_t)(end - p);
    if (n == 0 || n >= sizeof copy) return false;
    memcpy(copy, p, n);
    copy[n] = '\0';
    *out = strtod(copy, &stopped);
    return stopped == copy + n && !is_blank(copy[0]);
}

/* Also takes 3.0 and 0x1f. Larger numbers than 2^53 are exact only if they are plain digits. */
static bool whole_of(const char *p, const char *end, int64_t *out)
{
    Decimal d;
    double v = 0;
    if (read_decimal(p, &d) == end && decimal_whole(&d, out)) return true;
    if (!token_real(p, end, &v) || !(fabs(v) <= 9007199254740992.0) || v != floor(v)) return false;
    *out = (int64_t)v;
    return true;
}

/* ---- values ---- */

/* There is room: batch_init counts the items that a text can hold. */
static Item *push_item(Batch *b, uint32_t field)
{
    Item *i = &b->item[b->n++];
    i->field = field;
    return i;
}

/* The text lies in the block, or in the scratch if it had to be changed. */
static void push_text(Batch *b, uint32_t field, const char *s, size_t n)
{
    Item *i = push_item(b, field);
    i->text.at =
        s >= b->text && s < b->end ? (uint32_t)(s - b->text) : (uint32_t)(s - b->scratch) | SCRATCH;
    i->text.bytes = (uint32_t)n;
    i->hash = strings_hash(s, n);
}

/* Decodes the string [p, end), quotes included, into the scratch. If an escape is wrong, the text
 * is kept as it was written. */
static void push_escaped(Batch *b, uint32_t field, const char *p, const char *end)
{
    size_t n = (size_t)(end - p);
    char *copy = b->scratch + b->scratch_used;
    memcpy(copy, p, n);
    copy[n] = '\0';
    Scan s = scan_begin(copy);
    const char *text = scan_string(&s);
    if (!scan_end(&s)) {
        memcpy(copy, p, n);
        push_text(b, field, copy + 1, n - 2);
        b->scratch_used += n;
        return;
    }
    push_text(b, field, text, strlen(text));
    b->scratch_used += n;
}

/* Keeps the value [p, end) without the blanks between its tokens, so that equal values are equal
 * texts. */
static void push_compact(Batch *b, uint32_t field, const char *p, const char *end)
{
    char *begin = b->scratch + b->scratch_used, *out = begin;
    while (p < end) {
        const char *from = p;
        bool plain;
        if (*p == '"') {
            p = string_end(b, p + 1, &plain) + 1;
            memcpy(out, from, (size_t)(p - from));
            out += p - from;
        } else {
            if (!is_blank(*p)) *out++ = *p;
            p++;
        }
    }
    b->scratch_used += (size_t)(out - begin);
    push_text(b, field, begin, (size_t)(out - begin));
}

/* A number that cannot be read is left out, as if its key were missing. */
static void push_number(Batch *b, const Key *k, const char *p, const char *end)
{
    Item i = { .field = k->value };
    if (k->form == WHOLE ? whole_of(p, end, &i.whole) : token_real(p, end, &i.real))
        b->item[b->n++] = i;
}

/* Reads a plain number at p in one pass over its digits. Returns the position after it, or NULL for
 * any other number, which push_number then reads. */
static inline const char *read_plain_number(Batch *b, const Key *k, const char *p)
{
    Decimal d;
    Item i = { .field = k->value };
    if (*p != '-' && (*p < '0' || *p > '9')) return NULL;
    p = read_decimal(p, &d);
    if (!ends_word(*p) || p >= b->end) return NULL;
    if (k->form == WHOLE ? !decimal_whole(&d, &i.whole) : !decimal_real(&d, &i.real)) return NULL;
    b->item[b->n++] = i;
    return p;
}

/* Skips the value at p and keeps it if k, its key, is wanted. k NULL: it is not wanted. */
static const char *scan_field(Batch *b, const Key *k, const char *p)
{
    bool plain = true, blanks = false;
    const char *end;
    if (k == NULL) return scan_value(b, p);
    if (*p == '"') {
        end = string_end(b, p + 1, &plain);
        if (end == NULL) return NULL;
        if (k->form != TEXT)
            push_number(b, k, p + 1, end);
        else if (plain)
            push_text(b, k->value, p + 1, (size_t)(end - p - 1));
        else
            push_escaped(b, k->value, p, end + 1);
        return end + 1;
    }
    if (k->form != TEXT && (end = read_plain_number(b, k, p)) != NULL) return end;
    end = *p == '[' || *p == '{' ? nested_end(b, p, &blanks) : word_end(b, p);
    if (end == NULL) return NULL;
    if (k->form != TEXT)
        push_number(b, k, p, end);
    else if (blanks)
        push_compact(b, k->value, p, end);
    else if (end - p != 4 || memcmp(p, "null", 4) != 0)
        push_text(b, k->value, p, (size_t)(end - p));
    return end;
}

/* ---- events ---- */

/* Scans the object whose brace is at p. Returns the position after it; NULL: it is not whole. It
 * calls itself once at most, for "args". */
static const char *scan_members(Batch *b, const char *p, int object)
{
    bool plain;
    for (p = scan_blank(p + 1); *p != '}';) {
        if (*p != '"') return stop_at(b, p);
        const char *key = p + 1, *end = string_end(b, key, &plain);
        if (end == NULL) return NULL;
        size_t n = (size_t)(end - key);
        p = scan_blank(end + 1);
        if (*p != ':') return stop_at(b, p);
        p = scan_blank(p + 1);
        if (object == EVENT && n == 4 && memcmp(key, "args", 4) == 0 && *p == '{') {
            push_item(b, ITEM_ARGS);
            p = scan_members(b, p, ARGS);
        } else {
            p = scan_field(b, find_key(b->keys, key, n, object), p);
        }
        if (p == NULL) return NULL;
        p = scan_blank(p);
        if (*p == ',')
            p = scan_blank(p + 1);
        else if (*p != '}')
            return stop_at(b, p);
    }
    return p + 1;
}

/* Decides from phase, category and name what kind of element the items from `first` on are. */
static uint32_t kind_of_element(Batch *b, int64_t first)
{
    const Item *found[FIELD_NAME + 1] = { NULL };
    for (int64_t i = first; i < b->n; i++)
        if (b->item[i].field <= FIELD_NAME) found[b->item[i].field] = &b->item[i];
    const Item *ph = found[FIELD_PH], *cat = found[FIELD_CAT], *name = found[FIELD_NAME];
    if (ph == NULL) return ELEMENT_UNUSED;
    b->phases = true;
    if (ph->text.bytes != 1) return ELEMENT_UNUSED;
    const Key *k = NULL;
    if (cat != NULL) k = find_key(b->keys, item_text(b, cat), cat->text.bytes, CATEGORY);
    switch (*item_text(b, ph)) {
    case 'X': return k != NULL && k->value < EVENT_KINDS ? k->value : EVENT_OTHER;
    case 'M': return ELEMENT_META;
    case 's':
        return k != NULL && k->value == ELEMENT_FLOW_FROM ? ELEMENT_FLOW_FROM : ELEMENT_UNUSED;
    case 'f': return k != NULL && k->value == ELEMENT_FLOW_FROM ? ELEMENT_FLOW_TO : ELEMENT_UNUSED;
    case 'i':
    case 'I':
        return name != NULL && name->text.bytes == 8 &&
                       memcmp(item_text(b, name), "[memory]", 8) == 0
                   ? ELEMENT_MEMORY
                   : ELEMENT_UNUSED;
    default: return ELEMENT_UNUSED;
    }
}

/* Scans the element whose brace is at p. If no analysis reads its kind, its items are dropped
 * again. */
static const char *scan_element(Batch *b, const char *p)
{
    int64_t first = b->n;
    size_t scratch = b->scratch_used;
    uint32_t kind = ELEMENT_UNUSED;
    push_item(b, ITEM_ELEMENT);
    p = scan_members(b, p, EVENT);
    if (p != NULL) {
        kind = kind_of_element(b, first + 1);
        b->item[first].pair[0] = (int32_t)kind;
        b->item[first].pair[1] = (int32_t)b->seen++;
        b->unused += kind == ELEMENT_UNUSED;
    }
    if (p == NULL || kind == ELEMENT_UNUSED || (kind == EVENT_PYTHON && !b->python)) {
        b->n = first;
        b->scratch_used = scratch;
    }
    return p;
}

/* Does an event begin at the brace p? Yes if its first key is one of an event's. "id" is not
 * enough: other objects have it too. */
static bool begins_event(const KeyTable *keys, const char *p, const char *end)
{
    const char *key = scan_blank(p + 1) + 1, *close = key;
    if (key >= end || key[-1] != '"') return false;
    while (close < end && *close >= 'a' && *close <= 'z') close++;
    const Key *k = find_key(keys, key, (size_t)(close - key), EVENT);
    return k != NULL && k->value != FIELD_ID && *close == '"';
}

/* An event begins after "}", a comma and "{". */
const char *scan_next_event(const KeyTable *keys, const char *at, const char *end)
{
    for (const char *p = at; (p = memchr(p, '}', (size_t)(end - p))) != NULL; p++) {
        const char *next = scan_blank(p + 1);
        if (*next != ',') continue;
        next = scan_blank(next + 1);
        if (*next == '{' && begins_event(keys, next, end)) return next;
    }
    return NULL;
}

/* As scan_next_event, from the end. */
const char *scan_last_event(const KeyTable *keys, const char *begin, const char *end)
{
    for (const char *p = end; (p = memrchr(begin, '{', (size_t)(p - begin))) != NULL;) {
        const char *before = p;
        while (before > begin && is_blank(before[-1])) before--;
        if (before == begin || *--before != ',') continue;
        while (before > begin && is_blank(before[-1])) before--;
        if (before > begin && before[-1] == '}' && begins_event(keys, p, end)) return p;
    }
    return NULL;
}

/* A "]" after "}" ends traceEvents if the outer object ends or goes on with a key. */
const char *scan_closing(const char *at, const char *end)
{
    for (const char *p = at; (p = memchr(p, '}', (size_t)(end - p))) != NULL; p++) {
        const char *next = scan_blank(p + 1), *behind;
        if (*next != ']') continue;
        behind = scan_blank(next + 1);
        if (behind >= end || *behind == '}' || (*behind == ',' && *scan_blank(behind + 1) == '"'))
            return next;
    }
    return NULL;
}

/* Every stop says where and why, so that the walk can go on with more text. A malformed element is
 * counted and skipped up to the next event. */
const char *scan_events(Batch *b, const char *p, ScanStop *why)
{
    b->n = b->seen = b->malformed = b->unused = 0;
    b->scratch_used = 0;
    for (;;) {
        p = scan_blank(p);
        if (*p == ',') {
            p++;
            continue;
        }
        if (p >= b->end) break;
        if (*p == ']') {
            *why = STOP_CLOSED;
            return p + 1;
        }
        const char *next = *p == '{' ? scan_element(b, p) : scan_value(b, p);
        if (next != NULL && *p != '{') {
            b->seen++;
            b->malformed++;
        }
        if (next == NULL && b->ended) {
            *why = STOP_INSIDE;
            return p;
        }
        if (next == NULL) {
            b->seen++;
            b->malformed++;
            next = scan_next_event(b->keys, p, b->end);
            *why = STOP_LOST;
            if (next == NULL) return p;
        }
        p = next;
    }
    *why = STOP_END;
    return p;
}

Status batch_init(Batch *b, Arena *a, size_t text_bytes)
{
    /* An item takes at least four bytes of text: a key, a colon and a value, or braces around one. */
    TRY(ARENA_NEW(a, text_bytes / 4 + 64, &b->item));
    return ARENA_NEW(a, text_bytes + 2 * (size_t)SCAN_PAD, &b->scratch);
}
