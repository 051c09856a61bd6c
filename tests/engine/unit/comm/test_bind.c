#include "harness/test.h"

#include "engine/comm/bind.h"

#include <sched.h>

static cpu_set_t whole;

static cpu_set_t affinity(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CHECK(sched_getaffinity(0, sizeof set, &set) == 0);
    return set;
}

static int restore(void **state)
{
    (void)state;
    return sched_setaffinity(0, sizeof whole, &whole);
}

static int first_cpu(void)
{
    for (int i = 0; i < CPU_SETSIZE; i++) {
        if (CPU_ISSET(i, &whole)) return i;
    }
    fail_msg("no CPU");
    return -1;
}

static void a_lone_rank_has_all_cores(void **state)
{
    (void)state;
    BindShare s;
    bind_share(0, 1, false, true, &s);
    cpu_set_t now = affinity();
    CHECK(CPU_EQUAL(&now, &whole));
    CHECK_INT(s.threads, CPU_COUNT(&whole));
    CHECK(strncmp(s.where, "on cores ", 9) == 0 && strstr(s.where, ", NUMA node ") != NULL);
}

static void ranks_share_out_all_cores(void **state)
{
    BindShare s[2];
    cpu_set_t set[2], both, common;
    for (int r = 0; r < 2; r++) {
        restore(state);
        bind_share(r, 2, false, true, &s[r]);
        set[r] = affinity();
    }
    if (s[0].where[0] == '\0') skip(); /* a host of one core */
    CPU_AND(&common, &set[0], &set[1]);
    CPU_OR(&both, &set[0], &set[1]);
    CHECK_INT(CPU_COUNT(&common), 0);
    CHECK(CPU_EQUAL(&both, &whole));
    CHECK_INT(s[0].threads + s[1].threads, CPU_COUNT(&whole));
}

static void more_ranks_than_cores_are_not_bound(void **state)
{
    (void)state;
    BindShare s;
    bind_share(3, CPU_COUNT(&whole) + 1, false, true, &s);
    cpu_set_t now = affinity();
    CHECK(CPU_EQUAL(&now, &whole));
    CHECK_INT(s.threads, 1);
    CHECK_TEXT(s.where, "");
}

static void without_binding_a_share_is_only_counted(void **state)
{
    (void)state;
    BindShare s;
    bind_share(0, 1, false, false, &s);
    CHECK_INT(s.threads, CPU_COUNT(&whole));
    CHECK_TEXT(s.where, "");
}

static void what_a_launcher_has_bound_stays(void **state)
{
    (void)state;
    BindShare s;
    cpu_set_t one;
    if (CPU_COUNT(&whole) == 1) skip();
    CPU_ZERO(&one);
    CPU_SET(first_cpu(), &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
    bind_share(1, 2, true, true, &s);
    cpu_set_t now = affinity();
    CHECK(CPU_EQUAL(&now, &one));
    CHECK_INT(s.threads, 1);
    CHECK_TEXT(s.where, "");
}

static int count_cores(void)
{
    BindCores c;
    int n = 0;
    CHECK(bind_cores(&c));
    for (int i = 0; i < BIND_CORES_MAX; i++) n += (int)(c.bit[i / 32] >> i % 32 & 1);
    return n;
}

/* Bound to one hardware thread it has its core. */
static void the_cores_that_a_thread_may_use_follow_its_binding(void **state)
{
    int cores = count_cores();
    CHECK(cores >= 1 && cores <= CPU_COUNT(&whole));
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(first_cpu(), &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
    CHECK_INT(count_cores(), 1);
    restore(state);
    CHECK_INT(count_cores(), cores);
}

int main(void)
{
    whole = affinity();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(a_lone_rank_has_all_cores, restore),
        cmocka_unit_test_setup(ranks_share_out_all_cores, restore),
        cmocka_unit_test_setup(more_ranks_than_cores_are_not_bound, restore),
        cmocka_unit_test_setup(without_binding_a_share_is_only_counted, restore),
        cmocka_unit_test_setup(what_a_launcher_has_bound_stays, restore),
        cmocka_unit_test_setup(the_cores_that_a_thread_may_use_follow_its_binding, restore),
    };
    return TEST_RUN(tests);
}
