/*
 * kineto: Chrome and Kineto JSON into Events, in blocks of text, with one thread or two.
 *
 *     kineto_source  bytes of a file or pipe, inflated if they are gzip
 *     kineto_scan    text of whole events -> items; no state but the block's
 *     kineto_commit  items -> columns, texts and tables, in the order of the file
 *     kineto_walk    finds the events in the text, block after block
 *
 * Each knows only those above it. Only events_read.c includes this.
 */
#ifndef TRACES_READ_KINETO_H
#define TRACES_READ_KINETO_H

#include "traces/read/events.h"
#include "traces/read/kineto_source.h"

/* Reads all of the source. threads 0: two if the machine has them. python: see EventsOptions. On
 * failure the caller frees e. */
Status kineto_read(Source *s, bool python, int threads, Events *e);

#endif
