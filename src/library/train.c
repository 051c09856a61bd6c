/*
 * train: a training that a caller runs step by step.
 *
 * A thread runs `train_run` on every rank, as the command does. Before each step, and behind the last one, each rank
 * waits in between_steps for an order: to run a step, to copy its part of a weight, or to end. The caller's thread
 * gives one order at a time and waits until each rank has carried it out or has left its run.
 */
#include "engine/train/train.h"
#include "app/options/cli.h"
#include "engine/base/clock.h"
#include "engine/host/worker.h"
#include "engine/step/engine_memory.h"
#include "engine/train/eval.h"
#include "hardware/hardware.h"
#include "library/handle.h"
#include "pages/live_page.h"

#include <math.h>
#include <string.h>

typedef enum TrainOrder { ORDER_STEP, ORDER_READ, ORDER_END } TrainOrder;

struct SwitchyardTrainer {
    Arena arena;
    const Config *config;
    SwitchyardTrainOptions options;
    int ranks;
    Worker worker;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    TrainOrder order;
    int64_t orders;    /* so far */
    int waiting, gone; /* ranks that wait for an order; that have left their run */
    bool bad;          /* a copy failed on some rank */
    SwitchyardStep step;
    SwitchyardWeights *weights;
    const SwitchyardWeight *asked; /* by ORDER_READ */
    float *to;
};

/* ---- on the ranks' threads ---- */

/* Copies what this rank holds of a weight to its place. Ranks that hold the same write the same bits. */
static Status copy_part(Engine *e, const SwitchyardWeight *of, float *to)
{
    EngineParams *w = &e->params;
    for (int i = 0; i < w->table.n; i++) {
        const Param *p = &w->table.at[i];
        if (strcmp(p->name, of->name) != 0) continue;
        const ParamBuffer b = p->first[BUF_STATE] >= 0 ? BUF_STATE : BUF_MAIN;
        const ParamPiece piece = param_piece(&w->table, p, &w->memory, b);
        for (int64_t at = 0, n = 0, all = piece_elems(&piece.in); at < all; at += n) {
            const Tensor part = tensor_rows(&piece.at, at, n = piece_run(&piece.in, at));
            TRY(engine_read(&e->arenas, (char *)(to + piece_element(&piece.in, at)), part.data,
                            tensor_bytes(&part), 1));
        }
    }
    return OK;
}

static void note_step(SwitchyardTrainer *t, const StepMetrics *m)
{
    t->step = (SwitchyardStep){ .step = m->step,
                                .tokens = m->tokens,
                                .loss = m->result.loss,
                                .grad_norm = m->result.grad_norm,
                                .lr = m->lr,
                                .seconds = m->step_s,
                                .skipped = m->result.skipped,
                                .last = m->step == t->config->train_steps };
}

/* TrainOptions.between: waits for the caller's order. */
static bool between_steps(void *self, Engine *e, const StepMetrics *m)
{
    SwitchyardTrainer *t = self;
    const bool first = e->shape.mesh == NULL || e->shape.mesh->rank == 0;
    pthread_mutex_lock(&t->lock);
    if (first && m->step > 0) note_step(t, m);
    for (;;) {
        const int64_t seen = t->orders;
        t->waiting++;
        pthread_cond_broadcast(&t->changed);
        while (t->orders == seen) pthread_cond_wait(&t->changed, &t->lock);
        if (t->order != ORDER_READ) break;
        pthread_mutex_unlock(&t->lock);
        const bool bad = copy_part(e, t->asked, t->to) != OK;
        pthread_mutex_lock(&t->lock);
        t->bad |= bad;
    }
    const bool more = t->order == ORDER_STEP;
    pthread_mutex_unlock(&t->lock);
    return more;
}

static Status train_rank(void *self, Comm *world)
{
    SwitchyardTrainer *t = self;
    const TrainOptions o = { .resume = t->options.resume != 0,
                             .or_begin = t->options.resume == 2,
                             .init = t->options.init,
                             .world = world,
                             .sheet_flops = hardware_sheet_flops,
                             .live_page = live_page,
                             .between = between_steps,
                             .self = t };
    Status s = train_run(t->config, &o);
    pthread_mutex_lock(&t->lock);
    t->gone++;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
    return s;
}

/* The worker's job. Ranks that could not start are gone, too. */
static Status train_ranks(void *self)
{
    SwitchyardTrainer *t = self;
    Status s =
        cli_ranks(t->ranks > 1 ? t->ranks : 0, t->config->comm_timeout_s, &t->arena, train_rank, t);
    pthread_mutex_lock(&t->lock);
    t->gone = t->ranks;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
    return s;
}

/* ---- on the caller's thread ---- */

/* Returns when each rank waits for an order or is gone. A rank that is alone in waiting has lost the others, which
 * have failed: then the training ends. */
static Status await_ranks(SwitchyardTrainer *t)
{
    pthread_mutex_lock(&t->lock);
    while (t->waiting + t->gone < t->ranks) pthread_cond_wait(&t->changed, &t->lock);
    const bool all = t->gone == 0;
    if (!all) t->order = ORDER_END, t->orders++;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
    if (all) return OK;
    (void)worker_wait(&t->worker, INFINITY);
    return worker_result(&t->worker);
}

static Status carry_out(SwitchyardTrainer *t, TrainOrder order)
{
    if (worker_wait(&t->worker, 0))
        return FAIL(ERR_ARG, "the training has ended: open another one with resume=1");
    pthread_mutex_lock(&t->lock);
    t->order = order;
    t->orders++;
    t->waiting = 0;
    pthread_cond_broadcast(&t->changed);
    pthread_mutex_unlock(&t->lock);
    return await_ranks(t);
}

static Status train_close(SwitchyardTrainer *t)
{
    if (t == NULL) return OK;
    Status s = worker_wait(&t->worker, 0) ? OK : carry_out(t, ORDER_END);
    worker_stop(&t->worker);
    pthread_cond_destroy(&t->changed);
    pthread_mutex_destroy(&t->lock);
    library_free(t);
    return s;
}

static Status train_open(const SwitchyardConfig *c, const SwitchyardTrainOptions *o,
                         SwitchyardTrainer **out)
{
    static const SwitchyardTrainOptions usual = { 0 };
    SwitchyardTrainer *t = NULL;
    TRY(library_given("train_open", c, out));
    if (o == NULL) o = &usual;
    if (o->ranks < 0 || o->resume < 0 || o->resume > 2)
        return FAIL(ERR_ARG,
                    "switchyard_train_open: ranks %d and resume %d: at least 0, and 0 to 2",
                    (int)o->ranks, (int)o->resume);
    if (comm_launched() > 1)
        return FAIL(ERR_UNSUPPORTED,
                    "switchyard_train_open: a launcher started %d processes, and the library "
                    "trains in one: use `switchyard train`, or set ranks",
                    comm_launched());
    TRY(library_make("trainer", sizeof *t, 32, &t));
    t->config = &c->config, t->options = *o, t->ranks = o->ranks > 1 ? o->ranks : 1;
    t->worker = (Worker){ .job = train_ranks, .state = t, .stack_bytes = (size_t)8 << 20 };
    pthread_mutex_init(&t->lock, NULL);
    clock_cond_init(&t->changed);
    Status s = worker_start(&t->worker, "the training's thread");
    if (s == OK) {
        worker_begin(&t->worker);
        s = await_ranks(t);
    }
    if (s == OK)
        *out = t;
    else
        (void)train_close(t);
    return s;
}

LIBRARY_FUNCTION(train_open,
                 (const SwitchyardConfig *c, const SwitchyardTrainOptions *options,
                  SwitchyardTrainer **out),
                 (c, options, out))
LIBRARY_FUNCTION(train_close, (SwitchyardTrainer * t), (t))

static Status train_step(SwitchyardTrainer *t, SwitchyardStep *out)
{
    TRY(library_given("train_step", t, out));
    TRY(carry_out(t, ORDER_STEP));
    if (worker_wait(&t->worker, 0))
        return FAIL(ERR_ARG, "no step is left: train.steps=%lld are done",
                    (long long)t->config->train_steps);
    *out = t->step;
    return OK;
}
LIBRARY_FUNCTION(train_step, (SwitchyardTrainer * t, SwitchyardStep *out), (t, out))

/* ---- weights ---- */

static Status read_weight(SwitchyardWeights *w, int64_t i, float *to)
{
    SwitchyardTrainer *t = w->from;
    t->asked = &w->at[i], t->to = to, t->bad = false;
    TRY(carry_out(t, ORDER_READ));
    if (!t->bad) return OK;
    return FAIL(ERR_DEVICE, "%s could not be copied from a rank", w->at[i].name);
}

/* Names and shapes are those of the model on one rank. */
static Status list_weights(SwitchyardTrainer *t)
{
    Config alone = *t->config;
    ModelSpec *spec = NULL;
    ParamTable table;
    SwitchyardWeights *w = NULL;
    config_alone(&alone);
    TRY(ARENA_NEW(&t->arena, 1, &spec));
    TRY(spec_build(&alone, &t->arena, spec));
    TRY(params_build(spec, 0, NULL, &t->arena, &table));
    TRY(ARENA_ZEROED(&t->arena, 1, &w));
    TRY(ARENA_NEW(&t->arena, table.n, &w->at));
    w->n = table.n, w->read = read_weight, w->from = t;
    for (int i = 0; i < table.n; i++) {
        const Param *p = &table.at[i];
        w->at[i] = (SwitchyardWeight){ p->name, param_elems(p), p->rank, { p->dim[0], 1, 1, 1 } };
        for (int d = 1; d < p->rank; d++) w->at[i].dim[d] = p->dim[d];
    }
    library_sort_weights(w);
    t->weights = w;
    return OK;
}

static Status train_weights(SwitchyardTrainer *t, SwitchyardWeights **out)
{
    TRY(library_given("train_weights", t, out));
    if (t->weights == NULL) TRY(list_weights(t));
    *out = t->weights;
    return OK;
}
LIBRARY_FUNCTION(train_weights, (SwitchyardTrainer * t, SwitchyardWeights **out), (t, out))
