/* scan: a pull parser for JSON: metrics.jsonl, trace.json, manifests, pipelines, scaling curves.
 * Nothing is built and nothing allocated: a tree would be most of the time of a long run's report.
 * base/json.h makes a tree of what this reads. The text is consumed: keys and strings are decoded
 * and NUL-terminated where they stand, so a text is scanned once. `bad` sticks: after the first
 * thing that is not JSON, everything ends, and `at` is where it stands. */
#ifndef BASE_SCAN_H
#define BASE_SCAN_H

#include <stdbool.h>
#include <stddef.h>

typedef struct Scan {
    char *at;    /* in a NUL-terminated text */
    bool fresh;  /* just behind an opening bracket: no comma is due */
    bool strict; /* a lone surrogate is bad; else it is U+FFFD */
    bool bad;
} Scan;

Scan scan_begin(char *text);
/* The same from inside the object or array that begins at `value`, which is not NULL. Any other
 * value is bad. */
Scan scan_inside(char *value);

/* The first character of what comes next, behind blanks; NUL at the end. Takes nothing else. */
char scan_peek(Scan *s);

/* Enter an object or an array; anything else is bad. */
void scan_object(Scan *s);
void scan_array(Scan *s);

/* The next key of the object that was entered last, whose value is to be taken next; NULL after the
 * last one (the closing bracket is taken) or if bad. */
char *scan_key(Scan *s);
/* Is there another element in the array that was entered last? */
bool scan_item(Scan *s);

/* Take a value. A number: null is NaN, as text_json writes it. */
double scan_number(Scan *s);
char *scan_string(Scan *s); /* never NULL */
/* Pass over a value of any kind; returns where it begins, to be scanned later. */
char *scan_skip(Scan *s);

/* The members of one object that a reader wants. */
typedef enum ScanType {
    SCAN_NUMBER, /* double */
    SCAN_WHOLE,  /* int64_t; anything but a whole number up to 2^53 leaves it as it is */
    SCAN_TEXT,   /* char * */
    SCAN_RAW     /* char *: where the value begins, to be scanned later */
} ScanType;

typedef struct ScanField {
    const char *key;
    ScanType type;
    size_t offset; /* in *out */
} ScanField;

/* Take an object: members with a field go into *out, others are passed over. */
void scan_fields(Scan *s, const ScanField *field, int n, void *out);

/* Was all of it JSON, and is nothing left but blanks? */
bool scan_end(Scan *s);

#endif
