/* hip: opens HIP's runtime, and starts kernels with it. What the compiler makes of <<<>>> and of kernels
 * calls functions of HIP's library, which is not linked here: they are below. Objects announce their
 * kernels before main; hip_kernels_load gives them to a device. */
extern "C" {
#include "engine/base/log.h"
#include "engine/gpu/gpu.h"
#include "engine/host/library.h"
#include "kernels-amd/hip_table.h"
}

#include <algorithm>
#include <cassert>
#include <mutex>
#include <vector>

/* Kernels of the program */

enum { DEVICES_MAX = 64 };

/* An object's code, for all chips that it was built for. */
struct Binary {
    const void *bundle;
    hipModule_t module[DEVICES_MAX];
};

/* stub: the host's function that stands for the kernel in a launch. */
struct Kernel {
    const void *stub;
    const char *name;
    Binary *binary;
    hipFunction_t function[DEVICES_MAX];
};

struct Program {
    std::mutex lock;
    std::vector<Kernel> kernels; /* by stub, once a device has them: then launches search them */
    bool sorted, loaded[DEVICES_MAX];
};

/* Made at first use: objects announce themselves in any order. */
static Program &program()
{
    static Program p = {};
    return p;
}

/* What clang puts in front of an object's code: "HIPF", its version, the code. */
struct FatBinary {
    unsigned magic, version;
    const void *bundle, *unused;
};

extern "C" void **__hipRegisterFatBinary(const void *wrapper)
{
    return (void **)new Binary{ ((const FatBinary *)wrapper)->bundle, {} };
}

extern "C" void __hipUnregisterFatBinary(void **) {}

extern "C" void __hipRegisterFunction(void **binary, const void *stub, char *, const char *name,
                                      unsigned, void *, void *, void *, void *, int *)
{
    program().kernels.push_back({ stub, name, (Binary *)binary, {} });
}

static bool by_stub(const Kernel &a, const Kernel &b) { return a.stub < b.stub; }

static Status kernel_load(Kernel *k, int device)
{
    hipModule_t *module = &k->binary->module[device];
    hipError_t e = hipSuccess;
    if (*module == NULL) e = hip_table()->ModuleLoadData(module, k->binary->bundle);
    if (e == hipSuccess) e = hip_table()->ModuleGetFunction(&k->function[device], *module, k->name);
    if (e == hipSuccess) return OK;
    return FAIL(ERR_DEVICE, "kernel %s on GPU %d: %s", k->name, device,
                hip_table()->GetErrorString(e));
}

extern "C" Status hip_kernels_load(int device)
{
    Program &p = program();
    std::lock_guard<std::mutex> guard(p.lock);
    if (device >= DEVICES_MAX)
        return FAIL(ERR_UNSUPPORTED, "GPU %d is too many, the last is %d", device, DEVICES_MAX - 1);
    if (p.loaded[device]) return OK;
    if (!p.sorted) {
        std::sort(p.kernels.begin(), p.kernels.end(), by_stub);
        p.sorted = true;
        log_warn("%s", gpu_kernels_note);
    }
    for (Kernel &k : p.kernels) TRY(kernel_load(&k, device));
    p.loaded[device] = true;
    return OK;
}

/* Launches */

struct Configuration {
    dim3 grid, block;
    size_t shared_bytes;
    hipStream_t stream;
};

/* Between <<<>>> and the call behind it there is one at a time. */
static Configuration &configuration()
{
    static thread_local Configuration c;
    return c;
}

extern "C" hipError_t __hipPushCallConfiguration(dim3 grid, dim3 block, size_t shared_bytes,
                                                 hipStream_t stream)
{
    configuration() = { grid, block, shared_bytes, stream };
    return hipSuccess;
}

extern "C" hipError_t __hipPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared_bytes,
                                                hipStream_t *stream)
{
    const Configuration &c = configuration();
    *grid = c.grid;
    *block = c.block;
    *shared_bytes = c.shared_bytes;
    *stream = c.stream;
    return hipSuccess;
}

/* The runtime keeps a launch's error for hipGetLastError, where gpu_launch_status finds it. Every
 * kernel of the program was loaded with the device. */
extern "C" hipError_t hipLaunchKernel(const void *stub, dim3 grid, dim3 block, void **arguments,
                                      size_t shared_bytes, hipStream_t stream)
{
    const HipTable *hip = hip_table();
    const std::vector<Kernel> &kernels = program().kernels;
    Kernel wanted = { stub, NULL, NULL, {} };
    auto k = std::lower_bound(kernels.begin(), kernels.end(), wanted, by_stub);
    int device = 0;
    assert(k != kernels.end() && k->stub == stub);
    hipError_t e = hip->GetDevice(&device);
    if (e != hipSuccess) return e;
    return hip->ModuleLaunchKernel(k->function[device], grid.x, grid.y, grid.z, block.x, block.y,
                                   block.z, (unsigned)shared_bytes, stream, arguments, NULL);
}

/* The runtime */

struct Runtime {
    HipTable table;
    Status status;
    char why[1000];
};

/* ROCm 7 and 6 differ in the library's name alone. */
static void runtime_open(Runtime *r)
{
    static const LibraryCall calls[] = {
#define CALL(field, name, arguments) { #name, NULL, offsetof(HipTable, field), false },
        HIP_CALLS(CALL)
#undef CALL
#define CALL(field, name) { #name, NULL, offsetof(HipTable, field), false },
            HIP_TEXTS(CALL)
#undef CALL
    };
    static const char *const files[] = { "libamdhip64.so.7", "libamdhip64.so.6" };
    void *opened = NULL;
    r->status = ERR_UNSUPPORTED;
    for (int i = 0; i < 2 && r->status != OK; i++) {
        const Library library = { .file = files[i],
                                  .what = "AMD's HIP runtime",
                                  .advice = "install ROCm 6.2 or later, or set LD_LIBRARY_PATH",
                                  .call = calls,
                                  .calls = sizeof calls / sizeof *calls };
        r->status = library_open(&library, &r->table, &opened);
        if (r->status == OK) break;
        status_sentence(r->why, sizeof r->why);
        status_clear();
    }
}

static const Runtime &runtime()
{
    static Runtime r = {};
    static std::once_flag once;
    std::call_once(once, runtime_open, &r);
    return r;
}

extern "C" Status hip_open(void)
{
    const Runtime &r = runtime();
    return r.status == OK ? OK : FAIL(ERR_DEVICE, "%s", r.why);
}

extern "C" const HipTable *hip_table(void) { return &runtime().table; }
