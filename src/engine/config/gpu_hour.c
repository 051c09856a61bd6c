/* gpu_hour: reads a price and prints a cost. */
#include "engine/config/gpu_hour.h"

#include "engine/base/text.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double PRICE_MAX = 1e6, COUNTED_MAX = 1e15;

/* A currency is letters, $ and signs beyond ASCII, so no number and no blank is part of it. */
static size_t currency_bytes(const char *at)
{
    size_t n = 0;
    while (isalpha((unsigned char)at[n]) || at[n] == '$' || (unsigned char)at[n] >= 0x80) n++;
    return n;
}

static bool read_price(const char *text, GpuHour *out)
{
    const char *first = text + strspn(text, " ");
    const size_t before = currency_bytes(first);
    const char *number = first + before + strspn(first + before, " ");
    const size_t digits = strspn(number, "0123456789.");
    char *end = NULL;
    /* strtod alone takes signs, 1e3 and 0x10, too */
    out->price = digits > 0 ? strtod(number, &end) : 0;
    if (end != number + digits || !(out->price > 0 && out->price <= PRICE_MAX)) return false;
    const char *second = end + strspn(end, " ");
    const size_t after = currency_bytes(second), n = before + after;
    size_t bad = 0;
    if ((before > 0 && after > 0) || n >= sizeof out->currency) return false;
    memcpy(out->currency, before > 0 ? first : second, n);
    return second[after + strspn(second + after, " ")] == '\0' &&
           text_utf8_valid(text, strlen(text), &bad);
}

Status gpu_hour_read(const Config *c, GpuHour *out)
{
    *out = (GpuHour){ 0 };
    if (*c->plan_gpu_hour == '\0' || read_price(c->plan_gpu_hour, out)) return OK;
    return FAIL(
        ERR_ARG,
        "plan.gpu_hour is \"%.40s\", must be a number above 0, at most %g, with at most one "
        "currency of 15 bytes: write 2.5, \"2.5 EUR\" or \"$2.5\"",
        c->plan_gpu_hour, PRICE_MAX);
}

GpuHour gpu_hour_of(const Config *c)
{
    GpuHour g;
    if (gpu_hour_read(c, &g) != OK) status_clear();
    return g;
}

/* Below 100 with two decimals, above 1e15 with three digits. */
const char *gpu_hour_cost(char out[GPU_HOUR_COST_BYTES], const GpuHour *g, double hours)
{
    const double cost = g->price * hours;
    char number[32];
    if (cost < 100 || cost > COUNTED_MAX)
        (void)snprintf(number, sizeof number, cost < 100 ? "%.2f" : "%.3g", cost);
    else
        (void)text_thousands(number, llround(cost));
    (void)snprintf(out, GPU_HOUR_COST_BYTES, "%s%s%s", number, *g->currency == '\0' ? "" : " ",
                   g->currency);
    return out;
}
