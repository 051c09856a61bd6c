/* prepare_chat: converts conversations of JSON lines to packs of token ids, and marks the ids of answers
 * as learned. chat.c applies the template. */
#include "corpus/prepare/prepare_private.h"

#include <stdio.h>
#include <string.h>

/* Of a sentence about a line. documents_bad adds FILE:LINE to it. */
enum { WRONG_BYTES = 512 };

/* NULL: there is no such member, or it is no text (a list of parts, for example). */
static const char *text_of(const Json *object, const char *key)
{
    return json_string(json_get(object, key));
}

/* Reads the messages of a line. If *n is 0, `wrong` says what is wrong. */
static void read_messages(const Json *line, ChatMessage *m, int *n, char wrong[WRONG_BYTES])
{
    const Json *list = json_get(line, "messages");
    const char *prompt = text_of(line, "prompt"), *answer = text_of(line, "answer");
    int count = 0;
    long long size = json_count(list);
    *n = 0;
    if (prompt != NULL && answer != NULL && list == NULL) {
        m[0] = (ChatMessage){ "user", prompt };
        m[1] = (ChatMessage){ "assistant", answer };
        *n = 2;
        return;
    }
    (void)snprintf(
        wrong, WRONG_BYTES, "%s",
        prompt != NULL && list == NULL
            ? "a chat without an answer: the field \"answer\" is missing or no text"
            : "no list \"messages\" with a message, nor texts \"prompt\" and \"answer\"");
    if (!json_is(list, JSON_ARRAY) || size == 0) return;
    (void)snprintf(wrong, WRONG_BYTES, "%lld messages, at most %d are possible", size,
                   CHAT_MESSAGES_MAX);
    if (size > CHAT_MESSAGES_MAX) return;
    for (const Json *item = json_first(list); item != NULL; item = item->next) {
        m[count] = (ChatMessage){ text_of(item, "role"), text_of(item, "content") };
        (void)snprintf(wrong, WRONG_BYTES, "message %d has no text \"%s\"", count + 1,
                       m[count].role == NULL ? "role" : "content");
        if (m[count].role == NULL || m[count].content == NULL) return;
        count++;
    }
    *n = count;
}

/* Pads the current pack with end-of-text ids, which are not learned. */
Status prepare_fill_pack(ShardWriter *w, int32_t end_of_text)
{
    int64_t left = w->pack - w->tokens % w->pack;
    if (left == w->pack) return OK;
    for (int64_t i = 0; i < left; i++) TRY(shard_append(w, &end_of_text, 1));
    return shard_end_document(w);
}

/* The first id of a chat is never learned, since nothing comes before it. */
Status prepare_write_chat(Preparer *p, const int32_t *ids, const uint8_t *learned, int64_t n)
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

/* Encodes each part by itself, so that an answer begins with the ids that follow a prompt when text is
 * generated. A conversation ends with the end-of-text id, which is learned if it follows an answer. */
static Status encode_parts(Lane *l, const ChatPart *part, int n)
{
    int32_t last = -1, *ids = NULL;
    for (int i = 0; i < n; i++) {
        int64_t n_ids = 0;
        TRY(tokenizer_encode_cached(l->p->tokenizer, l->cache, part[i].text, part[i].n, &l->scratch,
                                    &ids, &n_ids));
        TRY(prepare_ids(l, ids, n_ids, part[i].loss));
        last = n_ids > 0 ? ids[n_ids - 1] : -1;
    }
    if (last == l->p->end_of_text) return OK;
    return prepare_ids(l, &l->p->end_of_text, 1, part[n - 1].loss);
}

/* A chat that a template refuses, or that is too long, is a bad line: --on-bad-line decides what
 * happens, and its ids are dropped. */
static Status add_chat(Lane *l, const ChatMessage *m, int n, DocumentHash hash)
{
    ChatPart *part = NULL;
    int parts = 0;
    size_t ids = l->ids.used, learned = l->learned.used;
    int64_t text_bytes = 0;
    char wrong[WRONG_BYTES];
    if (chat_parts(&l->p->chat, m, n, &l->scratch, &l->strings, &part, &parts) != OK) {
        status_sentence(wrong, sizeof wrong);
        status_clear();
        return documents_bad(&l->reader, wrong);
    }
    TRY(encode_parts(l, part, parts));
    for (int i = 0; i < parts; i++) text_bytes += (int64_t)part[i].n;
    int64_t total = (int64_t)(l->learned.used - learned), room = l->p->config->sequence;
    if (total <= room) return prepare_end(l, text_bytes, hash);
    l->ids.used = ids;
    l->learned.used = learned;
    (void)snprintf(wrong, sizeof wrong, "a chat of %lld tokens, --sequence has room for %lld",
                   (long long)total, (long long)room);
    return documents_bad(&l->reader, wrong);
}

/* The strings of a template need an arena of their own, because the rendered text grows at the end
 * of `scratch`. */
Status prepare_chat(Lane *l, const char *line, size_t bytes)
{
    ChatMessage *m = NULL;
    int n = 0;
    char wrong[WRONG_BYTES];
    bool duplicate = false;
    DocumentHash hash = prepare_hash(l, line, bytes, &duplicate);
    if (duplicate) return OK;
    ArenaMark mark = arena_mark(&l->scratch), strings = arena_mark(&l->strings);
    TRY(ARENA_NEW(&l->scratch, CHAT_MESSAGES_MAX, &m));
    read_messages(l->reader.json, m, &n, wrong);
    Status s = n > 0 ? add_chat(l, m, n, hash) : documents_bad(&l->reader, wrong);
    arena_release(&l->scratch, mark);
    arena_release(&l->strings, strings);
    return s;
}
