/* names: a table from names to numbers, of a size that is known beforehand: the tensors of a folder,
 * the parameters of a checkpoint. */
#ifndef CONVERT_NAMES_H
#define CONVERT_NAMES_H

#include "base/arena.h"

typedef struct Names {
    const char **name; /* NULL: empty; the texts stay the caller's */
    int64_t *value;
    uint64_t mask; /* places less one; a power of two less one */
} Names;

/* Room for n names, in `a`. */
Status names_init(Names *t, int64_t n, Arena *a);
/* The value of a name; -1: it is not there. */
int64_t names_find(const Names *t, const char *name);
/* Adds a name with its value, which is not negative. If the name is there, its value stays, and is
 * returned; else -1. */
int64_t names_add(Names *t, const char *name, int64_t value);

#endif
