/* names: a hash table with linear probing. It has at least twice as many slots as names, so probe
 * sequences are short and always end. */
#include "convert/names.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

Status names_init(Names *t, int64_t n, Arena *a)
{
    uint64_t places = 16;
    while (places < 2 * (uint64_t)n) places *= 2;
    TRY(ARENA_ZEROED(a, places, &t->name));
    TRY(ARENA_NEW(a, places, &t->value));
    t->mask = places - 1;
    return OK;
}

/* The slot that holds the name, or the free one where it belongs. */
static uint64_t find_place(const Names *t, const char *name)
{
    uint64_t at = XXH3_64bits(name, strlen(name)) & t->mask;
    while (t->name[at] != NULL && strcmp(t->name[at], name) != 0) at = (at + 1) & t->mask;
    return at;
}

int64_t names_find(const Names *t, const char *name)
{
    uint64_t at = find_place(t, name);
    return t->name[at] == NULL ? -1 : t->value[at];
}

/* The text is not copied: it must live as long as the table. */
int64_t names_add(Names *t, const char *name, int64_t value)
{
    uint64_t at = find_place(t, name);
    if (t->name[at] != NULL) return t->value[at];
    t->name[at] = name;
    t->value[at] = value;
    return -1;
}
