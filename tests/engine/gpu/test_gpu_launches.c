/*
 * What a step says of its launches and waits, against the count of CUPTI, the driver's own
 * interface for tools: its callbacks see every call of the CUDA runtime and of the driver, those of
 * libraries too. Opened at run time and declared here, since neither its library nor its header is
 * everywhere (cupti_callbacks.h has the originals). Skipped where it is not.
 */
#include "harness/gpu.h"
#include "harness/tiny.h"

#include <dlfcn.h>

enum { DOMAIN_DRIVER = 1, DOMAIN_RUNTIME = 2, SITE_ENTER = 0, MULTIPLE_SUBSCRIBERS = 39 };

/* The head of CUpti_CallbackData. */
typedef struct CallData {
    int site;
    const char *function;
} CallData;

typedef void (*Callback)(void *with, int domain, uint32_t id, const CallData *data);

typedef struct Cupti {
    void *library, *subscriber;
    int (*subscribe)(void **out, Callback callback, void *with);
    int (*unsubscribe)(void *subscriber);
    int (*enable)(uint32_t on, void *subscriber, int domain);
} Cupti;

typedef struct Calls {
    int depth; /* of calls inside of each other: a runtime call makes driver calls */
    int64_t graphs, kernels, copies, fills, waits;
} Calls;

static void count_call(Calls *c, const char *name)
{
    bool copy = strstr(name, "Memcpy") != NULL, async = strstr(name, "Async") != NULL;
    c->graphs += strstr(name, "GraphLaunch") != NULL;
    c->kernels +=
        strstr(name, "LaunchKernel") != NULL || strstr(name, "LaunchCooperativeKernel") != NULL;
    c->fills += strstr(name, "Memset") != NULL;
    c->copies += copy && async;
    c->waits += (copy && !async) || strstr(name, "Synchronize") != NULL;
}

static void on_call(void *with, int domain, uint32_t id, const CallData *data)
{
    (void)id;
    Calls *c = with;
    if (domain != DOMAIN_DRIVER && domain != DOMAIN_RUNTIME) return;
    if (data->site != SITE_ENTER) {
        c->depth--;
        return;
    }
    if (c->depth++ == 0) count_call(c, data->function);
}

static void cupti_function(Cupti *c, const char *name, void *out)
{
    void *at = dlsym(c->library, name);
    if (at == NULL) fail_msg("CUPTI has no function %s", name);
    memcpy(out, &at, sizeof at);
}

/* Skips the test where there is no CUPTI, or another tool has the driver's ear. */
static void cupti_open(Cupti *c, Calls *calls)
{
    char name[32];
    GpuInfo info;
    *c = (Cupti){ 0 };
    CHECK_OK(gpu_info(0, &info));
    snprintf(name, sizeof name, "libcupti.so.%d", info.runtime / 1000);
    c->library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (c->library == NULL) {
        printf("skip: needs %s, which comes with the CUDA toolkit\n", name);
        skip();
    }
    cupti_function(c, "cuptiSubscribe", &c->subscribe);
    cupti_function(c, "cuptiUnsubscribe", &c->unsubscribe);
    cupti_function(c, "cuptiEnableDomain", &c->enable);
    int code = c->subscribe(&c->subscriber, on_call, calls);
    if (code == MULTIPLE_SUBSCRIBERS) {
        printf("skip: needs CUPTI, which another tool is using\n");
        skip();
    }
    CHECK_INT(code, 0);
}

/* Calls of one step, after others that loaded every kernel. */
static StepResult counted_step(Cupti *c, Calls *calls, const char *executor)
{
    Tiny t;
    tiny_open(&t, TINY(ON_GPU, executor));
    tiny_steps(&t, 0, 2);
    tiny_batch(&t, 2);
    *calls = (Calls){ 0 };
    CHECK_INT(c->enable(1, c->subscriber, DOMAIN_RUNTIME), 0);
    CHECK_INT(c->enable(1, c->subscriber, DOMAIN_DRIVER), 0);
    StepResult r;
    CHECK_OK(engine_step(&t.engine, &t.batch, 1e-2, 3, &r));
    CHECK_INT(c->enable(0, c->subscriber, DOMAIN_DRIVER), 0);
    CHECK_INT(c->enable(0, c->subscriber, DOMAIN_RUNTIME), 0);
    printf("%s: %lld graphs, %lld kernels, %lld copies, %lld fills, %lld waits\n", executor,
           (long long)calls->graphs, (long long)calls->kernels, (long long)calls->copies,
           (long long)calls->fills, (long long)calls->waits);
    CHECK_INT(calls->depth, 0);
    tiny_close(&t);
    return r;
}

static void cupti_close(Cupti *c)
{
    CHECK_INT(c->unsubscribe(c->subscriber), 0); /* the library stays: its handlers run at exit */
}

static void captured_is_one_graph_and_one_wait(Cupti *c, Calls *calls)
{
    StepResult r = counted_step(c, calls, "run.executor=captured");
    CHECK_INT(calls->graphs, 1);
    CHECK_INT(calls->kernels, 0);
    CHECK_INT(calls->copies + calls->fills, 0);
    CHECK_INT(calls->waits, 1);
    CHECK_INT(r.launches, calls->graphs);
    CHECK_INT(r.waits, calls->waits);
}

static void eager_launches_what_it_says(Cupti *c, Calls *calls)
{
    StepResult r = counted_step(c, calls, "run.executor=eager");
    CHECK_INT(calls->graphs, 0);
    CHECK_INT(r.kernels, calls->kernels);
    CHECK_INT(r.launches, calls->kernels + calls->copies + calls->fills);
    CHECK_INT(r.waits, calls->waits);
    CHECK_INT(calls->waits, 1);
}

/* One test: a process may subscribe once. */
static void a_step_launches_and_waits_as_often_as_it_says(void **state)
{
    NEEDS_GPU();
    Cupti c;
    Calls calls = { 0 };
    cupti_open(&c, &calls);
    captured_is_one_graph_and_one_wait(&c, &calls);
    eager_launches_what_it_says(&c, &calls);
    cupti_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_step_launches_and_waits_as_often_as_it_says),
    };
    return TEST_RUN(tests);
}
