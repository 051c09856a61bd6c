/* rule_qk_clip: optimizer.qk_clip scales the weights of heads whose logits are large (kernels/optimizer/qk_clip.h). */
#include "engine/step/shards.h"
#include "engine/step/step_rule.h"

/* This rank's part of a matrix, by the largest logits over all ranks. */
static Status clip_matrix(EngineParams *w, const Matrix *m, const Record *r)
{
    const LayerSpec *l = &w->spec->layers[m->layer];
    const LayerDesc *desc = layer_desc(l->kind);
    QkClip a = { .clip = r->clip, .above = w->spec->optimizer.qk_clip };
    if (desc->clips == NULL) return OK;
    a.rows = desc->clips(l, m->role);
    a.rows.all_heads = a.rows.heads * w->spec->ranks.tp;
    a.rows.key_parts = w->spec->ranks.key_parts;
    a.rows.first_head = a.rows.heads * w->spec->ranks.tp_rank;
    a.cols = m->dim[0] == 1 ? 1 : m->dim[1]; /* biases are one row */
    if (a.rows.queries + a.rows.keys == 0 || !shards_updated(w, m, &a.w, &a.low, &a.first))
        return OK;
    a.max = tensor_rows(&r->logits, l->block, 1);
    w->ex->layer = l->block;
    return qk_clip(w->ex, a);
}

static Status clip_matrices(EngineParams *w, const StepTensors *io)
{
    for (int i = 0; i < w->table.n_matrices; i++)
        TRY(clip_matrix(w, &w->table.matrix[i], &io->record));
    return OK;
}

const StepRule step_rule_qk_clip = { .run = { [RULE_AFTER_UPDATE] = clip_matrices } };
