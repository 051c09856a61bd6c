/* prepare_parts: encodes documents that say which of their parts are learned, and packs them. A line of
 * JSON is {"parts": [{"text": "...", "learned": true}, ...]}. */
#include "corpus/prepare/prepare_private.h"

#include <stdio.h>
#include <string.h>

/* Of a sentence about a line. documents_bad adds FILE:LINE to it. */
enum { WRONG_BYTES = 256 };

/* Pads the current pack with end-of-text ids, which are not learned. */
Status prepare_fill_pack(ShardWriter *w, int32_t end_of_text)
{
    int64_t left = w->pack - w->tokens % w->pack;
    if (left == w->pack) return OK;
    for (int64_t i = 0; i < left; i++) TRY(shard_append(w, &end_of_text, 1));
    return shard_end_document(w);
}

/* The first id is never learned, since nothing comes before it. */
Status prepare_write_parts(Preparer *p, const int32_t *ids, const uint8_t *learned, int64_t n)
{
    ShardWriter *w = &p->writer;
    if (w->tokens % w->pack + n > w->pack) TRY(prepare_fill_pack(w, p->end_of_text));
    for (int64_t i = 0, end = 0; i < n; i = end) {
        bool learns = i > 0 && learned[i] != 0;
        for (end = i + 1; end < n && (learned[end] != 0) == learns;) end++;
        TRY(shard_append_learned(w, ids + i, end - i, learns));
        p->state.stats.learned += learns ? end - i : 0;
    }
    return shard_end_document(w);
}

static bool is_learned(const Json *part)
{
    const Json *learned = json_get(part, "learned");
    return json_is(learned, JSON_BOOL) && learned->truth;
}

/* Returns whether these are parts, of which one is learned; else `wrong` says what is wrong. */
static bool check_parts(const Json *list, char wrong[WRONG_BYTES])
{
    int64_t number = 0, learned = 0;
    (void)snprintf(
        wrong, WRONG_BYTES,
        "no list \"parts\" with a part that is learned, as `switchyard data chat` writes it");
    if (!json_is(list, JSON_ARRAY)) return false;
    for (const Json *part = json_first(list); part != NULL; part = part->next) {
        const char *text = json_string(json_get(part, "text"));
        number++;
        learned += is_learned(part) && text != NULL && text[0] != '\0';
        if (text != NULL && json_is(json_get(part, "learned"), JSON_BOOL)) continue;
        (void)snprintf(wrong, WRONG_BYTES, "part %lld has no %s", (long long)number,
                       text == NULL ? "text \"text\"" : "true or false \"learned\"");
        return false;
    }
    return learned > 0;
}

/* Encodes each part by itself, so that an answer begins with the ids that follow a prompt when text is
 * generated. A document ends with the end-of-text id, which is learned if it follows what is. */
static Status encode_parts(Lane *l, const Json *list, int64_t *text_bytes)
{
    int32_t last = -1, *ids = NULL;
    bool learned = false;
    for (const Json *part = json_first(list); part != NULL; part = part->next) {
        const char *text = json_string(json_get(part, "text"));
        size_t bytes = strlen(text);
        int64_t n = 0;
        if (bytes == 0) continue;
        learned = is_learned(part);
        TRY(tokenizer_encode_cached(l->p->tokenizer, l->cache, text, bytes, &l->scratch, &ids, &n));
        TRY(prepare_ids(l, ids, n, learned));
        *text_bytes += (int64_t)bytes;
        last = n > 0 ? ids[n - 1] : -1;
    }
    if (last == l->p->end_of_text) return OK;
    return prepare_ids(l, &l->p->end_of_text, 1, learned);
}

/* A document that is too long is a bad line: --on-bad-line decides what happens, and its ids are
 * dropped. */
static Status add_document(Lane *l, const Json *list, DocumentHash hash)
{
    size_t ids = l->ids.used, learned = l->learned.used;
    int64_t text_bytes = 0;
    char wrong[WRONG_BYTES];
    TRY(encode_parts(l, list, &text_bytes));
    int64_t total = (int64_t)(l->learned.used - learned), room = l->p->config->sequence;
    if (total <= room) return prepare_end(l, text_bytes, hash);
    l->ids.used = ids;
    l->learned.used = learned;
    (void)snprintf(wrong, sizeof wrong, "a document of %lld tokens, --sequence has room for %lld",
                   (long long)total, (long long)room);
    return documents_bad(&l->reader, wrong);
}

Status prepare_parts(Lane *l, const char *line, size_t bytes)
{
    char wrong[WRONG_BYTES];
    bool duplicate = false;
    DocumentHash hash = prepare_hash(l, line, bytes, &duplicate);
    if (duplicate) return OK;
    const Json *list = json_get(l->reader.json, "parts");
    if (!check_parts(list, wrong)) return documents_bad(&l->reader, wrong);
    ArenaMark mark = arena_mark(&l->scratch);
    Status s = add_document(l, list, hash);
    arena_release(&l->scratch, mark);
    return s;
}
