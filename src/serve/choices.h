/*
 * choices: multiple choice by log-likelihood, as lm-evaluation-harness scores it.
 *
 * A line of the file is a question: {"prompt": TEXT, "choices": [TEXT, ...], "answer": INDEX}. The text of a choice
 * follows the prompt as it stands, with its blank before it. The model answers with the choice whose tokens have the
 * largest sum of logarithms of probabilities given the prompt. Blanks at the end of a prompt count as the choice's.
 *
 *   acc        by that sum
 *   acc_norm   by the sum over the choice's characters, which does not prefer short choices
 *   acc_bytes  by the sum over its bytes
 *
 * Of equal choices the first is taken. The standard error is that of a mean of independent questions.
 */
#ifndef SERVE_CHOICES_H
#define SERVE_CHOICES_H

#include "engine/base/text.h"

/* Asks the questions of `file` and appends a line with the three shares. ERR_FORMAT: a line is no question, or is
 * longer than the model's sequence; the sentence names the line. */
Status choices_measure(const char *checkpoint, const char *file, bool average, Text *out);

#endif
