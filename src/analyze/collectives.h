/*
 * collectives: the same collective on all ranks: what it cost, who waited, and for whom.
 *
 * A collective's kernel runs from when its rank arrives until the data is exchanged. So of the ranks'
 * kernels the shortest is that of the last to arrive, which is pure communication; what the others
 * ran longer, they waited. Clocks of hosts differ, but a collective ends on all of its ranks at about
 * the same time: that gives each rank's clock (docs/reference/trace.md).
 */
#ifndef ANALYZE_COLLECTIVES_H
#define ANALYZE_COLLECTIVES_H

#include "analyze/events.h"
#include "analyze/group.h"
#include "analyze/table.h"

typedef enum CollectiveKind {
    ALL_REDUCE,
    REDUCE_SCATTER,
    ALL_GATHER,
    ALL_TO_ALL,
    ALL_TO_ALLV,
    BROADCAST,
    REDUCE,
    GATHER,
    SCATTER,
    BARRIER,
    SEND_RECV,
    DISPATCH, /* one-sided kernels of DeepEP and the like */
    COMBINE,
    OTHER_COLLECTIVE,
    COLLECTIVE_KINDS
} CollectiveKind;

typedef struct CollectiveRule {
    const char *name;
    const char *names;   /* in an event's "Collective name", words */
    const char *kernels; /* parts of a kernel's or operator's name, words, in any case */
    int passes; /* bus bandwidth is algorithm bandwidth times this (n - 1) / n; 0: times 1 */
    bool ends_together; /* no rank is done before the last has come */
} CollectiveRule;
extern const CollectiveRule collective_rule[COLLECTIVE_KINDS];

/* Of one rank, between its last collective of the same group and this one: how long work of a name
 * ran on the device, or on the host while the device had none. */
typedef struct CollectiveWork {
    double us;
    uint32_t name;
    bool host;
} CollectiveWork;

/* One kernel on one rank. Texts are those of Collectives.strings. */
typedef struct CollectiveCall {
    double ts, dur;    /* as they were written */
    double start, end; /* on the clock of all ranks */
    Collective what;   /* also what the operator that launched it says */
    int64_t slot;      /* row of slots */
    int64_t work, works;
    uint32_t kernel, key, index;
    int32_t rank, group, stream; /* rows; stream -1: unknown */
    uint8_t kind;
} CollectiveCall;

typedef struct CollectiveGroup {
    uint32_t key;
    const char *name, *description, *ranks, *span; /* "intra_node", "inter_node", "unknown" */
    int32_t *member; /* ranks of the world, rising; from metadata, else those that took part */
    int64_t members, present; /* present: those whose traces are here */
    int64_t call, calls, slot, slots;
} CollectiveGroup;

/* Calls that are one collective: call ... call + calls - 1, by rank. */
typedef struct CollectiveSlot {
    int64_t call, calls, index; /* index: place in its group */
    int32_t group, first, last; /* which of its calls came first and last */
    bool whole;                 /* all members that are present take part */
    const char *flag;           /* "", "partial", "outlier", "border outlier" */
    double latency, arrived, wait_sum, skew_start, skew_end, late;
    double exchange;                 /* from the last start to the last end */
    double mb, algorithm_bw, bus_bw; /* NaN: unknown */
    uint32_t cause;                  /* what made the last one late */
    bool cause_host;
    double cause_us; /* longer than the median of the others; 0: unknown */
} CollectiveSlot;

typedef struct CollectiveRank {
    const char *path, *rank_from;
    int64_t rank, world, base_ns, run; /* run: of Events */
    int64_t devices, call, calls;      /* calls in by_rank */
    ReadCounts counts;
    /* clock = time + offset_us + drift * (time - at) */
    double at, offset_us, drift, spread_us;
    int64_t points; /* collectives that it rests on; 0: as written */
} CollectiveRank;

typedef struct CollectivesOptions {
    bool compat;           /* TraceLens' matching, sizes and columns */
    bool partial;          /* some ranks are enough */
    int64_t gpus_per_node; /* 0: as many as the traces list devices */
    Progress *bar;         /* as in EventsOptions */
} CollectivesOptions;

typedef struct Collectives {
    CollectivesOptions options;
    Arena *arena;
    Strings strings;
    int64_t world, gpus_per_node;
    CollectiveRank *ranks; /* by rank */
    CollectiveCall *calls; /* by group, slot, rank */
    int64_t *by_rank;      /* calls by rank, then as in the file */
    CollectiveGroup *groups;
    CollectiveSlot *slots; /* by group, then time */
    CollectiveWork *works;
    bool simplified; /* compat: no process groups, one stream a rank */
    int64_t n_ranks, n_calls, n_groups, n_slots, n_works;
    int64_t room_calls, room_works, room_groups;
} Collectives;

/* Reads the ranks' traces, a few at a time, and matches, aligns and measures. ERR_ARG: ranks twice,
 * missing or of different runs, or no collectives. Close with collectives_close, also on failure. */
Status collectives_open(Collectives *c, const char *const *path, int n, const CollectivesOptions *o,
                        Arena *a);
void collectives_close(Collectives *c); /* safe on { 0 } */

/* Sheets, in the order they are written; *n of them. */
enum { COLLECTIVE_SHEETS = 11 };
Status collectives_sheets(const Collectives *c, Table sheet[COLLECTIVE_SHEETS], int *n);
/* For people. */
Status collectives_text(const Collectives *c, const Table *sheet, Text *out);

/* ---- between the files of this part ---- */

Status collectives_read(Collectives *c, const char *path, CollectiveRank *out, int place);
Status collectives_match(Collectives *c);
Status collectives_clocks(Collectives *c);
Status collectives_measure(Collectives *c);
/* Of all its elements; NaN: unknown. */
double collectives_mb(const Collectives *c, const CollectiveCall *x, bool out);
/* The numbers of a list like "[0, 1]", at most `room`. */
int64_t collectives_wholes(const char *list, int32_t *out, int64_t room);

#endif
