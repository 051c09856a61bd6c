/* `switchyard report` as its user meets it: two short runs, a resumed one, the page in a browser, wrong paths. */
#include "harness/program.h"

#define TRAIN "train", "../tiny.yaml"

/* The second run stops after 3 of its 5 steps and does step 3 again. */
static void two_runs(Lab *lab, const char *cell)
{
    Outcome o = RUN(lab, cell, TRAIN, "train.steps=4", "run.dir=first");
    CHECK_EXIT(o, 0);
    o = RUN(lab, cell, TRAIN, "train.steps=5", "checkpoint.every=2", "run.dir=second",
            "optimizer.lr=0.002");
    CHECK_EXIT(o, 0);
    CHECK_OK(file_remove_tree(lab_path(lab, "%s/second/checkpoints/step-0000000005", cell)));
    o = RUN(lab, cell, TRAIN, "train.steps=5", "run.dir=second", "optimizer.lr=0.002", "--resume");
    CHECK_EXIT(o, 0);
}

static void a_browser_shows_the_curves_of_two_runs(void **state)
{
    Lab *lab = *state, browser = *lab;
    if (access("/usr/bin/chromium", X_OK) != 0) {
        printf("skip: there is no Chromium\n");
        skip();
    }
    two_runs(lab, "drawn");
    Outcome o =
        RUN(lab, "drawn", "report", "first", "second/", "--by", "tokens", "--out", "runs.html");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "           first          second\n");
    CHECK_SAYS(o.out, "\noptimizer.lr ");
    snprintf(browser.program, sizeof browser.program, "/usr/bin/chromium");
    o = RUN(&browser, "drawn", "--headless", "--no-sandbox", "--disable-gpu",
            "--disable-dev-shm-usage", "--user-data-dir=profile", "--virtual-time-budget=2000",
            "--dump-dom", "runs.html");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "<h3>Training loss</h3>");
    CHECK_SAYS(o.out, "data-name=\"first\"");
    CHECK_SAYS(o.out, "data-name=\"second\"");
    CHECK_SAYS(o.out, "<td>0.002</td>");
    CHECK_SAYS(o.out, "<div class=\"tip\"></div>"); /* which the page's script adds */
}

/* Steps 5 of both starts count once: 5 steps. */
static void the_tables_are_json_too(void **state)
{
    Lab *lab = *state;
    two_runs(lab, "json");
    Outcome o = RUN(lab, "json", "report", "first", "second", "--json");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "{\"run\":[\"first\",\"second\"],\"steps\":[4,5],");
    CHECK_SAYS(o.out, "\"optimizer.lr\":[");
}

static void what_is_no_run_is_refused_in_one_sentence(void **state)
{
    Lab *lab = *state;
    Outcome o = RUN(lab, "refused", "report", "nowhere");
    CHECK_REFUSED(o, 2, "nowhere has no metrics.jsonl");
    o = RUN(lab, "refused", "report", "1", "2", "3", "4", "5", "6", "7", "8", "ninth");
    CHECK_REFUSED(o, 2, "does not know what to do with \"ninth\": arguments are at most 8");
    o = RUN(lab, "refused", "report", "../tiny.yaml");
    CHECK_REFUSED(o, 2, "../tiny.yaml is a file");
    o = RUN(lab, "refused", "report", "nowhere", "--out", "runs.pdf");
    CHECK_REFUSED(o, 2, "must end in .html");
    CHECK_OK(file_make_folders(lab_path(lab, "refused/run")));
    lab_write_text(lab, lab_path(lab, "refused/run/metrics.jsonl"),
                   "rubbish\n{\"kind\":\"step\",\"step\":1}\n");
    o = RUN(lab, "refused", "report", "run", "--out", "runs.html");
    CHECK_REFUSED(o, 2, "line 1 is damaged");
    CHECK(!file_exists(lab_path(lab, "refused/runs.html")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LAB_TEST(a_browser_shows_the_curves_of_two_runs),
        LAB_TEST(the_tables_are_json_too),
        LAB_TEST(what_is_no_run_is_refused_in_one_sentence),
    };
    return LAB_RUN_ALL(tests);
}
