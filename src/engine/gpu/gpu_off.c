/* gpu_off: gpu.h for a build without a GPU. It is linked instead of gpu_runtime.cu, so that no caller needs
 * an #ifdef. Each function that can fail says how to build with a GPU. */
#include "engine/gpu/gpu_memory.h"

#include <string.h>

#pragma GCC diagnostic ignored "-Wunused-parameter" /* which is what a stub is */
/* NOLINTBEGIN(readability-non-const-parameter,misc-unused-parameters): the prototypes of a build
 * with a GPU */

const GpuRuntime gpu_runtime = GPU_RUNTIME_NONE;
const char gpu_kernels_note[] = "";
const GpuLibraries gpu_libraries = { 0 };

/* The one sentence of this file. Callers pass it on to the user. */
static Status no_gpu_built(void)
{
    return FAIL(ERR_UNSUPPORTED,
                "this program was built without a GPU: build it with `make CUDA=1` for NVIDIA's, "
                "or with `make HIP=1` for AMD's");
}

bool gpu_built(void) { return false; }
int gpu_runtime_version(void) { return 0; }
int gpu_devices(void) { return 0; }
Status gpu_info(int device, GpuInfo *out) { return no_gpu_built(); }
int gpu_limit(GpuLimit which) { return 0; }
const char *gpu_code_lacks(void) { return NULL; }
Status gpu_bus_id(int device, char out[GPU_BUS_ID_MAX]) { return no_gpu_built(); }
Status gpu_used_bytes(size_t *out) { return no_gpu_built(); }

Status gpu_alloc(size_t bytes, void **out) { return no_gpu_built(); }
void gpu_free(void *at) {}
Status gpu_alloc_pinned(size_t bytes, void **out) { return no_gpu_built(); }
void gpu_free_pinned(void *at) {}
Status gpu_pin(int device, void *at, size_t bytes) { return no_gpu_built(); }
void gpu_unpin(void *at) {}
bool gpu_all_reach(void) { return false; }
Status gpu_copy(void *dst, const void *src, size_t bytes, GpuStream s) { return no_gpu_built(); }
Status gpu_fill(void *dst, int byte, size_t bytes, GpuStream s) { return no_gpu_built(); }

Status gpu_stream_make(bool urgent, GpuStream *out) { return no_gpu_built(); }
void gpu_stream_free(GpuStream s) {}
Status gpu_stream_sync(GpuStream s) { return no_gpu_built(); }
Status gpu_stream_busy(GpuStream s, bool *out) { return no_gpu_built(); }
Status gpu_stream_wait(GpuStream s, GpuEvent e) { return no_gpu_built(); }
Status gpu_event_make(bool timed, GpuEvent *out) { return no_gpu_built(); }
void gpu_event_free(GpuEvent e) {}
Status gpu_event_record(GpuEvent e, GpuStream s) { return no_gpu_built(); }
Status gpu_event_sync(GpuEvent e) { return no_gpu_built(); }
Status gpu_event_busy(GpuEvent e, bool *out) { return no_gpu_built(); }
Status gpu_event_elapsed_s(GpuEvent from, GpuEvent to, double *out) { return no_gpu_built(); }

Status gpu_capture_begin(GpuStream s) { return no_gpu_built(); }
Status gpu_capture_end(GpuStream s, Graph *out) { return no_gpu_built(); }
Status gpu_graph_launch(const Graph *g, GpuStream s) { return no_gpu_built(); }
void gpu_graph_free(Graph *g) { memset(g, 0, sizeof *g); }

void gpu_error_clear(void) {}
Status gpu_delay(GpuStream s, double seconds) { return no_gpu_built(); }
Status gpu_stamp(GpuStream s, uint64_t *at) { return no_gpu_built(); }
Status gpu_find_bad(GpuStream s, const Tensor *t, uint64_t *first) { return no_gpu_built(); }
Status gpu_fill_pattern(GpuStream s, uint32_t *word, int64_t n, uint32_t seed)
{
    return no_gpu_built();
}
Status gpu_count_wrong(GpuStream s, const uint32_t *word, int64_t n, uint32_t seed, uint64_t *wrong)
{
    return no_gpu_built();
}
/* NOLINTEND(readability-non-const-parameter,misc-unused-parameters) */
