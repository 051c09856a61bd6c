/* null: the table of traffic that can be left out, and the values of entries that nothing fills. */
#include "engine/step/null.h"

#include "engine/base/dtype.h"
#include "engine/base/rng.h"
#include "engine/step/engine_memory.h"

/* By Traffic: the word of the command line, and the groups that carry it. Rows with fewer than
 * NULL_GROUPS groups end with GROUP_WORLD, which is 0. */
const NullTraffic null_traffic[NULL_TRAFFICS] = {
    [TRAFFIC_ZERO] = { "zero",
                       { GROUP_SHARD, GROUP_SPLIT_SHARD, GROUP_EXPERT_SHARD, GROUP_REPLICA,
                         GROUP_KEYS } },
    [TRAFFIC_EP] = { "ep", { GROUP_EP, GROUP_EP_INSIDE, GROUP_EP_ACROSS, GROUP_EXPERT_PARTS } },
    [TRAFFIC_CP] = { "cp", { GROUP_CP } },
    [TRAFFIC_TP] = { "tp", { GROUP_TP } },
    [TRAFFIC_PP] = { "pp", { GROUP_PP } },
};

bool null_moves(const NullTraffic *t, const MeshShape *s)
{
    bool moves = false;
    for (int i = 0; i < NULL_GROUPS && t->group[i] != GROUP_WORLD; i++)
        moves |= mesh_group_size(s, t->group[i]) > 1;
    return moves;
}

static bool is_silent(unsigned silent, int traffic) { return (silent >> traffic & 1) != 0; }

/* A group of one rank sends nothing anyway, so it stays. The comm that is replaced is kept inside
 * the new one, for null_undo. */
Status null_groups(unsigned silent, Mesh *m, Arena *tables)
{
    for (int i = 0; i < NULL_TRAFFICS; i++) {
        const NullTraffic *t = &null_traffic[i];
        for (int k = 0; is_silent(silent, i) && k < NULL_GROUPS; k++) {
            Comm **group = &m->group[t->group[k]];
            if (t->group[k] == GROUP_WORLD || (*group)->size == 1) continue;
            TRY(comm_null(*group, tables, group));
        }
    }
    return OK;
}

void null_undo(Mesh *m)
{
    for (int g = 0; g < GROUP_MADE; g++) m->group[g] = comm_real(m->group[g]);
}

/* Fills an entry with random rows about as large as a hidden state. Equal rows would all go to the same
 * experts. Past DRAWN elements the same rows repeat. */
static Status fill_entry(EngineArenas *m, const Tensor *t, uint64_t *at)
{
    enum { N = 1 << 12, DRAWN = 1 << 20 };
    float numbers[N];
    const int64_t all = tensor_elems(t), drawn = all < DRAWN ? all : DRAWN;
    for (int64_t first = 0; first < drawn; first += N, *at += N) {
        int64_t part = drawn - first < N ? drawn - first : N;
        void *to = tensor_at(t, first);
        rng_fill_normal(numbers, part, 1, rng_stream("transfers of nothing"), *at, 0.02);
        dtype_from_f32(engine_staging(m, to), t->dtype, numbers, part);
        TRY(engine_put(m, to, (size_t)part * dtype_bytes(t->dtype)));
    }
    for (int64_t first = drawn; first < all; first += drawn) {
        int64_t part = all - first < drawn ? all - first : drawn;
        TRY(m->ex->backend->copy(m->ex, tensor_at(t, first), t->data,
                                 (size_t)part * dtype_bytes(t->dtype)));
    }
    return OK;
}

/* `at` runs on from entry to entry, so no two of them have the same rows. */
Status null_entries(EngineArenas *m, const EngineMode *modes, int n)
{
    uint64_t at = 0;
    for (int i = 0; i < n; i++) {
        const EngineMode *w = &modes[i];
        for (int k = 0; k < w->n_entries; k++) TRY(fill_entry(m, &w->entries[k], &at));
    }
    return OK;
}

/* Only receives over the pipeline fill entries, so only silent pipeline traffic leaves them
 * empty. */
Status null_fill(EngineArenas *m, const EngineMode *modes, int n)
{
    bool sent = m->counting || !is_silent(m->shape->silent, TRAFFIC_PP);
    return sent ? OK : null_entries(m, modes, n);
}
