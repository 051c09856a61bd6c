/* The library as another program meets it: what it exports, and the examples. */
#include "harness/program.h"

#include <dlfcn.h>

static const char SMALL[] =
    "{\"traceEvents\": [\n"
    "{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"aten::mm\", \"pid\": 1, \"tid\": 1, "
    "\"ts\": 0, \"dur\": 9, \"args\": {}},\n"
    "{\"ph\": \"X\", \"cat\": \"cuda_runtime\", \"name\": \"cudaLaunchKernel\", \"pid\": 1, "
    "\"tid\": 1, \"ts\": 2, \"dur\": 1, \"args\": {\"correlation\": 5}},\n"
    "{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"gemm\", \"pid\": 0, \"tid\": 7, \"ts\": 20, "
    "\"dur\": 10, \"args\": {\"correlation\": 5, \"stream\": 7}}\n]}\n";

/* A file of the build that the test belongs to. */
static const char *built(Lab *lab, const char *name)
{
    char build[FILE_PATH_MAX], path[2 * FILE_PATH_MAX];
    const char *out = NULL;
    lab_find_build(build);
    int n = snprintf(path, sizeof path, "%s/%s", build, name);
    CHECK_OK(arena_text(&lab->arena, path, (size_t)n, &out));
    return out;
}

/* Another program than ours. */
static Outcome run(Lab *lab, const char *program, const char *const *args)
{
    char ours[FILE_PATH_MAX];
    memcpy(ours, lab->program, sizeof ours);
    snprintf(lab->program, sizeof lab->program, "%s", program);
    Outcome o = lab_run(lab, &(Launch){ .cell = "cell", .args = args });
    memcpy(lab->program, ours, sizeof ours);
    return o;
}

static const char *write_small(Lab *lab)
{
    const char *path = lab_path(lab, "cell/small.json");
    CHECK_OK(file_make_folders(lab_path(lab, "cell")));
    lab_write_text(lab, path, SMALL);
    return path;
}

/* ---- names ---- */

static bool name_in(const char *text, const char *name, char after)
{
    size_t n = strlen(name);
    for (const char *at = text; (at = strstr(at, name)) != NULL; at += n)
        if (at[n] == after) return true;
    return false;
}

/* Each name that `nm` lists is a function of the header. Returns how many. */
static int check_names(Lab *lab, const char *header, const char *file, const char *flag)
{
    int n = 0;
    Outcome o = run(lab, "nm", ARGS(flag, "--defined-only", built(lab, file)));
    CHECK_EXIT(o, 0);
    for (const char *line = o.out; *line != '\0';
         line += strcspn(line, "\n"), line += *line == '\n') {
        char type = 0, name[128] = "";
        if (sscanf(line, "%*16[0-9a-f] %c %127[^\n]", &type, name) != 2) continue;
        if (!name_in(header, name, '(')) fail_msg("%s exports %s", file, name);
        n++;
    }
    return n;
}

static void only_the_headers_names_are_visible(void **state)
{
    Lab *lab = *state;
    const char *header = lab_read(lab, "include/switchyard_trace.h", NULL);
    void *library = dlopen(built(lab, "libswitchyard_trace.so"), RTLD_NOW | RTLD_LOCAL);
    int n = 0;
    if (library == NULL) fail_msg("%s", dlerror());
    for (const char *at = header; (at = strstr(at, "switchyard_trace_")) != NULL; at++) {
        char name[128] = "", after = 0;
        if (sscanf(at, "%127[a-z_]%c", name, &after) != 2 || after != '(') continue;
        if (dlsym(library, name) == NULL) fail_msg("the library lacks %s", name);
        n++;
    }
    dlclose(library);
    CHECK(n >= 11);
    if (access("/usr/bin/nm", X_OK) != 0) {
        print_message("there is no nm\n");
        skip();
    }
    CHECK_INT(check_names(lab, header, "libswitchyard_trace.so", "-D"), 11);
    CHECK_INT(check_names(lab, header, "libswitchyard_trace.a", "-g"), 11);
}

/* ---- examples ---- */

static void the_example_in_c_tells_a_trace(void **state)
{
    Lab *lab = *state;
    const char *program = built(lab, "examples/trace_summary"), *small = write_small(lab);
    Outcome o = run(lab, program, ARGS(small, "ops_summary"));
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "3 events, 1 of them device work; left out: 0 that are not JSON");
    CHECK_SAYS(o.out, "computation 0.010 ms, exposed communication 0.000");
    CHECK_SAYS(o.out, "10.0 us  stream 7  gemm\n");
    CHECK_SAYS(o.out, "ops_summary: 1 rows of");
    CHECK_SAYS(o.out, "name=aten::mm, total_direct_kernel_time_sum=10,");
    o = run(lab, program, ARGS("none.json"));
    CHECK_EXIT(o, 1);
    CHECK_TEXT(o.err, "none.json cannot be opened: No such file or directory\n");
    o = run(lab, program, ARGS(small, "nothing"));
    CHECK_EXIT(o, 1);
    CHECK_SAYS(o.err, "has no sheet nothing");
}

static void the_example_in_python_tells_a_trace(void **state)
{
    Lab *lab = *state;
    char script[FILE_PATH_MAX];
    const char *library = built(lab, "libswitchyard_trace.so"), *small = write_small(lab);
    CHECK(realpath("examples/trace_summary.py", script) != NULL);
    if (access("/usr/bin/python3", X_OK) != 0) {
        print_message("there is no python3\n");
        skip();
    }
    Outcome o = run(lab, "/usr/bin/python3", ARGS(script, small, "gpu_timeline", library));
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "{'type': 'computation_time', 'time ms': 0.01, 'percent': 100.0}\n");
    o = run(lab, "/usr/bin/python3", ARGS(script, small, "idle_by_cause", library));
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "'gaps': ");
    o = run(lab, "/usr/bin/python3", ARGS(script, script, "gpu_timeline", library));
    CHECK_EXIT(o, 1);
    CHECK_SAYS(o.err, "is not a trace");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LAB_TEST(only_the_headers_names_are_visible),
        LAB_TEST(the_example_in_c_tells_a_trace),
        LAB_TEST(the_example_in_python_tells_a_trace),
    };
    return LAB_RUN_ALL(tests);
}
