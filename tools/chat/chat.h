/* chat: renders conversations as text with a model's chat template, and finds their answers in it.
 *
 * Templates are Jinja. This subset is supported:
 *
 *   tags         text, {{ ... }}, {# comments #}, {% if %} elif else endif, {% for NAME in LIST %}
 *                endfor, {% set NAME = ... %} (inside a loop it holds for one message), and - in a tag
 *                to remove blanks. A block tag alone on its line removes the line, as in Hugging
 *                Face's settings of Jinja.
 *   lists        messages, LIST[1:], or a variable set to one; LIST[0] is a message
 *   values       strings, whole numbers, true, false, variables, bos_token, eos_token,
 *                add_generation_prompt, MESSAGE.role, MESSAGE['content'], loop.first, loop.last,
 *                loop.index0
 *   operators    or, and, not, ==, !=, + (also ~), % of numbers, the filter trim, parentheses
 *   refusal      raise_exception(TEXT)
 *
 * Everything else (macros, tools, other filters) is an error with its line when the template is loaded.
 * The kind of a variable's value is checked only when a conversation is rendered.
 *
 * Only answers count in the loss. The template itself says where an answer begins: where the rendering
 * of all messages before it, with add_generation_prompt, ends. What the template writes of the answer
 * after that point, including its end mark, is learned. */
#ifndef CHAT_CHAT_H
#define CHAT_CHAT_H

#include "engine/base/text.h"

typedef struct ChatTemplate {
    const char *name;      /* of its file */
    const char *text;      /* NUL-terminated */
    const char *bos, *eos; /* NULL: not known */
} ChatTemplate;

/* Roles go to the template unchanged. Only `assistant` has a meaning here: its messages are
 * answers. */
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

/* file: a template; NULL: that of the folder, chat_template.jinja or the chat_template of
 * tokenizer_config.json. bos_token and eos_token come from the folder's tokenizer_config.json. folder: NULL
 * if there is none; one of both is given. ERR_FORMAT, ERR_UNSUPPORTED: FILE:LINE and what is wrong or not
 * supported. */
Status chat_load(const char *folder, const char *file, Arena *a, ChatTemplate *out);

/* Checks the whole template. */
Status chat_check(const ChatTemplate *t, Arena *scratch);

/* Appends the text of n messages to `out`; prompt: add_generation_prompt. Intermediate strings are in
 * `scratch`, which must not be the arena of `out`, because a Text grows at the end of its arena. */
Status chat_render(const ChatTemplate *t, const ChatMessage *m, int n, bool prompt, Arena *scratch,
                   Text *out);

/* Splits a conversation into at most 2 n + 1 parts, in `a`. ERR_FORMAT: there is no answer (a message
 * with the role assistant), the template ignores a role, or an answer cannot be located. */
Status chat_parts(const ChatTemplate *t, const ChatMessage *m, int n, Arena *a, Arena *scratch,
                  ChatPart **out, int *n_parts);

#endif
