/*
 * page: the frame of every page: <!doctype> to the opened <main> with style and theme, and the end
 * with the script that reads values off plots. `style` and `script` are a page's own, NULL for
 * none; a script holds neither < nor &, so that pages are well-formed XML, too.
 */
#ifndef VIZ_PAGE_H
#define VIZ_PAGE_H

#include "viz/svg.h"

Status page_begin(Text *out, const char *title, const char *style);
Status page_end(Text *out, const char *script);

/* A paragraph below a heading or a plot; `text` is markup. */
Status part_note(Text *out, const char *text);

#endif
