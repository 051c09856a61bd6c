/* Studies of a plan: a row has the digits that plan gives its settings alone, batches move to the nearest legal one,
 * and sentences say what the rows show. */
#include "harness/question.h"

#include "study/study.h"

#include <cjson/cJSON.h>

static Question asked;
static Study study; /* its rows are many */
static Arena page;  /* of the text, which must be the last in its arena */
static Text text;

static void open_study(const char *name, const char *model, const char *gpu, int64_t gpus,
                       const char *stack, const char *const *set, int n)
{
    question_load(&asked, model, gpu, gpus, stack, set, n);
    study = (Study){ .base = asked.request, .stack = stack, .a = &asked.arena };
    CHECK_OK(study_find(name, &study.kind));
}

static void say(void)
{
    CHECK_OK(text_init(&text, &page));
    CHECK_OK(study.kind->says(&study, &text));
}

static void check_says(const char *part)
{
    if (strstr(text.data, part) == NULL) fail_msg("\"%s\" is not in: %s", part, text.data);
}

static const StudyRow *row_named(const char *label)
{
    for (int i = 0; i < study.n; i++) {
        if (strcmp(study.row[i].label, label) == 0) return &study.row[i];
    }
    fail_msg("no row is named %s", label);
    return NULL;
}

/* ---- rows are plans ---- */

/* Applies words of a row's settings to a copy of the question, as a command line would. */
static void plan_alone(const StudyRow *r, PlanAnswer *out)
{
    char words[2048], *rest = NULL;
    Config *c = NULL;
    PlanQuestion q = { .request = study.base };
    CHECK_OK(ARENA_NEW(&asked.arena, 1, &c));
    *c = *study.base.config;
    q.request.config = c;
    (void)snprintf(words, sizeof words, "%s", r->settings);
    for (char *w = strtok_r(words, " ", &rest); w != NULL; w = strtok_r(NULL, " ", &rest)) {
        if (strcmp(w, "--stack") == 0) {
            PlanStack *stack = NULL;
            CHECK_OK(ARENA_NEW(&asked.arena, 1, &stack));
            CHECK_OK(stack_load(stack, &asked.arena, strtok_r(NULL, " ", &rest)));
            q.request.stack = stack;
        } else if (strcmp(w, "--cluster") == 0) {
            q.request.gpus = atoll(strrchr(strtok_r(NULL, " ", &rest), ':') + 1);
        } else {
            CHECK_OK(config_override(c, &asked.arena, w));
        }
    }
    CHECK_OK(plan_answer(&q, &asked.arena, out));
}

/* *checked: rows that have settings. */
static void check_rows(int *checked)
{
    *checked = 0;
    for (int i = 0; i < study.n; i++) {
        const StudyRow *r = &study.row[i];
        PlanAnswer alone;
        if (!study_legal(r) || *r->settings == '\0') continue;
        plan_alone(r, &alone);
        CHECK_NEAR(alone.price.step_s, r->price.step_s, 0);
        CHECK_NEAR(alone.price.peak_bytes, r->price.peak_bytes, 0);
        CHECK_NEAR(alone.price.mfu, r->price.mfu, 0);
        CHECK_INT(alone.price.fits, r->price.fits);
        plan_answer_free(&alone);
        ++*checked;
    }
}

static void a_row_has_the_digits_of_its_settings_alone(void **state)
{
    (void)state;
    static const struct {
        const char *study;
        int rows; /* with settings, on stack primus and on our own */
        int own;
    } x[] = { { "micro-batch", 6, 5 }, { "ep", 8, 4 },        { "scale", 2, 2 },
              { "recompute", 6, 6 },   { "precision", 5, 4 }, { "memory", 4, 8 } };
    const char *set[] = { "mesh.pp=2", "train.batch=256", "mesh.vpp=2",
                          "mesh.schedule=interleaved" };
    for (size_t i = 0; i < sizeof x / sizeof *x; i++) {
        for (int own = 0; own < 2; own++) {
            int checked = 0;
            open_study(x[i].study, "deepseek-v2-lite", own ? "h200" : "mi355x", 16,
                       own ? "switchyard" : "primus", set, own ? 4 : 2);
            study.gpus[0] = 16, study.gpus[1] = 32;
            study.n_gpus = strcmp(x[i].study, "scale") == 0 ? 2 : 0;
            CHECK_OK(study_run(&study));
            check_rows(&checked);
            CHECK_INT(checked, own ? x[i].own : x[i].rows);
            question_close(&asked);
        }
    }
}

/* ---- which rows there are ---- */

static void micro_batches_double_until_three_do_not_fit_or_none_divides(void **state)
{
    (void)state;
    const char *set[] = { "mesh.ep=8", "train.batch=4608", "search.micro_batch=[3,12]" };
    int unfit = 0;
    open_study("micro-batch", "deepseek-v2-lite", "mi355x", 8, "primus", set, 2);
    CHECK_OK(study_run(&study));
    CHECK_INT(study.n, 7); /* 1 to 64; 16, 32 and 64 do not fit */
    for (int i = 0; i < study.n; i++) {
        CHECK(study_legal(&study.row[i]));
        CHECK_INT(study.row[i].layout.micro_batch, 1 << i);
        unfit += !study.row[i].price.fits;
    }
    CHECK_INT(unfit, 3);
    CHECK_OK(study_fits(&study));
    question_close(&asked);
    open_study("micro-batch", "deepseek-v2-lite", "mi355x", 8, "primus", set, 3);
    CHECK_OK(study_run(&study));
    CHECK_INT(study.n, 2);
    CHECK_INT(study.row[1].layout.micro_batch, 12);
    question_close(&asked);
    set[1] = "train.batch=48"; /* 6 a rank: 4 does not divide */
    open_study("micro-batch", "deepseek-v2-lite", "mi355x", 8, "primus", set, 2);
    CHECK_OK(study_run(&study));
    CHECK_INT(study.n, 3);
    CHECK_TEXT(row_named("4")->why,
               "train.batch 48 is no multiple of 32, data-parallel ranks 8 x train.micro_batch 4");
    question_close(&asked);
}

static void ranks_of_experts_have_the_stacks_exchanges(void **state)
{
    (void)state;
    const char *set[] = { "train.batch=64", "mesh.pp=2", "train.micro_batch=4" };
    open_study("ep", "deepseek-v2-lite", "mi355x", 16, "primus", set, 3);
    CHECK_OK(study_run(&study));
    CHECK_INT(study.n, 8); /* 1, 2, 4, 8 of the 8 GPUs of a stage, twice */
    CHECK(row_named("8 deepep=0")->price.step_s > row_named("8 deepep=1")->price.step_s);
    question_close(&asked);
    open_study("ep", "deepseek-v2-lite", "mi355x", 16, "primus,deepep=0", set, 3);
    CHECK_OK(study_run(&study));
    CHECK_INT(study.n, 4);
    CHECK_INT(row_named("8")->layout.ep, 8);
    question_close(&asked);
}

static void what_is_recomputed_takes_less_memory_and_more_time(void **state)
{
    (void)state;
    const char *set[] = { "mesh.ep=8", "train.batch=64", "recompute.layers=[3]" };
    open_study("recompute", "mixtral-8x7b", "mi355x", 16, "primus", set, 3);
    CHECK_OK(study_run(&study));
    CHECK_TEXT(row_named("shared")->why, "the model has no shared experts");
    const StudyRow *none = row_named("none"), *half = row_named("layer, 16 of 32 a chunk"),
                   *all = row_named("layer");
    CHECK_INT(none->layout.recompute, 0);
    CHECK(all->price.peak_bytes < half->price.peak_bytes);
    CHECK(half->price.peak_bytes < none->price.peak_bytes);
    CHECK(none->price.step_s < half->price.step_s && half->price.step_s < all->price.step_s);
    question_close(&asked);
}

static void memory_of_each_rank_adds_up_to_the_plans(void **state)
{
    (void)state;
    const char *set[] = { "mesh.pp=4", "mesh.ep=1", "train.batch=64", "mesh.zero=1" };
    open_study("memory", "deepseek-v2-lite", "h200", 16, "switchyard", set, 4);
    CHECK_OK(study_run(&study));
    CHECK_INT(study.n, 9);
    for (int i = 0; i < study.n; i++) {
        const StudyRow *r = &study.row[i];
        double most = 0;
        for (int rank = 0; rank < 4; rank++) {
            double sum = 0;
            for (int k = 0; k < PLAN_KINDS; k++) sum += r->memory[rank][k];
            most = fmax(most, sum);
        }
        CHECK_NEAR(most / r->price.peak_bytes, 1, 1e-9);
    }
    CHECK_NEAR(row_named("as given")->price.peak_bytes,
               row_named("ZeRO-1 recompute none")->price.peak_bytes, 0);
    CHECK(row_named("ZeRO-3 recompute none")->price.memory[PLAN_OPTIMIZER] <
          row_named("ZeRO-0 recompute none")->price.memory[PLAN_OPTIMIZER] / 3.9);
    question_close(&asked);
}

/* ---- the batch ---- */

static void batches_below_and_above_are_the_nearest_that_a_schedule_takes(void **state)
{
    (void)state;
    const char *set[] = { "train.batch=96", "mesh.pp=4", "mesh.vpp=2",
                          "mesh.schedule=interleaved" };
    int64_t below = 0, above = 0;
    PlanLayout l;
    open_study("recompute", "deepseek-v2-lite", "h200", 64, "switchyard", set, 4);
    CHECK_OK(plan_layout_of(study.base.config, 64, &asked.arena, &l));
    study_batches(study.base.config, &l, 96, &below, &above); /* 16 ranks, 4 micro-batches */
    CHECK_INT(below, 64);
    CHECK_INT(above, 128);
    study_batches(study.base.config, &l, 128, &below, &above);
    CHECK_INT(below, 128);
    CHECK_INT(above, 128);
    study_batches(study.base.config, &l, 5, &below, &above);
    CHECK_INT(below, 0);
    CHECK_INT(above, 64);
    CHECK_FAILS(study_run(&study), ERR_ARG,
                "no row takes train.batch 96 over 16 data-parallel ranks: set train.batch to the "
                "nearest legal one, 64 below and 128 above");
    question_close(&asked);
}

static void the_batch_grows_with_the_gpus_or_stays(void **state)
{
    (void)state;
    const char *set[] = { "train.batch=60", "mesh.ep=8" };
    for (int strong = 0; strong < 2; strong++) {
        open_study("scale", "deepseek-v2-lite", "mi355x", 16, "primus", set, 2);
        study.strong = strong;
        study.gpus[0] = 16, study.gpus[1] = 32, study.gpus[2] = 36, study.n_gpus = 3;
        study.tokens = 1e12;
        CHECK_OK(study_run(&study));
        CHECK_INT(study.row[0].request.config->train_batch, 64); /* 60 lies between 48 and 64 */
        CHECK_TEXT(study.row[0].moved, "the nearest legal batch to 60");
        CHECK_INT(study.row[1].request.config->train_batch, strong ? 64 : 128);
        CHECK_TEXT(study.row[2].why, "mesh.ep 8 does not divide the ranks of a pipeline stage, 36");
        const PlanPrice *p = &study.row[1].price;
        CHECK_NEAR(study.row[1].goodput.full_s * 32 * p->tokens_per_s_per_gpu / 1e12, 1, 1e-6);
        CHECK_OK(text_init(&text, &page));
        CHECK_OK(study_print_text(&study, &text));
        check_says("  batch 64, the nearest legal batch to 60; 100.0 % of the first row's speed; ");
        say();
        check_says(strong ? "with nearly the same batch" : "with a batch that grows with the GPUs");
        question_close(&asked);
    }
}

static void a_search_finds_a_layout_for_each_number_of_gpus(void **state)
{
    (void)state;
    const char *set[] = { "train.batch=60",         "search.cp=[1]",   "search.vpp=[1]",
                          "search.schedule=[1f1b]", "search.zero=[1]", "search.micro_batch=[1]",
                          "search.pp=[1]",          "search.tp=[1]",   "search.ep=[1,8]" };
    open_study("scale", "deepseek-v2-lite", "mi355x", 8, "primus", set, 9);
    study.search = true;
    study.gpus[0] = 8, study.gpus[1] = 16, study.n_gpus = 2;
    CHECK_OK(study_run(&study));
    CHECK_INT(study.row[0].request.config->train_batch, 56);  /* of 56 and 64 the lower */
    CHECK_INT(study.row[1].request.config->train_batch, 112); /* of 112 and 128 */
    CHECK_INT(study.row[1].layout.dp, 16);
    question_close(&asked);
}

/* ---- sentences ---- */

/* A row without a planner: what a sentence reads of it. */
static void put_row(const char *label, double x, int curve, double speed, double gib, bool fits)
{
    StudyRow *r = &study.row[study.n++];
    *r = (StudyRow){ .label = label, .settings = "", .x = x, .curve = curve };
    r->request = study.base;
    r->price.tokens_per_s_per_gpu = speed;
    r->price.peak_bytes = gib * PLAN_GIB;
    r->price.memory[PLAN_ACTIVATIONS] = 0.5 * r->price.peak_bytes;
    r->price.fits = fits;
    r->price.step_s = 100 / speed;
    r->price.part_s[PLAN_HOST] = r->price.step_s * x / 100;
    r->price.part_s[PLAN_EXCHANGE] = r->price.step_s * x / 200;
}

static void sentences_say_what_the_rows_show(void **state)
{
    (void)state;
    const char *set[] = { "train.batch=64" };
    open_study("micro-batch", "deepseek-v2-lite", "mi355x", 8, "primus", set, 1);
    put_row("1", 60, 0, 100, 50, true);
    put_row("2", 20, 0, 250, 100, true);
    put_row("4", 10, 0, 300, 290, false);
    say();
    CHECK_TEXT(
        text.data,
        "Micro-batches of 2 are the fastest that fit: 2.50 x the speed of 1; the host costs 20.0 % "
        "of the step instead of 60.0; 4 take 290.00 GiB, and 273.60 may be used.");
    CHECK_OK(study_find("recompute", &study.kind));
    say();
    CHECK_TEXT(text.data, "The fastest that fits is recompute 2, 250.0 tokens/s/GPU.");
    CHECK_OK(study_find("precision", &study.kind));
    say();
    CHECK_TEXT(text.data, "2 is the fastest that fits, 250.0 tokens/s/GPU: 2.50 x 1, with 100.00 "
                          "GiB instead of 50.00.");
    CHECK_OK(study_find("memory", &study.kind));
    study.row[2].price.peak_bytes = 25 * PLAN_GIB;
    say();
    CHECK_TEXT(
        text.data,
        "Pipeline rank 0 is the fullest with 50.00 GiB, 50 % of it activations, and 273.60 may "
        "be used; of its neighbours 4 takes least, 25.00 GiB at 300.0 % of the "
        "speed.");
    study.n = 0;
    CHECK_OK(study_find("ep", &study.kind));
    study.curve[0] = "deepep=0", study.curve[1] = "deepep=1";
    put_row("8", 8, 0, 200, 50, true);
    put_row("16", 16, 0, 50, 50, true);
    put_row("8", 8, 1, 220, 50, true);
    put_row("16", 16, 1, 110, 50, true);
    say();
    CHECK_TEXT(
        text.data,
        "From EP8 to EP16 a GPU has 0.25 x the speed with deepep=0 and 0.50 x with deepep=1, "
        "which is 1.10 x as fast at EP8 and 2.20 x at EP16.");
    question_close(&asked);
}

/* ---- what is printed ---- */

static int commas(const char *line, const char *end)
{
    int n = 0;
    bool quoted = false;
    for (; line < end; line++) {
        if (*line == '"') quoted = !quoted;
        n += !quoted && *line == ',';
    }
    CHECK(!quoted);
    return n;
}

static void csv_has_as_many_cells_in_every_line(void **state)
{
    (void)state;
    const char *set[] = { "mesh.pp=2", "mesh.ep=4", "train.batch=64" };
    int lines = 0;
    open_study("memory", "deepseek-v2-lite", "mi355x", 16, "primus", set, 3);
    CHECK_OK(study_run(&study));
    CHECK_OK(text_init(&text, &page));
    CHECK_OK(study_print_csv(&study, &text));
    const char *at = text.data, *end = strchr(at, '\n');
    const int cells = commas(at, end);
    for (; *at != '\0'; at = end + 1, lines++) {
        end = strchr(at, '\n');
        CHECK_INT(commas(at, end), cells);
    }
    CHECK_INT(lines,
              1 + 5 * 2 + 4); /* two ranks of each, and one line for each that is not legal */
    question_close(&asked);
}

static void json_and_text_have_the_same_rows(void **state)
{
    (void)state;
    const char *set[] = { "mesh.ep=8", "train.batch=48" };
    open_study("micro-batch", "deepseek-v2-lite", "mi355x", 8, "primus", set, 2);
    CHECK_OK(study_run(&study));
    CHECK_OK(text_init(&text, &page));
    CHECK_OK(study_print_json(&study, &text));
    cJSON *root = cJSON_Parse(text.data);
    CHECK(root != NULL);
    const cJSON *rows = cJSON_GetObjectItemCaseSensitive(root, "rows");
    CHECK_INT(cJSON_GetArraySize(rows), study.n);
    const cJSON *second = cJSON_GetArrayItem(rows, 1), *last = cJSON_GetArrayItem(rows, 2);
    const double speed =
        cJSON_GetObjectItemCaseSensitive(second, "tokens_per_s_per_gpu")->valuedouble;
    CHECK_NEAR(speed / study.row[1].price.tokens_per_s_per_gpu, 1, 1e-8);
    CHECK(cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(second, "fits")));
    CHECK(cJSON_GetObjectItemCaseSensitive(last, "not_legal") != NULL);
    CHECK(cJSON_GetObjectItemCaseSensitive(last, "fits") == NULL);
    cJSON_Delete(root);
    char line[128];
    CHECK_OK(text_init(&text, &page));
    CHECK_OK(study_print_text(&study, &text));
    (void)snprintf(line, sizeof line, "\n  %-9s %13.1f ", "2", speed);
    check_says(line);
    check_says("\n  4          not legal: train.batch 48 is no multiple of 32");
    question_close(&asked);
}

static void what_no_study_can_be_is_said(void **state)
{
    (void)state;
    const StudyKind *kind = NULL;
    const char *set[] = { "train.batch=64", "mesh.ep=8" };
    CHECK_FAILS(study_find("micro", &kind), ERR_ARG, "no study micro, did you mean micro-batch?");
    CHECK_FAILS(study_find("recompte", &kind), ERR_ARG, "did you mean recompute?");
    CHECK_FAILS(study_find("zzz", &kind), ERR_ARG, "there are micro-batch, ep, scale");
    open_study("ep", "llama3-8b", "h200", 8, "switchyard", set, 1);
    CHECK_FAILS(study_run(&study), ERR_ARG, "llama3-8b has no experts: it is dense");
    question_close(&asked);
    open_study("micro-batch", "deepseek-v3", "h200", 8, "switchyard", set, 2);
    CHECK_OK(study_run(&study));
    CHECK_FAILS(study_fits(&study), ERR_FIT, "no row fits: 1 takes least, ");
    say();
    check_says("No row fits: 1 takes least, ");
    question_close(&asked);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_has_the_digits_of_its_settings_alone),
        cmocka_unit_test(micro_batches_double_until_three_do_not_fit_or_none_divides),
        cmocka_unit_test(ranks_of_experts_have_the_stacks_exchanges),
        cmocka_unit_test(what_is_recomputed_takes_less_memory_and_more_time),
        cmocka_unit_test(memory_of_each_rank_adds_up_to_the_plans),
        cmocka_unit_test(batches_below_and_above_are_the_nearest_that_a_schedule_takes),
        cmocka_unit_test(the_batch_grows_with_the_gpus_or_stays),
        cmocka_unit_test(a_search_finds_a_layout_for_each_number_of_gpus),
        cmocka_unit_test(sentences_say_what_the_rows_show),
        cmocka_unit_test(csv_has_as_many_cells_in_every_line),
        cmocka_unit_test(json_and_text_have_the_same_rows),
        cmocka_unit_test(what_no_study_can_be_is_said),
    };
    CHECK_OK(arena_reserve(&page, "page", (size_t)1 << 32));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
