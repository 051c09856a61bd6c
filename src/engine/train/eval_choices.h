/*
 * eval_choices: the questions of eval.choices, asked while a model trains.
 *
 * A choice lies in a sequence of the evaluation's batch behind its prompt, and its tokens are targets. So the engine
 * that trains asks, on any mesh, with the weights as they are. Where documents hide each other
 * (attention.document_mask) a sequence has as many choices as fit, else one.
 */
#ifndef ENGINE_TRAIN_EVAL_CHOICES_H
#define ENGINE_TRAIN_EVAL_CHOICES_H

#include "engine/train/eval.h"

/* Arrays lie in the arena of questions_load. */
typedef struct Questions {
    const char *file;
    char sum[FILE_SUM_BYTES]; /* of the file; all ranks must have the same */
    Question *question;       /* (n) */
    int64_t n, choices, rows; /* rows: sequences of the batch that all choices take */
    struct Asked {
        Choice *choice;
        int64_t row, at; /* its sequence, and its first token's place there */
    } * asked;           /* (choices), by row */
    float *logprob;      /* (choices) */
    int32_t *owner; /* (micro_batch x sequence): the choice that a target belongs to; -1: none */
} Questions;

/* Reads eval.choices with data.tokenizer; *out is NULL if it is not set. ERR_FORMAT: a line is no question, or longer
 * than data.sequence. */
Status questions_load(const Config *c, Arena *a, Questions **out);

/* Asks all questions. ERR_NUMERIC: a probability is no number. Collective. */
Status questions_ask(Evaluator *v, int64_t step, Answers *out);

#endif
