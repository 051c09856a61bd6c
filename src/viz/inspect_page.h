/* inspect_page: what a shard holds, as one page that loads nothing: figures, lengths, most frequent
 * ids, first document. */
#ifndef VIZ_INSPECT_PAGE_H
#define VIZ_INSPECT_PAGE_H

#include "data/inspect.h"

/* With a tokenizer (or NULL), ids are shown with their text. */
Status inspect_html(const Inspect *r, const Tokenizer *t, Text *out);

#endif
