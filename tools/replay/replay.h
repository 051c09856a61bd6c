/*
 * replay: lists the operators of a trace, each once with its arguments, so that they can be run
 * again. It writes the JSON of TraceLens' replayer, or rows for `switchyard bench shapes --list`.
 * It runs nothing itself.
 *
 * Listed are the operators that launched device work. In a trace without device work these are the
 * operators that call no other operator. Values come from the trace, names of arguments from
 * schemas.def.
 */
#ifndef REPLAY_REPLAY_H
#define REPLAY_REPLAY_H

#include "engine/base/text.h"
#include "traces/read/op_args.h"
#include "traces/read/tree.h"

enum { REPLAY_DIMS_MAX = 16 };

/* All calls of one operator with equal arguments. */
typedef struct ReplayOp {
    uint32_t event; /* its first call */
    int64_t calls;
    double device_us; /* device work that it launched itself, over all calls */
} ReplayOp;

/* The operators of a trace. `events` must outlive it. */
typedef struct Replay {
    const Events *events;
    ReplayOp *op; /* the ones with most device time first */
    int64_t n;
    int64_t calls; /* of all `op` */
    int64_t other; /* launches by calls without recorded arguments */
    double device_us;
} Replay;

/* Operators of one name that were left out of a list for one reason. */
typedef struct ReplayLeft {
    const char *name, *why;
    int64_t calls;
    double device_us;
} ReplayLeft;

/* Counts what is in a list, and what was left out, by name and reason. If there are too many of
 * these, the last entry stands for all others. */
enum { REPLAY_LEFT_MAX = 200 };
typedef struct ReplayCount {
    int64_t ops, calls;
    double device_us;
    ReplayLeft left[REPLAY_LEFT_MAX];
    int lefts;
} ReplayCount;

/* Finds the operators of a tree. filter: only names that contain it; NULL: all. limit: only the
 * first so many; 0: all. The result lies in `a`. */
Status replay_find(const Tree *t, const char *filter, int64_t limit, Arena *a, Arena *scratch,
                   Replay *out);
/* Write the lists. `out` has an arena of its own; `count` is all zeros. */
Status replay_json(const Replay *r, Arena *scratch, Text *out, ReplayCount *count);
Status replay_bench(const Replay *r, Arena *scratch, Text *out, ReplayCount *count);

/* ---- what the parts of replay share ---- */

/* Reads the arguments of an operator. *n is -1 if they are not what a profiler writes. */
Status replay_args(const Replay *r, const ReplayOp *op, Arena *a, OpArg out[OP_ARGS_MOST], int *n);
/* Counts an operator as listed (why NULL), or as left out for that reason. */
void replay_count(const Replay *r, const ReplayOp *op, const char *why, ReplayCount *count);

#endif
