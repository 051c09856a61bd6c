/* chat: conversations as text, by a model's chat template, and where their answers are.
 *
 * A template is Jinja, of which this is understood: text; {{ ... }}; {% if %}, elif, else, endif;
 * {% for NAME in LIST %}, endfor; {% set NAME = ... %}, which inside of a loop holds for one message;
 * comments {# #}; the signs - that take blanks away. A tag that stands alone on its line takes the line
 * with it, as Hugging Face sets Jinja up. A LIST is messages, LIST[1:] or a variable that was set to
 * one; LIST[0] is a message. Expressions have strings, whole numbers, true, false, the variables
 * bos_token, eos_token and add_generation_prompt and what was set, MESSAGE.role, MESSAGE['content'],
 * inside of a loop loop.first, loop.last and loop.index0; or, and, not, ==, !=, + (also ~), % of
 * numbers, the filter trim, and parentheses. raise_exception(TEXT) refuses the conversation. All else
 * (macros, tools, other filters) is an error with its line, found when the template is loaded; what
 * kind of value a variable has is known when a conversation is written.
 *
 * Loss is on answers alone. Where an answer is follows from the template itself: text with all
 * messages before it and add_generation_prompt ends where it begins; what the template writes of the
 * answer behind that, its end mark too, is to be learned. */
#ifndef DATA_CHAT_H
#define DATA_CHAT_H

#include "base/text.h"

typedef struct ChatTemplate {
    const char *name;      /* of its file */
    const char *text;      /* NUL-terminated */
    const char *bos, *eos; /* NULL: not known */
} ChatTemplate;

typedef struct ChatMessage {
    const char *role, *content; /* content: UTF-8 without NUL */
} ChatMessage;

/* A part of a conversation's text; loss: it is an answer. */
typedef struct ChatPart {
    const char *text;
    size_t n;
    bool loss;
} ChatPart;

enum { CHAT_MESSAGES_MAX = 1024 };

/* path: a file with a template, or "tokenizer": the chat_template that lies beside tokenizer.json
 * (tokenizer_config.json, or chat_template.jinja). bos_token and eos_token are those of a
 * tokenizer_config.json there, if there is one. ERR_FORMAT, ERR_UNSUPPORTED: FILE:LINE and what it
 * has that is wrong or not understood. */
Status chat_load(const char *path, const char *tokenizer, Arena *a, ChatTemplate *out);

/* Looks at all of a template's text. */
Status chat_check(const ChatTemplate *t, Arena *scratch);

/* The text of n messages; prompt: add_generation_prompt. Memory for `out` and for strings in between
 * is from its arena's rest and from `scratch`, another arena. */
Status chat_render(const ChatTemplate *t, const ChatMessage *m, int n, bool prompt, Arena *scratch,
                   Text *out);

/* The parts of a conversation in `a`: at most 2 n + 1. ERR_FORMAT: no answer (a message of the role
 * assistant), a role that the template writes nothing for, an answer whose place it does not tell. */
Status chat_parts(const ChatTemplate *t, const ChatMessage *m, int n, Arena *a, Arena *scratch,
                  ChatPart **out, int *n_parts);

#endif
