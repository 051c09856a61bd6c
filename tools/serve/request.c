/* request: see request.h. */
#include "serve/request.h"

#include "engine/base/clock.h"
#include "engine/base/scan.h"

#include <math.h>
#include <string.h>

enum { NAME_SHOWN = 64 }; /* bytes of a client's text in a sentence */

typedef enum FieldType { FIELD_TEXT, FIELD_BOOL, FIELD_WHOLE, FIELD_REAL, FIELD_RAW } FieldType;

static const char *const type_names[] = { "a string", "true or false", "a whole number", "a number",
                                          "a value" };

/* What a request may have. A number is a double here. */
typedef struct Fields {
    const char *model;
    char *prompt, *stop, *stream_options, *logit_bias;
    bool echo, stream;
    double logprobs, max_tokens, temperature, top_p, top_k, seed, n, best_of, none;
} Fields;

typedef struct Field {
    const char *name;
    FieldType type;
    size_t offset;
    double min, max;
} Field;

#define AT(member) offsetof(Fields, member)
static const Field fields[] = {
    { "model", FIELD_TEXT, AT(model), 0, 0 },
    { "prompt", FIELD_RAW, AT(prompt), 0, 0 },
    { "echo", FIELD_BOOL, AT(echo), 0, 1 },
    { "logprobs", FIELD_WHOLE, AT(logprobs), 0, LOGPROBS_MAX },
    { "max_tokens", FIELD_WHOLE, AT(max_tokens), 0, 1e9 },
    { "stop", FIELD_RAW, AT(stop), 0, 0 },
    { "temperature", FIELD_REAL, AT(temperature), 0, 100 },
    { "top_p", FIELD_REAL, AT(top_p), 0, 1 },
    { "top_k", FIELD_WHOLE, AT(top_k), 0, 1e9 },
    { "seed", FIELD_WHOLE, AT(seed), 0, 9007199254740992.0 },
    { "n", FIELD_WHOLE, AT(n), 1, CHOICES_MAX },
    { "best_of", FIELD_WHOLE, AT(best_of), 1, CHOICES_MAX },
    { "stream", FIELD_BOOL, AT(stream), 0, 1 },
    { "stream_options", FIELD_RAW, AT(stream_options), 0, 0 },
    { "user", FIELD_TEXT, AT(model), 1, 1 },
    /* what would change the answer in a way that this server has not */
    { "suffix", FIELD_TEXT, AT(model), 0, -1 },
    { "frequency_penalty", FIELD_REAL, AT(none), 0, 0 },
    { "presence_penalty", FIELD_REAL, AT(none), 0, 0 },
    { "logit_bias", FIELD_RAW, AT(logit_bias), 0, 0 },
};
#undef AT
enum { FIELDS = sizeof fields / sizeof *fields };

static Status not_json(const Scan *s, const char *body)
{
    return FAIL(ERR_ARG, "the body is not JSON: byte %zu is wrong", (size_t)(s->at - body));
}

static bool fits_type(char first, FieldType type)
{
    switch (type) {
    case FIELD_TEXT: return first == '"';
    case FIELD_BOOL: return first == 't' || first == 'f';
    case FIELD_WHOLE:
    case FIELD_REAL: return first == '-' || (first >= '0' && first <= '9');
    case FIELD_RAW: return true;
    }
    return false;
}

/* Numbers within their limits; a limit of one value says so. */
static Status check_number(const Field *f, double v)
{
    if (f->type == FIELD_WHOLE && v != floor(v))
        return FAIL(ERR_ARG, "%s is %g: it must be a whole number", f->name, v);
    if (v >= f->min && v <= f->max) return OK;
    if (f->min == f->max)
        return FAIL(ERR_ARG, "%s is %g: this server does only %g, so leave it out", f->name, v,
                    f->min);
    return FAIL(ERR_ARG, "%s is %g: it must be between %g and %.16g", f->name, v, f->min, f->max);
}

/* Reads a value of the right type. A suffix has no right value, and a user's name changes nothing. */
static Status read_value(Scan *s, const Field *f, Fields *out)
{
    char *to = (char *)out + f->offset;
    switch (f->type) {
    case FIELD_TEXT: {
        const char *text = scan_string(s);
        if (f->max < f->min)
            return FAIL(ERR_ARG, "%s: this server cannot do that: leave it out", f->name);
        if (f->max == 0) *(const char **)(void *)to = text;
        return OK;
    }
    case FIELD_BOOL: *(bool *)(void *)to = *scan_skip(s) == 't'; return OK;
    case FIELD_WHOLE:
    case FIELD_REAL: {
        const double v = scan_number(s);
        *(double *)(void *)to = v;
        return s->bad ? OK : check_number(f, v);
    }
    case FIELD_RAW: *(char **)(void *)to = scan_skip(s); return OK;
    }
    return OK;
}

static Status read_member(Scan *s, const char *name, Fields *out)
{
    const char *known[FIELDS];
    char hint[TEXT_HINT_BYTES];
    int i = 0;
    for (int k = 0; k < FIELDS; k++) known[k] = fields[k].name;
    while (i < FIELDS && strcmp(known[i], name) != 0) i++;
    if (i == FIELDS)
        return FAIL(ERR_ARG, "there is no member %.*s of a request%s", NAME_SHOWN, name,
                    text_hint(hint, name, known, FIELDS, ""));
    const char first = scan_peek(s);
    if (first == 'n') { /* null: as if it were not there */
        (void)scan_skip(s);
        return OK;
    }
    if (!fits_type(first, fields[i].type))
        return FAIL(ERR_ARG, "%s must be %s", name, type_names[fields[i].type]);
    return read_value(s, &fields[i], out);
}

static Status read_fields(char *body, size_t bytes, Fields *out)
{
    Scan s = scan_begin(body);
    s.strict = true;
    if (strlen(body) != bytes) return FAIL(ERR_ARG, "the body is not JSON: it has a zero byte");
    if (scan_peek(&s) != '{') return FAIL(ERR_ARG, "the body must be a JSON object");
    scan_object(&s);
    for (char *key = scan_key(&s); key != NULL; key = scan_key(&s)) {
        TRY(read_member(&s, key, out));
        if (s.bad) break;
    }
    return scan_end(&s) ? OK : not_json(&s, body);
}

/* ---- stops ---- */

static Status add_stop(Scan *s, Manner *m)
{
    if (scan_peek(s) != '"') return FAIL(ERR_ARG, "stop must be a string or a list of strings");
    if (m->stops == STOPS_MAX)
        return FAIL(ERR_ARG, "stop has more than %d strings, the most that are taken", STOPS_MAX);
    const char *text = scan_string(s);
    if (*text == '\0') return FAIL(ERR_ARG, "stop %d is empty", m->stops);
    m->stop[m->stops++] = text;
    return OK;
}

static Status read_stops(char *value, Manner *m)
{
    if (value == NULL) return OK;
    Scan s = scan_begin(value);
    s.strict = true;
    if (*value != '[') return add_stop(&s, m);
    scan_array(&s);
    while (scan_item(&s)) TRY(add_stop(&s, m));
    return s.bad ? FAIL(ERR_ARG, "stop is not JSON") : OK;
}

/* ---- prompts ---- */

typedef struct PromptReader {
    const RequestLimits *limits;
    Arena *arena;
    Request *out;
    int64_t room; /* of out->sequence */
    int prompts;
} PromptReader;

/* The choices of a prompt. Each has ids of its own, to which it appends. */
static Status add_choices(PromptReader *p, const char *text, int32_t *ids, int64_t n)
{
    Request *r = p->out;
    if (r->n + r->each > SEQUENCES_MAX)
        return FAIL(
            ERR_ARG,
            "prompt %d: n is %d, and all prompts together have more than %d choices, the most "
            "at once: send fewer prompts",
            p->prompts, r->each, SEQUENCES_MAX);
    TRY(ARENA_GROW(p->arena, r->n + r->each, &p->room, &r->sequence));
    for (int k = 0; k < r->each; k++) {
        int32_t *own = ids;
        if (k > 0) TRY(ARENA_NEW(p->arena, p->limits->context + 1, &own));
        if (k > 0) memcpy(own, ids, (size_t)n * sizeof *own);
        TRY(sequence_make(&r->sequence[r->n], &r->manner[k], own, n, p->arena));
        r->sequence[r->n++].text = text;
    }
    p->prompts++;
    return OK;
}

/* The model runs over all tokens but the last new one. */
static Status add_prompt(PromptReader *p, const char *text, int32_t *ids, int64_t n)
{
    const int64_t context = p->limits->context, most = p->out->manner->draw.tokens;
    const int at = p->prompts;
    if (n == 0) return FAIL(ERR_ARG, "prompt %d is empty: it must have at least one token", at);
    if (n > context)
        return FAIL(ERR_ARG,
                    "prompt %d has more than %lld tokens, the context of this model: "
                    "shorten it",
                    at, (long long)context);
    if (n + most > context + 1)
        return FAIL(ERR_ARG,
                    "prompt %d has %lld tokens, and max_tokens is %lld: together at most %lld fit "
                    "the context of this model",
                    at, (long long)n, (long long)most, (long long)context + 1);
    return add_choices(p, text, ids, n);
}

static Status read_text(PromptReader *p, Scan *s)
{
    int32_t *ids = NULL, *found = NULL;
    int64_t n = 0;
    const int64_t context = p->limits->context;
    const char *text = scan_string(s);
    if (s->bad) return OK;
    TRY(tokenizer_encode(p->limits->tokenizer, text, strlen(text), p->arena, &found, &n));
    TRY(ARENA_NEW(p->arena, context + 1, &ids));
    memcpy(ids, found, (size_t)(n < context ? n : context) * sizeof *ids);
    return add_prompt(p, text, ids, n);
}

/* The scan stands behind the opening bracket. */
static Status read_ids(PromptReader *p, Scan *s)
{
    int32_t *ids = NULL;
    int64_t n = 0;
    TRY(ARENA_NEW(p->arena, p->limits->context + 1, &ids));
    while (scan_item(s)) {
        const char first = scan_peek(s);
        const double id = fits_type(first, FIELD_WHOLE) ? scan_number(s) : -1;
        if (s->bad) return OK;
        if (!(id >= 0 && id < (double)p->limits->vocab) || id != floor(id))
            return FAIL(ERR_ARG,
                        "prompt %d: token %lld is no id: ids are whole numbers from 0 to "
                        "%lld",
                        p->prompts, (long long)n, (long long)p->limits->vocab - 1);
        if (n <= p->limits->context) ids[n] = (int32_t)id;
        n++;
    }
    return s->bad ? OK : add_prompt(p, NULL, ids, n);
}

/* A text, or ids, or a list of one of them. */
static Status read_list(PromptReader *p, Scan *s)
{
    scan_array(s);
    const char first = scan_peek(s);
    if (first != '"' && first != '[') return read_ids(p, s);
    while (scan_item(s)) {
        if (scan_peek(s) != first)
            return FAIL(ERR_ARG, "prompt must be a string, a list of strings, a list of token ids, "
                                 "or a list of such lists");
        if (first == '[') scan_array(s);
        TRY(first == '[' ? read_ids(p, s) : read_text(p, s));
        if (s->bad) return OK;
    }
    return OK;
}

static Status read_prompts(char *value, PromptReader *p)
{
    if (value == NULL) return FAIL(ERR_ARG, "prompt is missing: give a string or token ids");
    Scan s = scan_begin(value);
    s.strict = true;
    if (*value != '"' && *value != '[') return FAIL(ERR_ARG, "prompt must be a string or a list");
    TRY(*value == '"' ? read_text(p, &s) : read_list(p, &s));
    return s.bad ? FAIL(ERR_ARG, "prompt is not JSON: it ends at byte %zu", (size_t)(s.at - value))
                 : OK;
}

/* ---- the whole ---- */

static Status check_bias(char *value)
{
    if (value == NULL) return OK;
    Scan s = scan_begin(value);
    scan_object(&s);
    if (!s.bad && scan_key(&s) == NULL && !s.bad) return OK;
    return FAIL(ERR_ARG, "logit_bias: this server cannot do that: leave it out");
}

/* Whether a last piece of a stream has the usage. */
static Status read_stream_options(const Fields *f, Request *out)
{
    if (f->stream_options == NULL) return OK;
    Scan s = scan_begin(f->stream_options);
    if (!f->stream)
        return FAIL(ERR_ARG, "stream_options is there, but stream is not true: leave it out");
    scan_object(&s);
    for (char *key = scan_key(&s); key != NULL; key = scan_key(&s)) {
        const char first = scan_peek(&s);
        if (strcmp(key, "include_usage") != 0 || !fits_type(first, FIELD_BOOL))
            return FAIL(ERR_ARG,
                        "stream_options has %.*s: it takes only include_usage, true or false",
                        NAME_SHOWN, key);
        out->stream_usage = *scan_skip(&s) == 't';
    }
    return s.bad ? FAIL(ERR_ARG, "stream_options must be a JSON object") : OK;
}

/* Choices differ by their seeds alone. */
static Status make_manners(const Fields *f, Arena *a, Request *out)
{
    Manner m = { .draw = { .tokens = (int64_t)f->max_tokens,
                           .temperature = f->temperature,
                           .top_k = (int64_t)f->top_k,
                           .top_p = f->top_p,
                           .seed = (uint64_t)f->seed },
                 .logprobs = (int64_t)f->logprobs,
                 .echo = f->echo };
    if (!isnan(f->best_of) && f->best_of != f->n)
        return FAIL(ERR_ARG,
                    "best_of is %g, and n is %g: this server answers all that it writes, so leave "
                    "best_of out",
                    f->best_of, f->n);
    if (isnan(f->seed)) m.draw.seed = (uint64_t)(clock_date_s() * 1e6); /* another one each time */
    TRY(read_stops(f->stop, &m));
    out->each = (int)f->n;
    TRY(ARENA_NEW(a, out->each, &out->manner));
    for (int k = 0; k < out->each; k++, m.draw.seed++) out->manner[k] = m;
    return OK;
}

Status request_read(char *body, size_t bytes, const RequestLimits *l, Arena *a, Request *out)
{
    Fields f = { .logprobs = -1, .max_tokens = 16, .temperature = 1, .top_p = 1, .n = 1 };
    f.seed = f.best_of = NAN;
    *out = (Request){ .created = (int64_t)clock_date_s() };
    TRY(read_fields(body, bytes, &f));
    TRY(check_bias(f.logit_bias));
    TRY(read_stream_options(&f, out));
    TRY(make_manners(&f, a, out));
    out->model = f.model;
    out->stream = f.stream;
    PromptReader p = { .limits = l, .arena = a, .out = out };
    return read_prompts(f.prompt, &p);
}
