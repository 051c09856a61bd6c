/* piece: checks and parts of pieces, and what two pieces have in common. A checkpoint written on one
 * mesh is read on another by these intersections; which file holds what is train/'s. */
#include "engine/model/piece.h"

/* first + (rows - 1) * stride + n <= elems, and skip + lack < n in a single run, without an overflow on the way. */
bool piece_fits(const Piece *p, int64_t elems)
{
    bool sane = p->first >= 0 && p->n > 0 && p->rows > 0 && p->stride >= p->n && p->n <= elems;
    sane = sane && p->skip >= 0 && p->skip < p->n && p->lack >= 0 && p->lack < p->n;
    if (!sane || (p->rows == 1 && p->lack >= p->n - p->skip)) return false;
    return p->first <= elems - p->n && p->rows - 1 <= (elems - p->n - p->first) / p->stride;
}

Piece piece_part(const Piece *p, int64_t first, int64_t n)
{
    if (n == 0) return (Piece){ 0 };
    int64_t begin = p->skip + first, end = begin + n; /* counted over whole runs */
    int64_t row = begin / p->n, rows = (end - 1) / p->n + 1 - row;
    if (rows == 1) return piece_range(piece_element(p, first), n);
    return (Piece){ .first = p->first + row * p->stride,
                    .n = p->n,
                    .stride = p->stride,
                    .rows = rows,
                    .skip = begin - row * p->n,
                    .lack = (row + rows) * p->n - end };
}

/* Elements between two runs belong to the next run's start. Skipped ones belong to offset 0, and
 * those that the last run lacks to the end of the piece. */
int64_t piece_seek(const Piece *p, int64_t element)
{
    if (element <= p->first || p->rows == 0) return 0;
    int64_t row = (element - p->first) / p->stride, column = (element - p->first) % p->stride;
    int64_t i = row * p->n + (column < p->n ? column : p->n) - p->skip;
    if (i >= piece_elems(p)) return piece_elems(p);
    return i < 0 ? 0 : i;
}

/* The next run of elements that lies in both pieces, from offsets a and b on. The piece whose
 * element comes first seeks the other's element, until both are at the same one. */
static bool next_common(const Piece *a, const Piece *b, PieceSpan *run)
{
    for (;;) {
        if (run->a >= piece_elems(a) || run->b >= piece_elems(b)) return false;
        int64_t x = piece_element(a, run->a), y = piece_element(b, run->b);
        if (x == y) break;
        if (x < y)
            run->a = piece_seek(a, y);
        else
            run->b = piece_seek(b, x);
    }
    int64_t in_a = piece_run(a, run->a), in_b = piece_run(b, run->b);
    run->n = in_a < in_b ? in_a : in_b;
    return true;
}

/* Runs that follow one another in both pieces are one span. */
bool piece_meet(const Piece *a, const Piece *b, PieceSpan *span)
{
    PieceSpan run = { span->a + span->n, span->b + span->n, 0 };
    if (!next_common(a, b, &run)) return false;
    *span = (PieceSpan){ run.a, run.b, 0 };
    do {
        span->n += run.n;
        run = (PieceSpan){ span->a + span->n, span->b + span->n, 0 };
    } while (next_common(a, b, &run) && run.a == span->a + span->n && run.b == span->b + span->n);
    return true;
}

int64_t piece_common(const Piece *a, const Piece *b)
{
    int64_t n = 0;
    for (PieceSpan s = { 0 }; piece_meet(a, b, &s);) n += s.n;
    return n;
}
