/* collectives_text: a summary of the sheets for people. It computes nothing but counts, so that the
 * text and the tables never disagree. */
#include "traces/compare/collectives.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Below SAME_HOST_US, clock offsets look like those of one host, and nothing more is said. */
enum { ROWS_SHOWN = 16, SAME_HOST_US = 50 };

/* A cell by the name of its column; an empty one if this run has no such column. */
static const Cell *cell_at(const Table *t, int64_t row, const char *column)
{
    static const Cell none = { 0 };
    int i = table_column(t, column);
    return i < 0 ? &none : table_at(t, row, i);
}

static double number_at(const Table *t, int64_t row, const char *column)
{
    return cell_value(cell_at(t, row, column));
}

static const char *text_at(const Table *t, int64_t row, const char *column)
{
    const Cell *x = cell_at(t, row, column);
    return x->type == CELL_TEXT ? x->text : "-";
}

/* Prints columns of a table. `columns` has words COLUMN=HEAD; the first `texts` of them are texts. */
static Status put_table(Text *out, const Table *t, const char *columns, int texts)
{
    int n = 0;
    const char *w = NULL;
    TRY(text_printf(out, "\n"));
    for (int64_t r = -1; r < t->rows && r < ROWS_SHOWN; r++) {
        for (int i = 0; (w = text_word(columns, i, &n)) != NULL; i++) {
            char name[64], *head = NULL;
            (void)snprintf(name, sizeof name, "%.*s", n, w);
            head = strchr(name, '=');
            *head++ = '\0';
            /* row -1 is the head */
            double x = r < 0 ? 0 : number_at(t, r, name);
            if (i < texts)
                TRY(text_printf(out, "%-24.24s ", r < 0 ? head : text_at(t, r, name)));
            else if (r < 0 || isnan(x))
                TRY(text_printf(out, " %10s", r < 0 ? head : "-"));
            else
                TRY(text_printf(out, " %10.4g", x));
        }
        TRY(text_printf(out, "\n"));
    }
    if (t->rows <= ROWS_SHOWN) return OK;
    return text_printf(out, "... and %lld more: --out writes all\n",
                       (long long)(t->rows - ROWS_SHOWN));
}

static double largest_offset_us(const Collectives *c)
{
    double most = 0;
    for (int64_t i = 0; i < c->n_ranks; i++) most = fmax(most, fabs(c->ranks[i].offset_us));
    return most;
}

/* How the ranks' numbers are known, and how their clocks were corrected. */
static Status put_ranks(const Collectives *c, Text *out)
{
    const double most = largest_offset_us(c);
    int64_t alone = 0;
    bool differ = false;
    for (int64_t i = 0; i < c->n_ranks; i++) {
        alone += i > 0 && c->ranks[i].points == 0;
        differ |= strcmp(c->ranks[i].rank_from, c->ranks[0].rank_from) != 0;
    }
    TRY(text_printf(out, "%lld of %lld ranks, known by %s%s\n", (long long)c->n_ranks,
                    (long long)c->world, c->ranks[0].rank_from,
                    differ ? " and otherwise (sheet clocks)" : ""));
    if (c->options.rules->by_position || c->n_ranks < 2) return OK;
    TRY(text_printf(out,
                    "clocks: corrected by at most %.4g us so that collectives end together%s\n",
                    most, most < SAME_HOST_US ? ", as on one host" : ""));
    if (alone == 0) return OK;
    return text_printf(out, "clocks of %lld ranks stay as written: they share no collective\n",
                       (long long)alone);
}

static Status put_clocks(const Collectives *c, const Table *clocks, Text *out)
{
    bool written = c->options.rules->by_position || c->n_ranks < 2;
    /* Clocks of one host need no table */
    if (written || largest_offset_us(c) < SAME_HOST_US) return OK;
    return put_table(out, clocks,
                     "rank_from=rank by|rank=rank|offset_us=offset us|drift_ppm=drift ppm|"
                     "spread_us=spread us",
                     1);
}

/* The sheet is sorted, so its first row is the rank that makes the others wait most. */
static Status put_straggler(const Table *t, Text *out)
{
    if (t->rows < 2) return OK;
    TRY(text_printf(
        out,
        "\nrank %.0f makes the others wait most: %.4g ms over all of them, last in %.0f "
        "of its %.0f collectives",
        number_at(t, 0, "rank"), number_at(t, 0, "caused_wait_us") / 1000,
        number_at(t, 0, "times_arrived_last"), number_at(t, 0, "num_collectives")));
    if (cell_at(t, 0, "cause")->type == CELL_NONE)
        return text_printf(out, "; no work before them took longer than on the others\n");
    return text_printf(out, ";\nit was late by %.4g us, %.4g us of them by %s on the %s\n",
                       number_at(t, 0, "late_us"), number_at(t, 0, "cause_us"),
                       text_at(t, 0, "cause"), text_at(t, 0, "cause_where"));
}

/* Everything that no sum counts is reported. */
static Status put_left_out(const Collectives *c, Text *out)
{
    int64_t partial = 0, border = 0, outlier = 0, peers = 0, malformed = 0, incomplete = 0, cut = 0;
    for (int64_t i = 0; i < c->n_slots; i++) {
        partial += strcmp(c->slots[i].flag, "partial") == 0;
        border += strcmp(c->slots[i].flag, "border outlier") == 0;
        outlier += strcmp(c->slots[i].flag, "outlier") == 0;
    }
    for (int64_t i = 0; i < c->n_groups; i++)
        peers += strstr(c->groups[i].name, "peer unknown") != NULL ? c->groups[i].calls : 0;
    for (int64_t i = 0; i < c->n_ranks; i++) {
        malformed += c->ranks[i].counts.malformed;
        incomplete += c->ranks[i].counts.incomplete;
        cut += c->ranks[i].counts.truncated;
    }
    const struct {
        int64_t n;
        const char *what;
    } lines[] = {
        { partial, "collectives missing from some ranks' traces: not counted" },
        { border, "outliers at a window's border: not counted" },
        { outlier, "outliers inside a window: counted, flagged" },
        { peers, "sends and receives whose peer is not known: not matched" },
        { malformed, "malformed events, skipped" },
        { incomplete, "events without a time or a name" },
        { cut, "traces that end early: their complete events are included" },
    };
    TRY(text_printf(out, "\n"));
    for (size_t i = 0; i < sizeof lines / sizeof *lines && !c->options.rules->all_count; i++) {
        if (lines[i].n > 0)
            TRY(text_printf(out, "%lld %s\n", (long long)lines[i].n, lines[i].what));
    }
    return OK;
}

static Status put_counts(const Collectives *c, Text *out)
{
    return text_printf(out, "%lld kernels are %lld collectives of %lld groups\n",
                       (long long)c->n_calls, (long long)c->n_slots, (long long)c->n_groups);
}

/* Indices of `sheet` are those of collectives_sheets. */
Status collectives_sentences(const Collectives *c, const Table *sheet, Text *out)
{
    if (c->options.rules->causes) TRY(put_straggler(&sheet[7], out));
    TRY(put_counts(c, out));
    TRY(put_ranks(c, out));
    return put_left_out(c, out);
}

Status collectives_text(const Collectives *c, const Table *sheet, Text *out)
{
    TRY(put_ranks(c, out));
    TRY(put_clocks(c, &sheet[10], out));
    TRY(put_counts(c, out));
    if (c->options.rules->causes)
        TRY(put_table(out, &sheet[9],
                      "Process Group Name=group|node_span=span|Group size=ranks|count=count|"
                      "Total comm latency (ms)=comm ms|Mean wait of a rank (ms)=waiting ms|"
                      "skew in start time_median=skew us|bus bw (GB/s)_median=bus GB/s",
                      2));
    TRY(put_table(out, &sheet[0],
                  "Collective name=collective|dtype=dtype|Full msg size (MB)=MB|count=count|"
                  "Total comm latency (ms)=comm ms|comm_latency_median=comm us|"
                  "skew in start time_median=skew us|bus bw (GB/s)_median=bus GB/s",
                  2));
    if (c->options.rules->causes) TRY(put_straggler(&sheet[7], out));
    return put_left_out(c, out);
}
