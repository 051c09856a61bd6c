/* `switchyard plan --verify` on this machine's cores: a tiny model over two ranks, and layouts that fail or hang. And
 * days of a training, as a user reads them. */
#include "harness/program.h"

#include <cjson/cJSON.h>
#include <math.h>

#define TINY                                                                                       \
    "plan", "quickstart", "model.layers=2", "model.vocab=512", "data.sequence=32",                 \
        "train.batch=4", "train.micro_batch=1", "--cluster", "cpu:2", "--search",                  \
        "search.recompute=[none]", "search.micro_batch=[1]", "search.cp=[1]", "search.vpp=[1]",    \
        "search.schedule=[1f1b]"

static const cJSON *member(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    if (item == NULL) fail_msg("no member %s", key);
    return item;
}

static double number(const cJSON *object, const char *key)
{
    return member(object, key)->valuedouble;
}

static cJSON *parsed(const Outcome *o)
{
    CHECK_EXIT(*o, 0);
    cJSON *root = cJSON_Parse(o->out);
    if (root == NULL) fail_msg("no JSON: %s", o->out);
    return root;
}

static double share_of(const char *stack, const char *name)
{
    const char *at = NULL; /* the last one counts */
    for (const char *next = stack; (next = strstr(next, name)) != NULL; next++) at = next;
    return at == NULL ? (double)NAN : strtod(at + strlen(name) + 1, NULL);
}

/* A plan with the printed stack has its compute times the factor. */
static void check_stack_is_taken(Lab *lab, const cJSON *verify, const char *given)
{
    const char *stack = member(verify, "stack")->valuestring;
    const double f = number(member(verify, "factors"), "compute");
    const double links = number(member(verify, "factors"), "exchange");
    const double was = strstr(given, "0.5") != NULL ? 0.5 : 1;
    CHECK_NEAR(share_of(stack, "share_compute") * f / was, 1, 1e-3);
    CHECK_NEAR(share_of(stack, "share_memory") * f / was, 1, 1e-3);
    CHECK_NEAR(share_of(stack, "share_links") * links, 1, 1e-3);
    CHECK(was == 1 ? isnan(share_of(stack, "share_grouped"))
                   : fabs(share_of(stack, "share_grouped") * f / 0.5 - 1) < 1e-3);
    double compute[2];
    for (int i = 0; i < 2; i++) {
        Outcome o = RUN(lab, "verify", "plan", "quickstart", "--cluster", "cpu:1", "--json",
                        "--stack", i == 0 ? given : stack);
        cJSON *plan = parsed(&o);
        compute[i] = number(member(plan, "time"), "compute");
        cJSON_Delete(plan);
    }
    CHECK_NEAR(compute[1] / compute[0] / f, 1, 0.1); /* starts of kernels stay */
}

/* Every run has its times, the factors say all of them, and the ranking has every row once, by time. */
static void layouts_run_and_rank_again(void **state)
{
    Outcome o = RUN(*state, "verify", TINY, "--verify", "3", "--ranks", "2", "--steps", "2",
                    "--top", "4", "--json", "search.zero=[1]");
    cJSON *plan = parsed(&o);
    const cJSON *verify = member(plan, "verify"), *at = NULL;
    CHECK_INT(cJSON_GetArraySize(member(verify, "runs")), 3);
    cJSON_ArrayForEach(at, member(verify, "runs"))
    {
        const cJSON *row = cJSON_GetArrayItem(member(plan, "best"), (int)number(at, "row"));
        if (row != NULL) CHECK_NEAR(number(at, "planned_s"), number(row, "step_s"), 1e-12);
        CHECK(number(at, "measured_s") > 0 && number(at, "measured_bytes") > 0);
        CHECK_NEAR(number(at, "tokens_per_s") * number(at, "measured_s") / 128, 1, 1e-6);
        CHECK(number(at, "planned_bytes") > number(at, "measured_bytes"));
    }
    cJSON_ArrayForEach(at, member(verify, "factors")) CHECK(at->valuedouble > 0);
    check_stack_is_taken(*state, verify, "switchyard");
    const char *given = "switchyard,share_compute=0.5,share_grouped=0.5,share_memory=0.5";
    o = RUN(*state, "verify", TINY, "--verify", "2", "--steps", "2", "--json", "search.zero=[1]",
            "--stack", given);
    cJSON *slower = parsed(&o);
    check_stack_is_taken(*state, member(slower, "verify"), given);
    cJSON_Delete(slower);
    double last = 0;
    cJSON_ArrayForEach(at, member(verify, "ranking"))
    {
        CHECK(number(at, "step_s") >= last);
        last = number(at, "step_s");
    }
    CHECK(cJSON_GetArraySize(member(verify, "ranking")) >= 3);
    cJSON_Delete(plan);
}

/* EP2 says that it cannot, a pipeline hangs, one rank's experts run: the first two are named and not ranked. */
static void a_layout_that_fails_is_named_and_the_others_go_on(void **state)
{
    Lab *lab = *state;
    lab_write_text(lab, lab_path(lab, "start.sh"),
                   "case \"$*\" in\n"
                   "*mesh.ep=2*) echo 'error: the engine has no experts today' >&2; exit 3;;\n"
                   "*mesh.pp=2*) sleep 1000;;\n"
                   "esac\n"
                   "exec \"$@\" --ranks 2\n");
    Outcome o = RUN(lab, "fails", TINY, "search.zero=[1]", "--verify", "3", "--steps", "1",
                    "--limit", "15", "--launcher", "sh ../start.sh");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "1 layouts ran, 2 did not: 1 steps, 2 ranks");
    CHECK_SAYS(o.out, "did not run: the engine has no experts today; PP1 VPP1 EP2");
    CHECK_SAYS(o.out, "did not run: it ran longer than 15 s and was ended; PP2");
    CHECK_SAYS(o.out, " of those that ran");
    CHECK_SAYS(o.out, "\nrates       plan machines like this one with --stack switchyard,share_");
    const char *again = strstr(o.out, "best by the corrected plan");
    CHECK(again != NULL && strstr(again, "EP1") != NULL);
    CHECK(strstr(again, "EP2") == NULL);
    o = RUN(lab, "fails", TINY, "search.zero=[1]", "search.ep=[2]", "--verify", "1", "--launcher",
            "sh ../start.sh");
    CHECK_EXIT(o, 3);
    CHECK_SAYS(o.err,
               "none of the 1 layouts of --verify ran; the first: the engine has no experts");
}

static void what_cannot_be_verified_is_a_sentence(void **state)
{
    static const struct {
        const char *const args[24], *says;
    } wrong[] = {
        { { "plan", "quickstart", "--cluster", "cpu:2", "--verify", "2" }, "add --search" },
        { { TINY, "--verify", "2", "--ranks", "3" }, "the 2 GPUs that are planned" },
        { { TINY, "--verify", "2", "--stack", "primus" }, "cannot verify --stack primus" },
        { { TINY, "--verify", "2", "--csv" }, "--verify and --csv exclude each other" },
        { { TINY, "--verify", "2", "--launcher", "./none" }, "cannot start ./none" },
        { { "plan", "quickstart", "--search", "--verify", "2" }, "no GPUs are given" },
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        Outcome o = lab_run(*state, &(Launch){ .cell = "wrong", .args = wrong[i].args });
        CHECK_EXIT(o, 2);
        CHECK_SAYS(o.err, wrong[i].says);
        CHECK_INT(strlen(o.out), 0);
    }
}

/* ---- days ---- */

#define V2_LITE                                                                                    \
    "plan", "deepseek-v2-lite", "run.compute=bf16", "train.batch=512", "train.micro_batch=1",      \
        "data.sequence=4096", "mesh.ep=8", "--cluster", "h100:256", "--tokens", "5T"

static void days_are_said_in_every_format(void **state)
{
    Outcome o = RUN(*state, "days", V2_LITE);
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "days for 5.00 T tokens at full speed; ");
    CHECK_SAYS(o.out, "days with failures and checkpoints (P50 ");
    CHECK_SAYS(o.out, " days with evaluation, annealing and pauses: x 1.1 (plan.lost; ");
    CHECK_SAYS(o.out, "one in 195.3 h (plan.mtbf_hours 50000 a GPU)");
    CHECK_SAYS(o.out, " GPU hours, at most ");
    CHECK_SAYS(o.out, "700 W a GPU, times 1.8");
    o = RUN(*state, "days", V2_LITE, "--json");
    cJSON *plan = parsed(&o);
    const cJSON *g = member(plan, "goodput");
    double days = number(plan, "days"), mean = number(g, "days");
    CHECK(days < mean && mean < 1.2 * days && number(g, "days_p90") > number(g, "days_p50"));
    CHECK_NEAR(number(g, "share"), days / mean, 1e-12);
    CHECK_NEAR(number(g, "days_whole"), 1.1 * mean, 1e-9); /* plan.lost */
    CHECK_NEAR(number(g, "gpu_hours"), 1.1 * mean * 24 * 256, 1e-6);
    CHECK(cJSON_GetObjectItem(g, "cost") == NULL);
    CHECK_NEAR(number(g, "mwh"), number(g, "gpu_hours") * 700 * 1.8e-6, 1e-6);
    CHECK_NEAR(number(g, "checkpoint_steps") * number(plan, "step_s") /
                   number(g, "checkpoint_every_s"),
               1, 1e-9);
    char steps[40];
    (void)snprintf(steps, sizeof steps, ",%.0f,", number(g, "checkpoint_steps"));
    o = RUN(*state, "days", V2_LITE, "--csv");
    CHECK_SAYS(o.out, ",also,products,tp,offload,etp,days,days_mean,days_p50,days_p90,gpu_hours,"
                      "mwh,checkpoint_steps,days_whole\n");
    CHECK_SAYS(o.out, steps);
    cJSON_Delete(plan);
    o = RUN(*state, "days", V2_LITE, "--scale", "128,256", "--json");
    plan = parsed(&o);
    const cJSON *row = cJSON_GetArrayItem(member(plan, "scaling"), 1);
    CHECK_NEAR(number(row, "days"), days, 1e-9);
    CHECK(number(member(row, "goodput"), "days") > days);
    cJSON_Delete(plan);
    o = RUN(*state, "days", V2_LITE, "--scale", "128,256", "plan.mtbf_hours=0");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, " days, ");
}

/* The same price in each format: GPU hours times what one costs. */
static void money_is_said_in_every_format(void **state)
{
    Outcome o = RUN(*state, "money", V2_LITE, "--json", "plan.gpu_hour=2.5 EUR");
    cJSON *plan = parsed(&o);
    const cJSON *g = member(plan, "goodput");
    char cost[32], text[128];
    CHECK_NEAR(number(g, "cost"), 2.5 * number(g, "gpu_hours"), 1e-6);
    CHECK_TEXT(member(g, "currency")->valuestring, "EUR");
    const long long whole = llround(number(g, "cost")); /* six digits */
    (void)snprintf(cost, sizeof cost, "%lld,%03lld", whole / 1000, whole % 1000);
    (void)snprintf(text, sizeof text, " GPU hours, %s EUR (plan.gpu_hour 2.5 EUR), at most ", cost);
    o = RUN(*state, "money", V2_LITE, "plan.gpu_hour=2.5 EUR");
    CHECK_SAYS(o.out, text);
    (void)snprintf(text, sizeof text, " whole, %s $; ", cost);
    o = RUN(*state, "money", V2_LITE, "plan.gpu_hour=$2.5", "--scale", "128,256");
    CHECK_SAYS(o.out, text);
    o = RUN(*state, "money", V2_LITE, "plan.gpu_hour=2.5", "--csv");
    CHECK_SAYS(o.out, ",checkpoint_steps,days_whole,cost\n");
    (void)snprintf(text, sizeof text, ",%.9g\n", number(g, "cost"));
    CHECK_SAYS(o.out, text);
    cJSON_Delete(plan);
    o = RUN(*state, "money", V2_LITE, "plan.gpu_hour=EUR 2.5 EUR");
    CHECK_EXIT(o, 2);
    CHECK_SAYS(o.err, "plan.gpu_hour is \"EUR 2.5 EUR\", must be a number above 0, at most ");
}

static void a_training_that_never_ends_is_exit_3(void **state)
{
    Outcome o = RUN(*state, "never", V2_LITE, "plan.mtbf_hours=0.01");
    CHECK_EXIT(o, 3);
    CHECK_SAYS(o.out, "at full speed; with failures it never ends\n");
    CHECK_SAYS(o.err, "this training never ends: of 256 GPUs one fails every 0.141 s");
    o = RUN(*state, "never", V2_LITE, "plan.mtbf_hours=0.01", "--json");
    CHECK_EXIT(o, 3);
    CHECK_SAYS(o.out, "\"goodput\":{\"days\":null,");
    o = RUN(*state, "never", V2_LITE, "plan.mtbf_hours=0.01", "--scale", "128,256");
    CHECK_EXIT(o, 3);
    CHECK_SAYS(o.out, "with failures it never ends");
    CHECK_SAYS(o.err, "of --scale 128,256 no training ends");
    o = RUN(*state, "never", V2_LITE, "plan.mtbf_hours=-1");
    CHECK_EXIT(o, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LAB_TEST(layouts_run_and_rank_again),
        LAB_TEST(a_layout_that_fails_is_named_and_the_others_go_on),
        LAB_TEST(what_cannot_be_verified_is_a_sentence),
        LAB_TEST(days_are_said_in_every_format),
        LAB_TEST(money_is_said_in_every_format),
        LAB_TEST(a_training_that_never_ends_is_exit_3),
    };
    return LAB_RUN_ALL(tests);
}
