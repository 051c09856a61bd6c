/* calibrate: `plan calibrate` makes a GPU's file (hardware/hardware.h) of measured rates. */
#ifndef CALIBRATE_CALIBRATE_H
#define CALIBRATE_CALIBRATE_H

#include "hardware/hardware.h"

/* Replaces the rates in `h`, a base GPU, by what `switchyard bench ops` measured: rates of products
 * and attention by size, and of memory. Lines of `bench contention` give the section contention, as the mean of
 * their factors beside an all-gather, weighted by time. Everything else (peaks, links, host) stays the base GPU's. Ops of
 * one kind of work and size are weighted by their time. `bench` is the output of these benches on a GPU, or of
 * several runs one after the other; `name` is its file, for messages. Texts live in `a`. ERR_FORMAT: no
 * such output, or a line is cut. */
Status calibrate(const char *name, const char *bench, Arena *a, Hardware *h);

/* Sets the rate of `h` with which a plan of an all-to-all takes as long as a user measured: of scale_out if it leaves a
 * domain, else of scale_up. `text`: "16 GPUs, 64 MiB, 3.1 ms", bytes that each GPU sends to all, or "16 GPUs, " and a
 * line of alltoall_perf (nccl-tests), whose time out of place counts. ERR_ARG: neither; the line is not of so many GPUs; or
 * it is faster than the data sheet. */
Status calibrate_exchange(const char *text, Arena *a, Hardware *h);

#endif
