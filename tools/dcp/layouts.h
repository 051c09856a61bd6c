/*
 * layouts: where other trainers keep our parameters: the names of their tensors, and what lies in one.
 *
 * TorchTitan stacks the experts of a layer in three tensors. Megatron-Core also joins gate and up, and the
 * queries, keys and values of a layer; where all layers are alike, one tensor has them all. A folder that
 * was written from a model of transformers has the names of its family (convert/family.h).
 */
#ifndef DCP_LAYOUTS_H
#define DCP_LAYOUTS_H

#include "convert/family.h"

/* More bits of FamilyTensor.layout. */
enum {
    LAYOUT_LAYERS = LAYOUT_MORE, /* dim 0 counts layers, before experts */
    /* Rows of a fused matrix: for each key head its queries, then the key, then the value. */
    LAYOUT_QUERY = LAYOUT_MORE * 2,
    LAYOUT_KEY = LAYOUT_MORE * 4,
    LAYOUT_VALUE = LAYOUT_MORE * 8
};

/* Who wrote a folder. */
typedef struct DcpLayout {
    const char *name;      /* "TorchTitan" */
    const char *embedding; /* its name for model.embed_tokens.weight; what tells layouts apart */
    const TensorRule *rule;
    int rules;
    bool
        megatron; /* tables may have rows after the vocabulary; names of states stand before those of weights */
} DcpLayout;

extern const DcpLayout dcp_layouts[];
extern const int dcp_layout_count;

/* Does this layout store rotated columns as neighbours? hf_pairs: what a folder with names of transformers
 * does. */
bool dcp_layout_pairs(const DcpLayout *l, const Config *c, bool hf_pairs);

/* Where a parameter is; `choice` as in family_tensor. family: of a layout without rules. */
bool dcp_layout_tensor(const DcpLayout *l, unsigned family, const Param *p, const Config *c,
                       int choice, FamilyTensor *out);

/* Is a key ignored on purpose? It is state of a trainer and not of the model. */
bool dcp_layout_leaves_out(const char *key);

#endif
