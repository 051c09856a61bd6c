/* What a build for AMD's GPUs cannot run is refused at the start with one sentence and exit code 3: no
 * runtime, no GPU, a chip without code, what only NVIDIA has. tools/gfxrun stands for the machines. */
#include "harness/test.h"

#include "engine/gpu/gpu.h"

#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

static const char program[] = "build/release-hip/switchyard";

/* Runs `bench step` with these settings where the environment says what there is; returns its exit
 * code. *said: what it printed. */
static int run(const char *environment, const char *settings, char *said, size_t room)
{
    char line[1024];
    (void)snprintf(line, sizeof line, "env %s %s bench step quickstart --steps 1 %s 2>&1",
                   environment, program, settings);
    FILE *f = popen(line, "r");
    CHECK(f != NULL);
    size_t n = fread(said, 1, room - 1, f);
    said[n] = '\0';
    int rc = pclose(f);
    return WIFEXITED(rc) ? WEXITSTATUS(rc) : -1;
}

static void each_lack_is_one_sentence_and_exit_3(void **state)
{
    static const struct {
        const char *environment, *settings, *said;
    } refused[] = {
        { "LD_LIBRARY_PATH=", "run.device=hip", "AMD's HIP runtime) was not found" },
        { "GFXRUN_DEVICES=0", "run.device=hip", "GPU 0 was asked for, 0 found" },
        { "GFXRUN_DEVICES=0", "run.device=gpu", "GPU 0 was asked for, 0 found" },
        { "GFXRUN_CHIP=90", "run.device=hip",
          "is a gfx90x, and this program has kernels for gfx942" },
        { "A=", "run.device=cuda", "asks for NVIDIA's GPUs, and this program was built for AMD's" },
        { "A=", "run.device=hip run.compute=bf16 attention.kernel=hopper",
          "attention.kernel=hopper is for NVIDIA's GPUs" },
        { "A=", "run.device=hip mesh.ep=2 moe.exchange=direct train.micro_batch=4 --ranks 2",
          "moe.exchange=direct is for NVIDIA's GPUs" },
    };
    char said[4096];
    (void)state;
    if (gpu_runtime != GPU_RUNTIME_HIP || access(program, X_OK) != 0) {
        printf("skip: needs %s\n", program);
        skip();
    }
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        int rc = run(refused[i].environment, refused[i].settings, said, sizeof said);
        if (rc != 3 || strstr(said, refused[i].said) == NULL)
            fail_msg("%s %s: exit %d, %s", refused[i].environment, refused[i].settings, rc, said);
        char *end = strchr(said, '\n');
        CHECK(strncmp(said, "error: ", 7) == 0 && (end == NULL || end[1] == '\0'));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(each_lack_is_one_sentence_and_exit_3),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
