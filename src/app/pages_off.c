/* pages: for a build without that house (make HOUSES=...): a training writes no report, and run.http
 * serves figures without charts. */
#include "pages/live_page.h"
#include "pages/report.h"

Status report_write(const char *run_dir, Arena *scratch, RunSummary *out)
{
    (void)scratch, (void)out;
    return FAIL(ERR_UNSUPPORTED, "%s: this build lacks src/pages: run make, or make HOUSES=pages",
                run_dir);
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
