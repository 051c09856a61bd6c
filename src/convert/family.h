/*
 * family: what differs between the families of Hugging Face's models, in three tables: their names
 * (family.c), where their tensors hold our parameters (family.c), what the members of their
 * config.json mean in our settings (fields.c). A family more is rows in them, and nothing else.
 *
 * Our parameters have the names of DeepSeek's files (model/params.h). A rule maps a pattern of our
 * names to one of theirs; # stands for a number, of the layer and then of the expert. A name
 * without a rule is the same on both sides.
 */
#ifndef CONVERT_FAMILY_H
#define CONVERT_FAMILY_H

#include "config/config.h"
#include "model/params.h"

#include <cjson/cJSON.h>

/* Families as bits of a set: a row of a table says for which it holds. */
typedef enum FamilyBit {
    DEEPSEEK_V2 = 1,
    DEEPSEEK_V3 = 2,
    QWEN3_MOE = 4,
    QWEN3 = 8,
    MIXTRAL = 16,
    LLAMA = 32,
    GLM4_MOE = 64,
    LLAMA4 = 128,
    GPT_OSS = 256,
    FAMILY_MLA = DEEPSEEK_V2 | DEEPSEEK_V3,
    FAMILY_DENSE = QWEN3 | LLAMA,
    FAMILY_ALL = 511,
    FAMILY_GQA = FAMILY_ALL & ~FAMILY_MLA,
    FAMILY_MOE = FAMILY_ALL & ~FAMILY_DENSE
} FamilyBit;

typedef struct Family {
    const char *type;         /* model_type of config.json */
    const char *architecture; /* NULL: read, but never written */
    unsigned bit;
} Family;

extern const Family families[];
extern const int family_count;

/* How a tensor of theirs holds a parameter of ours; a set. */
enum {
    LAYOUT_STACKED = 1,     /* dim 0 counts experts */
    LAYOUT_GATE = 2,        /* the first half of the outputs: gate and up are one tensor */
    LAYOUT_UP = 4,          /* the second half */
    LAYOUT_ALTERNATE = 8,   /* with GATE or UP: even and odd outputs instead of halves */
    LAYOUT_TRANSPOSED = 16, /* (in, out) */
    LAYOUT_MXFP4 = 32 /* (out, in / 32, 16) bytes of two elements each; in % 32 = 0 (weights.h) */
};

typedef struct FamilyTensor {
    char name[PARAM_NAME_MAX];
    unsigned layout;
    int rank;
    int64_t dim[4];
    /* Element (r, c) of the parameter is first + r * row_step + c * col_step of the tensor; with
     * LAYOUT_STACKED, of the expert's part, which is `expert` parts in. */
    int64_t expert, rows, cols, first, row_step, col_step;
} FamilyTensor;

/* The choice-th way in which files of a family hold a parameter; the first is the one written.
 * `experts`: of the model. False: there is no such choice. */
bool family_tensor(unsigned family, const Param *p, int64_t experts, int choice, FamilyTensor *out);

/* Files repeat the table and the head's weights in each module of multi-token prediction. The i-th such
 * tensor: its name, and the parameter's that it repeats; false: there are no more. */
bool family_copy(const Config *c, int i, char name[PARAM_NAME_MAX], const char **of);

/* Is a tensor of a file left out on purpose: it holds nothing that a model of so many blocks needs?
 * (Layers of multi-token prediction, images, tables that are computed.) */
bool family_leaves_out(unsigned family, const Config *c, const char *name);

/* The settings of the model that a config.json describes, over *c; *family: its row. ERR_UNSUPPORTED:
 * an architecture or a feature that is not there, by its name. */
Status family_read(const char *path, cJSON *json, Arena *a, Config *c, const Family **family);

/* Which family expresses the model of a configuration: the first for which config.json, read again
 * into *theirs, gives the same model; pairs of rotated columns may lie another way
 * (attention.rope_interleaved), since the rows of matrices can be reordered. *json comes with its
 * members (the caller's to delete). `like` (or NULL): a config.json beside the same tokenizer. Its
 * family is tried first, and tokens with a meaning are taken from it. ERR_UNSUPPORTED: no family
 * does; the sentence says what differs in the nearest. */
Status family_write(const Config *c, const cJSON *like, Arena *a, cJSON **json,
                    const Family **family, Config *theirs);

/* Sets a member (keys as in fields.c): the alternative that is there, else the first. ERR_MEMORY. */
Status family_put(cJSON *json, const char *keys, cJSON *value);

#endif
