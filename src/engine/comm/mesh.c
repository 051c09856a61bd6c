/* mesh: checks a shape, computes a rank's coordinates and groups, and makes the groups. It knows
 * nothing of what is sent over them. */
#include "engine/comm/mesh.h"

#include <stdio.h>

const char *const mesh_group_names[GROUP_COUNT] = {
    [GROUP_WORLD] = "world",
    [GROUP_STAGE] = "stage",
    [GROUP_SHARD] = "shard",
    [GROUP_SPLIT_SHARD] = "shard of a part",
    [GROUP_EXPERT_SHARD] = "expert shard",
    [GROUP_REPLICA] = "replica",
    [GROUP_EP] = "ep",
    [GROUP_EXPERT_PARTS] = "expert parts",
    [GROUP_CP] = "cp",
    [GROUP_TP] = "tp",
    [GROUP_SEQUENCE] = "sequence",
    [GROUP_KEYS] = "same keys",
    [GROUP_PP] = "pp",
    [GROUP_REPLICA_STAGE] = "mirror",
    [GROUP_EP_INSIDE] = "ep inside hosts",
    [GROUP_EP_ACROSS] = "ep across hosts",
};

enum { DIVISORS_BYTES = 128, RANKS_SHOWN = 16 };

/* The divisors of n as text: "1, 2 and 4 do". */
static const char *divisors_text(char out[DIVISORS_BYTES], int n)
{
    int used = 0, last = 0;
    for (int d = 1; d < n && used < DIVISORS_BYTES - 32; d++) {
        if (n % d != 0) continue;
        used += snprintf(out + used, 16, last == 0 ? "%d" : ", %d", d);
        last = d;
    }
    (void)snprintf(out + used, 32, last == 0 ? "%d does" : " and %d do", n);
    return out;
}

static Status check_size(const char *name, int size, int least)
{
    if (size >= least) return OK;
    return FAIL(ERR_ARG, "mesh.%s is %d, the least is %d", name, size, least);
}

/* The error names the nearest numbers of ranks that would fit, one below and one above. */
static Status check_ranks(int ranks, int pp, int cp, int tp)
{
    int64_t each = (int64_t)pp * cp * tp, below = ranks / each * each;
    char axes[96] = "", or_below[32] = "";
    if (below == ranks) return OK;
    (void)snprintf(axes, sizeof axes,
                   tp > 1 ? "mesh.pp %d x mesh.cp %d x mesh.tp %d" : "mesh.pp %d x mesh.cp %d", pp,
                   cp, tp);
    if (below == 0) below = each;
    const int64_t above = below + each;
    if (below < ranks) (void)snprintf(or_below, sizeof or_below, " or %lld", (long long)above);
    return FAIL(ERR_ARG, "%d ranks do not fit %s: %lld%s ranks would", ranks, axes,
                (long long)below, or_below);
}

/* Sizes are checked before they divide anything. ep must divide the sharding ranks of a stage,
 * because it is folded over them. */
Status mesh_shape(int ranks, int pp, int ep, int cp, int tp, int shard, MeshShape *out)
{
    char which[DIVISORS_BYTES];
    TRY(check_size("pp", pp, 1));
    TRY(check_size("ep", ep, 1));
    TRY(check_size("cp", cp, 1));
    TRY(check_size("tp", tp, 1));
    TRY(check_size("shard", shard, 0));
    TRY(check_ranks(ranks, pp, cp, tp));
    int dp = ranks / pp / cp / tp;
    if (shard == 0) shard = dp;
    if (dp % shard != 0) {
        return FAIL(ERR_ARG, "mesh.shard %d does not divide the %d data-parallel ranks; %s", shard,
                    dp, divisors_text(which, dp));
    }
    int inner = shard * cp * tp;
    if (inner % ep != 0) {
        return FAIL(ERR_ARG,
                    "mesh.ep x mesh.etp %d does not divide the %d ranks of a stage that share out "
                    "(mesh.shard x mesh.cp%s); %s",
                    ep, inner, tp > 1 ? " x mesh.tp" : "", divisors_text(which, inner));
    }
    *out = (MeshShape){
        .pp = pp, .replicate = dp / shard, .shard = shard, .ep = ep, .cp = cp, .tp = tp
    };
    return OK;
}

/* Hosts must be the same for all groups, so one of the two numbers divides the other. */
Status mesh_inside(int ep, int per_host, int *out)
{
    char which[DIVISORS_BYTES];
    if (per_host == 0) per_host = ep;
    if (ep % per_host != 0 && per_host % ep != 0) {
        return FAIL(ERR_ARG,
                    "%d ranks on each host do not divide the %d ranks of mesh.ep, nor are they a "
                    "multiple of them: %s, in mesh.ranks_per_host",
                    per_host, ep, divisors_text(which, ep));
    }
    *out = per_host < ep ? per_host : ep;
    return OK;
}

/* tp varies fastest, then cp, shard, replica, stage: the formula of mesh.h read backwards. */
MeshPlace mesh_place(const MeshShape *s, int rank)
{
    int sequence = mesh_sequence_ranks(s), all = s->shard * sequence;
    int inner = rank % all, outer = rank / all;
    return (MeshPlace){ .stage = outer / s->replicate,
                        .replica = outer % s->replicate,
                        .shard = inner / sequence,
                        .cp = inner % sequence / mesh_tp(s),
                        .tp = inner % mesh_tp(s),
                        .inner = inner,
                        .ep = inner % s->ep,
                        .expert_shard = inner / s->ep };
}

static int parts_of(const MeshShape *s) { return s->parts > 1 ? s->parts : 1; }

/* Two ranks are in the same group of a kind if all coordinates that the group does not vary are equal;
 * the color numbers those coordinates. */
void mesh_color(const MeshShape *s, MeshGroup g, int rank, int *color, int *key)
{
    const MeshPlace p = mesh_place(s, rank);
    int tp = mesh_tp(s), sequence = mesh_sequence_ranks(s), keys = s->keys > 1 ? s->keys : 1;
    int inner = s->shard * sequence, outer = rank / inner, stage_ranks = s->replicate * inner;
    int experts = outer * (inner / s->ep) + p.expert_shard; /* the EP group's number */
    int inside = s->inside > 0 ? s->inside : s->ep, parts = parts_of(s);
    const int of[GROUP_COUNT][2] = {
        [GROUP_WORLD] = { 0, rank },
        [GROUP_STAGE] = { p.stage, rank % stage_ranks },
        [GROUP_SHARD] = { outer, p.inner },
        [GROUP_SPLIT_SHARD] = { outer * tp + p.tp, p.inner / tp },
        [GROUP_EXPERT_SHARD] = { outer * s->ep + p.ep, p.expert_shard },
        [GROUP_REPLICA] = { p.stage * inner + p.inner, p.replica },
        [GROUP_EP] = { experts, p.ep },
        [GROUP_EP_INSIDE] = { experts * (s->ep / inside) + p.ep / inside, p.ep % inside },
        [GROUP_EP_ACROSS] = { experts * inside + p.ep % inside, p.ep / inside },
        [GROUP_EXPERT_PARTS] = { experts * (s->ep / parts) + p.ep / parts, p.ep % parts },
        [GROUP_CP] = { rank / sequence * tp + p.tp, p.cp },
        [GROUP_TP] = { rank / tp, p.tp },
        [GROUP_SEQUENCE] = { rank / sequence, rank % sequence },
        [GROUP_KEYS] = { rank / keys, rank % keys },
        [GROUP_PP] = { rank % stage_ranks, p.stage },
    };
    *color = of[g][0];
    *key = of[g][1];
}

Mesh mesh_alone(const MeshShape *s, int rank)
{
    return (Mesh){ .shape = *s, .at = mesh_place(s, rank), .rank = rank, .ranks = mesh_ranks(s) };
}

/* The ranks of rank 0's group, which are 0, stride, 2 stride and so on: a mesh looks the same from every rank. */
typedef struct GroupSpans {
    struct GroupSpan {
        int size, stride;
    } of[GROUP_COUNT];
} GroupSpans;

static GroupSpans spans_of(const MeshShape *s)
{
    int tp = mesh_tp(s), sequence = mesh_sequence_ranks(s);
    int inner = s->shard * sequence, stage = s->replicate * inner;
    int inside = s->inside > 0 ? s->inside : s->ep;
    return (GroupSpans){ {
        [GROUP_WORLD] = { mesh_ranks(s), 1 },
        [GROUP_STAGE] = { stage, 1 },
        [GROUP_SHARD] = { inner, 1 },
        [GROUP_SPLIT_SHARD] = { inner / tp, tp },
        [GROUP_EXPERT_SHARD] = { inner / s->ep, s->ep },
        [GROUP_REPLICA] = { s->replicate, inner },
        [GROUP_EP] = { s->ep, 1 },
        [GROUP_EP_INSIDE] = { inside, 1 },
        [GROUP_EP_ACROSS] = { s->ep / inside, inside },
        [GROUP_EXPERT_PARTS] = { parts_of(s), 1 },
        [GROUP_CP] = { s->cp, tp },
        [GROUP_TP] = { tp, 1 },
        [GROUP_SEQUENCE] = { sequence, 1 },
        [GROUP_KEYS] = { s->keys > 1 ? s->keys : 1, 1 },
        [GROUP_PP] = { s->pp, stage },
        [GROUP_REPLICA_STAGE] = { mesh_ranks(s), 1 },
    } };
}

int mesh_group_size(const MeshShape *s, MeshGroup g) { return spans_of(s).of[g].size; }

/* With the hierarchical exchange, tokens use the groups inside and across hosts instead of the whole EP
 * group. */
bool mesh_exchanges(const MeshShape *s, MeshGroup g, bool stores)
{
    bool hierarchical = s->inside > 0;
    if (g == GROUP_EP) return !hierarchical && !stores;
    return g == GROUP_CP || g == GROUP_PP || (g == GROUP_EXPERT_PARTS && s->parts > 1) ||
           (g == GROUP_TP && s->matrices) ||
           (hierarchical && (g == GROUP_EP_INSIDE || g == GROUP_EP_ACROSS));
}

/* A group of one rank has any stride. */
MeshGroup mesh_first(const MeshShape *s, MeshGroup g)
{
    const GroupSpans all = spans_of(s);
    const struct GroupSpan *of = all.of;
    for (MeshGroup f = GROUP_WORLD; f < g; f++)
        if (of[f].size == of[g].size && (of[g].size == 1 || of[f].stride == of[g].stride)) return f;
    return g;
}

/* Groups are made in one order on all ranks, because comm_split is collective. */
Status mesh_make(Comm *world, const MeshShape *s, bool few, Arena *a, Mesh *out)
{
    if (mesh_ranks(s) != world->size) {
        return FAIL(ERR_ARG, "a mesh of %d ranks over a world of %d", mesh_ranks(s), world->size);
    }
    *out = mesh_alone(s, world->rank);
    out->group[GROUP_WORLD] = world;
    for (MeshGroup g = GROUP_WORLD + 1; g < GROUP_MADE; g++) {
        int color = 0, key = 0;
        out->group[g] = few ? out->group[mesh_first(s, g)] : NULL;
        if (out->group[g] != NULL) continue;
        mesh_color(s, g, world->rank, &color, &key);
        TRY(comm_split(world, color, key, mesh_group_names[g], a, &out->group[g]));
    }
    return OK;
}

/* From the last group to the first: with `few` a later kind may share the communicator of an
 * earlier one, which frees it. */
void mesh_free(Mesh *m)
{
    for (int g = GROUP_MADE - 1; g > GROUP_WORLD; g--) {
        bool mine = true; /* not shared with an earlier kind (mesh_make with `few`) */
        for (int f = GROUP_WORLD; f < g; f++) mine &= m->group[f] != m->group[g];
        if (mine) comm_free(m->group[g]);
    }
    *m = (Mesh){ 0 };
}

Comm *mesh_axis(const Mesh *m, Axis axis)
{
    static const MeshGroup group[AXIS_COUNT] = { [AXIS_PP] = GROUP_PP,
                                                 [AXIS_DP] = GROUP_STAGE,
                                                 [AXIS_EP] = GROUP_EP,
                                                 [AXIS_CP] = GROUP_CP,
                                                 [AXIS_TP] = GROUP_TP };
    return m->group[group[axis]];
}

static Status print_places(const MeshShape *s, Text *out)
{
    TRY(text_printf(out, "\n%5s %6s %8s %6s %4s %4s %7s %13s\n", "rank", "stage", "replica",
                    "shard", "cp", "tp", "expert", "expert shard"));
    for (int rank = 0; rank < mesh_ranks(s); rank++) {
        const MeshPlace p = mesh_place(s, rank);
        TRY(text_printf(out, "%5d %6d %8d %6d %4d %4d %7d %13d\n", rank, p.stage, p.replica,
                        p.shard, p.cp, p.tp, p.ep, p.expert_shard));
    }
    return OK;
}

/* `stride`: how far apart two neighbours on this axis are in the numbering of ranks. */
Status mesh_print(const MeshShape *s, Text *out)
{
    const int tp = mesh_tp(s), sequence = mesh_sequence_ranks(s), inner = s->shard * sequence;
    const struct {
        const char *name;
        int size, stride;
        const char *shares;
    } row[] = {
        { "pp", s->pp, s->replicate * inner, "the layers, a stage a rank" },
        { "replicate", s->replicate, inner, "the batch; all hold the same" },
        { "shard", s->shard, sequence, "the batch, weights and the optimizer's state" },
        { "cp", s->cp, tp, "each sequence" },
        { "tp", tp, 1, "each matrix, and the rows of the stream" },
        { "ep", s->ep, 1, "the experts of a layer, within shard x cp x tp" },
    };
    TRY(text_printf(out, "%-10s %5s %7s  %s\n", "axis", "size", "stride", "what its ranks divide"));
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        TRY(text_printf(out, "%-10s %5d %7d  %s\n", row[i].name, row[i].size, row[i].stride,
                        row[i].shares));
    }
    return mesh_ranks(s) <= RANKS_SHOWN ? print_places(s, out) : OK;
}
