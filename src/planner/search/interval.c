/* interval: prices layouts again with each input worse than its file says. */
#include "planner/search/interval.h"

#include "planner/stack/stack.h"

#include <math.h>
#include <string.h>

const char *const interval_names[INTERVAL_INPUTS] = { "products", "attention", "memory",
                                                      "links",    "host",      "stack",
                                                      "spread",   "balance",   "options" };

/* By how much numbers are off, by where they are from. Measured: our plans of layouts on H200s. Published and assumed:
 * the spread of the scoreboard's runs (docs/reference/planning.md). Of our own bytes only those of libraries are not
 * counted; with communicators they were up to twice what the stack's sheet has. */
static const double rate_off[BASES] = {
    [BASIS_MEASURED] = 0.03, [BASIS_PUBLISHED] = 0.10, [BASIS_ASSUMED] = 0.25
};
static const double bytes_off[BASES] = {
    [BASIS_MEASURED] = 0.50, [BASIS_PUBLISHED] = 0.10, [BASIS_ASSUMED] = 0.20
};

/* The spread of GPUs in one cluster was up to 22 % where it was 8 % on average (arXiv:2208.11035). */
static const double spread_off = 22.0 / 8 - 1;

/* Rows of the busiest rank over the mean that a router may reach; 1: its imbalance is known. */
static double least_balanced(const Config *c)
{
    const bool balanced = c->moe_aux_loss > 0 || c->moe_bias_rate > 0;
    const double most = balanced ? INTERVAL_BALANCED : INTERVAL_UNBALANCED;
    if (c->moe_forced_balance || c->plan_imbalance != 1) return 1;
    return c->moe_capacity > 0 ? fmin(most, fmax(1, c->moe_capacity)) : most;
}

/* The sections of a GPU's file that belong to an input. */
static const char *const sections[INTERVAL_INPUTS] = {
    [INTERVAL_PRODUCTS] = "gemm|gemm_mixed|delta|head|grouped|grouped_input|grouped_weight|"
                          "own_gemm|own_grouped",
    [INTERVAL_ATTENTION] = "attention|attention_backward|attention_ordered|"
                           "attention_plain|attention_plain_backward|own_attention|"
                           "attention_kernels",
    [INTERVAL_MEMORY] = "memory",
    [INTERVAL_LINKS] = "scale_up|scale_out",
    [INTERVAL_HOST] = "host",
};

/* Options of stacks that make a step faster or slower. They are 0 or 1, and flash is 2 or 3. */
static const char *const options[] = { "deepep",     "graphs",          "sync_free",     "balance",
                                       "tp_overlap", "fused_moe",       "loss_fusion",   "compiled",
                                       "flash",      "turbo_attention", "legacy_grouped" };
enum { OPTIONS = sizeof options / sizeof *options };

/* What is priced: one input worse (an IntervalInput), all as it is, or links better. */
enum { AS_IT_IS = INTERVAL_INPUTS, BETTER_LINKS };

/* An option set the other way than it is on this GPU and for this model. */
static SheetGiven other_way(const PlanStack *stack, const PlanInputs *in, const char *option)
{
    Sheet sheet;
    stack_sheet(stack, in, &sheet);
    double value = sheet.row[sheet_find(&sheet, option)].value;
    return (SheetGiven){ option, value > 1 ? 5 - value : 1 - value, "", "the other way" };
}

static bool is_assumed_network(const HardwareRates *r)
{
    return r->basis == BASIS_ASSUMED && strcmp(r->section, "scale_out") == 0;
}

/* Changes the rates of one input. */
static void change_input(int what, Hardware *h, PlanStack *stack)
{
    HardwareRates rates[HARDWARE_SECTIONS_MAX];
    const bool better = what == BETTER_LINKS;
    const int n = hardware_bases(h, rates), input = better ? INTERVAL_LINKS : what;
    for (int i = 0; i < n && sections[input] != NULL; i++) {
        if (text_word_index(sections[input], rates[i].section) < 0) continue;
        double slower = 1 + rate_off[rates[i].basis], faster = slower;
        if (is_assumed_network(&rates[i]))
            slower = 1 / INTERVAL_NETWORK_LEAST, faster = INTERVAL_NETWORK_MOST;
        hardware_slow(h, rates[i].section, better ? 1 / faster : slower);
    }
    if (input != INTERVAL_STACK) return;
    const HardwareBasis basis = stack_basis(stack, h);
    stack->slower = rate_off[basis], stack->larger = bytes_off[basis];
}

/* Prices all layouts with one input changed, or an option (NULL: none). */
static Status price_all(const PlanRequest *q, int what, const SheetGiven *option,
                        const PlanLayout *const *l, int n, PlanPrice *price)
{
    Hardware h = *q->hardware;
    PlanStack stack = *q->stack;
    Planner *p = NULL;
    if (option != NULL)
        stack.given.at[stack.given.n++] = *option;
    else if (what != AS_IT_IS)
        change_input(what, &h, &stack);
    Config config = *q->config;
    if (what == INTERVAL_SPREAD) config.plan_spread *= 1 + spread_off;
    if (what == INTERVAL_BALANCE) config.plan_imbalance *= least_balanced(&config);
    const PlanRequest worse = { &config, &h, &stack, q->gpus };
    Status s = planner_make(&worse, &p);
    for (int i = 0; s == OK && i < n; i++) s = planner_price(p, l[i], &price[i]);
    planner_free(p);
    return s;
}

/* Adds what the step would be, over this one, with an option set the other way. */
static void add_option(PlanInterval *out, const SheetGiven *option, double step)
{
    out->by[INTERVAL_OPTIONS] = hypot(out->by[INTERVAL_OPTIONS], fmax(0, step - 1));
    out->time = hypot(out->time, fmax(0, step - 1));
    out->faster = hypot(out->faster, fmax(0, 1 / step - 1));
    if (out->option.name != NULL && fabs(log(step)) <= fabs(log(out->option_step))) return;
    out->option = *option, out->option_step = step;
}

Status plan_intervals(const PlanRequest *q, const PlanLayout *const *l, int n, PlanInterval *out)
{
    Arena a = { 0 };
    HardwareRates rates[HARDWARE_SECTIONS_MAX];
    bool assumed = false;
    PlanPrice *price = NULL, *worse = NULL;
    TRY(arena_reserve(&a, "intervals", (size_t)1 << 30));
    PlanInputs in = { 0 };
    Config alone = *q->config; /* of one stage: schedules count theirs in ways of their own */
    alone.mesh_pp = alone.mesh_vpp = 1, alone.mesh_layout = "";
    Status s = plan_inputs(&alone, q->gpus, (InputTokens){ .hardware = q->hardware }, &a, &in);
    if (s == OK) s = ARENA_NEW(&a, n, &price);
    if (s == OK) s = ARENA_NEW(&a, n, &worse);
    if (s == OK) s = price_all(q, AS_IT_IS, NULL, l, n, price);
    for (int i = 0, all = hardware_bases(q->hardware, rates); i < all; i++)
        assumed |= is_assumed_network(&rates[i]) && (double)q->gpus > q->hardware->scale_up_gpus;
    for (int k = 0; s == OK && k < n; k++) out[k] = (PlanInterval){ .assumed = assumed };
    for (int i = 0; s == OK && i < INTERVAL_OPTIONS; i++) {
        s = price_all(q, i, NULL, l, n, worse);
        for (int k = 0; s == OK && k < n; k++) {
            double more = worse[k].peak_bytes / price[k].peak_bytes - 1;
            out[k].by[i] = fmax(0, worse[k].step_s / price[k].step_s - 1);
            out[k].time = hypot(out[k].time, out[k].by[i]);
            if (i != INTERVAL_BALANCE && (i != INTERVAL_LINKS || !assumed))
                out[k].faster = hypot(out[k].faster, out[k].by[i]);
            if (i != INTERVAL_BALANCE) out[k].bytes = fmax(out[k].bytes, more);
        }
    }
    for (int i = 0; s == OK && i < OPTIONS; i++) {
        if (!stack_offers(q->stack, options[i]) || q->stack->given.n == SHEET_GIVEN_MAX) continue;
        const SheetGiven other = other_way(q->stack, &in, options[i]);
        s = price_all(q, AS_IT_IS, &other, l, n, worse);
        for (int k = 0; s == OK && k < n; k++)
            add_option(&out[k], &other, worse[k].step_s / price[k].step_s);
    }
    if (s == OK && assumed) s = price_all(q, BETTER_LINKS, NULL, l, n, worse);
    for (int k = 0; s == OK && assumed && k < n; k++)
        out[k].faster = hypot(out[k].faster, fmax(0, price[k].step_s / worse[k].step_s - 1));
    arena_free(&a);
    return s;
}
