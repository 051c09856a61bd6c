/* scan: a pull parser for JSON: metrics.jsonl, trace.json, manifests, pipelines, scaling curves. It
 * builds and allocates nothing, because building a tree would dominate the time of a long run's report.
 * engine/base/json.h builds a tree with it.
 *
 * The text is modified: keys and strings are decoded and NUL-terminated in place, so a text can be
 * scanned once. Errors are sticky: after the first one `bad` is set, every call returns an empty
 * result, and `at` points to the error. */
#ifndef ENGINE_BASE_SCAN_H
#define ENGINE_BASE_SCAN_H

#include <stdbool.h>
#include <stddef.h>

typedef struct Scan {
    char *at;   /* in a NUL-terminated text */
    bool fresh; /* just after an opening bracket: no comma is expected */
    bool
        strict; /* what Python's json refuses is an error: a lone surrogate (else it becomes U+FFFD), control
                    characters in strings, numbers such as 01 and 1. */
    bool bad;
} Scan;

Scan scan_begin(char *text);
/* Starts inside the object or array that begins at `value` (not NULL). Another kind of value is bad. */
Scan scan_inside(char *value);

/* Skips white space and returns the next character without consuming it; NUL at the end. */
char scan_peek(Scan *s);

/* Enter an object or an array; anything else is bad. */
void scan_object(Scan *s);
void scan_array(Scan *s);

/* The next key of the innermost object; the caller reads its value next. NULL after the last key (the
 * closing bracket is consumed) or if bad. */
char *scan_key(Scan *s);
/* Is there another element in the innermost array? */
bool scan_item(Scan *s);

/* Read a value. For numbers null is NaN, because text_json writes NaN as null. */
double scan_number(Scan *s);
char *scan_string(Scan *s); /* never NULL */
/* Skips a value of any kind. Returns where it begins, so that it can be scanned later. */
char *scan_skip(Scan *s);

/* The members of one object that a reader wants. */
typedef enum ScanType {
    SCAN_NUMBER, /* double */
    SCAN_WHOLE,  /* int64_t; unchanged if the value is not a whole number up to 2^53 */
    SCAN_TEXT,   /* char * */
    SCAN_RAW     /* char *: where the value begins, to be scanned later */
} ScanType;

typedef struct ScanField {
    const char *key;
    ScanType type;
    size_t offset; /* in *out */
} ScanField;

/* Reads an object: members that have a field are stored in *out, others are skipped. */
void scan_fields(Scan *s, const ScanField *field, int n, void *out);

/* Was all of it JSON, and is nothing left but blanks? */
bool scan_end(Scan *s);

#endif
