/* fingerprint: sums of files, or of their ends. */
#include "data/fingerprint.h"

#include "data/shard_private.h"

#include <stdio.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { SAMPLE_BYTES = 64 << 10 };

/* Of a file that no read shall go through: only its ends count. */
static Status sum_ends(const char *path, uint64_t bytes, char sum[FILE_SUM_BYTES])
{
    char sample[2 * SAMPLE_BYTES];
    size_t n = bytes < sizeof sample ? (size_t)bytes : sizeof sample, front = n / 2;
    File f = { 0 };
    TRY(file_open_read(&f, path));
    Status s = file_read(&f, 0, sample, front);
    if (s == OK) s = file_read(&f, bytes - (n - front), sample + front, n - front);
    file_close(&f);
    TRY(s);
    (void)snprintf(sum, FILE_SUM_BYTES, "%016llx", (unsigned long long)XXH3_64bits(sample, n));
    return OK;
}

Status fingerprint_shard(const char *prefix, Text *out)
{
    for (int i = 0; i < SHARD_FILES; i++) {
        char path[SHARD_PATH_BYTES], sum[FILE_SUM_BYTES];
        const char *suffix = shard_suffixes[i];
        uint64_t bytes = 0;
        TRY(shard_part_path(prefix, suffix, path));
        if (strcmp(suffix, ".mask") == 0 && !file_exists(path)) continue;
        TRY(file_size(path, &bytes));
        TRY(strcmp(suffix, ".idx") == 0 ? file_sum(path, sum) : sum_ends(path, bytes, sum));
        TRY(text_printf(out, "%s of %llu bytes, sum %s\n", suffix, (unsigned long long)bytes, sum));
    }
    return OK;
}
