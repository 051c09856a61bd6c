/* trace_page: the page of a trace, or of the traces of all ranks: what is kept of each trace as it
 * is added, and the sections that are written at the end. Lanes are trace_lanes.c's; tables and the
 * roofline are in trace_page_parts.c. */
#include "traces/page/trace_page.h"

#include "engine/base/file.h"
#include "pages/charts/page.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Limits of a page that a browser still scrolls: boxes of all lanes together, rows of two tables,
 * characters of a name. */
enum { BOXES_MOST = 300000, KERNELS_MOST = 30, COLLECTIVES_MOST = 40, NAME_MOST = 240 };

/* The parts of the device's time, and for idle ones what the device waited for. */
static const struct {
    const char *name, *why;
} part_of[TRACE_PAGE_BUCKETS] = {
    { "computation", NULL },
    { "exposed communication", NULL },
    { "exposed copies", NULL },
    [BUCKETS + IDLE_HOST_LATE] = { "idle: host late",
                                   "nothing was enqueued, as the host launched too late" },
    [BUCKETS + IDLE_SYNCHRONISATION] = { "idle: synchronisation",
                                         "the host waited for the device before it launched more" },
    [BUCKETS +
        IDLE_DEPENDENCY] = { "idle: dependency", "enqueued work waited for a stream or an event" },
    [BUCKETS + IDLE_UNLINKED] = { "idle: launch not in the trace",
                                  "the trace has no launch event of the next work" },
    [BUCKETS + IDLE_DATA_LOADER] = { "idle: data loader", "the host waited for a batch" },
};

/* A growing text must be the last allocation of its arena, so each part has an arena of its own. */
static Status part_begin(TracePart *p, const char *name)
{
    TRY(arena_reserve(&p->arena, name, (size_t)4 << 30));
    return text_init(&p->text, &p->arena);
}

static Status totals_begin(TraceTotals *t)
{
    *t = (TraceTotals){ 0 };
    return arena_reserve(&t->arena, "totals of a page", (size_t)1 << 30);
}

/* Names are numbered from 0 in three tables: of events, of lanes, of files and devices. Number 0 of
 * the last one is not used for a device, so 0 means that none is known. */
Status trace_page_begin(TracePage *p, int files)
{
    *p = (TracePage){
        .files = files, .boxes_most = BOXES_MOST, .origin_ns = INT64_MIN, .begun = true
    };
    TRY(strings_init(&p->names));
    TRY(strings_init(&p->lane_names));
    TRY(strings_init(&p->rank_names));
    TRY(part_begin(&p->lanes, "lanes"));
    TRY(part_begin(&p->sheets, "sheets"));
    TRY(part_begin(&p->points, "points"));
    TRY(totals_begin(&p->kernels));
    TRY(totals_begin(&p->collectives));
    TRY(arena_reserve(&p->arena, "page", (size_t)8 << 30));
    TRY(ARENA_ZEROED(&p->arena, files * TRACE_PAGE_BUCKETS, &p->parts));
    TRY(ARENA_ZEROED(&p->arena, files, &p->file));
    return ARENA_ZEROED(&p->arena, files, &p->drawn);
}

void trace_page_free(TracePage *p)
{
    if (!p->begun) return;
    strings_free(&p->names);
    strings_free(&p->lane_names);
    strings_free(&p->rank_names);
    Arena *const arenas[] = { &p->lanes.arena,   &p->sheets.arena,      &p->points.arena,
                              &p->kernels.arena, &p->collectives.arena, &p->arena };
    for (size_t i = 0; i < sizeof arenas / sizeof *arenas; i++) arena_free(arenas[i]);
    p->begun = false;
}

/* ---- what is kept of a trace ---- */

/* Makes the three arrays large enough for name `id`: new ones of twice the size, zeroed behind the
 * old values. The old ones stay in the arena until the page is freed. */
static Status totals_grow(TraceTotals *t, int files, uint32_t id)
{
    double **const of[] = { &t->us, &t->count, &t->longest };
    if ((int64_t)id < t->room) return OK;
    int64_t room = t->room == 0 ? 1024 : t->room;
    while (room <= (int64_t)id) room *= 2;
    for (int i = 0; i < 3; i++) {
        double *more = NULL;
        TRY(ARENA_ZEROED(&t->arena, room * files, &more));
        if (t->room > 0) memcpy(more, *of[i], (size_t)(t->room * files) * sizeof *more);
        *of[i] = more;
    }
    t->room = room;
    return OK;
}

/* Totals lie by (name, file), so one name's totals of all files are adjacent. */
static Status totals_add(TracePage *p, TraceTotals *t, const char *name, double us)
{
    uint32_t id = 0;
    TRY(strings_id(&p->names, name, strlen(name), &id));
    TRY(totals_grow(t, p->files, id));
    int64_t at = (int64_t)id * p->files + p->added;
    t->us[at] += us;
    t->count[at]++;
    t->longest[at] = fmax(t->longest[at], us);
    return OK;
}

/* Adds up kernels by name, and collectives by the name that the host gave them, where it is
 * known. */
static Status add_totals(TracePage *p, const Report *r)
{
    const Events *e = r->e;
    for (int64_t i = 0; i < r->gpus; i++) {
        uint32_t event = r->gpu[i], collective = EVENT_NONE;
        const char *name = event_name(e, event);
        if (e->kind[event] == EVENT_KERNEL) TRY(totals_add(p, &p->kernels, name, e->dur[event]));
        if (report_bucket(r, event) != BUCKET_COMM) continue;
        if (e->detail[event] != EVENT_NONE) collective = e->gpu[e->detail[event]].collective;
        if (collective != EVENT_NONE)
            name = strings_text(&e->strings, e->collectives[collective].name);
        TRY(totals_add(p, &p->collectives, name, e->dur[event]));
    }
    return OK;
}

/* Keeps the bars of "where the time went": ms of three rows of the report's timeline, and of idle time
 * by its cause. */
static Status add_parts(TracePage *p, const Report *r)
{
    static const int row[BUCKETS] = { TIMELINE_COMPUTATION, TIMELINE_EXPOSED_COMM,
                                      TIMELINE_EXPOSED_MEMCPY };
    double us[TIMELINE_ROWS], idle[IDLE_CAUSES];
    double *ms = &p->parts[(size_t)p->added * TRACE_PAGE_BUCKETS];
    TRY(report_timeline(r, us));
    TRY(report_idle(r, idle));
    for (int i = 0; i < TRACE_PAGE_BUCKETS; i++)
        ms[i] = fmax(0, (i < BUCKETS ? us[row[i]] : idle[i - BUCKETS]) / 1e3);
    return OK;
}

/* The file's part of every summary is column p->added. */
Status trace_page_add(TracePage *p, Report *r, const char *name, const Table *sheet, int n)
{
    const Events *e = r->e;
    uint32_t id = 0;
    TRY(file_last_part(name, &p->arena, &name));
    TRY(strings_id(&p->rank_names, name, strlen(name), &id));
    p->file[p->added] = id;
    if (e->n_devices > 0 && p->device == 0) {
        const char *device = strings_text(&e->strings, e->devices[0].name);
        TRY(strings_id(&p->rank_names, device, strlen(device), &p->device));
    }
    if (p->added == 0) TRY(perf_peaks(r, &p->peaks));
    p->events += e->n;
    p->left_out += e->counts.malformed + e->counts.incomplete + r->tree->dropped;
    TRY(add_parts(p, r));
    TRY(add_totals(p, r));
    TRY(trace_lanes(p, r, p->boxes_most / p->files));
    TRY(text_markup(&p->sheets.text, "<h3>%s</h3>\n", name));
    for (int i = 0; i < n; i++) {
        TRY(trace_part_points(p, &sheet[i]));
        TRY(trace_part_table(&p->sheets.text, &sheet[i], false, false));
    }
    p->added++;
    return OK;
}

/* ---- the page ---- */

/* Appends JSON inside a page's script, with <, > and & as \u escapes: they could end the script, or
 * be read as markup. */
static Status append_script_json(Text *out, const char *json, size_t n)
{
    for (size_t i = 0, from = 0; i <= n; i++) {
        if (i < n && json[i] != '<' && json[i] != '&' && json[i] != '>') continue;
        TRY(text_append(out, json + from, i - from));
        if (i < n) TRY(text_printf(out, "\\u%04x", (unsigned char)json[i]));
        from = i + 1;
    }
    return OK;
}

/* The names as JSON texts without brackets, each cut to NAME_MOST bytes. */
static Status append_names(const Strings *s, Text *out)
{
    Arena room = { 0 };
    Text json = { 0 };
    TRY(arena_reserve(&room, "names of a page", (size_t)1 << 30));
    Status st = text_init(&json, &room);
    for (uint32_t i = 0; i < s->n && st == OK; i++) {
        char cut[TRACE_PAGE_NAME];
        st = text_json(&json, i == 0 ? "%s" : ",%s",
                       trace_page_name(cut, strings_text(s, i), NAME_MOST));
    }
    if (st == OK) st = append_script_json(out, json.data, json.used);
    arena_free(&room);
    return st;
}

/* The data is JSON in a script element that no browser runs; trace.js reads it and draws the
 * canvas. */
Status trace_page_timeline(const TracePage *p, Text *out)
{
    TRY(text_printf(out,
                    "<p class=\"note\">The wheel with "
                    "Ctrl zooms, dragging pans, a double click shows all; w, s, a and d do the "
                    "same.</p>\n<canvas class=\"trace\" tabindex=\"0\"></canvas>\n"
                    "<script type=\"application/json\" id=\"trace\">{\"names\":["));
    TRY(append_names(&p->names, out));
    TRY(text_printf(out, "],\"lane_names\":["));
    TRY(append_names(&p->lane_names, out));
    TRY(text_printf(out, "],\"ranks\":["));
    for (int i = 0; i < p->added; i++) TRY(text_printf(out, i == 0 ? "%d" : ",%d", i));
    TRY(text_printf(out, "],\"lanes\":["));
    TRY(append_script_json(out, p->lanes.text.data, p->lanes.text.used));
    return text_printf(out, "]}</script>\n");
}

/* The longest trace counts as the device time: ranks run at once. */
static Status facts_part(const TracePage *p, Text *out)
{
    char a[32], b[32];
    int64_t drawn = 0;
    double wall = 0;
    for (int i = 0; i < p->added; i++) {
        double sum = 0;
        for (int k = 0; k < TRACE_PAGE_BUCKETS; k++)
            sum += p->parts[(size_t)i * TRACE_PAGE_BUCKETS + (size_t)k];
        wall = fmax(wall, sum);
        drawn += p->drawn[i];
    }
    TRY(text_printf(out, "<div class=\"facts\">\n"));
    TRY(text_markup(out, "<div><dl><dt>Traces</dt><dd>%d<small>%s</small></dd></dl></div>\n",
                    p->added, p->device == 0 ? "" : strings_text(&p->rank_names, p->device)));
    TRY(text_printf(out,
                    "<div><dl><dt>Device time</dt><dd>%.4g ms<small>of the longest, from its first "
                    "to its last work</small></dd></dl></div>\n",
                    wall));
    return text_printf(out,
                       "<div><dl><dt>Events</dt><dd>%s<small>%s boxes drawn, %" PRId64
                       " events left out</small></dd></dl></div>\n</div>\n",
                       text_thousands(a, p->events), text_thousands(b, drawn), p->left_out);
}

static const char *file_name(const TracePage *p, int file)
{
    return strings_text(&p->rank_names, p->file[file]);
}

/* A line for each cause of idle time, of all files together, where it is at least 0.1 %. */
static Status idle_part(const TracePage *p, Text *out)
{
    double sum[TRACE_PAGE_BUCKETS] = { 0 }, all = 0, idle = 0;
    for (int i = 0; i < p->added * TRACE_PAGE_BUCKETS; i++) {
        sum[i % TRACE_PAGE_BUCKETS] += p->parts[i];
        all += p->parts[i];
        if (i % TRACE_PAGE_BUCKETS >= BUCKETS) idle += p->parts[i];
    }
    if (idle < 1e-3 * all) return OK;
    TRY(text_printf(out, "<p>The device was idle for %.1f %% of its time:</p>\n<ul id=\"idle\">\n",
                    100 * idle / all));
    for (int k = BUCKETS; k < TRACE_PAGE_BUCKETS; k++) {
        if (sum[k] < 1e-3 * all) continue;
        TRY(text_printf(out, "<li>%.1f %%: %s</li>\n", 100 * sum[k] / all, part_of[k].why));
    }
    TRY(text_printf(out, "</ul>\n"));
    return part_note(
        out, "Waiting for other ranks is no idle time: kernels of collectives run while "
             "they wait. <code>switchyard trace collectives</code> tells from the traces of all "
             "ranks which rank was late.");
}

static Status breakdown_part(const TracePage *p, Arena *a, Text *out)
{
    const char **row = NULL, *name[TRACE_PAGE_BUCKETS];
    TRY(ARENA_NEW(a, p->added, &row));
    for (int i = 0; i < p->added; i++) row[i] = file_name(p, i);
    for (int i = 0; i < TRACE_PAGE_BUCKETS; i++) name[i] = part_of[i].name;
    TRY(text_printf(out, "<section id=\"breakdown\"><h2>Where the time went, ms</h2>\n"));
    TRY(svg_bars(out, &(SvgBars){ .title = "Breakdown",
                                  .row = row,
                                  .part = name,
                                  .value = p->parts,
                                  .rows = p->added,
                                  .parts = TRACE_PAGE_BUCKETS,
                                  .width = 1080,
                                  .unit = SVG_PLAIN }));
    TRY(idle_part(p, out));
    return text_printf(out, "</section>\n");
}

static double sum_over_files(const TracePage *p, const double *of, int64_t name)
{
    double sum = 0;
    for (int f = 0; f < p->files; f++) sum += of[name * p->files + f];
    return sum;
}

/* The next name in order of falling time after name `last`, whose time is `us`; -1: there is none.
 * Few are shown, so a scan for each costs less than a sort of all. */
static int64_t next_name(const TracePage *p, const TraceTotals *t, double us, int64_t last)
{
    int64_t best = -1;
    double most = 0;
    for (int64_t i = 0; i < t->room; i++) {
        double x = sum_over_files(p, t->us, i);
        if (x > us || (x == us && i <= last) || x <= most) continue;
        most = x, best = i;
    }
    return best;
}

/* Time and runs are summed over all files; the longest run is the longest of any file. */
static Status kernels_part(const TracePage *p, Text *out)
{
    double all = 0, us = INFINITY;
    for (int64_t i = 0; i < p->kernels.room; i++) all += sum_over_files(p, p->kernels.us, i);
    TRY(text_printf(out, "<section id=\"kernels\"><h2>Kernels that took most</h2>\n<div "
                         "class=\"wide\"><table><tr><th>kernel</th><th>ms</th><th>share</th>"
                         "<th>runs</th><th>mean, us</th><th>longest, us</th></tr>\n"));
    for (int64_t k = 0, at = -1; k < KERNELS_MOST; k++) {
        at = next_name(p, &p->kernels, us, at);
        if (at < 0) break;
        us = sum_over_files(p, p->kernels.us, at);
        double runs = sum_over_files(p, p->kernels.count, at), longest = 0;
        char cut[TRACE_PAGE_NAME];
        const char *name = strings_text(&p->names, (uint32_t)at);
        for (int f = 0; f < p->files; f++)
            longest = fmax(longest, p->kernels.longest[at * p->files + f]);
        TRY(text_markup(out,
                        "<tr><td title=\"%s\">%s</td><td>%.4g</td><td>%.1f %%<span "
                        "class=\"share\"><i style=\"width:%.0f%%\"></i></span></td><td>%.0f</td>"
                        "<td>%.4g</td><td>%.4g</td></tr>\n",
                        name, trace_page_name(cut, name, 84), us / 1e3, 100 * us / all,
                        100 * us / all, runs, us / runs, longest));
    }
    return text_printf(out, "</table></div></section>\n");
}

/* A table with a row for each collective and a column for each rank; longer times are darker. */
static Status collectives_part(const TracePage *p, Text *out)
{
    const TraceTotals *t = &p->collectives;
    char cut[TRACE_PAGE_NAME];
    double us = INFINITY, most = 0;
    for (int64_t i = 0; i < t->room * p->files; i++) most = fmax(most, t->us[i]);
    if (most == 0) return OK;
    TRY(text_printf(out, "<section id=\"collectives\"><h2>Time in collectives by rank, ms</h2>\n"
                         "<div class=\"wide\"><table class=\"heat\"><tr><th>collective</th>"));
    for (int f = 0; f < p->added; f++)
        TRY(text_markup(out, "<th title=\"%s\">%s</th>", file_name(p, f),
                        trace_page_name(cut, file_name(p, f), 24)));
    TRY(text_printf(out, "</tr>\n"));
    for (int64_t k = 0, at = -1; k < COLLECTIVES_MOST; k++) {
        at = next_name(p, t, us, at);
        if (at < 0) break;
        us = sum_over_files(p, t->us, at);
        const char *name = strings_text(&p->names, (uint32_t)at);
        TRY(text_markup(out, "<tr><td title=\"%s\">%s</td>", name, trace_page_name(cut, name, 60)));
        for (int f = 0; f < p->added; f++) {
            double x = t->us[at * p->files + f];
            TRY(text_printf(out, "<td style=\"--heat:%.2f\" title=\"%.0f runs\">%.4g</td>",
                            x / most, t->count[at * p->files + f], x / 1e3));
        }
        TRY(text_printf(out, "</tr>\n"));
    }
    return text_printf(out, "</table></div></section>\n");
}

/* The sections in the order of the page. Sections whose data is missing write nothing. */
static Status page_text(const TracePage *p, Arena *a, Text *out)
{
    char title[FILE_PATH_MAX + 32];
    (void)snprintf(title, sizeof title, "%s%s", file_name(p, 0), p->added > 1 ? " and others" : "");
    TRY(page_begin(out, title));
    TRY(text_markup(out,
                    "<header><h1>%s</h1><nav><a href=\"#timeline\">timeline</a><a "
                    "href=\"#breakdown\">breakdown</a><a href=\"#kernels\">kernels</a><a "
                    "href=\"#sheets\">sheets</a></nav></header>\n",
                    title));
    TRY(facts_part(p, out));
    TRY(text_printf(out, "<section id=\"timeline\"><h2>Timeline</h2>\n"));
    TRY(trace_page_timeline(p, out));
    TRY(text_printf(out, "</section>\n"));
    TRY(breakdown_part(p, a, out));
    TRY(kernels_part(p, out));
    TRY(trace_part_roofline(out, p, a));
    TRY(collectives_part(p, out));
    TRY(text_printf(out, "<section id=\"sheets\"><h2>Sheets</h2>\n"));
    TRY(text_append(out, p->sheets.text.data, p->sheets.text.used));
    TRY(text_printf(out, "</section>\n"));
    return page_end(out, "trace.js");
}

/* The page grows in p->arena, so names that a section makes need an arena of their own. */
Status trace_page_write(TracePage *p, const char *path)
{
    Arena names = { 0 };
    Text page = { 0 };
    TRY(arena_reserve(&names, "names", (size_t)1 << 30));
    Status s = text_init(&page, &p->arena);
    if (s == OK) s = page_text(p, &names, &page);
    if (s == OK) s = file_write_whole(path, page.data, page.used);
    arena_free(&names);
    return s;
}
