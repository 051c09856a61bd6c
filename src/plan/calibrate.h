/*
 * calibrate: a GPU's file from what `switchyard bench ops` measured on one.
 *
 * The rates of products and attention by size, and of memory, are those measured; everything else
 * (peaks, links, host) is the base GPU's. Ops of one size count by the time that they take.
 */
#ifndef PLAN_CALIBRATE_H
#define PLAN_CALIBRATE_H

#include "plan/hardware.h"

/* `bench` is the output of bench ops on a GPU (several runs may stand one after the other), `name`
 * its file for messages. Texts live in `a`. ERR_FORMAT: no such output, or a line that is cut. */
Status calibrate(const char *name, const char *bench, Arena *a, Hardware *h);

#endif
