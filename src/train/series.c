/* series: the table of figures that can be watched. */
#include "train/series.h"

#include <math.h>

static const char *const KEY[EACH_COUNT] = { "", "depth", "group", "layer", "source" };

static const struct {
    const char *name, *help;
    SeriesEach each;
    bool total;
} KIND[SERIES_KINDS] = {
    [SERIES_LOSS] = { "loss", "Training loss, nats a token", EACH_RUN, false },
    [SERIES_AUX_LOSS] = { "aux_loss", "Auxiliary loss", EACH_RUN, false },
    [SERIES_MTP_LOSS] = { "mtp_loss", "Loss of multi-token prediction", EACH_DEPTH, false },
    [SERIES_LR] = { "lr", "Learning rate", EACH_RUN, false },
    [SERIES_GRAD_NORM] = { "grad_norm", "Gradient norm before clipping", EACH_RUN, false },
    [SERIES_GROUP_NORM] = { "group_grad_norm", "Gradient norm of a group of parameters", EACH_GROUP,
                            false },
    [SERIES_TOKENS_PER_S] = { "tokens_per_s", "Tokens a second, all ranks", EACH_RUN, false },
    [SERIES_STEP_S] = { "step_s", "Seconds of a step", EACH_RUN, false },
    [SERIES_ROOF_SHARE] = { "roof_share", "Share of the measured peak", EACH_RUN, false },
    [SERIES_MFU] = { "mfu", "Share of the data sheet's peak", EACH_RUN, false },
    [SERIES_AGAIN] = { "steps_again", "Steps that ran twice", EACH_RUN, true },
    [SERIES_ALERTS] = { "alerts", "Times that loss or load left its band", EACH_RUN, true },
    [SERIES_LOAD_MAX] = { "expert_load_max", "Busiest expert over the mean", EACH_LAYER, false },
    [SERIES_LOAD_MIN] = { "expert_load_min", "Least loaded expert over the mean", EACH_LAYER,
                          false },
    [SERIES_LOAD_ENTROPY] = { "expert_load_entropy", "Entropy of expert load over ln E", EACH_LAYER,
                              false },
    [SERIES_ROUTER_Z] = { "router_z", "Mean square of log sum e^logit of the router", EACH_LAYER,
                          false },
    [SERIES_SOURCE_TOKENS] = { "source_tokens", "Tokens of a source", EACH_SOURCE, true },
    [SERIES_SOURCE_EPOCHS] = { "source_epochs", "Times a source was read", EACH_SOURCE, false },
    [SERIES_EVAL_LOSS] = { "eval_loss", "Held-out loss, nats a target", EACH_RUN, false },
    [SERIES_EVAL_BITS] = { "eval_bits_per_byte", "Held-out bits a byte", EACH_RUN, false },
    [SERIES_SOURCE_EVAL_LOSS] = { "source_eval_loss", "Held-out loss of a source", EACH_SOURCE,
                                  false },
};

Status series_make(SeriesTable *t, const SeriesLabels of[EACH_COUNT], Arena *a)
{
    int n = 0;
    for (int k = 0; k < SERIES_KINDS; k++) {
        t->first[k] = n;
        n += KIND[k].each == EACH_RUN ? 1 : of[KIND[k].each].n;
    }
    TRY(ARENA_ZEROED(a, n, &t->all));
    t->n = n;
    for (int k = 0; k < SERIES_KINDS; k++) {
        SeriesEach each = KIND[k].each;
        int end = k + 1 < SERIES_KINDS ? t->first[k + 1] : n;
        for (int i = t->first[k]; i < end; i++) {
            const char *label = each == EACH_RUN ? "" : of[each].label[i - t->first[k]];
            t->all[i] = (Series){ .name = KIND[k].name,
                                  .help = KIND[k].help,
                                  .key = KEY[each],
                                  .label = label,
                                  .total = KIND[k].total };
        }
    }
    return OK;
}

void series_set(SeriesTable *t, SeriesKind kind, int i, double value)
{
    Series *s = &t->all[t->first[kind] + i];
    s->now = value;
    s->seen = s->fresh = true;
}

/* With rows r of sum s the entropy -sum (r / s) ln (r / s) is ln s - (sum r ln r) / s. */
void series_set_load(SeriesTable *t, int layer, const int32_t *load, int64_t domains,
                     int64_t experts)
{
    double sum = 0, most = 0, least = HUGE_VAL, logs = 0;
    for (int64_t e = 0; e < experts; e++) {
        double rows = 0;
        for (int64_t d = 0; d < domains; d++) rows += load[d * experts + e];
        sum += rows;
        most = fmax(most, rows);
        least = fmin(least, rows);
        if (rows > 0) logs += rows * log(rows);
    }
    if (sum == 0) return;
    series_set(t, SERIES_LOAD_MAX, layer, most * (double)experts / sum);
    series_set(t, SERIES_LOAD_MIN, layer, least * (double)experts / sum);
    if (experts > 1)
        series_set(t, SERIES_LOAD_ENTROPY, layer, (log(sum) - logs / sum) / log((double)experts));
}

void series_taken(SeriesTable *t)
{
    for (int i = 0; i < t->n; i++) t->all[i].fresh = false;
}
