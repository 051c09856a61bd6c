/* group: see group.h. Sums are added in numpy's order, so that tables have the digits that pandas
 * gives. */
#include "traces/table/group.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Mixes the words of a key: multiply by the golden ratio, then fold the high bits down. */
static uint32_t hash_of(const uint32_t *key, int width)
{
    uint64_t h = 0;
    for (int i = 0; i < width; i++) h = (h ^ key[i]) * 0x9E3779B97F4A7C15u, h ^= h >> 29;
    return (uint32_t)(h >> 16);
}

/* The slot of the first row whose key equals `want`, or the free slot where it belongs. */
static uint32_t find_slot(const uint32_t *slot, uint32_t mask, const uint32_t *key,
                          const uint32_t *want, int width)
{
    uint32_t s = hash_of(want, width) & mask;
    size_t bytes = (size_t)width * sizeof *key;
    while (slot[s] != UINT32_MAX && memcmp(key + (size_t)slot[s] * (size_t)width, want, bytes) != 0)
        s = (s + 1) & mask;
    return s;
}

/* Groups by a hash table, then a counting sort by group. Rows of a group keep their order, and
 * groups are in the order of their first rows. */
Status groups_make(const uint32_t *key, int width, int64_t rows, Arena *a, Groups *out)
{
    Groups g = { 0 };
    uint32_t slots = 16, *slot = NULL;
    while (slots < 2 * rows) slots *= 2;
    TRY(ARENA_NEW(a, rows + 1, &g.of));
    TRY(ARENA_NEW(a, rows + 1, &g.row));
    TRY(ARENA_ZEROED(a, rows + 2, &g.first));
    ArenaMark mark = arena_mark(a);
    TRY(ARENA_NEW(a, slots, &slot)); /* open addressing: the first row of a group */
    /* UINT32_MAX: free */
    memset(slot, 0xFF, slots * sizeof *slot);
    for (uint32_t i = 0; i < rows; i++) {
        uint32_t s = find_slot(slot, slots - 1, key, key + (size_t)i * (size_t)width, width);
        if (slot[s] == UINT32_MAX) {
            slot[s] = i;
            g.of[i] = (uint32_t)g.n++;
        } else {
            g.of[i] = g.of[slot[s]];
        }
        g.first[g.of[i] + 1]++;
    }
    arena_release(a, mark);
    for (int64_t i = 0; i < g.n; i++) g.first[i + 1] += g.first[i];
    /* first[g + 1] is the fill position of group g while rows are placed, and its end
     * afterwards. */
    memmove(g.first + 1, g.first, (size_t)g.n * sizeof *g.first);
    for (uint32_t i = 0; i < rows; i++) g.row[g.first[g.of[i] + 1]++] = i;
    *out = g;
    return OK;
}

static int by_number(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

void sort_numbers(double *x, int64_t n)
{
    if (n > 0) qsort(x, (size_t)n, sizeof *x, by_number);
}

double median_of(double *x, int64_t n)
{
    sort_numbers(x, n);
    return n == 0 ? (double)NAN : (x[(n - 1) / 2] + x[n / 2]) / 2;
}

static int by_id(const void *a, const void *b)
{
    const uint32_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

void sort_ids(uint32_t *x, int64_t n)
{
    if (n > 0) qsort(x, (size_t)n, sizeof *x, by_id);
}

/* A value to sort, with where it was. */
typedef struct Ranked {
    double value;
    uint32_t index;
} Ranked;

static int by_value(const void *a, const void *b)
{
    const Ranked *x = a, *y = b;
    if (x->value != y->value) return x->value < y->value ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

/* Sorts indices by value times sign. qsort is not stable, so the index decides between equal
 * values. */
static Status rank_indices(const double *value, double sign, int64_t n, Arena *a, uint32_t **out)
{
    Ranked *ranked = NULL;
    TRY(ARENA_NEW(a, n + 1, out));
    ArenaMark mark = arena_mark(a);
    TRY(ARENA_NEW(a, n + 1, &ranked));
    for (int64_t i = 0; i < n; i++) ranked[i] = (Ranked){ sign * value[i], (uint32_t)i };
    qsort(ranked, (size_t)n, sizeof *ranked, by_value);
    for (int64_t i = 0; i < n; i++) (*out)[i] = ranked[i].index;
    arena_release(a, mark);
    return OK;
}

Status groups_by(const double *value, int64_t n, Arena *a, uint32_t **out)
{
    return rank_indices(value, -1, n, a, out);
}

Status groups_rising(const double *value, int64_t n, Arena *a, uint32_t **out)
{
    return rank_indices(value, 1, n, a, out);
}

/* Pairwise summation in numpy's order: eight sums side by side in blocks of at most 128, and blocks
 * added by halves. It rounds less than adding one by one, and gives the digits of tables made with
 * pandas. */
static double sum_of(const double *v, int64_t n)
{
    enum { WAYS = 8, BLOCK = 128 };
    double r[WAYS], sum = 0;
    int64_t i = 0;
    if (n > BLOCK) {
        int64_t half = n / 2 - n / 2 % WAYS;
        return sum_of(v, half) + sum_of(v + half, n - half);
    }
    if (n >= WAYS) {
        /* Eight running sums, added as a tree. */
        memcpy(r, v, sizeof r);
        for (i = WAYS; i < n - n % WAYS; i++) r[i % WAYS] += v[i];
        sum = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]));
    }
    for (; i < n; i++) sum += v[i];
    return sum;
}

/* Makes the groups, then copies them in the order of their sums. */
Status groups_ranked(const uint32_t *key, int width, const double *value, bool magnitude,
                     int64_t rows, Arena *a, Groups *out)
{
    Groups g, r = { 0 };
    uint32_t *order = NULL;
    double *sum = NULL, *rank = NULL, *of_group = NULL;
    TRY(groups_make(key, width, rows, a, &g));
    TRY(ARENA_NEW(a, rows + 1, &of_group));
    TRY(ARENA_NEW(a, g.n + 1, &sum));
    TRY(ARENA_NEW(a, g.n + 1, &rank));
    for (int64_t i = 0; i < rows; i++) of_group[i] = value == NULL ? 1 : value[g.row[i]];
    for (int64_t k = 0; k < g.n; k++) {
        sum[k] = sum_of(of_group + g.first[k], g.first[k + 1] - g.first[k]);
        rank[k] = magnitude ? fabs(sum[k]) : sum[k];
    }
    TRY(groups_by(rank, g.n, a, &order));
    TRY(ARENA_NEW(a, rows + 1, &r.row));
    TRY(ARENA_ZEROED(a, g.n + 1, &r.first));
    TRY(ARENA_NEW(a, g.n + 1, &r.sum));
    for (; r.n < g.n; r.n++) {
        int64_t n = 0;
        const uint32_t *row = groups_rows(&g, order[r.n], &n);
        memcpy(r.row + r.first[r.n], row, (size_t)n * sizeof *row);
        r.first[r.n + 1] = r.first[r.n] + (uint32_t)n;
        r.sum[r.n] = sum[order[r.n]];
    }
    *out = r;
    return OK;
}

/* The median needs sorted numbers. The sum is taken before sorting, in the order of the rows, so
 * that it has pandas' digits. */
Status summary_of(const double *value, const uint32_t *row, int64_t n, Arena *a, Summary *out)
{
    Summary s = { .n = n, .mean = NAN, .median = NAN, .min = NAN, .max = NAN, .std = NAN };
    double *sorted = NULL, squares = 0;
    ArenaMark mark = arena_mark(a);
    TRY(ARENA_NEW(a, n + 1, &sorted));
    for (int64_t i = 0; i < n; i++) sorted[i] = value[row == NULL ? i : row[i]];
    s.sum = sum_of(sorted, n);
    s.median = median_of(sorted, n);
    if (n > 0) {
        s.mean = s.sum / (double)n;
        s.min = sorted[0];
        s.max = sorted[n - 1];
    }
    for (int64_t i = 0; i < n; i++) squares += (sorted[i] - s.mean) * (sorted[i] - s.mean);
    if (n > 1) s.std = sqrt(squares / (double)(n - 1));
    arena_release(a, mark);
    *out = s;
    return OK;
}

/* Rescales the sample's deviation from n - 1 to n. */
double summary_std_all(const Summary *s)
{
    return s->n < 2 ? 0 : s->std * sqrt((double)(s->n - 1) / (double)s->n);
}
