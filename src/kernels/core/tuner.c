/* tuner: see tuner.h. Which products have variants is decided by their launchers; this file knows no vendor. */
#include "kernels/core/tuner.h"

#include "kernels/core/gpu_exec.h"

static void events_free(Tuner *t)
{
    for (int i = 0; i < TUNER_EVENTS; i++) {
        if (t->event[i] != NULL) gpu_event_free(t->event[i]);
        t->event[i] = NULL;
    }
}

Status tuner_switch(Tuner *t, bool on)
{
    t->on = false;
    events_free(t);
    if (!on) return OK;
    for (int i = 0; i < TUNER_EVENTS; i++) TRY(gpu_event_make(true, &t->event[i]));
    t->on = true;
    return OK;
}

/* Sorts v. */
static float median(float *v, int n)
{
    for (int i = 1; i < n; i++) {
        float x = v[i];
        int at = i;
        for (; at > 0 && v[at - 1] > x; at--) v[at] = v[at - 1];
        v[at] = x;
    }
    return v[n / 2];
}

Status tuner_time(const Tuner *t, GpuStream stream, int n, TunerRun *run, void *self, float *ms)
{
    /* Each event ends one launch and begins the next, so there is one more than launches. Launches
     * are not waited for one by one, so the GPU does not idle between them. */
    const GpuEvent *last = t->event;
    TRY(gpu_event_record(*last, stream));
    for (int i = 0; i < TUNER_ROUNDS * n; i++) {
        TRY(run(self, i % n));
        TRY(gpu_event_record(*++last, stream));
    }
    TRY(gpu_event_sync(*last));
    for (int i = 0; i < n; i++) {
        float each[TUNER_ROUNDS];
        for (int r = 0; r < TUNER_ROUNDS; r++) {
            const GpuEvent *from = &t->event[r * n + i];
            double s = 0;
            TRY(gpu_event_elapsed_s(from[0], from[1], &s));
            each[r] = (float)(s * 1e3);
        }
        ms[i] = median(each, TUNER_ROUNDS);
    }
    return OK;
}

int tuner_fastest(const float *ms, int n)
{
    const float tie = 1.01f; /* times within this factor count as equal */
    float best = ms[0];
    int i = 0;
    for (int j = 1; j < n; j++) best = ms[j] < best ? ms[j] : best;
    while (ms[i] > tie * best) i++;
    return i;
}

/* A call of a grouped product. */
typedef struct Grouped {
    struct Exec *ex;
    const char *op;
    GroupedLaunch *const *launch;
    const void *product;
} Grouped;

static Status launch_shape(void *self, int i)
{
    const Grouped *g = self;
    return g->launch[i](g->ex, g->op, g->product);
}

/* With one shape there is nothing to look up, and nothing to record. */
Status tuner_run_grouped(struct Exec *ex, const char *op, const ChoiceKey *key, const int *shape,
                         GroupedLaunch *const *launch, int n, const void *product)
{
    const Tuner *t = exec_tuner(ex);
    Grouped g = { ex, op, launch, product };
    float ms[TUNER_VARIANTS];
    int at = n == 1 ? 0 : choices_shape(t->choices, key, shape, n);
    if (at < 0 && t->on && t->choices->n < CHOICES_MAX) {
        for (int i = 0; i < n * TUNER_WARM_UP; i++) TRY(launch_shape(&g, i % n));
        TRY(tuner_time(t, exec_gpu_stream(ex), n, launch_shape, &g, ms));
        at = choices_shape_timed(t->choices, key, shape, n, ms);
    }
    return launch_shape(&g, at < 0 ? 0 : at);
}
