/* sheet_perf: work and rates of the calls of one kind of operator, by operator and parameters. One
 * function makes all these sheets; out->name says which kind. The work is counted by perf.h, once
 * per operator and arguments. */
#include "traces/sheets/perf_calls.h"
#include "traces/sheets/report.h"

#include <math.h>
#include <string.h>

/* The calls that a sheet lists: operators, or (backward) the gradients of operators. */
typedef struct Listed {
    Report *r;
    const PerfCalls *p;
    const char *sheet;
    bool backward;
    uint32_t *call; /* indices into p->call */
    Work *work;     /* device work of each call */
    double *us;     /* its busy time */
    int64_t n;
    const char *name[PERF_PARAMS * 2]; /* of parameters, in the order of their first rows */
    bool real[PERF_PARAMS * 2];        /* shown as reals: see list_params */
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

/* Finds the columns of parameters. As in pandas, a column shows all its numbers as reals if one of
 * them is missing or not whole. */
static void list_params(Listed *l)
{
    for (int64_t i = 0; i < l->n; i++) {
        const Perf *p = perf_of(l, i);
        /* calls of one row have the same parameters */
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

/* An operator may have several gradients (of inputs, of weights). The work of all of them counts
 * together. */
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

/* Gradients are sorted by call, so those of one call are a range. */
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

/* Lists the operators whose sheet this is. */
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

/* Lists the calls of a sheet. A sheet of gradients (SDPA_bwd, Reduce_bwd) has no operators of its
 * own, so it lists gradients. */
static Status list_all(Report *r, const char *sheet, Listed *l)
{
    *l = (Listed){ .r = r, .sheet = sheet };
    TRY(perf_calls(r, &l->p));
    int64_t most = l->p->calls + 1;
    TRY(ARENA_NEW(r->arena, most, &l->call));
    TRY(ARENA_NEW(r->arena, most, &l->work));
    TRY(ARENA_NEW(r->arena, most, &l->us));
    list_calls(r, l);
    if (l->n == 0) {
        l->backward = true;
        TRY(list_gradients(r, l));
    }
    list_params(l);
    return OK;
}

/* ---- the sheet ---- */

static Cell param_cell(const Listed *l, const Perf *p, int k)
{
    int at = param_of(p, l->name[k]);
    Cell c = at >= 0 ? p->value[at] : cell_none();
    return l->real[k] && c.type == CELL_WHOLE ? cell_number((double)c.whole) : c;
}

/* A call as a launcher without work, for report_put_call. */
static Launcher call_of(const Report *r, const Listed *l, int64_t i)
{
    const uint32_t event = l->p->call[l->call[i]].event;
    const bool again = r->tree->recompute != NULL && r->tree->recompute[event];
    return (Launcher){ event, .args = event_args(r->e, event), .recompute = again };
}

/* One row for each call, so that statistics are over calls. */
static Status fill_calls(Report *r, FoldRows *rows)
{
    const Listed *l = rows->state;
    for (int64_t i = 0; i < l->n; i++) {
        const Launcher call = call_of(r, l, i);
        const Perf *p = perf_of(l, i);
        TRY(report_put_call(r, &call, EVENT_NONE, &rows->t));
        TABLE_MORE(&rows->t, cell_whole(l->p->row[l->p->call[l->call[i]].row].params));
        perf_put_rates(l->p, flops_of(l, p), bytes_of(l, p), p->spec, l->us[i], &rows->t);
    }
    return OK;
}

/* Arguments, work and parameters are those of a group's first call; they are equal for all. */
static Status describe_call(const FoldRows *rows, uint32_t row, Table *out)
{
    const Listed *l = rows->state;
    const Launcher call = call_of(l->r, l, row);
    const Perf *p = perf_of(l, row);
    TRY(report_put_rest(l->r, &call, EVENT_NONE, out));
    perf_put_work(l->p, flops_of(l, p), bytes_of(l, p), p->spec, out);
    for (int k = 0; k < l->names; k++) TABLE_MORE(out, param_cell(l, p, k));
    return OK;
}

/* Kernels by position. Calls without device work have none to show. */
static Status call_details(const FoldRows *rows, const uint32_t *row, int64_t n, Arena *a,
                           Cell *out)
{
    const Listed *l = rows->state;
    Work *work = NULL;
    int64_t m = 0;
    TRY(ARENA_NEW(a, n, &work));
    for (int64_t i = 0; i < n; i++)
        if (l->work[row[i]].n > 0) work[m++] = l->work[row[i]];
    out[0] = cell_text("[]");
    out[1] = cell_none();
    return m == 0 ? OK : report_details(l->r, work, m, &out[0], &out[1]);
}

/* Columns of parameters come after the name; which there are depends on the operators. */
Status sheet_perf(Report *r, Table *out)
{
    Listed l;
    Text columns, names;
    TRY(list_all(r, out->name, &l));
    if (l.n == 0) return OK;
    TRY(text_init(&columns, r->arena));
    TRY(text_printf(&columns, "name=first name"));
    for (int i = 0; i < l.names; i++)
        TRY(text_printf(&columns, "|param: %s=first param %s", l.name[i], l.name[i]));
    TRY(text_printf(
        &columns, "%s",
        "|?is_recompute=first again|GFLOPS_first=first gflops|Data Moved (MB)_first=first mb|"
        "FLOPS/Byte_first=first intensity|TB/s_*=mean,median,std,min,max tb|"
        "TFLOPS/s_*=mean,median,std,min,max tflops|process_name_first=first process|"
        "process_label_first=first label|thread_name_first=first thread|Compute Spec=first spec|"
        "Roofline Time (µs)_first=first roofline|Roofline Bound_first=first bound|"
        "Pct Roofline_*=mean,median,std,min,max percent|"
        "kernel_details__summarize_kernel_stats=more|trunc_kernel_details=more|"
        "Input Dims_first=list dims|Input type_first=list types|Input Strides_first=list strides|"
        "Concrete Inputs_first=list concrete|Kernel Time (µs)_*=mean,median,std,min,max,sum us|"
        "name_count=n|UID_first=first uid"));
    TRY(text_init(&names, r->arena));
    TRY(text_printf(&names, "%s", CALL_REST "|" PERF_WORK_ROWS));
    for (int i = 0; i < l.names; i++) TRY(text_printf(&names, "|param %s", l.name[i]));
    const Fold fold = { .rows = CALL_KEYS "|params|" PERF_RATE_ROWS,
                        .keys = "name|params|again",
                        .by = "us",
                        .columns = columns.data,
                        .more = call_details,
                        .described = names.data,
                        .describe = describe_call };
    return report_fold(r, &fold, fill_calls, &l, out);
}
