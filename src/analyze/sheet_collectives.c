/* sheet_collectives: the collectives of one rank by kind and size. */
#include "analyze/report.h"

#include <math.h>
#include <string.h>

/* What the kernel says, else what the operator above its launch says; EVENT_NONE: nobody says. */
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

static Cell size_of(const Report *r, const Collective *c, int64_t elements)
{
    double bytes = event_dtype_bytes(strings_text(&r->e->strings, c->dtype));
    if (isnan(bytes) || elements < 0) return cell_none();
    return cell_number((double)elements * bytes / (1024 * 1024));
}

static Status put_collective(const Report *r, uint32_t gpu, uint32_t row, const Summary *s,
                             Table *out)
{
    static const Collective none = { .in_elements = -1, .out_elements = -1, .group_size = -1 };
    const Collective *of = row == EVENT_NONE ? &none : &r->e->collectives[row];
    const Cell rank = cell_whole(r->e->rank < 0 ? 0 : r->e->rank);
    const Cell name = of->name == 0 ? cell_text(event_name(r->e, gpu)) : text_of(r, of->name);
    return TABLE_ROW(out, rank, text_of(r, of->group), text_of(r, of->ranks), name,
                     cell_count(of->group_size), text_of(r, of->dtype), cell_count(of->in_elements),
                     cell_count(of->out_elements), text_of(r, of->in_split),
                     text_of(r, of->out_split), cell_count(report_stream(r, gpu)),
                     size_of(r, of, of->in_elements), size_of(r, of, of->out_elements),
                     cell_number(s->sum), cell_number(s->mean), cell_number(s->std),
                     cell_number(s->min), cell_number(s->max), cell_whole(s->n));
}

Status sheet_coll_analysis(Report *r, Table *out)
{
    const Events *e = r->e;
    enum { WIDTH = 3 };
    uint32_t *key = NULL, *gpu = NULL;
    double *dur = NULL;
    Groups g;
    int64_t n = 0;
    TRY(ARENA_NEW(r->arena, r->gpus + 1, &gpu));
    for (int64_t k = 0; k < r->gpus; k++) {
        uint32_t i = r->gpu[k];
        if (e->kind[i] == EVENT_KERNEL && report_bucket(r, i) == BUCKET_COMM) gpu[n++] = i;
    }
    TRY(ARENA_NEW(r->arena, n * WIDTH + 1, &key));
    TRY(ARENA_NEW(r->arena, n + 1, &dur));
    for (int64_t k = 0; k < n; k++) {
        uint32_t row = collective_of(r, gpu[k]);
        dur[k] = e->dur[gpu[k]];
        key[k * WIDTH] = row;
        key[k * WIDTH + 1] = (uint32_t)report_stream(r, gpu[k]);
        key[k * WIDTH + 2] = row == EVENT_NONE ? e->name[gpu[k]] : 0;
    }
    TRY(groups_ranked(key, WIDTH, dur, n, r->arena, &g));
    if (n == 0) return OK;
    TRY(sheet_columns(
        r,
        "rank|Process Group Name|Process Group Ranks|Collective name|Group size|dtype|"
        "In msg nelems|Out msg nelems|In split size|Out split size|stream|"
        "In msg size (MB)_first|Out msg size (MB)_first|dur_sum|dur_mean|dur_std|"
        "dur_min|dur_max|operation_count",
        out));
    for (int64_t k = 0; k < g.n; k++) {
        const uint32_t *row = groups_rows(&g, k, &n);
        Summary s;
        TRY(summary_of(dur, row, n, r->arena, &s));
        TRY(put_collective(r, gpu[*row], key[(int64_t)*row * WIDTH], &s, out));
    }
    return OK;
}
