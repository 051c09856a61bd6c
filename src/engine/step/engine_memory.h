/*
 * engine_memory: allocates the engine's arenas, on the host or on a GPU, and copies between both. How
 * large they must be is engine.h's (engine_plan).
 *
 * On a GPU the host sees two things. A mirror of the step arena (batch, record, losses) lies in pinned
 * memory: one copy takes it to the GPU, one brings it back. A staging block passes parameters in pieces.
 * On the CPU there is neither: the functions below return the memory itself and copy nothing.
 */
#ifndef ENGINE_STEP_ENGINE_MEMORY_H
#define ENGINE_STEP_ENGINE_MEMORY_H

#include "engine/step/engine_parts.h"

/* Pieces of more than this do not fit into the staging block. */
static const size_t ENGINE_STAGING_BYTES = (size_t)16 << 20;

/* Does this configuration run on a GPU? The setting auto asks whether one is there. */
bool engine_wants_gpu(const Config *c);

/* All arenas but tables, of the plan's sizes; NULL: arenas that count. `modes` has the first mode and, if the
 * shape has a plan for it, the second. */
Status engine_make_arenas(EngineArenas *m, EngineMode *modes, const EnginePlan *plan);
void engine_free_arenas(EngineArenas *m, EngineMode *modes);

/* Lays out both modes in a new block, and frees the old one. */
Status engine_remake_modes(EngineArenas *m, EngineMode *modes, const EnginePlan *plan);
/* Bytes of a plan's slots, ring and scratch together: what each mode has of its own. */
size_t engine_work_bytes(const EnginePlan *plan);
/* Opens the block to the ranks that exchange tokens, and on GPUs to those of tp. Collective. */
Status engine_open_peers(EngineArenas *m, const ModelSpec *s);

/* Bytes that one slot of a mode takes in EngineArenas.tables. */
size_t engine_slot_tables(const EngineMode *w);

/* Bytes of the arena that holds the mirror and the staging block; valid after a counted step. */
size_t engine_pinned_bytes(const EngineArenas *m);

/* The host's address of a tensor in the step arena: on a GPU in the mirror. */
void *engine_host(const EngineArenas *m, const Tensor *t);

/* Copies the batch to the device (in), or a tensor or the record from it (out). Copies run in order with
 * the ops. Call engine_wait before the host reads. */
Status engine_copy_in(EngineArenas *m);
Status engine_copy_out(EngineArenas *m, const Tensor *t);
Status engine_copy_record(EngineArenas *m);
Status engine_wait(EngineArenas *m);

/* Sets a tensor of the engine's memory to 0; nothing without data. */
Status engine_zero(EngineArenas *m, const Tensor *t);

/* Move parameters between host and device in pieces of at most engine_piece_bytes. To write: fill the memory that
 * engine_staging returns, then engine_put copies it to `at`. To read: engine_get copies from `at` and sets *out, which
 * is valid until the next call. On the CPU both return `at` itself and copy nothing. Each waits for its copy. */
size_t engine_piece_bytes(const EngineArenas *m);
void *engine_staging(const EngineArenas *m, void *at);
Status engine_put(EngineArenas *m, void *at, size_t bytes);
Status engine_get(EngineArenas *m, const void *at, size_t bytes, const void **out);
/* The host cannot read it: it is copied. */
bool engine_on_device(const EngineArenas *m, const void *at);
/* Copies any number of bytes of the engine's memory to the host, with this many threads; from a GPU through the staging
 * block. */
Status engine_read(EngineArenas *m, char *to, const char *from, size_t bytes, int threads);

/* Bytes that each arena really used at its peak, for the test planned = used. */
size_t engine_peak_bytes(const Engine *e, EngineArena which);

#endif
