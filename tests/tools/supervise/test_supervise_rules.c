/* What a supervisor concludes from how a run ended. */
#include "harness/test.h"

#include "supervise/supervise.h"

#include <signal.h>

static RankBeat beat(int rank, const char *host, HeartbeatPhase phase, const char *kind)
{
    RankBeat b = { .rank = rank, .phase = phase };
    snprintf(b.host, sizeof b.host, "%s", host);
    snprintf(b.kind, sizeof b.kind, "%s", kind);
    if (kind[0] != '\0') snprintf(b.why, sizeof b.why, "rank %d: %s", rank, kind);
    return b;
}

/* ---- how it ended ---- */

static void an_end_is_named_by_code_and_kind(void **state)
{
    (void)state;
    static const RankBeat there = { .phase = HEARTBEAT_STEPS };
    static const struct {
        int code, ranks;
        const char *said;
        IncidentEnd end;
        const char *sentence;
    } cases[] = {
        { 0, 1, "", INCIDENT_DONE, "" },
        { 2, 0, "x\nerror: no such key [bad argument]\n  at a.c:1\n", INCIDENT_REFUSED,
          "no such key" },
        { 3, 1, "error: step 4: nan [numeric]\n", INCIDENT_FAILED, "step 4: nan" },
        { 3, 1, "rank 2: error: no word from rank 1 [communication]\n", INCIDENT_LOST,
          "no word from rank 1" },
        { 128 + SIGSEGV, 1, "", INCIDENT_CRASHED, "signal 11 ended it" },
        { 128 + SIGKILL, 1, "", INCIDENT_KILLED, "signal 9 ended it" },
        { 1, 0, "", INCIDENT_UNBORN, "exit code 1" },
        { 1, 1, "", INCIDENT_KILLED, "exit code 1" },
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        Incident i = { .code = cases[k].code };
        incident_read(&i, false, &there, cases[k].ranks, cases[k].said);
        CHECK_INT(i.end, cases[k].end);
        CHECK_TEXT(i.sentence, cases[k].sentence);
    }
    Incident later = { .code = 2, .first = 3, .reached = 4 };
    incident_read(&later, false, &there, 1, "error: a shard is gone [input/output]\n");
    CHECK_INT(later.end, INCIDENT_FAILED);
    Incident hung = { .code = 128 + SIGKILL };
    incident_read(&hung, true, &there, 1, "");
    CHECK_INT(hung.end, INCIDENT_HUNG);
}

/* Rank 0 tells of another rank's failure; the rank that failed by itself is the cause. */
static void the_cause_is_the_failure_that_is_not_of_communication(void **state)
{
    (void)state;
    const RankBeat ranks[] = { beat(0, "a", HEARTBEAT_FAILED, status_name(ERR_COMM)),
                               beat(1, "a", HEARTBEAT_FAILED, status_name(ERR_NUMERIC)) };
    Incident i = { .code = 3 };
    incident_read(&i, false, ranks, 2, "error: of rank 1 [communication]\n");
    CHECK_INT(i.end, INCIDENT_FAILED);
    CHECK_TEXT(i.kind, "numeric");
    CHECK_TEXT(i.sentence, "rank 1: numeric");
    incident_read(&i, false, ranks, 1, "");
    CHECK_INT(i.end, INCIDENT_LOST);
}

/* ---- which host ---- */

static void the_host_without_a_last_word_is_to_blame(void **state)
{
    (void)state;
    const char *comm = status_name(ERR_COMM);
    RankBeat r[] = { beat(0, "a", HEARTBEAT_FAILED, comm), beat(1, "a", HEARTBEAT_FAILED, comm),
                     beat(2, "b", HEARTBEAT_STEPS, ""), beat(3, "b", HEARTBEAT_FAILED, comm),
                     beat(4, "c", HEARTBEAT_FAILED, comm) };
    CHECK_TEXT(incident_blame(r, 5, ""), "b");
    r[4] = beat(4, "c", HEARTBEAT_STEPS, ""); /* two hosts: either may be the victim */
    CHECK_TEXT(incident_blame(r, 5, ""), "");
    for (int i = 0; i < 5; i++) r[i].phase = HEARTBEAT_STEPS; /* nobody left a word */
    CHECK_TEXT(incident_blame(r, 2, ""), "");
    r[0].signalled = r[1].signalled = true; /* MPI let them say no more than that */
    CHECK_TEXT(incident_blame(r, 4, ""), "b");
}

/* A rank that stood still is woken by its end, and has a last word, too. */
static void the_host_that_all_waited_for_is_to_blame(void **state)
{
    (void)state;
    const char *comm = status_name(ERR_COMM);
    RankBeat r[] = { beat(0, "a", HEARTBEAT_FAILED, comm), beat(1, "a", HEARTBEAT_FAILED, comm),
                     beat(2, "b", HEARTBEAT_FAILED, comm), beat(3, "b", HEARTBEAT_FAILED, comm) };
    snprintf(r[0].why, sizeof r[0].why,
             "rank 0 waited 4.0 s for rank 2, for whom rank 1 waits, in x");
    snprintf(r[1].why, sizeof r[1].why, "rank 1 was terminated while it waited for rank 3 in x");
    snprintf(r[3].why, sizeof r[3].why, "rank 0 failed: rank 0 waited 4.0 s for rank 2 in x");
    CHECK_TEXT(incident_blame(r, 4, ""), "b");
    snprintf(r[2].why, sizeof r[2].why, "rank 2 was terminated while it waited for rank 1 in x");
    CHECK_TEXT(incident_blame(r, 4, ""), "");
}

/* All ranks agree on the sentence. Of two ranks nobody knows which is right. */
static void the_host_of_other_bits_is_to_blame(void **state)
{
    (void)state;
    const char *numeric = status_name(ERR_NUMERIC);
    RankBeat r[] = { beat(0, "a", HEARTBEAT_FAILED, numeric),
                     beat(1, "b", HEARTBEAT_FAILED, numeric) };
    for (int i = 0; i < 2; i++)
        snprintf(r[i].why, sizeof r[i].why,
                 "step 8 was computed twice, with other bits on rank 1 (host b, its losses); x");
    CHECK_TEXT(incident_blame(r, 2, ""), "b");
    for (int i = 0; i < 2; i++)
        snprintf(r[i].why, sizeof r[i].why, "x have other bits on ranks 0 (host a), 1 (host b); x");
    CHECK_TEXT(incident_blame(r, 2, ""), "");
}

static void the_host_of_a_lost_device_is_to_blame(void **state)
{
    (void)state;
    const char *comm = status_name(ERR_COMM), *device = status_name(ERR_DEVICE);
    const RankBeat r[] = { beat(0, "a", HEARTBEAT_FAILED, comm),
                           beat(1, "b", HEARTBEAT_FAILED, device) };
    CHECK_TEXT(incident_blame(r, 2, ""), "b");
    const RankBeat nan[] = { beat(0, "a", HEARTBEAT_FAILED, comm),
                             beat(1, "b", HEARTBEAT_FAILED, status_name(ERR_NUMERIC)) };
    CHECK_TEXT(incident_blame(nan, 2, ""), "");
}

static void if_no_rank_comes_the_host_before_is_to_blame(void **state)
{
    (void)state;
    CHECK_TEXT(incident_blame(NULL, 0, "b"), "b");
    CHECK_TEXT(incident_blame(NULL, 0, ""), "");
}

/* ---- what to do ---- */

static Incident incident(IncidentEnd end, int64_t reached, int64_t saved)
{
    Incident i = { .end = end, .reached = reached, .saved = saved };
    snprintf(i.sentence, sizeof i.sentence, "%s", incident_names[end]);
    return i;
}

static void what_ends_well_or_was_asked_for_or_refused_is_not_restarted(void **state)
{
    (void)state;
    static const IncidentEnd ends[] = { INCIDENT_DONE, INCIDENT_REFUSED, INCIDENT_FAILED };
    for (int k = 0; k < 3; k++) {
        IncidentPast past = { 0 };
        Incident i = incident(ends[k], 5, 5);
        i.asked = ends[k] == INCIDENT_FAILED;
        CHECK(!incident_decide(&past, &i).restart);
    }
}

static void a_failure_of_its_own_is_restarted_once(void **state)
{
    (void)state;
    static const IncidentEnd own[] = { INCIDENT_FAILED, INCIDENT_CRASHED, INCIDENT_UNBORN };
    for (int k = 0; k < 3; k++) {
        IncidentPast past = { 0 };
        Incident i = incident(own[k], 12, 10);
        CHECK(incident_decide(&past, &i).restart);
        CHECK(!incident_decide(&past, &i).restart);
    }
}

static void another_step_sentence_or_a_newer_checkpoint_is_another_failure(void **state)
{
    (void)state;
    IncidentPast past = { 0 };
    Incident i = incident(INCIDENT_FAILED, 12, 10);
    CHECK(incident_decide(&past, &i).restart);
    i.reached = 13;
    CHECK(incident_decide(&past, &i).restart);
    snprintf(i.sentence, sizeof i.sentence, "another");
    CHECK(incident_decide(&past, &i).restart);
    i.saved = 11;
    CHECK(incident_decide(&past, &i).restart);
    CHECK(!incident_decide(&past, &i).restart);
}

static void what_comes_from_elsewhere_is_restarted_without_end(void **state)
{
    (void)state;
    static const IncidentEnd from[] = { INCIDENT_KILLED, INCIDENT_LOST, INCIDENT_HUNG };
    for (int k = 0; k < 3; k++) {
        IncidentPast past = { 0 };
        const Incident i = incident(from[k], 12, 10);
        for (int n = 0; n < 20; n++) CHECK(incident_decide(&past, &i).restart);
    }
}

static void the_pause_doubles_up_to_300_s_and_a_newer_checkpoint_sets_it_back(void **state)
{
    (void)state;
    IncidentPast past = { 0 };
    Incident i = incident(INCIDENT_KILLED, 12, 10);
    static const double want[] = { 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300 };
    for (size_t n = 0; n < sizeof want / sizeof *want; n++)
        CHECK_NEAR(incident_decide(&past, &i).pause_s, want[n], 0);
    i.saved = 11;
    CHECK_NEAR(incident_decide(&past, &i).pause_s, 1, 0);
    CHECK_NEAR(incident_decide(&past, &i).pause_s, 2, 0);
}

/* 40 steps took 20 s, of which a checkpoint kept 30; then 10 of 10 steps in 4 s. */
static void goodput_counts_the_steps_that_a_checkpoint_kept(void **state)
{
    (void)state;
    IncidentPast past = { 0 };
    Incident i = incident(INCIDENT_KILLED, 140, 130);
    i.first = 100;
    i.busy_s = 20;
    (void)incident_decide(&past, &i);
    CHECK_NEAR(past.useful_s, 15, 1e-12);
    i = incident(INCIDENT_DONE, 140, 140);
    i.first = 130;
    i.busy_s = 4;
    (void)incident_decide(&past, &i);
    CHECK_NEAR(past.useful_s, 19, 1e-12);
    CHECK_NEAR(incident_useful_s(5, 5, 5, 3), 0, 0);    /* no step ran */
    CHECK_NEAR(incident_useful_s(10, 20, 5, 3), 0, 0);  /* its checkpoints are gone */
    CHECK_NEAR(incident_useful_s(10, 20, 99, 3), 3, 0); /* the heartbeat is a step behind */
}

static void a_hang_is_longer_than_the_deadline_and_four_steps(void **state)
{
    (void)state;
    static const Config c = { .comm_timeout_s = 30 };
    CHECK_NEAR(supervise_hang_s(&c, true, 2), 90, 0);
    CHECK_NEAR(supervise_hang_s(&c, true, 200), 830, 0);
    CHECK_NEAR(supervise_hang_s(&c, false, 2), 600, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_end_is_named_by_code_and_kind),
        TEST(the_cause_is_the_failure_that_is_not_of_communication),
        TEST(the_host_without_a_last_word_is_to_blame),
        TEST(the_host_that_all_waited_for_is_to_blame),
        TEST(the_host_of_other_bits_is_to_blame),
        TEST(the_host_of_a_lost_device_is_to_blame),
        TEST(if_no_rank_comes_the_host_before_is_to_blame),
        TEST(what_ends_well_or_was_asked_for_or_refused_is_not_restarted),
        TEST(a_failure_of_its_own_is_restarted_once),
        TEST(another_step_sentence_or_a_newer_checkpoint_is_another_failure),
        TEST(what_comes_from_elsewhere_is_restarted_without_end),
        TEST(the_pause_doubles_up_to_300_s_and_a_newer_checkpoint_sets_it_back),
        TEST(a_hang_is_longer_than_the_deadline_and_four_steps),
        TEST(goodput_counts_the_steps_that_a_checkpoint_kept),
    };
    return TEST_RUN(tests);
}
