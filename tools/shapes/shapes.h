/* shapes: what the files of `bench shapes` share, and `bench contention` with them. shapes.c walks
 * shapes.def, times and prints; shapes_set.c makes the tensors of a case; shapes_check.c runs a sample
 * of it on the CPU, which is the same case with smaller sizes. */
#ifndef SHAPES_SHAPES_H
#define SHAPES_SHAPES_H

#include "engine/backend/backend.h"
#include "engine/config/config.h"

enum { SHAPE_CALLS_MAX = 8, SHAPE_PORTS_MAX = 20, SHAPE_PATTERN = 1048573 };

enum ShapeTensor {
    T_NONE,
#define TENSOR(name, axis, type, fill, ...) T_##name,
#include "shapes/shapes.def"
    T_COUNT
};

/* The outer axes of a tensor. HEADS: (b, t, h), an entry is one token of a head. HEAD: (b, h), an
 * entry is a head of a sequence. */
typedef enum ShapeAxis {
    OVER_WHOLE,
    OVER_TOKENS,
    OVER_SLOTS,
    OVER_ROWS,
    OVER_EXPERTS,
    OVER_HEADS,
    OVER_HEAD,
    OVER_COUNT
} ShapeAxis;

/* What a tensor holds before its calls; shapes.def says what each word means. */
typedef enum ShapeFill {
    FILL_NORMAL,
    FILL_SMALL,
    FILL_POSITIVE,
    FILL_COUNT,
    FILL_BELOW,
    FILL_DOCUMENTS,
    FILL_ROUTING,
    FILL_SUM
} ShapeFill;

typedef enum ShapeSample {
    SAMPLE_NONE,
    SAMPLE_ALL,
    SAMPLE_TOKENS,  /* some tokens */
    SAMPLE_EXPERTS, /* the last rows of some experts */
    SAMPLE_EXPERT,  /* all rows of one */
    SAMPLE_HEAD     /* a head of a sequence */
} ShapeSample;

/* The sizes of a case. 0: the case has no such size. */
typedef struct ShapeSizes {
    int64_t n, d, f, e, k, b, t, h; /* shapes.def */
    int64_t cp, rank, keys, window; /* shapes.def */
    int64_t tokens;                 /* of a document */
    int64_t shared;                 /* value heads that share a key head */
    int64_t r;                      /* routed rows */
} ShapeSizes;

/* Key heads of a gated delta net. */
static inline int64_t shape_key_heads(const ShapeSizes *s)
{
    return s->shared > 0 ? s->h / s->shared : 0;
}

/* Sizes that files name by a letter: shape_letters[i] is size i of ShapeSizes. */
enum { SHAPE_LETTERS = 8 };
extern const char shape_letters[SHAPE_LETTERS + 1];
int64_t *shape_size(ShapeSizes *s, int letter);

/* A row of shapes.def. Calls before `prepare` make inputs; those from it on are timed. */
typedef struct ShapeCase {
    int group;
    const char *name;
    ShapeSample sample;
    int prepare, calls;
    struct {
        OpId op;
        int tensor[SHAPE_PORTS_MAX]; /* by port that is a tensor */
    } call[SHAPE_CALLS_MAX];
} ShapeCase;

/* The tensors of a case and its calls on them. */
typedef struct ShapeSet {
    Exec *ex;
    Arena *arena, *tables; /* of the tensors; of data on the host */
    const Config *config;
    const ShapeCase *what;
    ShapeSizes s;
    const int32_t *routing[T_COUNT]; /* contents of tensors with FILL_ROUTING */
    const float *pattern;            /* (SHAPE_PATTERN) */
    Tensor tensor[T_COUNT];          /* no data: not in this case */
    bool written[T_COUNT];           /* outputs of a call, which are compared */
    void *args[SHAPE_CALLS_MAX];     /* the argument struct of each call's op */
} ShapeSet;

ShapeAxis shape_axis(int tensor);
ShapeFill shape_fill(int tensor);

/* Makes tensors, fills them (outputs with NaN) and sets the calls' arguments. */
Status shape_set_make(ShapeSet *set);
Status shape_set_run(const ShapeSet *set, int first, int end);

/* Runs the case once more, and a sample of it on the CPU, in `arena`. *error: the largest relative
 * error of a row of an output. For rows with a norm below a tenth of the mean, that tenth is the
 * reference. */
Status shape_check(const ShapeSet *set, Exec *cpu, Arena *arena, double *error);

#endif
