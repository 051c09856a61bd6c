/* libraries: the vendor's libraries that ops on a GPU call, as a table of rows: opened with an
 * Exec, closed with it. A build has the table of its vendor (nv/libraries.cu), or an empty one
 * (libraries_off.c). Which kernel or library a call takes is not decided here but by the op. */
#ifndef OP_LIBRARIES_H
#define OP_LIBRARIES_H

#include "base/arena.h"

#include <stdbool.h>

struct Exec;
struct Choices;

/* VENDOR_ANY: nobody's. A build is for one vendor's GPUs. */
typedef enum GpuVendor { VENDOR_ANY, VENDOR_NVIDIA, VENDOR_OTHER } GpuVendor;
extern const GpuVendor op_vendor;

/* In the order in which they are opened. */
typedef enum LibraryId { LIBRARY_ATTENTION, LIBRARY_PRODUCTS, LIBRARY_COUNT } LibraryId;

/* An entry that is NULL is nothing to do; `library` is what `open` gave. */
typedef struct OpLibrary {
    const char *name;
    Status (*open)(struct Exec *ex, Arena *a, void **out);
    void (*close)(void *library);
    struct Choices *(*choices)(void *library); /* which algorithm each shape takes (choices.h) */
    Status (*tune)(void *library, bool on);
    const char *(*lacks)(const void *library); /* why it cannot be used; NULL: it can */
} OpLibrary;

extern const OpLibrary op_library[LIBRARY_COUNT];

/* Also sets ex->device, so that kernels know which libraries are there. */
Status libraries_open(struct Exec *ex, Arena *a);
void libraries_close(struct Exec *ex);

/* Which algorithms the matrix products of this Exec take. NULL: there is no choice. */
struct Choices *exec_choices(const struct Exec *ex);
/* While on, a product of a shape that has no choice yet times its candidates: results mean nothing,
 * each such call waits. Not while a graph is captured. */
Status exec_tune(struct Exec *ex, bool on);
#endif
