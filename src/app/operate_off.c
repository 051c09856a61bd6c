/* operate: for a build without that house (make HOUSES=...). */
#include "app/options/cli.h"

Status cli_doctor(int argc, char **argv)
{
    (void)argc, (void)argv;
    return FAIL(ERR_UNSUPPORTED,
                "switchyard doctor: this build lacks src/operate: run make, or make "
                "HOUSES=operate");
}
