/*
 * merge: neighbours on a lane that are too short to be drawn one by one. They become one box for each kind, as
 * long as its spans ran, and then the idle time among them. So a lane looks as full as it was busy, and nothing
 * is left out. timeline_svg.c draws passes with it, trace_lanes.c the events of traces. Times are in any unit.
 */
#ifndef PAGES_CHARTS_MERGE_H
#define PAGES_CHARTS_MERGE_H

#include <stdbool.h>
#include <stdint.h>

enum { MERGE_KINDS = 48 };

/* What the spans of one kind come to. */
typedef struct MergeShare {
    int64_t spans;
    double sum, covered; /* of all of them; what none before covers */
} MergeShare;

/* A group of neighbours; { 0 } is empty. */
typedef struct Merge {
    int64_t spans;
    double start, end;
    MergeShare of[MERGE_KINDS];
} Merge;

/* A box: `length` from `start` on; all boxes of the group end at `end`. */
typedef struct MergeBox {
    int kind;
    int64_t spans;
    double start, length, end, sum;
} MergeBox;

/* Does a span shorter than `grain` join the group? Not if it is a grain away, or makes the group longer than four
 * grains. An empty group takes every span. Spans come by start. */
bool merge_takes(const Merge *m, double start, double end, double grain);
void merge_add(Merge *m, int kind, double start, double end);
/* Writes a box for each kind that occurs, returns how many, and empties the group. */
int merge_boxes(Merge *m, MergeBox out[MERGE_KINDS]);

#endif
