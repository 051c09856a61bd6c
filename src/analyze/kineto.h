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

/* ---- source ---- */

typedef struct Source {
    const char *path;
    int fd;
    bool gzip, pipe, ended;
    bool cut;              /* a gzip that ends early */
    uint64_t file_bytes;   /* when it was opened */
    uint64_t taken, given; /* bytes of the file, bytes of text */
    unsigned char *in;     /* what is read and not yet given */
    size_t in_bytes, in_used;
    z_stream z;
} Source;

Status source_open(Source *s, const char *path, Arena *a);
/* Up to n bytes of text; fewer only at the end. ERR_IO, or ERR_FORMAT for a corrupt gzip. */
Status source_read(Source *s, char *out, size_t n, size_t *got);
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
    uint32_t field;
    union {
        uint32_t hash; /* of a text */
        int32_t third; /* of a triple */
    };
    union {
        struct {
            uint32_t at, bytes; /* SCRATCH is set in `at` if the text is not in the block */
        } text;
        int64_t whole;
        double real;
        int32_t pair[2]; /* of a triple, or what an element is and its place */
    };
} Item;
#define SCRATCH ((uint32_t)1 << 31)

enum {
    SCAN_PAD = 64,                /* NULs behind a text */
    ELEMENT_BYTES_MAX = 16 << 20, /* a longer one is malformed */
    SCAN_BYTES_MAX = ELEMENT_BYTES_MAX + (1 << 20),
    KEY_SLOTS = 512
};

/* Known keys and categories by a hash of length and first eight bytes. */
typedef struct KeyTable {
    uint8_t slot[KEY_SLOTS]; /* number of a row + 1; 0: free */
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
    STOP_LOST,   /* behind a malformed element, and no next one in sight */
    STOP_CLOSED  /* behind the closing bracket */
} ScanStop;

void scan_keys(KeyTable *k);
/* Memory for blocks of up to SCAN_BYTES_MAX bytes. */
Status batch_init(Batch *b, Arena *a, size_t text_bytes);
/* The elements from `at` on; b->text and b->end are set. Returns where it stopped. */
const char *scan_events(Batch *b, const char *at, ScanStop *why);
/* Behind a malformed element: the next one's start, or the closing bracket; NULL: none in sight. */
const char *scan_next_event(const char *at, const char *end);
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
    int64_t sort;
} TrackName;

typedef enum ColumnOf {
    COL_TS,
    COL_DUR,
    COL_NAME,
    COL_INDEX,
    COL_TRACK,
    COL_DETAIL,
    COL_LINK,
    COL_EXTERNAL,
    COL_KIND,
    COL_TRACKS,
    COL_OPS,
    COL_GPU,
    COL_PYTHON,
    COL_FLOWS,
    COL_MEMORY,
    COL_NAMED,
    COLUMNS
} ColumnOf;

typedef struct EventsMemory {
    Arena self;
    Column column[COLUMNS];
    Rows places, named, args, collectives, launches;
    uint32_t key_process_name, key_process_labels, key_process_sort, key_thread_name,
        key_thread_sort;
} EventsMemory;

/* Columns for at most `rows_max` rows: addresses, not memory. */
Status commit_init(Events *e, int64_t rows_max);
Status commit_batch(Events *e, const Batch *b);
Status commit_end(Events *e);

/* distributedInfo, deviceProperties and the like: the value at `text`, NUL-terminated, is consumed.
 * commit_wants: is the key one of them? */
bool commit_wants(const char *key, size_t n);
Status commit_top(Events *e, const char *key, size_t n, char *text);

Status kineto_read(Source *s, const EventsOptions *o, Events *e);

#endif
