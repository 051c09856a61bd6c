/*
 * scan: a pull parser for JSON that somebody of ours wrote: metrics.jsonl and trace.json.
 *
 * The caller walks the text and asks for what it expects; nothing is built and nothing allocated.
 * Not cJSON: that builds a tree of one malloc a value, which for the lines of a long run is most of
 * the time, and its allocator is a global hook that would need an arena of its own. Nothing more is
 * wanted here than "this key, this number", which is short.
 *
 * The text is consumed: keys and strings are decoded and NUL-terminated where they stand, so
 * pointers to them live as long as the text, and a text is scanned once. `bad` sticks: after the
 * first thing that is not JSON, everything ends, and scan_end says false.
 */
#ifndef TRACE_SCAN_H
#define TRACE_SCAN_H

#include <stdbool.h>

typedef struct Scan {
    char *at;   /* in a NUL-terminated text */
    bool fresh; /* just behind an opening bracket: no comma is due */
    bool bad;
} Scan;

Scan scan_begin(char *text);

/* Enter an object or an array; anything else is bad. */
void scan_object(Scan *s);
void scan_array(Scan *s);

/* The next key of the object that was entered last, whose value is to be taken next; NULL after the
 * last one (the closing bracket is taken) or if bad. */
char *scan_key(Scan *s);
/* Is there another element in the array that was entered last? */
bool scan_item(Scan *s);

/* Take a value. A number: null is NaN, as json_double wrote it. */
double scan_number(Scan *s);
char *scan_string(Scan *s); /* never NULL */
/* Pass over a value of any kind; returns where it begins, to be scanned later. */
char *scan_skip(Scan *s);

/* Was all of it JSON, and is nothing left but blanks? */
bool scan_end(Scan *s);

#endif
