/*
 * request: the body of POST /v1/completions, read into sequences.
 *
 * The members are those of OpenAI's interface for completions. One that this server does not carry out is refused by
 * name unless its value changes nothing, and so is a name that nobody knows: a request is never answered otherwise
 * than it was meant.
 */
#ifndef SERVE_REQUEST_H
#define SERVE_REQUEST_H

#include "serve/batch.h"

enum { SEQUENCES_MAX = 1024, CHOICES_MAX = 128 };

/* Everything lies in the arena of request_read. */
typedef struct Request {
    Manner *manner;    /* (each) choice k of a prompt draws with the request's seed + k */
    const char *model; /* NULL: not named */
    Sequence *sequence;
    int n, each; /* sequences; of each prompt, one behind the other */
    bool stream, stream_usage;
    int64_t created; /* seconds since 1970 */
} Request;

typedef struct RequestLimits {
    const Tokenizer *tokenizer;
    int64_t context, vocab;
} RequestLimits;

/* `body` is changed; it has `bytes` bytes and a NUL after them. ERR_ARG: the sentence names the member, its value and
 * the limit. */
Status request_read(char *body, size_t bytes, const RequestLimits *l, Arena *a, Request *out);

#endif
