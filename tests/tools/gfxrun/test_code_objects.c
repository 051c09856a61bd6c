/* The kernels of src/ for gfx942 in gfxrun, where `make gfx` has compiled them: is every instruction
 * known. */
#include "harness/arena.h"

#include "gfxrun/gfxrun.h"

#include <glob.h>

static void check_code(const char *path)
{
    CodeObject *code;
    ArenaMark mark = arena_mark(&arena);
    CHECK_OK(gfx_load(&arena, path, &code));
    Status s = gfx_check(code);
    if (s != OK) fail_msg("%s: %s", path, status_message());
    arena_release(&arena, mark);
}

static void every_instruction_of_the_kernels_is_known(void **state)
{
    (void)state;
    glob_t files;
    (void)glob("build/gfx942/src/*/*.cu.o", 0, NULL, &files);
    (void)glob("build/gfx942/src/*/*/*.cu.o", GLOB_APPEND, NULL, &files);
    if (files.gl_pathc == 0 ||
        system("command -v llvm-objdump-19 >/dev/null && command -v llvm-readelf-19 >/dev/null") !=
            0) {
        printf("skip: kernels for gfx942: build/gfx942 or llvm-19 is missing (make gfx)\n");
        skip();
    }
    for (size_t i = 0; i < files.gl_pathc; i++) check_code(files.gl_pathv[i]);
    globfree(&files);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(every_instruction_of_the_kernels_is_known),
    };
    return ARENA_RUN(tests);
}
