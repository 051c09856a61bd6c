/* beside: programs of their own that commands become, as git's do: `switchyard data ngram` is the program
 * switchyard-data-ngram that lies beside it (process_become). So what only few read stands outside src/. */
#ifndef BESIDE_BESIDE_H
#define BESIDE_BESIDE_H

#include "engine/base/status.h"

/* The command: argv[0] is the program, then come its words. Each program has one. */
Status beside_run(int argc, char **argv);

#endif
