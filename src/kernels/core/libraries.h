/*
 * libraries: the vendor's libraries that ops on a GPU call, as a table of rows. They are opened with an Exec and closed
 * with it. A build has the table of its vendor (nv/libraries.cu), or an empty one (libraries_off.c). Which kernel or
 * library runs a call is not decided here but in kernels/core/kernels.h.
 */
#ifndef KERNELS_CORE_LIBRARIES_H
#define KERNELS_CORE_LIBRARIES_H

#include "engine/base/arena.h"
#include "kernels/core/vendor.h"

#include <stdbool.h>

struct Exec;
struct Choices;
struct Tuner;

extern const GpuVendor op_vendor; /* of this build */

/* NULL entries mean that there is nothing to do. `library` is the handle that `open` returned. */
typedef struct OpLibrary {
    const char *name;
    Status (*open)(struct Exec *ex, Arena *a, void **out);
    void (*close)(void *library);
    struct Tuner *(*tuner)(void *library);     /* of products: times and keeps choices (tuner.h) */
    const char *(*lacks)(const void *library); /* why it cannot be used; NULL: it can */
} OpLibrary;

extern const OpLibrary op_library[LIBRARY_COUNT];

/* Opens all libraries. Also sets ex->device (in `a`), which says which of them can be used. */
Status libraries_open(struct Exec *ex, Arena *a);
void libraries_close(struct Exec *ex);

/* The algorithms that matrix products of this Exec use. NULL: its products have no choice. */
struct Choices *exec_choices(const struct Exec *ex);
/* While on, a product of a shape without a choice times its candidates. Such a call waits for the
 * GPU, and its results are meaningless. Must not be on while a graph is captured. */
Status exec_tune(struct Exec *ex, bool on);
#endif
