/* generate: `switchyard generate`: opens a checkpoint, runs the loop over tokens with a key/value cache, and prints
 * the text while it grows: one prompt, on one rank. `switchyard serve` answers many. */
#include "serve/generate.h"

#include "app/options/cli.h"
#include "app/options/options.h"
#include "corpus/tokenizer/tokenizer.h"
#include "engine/base/file.h"
#include "engine/base/interrupt.h"
#include "engine/base/out.h"
#include "engine/base/rng.h"
#include "engine/train/infer.h"
#include "engine/train/train.h"

#include <math.h>
#include <string.h>

typedef struct Generator {
    const GenerateOptions *options;
    Arena arena;
    Config config;
    Tokenizer *tokenizer;
    Engine engine;
    int32_t *prompt;
    int64_t n_prompt;
    int32_t *ids;
    float *p;
} Generator;

/* Of equal logits the lowest id. A NaN is never greater, so it is only chosen at id 0. */
static int32_t likeliest_id(const float *logits, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++) {
        if (logits[i] > logits[best]) best = i;
    }
    return (int32_t)best;
}

/* Restores the heap (largest logit first) from index `at` down. */
static void sift_down(int32_t *ids, int64_t n, int64_t at, const float *logits)
{
    for (;;) {
        int64_t child = 2 * at + 1;
        if (child >= n) return;
        if (child + 1 < n && logits[ids[child + 1]] > logits[ids[child]]) child++;
        if (!(logits[ids[child]] > logits[ids[at]])) return;
        int32_t swap = ids[at];
        ids[at] = ids[child];
        ids[child] = swap;
        at = child;
    }
}

/* Moves the likeliest id of a heap of n to its end; the rest is a heap of n - 1. */
static int32_t pop_likeliest(int32_t *ids, int64_t n, const float *logits)
{
    int32_t best = ids[0];
    ids[0] = ids[n - 1];
    ids[n - 1] = best;
    sift_down(ids, n - 1, 0, logits);
    return best;
}

/* Takes candidates off a heap, likeliest first, until top-k or top-p is full. These are few, so a heap is
 * faster than sorting the vocabulary. top-p is a share of the probability that top-k has left, as in the
 * chain of logits processors of Hugging Face transformers. */
int32_t generate_sample(const float *logits, int64_t n, const GenerateOptions *o, double u,
                        int32_t *scratch_ids, float *scratch_p)
{
    if (o->temperature <= 0) return likeliest_id(logits, n);
    double max = (double)logits[likeliest_id(logits, n)], total = 0;
    for (int64_t i = 0; i < n; i++) {
        scratch_p[i] = (float)exp(((double)logits[i] - max) / o->temperature);
        total += (double)scratch_p[i];
        scratch_ids[i] = (int32_t)i;
    }
    for (int64_t i = n / 2 - 1; i >= 0; i--) sift_down(scratch_ids, n, i, logits);
    bool limited = o->top_k > 0 && o->top_k < n;
    int64_t most = limited ? o->top_k : n, taken = 0;
    if (limited) total = 0;
    for (int64_t i = 0; limited && i < most; i++)
        total += (double)scratch_p[pop_likeliest(scratch_ids, n - i, logits)];
    double mass = 0;
    while (taken < most && (taken == 0 || mass < o->top_p * total)) {
        if (!limited) pop_likeliest(scratch_ids, n - taken, logits);
        taken++;
        mass += (double)scratch_p[scratch_ids[n - taken]];
    }
    double left = u * mass;
    for (int64_t i = n - 1; i > n - taken; i--) {
        left -= (double)scratch_p[scratch_ids[i]];
        if (left < 0) return scratch_ids[i];
    }
    return scratch_ids[n - taken];
}

/* Prints a token's bytes at once, not through the command's `out`, so that the user sees text grow.
 * After an interrupt the line is ended first, for the shell's prompt. */
static Status print_bytes(const char *bytes, int n)
{
    TRY(out_write(bytes, (size_t)n));
    if (interrupt_signal() != 0) TRY(out_write("\n", 1));
    return interrupt_check("the text ends early");
}

static Status encode_prompt(Generator *g, const char *path)
{
    const char *prompt = g->options->prompt;
    if (g->config.data_tokenizer[0] == '\0') {
        return FAIL(ERR_ARG,
                    "%s: its configuration names no data.tokenizer, so text cannot be "
                    "turned into tokens",
                    path);
    }
    TRY(tokenizer_load(g->config.data_tokenizer, &g->arena, &g->tokenizer));
    TRY(tokenizer_encode(g->tokenizer, prompt, strlen(prompt), &g->arena, &g->prompt,
                         &g->n_prompt));
    if (g->n_prompt == 0) return FAIL(ERR_ARG, "the prompt is empty: give at least one character");
    return OK;
}

/* The cache holds the prompt and all new tokens from the start, so it never grows. */
static Status open_engine(Generator *g, const char *path)
{
    EngineShape shape = { .batch = 1,
                          .micro_batch = 1,
                          .sequence = g->n_prompt,
                          .positions = g->n_prompt + g->options->tokens,
                          .domains = 1,
                          .threads = train_threads(&g->config),
                          .cache = 1,
                          .logit_rows = 1 };
    CheckpointInfo info;
    TRY(infer_open(&g->engine, &g->config, &shape, path, false, &g->arena, &info));
    TRY(ARENA_NEW(&g->arena, g->config.model_vocab, &g->ids));
    return ARENA_NEW(&g->arena, g->config.model_vocab, &g->p);
}

/* The first call runs the whole prompt, each later one a single token after the cache. */
static Status write_tokens(Generator *g)
{
    const GenerateOptions *o = g->options;
    const float *logits = NULL;
    uint64_t stream = rng_stream("generate");
    TRY(engine_next_logits(&g->engine, g->prompt, g->n_prompt, &logits));
    for (int64_t i = 0; i < o->tokens; i++) {
        double u = rng_uniform(o->seed, stream, (uint64_t)i);
        int32_t id = generate_sample(logits, g->config.model_vocab, o, u, g->ids, g->p), n = 0;
        if (id == tokenizer_end_of_text(g->tokenizer)) return OK;
        const char *bytes = NULL;
        tokenizer_bytes(g->tokenizer, id, &bytes, &n);
        TRY(print_bytes(bytes, n));
        if (i + 1 < o->tokens) TRY(engine_next_logits(&g->engine, &id, 1, &logits));
    }
    return OK;
}

/* The prompt is printed before the first token, so the output is one text. */
static Status generate_texts(Generator *g, const char *checkpoint)
{
    char path[FILE_PATH_MAX];
    TRY(arena_reserve(&g->arena, "generate", (size_t)16 << 30));
    TRY(infer_config(checkpoint, &g->arena, path, &g->config));
    TRY(encode_prompt(g, path));
    TRY(open_engine(g, path));
    TRY(print_bytes(g->options->prompt, (int)strlen(g->options->prompt)));
    return write_tokens(g);
}

/* Writes the prompt and its continuation, until `tokens` new tokens or the end-of-text token. Model and
 * tokenizer are those of the checkpoint's configuration. */
static Status generate_text(const char *checkpoint, const GenerateOptions *o)
{
    Generator g = { .options = o };
    Status s = generate_texts(&g, checkpoint);
    engine_close(&g.engine);
    tokenizer_free(g.tokenizer);
    arena_free(&g.arena);
    return s;
}

typedef struct Generate {
    GenerateOptions options;
    int64_t seed; /* OPTION_INT is signed; options.seed is not */
} Generate;

static Status run_generate(void *state, int n, char **arguments, Arena *a, Text *out)
{
    Generate *g = state;
    (void)n, (void)a;
    g->options.seed = (uint64_t)g->seed;
    interrupt_catch();
    TRY(generate_text(arguments[0], &g->options));
    return text_append(out, "\n", 1);
}

Status cli_generate(int argc, char **argv)
{
    Generate g = { { .tokens = 100, .temperature = 0.8, .top_p = 1 }, .seed = 1 };
    GenerateOptions *o = &g.options;
    const Option table[] = {
        { "--prompt", OPTION_TEXT, &o->prompt, "TEXT", "the text to continue", .required = true },
        { "--tokens", OPTION_INT, &o->tokens, "N", "write at most N tokens", .min = 1, .max = 1e6 },
        { "--temperature", OPTION_REAL, &o->temperature, "X",
          "divide logits by X before drawing; 0 always takes the likeliest token", .min = 0,
          .max = 100 },
        { "--top-k", OPTION_INT, &o->top_k, "N",
          "draw among the N likeliest tokens; 0 draws among all", .min = 0, .max = 1e9 },
        { "--top-p", OPTION_REAL, &o->top_p, "X",
          "draw among the likeliest tokens whose probabilities add up to X (after --top-k)",
          .min = 0, .max = 1 },
        { "--seed", OPTION_INT, &g.seed, "N", "seed of the random draws", .min = 0, .max = 9e15 },
    };
    const Command command = {
        .name = "switchyard generate",
        .arguments = "CKPT",
        .what = "Continue a prompt with a trained model. CKPT is the folder of a run or of a "
                "checkpoint.",
        .example = "switchyard generate runs/quickstart --prompt 'In the beginning' --tokens 50",
        OPTIONS(table, 1, 1),
    };
    return options_run(&command, argc, argv, run_generate, &g);
}
