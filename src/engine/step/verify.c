/* verify: see the header. Checksums lie in the record, so the host reads them with the rest of it. */
#include "engine/step/verify.h"

#include "engine/step/agree.h"
#include "engine/step/checks.h"
#include "engine/step/engine_memory.h"
#include "engine/step/shards.h"
#include "engine/step/step_rule.h"
#include "kernels/optimizer/checksum.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { NAMED_MOST = 4, NAME_BYTES = 192 };

#define WHAT_NOW                                                                                   \
    "run `switchyard doctor` on that host, leave it out if it fails, and continue with --resume"

static const char *const point_names[VERIFY_POINTS] = {
    [VERIFY_OWN] = "its own gradients",
    [VERIFY_GROUP] = "gradients before they are added over replicas",
    [VERIFY_SUM] = "summed gradients",
};

/* What replicas compare, in the columns of Record.checks. */
enum { HELD_WEIGHTS, HELD_COPIES, HELD_MOMENTS };
static const char *const held_names[VERIFY_POINTS] = { "weights", "copies of weights", "moments" };

bool verify_due(const Engine *e, int64_t step)
{
    const int64_t every = e->config->run_verify_every;
    return every > 0 && step % every == 0;
}

/* Naming ranks. */

/* This rank as others name it: "2 (host n7, moments of block 3)". The row behind the layers is of losses. */
static void name_rank(const EngineParams *w, const char *what, int layer, char out[NAME_BYTES])
{
    const Mesh *m = w->shape->mesh;
    char host[64] = "", of[32] = "";
    const int block = layer < w->spec->n_layers ? w->spec->layers[layer].block : -1;
    (void)gethostname(host, sizeof host - 1);
    if (block >= 0) (void)snprintf(of, sizeof of, " of block %d", block);
    (void)snprintf(out, NAME_BYTES, "%d (host %s, %s%s)", m == NULL ? 0 : m->rank, host,
                   layer < w->spec->n_layers ? what : "its losses", of);
}

/* Gathers what ranks say of themselves, "" if nothing is wrong. The first letter is a level: only ranks of the
 * lowest one are named, because an error goes on from there. *n: how many these are. */
static Status list_ranks(EngineParams *w, const char *mine, char *out, size_t out_bytes, int *n)
{
    const Mesh *m = w->shape->mesh;
    Comm *host = m == NULL ? NULL : m->group[GROUP_WORLD];
    const char *const alone[] = { mine }, *const *said = alone;
    const int ranks = host == NULL ? 1 : host->size;
    char lowest = '9';
    ArenaMark mark = arena_mark(w->tables);
    if (host != NULL) TRY(agree_texts(host, mine, w->tables, &said));
    *n = 0;
    out[0] = '\0';
    for (int i = 0; i < ranks; i++)
        if (said[i][0] != '\0' && said[i][0] < lowest) lowest = said[i][0];
    for (int i = 0; i < ranks; i++) {
        const size_t used = strlen(out);
        if (said[i][0] != lowest || ++*n > NAMED_MOST) continue;
        (void)snprintf(out + used, out_bytes - used, "%s%s", *n > 1 ? ", " : "", said[i] + 1);
    }
    const size_t used = strlen(out);
    if (*n > NAMED_MOST)
        (void)snprintf(out + used, out_bytes - used, " and %d more", *n - NAMED_MOST);
    arena_release(w->tables, mark);
    return OK;
}

/* The lowest level, and of it the first layer, at which this rank's two runs differ. */
static void say_difference(Engine *e, char out[NAME_BYTES])
{
    const int32_t *first = engine_host(&e->arenas, &e->io.expected),
                  *second = engine_host(&e->arenas, &e->io.record.checks);
    out[0] = '\0';
    for (int p = 0; p < VERIFY_POINTS; p++) {
        for (int l = 0; l <= e->spec.n_layers; l++) {
            if (first[l * VERIFY_POINTS + p] == second[l * VERIFY_POINTS + p]) continue;
            char name[NAME_BYTES];
            name_rank(&e->params, point_names[p], l, name);
            (void)snprintf(out, NAME_BYTES, "%d%.180s", p, name);
            return;
        }
    }
}

/* `supervise` reads the rank out of this sentence (tools/supervise/rules.c). */
Status verify_explain(Engine *e, int64_t step)
{
    char mine[NAME_BYTES], list[NAME_BYTES * (NAMED_MOST + 1)];
    int n = 0;
    say_difference(e, mine);
    TRY(list_ranks(&e->params, mine, list, sizeof list, &n));
    return FAIL(
        ERR_NUMERIC,
        "step %lld was computed twice, with other bits on %s %s; nothing of it is kept: " WHAT_NOW,
        (long long)step, n == 1 ? "rank" : "ranks", list);
}

/* Replicas. */

static int column_of(ParamBuffer b)
{
    if (b == BUF_WEIGHT) return HELD_COPIES;
    return buffer_is_optimizers(b) ? HELD_MOMENTS : HELD_WEIGHTS;
}

/* Does a bucket have numbers in this buffer that outlast a step, and that the device can read? */
static bool is_held(const EngineParams *w, const ParamBucket *k, ParamBuffer b)
{
    if (b == BUF_GRAD || b == BUF_STATE || w->memory.buffer[b].data == NULL) return false;
    if (b == BUF_WEIGHT) return k->weight >= 0 && !bucket_staged(k);
    if (b == BUF_MAIN) return true;
    if (k->rule == NULL) return false;
    return b == BUF_AVERAGE || (w->offload == NULL && buffer_state(b) < k->rule->n_states);
}

/* Adds what all ranks of a group hold alike. */
static Status add_held(EngineParams *w, MeshGroup group)
{
    const ParamTable *t = &w->table;
    TRY(engine_zero(w->arenas, &w->io->record.checks));
    for (int i = 0; i < t->n_buckets * BUF_COUNT; i++) {
        const ParamBucket *k = &t->bucket[i / BUF_COUNT];
        const ParamBuffer b = (ParamBuffer)(i % BUF_COUNT);
        if (!is_held(w, k, b)) continue;
        const bool whole = !t->sharded[b] || k->ranks == 1;
        if (group != GROUP_REPLICA && (!whole || shards_group(k) != group)) continue;
        Tensor x = whole ? bucket_whole(t, &w->memory, k, b) : bucket_own(t, &w->memory, k, b);
        if (tensor_elems(&x) == 0) continue;
        TRY(checksum(w->ex, (Checksum){ .x = x, .sum = checks_word(w, k->layer, column_of(b)) }));
    }
    return OK;
}

/* The first word of this rank that at most half of the group has; -1: none. all: (ranks, n). */
static int64_t first_odd(const int32_t *all, int64_t n, int ranks, int rank)
{
    for (int64_t i = 0; i < n; i++) {
        int same = 0;
        for (int r = 0; r < ranks; r++) same += all[r * n + i] == all[rank * n + i];
        if (same < ranks && 2 * same <= ranks) return i;
    }
    return -1;
}

static Status compare_held(EngineParams *w, MeshGroup group, char out[NAME_BYTES])
{
    Comm *c = w->shape->mesh->group[group];
    const Tensor *checks = &w->io->record.checks;
    const int64_t n = tensor_elems(checks);
    Tensor mine = { engine_host(w->arenas, checks), DTYPE_I32, 1, { n } }, all = mine;
    if (c == NULL || c->size == 1) return OK;
    TRY(add_held(w, group));
    TRY(engine_copy_out(w->arenas, checks));
    TRY(engine_wait(w->arenas));
    ArenaMark mark = arena_mark(w->tables);
    all.dim[0] = n * c->size;
    TRY(arena_alloc(w->tables, tensor_bytes(&all), &all.data));
    TRY(comm_all_gather(c, &mine, &all));
    const int64_t odd = first_odd(all.data, n, c->size, c->rank);
    arena_release(w->tables, mark);
    if (odd < 0 || out[0] != '\0') return OK;
    char name[NAME_BYTES];
    name_rank(w, held_names[odd % VERIFY_POINTS], (int)(odd / VERIFY_POINTS), name);
    (void)snprintf(out, NAME_BYTES, "0%.180s", name);
    return OK;
}

Status verify_replicas(EngineParams *w, int64_t step)
{
    static const MeshGroup groups[] = { GROUP_REPLICA, GROUP_SHARD, GROUP_SPLIT_SHARD,
                                        GROUP_EXPERT_SHARD };
    char mine[NAME_BYTES] = "", list[NAME_BYTES * (NAMED_MOST + 1)];
    int n = 0;
    if (!optimizer_follows(&w->spec->optimizer, RULE_VERIFY) || w->shape->mesh == NULL) return OK;
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
        TRY(compare_held(w, groups[i], mine));
    TRY(list_ranks(w, mine, list, sizeof list, &n));
    if (n == 0) return OK;
    return FAIL(
        ERR_NUMERIC,
        "after step %lld ranks that hold the same numbers have other bits on %s %s; the step "
        "is not saved, checkpoints are as before: " WHAT_NOW,
        (long long)step, n == 1 ? "rank" : "ranks", list);
}

/* Adds the bits of all summed gradients, and of this rank's losses. Then it flags in the record if any
 * checksum is not the first run's. */
static Status compare(EngineParams *w, const StepTensors *io)
{
    const Record *r = &io->record;
    TRY(shards_check(w));
    TRY(checks_add(w, w->spec->n_layers, VERIFY_OWN, r->loss));
    TRY(checks_add(w, w->spec->n_layers, VERIFY_OWN, r->aux_loss));
    return checksum_compare(
        w->ex, (ChecksumCompare){ .a = r->checks,
                                  .b = io->expected,
                                  .on = io->checked,
                                  .differs = tensor_rows(&r->overflow, OVERFLOW_DIFFERS, 1) });
}

/* The first of two runs has a limit that skips its update. */
const StepRule step_rule_verify = { .run = { [RULE_BEFORE_SUMS] = compare }, .limits = true };
