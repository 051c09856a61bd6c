/* rule_verify: run.verify_every compares the checksums of a step that is computed twice (verify.h). */
#include "op/checksum.h"
#include "train/checks.h"
#include "train/shards.h"
#include "train/step_rule.h"

/* Adds the bits of all summed gradients, and of this rank's losses. Then it flags in the record if any
 * checksum is not the first run's. */
static Status compare(EngineParams *w, const StepTensors *io)
{
    const Record *r = &io->record;
    TRY(shards_check(w));
    TRY(checks_add(w, w->spec->n_layers, VERIFY_OWN, r->loss));
    TRY(checks_add(w, w->spec->n_layers, VERIFY_OWN, r->aux_loss));
    return checksum_compare(
        w->ex, (ChecksumCompare){ .a = r->checks,
                                  .b = io->expected,
                                  .on = io->checked,
                                  .differs = tensor_rows(&r->overflow, OVERFLOW_DIFFERS, 1) });
}

static Status inputs(Arena *a, const ModelSpec *s, StepTensors *io)
{
    TRY(tensor_new2(a, DTYPE_I32, s->n_layers + 1, VERIFY_POINTS, &io->expected));
    return tensor_new1(a, DTYPE_F32, 1, &io->checked);
}

/* The first of two runs has a limit that skips its update. */
const StepRule step_rule_verify = { .inputs = inputs,
                                    .run = { [RULE_BEFORE_SUMS] = compare },
                                    .limits = true };
