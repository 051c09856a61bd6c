/* trace_collectives: `switchyard trace collectives`: collectives over the traces of all ranks. */
#include "analyze/collectives.h"
#include "cli/options.h"
#include "cli/trace.h"
#include "convert/folder.h"

#include <stdio.h>
#include <string.h>

typedef struct CollectivesCall {
    CollectivesOptions options;
    const char *out, *format;
    int compat;
} CollectivesCall;

static Status write_sheet(const char *folder, const Table *t, const char *format, Arena *a)
{
    char name[128], path[FILE_PATH_MAX];
    File f = { 0 };
    ArenaMark mark = arena_mark(a);
    (void)snprintf(name, sizeof name, "%s.%s", t->name, format);
    TRY(file_join(path, folder, name));
    Status s = file_create_temp(&f, path, a);
    if (s == OK) s = (strcmp(format, "csv") == 0 ? table_csv : table_json)(t, &f);
    if (s == OK) s = file_commit(&f);
    file_close(&f);
    arena_release(a, mark);
    return s;
}

static Status write_sheets(const char *folder, const Table *sheet, int n, const char *formats,
                           Arena *a)
{
    for (int i = 0; i < n; i++) {
        if (sheet[i].rows == 0) continue;
        if (strstr(formats, "csv") != NULL) TRY(write_sheet(folder, &sheet[i], "csv", a));
        if (strstr(formats, "json") != NULL) TRY(write_sheet(folder, &sheet[i], "json", a));
    }
    return OK;
}

static Status report(const CollectivesCall *call, const Collectives *c, Arena *a, Text *out)
{
    Table sheet[COLLECTIVE_SHEETS] = { 0 };
    OutFolder folder;
    int n = 0;
    int64_t cut = 0;
    if (call->out != NULL) TRY(out_folder(&folder, call->out));
    TRY(collectives_sheets(c, sheet, &n));
    if (call->out != NULL) {
        TRY(out_folder_begin(&folder));
        TRY(out_folder_end(&folder, write_sheets(folder.temp, sheet, n, call->format, a)));
    }
    TRY(text_init(out, a));
    TRY(collectives_text(c, sheet, out));
    for (int64_t i = 0; i < c->n_ranks; i++) cut += c->ranks[i].counts.truncated;
    if (cut == 0) return OK;
    (void)fputs(out->data, stdout);
    return FAIL(ERR_NUMERIC, "%lld of %lld traces end early: the report counts what was whole",
                (long long)cut, (long long)c->n_ranks);
}

static Status run(void *state, int n, char **path, Arena *a, Text *out)
{
    CollectivesCall *call = state;
    Collectives c = { 0 };
    call->options.compat = call->compat > 0;
    for (const char *f = call->format; *f != '\0';
         f += strcspn(f, ",") + (f[strcspn(f, ",")] == ',')) {
        size_t length = strcspn(f, ",");
        if (!(length == 3 && strncmp(f, "csv", 3) == 0) &&
            !(length == 4 && strncmp(f, "json", 4) == 0))
            return FAIL(ERR_ARG, "--format %s: a list of csv and json", call->format);
    }
    Status s = collectives_open(&c, (const char *const *)path, n, &call->options, a);
    if (s == OK) s = report(call, &c, a, out);
    collectives_close(&c);
    return s;
}

Status cli_trace_collectives(int argc, char **argv)
{
    CollectivesCall c = { .format = "csv" };
    const Option table[] = {
        { "--out", OPTION_TEXT, &c.out, "FOLDER",
          .help = "all sheets; the folder must not be there" },
        { "--format", OPTION_TEXT, &c.format, "LIST", .help = "csv, json or csv,json" },
        { "--compat", OPTION_CHOICE, &c.compat, "no|tracelens",
          .help = "TraceLens' matching, columns and numbers (docs/trace.md)" },
        { "--gpus-per-node", OPTION_INT, &c.options.gpus_per_node, "N",
          .help = "0: as many as the traces list", .min = 0, .max = 1e6 },
        { "--partial", OPTION_FLAG, &c.options.partial, .help = "some of the ranks are enough" },
    };
    const Command command = {
        .name = "switchyard trace collectives",
        .arguments = "FILE...",
        .what =
            "Match the collectives in the traces of all ranks, align the ranks' clocks, and "
            "tell\ncommunication from waiting: by size, group and rank, and who makes the others "
            "wait, and why.",
        .example = "switchyard trace collectives rank*.json.gz --out collectives",
        OPTIONS(table, 1, -1),
    };
    return options_run(&command, argc, argv, run, &c);
}
