/*
 * batch: runs many sequences through one model at once.
 *
 * Each sequence has a place in the key/value cache until it is done. A call of the engine takes new tokens of all
 * sequences together: the next token of those that write, then pieces of prompts until the call is full. So a long
 * prompt delays others by no more than one call, and a new sequence begins as soon as a place is free.
 *
 * Logarithms of probabilities are those of the model, before temperature and top-p. They are computed for the tokens of
 * a prompt, too, where a request asks for them: this is how a text is scored.
 */
#ifndef SERVE_BATCH_H
#define SERVE_BATCH_H

#include "corpus/tokenizer/tokenizer.h"
#include "engine/train/infer.h"
#include "serve/generate.h"

enum { STOPS_MAX = 16, LOGPROBS_MAX = 20 };

/* How sequences of one request go on. */
typedef struct Manner {
    GenerateOptions draw; /* tokens: the most new ones, 0 or more */
    int64_t logprobs; /* likeliest tokens that are noted with each token; -1: no probabilities */
    bool echo;        /* note probabilities of the prompt's tokens, too */
    int stops;
    const char *stop[STOPS_MAX]; /* texts that end a sequence */
} Manner;

/* Arrays lie in the arena of sequence_make, but `written` in `arena`, too. */
typedef struct Sequence {
    const Manner *manner;
    Arena *arena;
    const char *text;      /* the prompt as it was given; NULL: as ids */
    int32_t *id;           /* prompt, then new tokens */
    int64_t n_prompt, n;   /* tokens of the prompt; of all so far */
    int64_t fed;           /* tokens in the cache */
    float *logprob;        /* of token i given those before it; NULL: not asked for */
    int32_t *likely;       /* (tokens, manner->logprobs) ids, the likeliest first */
    float *likely_logprob; /* of these */
    char *written;         /* bytes of the new tokens, cut before a stop; not NUL-terminated */
    int64_t written_bytes, written_room;
    bool done, stopped; /* stopped: by the end of text or by a stop, not by their number */
} Sequence;

/* ids: memory for `most` ids, of which n_prompt are set. */
Status sequence_make(Sequence *s, const Manner *m, int32_t *ids, int64_t n_prompt, Arena *a);

typedef struct Batcher {
    Engine *engine;
    const Tokenizer *tokenizer;
    int64_t context, call_tokens; /* most tokens of a sequence, of a call */
    int places;
    Sequence **place; /* NULL: free */
    CachePart *part;
    int32_t *id;       /* of a call */
    int32_t *draw_ids; /* (vocabulary) scratch of generate_sample */
    float *draw_p;
} Batcher;

typedef struct BatcherShape {
    int64_t context, places; /* most tokens of a sequence; sequences at once */
    bool average;            /* of the weights, as optimizer.ema keeps it */
} BatcherShape;

/* Opens the model of a checkpoint. The engine is the caller's to close, also after an error. ERR_ARG: too little
 * memory. */
Status batcher_open(Batcher *b, Engine *e, const Config *c, const char *path,
                    const BatcherShape *shape, Arena *a);

/* False: all places are taken. */
bool batcher_add(Batcher *b, Sequence *s);

bool batcher_busy(const Batcher *b); /* has a place been taken? */

/* One call of the engine. Sequences that are `done` after it have left their places. Without any it does nothing. */
Status batcher_step(Batcher *b);
void batcher_drop_all(Batcher *b); /* frees all places */

#endif
