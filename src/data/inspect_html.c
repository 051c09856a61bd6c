#include "data/inspect.h"

#include <stdio.h>
#include <string.h>

/* Sizes of the drawings, in SVG units. */
enum {
    WIDTH = 720,
    PLOT = 200, /* height of the tallest bar */
    ABOVE = 24, /* room for the number on top of it */
    BELOW = 40, /* and for what stands under the axis */
    ROW = 20,   /* height of a row of the list of ids */
    LABEL = 260,
    NUMBER = 130,
    FIRST_BYTES = 2048,
};

static const char HEAD[] =
    "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width\">\n"
    "<style>body{font:15px/1.5 system-ui,sans-serif;max-width:46em;margin:2em auto;padding:0 1em;"
    "color:#222;background:#fff}h1{font-size:1.4em}h2{font-size:1.1em;margin-top:2em}"
    "table{border-collapse:collapse}td{padding:.1em 1em .1em 0}td+td{text-align:right}"
    "svg{width:100%;height:auto}svg text{font:12px system-ui,sans-serif;fill:#222}"
    ".bar{fill:#2b6cb0}pre{white-space:pre-wrap;overflow-wrap:anywhere;background:#f4f4f4;"
    "padding:1em}@media(prefers-color-scheme:dark){body{color:#ddd;background:#1b1b1b}"
    "svg text{fill:#ddd}.bar{fill:#63a4e8}pre{background:#2a2a2a}}</style>\n";

static Status put(Text *out, const char *s) { return text_append(out, s, strlen(s)); }

static Status put_name(Text *out, const char *name)
{
    return inspect_visible(out, name, strlen(name), INSPECT_MARKUP);
}

static Status put_head(const Inspect *r, Text *out)
{
    TRY(put(out, HEAD));
    TRY(put(out, "<title>"));
    TRY(put_name(out, r->prefix));
    TRY(put(out, "</title></head><body>\n<h1>"));
    TRY(put_name(out, r->prefix));
    TRY(put(out, "</h1>\n"));
    return OK;
}

static Status put_figure(Text *out, const char *name, int64_t value)
{
    char number[32];
    return text_printf(out, "<tr><td>%s</td><td>%s</td></tr>\n", name,
                       text_thousands(number, value));
}

static Status put_figures(const Inspect *r, Text *out)
{
    TRY(put(out, "<table>\n"));
    TRY(put_figure(out, "documents", r->documents));
    TRY(put_figure(out, "tokens", r->tokens));
    TRY(put_figure(out, "bytes an id", r->id_bytes));
    TRY(put_figure(out, "bytes of both files", r->bytes));
    TRY(put_figure(out, "different ids", r->distinct));
    TRY(put_figure(out, "largest id", r->largest_id));
    TRY(put_figure(out, "shortest document, tokens", r->shortest));
    for (int q = 0; q < INSPECT_QUANTILES; q++) {
        char name[64];
        (void)snprintf(name, sizeof name, "%g %% of documents have at most, tokens",
                       100 * inspect_quantiles[q]);
        TRY(put_figure(out, name, r->quantile[q]));
    }
    TRY(put_figure(out, "longest document, tokens", r->longest));
    TRY(put(out, "</table>\n"));
    return OK;
}

/* One bar a power of two. */
static Status put_histogram(const Inspect *r, Text *out)
{
    static const char *const UNIT[] = { "", " Ki", " Mi", " Gi" };
    int first = 0, last = 0;
    int64_t most = 1;
    inspect_bins(r, &first, &last);
    for (int b = first; b <= last; b++) most = r->bin[b] > most ? r->bin[b] : most;
    TRY(put(out, "<h2>Tokens a document</h2>\n"));
    TRY(text_printf(out,
                    "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"documents by length\">\n",
                    WIDTH, ABOVE + PLOT + BELOW));
    double step = (double)WIDTH / (last - first + 1);
    for (int b = first; b <= last; b++) {
        char count[32], from[32];
        double x = (b - first) * step, height = PLOT * (double)r->bin[b] / (double)most;
        text_si(count, (double)r->bin[b]);
        (void)snprintf(from, sizeof from, "%d%s", b == 0 ? 0 : 1 << b % 10, UNIT[b / 10]);
        TRY(text_printf(out,
                        "<rect class=\"bar\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\">"
                        "<title>%lld documents</title></rect>"
                        "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>"
                        "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n",
                        x + 1, ABOVE + PLOT - height, step - 2, height, (long long)r->bin[b],
                        x + step / 2, ABOVE + PLOT - height - 5, count, x + step / 2,
                        ABOVE + PLOT + 16, from));
    }
    TRY(text_printf(out,
                    "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">tokens, from this length to "
                    "below the next</text></svg>\n",
                    WIDTH / 2, ABOVE + PLOT + 34));
    return OK;
}

static Status put_top_row(const Inspect *r, const Tokenizer *t, int i, Text *out)
{
    int y = i * ROW;
    double width =
        (double)(WIDTH - LABEL - NUMBER) * (double)r->top[i].count / (double)r->top[0].count;
    TRY(text_printf(out, "<text x=\"0\" y=\"%d\" xml:space=\"preserve\">%d  ", y + 14,
                    r->top[i].id));
    if (t != NULL) TRY(inspect_token_text(t, r->top[i].id, INSPECT_MARKUP, out));
    TRY(text_printf(out,
                    "</text><rect class=\"bar\" x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%d\"/>"
                    "<text x=\"%.1f\" y=\"%d\">%lld (%.1f%%)</text>\n",
                    LABEL, y + 3, width, ROW - 6, LABEL + width + 6, y + 14,
                    (long long)r->top[i].count, 100 * (double)r->top[i].count / (double)r->tokens));
    return OK;
}

static Status put_top(const Inspect *r, const Tokenizer *t, Text *out)
{
    TRY(put(out, "<h2>Most frequent ids</h2>\n"));
    TRY(text_printf(out,
                    "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"most frequent ids\">\n",
                    WIDTH, r->n_top * ROW));
    for (int i = 0; i < r->n_top; i++) TRY(put_top_row(r, t, i, out));
    TRY(put(out, "</svg>\n"));
    return OK;
}

static Status put_first(const Inspect *r, const Tokenizer *t, Text *out)
{
    char bytes[FIRST_BYTES] = { 0 };
    TRY(text_printf(out, "<h2>The first document%s</h2>\n<pre>", r->first_is_cut ? " begins" : ""));
    if (t == NULL) {
        for (int i = 0; i < r->n_first; i++) TRY(text_printf(out, "%d ", r->first[i]));
    } else {
        size_t n = inspect_first_bytes(r, t, bytes, sizeof bytes);
        TRY(inspect_visible(out, bytes, n, INSPECT_NEWLINES | INSPECT_MARKUP));
    }
    TRY(put(out, "</pre>\n"));
    return OK;
}

Status inspect_html(const Inspect *r, const Tokenizer *t, Text *out)
{
    TRY(put_head(r, out));
    TRY(put_figures(r, out));
    if (r->documents > 0) {
        TRY(put_histogram(r, out));
        TRY(put_top(r, t, out));
        TRY(put_first(r, t, out));
    }
    TRY(put(out, "</body></html>\n"));
    return OK;
}
