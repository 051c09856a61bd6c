/* engine_program: places layers on chunks, and makes the programs of each execution mode with their
 * transfers. The programs of all ranks are made, because they are checked together; one is kept. */
#include "engine/step/engine_program.h"

#include "engine/config/ramp.h"
#include "engine/schedule/layout.h"
#include "engine/step/run_program.h"
#include "engine/step/shards.h"

#include <assert.h>
#include <string.h>

static const size_t SCRATCH_BYTES = (size_t)64 << 30; /* reserved; only what is written counts */
enum {
    CHECKED_PASSES = 1 << 12
}; /* a counting run does not check larger schedules: it takes long */

/* Without mesh.layout the layers are spread evenly. */
static Status make_layout(const Config *c, int stages, Arena *a, Layout *out)
{
    int blocks = (int)c->model_layers;
    if (c->mesh_layout[0] == '\0') return layout_even(stages, blocks, a, out);
    TRY(layout_parse(c->mesh_layout, stages, blocks, a, out));
    return layout_check_predictions(out, (int)c->mtp_layers);
}

/* Notes which layers each chunk of this rank has, and for all layers of the model which rank has them.
 * A chunk may be empty, but not all chunks of a rank: it would have no parameters. */
static Status place_layers(ModelSpec *s, const Layout *l, const Program *p, Arena *tables,
                           LayerRange **chunks)
{
    LayerRange *mine = NULL;
    TRY(ARENA_NEW(tables, p->chunks, &mine));
    int held = 0;
    for (int c = 0; c < p->chunks; c++) {
        mine[c] = chunk_layers(s, &l->stage[hop_of(p, c, c)]);
        held += mine[c].end - mine[c].first;
    }
    *chunks = mine;
    for (int stage = 0; stage < l->stages; stage++) {
        LayerRange range = chunk_layers(s, &l->stage[stage]);
        StageAt at = hop_stage(p, 0, stage);
        int replica_rank = p->placement == PLACE_BOTH ? hop_stage(p, 1, stage).rank : at.rank;
        for (int i = range.first; i < range.end; i++) {
            LayerSpec *layer = &s->layers[i];
            layer->rank = at.rank;
            layer->chunk = at.chunk;
            layer->replica_rank = replica_rank;
        }
    }
    if (held > 0) return OK;
    return FAIL(ERR_ARG, "mesh.layout leaves pipeline rank %d without a layer", p->rank);
}

/* How ranks share parameters, for the generator of programs. Gradients are summed at the end if replicas or
 * a second stage hold the same layers. */
static ScheduleShards shards_shape(const Config *c, const EngineShape *shape, bool two_stages)
{
    const Mesh *m = shape->mesh;
    ParamShards mine = { 0 };
    if (m != NULL) mine = shards_of(c, m);
    bool replicas = m != NULL && (m->shape.replicate > 1 || m->shape.keys > 1);
    return chunk_shards(shape->shards != NULL ? shape->shards : &mine, two_stages || replicas);
}

/* Checks the programs of all ranks together, then copies this rank's to tables, with the rows of its chunks. */
static Status keep_program(const EngineArenas *m, const EngineMode *w, const Pipeline *all,
                           Arena *scratch, Program *out)
{
    const Program *p = &all->rank[m->shape->pp_rank];
    Chunk *chunk = NULL;
    if (!m->counting || p->stages * p->chunks * p->micros <= CHECKED_PASSES) {
        TRY(schedule_check_all(all, scratch));
    }
    *out = *p;
    TRY(ARENA_NEW(m->tables, p->n, &out->at));
    memcpy(out->at, p->at, (size_t)p->n * sizeof(Action));
    TRY(ARENA_NEW(m->tables, p->chunks, &chunk));
    for (int c = 0; c < p->chunks; c++) {
        TRY(chunk_build(&w->spec, w->chunks[c], &p->shards, m->tables, &chunk[c]));
    }
    out->chunk = chunk;
    return OK;
}

/* The programs of a mode: of a step of each size and of an evaluation. */
static Status make_mode_programs(const EngineArenas *m, EngineMode *w, const ScheduleDesc *d,
                                 ScheduleShape s, const Layout *l, Arena *made, Arena *scratch)
{
    Pipeline step, evaluation;
    Chunk *chunk = NULL;
    TRY(ARENA_NEW(made, l->stages, &chunk));
    for (int i = 0; i < l->stages; i++) {
        TRY(chunk_build(&w->spec, chunk_layers(&w->spec, &l->stage[i]), &s.shards, made,
                        &chunk[i]));
        if (chunk[i].blocks > s.blocks) s.blocks = chunk[i].blocks;
    }
    s.chunk = chunk;
    for (int i = 0; i < w->n_steps; i++) {
        Program *mine = &w->step[i].program;
        s.micros = (int)(w->step[i].batch / m->shape->micro_batch);
        TRY(schedule_make(d, &s, made, scratch, &step));
        TRY(keep_program(m, w, &step, scratch, mine));
        if (mine->entries > w->n_entries) w->n_entries = mine->entries;
    }
    TRY(schedule_evaluation(d, &s, made, scratch, &evaluation));
    TRY(keep_program(m, w, &evaluation, scratch, &w->evaluation.program));
    assert(w->evaluation.program.entries <= w->n_entries);
    return OK;
}

/* A list for each number of sequences that a step can have (train.batch_ramp). The largest is first. */
static Status make_sizes(const Engine *e, Arena *tables, EngineMode *w)
{
    BatchRamp r = ramp_of(e->config);
    w->n_steps = e->use == ENGINE_TRAIN ? r.n : 1;
    TRY(ARENA_ZEROED(tables, w->n_steps, &w->step));
    w->step[0].batch = e->shape.batch;
    for (int i = 1; i < w->n_steps; i++)
        w->step[i].batch = e->shape.batch * r.at[i - 1].sequences / e->config->train_batch;
    return OK;
}

/* The second mode recomputes every layer and has no capacity of its own ({ 0 }): buffers then fit
 * the worst case. The first mode's layers stay as they are, so they are copied. */
Status engine_retry_spec(ModelSpec *s, Arena *a)
{
    LayerSpec *layers = NULL;
    TRY(ARENA_NEW(a, s->n_layers, &layers));
    memcpy(layers, s->layers, (size_t)s->n_layers * sizeof *layers);
    for (int i = 0; i < s->n_layers; i++) {
        layers[i].recompute = layer_recompute(&layers[i], RECOMPUTE_LAYER | RECOMPUTE_EXCHANGE);
    }
    s->layers = layers;
    s->capacity = (RowCapacity){ 0 };
    return OK;
}

/* The programs of all modes. Those of all ranks can be large: they lie in `made`, which the caller frees. */
static Status make_programs(Engine *e, Arena *made, Arena *scratch)
{
    const Config *c = e->config;
    const ScheduleDesc *d = NULL;
    Layout layout;
    ScheduleShape s = { .stages = (int)c->mesh_pp,
                        .chunks = (int)c->mesh_vpp,
                        .forward = 1,
                        .input = 1,
                        .weight = 1,
                        .blocks = 1 };
    TRY(schedule_find(e->use == ENGINE_INFER ? "1f1b" : c->mesh_schedule, &d));
    if (e->use == ENGINE_INFER) s.stages = s.chunks = 1;
    int stages = d->placement == PLACE_BOTH ? s.stages : s.stages * s.chunks;
    TRY(e->use == ENGINE_INFER ? layout_even(1, (int)e->spec.blocks, made, &layout)
                               : make_layout(c, stages, made, &layout));
    Program like = {
        .stages = s.stages, .chunks = s.chunks, .placement = d->placement, .rank = e->shape.pp_rank
    };
    LayerRange *chunks = NULL;
    TRY(place_layers(&e->spec, &layout, &like, &e->tables, &chunks));
    bool two_stages = d->placement == PLACE_BOTH || (spec_shares_table(&e->spec) && c->mesh_pp > 1);
    s.shards = shards_shape(c, &e->shape, two_stages);
    e->n_modes = e->shape.retry != NULL && !e->arenas.counting ? 2 : 1;
    for (int i = 0; i < e->n_modes; i++) {
        EngineMode *w = &e->modes[i];
        w->spec = e->spec;
        w->chunks = chunks;
        TRY(make_sizes(e, &e->tables, w));
        if (i == 1) TRY(engine_retry_spec(&w->spec, &e->tables));
        TRY(make_mode_programs(&e->arenas, w, d, s, &layout, made, scratch));
    }
    return OK;
}

/* Programs of all ranks are made in memory that is freed here. Only this rank's list stays, in Engine.tables. */
Status engine_make_program(Engine *e)
{
    const Config *c = e->config;
    const Mesh *mesh = e->shape.mesh;
    int rank = e->shape.pp_rank;
    if (e->use == ENGINE_INFER && mesh != NULL && mesh->ranks > 1) {
        return FAIL(ERR_UNSUPPORTED, "%d ranks, and generation runs on one: start one",
                    mesh->ranks);
    }
    if (e->use == ENGINE_TRAIN && (rank < 0 || rank >= c->mesh_pp)) {
        return FAIL(ERR_ARG, "engine: pipeline rank %d of mesh.pp %lld", rank,
                    (long long)c->mesh_pp);
    }
    Arena made = { 0 }, scratch = { 0 };
    Status s = arena_reserve(&made, "programs", SCRATCH_BYTES);
    if (s == OK) s = arena_reserve(&scratch, "schedule", SCRATCH_BYTES);
    if (s == OK) s = make_programs(e, &made, &scratch);
    arena_free(&made);
    arena_free(&scratch);
    return s;
}

/* The group of a rank and its replica stage: under DualPipe rank r and rank p-1-r, with a tied table the two
 * ends of the pipeline. Other ranks get none (color -1). */
static Status make_replica_group(const EngineMode *w, Comm *stages, Arena *tables, Comm **out)
{
    const ModelSpec *s = &w->spec;
    const Program *p = &w->step->program;
    int first = s->layers[0].rank, last = s->layers[s->n_layers - 1].rank, pair = -1;
    if (p->placement == PLACE_BOTH)
        pair = p->rank < p->stages - 1 - p->rank ? p->rank : p->stages - 1 - p->rank;
    else if (spec_shares_table(s) && first != last && (p->rank == first || p->rank == last))
        pair = 0;
    return comm_split(stages, pair, p->rank, "mirror", tables, out);
}

/* All lists use the links that the first one opened. */
static Status list_transfers(const EngineArenas *m, EngineList *l, const EngineList *first,
                             const Tensor *entries, Comm *stages)
{
    TRY(transfers_make(m->ex, &l->program, entries, stages, m->tables, &l->transfers));
    if (!m->ex->backend->async || m->counting) return OK;
    return transfers_open_gpu(&l->transfers, m->lanes, l == first ? NULL : &first->transfers,
                              m->tables);
}

/* From here on an error of a wait can name the action that runs (run_say_place). */
Status engine_make_transfers(Engine *e)
{
    Comm *stages = e->ex.mesh == NULL ? NULL : e->ex.mesh->group[GROUP_PP];
    const EngineList *first = e->modes[0].step;
    for (int i = 0; i < e->n_modes; i++) {
        EngineMode *w = &e->modes[i];
        for (int k = 0; k < w->n_steps; k++)
            TRY(list_transfers(&e->arenas, &w->step[k], first, w->entries, stages));
        TRY(list_transfers(&e->arenas, &w->evaluation, first, w->entries, stages));
    }
    e->list = e->mode->step;
    e->at = e->list->program.n;
    if (stages == NULL) return OK;
    comm_set_place(e->shape.mesh->group[GROUP_WORLD], (CommPlace){ run_say_place, e });
    return make_replica_group(&e->modes[0], stages, &e->tables,
                              &e->mesh.group[GROUP_REPLICA_STAGE]);
}

void engine_free_graphs(Engine *e)
{
    for (int i = 0; i < e->n_modes; i++) {
        if (e->modes[i].graph.exec != NULL) e->ex.backend->graphs->free(&e->modes[i].graph);
        e->modes[i].graph = (Graph){ 0 };
    }
}

Status engine_use_size(Engine *e, int64_t n)
{
    const EngineMode *w = &e->modes[0];
    int i = 0;
    while (i < w->n_steps && w->step[i].batch != n) i++;
    if (i == w->n_steps)
        return FAIL(ERR_ARG,
                    "engine: a step of %lld sequences on a rank, there are lists for %lld and the "
                    "sizes of train.batch_ramp",
                    (long long)n, (long long)w->step->batch);
    if (i == e->size) return OK;
    engine_free_graphs(e);
    e->size = i;
    for (int k = 0; k < e->n_modes; k++)
        spec_set_batch(&e->modes[k].spec, e->config, e->config->train_batch * n / e->shape.batch);
    return OK;
}

/* Other lists use the first one's links, so only these are freed. */
void engine_free_transfers(Engine *e)
{
    EngineList *first = e->modes[0].step;
    if (first == NULL) return;
    if (first->transfers.comm != NULL)
        comm_set_place(e->shape.mesh->group[GROUP_WORLD], (CommPlace){ 0 });
    comm_free(e->mesh.group[GROUP_REPLICA_STAGE]);
    e->mesh.group[GROUP_REPLICA_STAGE] = NULL;
    transfers_free(&first->transfers);
}
