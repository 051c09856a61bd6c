/* shell: runs a script in a cell of a lab (program.h). It gets ROOT (the project), MAKE (with the build's switches),
 * BUILT (the folder of the build) and PROGRAM. */
#ifndef TESTS_HARNESS_SHELL_H
#define TESTS_HARNESS_SHELL_H

#include "harness/program.h"

static inline Outcome shell(Lab *lab, const char *cell, const char *script)
{
    char root[FILE_PATH_MAX], built[FILE_PATH_MAX] = "", whole[8192], ours[FILE_PATH_MAX];
    CHECK(getcwd(root, sizeof root) != NULL);
    lab_find_build(built);
    int n = snprintf(whole, sizeof whole,
                     "unset MAKEFLAGS MAKELEVEL MFLAGS\n"
                     "ROOT='%s' BUILT='%s' PROGRAM='%s'\n"
                     "MAKE=\"make -s -C $ROOT CONFIG=release%s%s\"\n"
                     "set -eu\n%s",
                     root, built, lab->program, strstr(built, "-cuda") == NULL ? "" : " CUDA=1",
                     strstr(built, "-mpi") == NULL ? "" : " MPI=1", script);
    CHECK(n > 0 && n < (int)sizeof whole);
    memcpy(ours, lab->program, sizeof ours);
    snprintf(lab->program, sizeof lab->program, "/bin/sh");
    Outcome o = lab_run(lab, &(Launch){ .cell = cell, .args = ARGS("-c", whole) });
    memcpy(lab->program, ours, sizeof ours);
    return o;
}

static inline void skip_without(Lab *lab, const char *tool)
{
    char script[128];
    snprintf(script, sizeof script, "command -v %s", tool);
    if (shell(lab, "cell", script).code == 0) return;
    print_message("skip: there is no %s\n", tool);
    skip();
}

#endif
