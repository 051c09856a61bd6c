/*
 * report: one trace as tables. docs/reference/trace.md lists each table with its columns.
 *
 * A Report is the trace with what all tables need: the device work that counts, and the operators
 * that launched it. A sheet is a row of `report_sheets`: its name, when it is made, and how. A new
 * sheet is a function and a row; most are a list of rows and a Fold (fold.h).
 *
 * Traces of several ranks (collectives.h) and two traces against each other (tools/diff) are handled
 * elsewhere. Times are microseconds unless a name says otherwise. Events, tree and options must
 * outlive the report.
 */
#ifndef TRACES_SHEETS_REPORT_H
#define TRACES_SHEETS_REPORT_H

#include "traces/read/tree.h"
#include "traces/table/fold.h"
#include "traces/table/group.h"
#include "traces/table/spans.h"
#include "traces/table/table.h"

/* What the command line may choose. */
typedef struct ReportOptions {
    const char *movers;   /* words in names of kernels that communicate; NULL: movers.def */
    bool linked_only;     /* count only work whose launch is in the trace; all work if none is */
    bool recompute;       /* show activation recomputation separately */
    bool kernels;         /* make kernel_summary */
    double short_us;      /* shorter kernels have sheets of their own; 0: no such sheets */
    double micro_idle_us; /* shorter gaps are micro-idle; 0: all gaps are one kind */
    int64_t step;         /* only the work of ProfilerStep#N; -1: all */
    const char *gpu;      /* the GPU of the roofline; NULL: the one that the trace names */
} ReportOptions;

/* What device work is for. */
typedef enum Bucket { BUCKET_COMPUTATION, BUCKET_COMM, BUCKET_MEMCPY, BUCKETS } Bucket;

/* An operator or call that launched device work itself. */
typedef struct Launcher {
    uint32_t event;    /* EVENT_NONE: work whose launch is not in the trace */
    uint32_t first, n; /* its own work by time: report.own[first] ... */
    uint32_t args;     /* row of events.args; EVENT_NONE */
    const char *category;
    double direct_us, subtree_us; /* busy time of its own work; of all work below it */
    bool recompute;
} Launcher;

/* Arrays lie in `arena`. Caches and `perf` are filled on demand, so a report is for one thread at a
 * time. */
typedef struct Report {
    const Events *e;
    const Tree *tree;
    const ReportOptions *o;
    Arena *arena;
    uint8_t *bucket, *sync; /* caches by name; 0: not known yet (report_bucket, report_is_sync) */
    struct KnownCategory *known;
    struct PerfCalls *perf; /* perf_calls.h, made on demand */
    uint32_t *gpu;          /* device events that count, by start */
    int64_t gpus;
    Launcher *launcher; /* by start; work without a launch is its own launcher */
    int64_t launchers;
    uint32_t *own;               /* device work by launcher */
    double total_us;             /* from the first start to the last end of `gpu` */
    double host_start, host_end; /* of the host's events (in the step) */
    bool operators;              /* the trace has calls that may have launched kernels */
} Report;

/* ERR_FORMAT, ERR_PARTIAL: the trace has no device events, so it has no sheets either. */
Status report_need_work(const Events *e);
Status report_make(const Events *e, const Tree *t, const ReportOptions *o, Arena *a, Report *out);
/* Groups n pieces of device work by launcher. Replaces the launchers of all work that counts. */
Status report_launchers(Report *r, const uint32_t *gpu, int64_t n);

typedef Status MakeSheet(Report *r, Table *out); /* out->name is set, sheet_columns does the rest */
/* A row of report_sheets; `wanted` says whether the report has something to show there. */
typedef struct Sheet {
    const char *name;
    bool (*wanted)(const Report *r);
    MakeSheet *make;
} Sheet;

extern const Sheet report_sheets[];
extern const int report_sheets_n;

/* Each is in the file that its name says: sheet_ops_* in sheet_ops.c. */
MakeSheet sheet_gpu_timeline, sheet_ops_summary, sheet_ops_by_category, sheet_ops_unique_args,
    sheet_kernel_summary, sheet_short_histogram, sheet_short_summary, sheet_coll_analysis,
    sheet_maybe_comm, sheet_perf /* all sheets of models: out->name says which */, sheet_unified;
MakeSheet sheet_timeline_by_step, sheet_idle_by_cause, sheet_idle_by_operator, sheet_idle_gaps,
    sheet_launch_delays, sheet_sync_delays, sheet_memory_summary, sheet_trace_counts;

/* Sentences on what in the trace makes its times uncertain: durations that were cut, clocks that
 * differ, work of several processes. Nothing if there is none. */
Status report_doubts(const Events *e, const Tree *t, Text *out);

/* A column that is dropped before a table is shown; tools/compat reads it. It numbers the kernels that
 * stand alone in unified_perf_summary. A row has the number of its first kernel. */
#define REPORT_HIDDEN ".kernel"

/* Starts a table. `columns` are names with | between. A column with ? is there only if
 * recomputation is shown separately, one with @ only if the trace has operators. */
Status sheet_columns(const Report *r, const char *columns, Table *out);

/* Makes a sheet of the rows that `fill` puts into rows->t. */
typedef Status FillRows(Report *r, FoldRows *rows);
Status report_fold(Report *r, const Fold *f, FillRows *fill, void *state, Table *out);

/* Makes all sheets that are wanted, *n of them. A sheet that did not start its table is left out:
 * the trace has nothing for it. */
enum { REPORT_SHEETS_MOST = 64 };
Status report_tables(Report *r, Table *out, int *n);
/* The same with another way to make one of report_sheets. */
typedef Status MakeOne(const Sheet *s, Report *r, Table *out);
Status report_sheets_by(Report *r, MakeOne *make, Table *out, int *n);

/* Device time of the whole report, us; `timeline_name` are the rows of gpu_timeline. */
typedef enum TimelineRow {
    TIMELINE_COMPUTATION,
    TIMELINE_EXPOSED_COMM,
    TIMELINE_EXPOSED_MEMCPY,
    TIMELINE_BUSY,
    TIMELINE_IDLE,
    TIMELINE_TOTAL,
    TIMELINE_COMM,
    TIMELINE_MEMCPY,
    TIMELINE_ROWS
} TimelineRow;
extern const char *const timeline_name[TIMELINE_ROWS];
/* Sets all rows. Communication is exposed outside of computation, copies outside of both. */
Status report_timeline(const Report *r, double us[TIMELINE_ROWS]);

/* What device time without work is due to (sheet_idle.c). */
typedef enum IdleCause {
    IDLE_HOST_LATE,
    IDLE_SYNCHRONISATION,
    IDLE_DEPENDENCY,
    IDLE_UNLINKED, /* the launch is not in the trace, so the cause is not known */
    IDLE_DATA_LOADER,
    IDLE_CAUSES
} IdleCause;
extern const char *const idle_cause[IDLE_CAUSES];
/* Device time without work by cause, us: together the row TIMELINE_IDLE. */
Status report_idle(const Report *r, double us[IDLE_CAUSES]);

/* From the first to the last event of host or device, us. */
double report_wall(const Report *r);

/* Ranges of ProfilerStep#N on the host. */
typedef struct Step {
    int64_t number;
    Span host;
} Step;
/* In the order of time. A trace without ProfilerStep ranges has none. */
Status report_steps(const Events *e, Arena *a, Step **out, int64_t *n);
/* The range of step N. ERR_ARG: there is no such step; the sentence says which steps there are. */
Status report_step(const Events *e, int64_t step, Arena *a, Span *out);

/* ---- for sheets ---- */

Bucket report_bucket(const Report *r, uint32_t event);
/* The category of a launcher whose first device work is `first_kernel`: "unlinked" without a
 * launcher, that of collectives if the work is one, else what both names say (perf_category). */
const char *report_category(const Report *r, uint32_t launcher, uint32_t first_kernel);
bool report_is_sync(const Report *r, int64_t event); /* does the host wait for the device in it? */
/* A launcher without its work. */
Launcher report_launcher(const Report *r, uint32_t event, uint32_t first_kernel);
/* The nearest cpu_op at or above a host event; EVENT_NONE. */
uint32_t report_operator(const Report *r, uint32_t event);
const OpArgs *report_args(const Report *r, uint32_t event); /* NULL: none */
int32_t report_stream(const Report *r, uint32_t event);     /* -1: none */
/* The merged spans of device work whose bucket's bit is in `mask`, inside recomputation (1),
 * outside (0) or both (-1). */
Status report_spans(const Report *r, unsigned mask, int recompute, Spans *out);
/* Begins a row for an operator or runtime call, or for a kernel that stands alone (`kernel`, else
 * EVENT_NONE). Rows with equal CALL_KEYS are calls of one operator with equal arguments.
 * loose: the launch is not in the trace. args: the row of its arguments in the trace.
 * again: it runs inside recomputation. uid: its position in the file. */
#define CALL_KEYS "name|loose|category|args|process|label|thread|again|kernel"
#define CALL_REST "dims|types|strides|concrete|uid"
#define CALL_COLUMNS                                                                               \
    "op category=first category|process_name=first process|process_label=first label|"             \
    "thread_name=first thread|Input Dims=tuple dims|Input type=tuple types|"                       \
    "Input Strides=tuple strides|Concrete Inputs=tuple concrete|?is_recompute=first again"
Status report_put_call(const Report *r, const Launcher *l, uint32_t kernel, Table *rows);
Status report_put_rest(const Report *r, const Launcher *l, uint32_t kernel, Table *out);
/* The union of these events' times, us. */
Status report_busy(const Report *r, const uint32_t *gpu, int64_t n, double *out);

/* Device work of one call, by time. */
typedef struct Work {
    const uint32_t *gpu;
    uint32_t n;
} Work;

/* Describes the kernels of n calls of one operator, by their position within a call, as texts: with
 * all numbers, and short. Calls with another number of kernels than the first call are left out. */
Status report_details(const Report *r, const Work *call, int64_t n, Cell *full, Cell *brief);

#endif
