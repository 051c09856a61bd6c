/* fetch: "cmd: COMMAND" with {folder} in it, in place of a folder that is to be read. The command fills an empty folder
 * in cache.dir, once: later starts, and other ranks of the host, find it there by its text. */
#ifndef CORPUS_COMMAND_FETCH_H
#define CORPUS_COMMAND_FETCH_H

#include "engine/base/arena.h"

/* `cache`: cache.dir. *out, in `a`: the folder. ERR_IO: the command failed, gave nothing, or hung for SHELL_WAIT_S. */
Status fetch_folder(const char *path, const char *cache, Arena *a, const char **out);
#endif
