#include "train/engine_program.h"

#include "schedule/layout.h"
#include "train/run_program.h"

#include <string.h>

static const size_t SCRATCH_BYTES = (size_t)64 << 30; /* reserved; only what is written counts */
enum { CHECKED_PASSES = 1 << 12 }; /* a plan of more takes its schedule for granted */

/* Blocks spread evenly; the first stages take the remainder. */
static Status even_layout(int stages, int blocks, Arena *a, Layout *out)
{
    if (blocks < stages) {
        return FAIL(ERR_ARG,
                    "mesh: %d stages (mesh.pp x mesh.vpp) and model.layers %d: a stage has at "
                    "least a layer, or name mesh.layout",
                    stages, blocks);
    }
    void *memory = NULL;
    TRY(arena_alloc_zero(a, (size_t)stages * sizeof(LayoutStage), &memory));
    LayoutStage *s = memory;
    for (int i = 0, first = 0; i < stages; first += s[i++].layers) {
        s[i].first = first;
        s[i].layers = blocks / stages + (i < blocks % stages);
    }
    s[0].embedding = s[stages - 1].loss = true;
    *out = (Layout){ .stage = s, .stages = stages, .layers = blocks };
    return OK;
}

static Status make_layout(const Config *c, int stages, Arena *a, Layout *out)
{
    int blocks = (int)c->model_layers;
    if (c->mesh_layout[0] == '\0') return even_layout(stages, blocks, a, out);
    TRY(layout_parse(c->mesh_layout, stages, blocks, a, out));
    if (out->predictions == 0) return OK;
    return FAIL(ERR_ARG,
                "mesh.layout has %d layers of multi-token prediction (m), the model has none",
                out->predictions);
}

/* The embedding, an attention and an MLP or MoE layer a block, the head. */
static LayerRange layers_of(const LayoutStage *s)
{
    return (LayerRange){ s->embedding ? 0 : 1 + 2 * s->first,
                         1 + 2 * (s->first + s->layers) + s->loss };
}

static Status place_layers(Engine *e, const Layout *l)
{
    Program *p = &e->program;
    void *memory = NULL;
    TRY(arena_alloc(&e->tables, (size_t)p->chunks * sizeof *e->chunks, &memory));
    e->chunks = memory;
    int held = 0;
    for (int c = 0; c < p->chunks; c++) {
        e->chunks[c] = layers_of(&l->stage[place_hop(p, c, c)]);
        held += e->chunks[c].end - e->chunks[c].first;
    }
    for (int stage = 0; stage < l->stages; stage++) {
        LayerRange range = layers_of(&l->stage[stage]);
        Place at = place_at(p, 0, stage);
        int twin = p->placement == PLACE_BOTH ? place_at(p, 1, stage).rank : at.rank;
        for (int i = range.first; i < range.end; i++) {
            LayerSpec *layer = &e->spec.layers[i];
            layer->rank = at.rank, layer->chunk = at.chunk, layer->twin = twin;
        }
    }
    if (held > 0) return OK;
    return FAIL(ERR_ARG, "mesh.layout leaves pipeline rank %d without a layer", p->rank);
}

static Status keep_program(Engine *e, const Program *p)
{
    void *memory = NULL;
    TRY(arena_alloc(&e->tables, (size_t)p->n * sizeof(Action), &memory));
    memcpy(memory, p->at, (size_t)p->n * sizeof(Action));
    e->program = *p;
    e->program.at = memory;
    return OK;
}

/* Programs of all ranks are as long as the step is: they live in `made` and are given back. */
static Status make_pipeline(Engine *e, int micros, Arena *made, Arena *scratch)
{
    const Config *c = e->config;
    const ScheduleDesc *d = NULL;
    Layout layout;
    Pipeline pipeline;
    ScheduleShape s = { (int)c->mesh_pp, (int)c->mesh_vpp, micros, 1, 1, 1, 0 };
    TRY(schedule_find(c->mesh_schedule, &d));
    int stages = d->placement == PLACE_BOTH ? s.stages : s.stages * s.chunks;
    TRY(make_layout(c, stages, made, &layout));
    for (int i = 0; i < layout.stages; i++) {
        if (layout.stage[i].layers > s.blocks) s.blocks = layout.stage[i].layers;
    }
    TRY(schedule_make(d, &s, made, scratch, &pipeline));
    if (!e->counting || s.stages * s.chunks * micros <= CHECKED_PASSES) {
        TRY(schedule_check_all(&pipeline, scratch));
    }
    TRY(keep_program(e, &pipeline.rank[e->shape.pp_rank]));
    return place_layers(e, &layout);
}

/* Everything on one rank, one micro-batch after the other. */
static Status accumulate(Engine *e, int micros)
{
    TRY(schedule_accumulate(micros, &e->tables, &e->program));
    TRY(schedule_check(&e->program, &e->tables));
    Layout layout;
    TRY(even_layout(1, (int)e->spec.blocks, &e->tables, &layout));
    return place_layers(e, &layout);
}

Status engine_make_program(Engine *e)
{
    const Config *c = e->config;
    int micros = (int)(e->shape.batch / e->shape.micro_batch), rank = e->shape.pp_rank;
    const Mesh *mesh = e->shape.mesh;
    if (e->use == ENGINE_INFER && mesh != NULL && mesh->ranks > 1) {
        return FAIL(ERR_UNSUPPORTED, "%d ranks, and generation runs on one: start one",
                    mesh->ranks);
    }
    bool one = c->mesh_pp == 1 && c->mesh_vpp == 1 && strcmp(c->mesh_schedule, "1f1b") == 0;
    if (e->use == ENGINE_INFER || one) return accumulate(e, micros);
    if (rank < 0 || rank >= c->mesh_pp) {
        return FAIL(ERR_ARG, "engine: pipeline rank %d of mesh.pp %lld", rank,
                    (long long)c->mesh_pp);
    }
    Arena made = { 0 }, scratch = { 0 };
    Status s = arena_init(&made, "programs", MEM_HOST, SCRATCH_BYTES);
    if (s == OK) s = arena_init(&scratch, "schedule", MEM_HOST, SCRATCH_BYTES);
    if (s == OK) s = make_pipeline(e, micros, &made, &scratch);
    arena_free(&made);
    arena_free(&scratch);
    if (s == OK) e->split = program_splits(&e->program);
    return s;
}

/* DualPipe's ranks hold the same stages in pairs; the ends of a pipeline one table. */
static Status make_mirror(Engine *e, Comm *stages)
{
    const ModelSpec *s = &e->spec;
    const Program *p = &e->program;
    int first = s->layers[0].rank, last = s->layers[s->n_layers - 1].rank, pair = -1;
    if (p->placement == PLACE_BOTH)
        pair = p->rank < p->stages - 1 - p->rank ? p->rank : p->stages - 1 - p->rank;
    else if (s->tied && first != last && (p->rank == first || p->rank == last))
        pair = 0;
    return comm_split(stages, pair, p->rank, "mirror", &e->tables, &e->mirror);
}

Status engine_make_transfers(Engine *e)
{
    Comm *stages = e->ex.mesh == NULL ? NULL : e->ex.mesh->group[GROUP_PP];
    TRY(transfers_make(&e->ex, &e->program, e->entries, stages, &e->tables, &e->transfers));
    e->at = e->program.n;
    if (stages == NULL) return OK;
    if (e->on_gpu && e->mesh.shape.pp > 1) TRY(transfers_open_gpu(&e->transfers, &e->tables));
    comm_set_place(e->shape.mesh->group[GROUP_WORLD], (CommPlace){ run_say_place, e });
    return make_mirror(e, stages);
}

void engine_free_transfers(Engine *e)
{
    if (e->transfers.comm != NULL)
        comm_set_place(e->shape.mesh->group[GROUP_WORLD], (CommPlace){ 0 });
    comm_free(e->mirror);
    transfers_free(&e->transfers);
}

bool program_splits(const Program *p)
{
    for (int i = 0; i < p->n; i++) {
        if (p->at[i].kind == ACTION_BACKWARD_WEIGHT && p->at[i].phase < 0) return true;
    }
    return false;
}

/* Memory of slots. */

Arena *pool_take(ArenaPool *p)
{
    int i = 0;
    while (p->taken[i]) i++;
    p->taken[i] = true;
    return &p->at[i];
}

void pool_give(ArenaPool *p, Arena *a)
{
    arena_release(a, (ArenaMark){ 0 });
    p->taken[a - p->at] = false;
}

static void grow(size_t *bytes, size_t need)
{
    if (need > *bytes) *bytes = need;
}

/* Follows the program as the engine will: every arena is as large as the largest that comes. */
Status slot_sizes(const Program *p, const EnginePlan *plan, Arena *a, SlotSizes *out)
{
    void *memory = NULL;
    size_t n = (size_t)p->slots;
    SlotSizes s = { .n = { p->slots, 0 } };
    ArenaPool pool = { 0 };
    for (int part = 0; part < SLOT_PARTS; part++) {
        TRY(arena_alloc_zero(a, n * sizeof(size_t), &memory));
        s.bytes[part] = memory;
    }
    TRY(arena_alloc_zero(a, n * sizeof(Arena), &memory));
    pool.at = memory;
    TRY(arena_alloc_zero(a, n * sizeof(bool), &memory));
    pool.taken = memory;
    TRY(arena_alloc(a, n * sizeof(Arena *), &memory));
    Arena **mine = memory;
    bool split = program_splits(p);
    s.bytes[SLOT_KEEP][0] = plan->eval_bytes;
    for (int i = 0; i < p->n; i++) {
        const Action *at = &p->at[i];
        if (at->slot < 0) continue;
        grow(&s.bytes[SLOT_KEEP][at->slot], plan->chunk_bytes[SLOT_KEEP][at->chunk]);
        if (split && at->kind == ACTION_BACKWARD_INPUT) {
            mine[at->slot] = pool_take(&pool);
            int taken = (int)(mine[at->slot] - pool.at);
            if (taken >= s.n[SLOT_GRADS]) s.n[SLOT_GRADS] = taken + 1;
            grow(&s.bytes[SLOT_GRADS][taken], plan->chunk_bytes[SLOT_GRADS][at->chunk]);
        }
        if (split && at->kind == ACTION_BACKWARD_WEIGHT) pool_give(&pool, mine[at->slot]);
    }
    *out = s;
    return OK;
}
