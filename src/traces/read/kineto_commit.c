/*
 * kineto_commit: see kineto_commit.h.
 *
 * Equal texts, tracks and arguments are stored once. Most events repeat those of an earlier one, so
 * a trace of gigabytes of text needs few megabytes. Columns reserve addresses for the largest
 * possible trace and take memory as they grow; so rows never move.
 */
#include "traces/read/kineto_commit.h"

#include "engine/base/json.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* STEP_BYTES: by how much a column grows. SELF_BYTES: limit of the arena for small tables. */
#ifdef HOSTILE
enum { STEP_BYTES = 1 << 10, SELF_BYTES = 256 << 20, FIRST_SLOTS = 1 << 3 };
#else
enum { STEP_BYTES = 1 << 16, SELF_BYTES = 256 << 20, FIRST_SLOTS = 1 << 8 };
#endif

/* ---- columns and tables ---- */

static Status column_init(Column *c, const char *name, size_t each, int64_t rows_max)
{
    c->each = each;
    return arena_init(&c->arena, name, MEM_HOST, (size_t)rows_max * each + 2 * (size_t)STEP_BYTES);
}

/* Makes room for n rows in all. The rows never move, so pointers to them stay good. */
static inline Status column_room(Column *c, int64_t n)
{
    void *at = NULL;
    if (n <= c->room) return OK;
    TRY(arena_alloc(&c->arena, STEP_BYTES, &at));
    c->room = (int64_t)(c->arena.used_bytes / c->each);
    return OK;
}

/* The table of slots can double until half of it holds rows_max rows. */
static Status rows_init(Rows *r, const char *name, size_t each, int64_t rows_max)
{
    size_t slots = FIRST_SLOTS;
    while (slots < 4 * (size_t)rows_max) slots *= 2;
    r->slots = FIRST_SLOTS;
    TRY(column_init(&r->column, name, each, rows_max));
    TRY(arena_init(&r->table, name, MEM_HOST, slots * sizeof *r->slot));
    return ARENA_ZEROED(&r->table, FIRST_SLOTS, &r->slot);
}

static void *rows_at(const Rows *r, uint32_t i)
{
    return r->column.arena.base + i * r->column.each;
}

/* The slot of the row that equals *row, or the free one where it belongs. */
static uint32_t rows_slot(const Rows *r, const void *row)
{
    uint32_t at = (uint32_t)XXH3_64bits(row, r->column.each) & (r->slots - 1);
    while (r->slot[at] != 0 && memcmp(rows_at(r, r->slot[at] - 1), row, r->column.each) != 0)
        at = (at + 1) & (r->slots - 1);
    return at;
}

static uint32_t rows_find(const Rows *r, const void *row) { return r->slot[rows_slot(r, row)] - 1; }

/* Finds the row that equals *row, or appends it. *out: its number. The table of slots doubles in
 * place when it is half full, and is then rebuilt from the rows. */
static Status rows_id(Rows *r, const void *row, uint32_t *out)
{
    uint32_t at = rows_slot(r, row);
    if (r->slot[at] == 0) {
        TRY(column_room(&r->column, (int64_t)r->n + 1));
        memcpy(rows_at(r, r->n++), row, r->column.each);
        r->slot[at] = r->n;
    }
    *out = r->slot[at] - 1;
    if (r->n < r->slots / 2) return OK;
    arena_release(&r->table, (ArenaMark){ 0 });
    r->slots *= 2;
    TRY(ARENA_ZEROED(&r->table, r->slots, &r->slot));
    for (uint32_t i = 0; i < r->n; i++) r->slot[rows_slot(r, rows_at(r, i))] = i + 1;
    return OK;
}

/* ---- one element ---- */

/* The fields of one element of traceEvents. Bit f of `has`: field f was there. */
typedef struct Element {
    Events *e;
    const Batch *b;
    uint64_t has;
    Item f[FIELDS];
} Element;

/* Fields of the element being committed. A number that is missing, or does not fit, is -1 or NaN; a
 * text is string 0. */
static inline bool has_field(const Element *x, Field f) { return x->has >> f & 1; }
static inline int64_t whole_field(const Element *x, Field f)
{
    return has_field(x, f) ? x->f[f].whole : -1;
}
static inline double real_field(const Element *x, Field f)
{
    return has_field(x, f) ? x->f[f].real : (double)NAN;
}

static inline int32_t int32_field(const Element *x, Field f)
{
    int64_t v = whole_field(x, f);
    return v < INT32_MIN || v > INT32_MAX ? -1 : (int32_t)v;
}

static inline Status text_field(const Element *x, Field f, uint32_t *out)
{
    const Item *i = &x->f[f];
    *out = 0;
    if (!has_field(x, f)) return OK;
    return strings_id_hashed(&x->e->strings, item_text(x->b, i), i->text.bytes, i->hash, out);
}

/* Reads a device or stream that is written as a text. -1: it is not a number. */
static int32_t text_number(const Element *x, Field f)
{
    char copy[16] = "", *end = copy;
    if (!has_field(x, f) || x->f[f].text.bytes >= sizeof copy) return -1;
    memcpy(copy, item_text(x->b, &x->f[f]), x->f[f].text.bytes);
    long v = strtol(copy, &end, 10);
    return end == copy || *end != '\0' || v < INT32_MIN || v > INT32_MAX ? -1 : (int32_t)v;
}

/* The track of an element: a new one for a new pair of pid and tid. */
static Status track_of(const Element *x, uint32_t *out)
{
    EventsMemory *m = x->e->own;
    uint32_t ids[2];
    TRY(text_field(x, FIELD_PID, &ids[0]));
    TRY(text_field(x, FIELD_TID, &ids[1]));
    TRY(rows_id(&m->track_ids, ids, out));
    if (*out < x->e->n_tracks) return OK;
    TRY(column_room(&m->column[COL_TRACKS], x->e->n_tracks + 1));
    x->e->tracks[x->e->n_tracks++] = (Track){ .pid = ids[0], .tid = ids[1] };
    return OK;
}

/* The row of the element's collective; EVENT_NONE if it has no such field. */
static Status collective_of(const Element *x, uint32_t *out)
{
    static const uint64_t ANY = (uint64_t)1 << FIELD_COLLECTIVE | (uint64_t)1 << FIELD_IN_ELEMENTS |
                                (uint64_t)1 << FIELD_GROUP | (uint64_t)1 << FIELD_RANKS;
    *out = EVENT_NONE;
    if ((x->has & ANY) == 0) return OK;
    Collective c;
    memset(&c, 0, sizeof c); /* equal rows are found by their bytes */
    c.peer = int32_field(x, has_field(x, FIELD_SOURCE) ? FIELD_SOURCE : FIELD_DESTINATION);
    c.in_elements = whole_field(x, FIELD_IN_ELEMENTS);
    c.out_elements = whole_field(x, FIELD_OUT_ELEMENTS);
    c.group_size = whole_field(x, FIELD_GROUP_SIZE);
    uint32_t *texts[] = { &c.name,      &c.dtype, &c.in_split,
                          &c.out_split, &c.group, &c.group_description,
                          &c.ranks };
    for (int i = 0; i < 7; i++) TRY(text_field(x, FIELD_COLLECTIVE + i, texts[i]));
    return rows_id(&x->e->own->collectives, &c, out);
}

/* An operator without arguments, collective or sequence number has no row. */
static Status op_detail(const Element *x, uint32_t *out)
{
    static const uint64_t ARGS = (uint64_t)15 << FIELD_DIMS;
    Events *e = x->e;
    OpDetail d = { .args = EVENT_NONE, .sequence = whole_field(x, FIELD_SEQUENCE) };
    TRY(collective_of(x, &d.collective));
    if ((x->has & ARGS) != 0) {
        OpArgs a = { 0 };
        uint32_t *texts[] = { &a.dims, &a.types, &a.strides, &a.concrete };
        for (int i = 0; i < 4; i++) TRY(text_field(x, FIELD_DIMS + i, texts[i]));
        TRY(rows_id(&e->own->args, &a, &d.args));
    } else if (d.collective == EVENT_NONE && !has_field(x, FIELD_SEQUENCE)) {
        return OK;
    }
    TRY(column_room(&e->own->column[COL_OPS], e->n_ops + 1));
    *out = (uint32_t)e->n_ops;
    e->ops[e->n_ops++] = d;
    return OK;
}

/* Old profilers write device and stream as pid and tid only. */
static Status gpu_detail(const Element *x, uint32_t *out)
{
    Events *e = x->e;
    GpuDetail d = { .device = has_field(x, FIELD_DEVICE) ? int32_field(x, FIELD_DEVICE)
                                                         : text_number(x, FIELD_PID),
                    .stream = has_field(x, FIELD_STREAM) ? int32_field(x, FIELD_STREAM)
                                                         : text_number(x, FIELD_TID) };
    TRY(collective_of(x, &d.collective));
    TRY(column_room(&e->own->column[COL_GPU], e->n_gpu + 1));
    *out = (uint32_t)e->n_gpu;
    e->gpu[e->n_gpu++] = d;
    return OK;
}

/* The row of the table of its kind; kinds that no analysis asks have none. */
static Status event_detail(const Element *x, uint32_t kind, uint32_t *out)
{
    *out = EVENT_NONE;
    if (kind == EVENT_CPU_OP) return op_detail(x, out);
    return event_on_gpu((uint8_t)kind) ? gpu_detail(x, out) : OK;
}

/* Room is made in all columns before the first is written, so that an error leaves no half row. */
static Status put_event(const Element *x, uint32_t kind, uint32_t index)
{
    Events *e = x->e;
    int64_t i = e->n;
    double dur = has_field(x, FIELD_DUR) ? x->f[FIELD_DUR].real : 0;
    if (!has_field(x, FIELD_NAME) || !isfinite(real_field(x, FIELD_TS)) || !(dur >= 0) ||
        !isfinite(dur)) {
        e->counts.incomplete++;
        return OK;
    }
    /* Events are numbered by 32 bits. */
    if (i == EVENT_NONE) return FAIL(ERR_MEMORY, "%s: more than %u events", e->path, EVENT_NONE);
    /* The columns from TS to KIND have a row for each event. */
    for (int c = COL_TS; c <= COL_KIND; c++) TRY(column_room(&e->own->column[c], i + 1));
    TRY(text_field(x, FIELD_NAME, &e->name[i]));
    TRY(track_of(x, &e->track[i]));
    TRY(event_detail(x, kind, &e->detail[i]));
    e->ts[i] = x->f[FIELD_TS].real;
    e->dur[i] = dur;
    e->index[i] = index;
    e->link[i] = whole_field(x, FIELD_CORRELATION);
    e->external[i] = whole_field(x, FIELD_EXTERNAL);
    e->kind[i] = (uint8_t)kind;
    e->n++;
    return OK;
}

/* An arrow without an id or a time links nothing. */
static Status put_flow(const Element *x, bool from)
{
    Events *e = x->e;
    if (!has_field(x, FIELD_ID) || !isfinite(real_field(x, FIELD_TS))) {
        e->counts.incomplete++;
        return OK;
    }
    TRY(column_room(&e->own->column[COL_FLOWS], e->n_flows + 1));
    Flow *f = &e->flows[e->n_flows];
    *f = (Flow){ .id = x->f[FIELD_ID].whole, .from = from };
    TRY(track_of(x, &f->track));
    e->n_flows++;
    return OK;
}

/* Profilers write a [memory] event at each allocation and each release. */
static Status put_memory(const Element *x)
{
    Events *e = x->e;
    if (!isfinite(real_field(x, FIELD_TS))) {
        e->counts.incomplete++;
        return OK;
    }
    uint32_t pid = 0;
    TRY(text_field(x, FIELD_PID, &pid));
    TRY(column_room(&e->own->column[COL_MEMORY], e->n_memory + 1));
    e->memory[e->n_memory++] =
        (MemoryPoint){ .ts = x->f[FIELD_TS].real,
                       .pid = pid,
                       .bytes = whole_field(x, FIELD_MEMORY_BYTES),
                       .allocated = whole_field(x, FIELD_MEMORY_ALLOCATED),
                       .reserved = whole_field(x, FIELD_MEMORY_RESERVED),
                       .device = int32_field(x, FIELD_MEMORY_DEVICE),
                       .device_type = int32_field(x, FIELD_MEMORY_DEVICE_TYPE) };
    return OK;
}

/* The names of row `row` of m->named. */
static TrackName *named_at(const EventsMemory *m, uint32_t row)
{
    return (TrackName *)(void *)m->column[COL_NAMED].arena.base + row;
}

/* A metadata event names a process or thread, which may come before or after its events. So names
 * are kept by id, and name_tracks gives them to the tracks at the end. */
static Status put_name(const Element *x)
{
    EventsMemory *m = x->e->own;
    uint32_t key, ids[2], row, id = 0, before = m->named.n;
    TRY(text_field(x, FIELD_NAME, &key));
    bool label = key == m->key_process_labels, process = label || key == m->key_process_name;
    if (!process && key != m->key_thread_name) return OK;
    TRY(text_field(x, FIELD_PID, &ids[0]));
    ids[1] = EVENT_NONE;
    if (!process) TRY(text_field(x, FIELD_TID, &ids[1]));
    TRY(rows_id(&m->named, ids, &row));
    TRY(column_room(&m->column[COL_NAMED], m->named.n));
    TrackName *t = named_at(m, row);
    if (row == before) *t = (TrackName){ 0 };
    TRY(text_field(x, label ? FIELD_META_LABELS : FIELD_META_NAME, &id));
    *(label ? &t->label : &t->name) = id;
    return OK;
}

static Status put_element(const Element *x, uint32_t kind, uint32_t index)
{
    switch (kind) {
    case ELEMENT_FLOW_FROM: return put_flow(x, true);
    case ELEMENT_FLOW_TO: return put_flow(x, false);
    case ELEMENT_MEMORY: return put_memory(x);
    case ELEMENT_META: return put_name(x);
    default: return put_event(x, kind, index);
    }
}

/* Goes over the items of a block, element by element. A second "args" of an element replaces the
 * first, as in a JSON object with a key twice. */
Status commit_batch(Events *e, const Batch *b)
{
    static const uint64_t OF_EVENT =
        ((uint64_t)2 << FIELD_ID) - 1; /* bits of fields outside args */
    Element x;
    x.e = e;
    x.b = b;
    for (int64_t i = 0; i < b->n;) {
        const Item *first = &b->item[i++];
        /* Fields that are not there are not cleared: `has` says which are valid. */
        x.has = 0;
        for (; i < b->n && b->item[i].field != ITEM_ELEMENT; i++) {
            const Item *item = &b->item[i];
            if (item->field == ITEM_ARGS) {
                x.has &= OF_EVENT;
            } else {
                x.f[item->field] = *item;
                x.has |= (uint64_t)1 << item->field;
            }
        }
        TRY(put_element(&x, (uint32_t)first->pair[0], (uint32_t)(e->counts.seen + first->pair[1])));
    }
    e->counts.seen += b->seen;
    e->counts.malformed += b->malformed;
    e->counts.unused += b->unused;
    return OK;
}

/* ---- names of tracks, and the members around the events ---- */

/* Gives tracks the names that metadata events have for their ids. */
static void name_tracks(Events *e)
{
    const EventsMemory *m = e->own;
    for (int64_t i = 0; i < e->n_tracks; i++) {
        Track *t = &e->tracks[i];
        uint32_t process = rows_find(&m->named, (uint32_t[]){ t->pid, EVENT_NONE });
        uint32_t thread = rows_find(&m->named, (uint32_t[]){ t->pid, t->tid });
        if (process != EVENT_NONE) {
            t->process_name = named_at(m, process)->name;
            t->process_label = named_at(m, process)->label;
        }
        if (thread != EVENT_NONE) t->thread_name = named_at(m, thread)->name;
    }
}

void commit_end(Events *e)
{
    EventsMemory *m = e->own;
    e->args = rows_at(&m->args, 0);
    e->collectives = rows_at(&m->collectives, 0);
    e->n_args = m->args.n;
    e->n_collectives = m->collectives.n;
    name_tracks(e);
}

/* The number of a JSON text; with `any`, of any value as JSON without blanks. 0: there is none. */
static Status value_id(Events *e, const Json *v, bool any, Arena *a, uint32_t *out)
{
    Text text = { 0 };
    *out = 0;
    if (v == NULL || (!any && v->type != JSON_TEXT)) return OK;
    if (!any) return strings_id(&e->strings, v->text, strlen(v->text), out);
    TRY(text_init(&text, a));
    TRY(json_print(v, false, &text));
    return strings_id(&e->strings, text.data, text.used, out);
}

/* A whole number; -1: there is none. A value of another type counts as malformed. 2^53 is the last
 * number below which a double holds all whole numbers. */
static int64_t whole_of(Events *e, const Json *v)
{
    if (v == NULL || v->type == JSON_NULL) return -1;
    e->counts.malformed += v->type != JSON_NUMBER;
    bool whole = v->type == JSON_NUMBER && v->number == floor(v->number);
    return whole && fabs(v->number) <= 9007199254740992.0 ? (int64_t)v->number : -1;
}

/* If the member is there twice, the last one counts, as in JSON. */
static Status read_distributed_info(Events *e, const Json *v, Arena *a)
{
    const Json *groups = json_get(v, "pg_config");
    e->rank = whole_of(e, json_get(v, "rank"));
    e->world = whole_of(e, json_get(v, "world_size"));
    e->n_groups = 0;
    e->counts.malformed += groups != NULL && groups->type != JSON_ARRAY;
    for (const Json *g = json_first(groups); g != NULL; g = g->next) {
        TRY(ARENA_GROW(&e->own->self, e->n_groups + 1, &e->own->groups_room, &e->groups));
        Group *to = &e->groups[e->n_groups++];
        TRY(value_id(e, json_get(g, "pg_name"), false, a, &to->name));
        TRY(value_id(e, json_get(g, "ranks"), true, a, &to->ranks));
    }
    return OK;
}

static Status read_devices(Events *e, const Json *v, Arena *a)
{
    e->n_devices = 0;
    for (const Json *d = json_first(v); d != NULL; d = d->next) {
        TRY(ARENA_GROW(&e->own->self, e->n_devices + 1, &e->own->devices_room, &e->devices));
        TRY(value_id(e, json_get(d, "name"), false, a, &e->devices[e->n_devices++].name));
    }
    return OK;
}

/* Members of the object around traceEvents that are read. The base time has more digits than a
 * double holds, so it is not read as JSON: its digits are read as an integer. */
static const struct {
    const char *key;
    JsonType type;
    Status (*read)(Events *e, const Json *v, Arena *a);
} TOP[] = { { "distributedInfo", JSON_OBJECT, read_distributed_info },
            { "deviceProperties", JSON_ARRAY, read_devices },
            { "baseTimeNanoseconds", JSON_NUMBER, NULL } };
enum { TOPS = sizeof TOP / sizeof TOP[0] };

/* The row of TOP for a key; TOPS: none. */
static int top_of(const char *key, size_t n)
{
    int i = 0;
    while (i < TOPS && (strlen(TOP[i].key) != n || memcmp(TOP[i].key, key, n) != 0)) i++;
    return i;
}

bool commit_wants(const char *key, size_t n) { return top_of(key, n) < TOPS; }

/* The caller has asked commit_wants. A value of the wrong type is counted and left out. */
Status commit_top(Events *e, const char *key, size_t n, const char *text)
{
    const int i = top_of(key, n);
    Arena a = { 0 };
    Json *v = NULL;
    size_t bytes = strlen(text), bad = 0;
    if (TOP[i].read == NULL) {
        const char *digits = *text == '"' ? text + 1 : text;
        char *end = NULL;
        e->base_ns = strtoll(digits, &end, 10);
        e->counts.malformed += end == digits;
        return OK;
    }
    TRY(arena_init(&a, "a member", MEM_HOST, 2 * sizeof(Json) * bytes + (1 << 16)));
    Status s = json_parse(text, bytes, &a, &v, &bad);
    bool good = json_is(v, TOP[i].type);
    if (s == OK && good) s = TOP[i].read(e, v, &a);
    if (s == OK && !good) e->counts.malformed++;
    arena_free(&a);
    return s;
}

/* ---- begin ---- */

/* Columns of Events point at the begin of their arenas, which never move. */
static Status columns_init(Events *e, EventsMemory *m, int64_t rows_max)
{
#define COLUMN(upper, lower)                                                                       \
    TRY(column_init(&m->column[COL_##upper], #lower, sizeof *e->lower, rows_max));                 \
    e->lower = (void *)m->column[COL_##upper].arena.base;
    EVENT_COLUMNS(COLUMN)
#undef COLUMN
    return column_init(&m->column[COL_NAMED], "named", sizeof(TrackName), rows_max);
}

/* Reserves addresses for the most that the text can hold: an event takes at least 16 bytes of text,
 * and a string has two quotes. Texts of unknown or huge size get a fixed reservation. */
Status commit_init(Events *e, uint64_t text_max)
{
    int64_t rows_max = text_max / 16 < EVENT_NONE ? (int64_t)(text_max / 16) + 64 : EVENT_NONE;
    Arena self = { 0 };
    TRY(arena_init(&self, "a trace", MEM_HOST,
                   text_max < SELF_BYTES ? 4 * text_max + (1 << 20) : SELF_BYTES));
    Status s = ARENA_ZEROED(&self, 1, &e->own);
    if (s != OK) {
        arena_free(&self);
        return s;
    }
    EventsMemory *m = e->own;
    m->self = self;
    TRY(text_max > (uint64_t)1 << 36 ? strings_init(&e->strings)
                                     : strings_reserve(&e->strings, text_max + 1024));
    TRY(columns_init(e, m, rows_max));
    TRY(rows_init(&m->track_ids, "track ids", 2 * sizeof(uint32_t), rows_max));
    TRY(rows_init(&m->named, "named tracks", 2 * sizeof(uint32_t), rows_max));
    TRY(rows_init(&m->args, "arguments of operators", sizeof(OpArgs), rows_max));
    TRY(rows_init(&m->collectives, "collectives", sizeof(Collective), rows_max));
    const struct {
        const char *key;
        uint32_t *id;
    } keys[] = { { "process_name", &m->key_process_name },
                 { "process_labels", &m->key_process_labels },
                 { "thread_name", &m->key_thread_name } };
    for (int i = 0; i < 3; i++)
        TRY(strings_id(&e->strings, keys[i].key, strlen(keys[i].key), keys[i].id));
    return OK;
}
