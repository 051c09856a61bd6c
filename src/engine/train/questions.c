/* questions: see questions.h. */
#include "engine/train/questions.h"

#include "engine/base/json.h"
#include "engine/base/text.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { CHOICES_MAX = 64 };

const char *const measure_names[MEASURES] = { "acc", "acc_norm", "acc_bytes" };

static Status bad_line(const QuestionReader *r, const char *why)
{
    return FAIL(ERR_FORMAT,
                "%s:%" PRId64 ": %s: a line is {\"prompt\": TEXT, \"choices\": [TEXT, ...], "
                "\"answer\": INDEX}",
                r->file, r->line, why);
}

static bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/* Tokens of the prompt without the blanks at its end; at least one, which is the end of a text if need be. */
static Status encode_choice(const QuestionReader *r, const char *prompt, const char *choice,
                            Choice *out)
{
    const int32_t end = tokenizer_end_of_text(r->tokenizer);
    int32_t *found = NULL;
    Text whole;
    size_t bytes = strlen(prompt);
    while (bytes > 0 && is_blank(prompt[bytes - 1])) bytes--;
    TRY(tokenizer_encode(r->tokenizer, prompt, bytes, r->arena, &found, &out->first));
    const bool begins = out->first == 0;
    if (begins && end < 0)
        return bad_line(r, "the prompt is empty, and the tokenizer has no end of a text");
    TRY(text_init(&whole, r->arena));
    TRY(text_printf(&whole, "%s%s", prompt, choice));
    TRY(tokenizer_encode(r->tokenizer, whole.data, whole.used, r->arena, &found, &out->n));
    if (out->n + begins > r->context)
        return FAIL(ERR_FORMAT,
                    "%s:%" PRId64 ": prompt and choice have %" PRId64 " tokens, the model's "
                    "sequence has %" PRId64 ": shorten the prompt",
                    r->file, r->line, out->n + begins, r->context);
    TRY(ARENA_NEW(r->kept, out->n + begins, &out->id));
    out->id[0] = end;
    memcpy(out->id + begins, found, (size_t)out->n * sizeof *found);
    out->first += begins;
    out->n += begins;
    for (const char *c = choice; *c != '\0'; c++) {
        out->characters += ((unsigned char)*c & 0xC0) != 0x80;
        out->bytes++;
    }
    return OK;
}

Status question_read(QuestionReader *r, const char *line, size_t n, Question *out)
{
    Json *v = NULL;
    size_t bad = 0;
    *out = (Question){ 0 };
    r->line++;
    if (n == 0) return OK;
    TRY(json_parse(line, n, r->arena, &v, &bad));
    const char *prompt = json_string(json_get(v, "prompt"));
    const Json *choices = json_get(v, "choices"), *answer = json_get(v, "answer");
    const int64_t count = json_count(choices);
    if (v == NULL) return bad_line(r, "this is not JSON");
    if (prompt == NULL) return bad_line(r, "prompt is no text");
    if (!json_is(choices, JSON_ARRAY) || count < 2 || count > CHOICES_MAX)
        return bad_line(r, "choices is no list of 2 to 64 texts");
    if (!json_is(answer, JSON_NUMBER) || answer->number != floor(answer->number) ||
        !(answer->number >= 0 && answer->number < (double)count))
        return bad_line(r, "answer is no index of a choice, which counts from 0");
    out->answer = (int)answer->number;
    TRY(ARENA_ZEROED(r->kept, count, &out->choice));
    for (const Json *c = json_first(choices); c != NULL; c = c->next) {
        const char *text = json_string(c);
        if (text == NULL || *text == '\0') return bad_line(r, "a choice is no text, or empty");
        TRY(encode_choice(r, prompt, text, &out->choice[out->n++]));
    }
    return OK;
}

static double score(const Choice *c, Measure by)
{
    const double length[] = { 1, c->characters, c->bytes };
    return c->logprob / length[by];
}

void question_count(const Question *q, Answers *to)
{
    for (Measure by = BY_SUM; by < MEASURES; by++) {
        int best = 0;
        for (int i = 1; i < q->n; i++) {
            if (score(&q->choice[i], by) > score(&q->choice[best], by)) best = i;
        }
        to->right[by] += best == q->answer;
    }
    to->questions++;
}

double answers_share(const Answers *a, Measure by)
{
    return (double)a->right[by] / (double)a->questions;
}
