/* The gated delta rule by chunks, on the CPU (warp.cuh), against the recurrence in double, token by token, and against
 * its gradients: one token, lengths that no chunk divides, documents that begin anywhere, shared keys, narrow heads. */
#include "kernels/warp/warp.cuh"

#include "kernels/delta/nv/delta_chunk_bwd.cuh"

#include <csetjmp>
#include <cstdarg>
#include <vector>

extern "C" {
#include <cmocka.h>
}

using namespace delta;

/* document: about how long one is; 0: there are none. */
struct Case {
    int B, T, G, H, dk, dv, document;
    bool state;
};

typedef std::vector<double> Doubles;

static double drawn(void)
{
    double sum = 0;
    for (int i = 0; i < 12; i++) sum += drand48();
    return sum - 6;
}

/* A tensor in bf16, and the same in double; results begin as NaN. */
struct Numbers16 {
    std::vector<Bf16> at;
    Doubles exact;

    Numbers16(size_t n, bool given) : at(n, 0x7FC1), exact(n, 0)
    {
        for (size_t i = 0; given && i < n; i++)
            at[i] = bf16_of((float)drawn()), exact[i] = bf16_widen(at[i]);
    }
};

struct Problem {
    Case c;
    int R, x_cols, qkv_cols, chunks;
    Numbers16 qkv, x, o, d_o, dqkv;
    std::vector<float> decay, slopes, state, dstate;
    std::vector<int32_t> doc;
    Doubles want_slopes, want_state, want_dstate;

    explicit Problem(const Case &of)
        : c(of), R(of.H / of.G), x_cols(2 * (of.G * of.dk + of.H * (of.dv + 1))),
          qkv_cols(2 * of.G * of.dk + of.H * of.dv), chunks((of.T + CHUNK - 1) / CHUNK),
          qkv((size_t)(of.B * of.T * qkv_cols), true), x((size_t)(of.B * of.T * x_cols), true),
          o((size_t)(of.B * of.T * of.H * of.dv), false),
          d_o((size_t)(of.B * of.T * of.H * of.dv), true),
          dqkv((size_t)(of.B * of.T * qkv_cols), false), decay((size_t)(2 * of.H)),
          slopes((size_t)(of.B * of.T * of.H * 2), NAN),
          state((size_t)(of.B * of.H * of.dk * of.dv)), dstate(state.size()),
          doc((size_t)(of.B * of.T)), want_slopes(slopes.size()), want_state(state.size()),
          want_dstate(state.size())
    {
        for (float &v : decay) v = (float)drawn();
        for (float &v : state) v = of.state ? (float)drawn() : 0;
        for (int i = 0; i < of.B * of.T; i++) {
            bool begins = of.document > 0 && drand48() * of.document < 1;
            doc[(size_t)i] = i % of.T == 0 ? 0 : begins ? i % of.T : doc[(size_t)i - 1];
        }
        for (float &v : dstate) v = of.state ? (float)drawn() : 0;
        for (size_t i = 0; i < state.size(); i++) want_state[i] = (double)state[i];
        for (size_t i = 0; i < state.size(); i++) want_dstate[i] = (double)dstate[i];
    }
    size_t q_at(int row, int h) const { return (size_t)(row * qkv_cols + h / R * c.dk); }
    size_t v_at(int row, int h) const
    {
        return (size_t)(row * qkv_cols + 2 * c.G * c.dk + h * c.dv);
    }
    size_t o_at(int row, int h) const { return (size_t)((row * c.H + h) * c.dv); }
    size_t slope_at(int row, int h) const { return (size_t)((row * c.H + h) * 2); }
};

/* What the recurrence keeps of a token of a head. */
struct Token {
    Doubles q, k, e, before, after; /* unit vectors, v - S'^T k, states */
    double q_length, k_length, alpha, beta, log_alpha;
    bool begins;
};

static Doubles unit(const Doubles &from, size_t at, int n, double *length)
{
    Doubles out(from.begin() + (long)at, from.begin() + (long)at + n);
    double sum = (double)DELTA_LENGTH_EPS;
    for (double v : out) sum += v * v;
    *length = sqrt(sum);
    for (double &v : out) v /= *length;
    return out;
}

static Token forward_token(Problem &p, int row, int h, const Doubles &S)
{
    const Case &c = p.c;
    Token t;
    int b_at = row * p.x_cols + c.G * 2 * (c.dk + p.R * c.dv) + h / p.R * 2 * p.R + h % p.R;
    double a = p.x.exact[(size_t)(b_at + p.R)] + (double)p.decay[(size_t)(c.H + h)];
    t.beta = 1 / (1 + exp(-p.x.exact[(size_t)b_at]));
    t.log_alpha = -exp((double)p.decay[(size_t)h]) * log1p(exp(a));
    t.begins = p.doc[(size_t)row] == row % c.T && (c.document > 0 || !c.state);
    t.alpha = t.begins ? 0 : exp(t.log_alpha);
    t.q = unit(p.qkv.exact, p.q_at(row, h), c.dk, &t.q_length);
    t.k = unit(p.qkv.exact, p.q_at(row, h) + (size_t)(c.G * c.dk), c.dk, &t.k_length);
    t.before = S;
    t.after = S;
    t.e.assign(p.qkv.exact.begin() + (long)p.v_at(row, h),
               p.qkv.exact.begin() + (long)p.v_at(row, h) + c.dv);
    for (int i = 0; i < c.dk; i++)
        for (int j = 0; j < c.dv; j++)
            t.e[(size_t)j] -= t.alpha * S[(size_t)(i * c.dv + j)] * t.k[(size_t)i];
    for (int i = 0; i < c.dk; i++)
        for (int j = 0; j < c.dv; j++) {
            double &s = t.after[(size_t)(i * c.dv + j)];
            s = t.alpha * s + t.k[(size_t)i] * t.beta * t.e[(size_t)j];
            p.o.exact[p.o_at(row, h) + (size_t)j] += s * t.q[(size_t)i] / sqrt((double)c.dk);
        }
    return t;
}

static void add_unit(Doubles &to, size_t at, const Doubles &u, const Doubles &d, double length)
{
    double along = 0;
    for (size_t i = 0; i < u.size(); i++) along += u[i] * d[i];
    for (size_t i = 0; i < u.size(); i++) to[at + i] += (d[i] - u[i] * along) / length;
}

/* The gradients that delta.h writes down. dS: of the state after the token, then of the one before. */
static void backward_token(Problem &p, int row, int h, const Token &t, Doubles &dS)
{
    const Case &c = p.c;
    Doubles dq((size_t)c.dk), dk((size_t)c.dk), du((size_t)c.dv);
    const double *d_o = &p.d_o.exact[p.o_at(row, h)], scale = 1 / sqrt((double)c.dk);
    double dbeta = 0, slope = 0;
    for (int i = 0; i < c.dk; i++)
        for (int j = 0; j < c.dv; j++) {
            size_t at = (size_t)(i * c.dv + j);
            dq[(size_t)i] += scale * t.after[at] * d_o[j];
            dS[at] += scale * t.q[(size_t)i] * d_o[j];
            du[(size_t)j] += dS[at] * t.k[(size_t)i];
        }
    for (int j = 0; j < c.dv; j++) {
        dbeta += du[(size_t)j] * t.e[(size_t)j];
        p.dqkv.exact[p.v_at(row, h) + (size_t)j] += t.beta * du[(size_t)j];
    }
    for (int i = 0; i < c.dk; i++)
        for (int j = 0; j < c.dv; j++) {
            size_t at = (size_t)(i * c.dv + j);
            double decayed = t.alpha * t.before[at], dv = t.beta * du[(size_t)j];
            dk[(size_t)i] += dS[at] * t.beta * t.e[(size_t)j] - decayed * dv;
            dS[at] -= t.k[(size_t)i] * dv;
            slope += dS[at] * decayed;
            dS[at] *= t.alpha;
        }
    size_t q = p.q_at(row, h);
    add_unit(p.dqkv.exact, q, t.q, dq, t.q_length);
    add_unit(p.dqkv.exact, q + (size_t)(c.G * c.dk), t.k, dk, t.k_length);
    p.want_slopes[p.slope_at(row, h)] = dbeta * t.beta * (1 - t.beta);
    p.want_slopes[p.slope_at(row, h) + 1] = t.begins ? 0 : slope;
}

static void solve(Problem &p)
{
    const Case &c = p.c;
    size_t size = (size_t)(c.dk * c.dv);
    for (int b = 0; b < c.B; b++)
        for (int h = 0; h < c.H; h++) {
            std::vector<Token> tokens;
            long from = (long)((size_t)(b * c.H + h) * size);
            Doubles S(p.want_state.begin() + from, p.want_state.begin() + from + (long)size);
            for (int t = 0; t < c.T; t++) {
                tokens.push_back(forward_token(p, b * c.T + t, h, S));
                S = tokens.back().after;
            }
            std::copy(S.begin(), S.end(), p.want_state.begin() + from);
            Doubles dS(p.want_dstate.begin() + from, p.want_dstate.begin() + from + (long)size);
            for (int t = c.T - 1; t >= 0; t--)
                backward_token(p, b * c.T + t, h, tokens[(size_t)t], dS);
            std::copy(dS.begin(), dS.end(), p.want_dstate.begin() + from);
        }
}

/* ---- the kernels ---- */

template <void (*RUN)(const Args &, unsigned char *)> static void run_on(const void *args)
{
    RUN(*(const Args *)args, shared_memory);
}

template <void (*RUN)(const Args &, unsigned char *)>
static void run_all(const Args &a, int blocks, int threads)
{
    for (int i = 0; i < blocks; i++) {
        memset(shared_memory, 0xFF, sizeof shared_memory);
        run_block({ (unsigned)i, 0 }, threads, run_on<RUN>, &a);
    }
}

/* Two slabs, of all sequences but the last and of the last. */
template <int D> static void run_kernels(Problem &p)
{
    const Case &c = p.c;
    size_t slots = (size_t)(c.B * c.H * p.chunks), tile = (size_t)(CHUNK * D) * slots;
    std::vector<Bf16> W(tile), U(tile), dU(tile), S(tile * D / CHUNK), dS(tile * D / CHUNK),
        X(slots * CHUNK * CHUNK);
    std::vector<float> marks(slots * MARKS * CHUNK);
    Args a = {};
    a.s = { c.B * c.T,
            c.T,
            p.x_cols,
            p.qkv_cols,
            2 * (c.dk + p.R * c.dv),
            c.G,
            c.H,
            p.R,
            c.dk,
            c.dv,
            c.document > 0 ? p.doc.data() : NULL,
            { 0, 0 },
            c.state };
    a.qkv = p.qkv.at.data(), a.x = p.x.at.data(), a.d_o = p.d_o.at.data();
    a.decay = p.decay.data();
    a.o = p.o.at.data(), a.dqkv = p.dqkv.at.data(), a.slopes = p.slopes.data();
    a.state = c.state ? p.state.data() : NULL, a.dstate = c.state ? p.dstate.data() : NULL;
    a.chunks = p.chunks, a.q_scale = 1 / sqrtf((float)c.dk);
    a.W = W.data(), a.U = U.data(), a.S = S.data(), a.X = X.data();
    a.dU = dU.data(), a.dS = dS.data(), a.marks = marks.data();
    int first = max(c.B - 1, 1) * c.H;
    for (int units = first; units > 0; units = c.B * c.H - first) {
        if (a.unit >= c.B * c.H) break;
        int blocks = units * a.chunks, parts = units * D / PASS_ROWS;
        run_all<prepare_run<D>>(a, blocks, TILE_THREADS);
        run_all<pass_run<D, false>>(a, parts, PASS_THREADS);
        run_all<out_run<D>>(a, blocks, TILE_THREADS);
        run_all<pull_run<D>>(a, blocks, TILE_THREADS);
        run_all<back_run<D>>(a, parts, PASS_THREADS);
        run_all<slope_run<D>>(a, blocks / p.R, SLOPE_THREADS);
        a.unit += units;
    }
}

/* The error's norm beside the result's, over all and over each row of `columns`. */
template <typename T>
static void check(const Case &c, const char *what, const std::vector<T> &got, const Doubles &want,
                  double limit)
{
    double error = 0, size = 0;
    for (size_t i = 0; i < got.size(); i++) {
        double g;
        if constexpr (sizeof(T) == 2)
            g = bf16_widen(got[i]);
        else
            g = (double)got[i];
        error += (g - want[i]) * (g - want[i]);
        size += want[i] * want[i] + 1e-12; /* log alpha of documents of one token */
    }
    if (getenv("SHOW") != NULL) print_message("%s %g\n", what, sqrt(error / size));
    if (!(sqrt(error / size) < limit))
        fail_msg("%s is off by %g of its norm: %d x %d tokens, %d heads on %d, %d and %d wide, "
                 "documents of %d, state %d",
                 what, sqrt(error / size), c.B, c.T, c.H, c.G, c.dk, c.dv, c.document, c.state);
}

static void check_case(const Case &c)
{
    Problem p(c);
    Doubles slopes[2], want[2];
    solve(p);
    if (c.dk <= 64 && c.dv <= 64)
        run_kernels<64>(p);
    else
        run_kernels<128>(p);
    check(c, "o", p.o.at, p.o.exact, 8e-3);
    check(c, "dqkv", p.dqkv.at, p.dqkv.exact, 1.2e-2);
    for (size_t i = 0; i < p.slopes.size(); i++)
        slopes[i % 2].push_back((double)p.slopes[i]), want[i % 2].push_back(p.want_slopes[i]);
    check(c, "the gradient of b", slopes[0], want[0], 1.2e-2);
    check(c, "the gradient of log alpha", slopes[1], want[1], 1.2e-2);
    if (c.state) check(c, "the state", p.state, p.want_state, 8e-3);
    if (c.state) check(c, "its gradient", p.dstate, p.want_dstate, 8e-3);
}

static void tokens_that_no_chunk_divides(void **)
{
    for (int T : { 2, 63, 64, 65, 131 }) check_case({ 1, T, 1, 1, 128, 128, 0, false });
}
static void heads_that_share_keys_and_are_narrow(void **)
{
    check_case({ 2, 70, 2, 4, 64, 64, 0, false });
    check_case({ 1, 100, 1, 3, 40, 24, 0, false });
    check_case({ 1, 100, 1, 2, 128, 64, 0, false });
    check_case({ 2, 66, 1, 2, 72, 128, 0, false });
}
static void documents_begin_anywhere(void **)
{
    check_case({ 2, 150, 1, 2, 64, 64, 20, false });
    check_case({ 1, 200, 1, 1, 128, 128, 90, false });
    check_case({ 2, 130, 1, 1, 64, 64, 1, false });
}
static void a_state_goes_on(void **)
{
    check_case({ 2, 100, 1, 2, 64, 64, 0, true });
    check_case({ 1, 140, 1, 1, 128, 128, 60, true });
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_that_no_chunk_divides),
        cmocka_unit_test(heads_that_share_keys_and_are_narrow),
        cmocka_unit_test(documents_begin_anywhere),
        cmocka_unit_test(a_state_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
