/* prepare_private: the state of a preparation, shared by prepare.c and prepare_chat.c. */
#ifndef DATA_PREPARE_PRIVATE_H
#define DATA_PREPARE_PRIVATE_H

#include "base/progress.h"
#include "data/chat.h"
#include "data/prepare.h"
#include "data/shard.h"
#include "data/tokenizer.h"

typedef struct Preparer {
    const PrepareConfig *config;
    Arena arena;   /* the tokenizer's, write buffers */
    Arena scratch; /* one document's ids, then reset */
    Arena strings; /* of a template, likewise */
    /* In `arena`, but tokenizer_free must release its machine code. */
    Tokenizer *tokenizer;
    int32_t end_of_text;
    ChatTemplate chat;
    ShardWriter writer;
    PrepareStats stats;
    Progress bar;         /* over bytes of the files */
    int64_t before_bytes; /* of the files that are done */
} Preparer;

/* Opens the template and the writer; adds the line that `d` is at; fills the last pack. */
Status prepare_chats_begin(Preparer *p);
Status prepare_chat(Preparer *p, Documents *d);
Status prepare_chats_end(Preparer *p);

#endif
