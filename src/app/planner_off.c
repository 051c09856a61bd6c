/* planner: for a build without that house (make HOUSES=...). */
#include "app/options/cli.h"

Status cli_plan(int argc, char **argv)
{
    (void)argc, (void)argv;
    return FAIL(ERR_UNSUPPORTED,
                "switchyard plan: this build lacks src/planner: run make, or make HOUSES=planner");
}
