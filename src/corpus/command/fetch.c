/* fetch: a lock for each command, and a rename when it has succeeded. */
#include "corpus/command/fetch.h"

#include "corpus/command/shell.h"
#include "engine/base/clock.h"
#include "engine/base/file.h"
#include "engine/base/interrupt.h"
#include "engine/base/log.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

enum { LOOK_MS = 200 };

/* Bytes of all files below a folder; files may come and go meanwhile. */
static int64_t bytes_below(const char *folder, Arena *a)
{
    const ArenaMark mark = arena_mark(a);
    const char *const *names = NULL;
    char path[FILE_PATH_MAX];
    int64_t sum = 0;
    int n = 0;
    if (file_list(folder, a, &names, &n) != OK) n = 0;
    for (int i = 0; i < n && file_join(path, folder, names[i]) == OK; i++) {
        uint64_t bytes = 0;
        if (!file_is_file(path))
            sum += bytes_below(path, a);
        else if (file_size(path, &bytes) == OK)
            sum += (int64_t)bytes;
    }
    arena_release(a, mark);
    return sum;
}

/* Waits for the command's end as long as it says something or the folder grows. */
static Status wait_for(Shell *s, const char *folder, Arena *a)
{
    double alive_s = clock_s();
    size_t said = 0;
    while (!process_look(&s->process, LOOK_MS)) {
        const int64_t bytes = bytes_below(folder, a);
        TRY(interrupt_check("the command was ended"));
        if (bytes != s->bytes || s->process.used != said) alive_s = clock_s();
        s->bytes = bytes;
        said = s->process.used;
        if (clock_s() - alive_s > SHELL_WAIT_S) return shell_failed(s, "hangs");
    }
    s->bytes = bytes_below(folder, a);
    if (process_code(&s->process) != 0) return shell_failed(s, "failed");
    return s->bytes > 0 ? OK : shell_failed(s, "left its folder empty");
}

static Status fill_folder(const char *command, const char *folder, Arena *a)
{
    char temp[FILE_PATH_MAX + 8];
    Text filled = { 0 };
    Shell *s = NULL;
    (void)snprintf(temp, sizeof temp, "%s.tmp", folder);
    TRY(file_remove_tree(temp));
    TRY(file_make_folders(temp));
    TRY(ARENA_ZEROED(a, 1, &s));
    TRY(text_init(&filled, a));
    TRY(shell_fill(command, temp, &filled));
    TRY(shell_start_beside(s, filled.data));
    Status result = wait_for(s, temp, a);
    shell_stop(s);
    return result == OK ? file_rename(temp, folder) : result;
}

/* Another process may be fetching the same. */
static Status take_lock(const char *folder, int *fd)
{
    char path[FILE_PATH_MAX + 8];
    bool held = false;
    long holder = 0;
    (void)snprintf(path, sizeof path, "%s.lock", folder);
    do {
        TRY(interrupt_check("nothing was fetched"));
        TRY(file_lock(path, fd, &held, &holder));
    } while (!held && usleep(LOOK_MS * 1000) == 0);
    return OK;
}

Status fetch_folder(const char *path, const char *cache, Arena *a, const char **out)
{
    const char *command = shell_command(path);
    char root[FILE_PATH_MAX], folder[FILE_PATH_MAX], name[64];
    const XXH128_hash_t h = XXH3_128bits(command, strlen(command));
    int lock = 0;
    Status s = OK;
    (void)snprintf(name, sizeof name, "fetched-%016llx%016llx", (unsigned long long)h.high64,
                   (unsigned long long)h.low64);
    TRY(file_cache_folder(cache, root));
    TRY(file_make_folders(root));
    TRY(file_join(folder, root, name));
    TRY(take_lock(folder, &lock));
    if (file_exists(folder))
        log_info("%s has what this command gave before (remove it to fetch again): %s", folder,
                 command);
    else
        s = fill_folder(command, folder, a);
    file_unlock(lock);
    TRY(s);
    return arena_text(a, folder, strlen(folder), out);
}
