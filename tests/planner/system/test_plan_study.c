/* `switchyard plan ... --study` as its user meets it: the program beside switchyard starts, prints, draws and refuses. */
#include "harness/program.h"

#define STUDY(name) "plan", "deepseek-v2-lite", "--study", name, "mesh.ep=8"
#define ON_8        "--cluster", "mi355x:8", "--stack", "primus"

static void a_study_is_one_command(void **state)
{
    Lab *lab = *state;
    Outcome o = RUN(lab, "text", STUDY("micro-batch"), ON_8);
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "study       micro-batch\n  sequences  tokens/s/GPU ");
    CHECK_SAYS(o.out, "  does not fit into 273.60 GiB\n");
    CHECK_SAYS(o.out, "\nMicro-batches of 8 are the fastest that fit: ");
    o = RUN(lab, "text", "plan", "deepseek-v2-lite", "--study=scale", "mesh.ep=8", ON_8, "--csv");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "study,row,settings,");
    CHECK_SAYS(o.out, "\nscale,\"64\",\"--cluster mi355x:64 train.batch=36864\",");
    o = RUN(lab, "text", STUDY("scale"), ON_8, "--scale", "8,24", "--strong", "--json");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "\"gpus\":24,\"batch\":4608,");
}

static void a_study_draws_a_page(void **state)
{
    Lab *lab = *state;
    static const char *const names[] = { "micro-batch", "ep", "recompute", "precision", "memory" };
    static const char *const parts[] = {
        "<!DOCTYPE html>",           "Shares of the step",    "<p class=\"note\">rates       ",
        "Memory of the fullest GPU", "273.6 GiB may be used", "</html>"
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        Outcome o = RUN(lab, "page", STUDY(names[i]), ON_8, "mesh.pp=1", "--html", "a.html");
        CHECK_EXIT(o, 0);
        const char *page = lab_read(lab, lab_path(lab, "page/a.html"), NULL);
        for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) CHECK_SAYS(page, parts[k]);
        CHECK((strstr(page, "<h2>Speed</h2>") != NULL) == (i < 2));
        CHECK((strstr(page, "Memory of 1 of 1 pipeline ranks, as given") != NULL) == (i == 4));
    }
}

/* The curve of a page does not depend on the order of rows. */
static void a_curve_rises_whatever_order_was_asked_for(void **state)
{
    Lab *lab = *state;
    Outcome o = RUN(lab, "order", STUDY("scale"), ON_8, "--scale", "8,32,16", "--html", "a.html");
    CHECK_EXIT(o, 0);
    o = RUN(lab, "order", STUDY("scale"), ON_8, "--scale", "8,16,32", "--html", "b.html");
    CHECK_EXIT(o, 0);
    const char *page[2] = { lab_read(lab, lab_path(lab, "order/a.html"), NULL),
                            lab_read(lab, lab_path(lab, "order/b.html"), NULL) };
    for (int i = 0; i < 2; i++) {
        page[i] = strstr(page[i], "<h2>Speed</h2>");
        CHECK(page[i] != NULL);
    }
    const size_t n = (size_t)(strstr(page[0], "</section>") - page[0]);
    CHECK(n > 500 && strncmp(page[0], page[1], n) == 0);
}

static void what_cannot_be_is_one_sentence(void **state)
{
    Lab *lab = *state;
    CHECK_REFUSED(RUN(lab, "bad", STUDY("micro"), ON_8), 2, "did you mean micro-batch?");
    CHECK_REFUSED(RUN(lab, "bad", STUDY("ep"), ON_8, "--search"), 2,
                  "--study ep has no --search: that is an option of --study scale");
    CHECK_REFUSED(RUN(lab, "bad", STUDY("ep")), 2, "--study ep needs GPUs: --cluster");
    CHECK_REFUSED(RUN(lab, "bad", STUDY("ep"), ON_8, "--html", "a.svg"), 2, "ends in .html");
    CHECK_REFUSED(RUN(lab, "bad", STUDY("ep"), ON_8, "--json", "--csv"), 2, "exclude each other");
    CHECK_REFUSED(RUN(lab, "bad", STUDY("micro-batch"), ON_8, "train.batch=12"), 2,
                  "set train.batch to the nearest legal one, 8 below and 16 above");
    CHECK_REFUSED(RUN(lab, "bad", "plan", "deepseek-v3", "--study", "recompute", ON_8, "mesh.ep=8"),
                  3, "no row fits: ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LAB_TEST(a_study_is_one_command),
        LAB_TEST(a_study_draws_a_page),
        LAB_TEST(a_curve_rises_whatever_order_was_asked_for),
        LAB_TEST(what_cannot_be_is_one_sentence),
    };
    return LAB_RUN_ALL(tests);
}
