/* What may still be taken of a host's memory: figures of the kernel's, from files made here. */
#include "engine/base/arena.h"
#include "engine/base/file.h"
#include "engine/host/host_memory.h"
#include "harness/test.h"

#include <stdlib.h>
#include <unistd.h>

static char root[] = "/tmp/switchyard_test_XXXXXX";

enum { MIB = 1 << 20 };

/* ROOT/path, with its folders. */
static void put(const char *path, const char *text)
{
    char whole[512], folder[512];
    snprintf(whole, sizeof whole, "%s/%s", root, path);
    snprintf(folder, sizeof folder, "%s", whole);
    *strrchr(folder, '/') = '\0';
    CHECK_OK(file_make_folders(folder));
    FILE *f = fopen(whole, "w");
    CHECK(f != NULL && fputs(text, f) >= 0 && fclose(f) == 0);
}

static void put_number(const char *path, long long n)
{
    char text[32];
    snprintf(text, sizeof text, "%lld\n", n);
    put(path, text);
}

/* 10 GiB available; in cgroup `line`; swap in KiB. */
static void host(const char *line, int swap_kib)
{
    char text[256];
    CHECK_OK(file_remove_tree(root));
    snprintf(text, sizeof text,
             "MemTotal:       16777216 kB\nMemFree:          100000 kB\nMemAvailable:   10485760 "
             "kB\nSwapTotal: 5000 kB\nSwapFree: %d kB\n",
             swap_kib);
    put("proc/meminfo", text);
    put("proc/self/cgroup", line);
}

static HostMemory look(void)
{
    HostMemory m;
    char proc[64], cgroups[64];
    snprintf(proc, sizeof proc, "%s/proc", root);
    snprintf(cgroups, sizeof cgroups, "%s/cg", root);
    host_memory(proc, cgroups, &m);
    return m;
}

static void check(long long mib, const char *says)
{
    HostMemory m = look();
    CHECK_INT(m.available_bytes / MIB, mib);
    if (strstr(m.limit, says) == NULL) fail_msg("%s is not in: %s", says, m.limit);
}

static void a_host_has_what_is_available_and_free_swap(void **state)
{
    (void)state;
    host("0::/\n", 0);
    check(10240, "MemAvailable of /");
    host("0::/\n", 2048);
    check(10242, "MemAvailable and SwapFree of /");
}

static void what_cannot_be_read_limits_nothing(void **state)
{
    (void)state;
    CHECK_OK(file_remove_tree(root));
    HostMemory m = look();
    CHECK(m.available_bytes == UINT64_MAX);
    put("proc/self/cgroup", "4:memory:/\n"); /* no number of the host, and version 1's "none" */
    put_number("cg/memory/memory.limit_in_bytes", 9223372036854771712);
    put_number("cg/memory/memory.usage_in_bytes", 5LL * MIB);
    m = look();
    CHECK(m.available_bytes == UINT64_MAX);
    host("garbage\n0:\n::\n7:cpu,memory\n", 0);
    check(10240, "MemAvailable");
    host("0::/a\n", 0);
    put("cg/a/memory.max", "max\n");
    put_number("cg/a/memory.current", 5LL * MIB);
    check(10240, "MemAvailable");
    put("cg/a/memory.max", "\n");
    check(10240, "MemAvailable");
    put("cg/a/memory.max", "-1\n");
    check(10240, "MemAvailable");
    put_number("cg/a/memory.max", 9LL * MIB);
    put("cg/a/memory.current", "");
    check(10240, "MemAvailable");
}

/* Limit less use, but the page cache gives way. */
static void a_cgroup_has_its_limit_less_what_it_cannot_give_up(void **state)
{
    (void)state;
    host("1:name=systemd:/x\n0::/a/b\n", 0);
    put_number("cg/a/b/memory.max", 500LL * MIB);
    put_number("cg/a/b/memory.current", 300LL * MIB);
    check(200, "memory.max of cgroup ");
    put("cg/a/b/memory.stat", "anon 104857600\nfile 150000000\nshmem 9\ninactive_anon 77777777777\n"
                              "active_file 41943040\ninactive_file 62914560\n"
                              "slab_reclaimable 1048576\nworkingset_x 5\n");
    check(301, "/cg/a/b");
    put_number("cg/a/b/memory.current", 900LL * MIB); /* a limit that was lowered */
    check(0, "/cg/a/b");
}

static void the_least_of_a_group_and_those_above_counts(void **state)
{
    (void)state;
    host("0::/a/b/c\n", 0);
    put_number("cg/a/b/c/memory.max", 500LL * MIB);
    put_number("cg/a/b/c/memory.current", 100LL * MIB);
    put_number("cg/a/memory.max", 300LL * MIB);
    put_number("cg/a/memory.current", 150LL * MIB);
    check(150, "/cg/a");
    put_number("cg/memory.max", 200LL * MIB); /* all that a container sees of its group */
    put_number("cg/memory.current", 120LL * MIB);
    check(80, "/cg");
    put_number("cg/a/b/c/memory.max", 130LL * MIB);
    check(30, "/cg/a/b/c");
}

static void a_group_may_swap_as_far_as_its_own_limit_and_the_hosts(void **state)
{
    (void)state;
    host("0::/a\n", 64 << 10);
    put_number("cg/a/memory.max", 100LL * MIB);
    put_number("cg/a/memory.current", 0);
    check(164, "/cg/a");
    put_number("cg/a/memory.swap.max", 30LL * MIB);
    put_number("cg/a/memory.swap.current", 10LL * MIB);
    check(120, "/cg/a");
    put("cg/a/memory.swap.max", "max\n");
    check(164, "/cg/a");
    put_number("cg/a/memory.swap.max", 0);
    check(100, "/cg/a");
}

static void version_1_has_other_names_for_the_same(void **state)
{
    (void)state;
    host("5:cpu,cpuacct:/x\n4:memory:/a/b\n0::/\n", 0);
    put_number("cg/memory/a/b/memory.limit_in_bytes", 400LL * MIB);
    put_number("cg/memory/a/b/memory.usage_in_bytes", 300LL * MIB);
    put("cg/memory/a/b/memory.stat",
        "inactive_file 1\nactive_file 1\ntotal_inactive_file 52428800\n"
        "total_active_file 10485760\n");
    check(160, "memory.limit_in_bytes of cgroup ");
    put_number("cg/memory/a/b/memory.limit_in_bytes", 9223372036854771712); /* none */
    check(10240, "MemAvailable");
    put_number("cg/memory/memory.limit_in_bytes", 50LL * MIB);
    put_number("cg/memory/memory.usage_in_bytes", 20LL * MIB);
    check(30, "/cg/memory");
}

static int make_root(void **state)
{
    (void)state;
    return mkdtemp(root) != NULL ? 0 : -1;
}

static int remove_root(void **state)
{
    (void)state;
    return file_remove_tree(root) == OK ? 0 : -1;
}

/* ---- what this process has taken ---- */

static const size_t BLOCK = (size_t)32 << 20;

static void written_memory_shows_in_both_figures(void **state)
{
    (void)state;
    Arena a = { 0 };
    void *at = NULL;
    size_t now = process_now_bytes();
    CHECK(now > 0);
    CHECK_OK(arena_init(&a, "test", MEM_HOST, BLOCK));
    CHECK_OK(arena_alloc(&a, BLOCK, &at));
    memset(at, 1, BLOCK);
    CHECK(process_now_bytes() >= now + BLOCK * 9 / 10);
    CHECK(process_peak_bytes() >= now + BLOCK * 9 / 10);
    arena_free(&a);
}

static void the_peak_stays_when_memory_goes_back(void **state)
{
    (void)state;
    Arena a = { 0 };
    void *at = NULL;
    CHECK_OK(arena_init(&a, "test", MEM_HOST, BLOCK));
    CHECK_OK(arena_alloc(&a, BLOCK, &at));
    memset(at, 1, BLOCK);
    size_t during = process_now_bytes();
    arena_free(&a);
    CHECK(process_now_bytes() <= during - BLOCK * 9 / 10);
    CHECK(process_peak_bytes() >= during * 9 / 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_host_has_what_is_available_and_free_swap),
        TEST(what_cannot_be_read_limits_nothing),
        TEST(a_cgroup_has_its_limit_less_what_it_cannot_give_up),
        TEST(the_least_of_a_group_and_those_above_counts),
        TEST(a_group_may_swap_as_far_as_its_own_limit_and_the_hosts),
        TEST(version_1_has_other_names_for_the_same),
        TEST(written_memory_shows_in_both_figures),
        TEST(the_peak_stays_when_memory_goes_back),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
