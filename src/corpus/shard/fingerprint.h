/* fingerprint: a short text that tells a shard's contents from another's without reading all of it. The
 * .idx counts with every byte, and so do a .bin and a .mask of up to 8 MiB. Of larger ones their sizes count, and
 * 128 pieces of 64 KiB. Ranks compare these texts when a run starts; checkpoints keep their sums. */
#ifndef CORPUS_SHARD_FINGERPRINT_H
#define CORPUS_SHARD_FINGERPRINT_H

#include "engine/base/file.h"
#include "engine/base/text.h"

/* Appends a line for each file of the shard PREFIX, without the prefix: ranks may have folders of their
 * own. sum: of these lines. ERR_IO: a file is missing. */
Status fingerprint_shard(const char *prefix, Text *out, char sum[FILE_SUM_BYTES]);

#endif
