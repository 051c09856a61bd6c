/* recipe_text: what people read of a recipe for 8-bit products (engine/model/recipe.h): its table, the
 * parameters that it quantises, and why a GPU cannot run it. */
#ifndef ENGINE_MODEL_RECIPE_TEXT_H
#define ENGINE_MODEL_RECIPE_TEXT_H

#include "engine/base/text.h"
#include "engine/model/params.h"
#include "kernels/core/vendor.h"

/* For --dry-run: the table, and the quantised parameters by the pattern of their names. Appends
 * nothing without a recipe. Scratch tables lie in `a`. */
Status recipe_print(const Config *c, Arena *a, Text *out);

/* A GPU that is to run a recipe. */
typedef struct RecipeGpu {
    const char *name; /* in sentences, as in "GPU 0 (NVIDIA H200)" */
    int capability;   /* 10 * major + minor */
    GpuVendor vendor;
    const char *lacks_code; /* gpu_code_lacks */
} RecipeGpu;

/* What the GPU has no kernel for: ERR_UNSUPPORTED, heads of 8-bit attention; ERR_ARG, a matrix of a recipe,
 * whose rows must be a multiple of 16 bytes. The sentence names what does not fit. A plan, also of a GPU that
 * the program has no kernels for, asks for capability 90, as costs do (kernel_device_full). */
Status recipe_check_shapes(const ModelSpec *s, const ParamTable *t, const RecipeGpu *gpu);

/* ERR_ARG: 8-bit weight gradients need tokens of a micro-batch and rank in a multiple of 16. */
Status recipe_check_tokens(const ModelSpec *s, int64_t tokens);

/* Both, and ERR_UNSUPPORTED: the GPU has no 8-bit products. */
Status recipe_check_gpu(const ModelSpec *s, const ParamTable *t, const RecipeGpu *gpu,
                        int64_t tokens);

#endif
