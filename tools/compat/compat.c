/* compat/compat: the table of what commands and the library call for TraceLens' rules. */
#include "compat/compat.h"

const Compat compat_tracelens = {
    .options = compat_options,
    .tables = compat_tables,
    .collective_rules = &compat_collective_rules,
};
