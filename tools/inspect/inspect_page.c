/* inspect_page: what a shard of tokens holds, as an HTML page. The numbers come from
 * inspect.h, which scans the shard and also prints them as text; nothing is counted here. */
#include "inspect/inspect.h"
#include "pages/charts/page.h"

#include <stdio.h>

enum { WIDTH = 1080, NAME_BYTES = 64 };

static const size_t SCRATCH_BYTES = (size_t)1 << 20; /* names of bars and samples */

/* A row of the table of figures. */
static Status figure_row(Text *out, const char *name, int64_t value)
{
    char number[32];
    return text_markup(out, "<tr><td>%s</td><td>%s</td></tr>\n", name,
                       text_thousands(number, value));
}

static Status figures_part(const Inspect *r, Text *out)
{
    const struct {
        const char *name;
        int64_t value;
    } row[] = {
        { "documents", r->documents },
        { "tokens", r->tokens },
        { "bytes an id", r->id_bytes },
        { "bytes of both files", r->bytes },
        { "different ids", r->distinct },
        { "largest id", r->largest_id },
        { "shortest document, tokens", r->shortest },
        { "longest document, tokens", r->longest },
    };
    char number[32];
    TRY(text_printf(out, "<section><table>\n"));
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        TRY(figure_row(out, row[i].name, row[i].value));
    for (int q = 0; q < INSPECT_QUANTILES; q++) {
        char name[NAME_BYTES];
        (void)snprintf(name, sizeof name, "%g %% of documents have at most, tokens",
                       100 * inspect_quantiles[q]);
        TRY(figure_row(out, name, r->quantile[q]));
    }
    return text_markup(out,
                       "<tr><td>keys that a query sees in sequences of %s tokens, mean (of %.1f)"
                       "</td><td>%.1f</td></tr>\n</table></section>\n",
                       text_thousands(number, r->sequence), ((double)r->sequence + 1) / 2, r->keys);
}

static Status bars_part(Text *out, const char *title, const char *part, const char *const *row,
                        const double *value, int rows)
{
    const SvgBars bars = { .title = title,
                           .row = row,
                           .part = &part,
                           .value = value,
                           .rows = rows,
                           .parts = 1,
                           .width = WIDTH };
    TRY(text_markup(out, "<section><h2>%s</h2>\n", title));
    TRY(svg_bars(out, &bars));
    return text_printf(out, "</section>\n");
}

/* One bar for each power of two: lengths of documents spread over several orders of magnitude. */
static Status lengths_part(const Inspect *r, Text *out)
{
    char name[INSPECT_BINS][NAME_BYTES];
    const char *row[INSPECT_BINS];
    double value[INSPECT_BINS];
    int first = 0, last = 0;
    inspect_bins(r, &first, &last);
    for (int b = first; b <= last; b++) {
        (void)snprintf(name[b], NAME_BYTES, "from %lld", b == 0 ? 0LL : 1LL << b);
        row[b - first] = name[b];
        value[b - first] = (double)r->bin[b];
    }
    return bars_part(out, "Tokens a document", "documents", row, value, last - first + 1);
}

/* With a tokenizer a bar is called by its id and text, else by its id. */
static Status top_part(const Inspect *r, const Tokenizer *t, Arena *scratch, Text *out)
{
    const char *row[INSPECT_TOP];
    double value[INSPECT_TOP];
    for (int i = 0; i < r->n_top; i++) {
        Text name = { 0 };
        TRY(text_init(&name, scratch));
        TRY(text_printf(&name, "%d  ", r->top[i].id));
        if (t != NULL) TRY(inspect_token_text(t, r->top[i].id, &name));
        row[i] = name.data;
        value[i] = (double)r->top[i].count;
    }
    return bars_part(out, "Most frequent ids", "times", row, value, r->n_top);
}

static Status inspect_page(const Inspect *r, const Tokenizer *t, Arena *scratch, Text *out)
{
    TRY(page_begin(out, r->prefix));
    TRY(text_markup(out, "<header><h1>%s</h1></header>\n", r->prefix));
    TRY(figures_part(r, out));
    if (r->documents == 0) return page_end(out, NULL);
    TRY(lengths_part(r, out));
    TRY(top_part(r, t, scratch, out));
    for (int i = 0; i < r->n_samples; i++) {
        Text text = { 0 };
        TRY(text_init(&text, scratch));
        TRY(inspect_sample(&r->sample[i], t, &text));
        TRY(text_markup(out, "<section><h2>Document %lld%s</h2>\n<pre>%s</pre></section>\n",
                        (long long)r->sample[i].document, r->sample[i].cut ? " begins" : "",
                        text.data));
    }
    return page_end(out, NULL);
}

/* `out` gets the page; scratch memory is only for names and samples. */
Status inspect_html(const Inspect *r, const Tokenizer *t, Text *out)
{
    Arena scratch = { 0 };
    TRY(arena_init(&scratch, "inspect page", MEM_HOST, SCRATCH_BYTES));
    Status s = inspect_page(r, t, &scratch, out);
    arena_free(&scratch);
    return s;
}
