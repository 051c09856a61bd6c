/* operate: for a build without that house (make HOUSES=...). */
#include "engine/options/cli.h"

static Status absent(const char *command)
{
    return FAIL(
        ERR_UNSUPPORTED,
        "switchyard %s: this build has no operate: make it with HOUSES=operate, or with all",
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
