/* movers: which kernels are communication, by their names. movers.def is the one table of them: all
 * sheets, pages and `trace collectives` ask it. tools/compat has TraceLens' shorter list. */
#ifndef TRACES_READ_MOVERS_H
#define TRACES_READ_MOVERS_H

#include <stdbool.h>

/* The library that a kernel belongs to if it moves data between GPUs; NULL: it is not known as
 * such. */
const char *mover_library(const char *kernel);
/* Is the kernel in no row, but named like one that moves data? Such kernels count as computation,
 * and reports list them. */
bool mover_maybe(const char *kernel);

#endif
