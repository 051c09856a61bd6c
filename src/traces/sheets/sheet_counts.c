/* sheet_counts: what the trace holds and what was left out, and what the GPU's allocator did. It
 * counts events and bytes, no times but those of device work. */
#include "traces/sheets/report.h"

/* Everything that was left out is counted here: no sheet hides it. */
Status sheet_trace_counts(Report *r, Table *out)
{
    const Events *e = r->e;
    const Tree *t = r->tree;
    int64_t of[EVENT_KINDS] = { 0 }, roots = 0, chosen_alone = 0;
    double us = 0, alone_us = 0;
    for (uint32_t i = 0; i < e->n; i++) {
        of[e->kind[i]]++;
        roots += e->kind[i] == EVENT_CPU_OP && report_operator(r, t->parent[i]) == EVENT_NONE;
    }
    for (int64_t k = 0; k < r->gpus; k++) {
        bool alone = t->parent[r->gpu[k]] == EVENT_NONE;
        us += e->dur[r->gpu[k]];
        chosen_alone += alone;
        if (alone) alone_us += e->dur[r->gpu[k]];
    }
    const int64_t device = of[EVENT_KERNEL] + of[EVENT_MEMCPY] + of[EVENT_MEMSET];
    /* What is left out comes first, then what is there, then what counts. */
    const struct {
        const char *what;
        int64_t n;
        double us; /* < 0: the row has no time */
    } row[] = {
        { "elements of the trace", e->counts.seen, -1 },
        { "malformed, left out", e->counts.malformed, -1 },
        { "without time or name, left out", e->counts.incomplete, -1 },
        { "of no use here, left out", e->counts.unused, -1 },
        { "operators", of[EVENT_CPU_OP], -1 },
        { "operators below no other", roots, -1 },
        { "runtime and driver calls", of[EVENT_RUNTIME] + of[EVENT_DRIVER], -1 },
        { "frames of Python", of[EVENT_PYTHON], -1 },
        { "calls that outlive their caller", t->dropped, -1 },
        { "operators that launched work", r->launchers, -1 },
        { "device events", device, -1 },
        { "device events that are linked", device - t->unlinked, -1 },
        { "device events that count", r->gpus, us },
        { "of these without a matching launch event", chosen_alone, alone_us },
        { "device events that overlapped the next of their stream", e->counts.cut,
          e->counts.cut_us },
        { "device events that start before their launch", t->early, -1 },
        { "processes that make calls", t->processes, -1 },
        { "device events whose process is a guess", t->guessed, -1 },
    };
    TRY(sheet_columns(r, "what|count|time ms", out));
    for (size_t k = 0; k < sizeof row / sizeof *row; k++)
        TRY(TABLE_ROW(out, cell_text(row[k].what), cell_whole(row[k].n),
                      row[k].us >= 0 ? cell_number(row[k].us / 1e3) : cell_none()));
    return OK;
}

Status report_doubts(const Events *e, const Tree *t, Text *out)
{
    char n[32];
    if (e->counts.cut > 0)
        TRY(text_printf(out,
                        "  %s device events overlap the next one of their stream, by %.3f ms in "
                        "all, and were cut there\n",
                        text_thousands(n, e->counts.cut), e->counts.cut_us / 1e3));
    if (t->early > 0)
        TRY(text_printf(out,
                        "  %s device events start before their launch, by up to %.3f us: the GPU's "
                        "clock is behind the host's, and launch delays and causes of idle time are "
                        "as uncertain\n",
                        text_thousands(n, t->early), t->early_us));
    if (t->processes > 1)
        TRY(text_printf(out,
                        "  %lld processes make calls: each has its own kernels, but times of the "
                        "device are of all together, so work of one hides communication of "
                        "another\n",
                        (long long)t->processes));
    if (t->guessed > 0)
        TRY(text_printf(out,
                        "  %s device events fit launches of several processes, and theirs is a "
                        "guess\n",
                        text_thousands(n, t->guessed)));
    return OK;
}

/* ---- memory ---- */

/* The allocator of one device in one process. type 0: the host. */
typedef struct Pool {
    uint32_t pid;
    int32_t type, device;
    int64_t events, peak, reserved, end, allocations, bytes;
    double peak_ts;
} Pool;

/* Finds the pool of an event, or adds it. Returns `most` if there are too many. */
static int find_pool(Pool *pool, int *n, int most, const MemoryPoint *m)
{
    int i = 0;
    while (i < *n &&
           (pool[i].type != m->device_type || pool[i].device != m->device || pool[i].pid != m->pid))
        i++;
    if (i == *n && i < most)
        pool[(*n)++] = (Pool){ .pid = m->pid, .type = m->device_type, .device = m->device };
    return i;
}

/* Peaks are over the events of the trace: what was allocated before is in the first event's
 * total. */
Status sheet_memory_summary(Report *r, Table *out)
{
    enum { POOLS = 256 };
    /* The profiler's numbers are bytes. */
    static const double MIB = 1024.0 * 1024.0;
    const Events *e = r->e;
    Pool pool[POOLS];
    int n = 0, processes = 0;
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
    TRY(sheet_columns(r,
                      "device|events|peak allocated MiB|peak at us|peak reserved MiB|"
                      "allocated at the end MiB|allocations|bytes of allocations MiB",
                      out));
    for (int k = 0; k < n; k++) processes += k == 0 || pool[k].pid != pool[k - 1].pid;
    for (int k = 0; k < n; k++) {
        const Pool *p = &pool[k];
        Text t;
        TRY(text_init(&t, r->arena));
        TRY(p->type == 0 ? text_printf(&t, "host") : text_printf(&t, "device %d", p->device));
        if (processes > 1)
            TRY(text_printf(&t, " of process %s", strings_text(&e->strings, p->pid)));
        TRY(TABLE_ROW(out, cell_text(t.data), cell_whole(p->events),
                      cell_number((double)p->peak / MIB), cell_number(p->peak_ts),
                      cell_number((double)p->reserved / MIB), cell_number((double)p->end / MIB),
                      cell_whole(p->allocations), cell_number((double)p->bytes / MIB)));
    }
    return OK;
}
