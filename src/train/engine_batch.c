/* engine_batch: writes what a step reads into the host's view of the step arena: which tokens and rows of a
 * batch are this rank's, and the scales of the losses. */
#include "train/engine_batch.h"

#include "train/engine_memory.h"

#include <string.h>

void engine_write(const EngineArenas *m, const Tensor *t, const void *from)
{
    memcpy(engine_host(m, t), from, tensor_bytes(t));
}

/* Writes this rank's tokens of n sequences. With context parallelism a sequence has 2 cp equal pieces,
 * and rank c takes piece c from either end. So all ranks have equally many pairs of query and key under
 * a causal mask. */
static void write_own_tokens(const EngineArenas *m, const Tensor *t, const Tensor *from, int64_t n)
{
    const Mesh *mesh = m->shape->mesh;
    int64_t cp = mesh != NULL ? mesh->shape.cp : 1, c = mesh != NULL ? mesh->at.cp : 0;
    int64_t sequence = m->shape->sequence, piece = sequence / 2, rest = sequence - piece;
    int32_t *to = engine_host(m, t);
    const int32_t *at = from->data;
    for (int64_t i = 0; i < n; i++, to += sequence, at += cp * sequence) {
        memcpy(to, at + c * piece, (size_t)piece * sizeof *to);
        memcpy(to + piece, at + (cp > 1 ? (2 * cp - 1 - c) * piece : piece),
               (size_t)rest * sizeof *to);
    }
}

/* Of the tokens of n sequences those whose rows of the stream this rank holds: an equal run of each. */
static void write_own_rows(const EngineArenas *m, const Tensor *t, const Tensor *tokens, int64_t n)
{
    const Mesh *mesh = m->shape->mesh;
    if (mesh == NULL || mesh_tp(&mesh->shape) == 1) return; /* t is `tokens` */
    int64_t sequence = m->shape->sequence, run = sequence / mesh_tp(&mesh->shape);
    int32_t *to = engine_host(m, t);
    const int32_t *from = (const int32_t *)engine_host(m, tokens) + mesh->at.tp * run;
    for (int64_t i = 0; i < n; i++)
        memcpy(to + i * run, from + i * sequence, (size_t)run * sizeof *to);
}

/* A loss is a mean over the targets of the global batch. */
static float loss_scale_of(float weight, int64_t targets)
{
    return targets > 0 ? weight / (float)targets : 0;
}

/* The scales of the losses, times that of gradients: so it need not be applied anywhere but in the
 * gradients of the auxiliary losses, and read_record divides by it. */
static void write_scales(Engine *e, float scale[1 + CONFIG_DEPTHS_MAX])
{
    const float all = (float)e->params.kept.loss_scale.now;
    for (int i = 0; i <= CONFIG_DEPTHS_MAX; i++) scale[i] *= all;
    engine_write(&e->arenas, &e->io.loss_scale, scale);
    if (e->io.grad_scale.data != NULL) engine_write(&e->arenas, &e->io.grad_scale, &all);
}

/* Everything that changes from step to step goes through the mirror, so a captured graph reads new
 * values from the same addresses. */
void engine_write_batch(Engine *e, const Batch *b)
{
    int64_t n = b->domain.dim[0];
    Tensor domain = tensor_rows(&e->io.batch.domain, 0, n);
    write_own_tokens(&e->arenas, &e->io.batch.id, &b->id, n);
    write_own_tokens(&e->arenas, &e->io.batch.target, &b->target, n);
    write_own_tokens(&e->arenas, &e->io.batch.pos, &b->pos, n);
    write_own_tokens(&e->arenas, &e->io.batch.doc, &b->doc, n);
    engine_write(&e->arenas, &domain, b->domain.data);
    float scale[1 + CONFIG_DEPTHS_MAX] = { loss_scale_of(1, b->targets) };
    for (int i = 0; i < b->depths && i < e->spec.depths; i++) {
        write_own_tokens(&e->arenas, &e->io.batch.next[i].id, &b->next[i].id, n);
        write_own_tokens(&e->arenas, &e->io.batch.next[i].target, &b->next[i].target, n);
        scale[i + 1] = loss_scale_of(e->spec.loss.depth_weight, b->next[i].targets);
    }
    const MicroBatch *all = &e->io.batch;
    write_own_rows(&e->arenas, &all->row_pos, &all->pos, n);
    for (int i = 0; i <= all->depths; i++) {
        const Tensor target = batch_target(all, i);
        write_own_rows(&e->arenas, &all->row_target[i], &target, n);
    }
    write_scales(e, scale);
}
