/* The mesh for the ranks that are left: it shares out the batch, and the mathematics stays. */
#include "harness/test.h"

#include "engine/base/text.h"
#include "supervise/mesh.h"

static Arena arena;

static int begin(void **state)
{
    (void)state;
    CHECK_OK(arena_init(&arena, "test", MEM_HOST, (size_t)4 << 30));
    return 0;
}

static int end(void **state)
{
    (void)state;
    arena_free(&arena);
    return 0;
}

static Config config_of(const char *const *settings, int n)
{
    Config c;
    CHECK_OK(config_load(&c, &arena, "quickstart", settings, n));
    return c;
}

#define CONFIG(...)                                                                                \
    config_of((const char *const[]){ __VA_ARGS__ },                                                \
              sizeof(const char *[]){ __VA_ARGS__ } / sizeof(const char *))

static const char *setting(const OtherMesh *m, const char *name)
{
    for (int i = 0; i < m->settings.n; i++)
        if (text_starts(m->settings.word[i], name)) return m->settings.word[i] + strlen(name);
    fail_msg("%s is not set", name);
    return "";
}

static int number(const OtherMesh *m, const char *name) { return atoi(setting(m, name)); }

/* 11 is a prime: neither sequences nor layers, heads or experts divide by it. */
static void the_most_ranks_that_share_out_the_batch_are_taken(void **state)
{
    (void)state;
    OtherMesh m;
    const Config c = CONFIG("train.batch=8", "train.micro_batch=1", "mesh.ep=4");
    CHECK_OK(supervise_mesh(&c, 11, "h100", &arena, &m));
    CHECK(m.ranks >= 8 && m.ranks < 11);
    const int replicas =
        m.ranks / (number(&m, "mesh.pp=") * number(&m, "mesh.cp=") * number(&m, "mesh.tp="));
    CHECK_INT(8 % (replicas * number(&m, "train.micro_batch=")), 0);
    CHECK(m.text[0] != '\0');
}

static void the_size_of_a_pass_stays_where_the_loss_depends_on_it(void **state)
{
    (void)state;
    OtherMesh m;
    const Config c =
        CONFIG("train.batch=8", "train.micro_batch=1", "moe.aux_scope=batch", "moe.aux_loss=0.01");
    CHECK_OK(supervise_mesh(&c, 2, "h100", &arena, &m));
    CHECK_INT(number(&m, "train.micro_batch="), 1);
    const Config any = CONFIG("train.batch=8", "train.micro_batch=1");
    CHECK_OK(supervise_mesh(&any, 2, "h100", &arena, &m));
    CHECK(number(&m, "train.micro_batch=") > 1); /* which is faster */
}

static void a_loss_of_all_ranks_keeps_its_mesh(void **state)
{
    (void)state;
    OtherMesh m;
    const Config c =
        CONFIG("train.batch=8", "train.micro_batch=1", "moe.aux_scope=global", "moe.aux_loss=0.01");
    CHECK_FAILS(supervise_mesh(&c, 2, "h100", &arena, &m), ERR_UNSUPPORTED, "moe.aux_scope=global");
}

static void hardware_that_is_not_known_is_named(void **state)
{
    (void)state;
    OtherMesh m;
    const Config c = CONFIG("train.batch=8");
    CHECK(supervise_mesh(&c, 2, "h1000", &arena, &m) != OK);
    CHECK(strstr(status_message(), "h1000") != NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_most_ranks_that_share_out_the_batch_are_taken),
        TEST(the_size_of_a_pass_stays_where_the_loss_depends_on_it),
        TEST(a_loss_of_all_ranks_keeps_its_mesh),
        TEST(hardware_that_is_not_known_is_named),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
