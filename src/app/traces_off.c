/* traces: for a build without that house (make HOUSES=...). */
#include "app/options/cli.h"

Status cli_trace(int argc, char **argv)
{
    (void)argc, (void)argv;
    return FAIL(ERR_UNSUPPORTED,
                "switchyard trace: this build lacks src/traces: run make, or make HOUSES=traces");
}
