/* sheet_ops: device time by the operator that launched it, by kind of operator, and by operator with
 * the shapes of its arguments. */
#include "analyze/python_text.h"
#include "analyze/report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CATEGORIES_MOST = 128, KEYS = 9, SHORT_NAME = 64 };

/* Launchers by keys, with the sums of their times. */
typedef struct OpGroups {
    Groups g;
    double *direct;
    double total, before; /* of all sums; of those that have rows */
    const char *category[CATEGORIES_MOST];
    int categories;
} OpGroups;

static uint32_t category_number(OpGroups *og, const char *category)
{
    int i = 0;
    while (i < og->categories && strcmp(og->category[i], category) != 0) i++;
    if (i == og->categories && i + 1 < CATEGORIES_MOST) og->category[og->categories++] = category;
    return (uint32_t)i;
}

static const char *launcher_name(const Report *r, const Launcher *l)
{
    return l->event == EVENT_NONE ? "(unlinked)" : event_name(r->e, l->event);
}

typedef enum By { BY_NAME, BY_CATEGORY, BY_ARGS } By;

static void set_key(const Report *r, OpGroups *og, const Launcher *l, By by, uint32_t key[KEYS])
{
    const Events *e = r->e;
    const Track *t = l->event == EVENT_NONE ? NULL : &e->tracks[e->track[l->event]];
    memset(key, 0, KEYS * sizeof *key);
    key[0] = l->recompute && r->o->recompute;
    key[1] = by == BY_CATEGORY || l->event == EVENT_NONE ? 0 : e->name[l->event];
    key[2] = l->event == EVENT_NONE;
    if (by != BY_NAME) key[3] = category_number(og, l->category);
    if (by == BY_ARGS && t == NULL) key[8] = e->name[r->own[l->first]];
    if (by != BY_ARGS || t == NULL) return;
    key[4] = l->args;
    key[5] = t->process_name;
    key[6] = t->process_label;
    key[7] = t->thread_name;
}

static Status group_ops(const Report *r, By by, OpGroups *og)
{
    uint32_t *key = NULL;
    memset(og, 0, sizeof *og);
    TRY(ARENA_NEW(r->arena, r->launchers * KEYS + 1, &key));
    TRY(ARENA_NEW(r->arena, r->launchers + 1, &og->direct));
    for (int64_t i = 0; i < r->launchers; i++) {
        set_key(r, og, &r->launcher[i], by, key + i * KEYS);
        og->direct[i] = r->launcher[i].direct_us;
    }
    TRY(groups_ranked(key, KEYS, og->direct, r->launchers, r->arena, &og->g));
    for (int64_t g = 0; g < og->g.n; g++) og->total += og->g.sum[g];
    return OK;
}

/* What share of all time the next group's sum is. */
typedef struct Shares {
    Cell own, so_far, of_total;
} Shares;

static Shares shares_of(const Report *r, OpGroups *og, double sum)
{
    og->before += report_percent(sum, og->total);
    return (Shares){ cell_number(report_percent(sum, og->total)), cell_number(og->before),
                     cell_number(report_percent(sum, r->total_us)) };
}

Status sheet_ops_by_category(Report *r, Table *out)
{
    OpGroups og;
    TRY(sheet_columns(r,
                      "op category|?is_recompute|Count|total_direct_kernel_time_ms|Percentage (%)|"
                      "Cumulative Percentage (%)|Percent of total time (%)",
                      out));
    TRY(group_ops(r, BY_CATEGORY, &og));
    for (int64_t k = 0; k < og.g.n; k++) {
        int64_t n = 0;
        const Launcher *first = &r->launcher[*groups_rows(&og.g, k, &n)];
        const Shares share = shares_of(r, &og, og.g.sum[k]);
        TRY(TABLE_ROW(out, cell_text(first->category), cell_bool(first->recompute), cell_whole(n),
                      cell_number(og.g.sum[k] / 1e3), share.own, share.so_far, share.of_total));
    }
    return OK;
}

/* ['elementwise', 'other']: each category once, in the order of their first launchers. */
static Status category_list(const Report *r, const uint32_t *row, int64_t n, Cell *out)
{
    Text t;
    OpGroups seen = { 0 };
    TRY(text_init(&t, r->arena));
    for (int64_t i = 0; i < n; i++) {
        int before = seen.categories;
        const char *category = r->launcher[row[i]].category;
        if (category_number(&seen, category) != (uint32_t)before) continue;
        TRY(text_printf(&t, i == 0 ? "[" : ", "));
        TRY(python_string(&t, category, strlen(category)));
    }
    TRY(text_printf(&t, "]"));
    *out = cell_text(t.data);
    return OK;
}

Status sheet_ops_summary(Report *r, Table *out)
{
    OpGroups og;
    TRY(sheet_columns(r,
                      "name|?is_recompute|total_direct_kernel_time_sum|"
                      "total_subtree_kernel_time_sum|total_direct_kernel_time_ms|"
                      "total_subtree_kernel_time_ms|Count|Categories|Percentage (%)|"
                      "Cumulative Percentage (%)|Percent of total time (%)",
                      out));
    TRY(group_ops(r, BY_NAME, &og));
    for (int64_t k = 0; k < og.g.n; k++) {
        int64_t n = 0;
        const uint32_t *row = groups_rows(&og.g, k, &n);
        const Launcher *first = &r->launcher[*row];
        const Shares share = shares_of(r, &og, og.g.sum[k]);
        double sum = og.g.sum[k], subtree = 0;
        Cell categories;
        for (int64_t i = 0; i < n; i++) subtree += r->launcher[row[i]].subtree_us;
        TRY(category_list(r, row, n, &categories));
        TRY(TABLE_ROW(out, cell_text(launcher_name(r, first)), cell_bool(first->recompute),
                      cell_number(sum), cell_number(subtree), cell_number(sum / 1e3),
                      cell_number(subtree / 1e3), cell_whole(n), categories, share.own,
                      share.so_far, share.of_total));
    }
    return OK;
}

/* ---- kernels by their place among those of a launcher ---- */

typedef struct Place {
    uint32_t event; /* of the first launcher */
    const char *name;
    Summary s;
} Place;

static int by_total(const void *a, const void *b)
{
    const Place *x = a, *y = b;
    if (x->s.sum != y->s.sum) return x->s.sum < y->s.sum ? -1 : 1;
    int names = strcmp(x->name, y->name);
    return names != 0 ? names : (x->event > y->event) - (x->event < y->event);
}

static Status put_place(const Report *r, Text *t, const Place *p, bool full)
{
    static const char *const NAME[] = { "total", "mean", "median", "std_dev", "min", "max" };
    const double value[] = { p->s.sum, p->s.mean, p->s.median, summary_std_all(&p->s),
                             p->s.min, p->s.max };
    size_t n = strlen(p->name);
    int32_t stream = report_stream(r, p->event);
    TRY(text_printf(t, "{'name': "));
    if (full || n <= SHORT_NAME) {
        TRY(python_string(t, p->name, n));
    } else {
        char brief[SHORT_NAME + 4];
        (void)snprintf(brief, sizeof brief, "%.*s...", SHORT_NAME, p->name);
        TRY(python_string(t, brief, strlen(brief)));
    }
    TRY(stream < 0 ? text_printf(t, ", 'stream': None") : text_printf(t, ", 'stream': %d", stream));
    if (!full) {
        TRY(text_printf(t, ", 'mean_duration_us': "));
        TRY(python_float64(t, nearbyint(p->s.mean * 100) / 100));
        return text_printf(t, "}");
    }
    TRY(text_printf(t, ", 'count': %lld", (long long)p->s.n));
    for (int i = 0; i < 6; i++) {
        TRY(text_printf(t, ", '%s_duration_us': ", NAME[i]));
        TRY(python_float64(t, value[i]));
    }
    return text_printf(t, "}");
}

static Status put_places(const Report *r, const Place *place, int64_t n, bool full, Cell *out)
{
    Text t;
    TRY(text_init(&t, r->arena));
    TRY(text_printf(&t, "["));
    for (int64_t i = 0; i < n; i++) {
        if (i > 0) TRY(text_printf(&t, ", "));
        TRY(put_place(r, &t, &place[i], full));
    }
    TRY(text_printf(&t, "]"));
    *out = cell_text(t.data);
    return OK;
}

Status report_details(const Report *r, const Work *call, int64_t n, Cell *full, Cell *brief)
{
    const uint32_t places = call[0].n;
    Place *place = NULL;
    double *dur = NULL;
    TRY(ARENA_NEW(r->arena, places + 1, &place));
    TRY(ARENA_NEW(r->arena, n + 1, &dur));
    int64_t m = 0, *alike = NULL;
    TRY(ARENA_NEW(r->arena, n + 1, &alike));
    for (int64_t i = 0; i < n; i++)
        if (call[i].n == places) alike[m++] = i;
    for (uint32_t k = 0; k < places; k++) {
        place[k].event = call[0].gpu[k];
        place[k].name = event_name(r->e, place[k].event);
        for (int64_t i = 0; i < m; i++) dur[i] = r->e->dur[call[alike[i]].gpu[k]];
        TRY(summary_of(dur, NULL, m, r->arena, &place[k].s));
    }
    qsort(place, places, sizeof *place, by_total);
    TRY(put_places(r, place, places, true, full));
    return put_places(r, place, places, false, brief);
}

static Status launcher_details(const Report *r, const uint32_t *launcher, int64_t n, Cell *full,
                               Cell *brief)
{
    Work *call = NULL;
    TRY(ARENA_NEW(r->arena, n, &call));
    for (int64_t i = 0; i < n; i++) {
        const Launcher *l = &r->launcher[launcher[i]];
        call[i] = (Work){ r->own + l->first, l->n };
    }
    return report_details(r, call, n, full, brief);
}

/* ---- operators with their arguments ---- */

Cell report_label(const Report *r, uint32_t text)
{
    return cell_text(text == 0 ? "Unknown" : strings_text(&r->e->strings, text));
}

Status report_put_op(const Report *r, Cell name, const Launcher *l, Table *out)
{
    static const OpArgs none = { 0 };
    static const Track nowhere = { 0 };
    const Events *e = r->e;
    const Track *t = l->event == EVENT_NONE ? &nowhere : &e->tracks[e->track[l->event]];
    TRY(TABLE_ROW(out, name, cell_text(l->category), report_label(r, t->process_name),
                  report_label(r, t->process_label), report_label(r, t->thread_name)));
    TRY(report_put_args(r, l->args == EVENT_NONE ? &none : &e->args[l->args], true, out));
    TABLE_MORE(out, cell_bool(l->recompute));
    return OK;
}

Status sheet_ops_unique_args(Report *r, Table *out)
{
    OpGroups og;
    double *subtree = NULL;
    TRY(sheet_columns(
        r,
        "name|op category|process_name|process_label|thread_name|Input Dims|Input type|"
        "Input Strides|Concrete Inputs|?is_recompute|operation_count|"
        "total_direct_kernel_time_mean|total_subtree_kernel_time_mean|"
        "total_direct_kernel_time_median|total_subtree_kernel_time_median|"
        "total_direct_kernel_time_std|total_subtree_kernel_time_std|"
        "total_direct_kernel_time_min|total_subtree_kernel_time_min|"
        "total_direct_kernel_time_max|total_subtree_kernel_time_max|"
        "total_direct_kernel_time_sum|total_subtree_kernel_time_sum|ex_UID|"
        "kernel_details_summary|trunc_kernel_details|Percentage (%)|Cumulative Percentage (%)|"
        "Percent of total time (%)",
        out));
    TRY(group_ops(r, BY_ARGS, &og));
    TRY(ARENA_NEW(r->arena, r->launchers + 1, &subtree));
    for (int64_t i = 0; i < r->launchers; i++) subtree[i] = r->launcher[i].subtree_us;
    for (int64_t k = 0; k < og.g.n; k++) {
        int64_t n = 0;
        const uint32_t *row = groups_rows(&og.g, k, &n);
        const Launcher *first = &r->launcher[*row];
        const Shares share = shares_of(r, &og, og.g.sum[k]);
        uint32_t event = first->event == EVENT_NONE ? r->own[first->first] : first->event;
        Summary own, all;
        Cell full, brief;
        TRY(summary_of(og.direct, row, n, r->arena, &own));
        TRY(summary_of(subtree, row, n, r->arena, &all));
        TRY(launcher_details(r, row, n, &full, &brief));
        TRY(report_put_op(r, cell_text(launcher_name(r, first)), first, out));
        TABLE_MORE(out, cell_whole(n), cell_number(own.mean), cell_number(all.mean),
                   cell_number(own.median), cell_number(all.median), cell_number(own.std),
                   cell_number(all.std), cell_number(own.min), cell_number(all.min),
                   cell_number(own.max), cell_number(all.max), cell_number(own.sum),
                   cell_number(all.sum), cell_whole(r->e->index[event]), full, brief, share.own,
                   share.so_far, share.of_total);
    }
    return OK;
}
