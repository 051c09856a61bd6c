/* convert: for a build without that house (make HOUSES=...). */
#include "app/options/cli.h"
#include "convert/convert.h"

static Status absent(const char *what)
{
    return FAIL(ERR_UNSUPPORTED,
                "%s: this build lacks src/convert: run make, or make HOUSES=convert", what);
}

Status cli_convert(int argc, char **argv)
{
    (void)argc, (void)argv;
    return absent("switchyard convert");
}

Status convert_from_hf(const char *folder, const char *out, Arena *a, Text *report)
{
    (void)out, (void)a, (void)report;
    return absent(folder);
}
