/* pages: for a build without that house (make HOUSES=...): a training writes no report, and run.http
 * serves figures without charts. */
#include "engine/options/cli.h"
#include "pages/live_page.h"
#include "pages/report.h"

static Status absent(const char *what)
{
    return FAIL(ERR_UNSUPPORTED, "%s: this build lacks src/pages: run make, or make HOUSES=pages",
                what);
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
    (void)v;
    return text_printf(
        out, "<!DOCTYPE html>\n<title>no page</title>\n<p>This build lacks src/pages, "
             "which draws here. <a href=\"/metrics\">/metrics</a> has the figures.</p>\n");
}
