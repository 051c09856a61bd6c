/* op_args: splits the recorded arguments of an operator into one record for each argument. What an
 * argument means is not known here. */
#ifndef TRACES_READ_OP_ARGS_H
#define TRACES_READ_OP_ARGS_H

#include "traces/read/events.h"

enum { OP_ARGS_MOST = 64 };

/* One argument. A tensor has sizes and strides, a scalar or list has a value. */
typedef struct OpArg {
    const char *type, *value;   /* type "", value NULL: not recorded */
    const char *dims, *strides; /* JSON; "": none */
} OpArg;

/* Reads *n arguments; texts lie in `a`. *sound: all lists are JSON of one length below OP_ARGS_MOST. */
Status op_args_read(const Strings *s, const OpArgs *args, Arena *a, OpArg out[OP_ARGS_MOST], int *n,
                    bool *sound);
/* Reads the sizes of "[8, 12]". Returns how many; -1: it is not a list of at most `most` whole
 * numbers. */
int op_sizes(const char *list, int64_t *out, int most);

#endif
