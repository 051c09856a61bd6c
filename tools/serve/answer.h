/* answer: what the server writes: a completion, the list of models, an error, each one JSON object. A completion can
 * also be a stream of events, each a line `data: OBJECT` and an empty one (HTML's server-sent events). */
#ifndef SERVE_ANSWER_H
#define SERVE_ANSWER_H

#include "serve/request.h"

/* number: of the request, for its id. Token texts that are no UTF-8 are "bytes:\xNN..."; those of tokens without a
 * text are "token_id:N". */
Status answer_completion(const Request *r, const Tokenizer *t, const char *model, int64_t number,
                         Text *out);

/* What a stream has had of a choice. */
typedef struct Sent {
    int64_t bytes, tokens, offset; /* of what was written; of all; characters of these tokens */
    bool begun, ended;
} Sent;

/* Appends an event for each choice that has more text than `sent` (n), or is done. Held back are bytes that may become
 * a stop or a character: texts of the events add up to the one of answer_completion. */
Status answer_events(const Request *r, const Tokenizer *t, const char *model, int64_t number,
                     Sent *sent, Text *out);
/* The last events: the usage if it was asked for, and [DONE]. */
Status answer_end(const Request *r, const char *model, int64_t number, Text *out);

Status answer_models(const char *model, int64_t context, Text *out);
Status answer_error(int code, const char *sentence, Text *out);

#endif
