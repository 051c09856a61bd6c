/* lines: conversations of JSON lines, written as documents of parts, which `data prepare --parts` reads:
 * {"parts": [{"text": "...", "learned": false}, ...]}. A conversation is {"messages": [{"role", "content"}]}
 * or {"prompt", "answer"}. Its answers are learned (chat.h). */
#ifndef CHAT_LINES_H
#define CHAT_LINES_H

#include "engine/base/arena.h"

typedef struct ChatLines {
    const char *folder, *template; /* of chat_load */
    const char *const *files;      /* or folders, or patterns (corpus/prepare/corpus.h) */
    int n_files;
    bool skip_bad; /* count bad lines and go on, instead of failing */
    const char *out;
} ChatLines;

typedef struct ChatStats {
    int64_t chats, learned_bytes, bytes, skipped;
} ChatStats;

/* The file appears only when everything is written. ERR_FORMAT: a bad line, with FILE:LINE, or no
 * conversation at all. */
Status chat_lines(const ChatLines *c, Arena *a, ChatStats *out);

#endif
