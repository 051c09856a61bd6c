#include "harness/place.h"

#include "engine/base/file.h"
#include "engine/base/rng.h"
#include "pages/unit/xml_check.h"
#include "planner/page/pipeline_page.h"
#include "viz/scaling_file.h"
#include "viz/timeline_file.h"

#include <stdlib.h>

static const char SAMPLES[] = "../shared/traces/pp_vis/pp_data_example/gpu8_layer64_gbs16";

/* Two ranks, two micro-batches; rank 1's weight gradients are passes of their own. */
static const char CONFIG[] = "{\"pp_size\":2,\"vp_size\":1,\"num_mbs\":2,\"surprise\":[1]}";
static const char RANK_0[] =
    "{\"1\":{\"total\":99,\"fwd_start\":[0],\"fwd_end\":[9]},"
    "\"3\":{\"total\":20,\"memory\":2,\"fwd_start\":[0,2],\"fwd_end\":[2,4],\"bwd_start\":[8,14],"
    "\"bwd_end\":[12,20],\"note\":\"x\"}}";
static const char RANK_1[] =
    "{\"1\":{\"total\":98},"
    "\"3\":{\"total\":18,\"memory\":1.5,\"fwd_start\":[2,7],\"fwd_end\":[4,9],\"bwd_start\":[4,9],"
    "\"bwd_end\":[5,11],\"wgrad_start\":[5,11],\"wgrad_end\":[7,14]}}";

typedef struct Folder {
    char dir[64];
    Arena data, text;
    Timeline t;
} Folder;

static void put(const Folder *f, const char *name, const char *content)
{
    char path[FILE_PATH_MAX];
    CHECK_OK(file_join(path, f->dir, name));
    FILE *file = fopen(path, "w");
    CHECK(file != NULL && fputs(content, file) >= 0 && fclose(file) == 0);
}

static void folder_open(Folder *f)
{
    *f = (Folder){ 0 };
    place_make(f->dir, &f->data);
    CHECK_OK(arena_init(&f->text, "text", MEM_HOST, (size_t)1 << 28));
    put(f, "config.json", CONFIG);
    put(f, "pp_rank_0.json", RANK_0);
    put(f, "pp_rank_1.json", RANK_1);
}

static void folder_close(Folder *f)
{
    place_drop(f->dir, &f->data);
    arena_free(&f->text);
}

static int place_open(void **state)
{
    static Folder f;
    folder_open(*state = &f);
    return 0;
}

static int place_close(void **state)
{
    folder_close(*state);
    return 0;
}

static void check_in(const char *text, const char *part)
{
    if (strstr(text, part) == NULL) fail_msg("\"%s\" is not in: %.3000s", part, text);
}

/* ---- what is read ---- */

static void sums_and_bubbles_are_those_worked_out_by_hand(void **state)
{
    Folder *f = *state;
    CHECK_OK(timeline_read(f->dir, -1, &f->data, &f->t));
    const TimelineRank *r = f->t.rank;
    CHECK_INT(f->t.iteration, 3);
    CHECK_NEAR(f->t.step_s, 0.020, 1e-12);
    CHECK_NEAR(r[0].sum_s[TIMELINE_FORWARD], 0.004, 1e-12);
    CHECK_NEAR(r[0].sum_s[TIMELINE_BACKWARD], 0.010, 1e-12);
    CHECK_NEAR(r[0].bubble, 0.3, 1e-12); /* 14 of 20 */
    CHECK_NEAR(r[1].sum_s[TIMELINE_BACKWARD], 0, 0);
    CHECK_NEAR(r[1].sum_s[TIMELINE_INPUT], 0.003, 1e-12);
    CHECK_NEAR(r[1].sum_s[TIMELINE_WEIGHT], 0.005, 1e-12);
    CHECK_NEAR(r[1].bubble, 0.4, 1e-12); /* 12 of 20 */
    CHECK_NEAR(f->t.theory, 1.0 / 3, 1e-12);
    CHECK_NEAR(r[0].peak_bytes, 2147483648.0, 0);
    CHECK_INT(r[0].span[3].micro, 1);
    CHECK_INT(f->t.n_recorded, 2);
    CHECK_NEAR(f->t.recorded[0].step_s, 0.099, 1e-12);
}

static void old_names_of_the_config_are_read(void **state)
{
    Folder *f = *state;
    put(f, "config.json", "{\"pp_size\":2,\"vpp_size\":1,\"micro_batches\":2,\"title\":\"a<b\"}");
    CHECK_OK(timeline_read(f->dir, 3, &f->data, &f->t));
    CHECK_INT(f->t.micros, 2);
    CHECK_TEXT(f->t.title, "a<b");
}

/* As where one rank runs a forward and a backward of two micro-batches as one pass. */
static void time_that_two_passes_share_counts_once(void **state)
{
    Folder *f = *state;
    put(f, "pp_rank_1.json",
        "{\"3\":{\"total\":18,\"fwd_start\":[2,6],\"fwd_end\":[4,10],\"bwd_start\":[6,10],"
        "\"bwd_end\":[10,12]}}");
    CHECK_OK(timeline_read(f->dir, 3, &f->data, &f->t));
    CHECK_NEAR(f->t.rank[1].bubble, 0.6, 1e-12);
}

/* Interleaving of 2 ranks, 2 chunks and 3 micro-batches: 0 1 | 0 1, then 2 | 2. */
static void passes_without_numbers_are_those_of_interleaving(void **state)
{
    Folder *f = *state;
    static const int MICRO[] = { 0, 1, 0, 1, 2, 2 }, CHUNK[] = { 0, 0, 1, 1, 0, 1 };
    static const char RANK[] = "{\"3\":{\"total\":20,\"fwd_start\":[0,1,2,3,4,5],"
                               "\"fwd_end\":[1,2,3,4,5,6],\"bwd_start\":[6,7,8,9,10,11],"
                               "\"bwd_end\":[7,8,9,10,11,12]}}";
    put(f, "config.json", "{\"pp_size\":2,\"vp_size\":2,\"num_mbs\":3}");
    put(f, "pp_rank_0.json", RANK);
    put(f, "pp_rank_1.json", RANK);
    CHECK_OK(timeline_read(f->dir, 3, &f->data, &f->t));
    for (int i = 0; i < 6; i++) {
        const TimelineSpan *s = f->t.rank[0].span;
        CHECK_INT(s[i].micro, MICRO[i]);
        CHECK_INT(s[i].chunk, CHUNK[i]);
        CHECK_INT(s[6 + i].micro, MICRO[i]);
        CHECK_INT(s[6 + i].chunk, 1 - CHUNK[i]);
    }
}

static void passes_are_read_as_they_stand(void **state)
{
    Folder *f = *state;
    static const char RANK[] =
        "{\"3\":{\"total\":20,\"fwd_start\":[1,3],\"fwd_end\":[2,4],\"fwd_minibatch\":[1,0],"
        "\"fwd_chunk\":[0,0],\"send_start\":[2],\"send_end\":[2.5],\"memory\":3}}";
    put(f, "pp_rank_0.json", RANK);
    put(f, "pp_rank_1.json", RANK);
    CHECK_OK(timeline_read(f->dir, 3, &f->data, &f->t));
    const TimelineRank *r = &f->t.rank[1];
    CHECK_INT(r->spans, 3);
    CHECK_INT(r->span[0].micro, 1);
    CHECK_INT(r->span[2].micro, 0);
    CHECK_NEAR(r->sum_s[TIMELINE_SEND], 0.0005, 1e-12);
    CHECK_NEAR(r->peak_bytes / TIMELINE_GIB, 3, 0);
    CHECK_INT(f->t.memory_kinds, 0);
}

/* What Primus publishes of its example, at iteration 7. */
static void published_recordings_give_the_published_figures(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double step_ms, bubble[8], theory, first_gib;
    } run[] = {
        { "pp8",
          3237.888,
          { 36.41, 37.04, 36.37, 35.61, 35.64, 34.99, 37.40, 30.02 },
          7.0 / 23,
          104.33 },
        { "pp8_vpp2",
          2880.696,
          { 26.14, 28.44, 27.82, 30.95, 30.21, 29.39, 30.42, 17.30 },
          7.0 / 39,
          130.6 },
    };
    if (!file_exists(SAMPLES)) {
        print_message("%s is not here\n", SAMPLES);
        skip();
    }
    for (int i = 0; i < 2; i++) {
        Folder f;
        char path[FILE_PATH_MAX];
        folder_open(&f);
        CHECK_OK(file_join(path, SAMPLES, run[i].name));
        CHECK_OK(timeline_read(path, 7, &f.data, &f.t));
        CHECK_TEXT(f.t.title, run[i].name);
        CHECK_INT(f.t.n_recorded, 20);
        CHECK_NEAR(1e3 * f.t.step_s, run[i].step_ms, 5e-4);
        CHECK_NEAR(f.t.theory, run[i].theory, 1e-12);
        CHECK_NEAR(f.t.rank[0].peak_bytes / TIMELINE_GIB, run[i].first_gib, 6e-3);
        for (int r = 0; r < 8; r++) CHECK_NEAR(100 * f.t.rank[r].bubble, run[i].bubble[r], 5.1e-3);
        folder_close(&f);
    }
}

/* ---- what is refused ---- */

static void a_broken_folder_is_refused_with_file_and_reason(void **state)
{
    (void)state;
    static const struct {
        const char *file, *content, *says;
        Status code;
    } row[] = {
        { "config.json", "{\"pp_size\":2,", "config.json is not a complete JSON object",
          ERR_FORMAT },
        { "config.json", "", "breaks at byte 0 of 0", ERR_FORMAT },
        { "config.json", "[1]", "config.json", ERR_FORMAT },
        { "config.json", "{\"num_mbs\":2}", "\"pp_size\" is missing", ERR_FORMAT },
        { "config.json", "{\"pp_size\":2.5,\"num_mbs\":2}", "whole number from 1", ERR_FORMAT },
        { "config.json", "{\"pp_size\":1e9,\"num_mbs\":2}", "to 4096", ERR_FORMAT },
        { "config.json", "{\"pp_size\":2,\"num_mbs\":2,\"vp_size\":0}", "vp_size", ERR_FORMAT },
        { "config.json", "{\"pp_size\":5,\"num_mbs\":2}",
          "pp_rank_2.json is missing; name a folder of config.json and pp_rank_0.json to 4",
          ERR_IO },
        { "pp_rank_1.json", "{\"3\":{\"total\":18,\"fwd_st", "pp_rank_1.json", ERR_FORMAT },
        { "pp_rank_1.json", "{}", "no total above 0", ERR_FORMAT },
        { "pp_rank_1.json", "{\"3\":{\"total\":0}}", "total above 0", ERR_FORMAT },
        { "pp_rank_1.json", "{\"3\":{\"total\":1}}", "no forward pass", ERR_FORMAT },
        { "pp_rank_1.json", "{\"3\":{\"total\":1,\"fwd_start\":[0,1],\"fwd_end\":[1]}}",
          "fwd_start has 2 numbers, fwd_end 1", ERR_FORMAT },
        { "pp_rank_1.json", "{\"3\":{\"total\":1,\"fwd_start\":[0],\"fwd_end\":[1]}}",
          "has 1 passes, 1 chunks of 2 micro-batches have 2", ERR_FORMAT },
        { "pp_rank_1.json", "{\"3\":{\"total\":9,\"fwd_start\":[0,5],\"fwd_end\":[1,4]}}",
          "time runs backwards in pass 2", ERR_FORMAT },
        { "pp_rank_1.json", "{\"3\":{\"total\":9,\"fwd_start\":[5,0],\"fwd_end\":[6,1]}}",
          "time runs backwards in pass 2", ERR_FORMAT },
        { "pp_rank_1.json", "{\"3\":{\"total\":9,\"fwd_start\":[0,null],\"fwd_end\":[1,4]}}",
          "number 2 of \"fwd_start\"", ERR_FORMAT },
        { "pp_rank_1.json", "{\"3\":{\"total\":9,\"fwd_start\":[0,1e999],\"fwd_end\":[1,4]}}",
          "number 2 of \"fwd_start\"", ERR_FORMAT },
        { "pp_rank_1.json",
          "{\"3\":{\"total\":9,\"fwd_start\":[0],\"fwd_end\":[1],\"fwd_minibatch\":[3]}}",
          "no micro-batch up to 2", ERR_FORMAT },
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        Folder f;
        folder_open(&f);
        put(&f, row[i].file, row[i].content);
        CHECK_FAILS(timeline_read(f.dir, 3, &f.data, &f.t), row[i].code, row[i].says);
        folder_close(&f);
    }
}

static void an_iteration_that_is_not_there_is_named(void **state)
{
    Folder *f = *state;
    CHECK_FAILS(timeline_read(f->dir, 7, &f->data, &f->t), ERR_FORMAT,
                "iteration 7: the file has no total above 0");
}

/* Bytes changed at random: read or refused with a sentence, never worse. */
static void damaged_files_never_do_harm(void **state)
{
    Folder *f = *state;
    int read = 0;
    for (uint64_t i = 0; i < 3000; i++) {
        static const char *const NAME[] = { "config.json", "pp_rank_0.json", "pp_rank_1.json" };
        static const char *const GOOD[] = { CONFIG, RANK_0, RANK_1 };
        static const char WITH[] = "0123456789,.:[]{}\"-eE nulx\\";
        char bytes[512];
        int which = (int)(i % 3), n = (int)strlen(GOOD[which]);
        memcpy(bytes, GOOD[which], (size_t)n + 1);
        for (uint64_t k = 0; k < 1 + i % 4; k++) {
            int at = (int)(rng_uniform(i, k, 0) * n);
            bytes[at] = WITH[(int)(rng_uniform(i, k, 1) * (sizeof WITH - 1))];
        }
        if (i % 5 == 0) bytes[(int)(rng_uniform(i, 9, 0) * n)] = '\0';
        put(f, NAME[which], bytes);
        status_clear();
        ArenaMark mark = arena_mark(&f->data);
        Status s = timeline_read(f->dir, -1, &f->data, &f->t);
        CHECK(s == OK || *status_message() != '\0');
        read += s == OK;
        arena_release(&f->data, mark);
        put(f, NAME[which], GOOD[which]);
    }
    CHECK(read > 100 && read < 2500);
}

/* ---- simulated ---- */

static double pass_s(void *ctx, int rank, const Action *a)
{
    (void)ctx;
    (void)rank;
    if (action_is_transfer(a->kind)) return 0.25;
    bool pass = a->kind >= ACTION_FORWARD && a->kind <= ACTION_BACKWARD_WEIGHT;
    return a->kind == ACTION_UPDATE ? 0.5 : pass ? 1 : 0;
}

static SlotBytes slot_bytes(void *ctx, int rank, int chunk)
{
    (void)ctx;
    (void)chunk;
    return (SlotBytes){ .input = 1e9 * (rank + 1), .weight = 2e9 };
}

/* The share of the time until all passes have ended in which a rank runs none. */
static double bubble_of(const Pipeline *p, const Simulation *s, int rank)
{
    double ends = 0, busy = 0;
    for (int r = 0; r < p->stages; r++) {
        for (int i = 0; i < p->rank[r].n; i++) {
            const SimSpan *span = &s->rank[r].span[i];
            if (!action_is_pass(p->rank[r].at[i].kind)) continue;
            ends = fmax(ends, span->end);
            if (r == rank && p->rank[r].at[i].lane == LANE_COMPUTE) busy += span->end - span->start;
        }
    }
    return 1 - busy / ends;
}

static void simulate(Folder *f, const char *name, int stages, int micros)
{
    const ScheduleDesc *d = NULL;
    Pipeline p;
    Simulation s;
    const ScheduleShape shape = { stages, 1, micros, 1, 1, 1, .blocks = 1 };
    const SimCost cost = { .duration = pass_s, .slot = slot_bytes, .entry_bytes = 5e8 };
    double weights[512];
    for (int i = 0; i < 512; i++) weights[i] = 1e10 + i;
    const TimelineResident kept[] = { { "weights", weights } };
    CHECK_OK(schedule_find(name, &d));
    CHECK_OK(schedule_make(d, &shape, &f->data, &f->text, &p));
    CHECK_OK(simulate_run(&p, &cost, &f->data, &s));
    CHECK_OK(timeline_simulated(&p, &s, kept, 1, name, &f->data, &f->t));
    CHECK_NEAR(f->t.step_s, s.step, 0);
    for (int i = 0; i < stages; i++) {
        CHECK_NEAR(f->t.rank[i].bubble, bubble_of(&p, &s, i), 1e-12);
        CHECK_NEAR(f->t.rank[i].peak_bytes, weights[i] + s.rank[i].peak_bytes, 1);
    }
}

static void a_simulation_has_the_passes_of_its_schedule(void **state)
{
    Folder *f = *state;
    simulate(f, "zb-h1", 4, 6);
    CHECK_INT(f->t.memory_kinds, 2);
    CHECK_TEXT(f->t.memory_kind[1], "activations");
    for (int i = 0; i < 4; i++) {
        const double *sum = f->t.rank[i].sum_s;
        CHECK_NEAR(sum[TIMELINE_FORWARD], 6, 1e-9);
        CHECK_NEAR(sum[TIMELINE_INPUT], 6, 1e-9);
        CHECK_NEAR(sum[TIMELINE_WEIGHT], 6, 1e-9);
        CHECK(sum[TIMELINE_SEND] > 0 && f->t.rank[i].points > 0);
    }
}

/* ---- drawn ---- */

static const char *draw(Folder *f, Status (*how)(Text *, const PipelineView *))
{
    static Text page;
    const PipelineView v = { .timeline = &f->t, .timelines = 1 };
    CHECK_OK(text_init(&page, &f->text));
    CHECK_OK(how(&page, &v));
    const char *place = NULL, *error = xml_error(page.data, &place);
    if (error != NULL) fail_msg("%s, before: %.60s", error, place);
    CHECK(strstr(page.data, "nan") == NULL && strstr(page.data, "\"inf") == NULL);
    return page.data;
}

static void pages_and_stills_show_every_pass(void **state)
{
    Folder *f = *state;
    simulate(f, "zb-h1", 4, 6);
    const char *page = draw(f, pipeline_html);
    check_in(page, ">rank 3</text>");
    check_in(page, "data-m=\"5\"");
    check_in(page, "weight gradient");
    check_in(page, "activations");
    CHECK(strstr(page, "http://www.w3.org") == NULL && strstr(page, "src=") == NULL);
    const char *still = draw(f, pipeline_still);
    CHECK(strncmp(still, "<svg xmlns=", 11) == 0);
    check_in(still, "width=\"1000\"");
    check_in(still, ">5</text>");
}

static void of_many_ranks_some_are_shown_and_the_page_says_so(void **state)
{
    Folder *f = *state;
    simulate(f, "1f1b", 300, 20);
    CHECK_INT(f->t.shown, 64);
    CHECK_INT(timeline_shown_rank(&f->t, 0), 0);
    CHECK_INT(timeline_shown_rank(&f->t, 63), 299);
    const char *page = draw(f, pipeline_html);
    check_in(page, "64 of 300 ranks are shown");
    CHECK(strlen(page) < 1 << 20);
}

/* strstr, whose stand-in under ASan measures the whole page each time. */
static const char *find(const char *at, const char *what)
{
    while ((at = strchr(at, what[0])) != NULL && strncmp(at, what, strlen(what)) != 0) at++;
    return at;
}

/* The share of a row that boxes of passes cover, from "idle" to the end of the row. */
static double covered(const char *row)
{
    const char *end = find(row, "</g>"), *at = row;
    double width = strtod(find(row, "width=\"") + 7, NULL), sum = 0, until = 0;
    while ((at = find(at, "<rect class=\"k")) != NULL && at < end) {
        double x = strtod(find(at, " x=\"") + 4, NULL);
        double box = strtod(find(at, " width=\"") + 8, NULL);
        bool pass = at[14] - '0' < TIMELINE_EXCHANGE;
        at++;
        if (!pass) continue;
        sum += fmax(0, x + box - fmax(x, until));
        until = fmax(until, x + box);
    }
    return sum / width;
}

/* Whether passes are wide, thin or too short for a box of their own. */
static void a_row_is_as_full_as_its_rank_is_busy(void **state)
{
    (void)state;
    static const struct {
        const char *schedule;
        int stages, micros;
    } row[] = { { "1f1b", 4, 12 },    { "1f1b", 8, 400 },         { "1f1b", 8, 3000 },
                { "zb-h1", 4, 2000 }, { "1f1b-overlap", 4, 600 }, { "zb-h1", 4, 300 } };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        Folder f;
        folder_open(&f);
        simulate(&f, row[i].schedule, row[i].stages, row[i].micros);
        const char *at = draw(&f, pipeline_html);
        CHECK(strlen(at) < 2 << 20);
        for (int r = 0; r < f.t.shown; r++) {
            at = strstr(at + 1, "<rect class=\"idle\"");
            CHECK_NEAR(covered(at), f.t.rank[r].busy_s / f.t.step_s, 0.005);
        }
        folder_close(&f);
    }
}

static double attribute(const char *box, const char *name)
{
    const char *end = find(box, "/>"), *at = find(box, name);
    return at == NULL || at > end ? -1 : strtod(at + strlen(name), NULL);
}

/* Seconds of each kind on the boxes of a row: those of a shared box are written, others are its width. */
static int row_seconds(const char *row, double step_s, double sum_s[TIMELINE_KINDS])
{
    const char *end = find(row, "</g>"), *at = row;
    double scale = strtod(find(row, "width=\"") + 7, NULL) / step_s;
    int spans = 0;
    while ((at = find(at, "<rect class=\"k")) != NULL && at < end) {
        double shared_s = attribute(at, " data-s=\""), n = attribute(at, " data-n=\"");
        sum_s[at[14] - '0'] += shared_s < 0 ? attribute(at, " width=\"") / scale : shared_s;
        spans += n < 0 ? 1 : (int)n;
        at++;
    }
    return spans;
}

/* From one micro-batch to ten thousand, with as few boxes as pages of many timelines have, too. */
static void a_page_has_every_second_of_the_simulation(void **state)
{
    (void)state;
    static const struct {
        const char *schedule;
        int stages, micros, boxes;
    } row[] = { { "1f1b", 4, 1, 40000 },          { "zb-h1", 4, 40, 40000 },
                { "zb-h1", 4, 40, 500 },          { "1f1b", 4, 1000, 8000 },
                { "1f1b-overlap", 4, 200, 8000 }, { "1f1b", 2, 10000, 40000 } };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        Folder f;
        folder_open(&f);
        simulate(&f, row[i].schedule, row[i].stages, row[i].micros);
        timeline_limit(&f.t, row[i].boxes);
        const char *at = draw(&f, pipeline_html);
        for (int r = 0; r < f.t.ranks; r++) {
            double sum_s[TIMELINE_KINDS] = { 0 };
            at = find(at + 1, "<rect class=\"idle\"");
            CHECK_INT(row_seconds(at, f.t.step_s, sum_s), f.t.rank[r].spans);
            for (int k = 0; k < TIMELINE_KINDS; k++)
                CHECK_NEAR(sum_s[k], f.t.rank[r].sum_s[k], 2e-3 * f.t.step_s);
        }
        folder_close(&f);
    }
}

/* A shared box has no edge, and is named by how many it stands for. */
static void fewer_boxes_merge_more_and_drop_nothing(void **state)
{
    Folder *f = *state;
    simulate(f, "1f1b", 4, 500);
    CHECK_INT(f->t.shown, 4);
    CHECK_INT(f->t.grain, 1024);
    timeline_limit(&f->t, 1);
    CHECK_INT(f->t.grain, 128);
    const char *page = draw(f, pipeline_html);
    check_in(page, " data-n=\"");
    check_in(page, " thin\"");
    check_in(page, "share boxes");
}

/* Reductions of gradients and updates are of no chunk. Long and short ones have a colour. */
static void what_is_of_no_chunk_has_a_colour(void **state)
{
    Folder *f = *state;
    TimelineSpan span[] = { { 0, 0.5, TIMELINE_FORWARD, 0, 2 },
                            { 0.5, 0.9, TIMELINE_OTHER, -1, -1 },
                            { 0.9, 1.4, TIMELINE_EXCHANGE, -1, -1 },
                            { 1.5, 1.50001, TIMELINE_OTHER, -1, -1 } };
    TimelineRank rank = { .span = span, .spans = 4, .total_s = 2, .peak_bytes = NAN };
    f->t = (Timeline){ .title = "t", .ranks = 1, .chunks = 3, .micros = 1, .rank = &rank };
    timeline_sum(&f->t);
    const char *page = draw(f, pipeline_html);
    check_in(page, "<rect class=\"k40\"");
    check_in(page, "<rect class=\"k50\"");
    check_in(page, "<rect class=\"k40 thin\"");
    CHECK(strstr(page, "data-c=\"-1\"") == NULL);
}

static void memory_of_any_rank_can_be_chosen(void **state)
{
    Folder *f = *state;
    simulate(f, "1f1b", 12, 8);
    f->t.room_bytes = 1;
    const char *page = draw(f, pipeline_html), *at = page;
    int panels = 0, hidden = 0, buttons = 0;
    while ((at = find(at + 1, "<figure data-rank=")) != NULL) {
        panels++;
        hidden +=
            find(at, "hidden=\"hidden\"") != NULL && find(at, "hidden=\"hidden\"") < find(at, ">");
    }
    for (at = page; (at = find(at + 1, "<button type=")) != NULL;) buttons++;
    CHECK_INT(panels, 12);
    CHECK_INT(hidden, 6);
    CHECK_INT(buttons, 12);
    check_in(page, "Memory of 6 of 12 ranks is drawn");
    check_in(page, "may be used");
    check_in(page, "end bad"); /* memory of a rank above what may be used */
}

/* `late` takes the bytes that `early` gave back, so their sum never changes. `never` has no bytes. */
static void each_kind_of_memory_with_bytes_is_drawn(void **state)
{
    Folder *f = *state;
    static const double at_s[] = { 0, 1 };
    static const double bytes[] = { 2e9, 5e9, 0, 0, 2e9, 0, 0, 5e9 };
    TimelineSpan span = { 0, 2, TIMELINE_FORWARD, 0, 0 };
    TimelineRank rank = { .span = &span,
                          .spans = 1,
                          .total_s = 2,
                          .peak_bytes = 7e9,
                          .at_s = at_s,
                          .bytes = bytes,
                          .points = 2 };
    f->t = (Timeline){ .title = "t",
                       .ranks = 1,
                       .chunks = 1,
                       .micros = 1,
                       .rank = &rank,
                       .memory_kind = { "kept", "early", "never", "late" },
                       .memory_kinds = 4 };
    timeline_sum(&f->t);
    const char *page = draw(f, pipeline_html);
    check_in(page, "data-name=\"kept\"");
    check_in(page, "data-name=\"+ early\"");
    check_in(page, "data-name=\"+ late\"");
    CHECK(strstr(page, "data-name=\"+ never\"") == NULL);
}

static void only_pages_and_pictures_are_written(void **state)
{
    (void)state;
    CHECK_OK(pipeline_check_path("plan: --html", "x.html"));
    CHECK_OK(pipeline_check_path("plan: --html", "x.svg"));
    CHECK_FAILS(pipeline_check_path("plan: --html", "x.pdf"), ERR_ARG,
                "plan: --html x.pdf: the name must end in .html or .svg");
}

/* ---- scaling ---- */

static void a_scaling_curve_is_read_and_drawn(void **state)
{
    Folder *f = *state;
    char path[FILE_PATH_MAX];
    Scaling s;
    const PipelineView v = { .scaling = &s, .scalings = 1 };
    Text page, still;
    const char *place = NULL;
    CHECK_OK(file_join(path, f->dir, "scaling.json"));
    put(f, "scaling.json",
        "{\"title\":\"2T & more\",\"scaling\":[{\"gpus\":8192,\"efficiency\":1},{\"gpus\":98304,"
        "\"tokens_per_s_per_gpu\":292,\"efficiency\":0.73,\"reason\":\"bubble < all\"}]}");
    CHECK_OK(scaling_read(path, &f->data, &s));
    CHECK_TEXT(s.title, "2T & more");
    CHECK_INT(s.points, 2);
    CHECK_NEAR(s.gpus[1], 98304, 0);
    CHECK_NEAR(s.efficiency[1], 0.73, 0);
    CHECK_TEXT(s.reason[1], "bubble < all");
    CHECK_OK(text_init(&page, &f->text));
    CHECK_OK(pipeline_html(&page, &v));
    CHECK(xml_error(page.data, &place) == NULL);
    check_in(page.data, "<td>98,304</td><td>292</td><td>73 %</td>"
                        "<td class=\"words\">bubble &lt; all</td></tr>");
    CHECK(strstr(page.data, ">layout</th>") == NULL);
    s.layout[1] = "PP2 & EP8";
    s.unfit[0] = true;
    CHECK_OK(text_init(&page, &f->text));
    CHECK_OK(pipeline_html(&page, &v));
    check_in(page.data, "<td class=\"words\">bubble &lt; all</td>"
                        "<td class=\"words\">PP2 &amp; EP8</td></tr>");
    check_in(page.data, "<td>8,192</td><td>-</td><td>100 %</td><td class=\"words bad\">"
                        "does not fit</td>");
    CHECK_OK(text_init(&still, &f->text));
    CHECK_OK(pipeline_still(&still, &v));
    CHECK(xml_error(still.data, &place) == NULL);
    check_in(still.data, "2T &amp; more");
}

static void a_wrong_scaling_curve_is_refused_by_point(void **state)
{
    (void)state;
    static const char *const BAD[][2] = {
        { "{\"title\":\"x\"}", "\"scaling\" is missing" },
        { "{\"scaling\":[{\"gpus\":1}]}", "\"title\"" },
        { "{\"title\":\"x\",\"scaling\":[{\"gpus\":8},{\"gpus\":4}]}", "point 2" },
        { "{\"title\":\"x\",\"scaling\":[3]}", "point 1" },
        { "{\"title\":\"x\",\"sca", "scaling.json" },
    };
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        Folder f;
        Scaling s;
        char path[FILE_PATH_MAX];
        folder_open(&f);
        put(&f, "scaling.json", BAD[i][0]);
        CHECK_OK(file_join(path, f.dir, "scaling.json"));
        CHECK_FAILS(scaling_read(path, &f.data, &s), ERR_FORMAT, BAD[i][1]);
        folder_close(&f);
    }
}

/* Steps of 40, 20, 30 and 99 ms: the longest of the ranks, so rank 1's 30 counts. Of four the median is the shorter
 * of the two in the middle. */
static void the_median_step_is_drawn_and_named(void **state)
{
    Folder *f = *state;
    static const char *const which[] = { "iteration 5, the median of 4 (20 ms to 99 ms)",
                                         "iteration 7, 230.0 % longer than the median of 4 (",
                                         "iteration 4, 33.3 % shorter than the median of 4 (" };
    static const int64_t asked[] = { TIMELINE_MEDIAN, TIMELINE_LAST, 4 };
    static const char passes[] = "\"fwd_start\":[0,4],\"fwd_end\":[2,6],\"bwd_start\":[2,6],"
                                 "\"bwd_end\":[4,8]}";
    char rank[2][1024];
    for (int r = 0; r < 2; r++) {
        (void)snprintf(rank[r], sizeof rank[r],
                       "{\"3\":{\"total\":40,%s,\"4\":{\"total\":20,%s,\"5\":{\"total\":%d,%s,"
                       "\"7\":{\"total\":99,%s}",
                       passes, passes, r == 0 ? 10 : 30, passes, passes);
    }
    put(f, "pp_rank_0.json", rank[0]);
    put(f, "pp_rank_1.json", rank[1]);
    for (int i = 0; i < 3; i++) {
        Text text;
        CHECK_OK(timeline_read(f->dir, asked[i], &f->data, &f->t));
        CHECK_INT(f->t.iteration, i == 0 ? 5 : i == 1 ? 7 : 4);
        CHECK_INT(f->t.n_recorded, 4);
        CHECK_OK(text_init(&text, &f->text));
        CHECK_OK(timeline_table(&text, &f->t));
        check_in(text.data, which[i]);
        check_in(draw(f, pipeline_html), which[i]);
    }
}

/* Boxes ten pixels wide have two digits in small type, and one in the usual. */
static void narrow_boxes_have_numbers_too(void **state)
{
    Folder *f = *state;
    simulate(f, "1f1b", 4, 40);
    const char *page = draw(f, pipeline_html), *last = strstr(page, ">39</text>");
    const char *one = strstr(page, ">7</text>");
    CHECK(last != NULL && one != NULL);
    while (strncmp(last, "<text", 5) != 0) last--;
    while (strncmp(one, "<text", 5) != 0) one--;
    CHECK(strstr(last, " small\"") != NULL && strstr(last, " small\"") < strstr(last, ">39<"));
    CHECK(strstr(one, " small\"") > strstr(one, ">7<"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        PLACE_TEST(the_median_step_is_drawn_and_named),
        PLACE_TEST(narrow_boxes_have_numbers_too),
        PLACE_TEST(sums_and_bubbles_are_those_worked_out_by_hand),
        PLACE_TEST(old_names_of_the_config_are_read),
        PLACE_TEST(time_that_two_passes_share_counts_once),
        PLACE_TEST(passes_without_numbers_are_those_of_interleaving),
        TEST(published_recordings_give_the_published_figures),
        TEST(a_broken_folder_is_refused_with_file_and_reason),
        PLACE_TEST(an_iteration_that_is_not_there_is_named),
        PLACE_TEST(damaged_files_never_do_harm),
        PLACE_TEST(passes_are_read_as_they_stand),
        PLACE_TEST(a_simulation_has_the_passes_of_its_schedule),
        PLACE_TEST(pages_and_stills_show_every_pass),
        PLACE_TEST(of_many_ranks_some_are_shown_and_the_page_says_so),
        TEST(a_row_is_as_full_as_its_rank_is_busy),
        TEST(a_page_has_every_second_of_the_simulation),
        PLACE_TEST(fewer_boxes_merge_more_and_drop_nothing),
        PLACE_TEST(what_is_of_no_chunk_has_a_colour),
        PLACE_TEST(memory_of_any_rank_can_be_chosen),
        PLACE_TEST(each_kind_of_memory_with_bytes_is_drawn),
        TEST(only_pages_and_pictures_are_written),
        PLACE_TEST(a_scaling_curve_is_read_and_drawn),
        TEST(a_wrong_scaling_curve_is_refused_by_point),
    };
    return TEST_RUN(tests);
}
