/*
 * gemm: a packed matrix product after Goto (see gemm_tile.h), with three loops around the tile:
 * blocks of columns of B, blocks along k, blocks of rows of A. oneDNN and OpenBLAS were tried and
 * removed: both allocate from the heap in every call (oneDNN 3 to 6 times, OpenBLAS once).
 *
 * One thread of a Zen 5 reaches 88 to 115 % of oneDNN's speed from 13 rows up, and a third of it at
 * one row. Without prefetches of C, and of the operands that are packed next, A^T B is 20 % slower.
 *
 * Each element of C is one sum along k, cut every BLOCK_WORDS words and nowhere else. So its bits
 * depend only on its row of op(A) and its column of op(B): not on threads, tiles or its position.
 */
#include "kernels/dense/gemm.h"

#include "engine/base/order.h"
#include "kernels/core/op.h"
#include "kernels/dense/gemm_amx.h"
#include "kernels/dense/gemm_tile.h"

#include <assert.h>
#include <omp.h>
#include <string.h>

#ifdef HOSTILE
enum { BLOCK_WORDS = 3, BLOCK_TILES = 2, BLOCK_COLS = 2 * TILE_COLS, SUM_ROWS = 5, FEW_ROWS = 4 };
#else
enum {
    BLOCK_WORDS = 256, /* words along k: a panel of B stays in the L1 cache (32 KiB) */
    BLOCK_TILES = 12,  /* tiles of rows of A: 168 rows stay in L2 (168 KiB) */
    FEW_ROWS = 4,
    BLOCK_COLS = 512, /* columns of B: they stay in L2 and L3 (512 KiB) */
    SUM_ROWS = 1008   /* rows of C at a time if sums of several blocks are rounded at their end */
};
#endif
enum { LINE_BYTES = 64 };
_Static_assert(BLOCK_COLS % TILE_COLS == 0, "whole panels");

/* A CPU that has AMX is slow at bf16 pairs (gemm_vector.h), even if the system refuses to enable AMX. */
Status gemm_make(Arena *a, const Cpu *cpu, Gemm **out)
{
    Gemm *g = NULL;
    TRY(ARENA_ZEROED(a, 1, &g));
    g->amx = cpu->amx && amx_ask();
    g->pairs = VECTOR_PAIRS && cpu->bf16 && !cpu->amx;
    *out = g;
    return OK;
}

const char *gemm_bf16(const Gemm *g) { return g->amx ? "AMX-BF16" : g->pairs ? "AVX512-BF16" : ""; }

static Word product_word(const Exec *ex, const GemmArgs *g)
{
    return g->a.type == DTYPE_BF16 && ex->gemm->amx ? WORD_BF16_AMX
                                                    : word_of(g->a.type, ex->gemm->pairs);
}

/* n / piece, rounded up. */
static int64_t pieces(int64_t n, int64_t piece)
{
    assert(piece > 0);
    return (n + piece - 1) / piece;
}

/* A part of a product, as a product. */

/* NULL stays NULL, so that sizes can be computed without memory. The union drops const, since
 * operands and results share this function. */
static void *moved(const void *data, Dtype type, int64_t elems)
{
    union {
        const void *read;
        char *at;
    } p = { data };
    return p.at == NULL ? NULL : p.at + elems * (int64_t)dtype_bytes(type);
}

GemmArgs gemm_rows(GemmArgs g, int64_t first, int64_t n)
{
    g.a.at = moved(g.a.at, g.a.type, first * (g.a.turned ? 1 : g.a.ld));
    g.c.at = moved(g.c.at, g.c.type, first * g.c.ld);
    g.m = least(n, g.m - first);
    return g;
}

static GemmArgs cols_of(GemmArgs g, int64_t first, int64_t n)
{
    g.b.at = moved(g.b.at, g.b.type, first * (g.b.turned ? g.b.ld : 1));
    g.c.at = moved(g.c.at, g.c.type, first);
    g.n = least(n, g.n - first);
    return g;
}

GemmArgs gemm_terms(GemmArgs g, int64_t first, int64_t n)
{
    g.a.at = moved(g.a.at, g.a.type, first * (g.a.turned ? g.a.ld : 1));
    g.b.at = moved(g.b.at, g.b.type, first * (g.b.turned ? 1 : g.b.ld));
    g.k = least(n, g.k - first);
    if (first > 0) g.beta = 1;
    return g;
}

/* How one thread walks over its part of C, and how its workspace is divided. */
typedef struct Walk {
    Word word;
    int64_t rows;  /* rows of C at a time: all of them, unless `sums` */
    int64_t terms; /* elements along k of a block */
    bool
        sums; /* C is not f32 and k has several blocks: sums stay in f32 and are rounded at the end */
    size_t a_bytes, b_bytes, total_bytes; /* packed A, packed B, all with the sums */
} Walk;

static size_t floats_bytes(int64_t n)
{
    return ((size_t)n * sizeof(float) + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
}

static int64_t block_rows(Word w) { return BLOCK_TILES * tile_rows(w); }

static Walk walk_of(const GemmArgs *g, Word word)
{
    Walk w = { .word = word, .rows = g->m };
    w.terms = BLOCK_WORDS * word_elems(w.word);
    w.sums = g->c.type != DTYPE_F32 && g->k > w.terms;
    if (w.sums) w.rows = least(w.rows, SUM_ROWS);
    int64_t words = panel_words(word, least(g->k, w.terms)), panel = panel_rows(word);
    int64_t cols = least(g->n, BLOCK_COLS), rows = least(w.rows, block_rows(word));
    w.a_bytes = floats_bytes(pieces(rows, panel) * panel * words + VECTOR_LANES);
    w.b_bytes = floats_bytes(pieces(cols, TILE_COLS) * TILE_COLS * words);
    w.total_bytes = w.a_bytes + w.b_bytes + (w.sums ? floats_bytes(w.rows * cols) : 0);
    return w;
}

/* C from packed operands. */
static void tiles_run(const GemmArgs *g, Word word, const float *a, const float *b)
{
    Tile t = { .words = panel_words(word, g->k), .word = word };
    t.ldc = g->c.ld;
    t.c_type = g->c.type;
    t.add = g->beta != 0;
    for (int64_t col = 0; col < g->n; col += TILE_COLS) {
        t.b = b + col * t.words;
        t.cols = least(TILE_COLS, g->n - col);
        for (int64_t row = 0; row < g->m; row += tile_rows(word)) {
            t.a = a + row * t.words;
            t.rows = least(tile_rows(word), g->m - row);
            t.c = moved(g->c.at, g->c.type, row * g->c.ld + col);
            word == WORD_BF16_AMX ? amx_tile_run(&t) : tile_run(&t);
        }
    }
}

/* A product whose op(B) fits a block. */
static void terms_run(const GemmArgs *g, Word word, float *a, float *b)
{
    PackSource right = { g->b.at, g->b.ld, g->n, g->k, word, g->b.turned };
    const Tile whole = { .a = g->a.at, .c = g->c.at, .c_type = g->c.type, .add = g->beta != 0 };
    if (g->m == 1 && !g->a.turned && row_run(&whole, &right)) return;
    panels_pack(b, &right, TILE_COLS);
    for (int64_t row = 0; row < g->m; row += block_rows(word)) {
        GemmArgs block = gemm_rows(*g, row, block_rows(word));
        PackSource left = { block.a.at, block.a.ld, block.m, block.k, word, !block.a.turned };
        word == WORD_BF16_AMX ? amx_rows_pack(a, &left) : panels_pack(a, &left, TILE_ROWS);
        tiles_run(&block, word, a, b);
    }
}

/* One thread's part of a product. With few rows of A most time goes into packing B, which is faster in small parts. */
static void part_run(const GemmArgs *g, Word word, char *space)
{
    const int64_t cols = g->m <= FEW_ROWS ? least((int64_t)4 * TILE_COLS, BLOCK_COLS) : BLOCK_COLS;
    Walk w = walk_of(g, word);
    float *a = (float *)(void *)space, *b = (float *)(void *)(space + w.a_bytes);
    float *sums = (float *)(void *)(space + w.a_bytes + w.b_bytes);
    if (word == WORD_BF16_AMX) amx_begin();
    for (int64_t col = 0; col < g->n; col += cols) {
        for (int64_t row = 0; row < g->m; row += w.rows) {
            GemmArgs part = cols_of(gemm_rows(*g, row, w.rows), col, cols), to = part;
            if (w.sums) {
                to.c = (GemmResult){ sums, DTYPE_F32, part.n };
                to.beta = 0;
            }
            for (int64_t k = 0; k < g->k; k += w.terms) {
                GemmArgs block = gemm_terms(to, k, w.terms);
                terms_run(&block, word, a, b);
            }
            for (int64_t r = 0; w.sums && r < part.m; r++) {
                row_narrow((uint16_t *)part.c.at + r * part.c.ld, part.c.type, sums + r * part.n,
                           part.n, part.beta != 0);
            }
        }
    }
    if (word == WORD_BF16_AMX) amx_end();
}

/* threads */

/* C is cut into down x across parts of whole tiles, one for each thread. Each thread packs the rows
 * of A and columns of B that it needs, so the best cut is the one with the fewest of these. */
typedef struct Grid {
    int64_t down, across, rows, cols;
} Grid;

/* n cut into `parts` of whole tiles: the size of all but the last. */
static int64_t part_size(int64_t n, int64_t parts, int64_t tile)
{
    return pieces(pieces(n, tile), parts) * tile;
}

/* First the cut with the most parts, then, among those, the one whose parts pack the fewest lines. */
static Grid grid_of(const GemmArgs *g, Word word, int threads)
{
    Grid best = { 0 };
    for (int64_t down = 1; down <= threads; down++) {
        if (threads % down != 0) continue;
        int64_t across = threads / down;
        Grid grid = { .rows = part_size(g->m, down, tile_rows(word)),
                      .cols = part_size(g->n, across, TILE_COLS) };
        grid.down = pieces(g->m, grid.rows);
        grid.across = pieces(g->n, grid.cols);
        int64_t lines = grid.rows + grid.cols, parts = grid.down * grid.across;
        int64_t best_parts = best.down * best.across;
        if (parts > best_parts || (parts == best_parts && lines < best.rows + best.cols)) {
            best = grid;
        }
    }
    return best;
}

static size_t part_bytes(const GemmArgs *g, Word word, const Grid *grid)
{
    GemmArgs part = cols_of(gemm_rows(*g, 0, grid->rows), 0, grid->cols);
    return walk_of(&part, word).total_bytes;
}

/* The larger of what all threads need together and what one thread needs alone, as gemm_run may be
 * called outside a parallel region or inside. */
size_t gemm_workspace(const Exec *ex, const GemmArgs *g)
{
    if (g->m == 0 || g->n == 0) return 0;
    Word word = product_word(ex, g);
    Grid all = grid_of(g, word, ex->threads), one = grid_of(g, word, 1);
    size_t shared = (size_t)(all.down * all.across) * part_bytes(g, word, &all);
    size_t alone = part_bytes(g, word, &one);
    return shared > alone ? shared : alone;
}

static void parts_run(const GemmArgs *g, Word word, int threads, char *workspace)
{
    Grid grid = grid_of(g, word, threads);
    size_t bytes = part_bytes(g, word, &grid);
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t i = 0; i < grid.down * grid.across; i++) {
        GemmArgs part = gemm_rows(*g, i / grid.across * grid.rows, grid.rows);
        part = cols_of(part, i % grid.across * grid.cols, grid.cols);
        part_run(&part, word, workspace + (size_t)i * bytes);
    }
}

/* The product with k = 0: C = beta C. beta is 0 or 1, so there is nothing to multiply. */
static void scale_by_beta(const GemmArgs *g)
{
    size_t bytes = dtype_bytes(g->c.type);
    for (int64_t i = 0; g->beta == 0 && i < g->m; i++) {
        memset((char *)g->c.at + (size_t)(i * g->c.ld) * bytes, 0, (size_t)g->n * bytes);
    }
}

Status gemm_run(Exec *ex, const GemmArgs *g, void *workspace)
{
    assert(g->a.type == g->b.type && g->a.type <= DTYPE_F16 && g->c.type <= DTYPE_F16);
    assert(g->beta == 0 || g->beta == 1);
    if (g->m == 0 || g->n == 0) return OK;
    if (g->k == 0) {
        scale_by_beta(g);
        return OK;
    }
    Word word = product_word(ex, g);
    if (omp_in_parallel() || ex->threads == 1) {
        part_run(g, word, workspace);
    } else {
        parts_run(g, word, ex->threads, workspace);
    }
    return OK;
}
