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

/* Tokens from `first` on; *offset: the characters before them, and then before the next ones. */
static Status put_list(const Sequence *s, ScoreList list, int64_t first, int64_t *offset,
                       const Tokenizer *t, Text *out)
{
    static const char *const names[] = { "tokens", "token_logprobs", "top_logprobs",
                                         "text_offset" };
    TRY(text_printf(out, "%s\"%s\":[", list == LIST_TOKENS ? "{" : ",", names[list]));
    for (int64_t i = first; i < s->n; i++) {
        const char *bytes = NULL;
        int32_t n = 0;
        if (i > first) TRY(text_append(out, ",", 1));
        switch (list) {
        case LIST_TOKENS: TRY(put_token(t, s->id[i], out)); break;
        case LIST_LOGPROBS:
            TRY(i == 0 ? text_printf(out, "null") : text_json(out, "%g", (double)s->logprob[i]));
            break;
        case LIST_TOP: TRY(put_score(s, i, t, out)); break;
        default:
            TRY(text_printf(out, "%" PRId64, *offset));
            tokenizer_bytes(t, s->id[i], &bytes, &n);
            *offset += characters(bytes, n);
        }
    }
    return text_append(out, "]", 1);
}

static Status put_scores(const Sequence *s, int64_t first, int64_t *offset, const Tokenizer *t,
                         Text *out)
{
    if (s->manner->logprobs < 0) return text_printf(out, "null");
    for (ScoreList list = LIST_TOKENS; list < LISTS; list++)
        TRY(put_list(s, list, first, offset, t, out));
    return text_append(out, "}", 1);
}

/* Bytes [from, to) of what was written, after the prompt if it is asked for and from is 0. The text is made in an
 * arena of its own, where `out` does not grow. */
static Status put_text(const Sequence *s, bool prompt, int64_t from, int64_t to, const Tokenizer *t,
                       Text *out)
{
    const char *bytes = NULL;
    int32_t n = 0;
    Text whole = { 0 };
    Arena own = { 0 };
    Status done = arena_reserve(&own, "answer", (size_t)1 << 30);
    if (done == OK) done = text_init(&whole, &own);
    if (done == OK) done = text_append(&whole, "", 0); /* NUL-terminated also without a byte */
    prompt = prompt && s->manner->echo;
    if (done == OK && prompt && s->text != NULL)
        done = text_append(&whole, s->text, strlen(s->text));
    for (int64_t i = 0; done == OK && prompt && s->text == NULL && i < s->n_prompt; i++) {
        tokenizer_bytes(t, s->id[i], &bytes, &n);
        done = text_append(&whole, bytes, (size_t)n);
    }
    if (done == OK && to > from) done = text_append(&whole, s->written + from, (size_t)(to - from));
    if (done == OK) done = text_json(out, "%.*s", (int)whole.used, whole.data);
    arena_free(&own);
    return done;
}

static Status put_head(const Request *r, const char *model, int64_t number, Text *out)
{
    return text_json(out,
                     "{\"id\":\"cmpl-%lld\",\"object\":\"text_completion\",\"created\":%lld,"
                     "\"model\":%s,\"choices\":[",
                     (long long)number, (long long)r->created, model);
}

/* A prompt counts once, also if it has several choices. */
static Status put_usage(const Request *r, Text *out)
{
    int64_t prompts = 0, written = 0;
    for (int i = 0; i < r->n; i++) {
        const Sequence *s = &r->sequence[i];
        prompts += i % r->each == 0 ? s->n_prompt : 0;
        written += s->n - s->n_prompt;
    }
    return text_printf(out,
                       "],\"usage\":{\"prompt_tokens\":%" PRId64 ",\"completion_tokens\":%" PRId64
                       ",\"total_tokens\":%" PRId64 "}}\n",
                       prompts, written, prompts + written);
}

/* What `sent` lacks of choice i, up to byte `to` of what was written. */
static Status put_choice(const Request *r, int i, int64_t to, const Tokenizer *t, Sent *sent,
                         Text *out)
{
    const Sequence *s = &r->sequence[i];
    const char *reason = s->stopped ? "\"stop\"" : "\"length\"";
    TRY(text_printf(out, "{\"index\":%d,\"text\":", i));
    TRY(put_text(s, !sent->begun, sent->bytes, to, t, out));
    TRY(text_printf(out, ",\"logprobs\":"));
    TRY(put_scores(s, sent->begun ? sent->tokens : first_shown(s), &sent->offset, t, out));
    *sent = (Sent){ to, s->n, sent->offset, true, s->done };
    return text_printf(out, ",\"finish_reason\":%s}", s->done ? reason : "null");
}

Status answer_completion(const Request *r, const Tokenizer *t, const char *model, int64_t number,
                         Text *out)
{
    TRY(put_head(r, model, number, out));
    for (int i = 0; i < r->n; i++) {
        if (i > 0) TRY(text_append(out, ",", 1));
        TRY(put_choice(r, i, r->sequence[i].written_bytes, t, &(Sent){ 0 }, out));
    }
    return put_usage(r, out);
}

/* ---- streams ---- */

/* Where the longest end of n bytes begins that a stop begins with; n: there is none. */
static int64_t stop_begins(const Sequence *s, int64_t n)
{
    int64_t first = n;
    for (int k = 0; k < s->manner->stops; k++) {
        const char *stop = s->manner->stop[k];
        int64_t most = (int64_t)strlen(stop) - 1;
        for (most = most < n ? most : n; most > n - first; most--)
            if (memcmp(s->written + n - most, stop, (size_t)most) == 0) first = n - most;
    }
    return first;
}

/* Where the last character of n bytes begins if it lacks bytes; n: it does not. */
static int64_t character_begins(const Sequence *s, int64_t n)
{
    for (int64_t i = n - 1; i >= 0 && i >= n - 3; i--) {
        const unsigned char c = (unsigned char)s->written[i];
        const int64_t bytes = c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : c >= 0xC0 ? 2 : 1;
        if ((c & 0xC0) != 0x80) return i + bytes > n ? i : n;
    }
    return n;
}

Status answer_events(const Request *r, const Tokenizer *t, const char *model, int64_t number,
                     Sent *sent, Text *out)
{
    for (int i = 0; i < r->n; i++) {
        const Sequence *s = &r->sequence[i];
        const bool scores = s->manner->logprobs >= 0 && s->n > sent[i].tokens;
        int64_t to = s->written_bytes;
        if (sent[i].ended || (s->n == s->n_prompt && !s->done)) continue;
        if (!s->done) to = character_begins(s, stop_begins(s, to));
        if (to == sent[i].bytes && !scores && !s->done) continue;
        TRY(text_printf(out, "data: "));
        TRY(put_head(r, model, number, out));
        TRY(put_choice(r, i, to, t, &sent[i], out));
        TRY(text_printf(out, "]}\n\n"));
    }
    return OK;
}

Status answer_end(const Request *r, const char *model, int64_t number, Text *out)
{
    if (r->stream_usage) {
        TRY(text_printf(out, "data: "));
        TRY(put_head(r, model, number, out));
        TRY(put_usage(r, out));
        TRY(text_append(out, "\n", 1));
    }
    return text_printf(out, "data: [DONE]\n\n");
}

/* ---- others ---- */

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
