/*
 * kineto: reads blocks of text and scans them with one thread or two.
 *
 * A block is cut where an event seems to begin, so a thread can scan it before the text in front of
 * it is understood. Blocks are committed in the order of the text. If the cut was wrong, the walk
 * takes the block as plain text; that is slower and gives the same result.
 *
 * Two locks order the threads. `reading` is held while a block is read or inflated, `order` while
 * the next one to commit is decided. A scan holds neither, so inflating the next block overlaps the
 * scan of this one.
 */
#include "traces/read/kineto.h"

#include "engine/host/worker.h"
#include "traces/read/kineto_walk.h"

#include <math.h>
#include <omp.h>
#include <string.h>

enum { LANES = 2 };

/* What the threads share. */
typedef struct Reader {
    Source *source;
    Walk walk;
    KeyTable keys;
    Arena memory;
    pthread_mutex_t reading, order;
    pthread_cond_t turned;
    /* guarded by `reading` */
    char *rest; /* what was cut off the last block: its last event, which may not be whole */
    size_t rest_bytes;
    int64_t blocks;
    bool whole; /* the next block begins with an event */
    bool last;  /* this was the last block */
    /* guarded by `order` */
    int64_t turn;
    bool failed;
} Reader;

/* What one thread works on: a block, and what its scan found. */
typedef struct Lane {
    Reader *r;
    Batch batch;
    char *text;
    int64_t number;
    bool whole, last;
} Lane;

/* Reads the next block and cuts it before its last event, which may go on in the following block.
 * What is cut off begins the following block. *any: false if there is no block left. */
static Status next_block(Reader *r, Lane *l, bool *any)
{
    size_t got = 0, n = r->rest_bytes, room = r->source->block - n;
    *any = !r->last;
    if (r->last) return OK;
    l->number = r->blocks++;
    l->whole = r->whole;
    memcpy(l->text, r->rest, n);
    TRY(source_read(r->source, l->text + n, room, &got));
    r->last = l->last = got < room;
    n += got;
    memset(l->text + n, 0, SCAN_PAD);
    const char *cut = l->last ? NULL : scan_last_event(&r->keys, l->text + 1, l->text + n);
    r->whole = cut != NULL;
    r->rest_bytes = cut != NULL ? n - (size_t)(cut - l->text) : 0;
    memcpy(r->rest, l->text + n - r->rest_bytes, r->rest_bytes);
    n -= r->rest_bytes;
    memset(l->text + n, 0, SCAN_PAD);
    l->batch.text = l->text;
    l->batch.end = l->text + n;
    return OK;
}

/* Takes the scan's items if the walk stands between two events. Otherwise the cut was wrong. */
static Status commit_block(Reader *r, Lane *l, const char *rest, ScanStop why)
{
    if (l->whole && walk_expects_events(&r->walk))
        return walk_batch(&r->walk, &l->batch, rest, why, l->last);
    return walk_text(&r->walk, l->text, (size_t)(l->batch.end - l->text), l->last);
}

/* Waits until all earlier blocks are committed, then commits this one unless one of them failed. So
 * the first error in the order of the text is reported, whichever thread met it. */
static Status commit_in_turn(Lane *l, Status s, const char *rest, ScanStop why, bool *go_on)
{
    Reader *r = l->r;
    pthread_mutex_lock(&r->order);
    while (r->turn != l->number && !r->failed) pthread_cond_wait(&r->turned, &r->order);
    bool mine = !r->failed;
    pthread_mutex_unlock(&r->order);
    if (mine && s == OK) s = commit_block(r, l, rest, why);
    pthread_mutex_lock(&r->order);
    r->turn++;
    if (mine) r->failed = s != OK;
    *go_on = !r->failed;
    pthread_cond_broadcast(&r->turned);
    pthread_mutex_unlock(&r->order);
    return mine ? s : OK;
}

/* What each thread does until no block is left or one failed. */
static Status read_lane(void *state)
{
    Lane *l = state;
    Reader *r = l->r;
    for (bool go_on = true; go_on;) {
        bool any = false;
        const char *rest = NULL;
        ScanStop why = STOP_END;
        pthread_mutex_lock(&r->reading);
        Status s = next_block(r, l, &any);
        if (s != OK) r->last = true;
        pthread_mutex_unlock(&r->reading);
        if (!any) return OK;
        if (s == OK && l->whole) rest = scan_events(&l->batch, l->text, &why);
        TRY(commit_in_turn(l, s, rest, why, &go_on));
    }
    return OK;
}

/* All memory is taken here, in one arena; reading allocates only columns and texts. */
static Status reader_init(Reader *r, Lane *lane, int lanes, bool python, Events *e)
{
    const Source *from = r->source;
    const size_t block = from->block, room = walk_room(from) + (LANES + 1) * block;
    Batch like = { .keys = &r->keys, .python = python };
    pthread_mutex_init(&r->reading, NULL);
    pthread_mutex_init(&r->order, NULL);
    pthread_cond_init(&r->turned, NULL);
    scan_keys(&r->keys);
    /* Per byte of text: the byte, a byte of scratch, and 16-byte items for every 4 bytes. */
    TRY(arena_init(&r->memory, "blocks", MEM_HOST, 7 * room + (1 << 15)));
    TRY(walk_init(&r->walk, e, &like, from, &r->memory));
    TRY(ARENA_NEW(&r->memory, block, &r->rest));
    for (int i = 0; i < lanes; i++) {
        lane[i] = (Lane){ .r = r, .batch = like };
        TRY(ARENA_NEW(&r->memory, block + SCAN_PAD, &lane[i].text));
        TRY(batch_init(&lane[i].batch, &r->memory, block));
    }
    return commit_init(e, from->text_max);
}

static void reader_free(Reader *r)
{
    pthread_cond_destroy(&r->turned);
    pthread_mutex_destroy(&r->order);
    pthread_mutex_destroy(&r->reading);
    arena_free(&r->memory);
}

/* The second lane runs on a thread of its own. */
static Status read_lanes(Lane *lane, int lanes)
{
    Worker second = { .job = read_lane, .state = &lane[1] };
    if (lanes == 1) return read_lane(&lane[0]);
    TRY(worker_start(&second, "a reader's thread"));
    worker_begin(&second);
    Status s = read_lane(&lane[0]);
    worker_wait(&second, (double)INFINITY);
    if (s == OK) s = worker_result(&second);
    worker_stop(&second);
    return s;
}

Status kineto_read(Source *source, bool python, int threads, Events *e)
{
    Lane lane[LANES];
    Reader r = { .source = source };
    int lanes = threads > 0 ? threads : omp_get_num_procs();
    if (lanes > LANES) lanes = LANES;
    Status s = reader_init(&r, lane, lanes, python, e);
    if (s == OK) s = read_lanes(lane, lanes);
    if (s == OK) s = walk_end(&r.walk, source);
    if (s == OK) commit_end(e);
    reader_free(&r);
    return s;
}
