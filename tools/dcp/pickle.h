/*
 * pickle: reads the serialisation of Python that PyTorch's checkpoints have, as a tree of values.
 *
 * Python's own reader calls whatever function a pickle names. This one calls nothing: a named class or
 * function is only a text, and it must be on the caller's list. Only opcodes that PyTorch's files have
 * are known (protocols 2 to 5). Lists and dicts may contain themselves, so readers of a tree go down a
 * fixed number of levels.
 */
#ifndef DCP_PICKLE_H
#define DCP_PICKLE_H

#include "engine/base/arena.h"

typedef enum PickleKind {
    PICKLE_NONE,
    PICKLE_BOOL,
    PICKLE_INT,
    PICKLE_REAL,
    PICKLE_TEXT,
    PICKLE_BYTES,
    PICKLE_TUPLE,
    PICKLE_LIST,
    PICKLE_DICT,    /* items are key, value, key, value, ... */
    PICKLE_GLOBAL,  /* text: "module.name" */
    PICKLE_OBJECT,  /* items: the class (a GLOBAL), its arguments (a TUPLE), its state or NULL */
    PICKLE_OUTSIDE, /* one item: the persistent id */
    PICKLE_MARK     /* only inside the reader */
} PickleKind;

typedef struct Pickle {
    PickleKind kind;
    int64_t number; /* of BOOL and INT */
    double real;    /* of REAL */
    const char *text;
    int64_t n, room; /* bytes of TEXT and BYTES; items of all others */
    struct Pickle **item;
} Pickle;

/* A pickle in memory. `globals`: the classes and functions that it may name; ends with NULL. In "torch.*" any name may
 * follow. */
typedef struct PickleSource {
    const char *path; /* for messages */
    const uint8_t *data;
    size_t bytes;
    const char *const *globals;
} PickleSource;

/* Reads a pickle; values and texts lie in `a`. ERR_FORMAT: it is damaged, or it names something that is not
 * in `globals`; the sentence has the name and the byte. */
Status pickle_read(const PickleSource *source, Arena *a, const Pickle **out);

/* Is it of this kind? `p` may be NULL. */
static inline bool pickle_is(const Pickle *p, PickleKind kind)
{
    return p != NULL && p->kind == kind;
}
/* Is it an object of the class or function `name`? */
bool pickle_is_object(const Pickle *p, const char *name);
/* The value of a text key in a DICT, or of a field in an object whose state is a DICT; NULL: none. */
const Pickle *pickle_get(const Pickle *p, const char *key);
/* The numbers of a tuple, a list or a torch.Size, all >= 0. How many there are; -1: it is something else, or has
 * more than `most`. */
int pickle_sizes(const Pickle *p, int64_t *out, int most);

#endif
