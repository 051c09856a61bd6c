/* operate: for a build without that house (make HOUSES=...). */
#include "app/options/cli.h"

static Status absent(const char *command)
{
    return FAIL(ERR_UNSUPPORTED,
                "switchyard %s: this build lacks src/operate: run make, or make HOUSES=operate",
                command);
}

Status cli_supervise(int argc, char **argv)
{
    (void)argc, (void)argv;
    return absent("supervise");
}

Status cli_doctor(int argc, char **argv)
{
    (void)argc, (void)argv;
    return absent("doctor");
}
