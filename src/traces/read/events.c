/* events: the names that traces use, as sizes and kinds. Traces are read elsewhere:
 * events_read.c. */
#include "traces/read/events.h"

#include "engine/base/text.h"

#include <math.h>
#include <string.h>

const char *const event_kind_name[EVENT_KINDS] = {
    [EVENT_CPU_OP] = "cpu_op",
    [EVENT_RUNTIME] = "cuda_runtime",
    [EVENT_DRIVER] = "cuda_driver",
    [EVENT_KERNEL] = "kernel",
    [EVENT_MEMCPY] = "gpu_memcpy",
    [EVENT_MEMSET] = "gpu_memset",
    [EVENT_PYTHON] = "python_function",
    [EVENT_ANNOTATION] = "user_annotation",
    [EVENT_GPU_ANNOTATION] = "gpu_user_annotation",
    [EVENT_SYNC] = "cuda_sync",
    [EVENT_OVERHEAD] = "overhead",
    [EVENT_OTHER] = "other",
};

/* Recordings of one run agree on when it began, to the microsecond. 0: the trace does not say. */
Status events_same_run(const char *path, int64_t run, const char *other, int64_t other_run)
{
    if (run == other_run || run == 0 || other_run == 0) return OK;
    return FAIL(ERR_ARG, "%s and %s are of runs that began %.6g s apart: name files of one run",
                path, other, fabs((double)(run - other_run)) / 1e6);
}

bool event_is_graph_launch(const Events *e, int64_t i)
{
    const char *name = event_name(e, i);
    return strcmp(name, "cudaGraphLaunch") == 0 || strcmp(name, "hipGraphLaunch") == 0;
}

/* PyTorch's names in argument types, in collectives ("Float"), and in C++ ("c10::Half"). */
double event_dtype_bytes(const char *dtype)
{
    static const struct {
        const char *names;
        double bytes;
    } sizes[] = {
        { "Double|Long|double|long|long int|ComplexFloat|UInt64", 8 },
        { "Float|Int|float|int|UInt32", 4 },
        { "BFloat16|Half|Short|c10::BFloat16|c10::Half|short int|UInt16", 2 },
        { "Bool|Byte|Char|bool|unsigned char|signed char", 1 },
        { "ComplexDouble", 16 },
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (text_word_index(sizes[i].names, dtype) >= 0) return sizes[i].bytes;
    }
    return text_starts(dtype, "Float8") || text_starts(dtype, "c10::Float8") ? 1 : (double)NAN;
}
