/* plan: configurations, and what `switchyard plan` says of them. */
#include "app/options/words.h"
#include "engine/host/cpu.h"
#include "kernels/core/cpu_set.h"
#include "library/handle.h"
#include "planner/answer.h"
#include "planner/stack/stack.h"

/* ---- configurations ---- */

static Status config_open(const char *source, const char *const *settings, int32_t n,
                          SwitchyardConfig **out)
{
    SwitchyardConfig *c = NULL;
    const CpuIsa have = cpu_here().isa, need = op_set_base.isa;
    TRY(library_given("config_open", source, out));
    if (n > 0) TRY(library_given("config_open", settings, out));
    if (have < need)
        return FAIL(ERR_UNSUPPORTED, "this library needs a processor with %s, this one has %s",
                    cpu_isa_names[need], cpu_isa_names[have]);
    TRY(library_make("configuration", sizeof *c, 1, &c));
    Status s = config_load(&c->config, &c->arena, source, settings, n);
    if (s == OK) s = text_init(&c->yaml, &c->arena);
    if (s == OK) s = config_print(&c->config, &c->yaml);
    if (s == OK) *out = c;
    if (s != OK) library_free(c);
    return s;
}
LIBRARY_FUNCTION(config_open,
                 (const char *source, const char *const *settings, int32_t n,
                  SwitchyardConfig **out),
                 (source, settings, n, out))

void switchyard_config_close(SwitchyardConfig *c) { library_free(c); }

static Status config_text(const SwitchyardConfig *c, const char **out)
{
    TRY(library_given("config_text", c, out));
    *out = c->yaml.data;
    return OK;
}
LIBRARY_FUNCTION(config_text, (const SwitchyardConfig *c, const char **out), (c, out))

/* ---- plans ---- */

/* The answer must stay where it is while the planner lives. */
typedef struct PlanHandle {
    Arena arena;
    SwitchyardPlan plan;
    Hardware gpu;
    PlanStack stack;
    PlanAnswer answer;
    Text json;
} PlanHandle;

/* What `switchyard plan CONFIG --cluster NAME:GPUS [--search]` asks. */
static Status answer(PlanHandle *h, const Config *c, const char *cluster, bool search)
{
    const char *gpu = NULL;
    PlanQuestion q = { .request = { .config = c, .hardware = &h->gpu, .stack = &h->stack },
                       .search = search,
                       .top = 1 };
    TRY(words_cluster(cluster, &h->arena, &gpu, &q.request.gpus));
    TRY(hardware_load(&h->gpu, &h->arena, gpu));
    TRY(stack_load(&h->stack, &h->arena, "switchyard"));
    TRY(stack_check_gpu(&h->stack, &h->gpu));
    TRY(plan_answer(&q, &h->arena, &h->answer));
    if (search && h->answer.found.n_best == 0) return plan_answer_fits(&h->answer, &h->arena);
    return OK;
}

static Status fill_plan(PlanHandle *h)
{
    PlanReport report;
    const PlanPrice *p = &h->answer.price;
    const int64_t gpus = h->answer.request.gpus;
    TRY(plan_answer_report(&h->answer, &h->arena, &report));
    report.stack = "switchyard";
    TRY(text_init(&h->json, &h->arena));
    TRY(plan_report_json(&report, &h->json));
    h->plan = (SwitchyardPlan){ .gpus = gpus,
                                .fits = p->fits,
                                .step_s = p->step_s,
                                .tokens_per_s = p->tokens_per_s_per_gpu * (double)gpus,
                                .tokens_per_s_per_gpu = p->tokens_per_s_per_gpu,
                                .mfu = p->mfu,
                                .peak_bytes = p->peak_bytes,
                                .room_bytes = plan_room_bytes(&h->answer.request),
                                .json = h->json.data };
    return OK;
}

/* The planner counts in an arena of its own, which nobody needs behind the answer. */
static Status plan_open(const SwitchyardConfig *c, const char *cluster, int32_t search,
                        SwitchyardPlan **out)
{
    PlanHandle *h = NULL;
    TRY(library_given("plan_open", c, cluster));
    TRY(library_given("plan_open", c, out));
    TRY(library_make("plan", sizeof *h, 32, &h));
    Status s = answer(h, &c->config, cluster, search != 0);
    if (s == OK) s = fill_plan(h);
    plan_answer_free(&h->answer);
    if (s == OK) *out = &h->plan;
    if (s != OK) library_free(h);
    return s;
}
LIBRARY_FUNCTION(plan_open,
                 (const SwitchyardConfig *c, const char *cluster, int32_t search,
                  SwitchyardPlan **out),
                 (c, cluster, search, out))

/* The plan lies in its handle, behind the arena. */
void switchyard_plan_close(SwitchyardPlan *p)
{
    if (p != NULL) library_free((char *)p - offsetof(PlanHandle, plan));
}
