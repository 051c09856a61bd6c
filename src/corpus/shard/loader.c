/* loader: checks and opens the sources, allocates the batches, and returns the batches that a thread
 * fills one step ahead. What is in a batch is decided in loader_read.c. */
#include "corpus/shard/loader_private.h"

#include <math.h>
#include <string.h>

enum { PASS = 1 << 20 }; /* documents that are read before pages are released */

/* ---- what the configuration must be ---- */

static Status check_sizes(const LoaderConfig *c)
{
    if (c->n_sources < 1 || c->n_sources > MIX_MAX)
        return FAIL(ERR_ARG, "%d data sources, 1 to %d are possible", c->n_sources, MIX_MAX);
    if (c->sequence < 1 || c->sequence >= INT32_MAX || c->batch < 1 || c->vocab < 1)
        return FAIL(ERR_ARG,
                    "sequences of %lld tokens, %lld a step, vocabulary %lld: all must be at least "
                    "1, and a sequence below 2^31",
                    (long long)c->sequence, (long long)c->batch, (long long)c->vocab);
    if (!(c->validation >= 0 && c->validation < 1))
        return FAIL(ERR_ARG, "share %g of the documents held out, must be from 0 to below 1",
                    c->validation);
    return OK;
}

/* A source's name determines which documents are held out and their order, so two sources with one name
 * would be correlated. Either all sources have weights or none, because a weight cannot be compared
 * with a number of tokens. */
static Status check_sources(const LoaderConfig *c)
{
    for (int i = 0; i < c->n_sources; i++) {
        const LoaderSource *s = &c->sources[i];
        if (!(s->weight >= 0) || isinf(s->weight))
            return FAIL(ERR_ARG, "source %s has weight %g, must be at least 0", s->name, s->weight);
        if ((s->weight > 0) != (c->sources[0].weight > 0))
            return FAIL(ERR_ARG,
                        "source %s has weight %g and source %s has %g: give all sources a weight "
                        "above 0, or none",
                        c->sources[0].name, c->sources[0].weight, s->name, s->weight);
        if (!(s->epochs >= 0) || isinf(s->epochs) || (s->epochs > 0 && s->weight > 0))
            return FAIL(
                ERR_ARG,
                "source %s has %g epochs and weight %g: epochs must be at least 0, and stand "
                "instead of a weight",
                s->name, s->epochs, s->weight);
        for (int j = 0; j < i; j++) {
            if (strcmp(s->name, c->sources[j].name) != 0) continue;
            return FAIL(ERR_ARG, "sources %d and %d are both called %s", j, i, s->name);
        }
    }
    return OK;
}

/* ---- opening ---- */

/* A training sequence has T inputs and the target of the last one. The last sequence of an epoch may be
 * shorter, so that every token but the very first is a target once. */
static Status count_source(const LoaderConfig *c, Source *s)
{
    s->out = holdout_of(&s->shard, s->held_as != NULL ? s->held_as : s->name, c->validation);
    s->held.n = s->out.documents;
    s->tokens = s->shard.tokens - s->out.tokens;
    if (s->shard.pack > 0 && c->sequence % s->shard.pack != 0)
        return FAIL(
            ERR_ARG,
            "source %s (%s) has chats packed for sequences of %lld tokens, data.sequence is "
            "%lld: set it to that or a multiple, or prepare it with --sequence %lld",
            s->name, s->shard.prefix, (long long)s->shard.pack, (long long)c->sequence,
            (long long)c->sequence);
    s->sequences = (s->tokens - 2) / c->sequence + 1;
    if (s->tokens < c->sequence + 1)
        return FAIL(
            ERR_ARG,
            "source %s (%s) has %lld training tokens (of %lld in %lld documents, the others "
            "are held out: data.validation %g), one sequence needs %lld",
            s->name, s->shard.prefix, (long long)s->tokens, (long long)s->shard.tokens,
            (long long)s->shard.documents, c->validation, (long long)c->sequence + 1);
    return OK;
}

/* l->n grows with each shard that is open, so close_sources can be called after any failure. */
static Status open_sources(Loader *l, const LoaderConfig *c)
{
    for (int i = 0; i < c->n_sources; i++) {
        Source *s = &l->source[i];
        *s = (Source){ .name = c->sources[i].name, .held_as = c->sources[i].held_as, .epoch = -1 };
        TRY(shard_open(&s->shard, c->sources[i].path));
        l->n = i + 1;
        file_changed_stamped(s->shard.bin.data); /* loader_check_files looks at these */
        file_changed_stamped(s->shard.idx.data);
        file_changed_stamped(s->shard.mask.data);
        TRY(count_source(c, s));
        l->mapped_bytes += s->shard.idx.bytes + s->shard.mask.bytes + s->shard.bin.bytes;
        double epochs = c->sources[i].epochs > 0 ? c->sources[i].epochs : 1;
        l->weight[i] = c->sources[i].weight > 0 ? c->sources[i].weight : (double)s->tokens * epochs;
    }
    return OK;
}

int64_t loader_phase_step(const Loader *l, int phase)
{
    return phase == 0 ? 0 : l->config.phases[phase - 1].step;
}

Status loader_begin_phase(Loader *l, int phase, uint64_t slot)
{
    TRY(mix_init(&l->mix, phase == 0 ? l->weight : l->config.phases[phase - 1].weight, l->n));
    mix_seek(&l->mix, slot);
    l->phase = phase;
    return OK;
}

/* Every phase begins once here, so that wrong weights are found now and not at its step. */
static Status check_phases(Loader *l)
{
    for (int i = l->config.n_phases; i > 0; i--) {
        if (loader_phase_step(l, i) <= loader_phase_step(l, i - 1))
            return FAIL(ERR_ARG,
                        "the mix changes at step %lld and then at step %lld: steps must rise "
                        "from 1 on",
                        (long long)loader_phase_step(l, i - 1), (long long)loader_phase_step(l, i));
        TRY(loader_begin_phase(l, i, 0));
    }
    return loader_begin_phase(l, 0, 0);
}

static void close_sources(Loader *l)
{
    for (int i = 0; i < l->n; i++) shard_close(&l->source[i].shard);
}

/* Everything before the allocations. l must be zeroed; after a failure call close_sources. */
static Status set_up_sources(Loader *l, const LoaderConfig *c)
{
    TRY(check_sizes(c));
    TRY(check_sources(c));
    l->config = *c;
    l->config.sources = NULL;
    TRY(open_sources(l, c));
    return check_phases(l);
}

/* ---- memory ---- */

/* Makes all allocations of a loader without writing to them. So with a counting arena it measures the
 * memory (loader_plan). */
static Status allocate_loader(Loader *l, Arena *a, Loader **self)
{
    TRY(ARENA_NEW(a, 1, self));
    for (int i = 0; i < l->n; i++) {
        Source *s = &l->source[i];
        TRY(ARENA_NEW(a, strlen(s->shard.prefix) + 1, &s->path));
        TRY(ARENA_NEW(a, s->shard.documents, &s->length));
        TRY(ARENA_NEW(a, s->shard.documents / STREAM_GROUP + 1, &s->stream.start));
        TRY(ARENA_NEW(a, s->held.n, &s->held.document));
        TRY(ARENA_NEW(a, s->held.n + 1, &s->held.start));
    }
    for (int i = 0; i < LOADER_SLOTS; i++) {
        int64_t own = l->config.own > 0 ? l->config.own : l->config.batch;
        TRY(batch_new_deep(a, own, l->config.sequence, l->config.depths, &l->slot[i]));
    }
    Reader *const readers[] = { &l->reader, &l->held_reader };
    for (int i = 0; i < 2; i++) {
        TRY(ARENA_NEW(a, l->config.sequence + 1, &readers[i]->row));
        TRY(ARENA_NEW(a, l->config.sequence + 1, &readers[i]->learned));
        TRY(ARENA_NEW(a, l->config.sequence + 1, &readers[i]->doc));
    }
    return OK;
}

/* Fills what allocate_loader has sized: the prefix and the tables of documents. */
static void fill_source(Source *s)
{
    int64_t n = 0, at = 0, first = 0;
    s->shard.prefix = memcpy(s->path, s->shard.prefix, strlen(s->shard.prefix) + 1);
    for (int64_t d = 0; d < s->shard.documents; d++) {
        int64_t held = holdout_part(&s->out, &s->shard, d, true, &first);
        int64_t tokens = shard_start(&s->shard, d + 1) - shard_start(&s->shard, d);
        s->length[d] = (int32_t)(tokens - held);
        if (d % PASS == PASS - 1) shard_forget(&s->shard);
        if (held == 0) continue;
        s->held.document[n] = d;
        s->held.start[n++] = at;
        at += held;
    }
    s->held.start[n] = at;
}

/* ---- the interface ---- */

/* The worker's job. `given` changes only while the worker is idle, so reading it here needs no
 * lock. Files are looked at after they were read. A change is a better reason than the bad id that it
 * left. */
static Status fill_next(void *loader)
{
    Loader *l = loader;
    Status s = loader_fill(l, &l->slot[l->given % LOADER_SLOTS]);
    TRY(loader_check_files(l));
    return s;
}

/* Runs the same allocations on a counting arena, so the plan cannot differ from what loader_open
 * takes. */
Status loader_plan(const LoaderConfig *c, size_t *arena_bytes, size_t *mapped_bytes)
{
    Loader l = { 0 };
    Arena count = { 0 };
    Loader *self = NULL;
    Status s = set_up_sources(&l, c);
    if (s == OK) s = arena_init(&count, "loader", MEM_COUNT, SIZE_MAX / 2);
    if (s == OK) s = allocate_loader(&l, &count, &self);
    close_sources(&l);
    TRY(s);
    *arena_bytes = count.peak_bytes;
    *mapped_bytes = loader_resident_bytes(&l);
    return OK;
}

Status loader_open(const LoaderConfig *c, Arena *a, Loader **out)
{
    Loader l = { 0 };
    Loader *self = NULL;
    Status s = set_up_sources(&l, c);
    if (s == OK) s = allocate_loader(&l, a, &self);
    for (int i = 0; i < l.n && s == OK; i++) fill_source(&l.source[i]);
    if (s == OK) {
        memcpy(self, &l, sizeof l);
        /* The worker gets the address in the arena. The copy on this stack dies with the call. */
        self->worker.job = fill_next;
        self->worker.state = self;
        s = worker_start(&self->worker, "the loader's thread");
    }
    if (s != OK) close_sources(&l);
    TRY(s);
    worker_begin(&self->worker);
    *out = self;
    return OK;
}

void loader_close(Loader *l)
{
    if (l == NULL) return;
    worker_stop(&l->worker);
    close_sources(l);
}

uint64_t loader_sequences_of(const Loader *l, int64_t steps)
{
    if (l->config.ramp != NULL) return ramp_sequences(l->config.ramp, steps);
    return (uint64_t)steps * (uint64_t)l->config.batch;
}

/* Sequences from the begin of a phase to the end of a step. */
static uint64_t phase_sequences(const Loader *l, int phase, int64_t step)
{
    return loader_sequences_of(l, step) - loader_sequences_of(l, loader_phase_step(l, phase));
}

/* Walks the phases before the position. */
static Status seek_mix(Loader *l, uint64_t position)
{
    int64_t base[MIX_MAX] = { 0 };
    int phase = 0;
    l->step = l->config.ramp != NULL ? ramp_steps(l->config.ramp, position)
                                     : (int64_t)(position / (uint64_t)l->config.batch);
    for (; phase < l->config.n_phases && loader_phase_step(l, phase + 1) <= l->step; phase++) {
        TRY(loader_begin_phase(l, phase,
                               phase_sequences(l, phase, loader_phase_step(l, phase + 1))));
        for (int i = 0; i < l->n; i++) base[i] += mix_taken(&l->mix, i);
    }
    memcpy(l->base, base, sizeof base);
    return loader_begin_phase(l, phase,
                              position - loader_sequences_of(l, loader_phase_step(l, phase)));
}

/* The base makes up for what the mix of this configuration would have taken until now. */
static Status resume_mix(Loader *l, int64_t step, uint64_t position, const int64_t *taken)
{
    int phase = 0;
    l->step = step;
    while (phase < l->config.n_phases && loader_phase_step(l, phase + 1) <= step) phase++;
    TRY(loader_begin_phase(l, phase, phase == 0 ? position : phase_sequences(l, phase, step)));
    for (int i = 0; i < l->n; i++) l->base[i] = taken[i] - mix_taken(&l->mix, i);
    return OK;
}

static Status check_position(uint64_t position)
{
    if (position <= INT64_MAX) return OK;
    return FAIL(ERR_ARG, "data position %llu, at most %lld is possible",
                (unsigned long long)position, (long long)INT64_MAX);
}

/* The batch that the thread has read ahead belongs to the old position. It is dropped: the next job
 * fills the same slot again. */
Status loader_seek(Loader *l, uint64_t position)
{
    TRY(check_position(position));
    worker_wait(&l->worker, INFINITY);
    TRY(seek_mix(l, position));
    worker_begin(&l->worker);
    return OK;
}

Status loader_resume(Loader *l, int64_t step, uint64_t position, const int64_t *taken)
{
    TRY(check_position(position));
    worker_wait(&l->worker, INFINITY);
    TRY(resume_mix(l, step, position, taken));
    worker_begin(&l->worker);
    return OK;
}

Status loader_wait(Loader *l)
{
    worker_wait(&l->worker, INFINITY);
    return worker_result(&l->worker);
}

/* The thread works one batch ahead. After a failure every call fails until a seek. */
Status loader_next(Loader *l, const Batch **out)
{
    TRY(loader_wait(l));
    *out = &l->slot[l->given++ % LOADER_SLOTS];
    worker_begin(&l->worker);
    return OK;
}

int loader_sources(const Loader *l) { return l->n; }
const char *loader_source_name(const Loader *l, int source) { return l->source[source].name; }
int64_t loader_epoch_sequences(const Loader *l, int source) { return l->source[source].sequences; }
