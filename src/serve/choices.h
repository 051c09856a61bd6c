/* choices: asks the questions of a file (engine/train/questions.h), many at once in a key/value cache. The standard error
 * is that of a mean of independent questions. */
#ifndef SERVE_CHOICES_H
#define SERVE_CHOICES_H

#include "engine/base/text.h"

/* Asks the questions of `file` and appends a line with the three shares. ERR_FORMAT: a line is no question, or is
 * longer than the model's sequence; the sentence names the line. */
Status choices_measure(const char *checkpoint, const char *file, bool average, Text *out);

#endif
