/*
 * tuner: times the variants of a product on a GPU, and keeps which one a shape runs (kernels/core/choices.h).
 * A vendor's library of products has a Tuner and gives it to all others (OpLibrary.tuner).
 *
 * While tuning is on, a product without a choice runs with every variant, on the operands of the
 * call, and waits for the GPU. A product that adds to its result then adds more than once. So tune
 * only in a step whose results are not needed, outside of a capture.
 */
#ifndef KERNELS_CORE_TUNER_H
#define KERNELS_CORE_TUNER_H

#include "engine/gpu/gpu.h"
#include "kernels/core/choices.h"

struct Exec;

enum {
    TUNER_VARIANTS = 16,
    TUNER_ROUNDS = 5,
    TUNER_EVENTS = TUNER_VARIANTS * TUNER_ROUNDS + 1,
    TUNER_WARM_UP = 2 /* launches of a variant before it is timed: the first one loads the kernel */
};

typedef struct Tuner {
    Choices *choices;
    bool on;
    GpuEvent event[TUNER_EVENTS]; /* made while tuning is on */
} Tuner;

#ifdef __cplusplus
extern "C" {
#endif

/* Switching on twice makes the events anew. After a failure tuning is off; the next call frees the
 * events made so far. Switching off reports no failure. */
Status tuner_switch(Tuner *t, bool on);

/* Launches a variant once. */
typedef Status TunerRun(void *self, int variant);

/* Times n <= TUNER_VARIANTS variants in rounds, each variant once a round, and takes medians. So a
 * GPU clock that falls meanwhile slows all variants equally. Tuning must be on. */
Status tuner_time(const Tuner *t, GpuStream stream, int n, TunerRun *run, void *self, float *ms);

/* Index of the first variant that is about as fast as the fastest one: an earlier one was the
 * library's better guess. */
int tuner_fastest(const float *ms, int n);

/* Launches a grouped product with the recorded one of its n tile shapes (choices.h), or else with
 * the first. While tuning, a product without a record is timed with all shapes. */
typedef Status GroupedLaunch(struct Exec *ex, const char *op, const void *product);
Status tuner_run_grouped(struct Exec *ex, const char *op, const ChoiceKey *key, const int *shape,
                         GroupedLaunch *const *launch, int n, const void *product);

#ifdef __cplusplus
}
#endif

#endif
