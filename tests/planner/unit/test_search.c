/* The search against pricing everything, with prices made up for the purpose: a time that rises
 * with bubbles, recomputing and exchanges, memory that falls with what is shared out, and a factor
 * of its own for each layout that no bound knows. 1f1b costs what gpipe costs here, but the
 * simulator tells them apart where there are four stages. */
#include "harness/test.h"

#include "kernels/core/kinds.h"
#include "planner/search/found.h"
#include "planner/search/search_private.h"
#include "planner/stack/stack.h"

#include <string.h>

typedef struct Made {
    double bytes, step_s;
} Made;

static bool is(const PlanLayout *l, const char *schedule)
{
    return strcmp(l->schedule->name, schedule) == 0;
}

/* 0 to 1, the same for the same layout, whatever it recomputes and whatever its ZeRO stage: more of these takes longer
 * (worth.h), unlike memory, which any may raise. */
static double noise(const PlanLayout *l, unsigned salt)
{
    uint64_t h = salt;
    const int64_t part[] = { l->pp,
                             l->vpp,
                             l->ep,
                             l->cp,
                             l->shard,
                             l->micro_batch,
                             salt == 1 ? l->zero + 4 * l->recompute : 0,
                             salt == 1 ? l->recompute_blocks : 0,
                             l->schedule - schedule_table - is(l, "1f1b") };
    for (size_t i = 0; i < sizeof part / sizeof *part; i++)
        h = (h ^ (uint64_t)part[i]) * 0x9E3779B97F4A7C15u, h ^= h >> 29;
    return (double)(h >> 11) / 9007199254740992.0;
}

static Made made(const PlanRequest *q, const PlanLayout *l)
{
    int64_t micros = q->config->train_batch / (l->dp * l->micro_batch);
    double again = l->recompute & 32 ? 0.3 : 0.02 * __builtin_popcount(l->recompute);
    double kept = l->recompute & 32 ? 0.1 : 1 - 0.12 * __builtin_popcount(l->recompute);
    double bubble = 1 + (l->pp - 1) / ((double)micros * l->vpp);
    double state = 4e11 / l->pp / (l->zero == 3 ? (double)l->dp : l->zero == 2 ? 2 : 1);
    double slots = 2e9 * (double)l->micro_batch / l->cp * (1 + 0.5 / l->vpp) * kept;
    return (Made){ state / l->ep + slots, 100 * bubble * (1 + again) *
                                              (1 + 0.03 * l->ep + 0.02 * l->cp) *
                                              (1 + 0.01 * l->zero) / (double)l->micro_batch };
}

/* A planner that only knows its question. */
struct Planner {
    const PlanRequest *q;
};

static Status open_made(const PlanRequest *q, Planner **out)
{
    *out = malloc(sizeof **out);
    assert_non_null(*out);
    (*out)->q = q;
    return OK;
}

static void close_made(Planner *p) { free(p); }

static Status legal_made(const Planner *p, const PlanLayout *l)
{
    (void)p;
    return l->pp == 3 ? FAIL(ERR_ARG, "three is not liked") : OK;
}

static Status bound_made(Planner *p, const PlanLayout *l, double *bytes, double *step_s)
{
    Made m = made(p->q, l);
    *bytes = m.bytes;
    *step_s = m.step_s;
    return OK;
}

static Status no_bound(Planner *p, const PlanLayout *l, double *bytes, double *step_s)
{
    (void)p, (void)l;
    *bytes = *step_s = 0;
    return OK;
}

static void set_time(PlanPrice *out, double step_s)
{
    out->step_s = step_s;
    out->tokens_per_s_per_gpu = 1e6 / step_s;
}

/* Beyond the limit a time somewhere between it and the layout's. */
static void stop_at(const PlanLimit *limit, PlanPrice *out)
{
    if (limit == NULL) return;
    double most_s = limit->step_s(limit->self, out->peak_bytes);
    if (out->step_s > most_s) set_time(out, (out->step_s + 3 * most_s) / 4);
}

static Status price_made(Planner *p, const PlanLayout *l, const PlanLimit *limit, PlanPrice *out)
{
    const PlanRequest *q = p->q;
    Made m = made(q, l);
    if (l->ep == 4 && l->cp == 4) return FAIL(ERR_ARG, "not both");
    m.bytes *= 1 + 0.2 * noise(l, 1);
    *out = (PlanPrice){ .fits = m.bytes <= 0.95 * q->hardware->memory_gib * 1073741824.0,
                        .peak_bytes = m.bytes };
    set_time(out, m.step_s * (1 + 0.2 * noise(l, 2)));
    stop_at(limit, out);
    return OK;
}

/* As tight as can be: then alike layouts have the same bound as each other and as their price. */
static Status bound_is_price(Planner *p, const PlanLayout *l, double *bytes, double *step_s)
{
    PlanPrice price = { 0 };
    if (price_made(p, l, NULL, &price) != OK) status_clear();
    *bytes = price.peak_bytes;
    *step_s = price.step_s;
    return OK;
}

/* A simulator that says twice the time. */
static Status simulate_made(Planner *p, const PlanLayout *l, const PlanLimit *limit, PlanPrice *out)
{
    TRY(price_made(p, l, NULL, out));
    set_time(out, out->step_s * (is(l, "1f1b") && l->pp == 4 ? 2.01 : 2));
    stop_at(limit, out);
    return OK;
}

static Status price_whole(Planner *p, const PlanLayout *l, const PlanLimit *limit, PlanPrice *out)
{
    (void)limit;
    return price_made(p, l, NULL, out);
}

static Status simulate_whole(Planner *p, const PlanLayout *l, const PlanLimit *limit,
                             PlanPrice *out)
{
    (void)limit;
    return simulate_made(p, l, NULL, out);
}

static const SearchPricer with_bounds = { open_made,  close_made, legal_made,
                                          bound_made, price_made, simulate_made };
static const SearchPricer with_tight_bounds = { open_made,      close_made, legal_made,
                                                bound_is_price, price_made, simulate_made };
static const SearchPricer without_bounds = { open_made, close_made,  legal_made,
                                             no_bound,  price_whole, simulate_whole };

typedef struct Question {
    Config config;
    Hardware hardware;
    PlanRequest request;
    SearchAxes axes;
    Arena arena;
} Question;

static int set_up(void **state)
{
    static Question t;
    t = (Question){ .hardware = { .name = "made up", .memory_gib = 64, .scale_up_gpus = 8 } };
    if (arena_init(&t.arena, "test", MEM_HOST, (size_t)1 << 30) != OK) return 1;
    const char *settings[] = { "model.layers=12", "moe.experts=16", "train.batch=192",
                               "train.micro_batch=1", "data.sequence=64" };
    if (config_load(&t.config, &t.arena, NULL, settings, 5) != OK) return 1;
    t.request = (PlanRequest){ .config = &t.config, .hardware = &t.hardware, .gpus = 96 };
    *state = &t;
    return 0;
}

static int tear_down(void **state)
{
    arena_free(&((Question *)*state)->arena);
    return 0;
}

static SearchResult search(Question *t, const SearchPricer *pricer, int top, int threads)
{
    SearchResult r = { 0 };
    CHECK_OK(search_run(&t->request, &(SearchOptions){ &t->axes, pricer, top, threads, NULL },
                        &t->arena, &r));
    return r;
}

static void check_same_rows(const SearchRow *a, int n, const SearchRow *b, int m)
{
    CHECK_INT(n, m);
    for (int i = 0; i < n; i++) {
        CHECK_INT(a[i].id, b[i].id);
        CHECK_NEAR(a[i].price.step_s, b[i].price.step_s, 0);
        CHECK_NEAR(a[i].price.peak_bytes, b[i].price.peak_bytes, 0);
        CHECK_INT(a[i].also, b[i].also);
    }
}

static void pruning_finds_what_pricing_everything_finds(void **state)
{
    Question *t = *state;
    SearchResult fast = search(t, &with_bounds, 60, 2), all = search(t, &without_bounds, 60, 2);
    CHECK_INT(all.count.priced + all.count.refused, all.count.legal);
    CHECK(all.count.refused > 0);
    CHECK(fast.count.priced < all.count.priced / 4);
    CHECK(fast.count.pruned_memory > 0);
    CHECK_INT(fast.count.priced + fast.count.refused + fast.count.pruned_memory +
                  fast.count.pruned_time,
              all.count.legal);
    CHECK_INT(fast.n_best, 60);
    CHECK(fast.n_front > 5);
    check_same_rows(fast.best, fast.n_best, all.best, all.n_best);
    check_same_rows(fast.front, fast.n_front, all.front, all.n_front);
}

static void threads_do_not_change_the_answer(void **state)
{
    Question *t = *state;
    SearchResult one = search(t, &with_bounds, 20, 1), three = search(t, &with_bounds, 20, 3);
    check_same_rows(one.best, one.n_best, three.best, three.n_best);
    check_same_rows(one.front, one.n_front, three.front, three.n_front);
    CHECK_INT(one.count.priced, three.count.priced);
    CHECK_INT(one.count.pruned_time, three.count.pruned_time);
}

static void the_best_are_simulated_and_fall_in_speed(void **state)
{
    Question *t = *state;
    SearchResult r = search(t, &with_bounds, 10, 2);
    CHECK_INT(r.n_best, 10);
    for (int i = 0; i < r.n_best; i++) {
        PlanPrice p;
        CHECK(r.best[i].price.fits);
        CHECK_OK(simulate_made(&(Planner){ &t->request }, &r.best[i].layout, NULL, &p));
        CHECK_NEAR(r.best[i].price.step_s, p.step_s, 0);
        if (i > 0) CHECK(r.best[i].price.step_s >= r.best[i - 1].price.step_s);
    }
}

static int64_t place(const char *schedule)
{
    const ScheduleDesc *d = NULL;
    CHECK_OK(schedule_find(schedule, &d));
    return d - schedule_table;
}

/* How many rows have gpipe and name 1f1b, and how many have either alone. */
static void count_twins(const SearchRow *row, int n, int *both, int *alone)
{
    *both = *alone = 0;
    for (int i = 0; i < n; i++) {
        bool first = is(&row[i].layout, "gpipe"), second = is(&row[i].layout, "1f1b");
        CHECK_INT(row[i].also, first && row[i].layout.pp != 4 ? 1 << place("1f1b") : 0);
        CHECK(!second || row[i].layout.pp == 4);
        *both += row[i].also != 0;
        *alone += second || (first && row[i].also == 0);
    }
}

static void layouts_that_only_their_schedule_tells_apart_are_one_row(void **state)
{
    Question *t = *state;
    int both, alone;
    const ConfigInts three = { 3, { place("gpipe"), place("1f1b"), place("zb-h1") } };
    t->axes =
        (SearchAxes){ .axis = { [SEARCH_PP] = { 3, { 2, 4, 6 } }, [SEARCH_SCHEDULE] = three } };
    SearchResult r = search(t, &with_bounds, 100, 2), all = search(t, &without_bounds, 100, 2);
    check_same_rows(r.best, r.n_best, all.best, all.n_best);
    CHECK_INT(r.n_best, 100);
    count_twins(r.best, r.n_best, &both, &alone);
    CHECK(both > 1 && alone > 1);
    t->axes.axis[SEARCH_PP] = (ConfigInts){ 2, { 2, 6 } };
    t->axes.axis[SEARCH_SCHEDULE] = (ConfigInts){ 2, { place("gpipe"), place("1f1b") } };
    r = search(t, &with_tight_bounds, 10, 2), all = search(t, &without_bounds, 10, 2);
    CHECK(r.n_front > 1);
    check_same_rows(r.front, r.n_front, all.front, all.n_front);
    count_twins(r.front, r.n_front, &both, &alone);
    CHECK_INT(both, r.n_front);
    t->axes = (SearchAxes){ 0 };
}

static void a_front_rises_in_memory_and_falls_in_time(void **state)
{
    SearchResult r = search(*state, &with_bounds, 10, 2);
    for (int i = 1; i < r.n_front; i++) {
        CHECK(r.front[i].price.peak_bytes > r.front[i - 1].price.peak_bytes);
        CHECK(r.front[i].price.step_s < r.front[i - 1].price.step_s);
    }
}

/* In whatever order they come, a point stays only if it is 1 % faster than the one with less memory. */
static void a_front_has_no_points_that_gain_next_to_nothing(void **state)
{
    Question *t = *state;
    static const double step_s[] = { 100, 99.5, 98, 97.9 };
    static const int orders[][4] = { { 0, 1, 2, 3 }, { 3, 2, 1, 0 }, { 1, 3, 0, 2 } };
    for (int k = 0; k < 3; k++) {
        Found f;
        CHECK_OK(found_init(&f, &t->hardware, 0, &t->arena));
        for (int i = 0; i < 4; i++) {
            const int at = orders[k][i];
            SearchRow row = { .layout = { .schedule = schedule_table, .pp = 1 + at },
                              .price = { .step_s = step_s[at], .peak_bytes = 1 + at } };
            found_add_to_front(&f, &row);
        }
        CHECK_INT(f.n_front, 2);
        CHECK_NEAR(f.front[0].price.step_s, 100, 0);
        CHECK_NEAR(f.front[1].price.step_s, 98, 0);
        CHECK_NEAR(found_front_s(&f, 3.5), 98 / 1.01, 1e-9);
        CHECK_NEAR(found_front_s(&f, 3), 98, 0);
    }
}

static void without_experts_no_rank_has_a_part_of_them(void **state)
{
    Question *t = *state;
    const Config before = t->config;
    t->config.model_dense_layers = t->config.model_layers;
    t->axes = (SearchAxes){ .axis = { [SEARCH_EP] = { 2, { 1, 2 } } } };
    const SearchResult r = search(t, &with_bounds, 10, 2);
    for (int i = 0; i < r.n_best; i++) CHECK_INT(r.best[i].layout.ep, 1);
    CHECK_INT(r.n_best, 10);
    t->axes.axis[SEARCH_EP] = (ConfigInts){ 1, { 2 } };
    SearchResult none;
    CHECK_FAILS(search_run(&t->request, &(SearchOptions){ &t->axes, &with_bounds, 1, 1, NULL },
                           &t->arena, &none),
                ERR_ARG, "ep divides the model's experts, 1,");
    t->config = before;
}

static void every_row_is_legal_and_of_the_axes_given(void **state)
{
    Question *t = *state;
    t->axes =
        (SearchAxes){ .axis = { [SEARCH_PP] = { 2, { 2, 4 } }, [SEARCH_ZERO] = { 1, { 1 } } } };
    SearchResult r = search(t, &with_bounds, 50, 2);
    CHECK(r.n_best > 0);
    for (int i = 0; i < r.n_best; i++) {
        const PlanLayout *l = &r.best[i].layout;
        CHECK(l->pp == 2 || l->pp == 4);
        CHECK_INT(l->zero, 1);
        CHECK_INT(l->pp * l->cp * l->dp, 96);
        CHECK_INT(l->dp * l->cp % l->ep, 0);
        CHECK_INT(16 % l->ep, 0);
        CHECK_INT(192 % (l->dp * l->micro_batch), 0);
        CHECK(l->pp * l->vpp <= 12);
    }
    t->axes = (SearchAxes){ 0 };
}

static void if_nothing_fits_the_nearest_is_named(void **state)
{
    Question *t = *state;
    t->hardware.memory_gib = 0.001;
    SearchResult r = search(t, &with_bounds, 10, 2), all = search(t, &without_bounds, 10, 2);
    t->hardware.memory_gib = 64;
    CHECK_INT(r.n_best + r.n_front + all.n_best, 0);
    CHECK(r.nearest.layout.pp > 0);
    CHECK_NEAR(r.count.priced, 0, 0);
    CHECK(r.nearest.price.peak_bytes <= 1.2 * all.nearest.price.peak_bytes); /* the noise */
}

static void the_most_gpus_that_share_out_the_batch_are_found(void **state)
{
    Question *t = *state;
    SearchAxes narrow = { .axis = { [SEARCH_PP] = { 1, { 24 } }, [SEARCH_CP] = { 1, { 1 } } } };
    CHECK_INT(search_gpus(&t->request, &t->axes), 96);
    t->request.gpus = 97;
    CHECK_INT(search_gpus(&t->request, &t->axes), 96);
    CHECK_INT(search_gpus(&t->request, &narrow), 96); /* 24 stages times 4 ranks of 48 sequences */
    t->request.gpus = 23;
    CHECK_INT(search_gpus(&t->request, &narrow), 0);
    t->request.gpus = 96;
}

static void the_nearest_batch_that_all_gpus_share_out_is_found(void **state)
{
    Question *t = *state;
    SearchAxes narrow = { .axis = { [SEARCH_PP] = { 1, { 1 } }, [SEARCH_CP] = { 1, { 1 } } } };
    CHECK_INT(search_even_batch(&t->request, &t->axes, 0), 192);
    t->request.gpus = 100;
    CHECK_INT(search_even_batch(&t->request, &narrow, 0), 200);
    t->request.gpus = 128; /* 128 and 256 are as near */
    CHECK_INT(search_even_batch(&t->request, &narrow, 0), 128);
    CHECK_INT(search_even_batch(&t->request, &narrow, -1), 128);
    CHECK_INT(search_even_batch(&t->request, &narrow, 1), 256);
    t->request.gpus = 1000;
    CHECK_INT(search_even_batch(&t->request, &narrow, 0), 1000);
    CHECK_INT(search_even_batch(&t->request, &narrow, -1), 0);
    CHECK_INT(search_even_batch(&t->request, &narrow, 1), 1000);
    SearchAxes wide = { .axis = { [SEARCH_PP] = { 2, { 1, 2 } }, [SEARCH_CP] = { 2, { 1, 8 } } } };
    t->request.gpus = 3240; /* 3,240, 405 or 1,620 ranks: no batch is not nearer than 405 */
    CHECK_INT(search_even_batch(&t->request, &wide, 0), 405);
    t->request.gpus = 96;
}

/* Equally fast, whatever the layout; memory grows with experts' ranks, so that it would order the other way. */
static Status price_alike(Planner *p, const PlanLayout *l, const PlanLimit *limit, PlanPrice *out)
{
    (void)p, (void)limit;
    double bytes = 1e9 * (100.0 / l->ep + 10.0 / l->cp + 1.0 / l->pp);
    *out = (PlanPrice){ .fits = true, .peak_bytes = bytes, .step_s = 1, .tokens_per_s_per_gpu = 1 };
    return OK;
}

static void ties_go_to_groups_of_fewer_domains(void **state)
{
    Question *t = *state;
    SearchPricer alike = without_bounds;
    alike.price = alike.simulate = price_alike;
    t->axes = (SearchAxes){ .axis = { [SEARCH_EP] = { 2, { 8, 16 } },
                                      [SEARCH_CP] = { 2, { 8, 16 } },
                                      [SEARCH_PP] = { 2, { 2, 6 } } } };
    SearchResult r = search(t, &alike, 20, 2);
    CHECK_INT(r.best[0].layout.ep, 8);
    CHECK_INT(r.best[0].layout.cp, 8);
    for (int i = 1; i < r.n_best; i++) CHECK(r.best[i].layout.ep >= r.best[i - 1].layout.ep);
    t->axes = (SearchAxes){ 0 };
}

static void axes_that_no_layout_has_are_refused(void **state)
{
    Question *t = *state;
    SearchResult r;
    SearchOptions o = { &t->axes, &with_bounds, 10, 1, NULL };
    t->axes.axis[SEARCH_EP] = (ConfigInts){ 1, { 5 } };
    CHECK_FAILS(search_run(&t->request, &o, &t->arena, &r), ERR_ARG,
                "ep divides the model's experts, 16,");
    t->axes = (SearchAxes){ 0 };
    o.top = 0;
    CHECK_FAILS(search_run(&t->request, &o, &t->arena, &r), ERR_ARG, "legal are 1 to 1000");
}

static void settings_narrow_the_axes(void **state)
{
    Question *t = *state;
    Config c = t->config;
    SearchAxes axes;
    CHECK_OK(config_override(&c, &t->arena, "search.pp=[24,48]"));
    CHECK_OK(config_override(&c, &t->arena, "search.schedule=[1f1b,zbv]"));
    CHECK_OK(config_override(&c, &t->arena, "search.recompute=[layer]"));
    CHECK_OK(config_override(&c, &t->arena, "search.buffers=[worst]"));
    CHECK_OK(search_axes(&c, &axes));
    CHECK_INT(axes.axis[SEARCH_PP].n, 2);
    CHECK_INT(axes.axis[SEARCH_PP].at[1], 48);
    CHECK_TEXT(schedule_table[axes.axis[SEARCH_SCHEDULE].at[1]].name, "zbv");
    CHECK_TEXT(search_recompute[axes.axis[SEARCH_RECOMPUTE].at[0]].name, "layer");
    CHECK_INT(axes.axis[SEARCH_BUFFERS].at[0], BUFFERS_WORST + SEARCH_BUFFER_KINDS * c.run_compute);
    CHECK_INT(axes.axis[SEARCH_CP].n, 0);
    CHECK_OK(config_override(&c, &t->arena, "search.compute=[f32,bf16]"));
    CHECK_OK(search_axes(&c, &axes));
    CHECK_INT(axes.axis[SEARCH_BUFFERS].n, 2);
    CHECK_INT(axes.axis[SEARCH_BUFFERS].at[1], BUFFERS_WORST + SEARCH_BUFFER_KINDS * COMPUTE_BF16);
    c.search_schedule = (ConfigTexts){ 1, { "1f1c" } };
    CHECK_FAILS(search_axes(&c, &axes), ERR_ARG, "did you mean 1f1b");
}

/* Types, recipes and offloading are digits of one axis. What config_check refuses of them, as a detail of a recipe
 * without one, is left out. */
static void recipes_and_offloading_are_axes(void **state)
{
    Question *t = *state;
    Config c = t->config;
    SearchAxes axes;
    CHECK_OK(config_override(&c, &t->arena, "run.compute=bf16"));
    CHECK_OK(config_override(&c, &t->arena, "search.recipe=[none,block,mx]"));
    CHECK_OK(config_override(&c, &t->arena, "search.offload=[false,true]"));
    CHECK_OK(config_override(&c, &t->arena, "search.tp=[2,4]"));
    CHECK_OK(search_axes(&c, &axes));
    CHECK_INT(axes.axis[SEARCH_TP].at[1], 4);
    CHECK_INT(axes.axis[SEARCH_BUFFERS].n, 6);
    static const int want[6][2] = { { RECIPE_NONE, 0 }, { RECIPE_BLOCK, 0 }, { RECIPE_MX, 0 },
                                    { RECIPE_NONE, 1 }, { RECIPE_BLOCK, 1 }, { RECIPE_MX, 1 } };
    for (int i = 0; i < 6; i++) {
        Config of = c;
        search_configure(&of, axes.axis[SEARCH_BUFFERS].at[i]);
        CHECK_INT(of.fp8_recipe, want[i][0]);
        CHECK_INT(of.optimizer_offload, want[i][1]);
        CHECK_INT(of.run_compute, COMPUTE_BF16);
        CHECK_INT(of.moe_buffers, c.moe_buffers);
    }
    CHECK_OK(config_override(&c, &t->arena, "fp8.recipe=block"));
    CHECK_OK(config_override(&c, &t->arena, "fp8.wgrad=bf16"));
    CHECK_OK(search_axes(&c, &axes));
    CHECK_INT(axes.axis[SEARCH_BUFFERS].n, 4);
    CHECK_OK(config_override(&c, &t->arena, "search.recipe=[none]"));
    CHECK_FAILS(search_axes(&c, &axes), ERR_ARG, "fp8.wgrad is a detail of 8-bit products");
}

/* Only stacks that share matrices have them: up to 8 within a domain, of which an MI300X has 8. */
static void only_stacks_with_tensor_parallelism_search_for_it(void **state)
{
    Question *t = *state;
    const char *const names[] = { "switchyard", "megatron" };
    for (int i = 0; i < 2; i++) {
        PlanStack s;
        SearchAxes axes = { 0 };
        PlanRequest q = t->request;
        CHECK_OK(stack_load(&s, &t->arena, names[i]));
        q.stack = &s;
        search_axes_fill(&q, &axes);
        CHECK_INT(axes.axis[SEARCH_TP].n, i == 0 ? 1 : 4);
    }
}

static void a_replica_is_the_pipeline_times_the_experts_or_the_sequence(void **state)
{
    (void)state;
    CHECK_INT(search_replica(&(PlanLayout){ .pp = 24, .ep = 16, .cp = 2, .tp = 1 }), 384);
    CHECK_INT(search_replica(&(PlanLayout){ .pp = 24, .ep = 1, .cp = 4, .tp = 1 }), 96);
    CHECK_INT(search_replica(&(PlanLayout){ .pp = 2, .ep = 6, .cp = 4, .tp = 1 }), 24);
    CHECK_INT(search_replica(&(PlanLayout){ .pp = 2, .ep = 6, .cp = 2, .tp = 2 }), 24);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(pruning_finds_what_pricing_everything_finds),
        TEST(threads_do_not_change_the_answer),
        TEST(the_best_are_simulated_and_fall_in_speed),
        TEST(layouts_that_only_their_schedule_tells_apart_are_one_row),
        TEST(a_front_rises_in_memory_and_falls_in_time),
        TEST(a_front_has_no_points_that_gain_next_to_nothing),
        TEST(without_experts_no_rank_has_a_part_of_them),
        TEST(every_row_is_legal_and_of_the_axes_given),
        TEST(if_nothing_fits_the_nearest_is_named),
        TEST(the_most_gpus_that_share_out_the_batch_are_found),
        TEST(the_nearest_batch_that_all_gpus_share_out_is_found),
        TEST(ties_go_to_groups_of_fewer_domains),
        TEST(axes_that_no_layout_has_are_refused),
        TEST(settings_narrow_the_axes),
        TEST(recipes_and_offloading_are_axes),
        TEST(only_stacks_with_tensor_parallelism_search_for_it),
        TEST(a_replica_is_the_pipeline_times_the_experts_or_the_sequence),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
