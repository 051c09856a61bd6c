/* kineto_commit: items of a block -> columns, texts and tables of Events, in the order of the file.
 * One thread at a time commits, so the result is the same for any number of threads. Text is not
 * looked at here: see kineto_scan. */
#ifndef TRACES_READ_KINETO_COMMIT_H
#define TRACES_READ_KINETO_COMMIT_H

#include "traces/read/kineto_scan.h"

/* A column: an arena of its own, in which rows are appended and never move. */
typedef struct Column {
    Arena arena;
    size_t each;
    int64_t room;
} Column;

/* A table without duplicates: equal rows share a number. Rows are compared by their bytes, so
 * padding must be zero. */
typedef struct Rows {
    Column column;
    Arena table;
    uint32_t *slot; /* open addressing: row + 1, 0 is free */
    uint32_t slots, n;
} Rows;

/* Names that metadata events give a thread, or a process (whose tid is EVENT_NONE). Strings. */
typedef struct TrackName {
    uint32_t name, label;
} TrackName;

/* The columns of Events and the tables that are appended to. The columns with a row for each event
 * stand first, so that one loop makes room in all of them. */
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

/* Which column: an index of EventsMemory.column. */
typedef enum ColumnOf {
#define COLUMN_OF(upper, lower) COL_##upper,
    EVENT_COLUMNS(COLUMN_OF)
#undef COLUMN_OF
        COL_NAMED, /* TrackNames by row of EventsMemory.named */
    COLUMNS
} ColumnOf;

/* All memory of an Events that the reader made; events_free frees it. */
typedef struct EventsMemory {
    Arena self; /* this record lies in it, and tables that are small */
    Column column[COLUMNS];
    Rows track_ids, named, args, collectives; /* track_ids: (pid, tid) by row of Events.tracks */
    int64_t groups_room, devices_room;
    uint32_t key_process_name, key_process_labels, key_thread_name;
} EventsMemory;

/* Reserves addresses (not memory) for what `text_max` bytes of text can hold. */
Status commit_init(Events *e, uint64_t text_max);
/* Appends the elements of a block. */
Status commit_batch(Events *e, const Batch *b);
/* Call it after the last block: sets what is only known then. */
void commit_end(Events *e);

/* commit_wants: is this member of the object around the events one that is read? commit_top reads
 * it: distributedInfo and the like. `text` is its value, NUL-terminated. */
bool commit_wants(const char *key, size_t n);
Status commit_top(Events *e, const char *key, size_t n, const char *text);

#endif
