/* trace-diff: what `switchyard trace diff` becomes without --compat. With it the command becomes
 * switchyard-trace-compat (tools/compat). */
#include "beside/beside.h"
#include "diff/command.h"

Status beside_run(int argc, char **argv) { return cli_trace_diff(NULL, argc, argv); }
