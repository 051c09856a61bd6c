#include "pages/unit/report_run.h"

/* ---- numbers ---- */

static void the_summary_counts_tokens_time_and_bits_per_byte(void **state)
{
    Run *r = *state;
    put_run(r, 4);
    RunSummary s = run_summary(r);
    CHECK_INT(s.steps, 4);
    CHECK_INT(s.tokens, 4 * 4096);
    CHECK_NEAR(s.wall_s, 2, 1e-12);
    CHECK_NEAR(s.final_loss, 2, 1e-12);
    CHECK_NEAR(s.first_bits_per_byte, 3.25, 0);
    CHECK_NEAR(s.last_bits_per_byte, 1.5, 0);
    CHECK_NEAR(s.least_share, 0.5, 1e-12);
    CHECK_INT(s.least_layer, 1);
    CHECK_INT(s.least_expert, 0);
}

/* Step 2 did before a restart, not after it. */
static void steps_that_ran_twice_are_counted(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "{\"kind\":\"step\",\"step\":1,\"loss\":2,\"again\":true,\"lr\":1}",
        "{\"kind\":\"step\",\"step\":2,\"loss\":2,\"again\":true}",
        "{\"kind\":\"start\",\"model\":\"x\"}",
        "{\"kind\":\"step\",\"step\":2,\"loss\":2,\"again\":false}",
        "{\"kind\":\"step\",\"step\":3,\"loss\":2}",
        "{\"kind\":\"step\",\"step\":4,\"loss\":2,\"again\": true }",
    };
    Run r;
    run_open(&r);
    for (int i = 0; i < 6; i++) put(&r, lines[i]);
    CHECK_INT(run_summary(&r).twice, 2);
    run_report(&r);
    has(&r, "2 of 4 steps ran twice");
    run_close(&r);
    run_open(&r);
    put_run(&r, 4);
    CHECK_INT(run_summary(&r).twice, 0);
    run_report(&r);
    has_not(&r, "ran twice");
    run_close(&r);
}

static void waits_for_checkpoints_are_summed_and_the_worst_is_named(void **state)
{
    Run *r = *state;
    put(r, "{\"kind\":\"step\",\"step\":1,\"loss\":2,\"step_s\":1}");
    put(r, "{\"kind\":\"step\",\"step\":2,\"loss\":2,\"step_s\":1,\"save_stall_s\":0.25}");
    put(r, "{\"kind\":\"step\",\"step\":3,\"loss\":2,\"step_s\":1,\"save_stall_s\":0.25,"
           "\"save_share\":0.125}");
    put(r, "{\"kind\":\"step\",\"step\":4,\"loss\":2,\"step_s\":1,\"save_stall_s\":0.5,"
           "\"save_share\":0.03}");
    RunSummary s = run_summary(r);
    CHECK_INT(s.saves, 2);
    CHECK_NEAR(s.save_stall_s, 1, 1e-12);
    CHECK_NEAR(s.save_share, 0.125, 1e-12);
    run_report(r);
    has(r, "Waits for checkpoints");
    has(r, "2 checkpoints, at most 12.5 % of an interval");
}

static void held_out_bits_say_before_and_after_only_of_both_ends_of_a_run(void **state)
{
    (void)state;
    static const struct {
        int eval[3], n, steps;
        const char *says, *tile, *table; /* of the console, the report's tile and its table */
    } cases[] = {
        { { 0, 4 }, 2, 4, "3.250 before, 1.250 after", "step 0 → step 4<", "step 0 and step 4<" },
        { { 0 },
          1,
          4,
          "3.250 at step 0; not measured since",
          "<dd>3.250<small>step 0; not measured since<",
          "step 0; not measured since<" },
        { { 0, 2 },
          2,
          4,
          "3.250 at step 0, 2.250 at step 2; not measured since",
          "step 0 → step 2; not measured since<",
          "step 0 and step 2; not measured since<" },
        { { 2, 4 },
          2,
          4,
          "2.250 at step 2, 1.250 at step 4",
          "step 2 → step 4<",
          "step 2 and step 4<" },
        { { 4 }, 1, 4, "1.250 at step 4", "step 4<", "Held out, step 4<" },
        { { 0 }, 1, 0, "3.250 at step 0", "step 0<", "Held out, step 0<" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Run r;
        char says[RUN_HELD_OUT_BYTES];
        run_open(&r);
        for (int k = 0; k < cases[i].n; k++)
            put_eval(&r, cases[i].eval[k], 3.25 - 0.5 * cases[i].eval[k]);
        for (int k = 1; k <= cases[i].steps; k++) put_step(&r, k, 2, 50, 150);
        const RunSummary s = run_summary(&r);
        CHECK_TEXT(run_held_out_text(says, &s), cases[i].says);
        run_report(&r);
        has(&r, cases[i].tile);
        has(&r, cases[i].table);
        if (cases[i].n == 1) has_not(&r, "→");
        if (cases[i].n == 1) has_not(&r, "<th>change</th>");
        run_close(&r);
    }
}

static void the_least_share_is_of_the_last_fifty_steps(void **state)
{
    Run *r = *state;
    for (int i = 1; i <= 60; i++) put_step(r, i, 1, i <= 10 ? 0 : 80, i <= 10 ? 200 : 120);
    RunSummary s = run_summary(r);
    CHECK_NEAR(s.least_share, 0.8, 1e-12);
}

static void the_report_shows_the_runs_numbers(void **state)
{
    Run *r = *state;
    put_run(r, 4);
    run_report(r);
    static const char *const WANT[] = {
        "<h1>quickstart</h1>",
        ">18.7 M<small>9.30 M active",
        "16,384 tokens",
        ">2 s<small>8.19 k tokens/s",
        ">2<small>nats a token, step 4",
        "3.250 → 1.500",
        "50.0 %<small>of mean load: layer 1, expert 0",
        "62.5 %<small>mean, of 500 GFLOP/s",
        "<td>run</td><td>4.00 MiB</td><td>4.00 MiB</td><td>100.0 %</td>",
        "<td>slot</td><td>1.00 MiB</td><td>512 KiB</td><td>50.0 %</td>",
        "<td>postgres</td><td>1.500</td><td>1.500</td><td>3.125</td><td>1.375</td>",
        "<td>all</td><td>6.500</td><td>3.000</td><td>3.250</td><td>1.500</td><td>-53.8 %</td>",
    };
    for (size_t i = 0; i < sizeof WANT / sizeof WANT[0]; i++) has(r, WANT[i]);
}

/* Domain postgres: 30 of 80 in four experts is 1.5 times uniform. */
static void heat_maps_are_by_domain_from_the_last_evaluation_if_no_step_has_them(void **state)
{
    Run *r = *state;
    put_run(r, 4);
    run_report(r);
    has(r, "those of the last evaluation");
    has(r, "layer 1, expert 0: 1.50 × 1/4 = 37.50 %");
    has(r, "layer 1, expert 2: 0.00 × 1/4 = 0.00 %");
    has(r, "layer 5, expert 3: 1.00 × 1/4 = 25.00 %");
}

static void heat_maps_are_by_domain_from_training_steps_if_these_have_them(void **state)
{
    Run *r = *state;
    put_run(r, 4);
    for (int i = 5; i <= 6; i++) {
        CHECK(fprintf(r->metrics,
                      "{\"kind\":\"step\",\"step\":%d,\"loss\":1,\"expert_load\":[[1,1,1,1],"
                      "[1,1,1,1]],\"expert_load_by_domain\":{\"bible\":[[%d,0,0,15],[3,3,3,3]]}}\n",
                      i, i) > 0);
    }
    run_report(r);
    has_not(r, "those of the last evaluation");
    has(r, "layer 1, expert 3: 2.93 × 1/4 = 73.17 %"); /* 30 of 41 */
}

static void a_layer_without_load_has_no_cells(void **state)
{
    Run *r = *state;
    put(r, "{\"kind\":\"step\",\"step\":1,\"loss\":1,\"expert_load\":[[0,0,0],[0,2,1]]}");
    run_report(r);
    has_not(r, "layer 0, expert");
    has(r, "layer 1, expert 0: 0.00 × 1/3 = 0.00 %");
    has(r, "layer 1, expert 1: 2.00 × 1/3 = 66.67 %");
    has_not(r, "neighbouring experts");
}

static int count(const char *text, const char *part)
{
    int n = 0;
    for (const char *at = strstr(text, part); at != NULL; at = strstr(at + 1, part)) n++;
    return n;
}

/* Ten layers of 2000 experts, all alike but for two of one cell: one takes four times a mean share,
 * the other, farther from it, none. */
static void a_wide_heat_map_shows_the_expert_farthest_from_uniform(void **state)
{
    Run *r = *state;
    CHECK(fprintf(r->metrics, "{\"kind\":\"step\",\"step\":1,\"loss\":1,\"expert_load\":[") > 0);
    for (int l = 0; l < 10; l++) {
        for (int e = 0; e < 2000; e++) {
            int load = l != 3 || e < 776 || e > 777 ? 100 : e == 776 ? 400 : 0;
            CHECK(fprintf(r->metrics, "%s%d", e > 0 ? "," : l > 0 ? "],[" : "[", load) > 0);
        }
    }
    put(r, "]]}");
    run_report(r);
    has(r, "One cell stands for 4 neighbouring experts");
    has(r, "layer 3, expert 777: 0.00 ×");
    has_not(r, "layer 3, expert 776:");
    CHECK_INT(count(r->page, "<title>layer "),
              10 * 2000 / 4 + 2 * 2 * 10); /* and the curves, twice */
}

/* ---- resumed and broken files ---- */

static void the_last_line_for_a_step_wins(void **state)
{
    Run *r = *state;
    put_start(r, "m");
    for (int i = 1; i <= 6; i++) put_step(r, i, 7, 100, 100);
    put_eval(r, 6, 9);
    put_start(r, "m");
    for (int i = 4; i <= 6; i++) put_step(r, i, 5, 100, 100);
    put_eval(r, 6, 2);
    RunSummary s = run_summary(r);
    CHECK_INT(s.steps, 6);
    CHECK_INT(s.tokens, 6 * 4096);
    CHECK_NEAR(s.wall_s, 3, 1e-12);
    CHECK_NEAR(s.final_loss, 5, 0);
    CHECK_NEAR(s.first_bits_per_byte, 2, 0);
    run_report(r);
    has(r, "The run was started 2 times");
}

static void a_half_written_last_line_is_left_out(void **state)
{
    Run *r = *state;
    put_run(r, 3);
    CHECK(fputs("{\"kind\":\"step\",\"step\":4,\"loss\":0.1,\"tokens\":4096,\"step_", r->metrics) >
          0);
    RunSummary s = run_summary(r);
    CHECK_INT(s.steps, 3);
    run_report(r);
    has(r, "1 line of metrics.jsonl could not be read");
}

static void a_whole_last_line_without_line_end_counts(void **state)
{
    Run *r = *state;
    CHECK(fputs("{\"kind\":\"step\",\"step\":1,\"loss\":4.5,\"tokens\":10}", r->metrics) > 0);
    RunSummary s = run_summary(r);
    CHECK_NEAR(s.final_loss, 4.5, 0);
}

static void broken_lines_inside_are_left_out_and_counted(void **state)
{
    Run *r = *state;
    static const char *const BAD[] = {
        "{\"kind\":\"step\",\"step\":2,\"lo{\"kind\":\"start\",\"model\":\"x\"}",
        "not JSON at all",
        "{\"kind\":\"other\",\"step\":2}",
        "{\"kind\":\"step\",\"step\":2.5}",
        "{\"kind\":\"step\",\"step\":-1}",
        "{\"kind\":\"step\",\"step\":1e300}",
        "{\"kind\":\"step\",\"step\":null}",
        "[1,2,3]",
    };
    put_step(r, 1, 8, 1, 1);
    for (size_t i = 0; i < sizeof BAD / sizeof BAD[0]; i++) put(r, BAD[i]);
    put(r, "");
    put_step(r, 3, 6, 1, 1);
    CHECK_INT(run_summary(r).steps, 2);
    run_report(r);
    has(r, "8 lines of metrics.jsonl could not be read");
}

/* Tables of another shape or type than the first one are passed over, not read past. */
static void tables_that_do_not_fit_are_passed_over(void **state)
{
    Run *r = *state;
    static const char *const ODD[] = {
        "[[1,2,3,4]]",
        "[[1,2,3],[1,2,3]]",
        "[[1,2,3,4],[1,2,3,4],[1,2,3,4]]",
        "[1,2,3,4]",
        "[[1,2,3,null],[1,2,3,4]]",
        "[[-1,2,3,4],[1,2,3,4]]",
        "{}",
        "null",
        "[]",
        "[[],[]]",
        "[[1,2,3,4,5,6,7,8],[]]",
    };
    put_step(r, 1, 8, 50, 150);
    for (size_t i = 0; i < sizeof ODD / sizeof ODD[0]; i++) {
        CHECK(fprintf(r->metrics,
                      "{\"kind\":\"step\",\"step\":%d,\"loss\":1,\"expert_load\":%s,"
                      "\"expert_load_by_domain\":{\"a\":%s},\"memory_bytes\":%s}\n",
                      (int)i + 2, ODD[i], ODD[i], ODD[i]) > 0);
    }
    CHECK_NEAR(run_summary(r).least_share, 0.5, 1e-12);
    run_report(r);
}

static void a_missing_file_is_one_sentence_with_the_path(void **state)
{
    Run *r = *state;
    char path[FILE_PATH_MAX], sentence[512];
    run_done(r);
    CHECK_OK(file_join(path, r->dir, "metrics.jsonl"));
    CHECK_INT(remove(path), 0);
    CHECK_FAILS(report_write(r->dir, &r->arena, &(RunSummary){ 0 }), ERR_IO,
                "metrics.jsonl cannot be read");
    status_sentence(sentence, sizeof sentence);
    CHECK(strchr(sentence, '\n') == NULL);
    CHECK_OK(file_join(path, r->dir, "report.html"));
    CHECK(!file_exists(path));
}

static void a_file_without_a_step_is_an_error(void **state)
{
    Run *r = *state;
    put_start(r, "m");
    run_done(r);
    CHECK_FAILS(report_write(r->dir, &r->arena, &(RunSummary){ 0 }), ERR_FORMAT,
                "no step and no evaluation yet");
}

static void too_little_scratch_is_an_error_and_is_given_back(void **state)
{
    Run *r = *state;
    Arena small;
    put_run(r, 4);
    run_done(r);
    CHECK_OK(arena_init(&small, "small", MEM_HOST, (size_t)1 << 19));
    CHECK_FAILS(report_write(r->dir, &small, &(RunSummary){ 0 }), ERR_MEMORY, "small");
    CHECK_INT(small.used_bytes, 0);
    arena_free(&small);
    CHECK_OK(report_write(r->dir, &r->arena, &(RunSummary){ 0 }));
    CHECK_INT(r->arena.used_bytes, 0);
}

/* ---- unusual runs ---- */

static void a_run_without_moe_layers_has_no_expert_section(void **state)
{
    Run *r = *state;
    put(r, "{\"kind\":\"start\",\"model\":\"dense\",\"experts\":0,\"moe_layers\":[],"
           "\"domains\":[\"a\"]}");
    put(r, "{\"kind\":\"step\",\"step\":1,\"loss\":3,\"tokens\":10,\"step_s\":1,"
           "\"expert_load\":[]}");
    put(r, "{\"kind\":\"step\",\"step\":2,\"loss\":2,\"tokens\":10,\"step_s\":1}");
    RunSummary s = run_summary(r);
    CHECK(isnan(s.least_share));
    CHECK(isnan(s.last_bits_per_byte));
    CHECK_INT(s.least_expert, -1);
    run_report(r);
    has(r, "id=\"loss\"");
    has_not(r, "id=\"experts\"");
    has_not(r, "id=\"memory\"");
    has_not(r, "Least loaded expert");
}

static void shares_are_shown_with_what_they_are_relative_to(void **state)
{
    (void)state;
    Run r;
    run_open(&r);
    put_start(&r, "m");
    put_step(&r, 1, 2, 90, 110);
    run_report(&r);
    has(&r, "<dt>Share of the measured peak</dt><dd>62.5 %<small>mean, of 500 GFLOP/s measured");
    has_not(&r, "utilisation"); /* a file of before says mfu and means the roof */
    run_close(&r);
    run_open(&r);
    put_start_with(&r, "m", ",\"sheet_flops\":9.9e14");
    put_step(&r, 1, 2, 90, 110);
    run_report(&r);
    has(&r, "<dt>Model FLOPs utilisation</dt><dd>40.0 %<small>mean, of 990 TFLOP/s of the data");
    has(&r, "<h3>Model FLOPs utilisation (MFU)</h3>");
    has(&r, "<h3>Share of the measured peak</h3>");
    run_close(&r);
}

/* Layers of z 1 and 3 have the mean 2. A file of before has neither. */
static void norms_by_group_and_router_z_have_charts_where_they_are_known(void **state)
{
    (void)state;
    Run r;
    run_open(&r);
    put_run(&r, 4);
    run_report(&r);
    has_not(&r, "id=\"norms\"");
    has_not(&r, "Router z");
    run_close(&r);
    run_open(&r);
    for (int i = 1; i <= 4; i++) {
        CHECK(fprintf(r.metrics,
                      "{\"kind\":\"step\",\"step\":%d,\"loss\":1,\"grad_norm_experts\":0.5,"
                      "\"grad_norm_head\":0.25,\"router_z\":[1,3]}\n",
                      i) > 0);
    }
    run_report(&r);
    has(&r, "<h3>Of the experts</h3>");
    has(&r, "<h3>Of the head</h3>");
    has_not(&r, "<h3>Of the router</h3>");
    has(&r, "<h3>Router z (mean of layers)</h3>");
    run_close(&r);
}

static void clock_and_power_of_a_gpu_stand_under_throughput(void **state)
{
    (void)state;
    Run r;
    run_open(&r);
    put_run(&r, 4);
    run_report(&r);
    has_not(&r, "<h3>Clock of the GPU (MHz)</h3>");
    has_not(&r, "<h3>Power of the GPU (W)</h3>");
    run_close(&r);
    run_open(&r);
    for (int i = 1; i <= 4; i++) {
        CHECK(fprintf(r.metrics,
                      "{\"kind\":\"step\",\"step\":%d,\"loss\":1,\"tokens_per_s\":8192,\"mfu\":0.4,"
                      "\"clock_mhz\":%d,\"power_w\":650.5,\"throttle\":[\"sw_power_cap\"]}\n",
                      i, 1700 + i) > 0);
    }
    run_report(&r);
    has(&r, "<h3>Clock of the GPU (MHz)</h3>");
    has(&r, "<h3>Power of the GPU (W)</h3>");
    CHECK(strstr(r.page, "<h2>Throughput</h2>") < strstr(r.page, "Clock of the GPU"));
    run_close(&r);
}

static void a_run_of_one_step_is_shown_as_dots(void **state)
{
    Run *r = *state;
    put_run(r, 1);
    run_report(r);
    has(r, "<circle class=\"f0\"");
    has(r, "4,096 tokens");
}

/* 0 is what an evaluation writes where the bytes of the text are not known. */
static void bits_per_byte_that_are_not_known_are_not_shown(void **state)
{
    Run *r = *state;
    put(r, "{\"kind\":\"eval\",\"step\":0,\"loss\":8.5,\"bits_per_byte\":0,\"domains\":{\"a\":"
           "{\"loss\":0,\"bits_per_byte\":0}}}");
    CHECK(isnan(run_summary(r).last_bits_per_byte));
    run_report(r);
    has(r, "<td>all</td><td>8.500</td><td>-</td>");
    has(r, "<td>a</td><td>-</td><td>-</td></tr>");
    has_not(r, "Held-out bits per byte");
}

static void a_run_of_evaluations_only_has_a_report(void **state)
{
    Run *r = *state;
    put_eval(r, 0, 3.25);
    RunSummary s = run_summary(r);
    CHECK_INT(s.steps, 0);
    CHECK(isnan(s.final_loss));
    CHECK_NEAR(s.last_bits_per_byte, 3.25, 0);
    run_report(r);
    has(r, "<dd>3.250<small>step 0<");
}

static void steps_without_finite_loss_are_gaps_and_counted(void **state)
{
    Run *r = *state;
    for (int i = 1; i <= 9; i++) {
        CHECK(fprintf(r->metrics, "{\"kind\":\"step\",\"step\":%d,\"loss\":%s,\"grad_norm\":%s}\n",
                      i, i == 4 || i == 9 ? "null" : "2.5", i == 4 ? "null" : "1") > 0);
    }
    CHECK(isnan(run_summary(r).final_loss));
    run_report(r);
    has(r, "2 of 9 steps had no finite loss");
    const char *path = strstr(r->page, "data-name=\"train\" d=\"");
    CHECK(path != NULL);
    int moves = 0, lines = 0;
    for (path = strstr(path, " d=\"") + 4; *path != '"'; path++) {
        moves += *path == 'M';
        lines += *path == 'L';
    }
    CHECK_INT(moves, 2); /* 1-3 and 5-8 */
    CHECK_INT(lines, 5);
}

static void a_run_whose_every_loss_is_nan_has_a_report(void **state)
{
    Run *r = *state;
    for (int i = 1; i <= 30; i++) {
        CHECK(fprintf(r->metrics, "{\"kind\":\"step\",\"step\":%d,\"loss\":null}\n", i) > 0);
    }
    run_report(r);
    has(r, "30 of 30 steps had no finite loss");
    has_not(r, "id=\"loss\"");
}

static void a_long_run_stays_small_and_keeps_its_means(void **state)
{
    Run *r = *state;
    put_start(r, "long");
    for (int i = 1; i <= 20000; i++) put_step(r, i, i % 2 == 0 ? 2 : 4, 50, 150);
    run_report(r);
    CHECK(r->page_bytes < 700 * 1000);
    const char *path = strstr(r->page, "data-name=\"train\" d=\"");
    CHECK(path != NULL);
    int points = 0;
    char *end = NULL;
    const char *at = strstr(path, " d=\"") + 4;
    double first = (double)NAN;
    for (; *at == 'M' || *at == 'L'; at = end, points++) {
        (void)strtod(at + 1, &end);
        double y = strtod(end, &end); /* ten steps a point: each mean is 3 */
        if (points == 0) first = y;
        CHECK_NEAR(y, first, 0.011);
    }
    CHECK_INT(points, 2000);
}

static void one_absurd_step_number_does_not_stop_the_report(void **state)
{
    Run *r = *state;
    put_run(r, 3);
    put_step(r, 2000000000, 1, 1, 1);
    run_report(r);
}

/* Sixty MoE layers: the curves of each are grey, their envelope has names. */
static void many_layers_are_drawn_with_their_envelope(void **state)
{
    Run *r = *state;
    for (int i = 1; i <= 3; i++) {
        CHECK(fprintf(r->metrics, "{\"kind\":\"step\",\"step\":%d,\"loss\":1,\"expert_load\":[",
                      i) > 0);
        for (int l = 0; l < 60; l++) {
            CHECK(fprintf(r->metrics, "%s[%d,1]", l > 0 ? "," : "", l == 30 ? 3 : 1) > 0);
        }
        put(r, "]}");
    }
    CHECK_NEAR(run_summary(r).least_share, 0.5, 1e-12);
    CHECK_INT(run_summary(r).least_layer, 30);
    run_report(r);
    has(r, "least loaded expert of all layers");
    has(r, "data-name=\"layer 59, most\"");
}

/* ---- other files of the run ---- */

static void names_and_files_are_escaped(void **state)
{
    Run *r = *state;
    put_start(r, "a<b> & \\\"c\\\" \\u00e9");
    put(r, "{\"kind\":\"eval\",\"step\":0,\"loss\":1,\"bits_per_byte\":1,\"domains\":{\"<&\\\">\":"
           "{\"loss\":1,\"bits_per_byte\":1}}}");
    put(r, "{\"kind\":\"step\",\"step\":1,\"loss\":1,\"memory_bytes\":{\"<i>\":5}}");
    put_file(r, "config.yaml", "model:\n  name: \"<script>alert(1)</script>\"\n");
    put_file(r, "sample.txt", "1 < 2 && \x01 \xFF\n");
    run_report(r);
    has(r, "<h1>a&lt;b&gt; &amp; &quot;c&quot; é</h1>");
    has(r, "name: &quot;&lt;script&gt;alert(1)&lt;/script&gt;&quot;");
    has(r, "1 &lt; 2 &amp;&amp; \xEF\xBF\xBD \xEF\xBF\xBD\n");
    has(r, "<td>&lt;i&gt;</td>");
}

static void files_that_are_not_there_have_no_section(void **state)
{
    Run *r = *state;
    put_run(r, 2);
    run_report(r);
    has_not(r, "id=\"config\"");
    has_not(r, "id=\"sample\"");
    has_not(r, "id=\"timeline\"");
}

static void the_page_needs_nothing_from_elsewhere(void **state)
{
    Run *r = *state;
    put_run(r, 2);
    run_report(r);
    static const char *const OUTSIDE[] = { "http:", "https:", " src=", "url(", "@import", "<link" };
    for (size_t i = 0; i < sizeof OUTSIDE / sizeof OUTSIDE[0]; i++) has_not(r, OUTSIDE[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN_TEST(the_summary_counts_tokens_time_and_bits_per_byte),
        TEST(steps_that_ran_twice_are_counted),
        RUN_TEST(waits_for_checkpoints_are_summed_and_the_worst_is_named),
        TEST(held_out_bits_say_before_and_after_only_of_both_ends_of_a_run),
        RUN_TEST(the_least_share_is_of_the_last_fifty_steps),
        RUN_TEST(the_report_shows_the_runs_numbers),
        RUN_TEST(heat_maps_are_by_domain_from_the_last_evaluation_if_no_step_has_them),
        RUN_TEST(heat_maps_are_by_domain_from_training_steps_if_these_have_them),
        RUN_TEST(a_layer_without_load_has_no_cells),
        RUN_TEST(a_wide_heat_map_shows_the_expert_farthest_from_uniform),
        RUN_TEST(the_last_line_for_a_step_wins),
        RUN_TEST(a_half_written_last_line_is_left_out),
        RUN_TEST(a_whole_last_line_without_line_end_counts),
        RUN_TEST(broken_lines_inside_are_left_out_and_counted),
        RUN_TEST(tables_that_do_not_fit_are_passed_over),
        RUN_TEST(a_missing_file_is_one_sentence_with_the_path),
        RUN_TEST(a_file_without_a_step_is_an_error),
        RUN_TEST(too_little_scratch_is_an_error_and_is_given_back),
        RUN_TEST(a_run_without_moe_layers_has_no_expert_section),
        TEST(shares_are_shown_with_what_they_are_relative_to),
        TEST(clock_and_power_of_a_gpu_stand_under_throughput),
        RUN_TEST(a_run_of_one_step_is_shown_as_dots),
        RUN_TEST(bits_per_byte_that_are_not_known_are_not_shown),
        RUN_TEST(a_run_of_evaluations_only_has_a_report),
        RUN_TEST(steps_without_finite_loss_are_gaps_and_counted),
        cmocka_unit_test(norms_by_group_and_router_z_have_charts_where_they_are_known),
        RUN_TEST(a_run_whose_every_loss_is_nan_has_a_report),
        RUN_TEST(a_long_run_stays_small_and_keeps_its_means),
        RUN_TEST(one_absurd_step_number_does_not_stop_the_report),
        RUN_TEST(many_layers_are_drawn_with_their_envelope),
        RUN_TEST(names_and_files_are_escaped),
        RUN_TEST(files_that_are_not_there_have_no_section),
        RUN_TEST(the_page_needs_nothing_from_elsewhere),
    };
    return TEST_RUN(tests);
}
