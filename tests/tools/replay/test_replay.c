/* Operators of a trace as PyTorch takes them, and as rows of bench shapes. */
#include "harness/test.h"

#include "replay/replay.h"
#include "traces/unit/traces.h"

/* An operator and its launch of `us` us. Concrete Inputs stand last so that they can be left out. */
#define OP(nth, name, us, types, dims, more)                                                       \
    ",{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"" name "\",\"pid\":1,\"tid\":1,\"ts\":" #nth     \
    "00,\"dur\":50,\"args\":{\"Input type\":" types ",\"Input Dims\":" dims more "}}"              \
    ",{\"ph\":\"X\",\"cat\":\"cuda_runtime\",\"name\":\"cudaLaunchKernel\",\"pid\":1,\"tid\":1,"   \
    "\"ts\":" #nth "10,\"dur\":5,\"args\":{\"correlation\":" #nth "}}"                             \
    ",{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"k\",\"pid\":0,\"tid\":7,\"ts\":" #nth            \
    "20,\"dur\":" #us ",\"args\":{\"correlation\":" #nth "}}"
#define VALUES(list) ",\"Concrete Inputs\":" list

#define MM(nth, us)                                                                                \
    OP(nth, "aten::mm", us, "[\"float\",\"float\"]", "[[8,4],[4,2]]", VALUES("[\"\",\"\"]"))

typedef struct Opened {
    Arena a, scratch, room;
    Events e;
    Tree t;
    Replay r;
    Text out;
    ReplayCount count;
} Opened;

static Opened o; /* counts are large */

static void open_trace(const char *events, const char *filter, int64_t limit)
{
    char text[16384];
    o = (Opened){ 0 };
    (void)snprintf(text, sizeof text, "{\"traceEvents\":[{\"ph\":\"M\"}%s]}", events);
    CHECK_OK(arena_init(&o.a, "test", MEM_HOST, (size_t)1 << 30));
    CHECK_OK(arena_init(&o.scratch, "scratch", MEM_HOST, (size_t)1 << 30));
    CHECK_OK(arena_init(&o.room, "text", MEM_HOST, (size_t)1 << 30));
    CHECK_OK(trace_read(text, &(ReadAs){ 0 }, &o.e));
    CHECK_OK(tree_build(&o.e, &(TreeOptions){ .link = LINK_CORRELATION }, &o.a, &o.t));
    CHECK_OK(replay_find(&o.t, filter, limit, &o.a, &o.scratch, &o.r));
    CHECK_OK(text_init(&o.out, &o.room));
    CHECK_OK(text_append(&o.out, "", 0));
}

static void close_trace(void)
{
    events_free(&o.e);
    arena_free(&o.a);
    arena_free(&o.scratch);
    arena_free(&o.room);
}

static void json_of(const char *events)
{
    open_trace(events, NULL, 0);
    CHECK_OK(replay_json(&o.r, &o.scratch, &o.out, &o.count));
}

static void check_says(const char *part)
{
    if (strstr(o.out.data, part) == NULL) fail_msg("\"%s\" is not in %s", part, o.out.data);
}

static void check_left_out(const char *name, const char *why)
{
    for (int i = 0; i < o.count.lefts; i++) {
        if (strcmp(o.count.left[i].name, name) == 0 && strstr(o.count.left[i].why, why) != NULL)
            return;
    }
    fail_msg("%s is not left out for \"%s\"", name, why);
}

static void equal_calls_are_one_with_a_count(void **state)
{
    (void)state;
    json_of(MM(1, 3) MM(2, 5) OP(3, "aten::mm", 100, "[\"float\",\"float\"]", "[[8,4],[4,3]]", ""));
    CHECK_INT(o.r.n, 2);
    CHECK_INT(o.r.op[0].calls, 1); /* the longest first */
    CHECK_INT(o.r.op[1].calls, 2);
    CHECK_NEAR(o.r.op[1].device_us, 8, 1e-9);
    CHECK_NEAR(o.r.device_us, 108, 1e-9);
    check_says("{\"op_name\":\"aten::mm\",\"count\":2,\"kernel_time_us\":8,\"names\":\"known\","
               "\"replay_ir\":{\"list_pos_args\":[{\"arg_name\":\"self\",\"arg_type\":\"Tensor\","
               "\"value\":{\"shape\":[8,4],\"dtype\":\"float\",\"strides\":[4,1],"
               "\"init\":\"normal\"}},{\"arg_name\":\"mat2\",");
    check_says("\"list_kwargs\":[]}}");
    close_trace();
}

static void filter_and_limit_choose(void **state)
{
    (void)state;
    static const char both[] = MM(1, 3) OP(2, "aten::relu", 7, "[\"float\"]", "[[8]]", "")
        OP(3, "aten::relu", 2, "[\"float\"]", "[[9]]", "");
    open_trace(both, "relu", 0);
    CHECK_INT(o.r.n, 2);
    CHECK_INT(o.r.calls, 2);
    close_trace();
    open_trace(both, NULL, 1);
    CHECK_INT(o.r.n, 1);
    CHECK_TEXT(event_name(&o.e, o.r.op[0].event), "aten::relu");
    CHECK_NEAR(o.r.device_us, 7, 1e-9);
    close_trace();
    open_trace(both, "none", 0);
    CHECK_INT(o.r.n, 0);
    close_trace();
}

/* Numbers, truths, lists and what is missing, each by the type that the operator wants. */
static void values_come_with_names_and_types(void **state)
{
    (void)state;
    json_of(OP(1, "aten::addmm", 1, "[\"float\",\"float\",\"float\",\"Scalar\",\"Scalar\"]",
               "[[2],[8,4],[4,2],[],[]]", VALUES("[\"\",\"\",\"\",\"1.\",\"0.5\"]"))
                OP(2, "aten::native_layer_norm", 1,
                   "[\"c10::BFloat16\",\"ScalarList\",\"\",\"c10::BFloat16\",\"Scalar\"]",
                   "[[8,4],[],[],[4],[]]", VALUES("[\"\",\"[4]\",\"\",\"\",\"1e-05\"]"))
                    OP(3, "aten::_softmax", 1, "[\"c10::Half\",\"Scalar\",\"Scalar\"]",
                       "[[8,4],[],[]]", VALUES("[\"\",\"-1\",\"False\"]")));
    CHECK_INT(o.count.ops, 3);
    check_says("\"list_kwargs\":[{\"arg_name\":\"beta\",\"arg_type\":\"Scalar\",\"value\":1.0},"
               "{\"arg_name\":\"alpha\",\"arg_type\":\"Scalar\",\"value\":0.5}]");
    check_says("{\"arg_name\":\"normalized_shape\",\"arg_type\":\"SymInt[]\",\"value\":[4]},"
               "{\"arg_name\":\"weight\",\"arg_type\":\"Tensor\",\"value\":null},");
    check_says("{\"arg_name\":\"eps\",\"arg_type\":\"float\",\"value\":1e-05}");
    check_says("{\"arg_name\":\"dim\",\"arg_type\":\"int\",\"value\":-1},"
               "{\"arg_name\":\"half_to_float\",\"arg_type\":\"bool\",\"value\":false}");
    close_trace();
}

/* add.Tensor has alpha by name, add.Scalar by place; mul into a tensor of the caller's has `out`. */
static void the_form_that_fits_is_chosen(void **state)
{
    (void)state;
    json_of(OP(1, "aten::add", 1, "[\"float\",\"float\",\"Scalar\"]", "[[8],[8],[]]",
               VALUES("[\"\",\"\",\"1\"]"))
                OP(2, "aten::add", 2, "[\"float\",\"Scalar\",\"Scalar\"]", "[[8],[],[]]",
                   VALUES("[\"\",\"3\",\"1\"]"))
                    OP(3, "aten::mul", 3, "[\"float\",\"float\",\"float\"]", "[[8],[8],[8]]",
                       VALUES("[\"\",\"\",\"\"]")));
    check_says("\"list_kwargs\":[{\"arg_name\":\"alpha\",\"arg_type\":\"Scalar\",\"value\":1}]");
    check_says("{\"arg_name\":\"other\",\"arg_type\":\"Scalar\",\"value\":3},"
               "{\"arg_name\":\"alpha\",\"arg_type\":\"Scalar\",\"value\":1}],\"list_kwargs\":[]");
    check_says("\"list_kwargs\":[{\"arg_name\":\"out\",\"arg_type\":\"Tensor\",");
    close_trace();
}

static void first_values_are_for_real_tensors_that_are_read(void **state)
{
    (void)state;
    json_of(OP(1, "aten::copy_", 1, "[\"float\",\"long int\",\"Scalar\"]", "[[8],[8],[]]",
               ",\"Input Strides\":[[2],[1],[]]" VALUES("[\"\",\"\",\"False\"]")));
    check_says("{\"shape\":[8],\"dtype\":\"float\",\"strides\":[2],\"init\":null}");
    check_says("{\"shape\":[8],\"dtype\":\"long\",\"strides\":[1],\"init\":null}");
    close_trace();
    json_of(OP(1, "aten::copy_", 1, "[\"float\",\"double\",\"Scalar\"]", "[[8],[2,4],[]]",
               VALUES("[\"\",\"\",\"False\"]")));
    check_says("{\"shape\":[2,4],\"dtype\":\"double\",\"strides\":[4,1],\"init\":\"normal\"}");
    close_trace();
}

static void unknown_operators_keep_their_places_and_say_so(void **state)
{
    (void)state;
    json_of(OP(1, "my::op", 1, "[\"float\",\"Scalar\",\"ScalarList\",\"\"]", "[[8],[],[],[]]",
               VALUES("[\"\",\"True\",\"[1, 2]\",\"\"]")));
    check_says("\"names\":\"unknown\"");
    check_says("{\"arg_name\":\"arg1\",\"arg_type\":\"bool\",\"value\":true},"
               "{\"arg_name\":\"arg2\",\"arg_type\":\"int[]\",\"value\":[1,2]},"
               "{\"arg_name\":\"arg3\",\"arg_type\":\"None\",\"value\":null}]");
    close_trace();
}

static void what_cannot_run_again_is_counted_by_reason(void **state)
{
    (void)state;
    json_of(OP(1, "aten::cat", 1, "[\"TensorList\",\"Scalar\"]", "[[[8],[8]],[]]",
               VALUES("[\"\",\"0\"]")) OP(2, "aten::cat", 4, "[\"TensorList\",\"Scalar\"]",
                                          "[[[9],[8]],[]]", VALUES("[\"\",\"0\"]"))
                OP(3, "aten::_softmax", 1, "[\"float\",\"Scalar\",\"Scalar\"]", "[[8,4],[],[]]", "")
                    OP(4, "aten::neg", 1, "[\"c10::complex<float>\"]", "[[8]]", "")
                        OP(5, "aten::neg", 1, "[\"float\"]", "[[8],[9]]", "") MM(6, 1));
    CHECK_INT(o.count.ops, 1);
    CHECK_INT(o.count.lefts, 4);
    check_left_out("aten::cat", "a list of tensors");
    check_left_out("aten::_softmax", "no values of numbers");
    check_left_out("aten::neg", "of a type that the replayer does not know");
    check_left_out("aten::neg", "not what a profiler writes");
    for (int i = 0; i < o.count.lefts; i++) {
        if (strcmp(o.count.left[i].name, "aten::cat") != 0) continue;
        CHECK_INT(o.count.left[i].calls, 2);
        CHECK_NEAR(o.count.left[i].device_us, 5, 1e-9);
    }
    close_trace();
}

/* Of a trace without device work: operators that call none. */
static void a_trace_without_a_device_has_operators_too(void **state)
{
    (void)state;
#define ALONE(name, ts, dur)                                                                       \
    ",{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"" name "\",\"pid\":1,\"tid\":1,\"ts\":" ts       \
    ",\"dur\":" dur                                                                                \
    ",\"args\":{\"Input type\":[\"float\",\"float\"],\"Input Dims\":[[8,4],[4,2]]}}"
    json_of(ALONE("aten::matmul", "1", "50") ALONE("aten::mm", "5", "20")
                ALONE("aten::mm", "30", "10"));
    CHECK_INT(o.r.n, 1);
    CHECK_INT(o.r.op[0].calls, 2);
    CHECK_TEXT(event_name(&o.e, o.r.op[0].event), "aten::mm");
    close_trace();
}

/* ---- rows of bench shapes ---- */

#define QKV  "[\"c10::BFloat16\",\"c10::BFloat16\",\"c10::BFloat16\",\"Scalar\",\"Scalar\"]"
#define SDPA "aten::_scaled_dot_product_flash_attention"

static void operators_become_rows_of_our_ops(void **state)
{
    (void)state;
    open_trace(
        MM(1, 6) OP(2, "aten::addmm", 5, "[\"float\",\"float\",\"float\"]", "[[3],[16,5],[5,3]]",
                    "") OP(3, "aten::bmm", 4, "[\"float\",\"float\"]", "[[7,8,4],[7,4,2]]",
                           "") OP(4, SDPA, 3, QKV, "[[2,4,64,32],[2,4,64,32],[2,4,64,16],[],[]]",
                                  VALUES("[\"\",\"\",\"\",\"0.\",\"True\"]"))
            OP(5, "aten::native_layer_norm", 2, "[\"float\"]", "[[3,5,32]]",
               "") OP(6, "aten::add", 1, "[\"float\",\"float\"]", "[[4,8],[4,8]]", "")
                OP(7, "tex::grouped_gemm", 1, "[\"float\",\"float\"]", "[[24,4],[3,6,4]]", "")
                    OP(8, "aten::copy_", 1, "[\"c10::BFloat16\",\"float\"]", "[[4,8],[4,8]]", ""),
        NULL, 0);
    CHECK_OK(replay_bench(&o.r, &o.scratch, &o.out, &o.count));
    CHECK_INT(o.count.ops, 8);
    check_says("{\"op\":\"linear_fwd\",\"shape\":\"mm [8,4] [4,2]\",\"type\":\"float\",\"n\":8,"
               "\"d\":4,\"e\":2,\"count\":1,\"traced_s\":6e-06}\n");
    check_says("\"n\":16,\"d\":5,\"e\":3,");
    check_says("{\"op\":\"fwd2\",\"shape\":\"bmm [7,8,4] [7,4,2]\",\"type\":\"float\",\"n\":56,"
               "\"d\":2,\"f\":4,\"e\":7,\"k\":1,");
    check_says("{\"op\":\"attention_fwd\",");
    check_says("\"d\":32,\"f\":16,\"b\":2,\"t\":64,\"h\":4,");
    check_says("{\"op\":\"rmsnorm_fwd\",\"shape\":\"native_layer_norm [3,5,32] \",\"type\":"
               "\"float\",\"n\":15,\"d\":32,");
    check_says("{\"op\":\"add\",");
    check_says("\"n\":24,\"d\":6,\"f\":4,\"e\":3,\"k\":1,");
    check_says("{\"op\":\"cast\",");
    close_trace();
}

static void what_our_ops_do_not_do_is_counted_by_reason(void **state)
{
    (void)state;
    open_trace(OP(1, SDPA, 3, QKV, "[[2,4,64,32],[2,2,64,32],[2,2,64,32],[],[]]",
                  VALUES("[\"\",\"\",\"\",\"0.\",\"True\"]"))
                   OP(2, SDPA, 3, QKV, "[[2,4,64,32],[2,4,64,32],[2,4,64,32],[],[]]",
                      VALUES("[\"\",\"\",\"\",\"0.\",\"False\"]"))
                       OP(3, "aten::mm", 1, "[\"float\",\"float\"]", "[[8,4],[5,2]]",
                          "") OP(4, "aten::add", 1, "[\"float\",\"float\"]", "[[4,8],[8]]", "")
                           OP(5, "aten::gelu", 1, "[\"float\"]", "[[8]]", "")
                               OP(6, "aten::mm", 1, "[\"float\",\"float\"]", "[[0,4],[4,2]]", ""),
               NULL, 0);
    CHECK_OK(replay_bench(&o.r, &o.scratch, &o.out, &o.count));
    CHECK_INT(o.count.ops, 0);
    CHECK_TEXT(o.out.data, "");
    check_left_out(SDPA, "fewer heads");
    check_left_out(SDPA, "later positions");
    check_left_out("aten::mm", "sizes that are not those");
    check_left_out("aten::add", "different sizes");
    check_left_out("aten::gelu", "no op of ours");
    check_left_out("aten::mm", "without elements");
    close_trace();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(equal_calls_are_one_with_a_count),
        TEST(filter_and_limit_choose),
        TEST(values_come_with_names_and_types),
        TEST(the_form_that_fits_is_chosen),
        TEST(first_values_are_for_real_tensors_that_are_read),
        TEST(unknown_operators_keep_their_places_and_say_so),
        TEST(what_cannot_run_again_is_counted_by_reason),
        TEST(a_trace_without_a_device_has_operators_too),
        TEST(operators_become_rows_of_our_ops),
        TEST(what_our_ops_do_not_do_is_counted_by_reason),
    };
    return TEST_RUN(tests);
}
