/* serve: for a build without that house (make HOUSES=...). */
#include "app/options/cli.h"
#include "serve/serve.h"

static Status absent(const char *command)
{
    return FAIL(ERR_UNSUPPORTED,
                "switchyard %s: this build lacks src/serve: run make, or make HOUSES=serve",
                command);
}

Status cli_generate(int argc, char **argv)
{
    (void)argc, (void)argv;
    return absent("generate");
}

Status choices_measure(const char *checkpoint, const char *file, bool average, Text *out)
{
    (void)checkpoint, (void)file, (void)average, (void)out;
    return absent("eval --choices");
}
