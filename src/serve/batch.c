/* batch: see batch.h. */
#include "serve/batch.h"

#include "engine/base/rng.h"
#include "engine/train/train.h"

#include <math.h>
#include <string.h>

/* New tokens of a call: enough for products that use all of a processor, and few enough that the logits of all of
 * them fit into memory (256 x 128,000 x 4 bytes = 131 MB). */
enum { CALL_TOKENS = 256 };

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

Status batcher_open(Batcher *b, Engine *e, const Config *c, const char *path,
                    const BatcherShape *want, Arena *a)
{
    CheckpointInfo info;
    *b = (Batcher){ .engine = e, .context = want->context };
    b->call_tokens = least(want->places > CALL_TOKENS ? want->places : CALL_TOKENS, want->context);
    b->places = (int)least(want->places, b->call_tokens);
    const EngineShape shape = { .batch = 1,
                                .micro_batch = 1,
                                .sequence = b->call_tokens,
                                .positions = want->context,
                                .domains = 1,
                                .threads = train_threads(c),
                                .cache = b->places,
                                .logit_rows = b->call_tokens };
    TRY(ARENA_ZEROED(a, b->places, &b->place));
    TRY(ARENA_NEW(a, b->places, &b->part));
    TRY(ARENA_NEW(a, b->call_tokens, &b->id));
    TRY(ARENA_NEW(a, c->model_vocab, &b->draw_ids));
    TRY(ARENA_NEW(a, c->model_vocab, &b->draw_p));
    return infer_open(e, c, &shape, path, want->average, a, &info);
}

Status sequence_make(Sequence *s, const Manner *m, int32_t *ids, int64_t n_prompt, Arena *a)
{
    const int64_t most = n_prompt + m->draw.tokens;
    *s = (Sequence){ .manner = m, .arena = a, .n_prompt = n_prompt, .n = n_prompt };
    s->id = ids;
    s->done = m->draw.tokens == 0 && (m->logprobs < 0 || !m->echo);
    if (m->logprobs < 0) return OK;
    TRY(ARENA_NEW(a, most, &s->logprob));
    TRY(ARENA_NEW(a, most * m->logprobs, &s->likely));
    return ARENA_NEW(a, most * m->logprobs, &s->likely_logprob);
}

bool batcher_add(Batcher *b, Sequence *s)
{
    for (int i = 0; i < b->places; i++) {
        if (b->place[i] != NULL) continue;
        b->place[i] = s;
        return true;
    }
    return false;
}

bool batcher_busy(const Batcher *b)
{
    int i = 0;
    while (i < b->places && b->place[i] == NULL) i++;
    return i < b->places;
}

void batcher_drop_all(Batcher *b) { memset(b->place, 0, (size_t)b->places * sizeof *b->place); }

/* ---- probabilities ---- */

/* log(sum(exp(x))), around the maximum so that no exponential overflows. */
static double log_sum(const float *x, int64_t n)
{
    float max = x[0];
    double sum = 0;
    for (int64_t i = 1; i < n; i++) max = x[i] > max ? x[i] : max;
    for (int64_t i = 0; i < n; i++) sum += exp((double)x[i] - (double)max);
    return (double)max + log(sum);
}

/* Notes the `most` likeliest ids by falling logit, of equal ones the lowest first. */
static void note_likely(const float *logits, int64_t n, double total, int64_t most, int32_t *id,
                        float *logprob)
{
    int64_t have = 0;
    for (int64_t i = 0; i < n; i++) {
        if (have == most && !(logits[i] > logits[id[most - 1]])) continue;
        int64_t at = have < most ? have++ : most - 1;
        for (; at > 0 && logits[i] > logits[id[at - 1]]; at--) id[at] = id[at - 1];
        id[at] = (int32_t)i;
    }
    for (int64_t k = 0; k < have; k++) logprob[k] = (float)((double)logits[id[k]] - total);
}

/* The probabilities of token i, from the logits before it. */
static void score_token(const Sequence *s, int64_t i, const float *logits, int64_t vocab)
{
    const int64_t most = s->manner->logprobs;
    if (s->logprob == NULL || (i < s->n_prompt && !s->manner->echo)) return;
    const double total = log_sum(logits, vocab);
    s->logprob[i] = (float)((double)logits[s->id[i]] - total);
    if (most > 0)
        note_likely(logits, vocab, total, most, s->likely + i * most, s->likely_logprob + i * most);
}

/* ---- new tokens ---- */

static bool find_stop(const Sequence *s, int64_t from, int64_t *at)
{
    const Manner *m = s->manner;
    bool found = false;
    for (int k = 0; k < m->stops; k++) {
        const int64_t n = (int64_t)strlen(m->stop[k]);
        int64_t i = from - n + 1 > 0 ? from - n + 1 : 0;
        while (i + n <= s->written_bytes && memcmp(s->written + i, m->stop[k], (size_t)n) != 0) i++;
        if (i + n > s->written_bytes || (found && *at <= i)) continue;
        found = true;
        *at = i;
    }
    return found;
}

/* Appends the bytes of a new token, and ends the sequence where a stop has appeared. */
static Status write_token(const Batcher *b, Sequence *s, int32_t id)
{
    const char *bytes = NULL;
    int32_t n = 0;
    const int64_t from = s->written_bytes;
    tokenizer_bytes(b->tokenizer, id, &bytes, &n);
    if (n == 0) return OK;
    TRY(ARENA_GROW(s->arena, from + n, &s->written_room, &s->written));
    memcpy(s->written + from, bytes, (size_t)n);
    s->written_bytes += n;
    s->stopped = find_stop(s, from, &s->written_bytes);
    return OK;
}

/* Draws the token after the last one, with the numbers that `switchyard generate` draws with. */
static Status draw_token(Batcher *b, Sequence *s, const float *logits, int64_t vocab)
{
    const GenerateOptions *o = &s->manner->draw;
    const int64_t drawn = s->n - s->n_prompt;
    const double u = rng_uniform(o->seed, rng_stream("generate"), (uint64_t)drawn);
    const int32_t id = generate_sample(logits, vocab, o, u, b->draw_ids, b->draw_p);
    s->id[s->n] = id;
    score_token(s, s->n++, logits, vocab);
    if (id == tokenizer_end_of_text(b->tokenizer))
        s->stopped = true; /* it has no text, but is one of the tokens */
    else
        TRY(write_token(b, s, id));
    s->done = s->stopped || s->n - s->n_prompt == o->tokens;
    return OK;
}

/* logits (n, vocab): those after each of the part's tokens. */
static Status take_logits(Batcher *b, Sequence *s, int64_t n, const float *logits)
{
    const int64_t vocab = b->engine->config->model_vocab;
    for (int64_t i = 0; i < n; i++, logits += vocab) {
        s->fed++;
        if (s->fed < s->n) {
            score_token(s, s->fed, logits, vocab);
        } else if (s->manner->draw.tokens == 0) {
            s->done = true;
        } else {
            TRY(draw_token(b, s, logits, vocab));
            return OK;
        }
    }
    return OK;
}

/* ---- calls ---- */

/* Adds up to `most` tokens of a sequence to the call. */
static void add_part(Batcher *b, int place, int64_t most, int *parts, int64_t *n)
{
    const Sequence *s = b->place[place];
    const int64_t take = least(s->n - s->fed, most);
    b->part[(*parts)++] = (CachePart){ .sequence = place, .used = s->fed, .n = take };
    memcpy(b->id + *n, s->id + s->fed, (size_t)take * sizeof *b->id);
    *n += take;
}

/* Sequences that write come first, then prompts. There are at most as many places as tokens of a call. */
static int gather_parts(Batcher *b)
{
    int parts = 0;
    int64_t n = 0;
    for (int prompts = 0; prompts < 2; prompts++) {
        for (int i = 0; i < b->places && n < b->call_tokens; i++) {
            const Sequence *s = b->place[i];
            if (s == NULL || (s->n - s->fed > 1) != prompts) continue;
            add_part(b, i, b->call_tokens - n, &parts, &n);
        }
    }
    return parts;
}

Status batcher_step(Batcher *b)
{
    const int64_t vocab = b->engine->config->model_vocab;
    const float *logits = NULL;
    const int parts = gather_parts(b);
    if (parts == 0) return OK;
    TRY(engine_cached_logits(b->engine, b->part, parts, b->id, &logits));
    for (int i = 0; i < parts; i++) {
        Sequence *s = b->place[b->part[i].sequence];
        TRY(take_logits(b, s, b->part[i].n, logits));
        if (s->done) b->place[b->part[i].sequence] = NULL;
        logits += b->part[i].n * vocab;
    }
    return OK;
}
