/* why: which kernel takes each call of a model on a GPU, and why the others do not: `bench ops --why`. */
#ifndef WHY_WHY_H
#define WHY_WHY_H

#include "engine/config/config.h"

/* For each call of a step that has several kernels: which one runs, and why the others do not.
 * Nothing is executed. sheet: the GPU of a hardware file; NULL: this machine's GPU, if it has
 * one. */
Status bench_why(const Config *c, const char *sheet, Text *out);
/* All these kernels and which calls they take, as the table of docs/explain/kernels.md. */
Status bench_kernels_table(Text *out);

#endif
