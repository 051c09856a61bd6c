/* trace replay: the operators of a trace, to run them again. */
#include "analyze/events_read.h"
#include "analyze/replay.h"
#include "base/file.h"
#include "cli/options.h"
#include "cli/trace_commands.h"
#include "cli/trace_out.h"

#include <string.h>

typedef struct ReplayCall {
    const char *out, *bench, *filter;
    int64_t limit;
} ReplayCall;

typedef Status WriteReplay(const Replay *r, Arena *scratch, Text *out, ReplayCount *count);

static Status put_counts(const char *path, const Replay *r, const ReplayCount *c, Text *out)
{
    TRY(text_printf(out, "%s: %lld operators: %lld of %lld calls", path, (long long)c->ops,
                    (long long)c->calls, (long long)r->calls));
    if (r->device_us > 0)
        TRY(text_printf(out, ", %.1f %% of their %.3f ms on the device",
                        100 * c->device_us / r->device_us, r->device_us / 1e3));
    TRY(text_printf(out, "\n"));
    for (int i = 0; i < c->lefts; i++)
        TRY(text_printf(out, "  left out: %6lld x %s, %.3f ms: %s\n", (long long)c->left[i].calls,
                        c->left[i].name, c->left[i].device_us / 1e3, c->left[i].why));
    return OK;
}

/* One list into a file, and what became of the operators. */
static Status write_list(const char *path, const Replay *r, WriteReplay *write, Text *out)
{
    Arena room = { 0 }, scratch = { 0 };
    ReplayCount count = { 0 };
    Text list = { 0 };
    Status s = arena_init(&room, "trace replay", MEM_HOST, (size_t)16 << 30);
    if (s == OK) s = arena_init(&scratch, "trace replay", MEM_HOST, (size_t)16 << 30);
    if (s == OK) s = text_init(&list, &room);
    if (s == OK) s = text_append(&list, "", 0);
    if (s == OK) s = write(r, &scratch, &list, &count);
    if (s == OK) s = file_write_whole(path, list.data, list.used);
    if (s == OK) s = put_counts(path, r, &count, out);
    arena_free(&scratch);
    arena_free(&room);
    return s;
}

static Status replay(const ReplayCall *c, const char *path, Events *e, Arena *a, Text *out)
{
    Tree t = { 0 };
    Replay r = { 0 };
    Arena scratch = { 0 };
    TRY(events_read(path, &(EventsOptions){ .python = false }, e));
    TRY(tree_build(e, &(TreeOptions){ .link = LINK_CORRELATION }, a, &t));
    TRY(arena_init(&scratch, "trace replay", MEM_HOST, (size_t)16 << 30));
    Status s = replay_find(&t, c->filter, c->limit, a, &scratch, &r);
    arena_free(&scratch);
    TRY(s);
    if (r.n == 0)
        return FAIL(ERR_ARG, "trace replay: %s has no operator with arguments%s%s%s", path,
                    c->filter == NULL ? "" : " whose name has ", c->filter == NULL ? "" : c->filter,
                    c->filter == NULL ? ": record it with record_shapes=True" : "");
    if (c->out != NULL) TRY(write_list(c->out, &r, replay_json, out));
    if (c->bench != NULL) TRY(write_list(c->bench, &r, replay_bench, out));
    if (r.device_us == 0)
        TRY(text_printf(
            out,
            "no call in it launched device work: these are the operators that call no other\n"));
    if (r.other > 0)
        TRY(text_printf(out, "%lld launches by calls without recorded arguments are left out\n",
                        (long long)r.other));
    if (e->counts.truncated)
        return FAIL(ERR_PARTIAL, "%s ends early: the lists are of what was whole", path);
    return OK;
}

static Status run(void *state, int n, char **path, Arena *a, Text *out)
{
    const ReplayCall *c = state;
    Events e = { 0 };
    Arena tables = { 0 };
    (void)a;
    if (c->out == NULL && c->bench == NULL)
        return FAIL(ERR_ARG, "trace replay: name a file with --out, with --bench, or both");
    if (c->out != NULL) TRY(trace_out_file("--out", c->out, path, n));
    if (c->bench != NULL) TRY(trace_out_file("--bench", c->bench, path, n));
    if (c->out != NULL && c->bench != NULL && strcmp(c->out, c->bench) == 0)
        return FAIL(ERR_ARG, "--out and --bench are both %s: name two files", c->out);
    TRY(arena_init(&tables, "trace replay", MEM_HOST, (size_t)64 << 30));
    Status s = replay(c, path[0], &e, &tables, out);
    events_free(&e);
    arena_free(&tables);
    return s;
}

Status cli_trace_replay(int argc, char **argv)
{
    ReplayCall c = { 0 };
    const Option table[] = {
        { "--out", OPTION_TEXT, &c.out, "FILE", .help = "write TraceLens' event_replay_ir.json" },
        { "--bench", OPTION_TEXT, &c.bench, "FILE", .help = "write rows for bench shapes --list" },
        { "--op-filter", OPTION_TEXT, &c.filter, "TEXT",
          .help = "take only operators whose name contains TEXT" },
        { "--op-limit", OPTION_INT, &c.limit, "N", .help = "take only the N longest operators",
          .min = 1, .max = 1e9 },
    };
    const Command command = {
        .name = "switchyard trace replay",
        .arguments = "FILE",
        .what = "List the operators of a trace with their arguments, each once, the longest first. "
                "They can be run again in PyTorch, or on the ops of this program.",
        .example = "switchyard trace replay step.json.gz --bench ops.jsonl\n"
                   "switchyard bench shapes --list ops.jsonl --shrink 16",
        OPTIONS(table, 1, 1),
    };
    return options_run(&command, argc, argv, run, &c);
}
