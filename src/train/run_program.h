/* run_program: the actions of a list, run or counted. */
#ifndef TRAIN_RUN_PROGRAM_H
#define TRAIN_RUN_PROGRAM_H

#include "train/engine_parts.h"

/* All actions of a list of the way in use. Counted: once each, without transfers. */
Status run_program(Engine *e, EngineList *l);

/* The same in a counting run: what the step costs and a micro-batch takes on each chunk, into `out`
 * (step, chunk_bytes). Takes as long for many micro-batches as for few. */
Status run_count(Engine *e, EnginePlan *out);

/* CommPlace.say of an Engine: where in the step it is. */
void run_say_place(void *engine, char *out, int out_bytes);

#endif
