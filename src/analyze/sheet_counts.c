/* sheet_counts: what the trace has and what is left out, and what its allocator did. */
#include "analyze/report_sheets.h"

static Status put_count(Table *out, const char *what, int64_t n, double us)
{
    Cell *c = NULL;
    TRY(table_row(out, &c));
    c[0] = cell_text(what);
    c[1] = cell_whole(n);
    if (us >= 0) c[2] = cell_number(us / 1e3);
    return OK;
}

Status sheet_trace_counts(Report *r, Table *out)
{
    const Events *e = r->e;
    int64_t of[EVENT_KINDS] = { 0 }, unlinked = 0;
    double device_us = 0, unlinked_us = 0;
    for (int64_t i = 0; i < e->n; i++) of[e->kind[i]]++;
    for (int64_t k = 0; k < r->gpus; k++) {
        bool alone = r->tree->parent[r->gpu[k]] == EVENT_NONE;
        device_us += e->dur[r->gpu[k]];
        unlinked += alone;
        if (alone) unlinked_us += e->dur[r->gpu[k]];
    }
    TRY(sheet_columns(r, "trace_counts", "what|count|time ms", out));
    TRY(put_count(out, "elements of the trace", e->counts.seen, -1));
    TRY(put_count(out, "malformed, left out", e->counts.malformed, -1));
    TRY(put_count(out, "without time or name, left out", e->counts.incomplete, -1));
    TRY(put_count(out, "of no use here, left out", e->counts.unused, -1));
    TRY(put_count(out, "operators", of[EVENT_CPU_OP], -1));
    TRY(put_count(out, "runtime and driver calls", of[EVENT_RUNTIME] + of[EVENT_DRIVER], -1));
    TRY(put_count(out, "frames of Python", of[EVENT_PYTHON], -1));
    TRY(put_count(out, "calls that outlive their caller", r->tree->dropped, -1));
    TRY(put_count(out, "roots of the call tree", r->tree->roots, -1));
    TRY(put_count(out, "operators that launched work", r->launchers, -1));
    TRY(put_count(out, "device work", r->gpus, device_us));
    return put_count(out, "device work whose launch is not in the trace", unlinked, unlinked_us);
}

/* ---- memory ---- */

typedef struct Pool {
    int32_t type, device;
    int64_t events, peak, reserved, end, allocations, bytes;
    double peak_ts;
} Pool;

static int find_pool(Pool *pool, int *n, int most, const MemoryPoint *m)
{
    int i = 0;
    while (i < *n && (pool[i].type != m->device_type || pool[i].device != m->device)) i++;
    if (i == *n && i < most) pool[(*n)++] = (Pool){ .type = m->device_type, .device = m->device };
    return i;
}

Status sheet_memory_summary(Report *r, Table *out)
{
    enum { POOLS = 64 };
    static const double MIB = 1024.0 * 1024.0;
    const Events *e = r->e;
    Pool pool[POOLS];
    int n = 0;
    if (e->n_memory == 0) return OK;
    for (int64_t i = 0; i < e->n_memory; i++) {
        const MemoryPoint *m = &e->memory[i];
        int k = find_pool(pool, &n, POOLS, m);
        if (k == POOLS) continue;
        Pool *p = &pool[k];
        p->events++;
        if (m->allocated > p->peak || p->events == 1) p->peak = m->allocated, p->peak_ts = m->ts;
        if (m->reserved > p->reserved) p->reserved = m->reserved;
        p->end = m->allocated;
        if (m->bytes > 0) p->allocations++, p->bytes += m->bytes;
    }
    TRY(sheet_columns(r, "memory_summary",
                      "device|events|peak allocated MiB|peak at us|peak reserved MiB|"
                      "allocated at the end MiB|allocations|bytes of allocations MiB",
                      out));
    for (int k = 0; k < n; k++) {
        const Pool *p = &pool[k];
        Cell *c = NULL;
        Text t;
        TRY(text_init(&t, r->arena));
        TRY(p->type == 0 ? text_printf(&t, "host") : text_printf(&t, "device %d", p->device));
        TRY(table_row(out, &c));
        *c++ = cell_text(t.data);
        *c++ = cell_whole(p->events);
        *c++ = cell_number((double)p->peak / MIB);
        *c++ = cell_number(p->peak_ts);
        *c++ = cell_number((double)p->reserved / MIB);
        *c++ = cell_number((double)p->end / MIB);
        *c++ = cell_whole(p->allocations);
        *c = cell_number((double)p->bytes / MIB);
    }
    return OK;
}
