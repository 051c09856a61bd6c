/* The quota of processors that cgroups leave, from files made here. */
#include "doctor/doctor.h"
#include "engine/base/file.h"
#include "harness/test.h"

static char root[] = "/tmp/switchyard_test_XXXXXX";

/* ROOT/path, with its folders. */
static void put(const char *path, const char *text)
{
    char whole[512];
    snprintf(whole, sizeof whole, "%s/%s", root, path);
    CHECK_OK(file_make_parent(whole));
    FILE *f = fopen(whole, "w");
    CHECK(f != NULL && fputs(text, f) >= 0 && fclose(f) == 0);
}

static void check_cpus(double want)
{
    char proc[64], cgroups[64];
    snprintf(proc, sizeof proc, "%s/proc", root);
    snprintf(cgroups, sizeof cgroups, "%s/cg", root);
    CHECK_NEAR(doctor_cpu_quota(proc, cgroups), want, 1e-9);
}

static int clear(void **state)
{
    (void)state;
    CHECK_OK(file_remove_tree(root));
    return 0;
}

static void without_a_quota_there_is_no_limit(void **state)
{
    (void)state;
    check_cpus(0);
    put("proc/self/cgroup", "0::/a\n");
    check_cpus(0);
    put("cg/a/cpu.max", "max 100000\n");
    check_cpus(0);
    put("cg/a/cpu.max", "");
    check_cpus(0);
    put("cg/a/cpu.max", "100000\n");
    check_cpus(0);
    put("cg/a/cpu.max", "100000 0\n");
    check_cpus(0);
}

static void the_least_quota_up_to_the_root_counts(void **state)
{
    (void)state;
    put("proc/self/cgroup", "0::/a/b\n");
    put("cg/a/b/cpu.max", "800000 100000\n");
    check_cpus(8);
    put("cg/a/cpu.max", "250000 100000\n");
    check_cpus(2.5);
    put("cg/cpu.max", "400000 100000\n");
    check_cpus(2.5);
}

static void version_1_has_two_files_and_lists_of_controllers(void **state)
{
    (void)state;
    put("proc/self/cgroup", "5:cpuset:/a\n4:cpuacct,cpu:/a\n3:memory:/a\n");
    put("cg/cpuset/a/cpu.cfs_quota_us", "100000\n");
    put("cg/cpuset/a/cpu.cfs_period_us", "100000\n");
    check_cpus(0);
    put("cg/cpu/a/cpu.cfs_quota_us", "-1\n");
    put("cg/cpu/a/cpu.cfs_period_us", "100000\n");
    check_cpus(0);
    put("cg/cpu/a/cpu.cfs_quota_us", "150000\n");
    check_cpus(1.5);
}

#define CASE(name) cmocka_unit_test_teardown(name, clear)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(without_a_quota_there_is_no_limit),
        CASE(the_least_quota_up_to_the_root_counts),
        CASE(version_1_has_two_files_and_lists_of_controllers),
    };
    CHECK(mkdtemp(root) != NULL);
    return TEST_RUN(tests);
}
