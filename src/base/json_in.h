/*
 * json_in: fields of one JSON object, read with messages that a user can act on (cJSON inside).
 *
 * Every getter fails with ERR_FORMAT naming the file, the field and what it should be. Texts live
 * until json_in_free.
 */
#ifndef BASE_JSON_IN_H
#define BASE_JSON_IN_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct JsonIn {
    void *root;       /* the library's tree */
    const char *path; /* for messages */
} JsonIn;

/* One object in [text, text + n). */
Status json_in_parse(JsonIn *j, const char *path, const char *text, size_t n);
void json_in_free(JsonIn *j); /* safe on { 0 } */

Status json_in_int(const JsonIn *j, const char *key, int64_t *out);
Status json_in_text(const JsonIn *j, const char *key, const char **out);
Status json_in_ints(const JsonIn *j, const char *key, int64_t *out, int most, int *out_n);

#endif
