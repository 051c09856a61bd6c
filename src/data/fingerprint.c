/* fingerprint: sums of files, or of their ends. */
#include "data/fingerprint.h"

#include "base/file.h"

#include <stdio.h>

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
    static const char *const suffix[] = { ".idx", ".bin", ".mask" };
    for (int i = 0; i < 3; i++) {
        char path[FILE_PATH_MAX], sum[FILE_SUM_BYTES];
        uint64_t bytes = 0;
        int n = snprintf(path, sizeof path, "%s%s", prefix, suffix[i]);
        if (n < 0 || n >= (int)sizeof path)
            return FAIL(ERR_ARG, "path %s%s has %d characters, at most %d are possible", prefix,
                        suffix[i], n, FILE_PATH_MAX - 1);
        if (i == 2 && !file_exists(path)) continue;
        TRY(file_size(path, &bytes));
        TRY(i == 0 ? file_sum(path, sum) : sum_ends(path, bytes, sum));
        TRY(text_printf(out, "%s of %llu bytes, sum %s\n", suffix[i], (unsigned long long)bytes,
                        sum));
    }
    return OK;
}
