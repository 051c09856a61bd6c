/* choices: the table of chosen algorithms, its text form, and its cache file. What the text means,
 * and why choices are kept at all, is in the header. Nothing here calls a library. */
#include "kernels/core/choices.h"

#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { VERSION = 1, KEY_NUMBERS = 7 };

_Static_assert(sizeof(ChoiceKey) == KEY_NUMBERS * sizeof(int64_t), "a key is read as numbers");

/* Most bytes of the text's first words, and of its last line. */
enum { FRAME_BYTES = 64 };

/* The version is part of the first line, so a text of another version never parses. */
static const char *text_head(char out[FRAME_BYTES])
{
    (void)snprintf(out, FRAME_BYTES, "switchyard products %d\nmachine ", VERSION);
    return out;
}

static const char *text_tail(char out[FRAME_BYTES], int n, const char *text, size_t bytes)
{
    (void)snprintf(out, FRAME_BYTES, "end %d %016" PRIx64 "\n", n,
                   (uint64_t)XXH3_64bits(text, bytes));
    return out;
}

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

/* Linear: a model has some dozen shapes, and a search costs nothing next to a product. */
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

/* Grouped products. */

/* Bit 62 marks a grouped product, bits 1 to 60 hold the hash of the op's name, bit 0 says that an
 * index names rows. Bit 63 stays 0, because a key is read back as a positive number. */
ChoiceKey choices_grouped_key(const char *op, bool indexed, int64_t rows, int64_t experts,
                              int64_t a_cols, int64_t b_cols)
{
    uint64_t name = XXH3_64bits(op, strlen(op)) >> 3 << 1;
    uint64_t product = (uint64_t)1 << 62 | name | (uint64_t)indexed;
    return (ChoiceKey){ rows, b_cols, a_cols, experts, 1, 1, (int64_t)product };
}

/* Words after the first must be 0. If they are not, the entry is not one of ours and the first shape runs. */
int choices_shape(Choices *c, const ChoiceKey *key, const int *shape, int n)
{
    const Choice *kept = choices_find(c, key);
    int at = n - 1;
    if (kept == NULL) return -1;
    for (int w = 1; w < CHOICE_WORDS; w++) {
        if (kept->algo[w] != 0) return 0;
    }
    while (at > 0 && kept->algo[0] != (uint64_t)shape[at]) at--;
    return at;
}

int choices_shape_timed(Choices *c, const ChoiceKey *key, const int *shape, int n, const float *ms)
{
    const float gain = 1.015f; /* less is noise of the timing */
    int best = 0;
    for (int i = 1; i < n; i++) best = ms[i] < ms[best] ? i : best;
    if (ms[0] < gain * ms[best]) best = 0;
    Choice *made = choices_add(c, key);
    if (made == NULL) return 0;
    made->kind = CHOICE_TIMED;
    made->algo[0] = (uint64_t)shape[best];
    c->unsaved = true;
    return best;
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

/* The checksum is over the bytes printed so far, so the last line comes last. */
static Status choices_print(const Choices *c, bool only_timed, Text *out)
{
    int n = 0;
    char frame[FRAME_BYTES];
    TRY(text_printf(out, "%s%s\n", text_head(frame), c->machine));
    for (int i = 0; i < c->n; i++) {
        if (only_timed && c->at[i].kind != CHOICE_TIMED) continue;
        TRY(print_choice(&c->at[i], out));
        n++;
    }
    return text_printf(out, "%s", text_tail(frame, n, out->data, out->used));
}

Status choices_text(const Choices *c, Arena *a, const char **out)
{
    Text text;
    *out = "";
    if (c == NULL) return OK;
    TRY(text_init(&text, a));
    TRY(choices_print(c, false, &text));
    *out = text.data;
    return OK;
}

/* Reading. The checksum of the last line finds all damage, so numbers need no range checks of their own. */

/* Parses one line and moves *at past it. */
static bool parse_choice(const char **at, Choice *out)
{
    Choice got = { .kind = CHOICE_KINDS, .unchecked = true };
    uint64_t number[KEY_NUMBERS + CHOICE_WORDS];
    for (int i = 0; i < CHOICE_KINDS && got.kind == CHOICE_KINDS; i++) {
        if (text_starts(*at, kinds[i])) got.kind = (ChoiceKind)i;
    }
    if (got.kind == CHOICE_KINDS) return false;
    *at += strlen(kinds[got.kind]);
    for (int i = 0; i < KEY_NUMBERS + CHOICE_WORDS; i++) {
        bool size = i < KEY_NUMBERS - 1, key = i < KEY_NUMBERS; /* kinds may be 0 */
        char *end = NULL;
        number[i] = strtoull(*at, &end, size ? 10 : 16);
        if (end == *at || (key && number[i] > INT64_MAX) || (size && number[i] == 0)) return false;
        *at = end;
    }
    memcpy(&got.key, number, sizeof got.key);
    memcpy(got.algo, number + KEY_NUMBERS, sizeof got.algo);
    *out = got;
    return *(*at)++ == '\n';
}

/* Parses all choices of a text, up to its last line, and adds those that are new to `into`. With
 * `into` NULL it only counts them. False: a line is not a choice. */
static bool parse_choices(const char *at, const char *last, Choices *into, int *taken)
{
    Choice choice;
    while (at < last) {
        if (!parse_choice(&at, &choice)) return false;
        Choice *to = NULL;
        if (into != NULL && choices_find(into, &choice.key) == NULL)
            to = choices_add(into, &choice.key);
        if (to != NULL) *to = choice;
        *taken += into == NULL || to != NULL;
    }
    return true;
}

/* Is the text complete, undamaged and of this version? If so, sets where its machine, its choices
 * and its last line begin. */
static bool open_text(const char *text, const char **machine, const char **body, const char **last)
{
    char frame[FRAME_BYTES];
    int choices = 0;
    const char *end = text + strlen(text) - (*text != '\0');
    while (end > text && end[-1] != '\n') end--;
    if (!text_starts(text, text_head(frame))) return false;
    *machine = text + strlen(frame);
    const char *line_end = strchr(*machine, '\n');
    if (line_end == NULL || line_end >= end) return false;
    *body = line_end + 1;
    *last = end;
    if (!parse_choices(*body, end, NULL, &choices)) return false;
    return strcmp(end, text_tail(frame, choices, text, (size_t)(end - text))) == 0;
}

static Status choices_parse(Choices *c, const char *name, const char *text, int *taken)
{
    const char *machine = NULL, *body = NULL, *last = NULL;
    *taken = 0;
    if (!open_text(text, &machine, &body, &last)) {
        return FAIL(ERR_FORMAT, "%s: the choices of matrix products are damaged", name);
    }
    int n = (int)(body - 1 - machine);
    if ((size_t)n != strlen(c->machine) || memcmp(machine, c->machine, (size_t)n) != 0) {
        log_warn("%s: matrix products were chosen for %.*s, this is %s: they are chosen again, and "
                 "sums may differ in their last bits",
                 name, n < CHOICE_MACHINE_MAX ? n : CHOICE_MACHINE_MAX, machine, c->machine);
        return OK;
    }
    (void)parse_choices(body, last, c, taken);
    return OK;
}

Status choices_take(Choices *c, const char *name, const char *text, int *taken)
{
    *taken = 0;
    if (c == NULL || *text == '\0') return OK;
    return choices_parse(c, name, text, taken);
}

void choices_clear(Choices *c) { c->n = 0; }

/* The cache file. */

/* One file for each machine: the hash of its name is in the file's name. */
Status choices_path(const char *cache_dir, const char *machine, char out[])
{
    char folder[FILE_PATH_MAX], name[64];
    TRY(file_cache_folder(cache_dir, folder));
    (void)snprintf(name, sizeof name, "products-%016" PRIx64 ".txt",
                   (uint64_t)XXH3_64bits(machine, strlen(machine)));
    return file_join(out, folder, name);
}

static Status cache_read(Choices *c, const char *path, Arena *scratch, int *taken)
{
    char *text = NULL;
    size_t bytes = 0;
    TRY(file_read_all(path, scratch, &text, &bytes));
    return choices_parse(c, path, text, taken);
}

/* The cache is only a convenience, so whatever fails is one warning. */
static void cache_warn(const char *what)
{
    char why[512];
    status_sentence(why, sizeof why);
    log_warn("the cache of matrix products %s: %s", what, why);
}

/* The scratch arena is given back in any case; choices themselves are copied into the table. */
int choices_load(Choices *c, const char *cache_dir, Arena *scratch)
{
    char path[FILE_PATH_MAX];
    int taken = 0;
    if (c == NULL) return 0;
    ArenaMark mark = arena_mark(scratch);
    Status s = choices_path(cache_dir, c->machine, path);
    if (s == OK && file_exists(path)) s = cache_read(c, path, scratch, &taken);
    arena_release(scratch, mark);
    if (s != OK) cache_warn("is not read");
    return taken;
}

static Status cache_write(Choices *c, const char *cache_dir, Arena *scratch)
{
    char path[FILE_PATH_MAX], lock[FILE_PATH_MAX + 8];
    int fd = 0;
    bool held = false;
    long holder = 0;
    TRY(choices_path(cache_dir, c->machine, path));
    TRY(file_make_parent(path));
    (void)snprintf(lock, sizeof lock, "%s.lock", path);
    TRY(file_lock(lock, &fd, &held, &holder));
    if (!held) return OK; /* another process saves now; a later run times ours again */
    (void)choices_load(c, cache_dir, scratch); /* keep what others wrote since we read the file */
    Text text;
    Status s = text_init(&text, scratch);
    if (s == OK) s = choices_print(c, true, &text);
    if (s == OK) s = file_write_whole(path, text.data, text.used);
    file_unlock(fd);
    if (s == OK) c->unsaved = false;
    return s;
}

void choices_save(Choices *c, const char *cache_dir, Arena *scratch)
{
    if (c == NULL || !c->unsaved) return;
    ArenaMark mark = arena_mark(scratch);
    Status s = cache_write(c, cache_dir, scratch);
    arena_release(scratch, mark);
    if (s != OK) cache_warn("is not written");
}
