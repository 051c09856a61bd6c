/* settings_page: the table of settings as a page for people. */
#ifndef APP_SETTINGS_PAGE_H
#define APP_SETTINGS_PAGE_H

#include "engine/base/text.h"
/* Appends docs/reference/config.md. ERR_MEMORY alone. */
Status settings_page(Text *out);

#endif
