/* collectives_page: see collectives_page.h. A rank waits from when it arrives until the last rank does; the
 * rest of its kernel is moving. */
#include "traces/page/collectives_page.h"

#include "engine/base/file.h"
#include "pages/charts/page.h"
#include "traces/page/trace_page.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The chart has at most so many bars and ranks; a sheet of no more rows and columns than OPEN is unfolded. */
enum { BARS_MOST = 64, RANKS_MOST = 16, NAME_CHARS = 40, OPEN = 16, WAITING = 0, MOVING, PARTS };

/* Time in the collectives of one name. */
typedef struct Named {
    const char *name;
    double us, *part; /* part: (ranks, PARTS), us */
} Named;

/* All names, the longest first, and their sums; of what sums count. */
typedef struct Times {
    Named *of;
    int n;
    double us, waiting;
} Times;

static Status named_of(const Collectives *c, const char *name, Arena *a, Times *t, Named **out)
{
    int64_t room = t->n;
    for (*out = t->of; *out < t->of + t->n; ++*out) {
        if (strcmp((*out)->name, name) == 0) return OK;
    }
    TRY(ARENA_GROW(a, t->n + 1, &room, &t->of));
    *out = &t->of[t->n++];
    **out = (Named){ .name = name };
    return ARENA_ZEROED(a, c->n_ranks * PARTS, &(*out)->part);
}

static void sort_by_time(Times *t)
{
    for (int i = 1; i < t->n; i++) {
        for (int k = i; k > 0 && t->of[k].us > t->of[k - 1].us; k--) {
            Named x = t->of[k];
            t->of[k] = t->of[k - 1];
            t->of[k - 1] = x;
        }
    }
}

static Status sum_times(const Collectives *c, Arena *a, Times *t)
{
    for (const CollectiveSlot *s = c->slots; s < c->slots + c->n_slots; s++) {
        if (!collective_in_sums(s)) continue;
        for (const CollectiveCall *x = &c->calls[s->call]; x < &c->calls[s->call + s->calls]; x++) {
            const double wait = fmin(fmax(s->arrived - x->start, 0), x->dur);
            Named *named = NULL;
            TRY(named_of(c, collective_name(c, x), a, t, &named));
            double *part = named->part + (size_t)x->rank * PARTS;
            part[WAITING] += wait;
            part[MOVING] += x->dur - wait;
            named->us += x->dur;
            t->us += x->dur;
            t->waiting += wait;
        }
    }
    sort_by_time(t);
    return OK;
}

/* ---- the sentences ---- */

static Status put_totals(const Times *t, Text *out)
{
    if (t->us == 0) return OK;
    return text_printf(out,
                       "<li>all ranks together spent %.4g ms in collectives that are in sums: "
                       "%.4g ms (%.1f %%) waiting for the last rank, %.4g ms moving data</li>\n",
                       t->us / 1e3, t->waiting / 1e3, 100 * t->waiting / t->us,
                       (t->us - t->waiting) / 1e3);
}

/* Each line of the text is an item of the list; a line that ends in ; goes on in the next one. Totals come
 * after the first, which says who makes the others wait. */
static Status sentences_part(const Collectives *c, const Table *sheet, const Times *t, Arena *a,
                             Text *out)
{
    Text lines;
    int n = 0, items = 0;
    bool open = false;
    TRY(text_init(&lines, a));
    TRY(collectives_sentences(c, sheet, &lines));
    TRY(text_printf(out, "<section id=\"result\"><h2>What they cost</h2>\n<ul>\n"));
    for (const char *at = lines.data; *at != '\0'; at += n + (at[n] == '\n')) {
        n = (int)strcspn(at, "\n");
        if (n == 0) continue;
        TRY(text_markup(out, open ? " %.*s" : "<li>%.*s", n, at));
        open = at[n - 1] == ';';
        if (open) continue;
        TRY(text_printf(out, "</li>\n"));
        if (items++ == 0) TRY(put_totals(t, out));
    }
    return text_printf(out, "</ul></section>\n");
}

/* ---- the chart ---- */

/* Marks the ranks that are drawn: those that make the others wait most, as the sheet orders them. */
static int choose_ranks(const Collectives *c, const Table *straggler, bool *drawn)
{
    int n = 0;
    for (int64_t i = 0; i < straggler->rows && n < RANKS_MOST; i++) {
        for (int64_t r = 0; r < c->n_ranks; r++) {
            if (c->ranks[r].rank != table_at(straggler, i, 0)->whole) continue;
            drawn[r] = true;
            n++;
        }
    }
    return n;
}

typedef struct Bars {
    char name[BARS_MOST][TRACE_PAGE_NAME + 32];
    const char *row[BARS_MOST];
    double ms[BARS_MOST][PARTS];
    int n;
} Bars;

/* A bar for each rank that is drawn. */
static void add_bars(const Collectives *c, const Named *named, const bool *drawn, Bars *b)
{
    for (int64_t r = 0; r < c->n_ranks; r++) {
        if (!drawn[r]) continue;
        char cut[TRACE_PAGE_NAME];
        (void)snprintf(b->name[b->n], sizeof *b->name, "%s, rank %lld",
                       trace_page_name(cut, named->name, NAME_CHARS), (long long)c->ranks[r].rank);
        b->row[b->n] = b->name[b->n];
        for (int k = 0; k < PARTS; k++)
            b->ms[b->n][k] = named->part[(size_t)r * PARTS + (size_t)k] / 1e3;
        b->n++;
    }
}

static Status chart_part(const Collectives *c, const Table *straggler, const Times *t, Arena *a,
                         Text *out)
{
    static const char *const part[PARTS] = {
        [WAITING] = "waiting for the last rank", [MOVING] = "moving data"
    };
    Bars *b = NULL;
    bool *drawn = NULL;
    int names = 0;
    TRY(ARENA_ZEROED(a, 1, &b));
    TRY(ARENA_ZEROED(a, c->n_ranks, &drawn));
    const int ranks = choose_ranks(c, straggler, drawn);
    if (ranks == 0 || t->n == 0) return OK;
    for (; names < t->n && b->n + ranks <= BARS_MOST; names++) add_bars(c, &t->of[names], drawn, b);
    TRY(text_printf(out, "<section id=\"chart\"><h2>Time by collective and rank, ms</h2>\n"));
    TRY(svg_bars(out, &(SvgBars){ .title = "Time by collective and rank",
                                  .row = b->row,
                                  .part = part,
                                  .value = *b->ms,
                                  .rows = b->n,
                                  .parts = PARTS,
                                  .width = 1080,
                                  .unit = SVG_PLAIN }));
    if (names < t->n)
        TRY(text_printf(out,
                        "<p class=\"note\">%d of %d names of collectives are drawn, those "
                        "that took most.</p>\n",
                        names, t->n));
    if (ranks < c->n_ranks)
        TRY(text_printf(out,
                        "<p class=\"note\">%d of %lld ranks are drawn, those that make the "
                        "others wait most.</p>\n",
                        ranks, (long long)c->n_ranks));
    return text_printf(out, "</section>\n");
}

/* ---- the page ---- */

static Status page_text(const Collectives *c, const Table *sheet, int n, Arena *a, Text *out)
{
    char title[64];
    Times t = { 0 };
    TRY(sum_times(c, a, &t));
    (void)snprintf(title, sizeof title, "Collectives of %lld ranks", (long long)c->n_ranks);
    TRY(page_begin(out, title));
    TRY(text_printf(out, "<header><h1>%s</h1></header>\n", title));
    TRY(sentences_part(c, sheet, &t, a, out));
    TRY(chart_part(c, &sheet[7], &t, a, out));
    TRY(text_printf(out, "<section id=\"sheets\"><h2>Sheets</h2>\n"));
    for (int i = 0; i < n; i++) {
        bool brief = sheet[i].rows <= OPEN && sheet[i].columns <= OPEN;
        bool heat = text_ends(sheet[i].name, "heatmap");
        if (sheet[i].rows > 0) TRY(trace_part_table(out, &sheet[i], heat, brief));
    }
    TRY(text_printf(out, "</section>\n"));
    return page_end(out, NULL);
}

Status collectives_page(const Collectives *c, const Table sheet[COLLECTIVE_SHEETS], int n,
                        const char *path)
{
    Arena room = { 0 }, scratch = { 0 };
    Text page = { 0 };
    Status s = arena_reserve(&room, "page", (size_t)8 << 30);
    if (s == OK) s = arena_reserve(&scratch, "parts of a page", (size_t)1 << 30);
    if (s == OK) s = text_init(&page, &room);
    if (s == OK) s = page_text(c, sheet, n, &scratch, &page);
    if (s == OK) s = file_write_whole(path, page.data, page.used);
    arena_free(&scratch);
    arena_free(&room);
    return s;
}
