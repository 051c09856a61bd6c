/*
 * attention_tile: products of strips and panels, with the sums in registers. One loop serves four forms (plain or
 * transposed a, f32 or pairs of bf16): it is inlined with constants, so that each form gets its own unrolled code.
 */
#include "kernels/attention/attention_tile.h"

#include <string.h>

/* A constant in every inlined copy of tile_run_form, so loops unroll and sums stay in registers.
 * turned: a is read transposed. */
typedef struct Form {
    int panels;
    bool turned, pairs;
} Form;

typedef Vector Sums[STRIP][WIDE];

/* Adds `steps` steps of the sum over k. All these steps lie in one panel of a. */
static inline __attribute__((always_inline)) void steps_run(Sums sum, const float *a, Panels b,
                                                            int64_t steps, Form form)
{
    const int64_t row = form.turned ? 1 : LANES, step = form.turned ? LANES : 1;
    for (int64_t k = 0; k < steps; k++, a += step, b.at += LANES) {
        Vector x[WIDE];
#pragma GCC unroll 3
        for (int p = 0; p < form.panels; p++) x[p] = vector_load(b.at + p * b.stride);
#pragma GCC unroll 8
        for (int r = 0; r < STRIP; r++) {
#pragma GCC unroll 3
            for (int p = 0; p < form.panels; p++) {
                sum[r][p] = form.pairs ? vector_add_pairs(sum[r][p], a[r * row], x[p])
                                       : vector_add_product(sum[r][p], a[r * row], x[p]);
            }
        }
    }
}

static inline __attribute__((always_inline)) void tile_run_form(const StripProduct *t, Panels b,
                                                                Panels c, Form form)
{
    Sums sum;
#pragma GCC unroll 8
    for (int64_t r = 0; r < STRIP; r++) {
        const float *at = c.at + r * LANES;
#pragma GCC unroll 3
        for (int p = 0; p < form.panels; p++) {
            sum[r][p] = t->add ? vector_load(at + p * c.stride) : (Vector){ 0 };
        }
    }
    if (form.turned) {
        steps_run(sum, t->a.at, b, t->steps, form);
    } else {
        const float *a = t->a.at;
        const int64_t square = (int64_t)LANES * LANES;
        int64_t left = t->steps;
        for (; left > LANES; left -= LANES, a += t->a.stride, b.at += square) {
            steps_run(sum, a, b, LANES, form);
        }
        steps_run(sum, a, b, left, form);
    }
#pragma GCC unroll 8
    for (int64_t r = 0; r < STRIP; r++) {
        float *at = c.at + r * LANES;
#pragma GCC unroll 3
        for (int p = 0; p < form.panels; p++) {
            vector_store(at + p * c.stride, sum[r][p]);
        }
    }
}

/* Three panels at a time. The last one or two have code of their own, so no product is computed in vain. */
static inline __attribute__((always_inline)) void tiles_run(const StripProduct *t, Form form)
{
    for (int64_t p = 0; p < t->panels; p += WIDE) {
        Panels b = panels_at(t->b, p, 0), c = panels_at(t->c, p, 0);
        int64_t left = t->panels - p;
        if (left >= WIDE) {
            tile_run_form(t, b, c, (Form){ WIDE, form.turned, form.pairs });
        } else if (left == 2) {
            tile_run_form(t, b, c, (Form){ 2, form.turned, form.pairs });
        } else {
            tile_run_form(t, b, c, (Form){ 1, form.turned, form.pairs });
        }
    }
}

void strip_product(const StripProduct *t)
{
    t->pairs ? tiles_run(t, (Form){ .pairs = true }) : tiles_run(t, (Form){ .pairs = false });
}

void strip_product_turned(const StripProduct *t)
{
    t->pairs ? tiles_run(t, (Form){ .turned = true, .pairs = true })
             : tiles_run(t, (Form){ .turned = true, .pairs = false });
}

/* Rows up to a multiple of STRIP are written, since products read whole strips. */
void rows_load(Panels to, const void *from, Word word, int64_t ld, int64_t rows, int64_t elems)
{
    size_t each = word_elem_bytes(word);
    int64_t width = LANES * word_elems(word), panels = (elems + width - 1) / width;
    int64_t whole = (rows + STRIP - 1) / STRIP * STRIP;
    for (int64_t r = 0; r < whole; r++) {
        for (int64_t p = 0; p < panels; p++) {
            const char *at = (const char *)from + (size_t)(r * ld + p * width) * each;
            Vector v = { 0 };
            if (r < rows) v = line_words(at, word, elems - p * width);
            vector_store(to.at + p * to.stride + r * LANES, v);
        }
    }
}
