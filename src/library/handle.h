/* handle: what the library's files share: sentences of failures, checks of arguments, and handles. */
#ifndef LIBRARY_HANDLE_H
#define LIBRARY_HANDLE_H

#include "engine/base/arena.h"
#include "engine/config/config.h"

#include <switchyard.h>

/* Keeps the sentence of a failure for switchyard_error, because the next call may overwrite the status record. Returns
 * `s`. */
Status library_keep(Status s);
/* The same, as the exit code that the program would have. */
SwitchyardResult library_result(Status s);

/* Defines a function of switchyard.h: what the file's static function of that name returns, as a result. */
#define LIBRARY_FUNCTION(name, parameters, arguments)                                              \
    SwitchyardResult switchyard_##name parameters { return library_result(name arguments); }

/* The caller is foreign code, so NULL is an error and not an assertion. */
Status library_given(const char *function, const void *a, const void *b);
/* ERR_ARG unless 0 <= i < n. */
Status library_index(const char *what, int64_t i, int64_t n);

/* Sets a pointer to a handle: `bytes` zeroed bytes in an arena of its own, which is its first member. gib: addresses
 * that it reserves, of which a process has 2^17. */
Status library_make(const char *what, size_t bytes, size_t gib, void *pointer);
/* Frees the arena and the handle with it; NULL is fine. */
void library_free(void *handle);

struct SwitchyardConfig {
    Arena arena;
    Config config;
    Text yaml;
};

/* A number of weights, sorted by name, and who reads one of them. */
struct SwitchyardWeights {
    Arena arena;
    SwitchyardWeight *at;
    int64_t n;
    Status (*read)(SwitchyardWeights *w, int64_t i, float *to);
    void *from; /* reader's */
};
void library_sort_weights(SwitchyardWeights *w);

#endif
