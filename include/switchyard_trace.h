/*
 * switchyard_trace: a trace of a training step, read from C, C++ or whatever calls C.
 *
 * It opens what `switchyard trace report` opens: traces of PyTorch's profiler (JSON, plain or gzip)
 * and recordings of switchyard itself. A trace gives its events, what was left out, the device's
 * time as gpu_timeline, and every sheet of the report cell by cell (docs/reference/trace.md
 * lists them).
 *
 *     SwitchyardTrace *t = NULL;
 *     if (switchyard_trace_open("rank0.json.gz", NULL, &t) != SWITCHYARD_TRACE_OK)
 *         fprintf(stderr, "%s\n", switchyard_trace_error());
 *     ...
 *     switchyard_trace_close(t);
 *
 * It is a part of the library of switchyard.h, which says how to link with it.
 *
 * Errors: a function that can fail returns SWITCHYARD_TRACE_OK or another Result, and leaves its
 * outputs as they were. switchyard_trace_error() then has one sentence. Nothing is printed, no bad
 * input or argument ends the process, no signal handler is set.
 *
 * Threads: all functions may run at once, on different traces and on the same one, but for
 * switchyard_trace_close: nobody else may use that trace then or later. Sheets are made when the
 * first of them is asked for, once; other threads that ask for one wait for that.
 *
 * Texts are UTF-8 as the trace has them, end with NUL, and live as long as their trace. Numbers in a
 * struct that the trace lacks are -1.
 */
#ifndef SWITCHYARD_TRACE_H
#define SWITCHYARD_TRACE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined __GNUC__
#define SWITCHYARD_TRACE_API __attribute__((visibility("default")))
#else
#define SWITCHYARD_TRACE_API
#endif

/* Of this header; it grows when a struct or a function changes. It is the
 * number in the library's soname, too. A program that finds its library at run time compares the two. */
#define SWITCHYARD_TRACE_VERSION 1
SWITCHYARD_TRACE_API int32_t switchyard_trace_version(void);

typedef enum SwitchyardTraceResult {
    SWITCHYARD_TRACE_OK = 0,
    SWITCHYARD_TRACE_BAD_ARGUMENT = 1, /* NULL, an index, an option, a step that is not there */
    SWITCHYARD_TRACE_CANNOT_READ = 2,  /* the file: missing, no file, grows while it is read */
    SWITCHYARD_TRACE_NOT_A_TRACE = 3,  /* the file is none, or lacks what was asked for */
    SWITCHYARD_TRACE_NO_MEMORY = 4,
    SWITCHYARD_TRACE_FAILED = 5 /* anything else */
} SwitchyardTraceResult;

/* Why the calling thread's last function that failed did so: a sentence without a line's end, good
 * until the thread's next failure. "" before the first one. */
SWITCHYARD_TRACE_API const char *switchyard_trace_error(void);

/* The options of `switchyard trace report`; those that are flags are 0 or 1. */
typedef struct SwitchyardTraceOptions {
    int32_t compat_tracelens; /* TraceLens' rows and numbers, where they are wrong, too */
    int32_t link_ac2g; /* a kernel needs both ends of its arrow; always with compat_tracelens */
    int32_t include_unlinked; /* compat: work without a launch in the trace counts, too */
    int32_t python;           /* keep frames of Python as events */
    int32_t recompute;        /* activation recomputation apart (needs frames of Python) */
    int32_t kernels;          /* the sheet kernel_summary, too */
    double short_kernels_us;  /* sheets of kernels shorter than this; 0: none */
    double micro_idle_us;     /* gaps shorter than this told apart; 0: not */
    int64_t step;             /* only the work of ProfilerStep#N; -1: all */
} SwitchyardTraceOptions;
#define SWITCHYARD_TRACE_OPTIONS                                                                   \
    {                                                                                              \
        0, 0, 0, 0, 0, 0, 0, 0, -1                                                                 \
    } /* those that NULL means */

typedef struct SwitchyardTrace SwitchyardTrace;

/* Reads a trace, a pipe, too. A file that ends early is OK: what was whole is there, and the counts
 * say so. So is a trace without device work, but it has neither timeline nor sheets. */
SWITCHYARD_TRACE_API SwitchyardTraceResult switchyard_trace_open(
    const char *path, const SwitchyardTraceOptions *options, SwitchyardTrace **out);
SWITCHYARD_TRACE_API void switchyard_trace_close(SwitchyardTrace *t); /* NULL is fine */

/* What the trace has, and what was left out. */
typedef struct SwitchyardTraceCounts {
    int64_t rank, world; /* -1: the trace does not say */
    int64_t bytes;       /* of text */
    int64_t events;
    int64_t device_events; /* of these: device work that counts in timeline and sheets */
    int64_t malformed;     /* elements that are not JSON: left out */
    int64_t incomplete;    /* events without a time or a name: left out */
    int64_t unused;        /* events of kinds that nothing here reads: left out */
    int64_t dropped;       /* calls that outlive their caller: cut to it, or left out in compat */
    int64_t unlinked;      /* device work whose launch is not in the trace */
    int64_t truncated;     /* 1: the file ends early */
} SwitchyardTraceCounts;
SWITCHYARD_TRACE_API SwitchyardTraceResult switchyard_trace_counts(const SwitchyardTrace *t,
                                                                   SwitchyardTraceCounts *out);

/* gpu_timeline, microseconds: unions of time over all streams of the trace. */
typedef struct SwitchyardTraceTimeline {
    double computation;
    double exposed_comm;   /* not hidden by computation */
    double exposed_memcpy; /* hidden by neither */
    double busy, idle, total;
    double comm, memcpy; /* hidden or not */
} SwitchyardTraceTimeline;
SWITCHYARD_TRACE_API SwitchyardTraceResult switchyard_trace_timeline(SwitchyardTrace *t,
                                                                     SwitchyardTraceTimeline *out);

/* An event with a duration; times are microseconds as they stand in the trace. */
typedef struct SwitchyardTraceEvent {
    const char *name, *category; /* category: cpu_op, cuda_runtime, kernel, ...; other */
    const char *process, *thread, *thread_name; /* numbers or names; "" */
    double start, duration;
    int64_t correlation;    /* a launch and its device work have the same */
    int32_t device, stream; /* of device work */
} SwitchyardTraceEvent;
/* Event i of counts.events, in the order of the file. */
SWITCHYARD_TRACE_API SwitchyardTraceResult switchyard_trace_event(const SwitchyardTrace *t,
                                                                  int64_t i,
                                                                  SwitchyardTraceEvent *out);

typedef struct SwitchyardTraceSheet {
    const char *name;          /* gpu_timeline */
    const char *const *column; /* names */
    int64_t rows;
    int32_t columns;
} SwitchyardTraceSheet;
/* How many sheets there are; sheet i of them; the number of the one with this name. */
SWITCHYARD_TRACE_API SwitchyardTraceResult switchyard_trace_sheets(SwitchyardTrace *t,
                                                                   int32_t *out);
SWITCHYARD_TRACE_API SwitchyardTraceResult switchyard_trace_sheet(SwitchyardTrace *t, int32_t i,
                                                                  SwitchyardTraceSheet *out);
SWITCHYARD_TRACE_API SwitchyardTraceResult switchyard_trace_find_sheet(SwitchyardTrace *t,
                                                                       const char *name,
                                                                       int32_t *out);

typedef enum SwitchyardTraceCellType {
    SWITCHYARD_TRACE_NONE = 0, /* an empty cell */
    SWITCHYARD_TRACE_TEXT = 1,
    SWITCHYARD_TRACE_NUMBER = 2,
    SWITCHYARD_TRACE_WHOLE = 3,
    SWITCHYARD_TRACE_BOOL = 4
} SwitchyardTraceCellType;

typedef struct SwitchyardTraceCell {
    SwitchyardTraceCellType type;
    int32_t truth;    /* of a BOOL */
    int64_t whole;    /* of a WHOLE */
    double number;    /* of a NUMBER; a WHOLE or BOOL as a double; else NaN */
    const char *text; /* of a TEXT; else "" */
} SwitchyardTraceCell;
SWITCHYARD_TRACE_API SwitchyardTraceResult switchyard_trace_cell(SwitchyardTrace *t, int32_t sheet,
                                                                 int64_t row, int32_t column,
                                                                 SwitchyardTraceCell *out);

#ifdef __cplusplus
}
#endif

#endif
