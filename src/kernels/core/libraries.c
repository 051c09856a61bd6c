/* libraries: opens and closes the libraries of an Exec, and answers what launchers ask of it
 * (gpu_exec.h): stream, workspace, ticket. Which libraries there are is in nv/libraries.cu. */
#include "kernels/core/libraries.h"

#include "engine/gpu/gpu.h"
#include "kernels/core/gpu_exec.h"
#include "kernels/core/kernels.h"
#include "kernels/core/op.h"
#include "kernels/core/tuner.h"

/* A library that is missing is not an error here: `lacks` says so, and rows that need it refuse calls. */
Status libraries_open(Exec *ex, Arena *a)
{
    KernelDevice *device = NULL;
    TRY(ARENA_ZEROED(a, 1, &device));
    device->vendor = op_vendor;
    device->capability = 10 * gpu_limit(GPU_CAPABILITY_MAJOR) + gpu_limit(GPU_CAPABILITY_MINOR);
    device->lacks_code = gpu_code_lacks();
    for (int i = 0; i < LIBRARY_COUNT; i++) {
        const OpLibrary *l = &op_library[i];
        if (l->open != NULL) TRY(l->open(ex, a, &ex->library[i]));
        if (l->lacks != NULL) device->lacks[i] = l->lacks(ex->library[i]);
    }
    ex->device = device;
    return OK;
}

/* In reverse order, since a later library may use an earlier one. */
void libraries_close(Exec *ex)
{
    for (int i = LIBRARY_COUNT - 1; i >= 0; i--) {
        if (ex->library[i] != NULL && op_library[i].close != NULL)
            op_library[i].close(ex->library[i]);
        ex->library[i] = NULL;
    }
}

struct Tuner *exec_tuner(const Exec *ex)
{
    void *products = ex->library[LIBRARY_PRODUCTS];
    return products == NULL ? NULL : op_library[LIBRARY_PRODUCTS].tuner(products);
}

struct Choices *exec_choices(const Exec *ex)
{
    const Tuner *t = exec_tuner(ex);
    return t == NULL ? NULL : t->choices;
}

Status exec_tune(Exec *ex, bool on)
{
    Tuner *t = exec_tuner(ex);
    return t == NULL ? OK : tuner_switch(t, on);
}

GpuStream exec_gpu_stream(Exec *ex)
{
    ex->gpu->used |= 1u << ex->lane; /* waits skip lanes that never had work */
    return ex->gpu->stream[ex->lane];
}

void *exec_workspace(Exec *ex) { return ex->workspace; }
unsigned *exec_ticket(Exec *ex) { return ex->gpu->tickets + ex->lane; }
void *exec_library(Exec *ex, LibraryId id) { return ex->library[id]; }
