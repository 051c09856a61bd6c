/*
 * kernels: the candidates for an op on GPUs, as rows of a table.
 *
 * Several kernels may compute the same: one of a library, one made for a family of chips, one that
 * runs everywhere. A row says what its kernel needs of the device and of the call (`can`), how much
 * workspace it takes, how to launch it, and at which rate its work runs. kernels_run takes the first
 * row that can. Where the fastest depends on more than that, the row itself times its variants
 * (op/choices.h).
 *
 * `can` is plain C over the arguments of a call, so a plan asks the same question on a machine that
 * has no GPU, and a limit stands in one place. It reads no data behind the arguments' pointers.
 *
 * A kernel that only its library can judge may refuse when it runs: it returns ERR_UNSUPPORTED with
 * the reason before it launched anything, and the next row is asked.
 *
 * Rows stand in attention_kernels.c and product_kernels.c. A new kernel is a file of its own and a
 * row. CPU implementations are not candidates here: cpu_set.h chooses among them.
 */
#ifndef OP_KERNELS_H
#define OP_KERNELS_H

#include "op/op.h"

#ifdef HAVE_CUDA
#define CUDA_OP(function) function
#else
#define CUDA_OP(function) NULL
#endif

/* What a row may ask of a GPU. */
typedef struct KernelDevice {
    GpuVendor vendor;                 /* VENDOR_ANY: nobody's, as of a machine without a GPU */
    int capability;                   /* NVIDIA: 10 * major + minor, 90 for Hopper */
    const char *lacks[LIBRARY_COUNT]; /* why a library is not there; NULL: it is */
} KernelDevice;

/* A GPU that has all libraries: what costs and workspaces are computed for, so that a plan, its run
 * and a run without one of the libraries agree. */
extern const KernelDevice kernel_device_full;

#define NEEDS(library) (1 + (int)(library))

enum { KERNEL_WHY_MAX = 256, KERNEL_NEEDS_MAX = 256 };

/* Why a row cannot take a call. */
typedef struct KernelWhy {
    /* The kernel is not made for such devices or calls, or was not asked for. Else it could be
     * expected here, so a slower one is worth a line in the log. */
    bool expected;
    char text[KERNEL_WHY_MAX];
} KernelWhy;

typedef struct KernelDesc {
    const char *name; /* in settings, logs and docs */
    GpuVendor vendor;
    int capability_least, capability_most;         /* 0: any */
    int library;                                   /* NEEDS(LIBRARY_...); 0: none */
    void (*needs)(char out[KERNEL_NEEDS_MAX]);     /* when it runs, for people; NULL: always */
    bool (*can)(const void *call, KernelWhy *why); /* NULL: any call */
    size_t (*workspace)(const void *call); /* on the device; NULL: none, or a build without it */
    Status (*run)(Exec *ex, const void *call); /* NULL in a build without CUDA */
    OpWork work;
} KernelDesc;

/* Rows in order of preference. */
typedef struct KernelTable {
    const char *setting; /* that may name one of them; NULL: none does */
    const KernelDesc *row;
    int n;
} KernelTable;

/* For `can`: false, with the reason. */
#if defined __GNUC__
__attribute__((format(printf, 3, 4)))
#endif
bool kernel_refuses(KernelWhy *why, bool expected, const char *format, ...);

/* May this row run this call on this device? *why is set if not. */
bool kernel_can(const KernelDesc *k, const KernelDevice *d, const void *call, KernelWhy *why);

/* asked: the place of a row from 1 on, 0 for any. The first row that can run the call; NULL: none. */
const KernelDesc *kernels_first(const KernelTable *t, const KernelDevice *d, int asked,
                                const void *call);

/* The most that any row may take which can run on kernel_device_full. */
size_t kernels_workspace(const KernelTable *t, int asked, const void *call);

/* Runs the first row that can and does. If a faster one was expected, it says so once an `op`, whose
 * name outlives the Exec; NULL: it says nothing. ERR_UNSUPPORTED with each row's reason: none did. */
Status kernels_run(Exec *ex, const KernelTable *t, const char *op, int asked, const void *call);

#endif
