/* live_page: the page that `run.http` serves while a run trains. Its figures are engine/train/series.h's; what
 * is left when the run has ended is pages/report.h's. */
#ifndef PAGES_LIVE_PAGE_H
#define PAGES_LIVE_PAGE_H

#include "engine/train/live.h"

/* Appends the whole page: facts, then a chart for each figure, with a curve for each layer or source. */
LivePage live_page;

#endif
