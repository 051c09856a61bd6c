/* doctor_table: rows of the table that `switchyard doctor` prints. */
#ifndef TESTS_HARNESS_DOCTOR_TABLE_H
#define TESTS_HARNESS_DOCTOR_TABLE_H

#include "harness/program.h"

#include "engine/base/text.h"

/* The row of a check, with the lines of its findings and what to do. */
static inline const char *doctor_row(Lab *lab, const Outcome *o, const char *check)
{
    char begin[64];
    Text out;
    snprintf(begin, sizeof begin, "\n%s ", check);
    const char *at = strstr(o->out, begin);
    if (at == NULL) fail_msg("no row %s in: %s%s", check, o->out, o->err);
    const char *end = strchr(at + 1, '\n');
    while (end != NULL && strncmp(end, "\n    ", 5) == 0) end = strchr(end + 1, '\n');
    size_t n = end == NULL ? strlen(at + 1) : (size_t)(end - at - 1);
    CHECK_OK(text_init(&out, &lab->arena));
    CHECK_OK(text_append(&out, at + 1, n));
    return out.data;
}

static inline void doctor_check_verdict(Lab *lab, const Outcome *o, const char *check,
                                        const char *want)
{
    const char *row = doctor_row(lab, o, check), *at = row + strlen(check);
    at += strspn(at, " ");
    if (strncmp(at, want, strlen(want)) != 0) fail_msg("%s is not %s: %s", check, want, row);
}

/* The first rank that a row names, which is the worst one: "rank 1 (host ". */
static inline void doctor_check_named(const char *row, const char *want)
{
    const char *first = strstr(row, "    rank ");
    if (first == NULL || strncmp(first + 4, want, strlen(want)) != 0)
        fail_msg("%s is not named first: %s", want, row);
}

#endif
