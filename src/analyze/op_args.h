/* op_args: the arguments of an operator's call, one by one. */
#ifndef ANALYZE_OP_ARGS_H
#define ANALYZE_OP_ARGS_H

#include "analyze/events.h"

enum { OP_ARGS_MOST = 64 };

typedef struct OpArg {
    const char *type, *value;   /* "": not recorded; value NULL: not recorded */
    const char *dims, *strides; /* JSON; "": none */
} OpArg;

/* How many there are, and what is known of each; texts lie in `a`. *sound: all lists are JSON, and
 * those that were recorded are of one length, below OP_ARGS_MOST. */
Status op_args_read(const Strings *s, const OpArgs *args, Arena *a, OpArg out[OP_ARGS_MOST], int *n,
                    bool *sound);
/* Whole numbers of "[8, 12]"; how many, -1: it is no list of at most `most` of them. */
int op_sizes(const char *list, int64_t *out, int most);

#endif
