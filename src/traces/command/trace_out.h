/* trace_out: options and output that the trace commands share: files in a folder that appears only
 * when it is complete, and tables as text. What tables hold is not known here. */
#ifndef TRACES_COMMAND_TRACE_OUT_H
#define TRACES_COMMAND_TRACE_OUT_H

#include "engine/base/out_folder.h"
#include "engine/host/progress.h"
#include "traces/table/table.h"

enum { TRACE_CSV, TRACE_JSON, TRACE_HTML, TRACE_FORMATS };

/* --out and --format, and the state of the output between begin and end. */
typedef struct TraceOut {
    const char *folder;      /* --out; NULL: nothing is written */
    const char *format;      /* --format: words of csv, json and html with commas between */
    bool own_page;           /* the subcommand writes its page itself */
    bool has[TRACE_FORMATS]; /* is the format asked for, and is there a folder? */
    OutFolder at;
    Progress bar; /* over bytes of the traces */
} TraceOut;

/* Rows of a subcommand's table of options. */
#define TRACE_OUT_OPTIONS(o)                                                                       \
    { "--out", OPTION_TEXT, &(o)->folder, "DIR",                                                   \
      .help = "write tables into DIR, which must be new or empty" },                               \
    {                                                                                              \
        "--format", OPTION_TEXT, &(o)->format, "LIST",                                             \
            .help = "csv, json, html, or several with commas between [csv]"                        \
    }

/* Begins the progress over n traces, checks the options, and makes the folder if --out names one. */
Status trace_out_begin(TraceOut *o, char **path, int n);
/* May a file be written to `path`, which `option` names? ERR_ARG: it is a folder, or one of the n
 * inputs, or its folder does not exist. */
Status trace_out_file(const char *option, const char *path, char **input, int n);
/* Writes tables into the folder: each as SUB/NAME.csv and SUB/NAME.json, all as SUB/report.html.
 * `sub` is "" or the name of a folder inside. */
Status trace_out_tables(const TraceOut *o, const char *sub, const char *title, const Table *table,
                        int n, Arena *a);
/* Prints a table: its name, then its first rows. `columns` are the names of columns with | between;
 * NULL: all. */
Status trace_out_text(Text *out, const Table *t, const char *columns, int64_t rows);
/* With s OK gives the folder its name, else removes it. Returns s, or why that failed. */
Status trace_out_end(TraceOut *o, Status s);

#endif
