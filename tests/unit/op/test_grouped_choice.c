/* The tile shapes of grouped products: chosen by timing, kept in the table of choices and its text.
 * Times come from a list here; on a GPU they are measured. */
#include "harness/test.h"

#include "op/grouped_choice.h"

static const char MACHINE[] = "Some GPU, driver for CUDA 13.0, cuBLASLt 130100";

/* Before there were grouped products, a program wrote this. */
static const char OLDER[] = "switchyard products 1\n"
                            "machine Some GPU, driver for CUDA 13.0, cuBLASLt 130100\n"
                            "timed 4096 3072 2048 2048 2048 3072 1010100e 2b 15 0 0 1c 0 0 0\n"
                            "plain 129 65 31 31 65 65 2020208 0 0 0 0 0 0 0 0\n"
                            "end 2 4014bf6e9d1bc241\n";

static const GroupedShape shapes[] = { GROUPED_COOPERATIVE, GROUPED_IN_TURN };
static const GroupedSizes some = { GROUPED_DOWN_FWD, false, 65536, 128, 768, 2048 };

typedef struct Place {
    Arena arena;
    Choices *choices;
    float ms[2];
    int timed; /* how often */
} Place;

static Choices *table(Place *p)
{
    Choices *c = NULL;
    CHECK_OK(choices_make(&p->arena, MACHINE, &c));
    return c;
}

static void place_open(Place *p)
{
    *p = (Place){ .ms = { 2, 1 } };
    CHECK_OK(arena_init(&p->arena, "test", MEM_HOST, (size_t)64 << 20));
    p->choices = table(p);
}

static void place_close(Place *p) { arena_free(&p->arena); }

static Status listed(void *of, float *ms)
{
    Place *p = of;
    p->timed++;
    memcpy(ms, p->ms, sizeof p->ms);
    return OK;
}

static Status broken(void *of, float *ms)
{
    (void)of, (void)ms;
    return FAIL(ERR_DEVICE, "the GPU is gone");
}

static int choose(Place *p, Choices *c, bool may_time)
{
    GroupedCandidates among = { shapes, 2, may_time ? listed : NULL, p };
    int out = -1;
    CHECK_OK(grouped_choose(c, &some, &among, &out));
    return out;
}

/* What an entry of this kind and these words leads to. */
static int chosen_by(ChoiceKind kind, uint64_t first, uint64_t second)
{
    Place p;
    place_open(&p);
    ChoiceKey key = grouped_key(&some);
    Choice *kept = choices_add(p.choices, &key);
    kept->kind = kind;
    kept->algo[0] = first;
    kept->algo[1] = second;
    int out = choose(&p, p.choices, true);
    CHECK_INT(p.timed, 0);
    CHECK_INT(p.choices->n, 1);
    place_close(&p);
    return out;
}

static void each_size_has_an_entry_of_its_own(void **state)
{
    (void)state;
    GroupedSizes other[] = { some, some, some, some, some, some };
    other[0].product = GROUPED_UP_FWD;
    other[1].indexed = true;
    other[2].rows++;
    other[3].experts++;
    other[4].a_cols++;
    other[5].b_cols++;
    ChoiceKey key = grouped_key(&some);
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        ChoiceKey k = grouped_key(&other[i]);
        CHECK(memcmp(&k, &key, sizeof key) != 0);
    }
    /* The kinds of dense products end below. */
    CHECK(key.kinds >= (int64_t)1 << 40);
    CHECK(key.ldb == 1 && key.ldc == 1);
}

static void what_is_not_timed_takes_the_first_and_leaves_no_entry(void **state)
{
    (void)state;
    Place p;
    place_open(&p);
    CHECK_INT(choose(&p, p.choices, false), 0);
    CHECK_INT(p.choices->n, 0);
    CHECK(!p.choices->unsaved);
    place_close(&p);
}

static void it_is_timed_once_and_then_on_record(void **state)
{
    (void)state;
    Place p;
    place_open(&p);
    CHECK_INT(choose(&p, p.choices, true), 1);
    CHECK(p.choices->unsaved);
    p.ms[1] = 3;
    CHECK_INT(choose(&p, p.choices, true), 1);
    CHECK_INT(choose(&p, p.choices, false), 1);
    CHECK_INT(p.timed, 1);
    place_close(&p);
}

static void another_shape_has_to_be_faster_by_more_than_noise(void **state)
{
    (void)state;
    const struct {
        float first, other;
        int wanted;
    } rows[] = { { 1.014f, 1, 0 }, { 1.016f, 1, 1 }, { 1, 1, 0 }, { 1, 2, 0 } };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Place p;
        place_open(&p);
        p.ms[0] = rows[i].first;
        p.ms[1] = rows[i].other;
        CHECK_INT(choose(&p, p.choices, true), rows[i].wanted);
        CHECK_INT(choose(&p, p.choices, true), rows[i].wanted);
        CHECK_INT(p.timed, 1);
        place_close(&p);
    }
}

static void a_text_carries_it_to_another_run(void **state)
{
    (void)state;
    Place p;
    place_open(&p);
    const char *text = NULL;
    int taken = -1;
    CHECK_INT(choose(&p, p.choices, true), 1);
    CHECK_OK(choices_text(p.choices, &p.arena, &text));
    CHECK(strstr(text, "\ntimed 65536 2048 768 128 1 1 10000000004 3 0 0 0 0 0 0 0\nend 1 ") !=
          NULL);
    Choices *resumed = table(&p);
    CHECK_OK(choices_take(resumed, "manifest", text, &taken));
    CHECK_INT(taken, 1);
    CHECK_INT(choose(&p, resumed, true), 1);
    CHECK_INT(p.timed, 1);
    place_close(&p);
}

static void an_older_text_is_taken_and_says_nothing_about_it(void **state)
{
    (void)state;
    Place p;
    place_open(&p);
    const char *text = NULL;
    int taken = -1;
    CHECK_OK(choices_take(p.choices, "manifest", OLDER, &taken));
    CHECK_INT(taken, 2);
    CHECK_INT(choose(&p, p.choices, false), 0);
    CHECK_OK(choices_text(p.choices, &p.arena, &text));
    CHECK_TEXT(text, OLDER);
    place_close(&p);
}

static void what_this_program_does_not_know_takes_the_first(void **state)
{
    (void)state;
    CHECK_INT(chosen_by(CHOICE_TIMED, GROUPED_IN_TURN, 0), 1);
    CHECK_INT(chosen_by(CHOICE_TIMED, GROUPED_COOPERATIVE, 0), 0);
    CHECK_INT(chosen_by(CHOICE_TIMED, GROUPED_TALL, 0), 0); /* not for this product */
    CHECK_INT(chosen_by(CHOICE_TIMED, 99, 0), 0);
    CHECK_INT(chosen_by(CHOICE_TIMED, 0, 0), 0);
    CHECK_INT(chosen_by(CHOICE_TIMED, (uint64_t)GROUPED_IN_TURN | 1ull << 32, 0), 0);
    CHECK_INT(chosen_by(CHOICE_TIMED, GROUPED_IN_TURN, 1), 0);
    CHECK_INT(chosen_by(CHOICE_FIRST, GROUPED_IN_TURN, 0), 0);
}

static void a_full_table_takes_the_first_untimed(void **state)
{
    (void)state;
    Place p;
    place_open(&p);
    for (int64_t i = 1; i <= CHOICES_MAX; i++) {
        ChoiceKey key = { i, i, i, i, i, i, 0 };
        CHECK(choices_add(p.choices, &key) != NULL);
    }
    CHECK_INT(choose(&p, p.choices, true), 0);
    CHECK_INT(p.timed, 0);
    place_close(&p);
}

static void a_timing_that_fails_is_an_error_and_leaves_no_entry(void **state)
{
    (void)state;
    Place p;
    place_open(&p);
    GroupedCandidates among = { shapes, 2, broken, NULL };
    int out = -1;
    CHECK_FAILS(grouped_choose(p.choices, &some, &among, &out), ERR_DEVICE, "the GPU is gone");
    CHECK_INT(p.choices->n, 0);
    place_close(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(each_size_has_an_entry_of_its_own),
        TEST(what_is_not_timed_takes_the_first_and_leaves_no_entry),
        TEST(it_is_timed_once_and_then_on_record),
        TEST(another_shape_has_to_be_faster_by_more_than_noise),
        TEST(a_text_carries_it_to_another_run),
        TEST(an_older_text_is_taken_and_says_nothing_about_it),
        TEST(what_this_program_does_not_know_takes_the_first),
        TEST(a_full_table_takes_the_first_untimed),
        TEST(a_timing_that_fails_is_an_error_and_leaves_no_entry),
    };
    return TEST_RUN(tests);
}
