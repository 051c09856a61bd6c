/* interval: prices layouts again with each input worse than its file says. */
#include "planner/search/interval.h"

#include "planner/stack/stack.h"

#include <math.h>

const char *const interval_names[INTERVAL_INPUTS] = { "products", "attention", "memory", "links",
                                                      "host",     "stack",     "spread" };

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

/* The sections of a GPU's file that belong to an input. */
static const char *const sections[INTERVAL_INPUTS] = {
    [INTERVAL_PRODUCTS] = "gemm|gemm_mixed|head|grouped|grouped_input|grouped_weight|"
                          "own_gemm|own_grouped",
    [INTERVAL_ATTENTION] = "attention|attention_backward|attention_ordered|"
                           "attention_plain|attention_plain_backward|own_attention",
    [INTERVAL_MEMORY] = "memory",
    [INTERVAL_LINKS] = "scale_up|scale_out",
    [INTERVAL_HOST] = "host",
};

/* Makes the rates of one input worse. */
static void make_worse(int input, Hardware *h, PlanStack *stack)
{
    HardwareRates rates[HARDWARE_SECTIONS_MAX];
    const int n = hardware_bases(h, rates);
    for (int i = 0; i < n && sections[input] != NULL; i++) {
        if (text_word_index(sections[input], rates[i].section) < 0) continue;
        hardware_slow(h, rates[i].section, 1 + rate_off[rates[i].basis]);
    }
    if (input != INTERVAL_STACK) return;
    const HardwareBasis basis = stack_basis(stack, h);
    stack->slower = rate_off[basis], stack->larger = bytes_off[basis];
}

/* Prices all layouts with one input worse, or (INTERVAL_INPUTS) as they are. */
static Status price_all(const PlanRequest *q, int input, const PlanLayout *const *l, int n,
                        PlanPrice *price)
{
    Hardware h = *q->hardware;
    PlanStack stack = *q->stack;
    Planner *p = NULL;
    if (input < INTERVAL_INPUTS) make_worse(input, &h, &stack);
    Config config = *q->config;
    if (input == INTERVAL_SPREAD) config.plan_spread *= 1 + spread_off;
    const PlanRequest worse = { &config, &h, &stack, q->gpus };
    Status s = planner_make(&worse, &p);
    for (int i = 0; s == OK && i < n; i++) s = planner_price(p, l[i], &price[i]);
    planner_free(p);
    return s;
}

Status plan_intervals(const PlanRequest *q, const PlanLayout *const *l, int n, PlanInterval *out)
{
    Arena a = { 0 };
    PlanPrice *price = NULL, *worse = NULL;
    TRY(arena_reserve(&a, "intervals", (size_t)1 << 30));
    Status s = ARENA_NEW(&a, n, &price);
    if (s == OK) s = ARENA_NEW(&a, n, &worse);
    if (s == OK) s = price_all(q, INTERVAL_INPUTS, l, n, price);
    for (int k = 0; s == OK && k < n; k++) out[k] = (PlanInterval){ 0 };
    for (int i = 0; s == OK && i < INTERVAL_INPUTS; i++) {
        s = price_all(q, i, l, n, worse);
        for (int k = 0; s == OK && k < n; k++) {
            double more = worse[k].peak_bytes / price[k].peak_bytes - 1;
            out[k].by[i] = fmax(0, worse[k].step_s / price[k].step_s - 1);
            out[k].time = hypot(out[k].time, out[k].by[i]);
            out[k].bytes = fmax(out[k].bytes, more);
        }
    }
    arena_free(&a);
    return s;
}
