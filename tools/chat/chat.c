/* chat: interprets a template's text directly for each conversation; there is no syntax tree. A
 * recursive-descent parser evaluates while it reads. Branches that are not taken are parsed too, but
 * produce nothing (`live` is false). So one walk without messages checks the whole template. */
#include "chat/chat.h"

#include <stdio.h>
#include <string.h>

enum { DEPTH_MAX = 32, TEXT_MAX = 64 << 20, NUMBER_MAX = 1000000, VARIABLES_MAX = 16 };

/* A list is always a suffix of the messages: those from index `number` on. */
typedef enum ValueKind { VALUE_TRUTH, VALUE_NUMBER, VALUE_TEXT, VALUE_LIST } ValueKind;

typedef struct Value {
    ValueKind kind;
    int number; /* a truth is 0 or 1 */
    const char *s;
    size_t n;
} Value;

/* A variable of {% set %}. If only branches that were not taken set it, it is empty, 0 or false. */
typedef struct Variable {
    const char *name;
    size_t n;
    Value value;
} Variable;

/* The tag that ended a block. */
typedef enum Stop { STOP_END, STOP_ELIF, STOP_ELSE, STOP_ENDIF, STOP_ENDFOR } Stop;

typedef struct Walk {
    const ChatTemplate *t;
    const char *at;
    const ChatMessage *m;
    int n, i;          /* number of messages; index of the loop's message */
    int first;         /* index of the loop's first message */
    bool prompt, live; /* add_generation_prompt; is this branch taken? */
    bool strip;        /* the last tag ended with -: remove blanks after it */
    bool line;         /* a newline after the last tag was removed: the text begins a line */
    const char *loop;  /* name of the loop's variable; NULL: not in a loop */
    size_t loop_n;
    Variable variable[VARIABLES_MAX];
    int variables;
    int depth;
    Arena *scratch;
    Text *out;
} Walk;

/* Every error of a template names its line. The line is counted only here, so the walk keeps no
 * number. */
static Status fail_at(const Walk *w, const char *at, Status code, const char *what, size_t n)
{
    int line = 1;
    for (const char *c = w->t->text; c < at; c++) line += *c == '\n';
    return FAIL(code, "%s:%d: %.*s%s", w->t->name, line, (int)(n < 60 ? n : 60), what,
                code == ERR_UNSUPPORTED
                    ? " is not among what this program understands of templates "
                      "(messages, if, elif, else, set, bos_token, eos_token, "
                      "add_generation_prompt, raise_exception, loop.first, loop.last, "
                      "loop.index0, +, %, trim)"
                    : "");
}

static Status syntax_error(const Walk *w, const char *what)
{
    return fail_at(w, w->at, ERR_FORMAT, what, strlen(what));
}

static Status unsupported(const Walk *w, const char *at, size_t n)
{
    return fail_at(w, at, ERR_UNSUPPORTED, at, n);
}

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

static void skip_blanks(Walk *w)
{
    while (is_blank(*w->at)) w->at++;
}

/* Reads a name; n = 0 if there is none. */
static const char *take_name(Walk *w, size_t *n)
{
    skip_blanks(w);
    const char *s = w->at;
    while (is_name(*w->at)) w->at++;
    *n = (size_t)(w->at - s);
    return s;
}

static bool is_word(const char *s, size_t n, const char *word)
{
    return strlen(word) == n && memcmp(s, word, n) == 0;
}

static bool take_word(Walk *w, const char *word)
{
    size_t n = 0;
    skip_blanks(w);
    const char *before = w->at, *s = take_name(w, &n);
    if (is_word(s, n, word)) return true;
    w->at = before;
    return false;
}

static bool take_sign(Walk *w, const char *sign)
{
    skip_blanks(w);
    if (strncmp(w->at, sign, strlen(sign)) != 0) return false;
    w->at += strlen(sign);
    return true;
}

/* ---- expressions ---- */

/* Must operands have the right kind? Not in a branch that is not taken once there are variables, because
 * their kinds may differ from those in a real conversation. */
static bool strict(const Walk *w) { return w->live || w->variables == 0; }

static bool truth(const Walk *w, const Value *v)
{
    if (v->kind == VALUE_LIST) return v->number < w->n;
    return v->kind == VALUE_TEXT ? v->n > 0 : v->number != 0;
}

static Value truth_value(bool yes) { return (Value){ .number = yes }; }

static Value text_value(const char *s)
{
    return (Value){ .kind = VALUE_TEXT, .s = s, .n = strlen(s) };
}

/* Values of different kinds are unequal: 1 is not '1'. Two lists are equal if they begin at the
 * same message. */
static bool values_equal(const Value *a, const Value *b)
{
    if (a->kind != b->kind || a->number != b->number) return false;
    return a->kind != VALUE_TEXT || (a->n == b->n && memcmp(a->s, b->s, a->n) == 0);
}

static Status any_of(Walk *w, Value *out);

/* Every string that a template builds is made here, so its length has one limit. */
static Status new_bytes(Walk *w, size_t n, char **out)
{
    if (n > TEXT_MAX) return syntax_error(w, "a text of more than 64 MiB");
    return ARENA_NEW(w->scratch, n + 1, out);
}

/* The result is never longer than the source, so its length there is enough memory. */
static Status read_string(Walk *w, Value *out)
{
    const char quote = *w->at++, *s = w->at;
    char *to = NULL;
    while (*w->at != quote && *w->at != '\0') w->at += w->at[0] == '\\' && w->at[1] != '\0' ? 2 : 1;
    if (*w->at == '\0') return syntax_error(w, "a string that does not end");
    TRY(new_bytes(w, (size_t)(w->at - s), &to));
    *out = (Value){ .kind = VALUE_TEXT, .s = to };
    for (; s < w->at; s++) {
        static const char names[] = "nrt\\'\"", values[] = "\n\r\t\\'\"";
        const char *found = *s == '\\' ? strchr(names, s[1]) : NULL;
        if (*s == '\\' && found == NULL) return unsupported(w, s, 2);
        *to = *s;
        if (found != NULL) *to = values[found - names], s++;
        to++;
        out->n++;
    }
    w->at++;
    return OK;
}

/* Reads the key of NAME.key or NAME['key']. */
static Status key_of(Walk *w, const char *start, Value *key)
{
    size_t n = 0;
    if (take_sign(w, ".")) {
        const char *s = take_name(w, &n);
        *key = (Value){ .kind = VALUE_TEXT, .s = s, .n = n };
        return OK;
    }
    bool bracket = take_sign(w, "[");
    skip_blanks(w);
    if (!bracket || (*w->at != '\'' && *w->at != '"'))
        return unsupported(w, start, (size_t)(w->at - start) + (*w->at != '\0'));
    TRY(read_string(w, key));
    return take_sign(w, "]") ? OK : syntax_error(w, "a bracket that does not close");
}

/* Members of Jinja's variable `loop`. Counting starts at the loop's first message, not at message
 * 0. */
static Status of_loop(Walk *w, const char *start, Value *out)
{
    Value key = { 0 };
    TRY(key_of(w, start, &key));
    *out = truth_value(w->i == w->first);
    if (is_word(key.s, key.n, "first")) return OK;
    *out = truth_value(w->i == w->n - 1);
    if (is_word(key.s, key.n, "last")) return OK;
    *out = (Value){ .kind = VALUE_NUMBER, .number = w->i - w->first };
    if (is_word(key.s, key.n, "index0")) return OK;
    return unsupported(w, start, (size_t)(w->at - start));
}

/* A field of message i; an empty text if there is no such message. */
static Status of_message(Walk *w, const char *start, int i, Value *out)
{
    Value key = { 0 };
    TRY(key_of(w, start, &key));
    const ChatMessage *m = w->live && i < w->n ? &w->m[i] : NULL;
    *out = text_value(m == NULL ? "" : m->role);
    if (is_word(key.s, key.n, "role")) return OK;
    *out = text_value(m == NULL ? "" : m->content);
    if (is_word(key.s, key.n, "content")) return OK;
    return unsupported(w, start, (size_t)(w->at - start));
}

/* Whole numbers only. The limit keeps sums of indexes inside an int. */
static Status read_number(Walk *w, Value *out)
{
    *out = (Value){ .kind = VALUE_NUMBER };
    for (; *w->at >= '0' && *w->at <= '9'; w->at++) {
        out->number = 10 * out->number + (*w->at - '0');
        if (out->number > NUMBER_MAX) return syntax_error(w, "a number above 1000000");
    }
    return is_name(*w->at) || *w->at == '.' ? unsupported(w, w->at, 1) : OK;
}

/* What may follow a list's name: nothing, [1:], or [0].role. */
static Status of_list(Walk *w, const char *start, Value *out)
{
    while (take_sign(w, "[")) {
        Value place = { 0 };
        skip_blanks(w);
        if (*w->at < '0' || *w->at > '9') return unsupported(w, start, (size_t)(w->at - start) + 1);
        TRY(read_number(w, &place));
        out->number += out->number < NUMBER_MAX ? place.number : 0;
        bool slice = take_sign(w, ":");
        if (!take_sign(w, "]")) return syntax_error(w, "a bracket that does not close");
        if (!slice) return of_message(w, start, out->number, out);
    }
    return OK;
}

/* NULL: no {% set %} has named it. */
static Variable *variable_of(Walk *w, const char *s, size_t n)
{
    for (int i = 0; i < w->variables; i++) {
        Variable *v = &w->variable[i];
        if (v->n == n && memcmp(v->name, s, n) == 0) return v;
    }
    return NULL;
}

/* raise_exception(TEXT): the template refuses the conversation, if this branch is taken. */
static Status raise(Walk *w, const char *start)
{
    Value why = { 0 };
    if (!take_sign(w, "(")) return unsupported(w, start, strlen("raise_exception"));
    TRY(any_of(w, &why));
    if (why.kind != VALUE_TEXT || !take_sign(w, ")"))
        return syntax_error(w, "raise_exception without a text in parentheses");
    if (!w->live) return OK;
    return FAIL(ERR_FORMAT, "%s refuses the chat: %.*s", w->t->name,
                (int)(why.n < 200 ? why.n : 200), why.s);
}

/* A missing token is an error only if the branch is taken: a template may name it under a
 * condition. */
static Status special_token(Walk *w, const char *name, const char *value, Value *out)
{
    if (w->live && value == NULL)
        return FAIL(ERR_FORMAT,
                    "%s asks for %s, which no tokenizer_config.json next to the tokenizer has",
                    w->t->name, name);
    *out = text_value(value == NULL ? "" : value);
    return OK;
}

/* A variable wins over the built-in names, as in Jinja. An unknown name is an error, where Jinja
 * would print nothing. */
static Status primary(Walk *w, Value *out)
{
    size_t n = 0;
    skip_blanks(w);
    if (*w->at == '\'' || *w->at == '"') return read_string(w, out);
    if (*w->at >= '0' && *w->at <= '9') return read_number(w, out);
    if (take_sign(w, "(")) {
        TRY(any_of(w, out));
        return take_sign(w, ")") ? OK : syntax_error(w, "a parenthesis that does not close");
    }
    const char *s = take_name(w, &n);
    if (n == 0) return syntax_error(w, "an expression that misses a value");
    bool yes = is_word(s, n, "true") || is_word(s, n, "True");
    if (yes || is_word(s, n, "false") || is_word(s, n, "False")) {
        *out = truth_value(yes);
        return OK;
    }
    const Variable *set = variable_of(w, s, n);
    if (set != NULL || is_word(s, n, "messages")) {
        *out = set == NULL ? (Value){ .kind = VALUE_LIST } : set->value;
        return out->kind == VALUE_LIST ? of_list(w, s, out) : OK;
    }
    if (is_word(s, n, "raise_exception")) {
        *out = text_value("");
        return raise(w, s);
    }
    if (is_word(s, n, "bos_token")) return special_token(w, "bos_token", w->t->bos, out);
    if (is_word(s, n, "eos_token")) return special_token(w, "eos_token", w->t->eos, out);
    if (is_word(s, n, "add_generation_prompt")) {
        *out = truth_value(w->prompt);
        return OK;
    }
    if (w->loop != NULL && is_word(s, n, "loop")) return of_loop(w, s, out);
    if (w->loop != NULL && n == w->loop_n && memcmp(s, w->loop, n) == 0)
        return of_message(w, s, w->i, out);
    return unsupported(w, s, n);
}

/* trim moves the ends of the value inwards and copies nothing. */
static Status filtered(Walk *w, Value *out)
{
    TRY(primary(w, out));
    while (take_sign(w, "|")) {
        size_t n = 0;
        const char *s = take_name(w, &n);
        if (!is_word(s, n, "trim")) return unsupported(w, s, n);
        if (out->kind != VALUE_TEXT && strict(w)) return syntax_error(w, "trim of what is no text");
        if (out->kind != VALUE_TEXT) *out = text_value("");
        for (; out->n > 0 && is_blank(out->s[0]); out->s++) out->n--;
        while (out->n > 0 && is_blank(out->s[out->n - 1])) out->n--;
    }
    return OK;
}

/* The loop stops at %}, which ends a tag, although it begins like the operator. */
static Status rest(Walk *w, Value *out)
{
    TRY(filtered(w, out));
    while (skip_blanks(w), w->at[0] == '%' && w->at[1] != '}') {
        Value by = { 0 };
        w->at++;
        TRY(filtered(w, &by));
        bool numbers = out->kind == VALUE_NUMBER && by.kind == VALUE_NUMBER && by.number > 0;
        if (!numbers && strict(w)) return syntax_error(w, "a rest of what is no number, or by 0");
        *out = (Value){ .kind = VALUE_NUMBER, .number = numbers ? out->number % by.number : 0 };
    }
    return OK;
}

/* + and ~ both join texts. Numbers are not added. */
static Status sum(Walk *w, Value *out)
{
    TRY(rest(w, out));
    while (skip_blanks(w), *w->at == '~' || *w->at == '+') {
        Value more;
        char *both = NULL;
        w->at++;
        TRY(rest(w, &more));
        bool texts = out->kind == VALUE_TEXT && more.kind == VALUE_TEXT;
        if (!texts && strict(w)) return syntax_error(w, "a sum of what is no text");
        if (!texts) *out = more = text_value("");
        TRY(new_bytes(w, out->n + more.n, &both));
        memcpy(both, out->s, out->n);
        memcpy(both + out->n, more.s, more.n);
        *out = (Value){ .kind = VALUE_TEXT, .s = both, .n = out->n + more.n };
    }
    return OK;
}

/* `not` binds looser than == and tighter than `and`, as in Python. */
static Status comparison(Walk *w, Value *out)
{
    bool no = false;
    while (take_word(w, "not")) no = !no;
    Value left, right;
    TRY(sum(w, &left));
    skip_blanks(w);
    const char *sign = w->at;
    bool equal = take_sign(w, "=="), other = !equal && take_sign(w, "!=");
    if (equal || other) {
        TRY(sum(w, &right));
        left = truth_value(values_equal(&left, &right) == equal);
    } else if (*sign == '<' || *sign == '>') {
        return unsupported(w, sign, 1);
    }
    *out = no ? truth_value(!truth(w, &left)) : left;
    return OK;
}

/* As in Python the value is an operand, not a truth: 'a' and 'b' is 'b'. Both sides are always
 * parsed, because parsing is how the cursor moves. */
static Status all_of(Walk *w, Value *out)
{
    TRY(comparison(w, out));
    while (take_word(w, "and")) {
        Value right;
        TRY(comparison(w, &right));
        if (truth(w, out)) *out = right;
    }
    return OK;
}

/* An expression. The grammar, loosest binding first: or, and, not, == and !=, + and ~, %, filters. */
static Status any_of(Walk *w, Value *out)
{
    if (++w->depth > DEPTH_MAX) return syntax_error(w, "parentheses or blocks more than 32 deep");
    TRY(all_of(w, out));
    while (take_word(w, "or")) {
        Value right;
        TRY(all_of(w, &right));
        if (!truth(w, out)) *out = right;
    }
    w->depth--;
    return OK;
}

/* ---- text and tags ---- */

static Status append_output(Walk *w, const char *s, size_t n)
{
    if (!w->live || n == 0) return OK;
    if (w->out->used + n > TEXT_MAX) return syntax_error(w, "a text of more than 64 MiB");
    return text_append(w->out, s, n);
}

/* Reads the end of a tag. As in Hugging Face's settings of Jinja (trim_blocks), a newline directly
 * after a block tag is removed. */
static Status end_tag(Walk *w, const char *sign, bool block)
{
    skip_blanks(w);
    w->strip = *w->at == '-' && strncmp(w->at + 1, sign, 2) == 0;
    w->at += w->strip;
    if (strncmp(w->at, sign, 2) != 0) {
        size_t n = strcspn(w->at, " \n%}");
        return n == 0 ? syntax_error(w, "a tag that does not end") : unsupported(w, w->at, n);
    }
    w->at += 2;
    w->line = false;
    if (block && !w->strip && w->at[0] == '\n') {
        w->at++;
        w->line = true;
    }
    return OK;
}

/* Outputs the text up to the next tag. Blanks before a block tag that begins a line are removed, as in
 * Hugging Face's settings of Jinja (lstrip_blocks). */
static Status run_text(Walk *w)
{
    const char *s = w->at, *end = s;
    while (*end != '\0' && !(end[0] == '{' && (end[1] == '{' || end[1] == '%' || end[1] == '#')))
        end++;
    w->at = end;
    bool line = w->line || s == w->t->text;
    while (w->strip && s < end && is_blank(*s)) s++;
    if (*end == '\0') {
        /* Jinja drops one newline at the end of a template */
        if (end > s && end[-1] == '\n') end--;
    } else if (end[2] == '-') {
        while (end > s && is_blank(end[-1])) end--;
    } else if (end[1] != '{') {
        const char *back = end;
        while (back > s && (back[-1] == ' ' || back[-1] == '\t')) back--;
        if (back > s ? back[-1] == '\n' : line) end = back;
    }
    w->strip = false;
    return append_output(w, s, (size_t)(end - s));
}

static Status skip_comment(Walk *w)
{
    const char *end = strstr(w->at, "#}");
    if (end == NULL) return syntax_error(w, "a comment that does not end");
    w->at = end[-1] == '-' && end > w->at + 1 ? end - 1 : end;
    return end_tag(w, "#}", true);
}

/* Truths are printed as Python prints them: True and False. */
static Status print_value(Walk *w)
{
    Value v;
    TRY(any_of(w, &v));
    TRY(end_tag(w, "}}", false));
    char digits[16];
    (void)snprintf(digits, sizeof digits, "%d", v.number);
    if (v.kind == VALUE_LIST && strict(w)) return syntax_error(w, "a list that is printed");
    if (v.kind == VALUE_TRUTH) v = text_value(v.number ? "True" : "False");
    if (v.kind == VALUE_NUMBER) v = text_value(digits);
    return append_output(w, v.s, v.n);
}

/* In a branch that is not taken the variable is declared, so that later uses of its name are
 * accepted. */
static Status run_set(Walk *w)
{
    Value value = { 0 };
    size_t n = 0;
    const char *name = take_name(w, &n);
    if (n == 0 || !take_sign(w, "=")) return unsupported(w, name, (size_t)(w->at - name) + 1);
    TRY(any_of(w, &value));
    Variable *v = variable_of(w, name, n);
    if (v == NULL && w->variables == VARIABLES_MAX)
        return syntax_error(w, "more than 16 variables");
    if (v == NULL) {
        v = &w->variable[w->variables++];
        *v = (Variable){ name, n, { .kind = value.kind, .s = "" } };
        /* Past the last message: an empty list. */
        if (value.kind == VALUE_LIST) v->value.number = NUMBER_MAX;
    }
    if (w->live) v->value = value;
    return end_tag(w, "%}", true);
}

static Status run_block(Walk *w, Stop *stop);

/* At most one branch is live. The others are walked with `live` false, which checks their
 * syntax. */
static Status run_branches(Walk *w)
{
    bool live = w->live, taken = false;
    for (Stop stop = STOP_ELIF; stop != STOP_ENDIF;) {
        Value yes = truth_value(true);
        w->live = live && !taken;
        if (stop == STOP_ELIF) TRY(any_of(w, &yes));
        TRY(end_tag(w, "%}", true));
        bool last = stop == STOP_ELSE;
        w->live &= truth(w, &yes);
        taken |= w->live;
        TRY(run_block(w, &stop));
        if (stop == STOP_END || stop == STOP_ENDFOR || (last && stop != STOP_ENDIF))
            return syntax_error(w, "an if without its endif");
    }
    w->live = live;
    return end_tag(w, "%}", true);
}

/* The cursor is set back to the start of the body for each message. Without messages the body is
 * walked once, not live, so that it is checked and the cursor passes it. */
static Status run_loop(Walk *w)
{
    Stop stop = STOP_END;
    const char *start = w->at;
    if (w->loop != NULL) return syntax_error(w, "a for inside a for, which is not understood");
    w->loop = take_name(w, &w->loop_n);
    Value list = { 0 };
    bool over = w->loop_n > 0 && take_word(w, "in");
    if (over) TRY(any_of(w, &list));
    if (list.kind != VALUE_LIST) return unsupported(w, start - 3, (size_t)(w->at - start) + 3);
    TRY(end_tag(w, "%}", true));
    w->first = list.number;
    const Walk body = *w;
    bool live = w->live && w->first < w->n;
    for (int i = w->first; i < (live ? w->n : w->first + 1); i++) {
        int depth = w->depth;
        *w = body;
        w->live = live;
        w->depth = depth;
        w->i = i;
        TRY(run_block(w, &stop));
        if (stop != STOP_ENDFOR) return syntax_error(w, "a for without its endfor");
    }
    w->loop = NULL;
    w->live = body.live;
    w->variables = body.variables; /* what is set inside is gone */
    memcpy(w->variable, body.variable, sizeof w->variable);
    return end_tag(w, "%}", true);
}

/* Processes text and tags until the tag that closes the block; leaves the cursor after its keyword. */
static Status run_block(Walk *w, Stop *stop)
{
    static const char *const ends[] = { "", "elif", "else", "endif", "endfor" };
    if (++w->depth > DEPTH_MAX) return syntax_error(w, "parentheses or blocks more than 32 deep");
    for (;;) {
        TRY(run_text(w));
        *stop = STOP_END;
        w->depth -= *w->at == '\0';
        if (*w->at == '\0') return OK;
        const char kind = w->at[1];
        w->at += w->at[2] == '-' ? 3 : 2;
        if (kind == '#') TRY(skip_comment(w));
        if (kind == '{') TRY(print_value(w));
        if (kind != '%') continue;
        size_t n = 0;
        const char *s = take_name(w, &n);
        for (int i = STOP_ELIF; i <= STOP_ENDFOR; i++) {
            if (!is_word(s, n, ends[i])) continue;
            *stop = (Stop)i;
            w->depth--;
            return OK;
        }
        if (is_word(s, n, "if"))
            TRY(run_branches(w));
        else if (is_word(s, n, "for"))
            TRY(run_loop(w));
        else if (is_word(s, n, "set"))
            TRY(run_set(w));
        else
            return n == 0 ? syntax_error(w, "a tag without a word") : unsupported(w, s, n);
    }
}

/* An elif, else, endif or endfor that no tag opened ends the walk early, and is an error here. */
static Status run_template(Walk *w)
{
    Stop stop = STOP_END;
    ArenaMark mark = arena_mark(w->scratch);
    w->at = w->t->text;
    TRY(run_block(w, &stop));
    if (stop != STOP_END) return syntax_error(w, "an end without its beginning");
    arena_release(w->scratch, mark);
    return OK;
}

Status chat_check(const ChatTemplate *t, Arena *scratch)
{
    return run_template(&(Walk){ .t = t, .scratch = scratch });
}

Status chat_render(const ChatTemplate *t, const ChatMessage *m, int n, bool prompt, Arena *scratch,
                   Text *out)
{
    return run_template(&(Walk){
        .t = t, .m = m, .n = n, .prompt = prompt, .live = true, .scratch = scratch, .out = out });
}

/* ---- answers ---- */

/* Renders the first n messages into `a`. */
static Status text_of(const ChatTemplate *t, const ChatMessage *m, int n, bool prompt, Arena *a,
                      Arena *scratch, ChatPart *out)
{
    Text text = { 0 };
    TRY(text_init(&text, a));
    TRY(text_append(&text, "", 0));
    TRY(chat_render(t, m, n, prompt, scratch, &text));
    *out = (ChatPart){ .text = text.data, .n = text.used };
    return OK;
}

/* Bytes of the characters that two renderings share at their beginning. A part of a text has whole
 * characters, because JSON holds no others. */
static size_t common_prefix(const ChatPart *a, const ChatPart *b)
{
    size_t n = 0;
    while (n < a->n && n < b->n && a->text[n] == b->text[n]) n++;
    while (n > 0 && n < a->n && (a->text[n] & 0xC0) == 0x80) n--;
    return n;
}

/* Finds the answer of message i in the whole text; *out points into it. It begins where the rendering of
 * the messages before it, with add_generation_prompt, ends. It ends where the rendering up to and
 * including it stops agreeing with the whole text. */
static Status find_answer(const ChatTemplate *t, const ChatMessage *m, int i, const ChatPart *whole,
                          Arena *a, Arena *scratch, ChatPart *out)
{
    ChatPart before, with;
    ArenaMark mark = arena_mark(a);
    TRY(text_of(t, m, i, true, a, scratch, &before));
    size_t first = common_prefix(&before, whole);
    bool begins = first == before.n;
    arena_release(a, mark);
    TRY(text_of(t, m, i + 1, false, a, scratch, &with));
    size_t end = common_prefix(&with, whole);
    arena_release(a, mark);
    *out = (ChatPart){ whole->text + first, end > first ? end - first : 0, true };
    if (begins && first < end) return OK;
    return FAIL(ERR_FORMAT,
                "%s does not tell where message %d, an answer, begins: what it writes of the "
                "messages before it, with add_generation_prompt, does not continue with the answer",
                t->name, i + 1);
}

/* ERR_FORMAT if the template ignores a role: then adding the message does not change the text. */
static Status check_roles(const ChatTemplate *t, const ChatMessage *m, int n, Arena *a,
                          Arena *scratch)
{
    size_t before = 0;
    for (int i = 0; i <= n; i++) {
        ChatPart text;
        ArenaMark mark = arena_mark(a);
        TRY(text_of(t, m, i, false, a, scratch, &text));
        arena_release(a, mark);
        if (i > 0 && text.n == before && m[i - 1].content[0] != '\0')
            return FAIL(ERR_FORMAT, "message %d has the role %.60s, which %s writes nothing for", i,
                        m[i - 1].role, t->name);
        before = text.n;
    }
    return OK;
}

/* Walks over the answers in the order of the text. What lies between them becomes a part without
 * loss, so the parts joined are the whole rendering. */
Status chat_parts(const ChatTemplate *t, const ChatMessage *m, int n, Arena *a, Arena *scratch,
                  ChatPart **out, int *n_parts)
{
    ChatPart *part = NULL, whole, answer;
    int parts = 0;
    size_t at = 0;
    TRY(check_roles(t, m, n, a, scratch));
    TRY(ARENA_NEW(a, 2 * n + 1, &part));
    TRY(text_of(t, m, n, false, a, scratch, &whole));
    for (int i = 0; i < n; i++) {
        if (strcmp(m[i].role, "assistant") != 0) continue;
        TRY(find_answer(t, m, i, &whole, a, scratch, &answer));
        size_t first = (size_t)(answer.text - whole.text);
        if (first < at) return FAIL(ERR_FORMAT, "%s writes answers over each other", t->name);
        if (first > at) part[parts++] = (ChatPart){ whole.text + at, first - at, false };
        part[parts++] = answer;
        at = first + answer.n;
    }
    if (parts == 0)
        return FAIL(ERR_FORMAT, "a chat of %d messages without an answer (the role assistant)", n);
    if (at < whole.n) part[parts++] = (ChatPart){ whole.text + at, whole.n - at, false };
    *out = part;
    *n_parts = parts;
    return OK;
}
