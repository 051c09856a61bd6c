/* compat/collectives: how TraceLens reports on the collectives of several ranks. It recognises a
 * collective by its kernel's record alone. It trusts every rank's clock, and takes the k-th calls
 * of all ranks as one collective. This file is data only. */
#include "compat/compat.h"

const CollectiveRules compat_collective_rules = {
    .movers = "nccl|rccl|cross_device_reduce",
    .lacks = "+",
    .lacks_nodes = "+@",
    .unknown_key = "Unknown",
    .mb = 1048576,
    .gb = 1024,
    .kernel_alone = true,
    .by_group = true,
    .by_position = true,
    .files_are_ranks = true,
    .trust_devices = true,
    .first_call = true,
    .all_count = true,
    .main_kinds = true,
    .drop_unknown = true,
};
