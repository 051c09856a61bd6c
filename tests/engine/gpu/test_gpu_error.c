/*
 * What a program says when memory of the GPU goes away under it: step, layer, op and shapes with
 * run.guard, the step and the way to learn more without. Each error ends the process's use of the
 * GPU, so each case is a process of its own. Skipped where there is no GPU.
 */
#include "harness/tiny.h"

#include <sys/wait.h>
#include <unistd.h>

/* Large enough for arenas in pieces of memory of their own, which are gone once they are freed. */
#define LARGE                                                                                      \
    "run.device=gpu", "model.hidden=512", "model.vocab=8192", "moe.ffn=256", "data.sequence=64"

static int take_memory_away(const char *guard, const char *const *want)
{
    Tiny t;
    StepResult r;
    char said[2048];
    tiny_open(&t, TINY(LARGE, "run.executor=eager"));
    if (strcmp(guard, "guard") == 0) engine_guard(&t.engine);
    CHECK_OK(engine_step(&t.engine, &t.batch, 1e-2, 1, &r));
    const Arena *slot = &t.engine.mode->arena[ENGINE_SLOT];
    t.engine.ex.backend->free(&t.engine.ex, slot->kind, slot->base, slot->cap_bytes);
    if (engine_step(&t.engine, &t.batch, 1e-2, 2, &r) != ERR_DEVICE) return 1;
    status_sentence(said, sizeof said);
    for (; *want != NULL; want++) {
        if (strstr(said, *want) != NULL) continue;
        printf("\"%s\" is not in: %s\n", *want, said);
        (void)fflush(stdout);
        return 2;
    }
    return 0;
}

static void check_said(const char *guard, const char *const *want)
{
    pid_t child = fork(); /* before this process has used the GPU */
    CHECK(child >= 0);
    if (child == 0) _exit(gpu_devices() == 0 ? 77 : take_memory_away(guard, want));
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) {
        printf("skip: needs a GPU and a build with CUDA=1\n");
        skip();
    }
    CHECK_INT(WEXITSTATUS(status), 0);
}

static void under_guard_an_error_names_step_op_and_shapes(void **state)
{
    (void)state;
    check_said("guard", TINY("step 2, layer -1: embed_fwd of ", "table (8192, 512)", "llegal"));
}

static void without_it_names_the_step_and_the_way_to_learn_more(void **state)
{
    (void)state;
    check_said("", TINY("step 2", "llegal", "run.guard=true"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(under_guard_an_error_names_step_op_and_shapes),
        TEST(without_it_names_the_step_and_the_way_to_learn_more),
    };
    return TEST_RUN(tests);
}
