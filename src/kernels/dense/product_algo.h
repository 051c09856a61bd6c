/*
 * product_algo: which algorithm of a vendor's library a dense product runs. A shape keeps its choice
 * (kernels/core/choices.h), so it has one order of sums for the life of the process, and of the run if its choices go
 * into the checkpoint. Normally the library's first proposal is taken; while tuning (kernels/core/tuner.h), the
 * fastest. If the library proposes nothing, it refuses the product, and the next kernel runs (product_kernels.c).
 *
 * nv/blas.cu and kernels-amd/blas.cu describe a call to their library in a struct that begins with a
 * ProductCall. Nothing here knows a vendor.
 */
#ifndef KERNELS_DENSE_PRODUCT_ALGO_H
#define KERNELS_DENSE_PRODUCT_ALGO_H

#include "kernels/core/tuner.h"
#include "kernels/dense/product.h"

enum { PRODUCT_ALIGN = 16 /* bytes of the widest access: more alignment makes no kernel better */ };

/* The algorithms that may be chosen, the library's best guess first. */
typedef struct ProductAlgos {
    uint64_t algo[TUNER_VARIANTS][CHOICE_WORDS];
    int n;
} ProductAlgos;

typedef struct ProductCall ProductCall;

typedef struct ProductLibrary {
    const char *name;
    /* n = 0: the library has nothing for this product, which is no failure. */
    Status (*propose)(ProductCall *call, ProductAlgos *out);
    /* Can the call run an algorithm that came from a text? */
    bool (*fits)(ProductCall *call, const uint64_t *algo);
    Status (*launch)(ProductCall *call, const uint64_t *algo);
} ProductLibrary;

/* r: what beta C reads. It has the layout of C, but may be other memory. workspace: DENSE_WORKSPACE bytes. */
struct ProductCall {
    const ProductLibrary *library;
    struct Exec *ex;
    const GemmArgs *g;
    const void *r;
    void *workspace;
    int64_t kinds; /* of scales, for the key of a choice; 0: operands have none */
};

#ifdef __cplusplus
extern "C" {
#endif

/* The largest power of two up to PRODUCT_ALIGN that divides an address. */
uint32_t product_alignment(const void *at);

/* The algorithm that the call runs. ERR_UNSUPPORTED: the library has none for the product. While
 * tuning, the product runs here, too, and not just once. */
Status product_algo_find(ProductCall *call, uint64_t algo[CHOICE_WORDS]);

/* Finds the algorithm and launches the product with it. */
Status product_algo_run(ProductCall *call);

#ifdef __cplusplus
}
#endif

#endif
