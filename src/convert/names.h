/* names: a hash table from names to numbers, for the tensors of a folder and the parameters of a
 * checkpoint. Its size is fixed at the start; names are never removed. */
#ifndef CONVERT_NAMES_H
#define CONVERT_NAMES_H

#include "engine/base/arena.h"

typedef struct Names {
    const char **name; /* NULL: empty; the caller owns the texts */
    int64_t *value;
    uint64_t mask; /* number of slots (a power of two) - 1 */
} Names;

/* Room for n names, in `a`. */
Status names_init(Names *t, int64_t n, Arena *a);
/* The value of a name, or -1 if the table does not have it. */
int64_t names_find(const Names *t, const char *name);
/* Adds a name with a value >= 0 and returns -1. If the table already has the name, changes nothing and
 * returns its value. */
int64_t names_add(Names *t, const char *name, int64_t value);

#endif
