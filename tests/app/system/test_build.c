/* How the tree is built on other systems: warnings, what make prints, libraries that are missing, names of packages,
 * other processors. */
#include "harness/shell.h"

/* One small object, in a folder of its own. */
#define ONE "b=$PWD/b object=$PWD/b/release/src/engine/base/clock.c.o\nunset WERROR V ISA\n"

static void a_warning_ends_a_build_only_where_that_is_asked_for(void **state)
{
    Lab *lab = *state;
    Outcome o = shell(
        lab, "warns",
        ONE "echo 'static int unused(void) { return 0; }' >warns.h\n"
            "$MAKE BUILD=$b EXTRA=\"-include $PWD/warns.h\" $object 2>&1\n"
            "rm $object\n"
            "$MAKE BUILD=$b EXTRA=\"-include $PWD/warns.h\" WERROR=1 $object 2>&1 || echo ended\n"
            "for e in 0 1; do\n"
            "    $MAKE -n BUILD=$b CUDA=1 WERROR=$e $b/release-cuda/switchyard >n\n"
            "    echo \"nvcc $e $(grep -c 'nvcc.*-Werror=all-warnings' n || :)\"\n"
            "done\n");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "warning: ");
    CHECK_SAYS(o.out, "[-Werror=unused-function]");
    CHECK_SAYS(o.out, "ended\n");
    CHECK_SAYS(o.out, "nvcc 0 0\n");
    if (strstr(o.out, "nvcc 1 0\n") != NULL) fail_msg("%s", o.out);
}

static void make_prints_a_short_line_the_command_or_nothing(void **state)
{
    Lab *lab = *state;
    Outcome o = shell(lab, "prints",
                      ONE "say() { rm -f $object; make -C $ROOT --no-print-directory "
                          "CONFIG=release BUILD=$b \"$@\" $object; }\n"
                          "$MAKE BUILD=$b $object\n"
                          "say\necho --\nsay -s\necho --\nsay -j2 -s\necho --\nsay V=1\n");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "CC src/engine/base/clock.c\n--\n--\n--\ngcc -std=c17 ");
    CHECK_SAYS(o.out, " -c src/engine/base/clock.c -o ");
}

/* pkg-config and the compiler that know all libraries but libyaml, and have an old hwloc. */
#define LESS                                                                                       \
    "mkdir -p bin\n"                                                                               \
    "cat >bin/pkg-config <<'END'\n#!/bin/sh\n"                                                     \
    "case \"$*\" in\n"                                                                             \
    "    *yaml*) exit 1 ;;\n"                                                                      \
    "    --modversion\\ hwloc) echo 1.11 ;;\n"                                                     \
    "    *hwloc*) exit 1 ;;\n"                                                                     \
    "    --modversion*) echo 99 ;;\n"                                                              \
    "esac\nEND\n"                                                                                  \
    "cat >bin/less-gcc <<'END'\n#!/bin/sh\n"                                                       \
    "case \"$*\" in *-E*) ! grep -q yaml.h || exit 1 ;; esac\n"                                    \
    "exec gcc \"$@\"\nEND\n"                                                                       \
    "chmod +x bin/*\nPATH=$PWD/bin:$PATH\n"

static void a_missing_library_is_named_before_anything_is_compiled(void **state)
{
    Lab *lab = *state;
    Outcome o = shell(lab, "lacks",
                      ONE LESS "$MAKE BUILD=$b CC=less-gcc $object 2>&1 || echo \"code $?\"\n"
                               "find b -name '*.o'\n"
                               "$MAKE CC=less-gcc check-deps 2>&1 || echo \"code $?\"\n"
                               "printf '#!/bin/sh\\nexit 1\\n' >bin/old-gcc\nchmod +x bin/old-gcc\n"
                               "CC=old-gcc $ROOT/tools/packages check 2>&1 || echo \"code $?\"\n"
                               "$MAKE CC=no-such-gcc check-deps 2>&1 || echo \"code $?\"\n");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "check-deps: yaml-0.1 is missing, with its header yaml.h\n"
                      "check-deps: hwloc 1.11 is too old, it takes 2.1 or later\n"
                      "check-deps: run make check-deps, which says what installs it\n");
    CHECK_SAYS(o.out, "    fedora    libyaml-devel\n    arch      libyaml\n    conda     yaml\n");
    CHECK_SAYS(o.out, "    debian12  libyaml-dev\n    debian13  libyaml-dev\n");
    CHECK_SAYS(o.out, "conda install -c conda-forge c-compiler ");
    CHECK_SAYS(o.out, "make PREFIX_LIBS=$CONDA_PREFIX\n");
    CHECK_SAYS(o.out, "check-deps: there is no compiler no-such-gcc: ");
    CHECK_SAYS(o.out, "check-deps: old-gcc is too old: it takes gcc 12 or later, or clang, ");
    if (strstr(o.out, ".c.o\n") != NULL || strstr(o.out, "pcre2 ") == NULL) fail_msg("%s", o.out);
}

/* Each system is told what installs all of it there; one that nobody knows, how it goes without root. */
static void check_deps_says_what_installs_them_here(void **state)
{
    static const struct {
        const char *release, *says;
    } on[] = {
        { "ID=debian\\nVERSION_ID=12\\n",
          "check-deps: as root: apt-get install --no-install-recommends -y gcc make pkg-config "
          "libc6-dev libyaml-dev libpcre2-dev libutf8proc-dev libxxhash-dev libhwloc-dev "
          "libmicrohttpd-dev zlib1g-dev libzstd-dev libreadline8\n" },
        { "ID=debian\\nVERSION_ID=13\\n", " zlib1g-dev libzstd-dev libreadline8t64\n" },
        { "ID=ubuntu\\nVERSION_ID=22.04\\n", " -y gcc-12 make " },
        { "ID=ubuntu\\nVERSION_ID=24.04\\n", " zlib1g-dev libzstd-dev libreadline8t64\n" },
        { "ID=fedora\\nVERSION_ID=42\\n",
          "check-deps: as root: dnf install -y gcc make pkgconf-pkg-config glibc-devel diffutils "
          "perl libyaml-devel pcre2-devel utf8proc-devel xxhash-devel hwloc-devel "
          "libmicrohttpd-devel zlib-devel libzstd-devel readline\n" },
        { "ID=arch\\n",
          "check-deps: as root: pacman -S --needed --noconfirm gcc make pkgconf glibc diffutils "
          "perl libyaml pcre2 libutf8proc xxhash hwloc libmicrohttpd zlib zstd readline\n" },
        { "ID=alpine\\n", NULL },
    };
    for (size_t i = 0; i < sizeof on / sizeof *on; i++) {
        char script[2048];
        snprintf(script, sizeof script,
                 LESS "printf '%s' >os\n"
                      "OS_RELEASE=os CC=less-gcc $ROOT/tools/packages check 2>&1 || echo code $?\n",
                 on[i].release);
        Outcome o = shell(*state, "deps", script);
        CHECK_EXIT(o, 0);
        CHECK_SAYS(o.out, "code 1\n");
        CHECK_SAYS(o.out, "packages: without root: conda install -c conda-forge c-compiler make "
                          "pkg-config perl yaml pcre2 libutf8proc xxhash libhwloc libmicrohttpd "
                          "zlib zstd readline\n");
        if (on[i].says != NULL) CHECK_SAYS(o.out, on[i].says);
        if (on[i].says == NULL) CHECK(strstr(o.out, "as root: ") == NULL);
    }
}

/* gcc takes one file for one -o. */
static void make_compilers_gives_gcc_one_file_at_a_time(void **state)
{
    Outcome o = shell(*state, "compilers",
                      "mkdir -p bin\n"
                      "cat >bin/gcc-one <<'END'\n#!/bin/sh\n"
                      "case $1 in -dumpmachine) exec gcc -dumpmachine ;; esac\n"
                      "n=0\nfor a; do case $a in *.c) n=$((n + 1)) ;; esac; done\n"
                      "[ $n -eq 1 ] || exit 1\nEND\n"
                      "chmod +x bin/gcc-one\n"
                      "PATH=$PWD/bin:$PATH $ROOT/tools/check_compilers gcc-one gcc-none\n");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "ok     all files by gcc-one ");
    CHECK_SAYS(o.out, "skip   all files by gcc-none: it is not installed\n1 passed, 0 failed, 1 ");
}

static void libraries_of_a_prefix_are_taken(void **state)
{
    Lab *lab = *state;
    Outcome o = shell(
        lab, "prefix",
        ONE
        "mkdir -p own/include\necho 'enum { ONLY_HERE = 1 };' >own/include/only_here.h\n"
        "$MAKE BUILD=$b EXTRA='-include only_here.h' PREFIX_LIBS=$PWD/own $object\n"
        "rm $object\n"
        "$MAKE BUILD=$b EXTRA='-include only_here.h' $object 2>&1 || echo absent\n"
        "$MAKE -n BUILD=$b PREFIX_LIBS=/own $b/release/switchyard-viz | grep 'switchyard-viz$'\n");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "absent\n");
    CHECK_SAYS(o.out, " -L/own/lib -Wl,-rpath,/own/lib ");
}

/* ---- systems ---- */

static void check_system(Lab *lab, const char *release, const char *system)
{
    char script[1024];
    snprintf(script, sizeof script,
             "printf '%s' >os\necho \"<$(OS_RELEASE=os $ROOT/tools/packages system)>\"\n", release);
    Outcome o = shell(lab, "os", script);
    CHECK_EXIT(o, 0);
    if (strcmp(o.out, system) != 0) fail_msg("%s: %s, not %s", release, o.out, system);
}

static void the_system_is_what_os_release_says(void **state)
{
    Lab *lab = *state;
    check_system(lab, "ID=debian\\nVERSION_ID=\"12\"\\n", "<debian12>\n");
    check_system(lab, "ID=debian\\nVERSION_ID=\"13\"\\n", "<debian13>\n");
    check_system(lab, "PRETTY_NAME=\"Debian forky/sid\"\\nID=debian\\n", "<debian13>\n");
    check_system(lab, "ID=ubuntu\\nID_LIKE=debian\\nVERSION_ID=\"22.04\"\\n", "<ubuntu22>\n");
    check_system(lab, "VERSION_ID=\"24.04\"\\nID=ubuntu\\nID_LIKE=debian\\n", "<ubuntu24>\n");
    check_system(lab, "ID=linuxmint\\nID_LIKE=\"ubuntu debian\"\\nVERSION_ID=\"22\"\\n",
                 "<ubuntu24>\n");
    check_system(lab, "ID=fedora\\nVERSION_ID=41\\n", "<fedora>\n");
    check_system(lab, "ID=\"rocky\"\\nID_LIKE=\"rhel centos fedora\"\\nVERSION_ID=\"9.4\"\\n",
                 "<fedora>\n");
    check_system(lab, "ID=arch\\nBUILD_ID=rolling\\n", "<arch>\n");
    check_system(lab, "ID=manjaro\\nID_LIKE=arch\\n", "<arch>\n");
    check_system(lab, "ID=alpine\\nVERSION_ID=3.20.0\\n", "<>\n");
    check_system(lab, "", "<>\n");
}

static void every_system_names_every_library(void **state)
{
    Lab *lab = *state;
    Outcome o =
        shell(lab, "cell",
              "for on in debian12 debian13 ubuntu22 ubuntu24 fedora arch conda; do\n"
              "    for set in build run; do\n"
              "        echo \"$on $set: $($ROOT/tools/packages names $set $on | tr '\\n' ' ')\"\n"
              "    done\n"
              "done\n");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(
        o.out,
        "debian13 run: libyaml-0-2 libpcre2-8-0 libutf8proc3 libhwloc15 libmicrohttpd12t64 ");
    CHECK_SAYS(o.out,
               "debian12 run: libyaml-0-2 libpcre2-8-0 libutf8proc2 libhwloc15 libmicrohttpd12 ");
    CHECK_SAYS(o.out, "fedora build: gcc make pkgconf-pkg-config ");
    if (strchr(o.out, '=') != NULL) fail_msg("%s", o.out);
    int lines = 0;
    for (const char *line = o.out, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        int words = -1, least = strncmp(strchr(line, ' '), " build", 6) == 0 ? 13 : 9;
        for (const char *at = line; at < end; at++) words += *at == ' ';
        if (words - 1 < least) fail_msg("%d names: %.*s", words - 1, (int)(end - line), line);
        lines++;
    }
    CHECK_INT(lines, 14);
}

/* pacman installs nothing at all if one name is in the AUR alone, or excludes what is installed. */
static void arch_is_asked_only_for_what_pacman_installs(void **state)
{
    static const char *const absent[] = { "slurm", "munge", "mandoc" };
    Outcome o = shell(*state, "cell", "$ROOT/tools/packages names test arch\n");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "cmocka\n");
    for (size_t i = 0; i < sizeof absent / sizeof *absent; i++) {
        if (strstr(o.out, absent[i]) != NULL) fail_msg("%s in: %s", absent[i], o.out);
    }
}

/* Of the system that runs the test; lists of packages may be absent. */
static void the_names_are_those_of_this_system(void **state)
{
    Lab *lab = *state;
    skip_without(lab, "apt-cache");
    Outcome o = shell(
        lab, "cell",
        "apt-cache show make >/dev/null 2>&1 || exit 3\n"
        "for set in build run test browser gfx; do\n"
        "    $ROOT/tools/packages names $set\n"
        "done | sort -u >names\n"
        "apt-cache show --no-all-versions $(cat names) 2>/dev/null | sed -n 's/^Package: //p' | "
        "sort -u >there\n"
        "comm -23 names there\necho looked for $(wc -l <names)\n");
    if (o.code == 3) {
        print_message("skip: this machine has no lists of packages\n");
        skip();
    }
    CHECK_EXIT(o, 0);
    if (strncmp(o.out, "looked for ", 11) != 0) fail_msg("these are not there: %s", o.out);
}

/* ---- processors ---- */

static void a_compiler_for_aarch64_has_a_folder_and_tools_of_its_own(void **state)
{
    Lab *lab = *state;
    Outcome o = shell(lab, "cross",
                      "unset ISA\n"
                      "case $(gcc -dumpmachine) in x86_64*) ;; *) exit 3 ;; esac\n"
                      "cat >cross-cc <<'END'\n#!/bin/sh\n"
                      "case $1 in\n"
                      "    -dumpmachine) echo aarch64-linux-gnu ;;\n"
                      "    -print-prog-name=*) echo arm-${1#*=} ;;\n"
                      "esac\nEND\n"
                      "chmod +x cross-cc\n"
                      "$MAKE -n BUILD=b CC=$PWD/cross-cc all lib\n");
    if (o.code == 3) skip();
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, " -march=armv8.2-a ");
    CHECK_SAYS(o.out, "arm-ar rcs b/release-aarch64/libswitchyard.a ");
    CHECK_SAYS(o.out, "arm-objcopy ");
    static const char *const absent[] = { "x86-64", "-mamx", "b/release/", "b/switchyard",
                                          "set_v4" };
    for (size_t i = 0; i < sizeof absent / sizeof *absent; i++)
        if (strstr(o.out, absent[i]) != NULL) fail_msg("%s is in\n%s", absent[i], o.out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LAB_TEST(a_warning_ends_a_build_only_where_that_is_asked_for),
        LAB_TEST(make_prints_a_short_line_the_command_or_nothing),
        LAB_TEST(a_missing_library_is_named_before_anything_is_compiled),
        LAB_TEST(check_deps_says_what_installs_them_here),
        LAB_TEST(make_compilers_gives_gcc_one_file_at_a_time),
        LAB_TEST(libraries_of_a_prefix_are_taken),
        LAB_TEST(the_system_is_what_os_release_says),
        LAB_TEST(every_system_names_every_library),
        LAB_TEST(arch_is_asked_only_for_what_pacman_installs),
        LAB_TEST(the_names_are_those_of_this_system),
        LAB_TEST(a_compiler_for_aarch64_has_a_folder_and_tools_of_its_own),
    };
    return LAB_RUN_ALL(tests);
}
