/* matrix: the table of copies, the shape of fused matrices, and the cut of a bucket between matrices. It allocates
 * nothing; params_build.c calls it while it makes the table of parameters. */
#include "engine/model/matrix.h"

#include <assert.h>

/* Copies */

static double plain_bytes(Dtype type, int64_t rows, int64_t cols)
{
    return (double)rows * (double)cols * (double)dtype_bytes(type);
}

static const CopyDesc copy_kinds[COPY_KINDS] = { [COPY_PLAIN] = { OPERAND_PLAIN, plain_bytes } };

const CopyDesc *copy_desc(CopyKind kind) { return &copy_kinds[kind]; }

CopySet copies_plain(Dtype type)
{
    CopySet set = { .at = { { .kind = COPY_PLAIN, .type = type } } };
    set.n = type == DTYPE_F32 ? 0 : 1;
    return set;
}

Dtype copies_type(const CopySet *c) { return c->n == 0 ? DTYPE_F32 : c->at[0].type; }

double copies_bytes(const CopySet *c, int64_t rows, int64_t cols)
{
    double sum = c->n == 0 ? plain_bytes(DTYPE_F32, rows, cols) : 0;
    for (int i = 0; i < c->n; i++) {
        const CopySpec *s = &c->at[i];
        int64_t n = s->transposed ? cols : rows, d = s->transposed ? rows : cols;
        sum += copy_desc(s->kind)->bytes(s->type, n, d);
    }
    return sum;
}

/* Shapes */

void matrix_grow(Matrix *m, int rank, const int64_t *dim, int expert)
{
    if (m->rank == 0) {
        int at = 0;
        m->expert = expert;
        if (expert >= 0 || rank == 1) m->dim[at++] = 1;
        for (int i = 0; i < rank; i++) m->dim[at++] = dim[i];
        m->rank = at;
        return;
    }
    assert(m->rank >= 2 && (m->expert >= 0) == (expert >= 0));
    if (expert < 0)
        m->dim[rank == 1] += dim[0]; /* vectors are one row */
    else if (expert == m->expert)
        m->dim[1] += dim[0]; /* the up half of gate | up */
    else if (expert >= m->expert + m->dim[0])
        m->dim[0]++;
}

int64_t matrix_elems(const Matrix *m)
{
    int64_t n = 1;
    for (int i = 0; i < m->rank; i++) n *= m->dim[i];
    return n;
}

Tensor matrix_at(const Matrix *m, void *data, Dtype type)
{
    Tensor t = { .data = data, .dtype = type, .rank = m->rank };
    for (int i = 0; i < m->rank; i++) t.dim[i] = m->dim[i];
    return t;
}

/* Groups of gradients */

const char *const grad_group_names[GRAD_GROUPS] = {
#define GRAD_GROUP(NAME, name, what, roles) #name,
#include "engine/model/grad_group.def"
#undef GRAD_GROUP
};

GradGroup grad_group(ParamRole role)
{
    static const uint32_t roles_of[GRAD_GROUPS] = {
#define R(ROLE)                             1U << ROLE_##ROLE
#define GRAD_GROUP(NAME, name, what, roles) roles,
#include "engine/model/grad_group.def"
#undef GRAD_GROUP
#undef R
    };
    /* Every role is in one, so the loop ends. */
#define GRAD_GROUP(NAME, name, what, roles) | (uint64_t)(roles)
#define R(ROLE)                             1U << ROLE_##ROLE
    _Static_assert((0
#include "engine/model/grad_group.def"
                    ) == (UINT64_C(1) << ROLE_COUNT) - 1,
                   "grad_group.def has every role");
#undef GRAD_GROUP
#undef R
    int g = 0;
    while ((roles_of[g] >> role & 1) == 0) g++;
    return (GradGroup)g;
}

/* Cuts */

/* A matrix goes to the current rank while more than half of its cost lies within the rank's share, so each boundary is
 * at most half a matrix away from an equal division. The last rank takes the rest, whatever rounding did. */
void matrix_cut(const double *cost, int n, int64_t ranks, int *end)
{
    double total = 0, before = 0;
    int at = 0;
    for (int i = 0; i < n; i++) total += cost[i];
    for (int64_t r = 0; r < ranks; r++) {
        double share = total * (double)(r + 1) / (double)ranks;
        while (at < n && before + cost[at] / 2 <= share) before += cost[at++];
        end[r] = at;
    }
    end[ranks - 1] = n;
}
