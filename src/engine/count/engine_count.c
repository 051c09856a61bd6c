/* engine_count: sizes that follow from the spec, the shape and the mesh alone. */
#include "engine/count/engine_count.h"

#include "kernels/exchange/exchange.h"
#include "kernels/optimizer/optimizer.h"

/* Measured on two and four H200s and two H100s with NCCL 2.28: what the library takes with its first communicator, what
 * each takes for its rings, and for transfers with each of the other ranks (exchanges; engine/comm/nccl.c has the blocks, by
 * which both go). More of them than a host has are taken to need no more: between hosts there are fewer blocks. */
static const size_t NCCL_BYTES = (size_t)300 << 20;
static const size_t RING_BYTES = (size_t)588 << 20, PEER_BYTES = (size_t)420 << 20;
enum { PEERS_MAX = 7 };
static const size_t LINK_BYTES = (size_t)166 << 20; /* of transfers between stages, of one link */

/* Inputs come first, then the record, so that each travels in one copy (engine_copy_in and
 * engine_copy_record). */
Status engine_step_tensors(EngineArenas *m, const ModelSpec *spec, StepTensors *io)
{
    const EngineShape *s = m->shape;
    Arena *a = &m->at[ENGINE_STEP];
    TRY(batch_make(a, spec, s->batch, s->sequence, &io->batch));
    TRY(tensor_new1(a, DTYPE_F32, 1 + spec->depths, &io->loss_scale));
    TRY(tensor_new1(a, DTYPE_F32, UPDATE_SCALARS, &io->hyper));
    if (spec->act == DTYPE_F16) TRY(tensor_new1(a, DTYPE_F32, 1, &io->grad_scale));
    if (optimizer_follows(&spec->optimizer, RULE_VERIFY)) {
        TRY(tensor_new2(a, DTYPE_I32, spec->n_layers + 1, VERIFY_POINTS, &io->expected));
        TRY(tensor_new1(a, DTYPE_F32, 1, &io->checked));
    }
    m->inputs_end = arena_mark(a);
    TRY(record_make(a, spec, s->domains, &io->record));
    m->record_end = arena_mark(a);
    if (io->record.margins.data != NULL)
        m->record_end.used_bytes -= tensor_bytes(&io->record.margins);
    if (s->logit_rows > 0) TRY(tensor_new2(a, DTYPE_F32, s->logit_rows, spec->vocab, &io->logits));
    return tensor_new1(a, DTYPE_F32, s->micro_batch * s->sequence, &io->token_loss);
}

Status engine_step_bytes(const ModelSpec *s, const EngineShape *shape, size_t *out)
{
    EngineArenas m = { .shape = shape };
    TRY(arena_init(&m.at[ENGINE_STEP], "step", MEM_COUNT, (size_t)1 << 60));
    TRY(engine_step_tensors(&m, s, &(StepTensors){ 0 }));
    *out = m.at[ENGINE_STEP].used_bytes;
    return OK;
}

/* Only some kinds of exchange have a header in shared memory; a model without expert parallelism
 * has none. */
size_t engine_expert_header_bytes(const ModelSpec *s)
{
    return s->ranks.ep == 1 ? 0 : arena_rounded(exchange_kinds[s->ranks.exchange]->header_bytes);
}

/* Behind it lies that of ranks of tp (exchange_rows_map). */
size_t engine_header_bytes(const ModelSpec *s)
{
    size_t rows = arena_rounded(exchange_kinds[EXCHANGE_DIRECT]->header_bytes);
    return engine_expert_header_bytes(s) + (s->ranks.tp > 1 ? rows : 0);
}

size_t engine_comm_bytes(const MeshShape *s, bool stores, int queues)
{
    bool connected[GROUP_COUNT] = { false };
    if (mesh_ranks(s) == 1) return 0;
    size_t sum = NCCL_BYTES;
    for (MeshGroup g = GROUP_WORLD; g < GROUP_COUNT; g++) {
        const size_t others = (size_t)mesh_group_size(s, g) - 1;
        if (others == 0) continue;
        MeshGroup first = mesh_first(s, g);
        bool peers = mesh_exchanges(s, g, stores);
        if (first == g) sum += RING_BYTES;
        if (peers && !connected[first])
            sum += (others < PEERS_MAX ? others : PEERS_MAX) * PEER_BYTES;
        connected[first] |= peers;
    }
    int colors = 2 + s->pp % 2, links = s->pp > 1 ? 2 * queues * colors : 0;
    return sum + (size_t)links * LINK_BYTES;
}

/* The cost is linear in the number of elements, so a tensor of one element gives the bytes for one
 * parameter. */
double engine_update_bytes(const ModelSpec *s)
{
    const Tensor one = { .dtype = DTYPE_F32, .rank = 1, .dim = { 1 } };
    return optimizer_update_bytes(&s->optimizer, copies_type(&s->weights)) +
           op_desc(OP_SQUARE_SUM)->cost(&(SquareSum){ .x = one }).bytes +
           optimizer_follows(&s->optimizer, RULE_AVERAGE) *
               op_desc(OP_WEIGHT_AVERAGE)->cost(&(WeightAverage){ .e = one }).bytes;
}
