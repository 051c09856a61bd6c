/* trace diff: two traces against each other. */
#include "analyze/diff.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "convert/folder.h"

#include <stdio.h>
#include <string.h>

enum { SUMMARY_ROWS = 12 };

typedef struct DiffCall {
    const char *out;
    int format, compat;
    bool python;
} DiffCall;

typedef struct Sides {
    Events events[DIFF_SIDES];
    Tree tree[DIFF_SIDES];
    Diff diff;
    Table sheet[DIFF_SHEETS];
    Arena tables, scratch;
} Sides;

/* A file of the folder: what `write` puts there. */
typedef Status WriteFile(const void *what, Arena *scratch, File *out);

static Status write_file(const char *folder, const char *name, const char *end, WriteFile *write,
                         const void *what, Arena *scratch)
{
    char path[FILE_PATH_MAX], part[FILE_PATH_MAX];
    File f = { 0 };
    ArenaMark mark = arena_mark(scratch);
    (void)snprintf(part, sizeof part, "%s%s", name, end);
    TRY(file_join(path, folder, part));
    Status s = file_create_temp(&f, path, scratch);
    if (s == OK) s = write(what, scratch, &f);
    if (s == OK) s = file_commit(&f);
    file_close(&f);
    arena_release(scratch, mark);
    return s;
}

static Status write_csv(const void *t, Arena *a, File *f) { return (void)a, table_csv(t, f); }
static Status write_json(const void *t, Arena *a, File *f) { return (void)a, table_json(t, f); }
static Status write_tree(const void *d, Arena *a, File *f) { return diff_text(d, a, f); }
static Status write_text(const void *s, Arena *a, File *f)
{
    return (void)a, file_write(f, s, strlen(s));
}

static Status write_table(const DiffCall *c, const char *folder, const Table *t, Arena *scratch)
{
    bool json = c->format == 1;
    return write_file(folder, t->name, json ? ".json" : ".csv", json ? write_json : write_csv, t,
                      scratch);
}

/* The files that TraceLens writes. */
static Status write_compat(const DiffCall *c, Sides *x, const char *folder, Arena *a)
{
    static const char *const map[] = { "cpu_op_map_trace1", "cpu_op_map_trace2", "cpu_op_map" };
    DiffStats stats = { 0 };
    TRY(diff_stats(&x->diff, a, &x->scratch, &stats));
    TRY(write_table(c, folder, &stats.stats, &x->scratch));
    TRY(write_table(c, folder, &stats.unique, &x->scratch));
    for (int i = 0; i < 3; i++)
        TRY(write_file(folder, map[i], ".json", write_text, stats.map[i], &x->scratch));
    return OK;
}

static Status write_all(const DiffCall *c, Sides *x, const char *folder, Arena *a)
{
    TRY(write_file(folder, "merged_tree_output", ".txt", write_tree, &x->diff, &x->scratch));
    if (c->compat) return write_compat(c, x, folder, a);
    for (int i = 0; i < DIFF_SHEETS; i++) TRY(write_table(c, folder, &x->sheet[i], &x->scratch));
    return OK;
}

/* ---- a summary ---- */

/* At most `width` columns of a text, for a table of text. */
static Status put_cell(Text *out, const Cell *c, int width)
{
    char number[32];
    switch (c->type) {
    case CELL_TEXT: {
        int n = (int)strlen(c->text);
        if (n <= width) return text_printf(out, "%-*s", width, c->text);
        return text_printf(out, "%.*s...", width - 3, c->text);
    }
    case CELL_NUMBER: return text_printf(out, " %12.3f", c->number);
    case CELL_WHOLE: return text_printf(out, " %12s", text_thousands(number, c->whole));
    default: return text_printf(out, " %12s", "-");
    }
}

/* The first rows of a sheet, of it the columns `at`. */
static Status put_rows(Text *out, const Table *t, const char *title, const int *at, int columns)
{
    int64_t rows = t->rows < SUMMARY_ROWS ? t->rows : SUMMARY_ROWS;
    int first = columns > 6 ? 30 : 45;
    if (t->rows == 0) return OK;
    TRY(text_printf(out, "\n%s", title));
    if (rows < t->rows)
        TRY(text_printf(out, ", %lld of %lld", (long long)rows, (long long)t->rows));
    for (int64_t i = -1; i < rows; i++) {
        TRY(text_printf(out, "\n"));
        for (int k = 0; k < columns; k++) {
            Cell head = cell_text(t->column[at[k]]);
            const Cell *c = i < 0 ? &head : &t->cell[i * t->columns + at[k]];
            bool word = t->cell[at[k]].type == CELL_TEXT;
            if (i < 0 && !word)
                TRY(text_printf(out, " %12.12s", head.text));
            else
                TRY(put_cell(out, c, word ? first : 12));
            if (word) TRY(text_printf(out, " "));
        }
    }
    return text_printf(out, "\n");
}

static Status put_left_out(Text *out, const Events *e, const Tree *t)
{
    const ReadCounts *n = &e->counts;
    const struct {
        const char *what;
        int64_t n;
    } row[] = {
        { "malformed events", n->malformed },
        { "events without a time or a name", n->incomplete },
        { "host calls that overlap the end of their caller", t->dropped },
        { "device events without a launch in the trace", t->unlinked },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        if (row[i].n > 0)
            TRY(text_printf(out, "%s: left out: %lld %s\n", e->path, (long long)row[i].n,
                            row[i].what));
    }
    return n->truncated ? text_printf(out, "%s: the file ends inside\n", e->path) : OK;
}

static Status put_summary(Text *out, const Sides *x)
{
    static const int totals[] = { 0, 1, 2, 3, 4 }, ops[] = { 0, 1, 2, 7, 8, 9, 10 },
                     kernels[] = { 0, 2, 3, 4, 9, 10, 11, 12 }, work[] = { 0, 1, 2, 3, 4, 6, 7 },
                     host[] = { 0, 1, 2, 5, 6, 7, 8 };
    TRY(put_rows(out, &x->sheet[DIFF_TOTALS], "Totals", totals, 5));
    TRY(put_rows(out, &x->sheet[DIFF_OPS], "Operators, the largest change first (us)", ops, 7));
    TRY(put_rows(out, &x->sheet[DIFF_KERNELS], "Operators that run other kernels (us)", kernels,
                 8));
    TRY(put_rows(out, &x->sheet[DIFF_WORK], "New and vanished calls (us)", work, 7));
    return put_rows(out, &x->sheet[DIFF_HOST], "The host's own time (us)", host, 7);
}

static Status compare(const DiffCall *c, char **path, Sides *x, Arena *a)
{
    const TreeOptions options = { .link = c->compat ? LINK_AC2G : LINK_CORRELATION,
                                  .python = c->python,
                                  .compat = c->compat };
    for (int s = 0; s < DIFF_SIDES; s++) {
        TRY(events_read(path[s], &(EventsOptions){ .python = c->python }, &x->events[s]));
        TRY(tree_build(&x->events[s], &options, a, &x->tree[s]));
    }
    TRY(diff_trees(&x->tree[0], &x->tree[1], c->compat, a, &x->scratch, &x->diff));
    return c->compat ? OK : diff_report(&x->diff, a, &x->scratch, x->sheet);
}

static Status run(void *state, int n, char **path, Arena *a, Text *out)
{
    const DiffCall *c = state;
    Sides x = { 0 };
    OutFolder folder;
    (void)n;
    if (c->compat && c->python)
        return FAIL(ERR_ARG, "trace diff: TraceLens' rules are for trees without frames of Python: "
                             "leave out --python or --compat");
    if (c->compat && c->out == NULL)
        return FAIL(ERR_ARG,
                    "trace diff: --compat tracelens writes files: name a folder with --out");
    if (c->out != NULL) TRY(out_folder(&folder, c->out));
    TRY(arena_init(&x.scratch, "trace diff", MEM_HOST, (size_t)64 << 30));
    TRY(arena_init(&x.tables, "tables", MEM_HOST, (size_t)64 << 30));
    Status s = compare(c, path, &x, &x.tables);
    if (s == OK && c->out != NULL) {
        s = out_folder_begin(&folder);
        if (s == OK) s = write_all(c, &x, folder.temp, &x.tables);
        s = out_folder_end(&folder, s);
    }
    if (s == OK && !c->compat && c->out == NULL) s = put_summary(out, &x);
    for (int i = 0; i < DIFF_SIDES && s == OK; i++) s = put_left_out(out, &x.events[i], &x.tree[i]);
    (void)a;
    diff_free(&x.diff);
    for (int i = 0; i < DIFF_SIDES; i++) events_free(&x.events[i]);
    arena_free(&x.scratch);
    arena_free(&x.tables);
    return s;
}

Status cli_trace_diff(int argc, char **argv)
{
    DiffCall c = { 0 };
    const Option table[] = {
        { "--out", OPTION_TEXT, &c.out, "DIR", .help = "a folder that is not there: tables" },
        { "--format", OPTION_CHOICE, &c.format, "csv|json", .help = "of the tables" },
        { "--compat", OPTION_CHOICE, &c.compat, "no|tracelens",
          .help = "no, or the rules, names and files of TraceLens" },
        { "--python", OPTION_FLAG, &c.python, .help = "frames of Python are calls, too" },
    };
    const Command command = {
        .name = "switchyard trace diff",
        .arguments = "OLD NEW",
        .what = "Two traces of one model: which calls are the same, and what they gain or lose.",
        .example = "switchyard trace diff before.json.gz after.json.gz --out changes",
        OPTIONS(table, 2, 2),
    };
    return options_run(&command, argc, argv, run, &c);
}
