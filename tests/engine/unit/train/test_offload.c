/* optimizer.offload: states that come for their update and go again. On a CPU they never do, so these tests
 * give an engine the copies of a GPU, which run as late as its waits allow. */
#include "engine/step/offload.h"
#include "harness/copies.h"
#include "harness/many.h"

enum { PIECE = 128, STEPS = 3 };

static const char *const cases[][4] = {
    { "optimizer.kind=adamw" },
    { "optimizer.moments=bf16", "run.compute=bf16" },
    { "optimizer.ema=0.9", "train.clip_norm=0.1" },
    { "optimizer.kind=muon" },
    { "optimizer.kind=muon", "optimizer.moments=bf16", "optimizer.ema=0.9" },
    { "init.frozen=[\"model.embed_tokens.*\"]" },
};

static Late late[2];

static Tensor average_of(const Tiny *t) { return t->engine.params.memory.buffer[BUF_AVERAGE]; }

static void states_that_come_and_go_give_the_same_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Tiny plain, apart;
        tiny_open(&plain, cases[i]);
        tiny_open(&apart, cases[i]);
        EngineParams *w = &apart.engine.params;
        const int ranges = w->n_ranges;
        late_begin(&late[0], &apart.engine.ex);
        CHECK_OK(offload_make(w, PIECE, &apart.arena));
        CHECK(w->n_ranges > ranges); /* were cut */
        StepResult a = tiny_steps(&plain, 0, STEPS), b = tiny_steps(&apart, 0, STEPS);
        CHECK(a.loss == b.loss && a.grad_norm == b.grad_norm);
        CHECK(tiny_same_state(&plain, &apart));
        CHECK(!late[0].early);
        Tensor x = average_of(&plain), y = average_of(&apart);
        if (x.data != NULL) CHECK(memcmp(x.data, y.data, tensor_bytes(&x)) == 0);
        exec_pop(&apart.engine.ex);
        tiny_close(&plain);
        tiny_close(&apart);
    }
}

/* AdamW has two states, so a piece takes two copies each way. While piece i is updated, pieces up to i + 2
 * have been asked for, and piece i - 1 goes. */
static void three_pieces_are_under_way_at_a_time(void **state)
{
    (void)state;
    Tiny t;
    char want[LATE_LOG] = "", *at = want;
    tiny_open(&t, TINY("optimizer.kind=adamw"));
    EngineParams *w = &t.engine.params;
    late_begin(&late[0], &t.engine.ex);
    CHECK_OK(offload_make(w, PIECE, &t.arena));
    tiny_steps(&t, 0, 1);
    at = stpcpy(at, "++++++");
    for (int i = 0; i < w->n_ranges; i++) at = stpcpy(at, i + 3 < w->n_ranges ? "u--++" : "u--");
    CHECK_TEXT(late[0].log, want);
    for (int i = 0; i < 2; i++) CHECK_INT(late[0].stream[i].n - late[0].stream[i].done, 0);
    exec_pop(&t.engine.ex);
    tiny_close(&t);
}

/* Every element lies in one piece, in order. Matrices of Muon stay whole, however large. */
static void pieces_are_the_ranges_cut(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Tiny t;
        tiny_open(&t, cases[i]);
        EngineParams *w = &t.engine.params;
        const UpdateRange *whole = w->ranges;
        const int n = w->n_ranges;
        late_begin(&late[0], &t.engine.ex);
        CHECK_OK(offload_make(w, PIECE, &t.arena));
        const UpdateRange *piece = w->ranges;
        for (int r = 0; r < n; r++) {
            int64_t each =
                whole[r].w.rank == 1
                    ? 1
                    : tensor_elems(&whole[r].w) / (whole[r].w.rank == 3 ? whole[r].w.dim[0] : 1);
            int64_t done = 0;
            for (; done < tensor_elems(&whole[r].w); piece++) {
                CHECK(piece->rule == whole[r].rule && piece->decay == whole[r].decay);
                CHECK(piece->w.data == tensor_at(&whole[r].w, done));
                CHECK(piece->g.data == tensor_at(&whole[r].g, done));
                for (int s = 0; s < piece->rule->n_states; s++)
                    CHECK(piece->state[s].data == tensor_at(&whole[r].state[s], done));
                CHECK(tensor_elems(&piece->w) <= (each > PIECE ? each : PIECE));
                CHECK_INT(tensor_elems(&piece->w) % each, 0);
                done += tensor_elems(&piece->w);
            }
            CHECK_INT(done, tensor_elems(&whole[r].w));
        }
        CHECK_INT(piece - w->ranges, w->n_ranges);
        exec_pop(&t.engine.ex);
        tiny_close(&t);
    }
}

/* Of matrices that four ranks split, each rank then owns as many; the rest is a piece of its own. The 12 gates
 * and ups of six experts have 640 elements each, so ten of them would fit in the second case. */
static void pieces_of_split_matrices_are_for_all_ranks(void **state)
{
    (void)state;
    const int64_t most[] = { PIECE, 10 * 640 }, want[2][3] = { { 4, 4, 4 }, { 8, 4, 0 } };
    for (int i = 0; i < 2; i++) {
        Tiny t;
        int found = 0;
        tiny_open(&t, TINY("optimizer.kind=muon"));
        EngineParams *w = &t.engine.params;
        for (int r = 0; r < w->n_ranges; r++)
            if (w->ranges[r].w.rank == 3 && w->ranges[r].w.dim[0] == 12) w->ranges[r].ranks = 4;
        late_begin(&late[0], &t.engine.ex);
        CHECK_OK(offload_make(w, most[i], &t.arena));
        for (int r = 0; r < w->n_ranges; r++) {
            const UpdateRange *piece = &w->ranges[r];
            if (piece->ranks != 4) continue;
            CHECK_INT(piece->w.dim[0], want[i][found % (3 - i)]);
            found++;
        }
        CHECK(found >= 3 - i && found % (3 - i) == 0);
        exec_pop(&t.engine.ex);
        tiny_close(&t);
    }
}

/* On meshes: of each rank its own states. */
static Status same_on_rank(void *self, Comm *world)
{
    const ManyCase *c = self;
    ManyRank r[2];
    Status s = OK;
    Late *mine = NULL;
    Arena room = { 0 };
    memset(r, 0, sizeof r);
    TRY(arena_init(&room, "late", MEM_HOST, (size_t)1 << 26));
    TRY(ARENA_ZEROED(&room, 1, &mine));
    for (int i = 0; i < 2 && s == OK; i++) s = many_open(&r[i], c, world);
    Engine *e = &r[1].t.engine;
    if (s == OK) {
        late_begin(mine, &e->ex);
        s = offload_make(&e->params, PIECE, &r[1].t.arena);
    }
    for (int64_t step = 0; step < STEPS && s == OK; step++) {
        StepResult result;
        for (int i = 0; i < 2 && s == OK; i++) s = many_step(&r[i], step, &result);
    }
    if (s == OK && (!tiny_same_state(&r[0].t, &r[1].t) || mine->early))
        s = FAIL(ERR_NUMERIC, "weights or moments differ%s",
                 mine->early ? ", a copy is early" : "");
    for (int i = 0; i < 2; i++) many_close(&r[i]);
    arena_free(&room);
    return s;
}

static void states_come_and_go_on_every_stage_of_zero(void **state)
{
    (void)state;
    static const ManyCase meshes[] = {
        { "zero 0", 2, { "train.micro_batch=1", "mesh.zero=0" } },
        { "zero 1, muon", 2, { "train.micro_batch=1", "mesh.zero=1", "optimizer.kind=muon" } },
        { "zero 2, bf16", 2, { "train.micro_batch=1", "mesh.zero=2", "optimizer.moments=bf16" } },
        { "zero 3, ep", 2, { "train.micro_batch=1", "mesh.zero=3", "mesh.ep=2" } },
        { "zero 3, pp, muon",
          4,
          { "train.micro_batch=1", "mesh.zero=3", "mesh.pp=2", "optimizer.kind=muon" } },
        { "zero 1, tp, muon",
          4,
          { "train.micro_batch=1", "mesh.zero=1", "mesh.tp=2", "model.vocab=64",
            "optimizer.kind=muon" } },
    };
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
        int failed = -1;
        Status s =
            comm_threads(meshes[i].ranks, 60, same_on_rank, (void *)(uintptr_t)&meshes[i], &failed);
        if (s != OK) fail_msg("%s, rank %d: %s", meshes[i].name, failed, status_message());
    }
}

/* The setting changes neither memory nor bits of a CPU. */
static void a_cpu_has_the_states_where_they_are(void **state)
{
    (void)state;
    Tiny plain, asked;
    tiny_open(&plain, TINY("optimizer.offload=false"));
    tiny_open(&asked, TINY("optimizer.offload=true"));
    for (int a = 0; a < ENGINE_ARENAS; a++) CHECK_INT(asked.plan.bytes[a], plain.plan.bytes[a]);
    CHECK(asked.engine.params.offload == NULL);
    tiny_steps(&plain, 0, STEPS), tiny_steps(&asked, 0, STEPS);
    CHECK(tiny_same_state(&plain, &asked));
    tiny_close(&plain);
    tiny_close(&asked);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(states_that_come_and_go_give_the_same_bits),
        TEST(three_pieces_are_under_way_at_a_time),
        TEST(pieces_are_the_ranges_cut),
        TEST(pieces_of_split_matrices_are_for_all_ranks),
        TEST(states_come_and_go_on_every_stage_of_zero),
        TEST(a_cpu_has_the_states_where_they_are),
    };
    return TEST_RUN(tests);
}
