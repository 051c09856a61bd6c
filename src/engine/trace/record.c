/* record: writes and reads the chunks of a recording's file; record.h has the format. record_read.c
 * interprets their contents, and engine/train/recorder_files.c produces them. */
#include "engine/trace/record.h"

#include "engine/base/lane.h"

#include <stdio.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

static const uint32_t ORDER = 0x01020304; /* reads differently in the other byte order */

const char *const record_part_name[] = { [RECORD_WHOLE] = "",
                                         [RECORD_FORWARD] = "forward",
                                         [RECORD_AGAIN] = "forward again",
                                         [RECORD_INPUT] = "backward",
                                         [RECORD_WEIGHT] = "weight gradient" };

/* 24 bytes before each chunk. spare is 0 and keeps the 64-bit fields aligned; sum is XXH3-64 of the
 * data alone. */
typedef struct ChunkHead {
    char tag[4];
    uint32_t spare;
    uint64_t bytes, sum;
} ChunkHead;

Status record_head(File *f)
{
    struct {
        char magic[8];
        uint32_t version, order;
    } head = { .version = RECORD_VERSION, .order = ORDER };
    memcpy(head.magic, RECORD_MAGIC, sizeof head.magic);
    return file_write(f, &head, sizeof head);
}

/* The length and the sum stand before the data, so the file is written in one pass without
 * seeking. */
Status record_chunk(File *f, const char tag[4], const void *first, size_t first_bytes,
                    const void *rest, size_t rest_bytes)
{
    ChunkHead head = { .bytes = first_bytes + rest_bytes };
    XXH3_state_t sum;
    (void)XXH3_64bits_reset(&sum);
    (void)XXH3_64bits_update(&sum, first, first_bytes);
    if (rest_bytes > 0) (void)XXH3_64bits_update(&sum, rest, rest_bytes);
    head.sum = XXH3_64bits_digest(&sum);
    memcpy(head.tag, tag, sizeof head.tag);
    TRY(file_write(f, &head, sizeof head));
    TRY(file_write(f, first, first_bytes));
    return rest_bytes > 0 ? file_write(f, rest, rest_bytes) : OK;
}

/* Lanes of the device have names; those of transfers are numbered. */
const char *record_lane_name(char out[RECORD_LANE_BYTES], int lane)
{
    static const char *const names[LANE_COUNT] = { "compute", "comm" };
    if (lane < LANE_COUNT) return names[lane];
    (void)snprintf(out, RECORD_LANE_BYTES, "lane %d", lane);
    return out;
}

bool record_is(const uint8_t *data, size_t bytes)
{
    return bytes >= 8 && memcmp(data, RECORD_MAGIC, 8) == 0;
}

/* The byte order is asked first: in the wrong one the version cannot be read either. */
Status record_open(const char *path, const uint8_t *data, size_t bytes, size_t *at)
{
    uint32_t word[2];
    if (!record_is(data, bytes) || bytes < RECORD_HEAD_BYTES)
        return FAIL(ERR_FORMAT, "%s is not a whole recording: it ends in its first %d bytes", path,
                    RECORD_HEAD_BYTES);
    memcpy(word, data + 8, sizeof word);
    if (word[1] != ORDER)
        return FAIL(ERR_FORMAT,
                    "%s was recorded on a machine with the other byte order: read it "
                    "there",
                    path);
    if (word[0] != RECORD_VERSION)
        return FAIL(ERR_FORMAT, "%s is a recording of version %u, this program reads version %d",
                    path, word[0], RECORD_VERSION);
    *at = RECORD_HEAD_BYTES;
    return OK;
}

/* Any inconsistency counts as the end of the file: a run that crashed may have written half a chunk. */
bool record_next(const uint8_t *data, size_t bytes, size_t *at, RecordChunk *out, bool *cut)
{
    ChunkHead head;
    *cut = false;
    if (*at == bytes) return false;
    *cut = true;
    if (bytes - *at < sizeof head) return false;
    memcpy(&head, data + *at, sizeof head);
    size_t from = *at + sizeof head;
    if (head.bytes > bytes - from || XXH3_64bits(data + from, head.bytes) != head.sum) return false;
    memcpy(out->tag, head.tag, 4);
    out->tag[4] = '\0';
    out->data = data + from;
    out->bytes = head.bytes;
    *at = from + head.bytes;
    *cut = false;
    return true;
}
