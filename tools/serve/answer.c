/* answer: see answer.h. */
#include "serve/answer.h"

#include "engine/base/clock.h"

#include <inttypes.h>
#include <string.h>

/* Characters: all bytes but those that continue one. */
static int64_t characters(const char *s, int64_t n)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < n; i++) sum += ((unsigned char)s[i] & 0xC0) != 0x80;
    return sum;
}

static Status put_token(const Tokenizer *t, int32_t id, Text *out)
{
    const char *bytes = NULL;
    int32_t n = 0;
    size_t bad = 0;
    tokenizer_bytes(t, id, &bytes, &n);
    if (n == 0) return text_printf(out, "\"token_id:%d\"", (int)id);
    if (text_utf8_valid(bytes, (size_t)n, &bad)) return text_json(out, "%.*s", (int)n, bytes);
    TRY(text_printf(out, "\"bytes:"));
    for (int32_t i = 0; i < n; i++) TRY(text_printf(out, "\\\\x%02x", (unsigned char)bytes[i]));
    return text_append(out, "\"", 1);
}

/* The tokens that an answer lists: of the prompt only with echo. */
static int64_t first_shown(const Sequence *s) { return s->manner->echo ? 0 : s->n_prompt; }

/* The first token of a prompt has nothing before it: null. */
static Status put_score(const Sequence *s, int64_t i, const Tokenizer *t, Text *out)
{
    const int64_t most = s->manner->logprobs;
    if (i == 0) return text_printf(out, "null");
    TRY(text_printf(out, "{"));
    for (int64_t k = 0; k < most; k++) {
        if (k > 0) TRY(text_append(out, ",", 1));
        TRY(put_token(t, s->likely[i * most + k], out));
        TRY(text_json(out, ":%g", (double)s->likely_logprob[i * most + k]));
    }
    return text_append(out, "}", 1);
}

typedef enum ScoreList { LIST_TOKENS, LIST_LOGPROBS, LIST_TOP, LIST_OFFSETS, LISTS } ScoreList;

static Status put_list(const Sequence *s, ScoreList list, const Tokenizer *t, Text *out)
{
    static const char *const names[] = { "tokens", "token_logprobs", "top_logprobs",
                                         "text_offset" };
    int64_t offset = 0;
    TRY(text_printf(out, "%s\"%s\":[", list == LIST_TOKENS ? "{" : ",", names[list]));
    for (int64_t i = first_shown(s); i < s->n; i++) {
        const char *bytes = NULL;
        int32_t n = 0;
        if (i > first_shown(s)) TRY(text_append(out, ",", 1));
        switch (list) {
        case LIST_TOKENS: TRY(put_token(t, s->id[i], out)); break;
        case LIST_LOGPROBS:
            TRY(i == 0 ? text_printf(out, "null") : text_json(out, "%g", (double)s->logprob[i]));
            break;
        case LIST_TOP: TRY(put_score(s, i, t, out)); break;
        default:
            TRY(text_printf(out, "%" PRId64, offset));
            tokenizer_bytes(t, s->id[i], &bytes, &n);
            offset += characters(bytes, n);
        }
    }
    return text_append(out, "]", 1);
}

static Status put_scores(const Sequence *s, const Tokenizer *t, Text *out)
{
    if (s->manner->logprobs < 0) return text_printf(out, "null");
    for (ScoreList list = LIST_TOKENS; list < LISTS; list++) TRY(put_list(s, list, t, out));
    return text_append(out, "}", 1);
}

/* The text of a sequence is made in `a`, where `out` does not grow. */
static Status put_text(const Sequence *s, const Tokenizer *t, Text *out)
{
    const char *bytes = NULL;
    int32_t n = 0;
    Text whole = { 0 };
    Arena own = { 0 };
    Status done = arena_reserve(&own, "answer", (size_t)1 << 30);
    if (done == OK) done = text_init(&whole, &own);
    if (done == OK) done = text_append(&whole, "", 0); /* NUL-terminated also without a byte */
    if (done == OK && s->manner->echo && s->text != NULL)
        done = text_append(&whole, s->text, strlen(s->text));
    for (int64_t i = 0; done == OK && s->manner->echo && s->text == NULL && i < s->n_prompt; i++) {
        tokenizer_bytes(t, s->id[i], &bytes, &n);
        done = text_append(&whole, bytes, (size_t)n);
    }
    if (done == OK && s->written_bytes > 0)
        done = text_append(&whole, s->written, (size_t)s->written_bytes);
    if (done == OK) done = text_json(out, "%.*s", (int)whole.used, whole.data);
    arena_free(&own);
    return done;
}

Status answer_completion(const Request *r, const Tokenizer *t, const char *model, int64_t number,
                         Text *out)
{
    int64_t prompts = 0, written = 0;
    TRY(text_json(out,
                  "{\"id\":\"cmpl-%lld\",\"object\":\"text_completion\",\"created\":%lld,"
                  "\"model\":%s,\"choices\":[",
                  (long long)number, (long long)clock_date_s(), model));
    for (int i = 0; i < r->n; i++) {
        const Sequence *s = &r->sequence[i];
        prompts += s->n_prompt;
        written += s->n - s->n_prompt;
        TRY(text_printf(out, "%s{\"index\":%d,\"text\":", i > 0 ? "," : "", i));
        TRY(put_text(s, t, out));
        TRY(text_printf(out, ",\"logprobs\":"));
        TRY(put_scores(s, t, out));
        TRY(text_printf(out, ",\"finish_reason\":\"%s\"}", s->stopped ? "stop" : "length"));
    }
    return text_printf(out,
                       "],\"usage\":{\"prompt_tokens\":%" PRId64 ",\"completion_tokens\":%" PRId64
                       ",\"total_tokens\":%" PRId64 "}}\n",
                       prompts, written, prompts + written);
}

Status answer_models(const char *model, int64_t context, Text *out)
{
    return text_json(out,
                     "{\"object\":\"list\",\"data\":[{\"id\":%s,\"object\":\"model\","
                     "\"owned_by\":\"switchyard\",\"max_model_len\":%lld}]}\n",
                     model, (long long)context);
}

Status answer_error(int code, const char *sentence, Text *out)
{
    return text_json(out, "{\"error\":{\"message\":%s,\"type\":%s,\"code\":%d}}\n", sentence,
                     code >= 500 ? "server_error" : "invalid_request_error", code);
}
