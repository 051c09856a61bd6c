/*
 * engine_memory: the engine's arenas, on the host or on a GPU, and the ways in and out of them.
 *
 * On a GPU the host sees two things: a mirror of the step arena (batch, record, losses) in pinned
 * memory, which one copy brings over and one brings back, and a staging block through which
 * parameters pass in pieces. On the CPU there is neither: the functions below hand out the memory
 * itself and copy nothing.
 */
#ifndef TRAIN_ENGINE_MEMORY_H
#define TRAIN_ENGINE_MEMORY_H

#include "train/engine.h"

/* Pieces of more than this do not fit into the staging block. */
static const size_t ENGINE_STAGING_BYTES = (size_t)16 << 20;

/* Does this configuration run on a GPU? The setting auto asks whether one is there. */
bool engine_wants_gpu(const Config *c);

/* All arenas but tables, of the plan's sizes; NULL: arenas that count. */
Status engine_make_arenas(Engine *e, const EnginePlan *plan);
void engine_free_arenas(Engine *e);

/* Slots, ring and entries of a way, in the arenas that hold them. */
Status engine_lay_out(Engine *e, EngineMode *w, const EnginePlan *plan);
/* Both ways over a new block; the one before is given back. */
Status engine_remake_modes(Engine *e, const EnginePlan *plan);
/* e->block, of so many bytes. */
Status engine_make_block(Engine *e, size_t bytes);
/* What the exchange has of it, at its front; counted as scratch. */
size_t engine_header_bytes(const Engine *e);

/* What a slot takes of the tables. */
size_t engine_slot_tables(const Engine *e);

/* Bytes of the arena that holds the mirror and the staging block: after a counted step. */
size_t engine_pinned_bytes(const Engine *e);

/* Main weights that are good enough for a rehearsal, everything else zero. GPU only. */
Status engine_random_weights(Engine *e);

/* Where the host reads and writes a tensor of the step arena. */
void *engine_host(const Engine *e, const Tensor *t);

/* The batch to the device; from the device: the record, the losses by token, or the logits. In
 * order with the ops; engine_wait before the host reads. */
Status engine_copy_in(Engine *e);
Status engine_copy_out(Engine *e, const Tensor *t);
Status engine_copy_record(Engine *e);
Status engine_wait(Engine *e);

#endif
