/* compat/compat: the table of what commands and the library call for TraceLens' rules. */
#include "compat/compat.h"

const Compat compat_tracelens = {
    .options = compat_options,
    .tables = compat_tables,
    .diff = compat_diff,
    .diff_rules = &compat_diff_rules,
    .collective_rules = &compat_collective_rules,
};
