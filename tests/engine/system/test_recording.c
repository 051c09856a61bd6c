/* The recorder as its user meets it: the last steps in a file a rank, on a signal, by setting and
 * after a failure; what `trace report` makes of them. */
#include "harness/program.h"
#include "harness/run_folder.h"

#include "engine/trace/record.h"

#include <cjson/cJSON.h>
#include <switchyard_trace.h>

#define TRAIN "train", "../tiny.yaml"

typedef struct Read {
    Arena arena;
    Recorded r;
} Read;

static Read read_file(Lab *lab, const char *path)
{
    Read out = { 0 };
    size_t n = 0;
    const char *data = lab_read(lab, path, &n);
    CHECK_OK(arena_init(&out.arena, "recording", MEM_HOST, (size_t)1 << 30));
    CHECK_OK(record_parse(path, (const uint8_t *)data, n, &out.arena, &out.r));
    return out;
}

static int64_t rows_named(const Recorded *r, const char *name)
{
    int64_t n = 0;
    for (uint32_t i = 0; i < r->way[0].rows; i++)
        n += strcmp(r->name[r->way[0].row[i].name], name) == 0;
    return n;
}

/* Times of a step: none ends before it begins, phases lie in their actions one behind the other, and
 * actions of the lane in the order of the list. */
static void check_step(const Recorded *r, const RecordedStep *s)
{
    const RecordWay *w = &r->way[s->head.way];
    int64_t last = 0;
    CHECK(s->head.rows > 0 && s->head.seconds > 0 && s->head.unix_ns > (int64_t)1e18);
    for (uint32_t i = 0; i < s->head.rows; i++) {
        const RecordTime *t = &s->times[i], *of = &s->times[w->row[i].action];
        CHECK(t->begin >= 0 && t->end >= t->begin && (double)t->end <= 1e9 * s->head.seconds);
        CHECK(t->begin >= of->begin && t->end <= of->end);
        if (w->row[i].action != (int32_t)i && w->row[i - 1].action == w->row[i].action &&
            w->row[i - 1].action != (int32_t)i - 1)
            CHECK_INT(t->begin, t[-1].end);
        if (w->row[i].action == (int32_t)i && !w->row[i].transfer) {
            CHECK(t->begin >= last);
            last = t->end;
        }
    }
}

/* The library opens a recording as it does any trace. */
static void check_library(const char *path, int64_t steps)
{
    SwitchyardTrace *t = NULL;
    SwitchyardTraceSheet sheet;
    SwitchyardTraceCell cell;
    int32_t at = -1;
    CHECK_INT(switchyard_trace_open(path, NULL, &t), SWITCHYARD_TRACE_OK);
    CHECK_INT(switchyard_trace_find_sheet(t, "steps", &at), SWITCHYARD_TRACE_OK);
    CHECK_INT(switchyard_trace_sheet(t, at, &sheet), SWITCHYARD_TRACE_OK);
    CHECK_INT(sheet.rows, steps);
    CHECK_INT(switchyard_trace_cell(t, at, steps - 1, 0, &cell), SWITCHYARD_TRACE_OK);
    CHECK_INT(cell.whole, 9);
    CHECK_INT(switchyard_trace_find_sheet(t, "phases", &at), SWITCHYARD_TRACE_OK);
    CHECK_INT(switchyard_trace_cell(t, at, 0, 0, &cell), SWITCHYARD_TRACE_OK);
    CHECK(cell.type == SWITCHYARD_TRACE_TEXT && *cell.text != '\0');
    switchyard_trace_close(t);
}

static void the_ring_has_the_last_steps(void **state)
{
    Lab *lab = *state;
    Outcome o = RUN(lab, "ring", TRAIN, "train.steps=9", "run.trace_ring=4", "run.trace_every=100");
    CHECK_EXIT(o, 0);
    const char *file = lab_path(lab, "ring/run/recording/rank-00000.syr");
    check_library(file, 4);
    Read x = read_file(lab, file);
    CHECK_INT(x.r.steps, 4);
    CHECK(!x.r.cut && x.r.ops == 0);
    for (int i = 0; i < 4; i++) {
        CHECK_INT(x.r.step[i].head.step, 6 + i);
        check_step(&x.r, &x.r.step[i]);
    }
    /* two micro-batches, a forward and a backward each; three layers, the first without experts */
    CHECK_INT(rows_named(&x.r, "forward"), 2);
    CHECK_INT(rows_named(&x.r, "backward"), 2);
    CHECK_INT(rows_named(&x.r, "update"), 1);
    CHECK(rows_named(&x.r, "head head") >= 2);
    double flops = 0, phases = 0;
    for (uint32_t i = 0; i < x.r.way[0].rows; i++) {
        bool action = x.r.way[0].row[i].action == (int32_t)i;
        *(action ? &flops : &phases) += x.r.way[0].row[i].flops;
    }
    CHECK(phases > 0 && phases <= flops && phases > 0.9 * flops);
    uint64_t tokens = 0;
    for (uint32_t i = 0; i < x.r.step[0].head.loads; i++) tokens += x.r.step[0].load[i];
    CHECK(tokens > 0 && tokens % (4 * 32) == 0); /* top_k experts for each token and layer */
    arena_free(&x.arena);
}

static int sheet_rows(const char *text, const char *column)
{
    cJSON *rows = cJSON_Parse(text);
    int n = cJSON_GetArraySize(rows);
    CHECK(n == 0 || cJSON_GetObjectItem(cJSON_GetArrayItem(rows, 0), column) != NULL);
    cJSON_Delete(rows);
    return n;
}

static void all_ranks_are_one_report_and_one_trace(void **state)
{
    Lab *lab = *state;
    Outcome o = RUN(lab, "ranks", TRAIN, "train.steps=5", "run.trace_every=5", "run.trace_ring=3",
                    "mesh.pp=2", "--ranks", "2");
    CHECK_EXIT(o, 0);
    o = RUN(lab, "ranks", "trace", "report", "run/recording/rank-00000.syr",
            "run/recording/rank-00001.syr", "--out", "report", "--format", "json,html",
            "--perfetto", "all.json");
    CHECK_EXIT(o, 0);
    CHECK(file_exists(lab_path(lab, "ranks/report/report.html")));
    for (int rank = 0; rank < 2; rank++) {
        CHECK_INT(
            sheet_rows(lab_read(lab, lab_path(lab, "ranks/report/rank_%d/steps.json", rank), NULL),
                       "bubble (%)"),
            3);
        CHECK(
            sheet_rows(lab_read(lab, lab_path(lab, "ranks/report/rank_%d/phases.json", rank), NULL),
                       "TFLOP/s") > 8);
    }
    cJSON *all = cJSON_Parse(lab_read(lab, lab_path(lab, "ranks/all.json"), NULL));
    const cJSON *event = NULL;
    int of_rank[2] = { 0 }, steps = 0, sends = 0;
    cJSON_ArrayForEach(event, cJSON_GetObjectItem(all, "traceEvents"))
    {
        const char *name = cJSON_GetObjectItem(event, "name")->valuestring;
        int rank = cJSON_GetObjectItem(event, "pid")->valueint;
        CHECK(rank == 0 || rank == 1);
        of_rank[rank]++;
        steps += strncmp(name, "ProfilerStep#", 13) == 0;
        sends += strncmp(name, "comm: send", 10) == 0;
        if (*cJSON_GetObjectItem(event, "ph")->valuestring == 'X')
            CHECK(cJSON_GetObjectItem(event, "ts")->valuedouble >= 0 &&
                  cJSON_GetObjectItem(event, "dur")->valuedouble >= 0);
    }
    CHECK(of_rank[0] > 50 && of_rank[1] > 50);
    CHECK_INT(steps, 6);
    CHECK(sends > 0);
    cJSON_Delete(all);
}

static void ranks_of_different_runs_are_refused(void **state)
{
    Lab *lab = *state;
    static const char *const command[] = { "report", "collectives" };
    for (int i = 0; i < 2; i++) {
        Outcome o = RUN(lab, i == 0 ? "one" : "other", TRAIN, "train.steps=2", "run.trace_every=2",
                        "mesh.pp=2", "--ranks", "2");
        CHECK_EXIT(o, 0);
    }
    for (int i = 0; i < 2; i++) {
        Outcome o = RUN(lab, "one", "trace", command[i], "run/recording/rank-00000.syr",
                        "../other/run/recording/rank-00001.syr", "--out", "report");
        CHECK_REFUSED(o, 2, "are of runs that began");
        CHECK(!file_exists(lab_path(lab, "one/report")));
    }
    Outcome o = RUN(lab, "one", "trace", "report", "run/recording/rank-00000.syr",
                    "run/recording/rank-00001.syr");
    CHECK_EXIT(o, 0);
}

static void a_signal_asks_for_it_and_for_a_step_op_by_op(void **state)
{
    Lab *lab = *state;
    const char *file = lab_path(lab, "signal/run/recording/rank-00000.syr");
    Child c = START(lab, "signal", TRAIN, "train.steps=100000", "train.log_every=1");
    while (run_count_steps(lab, "signal") < 2 && child_runs(&c)) child_sleep();
    kill(c.pid, SIGUSR1);
    while (!file_exists(file) && child_runs(&c)) child_sleep();
    kill(c.pid, SIGTERM);
    Outcome o = lab_wait(lab, &c);
    CHECK_EXIT(o, 0); /* it went on until it was asked to stop */
    Read x = read_file(lab, file);
    const RecordedStep *last = &x.r.step[x.r.steps - 1];
    CHECK((last->head.flags & RECORD_TRACED) != 0);
    CHECK(x.r.ops > 20);
    double flops = 0;
    for (int64_t i = 0; i < x.r.ops; i++) {
        CHECK_INT(x.r.op[i].step, last->head.step);
        CHECK(x.r.op[i].start_ns >= last->head.unix_ns - 1000000 && x.r.op[i].dur_ns >= 0);
        flops += x.r.op[i].flops;
    }
    CHECK(flops > 0);
    arena_free(&x.arena);
}

static void a_failed_run_leaves_its_last_steps(void **state)
{
    Lab *lab = *state;
    Outcome o = RUN(lab, "nan", TRAIN, "optimizer.lr=100", "optimizer.min_lr=100",
                    "optimizer.warmup_steps=0", "train.clip_norm=0", "train.steps=4000");
    CHECK_EXIT(o, 3);
    Read x = read_file(lab, lab_path(lab, "nan/run/recording/rank-00000.syr"));
    CHECK(x.r.steps > 0);
    arena_free(&x.arena);
}

static void a_run_is_the_same_with_and_without(void **state)
{
    Lab *lab = *state;
    Outcome o = RUN(lab, "with", TRAIN, "train.steps=6", "run.trace_ring=2");
    CHECK_EXIT(o, 0);
    CHECK(!file_exists(lab_path(lab, "with/run/recording"))); /* nobody asked */
    o = RUN(lab, "without", TRAIN, "train.steps=6", "run.trace_ring=0");
    CHECK_EXIT(o, 0);
    CHECK(lab_same_files(lab, lab_path(lab, "with/run/checkpoints/step-0000000006/rank-00000.bin"),
                         lab_path(lab, "without/run/checkpoints/step-0000000006/rank-00000.bin")));
    check_same_steps(lab, "with", "without", 1, 6);
}

static void damaged_files_give_what_was_whole(void **state)
{
    Lab *lab = *state;
    Outcome o = RUN(lab, "cut", TRAIN, "train.steps=6", "run.trace_every=6");
    CHECK_EXIT(o, 0);
    const char *file = lab_path(lab, "cut/run/recording/rank-00000.syr");
    size_t n = 0;
    const char *whole = lab_read(lab, file, &n);
    lab_write(lab, lab_path(lab, "cut/short.syr"), whole, n - 100);
    o = RUN(lab, "cut", "trace", "report", "short.syr");
    CHECK_EXIT(o, 3);
    CHECK_SAYS(o.out, "ends early");
    lab_write(lab, lab_path(lab, "cut/head.syr"), whole, 40);
    o = RUN(lab, "cut", "trace", "report", "head.syr");
    CHECK_REFUSED(o, 2, "no complete step");
    char *other = lab_read(lab, file, &n);
    other[8] = 9;
    lab_write(lab, lab_path(lab, "cut/later.syr"), other, n);
    o = RUN(lab, "cut", "trace", "report", "later.syr");
    CHECK_REFUSED(o, 2, "version 9");
    o = RUN(lab, "cut", "trace", "report", "../tiny.yaml", "--perfetto", "x.json");
    CHECK_REFUSED(o, 2, "not a recording of this program");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LAB_TEST(the_ring_has_the_last_steps),
        LAB_TEST(all_ranks_are_one_report_and_one_trace),
        LAB_TEST(ranks_of_different_runs_are_refused),
        LAB_TEST(a_signal_asks_for_it_and_for_a_step_op_by_op),
        LAB_TEST(a_failed_run_leaves_its_last_steps),
        LAB_TEST(a_run_is_the_same_with_and_without),
        LAB_TEST(damaged_files_give_what_was_whole),
    };
    return LAB_RUN_ALL(tests);
}
