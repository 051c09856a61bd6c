/* run_layers: one rank's layers over one micro-batch, forward and backward, and the program. */
#ifndef TRAIN_RUN_LAYERS_H
#define TRAIN_RUN_LAYERS_H

#include "train/engine.h"

/* All actions of the step. */
Status run_program(Engine *e);

/* Forward without training over the first n sequences of the batch, losses into e->token_loss. */
Status run_losses(Engine *e, int64_t n);

/* Forward of n new tokens behind the cache, logits of the last into e->logits. */
Status run_next_logits(Engine *e, int64_t n);

#endif
