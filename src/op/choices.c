/* choices: the table of timed algorithms, its text form, and its cache file. */
#include "op/choices.h"

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { VERSION = 1, KEY_NUMBERS = 6 };

static const char *const kinds[CHOICE_KINDS] = { "first", "timed", "plain" };

Status choices_make(Arena *a, const char *machine, Choices **out)
{
    Choices *c = NULL;
    TRY(ARENA_ZEROED(a, 1, &c));
    (void)snprintf(c->machine, sizeof c->machine, "%s", machine);
    for (char *at = c->machine; *at != '\0'; at++) {
        if (*at == '\n' || *at == '\r') *at = ' ';
    }
    *out = c;
    return OK;
}

Choice *choices_find(Choices *c, const ChoiceKey *key)
{
    for (int i = 0; i < c->n; i++) {
        if (memcmp(&c->at[i].key, key, sizeof *key) == 0) return &c->at[i];
    }
    return NULL;
}

Choice *choices_add(Choices *c, const ChoiceKey *key)
{
    if (c->n == CHOICES_MAX) return NULL;
    Choice *added = &c->at[c->n++];
    *added = (Choice){ .key = *key };
    return added;
}

/* Writing. */

static Status print_choice(const Choice *c, Text *out)
{
    const ChoiceKey *k = &c->key;
    TRY(text_printf(
        out, "%s %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRIx64,
        kinds[c->kind], k->m, k->n, k->k, k->lda, k->ldb, k->ldc, (uint64_t)k->kinds));
    for (int i = 0; i < CHOICE_WORDS; i++) TRY(text_printf(out, " %" PRIx64, c->algo[i]));
    return text_append(out, "\n", 1);
}

static Status print(const Choices *c, bool only_timed, Text *out)
{
    int n = 0;
    TRY(text_printf(out, "switchyard products %d\nmachine %s\n", VERSION, c->machine));
    for (int i = 0; i < c->n; i++) {
        if (only_timed && c->at[i].kind != CHOICE_TIMED) continue;
        TRY(print_choice(&c->at[i], out));
        n++;
    }
    uint64_t sum = XXH3_64bits(out->data, out->used);
    return text_printf(out, "end %d %016" PRIx64 "\n", n, sum);
}

Status choices_text(const Choices *c, Arena *a, const char **out)
{
    Text text;
    *out = "";
    if (c == NULL) return OK;
    TRY(text_init(&text, a));
    TRY(print(c, false, &text));
    *out = text.data;
    return OK;
}

/* Reading. */

typedef struct Cursor {
    const char *at, *end;
} Cursor;

static bool take_word(Cursor *c, const char *word)
{
    size_t n = strlen(word);
    if ((size_t)(c->end - c->at) < n || memcmp(c->at, word, n) != 0) return false;
    c->at += n;
    return true;
}

static unsigned digit_of(char c)
{
    if (c >= '0' && c <= '9') return (unsigned)(c - '0');
    return c >= 'a' && c <= 'f' ? (unsigned)(c - 'a') + 10 : 16;
}

static bool take_number(Cursor *c, unsigned base, uint64_t *out)
{
    const char *first = c->at;
    uint64_t v = 0;
    for (unsigned d; c->at < c->end && (d = digit_of(*c->at)) < base; c->at++) {
        if (v > (UINT64_MAX - d) / base) return false;
        v = v * base + d;
    }
    *out = v;
    return c->at > first;
}

/* " NUMBER", of a size or a distance between rows. */
static bool take_size(Cursor *c, int64_t *out)
{
    uint64_t v = 0;
    if (!take_word(c, " ") || !take_number(c, 10, &v) || v == 0 || v > INT64_MAX) return false;
    *out = (int64_t)v;
    return true;
}

static bool take_choice(Cursor *c, Choice *out)
{
    Choice got = { .kind = CHOICE_KINDS, .unchecked = true };
    int64_t *const numbers[KEY_NUMBERS] = { &got.key.m,   &got.key.n,   &got.key.k,
                                            &got.key.lda, &got.key.ldb, &got.key.ldc };
    uint64_t types = 0;
    for (int i = 0; i < CHOICE_KINDS && got.kind == CHOICE_KINDS; i++) {
        if (take_word(c, kinds[i])) got.kind = (ChoiceKind)i;
    }
    if (got.kind == CHOICE_KINDS) return false;
    for (int i = 0; i < KEY_NUMBERS; i++) {
        if (!take_size(c, numbers[i])) return false;
    }
    if (!take_word(c, " ") || !take_number(c, 16, &types) || types > INT64_MAX) return false;
    got.key.kinds = (int64_t)types;
    for (int i = 0; i < CHOICE_WORDS; i++) {
        if (!take_word(c, " ") || !take_number(c, 16, &got.algo[i])) return false;
    }
    *out = got;
    return take_word(c, "\n");
}

static void add_new(Choices *c, const Choice *from, int *taken)
{
    Choice *to = choices_find(c, &from->key) == NULL ? choices_add(c, &from->key) : NULL;
    if (to == NULL) return;
    *to = *from;
    ++*taken;
}

/* Reads the choices of a text, up to its end line; its frame is already checked. With `into` NULL
 * they are only looked at. False: a line is no choice. */
static bool each_choice(Cursor body, Choices *into, int *taken)
{
    Choice choice;
    while (body.at < body.end) {
        if (!take_choice(&body, &choice)) return false;
        if (into != NULL)
            add_new(into, &choice, taken);
        else
            ++*taken;
    }
    return true;
}

/* Is the text whole, and of this version? *machine is its machine, *body its choices. */
static bool open_text(const char *text, size_t bytes, Cursor *machine, Cursor *body)
{
    Cursor c = { text, text + bytes }, end = c;
    uint64_t version = 0, count = 0, sum = 0;
    int choices = 0;
    for (end.at = text + (bytes > 0 ? bytes - 1 : 0); end.at > text && end.at[-1] != '\n';)
        end.at--;
    const char *last = end.at;
    if (!take_word(&end, "end ") || !take_number(&end, 10, &count) || !take_word(&end, " ") ||
        !take_number(&end, 16, &sum) || !take_word(&end, "\n") ||
        sum != XXH3_64bits(text, (size_t)(last - text)))
        return false;
    if (!take_word(&c, "switchyard products ") || !take_number(&c, 10, &version) ||
        version != VERSION || !take_word(&c, "\nmachine "))
        return false;
    const char *line_end = memchr(c.at, '\n', (size_t)(last - c.at));
    if (line_end == NULL) return false;
    *machine = (Cursor){ c.at, line_end };
    *body = (Cursor){ line_end + 1, last };
    return each_choice(*body, NULL, &choices) && (uint64_t)choices == count;
}

static Status take(Choices *c, const char *name, Cursor text, int *taken)
{
    Cursor machine, body;
    *taken = 0;
    if (!open_text(text.at, (size_t)(text.end - text.at), &machine, &body)) {
        return FAIL(ERR_FORMAT, "%s: the choices of matrix products are damaged", name);
    }
    int n = (int)(machine.end - machine.at);
    if ((size_t)n != strlen(c->machine) || memcmp(machine.at, c->machine, (size_t)n) != 0) {
        log_warn("%s: matrix products were chosen for %.*s, this is %s: they are chosen anew, and "
                 "sums may differ in their last bits",
                 name, n < CHOICE_MACHINE_MAX ? n : CHOICE_MACHINE_MAX, machine.at, c->machine);
        return OK;
    }
    (void)each_choice(body, c, taken);
    return OK;
}

Status choices_take(Choices *c, const char *name, const char *text, int *taken)
{
    *taken = 0;
    if (c == NULL || *text == '\0') return OK;
    return take(c, name, (Cursor){ text, text + strlen(text) }, taken);
}

void choices_clear(Choices *c) { c->n = 0; }

/* The cache file. */

Status choices_path(const char *cache_dir, const char *machine, char out[])
{
    char folder[FILE_PATH_MAX], name[64];
    TRY(file_cache_folder(cache_dir, folder));
    (void)snprintf(name, sizeof name, "products-%016" PRIx64 ".txt",
                   (uint64_t)XXH3_64bits(machine, strlen(machine)));
    return file_join(out, folder, name);
}

static Status load(Choices *c, const char *path, Arena *scratch, int *taken)
{
    char *text = NULL;
    size_t bytes = 0;
    TRY(file_read_all(path, scratch, &text, &bytes));
    return take(c, path, (Cursor){ text, text + bytes }, taken);
}

static void warn(const char *what)
{
    char why[512];
    status_sentence(why, sizeof why);
    log_warn("the cache of matrix products %s: %s", what, why);
}

int choices_load(Choices *c, const char *cache_dir, Arena *scratch)
{
    char path[FILE_PATH_MAX];
    int taken = 0;
    if (c == NULL) return 0;
    ArenaMark mark = arena_mark(scratch);
    Status s = choices_path(cache_dir, c->machine, path);
    if (s == OK && file_exists(path)) s = load(c, path, scratch, &taken);
    arena_release(scratch, mark);
    if (s != OK) warn("is not read");
    return taken;
}

static Status write_file(const Choices *c, const char *path, Arena *scratch)
{
    Text text;
    TRY(text_init(&text, scratch));
    TRY(print(c, true, &text));
    return file_write_whole(path, text.data, text.used);
}

static Status save(Choices *c, const char *cache_dir, Arena *scratch)
{
    char path[FILE_PATH_MAX], lock[FILE_PATH_MAX + 8];
    int fd = 0;
    bool held = false;
    long holder = 0;
    TRY(choices_path(cache_dir, c->machine, path));
    TRY(file_make_parent(path));
    (void)snprintf(lock, sizeof lock, "%s.lock", path);
    TRY(file_lock(lock, &fd, &held, &holder));
    if (!held) return OK; /* another process saves now; our timings are then made again some day */
    (void)choices_load(c, cache_dir, scratch);
    Status s = write_file(c, path, scratch);
    file_unlock(fd);
    if (s == OK) c->unsaved = false;
    return s;
}

void choices_save(Choices *c, const char *cache_dir, Arena *scratch)
{
    if (c == NULL || !c->unsaved) return;
    ArenaMark mark = arena_mark(scratch);
    Status s = save(c, cache_dir, scratch);
    arena_release(scratch, mark);
    if (s != OK) warn("is not written");
}
