/* prepare_lane: what each thread of a preparation does. It takes the next block, encodes its documents,
 * waits until all blocks before it are written, and writes them. */
#include "corpus/prepare/prepare_private.h"

#include <math.h>
#include <stdio.h>

static const int64_t JOURNAL_BYTES = (int64_t)128 << 20;
/* Below it encoding takes less time than finding out that it is not needed (measured: 10 million documents of
 * 10 bytes, 7 s of the processor in place of 13). */
enum { LOOKED_UP_BYTES = 24 };

/* ---- reading ---- */

static Status open_file(Lane *l)
{
    Preparer *p = l->p;
    const char *path = p->corpus.files[p->from.file];
    TRY(blocks_open(&p->from.blocks, path, &p->config->documents));
    if (p->from.place.bytes > 0) TRY(blocks_seek(&p->from.blocks, p->from.place, &l->text));
    p->from.place = (BlockPlace){ 0 };
    return OK;
}

/* The next block of the next file that has one. Parts come in lines of JSON. */
static Status read_block(Lane *l, bool *more)
{
    Preparer *p = l->p;
    for (*more = false; !*more && p->from.file < p->corpus.n;) {
        if (p->from.blocks.input.path == NULL) TRY(open_file(l));
        TRY(blocks_next(&p->from.blocks, &l->text, &l->block, more));
        l->progress_bytes = p->from.file_bytes + p->from.blocks.input.read;
        if (*more) break;
        p->from.file_bytes += p->from.blocks.input.read;
        p->from.file++;
        blocks_close(&p->from.blocks);
    }
    if (!*more) return OK;
    l->jsonl = p->from.blocks.jsonl;
    if (p->config->parts && (!l->jsonl || p->from.blocks.input.rows))
        return FAIL(ERR_ARG, "%s: parts come in JSON lines, so its name must end in .jsonl",
                    p->corpus.files[p->from.file]);
    l->after.file = p->from.file;
    l->after.file_bytes = p->from.file_bytes;
    l->after.place = l->block.end;
    return OK;
}

/* A failure has a ticket, too: the blocks before it come first, and may fail themselves. */
static Status take_block(Lane *l, bool *more)
{
    Preparer *p = l->p;
    Status s = OK;
    *more = false;
    pthread_mutex_lock(&p->reading);
    if (!atomic_load(&p->stop)) s = read_block(l, more);
    if (s != OK) atomic_store(&p->stop, true);
    *more = *more || s != OK;
    if (*more) l->ticket = p->from.tickets++;
    pthread_mutex_unlock(&p->reading);
    return s;
}

/* ---- encoding ---- */

Status prepare_ids(Lane *l, const int32_t *ids, int64_t n, bool learned)
{
    TRY(text_append(&l->ids, (const char *)ids, (size_t)n * sizeof *ids));
    if (!l->p->config->parts) return OK;
    for (int64_t i = 0; i < n; i++) TRY(text_append(&l->learned, learned ? "\1" : "\0", 1));
    return OK;
}

Status prepare_end(Lane *l, int64_t text_bytes, DocumentHash hash)
{
    const Encoded e = { (int64_t)(l->ids.used / sizeof(int32_t)), text_bytes, hash };
    bool is_new = true;
    if (l->p->config->dedup && (l->p->config->parts || text_bytes >= LOOKED_UP_BYTES))
        TRY(hashes_add(&l->seen, hash, &is_new));
    return text_append(&l->documents, (const char *)&e, sizeof e);
}

/* What is written is of blocks before this one. */
DocumentHash prepare_hash(Lane *l, const char *text, size_t bytes, bool *duplicate)
{
    DocumentHash hash = { 0 };
    *duplicate = false;
    if (!l->p->config->dedup) return hash;
    hash = dedup_hash(text, bytes);
    if (bytes < LOOKED_UP_BYTES) return hash;
    *duplicate = hashes_have(&l->seen, hash) || dedup_has(&l->p->dedup, hash);
    l->duplicates += *duplicate;
    return hash;
}

/* The end-of-text id is the last token of a document, so training learns where texts end. */
static Status encode_document(Lane *l, const char *text, size_t bytes)
{
    bool duplicate = false;
    DocumentHash hash = prepare_hash(l, text, bytes, &duplicate);
    if (duplicate) return OK;
    ArenaMark mark = arena_mark(&l->scratch);
    int32_t *ids = NULL;
    int64_t n = 0;
    TRY(tokenizer_encode_cached(l->p->tokenizer, l->cache, text, bytes, &l->scratch, &ids, &n));
    TRY(prepare_ids(l, ids, n, true));
    TRY(prepare_ids(l, &l->p->end_of_text, 1, true));
    arena_release(&l->scratch, mark);
    return prepare_end(l, (int64_t)bytes, hash);
}

/* A document that is a list of token ids already. It ends with one end-of-text id, be that in the list or not. */
static Status take_ids(Lane *l, const char *line, size_t bytes)
{
    const Preparer *p = l->p;
    const size_t before = l->ids.used;
    int64_t text_bytes = 0;
    int32_t id = -1;
    bool duplicate = false;
    const DocumentHash hash = prepare_hash(l, line, bytes, &duplicate);
    if (duplicate) return OK;
    for (const Json *j = json_first(l->reader.ids); j != NULL; j = j->next) {
        const double x = json_is(j, JSON_NUMBER) ? j->number : -1;
        id = x >= 0 && x < tokenizer_vocab(p->tokenizer) && x == floor(x) ? (int32_t)x : -1;
        if (id < 0) break;
        const char *shown = NULL;
        int32_t n = 0;
        tokenizer_bytes(p->tokenizer, id, &shown, &n);
        text_bytes += n;
        TRY(prepare_ids(l, &id, 1, true));
    }
    if (id < 0) {
        char wrong[128];
        l->ids.used = before;
        (void)snprintf(wrong, sizeof wrong,
                       "not all of the list are token ids, whole numbers from 0 to %d",
                       tokenizer_vocab(p->tokenizer) - 1);
        return documents_bad(&l->reader, wrong);
    }
    if (id != p->end_of_text) TRY(prepare_ids(l, &p->end_of_text, 1, true));
    return prepare_end(l, text_bytes, hash);
}

/* A line of parts has no text field: documents_next then only parses the line, and prepare_parts reads the
 * tree (Documents.json). */
static Status encode_block(Lane *l)
{
    Preparer *p = l->p;
    DocumentOptions o = p->config->documents;
    if (p->config->parts) o.field = NULL;
    o.ids = !p->config->parts;
    documents_of_block(&l->reader, p->corpus.files[l->after.file], l->jsonl, &l->block, &o);
    l->ids.used = l->learned.used = l->documents.used = 0;
    l->empty = l->duplicates = 0;
    hashes_clear(&l->seen);
    for (;;) {
        const char *text = NULL;
        size_t bytes = 0;
        bool more = false;
        TRY(documents_next(&l->reader, &text, &bytes, &more));
        if (!more) return OK;
        if (p->config->parts) {
            TRY(prepare_parts(l, text, bytes));
        } else if (l->reader.ids != NULL ? json_first(l->reader.ids) == NULL : bytes == 0) {
            l->empty++;
        } else if (l->reader.ids != NULL) {
            TRY(take_ids(l, text, bytes));
        } else {
            TRY(encode_document(l, text, bytes));
        }
    }
}

/* ---- writing ---- */

static Status write_document(Preparer *p, const Encoded *e, const int32_t *ids,
                             const uint8_t *learned, int64_t n)
{
    PrepareStats *s = &p->state.stats;
    if (p->config->dedup) {
        bool is_new = true;
        TRY(dedup_add(&p->dedup, e->hash, &is_new));
        s->duplicates += !is_new;
        if (!is_new) return OK;
    }
    s->documents++;
    s->tokens += n;
    s->text_bytes += e->text_bytes;
    if (p->config->parts) return prepare_write_parts(p, ids, learned, n);
    TRY(shard_append(&p->writer, ids, n));
    return shard_end_document(&p->writer);
}

void prepare_journaled(Preparer *p)
{
    p->journaled = true;
    p->journaled_at = p->state.stats.text_bytes;
    p->bar.left = "the same command continues from here";
}

static Status write_journal(Preparer *p)
{
    if (p->config->dedup) TRY(file_sync(&p->dedup.file));
    TRY(shard_mark(&p->writer, &p->state.mark));
    TRY(journal_write(&p->state, p->config->out));
    prepare_journaled(p);
    return OK;
}

/* Once there is a journal, an interrupted run brings it up to date. */
static Status keep_state(Preparer *p, int64_t progress_bytes)
{
    int64_t every = p->config->journal_bytes > 0 ? p->config->journal_bytes : JOURNAL_BYTES;
    Status s = progress_to(&p->bar, progress_bytes);
    if (s != OK && p->journaled) TRY(write_journal(p));
    TRY(s);
    if (!p->can_resume || p->state.stats.text_bytes - p->journaled_at < every) return OK;
    return write_journal(p);
}

static Status write_block(Lane *l)
{
    Preparer *p = l->p;
    const Encoded *e = (const Encoded *)(const void *)l->documents.data;
    const int32_t *ids = (const int32_t *)(const void *)l->ids.data;
    const uint8_t *learned = (const uint8_t *)l->learned.data;
    int64_t n = (int64_t)(l->documents.used / sizeof *e), at = 0;
    for (int64_t i = 0; i < n; at = e[i++].end)
        TRY(write_document(p, &e[i], ids + at, learned + at, e[i].end - at));
    p->state.stats.encoded += n;
    p->state.stats.duplicates += l->duplicates;
    p->state.stats.empty += l->empty;
    p->state.stats.skipped += l->reader.skipped;
    p->state.file = l->after.file;
    p->state.file_bytes = l->after.file_bytes;
    p->state.place = l->after.place;
    return keep_state(p, l->progress_bytes);
}

/* Waits until it is this block's turn. s: how reading and encoding it went. Of all blocks the first one
 * that fails counts, whatever thread is faster. */
static Status write_in_turn(Lane *l, Status s)
{
    Preparer *p = l->p;
    pthread_mutex_lock(&p->writing);
    while (p->turn != l->ticket) pthread_cond_wait(&p->turned, &p->writing);
    bool first = p->failed == NULL;
    if (first && s == OK) s = write_block(l);
    if (first && s != OK) {
        p->failed = l;
        atomic_store(&p->stop, true);
    }
    p->turn++;
    pthread_cond_broadcast(&p->turned);
    pthread_mutex_unlock(&p->writing);
    return s;
}

Status prepare_lane(void *lane)
{
    Lane *l = lane;
    for (bool more = true; more;) {
        Status s = take_block(l, &more);
        if (!more) return OK;
        if (s == OK) s = encode_block(l);
        TRY(write_in_turn(l, s));
    }
    return OK;
}
