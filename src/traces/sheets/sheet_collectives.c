/* sheet_collectives: the collectives of one rank, by kind and size. How ranks wait for each other
 * needs the traces of all ranks: see collectives.h. */
#include "traces/read/movers.h"
#include "traces/sheets/report.h"

#include <math.h>
#include <string.h>

/* Finds what a kernel exchanges, in its own record or in that of an operator above its launch.
 * EVENT_NONE: neither has one. Profilers before PyTorch 2.1 record it at the operator only. */
static uint32_t collective_of(const Report *r, uint32_t gpu)
{
    const Events *e = r->e;
    uint32_t found = e->detail[gpu] == EVENT_NONE ? EVENT_NONE : e->gpu[e->detail[gpu]].collective;
    for (uint32_t i = r->tree->parent[gpu]; found == EVENT_NONE && i != EVENT_NONE;
         i = r->tree->parent[i]) {
        if (e->kind[i] == EVENT_CPU_OP && e->detail[i] != EVENT_NONE)
            found = e->ops[e->detail[i]].collective;
    }
    return found;
}

static Cell text_of(const Report *r, uint32_t string)
{
    return string == 0 ? (Cell){ 0 } : cell_text(strings_text(&r->e->strings, string));
}

/* Megabytes of 2^20 bytes, ours and TraceLens', because users compare this sheet with NCCL's
 * sizes. */
static Cell size_of(const Report *r, const Collective *c, int64_t elements)
{
    double bytes = event_dtype_bytes(strings_text(&r->e->strings, c->dtype));
    if (isnan(bytes) || elements < 0) return cell_none();
    return cell_number((double)elements * bytes / (1024 * 1024));
}

/* A row for each kernel that communicates. Without a record, kernels are grouped by their names. */
static Status fill_collectives(Report *r, FoldRows *rows)
{
    static const Collective none = { .in_elements = -1, .out_elements = -1, .group_size = -1 };
    const Events *e = r->e;
    const Cell rank = cell_whole(e->rank < 0 ? 0 : e->rank);
    for (int64_t k = 0; k < r->gpus; k++) {
        const uint32_t i = r->gpu[k];
        if (e->kind[i] != EVENT_KERNEL || report_bucket(r, i) != BUCKET_COMM) continue;
        const uint32_t row = collective_of(r, i);
        const Collective *c = row == EVENT_NONE ? &none : &e->collectives[row];
        const Cell kernel = cell_text(event_name(e, i));
        const char *library = mover_library(event_name(e, i));
        TRY(TABLE_ROW(&rows->t, rank, text_of(r, c->group), text_of(r, c->ranks),
                      c->name == 0 ? kernel : text_of(r, c->name), cell_count(c->group_size),
                      text_of(r, c->dtype), cell_count(c->in_elements), cell_count(c->out_elements),
                      text_of(r, c->in_split), text_of(r, c->out_split),
                      cell_count(report_stream(r, i)), size_of(r, c, c->in_elements),
                      size_of(r, c, c->out_elements), cell_number(e->dur[i]),
                      cell_count(row == EVENT_NONE ? -1 : (int64_t)row),
                      row == EVENT_NONE ? kernel : cell_none(),
                      library == NULL ? cell_none() : cell_text(library)));
    }
    return OK;
}

/* Kernels with equal records on one stream are one row. A trace without collectives has no such
 * sheet. */
Status sheet_coll_analysis(Report *r, Table *out)
{
    static const Fold fold = {
        .rows = "rank|group|ranks|name|size|dtype|in|out|in split|out split|stream|in mb|out mb|us|"
                "record|kernel|library",
        .keys = "record|stream|kernel",
        .by = "us",
        .columns = "rank=first rank|Process Group Name=first group|Process Group Ranks=first ranks|"
                   "Collective name=first name|Group size=first size|dtype=first dtype|"
                   "In msg nelems=first in|Out msg nelems=first out|In split size=first in split|"
                   "Out split size=first out split|stream=first stream|"
                   "In msg size (MB)_first=first in mb|Out msg size (MB)_first=first out mb|"
                   "dur_*=sum,mean,std,min,max us|operation_count=n|Library=first library",
        .optional = true
    };
    return report_fold(r, &fold, fill_collectives, NULL, out);
}

/* Kernels that count as computation, and whose names sound like moving data. A name is asked once. */
static Status fill_maybe(Report *r, FoldRows *rows)
{
    uint8_t *seen = NULL; /* by name: 0 not asked yet, 1 no, 2 yes */
    TRY(ARENA_ZEROED(r->arena, r->e->strings.n, &seen));
    for (int64_t k = 0; k < r->gpus; k++) {
        const uint32_t i = r->gpu[k];
        uint8_t *s = &seen[r->e->name[i]];
        if (*s == 0) *s = mover_maybe(event_name(r->e, i)) ? 2 : 1;
        if (*s == 2 && report_bucket(r, i) == BUCKET_COMPUTATION)
            TRY(TABLE_ROW(&rows->t, cell_text(event_name(r->e, i)), cell_number(r->e->dur[i])));
    }
    rows->whole[0] = r->total_us;
    return OK;
}

Status sheet_maybe_comm(Report *r, Table *out)
{
    static const Fold fold = { .rows = "kernel|us",
                               .keys = "kernel",
                               .by = "us",
                               .columns = "Kernel name=first kernel|count=n|time ms=ms us|"
                                          "Percent of total time (%)=share0 us",
                               .optional = true };
    return report_fold(r, &fold, fill_maybe, NULL, out);
}
