/* Any bytes as a chat template: checked, then, if it is taken, written for a conversation with and
 * without a prompt, and its answers found. What was checked fails while it is written by what it
 * makes of the messages and by kinds of variables alone, never by its syntax; parts are the whole text,
 * cut. */
#include "data/chat.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static const ChatMessage talk[] = {
    { "system", " be brief " }, { "user", "1+1?\n" }, { "assistant", "2" }, { "user", "" }
};

static void check_parts(const ChatTemplate *t, int n, Arena *a, Arena *scratch)
{
    ChatPart *part = NULL;
    Text whole = { 0 };
    int parts = 0;
    if (chat_parts(t, talk, n, a, scratch, &part, &parts) != OK) return;
    if (text_init(&whole, a) != OK || chat_render(t, talk, n, false, scratch, &whole) != OK)
        abort();
    size_t at = 0;
    bool loss = false;
    for (int i = 0; i < parts; i++) {
        if (part[i].n == 0 || at + part[i].n > whole.used) abort();
        if (memcmp(part[i].text, whole.data + at, part[i].n) != 0) abort();
        at += part[i].n;
        loss |= part[i].loss;
    }
    if (at != whole.used || !loss) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    Arena a = { 0 }, scratch = { 0 };
    char *text = malloc(bytes + 1);
    if (text == NULL) abort();
    memcpy(text, data, bytes);
    text[bytes] = '\0';
    const ChatTemplate t = { .name = "fuzz", .text = text, .bos = "<s>", .eos = "</s>" };
    if (arena_init(&a, "fuzz", MEM_HOST, (size_t)1 << 26) != OK ||
        arena_init(&scratch, "strings", MEM_HOST, (size_t)1 << 26) != OK)
        abort();
    if (chat_check(&t, &scratch) == OK) {
        for (int prompt = 0; prompt < 2; prompt++) {
            Text out = { 0 };
            if (text_init(&out, &a) == OK)
                (void)chat_render(&t, talk, 4, prompt == 1, &scratch, &out);
        }
        for (int n = 3; n <= 4; n++) check_parts(&t, n, &a, &scratch);
    }
    arena_free(&a);
    arena_free(&scratch);
    free(text);
    return 0;
}
