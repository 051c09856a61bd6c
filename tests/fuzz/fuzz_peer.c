/* Any files as the memory of a host: what is damaged is left out, and a copy that is chosen can be read whole.
 *
 * An input is a list of a letter that chooses the folder, NAME " " BYTES "\n" and these bytes. A manifest gets its last
 * line, with the right sum, so that the files beside it are looked at. */
#include "engine/base/log.h"
#include "engine/checkpoint/peer.h"
#include "harness/fuzz_manifest.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { NEWER_THAN = 3, FILES_MOST = 12, NAME_MOST = 32 };

static const char *const folders[] = { "rank-00000/a", "rank-00000/b", "rank-00001/a",
                                       "rank-00001/b" };
enum { FOLDERS = sizeof folders / sizeof *folders };

/* Takes a letter and a name. false: no file can be called so. */
static bool take_path(Fuzz *f, const char *home, char out[FILE_PATH_MAX])
{
    char folder[FILE_PATH_MAX];
    const char *name = NULL;
    const FuzzPart part = fuzz_part(f, " ");
    if (part.bytes < 2 || part.data[1] == '.') return false;
    need(arena_text(f->a, (const char *)part.data + 1, part.bytes - 1, &name) == OK);
    need(file_join(folder, home, folders[part.data[0] % FOLDERS]) == OK);
    return part.bytes <= NAME_MOST && *name != '\0' && strchr(name, '/') == NULL &&
           file_join(out, folder, name) == OK;
}

static FuzzPart take_content(Fuzz *f)
{
    const char *number = NULL;
    const FuzzPart line = fuzz_part(f, "\n");
    need(arena_text(f->a, (const char *)line.data, line.bytes, &number) == OK);
    const size_t n = strtoul(number, NULL, 10);
    const FuzzPart content = { f->data, n < f->bytes ? n : f->bytes };
    f->data += content.bytes;
    f->bytes -= content.bytes;
    return content;
}

static Status write_files(Fuzz *f, const char *home)
{
    char path[FILE_PATH_MAX];
    for (int i = 0; i < FILES_MOST && f->bytes > 0; i++) {
        const bool named = take_path(f, home, path);
        FuzzPart content = take_content(f);
        if (!named) continue;
        if (text_ends(path, MANIFEST_NAME)) {
            Text sealed = { 0 };
            TRY(fuzz_seal_manifest(f, &content, &sealed));
            content = (FuzzPart){ (const uint8_t *)sealed.data, sealed.used };
        }
        const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        need(fd >= 0 && write(fd, content.data, content.bytes) == (ssize_t)content.bytes);
        need(close(fd) == 0);
    }
    return OK;
}

static void read_all(Peer *p, Arena *a)
{
    CheckpointInfo info;
    ManifestEntry *entry = NULL;
    int64_t n = 0;
    int32_t *wanted = NULL;
    need(p->found.step > NEWER_THAN && ARENA_NEW(a, p->found.files, &wanted) == OK);
    for (int i = 0; i < p->found.files; i++) wanted[i] = 1;
    need(peer_fetch(p, wanted) == OK);
    need(manifest_read(p->found.folder, a, &info, &entry, &n) == OK && info.step == p->found.step);
    for (int64_t i = 0; i < n; i++)
        need(manifest_read_entry(NULL, p->found.folder, &entry[i],
                                 &(ParamPiece){ .in = entry[i].piece }, a) == OK);
}

static Status look(Fuzz *f)
{
    static const CommHostName name = { "fuzz" };
    char folder[FILE_PATH_MAX];
    Peer p = { .ranks = 1, .locals = 1, .name = &name, .found = { .step = -1 } };
    log_set_level(LOG_ERROR);
    TRY(file_join(p.home, fuzz_folder(), name.text));
    TRY(file_remove_tree(p.home));
    for (int i = 0; i < FOLDERS; i++) {
        TRY(file_join(folder, p.home, folders[i]));
        TRY(file_make_folders(folder));
    }
    TRY(write_files(f, p.home));
    TRY(arena_reserve(&p.arena, "copies of checkpoints", (size_t)1 << 28));
    const Status s = peer_find(&p, NEWER_THAN);
    if (s == OK && p.found.n > 0) read_all(&p, f->a);
    peer_forget(&p);
    arena_free(&p.arena);
    return s;
}

const Fuzzer fuzzer = { .look = look };
