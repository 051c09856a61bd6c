/* sheet_perf: work and rate of the calls of each kind of operator, by operator and parameters. */
#include "analyze/perf_calls.h"
#include "analyze/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Calls that one sheet lists, as forward operators or with the work of their gradients. */
typedef struct Listed {
    const PerfCalls *p;
    const char *sheet;
    bool backward;
    uint32_t *call;
    Work *work;
    double *us, *rate[3]; /* TB/s, TFLOP/s, percent of the roofline */
    int64_t n;
    const char *name[PERF_PARAMS * 2]; /* of parameters, in the order of their first rows */
    bool real[PERF_PARAMS * 2];        /* a parameter that is not whole, or missing, in some row */
    int names;
} Listed;

static const Perf *perf_of(const Listed *l, int64_t i)
{
    return &l->p->row[l->p->call[l->call[i]].row].p;
}

static double flops_of(const Listed *l, const Perf *p)
{
    return l->backward ? p->backward_flops : p->flops;
}

static double bytes_of(const Listed *l, const Perf *p)
{
    return l->backward ? p->backward_bytes : p->bytes;
}

static int param_of(const Perf *p, const char *name)
{
    for (int i = 0; i < p->params; i++)
        if (strcmp(p->name[i], name) == 0) return i;
    return -1;
}

/* Columns of parameters. As pandas, one with a number that is not whole, or without one in some row,
 * shows all as real. */
static void list_params(Listed *l)
{
    for (int64_t i = 0; i < l->n; i++) {
        const Perf *p = perf_of(l, i);
        if (i > 0 && p == perf_of(l, i - 1)) continue;
        for (int k = 0; k < p->params && l->names < PERF_PARAMS * 2; k++) {
            int at = 0;
            while (at < l->names && strcmp(l->name[at], p->name[k]) != 0) at++;
            if (at == l->names) l->name[l->names++] = p->name[k];
            l->real[at] |= p->value[k].type == CELL_NUMBER;
        }
    }
    for (int64_t i = 0; i < l->n; i++)
        for (int k = 0; k < l->names; k++) l->real[k] |= param_of(perf_of(l, i), l->name[k]) < 0;
}

/* Of several gradients of one operator all work counts. */
static Status gradient_work(Report *r, const PerfCalls *p, int64_t i, int64_t end, Work *out)
{
    uint32_t *gpu = NULL, n = 0;
    for (int64_t k = i; k < end; k++) n += perf_work_below(r, p->gradient[k].backward).n;
    TRY(ARENA_NEW(r->arena, n + 1, &gpu));
    *out = (Work){ gpu, n };
    for (int64_t k = i; k < end; k++) {
        const Work w = perf_work_below(r, p->gradient[k].backward);
        memcpy(gpu, w.gpu, w.n * sizeof *gpu);
        gpu += w.n;
    }
    return OK;
}

static Status list_gradients(Report *r, Listed *l)
{
    const PerfCalls *p = l->p;
    for (int64_t i = 0, end = 0; i < p->gradients; i = end) {
        for (end = i; end < p->gradients && p->gradient[end].call == p->gradient[i].call;) end++;
        const Perf *perf = &p->row[p->call[p->gradient[i].call].row].p;
        if (strcmp(perf->backward_sheet, l->sheet) != 0) continue;
        TRY(gradient_work(r, p, i, end, &l->work[l->n]));
        if (l->work[l->n].n == 0) continue;
        TRY(report_busy(r, l->work[l->n].gpu, l->work[l->n].n, &l->us[l->n]));
        l->call[l->n++] = p->gradient[i].call;
    }
    return OK;
}

static void list_calls(const Report *r, Listed *l)
{
    for (int64_t i = 0; i < l->p->calls; i++) {
        const PerfCall *c = &l->p->call[i];
        const char *sheet = l->p->row[c->row].p.sheet;
        if (sheet == NULL || strcmp(sheet, l->sheet) != 0) continue;
        l->work[l->n] = perf_work_below(r, c->event);
        l->us[l->n] = c->us;
        l->call[l->n++] = (uint32_t)i;
    }
}

static Status list(Report *r, const char *sheet, Listed *l)
{
    *l = (Listed){ .sheet = sheet };
    TRY(perf_calls(r, &l->p));
    int64_t most = l->p->calls + 1;
    TRY(ARENA_NEW(r->arena, most, &l->call));
    TRY(ARENA_NEW(r->arena, most, &l->work));
    TRY(ARENA_NEW(r->arena, most, &l->us));
    for (int k = 0; k < 3; k++) TRY(ARENA_NEW(r->arena, most, &l->rate[k]));
    list_calls(r, l);
    if (l->n == 0) {
        l->backward = true;
        TRY(list_gradients(r, l));
    }
    for (int64_t i = 0; i < l->n; i++) {
        const Perf *p = perf_of(l, i);
        PerfRates rate;
        perf_rates(l->p, flops_of(l, p), bytes_of(l, p), p->spec, l->us[i], &rate);
        l->rate[0][i] = rate.tb_s;
        l->rate[1][i] = rate.tflops;
        l->rate[2][i] = rate.roofline_percent;
    }
    list_params(l);
    return OK;
}

/* ---- the sheet ---- */

static Status columns(const Report *r, const Listed *l, Table *out)
{
    Text t;
    TRY(text_init(&t, r->arena));
    TRY(text_printf(&t, "name"));
    for (int i = 0; i < l->names; i++) TRY(text_printf(&t, "|param: %s", l->name[i]));
    TRY(text_printf(
        &t, "%s",
        "|?is_recompute|GFLOPS_first|Data Moved (MB)_first|FLOPS/Byte_first|TB/s_mean|TB/s_median|"
        "TB/s_std|TB/s_min|TB/s_max|TFLOPS/s_mean|TFLOPS/s_median|TFLOPS/s_std|TFLOPS/s_min|"
        "TFLOPS/s_max|process_name_first|process_label_first|thread_name_first|Compute Spec|"
        "Roofline Time (µs)_first|Roofline Bound_first|Pct Roofline_mean|Pct Roofline_median|"
        "Pct Roofline_std|Pct Roofline_min|Pct Roofline_max|"
        "kernel_details__summarize_kernel_stats|trunc_kernel_details|Input Dims_first|"
        "Input type_first|Input Strides_first|Concrete Inputs_first|Kernel Time (µs)_mean|"
        "Kernel Time (µs)_median|Kernel Time (µs)_std|Kernel Time (µs)_min|Kernel Time (µs)_max|"
        "Kernel Time (µs)_sum|name_count|UID_first"));
    return sheet_columns(r, t.data, out);
}

static Status put_summary(const Report *r, const double *value, const uint32_t *row, int64_t n,
                          Table *out)
{
    Summary s;
    TRY(perf_known(r, value, row, n, &s));
    TABLE_MORE(out, cell_number(s.mean), cell_number(s.median), cell_number(s.std),
               cell_number(s.min), cell_number(s.max));
    return OK;
}

static Cell param_cell(const Listed *l, const Perf *p, int k)
{
    int at = param_of(p, l->name[k]);
    Cell c = at >= 0 ? p->value[at] : cell_none();
    return l->real[k] && c.type == CELL_WHOLE ? cell_number((double)c.whole) : c;
}

static Status put_group(Report *r, const Listed *l, const uint32_t *row, int64_t n, double sum,
                        Table *out)
{
    const Perf *p = perf_of(l, row[0]);
    uint32_t event = l->p->call[l->call[row[0]]].event;
    const Track *track = &r->e->tracks[r->e->track[event]];
    Cell full = cell_text("[]"), brief = cell_none();
    PerfRates rate;
    Work *work = NULL;
    int64_t m = 0;
    TRY(ARENA_NEW(r->arena, n, &work));
    for (int64_t i = 0; i < n; i++)
        if (l->work[row[i]].n > 0) work[m++] = l->work[row[i]];
    if (m > 0) TRY(report_details(r, work, m, &full, &brief));
    perf_rates(l->p, flops_of(l, p), bytes_of(l, p), p->spec, l->us[row[0]], &rate);
    TRY(TABLE_ROW(out, cell_text(event_name(r->e, event))));
    for (int k = 0; k < l->names; k++) TABLE_MORE(out, param_cell(l, p, k));
    TABLE_MORE(out, cell_bool(r->o->recompute && r->tree->recompute[event]),
               cell_number(rate.gflops), cell_number(rate.mb), cell_number(rate.intensity));
    for (int k = 0; k < 2; k++) TRY(put_summary(r, l->rate[k], row, n, out));
    TABLE_MORE(out, report_label(r, track->process_name), report_label(r, track->process_label),
               report_label(r, track->thread_name), cell_text(p->spec),
               cell_number(rate.roofline_us), cell_text(rate.bound));
    TRY(put_summary(r, l->rate[2], row, n, out));
    TABLE_MORE(out, full, brief);
    TRY(report_put_args(r, report_args(r, event), false, out));
    TRY(put_summary(r, l->us, row, n, out));
    TABLE_MORE(out, cell_number(sum), cell_whole(n), cell_whole(r->e->index[event]));
    return OK;
}

Status sheet_perf(Report *r, Table *out)
{
    Listed l;
    Groups g;
    uint32_t *key = NULL;
    TRY(list(r, out->name, &l));
    if (l.n == 0) return OK;
    TRY(ARENA_NEW(r->arena, 3 * l.n, &key));
    for (int64_t i = 0; i < l.n; i++) {
        const PerfCall *c = &l.p->call[l.call[i]];
        key[3 * i] = r->e->name[c->event];
        key[3 * i + 1] = l.p->row[c->row].params;
        key[3 * i + 2] = r->o->recompute && r->tree->recompute[c->event];
    }
    TRY(groups_ranked(key, 3, l.us, l.n, r->arena, &g));
    TRY(columns(r, &l, out));
    for (int64_t k = 0; k < g.n; k++) {
        int64_t n = 0;
        const uint32_t *row = groups_rows(&g, k, &n);
        TRY(put_group(r, &l, row, n, g.sum[k], out));
    }
    return OK;
}
