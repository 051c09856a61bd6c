/* python: tests of what users run with Python. */
#ifndef TESTS_HARNESS_PYTHON_H
#define TESTS_HARNESS_PYTHON_H

#include "harness/program.h"

/* A shell's line in a cell, where $examples is their folder and $python an interpreter that has MODULE. Without one the
 * test is skipped. */
static inline Outcome with_python(Lab *lab, const char *cell, const char *module, const char *line)
{
    char root[FILE_PATH_MAX], text[8192];
    CHECK(realpath(".", root) != NULL);
    (void)snprintf(
        text, sizeof text,
        "for python in '%s/build/peers/bin/python3' python3; do $python -c 'import %s' "
        "2>import && break; python=; done\n"
        "[ -n \"$python\" ] || exit 77\n"
        "export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH='%s/examples' examples='%s/examples'\n%s",
        root, module, root, root, line);
    const char *kept = NULL;
    CHECK_OK(arena_text(&lab->arena, text, strlen(text), &kept));
    Outcome o = SHELL(lab, cell, kept);
    if (o.code == 77) {
        print_message("no python3 here has %s\n", module);
        skip();
    }
    return o;
}

#endif
