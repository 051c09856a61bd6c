/* tools/gpu_report where only the project's tools are: packed tests find the golden files that they
 * read. The pack holds tests of a build without CUDA, and a script stands for nvidia-smi. */
#include "harness/program.h"

#include <sys/wait.h>

static int run_script(Lab *lab, const char *script)
{
    char line[4096];
    snprintf(line, sizeof line, "LAB='%s'; set -e; %s", lab_path(lab, "there"), script);
    int rc = system(line);
    return WIFEXITED(rc) ? WEXITSTATUS(rc) : -1;
}

static void packed_tests_find_their_golden_files(void **state)
{
    Lab *lab = *state;
    if (!file_exists("build/release/tests/kernels/op/test_golden_ops") ||
        !file_exists("build/release/tests/kernels/op/test_quant")) {
        printf("skip: needs build/release/tests/kernels/op/test_golden_ops and test_quant\n");
        skip();
    }
    CHECK_INT(run_script(lab,
                         "mkdir -p $LAB/top/tools $LAB/bin $LAB/built/kernels/op;"
                         "cp tools/gpu_report tools/run_tests tools/checks.sh $LAB/top/tools;"
                         "for t in golden_ops quant; do"
                         "  cp build/release/tests/kernels/op/test_$t $LAB/built/kernels/op; done;"
                         "echo 'echo GPU 0' >$LAB/bin/nvidia-smi; chmod +x $LAB/bin/nvidia-smi;"
                         "tools/gpu_report pack_built build/switchyard $LAB/built $LAB/pack"),
              0);
    CHECK_INT(run_script(lab,
                         "PATH=$LAB/bin:$PATH; unset MAKEFLAGS;"
                         "$LAB/top/tools/gpu_report run $LAB/pack $LAB/out 100 ops >/dev/null"),
              0);
    const char *out = lab_read(lab, lab_path(lab, "there/out"), NULL);
    CHECK_SAYS(out, "/op/test_golden_ops  (");
    CHECK_SAYS(out, "/op/test_quant  (");
    CHECK_SAYS(out, " 0 failed, ");
    CHECK(strstr(out, "FAILED") == NULL && strstr(out, "cannot be read") == NULL);
}

/* Parts of a report are commands that are programs of their own. Any program stands for a test. */
static void a_packed_program_becomes_those_beside_it(void **state)
{
    Lab *lab = *state;
    CHECK_INT(run_script(lab, "mkdir -p $LAB/built/kernels/op $LAB/room;"
                              "cp build/switchyard-viz $LAB/built/kernels/op/test_scale;"
                              "tools/gpu_report pack_built build/switchyard $LAB/built $LAB/pack;"
                              "xz -dc $LAB/pack | tar -C $LAB/room -xf -;"
                              "for name in ladder shapes contention; do"
                              "  $LAB/room/switchyard bench $name --help >>$LAB/said; done"),
              0);
    const char *said = lab_read(lab, lab_path(lab, "there/said"), NULL);
    CHECK_SAYS(said, "usage: switchyard bench ladder ");
    CHECK_SAYS(said, "usage: switchyard bench shapes ");
    CHECK_SAYS(said, "usage: switchyard bench contention ");
}

/* Without nvidia-smi the GPUs are those that AMD's driver lists; here a folder stands for it. */
static void a_machine_with_amds_gpus_is_told_by_its_driver(void **state)
{
    Lab *lab = *state;
    if (!file_exists("build/release/tests/kernels/op/test_scale") ||
        system("command -v nvidia-smi >/dev/null") == 0) {
        printf("skip: needs build/release/tests/kernels/op/test_scale, and a machine without "
               "nvidia-smi\n");
        skip();
    }
    CHECK_INT(run_script(lab,
                         "mkdir -p $LAB/top/tools $LAB/built/kernels/op $LAB/kfd/topology/nodes/0"
                         " $LAB/kfd/topology/nodes/1;"
                         "cp tools/gpu_report tools/run_tests tools/checks.sh $LAB/top/tools;"
                         "cp build/release/tests/kernels/op/test_scale $LAB/built/kernels/op;"
                         "echo simd_count 0 >$LAB/kfd/topology/nodes/0/properties;"
                         "echo simd_count 1216 >$LAB/kfd/topology/nodes/1/properties;"
                         "tools/gpu_report pack_built build/switchyard $LAB/built $LAB/pack"),
              0);
    CHECK_INT(run_script(lab,
                         "unset MAKEFLAGS; export KFD=$LAB/kfd;"
                         "$LAB/top/tools/gpu_report run $LAB/pack $LAB/out 100 machine ops comm"
                         " >/dev/null"),
              0);
    const char *out = lab_read(lab, lab_path(lab, "there/out"), NULL);
    CHECK_SAYS(out, "switchyard ");
    CHECK_SAYS(out, "no rocm-smi: product, driver and memory are not known");
    CHECK_SAYS(out, "/op/test_scale  (");
    CHECK_SAYS(out, "skip   comm: 1 GPU");
    CHECK_INT(run_script(lab, "export KFD=$LAB/none;"
                              "$LAB/top/tools/gpu_report run $LAB/pack $LAB/out 2>$LAB/why"),
              2);
    CHECK_SAYS(lab_read(lab, lab_path(lab, "there/why"), NULL), "neither nvidia-smi nor AMD's");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LAB_TEST(packed_tests_find_their_golden_files),
        LAB_TEST(a_packed_program_becomes_those_beside_it),
        LAB_TEST(a_machine_with_amds_gpus_is_told_by_its_driver),
    };
    return LAB_RUN_ALL(tests);
}
