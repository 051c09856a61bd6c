/* item: finds entries by the archive's directory, which is at its end, and checks each place against the
 * archive's size. */
#include "dcp/item.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    END_BYTES = 22,       /* of the record that ends an archive */
    END_SEARCH = 1 << 16, /* a comment may follow it */
    LOCATOR_BYTES = 20,   /* of zip64, before the end record */
    END64_BYTES = 56,     /* that the locator names */
    DIRECTORY_BYTES = 46, /* of an entry in the directory, before its name */
    LOCAL_BYTES = 30,     /* of an entry before its data */
    EXTRA64 = 1           /* the number of an extra field with sizes of 64 bits */
};

static const ItemType types[] = {
    { "torch.float32", "torch.FloatStorage", DTYPE_F32, 4 },
    { "torch.bfloat16", "torch.BFloat16Storage", DTYPE_BF16, 2 },
    { "torch.float16", "torch.HalfStorage", DTYPE_F16, 2 },
    { "torch.float64", "torch.DoubleStorage", -1, 8 },
    { "torch.int64", "torch.LongStorage", -1, 8 },
    { "torch.int32", "torch.IntStorage", -1, 4 },
    { "torch.int16", "torch.ShortStorage", -1, 2 },
    { "torch.int8", "torch.CharStorage", -1, 1 },
    { "torch.uint8", "torch.ByteStorage", -1, 1 },
    { "torch.bool", "torch.BoolStorage", -1, 1 },
};
enum { TYPES = sizeof types / sizeof *types };

static const char *const globals[] = {
    "torch._utils._rebuild_tensor_v2",
    "collections.OrderedDict",
    "torch.Size",
    "torch.FloatStorage",
    "torch.BFloat16Storage",
    "torch.HalfStorage",
    "torch.DoubleStorage",
    "torch.LongStorage",
    "torch.IntStorage",
    "torch.ShortStorage",
    "torch.CharStorage",
    "torch.ByteStorage",
    "torch.BoolStorage",
    NULL,
};

const ItemType *item_type(const char *name)
{
    for (int i = 0; i < TYPES; i++) {
        if (strcmp(types[i].name, name) == 0 || strcmp(types[i].storage, name) == 0)
            return &types[i];
    }
    return NULL;
}

static Status wrong(const Item *item, const char *what)
{
    return FAIL(ERR_FORMAT, "%s: the archive of %.200s, %zu bytes, %s", item->path, item->name,
                item->bytes, what);
}

/* ---- the archive ---- */

static uint64_t number(const uint8_t *at, int bytes)
{
    uint64_t x = 0;
    for (int i = bytes; i > 0; i--) x = x << 8 | at[i - 1];
    return x;
}

typedef struct Directory {
    uint64_t at, entries;
} Directory;

/* Archives whose places need 64 bits have a second end record, which a locator names. */
static Status find_directory(const Item *item, Directory *out)
{
    const size_t n = item->bytes;
    size_t end = n < END_BYTES ? 0 : n - END_BYTES;
    const size_t last = end < END_SEARCH ? 0 : end - END_SEARCH;
    while (end > last && memcmp(item->data + end, "PK\5\6", 4) != 0) end--;
    if (n < END_BYTES || memcmp(item->data + end, "PK\5\6", 4) != 0)
        return wrong(item, "has no end record: it is cut off, or no archive");
    *out = (Directory){ number(item->data + end + 16, 4), number(item->data + end + 10, 2) };
    const uint8_t *locator = item->data + end - LOCATOR_BYTES;
    if (end < LOCATOR_BYTES || memcmp(locator, "PK\6\7", 4) != 0) return OK;
    const uint64_t at = number(locator + 8, 8);
    if (n < END64_BYTES || at > n - END64_BYTES || memcmp(item->data + at, "PK\6\6", 4) != 0)
        return wrong(item, "has a locator that leads nowhere");
    *out = (Directory){ number(item->data + at + 48, 8), number(item->data + at + 32, 8) };
    return OK;
}

typedef struct Entry {
    const char *name;
    uint64_t name_bytes, method, stored, bytes, local;
} Entry;

/* Fields that are all ones are in the extra field of zip64, in this order. */
static void read_extra(const uint8_t *at, uint64_t n, Entry *e)
{
    uint64_t *const field[] = { &e->bytes, &e->stored, &e->local };
    for (uint64_t i = 0; i + 4 <= n; i += 4 + number(at + i + 2, 2)) {
        const uint64_t size = number(at + i + 2, 2);
        if (number(at + i, 2) != EXTRA64) continue;
        for (uint64_t k = 0, used = 0; k < 3; k++) {
            if (*field[k] != UINT32_MAX || used + 8 > size || i + 4 + used + 8 > n) continue;
            *field[k] = number(at + i + 4 + used, 8);
            used += 8;
        }
        return;
    }
}

static Status next_entry(const Item *item, uint64_t *at, Entry *e)
{
    const uint64_t n = item->bytes;
    if (n < DIRECTORY_BYTES || *at > n - DIRECTORY_BYTES ||
        memcmp(item->data + *at, "PK\1\2", 4) != 0)
        return wrong(item, "has a damaged directory");
    const uint8_t *d = item->data + *at;
    const uint64_t name = number(d + 28, 2), extra = number(d + 30, 2), note = number(d + 32, 2);
    *e = (Entry){ (const char *)d + DIRECTORY_BYTES,
                  name,
                  number(d + 10, 2),
                  number(d + 20, 4),
                  number(d + 24, 4),
                  number(d + 42, 4) };
    if (name + extra + note > n - DIRECTORY_BYTES - *at)
        return wrong(item, "has a directory that is cut off");
    read_extra(d + DIRECTORY_BYTES + name, extra, e);
    *at += DIRECTORY_BYTES + name + extra + note;
    return OK;
}

/* Names are compared behind their first part, which is the name that torch.save gave the archive. */
static bool entry_is(const Entry *e, const char *name)
{
    const char *slash = memchr(e->name, '/', e->name_bytes);
    if (slash == NULL) return false;
    const size_t n = (size_t)(e->name + e->name_bytes - (slash + 1));
    return n == strlen(name) && memcmp(slash + 1, name, n) == 0;
}

/* Where the bytes of an entry begin, and how many there are. bytes: SIZE_MAX if there is no such entry. */
static Status find_entry(const Item *item, const char *name, size_t *at, size_t *bytes)
{
    Directory d = { 0 };
    Entry e = { 0 };
    TRY(find_directory(item, &d));
    uint64_t place = d.at, i = 0;
    *bytes = SIZE_MAX;
    for (; i < d.entries; i++) {
        TRY(next_entry(item, &place, &e));
        if (entry_is(&e, name)) break;
    }
    if (i >= d.entries) return OK;
    if (e.method != 0 || e.stored != e.bytes)
        return wrong(item, "has compressed entries, which torch.save does not write");
    const uint64_t n = item->bytes;
    if (n < LOCAL_BYTES || e.local > n - LOCAL_BYTES ||
        memcmp(item->data + e.local, "PK\3\4", 4) != 0)
        return wrong(item, "has an entry that leads nowhere");
    const uint8_t *local = item->data + e.local;
    const uint64_t head = LOCAL_BYTES + number(local + 26, 2) + number(local + 28, 2);
    if (head > n - e.local || e.bytes > n - e.local - head)
        return wrong(item, "has an entry that ends after the archive");
    *at = e.local + head;
    *bytes = e.bytes;
    return OK;
}

Status item_value(const Item *item, Arena *a, const Pickle **out)
{
    size_t at = 0, bytes = 0;
    TRY(find_entry(item, "byteorder", &at, &bytes));
    if (bytes != SIZE_MAX && (bytes != 6 || memcmp(item->data + at, "little", 6) != 0))
        return wrong(item, "was written by a processor with another order of bytes");
    TRY(find_entry(item, "data.pkl", &at, &bytes));
    if (bytes == SIZE_MAX) return wrong(item, "has no data.pkl");
    const PickleSource source = { item->path, item->data + at, bytes,
                                  item->globals != NULL ? item->globals : globals };
    return pickle_read(&source, a, out);
}

/* ---- tensors ---- */

/* Row by row and without gaps: the last index moves fastest. Dimensions of 1 may have any stride. */
static bool is_contiguous(const ItemTensor *t, const int64_t *stride, int64_t *elems)
{
    *elems = 1;
    for (int i = t->rank; i > 0; i--) {
        if (t->dim[i - 1] != 1 && stride[i - 1] != *elems) return false;
        if (__builtin_mul_overflow(*elems, t->dim[i - 1], elems)) return false;
    }
    return true;
}

/* The persistent id of a storage: ("storage", its type, its key, its device, its elements). */
static Status read_storage(const Item *item, const Pickle *p, ItemTensor *t, char *entry, size_t n)
{
    const Pickle *id = pickle_is(p, PICKLE_OUTSIDE) ? p->item[0] : NULL;
    const bool good = pickle_is(id, PICKLE_TUPLE) && id->n == 5 &&
                      pickle_is(id->item[1], PICKLE_GLOBAL) && pickle_is(id->item[2], PICKLE_TEXT);
    if (!good) return wrong(item, "has a tensor without a storage");
    t->type = item_type(id->item[1]->text);
    if (t->type == NULL) return wrong(item, "has a storage of an unknown type");
    (void)snprintf(entry, n, "data/%.64s", id->item[2]->text);
    return OK;
}

/* p: what rebuilds the tensor. */
static Status find_tensor(const Item *item, const Pickle *p, ItemTensor *out)
{
    int64_t stride[ITEM_RANK_MAX] = { 0 }, elems = 0;
    char entry[80];
    const Pickle *args = pickle_is_object(p, "torch._utils._rebuild_tensor_v2") ? p->item[1] : NULL;
    if (args == NULL || args->n < 4) return wrong(item, "holds no plain tensor");
    TRY(read_storage(item, args->item[0], out, entry, sizeof entry));
    out->rank = pickle_sizes(args->item[2], out->dim, ITEM_RANK_MAX);
    const bool strides = pickle_sizes(args->item[3], stride, ITEM_RANK_MAX) == out->rank;
    const Pickle *first = args->item[1];
    if (out->rank < 0 || !strides || !pickle_is(first, PICKLE_INT) || first->number != 0 ||
        !is_contiguous(out, stride, &elems))
        return wrong(item,
                     "has a tensor that does not lie row by row from its storage's beginning");
    TRY(find_entry(item, entry, &out->at, &out->bytes));
    if (out->bytes == SIZE_MAX) return wrong(item, "lacks the elements of its tensor");
    if (elems <= INT64_MAX / out->type->bytes && (int64_t)out->bytes == elems * out->type->bytes)
        return OK;
    return FAIL(ERR_FORMAT,
                "%s: the archive of %.200s has %zu bytes of elements, but its tensor has %" PRId64
                " elements of %s",
                item->path, item->name, out->bytes, elems, out->type->name);
}

Status item_tensor(const Item *item, Arena *a, ItemTensor *out)
{
    const Pickle *p = NULL;
    ArenaMark mark = arena_mark(a);
    TRY(item_value(item, a, &p));
    TRY(find_tensor(item, p, out));
    arena_release(a, mark);
    return OK;
}

/* ---- numbers ---- */

bool item_element(const ItemType *type, const uint8_t *at, double *out)
{
    float f = 0;
    int64_t i = 0;
    uint8_t room[sizeof i] = { 0 };
    memcpy(room, at, (size_t)type->bytes);
    if (type->dtype >= 0) {
        dtype_to_f32(&f, room, (Dtype)type->dtype, 1);
        *out = (double)f;
    } else if (strcmp(type->name, "torch.float64") == 0) {
        memcpy(out, room, sizeof *out);
    } else if (type->bytes == sizeof i || type->bytes == 4) {
        memcpy(&i, room, sizeof i);
        *out = type->bytes == 4 ? (double)(int32_t)i : (double)i;
    } else {
        return false;
    }
    return true;
}

bool item_number(const Item *item, const Pickle *p, double *out)
{
    ItemTensor t = { 0 };
    if (p->kind == PICKLE_INT) *out = (double)p->number;
    if (p->kind == PICKLE_REAL) *out = p->real;
    if (p->kind == PICKLE_INT || p->kind == PICKLE_REAL) return true;
    if (!pickle_is(p, PICKLE_OBJECT)) return false;
    if (find_tensor(item, p, &t) == OK && t.bytes == (size_t)t.type->bytes)
        return item_element(t.type, item->data + t.at, out);
    status_clear();
    return false;
}
