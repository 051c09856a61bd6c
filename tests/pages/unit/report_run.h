/* report_run: a run's folder of one test, lines for its metrics.jsonl, and its report. */
#ifndef PAGES_UNIT_REPORT_RUN_H
#define PAGES_UNIT_REPORT_RUN_H

#include "harness/place.h"

#include "engine/base/text.h"
#include "pages/report.h"
#include "pages/unit/xml_check.h"

#include <stdlib.h>

/* Each test has a run folder and an arena of its own. */
typedef struct Run {
    char dir[64];
    Arena arena;
    FILE *metrics;
    char *page; /* after run_report */
    size_t page_bytes;
} Run;

static inline FILE *create(const Run *r, const char *name)
{
    char path[FILE_PATH_MAX];
    CHECK_OK(file_join(path, r->dir, name));
    FILE *f = fopen(path, "w");
    CHECK(f != NULL);
    return f;
}

static inline void run_open(Run *r)
{
    *r = (Run){ 0 };
    place_make(r->dir, &r->arena);
    r->metrics = create(r, "metrics.jsonl");
}

static inline void run_done(Run *r)
{
    if (r->metrics != NULL) CHECK_INT(fclose(r->metrics), 0);
    r->metrics = NULL;
}

static inline void run_close(Run *r)
{
    run_done(r);
    place_drop(r->dir, &r->arena);
}

static inline int run_set_up(void **state)
{
    static Run r;
    run_open(*state = &r);
    return 0;
}

static inline int run_tear_down(void **state)
{
    run_close(*state);
    return 0;
}

#define RUN_TEST(name) cmocka_unit_test_setup_teardown(name, run_set_up, run_tear_down)

static inline void put_file(const Run *r, const char *name, const char *text)
{
    FILE *f = create(r, name);
    CHECK(fputs(text, f) >= 0);
    CHECK_INT(fclose(f), 0);
}

static inline void put(Run *r, const char *line)
{
    CHECK(fputs(line, r->metrics) >= 0);
    CHECK(fputc('\n', r->metrics) != EOF);
}

static inline void check_xml(const Run *r)
{
    const char *place = NULL, *error = xml_error(r->page, &place);
    if (error != NULL) fail_msg("%s, before: %.60s", error, place);
}

/* Write the report; it must be well-formed, and nothing of C's NaN may show. */
static inline void run_report(Run *r)
{
    char path[FILE_PATH_MAX];
    run_done(r);
    CHECK_OK(report_write(r->dir, &r->arena, &(RunSummary){ 0 }));
    CHECK_OK(file_join(path, r->dir, "report.html"));
    CHECK_OK(file_read_all(path, &r->arena, &r->page, &r->page_bytes));
    check_xml(r);
    CHECK(strstr(r->page, ">nan") == NULL);
    CHECK(strstr(r->page, "-nan") == NULL);
    CHECK(strstr(r->page, "\"inf") == NULL);
}

static inline RunSummary run_summary(Run *r)
{
    RunSummary s;
    memset(&s, 0xFF, sizeof s);
    run_done(r);
    CHECK_OK(report_write(r->dir, &r->arena, &s));
    return s;
}

static inline void has(const Run *r, const char *part)
{
    if (strstr(r->page, part) == NULL) fail_msg("\"%s\" is not in the report", part);
}

static inline void has_not(const Run *r, const char *part)
{
    if (strstr(r->page, part) != NULL) fail_msg("\"%s\" is in the report", part);
}

/* ---- lines ---- */

/* more: further keys. */
static inline void put_start_with(Run *r, const char *model, const char *more)
{
    CHECK(fprintf(r->metrics,
                  "{\"kind\":\"start\",\"model\":\"%s\",\"params_total\":18742272,"
                  "\"params_active\":9300000,\"domains\":[\"postgres\",\"bible\"],\"experts\":4,"
                  "\"moe_layers\":[1,5],\"arenas_planned\":{\"run\":4194304,\"slot\":1048576},"
                  "\"roof_flops\":4e11%s}\n",
                  model, more) > 0);
}

static inline void put_start(Run *r, const char *model) { put_start_with(r, model, ""); }

/* Layer 1 is (a, b, 100, 100), layer 5 uniform. */
static inline void put_step(Run *r, int step, double loss, int a, int b)
{
    CHECK(fprintf(r->metrics,
                  "{\"kind\":\"step\",\"step\":%d,\"loss\":%.6g,\"aux_loss\":0.001,\"lr\":0.0005,"
                  "\"grad_norm\":1.25,\"tokens\":4096,\"step_s\":0.5,\"tokens_per_s\":8192,"
                  "\"mfu\":0.4,\"roof_share\":0.625,\"roof_flops\":5e11,\"memory_bytes\":{\"run\":"
                  "4194304,\"slot\":524288},"
                  "\"expert_load\":[[%d,%d,100,100],[7,7,7,7]]}\n",
                  step, loss, a, b) > 0);
}

static inline void put_eval(Run *r, int step, double bits)
{
    CHECK(fprintf(r->metrics,
                  "{\"kind\":\"eval\",\"step\":%d,\"loss\":%.6g,\"bits_per_byte\":%.6g,"
                  "\"domains\":{\"postgres\":{\"loss\":1.5,\"bits_per_byte\":%.6g},"
                  "\"bible\":{\"loss\":2.5,\"bits_per_byte\":3.75}},"
                  "\"expert_load_by_domain\":{\"postgres\":[[30,10,0,40],[1,1,1,1]],"
                  "\"bible\":[[10,30,20,20],[2,2,2,2]]}}\n",
                  step, bits * 2, bits, bits - 0.125) > 0);
}

static inline void put_run(Run *r, int steps)
{
    put_start(r, "quickstart");
    put_eval(r, 0, 3.25);
    for (int i = 1; i <= steps; i++) put_step(r, i, 8.0 / i, 50, 150);
    put_eval(r, steps, 1.5);
}

#endif
