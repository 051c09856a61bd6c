/* prepare_journal: a line of numbers behind the hash of the run. */
#include "corpus/prepare/prepare_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

static const int64_t NUMBER_MAX = (int64_t)1 << 56; /* sums of them still fit */
/* VERSION changes with what is written for the same text. */
enum { VERSION = 2, FIELDS = 15, FIELD_BYTES = 24, PATH_BYTES = FILE_PATH_MAX + 16 };

static void journal_path(const char *prefix, char out[PATH_BYTES])
{
    (void)snprintf(out, PATH_BYTES, "%s.journal", prefix);
}

static Status add_file(Text *t, const char *path)
{
    struct stat info = { 0 };
    if (shell_command(path) != NULL) return text_printf(t, "%s\n", path);
    if (stat(path, &info) != 0) return FAIL(ERR_IO, "%s is gone", path);
    return text_printf(t, "%s\n%lld %lld.%09ld\n", path, (long long)info.st_size,
                       (long long)info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
}

Status journal_run(const PrepareConfig *c, const Corpus *corpus, const char *tokenizer_sum,
                   Arena *a, char out[FILE_SUM_BYTES])
{
    Text t = { 0 };
    ArenaMark mark = arena_mark(a);
    TRY(text_init(&t, a));
    const char *field = c->documents.field != NULL ? c->documents.field : "";
    TRY(text_printf(&t, "%d %s %d %zu %lld %d\n%s\n", VERSION, tokenizer_sum, c->documents.split,
                    c->documents.most_bytes, c->parts ? (long long)c->sequence : 0, c->dedup,
                    c->parts ? "" : field));
    for (int i = 0; i < corpus->n; i++) TRY(add_file(&t, corpus->files[i]));
    XXH128_hash_t h = XXH3_128bits(t.data, t.used);
    arena_release(a, mark);
    (void)snprintf(out, FILE_SUM_BYTES, "%016llx%016llx", (unsigned long long)h.high64,
                   (unsigned long long)h.low64);
    return OK;
}

/* Every number of a journal, in the order of the file. */
static void fields_of(Journal *j, int64_t *out[FIELDS])
{
    PrepareStats *s = &j->stats;
    int64_t *const all[FIELDS] = { &j->file,        &j->file_bytes, &j->place.bytes,
                                   &j->place.lines, &j->place.sum,  &j->mark.documents,
                                   &j->mark.tokens, &j->mark.bits,  &s->documents,
                                   &s->tokens,      &s->text_bytes, &s->learned,
                                   &s->empty,       &s->skipped,    &s->duplicates };
    memcpy(out, all, sizeof all);
}

Status journal_write(const Journal *j, const char *prefix)
{
    Journal copy = *j;
    int64_t *field[FIELDS];
    char path[PATH_BYTES], text[FILE_SUM_BYTES + FIELDS * FIELD_BYTES];
    fields_of(&copy, field);
    int n = snprintf(text, sizeof text, "%s", j->run);
    for (int i = 0; i < FIELDS; i++)
        n += snprintf(text + n, sizeof text - (size_t)n, " %lld", (long long)*field[i]);
    n += snprintf(text + n, sizeof text - (size_t)n, "\n");
    journal_path(prefix, path);
    return file_write_whole(path, text, (size_t)n);
}

/* A journal of another run, or a damaged one, is as good as none. */
static void parse_journal(Journal *j, const char *text, bool *found)
{
    int64_t *field[FIELDS];
    size_t sum = FILE_SUM_BYTES - 1;
    const char *at = text + sum;
    Journal new = *j;
    fields_of(&new, field);
    if (strncmp(text, j->run, sum) != 0) return;
    for (int i = 0; i < FIELDS; i++) {
        char *end = NULL;
        *field[i] = strtoll(at, &end, 10);
        if (end == at || *field[i] < 0 || *field[i] > NUMBER_MAX) return;
        at = end;
    }
    *found = *at == '\n';
    if (*found) *j = new;
}

Status journal_read(Journal *j, const char *prefix, bool *found)
{
    char path[PATH_BYTES], text[FILE_SUM_BYTES + FIELDS * FIELD_BYTES] = "";
    FileMap map = { 0 };
    journal_path(prefix, path);
    *found = false;
    if (!file_exists(path)) return OK;
    TRY(file_map(path, &map));
    if (map.bytes < sizeof text && map.bytes > 0) memcpy(text, map.data, map.bytes);
    file_unmap(&map);
    if (strlen(text) >= FILE_SUM_BYTES) parse_journal(j, text, found);
    return OK;
}

Status journal_remove(const char *prefix)
{
    char path[PATH_BYTES];
    journal_path(prefix, path);
    return file_remove_tree(path);
}
