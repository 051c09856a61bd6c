/* A build without CUDA: everything there, and each says so. */
#include "backend/backend.h"
#include "backend/cuda.h"

bool cuda_built(void) { return false; }

int cuda_devices(void) { return 0; }

static Status none(void)
{
    return FAIL(ERR_UNSUPPORTED,
                "this program was built without CUDA: build it with `make CUDA=1`");
}

Status cuda_info(int device, CudaInfo *out)
{
    (void)device, (void)out;
    return none();
}

Status cuda_exec_init(Exec *ex, int device, Arena *arena, Arena *scratch)
{
    (void)ex, (void)device, (void)arena, (void)scratch;
    return none();
}

Status cuda_exec_count(Exec *ex, Arena *arena, Arena *scratch)
{
    (void)ex, (void)arena, (void)scratch;
    return none();
}

void cuda_exec_free(Exec *ex) { *ex = (Exec){ 0 }; }

Status cuda_capture_begin(Exec *ex)
{
    (void)ex;
    return none();
}

Status cuda_capture_end(Exec *ex, CudaGraph *out)
{
    (void)ex, (void)out;
    return none();
}

Status cuda_graph_launch(Exec *ex, const CudaGraph *g)
{
    (void)ex, (void)g;
    return none();
}

void cuda_graph_free(CudaGraph *g) { *g = (CudaGraph){ 0 }; }

/* NOLINTNEXTLINE(readability-non-const-parameter): the prototype of a build with CUDA */
Status cuda_bus_id(Exec *ex, char out[CUDA_BUS_ID_MAX])
{
    (void)ex, (void)out;
    return none();
}

int64_t cuda_waits(const Exec *ex)
{
    (void)ex;
    return 0;
}

/* NOLINTNEXTLINE(readability-non-const-parameter): the prototype of a build with CUDA */
Status cuda_used_bytes(Exec *ex, size_t *out)
{
    (void)ex, (void)out;
    return none();
}

Status cuda_mark(Exec *ex, int which)
{
    (void)ex, (void)which;
    return none();
}

/* NOLINTNEXTLINE(readability-non-const-parameter): the prototype of a build with CUDA */
Status cuda_marks_s(Exec *ex, double *out)
{
    (void)ex, (void)out;
    return none();
}

Status cuda_timer_make(Arena *a, int n, CudaTimer *out)
{
    (void)a, (void)n, (void)out;
    return none();
}

void cuda_timer_free(CudaTimer *t) { *t = (CudaTimer){ 0 }; }

Status cuda_timer_mark(const CudaTimer *t, Exec *ex, int which)
{
    (void)t, (void)ex, (void)which;
    return none();
}

/* NOLINTNEXTLINE(readability-non-const-parameter): the prototype of a build with CUDA */
Status cuda_timer_s(const CudaTimer *t, int from, int to, double *out)
{
    (void)t, (void)from, (void)to, (void)out;
    return none();
}

Status cuda_delay(Exec *ex, double seconds)
{
    (void)ex, (void)seconds;
    return none();
}

const char *cuda_attention_why(const Exec *ex)
{
    (void)ex;
    return "this program was built without CUDA";
}

struct Choices *cuda_choices(Exec *ex)
{
    (void)ex;
    return NULL;
}

Status cuda_tune(Exec *ex, bool on)
{
    (void)ex, (void)on;
    return OK;
}
