/* generate_sample: which token is drawn from logits. The reference is the definition: sort, cut by
 * top-k, then by top-p, draw from what is left. */
#include "harness/test.h"

#include "engine/base/rng.h"
#include "serve/generate.h"

#include <stdlib.h>

enum { N_MAX = 300, DRAWS = 20000 };

typedef struct Case {
    float logits[N_MAX];
    int n;
    int32_t ids[N_MAX];
    float p[N_MAX];
} Case;

static void make_case(Case *c, int n, uint64_t seed)
{
    c->n = n;
    rng_fill_normal(c->logits, n, seed, rng_stream("logits"), 0, 2);
}

static int32_t draw(Case *c, GenerateOptions o, double u)
{
    for (int i = 0; i < c->n; i++) c->ids[i] = -1, c->p[i] = NAN;
    int32_t id = generate_sample(c->logits, c->n, &o, u, c->ids, c->p);
    CHECK(id >= 0 && id < c->n);
    return id;
}

static int argmax(const Case *c)
{
    int best = 0;
    for (int i = 1; i < c->n; i++) best = c->logits[i] > c->logits[best] ? i : best;
    return best;
}

/* Probability of each id by the definition. */
static void define(const Case *c, GenerateOptions o, double *prob)
{
    int order[N_MAX];
    double sum = 0, mass = 0;
    for (int i = 0; i < c->n; i++) order[i] = i;
    for (int i = 0; i < c->n; i++) {
        for (int j = i + 1; j < c->n; j++) {
            if (c->logits[order[j]] <= c->logits[order[i]]) continue;
            int swap = order[i];
            order[i] = order[j], order[j] = swap;
        }
    }
    for (int i = 0; i < c->n; i++) {
        prob[i] = exp(((double)c->logits[i] - (double)c->logits[order[0]]) / o.temperature);
    }
    int kept = o.top_k > 0 && o.top_k < c->n ? (int)o.top_k : c->n, i = 0;
    for (int k = 0; k < kept; k++) sum += prob[order[k]];
    do {
        mass += prob[order[i++]];
    } while (i < kept && mass < o.top_p * sum);
    for (; i < c->n; i++) prob[order[i]] = 0;
    for (int k = 0; k < c->n; k++) prob[k] /= mass;
}

/* Draws with u over [0, 1) evenly: each id comes as often as its probability says, to one draw at
 * either end of its part of [0, 1). */
static void check_draws(int n, GenerateOptions o)
{
    Case c;
    double prob[N_MAX];
    int drawn[N_MAX] = { 0 };
    make_case(&c, n, (uint64_t)n);
    define(&c, o, prob);
    for (int i = 0; i < DRAWS; i++) drawn[draw(&c, o, (i + 0.5) / DRAWS)]++;
    for (int i = 0; i < n; i++) {
        CHECK_NEAR(drawn[i], prob[i] * DRAWS, 2);
        if (prob[i] == 0) CHECK_INT(drawn[i], 0);
    }
}

static void draws_follow_the_softmax(void **state)
{
    (void)state;
    static const int sizes[] = { 1, 2, 7, 64, 257 };
    for (int i = 0; i < 5; i++)
        check_draws(sizes[i], (GenerateOptions){ .temperature = 1, .top_p = 1 });
}

static void temperature_sharpens_and_flattens(void **state)
{
    (void)state;
    check_draws(61, (GenerateOptions){ .temperature = 0.5, .top_p = 1 });
    check_draws(61, (GenerateOptions){ .temperature = 3, .top_p = 1 });
}

static void top_k_draws_from_the_k_likeliest(void **state)
{
    (void)state;
    static const int64_t k[] = { 1, 2, 5, 60, 61, 1000 };
    for (int i = 0; i < 6; i++) {
        check_draws(61, (GenerateOptions){ .temperature = 1, .top_p = 1, .top_k = k[i] });
    }
}

static void top_p_draws_from_the_fewest_that_hold_the_share(void **state)
{
    (void)state;
    static const double p[] = { 0, 1e-6, 0.3, 0.9, 0.999 };
    for (int i = 0; i < 5; i++)
        check_draws(61, (GenerateOptions){ .temperature = 1, .top_p = p[i] });
}

static void top_k_and_top_p_cut_together(void **state)
{
    (void)state;
    check_draws(61, (GenerateOptions){ .temperature = 0.8, .top_k = 4, .top_p = 0.95 });
    check_draws(61, (GenerateOptions){ .temperature = 0.8, .top_k = 40, .top_p = 0.5 });
}

/* 4, 3, 2 and 1 in 10. Of the first three, 9 in 10, the first two hold 7/9 >= 0.75; of all four
 * they hold 0.7 < 0.75. transformers' TopKLogitsWarper(3), TopPLogitsWarper(0.75) keep two. */
static void top_p_is_a_share_of_what_top_k_leaves(void **state)
{
    (void)state;
    Case c = { .n = 4 };
    int drawn[4] = { 0 };
    static const int32_t place[] = { 2, 0, 3, 1 };
    for (int i = 0; i < 4; i++) c.logits[place[i]] = logf((float)(4 - i));
    GenerateOptions o = { .temperature = 1, .top_k = 3, .top_p = 0.75 };
    for (int i = 0; i < 700; i++) drawn[draw(&c, o, (i + 0.5) / 700)]++;
    CHECK_INT(drawn[2], 400);
    CHECK_INT(drawn[0], 300);
    CHECK_INT(drawn[3] + drawn[1], 0);
}

static void temperature_0_takes_the_likeliest_and_the_first_of_equals(void **state)
{
    (void)state;
    Case c;
    make_case(&c, 97, 5);
    for (int i = 0; i < 10; i++) {
        CHECK_INT(draw(&c, (GenerateOptions){ .temperature = 0, .top_p = 1 }, i / 10.0),
                  argmax(&c));
    }
    c.logits[11] = c.logits[70] = 100;
    CHECK_INT(draw(&c, (GenerateOptions){ .temperature = 0, .top_p = 1 }, 0.99), 11);
}

static void the_same_number_draws_the_same_token(void **state)
{
    (void)state;
    Case c;
    make_case(&c, 257, 9);
    GenerateOptions o = { .temperature = 1.5, .top_p = 0.9, .top_k = 100 };
    for (int i = 0; i < 50; i++) {
        double u = rng_uniform(3, 4, (uint64_t)i);
        CHECK_INT(draw(&c, o, u), draw(&c, o, u));
    }
}

/* Probabilities that underflow and sums that end just below u must still give a token. */
static void far_logits_and_the_largest_number_are_safe(void **state)
{
    (void)state;
    Case c = { .n = 5, .logits = { -1e30F, 3, -1e30F, 3, -1e30F } };
    GenerateOptions o = { .temperature = 1, .top_p = 1 };
    double last = 1 - 1.0 / 4294967296.0; /* the largest that rng_uniform gives */
    CHECK(draw(&c, o, 0) != draw(&c, o, last));
    int32_t id = draw(&c, o, last);
    CHECK(id == 1 || id == 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(draws_follow_the_softmax),
        TEST(temperature_sharpens_and_flattens),
        TEST(top_k_draws_from_the_k_likeliest),
        TEST(top_p_draws_from_the_fewest_that_hold_the_share),
        TEST(top_k_and_top_p_cut_together),
        TEST(top_p_is_a_share_of_what_top_k_leaves),
        TEST(temperature_0_takes_the_likeliest_and_the_first_of_equals),
        TEST(the_same_number_draws_the_same_token),
        TEST(far_logits_and_the_largest_number_are_safe),
    };
    return TEST_RUN(tests);
}
