/*
 * action: a training step as data: one flat list of actions for each rank.
 *
 * The engine runs the list, a planner can price it, a test can prove things about it. peer is a
 * pipeline stage, slot the activation arena that a micro-batch uses on a chunk, wait and signal are
 * event numbers (-1: none), sms how many multiprocessors its kernels may take (0: all). phase -1:
 * all phases of the chunk's layers.
 */
#ifndef SCHEDULE_ACTION_H
#define SCHEDULE_ACTION_H

#include "base/arena.h"
#include "base/lane.h"

typedef enum ActionKind {
    ACTION_ZERO_GRADS,   /* gradients and the step's sums become zero */
    ACTION_FORWARD,      /* one micro-batch through one chunk, into its slot */
    ACTION_BACKWARD,     /* input and weight gradients of the same, out of its slot */
    ACTION_REDUCE_GRADS, /* over the ranks that share parameters; nothing to do on one */
    ACTION_UPDATE,       /* norm, clipping, optimizer, router bias */
    ACTION_KIND_COUNT
} ActionKind;

typedef struct Action {
    ActionKind kind;
    Lane lane;
    short chunk, phase, peer, slot, sms;
    int micro; /* -1: none */
    int wait[3], signal;
} Action;

typedef struct Program {
    Action *at; /* in the arena of the generator */
    int n, micros, chunks, slots;
} Program;

/* Gradient accumulation on one rank: each micro-batch forward, then backward, in one slot. */
Status schedule_accumulate(int micros, Arena *a, Program *out);

/* Every micro-batch goes forward, then backward, once a chunk; a slot is not rewritten before its
 * backward; gradients are zeroed before the first backward, reduced and applied after the last.
 * ERR_ARG names the action. */
Status schedule_check(const Program *p, Arena *scratch);

const char *action_name(ActionKind kind);

#endif
