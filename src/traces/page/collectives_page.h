/*
 * collectives_page: the page of `trace collectives --format html`: which rank makes the others wait, by how
 * much and why; the time of each collective on each rank as waiting and moving; then every sheet. It measures
 * nothing: collectives.h does.
 */
#ifndef TRACES_PAGE_COLLECTIVES_PAGE_H
#define TRACES_PAGE_COLLECTIVES_PAGE_H

#include "traces/compare/collectives.h"

/* Writes the page. `sheet`: those of collectives_sheets; empty ones are left out. */
Status collectives_page(const Collectives *c, const Table sheet[COLLECTIVE_SHEETS], int n,
                        const char *path);

#endif
