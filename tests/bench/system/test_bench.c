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
    CHECK_SAYS(o.out, "keys on average, 32.5 without documents; FLOPs are counted without");
    o = RUN(lab, "documents", STEP, "--data", "--documents=4");
    CHECK_REFUSED(o, 2, "--data has documents of its own");
    o = RUN(lab, "documents", STEP, "--documents=0");
    CHECK_REFUSED(o, 2, "--documents");
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
    CHECK_SAYS(o.out, "2 ranks, 1 threads: ops and calls run one after the other here");
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
        LAB_TEST(exposed_time_is_told_by_kind_of_traffic),
        LAB_TEST(forced_balance_is_said),
        LAB_TEST(a_ladder_goes_up_to_all_ranks),
        LAB_TEST(a_ladder_of_features_has_its_rungs),
        LAB_TEST(communication_is_measured),
        LAB_TEST(ops_are_timed_beside_communication),
        LAB_TEST(what_cannot_be_measured_is_refused),
    };
    return cmocka_run_group_tests(tests, lab_open, lab_close);
}
