/* layout: which layers lie on which stage of a pipeline, as text in the notation of Megatron and Primus.
 *
 * E is the embedding, t a layer (attention with its MLP or MoE), m a layer of multi-token prediction, L the
 * head with the loss. x*n repeats one of them, (...)*n a group; | ends a stage; commas and blanks are
 * ignored. "Et*4|t*4|t*4|t*3,L" is 15 layers on 4 stages. Stage i is chunk i / ranks of rank i mod ranks
 * (PLACE_LOOP), or where hop_stage() says. Not here: what a layer is (engine/model/layer.h). */
#ifndef ENGINE_SCHEDULE_LAYOUT_H
#define ENGINE_SCHEDULE_LAYOUT_H

#include "engine/base/arena.h"

#include <stdbool.h>

enum {
    LAYOUT_STAGES_MAX = 1 << 16,
    LAYOUT_LAYERS_MAX = 1 << 16,
    LAYOUT_BALANCE_MAX = 1024, /* layers; the time grows with their square times the stages */
    LAYOUT_DEPTH_MAX = 8
};

typedef struct LayoutStage {
    int first, layers; /* of t: number of the first one, how many */
    int predictions;   /* m */
    bool embedding, loss;
} LayoutStage;

/* A partition of the model. Stages are in the order in which a micro-batch visits them. */
typedef struct Layout {
    LayoutStage *stage;
    int stages, layers, predictions;
} Layout;

/* ERR_ARG, with a caret under the position: the text is no layout, or has another number of stages or layers
 * than wanted (0: any). The embedding must come first and the loss last. */
Status layout_parse(const char *text, int want_stages, int want_layers, Arena *a, Layout *out);

/* ERR_ARG: the layout names layers of multi-token prediction, but not all of them on the stage of the loss.
 * They always lie there, also if a layout does not name them. */
Status layout_check_predictions(const Layout *l, int depths);

/* Layers spread evenly, the first stages take the remainder. ERR_ARG: fewer layers than stages. */
Status layout_even(int stages, int layers, Arena *a, Layout *out);

/* The shortest text of the form above without groups; layout_parse reads it back. */
Status layout_text(const Layout *l, Arena *a, const char **out);

#endif
