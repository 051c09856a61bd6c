/*
 * page: the frame of every HTML page.
 *
 * page_begin writes everything from <!DOCTYPE> to the open <main>, with style and theme. page_end
 * writes the end, with the script that reads values off plots (page.js) and the page's own
 * `script`, a file of src/pages/page/ or NULL. Scripts contain neither < nor &, so that pages are
 * well-formed XML, too; tests parse them as such. A page's script may call show(event, text) and
 * hide() for the text beside the pointer.
 */
#ifndef PAGES_CHARTS_PAGE_H
#define PAGES_CHARTS_PAGE_H

#include "engine/config/config_doc.h"
#include "pages/charts/svg.h"

extern const ConfigPreset page_files[];
extern const int page_files_n;

Status page_begin(Text *out, const char *title);
Status page_end(Text *out, const char *script);

/* A fact in <div class="facts">: its name, its value, and a small second line from fmt, cut to 199 bytes. */
__attribute__((format(printf, 4, 5))) Status part_fact(Text *out, const char *name,
                                                       const char *value, const char *fmt, ...);
/* A chart below its title. */
Status part_figure(Text *out, const SvgChart *c);
/* A chart, or bars, over the whole width of a page, and again for a narrow page, which shows the second one: an
 * SVG that is made smaller has letters that nobody can read. */
Status part_broad(Text *out, const SvgChart *chart, const SvgBars *bars);
/* A paragraph below a heading or a plot; `text` is markup. */
Status part_note(Text *out, const char *text);

#endif
