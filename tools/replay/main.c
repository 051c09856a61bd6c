/* trace replay: parses the call and writes lists of a trace's operators (analyze/replay.h). It runs
 * no operator. */
#include "app/options/options.h"
#include "beside/beside.h"
#include "engine/base/file.h"
#include "replay/replay.h"
#include "traces/command/trace_out.h"
#include "traces/read/events_read.h"

#include <string.h>

/* What the command line asked for. scratch: for one operator at a time. */
typedef struct ReplayCall {
    const char *out, *bench, *filter;
    int64_t limit;
    Arena scratch;
} ReplayCall;

/* replay_json or replay_bench. */
typedef Status WriteReplay(const Replay *r, Arena *scratch, Text *out, ReplayCount *count);

/* How much of the trace a list covers, and what was left out and why. */
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

/* Writes one list into a file. Prints what is in it and what was left out. */
static Status write_list(ReplayCall *c, const char *path, const Replay *r, WriteReplay *write,
                         Arena *a, Text *out)
{
    ReplayCount count = { 0 };
    Text list = { 0 };
    TRY(text_init(&list, a));
    /* an empty list is also a file, so the text must not be NULL */
    TRY(text_append(&list, "", 0));
    TRY(write(r, &c->scratch, &list, &count));
    TRY(file_write_whole(path, list.data, list.used));
    return put_counts(path, r, &count, out);
}

/* Both lists come from one search. A trace that ends early gives lists and exit code 3. */
static Status write_lists(ReplayCall *c, const char *path, Events *e, Arena *a, Text *out)
{
    Tree t = { 0 };
    Replay r = { 0 };
    TRY(events_read(path, &(EventsOptions){ .python = false }, e));
    TRY(tree_build(e, &(TreeOptions){ .link = LINK_CORRELATION }, a, &t));
    TRY(replay_find(&t, c->filter, c->limit, a, &c->scratch, &r));
    if (r.n == 0)
        return FAIL(ERR_ARG, "trace replay: %s has no operator with arguments%s%s%s", path,
                    c->filter == NULL ? "" : " whose name has ", c->filter == NULL ? "" : c->filter,
                    c->filter == NULL ? ": record it with record_shapes=True" : "");
    if (c->out != NULL) TRY(write_list(c, c->out, &r, replay_json, a, out));
    if (c->bench != NULL) TRY(write_list(c, c->bench, &r, replay_bench, a, out));
    /* Without device work the operators are chosen differently, so that is said. */
    if (r.device_us == 0)
        TRY(text_printf(
            out,
            "no call in it launched device work: these are the operators that call no other\n"));
    if (r.other > 0)
        TRY(text_printf(out, "%lld launches by calls without recorded arguments are left out\n",
                        (long long)r.other));
    if (e->counts.truncated)
        return FAIL(ERR_PARTIAL, "%s ends early: the lists cover the complete events", path);
    return OK;
}

/* All paths are checked before the trace is read. */
static Status run_replay(void *state, int n, char **path, Arena *a, Text *out)
{
    ReplayCall *c = state;
    Events e = { 0 };
    if (c->out == NULL && c->bench == NULL)
        return FAIL(ERR_ARG, "trace replay: name a file with --out, with --bench, or both");
    if (c->out != NULL) TRY(trace_out_file("--out", c->out, path, n));
    if (c->bench != NULL) TRY(trace_out_file("--bench", c->bench, path, n));
    if (c->out != NULL && c->bench != NULL && strcmp(c->out, c->bench) == 0)
        return FAIL(ERR_ARG, "--out and --bench are both %s: name two files", c->out);
    TRY(arena_reserve(&c->scratch, "trace replay", (size_t)16 << 30));
    Status s = write_lists(c, path[0], &e, a, out);
    events_free(&e);
    arena_free(&c->scratch);
    return s;
}

Status beside_run(int argc, char **argv)
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
    return options_run(&command, argc, argv, run_replay, &c);
}
