/* page: the frame of every page, with the style and the scripts of src/pages/page/. The build embeds
 * those files in the program (tools/embed_presets), so a page needs no other file. What a page
 * shows is written by report.c, pipeline_page.c and trace_page.c. */
#include "pages/charts/page.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Appends a file of src/pages/page/. The embedded files have the form of presets, hence the name
 * `yaml`. */
static Status append_page_file(Text *out, const char *name)
{
    const ConfigPreset *file = NULL;
    TRY(config_preset_find(page_files, page_files_n, name, "there is no part of a page", "",
                           &file));
    return text_append(out, file->yaml, strlen(file->yaml));
}

Status page_begin(Text *out, const char *title)
{
    TRY(text_markup(out,
                    "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\n"
                    "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"/>\n"
                    "<title>%s</title>\n<style>\n",
                    title));
    TRY(append_page_file(out, "page.css"));
    return text_printf(out, "</style></head>\n<body><main>\n");
}

/* page.js opens a function and leaves it open, so that the page's own script can use its helpers;
 * the end written here closes it. */
Status page_end(Text *out, const char *script)
{
    TRY(text_printf(out, "</main>\n<script>\n"));
    TRY(append_page_file(out, "page.js"));
    if (script != NULL) TRY(append_page_file(out, script));
    return text_printf(out, "})();\n</script>\n</body></html>\n");
}

Status part_note(Text *out, const char *text)
{
    return text_printf(out, "<p class=\"note\">%s</p>\n", text);
}

Status part_fact(Text *out, const char *name, const char *value, const char *fmt, ...)
{
    char small[200];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(small, sizeof small, fmt, ap);
    va_end(ap);
    return text_markup(out, "<div><dl><dt>%s</dt><dd>%s<small>%s</small></dd></dl></div>\n", name,
                       value, small);
}

Status part_broad(Text *out, const SvgChart *chart, const SvgBars *bars)
{
    enum { NARROW = 526, LOW = 230 };
    for (int narrow = 0; narrow < 2; narrow++) {
        TRY(text_printf(out, "<div class=\"%s\">\n", narrow ? "narrow" : "broad"));
        if (chart != NULL) {
            SvgChart c = *chart;
            if (narrow) c.width = NARROW;
            if (narrow) c.height = LOW;
            TRY(svg_chart(out, &c));
        } else {
            SvgBars b = *bars;
            if (narrow) b.width = NARROW;
            TRY(svg_bars(out, &b));
        }
        TRY(text_printf(out, "</div>\n"));
    }
    return OK;
}

Status part_figure(Text *out, const SvgChart *c)
{
    TRY(text_markup(out, "<figure><h3>%s</h3>\n", c->title));
    TRY(svg_chart(out, c));
    return text_printf(out, "</figure>\n");
}
