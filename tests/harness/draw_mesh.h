/* draw_mesh: drawn models on drawn meshes: what goes together that no list of cases has. */
#ifndef TESTS_HARNESS_DRAW_MESH_H
#define TESTS_HARNESS_DRAW_MESH_H

#include "harness/draw_model.h"
#include "harness/mesh_cases.h"

#include "engine/schedule/schedule.h"

#include <stdlib.h>

enum { RANKS_MOST = 8, ALTERNATIVES = 8, TEXT_BYTES = 2048 };

/* Of each row one, evenly; several settings are parted by blanks. The first MODEL_ROWS are the model's,
 * the others a run's. Capacities are not drawn: equal tokens have equal weights, so that a last bit decides
 * which of them is dropped. engine/mesh/test_balance has them. */
static const char *const alternatives[][ALTERNATIVES] = {
    { "model.layers=4", "model.layers=4 model.dense_layers=0",
      "model.layers=5 model.dense_layers=2", "model.layers=6 moe.every=2" },
    { "", "model.hidden=44 model.ffn=26 moe.ffn=18", "model.hidden=33 model.vocab=67",
      "model.hidden=64 model.ffn=128 moe.ffn=64 model.vocab=128 attention.head_dim=16",
      "model.hidden=136 moe.ffn=72 data.sequence=48 attention.v_dim=16 attention.heads=4" },
    { "", "", "model.tied=true" },
    { "", "", "", "mtp.layers=1", "mtp.layers=2" },
    { "", "attention.q_rank=10", "attention.q_rank=10 attention.latent_eps=1e-5",
      "attention.kind=gqa",
      "attention.kind=gqa attention.kv_heads=2 attention.qk_norm=rms attention.bias=true",
      "attention.kind=gqa attention.qk_norm=width attention.out_bias=true attention.rotary=0.5",
      "attention.kind=gqa attention.window=5 attention.full_every=2 attention.sinks=true",
      "attention.kind=gqa attention.chunk=7 attention.full_every=2 attention.nope_every=2" },
    { "", "", "attention.document_mask=false" },
    { "moe.experts=8", "moe.experts=8 moe.top_k=3 moe.normalise=true",
      "moe.experts=4 moe.top_k=1 moe.score=sigmoid moe.score_input=true",
      "moe.experts=8 moe.score=sigmoid moe.groups=4 moe.top_groups=2 moe.bias_rate=0.01",
      "moe.experts=12 moe.expert_bias=true moe.router_bias=true" },
    { "", "moe.shared=0", "moe.shared=2 moe.shared_gate=true" },
    { "", "moe.aux_loss=3 moe.aux_scope=batch", "moe.z_loss=0.5 moe.aux_loss=0", "", "",
      "moe.aux_loss=0", "moe.forced_balance=true" },
    { "", "", "", "init.frozen=[\"*.0.*\",\"model.embed_tokens.weight\"]",
      "init.frozen=[\"*.mlp.experts.*\"]", "init.frozen=[\"*norm.weight\",\"*_proj.weight\"]" },
    { "train.batch=8 train.micro_batch=1", "train.batch=8 train.micro_batch=2",
      "train.batch=16 train.micro_batch=2" },
    { WORST, "moe.buffers=pooled moe.pool_factor=1.5", "moe.buffers=pooled moe.pool_factor=0.9" },
    { "", "moe.exchange=allgather", "moe.exchange=direct", "moe.exchange=auto",
      "moe.exchange=hier mesh.ranks_per_host=2", "moe.exchange=hier mesh.ranks_per_host=1" },
    { "mesh.zero=0", "mesh.zero=1", "mesh.zero=2", "mesh.zero=3" },
    { "", "recompute.layers=[0,1,2,3]",
      "recompute.layers=[1,3] recompute.pieces=[norm,act,attn_up]",
      "recompute.layers=[0,1,2,3] recompute.pieces=[exchange,norm,shared]" },
};
enum { ROWS = sizeof alternatives / sizeof *alternatives, MODEL_ROWS = 10 };

typedef struct Drawn {
    ManyCase what;
    char text[TEXT_BYTES]; /* of all settings, each ended by 0 */
    size_t used;
    int n;
} Drawn;

__attribute__((format(printf, 2, 3))) static inline void push(Drawn *c, const char *format, ...)
{
    va_list ap;
    va_start(ap, format);
    char *at = c->text + c->used;
    int bytes = vsnprintf(at, sizeof c->text - c->used, format, ap);
    va_end(ap);
    c->used += (size_t)bytes + 1;
    CHECK(c->used < sizeof c->text);
    for (char *one = strtok(at, " "); one != NULL; one = strtok(NULL, " ")) {
        CHECK(c->n < MANY_SETTINGS);
        c->what.settings[c->n++] = one;
    }
}

/* A power of two, at most `most`. */
static inline int draw_ranks(Draws *d, int most)
{
    int n = 1;
    while (2 * n <= most && draw_int(d, 0, 1) > 0) n *= 2;
    return n;
}

/* Ranks of tp that model i is drawn for at most: some models keep sizes that none divide. */
static inline int parts_most(int i) { return i % 5 == 4 ? 1 : i % 2 == 0 ? 4 : 2; }

/* Drawn from a stream of its own, so that meshes without tp do not depend on it. */
static inline int draw_tp(int i, int mesh, int most)
{
    Draws d = { .seed = (uint64_t)mesh, .stream = "drawn ranks of tp" };
    int parts = parts_most(i);
    return draw_ranks(&d, parts < most ? parts : most);
}

/* Ranks that share each expert, of those of an EP group; their widths divide by 2. */
static inline int draw_etp(int mesh, int experts)
{
    Draws d = { .seed = (uint64_t)mesh, .stream = "drawn ranks of etp" };
    return draw_ranks(&d, experts < 2 ? experts : 2);
}

/* At most four stages, and four context ranks a sequence. */
static inline void draw_mesh(Draws *d, int mesh, int tp, int most, Drawn *c)
{
    const ScheduleDesc *s = &schedule_table[draw_int(d, 0, schedule_table_n - 1)];
    bool loops = s->chunks_least == 1 && s->chunks_most > 1;
    int vpp = loops ? draw_int(d, 1, 2) : s->chunks_least;
    int pp = draw_ranks(d, most < 4 / vpp ? most : 4 / vpp), rest = most / pp;
    int cp = draw_ranks(d, rest < 4 ? rest : 4), dp = draw_ranks(d, rest / cp);
    int shard = draw_int(d, 0, 1) * draw_ranks(d, dp);
    int experts = draw_ranks(d, tp * cp * (shard > 0 ? shard : dp)), etp = draw_etp(mesh, experts);
    c->what.ranks = pp * tp * cp * dp;
    push(c, "mesh.pp=%d mesh.tp=%d mesh.cp=%d mesh.shard=%d", pp, tp, cp, shard);
    push(c, "mesh.tp_pieces=%d", mesh % 2);
    push(c, "mesh.ep=%d mesh.etp=%d", experts / etp, etp);
    push(c, "mesh.schedule=%s mesh.vpp=%d", s->name, vpp);
}

/* Model i on mesh `mesh`. */
static inline void draw_case(int i, int mesh, int most, Drawn *c)
{
    Draws d = { .seed = (uint64_t)i, .stream = "drawn models" };
    *c = (Drawn){ .what = { .name = "drawn" } };
    for (int row = 0; row < ROWS; row++) {
        int n = 0;
        if (row == MODEL_ROWS) d = (Draws){ .seed = (uint64_t)mesh, .stream = "drawn meshes" };
        while (n < ALTERNATIVES && alternatives[row][n] != NULL) n++;
        const char *drawn = alternatives[row][draw_int(&d, 0, n - 1)];
        push(c, "%s", drawn);
        if (i % 3 == 0 && strstr(drawn, "qk_norm=rms") != NULL) push(c, "attention.gate=true");
    }
    /* with a large eps, as norms of what few tokens have written enlarge roundings */
    if (i % 4 == 3)
        push(c,
             "delta.full_every=%d delta.key_heads=4 delta.heads=%d delta.key_dim=6 "
             "delta.value_dim=5 delta.taps=%d model.norm_eps=0.01",
             i % 8 == 3 ? 2 : 3, i % 3 == 0 ? 4 : 8, 1 + i % 5);
    /* sizes that ranks of tp divide, also where this mesh has none: another loads its checkpoint */
    if (parts_most(i) > 1) push(c, "model.vocab=68 model.ffn=28");
    if (parts_most(i) > 2) push(c, "attention.heads=4");
    const int tp = draw_tp(i, mesh, most);
    draw_mesh(&d, mesh, tp, most / tp, c);
    if (i % 3 == 2) push(c, "optimizer.kind=muon");
    if (i % 4 == 1) push(c, "optimizer.qk_clip=0.1");
}

static inline void print_case(const Drawn *c)
{
    for (int k = 0; k < c->n; k++) print_error(" %s", c->what.settings[k]);
    print_error("\n");
}

/* By checks of settings, meshes and schedules. An op that refuses what these let through is a fault. */
static inline bool refused(Status s)
{
    return (s == ERR_ARG || s == ERR_UNSUPPORTED) &&
           strstr(status_message(), "at src/kernels/") == NULL;
}

/* How cases ended. */
typedef struct DrawnRuns {
    int ran, wrong;
} DrawnRuns;

/* Case i; a failing one is printed as settings. */
static inline void run_drawn_case(int i, int most, Many m, DrawnRuns *runs)
{
    static Drawn c;
    int failed = -1;
    draw_case(i, i, most, &c);
    m.what = &c.what;
    Status s = comm_threads(c.what.ranks, 60, many_run, &m, &failed);
    runs->ran += !refused(s);
    runs->wrong += s != OK && !refused(s);
    if (s == OK) return;
    print_error("%d: rank %d of %d: %s\n   ", i, failed, c.what.ranks, status_message());
    print_case(&c);
    status_clear();
}

/* Cases [first, first + n) of at most `most` ranks, or those that DRAWN=FIRST:N asks for. At least half of them must be
 * legal. */
static inline void run_drawn(int n, int most, Many m)
{
    int first = 0;
    DrawnRuns runs = { 0 };
    const char *other = getenv("DRAWN");
    if (other != NULL) CHECK_INT(sscanf(other, "%d:%d", &first, &n), 2);
    for (int i = first; i < first + n; i++) run_drawn_case(i, most, m, &runs);
    print_message("%d of %d ran\n", runs.ran, n);
    CHECK_INT(runs.wrong, 0);
    CHECK(runs.ran >= n / 2);
}

#endif
