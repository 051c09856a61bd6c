/* Pages of `plan` in a browser (Chromium, where it is installed): no table is cut off, no link leads nowhere,
 * no script fails, a button shows another rank, and zooming shows numbers. */
#include "harness/program.h"

#include "engine/base/text.h"

#include <stdlib.h>

enum { PLAN_LINE = 13 }; /* characters of a line's word, and the end of the line before */

/* Counts errors of scripts. Frames come by the clock, because a loaded machine may draw none before the page
 * is written out. */
static const char first[] =
    "<script>var errors=0;addEventListener('error',function(){errors++});"
    "window.requestAnimationFrame=function(f){return setTimeout(f,16)};</script>";
/* Looks at the page when all is drawn, and writes what it finds into attributes of html. */
static const char probe[] =
    "<script>(function(){var d=document.documentElement,all=function(s){"
    "return Array.from(document.querySelectorAll(s))};"
    "d.dataset.over=d.scrollWidth-d.clientWidth;"
    "d.dataset.cut=all('.wide').filter(function(e){return e.scrollWidth>e.clientWidth}).length;"
    "d.dataset.narrow=all('table').filter(function(e){"
    "return e.scrollWidth>e.parentNode.clientWidth}).length;"
    "d.dataset.texts=all('.win text').length;"
    "d.dataset.rects=all('svg.pipe')[0]?all('svg.pipe')[0].querySelectorAll('.r rect').length:0;"
    "d.dataset.dead=all('a[href^=\"#\"]').filter(function(a){"
    "return !document.getElementById(a.getAttribute('href').slice(1))}).length;"
    "d.dataset.links=all('a[href^=\"#\"]').length;"
    "d.dataset.boxes=all('svg.pipe .r rect').length;"
    "var hidden=all('figure[data-rank]').filter(function(f){return f.hidden}),"
    "button=hidden.length?document.querySelector("
    "'.pick button[data-rank=\"'+hidden[0].dataset.rank+'\"]'):null;"
    "if(button)button.click();d.dataset.chosen=button&&!hidden[0].hidden?1:0;"
    "var win=document.querySelector('.win'),labels=function(){"
    "return win.querySelectorAll('text').length};"
    "if(win){var was=labels(),r=win.getBoundingClientRect();for(var i=0;i<40;i++)"
    "win.dispatchEvent(new WheelEvent('wheel',{ctrlKey:true,deltaY:-100,cancelable:true,"
    "clientX:r.left+r.width/2,clientY:r.top+5}));"
    "setTimeout(function(){d.dataset.zoom=win.querySelector('.z').getAttribute("
    "'transform').indexOf('scale(1 1)')<0?1:0;d.dataset.numbers=labels()>0?1:0;"
    "d.dataset.errors=errors},1000)}else d.dataset.errors=errors})()</script>";

/* Not inline, as gcc 12 takes the text that lab_read returns for its local pointer. */
__attribute__((noinline)) static void with_probe(Lab *lab, const char *cell, const char *page)
{
    static const char begins[] = "<head>", ends[] = "</body>";
    CHECK(strstr(page, begins) != NULL && strstr(page, ends) != NULL);
    size_t head = (size_t)(strstr(page, begins) - page) + sizeof begins - 1,
           end = (size_t)(strstr(page, ends) - page);
    Text text;
    CHECK_OK(text_init(&text, &lab->arena));
    CHECK_OK(text_append(&text, page, head));
    CHECK_OK(text_append(&text, first, sizeof first - 1));
    CHECK_OK(text_append(&text, page + head, end - head));
    CHECK_OK(text_append(&text, probe, sizeof probe - 1));
    CHECK_OK(text_append(&text, page + end, strlen(page + end)));
    lab_write_text(lab, lab_path(lab, "%s/probed.html", cell), text.data);
}

static double found(const Outcome *o, const char *name)
{
    char key[32];
    (void)snprintf(key, sizeof key, "data-%s=\"", name);
    const char *at = strstr(o->out, key);
    if (at == NULL) fail_msg("no %s in %.400s", key, o->out);
    return strtod(at + strlen(key), NULL);
}

/* Opens the page that a cell has, and checks what every page must have. Skips without a browser. */
static Outcome browse_at(Lab *lab, const char *cell, const char *size)
{
    if (access("/usr/bin/chromium", X_OK) != 0) {
        printf("skip: there is no Chromium\n");
        skip();
    }
    const char *page = lab_read(lab, lab_path(lab, "%s/x.html", cell), NULL);
    with_probe(lab, cell, page);
    CHECK(strstr(page, "http") == NULL && strstr(page, "src=") == NULL);
    Lab browser = *lab;
    (void)snprintf(browser.program, sizeof browser.program, "/usr/bin/chromium");
    Outcome o =
        RUN(&browser, cell, "--headless", "--no-sandbox", "--disable-gpu",
            "--disable-dev-shm-usage", "--user-data-dir=profile", "--virtual-time-budget=9000",
            size, "--enable-logging=stderr", "--dump-dom", "probed.html");
    lab->arena = browser.arena; /* texts of the outcome lie there */
    lab->children = browser.children;
    CHECK_EXIT(o, 0);
    CHECK_INT(found(&o, "over"), 0);
    CHECK_INT(found(&o, "narrow"), 0);
    CHECK_INT(found(&o, "dead"), 0);
    CHECK_INT(found(&o, "errors"), 0);
    CHECK(strstr(o.err, "CONSOLE") == NULL);
    return o;
}

static Outcome browse(Lab *lab, const char *cell)
{
    Outcome o = browse_at(lab, cell, "--window-size=1280,900");
    CHECK_INT(found(&o, "cut"), 0);
    return o;
}

#define PLAN "plan", "deepseek-v2-lite", "run.compute=bf16", "data.sequence=4096"

static void a_plan_is_whole_at_1280_pixels(void **state)
{
    Lab *lab = *state;
    Outcome o = RUN(lab, "one", PLAN, "mesh.pp=9", "mesh.ep=8", "train.batch=512", "--cluster",
                    "mi325x:72", "--tokens", "15T", "--html", "x.html");
    CHECK_EXIT(o, 0);
    const char *cost = strstr(o.out, "\ncost        ");
    CHECK(cost != NULL);
    cost += PLAN_LINE;
    o = browse(lab, "one");
    CHECK_INT(found(&o, "chosen"), 1);
    CHECK_INT(found(&o, "zoom"), 1);
    CHECK_INT(found(&o, "numbers"), 1);
    CHECK(found(&o, "boxes") > 9 * 10);
    CHECK(strstr(o.out, "9 hosts of 8") != NULL);
    CHECK_SAYS(o.out, "<dt>rates</dt><dd>published gemm; assumed memory, grouped,");
    CHECK_SAYS(o.out, "<dt>note</dt><dd>stack switchyard has never run on a GPU of AMD");
    char hours[64];
    (void)snprintf(hours, sizeof hours, "<dt>Cost, GPU hours</dt><dd>%.*s<small>with failures",
                   (int)strcspn(cost, " "), cost);
    CHECK_SAYS(o.out, hours);
}

/* The share in % behind a word, of the n-th such word. */
static double share_behind(const char *text, const char *word, int n)
{
    for (; n >= 0; n--) {
        text = strstr(text, word);
        if (text == NULL) fail_msg("no \"%s\"", word);
        text += strlen(word);
    }
    return strtod(text, NULL);
}

/* Not inline, as with_probe. */
__attribute__((noinline)) static void page_has_bubble(const char *page, int ranks, double bubble)
{
    const char *head = strstr(page, "class=\"head\""), *rank = head;
    double sum = 0;
    CHECK_NEAR(share_behind(page, "bubble ", 0), bubble, 0.051); /* the box */
    CHECK_NEAR(share_behind(head, "bubble ", 0), bubble, 0.051);
    for (int r = 0; r < ranks; r++) {
        rank = strstr(rank + 1, ">rank ");
        sum += share_behind(strstr(rank, "<text"), "\">", 0);
    }
    CHECK_NEAR(sum / ranks, bubble, 0.051);
}

/* The text, JSON, the box, the timeline and the mean of its ranks say one bubble, also of lists, whose
 * exchanges run beside the compute lane. */
static void a_bubble_is_the_same_everywhere(void **state)
{
    Lab *lab = *state;
    static const char *const layout[][3] = { { "mesh.pp=9", "mesh.schedule=1f1b", "switchyard" },
                                             { "mesh.pp=3", "mesh.schedule=zb-h1", "switchyard" },
                                             { "mesh.pp=3", "mesh.schedule=1f1b", "torchtitan" } };
    for (int i = 0; i < 3; i++) {
        const char *const *l = layout[i];
        Outcome o =
            RUN(lab, "bubble", PLAN, l[0], l[1], "mesh.ep=8", "train.batch=144", "--cluster",
                i == 0 ? "h200:72" : "h200:24", "--stack", l[2], "--html", "x.html", "--json");
        CHECK_EXIT(o, 0);
        const double bubble = 100 * share_behind(o.out, "\"bubble\":", 1);
        page_has_bubble(lab_read(lab, lab_path(lab, "bubble/x.html"), NULL), i == 0 ? 9 : 3,
                        bubble);
        o = RUN(lab, "bubble", PLAN, l[0], l[1], "mesh.ep=8", "train.batch=144", "--cluster",
                i == 0 ? "h200:72" : "h200:24", "--stack", l[2]);
        CHECK_NEAR(share_behind(o.out, "; bubble ", 0), bubble, 0.051);
        CHECK_SAYS(o.out, ": the mean share of the pipeline's time in which compute lanes run");
    }
}

/* The whole line is short: a long list of layouts does not push it away. */
static void a_search_is_whole_and_its_points_lead_to_rows(void **state)
{
    Lab *lab = *state;
    Outcome o = RUN(lab, "search", PLAN, "train.batch=512", "search.cp=[1,2]", "search.pp=[1,3]",
                    "search.micro_batch=[1]", "search.ep=[8]", "--cluster", "h200:24", "--search",
                    "--top", "9", "--html", "x.html");
    CHECK_EXIT(o, 0);
    o = browse(lab, "search");
    CHECK(found(&o, "links") > 2 * 9);
    CHECK(strstr(o.out, "id=\"timeline8\"") != NULL);
    CHECK(strstr(o.out, "id=\"timeline9\"") == NULL);
    CHECK_SAYS(o.out,
               "viewBox=\"0 0 526 230\""); /* the chart of a narrow page, with words of full size */
    (void)browse_at(lab, "search", "--window-size=700,900"); /* no layout is cut */
}

/* Passes of 240 micro-batches are narrower than a pixel or two. In the whole step they are few wide boxes; the
 * begin and the end of it show passes with their numbers. Panels of memory have one legend, and an axis that
 * ends at what may be used. */
static void many_micro_batches_can_be_read(void **state)
{
    Lab *lab = *state;
    Outcome o = RUN(lab, "many", PLAN, "mesh.pp=3", "mesh.ep=8", "train.batch=1920", "--cluster",
                    "mi325x:24", "--html", "x.html");
    CHECK_EXIT(o, 0);
    o = browse(lab, "many");
    CHECK_SAYS(o.out, "The first ");
    CHECK_SAYS(o.out, "The last ");
    CHECK_SAYS(o.out, ">239</text>");
    CHECK(found(&o, "texts") > 100);
    CHECK(found(&o, "rects") < 3 * 300);
    const char *panel = strstr(o.out, "Memory of rank 0</h3>");
    CHECK(panel != NULL);
    const char *y = strstr(panel, "data-y=\"0 ");
    CHECK(y != NULL);
    CHECK_NEAR(strtod(y + strlen("data-y=\"0 "), NULL), 256 * 0.95, 0.01);
    CHECK(strstr(panel, "+ grads</text>") == NULL);
    const char *legend = strstr(o.out, "class=\"keys\"");
    CHECK(legend != NULL && legend < panel);
    CHECK_SAYS(panel, "data-word=\"s\"");
}

static void what_does_not_fit_has_a_page_that_says_why(void **state)
{
    Lab *lab = *state;
    Outcome o = RUN(lab, "unfit", PLAN, "mesh.ep=8", "train.batch=192", "train.micro_batch=8",
                    "plan.margin=0.5", "search.pp=[1,3]", "search.ep=[8]", "search.cp=[1]",
                    "search.zero=[1]", "--cluster", "h100:24", "--html", "x.html");
    CHECK_EXIT(o, 3);
    CHECK(strstr(o.out, "<html") == NULL);
    o = browse(lab, "unfit");
    CHECK(strstr(o.out, "Does not fit: this layout takes") != NULL);
}

static void scaling_has_losses_and_layouts_in_columns_of_their_own(void **state)
{
    Lab *lab = *state;
    Outcome o = RUN(lab, "scale", PLAN, "mesh.ep=8", "train.batch=512", "--cluster", "h200:8",
                    "--scale", "8,16,64", "--tokens", "1T", "--html", "x.html");
    CHECK_EXIT(o, 0);
    CHECK(strstr(o.out, "; lost to exchange") != NULL);
    char days[32];
    (void)snprintf(days, sizeof days, ">%.1f; ", share_behind(o.out, "recompute none; ", 0));
    o = browse(lab, "scale");
    CHECK_SAYS(o.out, days);
    CHECK_SAYS(o.out, " with failures (P90 ");
    CHECK_SAYS(o.out, ">days of the training</th>");
    /* ticks of both charts are the numbers that were asked; there is one curve, so it has no column */
    static const char *const tick[] = { ">8</text>", ">16</text>", ">64</text>" };
    for (int i = 0; i < 3; i++) {
        const char *one = strstr(o.out, tick[i]);
        CHECK(one != NULL && strstr(one + 1, tick[i]) != NULL);
    }
    CHECK(strstr(o.out, ">20</text>") == NULL && strstr(o.out, ">50</text>") == NULL);
    CHECK(strstr(o.out, "<td>deepseek-v2-lite</td>") == NULL);
    const char *lost = strstr(o.out, ">lost to</th>"), *layout = strstr(o.out, ">layout</th>");
    CHECK(lost != NULL && layout != NULL && lost < layout);
    CHECK(strstr(layout, ">exchange ") != NULL || strstr(layout, "; exchange ") != NULL);
    CHECK(strstr(layout, ">PP1 VPP1 EP8 CP1 DP64 ") != NULL);
}

static void other_endings_are_refused(void **state)
{
    Lab *lab = *state;
    Outcome o = RUN(lab, "pdf", PLAN, "--cluster", "h200:8", "--html", "x.pdf");
    CHECK_EXIT(o, 2);
    CHECK(strstr(o.err, "--html x.pdf: the name must end in .html or .svg") != NULL);
    CHECK(!file_exists(lab_path(lab, "pdf/x.pdf")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LAB_TEST(a_plan_is_whole_at_1280_pixels),
        LAB_TEST(a_bubble_is_the_same_everywhere),
        LAB_TEST(a_search_is_whole_and_its_points_lead_to_rows),
        LAB_TEST(many_micro_batches_can_be_read),
        LAB_TEST(what_does_not_fit_has_a_page_that_says_why),
        LAB_TEST(scaling_has_losses_and_layouts_in_columns_of_their_own),
        LAB_TEST(other_endings_are_refused),
    };
    return LAB_RUN_ALL(tests);
}
