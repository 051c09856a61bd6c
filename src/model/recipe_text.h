/* recipe_text: what people read of a recipe for 8-bit products (model/recipe.h): its table, the
 * parameters that it quantises, and why a GPU cannot run it. */
#ifndef MODEL_RECIPE_TEXT_H
#define MODEL_RECIPE_TEXT_H

#include "base/text.h"
#include "model/params.h"

/* For --dry-run: the table, and the quantised parameters by the pattern of their names. Appends
 * nothing without a recipe. Scratch tables lie in `a`. */
Status recipe_print(const Config *c, Arena *a, Text *out);

/* A GPU that is to run a recipe. */
typedef struct RecipeGpu {
    int number;
    const char *name;
    int capability; /* 10 * major + minor */
} RecipeGpu;

/* ERR_UNSUPPORTED: the GPU has no 8-bit products. ERR_ARG: its products need rows of a multiple of 16
 * bytes, and a matrix, or the tokens of a micro-batch, are no such multiple. The sentence names what
 * does not fit. */
Status recipe_check_gpu(const ModelSpec *s, const ParamTable *t, const RecipeGpu *gpu,
                        int64_t tokens);

#endif
