/* fingerprint: a short text that tells a shard's contents from another's without reading all of it. The
 * .idx counts with every byte, the .bin and the .mask with their sizes, and their first and last 64 KiB.
 * Ranks compare these texts when a run starts. */
#ifndef DATA_FINGERPRINT_H
#define DATA_FINGERPRINT_H

#include "base/text.h"

/* Appends a line for each file of the shard PREFIX, without the prefix: ranks may have folders of their
 * own. ERR_IO: a file is missing. */
Status fingerprint_shard(const char *prefix, Text *out);

#endif
