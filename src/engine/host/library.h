/* library: opens a shared library at run time (dlopen). The program starts where the library is
 * missing, and the error says which file it wanted, where it looked and what to do.
 *
 * The search covers the loader's path, then the folders where CUDA, the distribution and Python
 * packages put NVIDIA's libraries, and ROCm its own. It ends at the first library that is new enough
 * and has every function. The version comes from the file's name if it is there; otherwise the library is asked.
 * Asking loads further libraries that stay loaded, and a second copy would wrongly bind to them. So a
 * library that had to be asked is the last candidate. */
#ifndef ENGINE_HOST_LIBRARY_H
#define ENGINE_HOST_LIBRARY_H

#include "engine/base/status.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct LibraryCall {
    const char *name, *older; /* older: the function's former name, or NULL */
    size_t offset;            /* of its pointer in the caller's table */
    bool optional;            /* if it is missing, a warning says so and the pointer is NULL */
} LibraryCall;

typedef struct Library {
    const char *file, *what, *advice; /* "libnccl.so.2", "collectives of GPUs", "install ..." */
    const LibraryCall *call;
    int calls;
    int least;                         /* the oldest version, as 91600 for 9.16.0; 0: any */
    int (*version)(const void *table); /* asks the library; NULL: its name says enough */
} Library;

/* Fill the pointers of `table`. ERR_UNSUPPORTED: what is missing, where it was looked for, and the
 * advice. dlclose takes *out_file. */
Status library_open(const Library *l, void *table, void **out_file);

#endif
