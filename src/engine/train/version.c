/* version: `switchyard --version`: what a bug report should contain: versions of the program and of
 * its libraries, and the CPU instructions in use. */
#include "app/options/cli.h"
#include "app/options/options.h"
#include "engine/backend/backend.h"
#include "engine/host/http.h"
#include "engine/host/library.h"
#include "kernels/core/cpu_set.h"

#include <dlfcn.h>
#include <hwloc.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdio.h>
#include <utf8proc.h>
#include <yaml.h>
#include <zlib.h>
#include <zstd.h>

enum { WORDS_BYTES = 64 };

/* The instruction set that CPU ops use on this processor. */
static const char *cpu_instructions(void)
{
    const Cpu cpu = cpu_here();
    const OpSet *set = &op_set_base;
    if (op_set_find(CPU_AUTO, &cpu, &set) != OK) status_clear();
    return cpu_isa_names[set->isa];
}

/* The version of the collectives that a build for `runtime` opens at run time. Another build: "". */
static void collectives_text(GpuRuntime runtime, char out[WORDS_BYTES])
{
    const LibraryCall call = { .name = "ncclGetVersion" };
    const Library library = { .file = runtime == GPU_RUNTIME_HIP ? "librccl.so.1" : "libnccl.so.2",
                              .call = &call,
                              .calls = 1 };
    int (*ask)(int *) = NULL;
    void *opened = NULL;
    int v = 0;
    bool built = gpu_runtime == runtime;
    (void)snprintf(out, WORDS_BYTES, "%s", built ? "not found" : "");
    if (!built || library_open(&library, &ask, &opened) != OK) return;
    (void)ask(&v);
    (void)snprintf(out, WORDS_BYTES, "%d.%d.%d", v / 10000, v / 100 % 100, v % 100);
    (void)dlclose(opened);
}

/* The version of the runtime of GPUs that this build uses. Another build: "". */
static void runtime_text(GpuRuntime runtime, char out[WORDS_BYTES])
{
    int v = gpu_runtime == runtime ? gpu_runtime_version() : 0;
    (void)snprintf(out, WORDS_BYTES, "%s", gpu_runtime == runtime ? "not found" : "");
    if (v > 0) (void)snprintf(out, WORDS_BYTES, "%d.%d", v / 1000, v % 1000 / 10);
}

/* The first row is the program's version, which text has in its title. An empty value: not in this
 * build. */
Status cli_print_versions(bool json, Text *out)
{
    char cuda[WORDS_BYTES], nccl[WORDS_BYTES];
    char hip[WORDS_BYTES], rccl[WORDS_BYTES];
    char pcre2[WORDS_BYTES] = "", hwloc[WORDS_BYTES];
    unsigned h = hwloc_get_api_version();
    runtime_text(GPU_RUNTIME_CUDA, cuda);
    runtime_text(GPU_RUNTIME_HIP, hip);
    collectives_text(GPU_RUNTIME_CUDA, nccl);
    collectives_text(GPU_RUNTIME_HIP, rccl);
    (void)pcre2_config(PCRE2_CONFIG_VERSION, pcre2);
    (void)snprintf(hwloc, sizeof hwloc, "%u.%u.%u", h >> 16, h >> 8 & 0xFF, h & 0xFF);
    const char *const row[][2] = {
        { "version", version_number },
        { "commit", version_commit },
        { "cuda", cuda },
        { "nccl", nccl },
        { "hip", hip },
        { "rccl", rccl },
        { "kernels", gpu_kernels_note },
        { "mpi", comm_mpi_built() ? "built in" : "" },
        { "isa", cpu_instructions() },
        { "compiler", __VERSION__ },
        { "pcre2", pcre2 },
        { "libyaml", yaml_get_version_string() },
        { "hwloc", hwloc },
        { "microhttpd", http_version() },
        { "zlib", zlibVersion() },
        { "zstd", ZSTD_versionString() },
        { "utf8proc", utf8proc_version() },
    };
    const int rows = sizeof row / sizeof *row;
    if (!json) TRY(text_printf(out, "switchyard %s\n", version_number));
    for (int i = !json; i < rows; i++) {
        const char *value = row[i][1];
        if (json) TRY(text_append(out, i == 0 ? "{" : ",", 1));
        TRY(json ? text_json(out, "%s:%s", row[i][0], value)
                 : text_printf(out, "  %-10s %s\n", row[i][0], *value == '\0' ? "none" : value));
    }
    return json ? text_append(out, "}\n", 2) : OK;
}

static Status print_version(void *state, int n, char **arguments, Arena *a, Text *out)
{
    const bool *json = state;
    return (void)n, (void)arguments, (void)a, cli_print_versions(*json, out);
}

Status cli_version(int argc, char **argv)
{
    bool json = false;
    const Option table[] = {
        { "--json", OPTION_FLAG, &json, .help = "print one JSON object; what is missing is empty" },
    };
    const Command command = {
        .name = "switchyard --version",
        .what = "Print the version, the commit, the back ends of this build and its libraries.",
        .example = "switchyard --version --json",
        OPTIONS(table, 0, 0),
    };
    return options_run(&command, argc, argv, print_version, &json);
}
