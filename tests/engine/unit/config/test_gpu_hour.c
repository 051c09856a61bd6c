/* plan.gpu_hour: what a price may be, and what hours cost. */
#include "engine/config/gpu_hour.h"
#include "harness/arena.h"

static Config config_with(const char *price)
{
    char set[80];
    Config c;
    CHECK_OK(config_default(&c, &arena));
    (void)snprintf(set, sizeof set, "plan.gpu_hour=%s", price);
    CHECK_OK(config_override(&c, &arena, set));
    return c;
}

static void a_price_is_a_number_and_a_currency(void **state)
{
    (void)state;
    static const char *const good[][2] = {
        { "2.5", "" },        { "2.5 EUR", "EUR" }, { " 2.5EUR ", "EUR" },
        { "USD 2.5", "USD" }, { "$2.5", "$" },      { "\xe2\x82\xac 2.5", "\xe2\x82\xac" },
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        const Config c = config_with(good[i][0]);
        CHECK_OK(config_check(&c));
        const GpuHour g = gpu_hour_of(&c);
        CHECK_NEAR(g.price, 2.5, 0);
        CHECK_TEXT(g.currency, good[i][1]);
    }
    const Config none = config_with("");
    CHECK_OK(config_check(&none));
    CHECK_NEAR(gpu_hour_of(&none).price, 0, 0);
}

static void what_is_no_price_is_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "-2.5",     "+2.5",      "nan",
        "inf EUR",  "EUR",       "0x10",
        "1e3",      "1.2.3",     ".",
        "2 3",      "2,5",       "2.5 EUR 3",
        "0",        "0.0 EUR",   "9999999",
        "$2.5 EUR", "EUR 2 EUR", "2.5 EUR USD",
        "2.5 <b>",  "2.5 EUR;",  "2.5 abcdefghijklmnop",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const Config c = config_with(bad[i]);
        CHECK_FAILS(config_check(&c), ERR_ARG, "must be a number above 0, at most 1e+06, with at");
    }
    Config cut = config_with("");
    cut.plan_gpu_hour = "2.5 \xe2\x82";
    CHECK_FAILS(config_check(&cut), ERR_ARG, "must be a number above 0");
}

static void a_cost_has_its_currency(void **state)
{
    (void)state;
    char out[GPU_HOUR_COST_BYTES];
    CHECK_TEXT(gpu_hour_cost(out, &(GpuHour){ 2.5, "EUR" }, 1e6), "2,500,000 EUR");
    CHECK_TEXT(gpu_hour_cost(out, &(GpuHour){ 2.5, "" }, 40), "100");
    CHECK_TEXT(gpu_hour_cost(out, &(GpuHour){ 2.5, "$" }, 0.1), "0.25 $");
    CHECK_TEXT(gpu_hour_cost(out, &(GpuHour){ 1e6, "" }, 1e13), "1e+19");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_price_is_a_number_and_a_currency),
        TEST(what_is_no_price_is_refused),
        TEST(a_cost_has_its_currency),
    };
    return ARENA_RUN(tests);
}
