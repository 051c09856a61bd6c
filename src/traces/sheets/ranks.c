/* ranks: see ranks.h. Each file is checked when it is added, against the first file and all before
 * it. So an error comes before the next file is read. */
#include "traces/sheets/ranks.h"

static const char COLUMNS[] =
    "rank|file|computation_time ms|exposed_comm_time ms|exposed_memcpy_time ms|busy_time ms|"
    "idle_time ms|total_time ms|total_comm_time ms|total_memcpy_time ms|wall ms|unlinked";

Status ranks_init(Ranks *r, char **path, int files, Arena *a)
{
    *r = (Ranks){ .path = path };
    TRY(ARENA_NEW(a, files, &r->rank));
    return table_init(&r->table, "gpu_timeline_by_rank", COLUMNS, "", a);
}

/* Either all files have a rank or none has. Without ranks, only a file that is named twice can be
 * noticed. */
static Status check_rank(Ranks *r, const Events *e)
{
    const int file = r->n;
    char **path = r->path;
    r->rank[file] = e->rank;
    if (file == 0) r->world = e->world;
    if ((e->rank < 0) != (r->rank[0] < 0))
        return FAIL(ERR_ARG, "%s has no rank (distributedInfo), %s has one: name files of one run",
                    path[e->rank < 0 ? file : 0], path[e->rank < 0 ? 0 : file]);
    if (e->world != r->world)
        return FAIL(ERR_ARG,
                    "%s is of a run of %lld ranks, %s of one of %lld: name files of one run",
                    path[file], (long long)e->world, path[0], (long long)r->world);
    if (r->begun == NULL || r->run == 0) r->begun = path[file], r->run = e->run;
    TRY(events_same_run(r->begun, r->run, path[file], e->run));
    for (int i = 0; i < file; i++) {
        if (e->rank < 0 && file_same(path[i], path[file]))
            return FAIL(ERR_ARG, "%s is named twice: name each rank once", path[file]);
        if (e->rank >= 0 && r->rank[i] == e->rank)
            return FAIL(ERR_ARG, "%s and %s are both rank %lld: name each rank once", path[i],
                        path[file], (long long)e->rank);
    }
    return OK;
}

/* Without ranks, files are numbered in the order in which they are named. */
Status ranks_add(Ranks *r, const Report *report)
{
    const Events *e = report->e;
    double us[TIMELINE_ROWS];
    const char *name = NULL;
    int64_t alone = 0;
    TRY(check_rank(r, e));
    TRY(report_timeline(report, us));
    TRY(file_last_part(e->path, r->table.arena, &name));
    for (int64_t k = 0; k < report->gpus; k++)
        alone += report->tree->parent[report->gpu[k]] == EVENT_NONE;
    TRY(TABLE_ROW(&r->table, cell_whole(e->rank < 0 ? r->n : e->rank), cell_text(name)));
    for (int i = 0; i < TIMELINE_ROWS; i++) TABLE_MORE(&r->table, cell_number(us[i] / 1e3));
    TABLE_MORE(&r->table, cell_number(report_wall(report) / 1e3), cell_whole(alone));
    r->n++;
    return OK;
}

/* One file alone is no attempt at a whole run, so nothing is said of others. */
Status ranks_missing(const Ranks *r, Text *out)
{
    int64_t missing = 0, first = -1;
    for (int64_t rank = 0; rank < r->world && r->rank[0] >= 0; rank++) {
        int i = 0;
        while (i < r->n && r->rank[i] != rank) i++;
        if (i < r->n) continue;
        if (missing++ == 0) first = rank;
    }
    if (r->n < 2 || missing == 0) return OK;
    return text_printf(out, "\n%lld of %lld ranks are missing, rank %lld first\n",
                       (long long)missing, (long long)r->world, (long long)first);
}
