/* prepare: the pipeline of `data prepare`: reads documents, encodes them and writes a shard.
 * Conversations are in prepare_chat.c. */
#include "data/prepare.h"

#include "base/clock.h"
#include "base/text.h"
#include "data/prepare_private.h"

/* Address space for a tokenizer and for the ids of the largest document. Memory that is not touched
 * costs nothing. */
static const size_t RESERVE_BYTES = (size_t)64 << 30;

/* One document is one sequence of the shard. The end-of-text id is its last token, so training
 * learns where texts end. */
static Status add_document(Preparer *p, const char *text, size_t bytes)
{
    ArenaMark mark = arena_mark(&p->scratch);
    int32_t *ids = NULL;
    int64_t n = 0;
    TRY(tokenizer_encode(p->tokenizer, text, bytes, &p->scratch, &ids, &n));
    TRY(shard_append(&p->writer, ids, n));
    TRY(shard_append(&p->writer, &p->end_of_text, 1));
    TRY(shard_end_document(&p->writer));
    arena_release(&p->scratch, mark);
    p->stats.documents++;
    p->stats.tokens += n + 1;
    p->stats.text_bytes += (int64_t)bytes;
    return OK;
}

/* Progress is counted in bytes of the input, since the number of documents is known only at the
 * end. */
static Status add_documents(Preparer *p, Documents *d)
{
    for (;;) {
        const char *text = NULL;
        size_t bytes = 0;
        bool more = false;
        TRY(documents_next(d, &text, &bytes, &more));
        if (!more) return OK;
        TRY(progress_to(&p->bar, p->before_bytes + (int64_t)d->at));
        if (p->config->chat != NULL) {
            TRY(prepare_chat(p, d));
            continue;
        }
        if (bytes == 0) {
            p->stats.empty++;
            continue;
        }
        TRY(add_document(p, text, bytes));
    }
}

/* A line of a conversation has no text field: documents_next then only parses the line, and
 * prepare_chat reads the tree (Documents.json). */
static Status add_file(Preparer *p, const char *path)
{
    Documents d = { 0 };
    DocumentOptions o = p->config->documents;
    if (p->config->chat != NULL) o.field = NULL;
    Status s = documents_open(&d, path, &o);
    if (s == OK && p->config->chat != NULL && !d.jsonl)
        s = FAIL(ERR_ARG, "%s: chats come in JSON lines, so its name must end in .jsonl", path);
    int64_t least = p->before_bytes + (int64_t)d.map.bytes; /* now a pipe's size is known */
    if (least > p->bar.total) p->bar.total = least;
    if (s == OK) s = add_documents(p, &d);
    p->stats.skipped += d.skipped;
    p->before_bytes += (int64_t)d.map.bytes;
    documents_close(&d);
    return s;
}

/* Checks all files first, so that a mistyped name is found now and not after hours. */
static Status measure_files(Preparer *p)
{
    for (int i = 0; i < p->config->n_files; i++) {
        uint64_t bytes = 0;
        TRY(file_size(p->config->files[i], &bytes));
        p->bar.total += (int64_t)bytes;
    }
    return OK;
}

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

static Status check_result(const Preparer *p)
{
    if (p->stats.documents > 0) return OK;
    return FAIL(ERR_FORMAT,
                "%d files (%llu bytes) hold no document: %lld empty ones and %lld bad lines were "
                "left out",
                p->config->n_files, (unsigned long long)p->bar.total, (long long)p->stats.empty,
                (long long)p->stats.skipped);
}

/* Cheap checks come first. The origin is computed last, and shard_commit renames the files when
 * nothing can fail any more but the disk. */
static Status prepare_files(Preparer *p)
{
    progress_begin(&p->bar);
    TRY(measure_files(p));
    TRY(arena_init(&p->arena, "prepare", MEM_HOST, RESERVE_BYTES));
    TRY(arena_init(&p->scratch, "document", MEM_HOST, RESERVE_BYTES));
    TRY(open_tokenizer(p));
    TRY(p->config->chat != NULL
            ? prepare_chats_begin(p)
            : shard_create(&p->writer, p->config->out, tokenizer_vocab(p->tokenizer), &p->arena));
    for (int i = 0; i < p->config->n_files; i++) TRY(add_file(p, p->config->files[i]));
    TRY(check_result(p));
    if (p->config->chat != NULL) TRY(prepare_chats_end(p));
    TRY(origin_of(p->config->tokenizer, tokenizer_vocab(p->tokenizer), &p->writer.origin));
    TRY(shard_commit(&p->writer));
    progress_end(&p->bar);
    p->stats.seconds = clock_s() - p->bar.begin_s;
    return OK;
}

Status prepare_run(const PrepareConfig *c, PrepareStats *out)
{
    Preparer p = { .config = c,
                   .bar = { .what = "prepare", .name = c->out, .left = "nothing was written" } };
    Status s = prepare_files(&p);
    shard_writer_close(&p.writer);
    tokenizer_free(p.tokenizer);
    arena_free(&p.scratch);
    arena_free(&p.strings);
    arena_free(&p.arena);
    TRY(s);
    *out = p.stats;
    return OK;
}
