/* ranks: compares the programs and settings of the ranks at the start, and their times once a step. */
#include "engine/train/ranks.h"

#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/gpu/gpu_state.h"
#include "engine/step/agree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A rank is slow above SLOW times the median, and SLOW_LEAST_S above it: less is the scheduler's noise. The clock of its
 * GPU is low under LOW times the median: those of equal GPUs under one load are within a few percent. */
static const double SLOW = 1.1, SLOW_LEAST_S = 0.01, LOW = 0.9;
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
    char *first = NULL;
    Status s = agree_status(world, arena_reserve(&a, "agreement", (size_t)1 << 30));
    if (s == OK) s = first_text(world, text, &a, &first);
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

static bool is_low(float value, float median) { return value > 0 && value < (float)LOW * median; }

/* By its own time, or by its GPU's clock: on GPUs the fast ranks wait inside of the step, which looks like work. */
static bool is_slow(const Ranks *r, const RankStep *rank)
{
    const float *of = rank->of, *median = r->spread.median.of;
    const double own = (double)of[RANK_OWN_S], usual = (double)median[RANK_OWN_S];
    return (own > SLOW * usual && own > usual + SLOW_LEAST_S) ||
           is_low(of[RANK_CLOCK_MHZ], median[RANK_CLOCK_MHZ]);
}

/* Why a rank may be slow, as far as its figures tell. */
static void say_cause(const Ranks *r, const RankStep *rank, char *out, size_t out_bytes)
{
    const float *of = rank->of, *median = r->spread.median.of;
    const char *word[GPU_REASONS_MAX];
    const int words = gpu_throttle_words((uint64_t)of[RANK_THROTTLE], word);
    out[0] = '\0';
    if (is_low(of[RANK_CLOCK_MHZ], median[RANK_CLOCK_MHZ])) {
        size_t n = text_add(out, out_bytes, 0, "; its clock is %.0f MHz, the median %.0f",
                            (double)of[RANK_CLOCK_MHZ], (double)median[RANK_CLOCK_MHZ]);
        for (int i = 0; i < words; i++)
            n = text_add(out, out_bytes, n, "%s%s", i == 0 ? ", throttled by " : " ", word[i]);
    } else if ((double)of[RANK_EXPERT_ROWS] > SLOW * (double)median[RANK_EXPERT_ROWS]) {
        (void)snprintf(out, out_bytes, "; its experts took %.0f rows, the median %.0f",
                       (double)of[RANK_EXPERT_ROWS], (double)median[RANK_EXPERT_ROWS]);
    } else {
        (void)snprintf(out, out_bytes, "; `switchyard doctor` tests its host");
    }
}

/* All ranks know of the slow one, so they can call for its host. */
static Status warn_of(Ranks *r, int rank)
{
    CommHostName host = { 0 };
    char cause[256];
    if (r->world->rank == rank) (void)gethostname(host.text, sizeof host.text - 1);
    const Tensor name = { host.text, DTYPE_U8, 1, { sizeof host.text } };
    TRY(comm_broadcast(r->world, &name, rank));
    say_cause(r, &r->all[rank], cause, sizeof cause);
    if (r->world->rank > 0) return OK;
    const double own = (double)r->all[rank].of[RANK_OWN_S],
                 median = (double)r->spread.median.of[RANK_OWN_S];
    log_warn(
        "rank %d is slow (host %s): %.3f s of computing in each of the last %d steps or more, %.2f "
        "times the median rank's %.3f s%s",
        rank, host.text, own, (int)SLOW_STEPS, own / median, median, cause);
    return OK;
}

/* One warning when a rank has been slow SLOW_STEPS times in a row; the count then goes on without another one. */
static Status find_slow_ranks(Ranks *r, int n)
{
    for (int i = 0; i < n; i++) {
        r->slow[i] = is_slow(r, &r->all[i]) ? r->slow[i] + 1 : 0;
        if (r->slow[i] == SLOW_STEPS) TRY(warn_of(r, i));
        if (r->slow[i] < SLOW_STEPS) continue;
        const bool more =
            r->spread.slow < 0 || r->all[i].of[RANK_OWN_S] > r->all[r->spread.slow].of[RANK_OWN_S];
        if (more) r->spread.slow = i;
    }
    return OK;
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
    r->spread.slow = -1;
    return n > 1 ? find_slow_ranks(r, n) : OK;
}
