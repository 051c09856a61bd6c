/* from_dcp: converts a folder of torch.distributed.checkpoint to a checkpoint. Such a folder has no
 * configuration, so the caller has one; every tensor must fit it. */
#ifndef DCP_FROM_DCP_H
#define DCP_FROM_DCP_H

#include "engine/base/text.h"
#include "engine/config/config.h"

typedef enum DcpRope { DCP_ROPE_AUTO, DCP_ROPE_PAIRS, DCP_ROPE_HALVES } DcpRope;

typedef struct ConvertFromDcp {
    const char *folder, *out;
    const Config *config;
    bool weights; /* without moments */
    int rope;     /* DcpRope: how the folder stores rotated columns; AUTO: as its layout does */
} ConvertFromDcp;

/* OUT becomes a checkpoint with config.yaml. It has AdamW's moments and their count of steps if the folder has
 * them and the configuration trains with adamw. *said: a line for the user. ERR_FORMAT: the folder is damaged, or
 * does not fit the configuration; the sentence has the key. */
Status convert_from_dcp(const ConvertFromDcp *o, Arena *a, Text *said);

#endif
