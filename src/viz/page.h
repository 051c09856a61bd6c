/* page: the frame of every page: <!doctype> to the opened <main> with style and theme, and the end
 * with the script that reads values off plots and that of the page itself (a file of viz/page/, or
 * NULL), which the build puts into the program. A script holds neither < nor &, so that pages are
 * well-formed XML, too. It may call show(event, text) and hide() for the text beside the pointer. */
#ifndef VIZ_PAGE_H
#define VIZ_PAGE_H

#include "config/config_doc.h"
#include "data/inspect.h"
#include "viz/svg.h"

extern const ConfigPreset page_files[];
extern const int page_files_n;

Status page_begin(Text *out, const char *title);
Status page_end(Text *out, const char *script);

/* A chart below its title. */
Status part_figure(Text *out, const SvgChart *c);
/* A paragraph below a heading or a plot; `text` is markup. */
Status part_note(Text *out, const char *text);

/* inspect_page.c: what a shard holds, as one page: figures, lengths, most frequent ids, first
 * document. With a tokenizer (or NULL), ids are shown with their text. */
Status inspect_html(const Inspect *r, const Tokenizer *t, Text *out);

#endif
