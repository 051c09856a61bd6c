/*
 * optimizer: the rules by which parameters are updated, as a table.
 *
 * A rule is a row: its state buffers, the scalars that it reads each step, the cost of an update,
 * and the op that runs it. Memory, checkpoints, the check of numbers and the plan read the row; no
 * other file names a rule or a state buffer. A further rule needs a row here, its op in src/kernels/optimizer, and its
 * settings.
 *
 * Not here: the norm of the gradients and clipping (engine/step/update.c), and which rank updates what
 * (engine/step/shards.c).
 */
#ifndef ENGINE_MODEL_OPTIMIZER_H
#define ENGINE_MODEL_OPTIMIZER_H

#include "engine/config/config.h"
#include "kernels/core/op.h"
#include "kernels/quant/quant.h"

enum {
    OPTIMIZER_STATES = 2,  /* state buffers of a rule, at most */
    OPTIMIZER_SCALARS = 3, /* scalars of a step, at most */
    OPTIMIZER_RULES = 2    /* rules that the parameters of one model follow, at most */
};

/* What a buffer holds. Numbers are f32, or of a type in which every number has an f32. */
typedef struct BufferDesc {
    const char *name; /* in checkpoints, and in sentences */
    float least;      /* the smallest valid number: checkpoints with a smaller one are refused */
} BufferDesc;

typedef struct OptimizerDesc OptimizerDesc;

/* Groups of parameters whose state buffers have had the same number of updates. Modules of multi-token prediction are
 * a group of their own, because a training may add them to a trained model (init.h). */
typedef enum MomentAge { AGE_MODEL, AGE_MODULES, AGE_COUNT } MomentAge;

/* The rules of a step beside these. */
typedef enum StepRuleId {
#define STEP_RULE(NAME, name, wanted) RULE_##NAME,
#include "engine/model/rules.def"
#undef STEP_RULE
    STEP_RULES
} StepRuleId;

/* How a model is trained. rule[0] updates matrices, and everything else, too, if rule[1] is NULL. */
typedef struct OptimizerSpec {
    const OptimizerDesc *rule[OPTIMIZER_RULES];
    Dtype state;    /* type of all state buffers: f32 or bf16 */
    Dtype products; /* muon: type of the operands of its products, f32 or bf16 */
    int steps;      /* muon: iterations */
    unsigned rules; /* bit i: steps follow StepRuleId i */
    float
        qk_clip; /* the logit above which heads are clipped (kernels/optimizer/qk_clip.h); 0: none are */
} OptimizerSpec;

static inline bool optimizer_follows(const OptimizerSpec *o, int rule)
{
    return o->rules >> rule & 1;
}

/* Elements that this rank updates by one rule with one rate of decay. Where the rule needs whole matrices, one matrix
 * (rows, cols) or equal ones side by side (E, rows, cols); else any run of elements (n). */
typedef struct UpdateRange {
    const OptimizerDesc *rule;
    Tensor w, g, state[OPTIMIZER_STATES];
    Tensor
        low; /* the copy that products read, which the update writes, too; data NULL: f32, none */
    QuantOut scaled; /* of a whole matrix, or of those of all experts: 8-bit copies, as low */
    int block;       /* of scaled, for errors */
    Tensor average;  /* data NULL: none is kept */
    bool decay;      /* weight decay applies */
    MomentAge age;
    /* Where ranks split the matrices, these tensors hold this rank's parts, and all of these
     * ranks update the same range at the same time. ranks 0 or 1: the matrices are whole. */
    int64_t ranks, copies; /* copies: consecutive ranks that hold the same part */
    bool cols_split;       /* by columns, else by rows */
    bool of_experts; /* over the ranks with parts of the same experts, else over those of tp */
} UpdateRange;

struct OptimizerDesc {
    const char *name; /* of its op */
    int n_states;
    BufferDesc state[OPTIMIZER_STATES];
    bool whole_matrices; /* it cannot update a part of a matrix */
    bool writes_copies;  /* its op takes UpdateRange.scaled */
    /* The rule for everything but the matrices of hidden layers: vectors, the embedding, the head.
     * NULL: this rule. `others` has at least as many states as the rules that name it. */
    const OptimizerDesc *others;
    /* What changes from step to step. `updates`: the updates of the state buffers, with this one. */
    void (*scalars)(const Config *c, double lr, double updates, float out[OPTIMIZER_SCALARS]);
    OpCost (*cost)(const OptimizerSpec *o, const UpdateRange *r);
    /* Of whole matrices: bytes of scratch that an update takes; ex NULL: on a GPU, without that of its products. */
    size_t (*scratch)(const Exec *ex, const OptimizerSpec *o, const UpdateRange *r);
    /* clip: the factor on gradients; scalars: as above. Both lie on the device. */
    Status (*run)(Exec *ex, const Config *c, const UpdateRange *r, Tensor clip, Tensor scalars);
};

extern const OptimizerDesc optimizer_adamw, optimizer_muon;

OptimizerSpec optimizer_of(const Config *c);
/* The spec of one rule, with f32 products and 5 iterations. */
OptimizerSpec optimizer_with(const OptimizerDesc *rule, Dtype state);

/* Finds the first rule of the table with a state buffer of this name, and which of its buffers it
 * is. NULL: no rule has it. */
const OptimizerDesc *optimizer_find_state(const char *name, int *state);

/* For plans, by parameter of a matrix: bytes that its update moves where products read `low`. */
double optimizer_update_bytes(const OptimizerSpec *o, Dtype low);

#endif
