/* gpu: the program's interface to a GPU's runtime: devices, memory, streams, events, graphs.
 * gpu_runtime.cu implements it for CUDA and HIP. Lanes, decorators and
 * waits with a deadline are in engine/backend/gpu.c, which is the same for all vendors. What kernels need from
 * the hardware is in lane.cuh.
 *
 * Functions use the device that gpu_info made current for this thread. Launches, copies and fills are
 * ordered on a stream and do not wait. A build without a GPU links gpu_off.c instead, where each
 * function that can fail says so. */
#ifndef ENGINE_GPU_GPU_H
#define ENGINE_GPU_GPU_H

#include "engine/base/lane.h"
#include "engine/base/tensor.h"

#include <stdbool.h>

enum { GPU_NAME_MAX = 128, GPU_BUS_ID_MAX = 32 };

/* Opaque handles of the vendor's runtime: a queue of work on the device, and a mark in one. */
typedef void *GpuStream;
typedef void *GpuEvent;

/* Of a device when gpu_info was called; free_bytes changes with every process that uses the GPU. */
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

/* Makes the device current for this thread. ERR_UNSUPPORTED: not built in. ERR_DEVICE: no runtime, no
 * GPU, a driver older than the program's runtime, or a GPU that the program has no kernels for; each
 * says what was found and what is needed. Logs that the driver translates kernels for a newer GPU. */
Status gpu_info(int device, GpuInfo *out);

/* A property of the current device; 0: unknown. */
typedef enum GpuLimit {
    GPU_CAPABILITY_MAJOR,
    GPU_CAPABILITY_MINOR,
    GPU_PROCESSORS,
    GPU_BLOCK_SHARED_BYTES /* the most shared memory that a block can ask for */
} GpuLimit;
int gpu_limit(GpuLimit which);

/* Why kernels for the current device's architecture alone (sm_90a) cannot run, though it is of that
 * architecture: the build lacks them, or the driver runs translated PTX. NULL: they can, or there are none. */
const char *gpu_code_lacks(void);

/* The PCI address, "0000:19:00.0". It identifies the device even if only some GPUs are visible. */
Status gpu_bus_id(int device, char out[GPU_BUS_ID_MAX]);
Status gpu_used_bytes(size_t *out); /* in use now, by all processes */

/* What a build is for: GPU_RUNTIME_NONE has no GPU. */
typedef enum GpuRuntime { GPU_RUNTIME_NONE, GPU_RUNTIME_CUDA, GPU_RUNTIME_HIP } GpuRuntime;
extern const GpuRuntime gpu_runtime;
extern const char gpu_kernels_note[]; /* what users must know of its kernels; "": nothing */

/* File names of libraries that other vendors offer with the same functions under another name. */
typedef struct GpuLibraries {
    const char *collectives, *collectives_advice; /* NCCL's functions */
    int collectives_least;                        /* the first version that has all that is used */
} GpuLibraries;
extern const GpuLibraries gpu_libraries;

/* Memory */

/* ERR_DEVICE: the runtime refused, mostly for lack of memory. Frees report nothing. */
Status gpu_alloc(size_t bytes, void **out);
void gpu_free(void *at);
Status gpu_alloc_pinned(size_t bytes, void **out); /* host memory, pinned for all GPUs */
void gpu_free_pinned(void *at);
/* Pins memory that the program has, for all GPUs. The device is made current first: any thread may call it. */
Status gpu_pin(int device, void *at, size_t bytes);
void gpu_unpin(void *at);
Status gpu_copy(void *dst, const void *src, size_t bytes, GpuStream s); /* in any direction */
Status gpu_fill(void *dst, int byte, size_t bytes, GpuStream s);

/* Memory that another process, or another GPU of this process, can access. These return the error code
 * of the vendor's runtime; 0: success. */
typedef struct GpuShare {
    uint64_t handle[8]; /* sent to the other process unchanged */
} GpuShare;
int gpu_share_make(void *base, GpuShare *out);
int gpu_share_open(const GpuShare *share, void **out);
void gpu_share_close(void *at);
int gpu_peer_open(int device); /* the current device may then use memory of that one */
bool gpu_all_reach(void);      /* can each GPU that this process sees use memory of every other? */
const char *gpu_error_text(int code);

/* Streams and events */

Status gpu_stream_make(bool urgent, GpuStream *out); /* urgent: the highest priority */
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

/* The streams of an Exec: first those of its lanes, then those that were added. */
typedef struct GpuExec {
    int device;
    GpuStream stream[STREAMS_MAX];
    int streams;
    unsigned used;     /* bit i: stream i is used, so waits include it */
    unsigned *tickets; /* on the device, a counter for each lane (kernels/core/kernel.cuh) */
} GpuExec;

/* Graphs: a sequence of launches that is recorded once and started with one call. */
typedef struct Graph {
    void *exec;             /* NULL: none */
    int64_t nodes, kernels; /* all of them; those that are kernels */
} Graph;

/* Between begin and end, launches on this stream, and on streams that wait for an event of it, are
 * recorded and do not run. A call that the runtime forbids in a capture makes gpu_capture_end
 * fail. */
Status gpu_capture_begin(GpuStream s);
Status gpu_capture_end(GpuStream s, Graph *out); /* a failed capture leaves none */
Status gpu_graph_launch(const Graph *g, GpuStream s);
void gpu_graph_free(Graph *g); /* safe on { 0 } */

/* Kernels */

Status gpu_status(int code,
                  const char *what);        /* the vendor's code; OK or ERR_DEVICE with its words */
Status gpu_launch_status(const char *what); /* of this thread's last launch */
void gpu_error_clear(void);                 /* or the next launch's status would be this error */
/* Allows a kernel this much dynamic shared memory a block. Needed once for each kernel and
 * device. */
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
size_t gpu_sort_bytes(int64_t n); /* workspace that gpu_sort needs */
Status gpu_sort(const GpuSort *x, void *room, size_t room_bytes, GpuStream s);

#endif
