/* product_algo: looks up, proposes, times and keeps algorithms of dense products. Why, and what a
 * library answers, is in the header. */
#include "kernels/dense/product_algo.h"

#include "engine/base/log.h"
#include "kernels/core/gpu_exec.h"

#include <string.h>

uint32_t product_alignment(const void *at)
{
    uint32_t bytes = PRODUCT_ALIGN;
    while ((uintptr_t)at % bytes != 0) bytes /= 2;
    return bytes;
}

/* Alignments are part of the key, because they decide which algorithms the library may propose. Bits of `kinds`: 0 and
 * 1 transpositions, 2 beta, 3 and 4 types, from 8 on the four alignments, from 40 on scales and 8-bit types. */
static ChoiceKey key_of(const ProductCall *call)
{
    const GemmArgs *g = call->g;
    int64_t kinds = (int64_t)g->a.turned | (int64_t)g->b.turned << 1 | (int64_t)(g->beta != 0) << 2;
    kinds |= (int64_t)(g->a.type == DTYPE_F32) << 3 | (int64_t)(g->c.type == DTYPE_F32) << 4;
    const void *at[4] = { g->a.at, g->b.at, call->r, g->c.at };
    for (int i = 0; i < 4; i++) kinds |= (int64_t)product_alignment(at[i]) << (8 + 8 * i);
    kinds |= call->kinds << 40;
    return (ChoiceKey){ g->m, g->n, g->k, g->a.ld, g->b.ld, g->c.ld, kinds };
}

/* Keeps the proposals that can be launched. A failed launch leaves an error in the runtime, which is cleared. */
static void keep_launchable(ProductCall *call, ProductAlgos *legal)
{
    int kept = 0;
    for (int i = 0; i < legal->n; i++) {
        Status s = OK;
        for (int w = 0; w < TUNER_WARM_UP && s == OK; w++)
            s = call->library->launch(call, legal->algo[i]);
        if (s == OK) {
            memmove(legal->algo[kept++], legal->algo[i], sizeof legal->algo[i]);
        } else {
            status_clear();
            gpu_error_clear();
        }
    }
    legal->n = kept;
}

/* A product that is timed with its legal proposals. */
typedef struct Timed {
    ProductCall *call;
    const ProductAlgos *legal;
} Timed;

static Status launch_proposal(void *self, int i)
{
    const Timed *t = self;
    return t->call->library->launch(t->call, t->legal->algo[i]);
}

/* Sets the kind and the algorithm of *out, not its key. timed: launches the product several times,
 * so a product that adds to C itself adds more than once. */
static Status choose(ProductCall *call, bool timed, Choice *out)
{
    const Tuner *tuner = exec_tuner(call->ex);
    float ms[TUNER_VARIANTS] = { 0 };
    int best = 0;
    ProductAlgos legal = { .n = 0 };
    TRY(call->library->propose(call, &legal));
    if (timed) keep_launchable(call, &legal);
    out->kind = legal.n == 0 ? CHOICE_PLAIN : timed ? CHOICE_TIMED : CHOICE_FIRST;
    if (out->kind == CHOICE_PLAIN) return OK;
    if (out->kind == CHOICE_TIMED) {
        Timed t = { call, &legal };
        TRY(tuner_time(tuner, exec_gpu_stream(call->ex), legal.n, launch_proposal, &t, ms));
        best = tuner_fastest(ms, legal.n);
        tuner->choices->unsaved = true;
    }
    memcpy(out->algo, legal.algo[best], sizeof out->algo);
    return OK;
}

/* Finds the table's choice for a product, or makes one. If the table is full, *out is `spare` with
 * the library's first proposal, which is the same every time. */
static Status choice_find(ProductCall *call, Choice *spare, Choice **out)
{
    const Tuner *tuner = exec_tuner(call->ex);
    ChoiceKey key = key_of(call);
    Choice *c = choices_find(tuner->choices, &key), made = { 0 };
    if (c != NULL && c->unchecked && c->kind != CHOICE_PLAIN &&
        !call->library->fits(call, c->algo)) {
        log_warn("the kept choice for a product of %lld x %lld x %lld does not fit it: another is "
                 "made",
                 (long long)key.m, (long long)key.n, (long long)key.k);
        /* The one case in which an entry changes: in this run no product has used it. */
        TRY(choose(call, tuner->on, c));
    }
    if (c == NULL) {
        made.key = key;
        TRY(choose(call, tuner->on && tuner->choices->n < CHOICES_MAX, &made));
        c = choices_add(tuner->choices, &key);
        if (c == NULL) c = spare;
        *c = made;
    }
    c->unchecked = false;
    *out = c;
    return OK;
}

Status product_algo_find(ProductCall *call, uint64_t algo[CHOICE_WORDS])
{
    Choice spare, *choice = NULL;
    TRY(choice_find(call, &spare, &choice));
    if (choice->kind == CHOICE_PLAIN)
        return FAIL(ERR_UNSUPPORTED, "%s proposes no algorithm for it", call->library->name);
    memcpy(algo, choice->algo, sizeof choice->algo);
    return OK;
}

Status product_algo_run(ProductCall *call)
{
    uint64_t algo[CHOICE_WORDS];
    TRY(product_algo_find(call, algo));
    return call->library->launch(call, algo);
}
