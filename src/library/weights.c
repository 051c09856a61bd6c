/* weights: what a checkpoint holds, tensor by tensor; and what all readers of weights share. */
#include "engine/checkpoint/manifest.h"
#include "engine/train/infer.h"
#include "library/handle.h"

#include <stdlib.h>
#include <string.h>

/* ---- of any reader ---- */

static int by_name(const void *a, const void *b)
{
    const SwitchyardWeight *x = a, *y = b;
    return strcmp(x->name, y->name);
}

void library_sort_weights(SwitchyardWeights *w)
{
    if (w->n > 0) qsort(w->at, (size_t)w->n, sizeof *w->at, by_name);
}

static Status weights_count(const SwitchyardWeights *w, int64_t *out)
{
    TRY(library_given("weights_count", w, out));
    *out = w->n;
    return OK;
}
LIBRARY_FUNCTION(weights_count, (const SwitchyardWeights *w, int64_t *out), (w, out))

static Status weights_at(const SwitchyardWeights *w, int64_t i, SwitchyardWeight *out)
{
    TRY(library_given("weights_at", w, out));
    TRY(library_index("weight", i, w->n));
    *out = w->at[i];
    return OK;
}
LIBRARY_FUNCTION(weights_at, (const SwitchyardWeights *w, int64_t i, SwitchyardWeight *out),
                 (w, i, out))

static Status weights_read(SwitchyardWeights *w, int64_t i, float *to, int64_t room)
{
    TRY(library_given("weights_read", w, to));
    TRY(library_index("weight", i, w->n));
    if (room >= w->at[i].elems) return w->read(w, i, to);
    return FAIL(ERR_ARG, "%s has %lld elements, the place for them has %lld", w->at[i].name,
                (long long)w->at[i].elems, (long long)room);
}
LIBRARY_FUNCTION(weights_read, (SwitchyardWeights * w, int64_t i, float *to, int64_t room),
                 (w, i, to, room))

/* ---- of a checkpoint ---- */

typedef struct CheckpointWeights {
    SwitchyardWeights w;
    char folder[FILE_PATH_MAX];
    ManifestEntry **entry; /* by weight: a chain of the entries that hold it */
} CheckpointWeights;

static int by_param(const void *a, const void *b)
{
    const ManifestEntry *x = a, *y = b;
    return strcmp(x->param, y->param);
}

/* The shape that an entry says; a file may say anything. */
static Status weight_of(const char *folder, const ManifestEntry *e, SwitchyardWeight *out)
{
    const int64_t cols = e->rank > 1 ? e->dim[1] : 1;
    *out = (SwitchyardWeight){ e->param, e->dim[0] * cols, e->rank, { e->dim[0], cols } };
    if (e->dim[0] > 0 && cols > 0 && piece_fits(&e->piece, out->elems)) return OK;
    return FAIL(ERR_FORMAT, "%s: an entry of %s is no part of its shape", folder, e->param);
}

/* The entries of a weight lie together once they are sorted, among those of its optimizer. */
static Status list_entries(CheckpointWeights *c, ManifestEntry *e, int64_t n)
{
    SwitchyardWeights *w = &c->w;
    qsort(e, (size_t)n, sizeof *e, by_param);
    TRY(ARENA_NEW(&w->arena, n, &w->at));
    TRY(ARENA_NEW(&w->arena, n, &c->entry));
    for (int64_t i = 0; i < n; i++) {
        SwitchyardWeight at;
        if (e[i].buffer != BUF_MAIN && e[i].buffer != BUF_STATE) continue;
        TRY(weight_of(c->folder, &e[i], &at));
        const int64_t last = w->n - 1;
        const bool known = last >= 0 && strcmp(w->at[last].name, at.name) == 0;
        if (known && w->at[last].elems != at.elems)
            return FAIL(ERR_FORMAT, "%s: %s has two shapes", c->folder, at.name);
        e[i].other = known ? c->entry[last] : NULL;
        w->n += !known;
        c->entry[w->n - 1] = &e[i];
        w->at[w->n - 1] = at;
    }
    for (int64_t i = 0; i < w->n; i++)
        TRY(manifest_check_cover(c->folder, c->entry[i], w->at[i].elems));
    return OK;
}

static Status read_entries(SwitchyardWeights *w, int64_t i, float *to)
{
    const CheckpointWeights *c = (const CheckpointWeights *)w;
    const int64_t n = w->at[i].elems;
    Tensor all = { .dtype = DTYPE_F32, .rank = 1, .dim = { n } };
    all.data = to;
    const ParamPiece whole = { piece_range(0, n), all };
    const ArenaMark mark = arena_mark(&w->arena);
    Status s = OK;
    for (const ManifestEntry *e = c->entry[i]; e != NULL && s == OK; e = e->other)
        s = manifest_read_entry(NULL, c->folder, e, &whole, &w->arena);
    arena_release(&w->arena, mark);
    return s;
}

static Status weights_open(const char *path, SwitchyardWeights **out)
{
    CheckpointWeights *c = NULL;
    CheckpointInfo info;
    ManifestEntry *entry = NULL;
    int64_t n = 0;
    TRY(library_given("weights_open", path, out));
    TRY(library_make("weights", sizeof *c, 32, &c));
    c->w.read = read_entries;
    Status s = checkpoint_resolve(path, &c->w.arena, c->folder);
    if (s == OK) s = manifest_read(c->folder, &c->w.arena, &info, &entry, &n);
    if (s == OK) s = list_entries(c, entry, n);
    if (s == OK) *out = &c->w;
    if (s != OK) library_free(c);
    return s;
}
LIBRARY_FUNCTION(weights_open, (const char *path, SwitchyardWeights **out), (path, out))

void switchyard_weights_close(SwitchyardWeights *w) { library_free(w); }
