/* answer: what the server writes: a completion, the list of models, an error, each one JSON object. */
#ifndef SERVE_ANSWER_H
#define SERVE_ANSWER_H

#include "serve/request.h"

/* number: of the request, for its id. Token texts that are no UTF-8 are "bytes:\xNN..."; those of tokens without a
 * text are "token_id:N". */
Status answer_completion(const Request *r, const Tokenizer *t, const char *model, int64_t number,
                         Text *out);
Status answer_models(const char *model, int64_t context, Text *out);
Status answer_error(int code, const char *sentence, Text *out);

#endif
