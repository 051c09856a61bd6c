/* cgroup: reads small files of /proc and /sys, and visits the cgroups that this process is in, from its own up
 * to the root, of version 2 or 1. A file that cannot be read sets no limit. */
#ifndef ENGINE_HOST_CGROUP_H
#define ENGINE_HOST_CGROUP_H

#include <stdbool.h>
#include <stdint.h>

enum { CGROUP_FILE_BYTES = 16384 };

/* Reads folder/name, whose size stat does not know. False if it cannot be read. */
bool cgroup_read(const char *folder, const char *name, char out[CGROUP_FILE_BYTES]);

/* Finds the line that begins with `key` and reads the number after it. False for "max", which means
 * no limit. With an empty key it reads the number at the start of the text. */
bool cgroup_number(const char *text, const char *key, uint64_t *out);

/* Calls `visit` for each folder of a cgroup that limits `controller` ("memory", "cpu") for this process.
 * `proc` is "/proc", `cgroups` is "/sys/fs/cgroup". */
typedef void CgroupVisit(void *state, const char *folder, int version);
void cgroup_visit(const char *proc, const char *cgroups, const char *controller, CgroupVisit *visit,
                  void *state);

#endif
