/* What `switchyard doctor` says of a machine with a fault that was made here: who is named, and the exit code. Rates
 * depend on who else works here, so no test asks that a rate is good. */
#include "harness/doctor_table.h"

#include <cjson/cJSON.h>

#define CHECK_NOT_READY(outcome)                                                                   \
    CHECK_REFUSED((outcome), 3, "the table above says which rows are bad")

static void one_rank_has_no_peers_and_leaves_no_file(void **state)
{
    Lab *lab = *state;
    const char *const *left = NULL;
    int n = 0;
    Outcome o = RUN(lab, "alone", "doctor");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "1 rank on 1 host; disk: .; processor: x86-64-v");
    doctor_check_verdict(lab, &o, "cores of a rank", "ok");
    doctor_check_verdict(lab, &o, "products of a thread", "ok");
    doctor_check_verdict(lab, &o, "memory copy", "ok");
    doctor_check_verdict(lab, &o, "disk, free", "ok");
    if (strstr(o.out, "pairs") != NULL) fail_msg("pairs of one rank: %s", o.out);
    CHECK_OK(file_list(lab_path(lab, "alone"), &lab->arena, &left, &n));
    CHECK_INT(n, 0);
}

static void a_folder_that_is_not_there_is_a_row(void **state)
{
    Lab *lab = *state;
    Outcome o = RUN(lab, "a", "doctor", "--shrink", "100", "nowhere");
    CHECK_NOT_READY(o);
    doctor_check_verdict(lab, &o, "disk, free", "bad");
    doctor_check_verdict(lab, &o, "disk, write", "bad");
    doctor_check_verdict(lab, &o, "disk, fsync", "unknown");
    CHECK_SAYS(doctor_row(lab, &o, "disk, free"), "nowhere: No such file or directory\n");
    CHECK_SAYS(doctor_row(lab, &o, "disk, free"), "what to do: ");
}

static void a_folder_that_is_a_file_is_a_row(void **state)
{
    Outcome o = RUN(*state, "a", "doctor", "--shrink", "100", "../tiny.yaml");
    CHECK_NOT_READY(o);
    CHECK_SAYS(doctor_row(*state, &o, "disk, write"), "Not a directory");
}

/* A disk of 1 MiB: in a namespace of its own, whose mounts end with it. */
static void a_full_disk_is_named(void **state)
{
    Lab *lab = *state;
    static const char line[] =
        "unshare -m sh -c 'mkdir -p disk && mount -t tmpfs -o size=1m none disk "
        "&& exec \"$0\" doctor --shrink 100 disk' \"$0\"";
    Outcome o = SHELL(lab, "a", "unshare -m sh -c 'mkdir -p try && mount -t tmpfs none try'");
    if (o.code != 0) {
        printf("skip: nothing can be mounted here\n");
        skip();
    }
    o = SHELL(lab, "a", line);
    CHECK_NOT_READY(o);
    doctor_check_verdict(lab, &o, "disk, free", "bad");
    CHECK_SAYS(doctor_row(lab, &o, "disk, free"), "bad, 0.0009766 GiB (limit 1)");
    doctor_check_verdict(lab, &o, "disk, write", "bad");
    CHECK_SAYS(doctor_row(lab, &o, "disk, write"), "No space left on device");
}

static void a_limit_of_file_sizes_is_named(void **state)
{
    Lab *lab = *state;
    Launch l = { .cell = "a", .args = ARGS("doctor"), .file_limit = (size_t)8 << 20 };
    Outcome o = lab_run(lab, &l);
    CHECK_NOT_READY(o);
    doctor_check_verdict(lab, &o, "disk, free", "ok");
    CHECK_SAYS(doctor_row(lab, &o, "disk, write"), "File too large");
}

static void more_ranks_than_cores_are_named(void **state)
{
    Lab *lab = *state;
    Outcome o = SHELL(lab, "a", "exec taskset -c 0 \"$0\" doctor --ranks 2");
    if (o.code == 127) skip();
    CHECK_NOT_READY(o);
    CHECK_SAYS(o.out, "2 ranks on 1 host");
    const char *row = doctor_row(lab, &o, "cores of a rank");
    doctor_check_verdict(lab, &o, "cores of a rank", "bad");
    CHECK_SAYS(row, "bad, 0.5 cores (limit 1): it may use 1, which rank 0 may use, too");
    CHECK_SAYS(row, "    rank 1 (host ");
    doctor_check_verdict(lab, &o, "clock, difference", "ok");
    doctor_check_verdict(lab, &o, "program and libraries", "ok");
    doctor_row(lab, &o, "pairs in a host, rate");
}

/* What the kernel tells is covered by what these lines write, in a namespace of its own. */
static Outcome run_covered(Lab *lab, const char *lines)
{
    char line[1024];
    Outcome o = SHELL(lab, "a", "unshare -m sh -c 'mount -t tmpfs none /sys/fs/cgroup'");
    if (o.code != 0) {
        printf("skip: nothing can be mounted here\n");
        skip();
    }
    snprintf(line, sizeof line,
             "unshare -m sh -c 'mount -t tmpfs none /sys/fs/cgroup && cd /sys/fs/cgroup && %s && "
             "cd /tmp && exec \"$0\" doctor --shrink 100 --ranks 2' \"$0\"",
             lines);
    return SHELL(lab, "a", line);
}

static void too_little_memory_is_named(void **state)
{
    Lab *lab = *state;
    Outcome o = run_covered(lab, "echo MemAvailable: 1572864 kB >meminfo && "
                                 "mount --bind meminfo /proc/meminfo");
    CHECK_NOT_READY(o);
    doctor_check_verdict(lab, &o, "free memory of a rank", "bad");
    CHECK_SAYS(doctor_row(lab, &o, "free memory of a rank"),
               "bad, 0.75 GiB (limit 1): by MemAvailable of /proc/meminfo");
    CHECK_SAYS(doctor_row(lab, &o, "products of a thread"), "its free memory is too small");
}

static void a_quota_is_shared_by_the_ranks_of_a_host(void **state)
{
    Lab *lab = *state;
    Outcome o = run_covered(lab, "echo 150000 100000 >cpu.max && mkdir cpu && "
                                 "echo 150000 >cpu/cpu.cfs_quota_us && "
                                 "echo 100000 >cpu/cpu.cfs_period_us");
    CHECK_NOT_READY(o);
    doctor_check_verdict(lab, &o, "cores of a rank", "bad");
    CHECK_SAYS(doctor_row(lab, &o, "cores of a rank"),
               "bad, 0.75 cores (limit 1): the quota of its cgroup is 1.5 processors for 2 ranks");
}

static void a_limit_of_addresses_says_what_to_lift(void **state)
{
    Outcome o = SHELL(*state, "a", "ulimit -v 900000; exec \"$0\" doctor --shrink 100");
    CHECK_REFUSED(o, 2, "raise ulimit -v");
}

static void json_has_the_same_rows(void **state)
{
    Lab *lab = *state;
    Outcome o = RUN(lab, "a", "doctor", "--json", "--shrink", "100", "nowhere");
    CHECK_NOT_READY(o);
    cJSON *all = cJSON_Parse(o.out);
    const cJSON *row = NULL, *rows = cJSON_GetObjectItem(all, "rows");
    CHECK(cJSON_IsArray(rows));
    CHECK_INT(cJSON_GetObjectItem(all, "ranks")->valueint, 1);
    bool found = false;
    cJSON_ArrayForEach(row, rows)
    {
        if (strcmp(cJSON_GetObjectItem(row, "check")->valuestring, "disk, free") != 0) continue;
        const cJSON *first = cJSON_GetArrayItem(cJSON_GetObjectItem(row, "findings"), 0);
        CHECK_TEXT(cJSON_GetObjectItem(row, "verdict")->valuestring, "bad");
        CHECK_TEXT(cJSON_GetObjectItem(row, "limits")->valuestring, "bad under 1 GiB");
        CHECK_SAYS(cJSON_GetObjectItem(first, "why")->valuestring, "nowhere: No such file");
        CHECK_INT(cJSON_GetArraySize(cJSON_GetObjectItem(row, "samples")), 1);
        found = true;
    }
    CHECK(found);
    cJSON_Delete(all);
}

static void what_is_unknown_is_no_failure(void **state)
{
    Lab *lab = *state;
    Outcome o = RUN(lab, "a", "doctor", "--shrink", "100");
    if (strstr(o.out, "built without a GPU") == NULL) skip();
    CHECK_EXIT(o, 0);
    doctor_check_verdict(lab, &o, "GPU", "unknown");
}

static void bad_options_are_one_sentence(void **state)
{
    Outcome o = RUN(*state, "a", "doctor", "--ranks", "0");
    CHECK_REFUSED(o, 2, "--ranks");
    o = RUN(*state, "a", "doctor", "x", "y");
    CHECK_REFUSED(o, 2, "\"y\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LAB_TEST(one_rank_has_no_peers_and_leaves_no_file),
        LAB_TEST(a_folder_that_is_not_there_is_a_row),
        LAB_TEST(a_folder_that_is_a_file_is_a_row),
        LAB_TEST(a_full_disk_is_named),
        LAB_TEST(a_limit_of_file_sizes_is_named),
        LAB_TEST(more_ranks_than_cores_are_named),
        LAB_TEST(too_little_memory_is_named),
        LAB_TEST(a_quota_is_shared_by_the_ranks_of_a_host),
        LAB_TEST(a_limit_of_addresses_says_what_to_lift),
        LAB_TEST(json_has_the_same_rows),
        LAB_TEST(what_is_unknown_is_no_failure),
        LAB_TEST(bad_options_are_one_sentence),
    };
    return LAB_RUN_ALL(tests);
}
