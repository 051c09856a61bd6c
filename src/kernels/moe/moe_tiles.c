/* moe_tiles: cuts routed rows into tiles, distributes the tiles over threads, and gathers the rows
 * of a tile. Also the checks of shapes that all expert ops share. */
#include "kernels/moe/moe_tiles.h"

#include "engine/base/order.h"

#include <omp.h>
#include <string.h>

#ifdef HOSTILE
enum { TILE_ROWS = 4, TILE_COLS = 4, CHUNK_ROWS = 4, STEP = 1 };
#else
enum {
    TILE_ROWS = 256,
    TILE_COLS = 256,
    CHUNK_ROWS = 512,
    STEP = 16 /* all tiles but the last are multiples of it: a vector of columns, a block of rows */
};
#endif

/* Cuts n into nearly equal pieces of at most `most`; returns the size of all but the last. */
static int64_t piece_of(int64_t n, int64_t most)
{
    int64_t pieces = (n + most - 1) / most, even = (n + pieces - 1) / pieces;
    return (even + STEP - 1) / STEP * STEP;
}

int64_t moe_tile_rows(const Rows *rows) { return least(TILE_ROWS, rows->bound); }

int64_t moe_tile_cols(int64_t width) { return least(width, piece_of(width, TILE_COLS)); }

int64_t moe_chunk_rows(const Rows *rows) { return least(CHUNK_ROWS, rows->bound); }

/* The groups of rows, one for each expert. Rows from `live` on do not exist. */
typedef struct Groups {
    const int32_t *offsets;
    int64_t experts, live, total; /* total: rows of all groups */
} Groups;

static int64_t group_first(const Groups *g, int64_t e) { return least(g->offsets[e], g->live); }

static int64_t group_rows(const Groups *g, int64_t e)
{
    return group_first(g, e + 1) - group_first(g, e);
}

/* Offsets are another op's data, so they are checked: a wrong one would write over other experts' rows. */
static Status groups_of(const MoeTiles *t, Groups *out)
{
    Groups g = { .offsets = t->offsets->data, .live = t->rows->bound };
    g.experts = tensor_elems(t->offsets) - 1;
    if (t->rows->device != NULL) g.live = least(g.live, *t->rows->device);
    if (g.live < 0 || g.offsets[0] < 0) {
        return FAIL(ERR_ARG, "%s: %lld rows, the first group begins at row %d: neither may be < 0",
                    t->op, (long long)g.live, g.offsets[0]);
    }
    for (int64_t e = 0; e < g.experts; e++) {
        if (g.offsets[e] > g.offsets[e + 1]) {
            return FAIL(ERR_ARG, "%s: offsets fall from %d to %d at expert %lld", t->op,
                        g.offsets[e], g.offsets[e + 1], (long long)e);
        }
        g.total += group_rows(&g, e);
    }
    int64_t first = moe_first(t->first), end = first + group_first(&g, g.experts);
    if (t->first != NULL && (first < 0 || end > tensor_elems(t->pool) / tensor_cols(t->pool))) {
        return FAIL(ERR_ARG, "%s: rows %lld to %lld of a pool of %lld", t->op, (long long)first,
                    (long long)end, (long long)(tensor_elems(t->pool) / tensor_cols(t->pool)));
    }
    *out = g;
    return OK;
}

/* One thread's walk over all tiles. It runs the tiles whose middle lies in its share of the work. */
typedef struct Walk {
    int64_t total, done, thread, threads; /* total and done: work, in rows or row-columns */
} Walk;

/* Does the next tile, with this much work, belong to this thread? Every thread walks all tiles. */
static bool tile_is_mine(Walk *w, int64_t work)
{
    int64_t middle = w->done + work / 2;
    w->done += work;
    return middle * w->threads / w->total == w->thread;
}

/* All threads walk the same list and agree on each tile's owner without a word to each other. */
static Status run_tiles(Exec *ex, const MoeTiles *t, const Groups *g, Walk *w, char *space)
{
    bool columns = t->width > 0;
    for (int64_t e = 0; e < g->experts; e++) {
        int64_t n = group_rows(g, e), first = group_first(g, e), length = columns ? t->width : n;
        int64_t piece = n == 0 ? 1 : piece_of(length, columns ? TILE_COLS : TILE_ROWS);
        for (int64_t at = 0; n > 0 && at < length; at += piece) {
            int64_t part = least(piece, length - at);
            MoeTile tile = columns ? (MoeTile){ e, first, n, at, part }
                                   : (MoeTile){ .expert = e, .first = first + at, .n = part };
            if (tile_is_mine(w, columns ? n * part : part)) TRY(t->run(ex, t->args, &tile, space));
        }
    }
    return OK;
}

Status moe_tiles_run(Exec *ex, const MoeTiles *t)
{
    Groups g;
    TRY(groups_of(t, &g));
    if (g.total == 0) return OK;
    /* The error record belongs to one thread, and no thread may leave the region early. So the first failure is copied
     * out and adopted by the caller. Only failures enter the critical section. */
    Status status = OK;
    char text[512] = "";
#pragma omp parallel num_threads(ex->threads)
    {
        Walk w = { .total = g.total * (t->width > 0 ? t->width : 1) };
        w.thread = omp_get_thread_num();
        w.threads = omp_get_num_threads();
        char *space = (char *)ex->workspace + (size_t)w.thread * t->space_bytes;
        Status s = run_tiles(ex, t, &g, &w, space);
        if (s != OK) {
#pragma omp critical(moe_tiles)
            if (status == OK) {
                status = s;
                strncpy(text, status_message(), sizeof text - 1);
            }
        }
    }
    return status == OK ? OK : status_adopt(status, text);
}

Status moe_tokens_check(const char *op, const Tensor *row_token, const MoeTile *tile,
                        int64_t tokens)
{
    const int32_t *token = (const int32_t *)row_token->data + tile->first;
    for (int64_t r = 0; r < tile->n; r++) {
        if (token[r] >= 0 && token[r] < tokens) continue;
        return FAIL(ERR_ARG, "%s: row %lld reads token %d, outside 0 .. %lld", op,
                    (long long)(tile->first + r), token[r], (long long)tokens - 1);
    }
    return OK;
}

/* Copies only the tile's columns. Without an index it returns the tensor's own memory and no copy is made. */
Status moe_gather(const char *op, const Tensor *t, const Tensor *row_token, const MoeTile *tile,
                  void *buffer, MoeRead *out)
{
    int64_t D = tensor_cols(t), N = tensor_elems(t) / D;
    if (row_token == NULL || row_token->data == NULL) {
        *out = (MoeRead){ tensor_at(t, tile->first * D + tile->col), D };
        return OK;
    }
    const int32_t *token = (const int32_t *)row_token->data + tile->first;
    size_t bytes = (size_t)tile->cols * dtype_bytes(t->dtype);
    TRY(moe_tokens_check(op, row_token, tile, N));
    for (int64_t r = 0; r < tile->n; r++) {
        memcpy((char *)buffer + (size_t)r * bytes, tensor_at(t, token[r] * D + tile->col), bytes);
    }
    *out = (MoeRead){ buffer, tile->cols };
    return OK;
}

Status moe_dims_check(const char *op, int64_t E, int64_t F, int64_t D)
{
    if (E >= 1 && F >= 1 && D >= 1) return OK;
    return FAIL(ERR_SHAPE, "%s: %lld experts of %lld x %lld; each has to be at least 1", op,
                (long long)E, (long long)F, (long long)D);
}

Status moe_rows_check(const char *op, const Tensor *offsets, const Tensor *row_token,
                      const Rows *rows, int64_t R, int64_t N)
{
    TRY(op_expect(op, "offsets", offsets, 1, -1, DTYPE_I32));
    if (rows->bound < 0 || rows->bound > R) {
        return FAIL(ERR_SHAPE, "%s: rows.bound is %lld, the buffers have %lld rows", op,
                    (long long)rows->bound, (long long)R);
    }
    int64_t reads = N; /* row_token may name rows below it */
    bool gathers = row_token != NULL && row_token->data != NULL;
    if (gathers) {
        TRY(op_expect(op, "row_token", row_token, -1, -1, DTYPE_I32));
        reads = tensor_elems(row_token);
    }
    if (reads < rows->bound) {
        return FAIL(ERR_SHAPE, "%s: %lld rows, but %s has only %lld", op, (long long)rows->bound,
                    gathers ? "row_token" : "what they read", (long long)reads);
    }
    return OK;
}
