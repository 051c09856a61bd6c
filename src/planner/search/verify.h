/* verify: runs layouts of a search on the machine at hand, and corrects the plan by what they took.
 *
 * Each layout is a process of its own, `switchyard bench step --json` with the layout's settings, under a time limit.
 * One that fails or hangs is named, and the others go on.
 *
 * The correction multiplies three groups of a step's parts by factors: compute (with slowed, slowest, update, host and
 * checkpoint), exchange (with context and sends), gradients. The bubble counts to compute and exchange by their
 * sizes. The factors minimise, over the measured layouts i with parts x_ik and measured times t_i,
 *
 *     sum_i (sum_k f_k x_ik / t_i - 1)^2 + r sum_k (f_k / f - 1)^2,
 *
 * f the best common factor. The second term (ridge regression) decides where few layouts do not: then all parts have
 * that common factor.
 *
 * Not here: what runs and how it is timed (bench/), and what is printed (planner/command/plan_verify.c). */
#ifndef PLANNER_SEARCH_VERIFY_H
#define PLANNER_SEARCH_VERIFY_H

#include "engine/host/process.h"
#include "planner/search/search.h"

enum { VERIFY_MAX = 64, VERIFY_WHY_BYTES = 400 };

typedef enum VerifyPart {
    VERIFY_COMPUTE,
    VERIFY_EXCHANGE,
    VERIFY_GRADIENTS,
    VERIFY_PARTS
} VerifyPart;

extern const char *const verify_part_names[VERIFY_PARTS];

/* A layout that was run. */
typedef struct VerifyRun {
    const SearchRow *row;
    bool ran;
    char why[VERIFY_WHY_BYTES];  /* if it did not run: the sentence of its error, or that it hung */
    double step_s, tokens_per_s; /* median; of all ranks */
    double spread;               /* the 99th percentile of step times over the median */
    double bytes;                /* on a GPU in use, the fullest; else the arenas of rank 0 */
    bool on_gpu;
    const char *machine; /* what bench calls it */
} VerifyRun;

typedef struct VerifyFit {
    int n; /* layouts that ran; 0: all factors are 1 */
    double factor[VERIFY_PARTS];
    double before, after; /* mean of |planned / measured - 1|, without and with the factors */
} VerifyFit;

/* Chooses up to `want` of n rows, which are the best first. Half of them are the best of each combination of pp, ep and
 * cp, since such layouts teach most. The others are the best that differ also in their ZeRO stage or in what they
 * recompute; then any. Returns how many; chosen[] has their numbers, rising. */
int verify_choose(const SearchRow *row, int n, int want, int chosen[VERIFY_MAX]);

/* Appends the settings (section.key=value) with which `train`, `bench` and `plan` take a row's layout. The row has
 * its partition. ERR_ARG: too many words. */
Status verify_settings(const Config *c, const SearchRow *row, Arena *a, ProcessWords *out);
/* Appends the words of a text, split at blanks. ERR_ARG: too many. */
Status verify_words(ProcessWords *out, Arena *a, const char *words);

/* verify_run.c: runs a command that prints the JSON of `bench step`, and fills all of *out but `row`. The command may take limit_s
 * seconds; then it and all that it started are ended. ERR_INTERRUPTED: Ctrl-C came. Other failures are not ours: they
 * stand in out->why. */
Status verify_run(const ProcessWords *c, double limit_s, Arena *a, VerifyRun *out);

/* Reads the line that `bench step --json` prints; a launcher may print others around it. Without one `why` says so. */
Status verify_read(char *said, Arena *a, VerifyRun *out);

/* Fits the factors to the runs that ran. */
void verify_fit(const VerifyRun *run, int n, VerifyFit *out);
/* Seconds of a step by the corrected plan. */
double verify_step_s(const VerifyFit *f, const PlanPrice *p);

#endif
