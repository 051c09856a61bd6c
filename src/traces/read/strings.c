/* strings: see strings.h. Texts lie in one arena and entries in another; a hash table holds numbers
 * of entries. Arenas reserve addresses for the most that is possible. So texts never move when
 * there are more, and pointers to them stay valid. */
#include "traces/read/strings.h"

#include "engine/base/text.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* Limits above what any trace needs. Only addresses are reserved for them. */
static const size_t TEXT_BYTES = (size_t)1 << 36;
#ifdef HOSTILE
enum { TEXT_STEP = 1 << 10, ENTRY_STEP = 1 << 4, FIRST_SLOTS = 1 << 3 };
#else
enum { TEXT_STEP = 1 << 16, ENTRY_STEP = 1 << 12, FIRST_SLOTS = 1 << 12 };
#endif
static const size_t ENTRIES_MAX = (size_t)1 << 30;

bool strings_has_word(const char *s, const char *words)
{
    char word[64];
    int n = 0;
    const char *w = NULL;
    for (int i = 0; (w = text_word(words, i, &n)) != NULL && n > 0; i++) {
        memcpy(word, w, (size_t)n);
        word[n] = '\0';
        if (strcasestr(s, word) != NULL) return true;
    }
    return false;
}

uint32_t strings_hash(const char *s, size_t n) { return (uint32_t)XXH3_64bits(s, n); }

/* The text is not in the table yet, so only a free slot is looked for. */
static void slot_put(Strings *t, uint32_t id)
{
    uint32_t at = t->entries[id].hash & (t->slots - 1);
    while (t->slot[at] != 0) at = (at + 1) & (t->slots - 1);
    t->slot[at] = id;
}

/* Rebuilds the table, larger, at the same address. The entries have all that it needs. */
static Status grow_table(Strings *t, uint32_t slots)
{
    arena_release(&t->table, (ArenaMark){ 0 });
    TRY(ARENA_ZEROED(&t->table, slots, &t->slot));
    t->slots = slots;
    for (uint32_t i = 1; i < t->n; i++) slot_put(t, i);
    return OK;
}

/* Makes room at the end of an arena that holds nothing else, so that its content stays one block.
 * Grows by `step` at least, so that few calls reach the arena. */
static Status extend_block(Arena *a, size_t used, size_t more, size_t step)
{
    void *at = NULL;
    if (used + more <= a->used_bytes) return OK;
    return arena_alloc(a, more > step ? arena_rounded(more) : step, &at);
}

/* Both arenas grow at their end only, so `entries` and all texts stay where they are. */
static Status add_text(Strings *t, const char *s, size_t n, uint32_t hash)
{
    if (t->n == ENTRIES_MAX || n > UINT32_MAX - 1)
        return FAIL(ERR_MEMORY, "strings: more than %zu texts, or one of %zu bytes", ENTRIES_MAX,
                    n);
    TRY(extend_block(&t->text, t->text_bytes, n + 1, TEXT_STEP));
    TRY(extend_block(&t->entry, t->n * sizeof *t->entries, sizeof *t->entries,
                     ENTRY_STEP * sizeof *t->entries));
    t->entries = (void *)t->entry.base;
    char *at = t->text.base + t->text_bytes;
    memcpy(at, s, n);
    at[n] = '\0';
    t->text_bytes += n + 1;
    t->entries[t->n++] = (StringEntry){ at, (uint32_t)n, hash };
    return OK;
}

Status strings_init(Strings *t) { return strings_reserve(t, TEXT_BYTES); }

/* Each text needs a byte and a NUL at least, so there are at most text_bytes / 2 entries. */
static Status reserve(Strings *t, size_t text_bytes)
{
    size_t entries = text_bytes / 2 + 2, slots = FIRST_SLOTS;
    if (entries > ENTRIES_MAX) entries = ENTRIES_MAX;
    /* the largest table: a slot for each entry at less than half full, and the next power of two */
    while (slots < 4 * entries) slots *= 2;
    TRY(arena_init(&t->text, "texts of a trace", MEM_HOST, text_bytes + TEXT_STEP + 1));
    TRY(arena_init(&t->entry, "entries of texts", MEM_HOST,
                   (entries + 2 * (size_t)ENTRY_STEP) * sizeof(StringEntry)));
    TRY(arena_init(&t->table, "table of texts", MEM_HOST, slots * sizeof *t->slot));
    TRY(grow_table(t, FIRST_SLOTS));
    return add_text(t, "", 0, strings_hash("", 0));
}

Status strings_reserve(Strings *t, size_t text_bytes)
{
    *t = (Strings){ 0 };
    Status s = reserve(t, text_bytes);
    if (s != OK) strings_free(t);
    return s;
}

void strings_free(Strings *t)
{
    arena_free(&t->table);
    arena_free(&t->entry);
    arena_free(&t->text);
    *t = (Strings){ 0 };
}

/* The slot that holds the text, or the free slot where it belongs. */
static uint32_t find_slot(const Strings *t, const char *s, size_t n, uint32_t hash)
{
    uint32_t at = hash & (t->slots - 1);
    for (; t->slot[at] != 0; at = (at + 1) & (t->slots - 1)) {
        const StringEntry *e = &t->entries[t->slot[at]];
        if (e->hash == hash && e->bytes == n && memcmp(e->s, s, n) == 0) break;
    }
    return at;
}

Status strings_id_hashed(Strings *t, const char *s, size_t n, uint32_t hash, uint32_t *out)
{
    *out = 0;
    if (n == 0) return OK;
    uint32_t at = find_slot(t, s, n, hash);
    if (t->slot[at] == 0) {
        /* Half full is the limit, so that searches stay short. */
        if (t->n >= t->slots / 2) {
            TRY(grow_table(t, t->slots * 2));
            at = find_slot(t, s, n, hash);
        }
        TRY(add_text(t, s, n, hash));
        t->slot[at] = t->n - 1;
    }
    *out = t->slot[at];
    return OK;
}

Status strings_id(Strings *t, const char *s, size_t n, uint32_t *out)
{
    return strings_id_hashed(t, s, n, strings_hash(s, n), out);
}

uint32_t strings_find(const Strings *t, const char *s)
{
    size_t n = strlen(s);
    if (n == 0) return 0;
    /* 0 is a free slot, and the number of the empty text, which was handled above. */
    uint32_t id = t->slot[find_slot(t, s, n, strings_hash(s, n))];
    return id == 0 ? UINT32_MAX : id;
}
