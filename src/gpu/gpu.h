/* gpu: what the program asks of a GPU's runtime, in one set of names: devices, memory, streams,
 * events, graphs. gpu_cuda.cu implements it for CUDA; a second vendor is one more such file. Lanes,
 * decorators and waits with a deadline are not here: they are backend/gpu.c's, the same for all
 * vendors. What kernels ask of the hardware is lane.cuh's.
 *
 * Functions work on the device that gpu_info made current for this thread. Launches, copies and
 * fills are put in order on a stream and wait for nothing. A build without a GPU has all of it
 * (gpu_off.c), and each function that can fail says that the build has none. */
#ifndef GPU_GPU_H
#define GPU_GPU_H

#include "base/lane.h"
#include "base/tensor.h"

#include <stdbool.h>

enum { GPU_NAME_MAX = 128, GPU_BUS_ID_MAX = 32 };

typedef void *GpuStream;
typedef void *GpuEvent;

typedef struct GpuInfo {
    char name[GPU_NAME_MAX];
    int driver, runtime; /* 13000: 13.0 */
    int major, minor;    /* compute capability */
    int sms;             /* multiprocessors */
    size_t total_bytes, free_bytes;
} GpuInfo;

/* Devices */

bool gpu_built(void);
int gpu_runtime_version(void); /* 13000: 13.0; 0: not built in */
int gpu_devices(void);         /* 0: none, or no driver */
Status gpu_current(int *device);

/* Makes the device current for this thread. ERR_UNSUPPORTED: not built in, no GPU, a driver older
 * than the program's runtime, or a GPU below compute capability 8.0; each says what was found and
 * what is needed. */
Status gpu_info(int device, GpuInfo *out);

/* Of the current device; 0: it cannot be told. */
typedef enum GpuLimit {
    GPU_CAPABILITY_MAJOR,
    GPU_CAPABILITY_MINOR,
    GPU_PROCESSORS,
    GPU_BLOCK_SHARED_BYTES /* of a block that asks for them */
} GpuLimit;
int gpu_limit(GpuLimit which);

/* Where the device is plugged in, "0000:19:00.0": its name whatever subset of the GPUs is seen. */
Status gpu_bus_id(int device, char out[GPU_BUS_ID_MAX]);
Status gpu_used_bytes(size_t *out); /* in use now, by all processes */

/* Libraries that another vendor has under another name, with the same functions. */
typedef struct GpuLibraries {
    const char *collectives, *collectives_advice; /* NCCL's functions */
} GpuLibraries;
extern const GpuLibraries gpu_libraries;

/* Memory */

Status gpu_alloc(size_t bytes, void **out);
void gpu_free(void *at);
Status gpu_alloc_pinned(size_t bytes, void **out); /* of the host, for all GPUs of the process */
void gpu_free_pinned(void *at);
Status gpu_copy(void *dst, const void *src, size_t bytes, GpuStream s); /* in any direction */
Status gpu_fill(void *dst, int byte, size_t bytes, GpuStream s);

/* Memory that another process, or another GPU of this one, may use. What refuses is a code of the
 * vendor's runtime; 0: none does. */
typedef struct GpuShare {
    uint64_t handle[8]; /* goes to the other process as it is */
} GpuShare;
int gpu_share_make(void *base, GpuShare *out);
int gpu_share_open(const GpuShare *share, void **out);
void gpu_share_close(void *at);
int gpu_peer_open(int device); /* the current device may then use memory of that one */
const char *gpu_error_text(int code);

/* Streams and events */

Status gpu_stream_make(bool urgent, GpuStream *out); /* urgent: before others where both can run */
void gpu_stream_free(GpuStream s);
Status gpu_stream_sync(GpuStream s); /* the host waits */
Status gpu_stream_busy(GpuStream s, bool *out);
Status gpu_stream_wait(GpuStream s, GpuEvent e); /* the stream waits */

Status gpu_event_make(bool timed, GpuEvent *out); /* timed: for gpu_event_elapsed_s */
void gpu_event_free(GpuEvent e);
Status gpu_event_record(GpuEvent e, GpuStream s);
Status gpu_event_sync(GpuEvent e); /* the host waits */
Status gpu_event_busy(GpuEvent e, bool *out);
Status gpu_event_elapsed_s(GpuEvent from, GpuEvent to, double *out);

/* The streams of an Exec: of its lanes first, then others that it was asked for. */
typedef struct GpuExec {
    int device;
    GpuStream stream[STREAMS_MAX];
    int streams;
    unsigned used;     /* bit i: stream i is used, so waits include it */
    unsigned *tickets; /* on the device, a counter for each lane (op/kernel.cuh) */
} GpuExec;

/* Graphs: a run of launches, recorded once and started with one call. */
typedef struct Graph {
    void *exec;             /* NULL: none */
    int64_t nodes, kernels; /* all of them; those that are kernels */
} Graph;

Status gpu_capture_begin(GpuStream s);
Status gpu_capture_end(GpuStream s, Graph *out); /* a failed capture leaves none */
Status gpu_graph_launch(const Graph *g, GpuStream s);
void gpu_graph_free(Graph *g); /* safe on { 0 } */

/* Kernels */

Status gpu_status(int code,
                  const char *what);        /* the vendor's code; OK or ERR_DEVICE with its words */
Status gpu_launch_status(const char *what); /* of this thread's last launch */
void gpu_error_clear(void);                 /* or the next launch's status would be this error */
Status gpu_kernel_shared(const void *kernel, size_t bytes, const char *what);

/* Small kernels of the program's own (gpu_kernels.cu). */
Status gpu_delay(GpuStream s, double seconds);
Status gpu_stamp(GpuStream s, uint64_t *at); /* ns of the device's clock, into pinned memory */
/* *first: the lowest index of an element that is not finite, of f32 or bf16; GPU_NONE_BAD: none. */
#define GPU_NONE_BAD UINT64_MAX
Status gpu_find_bad(GpuStream s, const Tensor *t, uint64_t *first);

/* Sorts n pairs by the lowest `bits` bits of their keys, stably, from [0] to [1]. */
typedef struct GpuSort {
    uint32_t *key[2];
    int32_t *value[2];
    int64_t n;
    int bits;
} GpuSort;
size_t gpu_sort_bytes(int64_t n); /* of the room that gpu_sort takes */
Status gpu_sort(const GpuSort *x, void *room, size_t room_bytes, GpuStream s);

#endif
