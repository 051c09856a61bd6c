/* plan_verify: writes the commands, runs them one after the other, prints. */
#include "planner/command/plan_verify.h"

#include "engine/base/interrupt.h"
#include "engine/base/log.h"
#include "engine/comm/comm.h"
#include "planner/stack/stack.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What was asked, what came out. */
typedef struct Verify {
    const PlanVerify *asked;
    const PlanAnswer *answer;
    VerifyRun *run;
    int n;
    VerifyFit fit;
} Verify;

Status plan_verify_check(const PlanVerify *v, const PlanQuestion *q, const char *stack)
{
    if (v->layouts == 0) return OK;
    if (!q->search)
        return FAIL(ERR_ARG, "plan: --verify runs the best layouts of a search: add --search");
    if (strncmp(stack, "switchyard", strlen("switchyard")) != 0)
        return FAIL(ERR_ARG, "plan: --verify runs this program, so it cannot verify --stack %.60s",
                    stack);
    if (comm_launched() > 1)
        return FAIL(ERR_ARG, "plan: --verify starts ranks itself: start it without mpirun or srun, "
                             "and give them as --launcher 'mpirun -n N'");
    if (v->ranks > 0 && v->ranks != q->request.gpus)
        return FAIL(ERR_ARG,
                    "plan: --ranks %" PRId64 ": --verify runs layouts of the %" PRId64
                    " GPUs that are planned; plan for %" PRId64 ", or leave out --ranks",
                    v->ranks, q->request.gpus, v->ranks);
    return OK;
}

/* [launcher] program bench step --json --steps N [--ranks N] config settings, then those of the layout. */
static Status command_of(const Verify *v, const SearchRow *row, const char *const *config, int n,
                         Arena *a, ProcessWords *out)
{
    const bool threads = v->asked->launcher == NULL;
    char words[96], ranks[32] = "";
    const char *self = NULL;
    TRY(process_self(a, &self));
    if (!threads) TRY(verify_words(out, a, v->asked->launcher));
    TRY(process_word(out, self));
    if (threads) (void)snprintf(ranks, sizeof ranks, " --ranks %" PRId64, v->answer->request.gpus);
    (void)snprintf(words, sizeof words, "bench step --json --steps %" PRId64 "%s", v->asked->steps,
                   ranks);
    TRY(verify_words(out, a, words));
    for (int i = 0; i < n; i++) TRY(process_word(out, config[i]));
    return verify_settings(&v->answer->config, row, a, out);
}

/* ---- for people ---- */

/* Bytes that were planned for what was measured: without a GPU nothing is in reserve. */
static double planned_bytes(const VerifyRun *run)
{
    const PlanPrice *p = &run->row->price;
    return p->peak_bytes - (run->on_gpu ? 0 : p->memory[PLAN_RESERVE]);
}

static Status print_run(const Verify *v, const VerifyRun *run, Text *out)
{
    char layout[PLAN_LAYOUT_BYTES], spread[48] = "";
    const PlanPrice *p = &run->row->price;
    (void)plan_layout_text(layout, &run->row->layout, p);
    if (run->spread > 1.25) /* such a median says little */
        (void)snprintf(spread, sizeof spread, ", single steps up to %.1f x", run->spread);
    TRY(text_printf(out, "  %3d ", (int)(run->row - v->answer->found.best) + 1));
    if (!run->ran) return text_printf(out, "did not run: %s; %s\n", run->why, layout);
    return text_printf(
        out,
        "%8.3f s planned, %8.3f measured (%+.1f %%%s); %.0f and %.0f tokens/s; %.2f and %.2f GiB; "
        "%s\n",
        p->step_s, run->step_s, 100 * (p->step_s / run->step_s - 1), spread,
        p->tokens_per_s_per_gpu * (double)v->answer->request.gpus, run->tokens_per_s,
        planned_bytes(run) / PLAN_GIB, run->bytes / PLAN_GIB, layout);
}

/* The stack with which a plan takes what was learned: shares of the sheet's rates over the factors. Links have one share:
 * that of the exchange, if there is any, else that of the gradients. */
static Status learned_stack(const Verify *v, Text *out)
{
    static const StackName share[] = { STACK_share_links, STACK_share_compute, STACK_share_grouped,
                                       STACK_share_attention, STACK_share_memory };
    const PlanStack *s = v->answer->request.stack;
    StackValues now;
    double sent = 0;
    for (int i = 0; i < v->n; i++) sent += v->run[i].row->price.part_s[PLAN_EXCHANGE];
    TRY(stack_values(s, &(PlanInputs){ 0 }, &now));
    TRY(text_printf(out, "switchyard"));
    for (int i = 0; i < s->given.n; i++)
        TRY(text_printf(out, ",%s=%.6g", s->given.at[i].name, s->given.at[i].value));
    for (size_t i = 0; i < sizeof share / sizeof *share; i++) {
        const VerifyPart of = i > 0      ? VERIFY_COMPUTE
                              : sent > 0 ? VERIFY_EXCHANGE
                                         : VERIFY_GRADIENTS;
        const double value = now.at[share[i]] / v->fit.factor[of];
        if (value >= 0) TRY(text_printf(out, ",%s=%.4g", stack_names[share[i]], value));
    }
    return OK;
}

/* A row of the new ranking. */
typedef struct Ranked {
    int row; /* of the search */
    double step_s;
} Ranked;

static int by_step(const void *a, const void *b)
{
    const Ranked *x = a, *y = b;
    return x->step_s != y->step_s ? (x->step_s > y->step_s) - (x->step_s < y->step_s)
                                  : x->row - y->row;
}

/* All rows of the search by the corrected plan, without those that did not run. Returns how many. */
static int rank_again(const Verify *v, Ranked *out)
{
    const SearchResult *found = &v->answer->found;
    int n = 0;
    for (int i = 0; i < found->n_best; i++) {
        bool bad = false;
        for (int k = 0; k < v->n; k++) bad |= v->run[k].row == &found->best[i] && !v->run[k].ran;
        if (!bad) out[n++] = (Ranked){ i, verify_step_s(&v->fit, &found->best[i].price) };
    }
    qsort(out, (size_t)n, sizeof *out, by_step);
    return n;
}

static Status print_text(const Verify *v, const Ranked *rank, int n, int top, Text *out)
{
    char layout[PLAN_LAYOUT_BYTES];
    const char *driver = v->answer->request.hardware->gpu_driver;
    const VerifyRun *ran = v->run;
    while (!ran->ran) ran++;
    const VerifyRun *fastest = ran;
    TRY(text_printf(out,
                    "verify      %d layouts ran, %d did not: %" PRId64 " steps, %" PRId64
                    " ranks, each on %s; numbers are those of the rows of the search\n",
                    v->fit.n, v->n - v->fit.n, v->asked->steps, v->answer->request.gpus,
                    ran->machine));
    for (int i = 0; i < v->n; i++) {
        TRY(print_run(v, &v->run[i], out));
        if (v->run[i].ran && v->run[i].step_s < fastest->step_s) fastest = &v->run[i];
    }
    TRY(text_printf(out, "fastest     %d of those that ran",
                    (int)(fastest->row - v->answer->found.best) + 1));
    if (v->run[0].ran) /* the best of the search is always among them */
        TRY(text_printf(out, "; the plan's choice has %.1f %% of its speed",
                        100 * fastest->step_s / v->run[0].step_s));
    TRY(text_printf(out, "\n"));
    if (ran->on_gpu && driver != NULL && strstr(ran->machine, driver) == NULL)
        TRY(text_printf(out, "note        the plan is for %s, the ranks ran on %s\n", driver,
                        ran->machine));
    TRY(text_printf(out, "learned    "));
    for (int k = 0; k < VERIFY_PARTS; k++)
        TRY(text_printf(out, "%s %s x %.3f", k > 0 ? "," : "", verify_part_names[k],
                        v->fit.factor[k]));
    TRY(text_printf(out,
                    "; mean error of step times %.1f %% before, %.1f %% after, of the layouts that "
                    "ran\nrates       plan machines like this one with --stack ",
                    100 * v->fit.before, 100 * v->fit.after));
    TRY(learned_stack(v, out));
    TRY(text_printf(out, "\nbest by the corrected plan, of %d layouts\n", n));
    for (int i = 0; i < n && i < top; i++) {
        const SearchRow *row = &v->answer->found.best[rank[i].row];
        const PlanPrice *p = &row->price;
        TRY(text_printf(out, "  %3d %9.1f tokens/s/GPU %8.2f GiB %8.3f s, was %d  %s\n", i + 1,
                        p->tokens_per_s_per_gpu * p->step_s / rank[i].step_s,
                        p->peak_bytes / PLAN_GIB, rank[i].step_s, rank[i].row + 1,
                        plan_layout_text(layout, &row->layout, p)));
    }
    return OK;
}

/* ---- for programs ---- */

static Status print_json(const Verify *v, const Ranked *rank, int n, Text *out)
{
    TRY(text_json(out, "\"verify\":{\"steps\":%lld,\"runs\":[", (long long)v->asked->steps));
    for (int i = 0; i < v->n; i++) {
        const VerifyRun *run = &v->run[i];
        TRY(text_json(out, i > 0 ? ",{\"row\":%d" : "{\"row\":%d",
                      (int)(run->row - v->answer->found.best)));
        if (run->ran)
            TRY(text_json(out,
                          ",\"machine\":%s,\"planned_s\":%g,\"measured_s\":%g,"
                          "\"tokens_per_s\":%g,\"planned_bytes\":%g,\"measured_bytes\":%g}",
                          run->machine, run->row->price.step_s, run->step_s, run->tokens_per_s,
                          planned_bytes(run), run->bytes));
        else
            TRY(text_json(out, ",\"why\":%s}", run->why));
    }
    TRY(text_printf(out, "],\"factors\":{"));
    for (int k = 0; k < VERIFY_PARTS; k++)
        TRY(text_json(out, k > 0 ? ",%s:%g" : "%s:%g", verify_part_names[k], v->fit.factor[k]));
    TRY(text_printf(out, "},\"stack\":\""));
    TRY(learned_stack(v, out));
    TRY(text_json(out, "\",\"error_before\":%g,\"error_after\":%g,\"ranking\":[", v->fit.before,
                  v->fit.after));
    for (int i = 0; i < n; i++)
        TRY(text_json(out, i > 0 ? ",{\"row\":%d,\"step_s\":%g}" : "{\"row\":%d,\"step_s\":%g}",
                      rank[i].row, rank[i].step_s));
    return text_printf(out, "]}");
}

/* ---- the whole ---- */

Status plan_verify(const PlanVerify *v, const PlanAnswer *r, const char *const *config, int n,
                   bool json, Arena *a, Text *out)
{
    const SearchResult *found = &r->found;
    int chosen[VERIFY_MAX];
    Verify all = { .asked = v, .answer = r };
    Ranked *rank = NULL;
    char layout[PLAN_LAYOUT_BYTES];
    all.n = verify_choose(found->best, found->n_best, (int)v->layouts, chosen);
    TRY(ARENA_ZEROED(a, all.n, &all.run));
    TRY(ARENA_NEW(a, found->n_best, &rank));
    interrupt_catch();
    for (int i = 0; i < all.n; i++) {
        ProcessWords *command = NULL;
        VerifyRun *run = &all.run[i];
        run->row = &found->best[chosen[i]];
        log_info("verify %d of %d: %s", i + 1, all.n,
                 plan_layout_text(layout, &run->row->layout, &run->row->price));
        TRY(ARENA_ZEROED(a, 1, &command));
        TRY(command_of(&all, run->row, config, n, a, command));
        TRY(verify_run(command, v->limit_s, a, run));
        if (!run->ran) log_warn("did not run: %s", run->why);
    }
    verify_fit(all.run, all.n, &all.fit);
    if (all.fit.n == 0)
        return FAIL(ERR_FIT, "plan: none of the %d layouts of --verify ran; the first: %s", all.n,
                    all.n > 0 ? all.run[0].why : "the search found none");
    int ranked = rank_again(&all, rank);
    return json ? print_json(&all, rank, ranked, out) : print_text(&all, rank, ranked, r->top, out);
}
