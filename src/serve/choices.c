/* choices: see choices.h. */
#include "serve/choices.h"

#include "engine/base/file.h"
#include "engine/base/json.h"
#include "engine/train/train.h"
#include "serve/batch.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { PLACES = 16, CHOICES_MAX = 64, GROUP = 64 /* questions in memory at once */ };

typedef struct Question {
    int n, answer;
    struct Choice {
        Sequence sequence;
        int64_t first; /* the choice's first token */
        double characters, bytes;
    } * choice;
} Question;

typedef enum Measure { BY_SUM, BY_CHARACTER, BY_BYTE, MEASURES } Measure;

typedef struct Asker {
    const char *file;
    const Tokenizer *tokenizer;
    Batcher batcher;
    Arena *arena;
    Manner manner;
    int64_t line, questions, right[MEASURES];
    Question group[GROUP];
    int n;
} Asker;

/* ---- a question ---- */

static Status bad_line(const Asker *q, const char *why)
{
    return FAIL(ERR_FORMAT,
                "%s:%" PRId64 ": %s: a line is {\"prompt\": TEXT, \"choices\": [TEXT, ...], "
                "\"answer\": INDEX}",
                q->file, q->line, why);
}

static bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/* Tokens of the prompt without the blanks at its end; at least one, which is the end of a text if need be. */
static Status encode_choice(Asker *q, const char *prompt, const char *choice, struct Choice *out)
{
    const int64_t context = q->batcher.context;
    const int32_t end = tokenizer_end_of_text(q->tokenizer);
    int32_t *ids = NULL, *found = NULL;
    int64_t n = 0;
    Text whole;
    size_t bytes = strlen(prompt);
    while (bytes > 0 && is_blank(prompt[bytes - 1])) bytes--;
    TRY(tokenizer_encode(q->tokenizer, prompt, bytes, q->arena, &found, &out->first));
    const bool begins = out->first == 0;
    if (begins && end < 0)
        return bad_line(q, "the prompt is empty, and the tokenizer has no end of a text");
    TRY(text_init(&whole, q->arena));
    TRY(text_printf(&whole, "%s%s", prompt, choice));
    TRY(tokenizer_encode(q->tokenizer, whole.data, whole.used, q->arena, &found, &n));
    if (n + begins > context)
        return FAIL(ERR_FORMAT,
                    "%s:%" PRId64 ": prompt and choice have %" PRId64 " tokens, the model's "
                    "sequence has %" PRId64 ": shorten the prompt",
                    q->file, q->line, n + begins, context);
    TRY(ARENA_NEW(q->arena, context, &ids));
    ids[0] = end;
    memcpy(ids + begins, found, (size_t)n * sizeof *ids);
    out->first += begins;
    for (const char *c = choice; *c != '\0'; c++) {
        out->characters += ((unsigned char)*c & 0xC0) != 0x80;
        out->bytes++;
    }
    return sequence_make(&out->sequence, &q->manner, ids, n + begins, q->arena);
}

static Status read_question(Asker *q, const char *line, size_t n, Question *out)
{
    Json *v = NULL;
    size_t bad = 0;
    *out = (Question){ 0 };
    TRY(json_parse(line, n, q->arena, &v, &bad));
    const char *prompt = json_string(json_get(v, "prompt"));
    const Json *choices = json_get(v, "choices"), *answer = json_get(v, "answer");
    const int64_t count = json_count(choices);
    if (v == NULL) return bad_line(q, "this is not JSON");
    if (prompt == NULL) return bad_line(q, "prompt is no text");
    if (!json_is(choices, JSON_ARRAY) || count < 2 || count > CHOICES_MAX)
        return bad_line(q, "choices is no list of 2 to 64 texts");
    if (!json_is(answer, JSON_NUMBER) || answer->number != floor(answer->number) ||
        !(answer->number >= 0 && answer->number < (double)count))
        return bad_line(q, "answer is no index of a choice, which counts from 0");
    out->answer = (int)answer->number;
    TRY(ARENA_ZEROED(q->arena, count, &out->choice));
    for (const Json *c = json_first(choices); c != NULL; c = c->next) {
        const char *text = json_string(c);
        if (text == NULL || *text == '\0') return bad_line(q, "a choice is no text, or empty");
        TRY(encode_choice(q, prompt, text, &out->choice[out->n++]));
    }
    return OK;
}

/* ---- scores ---- */

static double score(const struct Choice *c, Measure by)
{
    const double length[] = { 1, c->characters, c->bytes };
    double sum = 0;
    for (int64_t i = c->first; i < c->sequence.n; i++) sum += (double)c->sequence.logprob[i];
    return sum / length[by];
}

static void count_right(Asker *q, const Question *x)
{
    for (Measure by = BY_SUM; by < MEASURES; by++) {
        int best = 0;
        for (int i = 1; i < x->n; i++) {
            if (score(&x->choice[i], by) > score(&x->choice[best], by)) best = i;
        }
        q->right[by] += best == x->answer;
    }
    q->questions++;
}

/* A sequence has its place until it is done, so a full batcher has a call to make. */
static Status ask_group(Asker *q)
{
    for (int i = 0; i < q->n; i++) {
        for (int k = 0; k < q->group[i].n; k++) {
            while (!batcher_add(&q->batcher, &q->group[i].choice[k].sequence))
                TRY(batcher_step(&q->batcher));
        }
    }
    while (batcher_busy(&q->batcher)) TRY(batcher_step(&q->batcher));
    for (int i = 0; i < q->n; i++) count_right(q, &q->group[i]);
    q->n = 0;
    return OK;
}

static Status ask_all(Asker *q, const char *text, size_t bytes)
{
    const ArenaMark mark = arena_mark(q->arena);
    for (const char *at = text, *end = text + bytes; at < end;) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        const size_t n = (size_t)((stop == NULL ? end : stop) - at);
        q->line++;
        if (n > 0) TRY(read_question(q, at, n, &q->group[q->n++]));
        at += n + 1;
        if (q->n < GROUP && at < end) continue;
        TRY(ask_group(q));
        arena_release(q->arena, mark);
    }
    if (q->questions > 0) return OK;
    return FAIL(ERR_FORMAT, "%s has no question", q->file);
}

/* The standard error of the mean of ones and zeros, with n - 1 as lm-evaluation-harness has it. */
static Status print_shares(const Asker *q, Text *out)
{
    static const char *const names[] = { "acc", "acc_norm", "acc_bytes" };
    const double n = (double)q->questions;
    TRY(text_printf(out, "%s: %" PRId64 " questions", q->file, q->questions));
    for (Measure by = BY_SUM; by < MEASURES; by++) {
        const double share = (double)q->right[by] / n;
        TRY(text_printf(out, "  %s %.4f", names[by], share));
        if (n > 1) TRY(text_printf(out, " +- %.4f", sqrt(share * (1 - share) / (n - 1))));
    }
    return text_append(out, "\n", 1);
}

static Status measure(Asker *q, Engine *e, const char *checkpoint, bool average, Tokenizer **t)
{
    char path[FILE_PATH_MAX], *text = NULL;
    size_t bytes = 0;
    Config *c = NULL;
    TRY(ARENA_NEW(q->arena, 1, &c));
    TRY(infer_config(checkpoint, q->arena, path, c));
    if (c->data_tokenizer[0] == '\0')
        return FAIL(ERR_ARG,
                    "%s: its configuration names no data.tokenizer, so text cannot be "
                    "turned into tokens",
                    path);
    TRY(file_read_input(q->file, q->arena, &text, &bytes));
    TRY(tokenizer_load(c->data_tokenizer, q->arena, t));
    q->tokenizer = *t;
    TRY(batcher_open(&q->batcher, e, c, path, &(BatcherShape){ c->data_sequence, PLACES, average },
                     q->arena));
    q->batcher.tokenizer = *t;
    return ask_all(q, text, bytes);
}

Status choices_measure(const char *checkpoint, const char *file, bool average, Text *out)
{
    Asker *q = NULL;
    Engine e = { 0 };
    Arena arena = { 0 };
    Tokenizer *t = NULL;
    Status s = arena_reserve(&arena, "choices", (size_t)16 << 30);
    if (s == OK) s = ARENA_ZEROED(&arena, 1, &q);
    if (s == OK) {
        q->file = file;
        q->arena = &arena;
        q->manner = (Manner){ .echo = true };
        s = measure(q, &e, checkpoint, average, &t);
    }
    if (s == OK) s = print_shares(q, out);
    engine_close(&e);
    tokenizer_free(t);
    arena_free(&arena);
    return s;
}
