/* eval: `switchyard eval` and `switchyard logits`: the loss of a checkpoint on held-out text, and
 * its logits for given tokens. Both parse, call engine/train/eval.h or engine/step/engine.h, and print. */
#include "engine/train/eval.h"
#include "app/eval_data.h"
#include "app/options/cli.h"
#include "app/options/options.h"
#include "engine/base/file.h"
#include "engine/train/infer.h"
#include "engine/train/train.h"
#include "serve/serve.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* A word alone may be the name of a task, as lm-evaluation-harness has them. */
static Status check_prefix(const char *word)
{
    char index[FILE_PATH_MAX];
    (void)snprintf(index, sizeof index, "%s.idx", word);
    if (strchr(word, '/') != NULL || file_exists(index)) return OK;
    return FAIL(ERR_IO,
                "eval: there is no %s: eval measures the loss on held-out text of .bin/.idx files, "
                "or asks the questions of "
                "--choices FILE; for tasks, lm-evaluation-harness asks `switchyard serve`, or "
                "reads what `switchyard convert "
                "to-hf` writes",
                index);
}

/* Replaces the run's data sources by those of the command line: NAME=PREFIX, or PREFIX, which is
 * then also the name. Without any the run's own sources stay. */
static Status set_sources(Config *c, Arena *a, char **prefixes, int n)
{
    if (n == 0) return OK;
    if (n > CONFIG_SOURCES_MAX)
        return FAIL(ERR_ARG, "eval: %d data prefixes, at most %d", n, CONFIG_SOURCES_MAX);
    c->data_sources.n = n;
    for (int i = 0; i < n; i++) {
        const char *equals = strchr(prefixes[i], '=');
        ConfigSource *s = &c->data_sources.at[i];
        *s = (ConfigSource){ .name = prefixes[i], .path = prefixes[i] };
        if (equals == NULL) TRY(check_prefix(prefixes[i]));
        if (equals == NULL) continue;
        s->path = equals + 1;
        TRY(arena_text(a, prefixes[i], (size_t)(equals - prefixes[i]), &s->name));
    }
    return OK;
}

/* A line for each source, then one for all. A source without targets has no loss. */
static Status print_eval(const EvalMetrics *v, const Loader *l, Text *out)
{
    char figures[EVAL_TEXT_BYTES];
    const EvalSum all = eval_total(v);
    for (int d = 0; d < v->n_domains; d++) {
        const EvalSum *s = &v->domain[d];
        TRY(text_printf(out, "%-16s %10" PRId64 " tokens  %s\n", loader_source_name(l, d),
                        s->targets, s->targets > 0 ? eval_text(s, "  ", figures) : "-"));
    }
    return text_printf(out, "%-16s %10s         %s\n", "all", "", eval_text(&all, "  ", figures));
}

/* Writes a JSON line for each held-out document: source, number in the shard, predicted tokens,
 * their loss. */
static Status write_documents(const Evaluator *v, const Loader *l, const char *path, Arena *a)
{
    Text t = { 0 };
    ArenaMark mark = arena_mark(a);
    TRY(text_init(&t, a));
    for (int d = 0; d < loader_sources(l); d++) {
        for (int64_t k = 0; k < loader_held_documents(l, d); k++) {
            const EvalSum *s = &v->document[d][k];
            int64_t end = 0, number = loader_held_document(l, d, k, &end);
            TRY(text_json(&t,
                          "{\"source\":%s,\"document\":%lld,\"tokens\":%lld,\"nats\":%g,"
                          "\"perplexity\":%g}\n",
                          loader_source_name(l, d), (long long)number, (long long)s->targets,
                          s->nats, exp(eval_loss(s))));
        }
    }
    Status s = file_write_whole(path, t.data, t.used);
    arena_release(a, mark);
    return s;
}

/* The targets of the options; and the sources that the run was trained on. */
typedef struct EvalCall {
    const char *documents, *choices;
    ConfigSources trained;
    bool average;
} EvalCall;

/* Evaluates with an engine that the caller closes. *loader is set as soon as it is open: the caller
 * closes it, too, whatever fails. */
static Status eval_with(Engine *e, Config *c, const char *path, const EvalCall *call, Arena *a,
                        Loader **loader, Text *out)
{
    TrainPlan plan;
    CheckpointInfo header, info;
    const int32_t *token_bytes = NULL;
    LoaderConfig data;
    Evaluator evaluator = { 0 };
    EvalMetrics v;
    TRY(train_plan(c, NULL, 1, &plan));
    TRY(infer_open(e, c, &plan.shape, path, call->average, a, &info));
    TRY(train_token_bytes(c, false, a, &token_bytes));
    TRY(train_loader_config(c, NULL, token_bytes, a, &data));
    TRY(checkpoint_info(path, a, &header));
    TRY(eval_sources(&call->trained, &header, &data, a));
    TRY(loader_open(&data, a, loader));
    TRY(eval_check(c, *loader));
    TRY(eval_make(&evaluator, e, token_bytes, a));
    Progress bar = { .what = "evaluate", .name = path, .unit = "sequences", .left = "no result" };
    evaluator.bar = &bar;
    progress_begin(&bar);
    if (call->documents != NULL) TRY(eval_documents(&evaluator, *loader, a));
    TRY(eval_run(&evaluator, *loader, INT64_MAX / 2, info.step, &v));
    progress_end(&bar);
    if (call->documents != NULL) TRY(write_documents(&evaluator, *loader, call->documents, a));
    return print_eval(&v, *loader, out);
}

/* The engine and the loader are closed here, whatever failed; both accept { 0 } and NULL. */
static Status run_eval(void *state, int n, char **arguments, Arena *a, Text *out)
{
    char path[FILE_PATH_MAX];
    Config c;
    Engine e = { 0 };
    Loader *loader = NULL;
    EvalCall *call = state;
    if (call->choices != NULL && (n > 1 || call->documents != NULL))
        return FAIL(ERR_ARG, "eval --choices reads questions alone: leave out %s",
                    n > 1 ? arguments[1] : "--documents");
    if (call->choices != NULL)
        return choices_measure(arguments[0], call->choices, call->average, out);
    TRY(infer_config(arguments[0], a, path, &c));
    call->trained = c.data_sources;
    TRY(set_sources(&c, a, arguments + 1, n - 1));
    Status s = eval_with(&e, &c, path, call, a, &loader, out);
    loader_close(loader);
    engine_close(&e);
    return s;
}

/* Runs the whole sequence in one call of generation, with a row of logits for each of the n
 * tokens. */
static Status logits_with(Engine *e, const Config *c, const char *path, char **names, Arena *a,
                          Text *out)
{
    int32_t *ids = NULL;
    int64_t n = 0;
    TRY(eval_read_tokens(names[1], c->model_vocab, a, &ids, &n));
    EngineShape shape = { .batch = 1,
                          .micro_batch = 1,
                          .sequence = n,
                          .positions = n,
                          .domains = 1,
                          .threads = train_threads(c),
                          .cache = 1,
                          .logit_rows = n };
    CheckpointInfo info;
    const float *logits = NULL;
    TRY(infer_open(e, c, &shape, path, false, a, &info));
    TRY(engine_next_logits(e, ids, n, &logits));
    TRY(file_write_whole(names[2], logits, (size_t)(n * c->model_vocab) * sizeof *logits));
    return text_printf(out, "%" PRId64 " x %" PRId64 " logits (f32) in %s\n", n, c->model_vocab,
                       names[2]);
}

/* `switchyard logits`: the arguments are CKPT, TOKENS and OUT. */
static Status run_logits(void *state, int n, char **arguments, Arena *a, Text *out)
{
    char path[FILE_PATH_MAX];
    Config c;
    Engine e = { 0 };
    (void)state, (void)n;
    TRY(infer_config(arguments[0], a, path, &c));
    Status s = logits_with(&e, &c, path, arguments, a, out);
    engine_close(&e);
    return s;
}

Status cli_eval(int argc, char **argv)
{
    EvalCall call = { 0 };
    const Option table[] = {
        { "--documents", OPTION_TEXT, &call.documents, "OUT",
          .help = "write one JSON line per held-out document: tokens, nats, perplexity" },
        { "--choices", OPTION_TEXT, &call.choices, "FILE",
          .help =
              "ask the questions of FILE, JSON lines with prompt, choices and answer, and print "
              "the shares of right answers" },
        { "--average", OPTION_FLAG, &call.average, NULL,
          .help = "take the average of the weights that optimizer.ema kept" },
    };
    const Command command = {
        .name = "switchyard eval",
        .arguments = "CKPT [NAME=PREFIX ...]",
        .what = "Measure loss and bits per byte on held-out text: of the run's own data, or "
                "of the .bin/.idx prefixes given; or answers to questions (--choices). CKPT is the "
                "folder of a run or of a checkpoint.",
        .example = "switchyard eval runs/quickstart bible=runs/quickstart/data/bible",
        OPTIONS(table, 1, -1)
    };
    return options_run(&command, argc, argv, run_eval, &call);
}

Status cli_logits(int argc, char **argv)
{
    const Command command = {
        .name = "switchyard logits",
        .arguments = "CKPT TOKENS OUT",
        .what = "Run one sequence of token ids through a model. TOKENS holds raw 32-bit integers. "
                "OUT gets the logits of every position as raw f32 (tokens x vocabulary).",
        .example = "switchyard logits runs/quickstart tokens.i32 logits.f32",
        .min_positional = 3,
        .max_positional = 3
    };
    return options_run(&command, argc, argv, run_logits, NULL);
}
