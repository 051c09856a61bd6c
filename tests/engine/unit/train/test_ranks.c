/* What ranks settle before a run and tell each other once a step: on each of them, as threads. */
#include "harness/catch.h"

#include "engine/base/log.h"
#include "engine/step/agree.h"
#include "engine/train/ranks.h"

enum { MOST_RANKS = 4 };

static void run(int ranks, CommBody *body, void *state)
{
    int failed = 0;
    CHECK_OK(comm_threads(ranks, 20, body, state, &failed));
}

/* What a collective gave a rank. */
typedef struct Said {
    Status status;
    char why[512];
} Said;

static void hear(Said *said, Status s)
{
    said->status = s;
    said->why[0] = '\0';
    if (s != OK) status_sentence(said->why, sizeof said->why);
}

/* ---- agreement ---- */

typedef struct Texts {
    int ranks;
    const char *text[MOST_RANKS], *why; /* why NULL: they agree */
    Said said[MOST_RANKS];
} Texts;

static Status compare(void *state, Comm *world)
{
    Texts *t = state;
    hear(&t->said[world->rank], ranks_agree(world, "the recipe", t->text[world->rank]));
    return OK;
}

static void compare_all(Texts *t, int n)
{
    for (int i = 0; i < n; i++) {
        run(t[i].ranks, compare, &t[i]);
        for (int r = 0; r < t[i].ranks; r++) {
            CHECK_INT(t[i].said[r].status, t[i].why == NULL ? OK : ERR_ARG);
            CHECK_TEXT(t[i].said[r].why, t[i].why == NULL ? "" : t[i].why);
        }
    }
}

static void equal_texts_agree(void **state)
{
    (void)state;
    Texts t[] = { { .ranks = 1, .text = { "a: 1\n" } },
                  { .ranks = 2, .text = { "", "" } },
                  { .ranks = 2, .text = { "a: 1\nb: 2", "a: 1\nb: 2" } },
                  { .ranks = 4, .text = { "a\n\nb\n", "a\n\nb\n", "a\n\nb\n", "a\n\nb\n" } } };
    compare_all(t, 4);
}

static void the_first_rank_and_line_that_differ_are_named_on_all(void **state)
{
    (void)state;
    Texts t[] = {
        { .ranks = 2,
          .text = { "a: 1\nb: 2\nc: 3\n", "a: 1\nb: 4\nc: 5\n" },
          .why = "rank 1: the recipe is not rank 0's: line 2 is \"b: 4\" here, \"b: 2\" there" },
        { .ranks = 4,
          .text = { "a\n\nb\n", "a\n\nb\n", "a\n\nc\n", "d\n\nb\n" },
          .why = "rank 2: the recipe is not rank 0's: line 3 is \"c\" here, \"b\" there" },
        { .ranks = 4,
          .text = { "a", "a", "a", "ab" },
          .why = "rank 3: the recipe is not rank 0's: line 1 is \"ab\" here, \"a\" there" },
    };
    compare_all(t, 3);
}

static void a_line_that_is_missing_is_an_empty_one(void **state)
{
    (void)state;
    Texts t[] = {
        { .ranks = 2,
          .text = { "a\n", "a\nb\n" },
          .why = "rank 1: the recipe is not rank 0's: line 2 is \"b\" here, \"\" there" },
        { .ranks = 2,
          .text = { "a\nb\n", "a\n" },
          .why = "rank 1: the recipe is not rank 0's: line 2 is \"\" here, \"b\" there" },
        { .ranks = 2,
          .text = { "", "a" },
          .why = "rank 1: the recipe is not rank 0's: line 1 is \"a\" here, \"\" there" },
        { .ranks = 2,
          .text = { "a", "" },
          .why = "rank 1: the recipe is not rank 0's: line 1 is \"\" here, \"a\" there" },
    };
    compare_all(t, 4);
}

/* ---- failures ---- */

typedef struct Failures {
    Status of[MOST_RANKS];
    Said said[MOST_RANKS];
} Failures;

static Status settle(void *state, Comm *world)
{
    Failures *f = state;
    Status mine = f->of[world->rank];
    if (mine != OK) mine = FAIL(mine, "cellar %d is full", world->rank);
    hear(&f->said[world->rank], agree_status(world, mine));
    return OK;
}

static void without_a_failure_all_go_on(void **state)
{
    (void)state;
    Failures f = { 0 };
    for (int ranks = 1; ranks <= MOST_RANKS; ranks *= 2) {
        run(ranks, settle, &f);
        for (int r = 0; r < ranks; r++) CHECK_INT(f.said[r].status, OK);
    }
}

static void all_ranks_fail_as_the_first_that_did(void **state)
{
    (void)state;
    Failures f = { .of = { OK, ERR_MEMORY, OK, ERR_ARG } };
    run(4, settle, &f);
    for (int r = 0; r < 4; r++) {
        CHECK_INT(f.said[r].status, ERR_MEMORY);
        CHECK_TEXT(f.said[r].why, "rank 1: cellar 1 is full");
    }
}

static void a_failure_of_rank_0_is_its_own_sentence_there(void **state)
{
    (void)state;
    Failures f = { .of = { ERR_IO, ERR_ARG } };
    run(2, settle, &f);
    CHECK_INT(f.said[0].status, ERR_IO);
    CHECK_TEXT(f.said[0].why, "cellar 0 is full");
    CHECK_INT(f.said[1].status, ERR_IO);
    CHECK_TEXT(f.said[1].why, "rank 0: cellar 0 is full");
    CHECK_INT(agree_status(NULL, ERR_IO), ERR_IO);
}

/* Rank r has r, ranks - r and "r"; no check fails on a thread. */
static Status agree_on_values(void *state, Comm *world)
{
    bool *right = state;
    int32_t value[2] = { world->rank, world->size - world->rank };
    char name[3] = { (char)('0' + world->rank), 'x', '\0' };
    TRY(agree_most(world, value, 2));
    TRY(agree_first(world, name, sizeof name));
    right[world->rank] =
        value[0] == world->size - 1 && value[1] == world->size && strcmp(name, "0x") == 0;
    return OK;
}

static void the_most_of_each_value_and_the_first_bytes_reach_all(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= MOST_RANKS; ranks *= 2) {
        bool right[MOST_RANKS] = { false };
        run(ranks, agree_on_values, right);
        for (int r = 0; r < ranks; r++) CHECK(right[r]);
    }
}

static Status agree_on_texts(void *state, Comm *world)
{
    bool *right = state;
    static const char *const text[MOST_RANKS] = { "first", "", "a longer text than the first",
                                                  "4" };
    const char *const *all = NULL;
    Arena a = { 0 };
    TRY(arena_init(&a, "texts", MEM_HOST, 1 << 20));
    Status s = agree_texts(world, text[world->rank], &a, &all);
    right[world->rank] = s == OK;
    for (int i = 0; i < world->size && s == OK; i++)
        right[world->rank] &= strcmp(all[i], text[i]) == 0;
    arena_free(&a);
    return s;
}

static void the_texts_of_all_reach_all_in_order(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= MOST_RANKS; ranks *= 2) {
        bool right[MOST_RANKS] = { false };
        run(ranks, agree_on_texts, right);
        for (int r = 0; r < ranks; r++) CHECK(right[r]);
    }
}

/* ---- steps ---- */

/* Field f of the ranks is 10 f .. 10 f + n - 1, for each field in another order; n: 1, 2, 4. */
static RankStep step_of(int rank, int n)
{
    RankStep s;
    for (int f = 0; f < RANK_FIELDS; f++) s.of[f] = (float)(10 * f + (rank * (2 * f + 1) + f) % n);
    return s;
}

static Status tell(void *state, Comm *world)
{
    Ranks r;
    Arena a = { 0 };
    RankStep mine = step_of(world->rank, world->size);
    TRY(arena_init(&a, "ranks", MEM_HOST, (size_t)1 << 20));
    Status s = ranks_open(&r, world, &a);
    if (s == OK) s = ranks_step(&r, &mine);
    if (s == OK) ((RankSpread *)state)[world->rank] = r.spread;
    arena_free(&a);
    return s;
}

static void check_fields(const RankStep *s, int above)
{
    for (int f = 0; f < RANK_FIELDS; f++) CHECK_NEAR(s->of[f], 10 * f + above, 0);
}

static void each_field_has_its_own_least_median_and_most(void **state)
{
    (void)state;
    for (int n = 1; n <= MOST_RANKS; n *= 2) {
        RankSpread spread[MOST_RANKS];
        run(n, tell, spread);
        for (int r = 0; r < n; r++) {
            check_fields(&spread[r].least, 0);
            check_fields(&spread[r].median, (n - 1) / 2);
            check_fields(&spread[r].most, n - 1);
            CHECK_NEAR(step_of(spread[r].slowest, n).of[RANK_OWN_S], spread[r].most.of[RANK_OWN_S],
                       0);
        }
    }
}

static void a_lone_run_is_least_median_and_most(void **state)
{
    (void)state;
    Ranks r;
    Arena a = { 0 };
    RankStep mine = step_of(3, 4);
    CHECK_OK(arena_init(&a, "ranks", MEM_HOST, (size_t)1 << 20));
    CHECK_OK(ranks_open(&r, NULL, &a));
    CHECK_OK(ranks_step(&r, &mine));
    CHECK(memcmp(&r.spread.least, &mine, sizeof mine) == 0);
    CHECK(memcmp(&r.spread.median, &mine, sizeof mine) == 0);
    CHECK(memcmp(&r.spread.most, &mine, sizeof mine) == 0);
    CHECK_INT(r.spread.slowest, 0);
    arena_free(&a);
}

/* The last rank takes slow_s in steps that are an s, usual_s in others. */
typedef struct Script {
    const char *steps;
    float usual_s, slow_s;
} Script;

static Status act(void *state, Comm *world)
{
    const Script *p = state;
    Ranks r;
    Arena a = { 0 };
    bool last = world->rank == world->size - 1;
    TRY(arena_init(&a, "ranks", MEM_HOST, (size_t)1 << 20));
    Status s = ranks_open(&r, world, &a);
    for (const char *at = p->steps; s == OK && *at != '\0'; at++) {
        RankStep mine = { { [RANK_OWN_S] = last && *at == 's' ? p->slow_s : p->usual_s } };
        s = ranks_step(&r, &mine);
    }
    arena_free(&a);
    return s;
}

static int warnings(int ranks, Script script)
{
    char who[64];
    int n = 0, lines = 0, failed = 0;
    catch_begin();
    Status s = comm_threads(ranks, 20, act, &script, &failed);
    catch_end();
    CHECK_OK(s);
    (void)snprintf(who, sizeof who, "warning: rank %d is slow", ranks - 1);
    for (const char *at = caught; (at = strstr(at, who)) != NULL; at++) n++;
    for (const char *at = caught; (at = strchr(at, '\n')) != NULL; at++) lines++;
    CHECK_INT(lines, n);
    return n;
}

static void a_rank_that_is_slow_three_steps_in_a_row_is_warned_of_once(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= MOST_RANKS; ranks *= 2) {
        CHECK_INT(warnings(ranks, (Script){ "ss", 1, 2 }), 0);
        CHECK_INT(warnings(ranks, (Script){ "ss.ss.", 1, 2 }), 0);
        CHECK_INT(warnings(ranks, (Script){ ".sss", 1, 2 }), 1);
        CHECK_INT(warnings(ranks, (Script){ "ssssssss", 1, 2 }), 1);
        CHECK_INT(warnings(ranks, (Script){ "ssss.sss", 1, 2 }), 2);
    }
}

static void a_little_slower_is_not_slow(void **state)
{
    (void)state;
    CHECK_INT(warnings(4, (Script){ "ssss", 1.0F, 1.09F }), 0);
    CHECK_INT(warnings(4, (Script){ "ssss", 1.0F, 1.11F }), 1);
    CHECK_INT(warnings(4, (Script){ "ssss", 0.001F, 0.009F }), 0); /* 8 ms, if nine times as long */
    CHECK_INT(warnings(4, (Script){ "ssss", 0.001F, 0.012F }), 1);
}

/* ---- causes ---- */

/* The last of four ranks has these figures, the others 1 s, 1980 MHz and 100 rows. */
typedef struct Cause {
    RankStep step;
    const char *want; /* of the warning; NULL: there is none */
    int slow[MOST_RANKS];
} Cause;

static Status be_slow(void *state, Comm *world)
{
    Cause *c = state;
    Ranks r;
    Arena a = { 0 };
    const bool last = world->rank == world->size - 1;
    const RankStep usual = {
        { [RANK_OWN_S] = 1, [RANK_CLOCK_MHZ] = 1980, [RANK_EXPERT_ROWS] = 100 }
    };
    TRY(arena_init(&a, "ranks", MEM_HOST, (size_t)1 << 20));
    Status s = ranks_open(&r, world, &a);
    for (int i = 0; s == OK && i < 3; i++) s = ranks_step(&r, last ? &c->step : &usual);
    c->slow[world->rank] = r.spread.slow;
    arena_free(&a);
    return s;
}

static void a_slow_rank_is_named_with_its_host_and_the_cause(void **state)
{
    (void)state;
    char host[64] = "", want[128];
    CHECK_INT(gethostname(host, sizeof host - 1), 0);
    Cause causes[] = {
        { { { [RANK_OWN_S] = 1, [RANK_CLOCK_MHZ] = 1980, [RANK_EXPERT_ROWS] = 300 } },
          NULL,
          { 0 } },
        { { { [RANK_OWN_S] = 1, [RANK_CLOCK_MHZ] = 1790, [RANK_EXPERT_ROWS] = 100 } },
          NULL,
          { 0 } },
        { { { [RANK_OWN_S] = 1, [RANK_CLOCK_MHZ] = 1200, [RANK_THROTTLE] = 0x24 } },
          "1.000 s of computing in each of the last 3 steps or more, 1.00 times the median rank's "
          "1.000 s; "
          "its clock is 1200 MHz, the median 1980, throttled by sw_power_cap sw_thermal\n",
          { 0 } },
        { { { [RANK_OWN_S] = 1.25F, [RANK_CLOCK_MHZ] = 1980, [RANK_EXPERT_ROWS] = 130 } },
          "1.25 times the median rank's 1.000 s; its experts took 130 rows, the median 100\n",
          { 0 } },
        { { { [RANK_OWN_S] = 1.25F, [RANK_EXPERT_ROWS] = 100 } },
          "1.25 times the median rank's 1.000 s; `switchyard doctor` tests its host\n",
          { 0 } },
    };
    (void)snprintf(want, sizeof want, "warning: rank 3 is slow (host %s): ", host);
    for (size_t i = 0; i < sizeof causes / sizeof *causes; i++) {
        Cause *c = &causes[i];
        int failed = 0;
        catch_begin();
        Status s = comm_threads(4, 20, be_slow, c, &failed);
        catch_end();
        CHECK_OK(s);
        CHECK((strstr(caught, want) != NULL) == (c->want != NULL));
        if (c->want != NULL && strstr(caught, c->want) == NULL) fail_msg("%s", caught);
        for (int r = 0; r < 4; r++) CHECK_INT(c->slow[r], c->want == NULL ? -1 : 3);
    }
}

/* ---- who is heard ---- */

typedef struct Stage {
    FILE *file[MOST_RANKS];
    bool quiet;
} Stage;

/* One after the other, so that what is caught has an order. */
static Status speak(void *state, Comm *world)
{
    const Stage *p = state;
    log_rank(world->rank, fileno(p->file[world->rank]));
    if (p->quiet) log_quiet();
    for (int r = 0; r < world->size; r++) {
        TRY(comm_barrier(world));
        if (r != world->rank) continue;
        log_info("ready");
        log_warn("late");
        log_error("lost");
        log_progress(true, "step 1");
    }
    return OK;
}

static void check_speakers(bool quiet, const char *want)
{
    static const char *const file[] = {
        "ready\nwarning: late\nerror: lost\n",
        "rank 1: ready\nrank 1: warning: late\nrank 1: error: lost\n"
    };
    Stage stage = { .quiet = quiet };
    int failed = 0;
    for (int r = 0; r < 2; r++) CHECK((stage.file[r] = tmpfile()) != NULL);
    catch_begin();
    Status s = comm_threads(2, 20, speak, &stage, &failed);
    catch_end();
    CHECK_OK(s);
    CHECK_TEXT(caught, want);
    for (int r = 0; r < 2; r++) {
        char text[256] = { 0 };
        rewind(stage.file[r]);
        (void)!fread(text, 1, sizeof text - 1, stage.file[r]);
        CHECK_TEXT(text, file[r]);
        CHECK_INT(fclose(stage.file[r]), 0);
    }
}

static void others_than_rank_0_are_heard_from_warnings_on(void **state)
{
    (void)state;
    check_speakers(false, "ready\nwarning: late\nerror: lost\nstep 1\n"
                          "rank 1: warning: late\nrank 1: error: lost\n");
}

static void who_is_quiet_writes_into_his_file_alone(void **state)
{
    (void)state;
    check_speakers(true, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(equal_texts_agree),
        TEST(the_first_rank_and_line_that_differ_are_named_on_all),
        TEST(a_line_that_is_missing_is_an_empty_one),
        TEST(without_a_failure_all_go_on),
        TEST(all_ranks_fail_as_the_first_that_did),
        TEST(a_failure_of_rank_0_is_its_own_sentence_there),
        TEST(the_most_of_each_value_and_the_first_bytes_reach_all),
        TEST(the_texts_of_all_reach_all_in_order),
        TEST(each_field_has_its_own_least_median_and_most),
        TEST(a_lone_run_is_least_median_and_most),
        TEST(a_rank_that_is_slow_three_steps_in_a_row_is_warned_of_once),
        TEST(a_little_slower_is_not_slow),
        TEST(a_slow_rank_is_named_with_its_host_and_the_cause),
        TEST(others_than_rank_0_are_heard_from_warnings_on),
        TEST(who_is_quiet_writes_into_his_file_alone),
    };
    return TEST_RUN(tests);
}
