/* cgroup: reads /proc/self/cgroup and walks over the folders of the groups that it names. */
#include "engine/host/cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FOLDER_BYTES = 1024, PATH_BYTES = 2048 };

bool cgroup_read(const char *folder, const char *name, char out[CGROUP_FILE_BYTES])
{
    char path[PATH_BYTES];
    size_t used = 0;
    ssize_t n = 1;
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    while ((n > 0 || (n < 0 && errno == EINTR)) && used < CGROUP_FILE_BYTES - 1) {
        n = read(fd, out + used, CGROUP_FILE_BYTES - 1 - used);
        if (n > 0) used += (size_t)n;
    }
    close(fd);
    out[used] = '\0';
    return n >= 0;
}

bool cgroup_number(const char *text, const char *key, uint64_t *out)
{
    size_t n = strlen(key);
    while (text != NULL && strncmp(text, key, n) != 0) {
        text = strchr(text, '\n');
        text = text == NULL ? NULL : text + 1;
    }
    if (text == NULL) return false;
    char *end = NULL;
    const char *at = text + n + strspn(text + n, " \t");
    *out = strtoull(at, &end, 10);
    return end != at && *at != '-';
}

/* What one walk needs. */
typedef struct Walk {
    const char *cgroups, *controller;
    CgroupVisit *visit;
    void *state;
} Walk;

/* Visits the cgroup at root/path and all its ancestors. Inside a container the path may not exist, and
 * the container's own cgroup is at the root. */
static void visit_ancestors(const Walk *w, const char *root, const char *path, int version)
{
    char folder[FOLDER_BYTES];
    size_t least = strlen(root);
    int n = snprintf(folder, sizeof folder, "%s%.*s", root, (int)strcspn(path, "\n"), path);
    if (n < 0 || (size_t)n >= sizeof folder) return;
    for (;;) {
        w->visit(w->state, folder, version);
        char *cut = strrchr(folder, '/');
        if (cut == NULL || (size_t)(cut - folder) < least) return;
        *cut = '\0';
    }
}

/* Is `word` one of the words between commas in these n bytes? */
static bool has_word(const char *list, size_t n, const char *word)
{
    size_t length = strlen(word);
    for (size_t at = 0; at < n;) {
        size_t each = strcspn(list + at, ",:");
        if (each == length && strncmp(list + at, word, length) == 0) return true;
        at += each + 1;
    }
    return false;
}

/* Parses a line of /proc/self/cgroup: "0::/path" (version 2) or "4:cpu,cpuacct:/path" (version 1, whose
 * controllers are mounted in folders of their names). */
static void visit_line(const Walk *w, const char *line)
{
    char root[FOLDER_BYTES];
    const char *kinds = strchr(line, ':');
    const char *path = kinds == NULL ? NULL : strchr(kinds + 1, ':');
    if (path == NULL) return;
    size_t n = (size_t)(path - kinds - 1);
    if (n == 0) visit_ancestors(w, w->cgroups, path + 1, 2);
    if (!has_word(kinds + 1, n, w->controller)) return;
    (void)snprintf(root, sizeof root, "%s/%s", w->cgroups, w->controller);
    visit_ancestors(w, root, path + 1, 1);
}

void cgroup_visit(const char *proc, const char *cgroups, const char *controller, CgroupVisit *visit,
                  void *state)
{
    char text[CGROUP_FILE_BYTES];
    const Walk w = { cgroups, controller, visit, state };
    if (!cgroup_read(proc, "self/cgroup", text)) return;
    for (const char *line = text; *line != '\0';) {
        visit_line(&w, line);
        line += strcspn(line, "\n");
        line += *line == '\n';
    }
}
