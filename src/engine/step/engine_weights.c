/* engine_weights: sets and checks the flat buffers, in pieces that fit into the staging block. */
#include "engine/step/engine_weights.h"

#include "engine/base/interrupt.h"
#include "engine/base/rng.h"
#include "engine/checkpoint/checkpoint_folder.h"
#include "engine/checkpoint/numbers.h"
#include "engine/step/agree.h"
#include "engine/step/copies.h"
#include "engine/step/engine_memory.h"

/* All threads draw the elements of a piece. A value depends on its index alone, so neither threads nor
 * shards change it. */
static void fill_piece(const EngineParams *w, const Param *p, uint64_t seed, const Piece *in,
                       int64_t first, int64_t n, float *out)
{
    enum { PART = 1 << 14 };
#pragma omp parallel for num_threads(w->shape->threads) schedule(static)
    for (int64_t i = 0; i < n; i += PART) {
        param_fill(p, seed, in, first + i, n - i < PART ? n - i : PART, out + i);
    }
}

/* A shard draws the values that the whole parameter would have at its indices. So a run begins with
 * the same weights on any mesh. */
static Status fill_param(EngineParams *w, const Param *p, uint64_t seed)
{
    ParamPiece piece = param_piece(&w->table, p, &w->memory, BUF_MAIN);
    int64_t n = piece_elems(&piece.in);
    int64_t most = (int64_t)(engine_piece_bytes(w->arenas) / sizeof(float));
    for (int64_t first = 0; first < n; first += most) {
        int64_t part = n - first < most ? n - first : most;
        float *at = tensor_at(&piece.at, first);
        TRY(interrupt_check("no step has run"));
        fill_piece(w, p, seed, &piece.in, first, part, engine_staging(w->arenas, at));
        TRY(engine_put(w->arenas, at, (size_t)part * sizeof(float)));
    }
    return OK;
}

/* Padding between parameters is zeroed with the rest. */
Status engine_zero_weights(EngineParams *w)
{
    for (int b = BUF_MAIN; b < BUF_COUNT; b++) TRY(engine_zero(w->arenas, &w->memory.buffer[b]));
    return engine_wait(w->arenas);
}

/* A parameter with a state of its own (BUF_STATE) begins at zero, so it is not filled. */
Status engine_init_weights(EngineParams *w, uint64_t seed)
{
    TRY(engine_zero_weights(w));
    for (int i = 0; i < w->table.n; i++) {
        if (w->table.at[i].first[BUF_STATE] < 0) TRY(fill_param(w, &w->table.at[i], seed));
    }
    return copies_refresh(w);
}

/* Repeats one block of random numbers: drawing all of them would take long, and times do not need it. */
Status engine_random_weights(EngineParams *w)
{
    enum { N = 1 << 20 };
    const double std = 0.02;
    float *numbers = engine_staging(w->arenas, NULL);
    rng_fill_normal(numbers, N, 1, rng_stream("rehearsal"), 0, std);
    for (int b = 0; b < BUF_COUNT; b++) TRY(engine_zero(w->arenas, &w->memory.buffer[b]));
    Tensor main = w->memory.buffer[BUF_MAIN];
    for (int64_t first = 0, n = tensor_elems(&main); first < n; first += N) {
        int64_t part = n - first < N ? n - first : N;
        TRY(engine_put(w->arenas, tensor_at(&main, first), (size_t)part * sizeof(float)));
    }
    return copies_refresh(w);
}

/* Looks at one buffer of one parameter, in pieces that fit the staging block, in the order of its elements. */
static Status check_param(EngineParams *w, const Param *p, ParamBuffer b, int64_t step)
{
    char who[NUMBERS_WHO_BYTES];
    const OptimizerDesc *rule = param_bucket_rule(&w->table, p);
    numbers_writer(who, rule, b, step);
    ParamPiece piece = param_piece(&w->table, p, &w->memory, b);
    int64_t most = (int64_t)(engine_piece_bytes(w->arenas) / dtype_bytes(piece.at.dtype));
    for (int64_t first = 0, n = 0, all = piece_elems(&piece.in); first < all; first += n) {
        const void *x = NULL;
        n = all - first < most ? all - first : most;
        const Tensor part = tensor_rows(&piece.at, first, n);
        TRY(engine_get(w->arenas, part.data, tensor_bytes(&part), &x));
        TRY(numbers_check(who, p->name, buffer_desc(rule, b), &piece.in, first,
                          (Numbers){ x, part.dtype, n }));
    }
    return OK;
}

static Status check_params(EngineParams *w, int64_t step)
{
    for (int i = 0; i < w->table.n * CHECKPOINT_BUFFERS; i++) {
        TRY(check_param(w, &w->table.at[i % w->table.n], checkpoint_buffer(i / w->table.n), step));
    }
    return OK;
}

/* Collective: if any rank finds a bad number, all of them return an error. */
Status engine_check_numbers(EngineParams *w, int64_t step)
{
    return agree_status(host_of(w), check_params(w, step));
}
