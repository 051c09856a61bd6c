/* pickle: a stack machine without calls. Each opcode is a row of a table: what it does, and a number for
 * that. Values come from blocks of the arena, because there are many small ones. */
#include "dcp/pickle.h"

#include <stdio.h>
#include <string.h>

enum { BLOCK_BYTES = 1 << 20, VALUE_ALIGN = 16, NAME_BYTES = 256, ALL = -1 };

typedef struct Reader {
    const PickleSource *source;
    size_t used;
    Arena *arena;
    char *block;
    size_t left;
    Pickle **stack, **memo;
    int64_t n, room, memos, memo_room;
} Reader;

/* ---- memory, bytes, the stack ---- */

static Status take_memory(Reader *r, size_t bytes, void *out)
{
    void *fresh = NULL;
    bytes = (bytes + VALUE_ALIGN - 1) / VALUE_ALIGN * VALUE_ALIGN;
    if (bytes > r->left) {
        r->left = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
        TRY(arena_alloc(r->arena, r->left, &fresh));
        r->block = fresh;
    }
    *(char **)out = r->block;
    r->block += bytes;
    r->left -= bytes;
    return OK;
}

static Status damaged(const Reader *r, const char *what)
{
    return FAIL(ERR_FORMAT, "%s: the pickle is damaged before byte %zu of %zu: %s", r->source->path,
                r->used, r->source->bytes, what);
}

static Status take_bytes(Reader *r, uint64_t n, const uint8_t **out)
{
    if (n > r->source->bytes - r->used) return damaged(r, "it ends too early");
    *out = r->source->data + r->used;
    r->used += n;
    return OK;
}

/* A number of `bytes` bytes, the lowest first. */
static Status take_number(Reader *r, int bytes, uint64_t *out)
{
    const uint8_t *at = NULL;
    TRY(take_bytes(r, (uint64_t)bytes, &at));
    *out = 0;
    for (int i = bytes; i > 0; i--) *out = *out << 8 | at[i - 1];
    return OK;
}

static Status push(Reader *r, Pickle *p)
{
    TRY(ARENA_GROW(r->arena, r->n + 1, &r->room, &r->stack));
    r->stack[r->n++] = p;
    return OK;
}

static Status push_value(Reader *r, Pickle value, Pickle **out)
{
    Pickle *p = NULL;
    TRY(take_memory(r, sizeof *p, &p));
    *p = value;
    if (out != NULL) *out = p;
    return push(r, p);
}

static Status pop(Reader *r, Pickle **out)
{
    if (r->n == 0 || r->stack[r->n - 1]->kind == PICKLE_MARK)
        return damaged(r, "an opcode lacks its operands");
    *out = r->stack[--r->n];
    return OK;
}

/* Takes `n` values off the stack, or all down to the mark, which goes too. *at: the first one; it is valid
 * until the next push. */
static Status pop_many(Reader *r, int64_t n, Pickle ***at, int64_t *count)
{
    int64_t first = r->n;
    while (first > 0 && r->n - first != n && r->stack[first - 1]->kind != PICKLE_MARK) first--;
    const bool found = n == ALL ? first > 0 : r->n - first == n;
    if (!found) return damaged(r, "an opcode lacks its operands");
    *at = r->stack + first;
    *count = r->n - first;
    r->n = n == ALL ? first - 1 : first;
    return OK;
}

static Status add_items(Reader *r, Pickle *p, Pickle *const *items, int64_t n)
{
    if (p->n + n > p->room) {
        Pickle **wider = NULL;
        const int64_t room = 2 * p->room > p->n + n ? 2 * p->room : p->n + n;
        TRY(take_memory(r, (size_t)room * sizeof(Pickle *), &wider));
        if (p->n > 0) memcpy(wider, p->item, (size_t)p->n * sizeof *wider);
        p->item = wider;
        p->room = room;
    }
    if (n > 0) memcpy(p->item + p->n, items, (size_t)n * sizeof *items);
    p->n += n;
    return OK;
}

/* ---- opcodes ---- */

/* Bytes that only frame the others. */
static Status op_skip(Reader *r, int bytes)
{
    const uint8_t *at = NULL;
    return take_bytes(r, (uint64_t)bytes, &at);
}

static Status op_plain(Reader *r, int kind)
{
    return push_value(r, (Pickle){ .kind = (PickleKind)kind }, NULL);
}

static Status op_bool(Reader *r, int value)
{
    return push_value(r, (Pickle){ .kind = PICKLE_BOOL, .number = value }, NULL);
}

/* Four bytes have a sign, fewer have none. */
static Status op_int(Reader *r, int bytes)
{
    uint64_t x = 0;
    TRY(take_number(r, bytes, &x));
    const int64_t value = bytes == 4 ? (int32_t)(uint32_t)x : (int64_t)x;
    return push_value(r, (Pickle){ .kind = PICKLE_INT, .number = value }, NULL);
}

static Status op_long(Reader *r, int unused)
{
    uint64_t bytes = 0, x = 0;
    (void)unused;
    TRY(take_number(r, 1, &bytes));
    if (bytes > sizeof x) return damaged(r, "a number has more than 64 bits");
    TRY(take_number(r, (int)bytes, &x));
    const int shift = 64 - 8 * (int)bytes;
    const int64_t value = bytes == 0 ? 0 : (int64_t)(x << shift) >> shift;
    return push_value(r, (Pickle){ .kind = PICKLE_INT, .number = value }, NULL);
}

static Status op_real(Reader *r, int bytes)
{
    const uint8_t *at = NULL;
    uint64_t bits = 0;
    Pickle p = { .kind = PICKLE_REAL };
    TRY(take_bytes(r, (uint64_t)bytes, &at));
    for (int i = 0; i < bytes; i++) bits = bits << 8 | at[i];
    memcpy(&p.real, &bits, sizeof p.real);
    return push_value(r, p, NULL);
}

static Status copy_text(Reader *r, const void *from, size_t n, char **out)
{
    TRY(take_memory(r, n + 1, out));
    memcpy(*out, from, n);
    (*out)[n] = '\0';
    return OK;
}

/* kind * 16 + the bytes of its length */
static Status op_string(Reader *r, int how)
{
    uint64_t n = 0;
    const uint8_t *at = NULL;
    char *text = NULL;
    TRY(take_number(r, how % 16, &n));
    TRY(take_bytes(r, n, &at));
    TRY(copy_text(r, at, n, &text));
    if (how / 16 == PICKLE_TEXT && strlen(text) != n) return damaged(r, "a text has a NUL");
    return push_value(r, (Pickle){ .kind = (PickleKind)(how / 16), .text = text, .n = (int64_t)n },
                      NULL);
}

static Status op_tuple(Reader *r, int n)
{
    Pickle **at = NULL, made = { .kind = PICKLE_TUPLE };
    int64_t count = 0;
    TRY(pop_many(r, n, &at, &count));
    TRY(add_items(r, &made, at, count));
    return push_value(r, made, NULL);
}

/* Adds to the list or the dict below the operands: 1 item, a key and its value, or all down to the mark. */
static Status op_add(Reader *r, int how)
{
    Pickle **at = NULL;
    int64_t count = 0;
    const PickleKind kind = (PickleKind)(how / 16);
    const int n = how % 16 == 0 ? ALL : how % 16;
    TRY(pop_many(r, n, &at, &count));
    Pickle *to = r->n > 0 ? r->stack[r->n - 1] : NULL;
    if (!pickle_is(to, kind) || (kind == PICKLE_DICT && count % 2 != 0))
        return damaged(r, "items are added to something else than a list or a dict");
    return add_items(r, to, at, count);
}

/* A number in the memo is smaller than the number of bytes before it, which bounds the memo. */
static Status op_put(Reader *r, int bytes)
{
    uint64_t i = (uint64_t)r->memos;
    if (bytes > 0) TRY(take_number(r, bytes, &i));
    if (r->n == 0 || i > r->used) return damaged(r, "the memo has a wrong number");
    const int64_t place = (int64_t)i;
    TRY(ARENA_GROW(r->arena, place + 1, &r->memo_room, &r->memo));
    while (r->memos <= place) r->memo[r->memos++] = NULL;
    r->memo[place] = r->stack[r->n - 1];
    return OK;
}

static Status op_get(Reader *r, int bytes)
{
    uint64_t i = 0;
    TRY(take_number(r, bytes, &i));
    if (i >= (uint64_t)r->memos || r->memo[i] == NULL)
        return damaged(r, "the memo lacks what is asked for");
    return push(r, r->memo[i]);
}

static Status push_global(Reader *r, const char *module, int module_n, const char *name, int name_n)
{
    char whole[NAME_BYTES], *text = NULL;
    const int n = snprintf(whole, sizeof whole, "%.*s.%.*s", module_n, module, name_n, name);
    for (const char *const *g = r->source->globals; n < NAME_BYTES && *g != NULL; g++) {
        const size_t same = strcspn(*g, "*");
        if (strncmp(*g, whole, (*g)[same] == '*' ? same : NAME_BYTES) != 0) continue;
        TRY(copy_text(r, whole, (size_t)n, &text));
        return push_value(r, (Pickle){ .kind = PICKLE_GLOBAL, .text = text, .n = n }, NULL);
    }
    return FAIL(
        ERR_FORMAT,
        "%s: the pickle names %.200s before byte %zu, which no checkpoint of this kind needs; "
        "nothing of it is run",
        r->source->path, whole, r->used);
}

/* Two lines: the module and the name. */
static Status op_global(Reader *r, int unused)
{
    const char *part[2];
    int n[2];
    (void)unused;
    for (int i = 0; i < 2; i++) {
        part[i] = (const char *)r->source->data + r->used;
        const char *end = memchr(part[i], '\n', r->source->bytes - r->used);
        if (end == NULL || end - part[i] >= NAME_BYTES) return damaged(r, "a name has no end");
        n[i] = (int)(end - part[i]);
        r->used += (size_t)n[i] + 1;
    }
    return push_global(r, part[0], n[0], part[1], n[1]);
}

static Status op_stack_global(Reader *r, int unused)
{
    Pickle *name = NULL, *module = NULL;
    (void)unused;
    TRY(pop(r, &name));
    TRY(pop(r, &module));
    if (name->kind != PICKLE_TEXT || module->kind != PICKLE_TEXT)
        return damaged(r, "a name is not a text");
    return push_global(r, module->text, NAME_BYTES, name->text, NAME_BYTES);
}

/* A call becomes a value that says what would be called. Only dictionaries of `collections` become a dict. */
static Status op_object(Reader *r, int unused)
{
    Pickle *items[3] = { NULL }, made = { .kind = PICKLE_OBJECT };
    (void)unused;
    TRY(pop(r, &items[1]));
    TRY(pop(r, &items[0]));
    if (items[0]->kind != PICKLE_GLOBAL || items[1]->kind != PICKLE_TUPLE)
        return damaged(r, "a call has no function, or no arguments");
    if ((strcmp(items[0]->text, "collections.OrderedDict") == 0 && items[1]->n == 0) ||
        strcmp(items[0]->text, "collections.defaultdict") == 0)
        return op_plain(r, PICKLE_DICT);
    TRY(add_items(r, &made, items, 3));
    return push_value(r, made, NULL);
}

static Status op_build(Reader *r, int unused)
{
    Pickle *state = NULL;
    (void)unused;
    TRY(pop(r, &state));
    Pickle *to = r->n > 0 ? r->stack[r->n - 1] : NULL;
    if (!pickle_is(to, PICKLE_OBJECT)) return damaged(r, "a state has no object");
    to->item[2] = state;
    return OK;
}

static Status op_outside(Reader *r, int unused)
{
    Pickle *id = NULL, made = { .kind = PICKLE_OUTSIDE };
    (void)unused;
    TRY(pop(r, &id));
    TRY(add_items(r, &made, &id, 1));
    return push_value(r, made, NULL);
}

#define STRING(kind, bytes) op_string, 16 * (kind) + (bytes)
#define ADD(kind, n)        op_add, 16 * (kind) + (n)

/* By opcode, with the names of Python's pickletools. */
static const struct {
    Status (*run)(Reader *r, int arg);
    int arg;
} ops[256] = {
    [0x80] = { op_skip, 1 },              /* PROTO */
    [0x95] = { op_skip, 8 },              /* FRAME */
    ['('] = { op_plain, PICKLE_MARK },    /* MARK */
    ['N'] = { op_plain, PICKLE_NONE },    /* NONE */
    ['}'] = { op_plain, PICKLE_DICT },    /* EMPTY_DICT */
    [']'] = { op_plain, PICKLE_LIST },    /* EMPTY_LIST */
    [')'] = { op_plain, PICKLE_TUPLE },   /* EMPTY_TUPLE */
    [0x88] = { op_bool, 1 },              /* NEWTRUE */
    [0x89] = { op_bool, 0 },              /* NEWFALSE */
    ['K'] = { op_int, 1 },                /* BININT1 */
    ['M'] = { op_int, 2 },                /* BININT2 */
    ['J'] = { op_int, 4 },                /* BININT */
    [0x8a] = { op_long, 0 },              /* LONG1 */
    ['G'] = { op_real, 8 },               /* BINFLOAT */
    [0x8c] = { STRING(PICKLE_TEXT, 1) },  /* SHORT_BINUNICODE */
    ['X'] = { STRING(PICKLE_TEXT, 4) },   /* BINUNICODE */
    [0x8d] = { STRING(PICKLE_TEXT, 8) },  /* BINUNICODE8 */
    ['C'] = { STRING(PICKLE_BYTES, 1) },  /* SHORT_BINBYTES */
    ['B'] = { STRING(PICKLE_BYTES, 4) },  /* BINBYTES */
    [0x8e] = { STRING(PICKLE_BYTES, 8) }, /* BINBYTES8 */
    ['t'] = { op_tuple, ALL },            /* TUPLE */
    [0x85] = { op_tuple, 1 },             /* TUPLE1 */
    [0x86] = { op_tuple, 2 },             /* TUPLE2 */
    [0x87] = { op_tuple, 3 },             /* TUPLE3 */
    ['a'] = { ADD(PICKLE_LIST, 1) },      /* APPEND */
    ['e'] = { ADD(PICKLE_LIST, 0) },      /* APPENDS */
    ['s'] = { ADD(PICKLE_DICT, 2) },      /* SETITEM */
    ['u'] = { ADD(PICKLE_DICT, 0) },      /* SETITEMS */
    [0x94] = { op_put, 0 },               /* MEMOIZE */
    ['q'] = { op_put, 1 },                /* BINPUT */
    ['r'] = { op_put, 4 },                /* LONG_BINPUT */
    ['h'] = { op_get, 1 },                /* BINGET */
    ['j'] = { op_get, 4 },                /* LONG_BINGET */
    ['c'] = { op_global, 0 },             /* GLOBAL */
    [0x93] = { op_stack_global, 0 },      /* STACK_GLOBAL */
    ['R'] = { op_object, 0 },             /* REDUCE */
    [0x81] = { op_object, 0 },            /* NEWOBJ */
    ['b'] = { op_build, 0 },              /* BUILD */
    ['Q'] = { op_outside, 0 },            /* BINPERSID */
};

Status pickle_read(const PickleSource *source, Arena *a, const Pickle **out)
{
    Reader r = { .source = source, .arena = a };
    Pickle *whole = NULL;
    for (;;) {
        uint64_t code = 0;
        TRY(take_number(&r, 1, &code));
        if (code == '.') break; /* STOP */
        if (ops[code].run == NULL)
            return FAIL(ERR_FORMAT,
                        "%s: the pickle has opcode 0x%02x at byte %zu, which no checkpoint of this "
                        "kind needs",
                        source->path, (unsigned)code, r.used - 1);
        TRY(ops[code].run(&r, ops[code].arg));
    }
    TRY(pop(&r, &whole));
    if (r.n > 0) return damaged(&r, "values are left over at its end");
    *out = whole;
    return OK;
}

/* ---- values ---- */

bool pickle_is_object(const Pickle *p, const char *name)
{
    return pickle_is(p, PICKLE_OBJECT) && strcmp(p->item[0]->text, name) == 0;
}

const Pickle *pickle_get(const Pickle *p, const char *key)
{
    if (pickle_is(p, PICKLE_OBJECT)) p = p->item[2];
    if (!pickle_is(p, PICKLE_DICT)) return NULL;
    for (int64_t i = 0; i < p->n; i += 2) {
        const Pickle *k = p->item[i];
        if (k->kind == PICKLE_TEXT && strcmp(k->text, key) == 0) return p->item[i + 1];
    }
    return NULL;
}

int pickle_sizes(const Pickle *p, int64_t *out, int most)
{
    if (pickle_is_object(p, "torch.Size")) p = p->item[1]->n == 1 ? p->item[1]->item[0] : NULL;
    if ((!pickle_is(p, PICKLE_TUPLE) && !pickle_is(p, PICKLE_LIST)) || p->n > most) return -1;
    for (int64_t i = 0; i < p->n; i++) {
        if (p->item[i]->kind != PICKLE_INT || p->item[i]->number < 0) return -1;
        out[i] = p->item[i]->number;
    }
    return (int)p->n;
}
