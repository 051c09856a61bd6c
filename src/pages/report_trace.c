/* report_trace: the last steps of a run as its recorder kept them: rank 0's timeline and tables, in
 * the form of `trace report`. It reads recording/, not trace.json, which is made for Perfetto. */
#include "pages/report_trace.h"

#include "engine/base/file.h"
#include "pages/charts/page.h"
#include "traces/page/trace_page.h"
#include "traces/read/events_read.h"
#include "traces/read/recording.h"

enum { BOXES_MOST = 20000 }; /* far fewer than a page of traces has: a report must open fast */

static Status add_recording(TracePage *p, const Events *e, Arena *a)
{
    const TreeOptions linked = { .link = LINK_CORRELATION };
    const ReportOptions what = { .step = -1 };
    Table table[RECORDING_SHEETS];
    Tree tree = { 0 };
    Report r;
    int n = 0;
    TRY(report_need_work(e));
    TRY(tree_build(e, &linked, a, &tree));
    TRY(report_make(e, &tree, &what, a, &r));
    TRY(recording_tables(e->recording, a, table, &n));
    TRY(trace_page_begin(p, 1));
    p->boxes_most = BOXES_MOST;
    TRY(trace_page_add(p, &r, e->path, NULL, 0));
    for (int i = 0; i < n; i++) {
        bool open =
            strcmp(table[i].name, "phases") == 0 || strcmp(table[i].name, "traced_ops") == 0;
        TRY(trace_part_table(&p->sheets.text, &table[i], false, open));
    }
    return OK;
}

/* A recording that cannot be read must not cost the user the report: its error becomes a
 * sentence. */
Status trace_view_load(TraceView *v, const char *path, Arena *a)
{
    Events e = { 0 };
    *v = (TraceView){ .present = file_exists(path) };
    if (!v->present) return OK;
    TRY(ARENA_ZEROED(a, 1, &v->page));
    Status s = events_read(path, &(EventsOptions){ .threads = 1 }, &e);
    if (s == OK) s = add_recording(v->page, &e, a);
    events_free(&e);
    if (s != ERR_FORMAT && s != ERR_PARTIAL) return s;
    status_sentence(v->problem, sizeof v->problem);
    status_clear();
    return OK;
}

void trace_view_free(TraceView *v)
{
    if (v->page != NULL) trace_page_free(v->page);
}

Status trace_view_write(Text *out, const TraceView *v)
{
    if (v->problem[0] != '\0') return text_markup(out, "<p class=\"note\">%s</p>\n", v->problem);
    TRY(part_note(out, "The last steps before the recording was written, and the last one of "
                       "run.trace_steps. GB/s counts the fewest bytes that an op must move."));
    TRY(trace_page_timeline(v->page, out));
    return text_append(out, v->page->sheets.text.data, v->page->sheets.text.used);
}
