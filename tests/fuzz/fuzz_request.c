/* Any bytes as the body of POST /v1/completions: no crash, and no wait; what is taken keeps the limits. */
#include "harness/fuzz.h"
#include "serve/request.h"

enum { CONTEXT = 32, VOCAB = 300 };

static Status load(Arena *a, void **out)
{
    Tokenizer *t = NULL;
    TRY(tokenizer_load("tests/fuzz/corpus/tokenizer/byte_level.json", a, &t));
    *out = t;
    return OK;
}

static Status look(Fuzz *f)
{
    Request r;
    char *body = NULL;
    const RequestLimits limits = { fuzz_once(load), CONTEXT, VOCAB };
    TRY(ARENA_NEW(f->a, f->bytes + 1, &body));
    memcpy(body, f->data, f->bytes);
    body[f->bytes] = '\0';
    TRY(request_read(body, f->bytes, &limits, f->a, &r));
    const Manner *m = r.manner;
    need(r.each >= 1 && r.each <= CHOICES_MAX && r.n % r.each == 0);
    need(r.n <= SEQUENCES_MAX && m->logprobs >= -1 && m->logprobs <= LOGPROBS_MAX);
    need(m->draw.temperature >= 0 && m->draw.top_p >= 0 && m->draw.top_p <= 1);
    for (int k = 0; k < m->stops; k++) need(*m->stop[k] != '\0');
    for (int i = 0; i < r.n; i++) {
        const Sequence *s = &r.sequence[i];
        need(s->n_prompt > 0 && s->n_prompt + m->draw.tokens <= CONTEXT + 1);
        need((s->logprob != NULL) == (m->logprobs >= 0));
        need(s->manner == &r.manner[i % r.each]);
        for (int64_t k = 0; k < s->n_prompt; k++) need(s->id[k] >= 0 && s->id[k] < VOCAB);
    }
    return OK;
}

const Fuzzer fuzzer = { .look = look };
