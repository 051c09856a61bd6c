/*
 * replay: the operators of a trace, each once with its arguments, to run them again: as the JSON that
 * TraceLens' replayer reads (tracing.md 2.8), and as rows for `switchyard bench shapes --list`.
 *
 * An operator is what launched device work; in a trace without any, a call of an operator that calls
 * no other. Values come from the trace, their names from schemas.def.
 */
#ifndef ANALYZE_REPLAY_H
#define ANALYZE_REPLAY_H

#include "analyze/op_args.h"
#include "analyze/tree.h"
#include "base/text.h"

enum { REPLAY_DIMS_MAX = 16 };

typedef struct ReplayOp {
    uint32_t event; /* its first call */
    int64_t calls;
    double device_us; /* of its own device work, all calls */
} ReplayOp;

typedef struct Replay {
    const Events *events;
    ReplayOp *op; /* the longest first */
    int64_t n;
    int64_t calls, other; /* calls of op; launches by what is no operator with arguments */
    double device_us;
} Replay;

/* What is not in a list: all operators of one name with one reason. */
typedef struct ReplayLeft {
    const char *name, *why;
    int64_t calls;
    double device_us;
} ReplayLeft;

/* What is in a list, and the rest by name and reason; with too many of these the last is all others.
 */
enum { REPLAY_LEFT_MAX = 200 };
typedef struct ReplayCount {
    int64_t ops, calls;
    double device_us;
    ReplayLeft left[REPLAY_LEFT_MAX];
    int lefts;
} ReplayCount;

/* filter: only names with that in them; NULL: all. limit: the longest so many; 0: all. */
Status replay_find(const Tree *t, const char *filter, int64_t limit, Arena *a, Arena *scratch,
                   Replay *out);
/* `out` is begun, in an arena of its own; `count` is zeros. */
Status replay_json(const Replay *r, Arena *scratch, Text *out, ReplayCount *count);
Status replay_bench(const Replay *r, Arena *scratch, Text *out, ReplayCount *count);

/* ---- what the parts of replay share ---- */

/* *n -1: the arguments are not what a profiler writes. */
Status replay_args(const Replay *r, const ReplayOp *op, Arena *a, OpArg out[OP_ARGS_MOST], int *n);
/* Counts an operator: in the list (why NULL), or left out. */
void replay_count(const Replay *r, const ReplayOp *op, const char *why, ReplayCount *count);

#endif
