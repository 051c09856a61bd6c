/*
 * kineto_scan: text that holds whole events -> items, a flat list of (field, value).
 *
 * A scan depends on its block alone, so two threads can scan two blocks at once. Strings are hashed
 * and numbers converted here; what an item means for the tables is up to kineto_commit. What stands
 * around the events is kineto_walk's.
 */
#ifndef ANALYZE_KINETO_SCAN_H
#define ANALYZE_KINETO_SCAN_H

#include "analyze/events.h"

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

#endif
