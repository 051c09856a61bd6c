/* trace: the subcommands of `switchyard trace`, a file each. */
#ifndef CLI_TRACE_H
#define CLI_TRACE_H

#include "base/status.h"

Status cli_trace_collectives(int argc, char **argv);

#endif
