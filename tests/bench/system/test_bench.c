/* `switchyard bench` as its user meets it: on real tokens, with and without traffic, on more and more
 * ranks; and what it refuses. */
#include "harness/run_folder.h"

#define RANKS2 "--ranks=2", "train.micro_batch=1"
#define STEP   "bench", "step", "../tiny.yaml"

/* As strstr, but to the end; gcc 12 believes that strstr's result dangles. */
static const char *behind(const char *text, const char *part)
{
    const char *at = memmem(text, strlen(text), part, strlen(part));
    if (at == NULL) fail_msg("\"%s\" is not in: %s", part, text);
    return at + strlen(part);
}

static double number(const char *text, const char *key)
{
    char *end = NULL;
    const char *at = behind(text, key);
    double x = strtod(at, &end);
    CHECK(end != at);
    return x;
}

/* Routing is a function of the tokens: real ones, those of the ranks' own sequences, load experts
 * otherwise than random ones, and the same in every run. */
static void steps_run_on_the_tokens_of_the_configuration(void **state)
{
    Lab *lab = *state;
    static const char *const key[] = { "\"rank\":", "\"rank_worst_layer\":",
                                       "\"expert_worst_layer\":" };
    double at[4][3];
    for (int i = 0; i < 4; i++) {
        Outcome o =
            RUN(lab, "data", STEP, "--steps=2", "--json", "--ranks=2", "mesh.ep=2",
                "train.micro_batch=1", "moe.buffers=worst", i < 3 ? "--data" : "run.threads=1",
                i == 2 ? "run.seed=77" : "run.threads=1");
        CHECK_EXIT(o, 0);
        for (int k = 0; k < 3; k++) at[i][k] = number(behind(o.out, "\"busiest\":{"), key[k]);
        CHECK(at[i][0] >= 1 && at[i][1] >= at[i][0] && at[i][1] <= 2 && at[i][2] > 1);
    }
    CHECK(memcmp(at[0], at[1], sizeof at[0]) == 0);
    CHECK(at[0][2] != at[2][2] && at[0][2] != at[3][2]);
    Outcome o = RUN(lab, "data", STEP, "--steps=2", "--data");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(
        o.out,
        "experts      the busiest rank has 1.000 x the mean rows (1.000 in the worst layer)");
}

static double context_of(Lab *lab, const char *documents, const char *mask)
{
    Outcome o =
        RUN(lab, "documents", STEP, "--steps=3", "--json", "data.sequence=64", documents, mask);
    CHECK_EXIT(o, 0);
    return number(o.out, "\"mean_context\":");
}

/* A document of one token, and 1.5 on average of lengths from exp(-0.5) on, rounded down to 1 or more. */
static void random_tokens_may_come_in_documents(void **state)
{
    Lab *lab = *state;
    const char *masked = "attention.document_mask=true", *open = "attention.document_mask=false";
    CHECK_NEAR(context_of(lab, "--documents=1000000", masked), 32.5, 0);
    CHECK_NEAR(context_of(lab, "--documents=1", open), 32.5, 0);
    double one = context_of(lab, "--documents=1", masked),
           eight = context_of(lab, "--documents=8", masked);
    CHECK(one > 1.1 && one < 2);
    CHECK(eight > 4 && eight < 12);
    Outcome o = RUN(lab, "documents", STEP, "--steps=2", "--documents=4", "data.sequence=64");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "keys on average, 32.5 without documents\n");
    o = RUN(lab, "documents", STEP, "--data", "--documents=4");
    CHECK_REFUSED(o, 2, "--data has tokens and documents of its own");
    o = RUN(lab, "documents", STEP, "--documents=0");
    CHECK_REFUSED(o, 2, "--documents");
}

/* Means over steps of the busiest expert's rows, over the mean: of 64 sequences' ids. Of uniform ids it nears 1. */
static double busiest_expert_of(Lab *lab, const char *how)
{
    Outcome o = RUN(lab, "zipf", "bench", "step", "deepseek-v2-lite", "--shrink", "--steps=2",
                    "--json", "train.batch=64", "train.micro_batch=64", "run.compute=f32", how);
    CHECK_EXIT(o, 0);
    return number(o.out, "\"expert_worst_layer\":");
}

static void few_ids_are_frequent_by_zipfs_law(void **state)
{
    Lab *lab = *state;
    double even = busiest_expert_of(lab, "--documents=1000"),
           zipf = busiest_expert_of(lab, "--zipf");
    if (!(even < 1.3 && zipf > even + 0.2)) fail_msg("even %g, by Zipf's law %g", even, zipf);
    Outcome o = RUN(lab, "documents", STEP, "--data", "--zipf");
    CHECK_REFUSED(o, 2, "--data has tokens and documents of its own");
}

/* Layers are wide enough that a lost exchange would change the fourth digit. */
static void the_first_losses_are_the_same_on_any_mesh(void **state)
{
    Lab *lab = *state;
    static const char *const mesh[] = { "mesh.pp=1", "mesh.ep=2", "mesh.zero=3" };
    double first[3];
    for (size_t i = 0; i < sizeof mesh / sizeof *mesh; i++) {
        Outcome o = RUN(lab, "losses", "bench", "step", "deepseek-v2-lite", "--shrink", "--steps=1",
                        "--json", "run.compute=f32", "model.hidden=256", "moe.ffn=256",
                        "model.vocab=512", mesh[i], i == 0 ? "--ranks=1" : "--ranks=2");
        CHECK_EXIT(o, 0);
        const char *at = behind(o.out, "\"losses\":[");
        for (int k = 0; k < 3; k++) {
            char *end = NULL;
            double loss = strtod(at, &end);
            CHECK(*end == (k < 2 ? ',' : ']'));
            if (i == 0) first[k] = loss;
            CHECK_NEAR(loss / first[k], 1, 1e-6);
            at = end + 1;
        }
    }
    CHECK(fabs(first[0] - first[1]) > 1e-3 && fabs(first[1] - first[2]) > 1e-3);
}

typedef struct Counted {
    double context, causal, torchtitan;
} Counted;

static Counted counted(Lab *lab, const char *mask, const char *window)
{
    Outcome o = RUN(lab, "counted", STEP, "--steps=3", "--json", "data.sequence=64",
                    "--documents=6", mask, window, "train.micro_batch=4");
    CHECK_EXIT(o, 0);
    return (Counted){ number(o.out, "\"mean_context\":"),
                      number(behind(o.out, "\"causal\":"), "\"flops\":"),
                      number(behind(o.out, "\"torchtitan\":"), "\"flops\":") };
}

/* Three layers of two heads, 12 and 8 wide: seven products a pair, of 4 x 12 + 3 x 8 multiply-adds. A token that sees
 * itself alone loses nothing. */
static void flops_are_of_pairs_that_documents_leave(void **state)
{
    Lab *lab = *state;
    Counted apart = counted(lab, "attention.document_mask=true", "attention.window=0"),
            open = counted(lab, "attention.document_mask=false", "attention.window=0"),
            alone = counted(lab, "attention.document_mask=true", "attention.window=1"),
            few = counted(lab, "attention.document_mask=true", "attention.window=8"),
            more = counted(lab, "attention.document_mask=false", "attention.window=8");
    double pairs = (open.context - apart.context) * 4 * 64;
    CHECK(pairs > 256);
    CHECK_NEAR(open.causal - apart.causal, 2 * pairs * 3 * 2 * (4 * 12 + 3 * 8),
               1e-4 * open.causal);
    CHECK_NEAR(open.torchtitan, apart.torchtitan, 0);
    CHECK_NEAR(alone.causal,
               counted(lab, "attention.document_mask=false", "attention.window=1").causal, 0);
    CHECK(more.causal - few.causal > 0 && more.causal - few.causal < open.causal - apart.causal);
}

/* A run's rate, too: share x peak x seconds is what a step counts. */
static void a_run_counts_no_pairs_that_documents_hide(void **state)
{
    Lab *lab = *state;
    static const char *const mask[] = { "attention.document_mask=true",
                                        "attention.document_mask=false" };
    static const char *const folder[] = { "apart", "open" };
    double flops[2];
    for (int i = 0; i < 2; i++) {
        Outcome o = RUN(lab, folder[i], "train", "../tiny.yaml", "train.steps=1", mask[i],
                        "data.sequence=128");
        CHECK_EXIT(o, 0);
        const char *line =
            behind(lab_read(lab, lab_path(lab, "%s/run/metrics.jsonl", folder[i]), NULL),
                   "{\"kind\":\"step\",\"step\":1,");
        flops[i] = number(line, "\"roof_share\":") * number(line, "\"roof_flops\":") *
                   number(line, "\"step_s\":");
    }
    CHECK(flops[0] < 0.999 * flops[1] && flops[0] > 0.5 * flops[1]);
}

static void exposed_time_is_told_by_kind_of_traffic(void **state)
{
    Lab *lab = *state;
    static const char *const word[] = { "zero", "ep", "all" };
    Outcome o = RUN(lab, "exposed", STEP, "--steps=2", "--exposed", "--json", RANKS2, "mesh.ep=2");
    CHECK_EXIT(o, 0);
    double with = number(o.out, "\"step_p50_s\":");
    const char *at = behind(o.out, "\"exposed\":[");
    for (int i = 0; i < 3; i++) {
        at = behind(at, "{\"traffic\":\"");
        CHECK(strncmp(at, word[i], strlen(word[i])) == 0);
        CHECK(number(at, "\"without_p50_s\":") > 0);
        double exposed = number(at, "\"exposed_s\":"), least = number(at, "\"waiting_s\":");
        CHECK_NEAR(exposed, with - number(at, "\"without_p50_s\":"), 1e-9);
        CHECK_NEAR(number(at, "\"slowing_s\":"), exposed - least, 1e-9);
        CHECK(least <= number(at, "\"waiting_most_s\":"));
    }
    CHECK(strchr(at, '}') != NULL && strncmp(strchr(at, '}'), "}],", 3) == 0);
    CHECK(number(at, "\"step_again_p50_s\":") > 0);
    CHECK_INT(o.out[strlen(o.out) - 2], '}');
    o = RUN(lab, "exposed", STEP, "--steps=2", "--exposed", RANKS2, "mesh.pp=2", "--data");
    CHECK_EXIT(o, 0);
    double told = number(o.out, "exposed      pp"), share = 0, before = 0, after = 0;
    CHECK_INT(sscanf(behind(o.out, "exposed      pp"),
                     " %*f ms, %lf %% of the step: %lf ms p50 with it, %lf without", &share,
                     &before, &after),
              3);
    CHECK_NEAR(told, before - after, 0.11);
    CHECK_NEAR(number(o.out, "; waiting ") + number(o.out, "), slowing "), told, 0.16);
    /* Both times are printed to 0.1 ms, and a loaded machine can make the difference the larger one. */
    CHECK_NEAR(share, 100 * told / before, 1 + 10 * (1 + fabs(told) / before) / before);
    CHECK_SAYS(o.out, "exposed      none: the same step again ");
    CHECK(strstr(o.out, "exposed      all") == NULL && strstr(o.out, "exposed      ep") == NULL);
}

static void forced_balance_is_said(void **state)
{
    Lab *lab = *state;
    Outcome o = RUN(lab, "even", STEP, "--steps=1", "moe.forced_balance=true");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "moe.forced_balance: positions choose them");
    o = RUN(lab, "even", STEP, "--steps=1", "--json", "moe.forced_balance=true");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, ",\"forced_balance\":true,");
}

typedef struct Rung {
    int ranks, pp, ep, cp;
    double tokens, each, efficiency;
} Rung;

static double with_commas(const char **at)
{
    double x = 0;
    *at += strspn(*at, " ");
    for (; **at != ' '; (*at)++) x = **at == ',' ? x : 10 * x + (**at - '0');
    return x;
}

static void a_ladder_goes_up_to_all_ranks(void **state)
{
    Lab *lab = *state;
    static const Rung want[] = { { 1, 1, 1, 1, 0, 0, 0 },
                                 { 2, 2, 1, 1, 0, 0, 0 },
                                 { 4, 2, 2, 1, 0, 0, 0 } };
    Outcome o =
        RUN(lab, "ladder", "bench", "ladder", "../tiny.yaml", "--ranks=4", "--steps=2", "mesh.pp=2",
            "mesh.ep=2", "train.batch=8", "train.micro_batch=1", "moe.buffers=worst");
    CHECK_EXIT(o, 0);
    const char *at = strchr(o.out, '\n') + 1;
    double first = 0;
    for (int i = 0; i < 3; i++, at = strchr(at, '\n') + 1) {
        Rung r = { 0 };
        int used = 0;
        CHECK_INT(sscanf(at, "%d: pp %d, ep %d, cp %d%n", &r.ranks, &r.pp, &r.ep, &r.cp, &used), 4);
        CHECK(r.ranks == want[i].ranks && r.pp == want[i].pp && r.ep == want[i].ep && r.cp == 1);
        at += used;
        r.tokens = with_commas(&at);
        r.each = with_commas(&at);
        CHECK_INT(sscanf(at, "%lf %%", &r.efficiency), 1);
        if (i == 0) first = r.each;
        CHECK_NEAR(r.each * r.ranks, r.tokens, r.ranks);
        CHECK_NEAR(r.efficiency, 100 * r.each / first, 0.2);
    }
    CHECK_INT(*at, '\0');
    o = RUN(lab, "ladder", "bench", "ladder", "../tiny.yaml", "--ranks=3", "--steps=1",
            "train.batch=6", "train.micro_batch=2", "mesh.cp=3", "data.sequence=48");
    CHECK_EXIT(o, 0); /* two sequences a rank on every rung: micro-batches of two */
    CHECK_SAYS(o.out, "2: pp 1, ep 1, cp 1");
    CHECK_SAYS(o.out, "3: pp 1, ep 1, cp 3");
    CHECK(strstr(o.out, "train.batch") == NULL);
    o = RUN(lab, "ladder", "bench", "ladder", "../tiny.yaml", "--ranks=2", "--steps=1",
            "train.batch=4", "train.micro_batch=1", "mesh.tp=2", "mesh.etp=2", "model.vocab=512");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "\n1: pp 1, ep 1, cp 1");
    CHECK(strstr(o.out, "mesh.") == NULL); /* no rung asks for more ranks than it has */
}

/* What follows from the two steps that were timed, and their FLOPs as `bench step` counts them. */
static void a_slope_is_the_difference_of_two_depths(void **state)
{
    Lab *lab = *state;
    double flops[2], s[2];
    const char *const depth[] = { "model.layers=2", "model.layers=12" };
    for (int i = 0; i < 2; i++) {
        Outcome o = RUN(lab, "slope", STEP, depth[i], "--json", "--steps=1");
        const char *at = behind(o.out, "\"flops\":");
        CHECK(at != NULL);
        flops[i] = atof(at);
    }
    Outcome o = RUN(lab, "slope", STEP, "--slope=2,12", "--json", "--steps=3");
    CHECK_EXIT(o, 0);
    const double tokens = number(o.out, "\"tokens\":"),
                 layer = number(o.out, "\"layer_token_s\":") * tokens;
    const char *steps = behind(o.out, "\"step_p50_s\":[");
    CHECK(steps != NULL);
    CHECK_INT(sscanf(steps, "%lf,%lf", &s[0], &s[1]), 2);
    CHECK_NEAR(layer * 10 / (s[1] - s[0]), 1, 1e-5);
    CHECK_NEAR((number(o.out, "\"rest_s\":") + 2 * layer) / s[0], 1, 1e-5);
    CHECK_NEAR(number(o.out, "\"layer_flops_per_s\":") * (s[1] - s[0]) / (flops[1] - flops[0]), 1,
               1e-5);
    o = RUN(lab, "slope", STEP, "--slope=2,12", "--steps=1", "--ranks=2", "train.batch=4",
            "train.micro_batch=1");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, ", 12 layers: ");
    CHECK_SAYS(o.out, "\nslope        ");
    static const char *const wrong[] = { "--slope=6", "--slope=6,4", "--slope=a,b", "--slope=0,4",
                                         "--slope=2,4," };
    for (int i = 0; i < 5; i++)
        CHECK_REFUSED(RUN(lab, "slope", STEP, wrong[i]), 2,
                      "give two numbers of layers, the smaller first");
    CHECK_REFUSED(RUN(lab, "slope", STEP, "--slope=2,4", "--ops"), 2, "leave out --ops");
}

/* The parts of one step add up: their times and what is outside of them to the step's, their FLOPs to the step's. */
static void parts_add_up_to_the_step(void **state)
{
    Lab *lab = *state;
    static const char *const more[] = { "train.micro_batch=4", "train.micro_batch=1",
                                        "recompute.layers=[0-2]" };
    for (int i = 0; i < 3; i++) {
        Outcome o =
            RUN(lab, "parts", STEP, "--parts", "--json", "--steps=1", "train.batch=4", more[i]);
        CHECK_EXIT(o, 0);
        double ms = number(o.out, "\"outside_parts_ms\":"), flops = 0, again_ms = 0;
        CHECK(ms >= 0);
        for (const char *at = strstr(o.out, "\"part\":"); at != NULL;
             at = strstr(at + 1, "\"part\":")) {
            const double part_ms = number(at, "\"ms\":");
            const double pieces = number(at, "\"forward_ms\":") + number(at, "\"again_ms\":") +
                                  number(at, "\"input_ms\":") + number(at, "\"weight_ms\":");
            CHECK(pieces == 0 || fabs(pieces - part_ms) < 1e-4 * part_ms);
            CHECK(part_ms > 0 && strncmp(behind(at, "\"lane\":"), "\"compute\"", 9) == 0);
            ms += part_ms;
            again_ms += number(at, "\"again_ms\":");
            flops += 1e-3 * part_ms * number(at, "\"flops_per_s\":");
        }
        CHECK_NEAR(ms / (1e3 * number(o.out, "\"step_p50_s\":")), 1, 1e-4);
        if (i < 2) CHECK_NEAR(flops / number(o.out, "\"flops\":"), 1, 1e-4);
        if (i < 2) CHECK(again_ms == 0);
        if (i == 2) CHECK(again_ms > 0 && flops > 1.1 * number(o.out, "\"flops\":"));
    }
    Outcome o = RUN(lab, "parts", STEP, "--parts", "--steps=2");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "(means of 2 steps)\n");
    CHECK_SAYS(o.out, "\n  compute  moe experts ");
    CHECK_SAYS(o.out, "\n  compute  outside of parts ");
    CHECK_REFUSED(RUN(lab, "parts", STEP, "--slope=2,4", "--parts"), 2, "leave out --ops, --parts");
}

/* On a CPU: the batches, then the rungs that need no GPU. */
static void a_ladder_of_features_has_its_rungs(void **state)
{
    Lab *lab = *state;
    Outcome o = RUN(lab, "features", "bench", "ladder", "../tiny.yaml", "--steps=1",
                    "train.batch=2", "train.micro_batch=2", "fp8.recipe=row", "fp8.layers=[0]");
    CHECK_EXIT(o, 0);
    static const char *const rungs[] = { "\nbatch 1 ", "\nbatch 2 ", "\n+ chunked loss " };
    for (int i = 0; i < 3; i++) {
        const char *at = strstr(o.out, rungs[i]);
        CHECK(at != NULL);
        at += strlen(rungs[i]);
        CHECK(with_commas(&at) > 0); /* tokens/s, not a sentence that says why there are none */
    }
    CHECK(strstr(o.out, "8-bit") == NULL);
}

static void communication_is_measured(void **state)
{
    Lab *lab = *state;
    Outcome o = RUN(lab, "comm", "bench", "comm", "--ranks=2", "--shrink=64", "run.device=cpu");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "2 ranks, 2 a host, ");
    CHECK_SAYS(o.out, "reduce_scatter");
    CHECK_SAYS(o.out, "alltoall combine");
    CHECK(strstr(behind(o.out, "barrier"), "barrier") == NULL); /* one rank speaks */
    o = RUN(lab, "comm", "bench", "comm", "--help");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "switchyard bench comm run.compute=bf16 --ranks 4");
}

/* A program of its own: ranks and options are those of the command. */
static void ops_are_timed_beside_communication(void **state)
{
    Lab *lab = *state;
    Outcome o = RUN(lab, "contention", "--quiet", "bench", "contention", "--ranks=2",
                    "--shrink=512", "run.device=cpu", "run.threads=1");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "2 ranks, 1 thread: ops and calls run one after the other here");
    CHECK(strstr(behind(o.out, "swiglu"), "swiglu") == NULL); /* one rank speaks */
    CHECK_TEXT(o.err, "");
}

static void what_cannot_be_measured_is_refused(void **state)
{
    static const struct {
        const char *args[8], *says;
    } BAD[] = {
        { { "bench", "comm" }, "it needs two ranks or more: give --ranks" },
        { { "bench", "comm", "--ranks=0" }, "--ranks" },
        { { "bench", "contention" }, "it needs two ranks or more: give --ranks" },
        { { "bench", "comm", "--ranks=2", "--only=some" }, "--only" },
        { { "bench", "comm", "--ranks=3", "mesh.ranks_per_host=2" },
          "mesh.ranks_per_host 2 does not divide the 3 ranks" },
        { { STEP, "--exposed" }, "--exposed measures what communication between ranks costs" },
        { { STEP, RANKS2, "comm.null=[ep]" },
          "comm.null was removed after 0.9.0: bench step --exposed" },
        { { STEP, "--data", "data.sources=[]" }, "data.sources is empty" },
        { { STEP, "--data", "data.sources=[{name: x, path: nowhere}]" }, "nowhere.idx" },
        { { "bench", "ladder", "../tiny.yaml", "--ranks=3", "train.batch=4" },
          "train.batch 4 is not a multiple of 3 ranks" },
        { { "train", "../tiny.yaml", "comm.null=[pp]" }, "comm.null was removed" },
    };
    Lab *lab = *state;
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        Outcome o = lab_run(lab, &(Launch){ .cell = "bad", .args = BAD[i].args });
        CHECK_EXIT(o, 2);
        CHECK_SAYS(o.err, BAD[i].says);
        CHECK_TEXT(o.out, "");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LAB_TEST(steps_run_on_the_tokens_of_the_configuration),
        LAB_TEST(random_tokens_may_come_in_documents),
        LAB_TEST(few_ids_are_frequent_by_zipfs_law),
        LAB_TEST(the_first_losses_are_the_same_on_any_mesh),
        LAB_TEST(flops_are_of_pairs_that_documents_leave),
        LAB_TEST(a_run_counts_no_pairs_that_documents_hide),
        LAB_TEST(exposed_time_is_told_by_kind_of_traffic),
        LAB_TEST(forced_balance_is_said),
        LAB_TEST(a_ladder_goes_up_to_all_ranks),
        LAB_TEST(a_slope_is_the_difference_of_two_depths),
        LAB_TEST(parts_add_up_to_the_step),
        LAB_TEST(a_ladder_of_features_has_its_rungs),
        LAB_TEST(communication_is_measured),
        LAB_TEST(ops_are_timed_beside_communication),
        LAB_TEST(what_cannot_be_measured_is_refused),
    };
    return cmocka_run_group_tests(tests, lab_open, lab_close);
}
