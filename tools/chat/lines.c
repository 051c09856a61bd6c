/* lines: reads the messages of a line, and writes the parts that chat.c makes of them. */
#include "chat/lines.h"

#include "chat/chat.h"
#include "corpus/prepare/corpus.h"
#include "corpus/prepare/documents.h"
#include "engine/host/progress.h"

#include <stdio.h>

/* Of a sentence about a line. documents_bad adds FILE:LINE to it. */
enum { WRONG_BYTES = 512 };

/* Address space for the texts of a line. Memory that is not touched costs nothing. */
static const size_t LINE_BYTES = (size_t)32 << 30;

typedef struct Writer {
    const ChatLines *call;
    ChatTemplate chat;
    Documents reader;
    File file;
    Progress bar;
    /* Of a line, then reset. A template's strings need an arena of their own, because the text that it
     * writes grows at the end of the other one. */
    Arena scratch, strings;
    ChatStats stats;
} Writer;

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

static Status write_parts(Writer *w, const ChatPart *part, int n)
{
    Text line = { 0 };
    TRY(text_init(&line, &w->scratch));
    TRY(text_printf(&line, "{\"parts\":["));
    for (int i = 0; i < n; i++) {
        TRY(text_append(&line, ",", i > 0));
        TRY(text_json(&line, "{\"text\":%.*s,\"learned\":", (int)part[i].n, part[i].text));
        TRY(text_printf(&line, "%s}", part[i].loss ? "true" : "false"));
        w->stats.bytes += (int64_t)part[i].n;
        w->stats.learned_bytes += part[i].loss ? (int64_t)part[i].n : 0;
    }
    TRY(text_printf(&line, "]}\n"));
    w->stats.chats++;
    return file_write(&w->file, line.data, line.used);
}

/* A chat that a template refuses is a bad line, too. */
static Status write_chat(Writer *w, const Json *json)
{
    ChatMessage *m = NULL;
    ChatPart *part = NULL;
    int n = 0, parts = 0;
    char wrong[WRONG_BYTES];
    arena_release(&w->scratch, (ArenaMark){ 0 });
    arena_release(&w->strings, (ArenaMark){ 0 });
    TRY(ARENA_NEW(&w->scratch, CHAT_MESSAGES_MAX, &m));
    read_messages(json, m, &n, wrong);
    if (n > 0 && chat_parts(&w->chat, m, n, &w->scratch, &w->strings, &part, &parts) == OK)
        return write_parts(w, part, parts);
    if (n > 0) {
        status_sentence(wrong, sizeof wrong);
        status_clear();
    }
    return documents_bad(&w->reader, wrong);
}

static Status write_file(Writer *w, const char *path)
{
    const DocumentOptions any = { .skip_bad = w->call->skip_bad };
    const int64_t before = atomic_load(&w->bar.done);
    TRY(documents_open(&w->reader, path, &any));
    for (bool more = true; more;) {
        const char *text = NULL;
        size_t bytes = 0;
        TRY(documents_next(&w->reader, &text, &bytes, &more));
        if (more && !w->reader.jsonl)
            return FAIL(ERR_ARG, "%s: chats come in JSON lines, so its name must end in .jsonl",
                        path);
        if (more) TRY(write_chat(w, w->reader.json));
        TRY(progress_to(&w->bar, before + w->reader.blocks.input.read));
    }
    w->stats.skipped += w->reader.skipped;
    documents_close(&w->reader);
    return OK;
}

static Status write_all(Writer *w, Arena *a)
{
    const ChatLines *c = w->call;
    Corpus corpus;
    TRY(arena_reserve(&w->scratch, "chat", LINE_BYTES));
    TRY(arena_reserve(&w->strings, "strings", LINE_BYTES));
    TRY(corpus_list(c->files, c->n_files, a, &corpus));
    TRY(chat_load(c->folder, c->template, a, &w->chat));
    TRY(file_create_temp(&w->file, c->out, a));
    w->bar.total = corpus.bytes;
    progress_begin(&w->bar);
    for (int i = 0; i < corpus.n; i++) TRY(write_file(w, corpus.files[i]));
    progress_end(&w->bar);
    if (w->stats.chats == 0)
        return FAIL(ERR_FORMAT, "%d files hold no chat: %lld bad lines were left out", corpus.n,
                    (long long)w->stats.skipped);
    return file_commit(&w->file);
}

Status chat_lines(const ChatLines *c, Arena *a, ChatStats *out)
{
    Writer w = { .call = c,
                 .bar = { .what = "chat", .name = c->out, .left = "nothing was written" } };
    Status s = write_all(&w, a);
    documents_close(&w.reader);
    file_close(&w.file);
    arena_free(&w.scratch);
    arena_free(&w.strings);
    TRY(s);
    *out = w.stats;
    return OK;
}
