/* tools/gpu_arch: which code of GPUs a build has. Scripts stand for nvidia-smi and nvcc. */
#include "harness/program.h"

#include <sys/wait.h>

static const char ALL[] = "-gencode=arch=compute_80,code=[sm_80,compute_80] "
                          "-gencode=arch=compute_90,code=compute_90 "
                          "-gencode=arch=compute_90a,code=sm_90a\n";

/* What it prints with these arguments where nvidia-smi prints `gpus`; its exit code goes to *rc. */
static const char *arch(Lab *lab, const char *gpus, const char *arguments, int *rc)
{
    char line[4096];
    (void)snprintf(line, sizeof line,
                   "LAB='%s'; set -e; mkdir -p $LAB;"
                   "printf '#!/bin/sh\\nprintf \"%s\"\\n' >$LAB/nvidia-smi;"
                   "printf '#!/bin/sh\\necho sm_80; echo sm_89; echo sm_100\\n' >$LAB/nvcc;"
                   "chmod +x $LAB/nvidia-smi $LAB/nvcc;"
                   "PATH=$LAB:$PATH NVCC=$LAB/nvcc tools/gpu_arch %s >$LAB/said 2>&1",
                   lab_path(lab, "there"), gpus, arguments);
    int status = system(line);
    *rc = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return lab_read(lab, lab_path(lab, "there/said"), NULL);
}

static void it_asks_for_the_gpus_that_are_there(void **state)
{
    int rc;
    CHECK_TEXT(arch(*state, "9.0\\\\n9.0\\\\n", "", &rc),
               "-gencode=arch=compute_90a,code=sm_90a\n");
    CHECK_INT(rc, 0);
    CHECK_TEXT(arch(*state, "8.9\\\\n9.0\\\\n", "", &rc),
               "-gencode=arch=compute_89,code=sm_89 -gencode=arch=compute_90a,code=sm_90a\n");
    CHECK_TEXT(arch(*state, "", "", &rc), ALL);
    CHECK_TEXT(arch(*state, "NVIDIA-SMI has failed: no driver\\\\n", "", &rc), ALL);
    CHECK_INT(rc, 0);
}

/* What nvcc does not know runs as PTX, and code of 8.0 on all of 8. */
static void other_gpus_are_named_by_their_capability(void **state)
{
    int rc;
    CHECK_TEXT(arch(*state, "9.0\\\\n", "all", &rc), ALL);
    CHECK_TEXT(arch(*state, "9.0\\\\n", "10.0 12.0 8.7", &rc),
               "-gencode=arch=compute_100,code=sm_100 -gencode=arch=compute_90,code=compute_90 "
               "-gencode=arch=compute_80,code=sm_80\n");
    CHECK_INT(rc, 0);
    CHECK_TEXT(arch(*state, "", "7.5", &rc),
               "gpu_arch: a GPU of compute capability 7.5 is too old, 8.0 is the least\n");
    CHECK_INT(rc, 2);
    CHECK_TEXT(arch(*state, "", "hopper", &rc),
               "gpu_arch: hopper is no compute capability, such as 9.0, nor 'all'\n");
    CHECK_INT(rc, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LAB_TEST(it_asks_for_the_gpus_that_are_there),
        LAB_TEST(other_gpus_are_named_by_their_capability),
    };
    return LAB_RUN_ALL(tests);
}
