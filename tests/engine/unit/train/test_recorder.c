/* The recorder of steps: what a traced step stamps, and trace.json, which another's parser (cJSON)
 * reads. The file of the ring is in tests/engine/system/test_recording.c, the folder of a pipeline in
 * tests/engine/mesh/test_pipeline.c. */
#include "harness/place.h"
#include "harness/tiny.h"

#include "engine/base/clock.h"
#include "engine/train/recorder.h"

#include <cjson/cJSON.h>

typedef struct Lab {
    char folder[64], path[FILE_PATH_MAX];
    Arena arena;
    Tiny tiny;
    Recorder recorder;
    int64_t step;
} Lab;

static int place_open(void **state)
{
    static Lab place;
    Lab *p = *state = &place;
    *p = (Lab){ 0 };
    place_make(p->folder, &p->arena);
    CHECK_OK(file_join(p->path, p->folder, "trace.json"));
    tiny_open(&p->tiny, TINY("train.micro_batch=2"));
    CHECK_OK(recorder_open(&p->recorder, &p->tiny.engine, NULL, 2));
    return 0;
}

static int place_close(void **state)
{
    Lab *p = *state;
    recorder_close(&p->recorder);
    tiny_close(&p->tiny);
    place_drop(p->folder, &p->arena);
    return 0;
}

static void run_step(Lab *p, bool traced)
{
    StepResult result;
    double start = clock_s();
    recorder_trace(&p->recorder, traced);
    CHECK_OK(engine_step(&p->tiny.engine, &p->tiny.batch, 0, ++p->step, &result));
    recorder_take(&p->recorder, &result, clock_s() - start, 0, 0);
    recorder_trace(&p->recorder, false);
}

static cJSON *written(Lab *p)
{
    char *text = NULL;
    size_t bytes = 0;
    CHECK_OK(recorder_dump(&p->recorder, p->folder, 0, "{}"));
    CHECK_OK(recorder_trace_json(&p->recorder, p->folder, 0, p->path));
    CHECK_OK(file_read_all(p->path, &p->arena, &text, &bytes));
    cJSON *root = cJSON_Parse(text);
    CHECK(root != NULL);
    return root;
}

static const cJSON *events_of(const cJSON *root)
{
    return cJSON_GetObjectItem(root, "traceEvents");
}

static double number(const cJSON *event, const char *key)
{
    const cJSON *value = cJSON_GetObjectItem(event, key);
    return cJSON_IsNumber(value) ? value->valuedouble : (double)NAN;
}

static double argument(const cJSON *event, const char *key)
{
    return number(cJSON_GetObjectItem(event, "args"), key);
}

static const char *text_of(const cJSON *event, const char *key)
{
    const char *value = cJSON_GetStringValue(cJSON_GetObjectItem(event, key));
    return value == NULL ? "(none)" : value;
}

static bool is(const cJSON *event, const char *category, const char *name)
{
    return strcmp(text_of(event, "cat"), category) == 0 &&
           (name == NULL || strcmp(text_of(event, "name"), name) == 0);
}

static int count(const cJSON *root, const char *category, const char *name)
{
    int n = 0;
    const cJSON *event = NULL;
    cJSON_ArrayForEach(event, events_of(root)) n += is(event, category, name);
    return n;
}

/* ---- ops ---- */

static void a_traced_step_notes_each_op_with_its_cost(void **state)
{
    Lab *p = *state;
    Recorder *r = &p->recorder;
    double before = clock_s();
    run_step(p, true);
    double after = clock_s();
    CHECK(r->n_ops > 50 && r->dropped == 0);
    bool product = false;
    uint64_t lasted = 0;
    for (int i = 0; i < r->n_ops; i++) {
        const RecordOp *o = &r->op[i];
        const uint64_t *at = &r->op_stamp[2 * i];
        CHECK(at[0] >= (uint64_t)(before * 1e9) && at[1] >= at[0] &&
              at[1] <= (uint64_t)(after * 1e9));
        CHECK(i == 0 || at[0] >= at[-1]);
        CHECK_INT(o->step, 1);
        lasted += at[1] - at[0];
        product |= o->flops > 0 && o->bytes > 0 && o->flops != o->bytes && o->layer == 1;
    }
    CHECK(product && lasted > 0);
    CHECK_INT(r->slot[0].head.flags, RECORD_TRACED);
}

static void a_step_that_is_not_traced_has_rows_alone(void **state)
{
    Lab *p = *state;
    run_step(p, false);
    CHECK_INT(p->recorder.n_ops, 0);
    CHECK_INT(p->recorder.slot[0].head.flags, 0);
    CHECK(p->recorder.slot[0].head.rows > 10);
    CHECK_INT(p->tiny.engine.ex.depth, 0);
}

static void ops_are_those_of_the_last_traced_step(void **state)
{
    Lab *p = *state;
    run_step(p, true);
    int first = p->recorder.n_ops;
    run_step(p, true);
    CHECK_INT(p->recorder.n_ops, first);
    run_step(p, false);
    CHECK_INT(p->recorder.n_ops, first);
    CHECK_INT(p->recorder.op[0].step, 2);
}

/* ---- trace.json ---- */

static void an_event_has_microseconds_from_the_first_one_and_its_arguments(void **state)
{
    Lab *p = *state;
    run_step(p, true);
    cJSON *root = written(p);
    const cJSON *e = NULL;
    double least = INFINITY, flops = 0, want = 0;
    int forward = 0;
    cJSON_ArrayForEach(e, events_of(root))
    {
        if (strcmp(text_of(e, "ph"), "X") != 0) continue;
        least = fmin(least, number(e, "ts"));
        CHECK(number(e, "dur") >= 0 && number(e, "pid") == 0);
        if (is(e, "user_annotation", "ProfilerStep#1")) continue;
        CHECK_NEAR(argument(e, "step"), 1, 0);
        CHECK(number(e, "tid") == 0);
        if (is(e, "op", NULL)) flops += argument(e, "flops");
        forward += is(e, "kernel", "attention qkv forward") && argument(e, "layer") == 2;
        CHECK(!is(e, "gpu_user_annotation", NULL) || isnan(argument(e, "layer")));
    }
    for (int i = 0; i < p->recorder.n_ops; i++) want += p->recorder.op[i].flops;
    CHECK_NEAR(least, 0, 0);
    CHECK_NEAR(flops / want, 1, 1e-9);
    CHECK_INT(forward, 2); /* micro-batches */
    CHECK_INT(count(root, "gpu_user_annotation", "forward"), 2);
    CHECK_INT(count(root, "kernel", "update"), 1); /* without phases */
    CHECK_INT(count(root, "op", NULL), p->recorder.n_ops);
    CHECK_INT(count(root, "op", "head_loss"), 2);
    cJSON_Delete(root);
}

/* A viewer nests the slices of a thread by containment in time. */
static void ops_lie_in_phases_and_phases_in_actions(void **state)
{
    Lab *p = *state;
    run_step(p, true);
    cJSON *root = written(p);
    const cJSON *e = NULL, *of = NULL;
    cJSON_ArrayForEach(e, events_of(root))
    {
        double begin = number(e, "ts"), end = begin + number(e, "dur");
        int around = 0;
        if (!is(e, "op", NULL)) continue;
        cJSON_ArrayForEach(of, events_of(root))
        {
            if (!is(of, "kernel", NULL)) continue;
            double from = number(of, "ts"), to = from + number(of, "dur");
            around += from <= begin + 1.5e-3 && end <= to + 1.5e-3;
            bool cut = begin + 1.5e-3 < to && to + 1.5e-3 < end;
            if (cut) fail_msg("%s goes on after its phase", text_of(e, "name"));
        }
        CHECK(around >= 1);
    }
    cJSON_Delete(root);
}

static void each_lane_is_a_named_thread(void **state)
{
    Lab *p = *state;
    run_step(p, true);
    cJSON *root = written(p);
    const cJSON *e = NULL;
    int threads = 0;
    cJSON_ArrayForEach(e, events_of(root))
    {
        if (strcmp(text_of(e, "name"), "thread_name") != 0) continue;
        CHECK_TEXT(text_of(e, "ph"), "M");
        if (threads == 0) CHECK_NEAR(number(e, "tid"), 0, 0);
        if (threads == 0) CHECK_TEXT(text_of(cJSON_GetObjectItem(e, "args"), "name"), "compute");
        threads++;
    }
    CHECK(threads >= 1);
    cJSON_Delete(root);
}

static void the_file_has_every_traced_step_though_the_ring_is_short(void **state)
{
    Lab *p = *state;
    for (int i = 0; i < 3; i++) {
        run_step(p, true);
        cJSON *root = written(p);
        CHECK_INT(count(root, "kernel", "update"), i + 1);
        CHECK_INT(count(root, "op", NULL), (i + 1) * p->recorder.n_ops);
        cJSON_Delete(root);
        run_step(p, false);
    }
}

static Recorded dumped(Lab *p)
{
    char *data = NULL;
    size_t bytes = 0;
    Recorded out;
    char path[FILE_PATH_MAX];
    CHECK_OK(recorder_dump(&p->recorder, p->folder, 0, "{}"));
    CHECK_OK(file_join(path, p->folder, "rank-00000.syr"));
    CHECK_OK(file_read_all(path, &p->arena, &data, &bytes));
    CHECK_OK(record_parse(path, (const uint8_t *)data, bytes, &p->arena, &out));
    return out;
}

static void the_last_traced_step_stays_when_the_ring_has_lost_it(void **state)
{
    Lab *p = *state;
    run_step(p, false);
    run_step(p, true);
    Recorded r = dumped(p); /* the ring has two steps */
    CHECK_INT(r.steps, 2);
    CHECK_INT(r.step[1].head.step, 2);
    int64_t end = r.step[1].times[0].end;
    run_step(p, false);
    CHECK_INT(dumped(p).steps, 2); /* it is the older of the two */
    for (int i = 0; i < 4; i++) run_step(p, false);
    r = dumped(p);
    CHECK_INT(r.steps, 3);
    CHECK_INT(r.step[0].head.step, 2);
    CHECK_INT(r.step[0].head.flags, RECORD_TRACED);
    CHECK_INT(r.step[0].times[0].end, end);
    CHECK_INT(r.step[1].head.step, 6);
    CHECK_INT(r.ops, p->recorder.n_ops);
}

static void ops_without_room_are_counted_and_the_file_says_so(void **state)
{
    Lab *p = *state;
    run_step(p, true);
    int all = p->recorder.n_ops;
    p->recorder.dropped = 0;
    p->recorder.most_ops = 10;
    run_step(p, true);
    cJSON *root = written(p);
    CHECK_INT(p->recorder.n_ops, 10);
    CHECK_NEAR(number(cJSON_GetObjectItem(root, "otherData"), "dropped_events"), all - 10, 0);
    cJSON_Delete(root);
}

/* Steps of 2 sequences, then of 4, which have more rows: the recording begins anew with these. */
static void a_larger_batch_begins_the_recording_anew(void **state)
{
    static const struct {
        int64_t sequences;
        bool traced;
        int64_t steps, first;
    } STEP[] = { { 2, true, 1, 1 }, { 2, false, 2, 1 }, { 4, false, 1, 3 }, { 4, false, 2, 3 } };
    Lab *p = *state;
    Tiny *t = &p->tiny;
    recorder_close(&p->recorder);
    tiny_close(t);
    tiny_open(t, TINY("train.micro_batch=2", "train.batch_ramp=[\"2: 2\"]"));
    CHECK_OK(recorder_open(&p->recorder, &t->engine, NULL, 8));
    const int64_t full = t->batch.domain.dim[0];
    for (size_t i = 0; i < sizeof STEP / sizeof *STEP; i++) {
        char file[FILE_PATH_MAX], *data = NULL;
        size_t bytes = 0;
        Recorded read;
        t->batch.domain.dim[0] = STEP[i].sequences;
        run_step(p, STEP[i].traced);
        CHECK_OK(recorder_dump(&p->recorder, p->folder, 0, "{}"));
        CHECK_OK(file_join(file, p->folder, "rank-00000.syr"));
        CHECK_OK(file_read_all(file, &p->arena, &data, &bytes));
        CHECK_OK(record_parse(file, (const uint8_t *)data, bytes, &p->arena, &read));
        CHECK_INT(read.steps, STEP[i].steps);
        CHECK_INT(read.step[0].head.step, STEP[i].first);
        int passes = 0;
        for (uint32_t k = 0; k < read.way[0].rows; k++)
            passes += read.way[0].row[k].action == (int32_t)k && read.way[0].row[k].micro >= 0;
        CHECK_INT(passes, STEP[i].sequences); /* forward and backward of each two */
        CHECK(STEP[i].sequences == full ? read.ops == 0 : read.ops > 0);
    }
}

static void a_folder_that_is_not_there_is_an_error_with_the_path(void **state)
{
    Lab *p = *state;
    char none[FILE_PATH_MAX];
    run_step(p, true);
    CHECK_OK(file_join(none, p->folder, "none/trace.json"));
    CHECK_FAILS(recorder_trace_json(&p->recorder, p->folder, 0, p->path), ERR_IO, "rank-00000.syr");
    CHECK_OK(recorder_dump(&p->recorder, p->folder, 0, "{}"));
    CHECK_FAILS(recorder_trace_json(&p->recorder, p->folder, 0, none), ERR_DISK, "none/trace.json");
}

static void a_recorder_of_no_steps_does_nothing(void **state)
{
    Lab *p = *state;
    Recorder none;
    CHECK_OK(recorder_open(&none, &p->tiny.engine, NULL, 0));
    recorder_trace(&none, true);
    CHECK_INT(p->tiny.engine.ex.depth, 0);
    CHECK_OK(recorder_trace_json(&none, p->folder, 0, p->path));
    CHECK_OK(recorder_pipeline(&none, p->folder));
    CHECK(!file_exists(p->path));
    recorder_close(&none);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        PLACE_TEST(a_traced_step_notes_each_op_with_its_cost),
        PLACE_TEST(a_step_that_is_not_traced_has_rows_alone),
        PLACE_TEST(ops_are_those_of_the_last_traced_step),
        PLACE_TEST(an_event_has_microseconds_from_the_first_one_and_its_arguments),
        PLACE_TEST(ops_lie_in_phases_and_phases_in_actions),
        PLACE_TEST(each_lane_is_a_named_thread),
        PLACE_TEST(the_file_has_every_traced_step_though_the_ring_is_short),
        PLACE_TEST(the_last_traced_step_stays_when_the_ring_has_lost_it),
        PLACE_TEST(ops_without_room_are_counted_and_the_file_says_so),
        PLACE_TEST(a_larger_batch_begins_the_recording_anew),
        PLACE_TEST(a_folder_that_is_not_there_is_an_error_with_the_path),
        PLACE_TEST(a_recorder_of_no_steps_does_nothing),
    };
    return TEST_RUN(tests);
}
