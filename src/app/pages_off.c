/* pages: for a build without that house (make HOUSES=...): a training writes no report. */
#include "engine/options/cli.h"
#include "pages/live_page.h"
#include "pages/report.h"

static Status absent(const char *what)
{
    return FAIL(ERR_UNSUPPORTED,
                "%s: this build has no pages: make it with HOUSES=pages, or with all", what);
}

Status cli_report(int argc, char **argv)
{
    (void)argc, (void)argv;
    return absent("switchyard report");
}

Status report_write(const char *run_dir, Arena *scratch, RunSummary *out)
{
    (void)scratch, (void)out;
    return absent(run_dir);
}

const char *run_held_out_text(char out[RUN_HELD_OUT_BYTES], const RunSummary *s)
{
    (void)s;
    out[0] = '\0';
    return out;
}

Status live_page(const LiveView *v, Text *out)
{
    (void)v, (void)out;
    return absent("run.http");
}
