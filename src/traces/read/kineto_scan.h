/*
 * kineto_scan: text that holds whole events -> items, a flat list of (field, value).
 *
 * A scan depends on its block alone, so two threads can scan two blocks at once. Strings are hashed
 * and numbers converted here. What an item means for the tables is known to kineto_commit, and what
 * stands around the events to kineto_walk.
 */
#ifndef TRACES_READ_KINETO_SCAN_H
#define TRACES_READ_KINETO_SCAN_H

#include "traces/read/events.h"

/* The fields that are kept of an event, and marks between them. */
typedef enum Field {
#define FIELD(name, object, key, form) FIELD_##name,
#include "traces/read/kineto_fields.def"
#undef FIELD
    FIELDS,
    ITEM_ELEMENT, /* an element begins; pair: its ElementKind, its number in the block */
    ITEM_ARGS     /* "args" begins; a second one of an element replaces the first */
} Field;

/* The kinds of elements of traceEvents: the EventKinds of complete events, then these. */
typedef enum ElementKind {
    ELEMENT_FLOW_FROM = EVENT_KINDS,
    ELEMENT_FLOW_TO,
    ELEMENT_MEMORY,
    ELEMENT_META,
    ELEMENT_UNUSED
} ElementKind;

/* A field and its value, or the begin of an element. 16 bytes, because a block has many. */
typedef struct Item {
    uint32_t field; /* Field, or ITEM_* */
    uint32_t hash;  /* of a text */
    union {
        struct {
            uint32_t at, bytes; /* offset in the block, or with bit SCRATCH in the scratch */
        } text;
        int64_t whole;
        double real;
        int32_t pair[2]; /* of ITEM_ELEMENT */
    };
} Item;
#define SCRATCH ((uint32_t)1 << 31)

enum { SCAN_PAD = 64 /* NULs after a text */, KEY_SLOTS = 512 };

/* Known keys and categories by a hash of their length and first eight bytes. */
typedef struct KeyTable {
    struct {
        uint64_t head; /* those bytes */
        uint8_t row;   /* + 1; 0: free */
        uint8_t bytes; /* of the key */
    } slot[KEY_SLOTS];
} KeyTable;

/* A block of text and what was found in it. Items point into the block or the scratch, so all three
 * are used together until the next scan. */
typedef struct Batch {
    const char *text, *end; /* SCAN_PAD NULs after it */
    char *scratch;          /* texts that differ from the block: decoded, or without blanks */
    size_t scratch_used;
    Item *item;
    int64_t n;
    int64_t seen, malformed, unused;
    bool phases; /* an element had a "ph", so this is a trace */
    bool ended;  /* the scan met the end of the text inside a value */
    bool python; /* keep frames of Python */
    const KeyTable *keys;
} Batch;

/* Why a scan of a block stopped. */
typedef enum ScanStop {
    STOP_END,    /* at the text's end, between elements */
    STOP_INSIDE, /* at the start of an element that the text does not hold whole */
    STOP_LOST,   /* at a malformed element, with no other element after it in the block */
    STOP_CLOSED  /* after the closing bracket */
} ScanStop;

void scan_keys(KeyTable *k);
/* Allocates for blocks of up to that size. */
Status batch_init(Batch *b, Arena *a, size_t text_bytes);
/* Scans the elements from `at` on; their items replace those in b. The caller has set b->text and
 * b->end. Returns where it stopped. */
const char *scan_events(Batch *b, const char *at, ScanStop *why);
/* Finds the next event after a malformed one. NULL: the text has none. */
const char *scan_next_event(const KeyTable *keys, const char *at, const char *end);
/* Finds the last position where an event seems to begin. It may be inside a string. NULL: none. */
const char *scan_last_event(const KeyTable *keys, const char *begin, const char *end);
/* Finds the bracket that seems to end traceEvents. NULL: none. */
const char *scan_closing(const char *at, const char *end);
/* Skips a value: one token, or brackets and all between them. NULL: it is not JSON, or the text
 * ends inside (b->ended). */
const char *scan_value(Batch *b, const char *at);
/* Skips blanks. */
const char *scan_blank(const char *at);

static inline const char *item_text(const Batch *b, const Item *i)
{
    return i->text.at & SCRATCH ? b->scratch + (i->text.at & ~SCRATCH) : b->text + i->text.at;
}

#endif
