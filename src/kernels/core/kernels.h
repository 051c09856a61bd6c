/*
 * kernels: the candidates for an op on GPUs, as rows of a table.
 *
 * Several kernels may compute the same result: a library's, one made for a family of chips, one that runs everywhere. A
 * row says what its kernel needs of the device and of the call (`can`), how much workspace it takes, how to launch it,
 * and at which rate it works. kernels_run runs the first row that can. If the fastest variant depends on more than
 * that, the row times its variants itself (kernels/core/choices.h).
 *
 * `can` is plain C over the arguments of a call and reads no tensor data. So a plan can ask the
 * same question on a machine without a GPU, and each limit is written in one place.
 *
 * Some limits only the library knows. Then the kernel refuses when it runs: it returns
 * ERR_UNSUPPORTED with the reason, before it launched anything, and the next row is tried.
 *
 * Rows stand in attention_kernels.c and product_kernels.c. A new kernel is a file of its own and a
 * row. CPU implementations are not candidates here: cpu_set.h chooses among them.
 */
#ifndef KERNELS_CORE_KERNELS_H
#define KERNELS_CORE_KERNELS_H

#include "kernels/core/op.h"

/* A function of all vendors' builds, or of one vendor's. Other builds lack it: NULL. */
#if defined HAVE_CUDA
#define VENDOR_ANY_OP(function)    function
#define VENDOR_NVIDIA_OP(function) function
#define VENDOR_AMD_OP(function)    NULL
#elif defined HAVE_HIP
#define VENDOR_ANY_OP(function)    function
#define VENDOR_NVIDIA_OP(function) NULL
#define VENDOR_AMD_OP(function)    function
#else
#define VENDOR_ANY_OP(function)    NULL
#define VENDOR_NVIDIA_OP(function) NULL
#define VENDOR_AMD_OP(function)    NULL
#endif
#define OP_OF_VENDOR(vendor, function) vendor##_OP(function)
#define GPU_OP(function)               VENDOR_ANY_OP(function)

/* What a row may ask of a GPU. */
typedef struct KernelDevice {
    GpuVendor vendor;       /* VENDOR_ANY: there is no GPU */
    int capability;         /* 10 * major + minor: 90 for Hopper, 94 for gfx942 */
    const char *lacks_code; /* why kernels for one capability alone cannot run (gpu_code_lacks) */
    const char *lacks[LIBRARY_COUNT]; /* why a library cannot be used; NULL: it can */
} KernelDevice;

/* An NVIDIA Hopper GPU with all libraries. Costs and workspaces are computed for it, so that a
 * plan, its run and a run that lacks a library agree. */
extern const KernelDevice kernel_device_full;

#define NEEDS(library) (1 + (int)(library))

enum { KERNEL_WHY_MAX = 256, KERNEL_NEEDS_MAX = 256 };

/* Why a row cannot run a call. */
typedef struct KernelWhy {
    /* True: the refusal is no surprise, because the kernel is not made for such devices or calls.
     * False: a user could expect this kernel here, so a slower one is worth a line in the log. */
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
    Status (*run)(Exec *ex, const void *call); /* NULL in a build without a GPU */
    OpWork work;
} KernelDesc;

/* Rows in order of preference. */
typedef struct KernelTable {
    const char *setting; /* the setting that may name a row; NULL: there is none */
    const KernelDesc *row;
    int n;
} KernelTable;

/* For `can`: sets the reason and returns false. */
#if defined __GNUC__
__attribute__((format(printf, 3, 4)))
#endif
bool kernel_refuses(KernelWhy *why, bool expected, const char *format, ...);

/* Can this row run this call on this device? If not, *why has the reason. */
bool kernel_can(const KernelDesc *k, const KernelDevice *d, const void *call, KernelWhy *why);

/* The first row that can run the call; NULL: none can. asked: 0 for any row, n for the n-th only. */
const KernelDesc *kernels_first(const KernelTable *t, const KernelDevice *d, int asked,
                                const void *call);

/* The largest workspace of the rows that can run the call on a full device of their vendor. */
size_t kernels_workspace(const KernelTable *t, int asked, const void *call);

/* Runs the first row that can. If a faster row was expected, it logs that once for each `op` (a
 * string that outlives the Exec; NULL: no log). ERR_UNSUPPORTED with a reason: no row could. */
Status kernels_run(Exec *ex, const KernelTable *t, const char *op, int asked, const void *call);

#endif
