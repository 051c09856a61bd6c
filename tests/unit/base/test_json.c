#include "harness/test.h"

#include "base/text.h"

typedef struct Out {
    Arena arena;
    Text text;
    Json json;
} Out;

static void out_open(Out *o)
{
    *o = (Out){ 0 };
    CHECK_OK(arena_init(&o->arena, "test", MEM_HOST, 1 << 20));
    CHECK_OK(text_init(&o->text, &o->arena));
    o->json = json_begin(&o->text);
}

static void out_close(Out *o) { arena_free(&o->arena); }

static void commas_stand_between_and_nowhere_else(void **state)
{
    (void)state;
    Out o;
    out_open(&o);
    Json *j = &o.json;
    CHECK_OK(json_object(j));
    CHECK_OK(json_key(j, "step"));
    CHECK_OK(json_int(j, 7));
    CHECK_OK(json_key(j, "loss"));
    CHECK_OK(json_double(j, 2.5));
    CHECK_OK(json_key(j, "load"));
    CHECK_OK(json_array(j));
    CHECK_OK(json_int(j, 1));
    CHECK_OK(json_string(j, "x"));
    CHECK_OK(json_array_end(j));
    CHECK_OK(json_key(j, "ok"));
    CHECK_OK(json_int(j, 1));
    CHECK_OK(json_object_end(j));
    CHECK_TEXT(o.text.data, "{\"step\":7,\"loss\":2.5,\"load\":[1,\"x\"],\"ok\":1}");
    out_close(&o);
}

static void empty_objects_and_arrays_nest(void **state)
{
    (void)state;
    Out o;
    out_open(&o);
    Json *j = &o.json;
    CHECK_OK(json_array(j));
    for (int i = 0; i < 2; i++) {
        CHECK_OK(json_object(j));
        CHECK_OK(json_object_end(j));
        CHECK_OK(json_array(j));
        CHECK_OK(json_array_end(j));
    }
    CHECK_OK(json_array_end(j));
    CHECK_TEXT(o.text.data, "[{},[],{},[]]");
    out_close(&o);
}

static void the_deepest_level_is_usable(void **state)
{
    (void)state;
    Out o;
    out_open(&o);
    for (int i = 0; i < 31; i++) CHECK_OK(json_array(&o.json));
    CHECK_OK(json_int(&o.json, 1));
    CHECK_OK(json_int(&o.json, 2));
    for (int i = 0; i < 31; i++) CHECK_OK(json_array_end(&o.json));
    CHECK(strstr(o.text.data, "[[1,2]]") != NULL);
    CHECK_INT(o.text.used, 65);
    out_close(&o);
}

static void text_goes_on_behind_what_is_there(void **state)
{
    (void)state;
    Out o;
    out_open(&o);
    CHECK_OK(text_printf(&o.text, "data: "));
    CHECK_OK(json_int(&o.json, 3));
    CHECK_TEXT(o.text.data, "data: 3");
    out_close(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(commas_stand_between_and_nowhere_else),
        TEST(empty_objects_and_arrays_nest),
        TEST(the_deepest_level_is_usable),
        TEST(text_goes_on_behind_what_is_there),
    };
    return TEST_RUN(tests);
}
