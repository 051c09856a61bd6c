/* bench: for a build without that house (make HOUSES=...). */
#include "app/options/cli.h"

Status cli_bench(int argc, char **argv)
{
    (void)argc, (void)argv;
    return FAIL(ERR_UNSUPPORTED,
                "switchyard bench: this build lacks src/bench: run make, or make HOUSES=bench");
}
