/* Max-min fair rates by hand, against their definition, and against filling in small steps; ends against the closed
 * form of two classes; all GPUs of a small network against the closed form that prices use. */
#include "harness/test.h"

#include "engine/base/rng.h"
#include "planner/price/collective.h"
#include "planner/price/flows.h"

#include <math.h>

enum { LINKS = 6, CLASSES = 7, NETWORKS = RUNS(400, 40) };

typedef struct Net {
    double link[LINKS];
    FlowClass of[CLASSES];
    Flows flows;
} Net;

static double draw(uint64_t *at) { return rng_uniform(3, 5, (*at)++); }

static void draw_net(Net *n, uint64_t *at)
{
    *n = (Net){ .flows = { .links = 1 + (int)(LINKS * draw(at)),
                           .classes = 1 + (int)(CLASSES * draw(at)) } };
    n->flows.link = n->link, n->flows.of = n->of;
    for (int i = 0; i < n->flows.links; i++) n->link[i] = 1 + 9 * draw(at);
    for (int c = 0; c < n->flows.classes; c++) {
        FlowClass *f = &n->of[c];
        *f = (FlowClass){ .flows = 1 + floor(5 * draw(at)), .bytes = 1 + draw(at) };
        for (int i = 0; i < n->flows.links; i++) {
            if (draw(at) < 0.5) f->link[f->hops++] = i;
        }
        if (f->hops == 0) f->link[f->hops++] = 0;
    }
}

static double load_of(const Net *n, const double *rate, int link)
{
    double sum = 0;
    for (int c = 0; c < n->flows.classes; c++) {
        for (int i = 0; i < n->of[c].hops; i++)
            sum += n->of[c].link[i] == link ? n->of[c].flows * rate[c] : 0;
    }
    return sum;
}

/* Is a link full, and does nobody have more on it than class c? */
static bool holds_back(const Net *n, const double *rate, int c, int link)
{
    if (load_of(n, rate, link) < n->link[link] * (1 - 1e-9)) return false;
    for (int k = 0; k < n->flows.classes; k++) {
        for (int i = 0; i < n->of[k].hops; i++) {
            if (n->of[k].link[i] == link && rate[k] > rate[c] * (1 + 1e-9)) return false;
        }
    }
    return true;
}

/* Rates are max-min fair just if no link is over its rate and each flow has a link that holds it back. */
static void random_networks_are_shared_by_the_definition(void **state)
{
    (void)state;
    uint64_t at = 0;
    for (int k = 0; k < NETWORKS; k++) {
        Net n;
        double rate[CLASSES];
        draw_net(&n, &at);
        flows_share(&n.flows, rate);
        for (int i = 0; i < n.flows.links; i++)
            CHECK(load_of(&n, rate, i) <= n.link[i] * (1 + 1e-9));
        for (int c = 0; c < n.flows.classes; c++) {
            bool held = false;
            for (int i = 0; i < n.of[c].hops; i++)
                held = held || holds_back(&n, rate, c, n.of[c].link[i]);
            CHECK(held);
        }
    }
}

/* The brute force: all rates grow by a small step until a link of theirs is full. */
static void random_networks_are_shared_as_small_steps_fill_them(void **state)
{
    (void)state;
    const double step = 1e-3;
    uint64_t at = 1 << 20;
    for (int k = 0; k < NETWORKS / 10; k++) {
        Net n;
        double rate[CLASSES], grown[CLASSES] = { 0 };
        bool stopped[CLASSES] = { 0 };
        draw_net(&n, &at);
        flows_share(&n.flows, rate);
        for (int round = 0; round < 10000; round++) {
            for (int c = 0; c < n.flows.classes; c++) grown[c] += stopped[c] ? 0 : step;
            for (int c = 0; c < n.flows.classes; c++) {
                for (int i = 0; i < n.of[c].hops; i++)
                    stopped[c] |= load_of(&n, grown, n.of[c].link[i]) >= n.link[n.of[c].link[i]];
            }
        }
        for (int c = 0; c < n.flows.classes; c++) CHECK_NEAR(grown[c], rate[c], 0.05);
    }
}

/* Two links of 10 and 4: the flow over both and the one on the second get 2, the third what is left. */
static void a_flow_over_two_links_gets_the_least_of_both(void **state)
{
    (void)state;
    const double link[] = { 10, 4 };
    double rate[4];
    FlowClass of[] = {
        { 1, 1, 2, { 0, 1 } }, { 1, 1, 1, { 1 } }, { 2, 1, 1, { 0 } }, { 5, 0, 1, { 0 } }
    };
    flows_share(&(Flows){ 2, 4, link, of }, rate);
    CHECK_NEAR(rate[0], 2, 1e-12);
    CHECK_NEAR(rate[1], 2, 1e-12);
    CHECK_NEAR(rate[2], 4, 1e-12);
    CHECK_NEAR(rate[3], 0, 0); /* it has ended */
    of[0].hops = 0;
    flows_share(&(Flows){ 2, 4, link, of }, rate);
    CHECK(isinf(rate[0]));
}

/* The closed form of flows.h, on random pairs of classes on one link. */
static void two_classes_on_a_link_end_by_the_closed_form(void **state)
{
    (void)state;
    uint64_t at = 1 << 21;
    for (int k = 0; k < NETWORKS; k++) {
        double link = 1 + draw(&at), m = 1 + floor(60 * draw(&at)), n = 1 + floor(3 * draw(&at));
        double a = draw(&at), b = a + draw(&at), rate[2], end[2];
        FlowClass of[] = { { m, a, 1, { 0 } }, { n, b, 1, { 0 } } };
        flows_run(&(Flows){ 1, 2, &link, of }, rate, end);
        CHECK_NEAR(end[0], a * (m + n) / link, 1e-9);
        CHECK_NEAR(end[1], (m * a + n * b) / link, 1e-9);
        CHECK_NEAR(of[0].bytes + of[1].bytes, 0, 0);
    }
}

enum { HOSTS = 4, LOCAL = 4, GPUS = HOSTS * LOCAL, PAIRS = GPUS * GPUS };

/* The links of a GPU: its NIC out and in, and its share of the second tier up and down. */
static void add_pair(FlowClass *of, int from, int to)
{
    bool rail = from % LOCAL == to % LOCAL;
    *of = (FlowClass){ 1, 1, rail ? 2 : 4, { from, GPUS + to, 2 * GPUS + from, 3 * GPUS + to } };
}

/* All to all, GPU by GPU, with a second tier that lets through `share`: its rate is collective.c's closed form. */
static void an_all_to_all_of_every_gpu_has_the_rate_of_the_closed_form(void **state)
{
    (void)state;
    static const double shares[] = { 1, 0.7, 0.25 };
    for (int k = 0; k < 3; k++) {
        Hardware h = { .name = "a",
                       .scale_up_gpus = LOCAL,
                       .scale_up_achieved_gb_s = 1e6,
                       .scale_up_fabric = FABRIC_SWITCH,
                       .scale_out_rails = LOCAL,
                       .scale_out_achieved_gb_s = 40,
                       .scale_out_tiers = { 2, { { 64, 1, 0 }, { 512, shares[k], 0 } } } };
        double link[4 * GPUS], rate[PAIRS], end_s[PAIRS], last = 0;
        FlowClass of[PAIRS];
        int n = 0;
        for (int i = 0; i < 4 * GPUS; i++) link[i] = 40e9 * (i < 2 * GPUS ? 1 : shares[k]);
        for (int i = 0; i < PAIRS; i++) {
            if (i / GPUS / LOCAL != i % GPUS / LOCAL) add_pair(&of[n++], i / GPUS, i % GPUS);
        }
        for (int i = 0; i < n; i++) of[i].bytes = 1e9;
        flows_run(&(Flows){ 4 * GPUS, n, link, of }, rate, end_s);
        for (int i = 0; i < n; i++) last = fmax(last, end_s[i]);
        CollectiveCost c = { 0 };
        CHECK_OK(collective_cost(&h, COLLECTIVE_ALL_TO_ALL, &(CollectiveGroup){ GPUS, LOCAL, 0 },
                                 1e9 * GPUS, &c));
        CHECK_NEAR(c.s, last, 1e-6);
        CHECK_NEAR(c.nic_s, last, 1e-6);
        CHECK_NEAR(c.flows, GPUS - LOCAL, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(random_networks_are_shared_by_the_definition),
        TEST(random_networks_are_shared_as_small_steps_fill_them),
        TEST(a_flow_over_two_links_gets_the_least_of_both),
        TEST(two_classes_on_a_link_end_by_the_closed_form),
        TEST(an_all_to_all_of_every_gpu_has_the_rate_of_the_closed_form),
    };
    return TEST_RUN(tests);
}
