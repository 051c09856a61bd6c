/* The doctor on a GPU, and between all that there are: every row is measured, and memory and sums are right. Rates are
 * not looked at: sizes are small, and an interpreter may run the kernels. */
#include "doctor/doctor.h"
#include "harness/gpu.h"
#include "harness/test.h"

enum { SHRINK = 1000, RANKS_MAX = 8 };

typedef struct Call {
    DoctorOptions options;
    char table[1 << 15]; /* rank 0's */
} Call;

static Status run_rank(void *state, Comm *world)
{
    Call *call = state;
    Arena a = { 0 }, text = { 0 };
    Text out = { 0 };
    DoctorVerdict verdict;
    TRY(arena_init(&a, "test", MEM_HOST, (size_t)1 << 32));
    TRY(arena_init(&text, "text", MEM_HOST, (size_t)1 << 24));
    TRY(text_init(&out, &text));
    TRY(doctor_run(&call->options, world, &a, &out, &verdict));
    if (world == NULL || world->rank == 0)
        snprintf(call->table, sizeof call->table, "%s", out.data);
    arena_free(&text);
    arena_free(&a);
    return OK;
}

static Call run_doctor(int ranks)
{
    int failed = -1;
    Call call = { .options = { .folder = "/tmp", .versions = "", .shrink = SHRINK } };
    if (ranks == 1)
        CHECK_OK(run_rank(&call, NULL));
    else
        CHECK_OK(comm_threads(ranks, 60, run_rank, &call, &failed));
    print_message("%s", call.table);
    return call;
}

/* The row begins so, and its verdict is this word. */
static void check_verdict(const Call *call, const char *check, const char *want)
{
    const char *at = strstr(call->table, check);
    if (at == NULL) fail_msg("no row %s in: %s", check, call->table);
    at += strlen(check);
    at += strspn(at, " ");
    if (strncmp(at, want, strlen(want)) != 0) fail_msg("%s is not %s: %s", check, want, at);
}

static void a_gpu_is_found_and_its_memory_is_right(void **state)
{
    NEEDS_GPU();
    Call call = run_doctor(1);
    check_verdict(&call, "\nGPU ", "ok");
    check_verdict(&call, "\nGPU, memory test ", "ok");
    CHECK(strstr(call.table, "\nGPU, products ") != NULL);
    CHECK(strstr(call.table, "\nGPU, memory copy ") != NULL);
    CHECK(strstr(call.table, "\nGPU, throttling ") != NULL);
    CHECK(strstr(call.table, "NCCL") == NULL);
}

static void gpus_of_a_host_are_measured_by_pair(void **state)
{
    NEEDS_GPUS(2);
    int n = gpu_devices();
    Call call = run_doctor(n < RANKS_MAX ? n : RANKS_MAX);
    check_verdict(&call, "\nNCCL, right sums ", "ok");
    check_verdict(&call, "\nprogram and libraries ", "ok");
    CHECK(strstr(call.table, "\nNCCL, all-reduce ") != NULL);
    CHECK(strstr(call.table, "\nGPUs in a host, rate ") != NULL);
    CHECK(strstr(call.table, "\nGPUs of hosts, rate ") == NULL);
}

/* More ranks than GPUs: the rank without one is named, and nobody waits for it. */
static void a_rank_without_a_gpu_is_named(void **state)
{
    NEEDS_GPU();
    int n = gpu_devices();
    if (n >= RANKS_MAX) skip();
    char want[64];
    Call call = run_doctor(n + 1);
    check_verdict(&call, "\nGPU ", "bad");
    snprintf(want, sizeof want, "): bad: GPU %d was asked for, %d found\n", n, n);
    if (strstr(call.table, want) == NULL) fail_msg("no %s in: %s", want, call.table);
    check_verdict(&call, "\nNCCL, right sums ", "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_gpu_is_found_and_its_memory_is_right),
        TEST(gpus_of_a_host_are_measured_by_pair),
        TEST(a_rank_without_a_gpu_is_named),
    };
    return TEST_RUN(tests);
}
