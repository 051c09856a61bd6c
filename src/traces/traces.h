/* traces: the door of the traces: reading, sheets, the page; and the commands `trace ...`. */
#ifndef TRACES_TRACES_H
#define TRACES_TRACES_H

/* command: the commands `trace ...` */
#include "traces/command/compat.h"
#include "traces/command/trace_commands.h"
#include "traces/command/trace_out.h"

/* page: the HTML page of a trace */
#include "traces/page/trace_page.h"

/* read: files to columns: events, texts, the tree of calls, what is communication (`movers.def`) */
#include "traces/read/events_cut.h"
#include "traces/read/events_read.h"
#include "traces/read/kineto_source.h"
#include "traces/read/op_args.h"
#include "traces/read/recording.h"
#include "traces/read/tree.h"

/* sheets: the tables of `trace report` */
#include "traces/sheets/perf.h"
#include "traces/sheets/perf_calls.h"
#include "traces/sheets/perf_work.h"
#include "traces/sheets/report.h"

/* table: tables, groups of rows, intervals */
#include "traces/table/python_text.h"
#include "traces/table/spans.h"

#endif
