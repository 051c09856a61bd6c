/* Any bytes as a chat template: checked, then, if it is taken, written for a conversation with and
 * without a prompt, and its answers found. What was checked fails while it is written by what it
 * makes of the messages and by kinds of variables alone, never by its syntax; parts are the whole text,
 * cut. */
#include "chat/chat.h"
#include "harness/fuzz.h"

static const ChatMessage talk[] = {
    { "system", " be brief " }, { "user", "1+1?\n" }, { "assistant", "2" }, { "user", "" }
};

static void check_parts(const ChatTemplate *t, int n, Arena *a, Arena *scratch)
{
    ChatPart *part = NULL;
    Text whole = { 0 };
    int parts = 0;
    if (chat_parts(t, talk, n, a, scratch, &part, &parts) != OK) return;
    need(text_init(&whole, a) == OK && chat_render(t, talk, n, false, scratch, &whole) == OK);
    size_t at = 0;
    bool loss = false;
    for (int i = 0; i < parts; i++) {
        need(part[i].n > 0 && at + part[i].n <= whole.used);
        need(memcmp(part[i].text, whole.data + at, part[i].n) == 0);
        at += part[i].n;
        loss |= part[i].loss;
    }
    need(at == whole.used && loss);
}

static Status look(Fuzz *f)
{
    const ChatTemplate t = { .name = "fuzz", .text = fuzz_text(f), .bos = "<s>", .eos = "</s>" };
    TRY(chat_check(&t, f->page));
    for (int prompt = 0; prompt < 2; prompt++) {
        Text out = { 0 };
        if (text_init(&out, f->a) == OK) (void)chat_render(&t, talk, 4, prompt == 1, f->page, &out);
    }
    for (int n = 3; n <= 4; n++) check_parts(&t, n, f->a, f->page);
    return OK;
}

const Fuzzer fuzzer = { .look = look };
