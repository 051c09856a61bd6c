/* catch: what reaches stderr, in an unnamed file that takes its place while a test speaks. */
#ifndef TESTS_HARNESS_CATCH_H
#define TESTS_HARNESS_CATCH_H

#include "harness/test.h"

#include <unistd.h>

static char caught[1 << 17];
static FILE *catcher;
static int stderr_before;

static inline void catch_begin(void)
{
    catcher = tmpfile();
    CHECK(catcher != NULL);
    stderr_before = dup(STDERR_FILENO);
    CHECK(dup2(fileno(catcher), STDERR_FILENO) == STDERR_FILENO);
}

static inline void catch_end(void)
{
    CHECK(dup2(stderr_before, STDERR_FILENO) == STDERR_FILENO);
    close(stderr_before);
    rewind(catcher);
    size_t n = fread(caught, 1, sizeof caught - 1, catcher);
    caught[n] = '\0';
    CHECK_INT(fclose(catcher), 0);
}

#endif
