/*
 * family: the differences between Hugging Face's model families, in three tables. family.c has their
 * names, and which tensors hold our parameters. fields.c has the meaning of the members of config.json.
 * A new family needs new rows in these tables and no code.
 *
 * Our parameters have the names of DeepSeek's files (engine/model/params.h). A rule maps a pattern of our
 * names to a pattern of theirs. # stands for a number: first the layer's, then the expert's. A name
 * without a rule is the same on both sides.
 */
#ifndef CONVERT_FAMILY_H
#define CONVERT_FAMILY_H

#include "engine/base/json.h"
#include "engine/config/config.h"
#include "engine/model/params.h"

/* Families as bits of a set: each row of a table names the families to which it applies. */
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
    OLMOE = 512,
    QWEN2_MOE = 1024,
    QWEN3_NEXT = 2048,
    FAMILY_MLA = DEEPSEEK_V2 | DEEPSEEK_V3,
    FAMILY_DENSE = QWEN3 | LLAMA,
    FAMILY_ALL = 4095,
    FAMILY_GQA = FAMILY_ALL & ~FAMILY_MLA,
    FAMILY_MOE = FAMILY_ALL & ~FAMILY_DENSE
} FamilyBit;

typedef struct Family {
    const char *type;         /* model_type of config.json */
    const char *architecture; /* NULL: such files are read, but never written */
    unsigned bit;
} Family;

extern const Family families[];
extern const int family_count;

/* How a tensor of theirs holds a parameter of ours. A set of bits. */
enum {
    LAYOUT_STACKED = 1,     /* dim 0 counts experts */
    LAYOUT_GATE = 2,        /* the first half of the outputs: gate and up are one tensor */
    LAYOUT_UP = 4,          /* the second half */
    LAYOUT_ALTERNATE = 8,   /* with GATE or UP: even and odd outputs instead of halves */
    LAYOUT_TRANSPOSED = 16, /* (in, out) */
    LAYOUT_CENTRED = 64,    /* of a norm that multiplies by 1 + w: ours begins at 1, theirs at 0 */
    LAYOUT_CHANNELS = 128,  /* (channels, 1, taps) */
    LAYOUT_MXFP4 = 32, /* (out, in / 32, 16) bytes of two elements each; in % 32 = 0 (weights.h) */
    LAYOUT_MORE = 256  /* bits from here on are free for others (tools/dcp/layouts.h) */
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

/* A row of a table of names: in files of these families a parameter of ours is in a tensor of theirs. */
typedef struct TensorRule {
    unsigned families;
    const char *ours, *theirs; /* patterns, with # for a number */
    unsigned layout;
} TensorRule;

/* Gives what rule number `choice`, of those that apply to the family and the parameter, says. Returns how many
 * were seen; the result is only set if that is more than `choice`. */
int family_rule(const TensorRule *rule, int n, unsigned family, const Param *p, int64_t experts,
                int choice, FamilyTensor *out);

/* Files of a family may hold a parameter in several ways. Gives the one with number `choice`; number 0
 * is the one that to-hf writes. `experts`: how many the model has. False: there is no such way. */
bool family_tensor(unsigned family, const Param *p, int64_t experts, int choice, FamilyTensor *out);

/* Files repeat the embedding and the head's weights in each module of multi-token prediction. Gives
 * the name of the i-th such tensor and of the parameter that it repeats. False: there are no more. */
bool family_copy(const Config *c, int i, char name[PARAM_NAME_MAX], const char **of);

/* Is a tensor ignored on purpose? These are modules of multi-token prediction that the model does not
 * have, weights for images, and tables that are computed at run time. */
bool family_leaves_out(unsigned family, const Config *c, const char *name);

/* Sets in *c the settings of the model that a config.json describes. *family: its row. ERR_FORMAT: a
 * member is missing or has the wrong type. ERR_UNSUPPORTED: the error names the architecture or the
 * feature that is not supported. */
Status family_read(const char *path, const Json *json, Arena *a, Config *c, const Family **family);

/* Finds the first family that can express the model of a configuration: its config.json, read again into
 * *theirs, gives the same model in evaluation. Pairs of rotated columns may be in another order
 * (attention.rope_interleaved), because to-hf reorders the rows of matrices. *json gets the members, in
 * `a`, or NULL if no family fits. `like` (or NULL) is a config.json in the folder of the tokenizer: its
 * family is tried first, and its special tokens are kept. ERR_UNSUPPORTED: no family fits; the error
 * says how the nearest one differs. */
Status family_write(const Config *c, const Json *like, Arena *a, Json **json, const Family **family,
                    Config *theirs);

/* Appends one line with the training settings, and their values, for which the family's config.json has
 * no member. Appends nothing if all of them have their defaults. */
Status family_not_carried(const Config *c, const Family *f, Arena *a, Text *out);

/* Sets a member named by keys as in fields.h: the alternative that exists, else the first. */
Status family_put(Arena *a, Json *json, const char *keys, Json value);

#endif
