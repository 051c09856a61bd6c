/* json_lines: what a command writes with --json, read into an array of structs. */
#ifndef TESTS_HARNESS_JSON_LINES_H
#define TESTS_HARNESS_JSON_LINES_H

#include "test.h"

#include "engine/base/scan.h"

#include <stddef.h>
#include <string.h>

/* A field of the struct `Line` that has its name in the file. */
#define FIELD(name, type)                                                                          \
    {                                                                                              \
#name, type, offsetof(Line, name)                                                          \
    }

/* Reads each line into the next of at most `most` structs of `each` bytes, and says how many. The
 * text is cut up. */
static inline int json_lines(char *text, const ScanField *fields, int n_fields, void *lines,
                             size_t each, int most)
{
    char *rest = NULL;
    int n = 0;
    for (char *at = strtok_r(text, "\n", &rest); at != NULL; at = strtok_r(NULL, "\n", &rest)) {
        Scan scan = scan_begin(at);
        CHECK(n < most);
        scan_fields(&scan, fields, n_fields, (char *)lines + each * (size_t)n++);
        CHECK(scan_end(&scan));
    }
    return n;
}

#endif
