/*
 * questions: multiple choice by log-likelihood, as lm-evaluation-harness scores it.
 *
 * A line of the file is a question: {"prompt": TEXT, "choices": [TEXT, ...], "answer": INDEX}. The text of a choice
 * follows the prompt as it stands, with its blank before it. The model answers with the choice whose tokens have the
 * largest sum of logarithms of probabilities given the prompt. Blanks at the end of a prompt count as the choice's.
 *
 *   acc        by that sum
 *   acc_norm   by the sum over the choice's characters, which does not prefer short choices
 *   acc_bytes  by the sum over its bytes
 *
 * Of equal choices the first is taken. `eval --choices` asks with a key/value cache (serve/choices.h), a run's
 * evaluations with the engine that trains (eval_choices.h).
 */
#ifndef ENGINE_TRAIN_QUESTIONS_H
#define ENGINE_TRAIN_QUESTIONS_H

#include "corpus/tokenizer/tokenizer.h"

typedef struct Choice {
    int32_t *id;      /* prompt and choice */
    int64_t n, first; /* tokens; the choice's first one */
    double characters, bytes;
    double logprob; /* of the choice's tokens together, which whoever asks sets */
} Choice;

typedef struct Question {
    Choice *choice;
    int n, answer;
} Question;

typedef enum Measure { BY_SUM, BY_CHARACTER, BY_BYTE, MEASURES } Measure;

typedef struct Answers {
    int64_t questions, right[MEASURES];
} Answers;

extern const char *const measure_names[MEASURES];

typedef struct QuestionReader {
    const char *file; /* for errors */
    const Tokenizer *tokenizer;
    int64_t context, line; /* most tokens of prompt and choice; the line read last */
    Arena *arena, *kept;   /* of what is only used inside; of questions */
} QuestionReader;

/* Reads the next line, of `n` bytes; an empty one leaves out->n 0. ERR_FORMAT: it is no question, or too long; the
 * sentence names the line. */
Status question_read(QuestionReader *r, const char *line, size_t n, Question *out);

void question_count(const Question *q, Answers *to); /* choices have their logprob */
double answers_share(const Answers *a, Measure by);

#endif
