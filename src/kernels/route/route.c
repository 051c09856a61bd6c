/*
 * route: checks, costs and CPU versions. Tokens are walked in chunks of one sequence, whose size
 * does not depend on the number of threads. A chunk counts its experts and sums its scores; then
 * chunks are summed in order. So neither choices nor sums depend on the number of threads.
 *
 * Scores and weights are f32. Sums over tokens are f32 inside a chunk and double across chunks.
 * Dropping of tokens above a capacity is an op of its own (route_drop.c).
 */
#include "kernels/route/route.h"

#include "kernels/core/cpu_math.h"
#include "kernels/core/index_check.h"
#include "kernels/core/op.h"

#include <omp.h>

enum { CHUNK = 128 }; /* tokens */

static const float TINY = 1e-20f; /* keeps a sum of sigmoids away from 0; a softmax never sees it */

typedef struct Shape {
    int64_t B, T, N, E, K;
    int64_t chunks; /* chunks of a sequence */
} Shape;

static Shape shape_of(const Tensor *logits, const RouteRule *r, int64_t sequences)
{
    Shape s = { .B = sequences, .E = tensor_cols(logits), .K = r->top_k };
    s.N = tensor_elems(logits) / s.E;
    s.T = s.N / s.B;
    s.chunks = (s.T + CHUNK - 1) / CHUNK;
    return s;
}

static Shape fwd_shape(const RouteFwd *a)
{
    return shape_of(&a->logits, &a->rule, tensor_elems(&a->domain));
}

static Shape aux_shape(const RouteAux *a)
{
    int64_t E = tensor_cols(&a->seq_count), B = tensor_elems(&a->seq_count) / E;
    return (Shape){ B, a->tokens / B, a->tokens, E, a->rule.top_k, .chunks = 1 };
}

/* A thread's part of the workspace. */
typedef struct Scratch {
    float *p, *choice;       /* (E) scores; scores + bias, by which experts are chosen */
    float *dp;               /* (E) backward: uses choice's memory */
    float *group_score;      /* (groups) */
    float *key;              /* keys of the best entries so far, falling (Top) */
    int32_t *best_of, *open; /* ids of the best entries; 1: experts of this group may be chosen */
} Scratch;

/* The longest list that Top keeps in scratch memory. */
static int64_t most_listed(const RouteRule *r)
{
    int64_t most = r->top_k > r->top_groups ? r->top_k : r->top_groups;
    return most > r->group_score_top ? most : r->group_score_top;
}

/* A thread's scratch, in words of 4 bytes. */
static size_t scratch_words(int64_t E, const RouteRule *r)
{
    int64_t words = 2 * E + 2 * r->groups + 2 * most_listed(r);
    return arena_rounded((size_t)words * sizeof(float)) / sizeof(float);
}

static Scratch scratch_at(float *at, int64_t E, const RouteRule *r)
{
    Scratch s = { 0 };
    s.p = at;
    s.choice = s.dp = s.p + E;
    s.group_score = s.choice + E;
    s.key = s.group_score + r->groups;
    s.best_of = (int32_t *)(void *)(s.key + most_listed(r));
    s.open = s.best_of + most_listed(r);
    return s;
}

/* p = softmax or sigmoid of one token's logits. */
void route_scores(RouteScore kind, const float *logits, int64_t E, float *p)
{
    if (kind == ROUTE_SIGMOID) {
#pragma omp simd
        for (int64_t e = 0; e < E; e++) p[e] = 1 / (1 + exp_f32(-logits[e]));
        return;
    }
    float max = max_f32(logits, E), sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t e = 0; e < E; e++) {
        p[e] = exp_f32(logits[e] - max);
        sum += p[e];
    }
    float inverse = 1 / sum;
#pragma omp simd
    for (int64_t e = 0; e < E; e++) p[e] *= inverse;
}

/* The best `most` entries so far, by falling key. Of equal keys the one offered first stays ahead, so offering in
 * rising order breaks ties towards the lower id. A NaN is larger than no other key: it is listed only while there is
 * room. So a token always gets `most` entries, even if its scores are NaN. */
typedef struct Top {
    float *key;
    int32_t *id;
    int64_t n, most;
} Top;

static void top_offer(Top *top, float key, int64_t id)
{
    if (top->n == top->most && !(key > top->key[top->n - 1])) return;
    int64_t at = top->n < top->most ? top->n++ : top->n - 1;
    /* Smaller entries move down by one. Lists have a few entries, so a heap would not be faster. */
    for (; at > 0 && key > top->key[at - 1]; at--) {
        top->key[at] = top->key[at - 1];
        top->id[at] = top->id[at - 1];
    }
    top->key[at] = key;
    top->id[at] = (int32_t)id;
}

/* open[g] = 1 for the top_groups groups with the largest sum of their best choices. The list of a group's experts and
 * the list of groups take turns in the same memory: only sums are kept from the first. */
static void open_groups(const RouteRule *r, int64_t E, Scratch *s)
{
    int64_t per = E / r->groups;
    for (int64_t g = 0; g < r->groups; g++) {
        Top top = { s->key, s->best_of, 0, r->group_score_top };
        for (int64_t e = g * per; e < (g + 1) * per; e++) top_offer(&top, s->choice[e], e);
        s->group_score[g] = 0;
        for (int64_t i = 0; i < top.n; i++) s->group_score[g] += top.key[i];
        s->open[g] = 0;
    }
    Top top = { s->key, s->best_of, 0, r->top_groups };
    for (int64_t g = 0; g < r->groups; g++) top_offer(&top, s->group_score[g], g);
    for (int64_t i = 0; i < top.n; i++) s->open[top.id[i]] = 1;
}

/* Chooses a token's experts: `best` is empty and takes top_k. Its key may be s->key, because
 * open_groups is done with that memory by then. */
static void choose_experts(const RouteRule *r, int64_t E, const float *bias, Scratch *s, Top *best)
{
    for (int64_t e = 0; e < E; e++) s->choice[e] = bias == NULL ? s->p[e] : s->p[e] + bias[e];
    bool limited = r->groups > 1;
    if (limited) open_groups(r, E, s);
    int64_t per = E / r->groups;
    for (int64_t g = 0; g < r->groups; g++) {
        if (limited && !s->open[g]) continue;
        for (int64_t e = g * per; e < (g + 1) * per; e++) top_offer(best, s->choice[e], e);
    }
}

/* S, the sum of a token's chosen scores without bias. */
static float chosen_sum(const RouteRule *r, const float *p, const int32_t *index)
{
    float sum = TINY;
    for (int64_t k = 0; k < r->top_k; k++) sum += p[index[k]];
    return sum;
}

/* The weights of the chosen experts, from p alone: bias decides which experts are chosen, never how much they count. */
static void set_weights(const RouteRule *r, const float *p, const int32_t *index, float *weight)
{
    float factor = r->normalise ? r->scaling / chosen_sum(r, p, index) : r->scaling;
    for (int64_t k = 0; k < r->top_k; k++) weight[k] = p[index[k]] * factor;
}

/* Forced balance (route.h): the experts of a token depend on its position alone. */
static void set_balanced(const RouteRule *r, int64_t E, int64_t pos, int32_t *index)
{
    int64_t stride = 1 + pos / E % (E / r->top_k);
    for (int64_t k = 0; k < r->top_k; k++) index[k] = (int32_t)((pos + k * stride) % E);
}

/* z = log(sum over e of e^logit) */
static float log_sum(const float *logits, int64_t E)
{
    float max = max_f32(logits, E), sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t e = 0; e < E; e++) sum += exp_f32(logits[e] - max);
    /* cppcheck-suppress invalidFunctionArg ; E > 0 and the largest logit adds e^0: sum >= 1 */
    return max + logf(sum);
}

/* 1 / sum(p), the factor from p to q. */
static float inverse_sum(RouteScore kind, const float *p, int64_t E)
{
    if (kind == ROUTE_SOFTMAX) return 1;
    float sum = TINY;
#pragma omp simd reduction(+ : sum)
    for (int64_t e = 0; e < E; e++) sum += p[e];
    return 1 / sum;
}

/* Forward */

/* Sums of the chunks, (B, chunks, E) each, in the workspace. */
typedef struct Partial {
    int32_t *count;
    float *q; /* sum of q over the tokens of the chunk; NULL without an auxiliary loss */
    float *z; /* (B, chunks) sum of z^2; NULL if nobody wants it */
} Partial;

static bool wants_z(const RouteFwd *a) { return a->rule.z_scale != 0 || a->router_z.data != NULL; }

static size_t partial_bytes(const Shape *s, const RouteFwd *a)
{
    size_t elems = (size_t)(s->B * s->chunks * s->E);
    size_t one = arena_rounded(elems * sizeof(float));
    size_t z = wants_z(a) ? arena_rounded(elems / (size_t)s->E * sizeof(float)) : 0;
    return (a->rule.aux_scale != 0 ? 2 * one : one) + z;
}

static Partial partial_at(char *at, const Shape *s, const RouteFwd *a)
{
    size_t one = arena_rounded((size_t)(s->B * s->chunks * s->E) * sizeof(float));
    Partial p = { .count = (int32_t *)(void *)at };
    if (a->rule.aux_scale != 0) p.q = (float *)(void *)(at += one);
    if (wants_z(a)) p.z = (float *)(void *)(at + one);
    return p;
}

/* Routes token n: writes its rows of index, weight and score, and leaves p in the scratch for the auxiliary loss. */
static void fwd_token(const RouteFwd *a, const Shape *s, int64_t n, Scratch *at)
{
    int32_t *index = (int32_t *)a->index.data + n * s->K;
    route_scores(a->rule.score, (const float *)a->logits.data + n * s->E, s->E, at->p);
    Top best = { at->key, index, 0, s->K };
    if (a->pos.data != NULL)
        set_balanced(&a->rule, s->E, ((const int32_t *)a->pos.data)[n], index);
    else
        choose_experts(&a->rule, s->E, a->bias.data, at, &best);
    float *weight = (float *)a->weight.data + n * s->K;
    float *score = a->score.data == NULL ? weight : (float *)a->score.data + n * s->K;
    set_weights(&a->rule, at->p, index, score);
    for (int64_t k = 0; k < s->K && score != weight; k++) weight[k] = 1;
}

/* Routes the tokens of a chunk and writes its partial sums. Padding is routed like other tokens,
 * and its q and z are summed, too; only the counts leave it out. Chunks never cross a sequence, so
 * each chunk belongs to one row of seq_count. */
static void fwd_chunk(const RouteFwd *a, const Shape *s, int64_t chunk, const Partial *out,
                      Scratch *at)
{
    int64_t E = s->E, b = chunk / s->chunks, t0 = chunk % s->chunks * CHUNK;
    int64_t end = t0 + CHUNK < s->T ? t0 + CHUNK : s->T;
    const int32_t *target = a->target.data;
    int32_t *count = out->count + chunk * E;
    float *q = out->q == NULL ? NULL : out->q + chunk * E;
    for (int64_t e = 0; e < E; e++) count[e] = 0;
    for (int64_t e = 0; q != NULL && e < E; e++) q[e] = 0;
    float squares = 0;
    for (int64_t n = b * s->T + t0; n < b * s->T + end; n++) {
        fwd_token(a, s, n, at);
        const int32_t *index = (const int32_t *)a->index.data + n * s->K;
        int32_t one = target == NULL || target[n] >= 0;
        for (int64_t k = 0; k < s->K; k++) count[index[k]] += one;
        float z = out->z == NULL ? 0 : log_sum((const float *)a->logits.data + n * E, E);
        squares += z * z;
        if (q == NULL) continue;
        float inverse = inverse_sum(a->rule.score, at->p, E);
#pragma omp simd
        for (int64_t e = 0; e < E; e++) q[e] += at->p[e] * inverse;
    }
    if (out->z != NULL) out->z[chunk] = squares;
}

/* seq_count of each sequence. load is added to, not overwritten: several calls count in it. */
static void count_experts(const RouteFwd *a, const Shape *s, const Partial *part)
{
    const int32_t *domain = a->domain.data;
    int32_t *counts = a->seq_count.data, *load = a->load.data;
    for (int64_t b = 0; b < s->B; b++) {
        int32_t *count = counts + b * s->E;
        for (int64_t e = 0; e < s->E; e++) count[e] = 0;
        for (int64_t c = 0; c < s->chunks; c++) {
            const int32_t *from = part->count + (b * s->chunks + c) * s->E;
            for (int64_t e = 0; e < s->E; e++) count[e] += from[e];
        }
        for (int64_t e = 0; e < s->E; e++) load[domain[b] * s->E + e] += count[e];
    }
}

/* T_g: the tokens of a group, over the `parts` ranks that have tokens of it. */
static double group_tokens(const Shape *s, const RouteRule *r, int64_t parts)
{
    return (double)((r->aux_per_batch ? s->N : s->T) * (parts > 1 ? parts : 1));
}

/* E / (K T_g), times aux_scale. */
static double aux_factor(const Shape *s, const RouteRule *r, double tokens)
{
    return (double)r->aux_scale * (double)s->E / ((double)s->K * tokens);
}

/* sum over e of n_ge * (sum over the group of q_e). The group is the sequences [b0, b1). */
static double group_loss(const Shape *s, const int32_t *count, const Partial *part, int64_t b0,
                         int64_t b1)
{
    double loss = 0;
    for (int64_t e = 0; e < s->E; e++) {
        double n = 0, q = 0;
        for (int64_t b = b0; b < b1; b++) n += (double)count[b * s->E + e];
        for (int64_t c = b0 * s->chunks; c < b1 * s->chunks; c++) {
            q += (double)part->q[c * s->E + e];
        }
        loss += n * q;
    }
    return loss;
}

/* Adds the auxiliary loss of all groups, or this rank's part of it, if groups span `parts` ranks. */
static void add_aux_loss(const Shape *s, const RouteRule *r, const int32_t *count,
                         const Partial *part, int64_t parts, float *loss)
{
    int64_t span = r->aux_per_batch ? s->B : 1;
    double sum = 0, tokens = group_tokens(s, r, parts);
    for (int64_t b = 0; b < s->B; b += span) sum += group_loss(s, count, part, b, b + span);
    *loss += (float)(aux_factor(s, r, tokens) * sum / tokens);
}

static void add_z(const RouteFwd *a, const Shape *s, const Partial *part)
{
    double sum = 0;
    for (int64_t i = 0; i < s->B * s->chunks; i++) sum += (double)part->z[i];
    if (a->rule.z_scale != 0) *(float *)a->aux_loss.data += (float)((double)a->rule.z_scale * sum);
    if (a->router_z.data != NULL) *(float *)a->router_z.data += (float)sum;
}

/* score_sum takes the place of the loss if a group's tokens lie on several ranks: n_ge is known
 * only when the ranks' counts are summed. route_aux then computes the loss. */
static void sum_scores(const RouteFwd *a, const Shape *s, const Partial *part)
{
    float *sum = a->score_sum.data;
    for (int64_t i = 0; i < s->B * s->E; i++) {
        double q = 0;
        int64_t b = i / s->E, e = i % s->E;
        for (int64_t c = b * s->chunks; c < (b + 1) * s->chunks; c++)
            q += (double)part->q[c * s->E + e];
        sum[i] = (float)q;
    }
}

Status route_fwd_cpu(Exec *ex, const RouteFwd *a)
{
    Shape s = fwd_shape(a);
    TRY(index_check("route_fwd", "domain", &a->domain, tensor_elems(&a->load) / s.E));
    Partial part = partial_at(ex->workspace, &s, a);
    float *scratch = (float *)(void *)((char *)ex->workspace + partial_bytes(&s, a));
    size_t each = scratch_words(s.E, &a->rule);
#pragma omp parallel for schedule(static) num_threads(ex->threads)
    for (int64_t chunk = 0; chunk < s.B * s.chunks; chunk++) {
        size_t me = (size_t)omp_get_thread_num();
        Scratch at = scratch_at(scratch + me * each, s.E, &a->rule);
        fwd_chunk(a, &s, chunk, &part, &at);
    }
    count_experts(a, &s, &part);
    if (part.z != NULL) add_z(a, &s, &part);
    if (part.q == NULL) return OK;
    if (a->score_sum.data != NULL)
        sum_scores(a, &s, &part);
    else
        add_aux_loss(&s, &a->rule, a->seq_count.data, &part, 1, a->aux_loss.data);
    return OK;
}

/* Partial sums of all chunks, then each thread's scratch. */
size_t route_fwd_workspace(const Exec *ex, const RouteFwd *a)
{
    Shape s = fwd_shape(a);
    return partial_bytes(&s, a) +
           (size_t)ex->threads * scratch_words(s.E, &a->rule) * sizeof(float);
}

/* score_sum is a partial sum with one chunk a sequence, so the code of forward does the rest. */
Status route_aux_cpu(Exec *ex, const RouteAux *a)
{
    Shape s = aux_shape(a);
    (void)ex;
    Partial part = { .q = a->score_sum.data };
    add_aux_loss(&s, &a->rule, a->seq_count.data, &part, a->parts, a->aux_loss.data);
    return OK;
}

/* Backward */

/*
 * w_k = c p_k / S, S = sum of the chosen p    so  dp_k = c / S (dw_k - sum_j dw_j p_j / S)
 * w_k = c p_k                                     dp_k = c dw_k
 */
static void add_weight_gradient(const RouteRule *r, const Scratch *at, const int32_t *index,
                                const float *dweight)
{
    float factor = r->scaling, mean = 0;
    if (r->normalise) {
        float inverse = 1 / chosen_sum(r, at->p, index);
        for (int64_t k = 0; k < r->top_k; k++) mean += dweight[k] * (at->p[index[k]] * inverse);
        factor *= inverse;
    }
    for (int64_t k = 0; k < r->top_k; k++) at->dp[index[k]] += factor * (dweight[k] - mean);
}

/*
 * loss = sum over e of c_e * sum over t of q_te,  c_e = factor * n_e   so   dq_e = c_e
 * q = p (softmax):       dp_e = c_e
 * q = p / S (sigmoid):   dp_e = (c_e - sum_j c_j q_j) / S
 */
static void set_aux_gradient(const RouteRule *r, int64_t E, double factor, const int32_t *count,
                             const Scratch *at)
{
    float c = (float)factor, mean = 0, inverse = inverse_sum(r->score, at->p, E);
    if (r->score == ROUTE_SIGMOID) {
#pragma omp simd reduction(+ : mean)
        for (int64_t e = 0; e < E; e++) mean += c * (float)count[e] * (at->p[e] * inverse);
    }
#pragma omp simd
    for (int64_t e = 0; e < E; e++) at->dp[e] = (c * (float)count[e] - mean) * inverse;
}

/*
 * softmax:  dlogit = p (dp - sum_j p_j dp_j)          sigmoid:  dlogit = dp p (1 - p)
 * z-loss:   dlogit += dz e^(logit - z),  dz = 2 z_scale z
 */
static void score_gradient(const RouteRule *r, int64_t E, const Scratch *at, const float *logits,
                           float *dlogits)
{
    const float *p = at->p, *dp = at->dp;
    float z = r->z_scale == 0 ? 0 : log_sum(logits, E), dz = 2 * r->z_scale * z;
    if (r->score == ROUTE_SIGMOID && r->z_scale != 0) {
#pragma omp simd
        for (int64_t e = 0; e < E; e++)
            dlogits[e] = dp[e] * p[e] * (1 - p[e]) + dz * exp_f32(logits[e] - z);
        return;
    }
    if (r->score == ROUTE_SIGMOID) {
#pragma omp simd
        for (int64_t e = 0; e < E; e++) dlogits[e] = dp[e] * p[e] * (1 - p[e]);
        return;
    }
    float mean = 0;
#pragma omp simd reduction(+ : mean)
    for (int64_t e = 0; e < E; e++) mean += p[e] * dp[e];
    mean -= dz;
#pragma omp simd
    for (int64_t e = 0; e < E; e++) dlogits[e] = p[e] * (dp[e] - mean);
}

/* Sums counts over the batch: with aux_per_batch the whole batch is the group. */
static void sum_counts(const Shape *s, const int32_t *seq_count, int32_t *out)
{
    for (int64_t e = 0; e < s->E; e++) {
        out[e] = 0;
        for (int64_t b = 0; b < s->B; b++) out[e] += seq_count[b * s->E + e];
    }
}

/* Scores are computed again from logits, because forward does not keep p. dp begins with the
 * auxiliary loss, or 0, and takes the weights' gradient at the chosen experts. Each token writes
 * only its own row, so threads share nothing but counts. */
Status route_bwd_cpu(Exec *ex, const RouteBwd *a)
{
    Shape s = shape_of(&a->logits, &a->rule, tensor_elems(&a->seq_count) / tensor_cols(&a->logits));
    TRY(index_check("route_bwd", "index", &a->index, s.E));
    RouteRule scaled = a->rule;
    const RouteRule *r = &scaled;
    const float *scale = a->scale.data;
    if (scale != NULL) scaled.aux_scale *= *scale, scaled.z_scale *= *scale;
    const int32_t *seq_count = a->seq_count.data;
    int32_t *batch_count = ex->workspace;
    size_t counts = arena_rounded((size_t)s.E * sizeof(int32_t)), each = scratch_words(s.E, r);
    float *scratch = (float *)(void *)((char *)ex->workspace + counts);
    double tokens = group_tokens(&s, r, a->parts), factor = aux_factor(&s, r, tokens) / tokens;
    if (r->aux_per_batch) sum_counts(&s, seq_count, batch_count);
#pragma omp parallel for schedule(static) num_threads(ex->threads)
    for (int64_t n = 0; n < s.N; n++) {
        Scratch at = scratch_at(scratch + (size_t)omp_get_thread_num() * each, s.E, r);
        route_scores(r->score, (const float *)a->logits.data + n * s.E, s.E, at.p);
        if (r->aux_scale != 0) {
            const int32_t *count = r->aux_per_batch ? batch_count : seq_count + n / s.T * s.E;
            set_aux_gradient(r, s.E, factor, count, &at);
        } else {
            memset(at.dp, 0, (size_t)s.E * sizeof *at.dp);
        }
        const float *dweight = (const float *)a->dweight.data + n * s.K;
        const float *weight = (const float *)a->weight.data + n * s.K;
        /* Backward chooses nothing, so the memory of keys is free for this copy. */
        for (int64_t k = 0; a->weight.data != NULL && k < s.K; k++)
            at.key[k] = weight[k] == 0 ? 0 : dweight[k];
        add_weight_gradient(r, &at, (const int32_t *)a->index.data + n * s.K,
                            a->weight.data != NULL ? at.key : dweight);
        score_gradient(r, s.E, &at, (const float *)a->logits.data + n * s.E,
                       (float *)a->dlogits.data + n * s.E);
    }
    return OK;
}

/* Counts of the batch, whether or not they are needed, then each thread's scratch. */
size_t route_bwd_workspace(const Exec *ex, const RouteBwd *a)
{
    int64_t E = tensor_cols(&a->logits);
    return arena_rounded((size_t)E * sizeof(int32_t)) +
           (size_t)ex->threads * scratch_words(E, &a->rule) * sizeof(float);
}

/* Checks, costs, descriptors */

/* If top_k were larger than the number of experts that may be chosen, entries of index would stay unwritten. */
static Status rule_check(const char *op, const RouteRule *r, int64_t E)
{
    if (r->groups < 1 || E % r->groups != 0) {
        return FAIL(ERR_ARG, "%s: %lld groups do not divide %lld experts", op, (long long)r->groups,
                    (long long)E);
    }
    int64_t per = E / r->groups;
    if (r->top_groups < 1 || r->top_groups > r->groups) {
        return FAIL(ERR_ARG, "%s: top_groups is %lld, outside 1 .. %lld groups", op,
                    (long long)r->top_groups, (long long)r->groups);
    }
    if (r->groups > 1 && (r->group_score_top < 1 || r->group_score_top > per)) {
        return FAIL(ERR_ARG, "%s: group_score_top is %lld, outside 1 .. %lld experts of a group",
                    op, (long long)r->group_score_top, (long long)per);
    }
    if (r->top_k < 1 || r->top_k > r->top_groups * per) {
        return FAIL(ERR_ARG, "%s: top_k is %lld, outside 1 .. %lld experts that may be chosen", op,
                    (long long)r->top_k, (long long)(r->top_groups * per));
    }
    return OK;
}

/* Every sequence has the same number of tokens, at least one. */
static Status sequences_check(const char *op, int64_t tokens, int64_t sequences)
{
    if (sequences >= 1 && tokens >= 1 && tokens % sequences == 0) return OK;
    return FAIL(ERR_SHAPE, "%s: %lld tokens are not a multiple of %lld sequences", op,
                (long long)tokens, (long long)sequences);
}

Status route_fwd_check(const RouteFwd *a)
{
    const char *op = "route_fwd";
    int64_t E = tensor_cols(&a->logits), B = tensor_elems(&a->domain), K = a->rule.top_k;
    TRY(op_expect(op, "logits", &a->logits, -1, E, DTYPE_F32));
    TRY(rule_check(op, &a->rule, E));
    int64_t N = tensor_elems(&a->logits) / E;
    TRY(op_expect(op, "domain", &a->domain, -1, -1, DTYPE_I32));
    TRY(sequences_check(op, N, B));
    if (a->target.data != NULL) TRY(op_expect(op, "target", &a->target, N, -1, DTYPE_I32));
    if (a->pos.data != NULL) TRY(op_expect(op, "pos", &a->pos, N, -1, DTYPE_I32));
    if (a->bias.data != NULL) TRY(op_expect(op, "bias", &a->bias, 1, E, DTYPE_F32));
    TRY(op_expect(op, "index", &a->index, N, K, DTYPE_I32));
    TRY(op_expect(op, "weight", &a->weight, N, K, DTYPE_F32));
    if (a->score.data != NULL) TRY(op_expect(op, "score", &a->score, N, K, DTYPE_F32));
    TRY(op_expect(op, "seq_count", &a->seq_count, B, E, DTYPE_I32));
    TRY(op_expect(op, "load", &a->load, -1, E, DTYPE_I32));
    if (a->score_sum.data != NULL) {
        TRY(op_expect(op, "score_sum", &a->score_sum, B, E, DTYPE_F32));
        if (a->rule.aux_scale == 0) return FAIL(ERR_ARG, "%s: score_sum without aux_scale", op);
    }
    if (a->router_z.data != NULL) TRY(op_expect(op, "router_z", &a->router_z, 1, 1, DTYPE_F32));
    return op_expect(op, "aux_loss", &a->aux_loss, 1, 1, DTYPE_F32);
}

Status route_aux_check(const RouteAux *a)
{
    const char *op = "route_aux";
    int64_t E = tensor_cols(&a->seq_count), B = a->seq_count.dim[0];
    TRY(op_expect(op, "seq_count", &a->seq_count, B, E, DTYPE_I32));
    TRY(rule_check(op, &a->rule, E));
    TRY(sequences_check(op, a->tokens, B));
    TRY(op_expect(op, "score_sum", &a->score_sum, B, E, DTYPE_F32));
    return op_expect(op, "aux_loss", &a->aux_loss, 1, 1, DTYPE_F32);
}

Status route_bwd_check(const RouteBwd *a)
{
    const char *op = "route_bwd";
    int64_t E = tensor_cols(&a->logits), K = a->rule.top_k;
    TRY(op_expect(op, "logits", &a->logits, -1, E, DTYPE_F32));
    TRY(rule_check(op, &a->rule, E));
    int64_t N = tensor_elems(&a->logits) / E;
    TRY(op_expect(op, "seq_count", &a->seq_count, -1, E, DTYPE_I32));
    TRY(sequences_check(op, N, tensor_elems(&a->seq_count) / E));
    TRY(op_expect(op, "index", &a->index, N, K, DTYPE_I32));
    TRY(op_expect(op, "dweight", &a->dweight, N, K, DTYPE_F32));
    if (a->weight.data != NULL) TRY(op_expect(op, "weight", &a->weight, N, K, DTYPE_F32));
    if (a->scale.data != NULL) TRY(op_expect(op, "scale", &a->scale, 1, 1, DTYPE_F32));
    return op_expect(op, "dlogits", &a->dlogits, N, E, DTYPE_F32);
}

static size_t score_bytes(const Tensor *t) { return t->data == NULL ? 0 : tensor_bytes(t); }

/* FLOPs for each logit: an exponential, a sum and a product; two more for an auxiliary loss, and
 * two more for a z-loss. Comparisons do not count, and neither do figures for metrics. */
OpCost route_fwd_cost(const RouteFwd *a)
{
    double elems = (double)tensor_elems(&a->logits);
    return (OpCost){ .flops = elems *
                              ((a->rule.aux_scale != 0 ? 5 : 3) + (a->rule.z_scale != 0 ? 2 : 0)),
                     .bytes = (double)(tensor_bytes(&a->logits) + tensor_bytes(&a->index) +
                                       tensor_bytes(&a->weight) + score_bytes(&a->score)) };
}

/* seq_count and score_sum have the same size; a product and a sum for each entry. */
OpCost route_aux_cost(const RouteAux *a)
{
    return (OpCost){ .flops = 2 * (double)tensor_elems(&a->seq_count),
                     .bytes = 2 * (double)tensor_bytes(&a->seq_count) };
}

OpCost route_bwd_cost(const RouteBwd *a)
{
    double elems = (double)tensor_elems(&a->logits);
    return (OpCost){ .flops = elems *
                              ((a->rule.aux_scale != 0 ? 9 : 7) + (a->rule.z_scale != 0 ? 4 : 0)),
                     .bytes = (double)(tensor_bytes(&a->logits) + tensor_bytes(&a->index) +
                                       tensor_bytes(&a->dweight) + tensor_bytes(&a->dlogits)) };
}

OP_PORTS(route_fwd, IN(RouteFwd, logits), IN_OPT(RouteFwd, bias), IN(RouteFwd, domain),
         IN_OPT(RouteFwd, target), IN_OPT(RouteFwd, pos), OUT(RouteFwd, index),
         OUT(RouteFwd, weight), OUT_OPT(RouteFwd, score), OUT(RouteFwd, seq_count),
         ADD(RouteFwd, load), ADD(RouteFwd, aux_loss), OUT_OPT(RouteFwd, score_sum),
         ADD_OPT(RouteFwd, router_z));

OP_PORTS(route_aux, IN(RouteAux, seq_count), IN(RouteAux, score_sum), ADD(RouteAux, aux_loss));

OP_PORTS(route_bwd, IN(RouteBwd, logits), IN(RouteBwd, index), IN(RouteBwd, seq_count),
         IN(RouteBwd, dweight), IN_OPT(RouteBwd, weight), IN_OPT(RouteBwd, scale),
         OUT(RouteBwd, dlogits));
