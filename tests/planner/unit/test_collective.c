/* Exchanges by hand: a domain of 8 GPUs of 400 GB/s, 10 us and 1 us more; a NIC each of 40 GB/s, 22
 * us and 1 us more under one leaf of 64 GPUs, half of that rate and 30 us beyond. */
#include "harness/test.h"

#include "kernels/exchange/exchange.h"
#include "planner/price/collective.h"

static Hardware hardware(HardwareFabric fabric)
{
    return (Hardware){ .name = "a.yaml",
                       .scale_up_fabric = fabric,
                       .scale_up_gpus = 8,
                       .scale_up_achieved_gb_s = 400,
                       .scale_up_latency_us = 10,
                       .scale_up_issue_us = 1,
                       .scale_out_rails = 8,
                       .scale_out_achieved_gb_s = 40,
                       .scale_out_latency_us = 20,
                       .scale_out_issue_us = 1,
                       .scale_out_tiers = { 2, { { 64, 1, 2 }, { 512, 0.5, 10 } } } };
}

static CollectiveCost cost_of(const Hardware *h, CollectiveKind kind, int64_t ranks, int64_t local,
                              double bytes)
{
    CollectiveCost c = { 0 };
    CHECK_OK(collective_cost(h, kind, &(CollectiveGroup){ ranks, local, 0 }, bytes, &c));
    return c;
}

static void one_rank_exchanges_nothing(void **state)
{
    (void)state;
    Hardware h = hardware(FABRIC_SWITCH);
    for (int k = COLLECTIVE_ALL_REDUCE; k <= COLLECTIVE_ALL_TO_ALL; k++) {
        CollectiveCost c = cost_of(&h, (CollectiveKind)k, 1, 1, 1e9);
        CHECK_NEAR(c.s, 0, 0);
        CHECK_NEAR(c.up_bytes + c.out_bytes, 0, 0);
    }
}

/* 800 MB: 7/8 of it leave each GPU, in 1.75 ms, after 10 + 6 us. */
static void inside_a_domain_it_is_the_bytes_that_leave_over_the_rate(void **state)
{
    (void)state;
    Hardware h = hardware(FABRIC_SWITCH);
    CollectiveCost c = cost_of(&h, COLLECTIVE_ALL_GATHER, 8, 8, 800e6);
    CHECK_NEAR(c.s, 1.75e-3 + 16e-6, 1e-12);
    CHECK_NEAR(c.latency_s, 16e-6, 1e-12);
    CHECK_NEAR(c.up_bytes, 700e6, 1e-3);
    CHECK_NEAR(c.out_bytes, 0, 0);
    CHECK_NEAR(cost_of(&h, COLLECTIVE_REDUCE_SCATTER, 8, 8, 800e6).s, c.s, 0);
    CHECK_NEAR(cost_of(&h, COLLECTIVE_ALL_TO_ALL, 8, 8, 800e6).s, c.s, 1e-12);
    CHECK_NEAR(cost_of(&h, COLLECTIVE_ALL_REDUCE, 8, 8, 800e6).s, 2 * c.s, 1e-12);
}

/* Where gathers and reduce-scatters reach 300 of 400 GB/s they alone take longer: 700 MB in 2.333 ms.
 * Between domains the ring leaves through eight NICs, 320 GB/s, or through the domain's 300. */
static void gathers_have_a_rate_of_their_own(void **state)
{
    (void)state;
    Hardware h = hardware(FABRIC_SWITCH);
    double reduced = cost_of(&h, COLLECTIVE_ALL_REDUCE, 8, 8, 800e6).s;
    double far = cost_of(&h, COLLECTIVE_ALL_GATHER, 64, 8, 64e9).s;
    h.scale_up_shard_gb_s = 300;
    CHECK_NEAR(cost_of(&h, COLLECTIVE_ALL_GATHER, 8, 8, 800e6).s, 0.7 / 300 + 16e-6, 1e-12);
    CHECK_NEAR(cost_of(&h, COLLECTIVE_REDUCE_SCATTER, 8, 8, 800e6).s, 0.7 / 300 + 16e-6, 1e-12);
    CHECK_NEAR(cost_of(&h, COLLECTIVE_ALL_TO_ALL, 8, 8, 800e6).s, 1.75e-3 + 16e-6, 1e-12);
    CHECK_NEAR(cost_of(&h, COLLECTIVE_ALL_REDUCE, 8, 8, 800e6).s, reduced, 0);
    CollectiveCost c = cost_of(&h, COLLECTIVE_ALL_GATHER, 64, 8, 64e9);
    CHECK_INT(c.way, COLLECTIVE_RING);
    CHECK_NEAR((c.s - c.latency_s) / (far - c.latency_s), 320.0 / 300, 1e-9);
    h.scale_up_pair_gb_s = 200; /* of two GPUs alone */
    CHECK_NEAR(cost_of(&h, COLLECTIVE_ALL_GATHER, 2, 2, 600e6).s, 0.3 / 200 + 10e-6, 1e-12);
    CHECK_NEAR(cost_of(&h, COLLECTIVE_ALL_GATHER, 8, 8, 800e6).s, 0.7 / 300 + 16e-6, 1e-12);
    h.scale_up_pair_gb_s = 0;
    h.scale_up_fabric = FABRIC_MESH; /* two of eight GPUs have one of seven links */
    CHECK_NEAR(cost_of(&h, COLLECTIVE_ALL_GATHER, 2, 2, 600e6).s, 7 * 0.3 / 300 + 10e-6, 1e-12);
}

/* 8 bytes to all: twice 10 + 6 us the one way, six steps of a tree, 10 + 5 us, the other. */
static void a_small_all_reduce_goes_up_and_down_a_tree(void **state)
{
    (void)state;
    Hardware h = hardware(FABRIC_SWITCH);
    CollectiveCost c = cost_of(&h, COLLECTIVE_ALL_REDUCE, 8, 8, 8);
    CHECK_INT(c.way, COLLECTIVE_TREE);
    CHECK_NEAR(c.s, 15e-6, 1e-9);
    CHECK(cost_of(&h, COLLECTIVE_ALL_REDUCE, 8, 8, 1e9).way != COLLECTIVE_TREE);
}

/* Of 7 links, 4 GPUs of a mesh use 3 to each other: 400 * 3 / 7. */
static void a_group_in_a_mesh_has_the_links_between_its_members(void **state)
{
    (void)state;
    Hardware mesh = hardware(FABRIC_MESH), sw = hardware(FABRIC_SWITCH);
    double want = 12e-6 + 400e6 * 3 / 4 / (400e9 * 3 / 7);
    CHECK_NEAR(cost_of(&mesh, COLLECTIVE_ALL_TO_ALL, 4, 4, 400e6).s, want, 1e-12);
    CHECK_NEAR(cost_of(&mesh, COLLECTIVE_ALL_TO_ALL, 8, 8, 400e6).s,
               cost_of(&sw, COLLECTIVE_ALL_TO_ALL, 8, 8, 400e6).s, 1e-12);
    CHECK_NEAR(collective_send(&mesh, true, 0, 400e6).s, 10e-6 + 7e-3, 1e-12);
    CHECK_NEAR(collective_send(&sw, true, 0, 400e6).s, 10e-6 + 1e-3, 1e-12);
}

/* 16 ranks in two domains, 1.6 GB. Eight rings leave a domain over eight NICs: 1.5 GB over
 * 320 GB/s, after 22 + 14 us. Two-level: 0.1 GB over a NIC, then 1.4 GB over 400 GB/s. */
static void between_domains_the_cheaper_of_rings_and_two_levels_is_taken(void **state)
{
    (void)state;
    Hardware h = hardware(FABRIC_SWITCH);
    CollectiveCost c = cost_of(&h, COLLECTIVE_ALL_GATHER, 16, 8, 1.6e9);
    CHECK_INT(c.way, COLLECTIVE_RING);
    CHECK_NEAR(c.s, 36e-6 + 1.5 / 320, 1e-12);
    CHECK_NEAR(c.out_bytes, 1.5e9 / 8, 1);
    h.scale_up_achieved_gb_s = 4000; /* an inside that costs little */
    c = cost_of(&h, COLLECTIVE_ALL_GATHER, 16, 8, 1.6e9);
    CHECK_INT(c.way, COLLECTIVE_TWO_LEVEL);
    CHECK_NEAR(c.s, 16e-6 + 22e-6 + 0.1 / 40 + 1.4 / 4000, 1e-12);
    CHECK_NEAR(c.out_bytes, 0.1e9, 1);
    CHECK_NEAR(c.up_bytes, 1.4e9, 1);
}

/* 16 ranks: half of what a rank has leaves through its NIC, directly while the rest goes up; few
 * bytes take two levels where the library relays, because a domain is one message instead of eight. Of what
 * goes out 7/8 goes to other rails: the second tier, half of a NIC, lets through 20 * 8/7. */
static void all_to_all_is_direct_when_large_and_two_level_when_small(void **state)
{
    (void)state;
    Hardware h = hardware(FABRIC_SWITCH);
    CHECK_NEAR(cost_of(&h, COLLECTIVE_ALL_TO_ALL, 16, 8, 1.6e9).s, 29e-6 + 0.8 * 7 / 160, 1e-12);
    CHECK_INT(cost_of(&h, COLLECTIVE_ALL_TO_ALL, 64, 8, 64).way, COLLECTIVE_DIRECT);
    h.scale_out_relays = true;
    CollectiveCost c = cost_of(&h, COLLECTIVE_ALL_TO_ALL, 16, 8, 1.6e9);
    CHECK_INT(c.way, COLLECTIVE_DIRECT);
    CHECK_NEAR(c.s, 29e-6 + 0.8 / 40, 1e-12);
    CHECK_NEAR(c.up_bytes, 0.7e9, 1);
    CHECK_NEAR(c.out_bytes, 0.8e9, 1);
    c = cost_of(&h, COLLECTIVE_ALL_TO_ALL, 64, 8, 64);
    CHECK_INT(c.way, COLLECTIVE_TWO_LEVEL);
    CHECK_NEAR(c.latency_s, 16e-6 + 28e-6, 1e-12);
}

/* Between 8 domains an all-to-all reaches a fifth of a NIC; between 4, halfway to 2 in the logarithm, 0.6. An
 * all-gather keeps its order, so it reaches all. */
static void an_all_to_all_reaches_what_the_crowd_leaves(void **state)
{
    (void)state;
    Hardware h = hardware(FABRIC_SWITCH);
    h.scale_out_tiers.n = 1;
    double gather = cost_of(&h, COLLECTIVE_ALL_GATHER, 64, 8, 64e9).s;
    CollectiveCost all = cost_of(&h, COLLECTIVE_ALL_TO_ALL, 64, 8, 64e9);
    CollectiveCost inside = cost_of(&h, COLLECTIVE_ALL_TO_ALL, 8, 8, 64e9);
    h.scale_out_crowd = (HardwareCurve){ 2, { { 2, 1 }, { 8, 0.2 } } };
    CollectiveCost crowd = cost_of(&h, COLLECTIVE_ALL_TO_ALL, 64, 8, 64e9);
    CHECK_NEAR(crowd.s - crowd.latency_s, 5 * (all.s - all.latency_s), 1e-9);
    CHECK_NEAR(crowd.nic_s, 5 * all.nic_s, 1e-9);
    CHECK_NEAR(crowd.latency_s, all.latency_s, 0);
    CHECK_NEAR(cost_of(&h, COLLECTIVE_ALL_TO_ALL, 32, 8, 32e9).nic_s, 24e9 / 40e9 / 0.6, 1e-9);
    CHECK_NEAR(cost_of(&h, COLLECTIVE_ALL_TO_ALL, 8, 8, 64e9).s, inside.s, 0);
    CHECK_NEAR(cost_of(&h, COLLECTIVE_ALL_GATHER, 64, 8, 64e9).s, gather, 0);
}

/* 40 MB take 1 ms alone. Beside 7 flows of 20 MB, 3.5 ms of the NIC, the send has an eighth of it until they end
 * after 4 ms, then all of it for the other half. Flows of 400 MB outlive the send. */
static void a_send_shares_its_nic_with_an_exchange(void **state)
{
    (void)state;
    Hardware h = hardware(FABRIC_SWITCH);
    CollectiveLoad load = { 3.5e-3, 7, 64 };
    CHECK_NEAR(collective_send_beside(&h, false, 64, 40e6, &load).s, 22e-6 + 4.5e-3, 1e-9);
    load.nic_s = 70e-3;
    CHECK_NEAR(collective_send_beside(&h, false, 64, 40e6, &load).s, 22e-6 + 8e-3, 1e-9);
    CHECK_NEAR(collective_send_beside(&h, true, 64, 40e6, &load).s,
               collective_send(&h, true, 64, 40e6).s, 0);
    load.flows = 0;
    CHECK_NEAR(collective_send_beside(&h, false, 64, 40e6, &load).s, 22e-6 + 1e-3, 1e-9);
    /* The send crosses the second tier, half of a NIC, alone: one flow leaves it half of the NIC. */
    load = (CollectiveLoad){ 70e-3, 1, 64 };
    CHECK_NEAR(collective_send_beside(&h, false, 512, 40e6, &load).s, 30e-6 + 2e-3, 1e-9);
    h.scale_out_tiers.at[1].share = 0.25;
    CHECK_NEAR(collective_send_beside(&h, false, 512, 40e6, &load).s, 30e-6 + 4e-3, 1e-9);
}

static void a_group_that_spans_more_gpus_crosses_more_tiers(void **state)
{
    (void)state;
    Hardware h = hardware(FABRIC_SWITCH);
    CHECK_NEAR(collective_send(&h, false, 64, 400e6).s, 22e-6 + 10e-3, 1e-12);
    CHECK_NEAR(collective_send(&h, false, 65, 400e6).s, 30e-6 + 20e-3, 1e-12);
    CHECK_NEAR(collective_send(&h, false, 100000, 400e6).s, 30e-6 + 20e-3, 1e-12);
    h.scale_out_rails = 4; /* two GPUs share a NIC */
    CHECK_NEAR(collective_send(&h, false, 64, 400e6).s, 22e-6 + 20e-3, 1e-12);
    CollectiveCost near, far;
    CHECK_OK(
        collective_cost(&h, COLLECTIVE_ALL_REDUCE, &(CollectiveGroup){ 8, 1, 64 }, 1e9, &near));
    CHECK_OK(
        collective_cost(&h, COLLECTIVE_ALL_REDUCE, &(CollectiveGroup){ 8, 1, 512 }, 1e9, &far));
    CHECK_NEAR(far.s - far.latency_s, 2 * (near.s - near.latency_s), 1e-12);
}

/* 2 of 4 experts in 2 groups: the second lies with the first one time in three. */
static void distinct_groups_are_counted_without_repetition(void **state)
{
    (void)state;
    CHECK_NEAR(exchange_distinct(4, 2, 2), 1 + 2.0 / 3, 1e-12);
    CHECK_NEAR(exchange_distinct(8, 8, 4), 4, 1e-12);
    CHECK_NEAR(exchange_distinct(64, 6, 64), 6, 1e-12);
    CHECK_NEAR(exchange_distinct(64, 6, 1), 1, 1e-12);
    double none = 1; /* by the definition: 6 of 64 miss 8 of them */
    for (int i = 0; i < 6; i++) none *= (56.0 - i) / (64.0 - i);
    CHECK_NEAR(exchange_distinct(64, 6, 8), 8 * (1 - none), 1e-12);
}

static CollectiveCost dispatch(const Hardware *h, DispatchKind kind, int64_t limit)
{
    CollectiveCost c = { 0 };
    Dispatch d = { kind,          .tokens = 1000, .row_bytes = 1000,
                   .experts = 16, .top_k = 4,     .domain_limit = limit };
    CHECK_OK(collective_dispatch(h, &(CollectiveGroup){ 16, 8, 0 }, &d, &c));
    return c;
}

/* An expert a rank, two domains: 4 copies of a token each way; 1.9 domains of 2 have one of them.
 */
static void copies_are_sent_once_to_each_domain(void **state)
{
    (void)state;
    Hardware h = hardware(FABRIC_SWITCH);
    double domains = exchange_distinct(16, 4, 2);
    CollectiveCost each = dispatch(&h, DISPATCH_EACH, 0), host = dispatch(&h, DISPATCH_HOST, 0);
    CHECK_NEAR(each.out_bytes, 4e6 * 8 / 16, 1e-3);
    CHECK_NEAR(dispatch(&h, DISPATCH_RANK, 0).out_bytes, each.out_bytes, 1e-3);
    CHECK_NEAR(host.out_bytes, 1e6 * domains / 2, 1e-3);
    CHECK_NEAR(host.up_bytes, 4e6 * 7 / 8, 1e-3);
    CHECK(host.s < each.s);
    CHECK_NEAR(dispatch(&h, DISPATCH_HOST, 1).out_bytes, 1e6 / 2.0, 1e-3);
}

/* What is passed on when all have come takes both links one after the other; all to all is an
 * all-gather of the ranks' tokens. */
static void relays_take_their_links_one_after_the_other(void **state)
{
    (void)state;
    Hardware h = hardware(FABRIC_SWITCH);
    double domains = exchange_distinct(16, 4, 2), out = 1e6 * domains / 2, up = 4e6 * 7 / 8;
    CollectiveCost host = dispatch(&h, DISPATCH_HOST, 0), relay = dispatch(&h, DISPATCH_RELAY, 0);
    CHECK_NEAR(relay.out_bytes, out, 1e-3);
    CHECK_NEAR(relay.up_bytes, up, 1e-3);
    CHECK_NEAR(relay.s, relay.latency_s + out / 40e9 + up / 400e9, 1e-12);
    CHECK_NEAR(host.s, relay.latency_s + out / 40e9, 1e-12);
    CHECK_NEAR(dispatch(&h, DISPATCH_ALL, 0).s, cost_of(&h, COLLECTIVE_ALL_GATHER, 16, 8, 16e6).s,
               1e-12);
}

/* Bytes a second that left each of 4 GPUs in all-to-all of NCCL 2.28, measured. */
static void an_h200_exchanges_as_fast_as_measured(void **state)
{
    (void)state;
    static const double measured[][2] = { { 16e6, 190e9 }, { 256e6, 306e9 }, { 1e9, 339e9 } };
    Arena a;
    Hardware h;
    CHECK_OK(arena_init(&a, "test", MEM_HOST, (size_t)1 << 24));
    CHECK_OK(hardware_load(&h, &a, "h200"));
    for (size_t i = 0; i < sizeof measured / sizeof *measured; i++) {
        CollectiveCost c = cost_of(&h, COLLECTIVE_ALL_TO_ALL, 4, 4, measured[i][0] * 4 / 3);
        CHECK_NEAR(c.up_bytes, measured[i][0], 1);
        CHECK_NEAR(c.up_bytes / c.s / measured[i][1], 1, 0.13);
    }
    arena_free(&a);
}

static void groups_and_routings_that_cannot_be_are_refused(void **state)
{
    (void)state;
    Hardware h = hardware(FABRIC_SWITCH);
    CollectiveCost c;
    static const struct {
        CollectiveGroup g;
        const char *part;
    } cases[] = {
        { { 0, 1, 0 }, "a group of 0 ranks" },
        { { 12, 8, 0 }, "12 ranks cannot have 8 in each domain" },
        { { 16, 16, 0 }, "has 16 ranks in each domain, a domain of a.yaml holds 8" },
        { { 16, 8, 8 }, "a group of 16 ranks cannot lie within 8 GPUs" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECK_FAILS(collective_cost(&h, COLLECTIVE_ALL_REDUCE, &cases[i].g, 1, &c), ERR_ARG,
                    cases[i].part);
    }
    Dispatch d = { .tokens = 1, .row_bytes = 1, .experts = 12, .top_k = 2 };
    const CollectiveGroup g = { 8, 8, 0 };
    CHECK_FAILS(collective_dispatch(&h, &g, &d, &c), ERR_ARG, "12 experts do not divide over 8");
    d.top_k = 13;
    CHECK_FAILS(collective_dispatch(&h, &g, &d, &c), ERR_ARG, "cannot take 13 of 12 experts");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(one_rank_exchanges_nothing),
        TEST(inside_a_domain_it_is_the_bytes_that_leave_over_the_rate),
        TEST(gathers_have_a_rate_of_their_own),
        TEST(a_small_all_reduce_goes_up_and_down_a_tree),
        TEST(a_group_in_a_mesh_has_the_links_between_its_members),
        TEST(between_domains_the_cheaper_of_rings_and_two_levels_is_taken),
        TEST(all_to_all_is_direct_when_large_and_two_level_when_small),
        TEST(an_all_to_all_reaches_what_the_crowd_leaves),
        TEST(a_send_shares_its_nic_with_an_exchange),
        TEST(a_group_that_spans_more_gpus_crosses_more_tiers),
        TEST(distinct_groups_are_counted_without_repetition),
        TEST(copies_are_sent_once_to_each_domain),
        TEST(relays_take_their_links_one_after_the_other),
        TEST(an_h200_exchanges_as_fast_as_measured),
        TEST(groups_and_routings_that_cannot_be_are_refused),
    };
    return TEST_RUN(tests);
}
