/* run_program: runs or counts the actions of a list. Lists are made in engine_program.h. */
#ifndef ENGINE_STEP_RUN_PROGRAM_H
#define ENGINE_STEP_RUN_PROGRAM_H

#include "engine/step/engine_parts.h"

/* Runs all actions of a list of the mode in use. A counting run counts each once, without transfers. */
Status run_program(Engine *e, EngineList *l);

/* Counts the step: its cost, and the bytes of a micro-batch on each chunk, into out->step, chunk_bytes and
 * pool_of_chunk. The time does not grow with the number of micro-batches. */
Status run_count(Engine *e, EnginePlan *out);

/* CommPlace.say of an Engine: writes at which action of which step it is, for errors of collectives. */
void run_say_place(void *engine, char *out, int out_bytes);

#endif
