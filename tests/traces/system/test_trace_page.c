/* The page of `trace report`: one well-formed file that names nothing outside, and in a browser
 * (Chromium, where it is installed) the lanes, boxes and colours of its trace. */
#include "harness/png.h"
#include "harness/program.h"
#include "pages/unit/xml_check.h"

/* Two kernels, one of them a collective, and a copy on streams 7 and 20; 10 ms from 1 s on. */
#define GPU(name, cat, tid, ts, dur, link)                                                         \
    "{\"ph\":\"X\",\"cat\":\"" cat "\",\"name\":\"" name "\",\"pid\":0,\"tid\":" tid ",\"ts\":" ts \
    ",\"dur\":" dur ",\"args\":{\"device\":0,\"stream\":" tid ",\"correlation\":" link "}},"
#define LAUNCH(ts, link)                                                                           \
    "{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"aten::mm <&>\",\"pid\":9,\"tid\":9,\"ts\":" ts    \
    ",\"dur\":50,\"args\":{\"External id\":" link "}},"                                            \
    "{\"ph\":\"X\",\"cat\":\"cuda_runtime\",\"name\":\"cudaLaunchKernel\",\"pid\":9,\"tid\":9,"    \
    "\"ts\":" ts ",\"dur\":20,\"args\":{\"correlation\":" link "}},"

static const char trace[] =
    "{\"deviceProperties\":[{\"id\":0,\"name\":\"NVIDIA H200\"}],"
    "\"traceEvents\":["
    "{\"ph\":\"X\",\"cat\":\"user_annotation\",\"name\":\"ProfilerStep#3\","
    "\"pid\":9,\"tid\":9,\"ts\":1000000,\"dur\":9000}," LAUNCH("1000000", "1")
        LAUNCH("1000100", "2") LAUNCH("1000200", "3")
            GPU("void gemm<int>(a & b)", "kernel", "7", "1000000", "4000", "1")
                GPU("ncclDevKernel_AllReduce", "kernel", "20", "1004000", "3000", "2")
                    GPU("Memcpy HtoD", "gpu_memcpy", "20", "1008000", "2000", "3") "{}]}";

static char *page_of(Lab *lab, const char *cell)
{
    CHECK_OK(file_make_folders(lab_path(lab, "%s", cell)));
    lab_write_text(lab, lab_path(lab, "%s/a.json", cell), trace);
    Outcome o = RUN(lab, cell, "trace", "report", "a.json", "--out", "new", "--format", "html");
    CHECK_EXIT(o, 0);
    return lab_read(lab, lab_path(lab, "%s/new/report.html", cell), NULL);
}

static void a_page_is_well_formed_and_needs_nothing_else(void **state)
{
    Lab *lab = *state;
    const char *page = page_of(lab, "page"), *place = NULL, *error = xml_error(page, &place);
    if (error != NULL) fail_msg("%s: %.80s", error, place);
    CHECK(strstr(page, "http://") == NULL && strstr(page, "https://") == NULL);
    CHECK(strstr(page, "src=") == NULL && strstr(page, "@import") == NULL);
    static const char *const parts[] = { "id=\"timeline\"", "id=\"breakdown\"", "id=\"kernels\"",
                                         "id=\"collectives\"", "id=\"sheets\"" };
    const char *last = page;
    for (int i = 0; i < 5; i++) {
        const char *at = strstr(last, parts[i]);
        if (at == NULL) fail_msg("no part %s behind the one before", parts[i]);
        if (i == 4) CHECK(memmem(last, (size_t)(at - last), "ncclDev", 7) != NULL);
        if (i == 4) CHECK(memmem(last, (size_t)(at - last), "gemm", 4) == NULL);
        last = at;
    }
    CHECK(strstr(page, "aten::mm \\u003c\\u0026\\u003e") != NULL); /* in the script */
    CHECK(strstr(page, "NVIDIA H200") != NULL);
}

/* Two kernels of one template, which differ only in the middle and at the end of long names; both run products of
 * 512 x 512 x 512 in bf16, one in 4 ms and one in 2 us, on the GPU of this name. */
#define LONG(n)                                                                                    \
    "void at::native::vectorized_elementwise_kernel<8, at::native::some_functor<float, float, "    \
    "float>, std::array<char*, " n "ul>>(int, argument, another_argument)"
#define PRODUCT(ts, link)                                                                          \
    "{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"aten::mm\",\"pid\":9,\"tid\":9,\"ts\":" ts        \
    ",\"dur\":50,"                                                                                 \
    "\"args\":{\"External id\":" link ",\"Input Dims\":[[512,512],[512,512]],\"Input type\":"      \
    "[\"c10::BFloat16\",\"c10::BFloat16\"],\"Input Strides\":[[512,1],[512,1]]}},"                 \
    "{\"ph\":\"X\",\"cat\":\"cuda_runtime\",\"name\":\"cudaLaunchKernel\",\"pid\":9,\"tid\":9,"    \
    "\"ts\":" ts ",\"dur\":20,\"args\":{\"correlation\":" link "}},"

static const char *page_on(Lab *lab, const char *cell, const char *gpu)
{
    char text[4096];
    (void)snprintf(text, sizeof text,
                   "{\"deviceProperties\":[{\"id\":0,\"name\":\"%s\"}],\"traceEvents\":[%s{}]}",
                   gpu,
                   PRODUCT("1000000", "1") PRODUCT("1000100", "2")
                       GPU(LONG("2"), "kernel", "7", "1000000", "4000", "1")
                           GPU(LONG("3"), "kernel", "7", "1004000", "2", "2"));
    CHECK_OK(file_make_folders(lab_path(lab, "%s", cell)));
    lab_write_text(lab, lab_path(lab, "%s/a.json", cell), text);
    Outcome o = RUN(lab, cell, "trace", "report", "a.json", "--out", "new", "--format", "html");
    CHECK_EXIT(o, 0);
    return lab_read(lab, lab_path(lab, "%s/new/report.html", cell), NULL);
}

static void a_roofline_has_its_roof_or_says_that_it_has_none(void **state)
{
    Lab *lab = *state;
    const char *page = page_on(lab, "h200", "NVIDIA H200");
    CHECK_SAYS(page, "1 of 1 operators, those of at least 0.1 % of the time");
    CHECK_SAYS(page, "Lines: what the data sheet allows");
    const char *roof = strstr(page, "data-name=\"peak in bf16: 989.4 TFLOP/s, 4.8 TB/s\"");
    CHECK(roof != NULL && strstr(page, "There is no roofline") == NULL);
    CHECK_SAYS(page, ">FLOP/s</text>");
    page = page_on(lab, "other", "A100-PG509-200");
    CHECK_SAYS(page,
               "There is no roofline, because no data sheet is known for A100-PG509-200: --gpu");
    CHECK(strstr(page, "data-name=\"peak") == NULL);
}

/* Both names are cut in their middle, with a sign; the pointer shows them whole. */
static void long_names_are_cut_with_a_sign(void **state)
{
    Lab *lab = *state;
    const char *page = page_on(lab, "names", "NVIDIA H200");
    CHECK_SAYS(page, "<td title=\"void at::native::vectorized_elementwise_kernel&lt;8, "
                     "at::native::some_functor&lt;float, float, float&gt;, std::array&lt;char*, "
                     "2ul&gt;&gt;(int, argument, another_argument)\">void at::native::vectorized_");
    CHECK_SAYS(page, "…(int, argument, another_argument)</td>");
}

/* Recordings of several runs, or ranks in folders of their own, have one name. */
static void traces_of_one_name_are_all_there(void **state)
{
    Lab *lab = *state;
    CHECK_OK(file_make_folders(lab_path(lab, "twins/a")));
    CHECK_OK(file_make_folders(lab_path(lab, "twins/b")));
    lab_write_text(lab, lab_path(lab, "twins/a/t.json"), trace);
    lab_write_text(lab, lab_path(lab, "twins/b/t.json"), trace);
    Outcome o = RUN(lab, "twins", "trace", "report", "a/t.json", "b/t.json", "--out", "new",
                    "--format", "html");
    CHECK_EXIT(o, 0);
    const char *page = lab_read(lab, lab_path(lab, "twins/new/report.html"), NULL);
    int columns = 0;
    while ((page = strstr(page, ">t.json</th>")) != NULL) columns++, page++;
    CHECK_INT(columns, 2);
}

static int number_behind(const char *text, const char *word)
{
    const char *at = strstr(text, word);
    if (at == NULL) fail_msg("no %s", word);
    return atoi(at + strlen(word));
}

enum { LANE = 892 }; /* pixels of a lane in a window of 1300 */

/* Lanes: the step, the thread, two streams. In its row each kind of work has the colour of its kind,
 * over as many pixels as it lasted: of 10 ms 4 are computation, 3 communication, 2 a copy. */
static void a_browser_draws_what_the_trace_has(void **state)
{
    Lab *lab = *state, browser;
    if (access("/usr/bin/chromium", X_OK) != 0) {
        printf("skip: there is no Chromium\n");
        skip();
    }
    (void)page_of(lab, "drawn");
    browser = *lab;
    snprintf(browser.program, sizeof browser.program, "/usr/bin/chromium");
#define BROWSE                                                                                     \
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",                      \
        "--user-data-dir=profile", "--virtual-time-budget=4000", "--window-size=1300,900",         \
        "--force-device-scale-factor=1"
    Outcome o = RUN(&browser, "drawn", BROWSE, "--dump-dom", "new/report.html");
    CHECK_EXIT(o, 0);
    CHECK_INT(number_behind(o.out, "data-lanes=\""), 4);
    CHECK_INT(number_behind(o.out, "data-boxes=\""), 7);
    o = RUN(&browser, "drawn", BROWSE, "--screenshot=shot.png", "new/report.html");
    CHECK_EXIT(o, 0);
    size_t n = 0;
    const char *file = lab_read(lab, lab_path(lab, "drawn/shot.png"), &n);
    Png p = png_read((const unsigned char *)file, n);
    CHECK_INT(p.wide, 1300);
    /* Only calls of the host have this colour, and lie 22 rows above stream 7. */
    uint32_t thread = 0;
    while (thread < p.high - 66 && png_count(&p, thread, 1, 0x4d, 0x59, 0x65) < 2) thread++;
    int64_t computation = png_count(&p, thread + 23, 1, 0x0b, 0x62, 0xb8),
            communication = png_count(&p, thread + 45, 1, 0xc8, 0x45, 0x0c),
            copies = png_count(&p, thread + 45, 1, 0x0a, 0x7f, 0x5a);
    free(p.row);
    CHECK_NEAR((double)computation, 0.4 * LANE, 2);
    CHECK_NEAR((double)communication, 0.3 * LANE, 2);
    CHECK_NEAR((double)copies, 0.2 * LANE, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LAB_TEST(a_page_is_well_formed_and_needs_nothing_else),
        LAB_TEST(a_roofline_has_its_roof_or_says_that_it_has_none),
        LAB_TEST(long_names_are_cut_with_a_sign),
        LAB_TEST(traces_of_one_name_are_all_there),
        LAB_TEST(a_browser_draws_what_the_trace_has),
    };
    return LAB_RUN_ALL(tests);
}
