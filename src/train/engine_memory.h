/*
 * engine_memory: allocates the engine's arenas, on the host or on a GPU, and copies between both. How
 * large they must be is engine.h's (engine_plan).
 *
 * On a GPU the host sees two things. A mirror of the step arena (batch, record, losses) lies in pinned
 * memory: one copy takes it to the GPU, one brings it back. A staging block passes parameters in pieces.
 * On the CPU there is neither: the functions below return the memory itself and copy nothing.
 */
#ifndef TRAIN_ENGINE_MEMORY_H
#define TRAIN_ENGINE_MEMORY_H

#include "train/engine_parts.h"

/* Pieces of more than this do not fit into the staging block. */
static const size_t ENGINE_STAGING_BYTES = (size_t)16 << 20;

/* Does this configuration run on a GPU? The setting auto asks whether one is there. */
bool engine_wants_gpu(const Config *c);

/* All arenas but tables, of the plan's sizes; NULL: arenas that count. */
Status engine_make_arenas(Engine *e, const EnginePlan *plan);
void engine_free_arenas(Engine *e);

/* Makes the slots, the ring and the entries of a mode in its arenas. */
Status engine_lay_out(Engine *e, EngineMode *w, const EnginePlan *plan);
/* Lays out both modes in a new block, and frees the old one. */
Status engine_remake_modes(Engine *e, const EnginePlan *plan);
/* What a plan's slots, ring and scratch take together. */
size_t engine_work_bytes(const EnginePlan *plan);
/* Bytes at the front of the block for the exchange's header. They count as scratch. */
size_t engine_header_bytes(const Engine *e);

/* What a slot takes of the tables. */
size_t engine_slot_tables(const Engine *e);

/* Bytes of the arena that holds the mirror and the staging block: after a counted step. */
size_t engine_pinned_bytes(const EngineArenas *m);

/* Where the host reads and writes a tensor of the step arena. */
void *engine_host(const EngineArenas *m, const Tensor *t);

/* The batch to the device; from the device: the record, the losses by token, or the logits. In
 * order with the ops; engine_wait before the host reads. */
Status engine_copy_in(EngineArenas *m);
Status engine_copy_out(EngineArenas *m, const Tensor *t);
Status engine_copy_record(EngineArenas *m);
Status engine_wait(EngineArenas *m);

/* Sets a tensor of the engine's memory to 0; nothing without data. */
Status engine_zero(EngineArenas *m, const Tensor *t);

/* Parameters and the host, piece by piece of at most engine_piece_bytes: engine_staging says where to
 * write what engine_put then brings to `at`; engine_get says where to read what is at `at`. On the
 * CPU both are `at` itself. Each waits for the copy. */
size_t engine_piece_bytes(const EngineArenas *m);
void *engine_staging(const EngineArenas *m, void *at);
Status engine_put(EngineArenas *m, void *at, size_t bytes);
Status engine_get(EngineArenas *m, const void *at, size_t bytes, const void **out);

/* Bytes that each arena really used at its peak, for the test planned = used. */
size_t engine_peak_bytes(const Engine *e, EngineArena which);

#endif
