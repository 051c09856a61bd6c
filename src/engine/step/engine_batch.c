/* engine_batch: writes what a step reads into the host's view of the step arena: which tokens and rows of a
 * batch are this rank's, and the scales of the losses. Reads what it wrote into its record. */
#include "engine/step/engine_batch.h"

#include "engine/step/engine_memory.h"

#include <math.h>
#include <string.h>

void engine_write(const EngineArenas *m, const Tensor *t, const void *from)
{
    memcpy(engine_host(m, t), from, tensor_bytes(t));
}

/* Writes this rank's tokens of n sequences. With context parallelism a sequence has 2 cp equal pieces, and rank c
 * takes piece c from either end. So all ranks have equally many pairs of query and key under a causal mask. */
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

/* Where StepResult has a figure; 0: it has not. */
static const size_t RESULT_AT[FIGURES] = {
#define HOST_FIGURE(...)
#define RECORD_FIGURE(...)
#define FIGURE(NAME, name, ...) [FIGURE_##NAME] = offsetof(StepResult, name),
#include "engine/model/figure.def"
};

/* Does StepResult have a pointer to a copy of it? */
static bool by_layer(Figure f) { return RESULT_AT[f] != 0 && figure_rows[f].each > EACH_GROUP; }

Status engine_host_figures(Arena *a, StepTensors *io)
{
    for (int f = 0; f < FIGURES; f++) {
        const Tensor t = record_figure(&io->record, (Figure)f);
        if (by_layer((Figure)f) && t.data != NULL)
            TRY(tensor_new(a, t.dtype, t.rank, t.dim, &io->host[f]));
    }
    return OK;
}

/* Of a step that changed weights: the heads that QK-clip scaled, and the largest logit. */
static void read_logits(const EngineArenas *m, const Record *r, StepResult *out)
{
    if (r->logits.data == NULL || !isfinite(*(const float *)engine_host(m, &r->clip))) return;
    const float *logit = engine_host(m, &r->logits);
    for (int64_t i = 0; i < tensor_elems(&r->logits); i++) {
        out->clipped += logit[i] > 0;
        out->logit = fmax(out->logit, (double)logit[i]);
    }
}

double step_figure(const StepResult *r, Figure f, int i)
{
    const void *at = (const char *)r + RESULT_AT[f];
    if (RESULT_AT[f] == 0) return (double)NAN;
    if (!by_layer(f)) return ((const double *)at)[i];
    const void *layers = *(const void *const *)at;
    if (layers == NULL) return (double)NAN;
    return figure_rows[f].record == RECORD_COUNT ? ((const int32_t *)layers)[i]
                                                 : (double)((const float *)layers)[i];
}

static double read_number(FigureRead how, float x, const ModelSpec *s, double loss_scale)
{
    if (how == READ_UNSCALED) return (double)x / loss_scale;
    if (how == READ_UNWEIGHTED) return (double)(x / s->loss.depth_weight) / loss_scale;
    return how == READ_ROOT ? sqrt((double)x) / loss_scale : (double)x;
}

/* Reads what the step that has ended wrote into its record. */
void engine_read_record(const EngineArenas *m, const ModelSpec *s, const StepTensors *io,
                        double loss_scale, StepResult *out)
{
    const Record *r = &io->record;
    for (int f = 0; f < FIGURES; f++) {
        const Tensor t = record_figure(r, (Figure)f), *copy = &io->host[f];
        void *to = (char *)out + RESULT_AT[f];
        if (RESULT_AT[f] == 0 || t.data == NULL) continue;
        const float *from = engine_host(m, &t);
        if (by_layer((Figure)f)) {
            memcpy(copy->data, from, tensor_bytes(copy));
            *(void **)to = copy->data;
            continue;
        }
        for (int64_t i = 0; i < t.dim[0]; i++)
            ((double *)to)[i] = read_number(figure_rows[f].read, from[i], s, loss_scale);
    }
    out->loss_scale = loss_scale;
    out->finite = isfinite(out->loss) && isfinite(out->grad_norm);
    if (optimizer_follows(&s->optimizer, RULE_VERIFY))
        out->differs = ((const float *)engine_host(m, &r->overflow))[OVERFLOW_DIFFERS] > 0;
    read_logits(m, r, out);
}
