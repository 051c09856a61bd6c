#include "cli/cli.h"
#include "base/status.h"
Status cli_trace_replay(int argc, char **argv) { (void)argc, (void)argv; return FAIL(ERR_UNSUPPORTED, "soon"); }
