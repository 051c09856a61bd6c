/*
 * events: a trace of any trainer as columns, which every analysis reads.
 *
 * events_read.h reads files into it. Only what an analysis can use is kept, so memory grows with
 * the number of events and not with the length of the text. Times are microseconds in double, as
 * they were written. Texts are numbers of Events.strings. This header has types only and knows no
 * reader.
 */
#ifndef TRACES_READ_EVENTS_H
#define TRACES_READ_EVENTS_H

#include "engine/host/progress.h"
#include "traces/read/strings.h"

#include <stdbool.h>

/* What an event is, by its `cat` (with the spellings of older profilers). */
typedef enum EventKind {
    EVENT_CPU_OP,
    EVENT_RUNTIME, /* CUDA and HIP calls */
    EVENT_DRIVER,
    EVENT_KERNEL,
    EVENT_MEMCPY,
    EVENT_MEMSET,
    EVENT_PYTHON,         /* python_function */
    EVENT_ANNOTATION,     /* user_annotation: record_function, ProfilerStep#N */
    EVENT_GPU_ANNOTATION, /* the same range on the device */
    EVENT_SYNC,           /* cuda_sync */
    EVENT_OVERHEAD,
    EVENT_OTHER, /* any other category of a complete event */
    EVENT_KINDS
} EventKind;
extern const char *const event_kind_name[EVENT_KINDS]; /* as Kineto writes it: "cpu_op" */

/* Work of a device: a kernel, a copy or a fill. Ranges on the device are no work. */
static inline bool event_on_gpu(uint8_t kind)
{
    return kind == EVENT_KERNEL || kind == EVENT_MEMCPY || kind == EVENT_MEMSET;
}

#define EVENT_NONE UINT32_MAX

/* A thread of a process, or a stream of a device. For a stream, pid is the device's number and tid the
 * stream's. */
typedef struct Track {
    uint32_t pid, tid; /* strings: numbers or names, as they are written */
    uint32_t process_name, process_label, thread_name;
} Track;

/* The arguments of an operator as JSON without blanks. Equal ones share a row. */
typedef struct OpArgs {
    uint32_t dims, types, strides, concrete; /* strings; 0: the field was not there */
} OpArgs;

/* What a kernel or an operator says of its collective. Equal ones share a row. A field that was not
 * there is string 0, or count -1. */
typedef struct Collective {
    uint32_t name, dtype, in_split, out_split, group, group_description, ranks;
    int32_t peer; /* rank of the world at the other end of a send or receive */
    int64_t in_elements, out_elements, group_size;
} Collective;

/* What only operators have. sequence: connects an operator and its gradients in autograd. */
typedef struct OpDetail {
    uint32_t args, collective; /* rows; EVENT_NONE: none */
    int64_t sequence;          /* -1: none */
} OpDetail;

/* What only device events have. */
typedef struct GpuDetail {
    int32_t device, stream; /* -1: not there */
    uint32_t collective;
} GpuDetail;

/* One end of an arrow from a launch to device work. from: this end is on the host (phase "s"). */
typedef struct Flow {
    int64_t id;
    uint32_t track;
    bool from;
} Flow;

/* A [memory] event: the state of the allocator after it. */
typedef struct MemoryPoint {
    double ts;
    int64_t bytes, allocated, reserved; /* bytes: negative if they were freed */
    int32_t device, device_type;
    uint32_t pid; /* string: the process */
} MemoryPoint;

/* A GPU of deviceProperties, by its index. */
typedef struct Device {
    uint32_t name;
} Device;

/* A process group of distributedInfo. */
typedef struct Group {
    uint32_t name, ranks; /* ranks: JSON */
} Group;

/* What the reader left out. Every command prints what is not 0. */
typedef struct ReadCounts {
    int64_t seen;       /* elements of traceEvents; column `index` counts these */
    int64_t malformed;  /* not JSON, skipped to the next event */
    int64_t incomplete; /* X without ts or name, or with a duration below 0 */
    int64_t unused;     /* phases and categories that no analysis reads (B, E, C, instants) */
    int64_t cut;        /* device events that overlapped the next of their stream (events_cut.h) */
    double cut_us;      /* by how much, in all */
    bool truncated;     /* the text ended early; what was whole is here (exit code 3) */
    uint64_t bytes;     /* of text */
} ReadCounts;

/* One trace. Columns and tables are the reader's and are freed by events_free; analyses only
 * read them. */
typedef struct Events {
    const char *path;
    Strings strings;

    /* Columns, one entry a complete event ("X"), in the order of the file. */
    int64_t n;
    double *ts, *dur;
    uint32_t *name;    /* string */
    uint32_t *index;   /* position in traceEvents, which TraceLens calls UID */
    uint32_t *track;   /* row of tracks */
    uint32_t *detail;  /* row of the table of its kind (op, gpu); EVENT_NONE */
    int64_t *link;     /* correlation; -1: none */
    int64_t *external; /* External id; -1: none */
    uint8_t *kind;     /* EventKind */

    Track *tracks;
    OpArgs *args;
    Collective *collectives;
    OpDetail *ops;
    GpuDetail *gpu;
    Flow *flows; /* ac2g and its older names */
    MemoryPoint *memory;
    Device *devices;
    Group *groups;
    int64_t n_tracks, n_args, n_collectives, n_ops, n_gpu, n_flows, n_memory, n_devices, n_groups;

    int64_t rank, world; /* distributedInfo; -1: not there */
    int64_t base_ns;     /* baseTimeNanoseconds; 0: times are absolute */
    int64_t run;         /* our own recordings: when the run began, us; 0: not known */
    ReadCounts counts;
    const struct Recording *recording; /* our own recording (recording.h); NULL: another trace */
    struct EventsMemory *own;          /* the reader's memory; all columns lie in it */
} Events;

/* Bytes of an element of a type, by the names of PyTorch and of collectives. NaN: unknown. */
double event_dtype_bytes(const char *dtype);
/* ERR_ARG: the two recordings are of runs that began at different times. */
Status events_same_run(const char *path, int64_t run, const char *other, int64_t other_run);

static inline double event_end(const Events *e, int64_t i) { return e->ts[i] + e->dur[i]; }

/* Does the call launch a whole graph (CUDA, HIP)? All kernels of the graph share its correlation. */
bool event_is_graph_launch(const Events *e, int64_t i);

/* The row of an operator's arguments; EVENT_NONE: it is not an operator, or has none. */
static inline uint32_t event_args(const Events *e, int64_t i)
{
    bool op = e->kind[i] == EVENT_CPU_OP && e->detail[i] != EVENT_NONE;
    return op ? e->ops[e->detail[i]].args : EVENT_NONE;
}

static inline const char *event_name(const Events *e, int64_t i)
{
    return strings_text(&e->strings, e->name[i]);
}

#endif
