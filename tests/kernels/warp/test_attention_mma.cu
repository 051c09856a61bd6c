/* The kernels for attention by mma.sync, on the CPU (warp.cuh), against a softmax over whole rows in double: all widths
 * that they are compiled for and some between, shared keys, documents, windows, and the rectangles of mesh.cp. */
#include "kernels/warp/warp.cuh"

#include "kernels/attention/nv/attention_mma.cuh"

#include <csetjmp>
#include <cstdarg>
#include <vector>

extern "C" {
#include <cmocka.h>
}

using namespace flash_mma;

static const Bf16 UNTOUCHED = 0x7FC1; /* a NaN */

/* Small numbers that bf16 has, of about a normal distribution. */
static double drawn(void)
{
    double sum = 0;
    for (int i = 0; i < 12; i++) sum += drand48();
    return bf16_widen(bf16_of((float)(sum - 6)));
}

/* (B, rows, heads, width): what a kernel reads or writes, and the same in double. */
struct Numbers {
    int rows, heads, width;
    std::vector<Bf16> at;
    std::vector<double> exact;
    std::vector<char> is_result;

    Numbers(int b, int r, int h, int w, bool given) : rows(r), heads(h), width(w)
    {
        size_t n = (size_t)b * (size_t)r * (size_t)h * (size_t)w;
        exact.resize(n), at.resize(n, UNTOUCHED), is_result.resize(n);
        for (size_t i = 0; given && i < n; i++)
            exact[i] = drawn(), at[i] = bf16_of((float)exact[i]);
    }
    size_t row(int b, int r, int h) const
    {
        return (((size_t)b * (size_t)rows + (size_t)r) * (size_t)heads + (size_t)h) * (size_t)width;
    }
    Side side(int first, int n) { return { at.data() + row(0, first, 0), n, heads, width, rows }; }
    Results results(int first) { return { at.data() + row(0, first, 0), rows, heads, width }; }
};

/* A call: its rectangle [q, q + Tq) x [k, k + Tk) of T tokens. window and document: 0: none; lists: with them. */
struct Case {
    int B, T, H, G, dk, dv, q, Tq, k, Tk;
    bool causal;
    int window, document;

    bool listed() const { return window > 0 || document > 0; }
    int last(int i) const { return causal ? min(i, Tk - 1) : Tk - 1; }
    int first(int b, int i) const
    {
        int doc = document > 0 ? max(0, i - (i + 7 * b) % document) : 0;
        if (!causal) return document > 0 ? min(Tk, (3 * i + b) % (Tk + 9)) : 0; /* any, also none */
        return window > 0 ? max(doc, i - window + 1) : doc;
    }
};

/* The lists of attention_tiles.cu. */
struct Lists {
    AttentionTiles t = {};
    std::vector<int32_t> first, q_order, k_order;
    std::vector<AttentionSpan> firsts, q_spans, k_spans;

    static int tiles(int n) { return (n + ATTENTION_TILE - 1) / ATTENTION_TILE; }
    static void join(AttentionSpan &s, int begin, int end)
    {
        s = s.end == 0 ? AttentionSpan{ begin, end }
                       : AttentionSpan{ min(s.begin, begin), max(s.end, end) };
    }
    explicit Lists(const Case &c)
    {
        t.Tq = c.Tq, t.Tk = c.Tk, t.q_tiles = tiles(c.Tq), t.k_tiles = tiles(c.Tk);
        t.rows = (tiles(c.T) + 1) * ATTENTION_TILE;
        t.causal = c.causal;
        t.window = ATTENTION_NO_WINDOW;
        if (c.listed()) list(c);
    }
    /* Where a window alone hides keys, forward has no lists (attention_call.cuh). */
    AttentionTiles forward(const Case &c) const
    {
        AttentionTiles alone = t;
        if (c.window == 0 || c.document > 0) return t;
        alone.first = NULL, alone.window = c.window;
        return alone;
    }
    void list(const Case &c)
    {
        size_t B = (size_t)c.B, q_tiles = (size_t)t.q_tiles, k_tiles = (size_t)t.k_tiles;
        int halves = t.rows / HALF;
        first.assign(B * (size_t)t.rows, INT32_MAX);
        firsts.assign(B * (size_t)halves, { INT32_MAX, 0 });
        q_spans.assign(B * q_tiles, { 0, 0 }), k_spans.assign(B * k_tiles, { 0, 0 });
        for (int b = 0; b < c.B; b++) {
            for (int i = 0; i < c.Tq; i++) {
                int from = c.first(b, i);
                AttentionSpan &half = firsts[(size_t)(b * halves + i / HALF)];
                first[(size_t)(b * t.rows + i)] = from;
                half = { min(half.begin, from), max(half.end, from) };
                if (from > c.last(i)) continue;
                join(q_spans[(size_t)(b * t.q_tiles + i / ATTENTION_TILE)], from, c.last(i) + 1);
                for (int k = from / ATTENTION_TILE; k <= c.last(i) / ATTENTION_TILE; k++)
                    join(k_spans[(size_t)(b * t.k_tiles + k)], i / HALF * HALF,
                         min(i / HALF * HALF + HALF, c.Tq));
            }
            for (int i = 0; i < t.q_tiles; i++) q_order.push_back(t.q_tiles - 1 - i);
            for (int i = 0; i < t.k_tiles; i++) k_order.push_back(i);
        }
        t.first = first.data(), t.firsts = firsts.data();
        t.q_spans = q_spans.data(), t.k_spans = k_spans.data();
        t.q_order = q_order.data(), t.k_order = k_order.data();
    }
};

struct Problem {
    Case c;
    Lists lists;
    double scale;
    Numbers q, k, v, d_o, o, dq, dk, dv;
    std::vector<double> lse;
    std::vector<float> lse_got, lse_given, lse_log2, delta;

    explicit Problem(const Case &of)
        : c(of), lists(of), scale(1 / sqrt((double)of.dk)), q(of.B, of.T, of.H, of.dk, true),
          k(of.B, of.T, of.G, of.dk, true), v(of.B, of.T, of.G, of.dv, true),
          d_o(of.B, of.T, of.H, of.dv, true), o(of.B, of.T, of.H, of.dv, false),
          dq(of.B, of.T, of.H, of.dk, false), dk(of.B, of.T, of.G, of.dk, false),
          dv(of.B, of.T, of.G, of.dv, false)
    {
        size_t n = (size_t)(c.B * c.H);
        lse.resize(n * (size_t)c.Tq), lse_got.resize(n * (size_t)c.Tq, NAN);
        lse_given.resize(n * (size_t)c.T, NAN);
        lse_log2.resize(n * (size_t)lists.t.rows, NAN), delta.resize(n * (size_t)lists.t.rows, NAN);
    }
    size_t number(int b, int h, int i, int rows) const
    {
        return (size_t)((b * c.H + h) * rows + i);
    }
};

static double dot(const Numbers &a, size_t i, const Numbers &b, size_t j)
{
    double sum = 0;
    for (int d = 0; d < a.width; d++) sum += a.exact[i + (size_t)d] * b.exact[j + (size_t)d];
    return sum;
}

static void add(Numbers &to, size_t i, double by, const Numbers &from, size_t j)
{
    for (int d = 0; d < to.width; d++) to.exact[i + (size_t)d] += by * from.exact[j + (size_t)d];
}

static void expected(Numbers &of, int b, int row, int h)
{
    for (int d = 0; d < of.width; d++) of.is_result[of.row(b, row, h) + (size_t)d] = 1;
}

/* One query: o and lse, then its part of the gradients. */
static void solve(Problem &p, int b, int h, int i)
{
    const Case &c = p.c;
    int g = h / (c.H / c.G), first = c.first(b, i), n = max(0, c.last(i) + 1 - first);
    size_t row = p.q.row(b, c.q + i, h), out = p.o.row(b, c.q + i, h),
           of_dq = p.dq.row(b, c.q + i, h);
    std::vector<double> s((size_t)n);
    double most = -INFINITY, sum = 0;
    for (int j = 0; j < n; j++) {
        s[(size_t)j] = p.scale * dot(p.q, row, p.k, p.k.row(b, c.k + first + j, g));
        most = max(most, s[(size_t)j]);
    }
    for (double x : s) sum += exp(x - most);
    p.lse[p.number(b, h, i, c.Tq)] = n == 0 ? -INFINITY : most + log(sum);
    p.lse_given[p.number(b, h, c.q + i, c.T)] = (float)p.lse[p.number(b, h, i, c.Tq)];
    for (int j = 0; j < n; j++) {
        s[(size_t)j] = exp(s[(size_t)j] - most) / sum;
        add(p.o, out, s[(size_t)j], p.v, p.v.row(b, c.k + first + j, g));
    }
    double delta = dot(p.o, out, p.d_o, out);
    for (int j = 0; j < n; j++) {
        size_t key = p.k.row(b, c.k + first + j, g), value = p.v.row(b, c.k + first + j, g);
        double ds = p.scale * s[(size_t)j] * (dot(p.d_o, out, p.v, value) - delta);
        add(p.dv, value, s[(size_t)j], p.d_o, out);
        add(p.dq, of_dq, ds, p.k, key);
        add(p.dk, key, ds, p.q, row);
    }
}

static void solve_all(Problem &p)
{
    const Case &c = p.c;
    for (int b = 0; b < c.B; b++) {
        for (int h = 0; h < c.H; h++)
            for (int i = 0; i < c.Tq; i++) {
                solve(p, b, h, i);
                expected(p.o, b, c.q + i, h), expected(p.dq, b, c.q + i, h);
            }
        for (int g = 0; g < c.G; g++)
            for (int j = 0; j < c.Tk; j++)
                expected(p.dk, b, c.k + j, g), expected(p.dv, b, c.k + j, g);
    }
}

/* ---- the kernels ---- */

template <void (*RUN)(const Args &, unsigned char *)> static void run_on(const void *args)
{
    RUN(*(const Args *)args, shared_memory);
}

static void run_delta(const void *args)
{
    flash::attention_delta_kernel(*(const flash::DeltaArgs *)args);
}

template <void (*RUN)(const Args &, unsigned char *)>
static void run_all(const Args &a, int blocks, int threads)
{
    for (int i = 0; i < blocks; i++) run_block({ (unsigned)i, 0 }, threads, run_on<RUN>, &a);
}

/* backward's o is that of forward, which has been checked */
static void make_delta(Problem &p)
{
    const Case &c = p.c;
    flash::DeltaArgs a = {};
    a.d_o = p.d_o.at.data(), a.o = p.o.at.data();
    a.lse = p.lse_given.data(), a.lse_out = p.lse_log2.data(), a.delta = p.delta.data();
    a.q_at = c.q, a.Tq = c.Tq, a.rows = p.lists.t.rows, a.o_rows = c.T, a.H = c.H, a.width = c.dv;
    for (int y = 0; y < c.B * c.H; y++)
        for (int x = 0; x < p.lists.t.rows / flash::DELTA_ROWS; x++)
            run_block({ (unsigned)x, (unsigned)y }, flash::DELTA_THREADS, run_delta, &a);
}

template <int DK, int DV> static void run_kernels(Problem &p)
{
    const Case &c = p.c;
    const AttentionTiles &t = p.lists.t;
    Args a = {};
    a.q = p.q.side(c.q, c.Tq), a.d_o = p.d_o.side(c.q, c.Tq);
    a.k = p.k.side(c.k, c.Tk), a.v = p.v.side(c.k, c.Tk);
    a.o = p.o.results(c.q), a.dq = p.dq.results(c.q);
    a.dk = p.dk.results(c.k), a.dv = p.dv.results(c.k);
    a.tiles = p.lists.forward(c);
    a.H = c.H, a.share = c.H / c.G, a.sequences = (unsigned)c.B;
    a.scale = (float)p.scale, a.factor = (float)p.scale * flash::log2_e;
    a.lse = p.lse_got.data();
    run_all<fwd_run<DK, DV>>(a, c.B * c.H * t.q_tiles * (ATTENTION_TILE / Fwd<DK, DV>::ROWS), TEAM);
    make_delta(p);
    a.tiles = t;
    a.lse = p.lse_log2.data(), a.delta = p.delta.data();
    run_all<dq_run<DK, DV>>(a, 2 * c.B * c.H * t.q_tiles, TEAM);
    run_all<dkv_run<DK, DV>>(a, 2 * c.B * c.G * t.k_tiles, TEAM * Bwd<DK, DV>::SPLIT);
}

/* As attention_mma.cu chooses. */
static void run_case(Problem &p)
{
    int dk = p.c.dk, dv = p.c.dv;
    if (dk <= 64 && dv <= 64)
        run_kernels<64, 64>(p);
    else if (dk <= 128 && dv <= 128)
        run_kernels<128, 128>(p);
    else if (dk <= 192 && dv <= 128)
        run_kernels<192, 128>(p);
    else
        run_kernels<256, 256>(p);
}

/* What is no result is untouched. The error's norm is small beside the result's. */
static void check(const Case &c, const char *what, const Numbers &n)
{
    double error = 0, size = 0;
    for (size_t i = 0; i < n.at.size(); i++) {
        double got = bf16_widen(n.at[i]), want = n.exact[i];
        if (!n.is_result[i] && n.at[i] != UNTOUCHED)
            fail_msg("%s: element %zu is written", what, i);
        if (!n.is_result[i]) continue;
        error += (got - want) * (got - want);
        size += want * want + 1e-6; /* dq of a query that sees one key is 0 */
    }
    if (!(sqrt(error / size) < 6e-3))
        fail_msg("%s is off by %g of its norm: %d x %d tokens, %d heads on %d, %d and %d wide, "
                 "queries %d "
                 "+ %d, keys %d + %d, window %d, documents of %d",
                 what, sqrt(error / size), c.B, c.T, c.H, c.G, c.dk, c.dv, c.q, c.Tq, c.k, c.Tk,
                 c.window, c.document);
}

static void check_case(const Case &c)
{
    Problem p(c);
    solve_all(p);
    run_case(p);
    for (size_t i = 0; i < p.lse.size(); i++) {
        bool same = (double)p.lse_got[i] == p.lse[i]; /* -infinity, too */
        if (!same && !(fabs(p.lse_got[i] - p.lse[i]) < 1e-5))
            fail_msg("lse %zu: %g", i, p.lse_got[i]);
    }
    check(c, "o", p.o);
    check(c, "dq", p.dq), check(c, "dk", p.dk), check(c, "dv", p.dv);
}

static const int widths[][2] = { { 64, 64 }, { 128, 128 }, { 192, 128 }, { 256, 256 }, { 80, 40 },
                                 { 96, 96 }, { 16, 24 },   { 136, 200 }, { 8, 8 } };

static void whole_sequences_agree_with_double(void **state)
{
    (void)state;
    srand48(1);
    for (const int(&d)[2] : widths) {
        int T = 1 + (int)(lrand48() % 160), G = 1 + (int)(lrand48() % 2),
            H = G * (1 + (int)(lrand48() % 3));
        Case c = { 1 + (int)(lrand48() % 2), T, H, G, d[0], d[1], 0, T, 0, T, true, 0, 0 };
        check_case(c);
        c.window = 1 + (int)(lrand48() % 60);
        check_case(c);
        c.window = 0, c.document = 1 + (int)(lrand48() % 90);
        check_case(c);
    }
}

/* The own piece, an earlier one's keys, and both pieces' queries on another's; documents hide all of some rows. */
static void rectangles_of_context_ranks_agree_with_double(void **state)
{
    (void)state;
    srand48(2);
    for (const int(&d)[2] : widths) {
        int P = 1 + (int)(lrand48() % 90);
        check_case({ 1, 2 * P, 4, 2, d[0], d[1], P, P, 0, P, false, 0, 0 });
        check_case({ 2, 2 * P, 2, 1, d[0], d[1], 0, 2 * P, 0, P, false, 0, 5 });
        check_case({ 1, 2 * P, 2, 2, d[0], d[1], P, P, P, P, true, 0, 13 });
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_sequences_agree_with_double),
        cmocka_unit_test(rectangles_of_context_ranks_agree_with_double),
    };
    if (getenv("TEST_FILTER") != NULL) cmocka_set_test_filter(getenv("TEST_FILTER"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
