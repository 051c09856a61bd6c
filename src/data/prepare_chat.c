/* prepare_chat: converts conversations of JSON lines to packs of token ids, and marks the ids of answers
 * as learned. chat.c applies the template. */
#include "data/prepare_private.h"

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

Status prepare_chats_begin(Preparer *p)
{
    const PrepareConfig *c = p->config;
    TRY(arena_init(&p->strings, "strings", MEM_HOST, (size_t)4 << 30));
    TRY(chat_load(c->chat, c->tokenizer, &p->arena, &p->chat));
    return shard_create_packs(&p->writer, c->out, tokenizer_vocab(p->tokenizer), c->sequence,
                              &p->arena);
}

/* Pads the current pack with end-of-text ids, which are not learned. */
static Status fill_pack(Preparer *p)
{
    int64_t left = p->config->sequence - p->writer.tokens % p->config->sequence;
    if (left == p->config->sequence) return OK;
    for (int64_t i = 0; i < left; i++) TRY(shard_append(&p->writer, &p->end_of_text, 1));
    return shard_end_document(&p->writer);
}

/* A part of a conversation as ids. loss: they are learned. */
typedef struct ChatIds {
    int32_t *id;
    int64_t n;
    bool loss;
} ChatIds;

/* Encodes each part by itself, so that an answer begins with the ids that follow a prompt when text is
 * generated. A conversation ends with the end-of-text id, which is learned if it follows an answer. */
static Status encode_parts(Preparer *p, const ChatPart *part, int n, ChatIds *ids, int64_t *total)
{
    *total = 0;
    for (int i = 0; i < n; i++) {
        ids[i].loss = part[i].loss;
        TRY(tokenizer_encode(p->tokenizer, part[i].text, part[i].n, &p->scratch, &ids[i].id,
                             &ids[i].n));
        *total += ids[i].n;
    }
    const ChatIds *last = &ids[n - 1];
    bool ended = last->n > 0 && last->id[last->n - 1] == p->end_of_text;
    ids[n] = (ChatIds){ &p->end_of_text, ended ? 0 : 1, last->loss };
    *total += ids[n].n;
    return OK;
}

/* The first id of a chat is never learned, since nothing comes before it. */
static Status write_chat(Preparer *p, const ChatIds *ids, int n, int64_t total)
{
    int64_t T = p->config->sequence;
    if (p->writer.tokens % T + total > T) TRY(fill_pack(p));
    for (int i = 0; i < n; i++) {
        int64_t first = p->writer.document_tokens == 0 && ids[i].n > 0;
        TRY(shard_append(&p->writer, ids[i].id, first));
        TRY(shard_append_learned(&p->writer, ids[i].id + first, ids[i].n - first, ids[i].loss));
        p->stats.learned += ids[i].loss ? ids[i].n - first : 0;
    }
    p->stats.documents++;
    p->stats.tokens += total;
    return shard_end_document(&p->writer);
}

/* A chat that a template refuses, or that is too long, is a bad line: --on-bad-line decides what
 * happens. Nothing of it was written yet, because all parts are encoded before the first is
 * appended. */
static Status add_chat(Preparer *p, Documents *d, const ChatMessage *m, int n)
{
    ChatPart *part = NULL;
    ChatIds *ids = NULL;
    int parts = 0;
    int64_t total = 0;
    char wrong[WRONG_BYTES];
    if (chat_parts(&p->chat, m, n, &p->scratch, &p->strings, &part, &parts) != OK) {
        status_sentence(wrong, sizeof wrong);
        status_clear();
        return documents_bad(d, wrong);
    }
    TRY(ARENA_NEW(&p->scratch, parts + 1, &ids));
    TRY(encode_parts(p, part, parts, ids, &total));
    if (total > p->config->sequence) {
        (void)snprintf(wrong, sizeof wrong, "a chat of %lld tokens, --sequence has room for %lld",
                       (long long)total, (long long)p->config->sequence);
        return documents_bad(d, wrong);
    }
    /* Counted only here, when the chat is certain to be written. */
    for (int i = 0; i < parts; i++) p->stats.text_bytes += (int64_t)part[i].n;
    return write_chat(p, ids, parts + 1, total);
}

/* The strings of a template need an arena of their own, because the rendered text grows at the end
 * of `scratch`. */
Status prepare_chat(Preparer *p, Documents *d)
{
    ChatMessage *m = NULL;
    int n = 0;
    char wrong[WRONG_BYTES];
    ArenaMark mark = arena_mark(&p->scratch), strings = arena_mark(&p->strings);
    TRY(ARENA_NEW(&p->scratch, CHAT_MESSAGES_MAX, &m));
    read_messages(d->json, m, &n, wrong);
    Status s = n > 0 ? add_chat(p, d, m, n) : documents_bad(d, wrong);
    arena_release(&p->scratch, mark);
    arena_release(&p->strings, strings);
    return s;
}

Status prepare_chats_end(Preparer *p) { return fill_pack(p); }
