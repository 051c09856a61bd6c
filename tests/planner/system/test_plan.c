/* `switchyard plan` as its user meets it: one screen or one JSON object, exit codes, a sentence for
 * what cannot be. */
#include "harness/program.h"

#include <cjson/cJSON.h>

#define LAYOUT                                                                                     \
    "plan", "deepseek-v2-lite", "train.batch=64", "train.micro_batch=1", "data.sequence=4096"
#define ON_8 LAYOUT, "--cluster", "mi355x:8"

static double number(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    if (!cJSON_IsNumber(item)) fail_msg("no number %s", key);
    return item->valuedouble;
}

static const cJSON *member(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    if (item == NULL) fail_msg("no member %s", key);
    return item;
}

static cJSON *parsed(const Outcome *o)
{
    cJSON *root = cJSON_Parse(o->out);
    if (root == NULL) fail_msg("no JSON: %s", o->out);
    return root;
}

static void check_plan(const cJSON *plan)
{
    static const char *const kinds[] = { "weights",     "grads",   "main",      "optimizer",
                                         "activations", "buffers", "workspace", "reserve" };
    static const char *const axes[] = { "pp", "vpp", "ep", "cp", "dp", "zero", "micro_batch" };
    static const char *const words[] = { "schedule", "partition", "recompute" };
    double bytes = 0, seconds = 0;
    const cJSON *part = NULL;
    CHECK(cJSON_IsBool(member(plan, "fits")));
    for (int i = 0; i < 8; i++) bytes += number(member(plan, "memory"), kinds[i]);
    CHECK_NEAR(bytes / number(plan, "peak_bytes"), 1, 1e-9);
    cJSON_ArrayForEach(part, member(plan, "time")) seconds += part->valuedouble;
    CHECK_NEAR(seconds / number(plan, "step_s"), 1, 1e-6);
    CHECK(number(plan, "bubble") >= 0 && number(plan, "bubble") < 1);
    CHECK(number(plan, "mfu") > 0 && number(plan, "mfu") < 1);
    CHECK(number(plan, "tokens_per_s_per_gpu") > 0);
    for (int i = 0; i < 7; i++) CHECK(number(member(plan, "layout"), axes[i]) > 0);
    for (int i = 0; i < 3; i++) CHECK(cJSON_IsString(member(member(plan, "layout"), words[i])));
}

static void json_is_one_object_with_every_key(void **state)
{
    Outcome o = RUN(*state, "json", ON_8, "mesh.ep=8", "--json", "--tokens", "15T");
    CHECK_EXIT(o, 0);
    cJSON *plan = parsed(&o);
    check_plan(plan);
    CHECK_INT(number(member(plan, "layout"), "dp"), 8);
    CHECK_INT(number(member(plan, "layout"), "etp"), 1);
    const cJSON *unbalanced = member(plan, "unbalanced");
    CHECK_NEAR(number(unbalanced, "rows"), 1.2, 1e-9);
    CHECK(number(unbalanced, "tokens_per_s_per_gpu") < number(plan, "tokens_per_s_per_gpu"));
    CHECK(number(unbalanced, "tokens_per_s_per_gpu") > number(plan, "tokens_per_s_per_gpu") / 1.2);
    double tokens = number(plan, "tokens_per_s_per_gpu") * 8 * 86400 * number(plan, "days");
    CHECK_NEAR(tokens / 15e12, 1, 1e-6);
    cJSON_Delete(plan);
    o = RUN(*state, "json", ON_8, "mesh.ep=4", "mesh.etp=2", "--json");
    CHECK_EXIT(o, 0);
    plan = parsed(&o);
    CHECK_INT(number(member(plan, "layout"), "ep"), 4);
    CHECK_INT(number(member(plan, "layout"), "etp"), 2);
    cJSON_Delete(plan);
}

static void a_search_lists_the_best_and_the_front(void **state)
{
    Outcome o = RUN(*state, "search", ON_8, "--search", "--top", "5", "--json", "search.pp=[1,2]",
                    "search.micro_batch=[1,2]");
    CHECK_EXIT(o, 0);
    cJSON *plan = parsed(&o);
    const cJSON *row = NULL;
    double last = INFINITY;
    check_plan(plan);
    CHECK_INT(cJSON_GetArraySize(member(plan, "best")), 5);
    cJSON_ArrayForEach(row, member(plan, "best"))
    {
        check_plan(row);
        CHECK(number(row, "tokens_per_s_per_gpu") <= last);
        CHECK(number(member(row, "layout"), "pp") <= 2);
        last = number(row, "tokens_per_s_per_gpu");
    }
    cJSON_ArrayForEach(row, member(plan, "front")) check_plan(row);
    CHECK_NEAR(number(member(plan, "best")->child, "step_s"), number(plan, "step_s"), 0);
    CHECK(number(plan, "simulated") > 0 && number(plan, "simulated") <= number(plan, "layouts"));
    cJSON_Delete(plan);
}

/* A row of --json is a line of the text, which numbers on through both lists. */
static void check_row(const cJSON *row, const char *text, int n)
{
    char line[512];
    CHECK(cJSON_IsTrue(member(row, "simulated")));
    snprintf(line, sizeof line, "\n  %3d %9.1f tokens/s/GPU %8.2f GiB %8.3f s  ", n,
             number(row, "tokens_per_s_per_gpu"), number(row, "peak_bytes") / 1073741824,
             number(row, "step_s"));
    CHECK_SAYS(text, line);
}

/* A row that is written and planned alone has the same digits. */
static void check_alone(void **state, const cJSON *row, int n)
{
    char which[16];
    snprintf(which, sizeof which, "%d", n);
    Outcome o =
        RUN(*state, "rows", ON_8, "--search", "--top", "3", "--row", which, "--write", "one.yaml");
    CHECK_EXIT(o, 0);
    o = RUN(*state, "rows", "plan", "one.yaml", "--cluster", "mi355x:8", "--json");
    CHECK_EXIT(o, 0);
    cJSON *alone = parsed(&o);
    CHECK_NEAR(number(alone, "step_s"), number(row, "step_s"), 0);
    CHECK_NEAR(number(alone, "peak_bytes"), number(row, "peak_bytes"), 0);
    cJSON_Delete(alone);
}

static void every_row_is_simulated_and_the_same_when_planned_alone(void **state)
{
    int n = 0;
    const cJSON *row = NULL, *last = NULL;
    Outcome o = RUN(*state, "marks", ON_8, "--search", "--top", "3", "--all");
    CHECK_EXIT(o, 0);
    CHECK(strstr(o.out, "~") == NULL);
    Outcome rows = RUN(*state, "marks", ON_8, "--search", "--top", "3", "--json");
    cJSON *plan = parsed(&rows);
    CHECK_INT(cJSON_GetArraySize(member(plan, "best")), 3);
    cJSON_ArrayForEach(row, member(plan, "best")) check_row(row, o.out, ++n);
    cJSON_ArrayForEach(row, member(plan, "front")) check_row(last = row, o.out, ++n);
    CHECK(n > 6);
    check_alone(state, last, n);
    check_alone(state, member(plan, "front")->child, 4);
    cJSON_Delete(plan);
}

/* Lines that begin with blanks are rows. */
static void a_search_prints_its_rows_and_says_where_the_rest_is(void **state)
{
    static const char *const more[] = { "\nfront of memory", "\nmemory ", "\ntime ",
                                        "\nrates ",          "\nlayout ", "\ninterval " };
    Outcome o = RUN(*state, "few", ON_8, "--search", "--top", "3", "--tokens", "15T");
    CHECK_EXIT(o, 0);
    int rows = 0;
    for (const char *at = o.out; (at = strstr(at, "\n  ")) != NULL; at++) rows++;
    CHECK_INT(rows, 3);
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        if (strstr(o.out, more[i]) != NULL) fail_msg("%s:%s", more[i], o.out);
    CHECK_SAYS(o.out,
               "\nmore        --all: memory and time of row 1, and the front of memory and ");
    CHECK_SAYS(o.out, "\nduration ");
    o = RUN(*state, "few", ON_8, "--search", "--top", "3", "--all");
    CHECK_EXIT(o, 0);
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) CHECK_SAYS(o.out, more[i]);
    CHECK(strstr(o.out, "\nmore ") == NULL);
    o = RUN(*state, "few", ON_8, "--search", "--top", "1", "--stack", "primus");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "\nnote        options assumed: ");
}

static void forced_balance_is_said(void **state)
{
    Outcome o = RUN(*state, "even", ON_8, "mesh.ep=4", "moe.forced_balance=true");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "benchmark   moe.forced_balance");
    CHECK(strstr(o.out, "\nbalance ") == NULL);
    o = RUN(*state, "even", ON_8, "mesh.ep=4", "moe.forced_balance=true", "--json");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "{\"forced_balance\":true,");
}

/* Upper bounds of kernels that nobody measured: only when asked, and it is said. */
static void bounds_are_said_and_only_where_there_are_some(void **state)
{
    static const char said[] = "nothing was measured";
    Outcome plain = RUN(*state, "plain", LAYOUT, "--cluster", "mi300x:8", "mesh.ep=8");
    Outcome o = RUN(*state, "bounds", LAYOUT, "--cluster", "mi300x:8", "mesh.ep=8", "--stack",
                    "switchyard,bound=1");
    CHECK_EXIT(plain, 0);
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, said);
    CHECK(strstr(plain.out, said) == NULL);
    o = RUN(*state, "none", LAYOUT, "--cluster", "h200:8", "mesh.ep=8", "--stack",
            "switchyard,bound=1");
    CHECK_EXIT(o, 2);
    CHECK_SAYS(o.err, "the file of h200 has no section bound");
}

static void a_screen_says_model_memory_time_and_why(void **state)
{
    static const char *const why[][2] = { { "peak", " slots x " },
                                          { "step", "TFLOP/s" },
                                          { "comm", "GB out of a GPU" },
                                          { "bubble", "theory of 1f1b: (p-1)/(p-1+m)" } };
    for (int i = 0; i < 4; i++) {
        Outcome o = RUN(*state, "why", ON_8, "mesh.pp=2", "mesh.ep=4", "--why", why[i][0]);
        CHECK_EXIT(o, 0);
        CHECK_SAYS(o.out, why[i][1]);
        CHECK_SAYS(o.out, "training    deepseek-v2-lite, 64 x 4096 tokens");
        CHECK_SAYS(o.out, "tokens/s/GPU");
    }
    Outcome o = RUN(*state, "why", ON_8, "mesh.pp=2", "mesh.ep=4", "--scale", "8,16,32", "--html",
                    "curve.html");
    CHECK_EXIT(o, 0);
    CHECK(file_exists(lab_path(*state, "why/curve.html")));
    CHECK_SAYS(o.out, "100.0 %");
    CHECK_SAYS(o.out, "; lost to idle");
    o = RUN(*state, "why", ON_8, "mesh.ep=4", "--csv");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "pp,vpp,ep,cp,dp,zero,schedule");
    o = RUN(*state, "why", ON_8, "mesh.pp=2", "--html", "page.html");
    CHECK_EXIT(o, 0);
    CHECK(file_exists(lab_path(*state, "why/page.html")));
}

/* Two stages: both lists, each action with its time, and the time of the step that the plan has. */
static void the_step_is_printed_action_by_action(void **state)
{
    Outcome o = RUN(*state, "program", LAYOUT, "--cluster", "h200:8", "run.compute=bf16",
                    "mesh.pp=2", "mesh.ep=4", "mesh.zero=2", "plan.spread=0", "--program");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "rank 0 of 2: ");
    CHECK_SAYS(o.out, "rank 1 of 2: ");
    static const char *const lines[] = {
        "comm    reduce gradients layer ", "zero gradients layer ",
        "compute update waits ",           "comm    gather weights ",
        "link    send activations micro ", "moe.dispatch"
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) CHECK_SAYS(o.out, lines[i]);
    const char *says = "the step takes ", *at = strstr(o.out, says);
    CHECK(at != NULL);
    double ms = strtod(at + strlen(says), NULL);
    o = RUN(*state, "program", LAYOUT, "--cluster", "h200:8", "run.compute=bf16", "mesh.pp=2",
            "mesh.ep=4", "mesh.zero=2", "plan.spread=0", "--json");
    cJSON *plan = parsed(&o);
    const double wait_s = 8.3e-6; /* of the host, once */
    CHECK_NEAR((number(plan, "step_s") - wait_s) / (1e-3 * ms), 1, 0.002);
    cJSON_Delete(plan);
}

/* Our own stack is priced as train lays blocks without mesh.layout; others balance the head. */
static void blocks_lie_as_the_stack_lays_them(void **state)
{
    static const char *const told[][2] = { { "switchyard", "|t*3|t*3L" },
                                           { "switchyard,list=0", "|t*3|t*2L" } };
    for (int i = 0; i < 2; i++) {
        Outcome o = RUN(*state, "stages", "plan", "deepseek-v2-lite", "--cluster", "h200:8",
                        "run.compute=bf16", "mesh.pp=8", "train.batch=16", "--stack", told[i][0]);
        CHECK_EXIT(o, 0);
        CHECK_SAYS(o.out, told[i][1]);
    }
}

static void formulas_of_others_stand_beside(void **state)
{
    Outcome o =
        RUN(*state, "formula", "plan", "mixtral-8x22b", "--formula", "primus-head", "--cluster",
            "mi300x:32", "run.compute=bf16", "mesh.pp=4", "mesh.ep=8", "--json");
    cJSON *plan = parsed(&o);
    const cJSON *formula = member(plan, "formula");
    CHECK(number(formula, "total_bytes") > number(formula, "activation_bytes"));
    cJSON_Delete(plan);
}

/* The fastest 150 estimates are of layouts whose lists take a tenth longer. And some lists of this space have transfers
 * that end a rounding later on one of their ranks. */
static void the_best_row_is_the_best_simulated(void **state)
{
#define MIXTRAL                                                                                    \
    "plan", "mixtral-8x7b", "run.compute=bf16", "data.sequence=4096", "train.batch=256",           \
        "--cluster", "h200:64"
    Outcome o = RUN(*state, "one", MIXTRAL, "mesh.pp=4", "mesh.vpp=8", "mesh.ep=8",
                    "mesh.schedule=1f1b-overlap", "--json");
    CHECK_EXIT(o, 0);
    cJSON *one = parsed(&o);
    o = RUN(*state, "best", MIXTRAL, "--search", "--json", "--top", "3");
    CHECK_EXIT(o, 0);
    cJSON *best = parsed(&o);
    CHECK(number(best, "tokens_per_s_per_gpu") >= 0.999 * number(one, "tokens_per_s_per_gpu"));
    cJSON_Delete(one);
    cJSON_Delete(best);
    o = RUN(*state, "best", MIXTRAL, "--search", "search.pp=[4]", "search.vpp=[8]", "search.ep=[8]",
            "search.cp=[1]");
    CHECK_EXIT(o, 0);
#undef MIXTRAL
}

static void what_does_not_fit_is_exit_3_with_what_would(void **state)
{
    Outcome o =
        RUN(*state, "fit", LAYOUT, "--cluster", "h100:8", "mesh.zero=0", "mesh.ep=1", "--json");
    CHECK_EXIT(o, 3);
    CHECK_SAYS(o.err, "the nearest found that fits takes");
    CHECK_SAYS(o.err, "ZeRO-");
    cJSON *plan = parsed(&o);
    CHECK(cJSON_IsFalse(member(plan, "fits")));
    cJSON_Delete(plan);
    o = RUN(*state, "fit", "plan", "moe-2t", "train.batch=8", "--cluster", "h100:8", "--search");
    CHECK_EXIT(o, 3);
    CHECK_SAYS(o.err, "nothing fits: the nearest");
    CHECK_SAYS(o.err, "lacks");
    static const char *const commands[][2] = {
        { "--program", NULL }, { "--csv", NULL }, { "--why", "peak" }, { "--write", "large.yaml" }
    };
    for (int i = 0; i < 4; i++) {
        o = RUN(*state, "fit", LAYOUT, "--cluster", "h100:8", "mesh.zero=0", "mesh.ep=1",
                commands[i][0], commands[i][1]);
        CHECK_EXIT(o, 3);
        CHECK_SAYS(o.err, "the nearest found that fits takes");
    }
}

static void a_page_of_what_does_not_fit_goes_to_its_file(void **state)
{
    Outcome o = RUN(*state, "large", LAYOUT, "run.compute=bf16", "--cluster", "h100:8",
                    "mesh.zero=0", "mesh.ep=1", "--html", "page.html");
    CHECK_EXIT(o, 3);
    CHECK_SAYS(o.out, "does not fit");
    CHECK(strchr(o.out, '<') == NULL);
    CHECK(file_exists(lab_path(*state, "large/page.html")));
    CHECK_SAYS(o.err, "the nearest found that fits takes");
}

static void scaling_says_what_does_not_fit(void **state)
{
    Outcome o = RUN(*state, "scale", LAYOUT, "run.compute=bf16", "--cluster", "h100:8", "mesh.ep=1",
                    "mesh.zero=3", "train.micro_batch=1", "--scale", "1,8");
    CHECK_EXIT(o, 0);
    const char *second = strchr(o.out, '\n');
    CHECK(strstr(o.out, "DOES NOT FIT") < second);
    CHECK(strstr(second, "DOES NOT FIT") == NULL);
    o = RUN(*state, "scale", LAYOUT, "run.compute=bf16", "--cluster", "h100:8", "--scale", "1,2");
    CHECK_EXIT(o, 3);
    CHECK_SAYS(o.out, "DOES NOT FIT");
    CHECK_SAYS(o.err, "of --scale 1,2 no row does");
}

/* What a file of Primus says of its options is what --stack says of them. */
static void options_of_a_primus_file_are_the_stacks(void **state)
{
    static const struct {
        const char *overrides, *stack;
    } row[] = {
        { "use_turbo_deepep: false, turbo_sync_free_moe_stage: 0, cross_entropy_loss_fusion: false",
          "primus,deepep=0,sync_free=0,loss_fusion=0" },
        { "use_turbo_deepep: false, moe_enable_deepep: true, turbo_sync_free_moe_stage: 1",
          "primus,deepep=1,sync_free=1" },
        { "use_turbo_deepep: false, turbo_sync_free_moe_stage: 2", "primus,deepep=1,sync_free=2" },
        { "enable_primus_turbo: false, use_turbo_deepep: true", "primus,deepep=0,sync_free=0" },
        { "fp8: hybrid", "primus" },
    };
    double speed[5];
    Lab *lab = *state;
    CHECK_OK(file_make_folders(lab_path(lab, "import")));
    for (int i = 0; i < 5; i++) {
        char text[1024];
        (void)snprintf(text, sizeof text,
                       "modules: {pre_trainer: {framework: megatron, model: deepseek_v2_lite, "
                       "overrides: {micro_batch_size: 4, global_batch_size: 256, seq_length: 4096, "
                       "expert_model_parallel_size: 8, %s}}}",
                       row[i].overrides);
        lab_write_text(lab, lab_path(lab, "import/exp.yaml"), text);
        Outcome o[2] = { RUN(lab, "import", "plan", "--from", "primus", "exp.yaml", "--cluster",
                             "mi355x:8", "--json"),
                         RUN(lab, "import", "plan", "--from", "primus", "exp.yaml", "--cluster",
                             "mi355x:8", "--json", "--stack", row[i].stack) };
        double step_s[2], bytes[2];
        for (int k = 0; k < 2; k++) {
            cJSON *plan = parsed(&o[k]);
            step_s[k] = number(plan, "step_s");
            bytes[k] = number(plan, "peak_bytes");
            speed[i] = number(plan, "tokens_per_s_per_gpu");
            cJSON_Delete(plan);
        }
        CHECK_NEAR(step_s[0], step_s[1], 0);
        CHECK_NEAR(bytes[0], bytes[1], 0);
        if (i == 4) CHECK_SAYS(o[0].out, "\"products\":\"hybrid tensor\"");
    }
    CHECK(speed[0] < speed[3] && speed[3] < speed[1]);
}

/* 16 ranks are two hosts, 8 are one. */
static void a_plan_takes_the_exchange_that_hosts_ask_for(void **state)
{
    static const char *const want[][3] = { { "mesh.ep=16", "moe.exchange=auto", "hier" },
                                           { "mesh.ep=8", "moe.exchange=auto", "direct" },
                                           { "mesh.ep=16", "moe.exchange=hier", "hier" },
                                           { "mesh.ep=16", "moe.exchange=alltoall", "alltoall" } };
    double exchange_s[4];
    for (int i = 0; i < 4; i++) {
        Outcome o = RUN(*state, "hosts", LAYOUT, "--cluster", "h200:16", want[i][0], want[i][1],
                        "run.compute=bf16", "--json");
        cJSON *plan = parsed(&o);
        CHECK_TEXT(member(plan, "exchange")->valuestring, want[i][2]);
        exchange_s[i] = number(member(plan, "time"), "exchange");
        cJSON_Delete(plan);
    }
    CHECK_NEAR(exchange_s[0], exchange_s[2], 0);
    CHECK(exchange_s[0] < exchange_s[3]);
    Outcome o =
        RUN(*state, "hosts", LAYOUT, "--cluster", "h200:16", "run.compute=bf16", "search.ep=[16]",
            "search.pp=[1]", "search.cp=[1]", "moe.exchange=auto", "--search", "--top", "1");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, ", hier\n");
    o = RUN(*state, "hosts", LAYOUT, "--cluster", "h200:16", "run.compute=bf16", "mesh.ep=16",
            "moe.exchange=direct");
    CHECK_EXIT(o, 2);
    CHECK_SAYS(o.err,
               "mesh.ep x mesh.etp, 16 ranks: moe.exchange=direct stores inside a scale-up domain, "
               "which has 8");
    o = RUN(*state, "hosts", LAYOUT, "--cluster", "h200:16", "run.compute=bf16", "search.ep=[8,16]",
            "search.pp=[1]", "search.cp=[1]", "moe.exchange=direct", "--search", "--top", "1");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "EP8");
}

/* The last row of --top is written, and both commands take it. */
static void a_written_row_is_taken_by_plan_and_train(void **state)
{
    Outcome o = RUN(*state, "write", LAYOUT, "--cluster", "h200:8", "--search", "search.pp=[2,4]",
                    "search.schedule=[interleaved]", "search.recompute=[layer/2]", "--top", "2",
                    "--write", "row.yaml", "--json");
    CHECK_EXIT(o, 0);
    cJSON *plan = parsed(&o);
    const cJSON *row = cJSON_GetArrayItem(member(plan, "best"), 1);
    o = RUN(*state, "write", "plan", "row.yaml", "--cluster", "h200:8", "--json");
    CHECK_EXIT(o, 0);
    cJSON *again = parsed(&o);
    CHECK_NEAR(number(again, "step_s"), number(row, "step_s"), 0);
    CHECK_NEAR(number(again, "peak_bytes"), number(row, "peak_bytes"), 0);
    CHECK(cJSON_Compare(member(again, "layout"), member(row, "layout"), true));
    cJSON_Delete(again);
    cJSON_Delete(plan);
    o = RUN(*state, "write", "train", "row.yaml", "--dry-run", "--ranks", "8");
    CHECK_EXIT(o, 0);
    o = RUN(*state, "write", "train", "row.yaml", "mesh.tp=2", "--dry-run", "--ranks", "8");
    CHECK_EXIT(o, 0);
    o = RUN(*state, "write", LAYOUT, "--cluster", "h200:8", "mesh.pp=2", "--write", "one.yaml");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(lab_read(*state, lab_path(*state, "write/one.yaml"), NULL),
               "layout: \"Et*14|t*13L\"");
}

/* The note names the option and its other value; what is given is not open. */
static void an_option_that_is_left_open_is_named(void **state)
{
    Outcome o = RUN(*state, "open", LAYOUT, "--cluster", "mi355x:8", "--stack",
                    "primus,deepep=0,turbo_attention=1,legacy_grouped=0");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "note        options assumed: with --stack primus,deepep=0,turbo_attention=1,"
                      "legacy_grouped=0,sync_free=0 a step takes 1.");
    CHECK_SAYS(o.out, ", options ");
    o = RUN(*state, "open", LAYOUT, "--cluster", "mi355x:8");
    CHECK_EXIT(o, 0);
    CHECK(strstr(o.out, "options assumed") == NULL);
}

static void what_rates_are_and_where_a_stack_ran_is_said(void **state)
{
    Outcome o = RUN(*state, "rates", LAYOUT, "--cluster", "mi355x:8", "fp8.recipe=tensor");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out,
               "rates       published gemm, grouped, attention, attention_backward; assumed ");
    CHECK_SAYS(o.out, " (gpu.measured: false)\n");
    CHECK_SAYS(o.out, "stack switchyard has never run on a GPU of AMD");
    CHECK_SAYS(o.out, " bf16 with e4m3 tensor recompute ");
    o = RUN(*state, "rates", LAYOUT, "--cluster", "h200:8", "--scale", "8", "fp8.recipe=block");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.err, "rates       measured memory, gemm, ");
    CHECK_SAYS(o.out, " bf16 with e4m3 block recompute ");
    CHECK(strstr(o.err, "has never run") == NULL);
    o = RUN(*state, "rates", LAYOUT, "--cluster", "h200:8", "--json");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "\"measured\":true,\"rates\":{\"memory\":\"measured\"");
}

static bool begins(const char *text, const char *part)
{
    return strncmp(text, part, strlen(part)) == 0;
}

#define SMALL_BATCH                                                                                \
    "plan", "deepseek-v2-lite", "train.batch=8", "data.sequence=4096", "search.pp=[2,4,8]",        \
        "search.cp=[1,2]", "search.schedule=[1f1b]", "--search", "--top", "3"

static void a_batch_that_limits_is_said_first(void **state)
{
    Outcome o = RUN(*state, "batch", SMALL_BATCH, "--cluster", "mi355x:64");
    CHECK_EXIT(o, 0);
    if (!begins(o.out, "batch       8 sequences are too few for 64 GPUs")) fail_msg("%s", o.out);
    CHECK_SAYS(o.out, " layouts like these reach ~"); /* not simulated */
    o = RUN(*state, "batch", SMALL_BATCH, "--cluster", "mi355x:64", "--json");
    cJSON *plan = parsed(&o);
    const cJSON *limits = member(plan, "batch_limits");
    double could = number(limits, "sequences");
    CHECK(cJSON_IsFalse(member(limits, "simulated")));
    CHECK(could > 8 &&
          number(limits, "tokens_per_s_per_gpu") > 1.5 * number(plan, "tokens_per_s_per_gpu"));
    CHECK_SAYS(o.err, "8 sequences are too few");
    cJSON_Delete(plan);
    o = RUN(*state, "batch", SMALL_BATCH, "--cluster", "mi355x:64", "train.batch=512", "--json");
    CHECK_EXIT(o, 0);
    CHECK(strstr(o.out, "batch_limits") == NULL && strstr(o.err, "too few") == NULL);
}

static void gpus_that_cannot_share_the_batch_are_left_out(void **state)
{
    Outcome o = RUN(*state, "odd", SMALL_BATCH, "--cluster", "mi355x:17");
    CHECK_EXIT(o, 0);
    if (!begins(o.out, "gpus        17 cannot share out train.batch 8: this is for 16 of them"))
        fail_msg("%s", o.out);
    CHECK_SAYS(o.out, "on 16 x AMD");
    o = RUN(*state, "odd", SMALL_BATCH, "--cluster", "mi355x:17", "--json");
    cJSON *plan = parsed(&o);
    CHECK_INT(number(plan, "gpus"), 16);
    CHECK_INT(number(plan, "gpus_asked"), 17);
    cJSON_Delete(plan);
    o = RUN(*state, "odd", SMALL_BATCH, "--cluster", "mi355x:17", "--scale", "16,17");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.err, "17 cannot share out");
    CHECK(strstr(o.out, "17 GPUs") == NULL);
}

/* One micro-batch: gpipe and 1f1b give the same list. */
static void schedules_that_cost_the_same_share_a_row(void **state)
{
#define TWINS                                                                                      \
    ON_8, "--search", "--top", "3", "search.pp=[8]", "search.schedule=[gpipe,1f1b]",               \
        "search.micro_batch=[1]", "search.recompute=[none,layer]", "train.batch=1"
    Outcome o = RUN(*state, "twins", TWINS, "--html", "twins.html");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "recompute none; the same under 1f1b\n");
    CHECK(strstr(o.out, "ZeRO-1 1f1b") == NULL);
    CHECK_SAYS(lab_read(*state, lab_path(*state, "twins/twins.html"), NULL), "the same under 1f1b");
    o = RUN(*state, "twins", TWINS, "--csv");
    CHECK_SAYS(o.out, ",exchange,also,products,tp,offload,etp\n");
    CHECK_SAYS(o.out, ",1f1b,,1,0,1\n");
    o = RUN(*state, "twins", TWINS, "--json");
    cJSON *plan = parsed(&o);
    const cJSON *row = NULL;
    CHECK_INT(cJSON_GetArraySize(member(plan, "best")), 2);
    cJSON_ArrayForEach(row, member(plan, "best"))
    {
        CHECK_TEXT(cJSON_GetArrayItem(member(row, "also"), 0)->valuestring, "1f1b");
    }
    cJSON_Delete(plan);
}

/* A sheet's network that nobody measured has its range in text, JSON and page; a file of plan calibrate has none. */
static void a_calibrated_network_plans_with_the_narrow_interval(void **state)
{
#define OVER_HOSTS                                                                                 \
    "plan", "deepseek-v2-lite", "run.compute=bf16", "train.batch=512", "train.micro_batch=1",      \
        "model.layers=8", "mesh.ep=16", "moe.forced_balance=true"
    static const char *const cluster[][4] = { { "--cluster", "h100:16" },
                                              { "--hardware", "mine.yaml", "--gpus", "16" } };
    static const char says[] =
        "note        links assumed: 0.5 to 1.2 of the sheet's network, because "
        "nobody measured this one (plan calibrate --exchange)\n";
    double slower[2];
    Outcome o = RUN(*state, "net", "plan", "calibrate", "mine.yaml", "--base", "h100", "--exchange",
                    "16 GPUs, 64 MiB, 1 ms");
    CHECK_EXIT(o, 0);
    for (int measured = 0; measured < 2; measured++) {
        const char *const *c = cluster[measured];
        o = RUN(*state, "net", OVER_HOSTS, c[0], c[1], "--json", c[2], c[3]);
        cJSON *plan = parsed(&o);
        const cJSON *v = member(plan, "interval");
        slower[measured] = number(v, "time");
        CHECK(cJSON_IsTrue(member(v, "links_assumed")) == !measured);
        CHECK((number(v, "faster") < slower[measured] / 2) == !measured);
        cJSON_Delete(plan);
        o = RUN(*state, "net", OVER_HOSTS, c[0], c[1], "--html", "net.html", c[2], c[3]);
        CHECK((strstr(o.out, says) != NULL) == !measured);
        const char *page = lab_read(*state, lab_path(*state, "net/net.html"), NULL);
        CHECK((strstr(page, ", links assumed; ") != NULL) == !measured);
    }
    CHECK(slower[1] < slower[0] / 3);
    o = RUN(*state, "net", "plan", "calibrate", "mine.yaml", "--base", "h100");
    CHECK_EXIT(o, 2);
    CHECK_SAYS(o.err, "mine.yaml is alone: give BENCH and OUT, or --exchange");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LAB_TEST(json_is_one_object_with_every_key),
        LAB_TEST(a_batch_that_limits_is_said_first),
        LAB_TEST(gpus_that_cannot_share_the_batch_are_left_out),
        LAB_TEST(schedules_that_cost_the_same_share_a_row),
        LAB_TEST(a_search_lists_the_best_and_the_front),
        LAB_TEST(every_row_is_simulated_and_the_same_when_planned_alone),
        LAB_TEST(a_search_prints_its_rows_and_says_where_the_rest_is),
        LAB_TEST(forced_balance_is_said),
        LAB_TEST(bounds_are_said_and_only_where_there_are_some),
        LAB_TEST(a_screen_says_model_memory_time_and_why),
        LAB_TEST(the_step_is_printed_action_by_action),
        LAB_TEST(blocks_lie_as_the_stack_lays_them),
        LAB_TEST(formulas_of_others_stand_beside),
        LAB_TEST(the_best_row_is_the_best_simulated),
        LAB_TEST(what_does_not_fit_is_exit_3_with_what_would),
        LAB_TEST(a_page_of_what_does_not_fit_goes_to_its_file),
        LAB_TEST(scaling_says_what_does_not_fit),
        LAB_TEST(options_of_a_primus_file_are_the_stacks),
        LAB_TEST(a_plan_takes_the_exchange_that_hosts_ask_for),
        LAB_TEST(a_written_row_is_taken_by_plan_and_train),
        LAB_TEST(what_rates_are_and_where_a_stack_ran_is_said),
        LAB_TEST(an_option_that_is_left_open_is_named),
        LAB_TEST(a_calibrated_network_plans_with_the_narrow_interval),
    };
    return LAB_RUN_ALL(tests);
}
