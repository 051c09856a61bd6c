/* Faster hardware does not make a layout slower: 1,000 random pairs of a layout and a part of the hardware that gets
 * faster, each priced twice, may differ by 0.5 % in the wrong direction. With its partition kept, no layout here does.
 * One pair in two hundred may be worse, for these reasons: a partition with a lower mark (price_stages.c) may have more
 * bubble; a pass gets shorter, and hides less of what ZeRO-2 and 3 send, while the schedule is as long as before; and
 * time lost to a slow host is spread evenly over passes. */
#include "harness/question.h"

#include "engine/base/rng.h"
#include "planner/price/price_private.h"
#include "planner/search/search_private.h"

enum { FASTER = RUNS(25, 3), LAYOUTS = 20, TRIES = 100000 };

/* What gets faster, by a factor above 1. */
typedef void (*Speed)(Hardware *h, double factor);

static void faster_domain(Hardware *h, double x)
{
    h->scale_up_achieved_gb_s *= x;
    h->scale_up_latency_us /= x;
    h->scale_up_issue_us /= x;
}

static void faster_network(Hardware *h, double x)
{
    h->scale_out_achieved_gb_s *= x;
    h->scale_out_latency_us /= x;
    h->scale_out_issue_us /= x;
}

static void less_crowd(Hardware *h, double x)
{
    HardwareCurve *c = &h->scale_out_crowd;
    for (int i = 0; i < c->n; i++) c->at[i].tflops += (1 - 1 / x) * (1 - c->at[i].tflops);
}

static void faster_memory(Hardware *h, double x) { h->memory_achieved_gb_s *= x; }

static void faster_products(Hardware *h, double x)
{
    static const HardwareDtype types[] = { HARDWARE_F32, HARDWARE_BF16, HARDWARE_FP8 };
    for (int w = 0; w < WORK_COUNT; w++) {
        for (int d = 0; d < 3 && work_has_rate((OpWork)w); d++) {
            HardwareCurve *c = hardware_curve(h, (OpWork)w, types[d]);
            for (int i = 0; i < c->n; i++) c->at[i].tflops *= x;
        }
    }
}

static const Speed speeds[] = { faster_domain, faster_network, less_crowd, faster_memory,
                                faster_products };
enum { SPEEDS = sizeof speeds / sizeof *speeds };

/* Some legal layout, by its number. */
static bool draw_layout(const Question *q, const SearchAxes *axes, int64_t number, PlanLayout *l)
{
    int64_t outer = search_combinations(axes, 0, SEARCH_OUTER);
    int64_t inner = search_combinations(axes, SEARCH_OUTER, SEARCH_AXES);
    double a = rng_uniform(1, 9, (uint64_t)(2 * number));
    double b = rng_uniform(1, 9, (uint64_t)(2 * number + 1));
    int buffers = 0;
    return search_decode_outer(&q->request, axes, (int64_t)(a * (double)outer), l, &buffers) &&
           search_decode_inner(&q->request, axes, (int64_t)(b * (double)inner), l) &&
           planner_legal(q->planner, l) == OK;
}

typedef struct Count {
    int pairs, slower; /* by more than 0.5 % */
    int kept;          /* slower with the partition of the slower hardware */
} Count;

static double slower_by(Planner *before, Planner *after, const PlanLayout *l)
{
    PlanPrice price[2];
    CHECK_OK(planner_price(before, l, &price[0]));
    CHECK_OK(planner_price(after, l, &price[1]));
    return price[1].step_s / price[0].step_s - 1;
}

static void compare(Question *q, Planner *faster, const PlanLayout *l, Count *n)
{
    double more = slower_by(q->planner, faster, l);
    n->pairs++;
    if (!(more > 0.005)) return;
    n->slower++;
    PlanLayout same = *l;
    Layout partition;
    const char *text = NULL;
    CHECK_OK(planner_partition(q->planner, l, &q->arena, &text));
    CHECK_OK(layout_parse(text, price_stage_count(l), (int)q->config.model_layers, &q->arena,
                          &partition));
    same.partition = &partition;
    n->kept += slower_by(q->planner, faster, &same) > 0.005;
    printf("%s pp %d vpp %d ep %d cp %d zero %d recompute %u: %+.2f %%\n", l->schedule->name, l->pp,
           l->vpp, l->ep, l->cp, l->zero, l->recompute, 100 * more);
}

static void compare_model(const char *model, const char *gpu, int64_t gpus, const char *stack,
                          uint64_t seed, Count *count)
{
    const char *batch = gpus < 100 ? "train.batch=96" : "train.batch=1536";
    const char *set[] = { batch, "run.compute=bf16", "train.micro_batch=1" };
    Question q;
    SearchAxes axes = { 0 };
    int64_t number = (int64_t)seed * TRIES;
    question_load(&q, model, gpu, gpus, stack, set, 3);
    question_open(&q);
    search_axes_fill(&q.request, &axes);
    for (int k = 0; k < FASTER; k++) {
        Hardware h = q.hardware;
        PlanRequest request = q.request;
        Planner *faster = NULL;
        request.hardware = &h;
        speeds[(size_t)k % SPEEDS](&h, 1 + 2 * rng_uniform(2, seed, (uint64_t)k));
        CHECK_OK(planner_make(&request, &faster));
        for (int n = 0; n < LAYOUTS;) {
            PlanLayout l;
            if (!draw_layout(&q, &axes, number++, &l)) continue;
            compare(&q, faster, &l, count);
            n++;
        }
        planner_free(faster);
    }
    question_close(&q);
}

static void faster_hardware_never_makes_a_layout_slower(void **state)
{
    (void)state;
    Count n = { 0 };
    compare_model("moe-1t", "mi300x", 768, "switchyard,list=0", 1, &n);
    compare_model("deepseek-v2-lite", "h200", 48, "primus,balance=1", 2, &n);
    CHECK_INT(n.pairs, 2 * FASTER * LAYOUTS);
    CHECK_INT(n.kept, 0);
    CHECK(200 * n.slower <= n.pairs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(faster_hardware_never_makes_a_layout_slower),
    };
    return TEST_RUN(tests);
}
