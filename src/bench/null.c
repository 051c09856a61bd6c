/* null: the table of traffic that can be left out, and the groups that carry it. */
#include "bench/null.h"

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
 * the new one, for give_back. */
static Status take(const GroupSwap *g, Mesh *m, Arena *tables)
{
    const unsigned silent = ((const NullGroups *)g)->silent;
    for (int i = 0; i < NULL_TRAFFICS; i++) {
        const NullTraffic *t = &null_traffic[i];
        for (int k = 0; is_silent(silent, i) && k < NULL_GROUPS; k++) {
            Comm **group = &m->group[t->group[k]];
            if (t->group[k] == GROUP_WORLD || (*group)->size == 1) continue;
            TRY(null_comm(*group, tables, group));
        }
    }
    return OK;
}

static void give_back(Mesh *m)
{
    for (int g = 0; g < GROUP_MADE; g++) m->group[g] = null_real(m->group[g]);
}

NullGroups null_groups(unsigned silent)
{
    return (NullGroups){ .swap = { .take = take, .give_back = give_back }, .silent = silent };
}
