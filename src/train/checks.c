/* checks: see the header. */
#include "train/checks.h"

#include "op/checksum.h"

Tensor checks_word(const EngineParams *w, int layer, int column)
{
    const Tensor *all = &w->io->record.checks;
    return (Tensor){ tensor_at(all, layer * VERIFY_POINTS + column), DTYPE_I32, 1, { 1 } };
}

Status checks_add(EngineParams *w, int layer, VerifyPoint point, Tensor gradients)
{
    if (!w->spec->optimizer.verifies || tensor_elems(&gradients) == 0) return OK;
    return checksum(w->ex, (Checksum){ .x = gradients,
                                       .sum = checks_word(w, layer, (int)point),
                                       .on = w->io->checked });
}

Status checks_compare(EngineParams *w)
{
    const Record *r = &w->io->record;
    if (!w->spec->optimizer.verifies) return OK;
    TRY(checks_add(w, w->spec->n_layers, VERIFY_OWN, r->loss));
    TRY(checks_add(w, w->spec->n_layers, VERIFY_OWN, r->aux_loss));
    return checksum_compare(
        w->ex, (ChecksumCompare){ .a = r->checks,
                                  .b = w->io->expected,
                                  .on = w->io->checked,
                                  .differs = tensor_rows(&r->overflow, OVERFLOW_DIFFERS, 1) });
}
