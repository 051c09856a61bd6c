/* Stacks, numbers in place of their definitions, what a value is made of. */
#include "harness/arena.h"

#include "planner/stack/stack.h"

static const PlanInputs inputs = { .gpus = 8,
                                   .ep = 4,
                                   .heads = 16,
                                   .head_dim = 128,
                                   .kv_heads = 8,
                                   .hidden = 2048,
                                   .top_k = 6,
                                   .experts = 64,
                                   .tokens = 4096,
                                   .tp = 1,
                                   .routed = 24576,
                                   .sync_s = 5e-5,
                                   .launch_s = 4e-6 };

static PlanStack load(const char *source)
{
    PlanStack s;
    CHECK_OK(stack_load(&s, &arena, source));
    return s;
}

static StackValues values(const PlanStack *s)
{
    StackValues v = { { 0 } };
    CHECK_OK(stack_values(s, &inputs, &v));
    return v;
}

static const char *opened(const PlanStack *s, const char *name, int depth)
{
    Sheet sheet;
    Text t;
    CHECK_OK(text_init(&t, &arena));
    stack_sheet(s, &inputs, &sheet);
    CHECK(sheet_find(&sheet, name) >= 0);
    CHECK_OK(sheet_explain(&sheet, sheet_find(&sheet, name), depth, &t));
    return t.data;
}

/* ---- values ---- */

static void what_a_stack_does_not_define_is_as_in_our_engine(void **state)
{
    (void)state;
    PlanStack s = load("switchyard");
    StackValues v = values(&s);
    CHECK_NEAR(v.at[STACK_keep_moe], -1, 0);
    CHECK(!s.has[STACK_keep_moe] && s.has[STACK_reserve]);
    CHECK_NEAR(v.at[STACK_reserve], 0.75 * 0x1p30, 0);
    CHECK_NEAR(v.at[STACK_wait_step], 5e-5, 0);
    CHECK_NEAR(v.at[STACK_grad_size], 4, 0);
}

/* Chunks of 64 tokens, each with 124,160 bytes (1,940 a token) and 8 bytes a token: of all heads; of what 1 GiB has;
 * of 32 heads where one sequence of them takes more. */
static void gated_delta_nets_keep_their_chunks(void **state)
{
    (void)state;
    PlanStack s = load("switchyard");
    const double cases[][4] = { { 4096, 4096, 1, 1948.0 * 4096 * 16 },
                                { 65536, 4096, 1, 0x1p30 },
                                { 131072, 131072, 0.5, 32 * 1948.0 * 131072 } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        PlanInputs in = inputs;
        StackValues v = { { 0 } };
        in.tokens = cases[i][0], in.sequence = cases[i][1], in.tp = cases[i][2];
        in.delta_heads = i < 2 ? 16 : 64, in.delta_dim = 128;
        CHECK_OK(stack_values(&s, &in, &v));
        CHECK_NEAR(v.at[STACK_workspace], 0.0625 * 0x1p30 + cases[i][3], 1);
    }
}

/* Worked by hand: 2 bytes of 4096 tokens x (hidden + queries + keys + values + output), and 4 bytes a
 * token and head. */
static void a_definition_is_computed_from_the_inputs(void **state)
{
    (void)state;
    PlanStack s = load("primus");
    StackValues v = values(&s);
    CHECK_NEAR(v.at[STACK_keep_attention],
               2.0 * 4096 * (2048 + 2048 + 1024 + 1024 + 2048) + 4.0 * 4096 * 16, 0);
    CHECK_NEAR(v.at[STACK_hide_exchange], 0.75, 0);
    CHECK_NEAR(v.at[STACK_host_moe], 0.6 * 0.0109 * 0.9, 1e-18);
}

static void numbers_behind_the_name_replace_definitions(void **state)
{
    (void)state;
    PlanStack s = load("primus,sync_free=0,launch_tuned=0,share_memory=0.5,sync_free=2");
    StackValues v = values(&s);
    CHECK_NEAR(v.at[STACK_hide_exchange], 0.80, 0); /* the last one counts */
    CHECK_NEAR(v.at[STACK_host_moe], 0.6 * 0.0109, 1e-18);
    CHECK_NEAR(v.at[STACK_share_memory], 0.5,
               0); /* of stack.def, though primus does not define it */
    CHECK(!stack_offers(&s, "sync_free") && stack_offers(&s, "deepep"));
    CHECK(!stack_offers(&s, "hidden_size"));
}

/* Worked by hand: of 7,267 launches of 27 blocks with a second forward, three quarters without it. */
static void stacks_of_nvidia_have_constants_of_their_own(void **state)
{
    (void)state;
    static const char *const names[] = { "torchtitan", "megatron" };
    for (int i = 0; i < 2; i++) {
        PlanStack s = load(names[i]);
        StackValues v = values(&s);
        CHECK_NEAR(v.at[STACK_host_moe], 0.6 * 7267 / 27 * 0.75 * 4e-6, 1e-12);
        CHECK_NEAR(v.at[STACK_reserve], (i == 0 ? 5 : 1.75 + 4 * 0.65) * 0x1p30, 1);
        CHECK_NEAR(v.at[STACK_zero_most], 3, 0);
        CHECK(stack_offers(&s, "deepep") && stack_offers(&s, "graphs"));
    }
    PlanStack plain = load("torchtitan"), flex = load("torchtitan,deepep=1");
    CHECK_NEAR(values(&plain).at[STACK_dispatch], 0, 0);
    CHECK_NEAR(values(&flex).at[STACK_dispatch], 2, 0);
    flex = load("megatron");
    CHECK_NEAR(values(&flex).at[STACK_dispatch], 2, 0);
    CHECK_NEAR(values(&flex).at[STACK_moment_size], -1, 0); /* optimizer.moments */
}

/* Worked by hand: 16 local experts with 6 launches of 4 us each, 22 with 8 bits, behind 0.6 of which the device
 * idles; a wait of 4 ms, 0.7 of it with DeepEP, of which graphs leave 0.4. */
static void a_megatron_layer_waits_for_counts_and_for_launches_of_each_expert(void **state)
{
    (void)state;
    static const struct {
        const char *stack;
        double fp8, wait_s;
    } cases[] = {
        { "megatron", 0, 0.0028 + 16 * 6 * 4e-6 * 0.6 },
        { "megatron", 1, 0.0028 + 16 * 22 * 4e-6 * 0.6 },
        { "megatron,deepep=0", 0, 0.004 + 16 * 6 * 4e-6 * 0.6 },
        { "megatron,graphs=1", 0, 0.0028 * 0.4 + 16 * 6 * 4e-6 * 0.6 },
        { "megatron,sync_free=1", 1, 0 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        PlanStack s = load(cases[i].stack);
        PlanInputs in = inputs;
        StackValues v;
        in.fp8 = cases[i].fp8;
        CHECK_OK(stack_values(&s, &in, &v));
        CHECK_NEAR(v.at[STACK_wait_moe], cases[i].wait_s, 1e-15);
        CHECK_NEAR(v.at[STACK_kernel_s], i == 3 ? 2e-6 : 4e-6, 1e-18);
        CHECK_NEAR(v.at[STACK_hide_exchange], i == 2 ? 0 : 0.4, 0);
    }
}

static void values_that_cannot_be_are_told(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        { "primus,share_compute=0", "stack primus: share_compute is 0, it must be above 0" },
        { "primus,reserve=-1", "stack primus: reserve is -1, it must be at least 0" },
        { "primus,hide_exchange=2", "stack primus: hide_exchange is 2, it must be from 0 to 1" },
        { "torchtitan,again_products=2", "again_products is 2, it must be from 0 to 1" },
        { "primus,dispatch=3",
          "dispatch is 3, it must be 0 (expert), 1 (rank), 2 (host) or below 0" },
        { "primus,recompute=512", "recompute is 512, a sum of pieces is from 0 to 511" },
        { "primus,host_moe_s=1e308,host_moe=-1e308,base_gib=1e308",
          "reserve is inf, it must be finite" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        PlanStack s = load(cases[i][0]);
        StackValues v;
        CHECK_FAILS(stack_values(&s, &inputs, &v), ERR_ARG, cases[i][1]);
    }
}

static void wrong_names_and_numbers_are_told(void **state)
{
    (void)state;
    static const char *const cases[][2] = {
        { "primes", "there is no stack primes: megatron, primus, switchyard, torchtitan are, did "
                    "you mean primus?" },
        { "./mine.yaml", "there is no stack ./mine.yaml: megatron, primus, switchyard, torchtitan "
                         "are; files were removed" },
        { "primus,deeep=1",
          "stack primus: deeep is neither an input nor a definition, did you mean deepep?" },
        { "primus,hidden=1", "hidden is neither" }, /* an input is the configuration's to say */
        { "primus,odd=1", "odd is neither an input nor a definition; it has loss_fusion deepep " },
        { "primus,deepep", "stack primus: deepep is not NAME=NUMBER" },
        { "primus,deepep=", "stack primus: deepep=: a decimal number is expected" },
        { "primus,deepep=1x", "deepep=1x: a decimal number is expected" },
        { "primus,deepep=0x1", "deepep=0x1: a decimal number is expected" },
        { "primus,deepep=1e999", "deepep=1e999: the value is not finite" },
    };
    PlanStack s = { .kind = STACK_OF_COUNT };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK_FAILS(stack_load(&s, &arena, cases[i][0]), ERR_ARG, cases[i][1]);
    CHECK_INT(s.kind, STACK_OF_COUNT);
}

static void stacks_know_whose_gpus_they_run_on(void **state)
{
    (void)state;
    static const struct {
        const char *stack, *gpu;
        bool runs, proven;
    } row[] = {
        { "switchyard", "h200", true, true },   { "switchyard", "mi355x", true, false },
        { "primus", "mi300x", true, true },     { "primus,deepep=0", "h100", false, true },
        { "torchtitan", "mi325x", true, true }, { "torchtitan", "b200", true, true },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        PlanStack s = load(row[i].stack);
        Hardware h;
        CHECK_OK(hardware_load(&h, &arena, row[i].gpu));
        CHECK(stack_is_proven(&s, &h) == row[i].proven);
        if (row[i].runs)
            CHECK_OK(stack_check_gpu(&s, &h));
        else
            CHECK_FAILS(stack_check_gpu(&s, &h), ERR_ARG,
                        "stack primus runs on GPUs of AMD only, and h100 is made by NVIDIA");
        h.gpu_vendor = NULL; /* a file that does not name its maker */
        CHECK_OK(stack_check_gpu(&s, &h));
    }
}

/* ---- what a value is made of ---- */

static void a_value_is_opened_into_what_it_is_made_of(void **state)
{
    (void)state;
    PlanStack s = load("primus,sync_free=3");
    CHECK_TEXT(opened(&s, "worst_rows", 3),
               "worst_rows = sync_free >= 3 ? ep * tokens * min(top_k, experts / ep) : routed = "
               "98,304 rows  "
               "[stage 3 allocates the worst case]\n"
               "  sync_free = 3  [given]\n  ep = 4  [mesh.ep]\n  tokens = 4,096  [a micro-batch on "
               "one rank]\n"
               "  top_k = 6  [moe.top_k]\n  experts = 64  [moe.experts]\n");
    CHECK_TEXT(opened(&s, "worst_rows", 0), "worst_rows = sync_free >= 3 ? ep * tokens * "
                                            "min(top_k, experts / ep) : routed = 98,304 rows  "
                                            "[stage 3 allocates the worst case]\n");
    CHECK_TEXT(opened(&s, "sync_free", 3), "sync_free = 3  [given]\n");
}

/* Of c ? x : y the side that is not taken names nothing, also within brackets and one behind the other. */
static void the_side_that_is_not_taken_is_left_out(void **state)
{
    (void)state;
    PlanStack s = load("primus");
    CHECK_TEXT(opened(&s, "worst_rows", 1),
               "worst_rows = sync_free >= 3 ? ep * tokens * min(top_k, experts / ep) : routed = "
               "24,576 rows  "
               "[stage 3 allocates the worst case]\n"
               "  sync_free = 1  [turbo_sync_free_moe_stage]\n"
               "  routed = 24,576  [tokens x moe.top_k x plan.imbalance]\n");
    const char *text = opened(&s, "hide_exchange", 1);
    CHECK(strstr(text, "  deepep = 1  [use_turbo_deepep]\n  sync_free = 1") != NULL);
    s = load("primus,sync_free=0");
    text = opened(&s, "wait_moe", 1);
    CHECK(strstr(text, "  wait_moe_s = 0.0029 s") != NULL);
    s = load("primus,deepep=0");
    text = opened(&s, "hide_exchange", 1);
    CHECK(strstr(text, "deepep = 0  [given]\n") != NULL && strstr(text, "\n  sync_free") == NULL);
}

static void what_was_opened_is_not_opened_again(void **state)
{
    (void)state;
    PlanStack s = load("primus");
    const char *text = opened(&s, "keep_attention", 3);
    CHECK(strstr(text,
                 "  k_width = mla ? q_width : kv_heads * head_dim = 1,024 elements\n    mla = 0") !=
          NULL);
    CHECK(strstr(text, "  norm_width = mla ? 0 : qk_norm * (q_width + k_width) = 0 elements  "
                       "[heads before their norms]\n") != NULL);
    CHECK(
        strstr(text,
               "    q_width = 2,048 elements  [above]\n    k_width = 1,024 elements  [above]\n") !=
        NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_a_stack_does_not_define_is_as_in_our_engine),
        TEST(gated_delta_nets_keep_their_chunks),
        TEST(a_definition_is_computed_from_the_inputs),
        TEST(numbers_behind_the_name_replace_definitions),
        TEST(stacks_of_nvidia_have_constants_of_their_own),
        TEST(a_megatron_layer_waits_for_counts_and_for_launches_of_each_expert),
        TEST(values_that_cannot_be_are_told),
        TEST(wrong_names_and_numbers_are_told),
        TEST(stacks_know_whose_gpus_they_run_on),
        TEST(a_value_is_opened_into_what_it_is_made_of),
        TEST(the_side_that_is_not_taken_is_left_out),
        TEST(what_was_opened_is_not_opened_again),
    };
    return ARENA_RUN(tests);
}
