/* names: a hash table from names to numbers, for the tensors of a folder and the parameters of a
 * checkpoint. Its size is given at the start. */
#ifndef CONVERT_NAMES_H
#define CONVERT_NAMES_H

#include "base/arena.h"

typedef struct Names {
    const char **name; /* NULL: empty; the texts stay the caller's */
    int64_t *value;
    uint64_t mask; /* the number of places, a power of two, less one */
} Names;

/* Room for n names, in `a`. */
Status names_init(Names *t, int64_t n, Arena *a);
/* The value of a name, or -1 if the table does not have it. */
int64_t names_find(const Names *t, const char *name);
/* Adds a name with a value from 0 on and returns -1. A name that the table has keeps its value, which
 * is returned. */
int64_t names_add(Names *t, const char *name, int64_t value);

#endif
