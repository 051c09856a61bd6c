/* A build without CUDA: everything there, and each says so. */
#include "backend/backend.h"
#include "backend/cuda.h"

#pragma GCC diagnostic ignored "-Wunused-parameter" /* which is what a stub is */
/* NOLINTBEGIN(readability-non-const-parameter,misc-unused-parameters): the prototypes of a build
 * with CUDA */

static Status none(void)
{
    return FAIL(ERR_UNSUPPORTED,
                "this program was built without CUDA: build it with `make CUDA=1`");
}

bool cuda_built(void) { return false; }
int cuda_devices(void) { return 0; }
Status cuda_info(int device, CudaInfo *out) { return none(); }

Status cuda_exec_init(Exec *ex, int device, Arena *arena, Arena *scratch) { return none(); }
Status cuda_exec_count(Exec *ex, Arena *arena, Arena *scratch) { return none(); }
void cuda_exec_free(Exec *ex) { *ex = (Exec){ 0 }; }

void *cuda_stream(Exec *ex, Lane lane) { return NULL; }
Status cuda_stream_new(Exec *ex, void **out) { return none(); }
Status cuda_record_on(Exec *ex, Event event, void *stream) { return none(); }
Status cuda_wait_on(Exec *ex, Event event, void *stream) { return none(); }

Status cuda_capture_begin(Exec *ex) { return none(); }
Status cuda_capture_end(Exec *ex, CudaGraph *out) { return none(); }
Status cuda_graph_launch(Exec *ex, const CudaGraph *g) { return none(); }
void cuda_graph_free(CudaGraph *g) { *g = (CudaGraph){ 0 }; }

Status cuda_bus_id(Exec *ex, char out[CUDA_BUS_ID_MAX]) { return none(); }
int64_t cuda_waits(const Exec *ex) { return 0; }
Status cuda_used_bytes(Exec *ex, size_t *out) { return none(); }

Status cuda_mark(Exec *ex, int which) { return none(); }
Status cuda_marks_s(Exec *ex, double *out) { return none(); }
Status cuda_timer_make(Arena *a, int n, CudaTimer *out) { return none(); }
void cuda_timer_free(CudaTimer *t) { *t = (CudaTimer){ 0 }; }
Status cuda_timer_mark(const CudaTimer *t, Exec *ex, int which) { return none(); }
Status cuda_timer_s(const CudaTimer *t, int from, int to, double *out) { return none(); }
Status cuda_delay(Exec *ex, double seconds) { return none(); }

const char *cuda_attention_why(const Exec *ex) { return "this program was built without CUDA"; }
struct Choices *cuda_choices(Exec *ex) { return NULL; }
Status cuda_tune(Exec *ex, bool on) { return OK; }

/* NOLINTEND(readability-non-const-parameter,misc-unused-parameters) */
