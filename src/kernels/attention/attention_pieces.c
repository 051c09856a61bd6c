/* attention_pieces: finds the rectangle of scores that a call's queries and keys see, if there is one. The rules for
 * single queries and keys are in the header, because GPU kernels use them, too. */
#include "kernels/attention/attention_pieces.h"

/* What a piece of queries sees of a piece of keys. SEES_PAST: both are the same tokens, so the
 * block is causal. SEES_OTHERWISE: the pieces overlap in part, which no rank's pieces do. */
typedef enum Sight { SEES_NONE, SEES_PAST, SEES_ALL, SEES_OTHERWISE } Sight;

static Sight sight(const AttentionPieces *p, int i, int j)
{
    int64_t ahead = p->q[i] - p->k[j];
    if (ahead >= p->length) return SEES_ALL;
    if (ahead <= -p->length) return SEES_NONE;
    return ahead == 0 ? SEES_PAST : SEES_OTHERWISE;
}

/* Is the block of pieces [i0, i1) x [j0, j1) one rectangle: full, or (causal) a causal square? */
static bool is_rect(const AttentionPieces *p, int i0, int i1, int j0, int j1, bool causal)
{
    for (int i = i0; i < i1; i++) {
        for (int j = j0; j < j1; j++) {
            int apart = (i - i0) - (j - j0);
            Sight want = apart > 0 ? SEES_ALL : apart == 0 ? SEES_PAST : SEES_NONE;
            if (sight(p, i, j) != (causal ? want : SEES_ALL)) return false;
        }
    }
    return !causal || i1 - i0 == j1 - j0;
}

bool attention_rect(const AttentionPieces *p, int64_t Tq, int64_t Tk, AttentionRect *out)
{
    /* An empty box: if no pair has a score, i0 > i1 at the end. */
    int i0 = 2, i1 = 0, j0 = 2, j1 = 0;
    *out = (AttentionRect){ 0, Tq, 0, Tk, true };
    if (p->length == 0) return Tq == Tk;
    for (int pair = 0; pair < 4; pair++) { /* the bounding box of pairs of pieces with any score */
        int i = pair / 2, j = pair % 2;
        if (sight(p, i, j) == SEES_NONE) continue;
        i0 = i < i0 ? i : i0;
        i1 = i + 1 > i1 ? i + 1 : i1;
        j0 = j < j0 ? j : j0;
        j1 = j + 1 > j1 ? j + 1 : j1;
    }
    /* Never both ways: on the diagonal of a causal square, pieces are not full. */
    bool causal = is_rect(p, i0, i1, j0, j1, true);
    if (i0 > i1 || (!causal && !is_rect(p, i0, i1, j0, j1, false))) return false;
    *out = (AttentionRect){ .q = i0 * p->length,
                            .Tq = (i1 - i0) * p->length,
                            .k = j0 * p->length,
                            .Tk = (j1 - j0) * p->length,
                            .causal = causal };
    return true;
}
