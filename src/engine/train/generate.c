/* generate: opens a checkpoint for reading, and runs the loop over tokens with sampling. */
#include "engine/train/generate.h"

#include "corpus/tokenizer/tokenizer.h"
#include "engine/base/file.h"
#include "engine/base/rng.h"
#include "engine/train/fits.h"

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

/* Sampling. */

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

/* Set-up. */

Status infer_config(const char *checkpoint, Arena *a, char path[], Config *out)
{
    CheckpointInfo info;
    TRY(checkpoint_resolve(checkpoint, a, path));
    TRY(checkpoint_info(path, a, &info));
    TRY(checkpoint_config(path, &info, a, out));
    config_alone(out);
    out->mesh_vpp = 1, out->mesh_layout = "";
    out->mesh_schedule = "1f1b"; /* the checkpoint's may be a removed one */
    return OK;
}

/* Plans, and checks the host's memory before the arenas are allocated; then opens and loads. */
Status infer_open(Engine *e, const Config *c, const EngineShape *shape, const char *path,
                  bool average, Arena *a, CheckpointInfo *info)
{
    EnginePlan plan;
    HostMemory m;
    TRY(engine_plan(c, ENGINE_INFER, shape, &plan));
    host_memory("/proc", "/sys/fs/cgroup", &m);
    TRY(train_check_bytes("the model takes", train_host_bytes(&plan), &m,
                          "take a host with more memory"));
    TRY(engine_open(e, c, ENGINE_INFER, shape, &plan));
    e->params.takes_average = average;
    return checkpoint_load(&e->params, path, a, info);
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
                          .cache = true,
                          .logit_rows = 1 };
    CheckpointInfo info;
    TRY(infer_open(&g->engine, &g->config, &shape, path, false, &g->arena, &info));
    TRY(ARENA_NEW(&g->arena, g->config.model_vocab, &g->ids));
    return ARENA_NEW(&g->arena, g->config.model_vocab, &g->p);
}

/* The first call runs the whole prompt, each later one a single token after the cache. */
static Status write_tokens(Generator *g, GenerateEach *each)
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
        TRY(each(bytes, n));
        if (i + 1 < o->tokens) TRY(engine_next_logits(&g->engine, &id, 1, &logits));
    }
    return OK;
}

/* The prompt is given to `each` before the first token, so the output is one text. */
static Status generate_texts(Generator *g, const char *checkpoint, GenerateEach *each)
{
    char path[FILE_PATH_MAX];
    TRY(arena_reserve(&g->arena, "generate", (size_t)16 << 30));
    TRY(infer_config(checkpoint, &g->arena, path, &g->config));
    TRY(encode_prompt(g, path));
    TRY(open_engine(g, path));
    TRY(each(g->options->prompt, (int)strlen(g->options->prompt)));
    return write_tokens(g, each);
}

Status generate_text(const char *checkpoint, const GenerateOptions *o, GenerateEach *each)
{
    Generator g = { .options = o };
    Status s = generate_texts(&g, checkpoint, each);
    engine_close(&g.engine);
    tokenizer_free(g.tokenizer);
    arena_free(&g.arena);
    return s;
}
