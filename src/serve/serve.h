/* serve: the door of what asks a trained model: the command `generate`, and multiple choice for `eval`. The program
 * switchyard-serve (tools/serve) takes batch.h. */
#ifndef SERVE_SERVE_H
#define SERVE_SERVE_H

#include "serve/choices.h"

#endif
