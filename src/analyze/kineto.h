/*
 * kineto: Chrome and Kineto JSON into Events, in blocks of text.
 *
 * Three steps, so that two threads can share the work and the result stays that of one:
 *
 *     source  bytes of a file or pipe, inflated if they are gzip
 *     scan    text of whole events -> items, a flat list of (field, value): no state but the block's
 *     commit  items -> columns, texts and tables, in the order of the file
 *
 * Strings are hashed and numbers converted by the scan; the commit only looks up and appends.
 * Private to the reader.
 */
#ifndef ANALYZE_KINETO_H
#define ANALYZE_KINETO_H

#include "analyze/events.h"

#include <zlib.h>

/* The most that a block has, and an event. */
enum { BLOCK_BYTES = 1 << 18, ELEMENT_BYTES_MAX = 16 << 20 };

/* ---- source ---- */

typedef struct Source {
    const char *path;
    int fd;
    bool gzip, pipe, ended;
    bool cut;              /* a gzip that ends early */
    uint64_t file_bytes;   /* when it was opened; no more is read */
    uint64_t taken, given; /* bytes of the file, bytes of text */
    unsigned char *in;     /* what is read and not yet given */
    size_t in_bytes, in_used;
    z_stream z;
    /* Bytes: of a block; of an event that is not malformed; the most that the text can have. */
    size_t block, element_max;
    uint64_t text_max;
    Progress *bar; /* or NULL */
} Source;

Status source_open(Source *s, const char *path, Arena *a);
/* A text that is in memory, as if it were a file's. */
void source_text(Source *s, const char *path, unsigned char *text, size_t bytes);
/* Up to n bytes of text; fewer only at the end. ERR_IO, or ERR_FORMAT for a corrupt gzip. */
Status source_read(Source *s, char *out, size_t n, size_t *got);
/* All that is left of it, checked. */
Status source_all(Source *s, Arena *a, uint8_t **out, size_t *bytes);
/* Is the file as long as when it was opened? */
Status source_check(const Source *s);
void source_close(Source *s); /* safe on { 0 } */

/* ---- scan ---- */

typedef enum Field {
#define FIELD(name, object, key, form) FIELD_##name,
#include "analyze/kineto_fields.def"
#undef FIELD
    FIELDS,
    ITEM_ELEMENT, /* begins an element: its ElementKind and its place in the block */
    ITEM_ARGS     /* begins "args": what an earlier one said is void */
} Field;

/* What an element of traceEvents is; the EventKinds, then: */
typedef enum ElementKind {
    ELEMENT_FLOW_FROM = EVENT_KINDS,
    ELEMENT_FLOW_TO,
    ELEMENT_MEMORY,
    ELEMENT_META,
    ELEMENT_UNUSED
} ElementKind;

typedef struct Item {
    uint32_t field, hash; /* hash: of a text */
    union {
        struct {
            uint32_t at, bytes; /* SCRATCH is set in `at` if the text is not in the block */
        } text;
        int64_t whole;
        double real;
        int32_t pair[2]; /* what an element is, and its place */
    };
} Item;
#define SCRATCH ((uint32_t)1 << 31)

enum { SCAN_PAD = 64 /* NULs behind a text */, KEY_SLOTS = 512 };

/* Known keys and categories by a hash of their length and first eight bytes. */
typedef struct KeyTable {
    struct {
        uint64_t head; /* those bytes */
        uint8_t row;   /* + 1; 0: free */
        uint8_t bytes; /* of the key */
    } slot[KEY_SLOTS];
} KeyTable;

/* A block of text and what was found in it. */
typedef struct Batch {
    const char *text, *end; /* SCAN_PAD NULs behind it */
    char *scratch;          /* texts that stand otherwise than they are meant */
    size_t scratch_used;
    Item *item;
    int64_t n;
    int64_t seen, malformed, unused;
    bool phases; /* an element had a "ph" */
    bool ended;  /* of the scan: the text ended inside a value */
    bool python;
    const KeyTable *keys;
} Batch;

typedef enum ScanStop {
    STOP_END,    /* at the text's end, between elements */
    STOP_INSIDE, /* at the start of an element that the text does not hold whole */
    STOP_LOST,   /* at a malformed element, and no next one in sight */
    STOP_CLOSED  /* behind the closing bracket */
} ScanStop;

void scan_keys(KeyTable *k);
/* Memory for blocks of that size. */
Status batch_init(Batch *b, Arena *a, size_t text_bytes);
/* The elements from `at` on, in place of what b held; b->text and b->end are set. Returns where it stopped. */
const char *scan_events(Batch *b, const char *at, ScanStop *why);
/* Behind a malformed element: where the next one begins; NULL: none in sight. */
const char *scan_next_event(const KeyTable *keys, const char *at, const char *end);
/* The last place in a text where an event seems to begin; NULL: none. */
const char *scan_last_event(const KeyTable *keys, const char *begin, const char *end);
/* Where the bracket behind the last element seems to stand; NULL: none. */
const char *scan_closing(const char *at, const char *end);
/* Passes over a value (one token, or brackets with all they hold). NULL: not JSON, or b->ended. */
const char *scan_value(Batch *b, const char *at);
const char *scan_blank(const char *at);

static inline const char *item_text(const Batch *b, const Item *i)
{
    return i->text.at & SCRATCH ? b->scratch + (i->text.at & ~SCRATCH) : b->text + i->text.at;
}

/* ---- commit ---- */

/* A column, or any table that grows at its end: one arena. */
typedef struct Column {
    Arena arena;
    size_t each;
    int64_t room;
} Column;

/* Rows of which equal ones are one. */
typedef struct Rows {
    Column column;
    Arena table;
    uint32_t *slot; /* row + 1 */
    uint32_t slots, n;
} Rows;

/* What metadata events say of a thread, or of a process: its tid is EVENT_NONE. */
typedef struct TrackName {
    uint32_t name, label;
} TrackName;

/* The columns and tables of Events that grow at their end; those of an event stand first. */
#define EVENT_COLUMNS(X)                                                                           \
    X(TS, ts)                                                                                      \
    X(DUR, dur)                                                                                    \
    X(NAME, name)                                                                                  \
    X(INDEX, index)                                                                                \
    X(TRACK, track)                                                                                \
    X(DETAIL, detail)                                                                              \
    X(LINK, link)                                                                                  \
    X(EXTERNAL, external)                                                                          \
    X(KIND, kind)                                                                                  \
    X(TRACKS, tracks)                                                                              \
    X(OPS, ops)                                                                                    \
    X(GPU, gpu)                                                                                    \
    X(FLOWS, flows)                                                                                \
    X(MEMORY, memory)

typedef enum ColumnOf {
#define COLUMN_OF(upper, lower) COL_##upper,
    EVENT_COLUMNS(COLUMN_OF)
#undef COLUMN_OF
        COL_NAMED, /* TrackNames by row of EventsMemory.named */
    COLUMNS
} ColumnOf;

typedef struct EventsMemory {
    Arena self;
    Column column[COLUMNS];
    Rows places, named, args, collectives;
    int64_t groups_room, devices_room;
    uint32_t key_process_name, key_process_labels, key_thread_name;
} EventsMemory;

/* Addresses, not memory, for what a text of so many bytes can hold. */
Status commit_init(Events *e, uint64_t text_max);
Status commit_batch(Events *e, const Batch *b);
void commit_end(Events *e);

/* distributedInfo, deviceProperties and the like: the value at `text`, NUL-terminated, is consumed.
 * commit_wants: is the key one of them? */
bool commit_wants(const char *key, size_t n);
Status commit_top(Events *e, const char *key, size_t n, char *text);

/* ---- walk ---- */

typedef enum Where {
    AT_START,
    AT_TOP,    /* among the members of the object */
    AT_SKIP,   /* in a member's value that nobody wants */
    AT_EVENTS, /* in traceEvents */
    AT_LOST,   /* there, at a malformed event */
    AT_DONE
} Where;

/* The place in the text up to which all is committed. */
typedef struct Walk {
    Events *e;
    Batch batch;
    char *text; /* what waits for the text behind it */
    size_t bytes, room, wanted, element_max;
    Where where;
    bool array, found; /* the array form; traceEvents was there */
    bool phases;       /* an element had a "ph" */
    bool behind;       /* text behind the end was counted */
    bool giant;        /* the member to come does not fit */
    bool last;         /* no text comes behind this */
    bool quoted, escaped;
    int64_t depth; /* of brackets, in AT_SKIP */
} Walk;

/* The most bytes of text that it holds. */
size_t walk_room(const Source *s);
/* like: keys and options. */
Status walk_init(Walk *w, Events *e, const Batch *like, const Source *s, Arena *a);
/* The next text, at most a block. */
Status walk_text(Walk *w, const char *text, size_t n, bool last);
/* The next text as it was scanned from its begin on, if walk_expects_events. */
Status walk_batch(Walk *w, const Batch *b, const char *rest, ScanStop why, bool last);
static inline bool walk_expects_events(const Walk *w)
{
    return w->where == AT_EVENTS && w->bytes == 0;
}
/* What the text's end says about it. */
Status walk_end(Walk *w, const Source *s);

Status kineto_read(Source *s, const EventsOptions *o, Events *e);

#endif
