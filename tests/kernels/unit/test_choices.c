/* The table of choices and its text, without a GPU: what the library means by an algorithm's words
 * plays no part here. */
#include "harness/place.h"

#include "engine/base/log.h"
#include "kernels/core/choices.h"

#include <sys/stat.h>

static const char MACHINE[] = "Some GPU, driver for CUDA 13.0, cuBLASLt 130100";

typedef struct Place {
    char folder[64];
    Arena arena;
    Choices *choices;
} Place;

static Choices *table(Place *p, const char *machine)
{
    Choices *c = NULL;
    CHECK_OK(choices_make(&p->arena, machine, &c));
    return c;
}

static int place_open(void **state)
{
    static Place place;
    Place *p = *state = &place;
    *p = (Place){ 0 };
    place_make(p->folder, &p->arena);
    p->choices = table(p, MACHINE);
    log_set_level(LOG_ERROR);
    return 0;
}

static int place_close(void **state)
{
    Place *p = *state;
    log_set_level(LOG_INFO);
    place_drop(p->folder, &p->arena);
    return 0;
}

static ChoiceKey key_of(int64_t i) { return (ChoiceKey){ i, 2 * i, 3, 4, 5, 6, 0x10101010 + i }; }

static Choice *add(Choices *c, int64_t i, ChoiceKind kind)
{
    ChoiceKey key = key_of(i);
    CHECK(choices_find(c, &key) == NULL);
    Choice *added = choices_add(c, &key);
    CHECK(added != NULL);
    added->kind = kind;
    for (int w = 0; w < CHOICE_WORDS; w++) added->algo[w] = (uint64_t)i << 8 * w;
    if (kind == CHOICE_TIMED) c->unsaved = true;
    return added;
}

static void check_kept(Choices *c, int64_t i, ChoiceKind kind)
{
    ChoiceKey key = key_of(i);
    const Choice *got = choices_find(c, &key);
    CHECK(got != NULL);
    CHECK_INT(got->kind, kind);
    CHECK(got->unchecked);
    for (int w = 0; w < CHOICE_WORDS; w++) CHECK(got->algo[w] == (uint64_t)i << 8 * w);
}

static void a_full_table_finds_all_that_it_took_and_takes_no_more(void **state)
{
    Place *p = *state;
    for (int64_t i = 1; i <= CHOICES_MAX; i++) add(p->choices, i, CHOICE_FIRST);
    ChoiceKey more = key_of(CHOICES_MAX + 1);
    CHECK(choices_add(p->choices, &more) == NULL);
    CHECK(choices_find(p->choices, &more) == NULL);
    for (int64_t i = 1; i <= CHOICES_MAX; i++) {
        ChoiceKey key = key_of(i);
        CHECK(choices_find(p->choices, &key) == &p->choices->at[i - 1]);
    }
}

static void keys_that_differ_in_one_number_are_two_choices(void **state)
{
    Place *p = *state;
    add(p->choices, 1, CHOICE_FIRST);
    for (size_t i = 0; i < sizeof(ChoiceKey) / sizeof(int64_t); i++) {
        ChoiceKey key = key_of(1);
        ((int64_t *)&key)[i]++;
        CHECK(choices_find(p->choices, &key) == NULL);
    }
}

static void the_text_is_the_one_in_the_header(void **state)
{
    Place *p = *state;
    const char *text = NULL;
    add(p->choices, 1, CHOICE_TIMED);
    CHECK_OK(choices_text(p->choices, &p->arena, &text));
    const char want[] = "switchyard products 1\n"
                        "machine Some GPU, driver for CUDA 13.0, cuBLASLt 130100\n"
                        "timed 1 2 3 4 5 6 10101011 1 100 10000 1000000 100000000 10000000000 "
                        "1000000000000 100000000000000\n"
                        "end 1 ";
    CHECK(strncmp(text, want, strlen(want)) == 0);
    CHECK_INT(strlen(text), strlen(want) + 17);
}

static void a_manifest_carries_all_kinds(void **state)
{
    Place *p = *state;
    const char *text = NULL, *again = NULL;
    int taken = -1;
    for (int i = 1; i <= CHOICE_KINDS; i++) add(p->choices, i, (ChoiceKind)(i - 1));
    CHECK_OK(choices_text(p->choices, &p->arena, &text));
    Choices *resumed = table(p, MACHINE);
    CHECK_OK(choices_take(resumed, "manifest", text, &taken));
    CHECK_INT(taken, CHOICE_KINDS);
    for (int i = 1; i <= CHOICE_KINDS; i++) check_kept(resumed, i, (ChoiceKind)(i - 1));
    CHECK_OK(choices_text(resumed, &p->arena, &again));
    CHECK_TEXT(again, text);
}

static void what_is_known_stays_as_it_is(void **state)
{
    Place *p = *state;
    const char *text = NULL;
    int taken = -1;
    add(p->choices, 1, CHOICE_FIRST);
    add(p->choices, 2, CHOICE_FIRST);
    CHECK_OK(choices_text(p->choices, &p->arena, &text));
    Choices *other = table(p, MACHINE);
    Choice *mine = add(other, 1, CHOICE_TIMED);
    mine->algo[0] = 77;
    CHECK_OK(choices_take(other, "manifest", text, &taken));
    CHECK_INT(taken, 1);
    CHECK_INT(mine->kind, CHOICE_TIMED);
    CHECK_INT(mine->algo[0], 77);
}

/* So the first of several texts decides: ranks take theirs in order. */
static void a_cleared_table_takes_the_first_of_several_texts(void **state)
{
    Place *p = *state;
    const char *first = NULL, *own = NULL;
    int taken = -1;
    Choices *other = table(p, MACHINE);
    add(other, 1, CHOICE_FIRST);
    CHECK_OK(choices_text(other, &p->arena, &first));
    add(p->choices, 1, CHOICE_TIMED);
    add(p->choices, 2, CHOICE_TIMED);
    CHECK_OK(choices_text(p->choices, &p->arena, &own));
    choices_clear(p->choices);
    CHECK_INT(p->choices->n, 0);
    CHECK_OK(choices_take(p->choices, "a rank", first, &taken));
    CHECK_OK(choices_take(p->choices, "a rank", own, &taken));
    check_kept(p->choices, 1, CHOICE_FIRST);
    check_kept(p->choices, 2, CHOICE_TIMED);
}

static void choices_of_another_machine_are_not_taken(void **state)
{
    Place *p = *state;
    const char *text = NULL;
    int taken = -1;
    add(p->choices, 1, CHOICE_TIMED);
    CHECK_OK(choices_text(p->choices, &p->arena, &text));
    CHECK_OK(choices_take(table(p, "Some GPU, driver for CUDA 13.0, cuBLASLt 130101"), "manifest",
                          text, &taken));
    CHECK_INT(taken, 0);
    CHECK_OK(choices_take(table(p, "Some GPU"), "manifest", text, &taken));
    CHECK_INT(taken, 0);
}

static void an_exec_without_a_table_has_nothing_to_do(void **state)
{
    Place *p = *state;
    const char *text = NULL;
    int taken = -1;
    CHECK_OK(choices_text(NULL, &p->arena, &text));
    CHECK_TEXT(text, "");
    CHECK_OK(choices_take(NULL, "manifest", "nonsense", &taken));
    CHECK_INT(taken, 0);
    CHECK_OK(choices_take(p->choices, "manifest", "", &taken));
    CHECK_INT(taken, 0);
    CHECK_INT(choices_load(NULL, p->folder, &p->arena), 0);
    choices_save(NULL, p->folder, &p->arena);
}

/* Every byte is changed in turn, and every length is cut. */
static void a_damaged_text_is_refused_as_a_whole(void **state)
{
    Place *p = *state;
    const char *text = NULL;
    int taken = -1;
    for (int i = 1; i < 4; i++) add(p->choices, i, CHOICE_TIMED);
    CHECK_OK(choices_text(p->choices, &p->arena, &text));
    Choices *into = table(p, MACHINE);
    size_t n = strlen(text);
    for (size_t i = 0; i < n; i++) {
        char bad[2048];
        CHECK(n < sizeof bad);
        memcpy(bad, text, n + 1);
        bad[i] ^= 1;
        CHECK_FAILS(choices_take(into, "manifest", bad, &taken), ERR_FORMAT, "manifest: ");
        memcpy(bad, text, n);
        bad[i] = '\0';
        if (i == 0) continue; /* no text, no choices */
        CHECK_FAILS(choices_take(into, "manifest", bad, &taken), ERR_FORMAT, "damaged");
    }
    CHECK_INT(into->n, 0);
}

static void what_was_timed_comes_back_from_the_cache_file(void **state)
{
    Place *p = *state;
    char path[FILE_PATH_MAX], folder[FILE_PATH_MAX];
    CHECK_OK(file_join(folder, p->folder, "not/there"));
    CHECK_OK(choices_path(folder, MACHINE, path));
    choices_save(p->choices, folder, &p->arena);
    CHECK(!file_exists(path)); /* there was nothing new */
    add(p->choices, 1, CHOICE_TIMED);
    add(p->choices, 2, CHOICE_FIRST);
    choices_save(p->choices, folder, &p->arena);
    CHECK(!p->choices->unsaved);
    Choices *later = table(p, MACHINE);
    CHECK_INT(choices_load(later, folder, &p->arena), 1);
    check_kept(later, 1, CHOICE_TIMED);
    CHECK_INT(choices_load(later, folder, &p->arena), 0);
    CHECK_INT(choices_load(table(p, "another"), folder, &p->arena), 0);
}

static void two_processes_add_to_one_file(void **state)
{
    Place *p = *state;
    Choices *second = table(p, MACHINE), *later = table(p, MACHINE);
    add(p->choices, 1, CHOICE_TIMED);
    add(second, 2, CHOICE_TIMED);
    choices_save(p->choices, p->folder, &p->arena);
    choices_save(second, p->folder, &p->arena);
    CHECK_INT(choices_load(later, p->folder, &p->arena), 2);
    check_kept(later, 1, CHOICE_TIMED);
    check_kept(later, 2, CHOICE_TIMED);
}

static void a_damaged_file_is_passed_over_and_replaced(void **state)
{
    Place *p = *state;
    char path[FILE_PATH_MAX];
    CHECK_OK(choices_path(p->folder, MACHINE, path));
    FILE *f = fopen(path, "w");
    CHECK(f != NULL);
    CHECK(fputs("switchyard products 1\nmachine", f) >= 0);
    CHECK_INT(fclose(f), 0);
    CHECK_INT(choices_load(p->choices, p->folder, &p->arena), 0);
    add(p->choices, 1, CHOICE_TIMED);
    choices_save(p->choices, p->folder, &p->arena);
    CHECK_INT(choices_load(table(p, MACHINE), p->folder, &p->arena), 1);
}

static void a_folder_that_cannot_be_made_is_no_failure(void **state)
{
    Place *p = *state;
    add(p->choices, 1, CHOICE_TIMED);
    choices_save(p->choices, "/proc/no/folder", &p->arena);
    CHECK(p->choices->unsaved);
    CHECK_INT(choices_load(p->choices, "/proc/no/folder", &p->arena), 0);
}

/* Tile shapes of grouped products. */

static const int tiles[] = { 1, 3 };

static ChoiceKey grouped_key(void)
{
    return choices_grouped_key("moe_down_fwd", false, 65536, 128, 768, 2048);
}

/* Where an entry of these words leads. */
static int shape_of(Place *p, uint64_t first, uint64_t last)
{
    Choices *c = table(p, MACHINE);
    ChoiceKey key = grouped_key();
    Choice *kept = choices_add(c, &key);
    kept->kind = CHOICE_TIMED;
    kept->algo[0] = first;
    kept->algo[CHOICE_WORDS - 1] = last;
    return choices_shape(c, &key, tiles, 2);
}

/* The place that these times lead to, now and from the record. */
static int shape_timed(Place *p, float first, float second)
{
    const float ms[] = { first, second };
    Choices *c = table(p, MACHINE);
    ChoiceKey key = grouped_key();
    CHECK_INT(choices_shape(c, &key, tiles, 2), -1);
    int at = choices_shape_timed(c, &key, tiles, 2, ms);
    CHECK_INT(choices_shape(c, &key, tiles, 2), at);
    CHECK(c->unsaved);
    return at;
}

static void each_grouped_product_has_an_entry_of_its_own(void **state)
{
    (void)state;
    const ChoiceKey key = grouped_key(), other[] = {
        choices_grouped_key("moe_up_fwd", false, 65536, 128, 768, 2048),
        choices_grouped_key("moe_down_fwd", true, 65536, 128, 768, 2048),
        choices_grouped_key("moe_down_fwd", false, 65535, 128, 768, 2048),
        choices_grouped_key("moe_down_fwd", false, 65536, 127, 768, 2048),
        choices_grouped_key("moe_down_fwd", false, 65536, 128, 2048, 768),
        choices_grouped_key("moe_down_fwd", false, 65536, 128, 768, 2049),
        choices_grouped_key("moe_down_fwd", false, 65536, 128, 769, 2048),
    };
    for (size_t i = 0; i < sizeof other / sizeof *other; i++) {
        CHECK(memcmp(&other[i], &key, sizeof key) != 0);
        CHECK(other[i].kinds >> 62 == 1); /* as no dense product's */
    }
}

static void another_tile_shape_has_to_be_faster_by_more_than_noise(void **state)
{
    CHECK_INT(shape_timed(*state, 1.016f, 1), 1);
    CHECK_INT(shape_timed(*state, 1.014f, 1), 0);
    CHECK_INT(shape_timed(*state, 1, 1), 0);
    CHECK_INT(shape_timed(*state, 1, 2), 0);
}

static void a_text_carries_tile_shapes(void **state)
{
    Place *p = *state;
    const float ms[] = { 2, 1 };
    const char *text = NULL;
    int taken = -1;
    ChoiceKey key = grouped_key();
    CHECK_INT(choices_shape_timed(p->choices, &key, tiles, 2, ms), 1);
    CHECK_OK(choices_text(p->choices, &p->arena, &text));
    CHECK(strstr(text, "\ntimed 65536 2048 768 128 1 1 583e814f75356e92 3 0 0 0 0 0 0 0\nend 1 ") !=
          NULL);
    Choices *resumed = table(p, MACHINE);
    CHECK_OK(choices_take(resumed, "manifest", text, &taken));
    CHECK_INT(taken, 1);
    CHECK_INT(choices_shape(resumed, &key, tiles, 2), 1);
    CHECK(!resumed->unsaved);
}

/* Programs wrote this before grouped products were timed. */
static const char older[] = "switchyard products 1\n"
                            "machine Some GPU, driver for CUDA 13.0, cuBLASLt 130100\n"
                            "timed 4096 3072 2048 2048 2048 3072 1010100e 2b 15 0 0 1c 0 0 0\n"
                            "plain 129 65 31 31 65 65 2020208 0 0 0 0 0 0 0 0\n"
                            "end 2 4014bf6e9d1bc241\n";

static void an_older_text_is_taken_and_names_no_tile_shape(void **state)
{
    Place *p = *state;
    const char *text = NULL;
    int taken = -1;
    ChoiceKey key = grouped_key();
    CHECK_OK(choices_take(p->choices, "manifest", older, &taken));
    CHECK_INT(taken, 2);
    CHECK_INT(choices_shape(p->choices, &key, tiles, 2), -1);
    CHECK_OK(choices_text(p->choices, &p->arena, &text));
    CHECK_TEXT(text, older);
}

static void a_tile_shape_that_the_product_does_not_have_gives_way_to_its_first(void **state)
{
    CHECK_INT(shape_of(*state, 3, 0), 1);
    CHECK_INT(shape_of(*state, 1, 0), 0);
    CHECK_INT(shape_of(*state, 2, 0), 0);
    CHECK_INT(shape_of(*state, 99, 0), 0);
    CHECK_INT(shape_of(*state, 3 | 1ull << 32, 0), 0);
    CHECK_INT(shape_of(*state, 3, 1), 0); /* a later program says more */
}

static void a_full_table_takes_no_tile_shape(void **state)
{
    Place *p = *state;
    const float ms[] = { 2, 1 };
    ChoiceKey key = grouped_key();
    for (int64_t i = 1; i <= CHOICES_MAX; i++) add(p->choices, i, CHOICE_FIRST);
    CHECK_INT(choices_shape_timed(p->choices, &key, tiles, 2, ms), 0);
    CHECK_INT(choices_shape(p->choices, &key, tiles, 2), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        PLACE_TEST(a_full_table_finds_all_that_it_took_and_takes_no_more),
        PLACE_TEST(keys_that_differ_in_one_number_are_two_choices),
        PLACE_TEST(the_text_is_the_one_in_the_header),
        PLACE_TEST(a_manifest_carries_all_kinds),
        PLACE_TEST(what_is_known_stays_as_it_is),
        PLACE_TEST(a_cleared_table_takes_the_first_of_several_texts),
        PLACE_TEST(choices_of_another_machine_are_not_taken),
        PLACE_TEST(an_exec_without_a_table_has_nothing_to_do),
        PLACE_TEST(a_damaged_text_is_refused_as_a_whole),
        PLACE_TEST(what_was_timed_comes_back_from_the_cache_file),
        PLACE_TEST(two_processes_add_to_one_file),
        PLACE_TEST(a_damaged_file_is_passed_over_and_replaced),
        PLACE_TEST(a_folder_that_cannot_be_made_is_no_failure),
        TEST(each_grouped_product_has_an_entry_of_its_own),
        PLACE_TEST(another_tile_shape_has_to_be_faster_by_more_than_noise),
        PLACE_TEST(a_text_carries_tile_shapes),
        PLACE_TEST(an_older_text_is_taken_and_names_no_tile_shape),
        PLACE_TEST(a_tile_shape_that_the_product_does_not_have_gives_way_to_its_first),
        PLACE_TEST(a_full_table_takes_no_tile_shape),
    };
    return TEST_RUN(tests);
}
