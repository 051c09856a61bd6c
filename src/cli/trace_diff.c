/* trace diff: two traces against each other. */
#include "analyze/diff.h"
#include "cli/cli.h"
#include "cli/options.h"
#include "convert/folder.h"

#include <stdio.h>
#include <string.h>

typedef struct DiffCall {
    const char *out;
    int format, compat;
    bool python;
} DiffCall;

typedef struct Sides {
    Events events[DIFF_SIDES];
    Tree tree[DIFF_SIDES];
    Diff diff;
    Arena scratch;
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
static Status write_tree(const void *d, Arena *a, File *f) { return diff_text(d, a, f); }
static Status write_text(const void *s, Arena *a, File *f)
{
    return (void)a, file_write(f, s, strlen(s));
}

static Status write_compat(Sides *x, const char *folder, Arena *a)
{
    static const char *const map[] = { "cpu_op_map_trace1", "cpu_op_map_trace2", "cpu_op_map" };
    DiffStats stats = { 0 };
    TRY(diff_stats(&x->diff, a, &x->scratch, &stats));
    TRY(write_file(folder, "merged_tree_output", ".txt", write_tree, &x->diff, &x->scratch));
    TRY(write_file(folder, stats.stats.name, ".csv", write_csv, &stats.stats, &x->scratch));
    TRY(write_file(folder, stats.unique.name, ".csv", write_csv, &stats.unique, &x->scratch));
    for (int i = 0; i < 3; i++)
        TRY(write_file(folder, map[i], ".json", write_text, stats.map[i], &x->scratch));
    return OK;
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
    return diff_trees(&x->tree[0], &x->tree[1], c->compat, a, &x->scratch, &x->diff);
}

static Status run(void *state, int n, char **path, Arena *a, Text *out)
{
    const DiffCall *c = state;
    Sides x = { 0 };
    OutFolder folder;
    (void)n;
    (void)out;
    if (c->out != NULL) TRY(out_folder(&folder, c->out));
    TRY(arena_init(&x.scratch, "trace diff", MEM_HOST, (size_t)64 << 30));
    Status s = compare(c, path, &x, a);
    if (s == OK && c->out != NULL) {
        s = out_folder_begin(&folder);
        if (s == OK) s = write_compat(&x, folder.temp, a);
        s = out_folder_end(&folder, s);
    }
    diff_free(&x.diff);
    for (int i = 0; i < DIFF_SIDES; i++) events_free(&x.events[i]);
    arena_free(&x.scratch);
    return s;
}

Status cli_trace_diff(int argc, char **argv)
{
    DiffCall c = { 0 };
    const Option table[] = {
        { "--out", OPTION_TEXT, &c.out, "DIR", .help = "a folder that is not there: tables" },
        { "--format", OPTION_CHOICE, &c.format, "csv|json", .help = "of the tables" },
        { "--compat", OPTION_CHOICE, &c.compat, "no|tracelens", .help = "names, rows and numbers" },
        { "--python", OPTION_FLAG, &c.python, .help = "frames of Python are calls, too" },
    };
    const Command command = {
        .name = "switchyard trace diff",
        .arguments = "OLD NEW",
        .what = "Two traces of the same model: which calls are the same, and what they cost.",
        .example = "switchyard trace diff before.json.gz after.json.gz --out changes",
        OPTIONS(table, 2, 2),
    };
    return options_run(&command, argc, argv, run, &c);
}
