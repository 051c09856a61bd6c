/* cut_patterns CASES: for tools/check_patterns. A line of CASES is O (Oniguruma) or F (fancy-regex), a pattern and
 * texts, in hexadecimal with spaces between. A line of the answer is `refused SENTENCE`, or for each text the
 * bytes of its pieces with commas between, or `!` if it cannot be cut. */
#include "corpus/tokenizer/charset.h"
#include "corpus/tokenizer/pattern.h"
#include "corpus/tokenizer/split.h"
#include "engine/base/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE = 1 << 20 };

static Status put(void *context, const char *piece, int32_t n)
{
    (void)piece;
    char *out = context;
    (void)sprintf(out + strlen(out), "%s%d", *out == '\0' ? "" : ",", (int)n);
    return OK;
}

static size_t from_hex(const char *hex, char *out)
{
    size_t n = 0;
    for (unsigned byte = 0; hex[2 * n] != '\0'; n++) {
        char two[3] = { hex[2 * n], hex[2 * n + 1] };
        byte = (unsigned)strtoul(two, NULL, 16);
        out[n] = (char)byte;
    }
    out[n] = '\0';
    return n;
}

static Status cut(const Splitter *s, const char *text, size_t n, Arena *a, char *out)
{
    SplitCut c;
    size_t used = 0;
    *out = '\0';
    TRY(split_begin(&c, s, put, out, a));
    return split_text(&c, text, n, &used);
}

/* A pattern of fancy-regex is written as Oniguruma's, which a tokenizer.json has. */
static Status add_pattern(Splitter *s, bool fancy, const char *pattern, Arena *a)
{
    Text text;
    if (!fancy) return splitter_add_rule(s, pattern, SPLIT_ONIGURUMA, SPLIT_ISOLATED, a);
    TRY(text_init(&text, a));
    TRY(pattern_translate(pattern, PATTERN_FANCY, CHARSET_UNICODE, &text));
    return splitter_add_rule(s, text.data, SPLIT_ONIGURUMA, SPLIT_ONLY_MATCHES, a);
}

static void answer(char *line, Arena *a, char *text, char *out)
{
    Splitter s = { 0 };
    bool fancy = strtok(line, " \n")[0] == 'F';
    char *pattern = strtok(NULL, " \n"), sentence[600];
    (void)from_hex(pattern, pattern);
    Status status = add_pattern(&s, fancy, pattern, a);
    status_sentence(sentence, sizeof sentence);
    if (status != OK) {
        for (char *c = sentence; *c != '\0'; c++) *c = *c == '\n' ? ' ' : *c;
        printf("refused %s", sentence);
    }
    for (char *hex = NULL; status == OK && (hex = strtok(NULL, " \n")) != NULL;) {
        size_t n = from_hex(hex, text);
        bool good = cut(&s, text, n, a, out) == OK;
        printf("%s ", good ? *out == '\0' ? "-" : out : "!");
    }
    printf("\n");
    splitter_free(&s);
}

int main(int n, char **words)
{
    static char line[LINE], text[LINE], out[LINE];
    Arena a = { 0 };
    FILE *f = n == 2 ? fopen(words[1], "r") : NULL;
    if (f == NULL || arena_init(&a, "cut", MEM_HOST, (size_t)1 << 28) != OK) return 2;
    while (fgets(line, sizeof line, f) != NULL) {
        ArenaMark mark = arena_mark(&a);
        answer(line, &a, text, out);
        arena_release(&a, mark);
    }
    (void)fclose(f);
    arena_free(&a);
    return 0;
}
