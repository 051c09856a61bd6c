/* checks: see the header. */
#include "engine/step/checks.h"

#include "kernels/optimizer/checksum.h"

Tensor checks_word(const EngineParams *w, int layer, int column)
{
    const Tensor *all = &w->io->record.checks;
    return (Tensor){ tensor_at(all, layer * VERIFY_POINTS + column), DTYPE_I32, 1, { 1 } };
}

Status checks_add(EngineParams *w, int layer, VerifyPoint point, Tensor gradients)
{
    if (!optimizer_follows(&w->spec->optimizer, RULE_VERIFY) || tensor_elems(&gradients) == 0)
        return OK;
    return checksum(w->ex, (Checksum){ .x = gradients,
                                       .sum = checks_word(w, layer, (int)point),
                                       .on = w->io->checked });
}
