/* prepare: the pipeline of `data prepare`: lists the files, starts the threads that read, encode and
 * write them (prepare_lane.c), and commits the shard. Documents of parts are in prepare_parts.c. */
#include "corpus/prepare/prepare.h"

#include "corpus/prepare/prepare_private.h"
#include "engine/base/clock.h"
#include "engine/base/log.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Address space for a tokenizer and for the ids of the largest document. Memory that is not touched
 * costs nothing. */
static const size_t RESERVE_BYTES = (size_t)64 << 30;
static const size_t LANE_BYTES = (size_t)32 << 30;
static const size_t STACK_BYTES = (size_t)8 << 20; /* of a thread that parses JSON */

/* ---- what is there ---- */

/* The loader finds the end of a document in the index, but a model must see an id there. */
static Status open_tokenizer(Preparer *p)
{
    TRY(tokenizer_load(p->config->tokenizer, &p->arena, &p->tokenizer));
    p->end_of_text = tokenizer_end_of_text(p->tokenizer);
    if (p->end_of_text < 0)
        return FAIL(ERR_FORMAT, "%s has no end-of-text token to end documents with",
                    p->config->tokenizer);
    return OK;
}

/* Lists all files first, so that a mistyped name is found now and not after hours. */
static Status list_files(Preparer *p)
{
    TRY(corpus_list(p->config->files, p->config->n_files, &p->arena, &p->corpus));
    p->bar.total = p->corpus.bytes;
    p->can_resume = true;
    for (int i = 0; i < p->corpus.n; i++) {
        p->can_resume = p->can_resume && !file_is_pipe(p->corpus.files[i]);
        if (shell_command(p->corpus.files[i]) != NULL || text_ends(p->corpus.files[i], ".parquet"))
            p->bar.total = 0; /* what is read has other sizes than the files */
    }
    return OK;
}

static Status check_result(const Preparer *p)
{
    const PrepareStats *s = &p->state.stats;
    if (s->documents > 0) return OK;
    return FAIL(ERR_FORMAT,
                "%d files (%llu bytes) hold no document: %lld empty ones and %lld bad lines were "
                "left out",
                p->corpus.n, (unsigned long long)p->from.file_bytes, (long long)s->empty,
                (long long)s->skipped);
}

/* ---- the writer ---- */

static void lock_path(const Preparer *p, char out[FILE_PATH_MAX])
{
    (void)snprintf(out, FILE_PATH_MAX, "%s.lock", p->config->out);
}

/* Two preparations of one PREFIX would write into the same temporary files. */
static Status lock_prefix(Preparer *p)
{
    char path[FILE_PATH_MAX];
    bool held = false;
    long holder = 0;
    lock_path(p, path);
    TRY(file_make_parent(path));
    TRY(file_lock(path, &p->lock, &held, &holder));
    if (held) return OK;
    return FAIL(ERR_ARG, "%s is being prepared by process %ld: wait for it, or give another --out",
                p->config->out, holder);
}

static int64_t parts_pack(const Preparer *p) { return p->config->parts ? p->config->sequence : 0; }

/* Goes on where the journal ends. */
static Status resume_writer(Preparer *p)
{
    const Journal *j = &p->state;
    TRY(shard_resume(&p->writer, p->config->out, tokenizer_vocab(p->tokenizer), parts_pack(p),
                     &j->mark, &p->arena));
    if (p->config->dedup) TRY(dedup_open(&p->dedup, p->config->out, j->stats.documents, &p->arena));
    p->from.file = j->file;
    p->from.place = j->place;
    p->from.file_bytes = j->file_bytes;
    prepare_journaled(p);
    p->state.stats.resumed_bytes = j->stats.text_bytes;
    char done[32];
    log_info("%s.journal: an earlier run has written %s of text, this one continues there",
             p->config->out, text_bytes(done, (double)j->stats.text_bytes));
    return OK;
}

static Status create_writer(Preparer *p)
{
    TRY(journal_remove(p->config->out));
    TRY(shard_create(&p->writer, p->config->out, tokenizer_vocab(p->tokenizer), parts_pack(p),
                     &p->arena));
    return p->config->dedup ? dedup_open(&p->dedup, p->config->out, 0, &p->arena) : OK;
}

/* If the files of a journal are gone or damaged, all begins anew. */
static Status open_writer(Preparer *p)
{
    bool found = false;
    char sum[FILE_SUM_BYTES];
    TRY(file_sum(p->config->tokenizer, sum));
    TRY(journal_run(p->config, &p->corpus, sum, &p->arena, p->state.run));
    if (p->can_resume) TRY(journal_read(&p->state, p->config->out, &found));
    if (!found) return create_writer(p);
    Journal fresh = { 0 };
    memcpy(fresh.run, p->state.run, sizeof fresh.run);
    Status s = resume_writer(p);
    if (s == OK || s == ERR_MEMORY) return s;
    char why[512];
    status_sentence(why, sizeof why);
    log_warn("the journal of an earlier run cannot be used, this one begins from the start: %s",
             why);
    status_clear();
    shard_writer_close(&p->writer);
    dedup_close(&p->dedup, false);
    p->state = fresh;
    p->from.file = p->from.file_bytes = 0;
    p->from.place = (BlockPlace){ 0 };
    p->journaled = false;
    p->journaled_at = 0;
    return create_writer(p);
}

/* ---- threads ---- */

static Status open_lane(Preparer *p, Lane *l)
{
    static const char *const NAMES[] = { "block", "ids", "learned", "documents" };
    Text *const texts[] = { &l->text, &l->ids, &l->learned, &l->documents };
    l->p = p;
    l->worker = (Worker){ .job = prepare_lane, .state = l, .stack_bytes = STACK_BYTES };
    TRY(arena_reserve(&l->scratch, "document", LANE_BYTES));
    TRY(tokenizer_cache_make(&p->arena, &l->cache));
    if (p->config->dedup) TRY(hashes_open(&l->seen));
    for (int i = 0; i < 4; i++) {
        TRY(arena_reserve(&l->arena[i], NAMES[i], LANE_BYTES));
        TRY(text_init(texts[i], &l->arena[i]));
    }
    return OK;
}

static void close_lane(Lane *l)
{
    worker_stop(&l->worker);
    documents_close(&l->reader);
    arena_free(&l->seen.arena);
    arena_free(&l->scratch);
    for (int i = 0; i < 4; i++) arena_free(&l->arena[i]);
}

static Status open_lanes(Preparer *p)
{
    int64_t n = p->config->threads > 0 ? p->config->threads : sysconf(_SC_NPROCESSORS_ONLN);
    if (n < 1) n = 1;
    if (n > PREPARE_THREADS_MAX) n = PREPARE_THREADS_MAX;
    TRY(ARENA_ZEROED(&p->arena, n, &p->lane));
    for (; p->n_lanes < n; p->n_lanes++) {
        Lane *l = &p->lane[p->n_lanes];
        Status s = open_lane(p, l);
        if (s == OK) s = worker_start(&l->worker, "a thread of data prepare");
        if (s == OK) continue;
        close_lane(l);
        return s;
    }
    return OK;
}

/* The failure that counts is that of the first block. */
static Status run_lanes(Preparer *p)
{
    for (int i = 0; i < p->n_lanes; i++) worker_begin(&p->lane[i].worker);
    for (int i = 0; i < p->n_lanes; i++) worker_wait(&p->lane[i].worker, INFINITY);
    return p->failed != NULL ? worker_result(&p->failed->worker) : OK;
}

/* ---- the end ---- */

/* The origin is computed last, and shard_commit renames the files when nothing can fail any more but
 * the disk. */
static Status finish_shard(Preparer *p)
{
    TRY(check_result(p));
    if (p->config->parts) TRY(prepare_fill_pack(&p->writer, p->end_of_text));
    TRY(origin_of(p->config->tokenizer, tokenizer_vocab(p->tokenizer), &p->writer.origin));
    TRY(shard_commit(&p->writer));
    return journal_remove(p->config->out);
}

/* Cheap checks come first. */
static Status prepare_files(Preparer *p)
{
    progress_begin(&p->bar);
    TRY(arena_reserve(&p->arena, "prepare", RESERVE_BYTES));
    TRY(list_files(p));
    TRY(open_tokenizer(p));
    TRY(lock_prefix(p));
    TRY(open_writer(p));
    TRY(open_lanes(p));
    TRY(run_lanes(p));
    TRY(finish_shard(p));
    progress_end(&p->bar);
    p->state.stats.seconds = clock_s() - p->bar.begin_s;
    return OK;
}

/* What a failed run leaves is for the next one, if there is a journal. A bad line, too: with skip_bad the
 * next one passes over it. */
static void close_files(Preparer *p, Status s)
{
    char lock[FILE_PATH_MAX];
    bool keep = p->journaled && s != OK;
    if (keep) shard_writer_keep(&p->writer);
    shard_writer_close(&p->writer);
    dedup_close(&p->dedup, keep);
    lock_path(p, lock);
    file_unlock_remove(p->lock, lock);
}

Status prepare_run(const PrepareConfig *c, PrepareStats *out)
{
    Preparer p = { .config = c,
                   .bar = { .what = "prepare", .name = c->out, .left = "nothing was written" } };
    pthread_mutex_init(&p.reading, NULL);
    pthread_mutex_init(&p.writing, NULL);
    pthread_cond_init(&p.turned, NULL);
    Status s = prepare_files(&p);
    for (int i = 0; i < p.n_lanes; i++) close_lane(&p.lane[i]);
    pthread_cond_destroy(&p.turned);
    pthread_mutex_destroy(&p.writing);
    pthread_mutex_destroy(&p.reading);
    blocks_close(&p.from.blocks);
    close_files(&p, s);
    tokenizer_free(p.tokenizer);
    arena_free(&p.arena);
    TRY(s);
    *out = p.state.stats;
    return OK;
}
