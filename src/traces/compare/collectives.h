/*
 * collectives: each collective over all of its ranks: what it cost, who waited, and for whom.
 *
 * The kernel of a collective runs from when its rank arrives until the data is exchanged. The last rank
 * to arrive has the shortest kernel, and that is pure communication. The time by which the other
 * kernels are longer is waiting. Clocks of hosts differ. But a collective ends on all of its ranks at
 * about the same time; that gives the offset of each clock (docs/reference/trace.md).
 *
 *     collectives_read    the trace of one rank -> its collectives and the work before each
 *     collectives_match   which calls are one collective; the clocks of the ranks
 *     collectives         reads all ranks and measures
 *     collectives_sheets  tables; collectives_text: a summary for people
 *
 * This is not the sheet of `trace report` on the collectives of one trace: that is
 * sheet_collectives.c. Times are microseconds, unless a name says otherwise.
 */
#ifndef TRACES_COMPARE_COLLECTIVES_H
#define TRACES_COMPARE_COLLECTIVES_H

#include "traces/read/events.h"
#include "traces/table/group.h"
#include "traces/table/table.h"

/* Kinds up to ALL_TO_ALL are those that TraceLens lists; names are tried in this order. */
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

/* How a kind of collective is recognised and measured. */
typedef struct CollectiveRule {
    const char *name;
    const char *names;   /* words that an event's "Collective name" may be */
    const char *kernels; /* words that a kernel's or operator's name may contain, in any case */
    int passes; /* bus bandwidth = algorithm bandwidth * passes * (n - 1) / n; 0: the two are equal */
    bool ends_together; /* no rank ends before the last one has arrived */
} CollectiveRule;
extern const CollectiveRule collective_rule[COLLECTIVE_KINDS];

/* Work of one name on one rank, between the rank's previous collective of the group and this one.
 * us: how long it ran on the device, or (host) on the host while the device was idle. */
typedef struct CollectiveWork {
    double us;
    uint32_t name;
    bool host;
} CollectiveWork;

/* One kernel on one rank. Texts are numbers of Collectives.strings. */
typedef struct CollectiveCall {
    double ts, dur;      /* as they were written */
    double start, end;   /* on the common clock */
    Collective what;     /* as the kernel says, else the operator that launched it */
    int64_t slot;        /* row of slots */
    int64_t work, works; /* rows of works: work[work] ... work[work + works - 1] */
    uint32_t kernel, key, index;
    int32_t rank, group, stream; /* rows; stream -1: unknown */
    uint8_t kind;
} CollectiveCall;

/* Ranks that call collectives together: a process group, a pair of sender and receiver, or a stream
 * where the trace names no group. */
typedef struct CollectiveGroup {
    uint32_t key;                                  /* a string that tells groups apart */
    const char *name, *description, *ranks, *span; /* "intra_node", "inter_node", "unknown" */
    int32_t *member;                               /* ranks of the world, rising */
    int64_t members, present;                      /* present: their traces were given */
    int64_t call, calls, slot, slots;              /* ranges in calls and slots */
} CollectiveGroup;

/* One collective: the calls from `call` on, by rank. */
typedef struct CollectiveSlot {
    int64_t call, calls, index;      /* index: position in its group */
    int32_t group, first, last;      /* the calls that arrived first and last */
    bool whole;                      /* all members that are present take part */
    const char *flag;                /* "", "partial", "outlier", "border outlier" */
    double latency;                  /* of the shortest kernel: pure communication */
    double arrived, wait_sum;        /* when the last rank came, and the sum of all waits for it */
    double skew_start, skew_end;     /* from the first start (end) to the last one */
    double late;                     /* of the last rank, against the median start */
    double exchange;                 /* from the last start to the last end */
    double mb, algorithm_bw, bus_bw; /* NaN: unknown */
    uint32_t cause;                  /* a string: the work that made the last one late */
    bool cause_host;
    double cause_us; /* by how much it is longer than the median of the others; 0: unknown */
} CollectiveSlot;

/* One trace. A clock that no other rank shares collectives with stays as it was written. */
typedef struct CollectiveRank {
    const char *path, *rank_from;      /* rank_from: how the rank's number is known */
    int64_t rank, world, base_ns, run; /* world, base_ns, run: as in Events */
    int64_t devices, call, calls;      /* calls in by_rank */
    ReadCounts counts;
    /* clock = time + offset_us + drift * (time - at) */
    double at, offset_us, drift, spread_us;
    int64_t points; /* collectives that the clock rests on; 0: the clock stays as written */
} CollectiveRank;

/* How collectives are read, matched and shown. Rules are data, so that this part need not know whose
 * rules they are. */
typedef struct CollectiveRules {
    const char *movers;      /* words in names of kernels that communicate; NULL: movers.def */
    const char *lacks;       /* marks of columns that sheets do not have (collectives_sheets.c) */
    const char *lacks_nodes; /* the same where the GPUs of a node are not known */
    const char *unknown_key; /* stands for a missing key of the summary by size; NULL: nothing */
    double mb, gb;           /* bytes of a MB, MB of a GB */
    bool causes;          /* find out why a rank was late, and which rank makes the others wait */
    bool kernel_alone;    /* only a kernel's own record counts, and it must have a number */
    bool by_group;        /* calls of one process group are one sequence, also sends and receives */
    bool by_position;     /* the k-th calls of all ranks are one collective, on clocks as written */
    bool files_are_ranks; /* a file's rank is its index in the list */
    bool trust_devices;   /* a trace that lists one device means one GPU a node */
    bool first_call;      /* sizes are the first call's, and unknown without the group's size */
    bool all_count;       /* sums include partial collectives and outliers */
    bool main_kinds;      /* list only the kinds up to ALL_TO_ALL */
    bool drop_unknown;    /* drop rows without a key, and rates that no row has */
} CollectiveRules;

/* What the command line may choose. */
typedef struct CollectivesOptions {
    const struct CollectiveRules *rules; /* NULL: our own */
    bool partial;                        /* not all ranks need be given */
    int64_t gpus_per_node;               /* 0: the number of devices that the traces list */
    int threads;                         /* 0: one for each processor */
    Progress *bar;                       /* as in EventsOptions */
} CollectivesOptions;

/* All ranks' collectives. Arrays lie in `arena`, texts in `strings`; the sheets point to both, so
 * close it after the sheets are written. */
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
    bool simplified; /* by_group: there are no process groups, and one stream a rank */
    int64_t n_ranks, n_calls, n_groups, n_slots, n_works;
    int64_t room_calls, room_works, room_groups; /* of the arrays, in elements */
} Collectives;

/* Reads the traces of the ranks, matches their collectives, aligns their clocks and measures. ERR_ARG:
 * a rank is there twice or missing, or is of another run, or there are no collectives. Close with
 * collectives_close, also on failure. */
Status collectives_open(Collectives *c, const char *const *path, int n, const CollectivesOptions *o,
                        Arena *a);
void collectives_close(Collectives *c); /* safe on { 0 } */

/* The sheets, *n of them, in the order in which they are written. */
enum { COLLECTIVE_SHEETS = 11 };
Status collectives_sheets(const Collectives *c, Table sheet[COLLECTIVE_SHEETS], int *n);
/* A summary of the sheets for people: its sentences, the rank that makes the others wait first, one a line;
 * and the whole of it, with tables. */
Status collectives_sentences(const Collectives *c, const Table *sheet, Text *out);
Status collectives_text(const Collectives *c, const Table *sheet, Text *out);

/* Is a collective in sums? Partial ones and outliers at a window's border are not: what they show is the
 * profiler. */
static inline bool collective_in_sums(const CollectiveSlot *s)
{
    return s->calls > 1 && s->flag[0] != 'p' && s->flag[0] != 'b';
}
/* The collective's name as it was recorded, else its kind's, else its kernel's; "": not recorded, and the
 * rules take nothing else. */
const char *collective_name(const Collectives *c, const CollectiveCall *x);

/* ---- between the files of this part ---- */

/* Reads one trace into row `row` of the ranks. */
Status collectives_read(Collectives *c, const char *path, CollectiveRank *out, int row);
/* Decides which calls are one collective: makes groups and slots. */
Status collectives_match(Collectives *c);
/* Sets the ranks' clocks, and `start` and `end` of all calls. */
Status collectives_clocks(Collectives *c);
/* Fills the times, bandwidths and causes of all slots. */
Status collectives_measure(Collectives *c);
/* MB of all elements of a call's input or output; NaN: unknown. */
double collectives_mb(const Collectives *c, const CollectiveCall *x, bool out);
/* Reads the whole numbers of a list like "[0, 1]", at most `room`. Returns how many. */
int64_t collectives_wholes(const char *list, int32_t *out, int64_t room);

#endif
