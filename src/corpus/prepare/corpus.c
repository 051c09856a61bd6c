/* corpus: expands folders and patterns to the files in them. */
#include "corpus/prepare/corpus.h"

#include "corpus/command/shell.h"
#include "engine/base/file.h"
#include "engine/base/synonym.h"
#include "engine/base/text.h"

#include <glob.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { DEPTH_MAX = 32 }; /* of folders: a link may lead back to its own folder */

static bool is_folder(const char *path)
{
    struct stat info = { 0 };
    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

static bool is_corpus_file(const char *name)
{
    static const char *const KINDS[] = { ".jsonl", ".ndjson", ".json", ".txt" };
    static const char *const ENDINGS[] = { "", ".gz", ".zst", ".zstd" };
    char ending[16];
    for (int i = 0; i < 16; i++) {
        (void)snprintf(ending, sizeof ending, "%s%s", KINDS[i / 4], ENDINGS[i % 4]);
        if (text_ends(name, ending)) return true;
    }
    return text_ends(name, ".parquet");
}

static Status add_path(Corpus *c, const char *path, int depth, Arena *a);

/* Adds the files of a folder and of those in it. Of the folder that was named, all others are only
 * counted. */
static Status add_folder(Corpus *c, const char *folder, int depth, Arena *a)
{
    const char *const *names = NULL;
    int n = 0, before = c->n;
    char path[FILE_PATH_MAX];
    if (depth > DEPTH_MAX)
        return FAIL(ERR_ARG,
                    "%s lies %d folders deep, at most %d are followed: does a link lead back?",
                    folder, depth, DEPTH_MAX);
    TRY(file_list(folder, a, &names, &n));
    for (int i = 0; i < n; i++) {
        if (names[i][0] == '.') continue;
        TRY(file_join(path, folder, names[i]));
        if (is_folder(path) || is_corpus_file(names[i])) TRY(add_path(c, path, depth + 1, a));
    }
    if (depth == 0 && c->n == before)
        return FAIL(ERR_IO,
                    "the folder %s holds no .jsonl, .ndjson, .json or .txt file, plain or .gz or "
                    ".zst: name its files",
                    folder);
    return OK;
}

/* A name of the command line and a member of a folder alike. */
static Status add_path(Corpus *c, const char *path, int depth, Arena *a)
{
    uint64_t bytes = 0;
    const bool command = depth == 0 && shell_command(path) != NULL;
    if (is_folder(path)) return add_folder(c, path, depth, a);
    if (!command) TRY(file_size(path, &bytes));
    c->bytes += (int64_t)bytes;
    TRY(ARENA_GROW(a, c->n + 1, &c->room, &c->files));
    return arena_text(a, path, strlen(path), &c->files[c->n++]);
}

static Status add_matches(Corpus *c, const char *pattern, Arena *a)
{
    glob_t g = { 0 };
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): no thread has been started yet */
    int result = glob(pattern, 0, NULL, &g);
    Status s = OK;
    if (result == GLOB_NOMATCH) s = FAIL(ERR_IO, "no file matches %s", pattern);
    if (result == GLOB_ABORTED) s = FAIL(ERR_IO, "%s: a folder of it cannot be read", pattern);
    if (result == GLOB_NOSPACE) s = FAIL(ERR_MEMORY, "%s matches too many files", pattern);
    for (size_t i = 0; s == OK && i < g.gl_pathc; i++) s = add_path(c, g.gl_pathv[i], 0, a);
    globfree(&g);
    return s;
}

Status corpus_list(const char *const *arguments, int n, Arena *a, Corpus *out)
{
    Corpus c = { 0 };
    for (int i = 0; i < n; i++) {
        bool pattern = strpbrk(arguments[i], "*?[") != NULL && !file_exists(arguments[i]) &&
                       shell_command(arguments[i]) == NULL &&
                       synonym_of_address(arguments[i]) == NULL;
        TRY(pattern ? add_matches(&c, arguments[i], a) : add_path(&c, arguments[i], 0, a));
    }
    *out = c;
    return OK;
}
