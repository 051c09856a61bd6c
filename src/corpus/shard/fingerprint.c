/* fingerprint: sums of files, or of pieces of them. */
#include "corpus/shard/fingerprint.h"

#include "corpus/shard/shard_private.h"

#include <stdio.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { PIECES = 128, PIECE_BYTES = 64 << 10 };

static void print_sum(XXH128_hash_t h, char sum[FILE_SUM_BYTES])
{
    (void)snprintf(sum, FILE_SUM_BYTES, "%016llx%016llx", (unsigned long long)h.high64,
                   (unsigned long long)h.low64);
}

/* Of a file that no start shall read whole: pieces at equal distances, from its first byte to its last. */
static Status sum_pieces(const char *path, uint64_t bytes, char sum[FILE_SUM_BYTES])
{
    char piece[PIECE_BYTES];
    XXH3_state_t state;
    File f = { 0 };
    const bool whole = bytes <= (uint64_t)PIECES * PIECE_BYTES;
    const uint64_t step = whole ? PIECE_BYTES : (bytes - PIECE_BYTES) / (PIECES - 1);
    XXH3_128bits_reset(&state);
    TRY(file_open_read(&f, path));
    Status s = OK;
    for (uint64_t i = 0, at = 0; at < bytes && i < PIECES && s == OK; at = ++i * step) {
        if (!whole && i == PIECES - 1) at = bytes - PIECE_BYTES;
        const size_t n = bytes - at < PIECE_BYTES ? (size_t)(bytes - at) : PIECE_BYTES;
        s = file_read(&f, at, piece, n);
        if (s == OK) XXH3_128bits_update(&state, piece, n);
    }
    file_close(&f);
    print_sum(XXH3_128bits_digest(&state), sum);
    return s;
}

Status fingerprint_shard(const char *prefix, Text *out, char sum[FILE_SUM_BYTES])
{
    const size_t begin = out->used;
    for (int i = 0; i < SHARD_FILES; i++) {
        char path[SHARD_PATH_BYTES];
        const char *suffix = shard_suffixes[i];
        uint64_t bytes = 0;
        TRY(shard_part_path(prefix, suffix, path));
        if (strcmp(suffix, ".mask") == 0 && !file_exists(path)) continue;
        TRY(file_size(path, &bytes));
        TRY(strcmp(suffix, ".idx") == 0 ? file_sum(path, sum) : sum_pieces(path, bytes, sum));
        TRY(text_printf(out, "%s of %llu bytes, sum %s\n", suffix, (unsigned long long)bytes, sum));
    }
    print_sum(XXH3_128bits(out->data + begin, out->used - begin), sum);
    return OK;
}
