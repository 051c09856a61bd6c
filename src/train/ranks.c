/* ranks: compares the programs and settings of the ranks at the start, and their times once a step. */
#include "train/ranks.h"

#include "base/file.h"
#include "base/log.h"
#include "train/agree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A rank is slow above SLOW times the median, and SLOW_LEAST_S above it: less is the scheduler's noise. */
static const double SLOW = 1.2, SLOW_LEAST_S = 0.01;
enum { SLOW_STEPS = 3, LINE_BYTES = 120 };

Status ranks_open(Ranks *r, Comm *world, Arena *a)
{
    int64_t n = world == NULL ? 1 : world->size;
    *r = (Ranks){ .world = world };
    TRY(ARENA_ZEROED(a, n, &r->all));
    TRY(ARENA_ZEROED(a, n, &r->sorted));
    return ARENA_ZEROED(a, n, &r->slow);
}

/* Agreement. */

/* Fails at the first line that differs. */
static Status same_lines(const char *what, const char *mine, const char *first)
{
    for (int line = 1;; line++) {
        int a = (int)strcspn(mine, "\n"), b = (int)strcspn(first, "\n");
        if (a != b || memcmp(mine, first, (size_t)a) != 0)
            return FAIL(ERR_ARG, "%s is not rank 0's: line %d is \"%.*s\" here, \"%.*s\" there",
                        what, line, a < LINE_BYTES ? a : LINE_BYTES, mine,
                        b < LINE_BYTES ? b : LINE_BYTES, first);
        if (mine[a] == '\0' && first[b] == '\0') return OK;
        mine += a + (mine[a] != '\0');
        first += b + (first[b] != '\0');
    }
}

/* Rank 0's text on all ranks, in `a`. */
static Status first_text(Comm *world, const char *text, Arena *a, char **out)
{
    size_t bytes = strlen(text) + 1;
    TRY(agree_first(world, &bytes, sizeof bytes));
    TRY(ARENA_ZEROED(a, bytes, out));
    if (world->rank == 0) memcpy(*out, text, bytes);
    return agree_first(world, *out, bytes);
}

/* Compares with rank 0 instead of all with all: one broadcast, and each rank finds its own
 * difference. */
Status ranks_agree(Comm *world, const char *what, const char *text)
{
    Arena a = { 0 };
    TRY(agree_status(world, arena_reserve(&a, "agreement", (size_t)1 << 30)));
    char *first = NULL;
    Status s = first_text(world, text, &a, &first);
    if (s == OK) s = agree_status(world, same_lines(what, text, first));
    arena_free(&a);
    return s;
}

/* The running file itself: two builds with one version number still differ here. */
Status ranks_build(char *out, size_t out_bytes)
{
    char sum[FILE_SUM_BYTES];
    TRY(file_sum("/proc/self/exe", sum));
    (void)snprintf(out, out_bytes, "sum %s\n", sum);
    return OK;
}

/* Steps. */

static int compare_floats(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Sets the least, median and most of each field. */
static void set_spread(Ranks *r, int n)
{
    for (int f = 0; f < RANK_FIELDS; f++) {
        for (int i = 0; i < n; i++) r->sorted[i] = r->all[i].of[f];
        qsort(r->sorted, (size_t)n, sizeof *r->sorted, compare_floats);
        r->spread.least.of[f] = r->sorted[0];
        r->spread.median.of[f] = r->sorted[(n - 1) / 2];
        r->spread.most.of[f] = r->sorted[n - 1];
    }
    for (int i = 0; i < n; i++) {
        if (r->all[i].of[RANK_OWN_S] >= r->spread.most.of[RANK_OWN_S]) r->spread.slowest = i;
    }
}

/* One warning when a rank has been slow SLOW_STEPS times in a row; the count then goes on without another one. */
static void warn_of_slow_ranks(Ranks *r, int n)
{
    double median = (double)r->spread.median.of[RANK_OWN_S];
    for (int i = 0; i < n; i++) {
        double own = (double)r->all[i].of[RANK_OWN_S];
        r->slow[i] = own > SLOW * median && own > median + SLOW_LEAST_S ? r->slow[i] + 1 : 0;
        if (r->slow[i] != SLOW_STEPS || r->world->rank > 0) continue;
        log_warn("rank %d is slow: %.3f s of its own in each of the last %d steps or more, the "
                 "median rank takes %.3f s",
                 i, own, (int)SLOW_STEPS, median);
    }
}

/* One all-gather a step over host memory. Every rank computes the same spread; only rank 0
 * warns. */
Status ranks_step(Ranks *r, const RankStep *mine)
{
    int rank = r->world == NULL ? 0 : r->world->rank, n = r->world == NULL ? 1 : r->world->size;
    r->all[rank] = *mine;
    if (n > 1) {
        Tensor in = { &r->all[rank], DTYPE_F32, 1, { RANK_FIELDS } };
        Tensor out = { r->all, DTYPE_F32, 1, { (int64_t)n * RANK_FIELDS } };
        TRY(comm_all_gather(r->world, &in, &out));
    }
    set_spread(r, n);
    if (n > 1) warn_of_slow_ranks(r, n);
    return OK;
}
