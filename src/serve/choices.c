/* choices: see choices.h. */
#include "serve/choices.h"

#include "engine/base/file.h"
#include "engine/train/questions.h"
#include "engine/train/train.h"
#include "serve/batch.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { PLACES = 16, GROUP = 64 /* questions in memory at once */ };

typedef struct Asker {
    QuestionReader reader;
    Batcher batcher;
    Manner manner;
    Answers answers;
    Question group[GROUP];
    Sequence *sequence[GROUP]; /* of each question's choices */
    int n;
} Asker;

static Status add_question(Asker *q, const char *line, size_t n)
{
    Question *x = &q->group[q->n];
    TRY(question_read(&q->reader, line, n, x));
    if (x->n == 0) return OK;
    TRY(ARENA_NEW(q->reader.arena, x->n, &q->sequence[q->n]));
    for (int k = 0; k < x->n; k++)
        TRY(sequence_make(&q->sequence[q->n][k], &q->manner, x->choice[k].id, x->choice[k].n,
                          q->reader.arena));
    q->n++;
    return OK;
}

static void take_answer(const Sequence *s, Question *x, Answers *to)
{
    for (int k = 0; k < x->n; k++)
        for (int64_t i = x->choice[k].first; i < s[k].n; i++)
            x->choice[k].logprob += (double)s[k].logprob[i];
    question_count(x, to);
}

/* A sequence has its place until it is done, so a full batcher has a call to make. */
static Status ask_group(Asker *q)
{
    for (int i = 0; i < q->n; i++) {
        for (int k = 0; k < q->group[i].n; k++) {
            while (!batcher_add(&q->batcher, &q->sequence[i][k])) TRY(batcher_step(&q->batcher));
        }
    }
    while (batcher_busy(&q->batcher)) TRY(batcher_step(&q->batcher));
    for (int i = 0; i < q->n; i++) take_answer(q->sequence[i], &q->group[i], &q->answers);
    q->n = 0;
    return OK;
}

static Status ask_all(Asker *q, const char *text, size_t bytes)
{
    const ArenaMark mark = arena_mark(q->reader.arena);
    for (const char *at = text, *end = text + bytes; at < end;) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        const size_t n = (size_t)((stop == NULL ? end : stop) - at);
        TRY(add_question(q, at, n));
        at += n + 1;
        if (q->n < GROUP && at < end) continue;
        TRY(ask_group(q));
        arena_release(q->reader.arena, mark);
    }
    if (q->answers.questions > 0) return OK;
    return FAIL(ERR_FORMAT, "%s has no question", q->reader.file);
}

/* The standard error of the mean of ones and zeros, with n - 1 as lm-evaluation-harness has it. */
static Status print_shares(const Asker *q, Text *out)
{
    const double n = (double)q->answers.questions;
    TRY(text_printf(out, "%s: %" PRId64 " questions", q->reader.file, q->answers.questions));
    for (Measure by = BY_SUM; by < MEASURES; by++) {
        const double share = answers_share(&q->answers, by);
        TRY(text_printf(out, "  %s %.4f", measure_names[by], share));
        if (n > 1) TRY(text_printf(out, " +- %.4f", sqrt(share * (1 - share) / (n - 1))));
    }
    return text_append(out, "\n", 1);
}

static Status measure(Asker *q, Engine *e, const char *checkpoint, bool average, Tokenizer **t)
{
    char path[FILE_PATH_MAX], *text = NULL;
    size_t bytes = 0;
    Config *c = NULL;
    Arena *a = q->reader.arena;
    TRY(ARENA_NEW(a, 1, &c));
    TRY(infer_config(checkpoint, a, path, c));
    if (c->data_tokenizer[0] == '\0')
        return FAIL(ERR_ARG,
                    "%s: its configuration names no data.tokenizer, so text cannot be "
                    "turned into tokens",
                    path);
    TRY(file_read_input(q->reader.file, a, &text, &bytes));
    TRY(tokenizer_load(c->data_tokenizer, a, t));
    q->reader.tokenizer = *t;
    q->reader.context = c->data_sequence;
    TRY(batcher_open(&q->batcher, e, c, path, &(BatcherShape){ c->data_sequence, PLACES, average },
                     a));
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
        q->reader = (QuestionReader){ .file = file, .arena = &arena, .kept = &arena };
        q->manner = (Manner){ .echo = true };
        s = measure(q, &e, checkpoint, average, &t);
    }
    if (s == OK) s = print_shares(q, out);
    engine_close(&e);
    tokenizer_free(t);
    arena_free(&arena);
    return s;
}
