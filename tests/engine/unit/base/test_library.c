#include "harness/test.h"

#include "engine/host/library.h"

#include <dlfcn.h>
#include <math.h>

typedef struct Calls {
    double (*cosine)(double);
    double (*renamed)(double);
    double (*absent)(double);
} Calls;

/* Of the C library's mathematics, which every machine of ours has. */
static const LibraryCall CALLS[] = {
    { "cos", NULL, offsetof(Calls, cosine), false },
    { "cosine_of_tomorrow", "sqrt", offsetof(Calls, renamed), false },
    { "cosine_of_never", NULL, offsetof(Calls, absent), true },
};

static Library library_of(const char *file, int least, int (*version)(const void *))
{
    return (Library){ file, "cosines", "buy a slide rule", CALLS, 3, least, version };
}

static int asked;

static int seven(const void *table)
{
    asked++;
    const Calls *c = table;
    CHECK_NEAR(c->cosine(0), 1, 0); /* the table is filled before the library is asked */
    return 7;
}

static int never(const void *table)
{
    (void)table;
    fail_msg("a library was asked that its name had ruled out");
    return 0;
}

static void functions_are_found_by_either_name(void **state)
{
    (void)state;
    void *file = NULL;
    Calls c = { .absent = cos };
    const Library l = library_of("libm.so.6", 7, seven);
    CHECK_OK(library_open(&l, &c, &file));
    CHECK_NEAR(c.cosine(0), 1, 0);
    CHECK_NEAR(c.renamed(9), 3, 0);
    CHECK(c.absent == NULL && file != NULL);
    CHECK_INT(dlclose(file), 0);
}

static void what_is_missing_is_one_sentence_with_the_places_and_the_advice(void **state)
{
    (void)state;
    static const LibraryCall needed[] = { { "cosine_of_never", NULL, 0, false } };
    void *file = NULL;
    Calls c = { 0 };
    Library l = library_of("libcosine.so.3", 0, NULL);
    CHECK_FAILS(library_open(&l, &c, &file), ERR_UNSUPPORTED,
                "libcosine.so.3 (cosines) was not found in the loader's path, "
                "/usr/local/cuda/lib64, ");
    CHECK_FAILS(library_open(&l, &c, &file), ERR_UNSUPPORTED, "/lib: buy a slide rule");
    l = library_of("libm.so.6", 0, NULL);
    l.call = needed;
    l.calls = 1;
    CHECK_FAILS(library_open(&l, &c, &file), ERR_UNSUPPORTED,
                "libm.so.6 has no function cosine_of_never, and there is no other in the loader's");
    CHECK(file == NULL);
}

/* Asking loads what the next candidate would take for its own, so none is looked for. */
static void a_library_that_says_it_is_too_old_is_the_last(void **state)
{
    (void)state;
    void *file = NULL;
    Calls c = { 0 };
    const Library l = library_of("libm.so.6", 8, seven);
    asked = 0;
    CHECK_FAILS(library_open(&l, &c, &file), ERR_UNSUPPORTED,
                "libm.so.6 is version 7, 8 is needed: buy a slide rule");
    CHECK_INT(asked, 1);
}

static void a_version_in_the_name_is_enough_to_refuse(void **state)
{
    (void)state;
    static const LibraryCall parse[] = { { "cJSON_Parse", NULL, 0, false } };
    void *file = NULL;
    Calls c = { 0 };
    Library l = library_of("libcjson.so.1", 20000, never);
    l.call = parse;
    l.calls = 1;
    CHECK_FAILS(library_open(&l, &c, &file), ERR_UNSUPPORTED, "is version 107");
    l.least = 10000;
    l.version = NULL;
    CHECK_OK(library_open(&l, &c, &file));
    CHECK_INT(dlclose(file), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(functions_are_found_by_either_name),
        TEST(what_is_missing_is_one_sentence_with_the_places_and_the_advice),
        TEST(a_library_that_says_it_is_too_old_is_the_last),
        TEST(a_version_in_the_name_is_enough_to_refuse),
    };
    return TEST_RUN(tests);
}
