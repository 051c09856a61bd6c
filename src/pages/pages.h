/* pages: the door of the pages: charts, frames, the report of a run. */
#ifndef PAGES_PAGES_H
#define PAGES_PAGES_H

/* charts: the frame of a page, charts as SVG, timelines: other houses draw with it */
#include "pages/charts/merge.h"
#include "pages/charts/page.h"
#include "pages/charts/svg.h"
#include "pages/charts/timeline.h"

#include "pages/live_page.h"
#include "pages/report.h"

#endif
