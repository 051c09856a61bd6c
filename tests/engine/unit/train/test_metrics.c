/* metrics.jsonl: what each line says, and that a run that was killed can be appended to. */
#include "engine/train/peak.h"
#include "engine/unit/train/run_place.h"

#include <cjson/cJSON.h>

/* The n-th line as JSON. */
static cJSON *line(RunPlace *p, int n)
{
    size_t bytes = 0;
    CHECK_OK(file_read_all(p->path, &p->t.arena, &p->text, &bytes));
    char *at = p->text;
    for (; n > 0; n--) at = strchr(at, '\n') + 1;
    char *end = strchr(at, '\n');
    CHECK(end != NULL);
    *end = '\0';
    cJSON *j = cJSON_Parse(at);
    if (j == NULL) fail_msg("no JSON: %s", at);
    return j;
}

static double number(const cJSON *j, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(j, key);
    return cJSON_IsNumber(item) ? item->valuedouble : (double)NAN;
}

static double cell(const cJSON *table, int row, int col)
{
    return cJSON_GetArrayItem(cJSON_GetArrayItem(table, row), col)->valuedouble;
}

static void a_step_line_has_every_number_and_the_load_over_all_domains(void **state)
{
    RunPlace *p = *state;
    double peak = 80;
    StepMetrics s = { .step = 7, .tokens = 96, .lr = 0.25, .step_s = 0.5, .tokens_per_s = 192 };
    metrics_shares(&s, 10, &peak, 160);
    s.result = tiny_steps(&p->t, 0, 1);
    CHECK_OK(metrics_step(&p->metrics, &s));
    cJSON *j = line(p, 0);
    CHECK_NEAR(number(j, "step"), 7, 0);
    CHECK_NEAR(number(j, "tokens"), 96, 0);
    CHECK_NEAR(number(j, "lr"), 0.25, 0);
    CHECK_NEAR(number(j, "step_s"), 0.5, 0);
    CHECK_NEAR(number(j, "tokens_per_s"), 192, 0);
    CHECK_NEAR(number(j, "roof_share"), 0.25, 0);
    CHECK_NEAR(number(j, "roof_flops"), 80, 0);
    CHECK_NEAR(number(j, "mfu"), 0.125, 0);
    CHECK_NEAR(number(j, "loss"), s.result.loss, 0);
    CHECK_NEAR(number(j, "aux_loss"), s.result.aux_loss, 0);
    CHECK_NEAR(number(j, "grad_norm"), s.result.grad_norm, 0);
    CHECK_NEAR(number(j, "grad_norm_experts"), s.result.group_norm[GRAD_EXPERTS], 0);
    CHECK_NEAR(number(j, "grad_norm_head"), s.result.group_norm[GRAD_HEAD], 0);
    const cJSON *z = cJSON_GetObjectItem(j, "router_z");
    CHECK_INT(cJSON_GetArraySize(z), 2);
    CHECK_NEAR(cJSON_GetArrayItem(z, 1)->valuedouble, (double)s.result.router_z[1] / 96, 0);
    const cJSON *memory = cJSON_GetObjectItem(j, "memory_bytes"),
                *load = cJSON_GetObjectItem(j, "expert_load");
    CHECK_NEAR(number(memory, "slot"), engine_peak_bytes(&p->t.engine, ENGINE_SLOT), 0);
    CHECK(cJSON_GetObjectItem(j, "expert_load_by_domain") == NULL);
    for (int layer = 0; layer < 2; layer++) {
        for (int e = 0; e < 6; e++) {
            const int32_t *l = s.result.load + layer * 12 + e;
            CHECK_NEAR(cell(load, layer, e), l[0] + l[6], 0);
        }
    }
    cJSON_Delete(j);
}

/* The first step without a slow rank or a clock, the second with both. */
static void a_slow_rank_and_the_clocks_of_gpus_are_named_where_there_are_any(void **state)
{
    RunPlace *p = *state;
    RankSpread ranks = { .slowest = 3, .slow = -1 };
    StepMetrics s = { .step = 1, .tokens = 96, .step_s = 0.5, .ranks = &ranks };
    s.result = tiny_steps(&p->t, 0, 1);
    CHECK_OK(metrics_step(&p->metrics, &s));
    ranks.slow = 2;
    ranks.least.of[RANK_CLOCK_MHZ] = 1200, ranks.most.of[RANK_CLOCK_MHZ] = 1980;
    s.result.verify_s = 0.25;
    CHECK_OK(metrics_step(&p->metrics, &s));
    for (int i = 0; i < 2; i++) {
        cJSON *j = line(p, i);
        const cJSON *of = cJSON_GetObjectItem(j, "ranks"),
                    *clock = cJSON_GetObjectItem(of, "clock_mhz");
        CHECK_NEAR(number(of, "slowest"), 3, 0);
        CHECK((cJSON_GetObjectItem(of, "slow") != NULL) == (i == 1));
        CHECK((clock != NULL) == (i == 1));
        CHECK((cJSON_GetObjectItem(j, "verify_s") != NULL) == (i == 1));
        if (i == 1) CHECK_NEAR(number(of, "slow"), 2, 0);
        if (i == 1) CHECK_NEAR(number(j, "verify_s"), 0.25, 0);
        if (i == 1) CHECK_NEAR(cJSON_GetArrayItem(clock, 0)->valuedouble, 1200, 0);
        cJSON_Delete(j);
    }
}

static void waits_for_checkpoints_are_in_steps_that_have_them(void **state)
{
    RunPlace *p = *state;
    StepMetrics s = { .step = 1, .tokens = 96, .step_s = 0.5 };
    s.result = tiny_steps(&p->t, 0, 1);
    CHECK_OK(metrics_step(&p->metrics, &s));
    s.save_stall_s = 0.25, s.save_share = 0.01;
    CHECK_OK(metrics_step(&p->metrics, &s));
    for (int i = 0; i < 2; i++) {
        cJSON *j = line(p, i);
        CHECK((cJSON_GetObjectItem(j, "save_stall_s") != NULL) == (i == 1));
        CHECK((cJSON_GetObjectItem(j, "save_share") != NULL) == (i == 1));
        if (i == 1) CHECK_NEAR(number(j, "save_stall_s"), 0.25, 0);
        if (i == 1) CHECK_NEAR(number(j, "save_share"), 0.01, 0);
        cJSON_Delete(j);
    }
}

static void a_figure_stands_in_the_line_of_its_step_alone(void **state)
{
    RunPlace *p = *state;
    StepMetrics s = { .step = 1, .tokens = 96, .step_s = 0.5, .save_stall_s = 0.25 };
    s.result = tiny_steps(&p->t, 0, 1);
    s.result.retried = true, s.result.retry_s = 2;
    CHECK_OK(metrics_step(&p->metrics, &s));
    s.save_stall_s = 0, s.result.retried = false;
    CHECK_OK(metrics_step(&p->metrics, &s));
    for (int i = 0; i < 2; i++) {
        cJSON *j = line(p, i);
        CHECK((cJSON_GetObjectItem(j, "save_stall_s") != NULL) == (i == 0));
        CHECK(cJSON_IsTrue(cJSON_GetObjectItem(j, "again")) == (i == 0));
        CHECK((cJSON_GetObjectItem(j, "again_s") != NULL) == (i == 0));
        cJSON_Delete(j);
    }
}

/* The peak was measured while something else ran. */
static void a_step_faster_than_the_peak_raises_it(void **state)
{
    (void)state;
    double peak = 80, unknown = 0;
    StepMetrics s = { .step_s = 0.5 };
    metrics_shares(&s, 52, &peak, 0); /* 130 % */
    CHECK_NEAR(s.roof_share, 1, 0);
    CHECK_NEAR(s.roof_flops, 104, 0);
    CHECK_NEAR(peak, 104, 0);
    metrics_shares(&s, 26, &peak, 0);
    CHECK_NEAR(s.roof_share, 0.5, 0);
    CHECK_NEAR(peak, 104, 0);
    metrics_shares(&s, 26, &unknown, 0);
    CHECK_NEAR(s.roof_share, 0, 0);
    CHECK_NEAR(unknown, 0, 0);
}

static void without_a_data_sheet_there_is_no_mfu(void **state)
{
    RunPlace *p = *state;
    double peak = 80;
    StepMetrics s = { .step = 1, .step_s = 0.5 };
    s.result = tiny_steps(&p->t, 0, 1);
    metrics_shares(&s, 10, &peak, 0);
    CHECK_OK(metrics_step(&p->metrics, &s));
    cJSON *j = line(p, 0);
    CHECK_NEAR(number(j, "roof_share"), 0.25, 0);
    CHECK(cJSON_GetObjectItem(j, "mfu") == NULL);
    cJSON_Delete(j);
}

/* Shards of 600 tokens are 25 sequences of 24; the model's own sequence gives the tokens. */
static void tokens_and_epochs_by_domain_are_sums_so_far(void **state)
{
    RunPlace *p = *state;
    const int64_t taken[] = { 12, 5 };
    double T = (double)p->t.engine.config->data_sequence;
    StepMetrics s = { .step = 1, .by_domain = true, .taken = taken };
    s.result = tiny_steps(&p->t, 0, 1);
    CHECK_OK(metrics_step(&p->metrics, &s));
    cJSON *j = line(p, 0);
    const cJSON *tokens = cJSON_GetObjectItem(j, "domain_tokens");
    CHECK_NEAR(number(tokens, "we\"b"), 12 * T, 0);
    CHECK_NEAR(number(tokens, "books"), 5 * T, 0);
    CHECK_NEAR(number(cJSON_GetObjectItem(j, "domain_epochs"), "we\"b"), 12 / 25.0, 1e-12);
    cJSON_Delete(j);
    s.by_domain = false;
    CHECK_OK(metrics_step(&p->metrics, &s));
    j = line(p, 1);
    CHECK(cJSON_GetObjectItem(j, "domain_tokens") == NULL);
    cJSON_Delete(j);
}

static void the_load_by_domain_is_written_when_asked_for(void **state)
{
    RunPlace *p = *state;
    StepMetrics s = { .step = 1, .by_domain = true };
    s.result = tiny_steps(&p->t, 0, 1);
    CHECK_OK(metrics_step(&p->metrics, &s));
    cJSON *j = line(p, 0);
    const cJSON *by = cJSON_GetObjectItem(j, "expert_load_by_domain");
    CHECK_INT(cJSON_GetArraySize(by), 2);
    const cJSON *web = cJSON_GetObjectItem(by, "we\"b"), *books = cJSON_GetObjectItem(by, "books");
    CHECK_NEAR(cell(web, 1, 3), s.result.load[12 + 3], 0);
    CHECK_NEAR(cell(books, 1, 3), s.result.load[12 + 6 + 3], 0);
    cJSON_Delete(j);
}

static void a_step_on_a_gpu_has_its_launches_and_what_the_driver_tells(void **state)
{
    RunPlace *p = *state;
    StepMetrics s = { .step = 1 };
    s.result = tiny_steps(&p->t, 0, 1);
    CHECK_OK(metrics_step(&p->metrics, &s)); /* as it is on the CPU */
    s.result.device_s = 0.25, s.result.launches = 1, s.result.kernels = 700, s.result.waits = 2;
    s.gpu = (GpuReading){ .known = 1u << GPU_CLOCK_MHZ | 1u << GPU_POWER_W | 1u << GPU_THROTTLE,
                          .value = { [GPU_CLOCK_MHZ] = 1755, [GPU_POWER_W] = 650.5 },
                          .throttle = 0x44 };
    CHECK_OK(metrics_step(&p->metrics, &s));
    cJSON *cpu = line(p, 0), *gpu = line(p, 1);
    static const char *const keys[] = { "device_s", "launches",      "kernels",
                                        "waits",    "clock_mhz",     "memory_clock_mhz",
                                        "power_w",  "temperature_c", "throttle" };
    for (int i = 0; i < 9; i++) CHECK(cJSON_GetObjectItem(cpu, keys[i]) == NULL);
    CHECK_NEAR(number(gpu, "device_s"), 0.25, 0);
    CHECK_NEAR(number(gpu, "launches"), 1, 0);
    CHECK_NEAR(number(gpu, "kernels"), 700, 0);
    CHECK_NEAR(number(gpu, "waits"), 2, 0);
    CHECK_NEAR(number(gpu, "clock_mhz"), 1755, 0);
    CHECK_NEAR(number(gpu, "power_w"), 650.5, 0);
    CHECK(cJSON_GetObjectItem(gpu, "memory_clock_mhz") == NULL);
    CHECK(cJSON_GetObjectItem(gpu, "temperature_c") == NULL);
    const cJSON *why = cJSON_GetObjectItem(gpu, "throttle");
    CHECK_INT(cJSON_GetArraySize(why), 2);
    CHECK_TEXT(cJSON_GetStringValue(cJSON_GetArrayItem(why, 0)), "sw_power_cap");
    CHECK_TEXT(cJSON_GetStringValue(cJSON_GetArrayItem(why, 1)), "hw_thermal");
    cJSON_Delete(cpu);
    cJSON_Delete(gpu);
}

static void a_loss_that_is_not_finite_is_null(void **state)
{
    RunPlace *p = *state;
    StepMetrics s = { .step = 1 };
    s.result = tiny_steps(&p->t, 0, 1);
    s.result.loss = (double)NAN;
    CHECK_OK(metrics_step(&p->metrics, &s));
    cJSON *j = line(p, 0);
    CHECK(cJSON_IsNull(cJSON_GetObjectItem(j, "loss")));
    cJSON_Delete(j);
}

/* Two domains: 10 nats over 4 targets and 8 bytes, 2 nats over 4 targets and 2 bytes. */
static EvalMetrics two_domains(const int64_t *load)
{
    return (EvalMetrics){
        .step = 3, .n_domains = 2, .domain = { { 10, 4, 8 }, { 2, 4, 2 } }, .load = load
    };
}

static void evaluations_weigh_domains_by_targets_and_bytes(void **state)
{
    (void)state;
    char text[EVAL_TEXT_BYTES];
    EvalMetrics v = two_domains(NULL);
    EvalSum all = eval_total(&v);
    CHECK_NEAR(eval_loss(&all), 1.5, 1e-15);
    CHECK_NEAR(eval_bits_per_byte(&all), 12 / log(2) / 10, 1e-15);
    CHECK_TEXT(eval_text(&all, ", ", text), "loss 1.5000, 1.7312 bits a byte");
    all.bytes = 0;
    CHECK(isnan(eval_bits_per_byte(&all)));
    CHECK_TEXT(eval_text(&all, ", ", text), "loss 1.5000");
    all.targets = 0;
    CHECK(isnan(eval_loss(&all)));
}

static void an_evaluation_line_has_every_domain(void **state)
{
    RunPlace *p = *state;
    int64_t load[24];
    for (int i = 0; i < 24; i++) load[i] = 100 + i;
    EvalMetrics v = two_domains(load);
    CHECK_OK(metrics_eval(&p->metrics, &v));
    cJSON *j = line(p, 0);
    const cJSON *domains = cJSON_GetObjectItem(j, "domains"),
                *web = cJSON_GetObjectItem(domains, "we\"b");
    CHECK_NEAR(number(j, "step"), 3, 0);
    CHECK_NEAR(number(j, "loss"), 1.5, 0);
    CHECK_NEAR(number(web, "loss"), 2.5, 0);
    CHECK_NEAR(number(web, "bits_per_byte"), 10 / log(2) / 8, 1e-15);
    CHECK_NEAR(number(cJSON_GetObjectItem(domains, "books"), "bytes"), 2, 0);
    const cJSON *by = cJSON_GetObjectItem(j, "expert_load_by_domain");
    CHECK_NEAR(cell(cJSON_GetObjectItem(by, "books"), 1, 2), 100 + (1 * 2 + 1) * 6 + 2, 0);
    cJSON_Delete(j);
}

static void start_names_model_domains_layers_and_plan(void **state)
{
    RunPlace *p = *state;
    CHECK_OK(metrics_start(&p->metrics, &p->t.plan, 2.5e11, 1e15));
    cJSON *j = line(p, 0);
    CHECK_TEXT(cJSON_GetStringValue(cJSON_GetObjectItem(j, "kind")), "start");
    CHECK_NEAR(number(j, "params_total"), p->t.engine.params.table.total, 0);
    CHECK_NEAR(number(j, "params_active"), p->t.engine.params.table.active, 0);
    CHECK_NEAR(number(j, "experts"), 6, 0);
    CHECK_NEAR(number(j, "roof_flops"), 2.5e11, 0);
    CHECK_NEAR(number(j, "sheet_flops"), 1e15, 0);
    const cJSON *domains = cJSON_GetObjectItem(j, "domains"),
                *layers = cJSON_GetObjectItem(j, "moe_layers");
    CHECK_TEXT(cJSON_GetStringValue(cJSON_GetArrayItem(domains, 0)), "we\"b");
    CHECK_INT(cJSON_GetArraySize(layers), 2);
    CHECK_NEAR(cJSON_GetArrayItem(layers, 0)->valuedouble, 1, 0);
    CHECK_NEAR(number(cJSON_GetObjectItem(j, "arenas_planned"), "run"), p->t.plan.bytes[ENGINE_RUN],
               0);
    cJSON_Delete(j);
}

static void lines_are_in_the_file_at_once_and_later_runs_append(void **state)
{
    RunPlace *p = *state;
    CHECK_OK(metrics_start(&p->metrics, &p->t.plan, 1, 0));
    cJSON_Delete(line(p, 0)); /* before anything is closed */
    metrics_close(&p->metrics);
    CHECK_OK(metrics_open_log(&p->metrics, &p->t.engine, p->loader, p->folder));
    CHECK_OK(metrics_start(&p->metrics, &p->t.plan, 2, 0));
    cJSON *j = line(p, 1);
    CHECK_NEAR(number(j, "roof_flops"), 2, 0);
    cJSON_Delete(j);
}

static void half_a_line_is_ended_before_the_next(void **state)
{
    RunPlace *p = *state;
    metrics_close(&p->metrics);
    FILE *f = fopen(p->path, "w");
    CHECK(f != NULL && fputs("{\"kind\":\"st", f) >= 0 && fclose(f) == 0);
    CHECK_OK(metrics_open_log(&p->metrics, &p->t.engine, p->loader, p->folder));
    CHECK_OK(metrics_start(&p->metrics, &p->t.plan, 3, 0));
    cJSON *j = line(p, 1);
    CHECK_NEAR(number(j, "roof_flops"), 3, 0);
    cJSON_Delete(j);
}

/* A finite loss of f32 has up to 39 digits before the point: four of them once ran past the text. */
static void huge_losses_of_all_depths_stay_within_their_text(void **state)
{
    (void)state;
    char out[METRICS_DEPTHS_BYTES + 16];
    StepResult r = { .next_loss = { 5.43214, 1e29, 3e38, -3e38 } };
    memset(out, '#', sizeof out);
    CHECK_TEXT(metrics_depths_text(&r, 0, out), "");
    CHECK_TEXT(metrics_depths_text(&r, 3, out), "  mtp_1 5.4321  mtp_2 1e+29  mtp_3 3e+38");
    for (int i = 0; i < CONFIG_DEPTHS_MAX; i++) r.next_loss[i] = -3.4e38;
    CHECK(strlen(metrics_depths_text(&r, CONFIG_DEPTHS_MAX, out)) < METRICS_DEPTHS_BYTES);
    for (int i = METRICS_DEPTHS_BYTES; i < METRICS_DEPTHS_BYTES + 16; i++) CHECK_INT(out[i], '#');
}

/* 16 rows of 1024: 7 ms on a slow core, 0.17 s under an emulator. The second one's whole product would take 11 s. */
static void a_slow_machine_times_few_rows(void **state)
{
    (void)state;
    CHECK_INT(peak_rows(0.007, 1024), 1024);
    CHECK_INT(peak_rows(0.17, 1024), 16);
    CHECK_INT(peak_rows(0.02, 1024), 16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(huge_losses_of_all_depths_stay_within_their_text),
        PLACE_TEST(a_step_line_has_every_number_and_the_load_over_all_domains),
        PLACE_TEST(a_slow_rank_and_the_clocks_of_gpus_are_named_where_there_are_any),
        PLACE_TEST(waits_for_checkpoints_are_in_steps_that_have_them),
        PLACE_TEST(a_figure_stands_in_the_line_of_its_step_alone),
        PLACE_TEST(a_step_faster_than_the_peak_raises_it),
        TEST(a_slow_machine_times_few_rows),
        PLACE_TEST(without_a_data_sheet_there_is_no_mfu),
        PLACE_TEST(tokens_and_epochs_by_domain_are_sums_so_far),
        PLACE_TEST(the_load_by_domain_is_written_when_asked_for),
        PLACE_TEST(a_step_on_a_gpu_has_its_launches_and_what_the_driver_tells),
        PLACE_TEST(a_loss_that_is_not_finite_is_null),
        TEST(evaluations_weigh_domains_by_targets_and_bytes),
        PLACE_TEST(an_evaluation_line_has_every_domain),
        PLACE_TEST(start_names_model_domains_layers_and_plan),
        PLACE_TEST(lines_are_in_the_file_at_once_and_later_runs_append),
        PLACE_TEST(half_a_line_is_ended_before_the_next),
    };
    return TEST_RUN(tests);
}
