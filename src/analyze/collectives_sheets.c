/* collectives_sheets: tables of collectives. Columns that TraceLens has stand first, in its order. */
#include "analyze/collectives.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Lists of columns are words; what stands behind the first list is not in --compat tracelens. */
static const char LONG[] =
    "collective_id|index_in_group|rank|Process Group Name|Process Group Ranks|"
    "Collective name|Group size|dtype|In msg nelems|In msg size (MB)|"
    "Out msg nelems|Out msg size (MB)|In split size|Out split size|stream|ts|"
    "dur";
static const char LONG_MORE[] = "peer|kernel|start_us|wait_us|flag";
static const char SYNC[] = "collective_id|Process Group Name|Process Group Ranks|Collective name|"
                           "Group size|dtype|In msg nelems|Out msg nelems|In msg size (MB)|"
                           "Out msg size (MB)|Full msg size (MB)|comm_latency|skew in start time|"
                           "earliest arrival rank|avg_wait_time|skew in end time|algo bw (GB/s)|"
                           "bus bw (GB/s)";
static const char SYNC_MORE[] =
    "Process Group Description|start_us|last start to end (us)|latest arrival rank|ranks|flag|"
    "late_us|cause|cause_where|cause_us";
static const char VARIED[] = "collective_id|Process Group Name|Process Group Ranks|Collective name|"
                             "Group size|dtype|stream|total data communicated (MB)|"
                             "total nelems communicated|wall_time (us)|max_rank_dur (us)|"
                             "min_rank_dur (us)|avg_rank_dur (us)|throughput (GB/s)|"
                             "max_rank_throughput (GB/s)|min_rank_throughput (GB/s)|size_imbalance|"
                             "skew in start time|skew in end time";
static const char STRAGGLER[] = "rank|total_wait_time_us|mean_wait_time_us|times_arrived_last|"
                                "times_arrived_first|pct_arrived_last|num_collectives|"
                                "total_nccl_dur_us|node_id";
static const char STRAGGLER_MORE[] = "caused_wait_us|late_us|cause|cause_where|cause_us";

typedef struct Sheet {
    const Collectives *c;
    Table *t;
    Cell *at, *end; /* of the row under way */
    int64_t room;
    const char **column;
} Sheet;

/* ---- columns and cells ---- */

static Status add_columns(Sheet *s, const char *prefix, const char *words)
{
    int n = 0;
    const char *w = NULL;
    for (int i = 0; (w = text_word(words, i, &n)) != NULL; i++) {
        Text t = { 0 };
        TRY(ARENA_GROW(s->c->arena, s->t->columns + 1, &s->room, &s->column));
        TRY(text_init(&t, s->c->arena));
        TRY(text_printf(&t, "%s%.*s", prefix, n, w));
        s->column[s->t->columns++] = t.data;
    }
    s->t->column = s->column;
    return OK;
}

static Status sheet_init(Sheet *s, const Collectives *c, Table *t, const char *name,
                         const char *columns, const char *more)
{
    *s = (Sheet){ .c = c, .t = t };
    TRY(table_init(t, name, NULL, 0, c->arena));
    TRY(add_columns(s, "", columns));
    return c->options.compat || more == NULL ? OK : add_columns(s, "", more);
}

static Status row(Sheet *s)
{
    TRY(table_row(s->t, &s->at));
    s->end = s->at + s->t->columns;
    return OK;
}

static void put(Sheet *s, Cell cell)
{
    if (s->at < s->end) *s->at++ = cell;
}

static void put_text(Sheet *s, const char *x) { put(s, *x == '\0' ? (Cell){ 0 } : cell_text(x)); }
static void put_whole(Sheet *s, int64_t x) { put(s, x < 0 ? (Cell){ 0 } : cell_whole(x)); }
static void put_number(Sheet *s, double x) { put(s, cell_number(x)); }

static void put_id(Sheet *s, uint32_t text) { put_text(s, strings_text(&s->c->strings, text)); }

/* What it is called, else what its kernel's name says. */
static void put_name(Sheet *s, const CollectiveCall *x)
{
    if (x->what.name == 0 && !s->c->options.compat)
        put_text(s, collective_rule[x->kind].name);
    else
        put_id(s, x->what.name);
}

static int column_of(const Table *t, const char *name)
{
    int i = 0;
    while (i < t->columns && strcmp(t->column[i], name) != 0) i++;
    return i < t->columns ? i : -1;
}

static double number_in(const Cell *x)
{
    return x->type == CELL_NUMBER  ? x->number
           : x->type == CELL_WHOLE ? (double)x->whole
                                   : (double)NAN;
}

/* ---- groups of rows ---- */

/* A column of a summary: a column of the table, and how its values become one: mean, std, median,
 * min, max, sum, sum_ms (divided by 1000), first, count. Of several words each is a column
 * COLUMN_WORD; of one the name is `as` if there is one. */
typedef struct Part {
    const char *column, *how, *as;
} Part;

typedef struct Rows {
    const Table *t;
    int key[16], keys;
    int order; /* of sorted rows: by this column, falling; -1: by the keys */
} Rows;

static int compare_cells(const Cell *a, const Cell *b)
{
    if (a->type == CELL_TEXT && b->type == CELL_TEXT) return strcmp(a->text, b->text);
    if (a->type != b->type) return a->type == CELL_NONE ? 1 : b->type == CELL_NONE ? -1 : 0;
    double x = number_in(a), y = number_in(b);
    return (x > y) - (x < y);
}

static int compare_rows(const void *a, const void *b, void *state)
{
    const Rows *r = state;
    const int64_t i = *(const int64_t *)a, j = *(const int64_t *)b;
    const Cell *x = r->t->cell + i * r->t->columns, *y = r->t->cell + j * r->t->columns;
    int way = r->order < 0 ? 0 : -compare_cells(&x[r->order], &y[r->order]);
    for (int k = 0; k < r->keys && way == 0 && r->order < 0; k++)
        way = compare_cells(&x[r->key[k]], &y[r->key[k]]);
    return way != 0 ? way : (i > j) - (i < j);
}

static Status sort_rows(const Rows *r, Arena *a, int64_t **out)
{
    TRY(ARENA_NEW(a, r->t->rows, out));
    for (int64_t i = 0; i < r->t->rows; i++) (*out)[i] = i;
    Rows state = *r;
    qsort_r(*out, (size_t)r->t->rows, sizeof **out, compare_rows, &state);
    return OK;
}

/* Rows by a column, falling. */
static Status sort_table(Table *t, const char *column)
{
    int64_t *at = NULL;
    Cell *cell = NULL;
    const Rows by = { .t = t, .order = column_of(t, column) };
    TRY(sort_rows(&by, t->arena, &at));
    TRY(ARENA_NEW(t->arena, t->rows * t->columns, &cell));
    for (int64_t i = 0; i < t->rows; i++)
        memcpy(cell + i * t->columns, t->cell + at[i] * t->columns,
               (size_t)t->columns * sizeof *cell);
    t->cell = cell;
    t->room = t->rows * t->columns;
    return OK;
}

/* The values of a column in rows at[0 .. n) as one; x has room for n. */
static Cell fold(const Table *t, const int64_t *at, int64_t n, int column, const char *how,
                 double *x)
{
    double sum = 0, squares = 0;
    int64_t k = 0;
    for (int64_t i = 0; i < n; i++) {
        const Cell *cell = &t->cell[at[i] * t->columns + column];
        if (strcmp(how, "first") == 0 && cell->type != CELL_NONE) return *cell;
        double v = number_in(cell);
        if (!isnan(v)) sum += x[k++] = v;
    }
    if (strcmp(how, "count") == 0) return cell_whole(n);
    if (strcmp(how, "sum") == 0) return cell_number(sum);
    if (strcmp(how, "sum_ms") == 0) return cell_number(sum / 1000);
    if (k == 0) return (Cell){ 0 };
    for (int64_t i = 0; i < k; i++) squares += (x[i] - sum / (double)k) * (x[i] - sum / (double)k);
    if (strcmp(how, "mean") == 0) return cell_number(sum / (double)k);
    if (strcmp(how, "std") == 0)
        return cell_number(k > 1 ? sqrt(squares / (double)(k - 1)) : (double)NAN);
    double median = collectives_median(x, k); /* sorts */
    return cell_number(strcmp(how, "min") == 0   ? x[0]
                       : strcmp(how, "max") == 0 ? x[k - 1]
                                                 : median);
}

typedef struct Summary {
    const char *name, *keys, *order; /* order: a column, falling; NULL: as the keys */
    const Part *part;
    int parts;
    bool compat;         /* rows without a key and bandwidths without a value are left out */
    const char *hide;    /* rows are left out where this column is not empty; NULL: none */
    const char *unknown; /* NULL, or what stands for a missing key, so that its row stays */
} Summary;

static bool has_values(const Table *t, int column)
{
    bool any = false;
    for (int64_t i = 0; i < t->rows; i++)
        any |= !isnan(number_in(&t->cell[i * t->columns + column]));
    return any;
}

static Status part_columns(Sheet *s, const Part *p)
{
    int words = 0, n = 0;
    char prefix[128];
    while (text_word(p->how, words, &n) != NULL) words++;
    if (words == 1) return add_columns(s, "", p->as != NULL ? p->as : p->column);
    (void)snprintf(prefix, sizeof prefix, "%s_", p->column);
    return add_columns(s, prefix, p->how);
}

static void put_part(Sheet *s, const Table *from, const Part *p, const int64_t *at, int64_t n,
                     double *room)
{
    int length = 0;
    const char *w = NULL;
    for (int i = 0; (w = text_word(p->how, i, &length)) != NULL; i++) {
        char how[16];
        (void)snprintf(how, sizeof how, "%.*s", length, w);
        put(s, fold(from, at, n, column_of(from, p->column), how, room));
    }
}

/* A flag does not keep a collective out of the sums, but "partial" and "border outlier" do. */
static bool counts(const Cell *flag)
{
    return flag->type == CELL_NONE || strcmp(flag->text, "outlier") == 0;
}

static Status summarise(const Collectives *c, const Table *from, const Summary *o, Table *out)
{
    Rows by = { .t = from, .order = -1 };
    int64_t *at = NULL, n = 0;
    double *room = NULL;
    bool skip[16] = { false };
    Sheet s;
    TRY(sheet_init(&s, c, out, o->name, o->keys, NULL));
    by.keys = out->columns;
    for (int i = 0; i < by.keys; i++) by.key[i] = column_of(from, out->column[i]);
    for (int i = 0; i < o->parts; i++) {
        skip[i] = o->compat && strstr(o->part[i].column, " bw ") != NULL &&
                  !has_values(from, column_of(from, o->part[i].column));
        if (!skip[i]) TRY(part_columns(&s, &o->part[i]));
    }
    TRY(sort_rows(&by, c->arena, &at));
    TRY(ARENA_NEW(c->arena, from->rows, &room));
    for (int64_t i = 0; i < from->rows; i++) { /* those that count */
        const Cell *x = from->cell + at[i] * from->columns;
        bool take = o->hide == NULL || counts(&x[column_of(from, o->hide)]);
        for (int k = 0; k < by.keys && o->compat && o->unknown == NULL; k++)
            take &= x[by.key[k]].type != CELL_NONE;
        if (take) at[n++] = at[i];
    }
    for (int64_t i = 0, size = 0; i < n; i += size) {
        const Cell *x = from->cell + at[i] * from->columns;
        bool same = true;
        for (size = 1; same && i + size < n; size += same) {
            const Cell *y = from->cell + at[i + size] * from->columns;
            for (int k = 0; k < by.keys; k++)
                same &= compare_cells(&x[by.key[k]], &y[by.key[k]]) == 0;
        }
        TRY(row(&s));
        for (int k = 0; k < by.keys; k++)
            put(&s, x[by.key[k]].type == CELL_NONE && o->unknown != NULL ? cell_text(o->unknown)
                                                                         : x[by.key[k]]);
        for (int k = 0; k < o->parts; k++) {
            if (!skip[k]) put_part(&s, from, &o->part[k], at + i, size, room);
        }
    }
    return o->order == NULL ? OK : sort_table(out, o->order);
}

/* ---- rows of collectives ---- */

static void put_cause(Sheet *s, bool known, uint32_t name, bool host, double us)
{
    const char *text = strings_text(&s->c->strings, name);
    put_text(s, !known ? "" : *text == '\0' ? "(nothing recorded)" : text);
    put_text(s, !known ? "" : host ? "host" : "device");
    put_number(s, known ? us : (double)NAN);
}

static Status put_collective_id(Sheet *s, const CollectiveSlot *x)
{
    const CollectiveGroup *g = &s->c->groups[x->group];
    Text t = { 0 };
    TRY(text_init(&t, s->c->arena));
    if (!s->c->simplified) TRY(text_printf(&t, "%s_", g->name));
    TRY(text_printf(&t, "%lld", (long long)x->index));
    put_text(s, t.data);
    return OK;
}

static void put_node(Sheet *s, int64_t rank)
{
    put_whole(s, s->c->gpus_per_node > 0 ? rank / s->c->gpus_per_node : -1);
}

static Status long_sheet(const Collectives *c, Table *t)
{
    Sheet s;
    TRY(sheet_init(&s, c, t, "nccl_long", LONG, NULL));
    if (c->gpus_per_node > 0 || !c->options.compat) TRY(add_columns(&s, "", "node_id|node_span"));
    if (!c->options.compat) TRY(add_columns(&s, "", LONG_MORE));
    for (int64_t i = 0; i < c->n_calls; i++) {
        const CollectiveCall *x = &c->calls[c->by_rank[i]];
        const CollectiveSlot *slot = &c->slots[x->slot];
        const CollectiveGroup *g = &c->groups[x->group];
        TRY(row(&s));
        TRY(put_collective_id(&s, slot));
        put_whole(&s, slot->index);
        put_whole(&s, c->ranks[x->rank].rank);
        put_text(&s, g->name);
        put_text(&s, g->ranks);
        put_name(&s, x);
        put_whole(&s, x->what.group_size);
        put_id(&s, x->what.dtype);
        put_whole(&s, x->what.in_elements);
        put_number(&s, collectives_mb(c, x, false));
        put_whole(&s, x->what.out_elements);
        put_number(&s, collectives_mb(c, x, true));
        put_id(&s, x->what.in_split);
        put_id(&s, x->what.out_split);
        put_whole(&s, x->stream);
        put_number(&s, x->ts);
        put_number(&s, x->dur);
        put_node(&s, c->ranks[x->rank].rank);
        put_text(&s, g->span);
        put_whole(&s, x->what.peer);
        put_id(&s, x->kernel);
        put_number(&s, x->start);
        put_number(&s, slot->arrived - x->start);
        put_text(&s, slot->flag);
    }
    return OK;
}

/* Slots as their sheets list them: by first appearance in rank after rank, or by time. */
static Status listed(const Collectives *c, const CollectiveSlot ***out, int64_t *n, bool varied)
{
    bool *seen = NULL;
    TRY(ARENA_NEW(c->arena, c->n_slots, out));
    TRY(ARENA_ZEROED(c->arena, c->n_slots, &seen));
    *n = 0;
    for (int64_t i = 0; i < c->n_calls; i++) {
        const CollectiveCall *x = &c->calls[c->by_rank[i]];
        const CollectiveSlot *s = &c->slots[x->slot];
        const CollectiveKind kind = (CollectiveKind)c->calls[s->call].kind;
        bool sync =
            !c->options.compat || kind <= ALL_TO_ALL || (c->simplified && kind == OTHER_COLLECTIVE);
        if (seen[x->slot] || !(varied ? kind == ALL_TO_ALLV : sync)) continue;
        seen[x->slot] = true;
        (*out)[(*n)++] = s;
    }
    return OK;
}

/* Columns rank_R_NAME: of a slot's new ranks those of `first`, then those of `then`. */
static Status rank_columns(Sheet *s, const CollectiveSlot *const *slot, int64_t n,
                           const char *first, const char *then, int *at[2])
{
    const Collectives *c = s->c;
    TRY(ARENA_ZEROED(c->arena, c->n_ranks, &at[0]));
    TRY(ARENA_ZEROED(c->arena, c->n_ranks, &at[1]));
    for (int64_t i = 0; i < n; i++) {
        for (int which = 0; which < 2; which++) {
            for (int64_t k = slot[i]->call; k < slot[i]->call + slot[i]->calls; k++) {
                int32_t r = c->calls[k].rank;
                char prefix[32];
                if (at[which][r] > 0) continue;
                at[which][r] = s->t->columns;
                (void)snprintf(prefix, sizeof prefix, "rank_%lld_", (long long)c->ranks[r].rank);
                TRY(add_columns(s, prefix, which == 0 ? first : then));
            }
        }
    }
    return c->gpus_per_node > 0 || !c->options.compat ? add_columns(s, "", "node_span") : OK;
}

static Status sync_row(Sheet *s, const CollectiveSlot *x)
{
    const Collectives *c = s->c;
    const CollectiveGroup *g = &c->groups[x->group];
    const CollectiveCall *call = &c->calls[x->call], *first = call + x->first;
    TRY(put_collective_id(s, x));
    put_text(s, g->name);
    put_text(s, g->ranks);
    put_name(s, call);
    put_whole(s, call->what.group_size);
    put_id(s, call->what.dtype);
    put_whole(s, call->what.in_elements);
    put_whole(s, call->what.out_elements);
    put_number(s, collectives_mb(c, call, false));
    put_number(s, collectives_mb(c, call, true));
    put_number(s, x->mb);
    put_number(s, x->latency);
    put_number(s, x->skew_start);
    put_whole(s, c->ranks[first->rank].rank);
    put_number(s, x->wait_sum / (double)x->calls);
    put_number(s, x->skew_end);
    put_number(s, x->algorithm_bw);
    put_number(s, x->bus_bw);
    if (c->options.compat) return OK;
    put_text(s, g->description);
    put_number(s, first->start);
    put_number(s, x->exchange);
    put_whole(s, c->ranks[call[x->last].rank].rank);
    put_whole(s, x->calls);
    put_text(s, x->flag);
    put_number(s, x->late);
    put_cause(s, x->cause_us > 0, x->cause, x->cause_host, x->cause_us);
    return OK;
}

static Status sync_sheet(const Collectives *c, Table *t)
{
    Sheet s;
    const CollectiveSlot **slot = NULL;
    int64_t n = 0;
    int *at[2];
    TRY(sheet_init(&s, c, t, "nccl_implicit_sync", SYNC, SYNC_MORE));
    TRY(listed(c, &slot, &n, false));
    TRY(rank_columns(&s, slot, n, "ts|dur", "wait_time", at));
    for (int64_t i = 0; i < n; i++) {
        TRY(row(&s));
        TRY(sync_row(&s, slot[i]));
        Cell *cell = s.end - s.t->columns;
        for (int64_t k = slot[i]->call; k < slot[i]->call + slot[i]->calls; k++) {
            const CollectiveCall *x = &c->calls[k];
            cell[at[0][x->rank]] = cell_number(x->ts);
            cell[at[0][x->rank] + 1] = cell_number(x->dur);
            cell[at[1][x->rank]] = cell_number(slot[i]->arrived - x->start);
        }
        if (strcmp(t->column[t->columns - 1], "node_span") == 0)
            s.end[-1] = cell_text(c->groups[slot[i]->group].span);
    }
    return OK;
}

/* all_to_allv: ranks bring different amounts, so its time is from the first start to the last end. */
static Status varied_row(Sheet *s, const CollectiveSlot *x, int *at[2])
{
    const Collectives *c = s->c;
    const CollectiveGroup *g = &c->groups[x->group];
    const CollectiveCall *call = &c->calls[x->call];
    const double gb = c->options.compat ? 1024 : 1000;
    double n = (double)x->calls, mb = 0, longest = 0, sum = 0, most = 0;
    double fastest = (double)NAN, slowest = (double)NAN;
    double wall = x->arrived - call[x->first].start + x->exchange;
    int64_t elements = 0;
    Cell *cell = s->at;
    for (int64_t i = 0; i < x->calls; i++) {
        double in = collectives_mb(c, call + i, false);
        double rate = in > 0 && call[i].dur > 0 ? in / gb / (call[i].dur / 1e6) : (double)NAN;
        Cell *mine = cell + at[0][call[i].rank], *skew = cell + at[1][call[i].rank];
        mb += in;
        elements += call[i].what.in_elements;
        longest = fmax(longest, call[i].dur);
        sum += call[i].dur;
        most = fmax(most, in);
        fastest = fmax(fastest, rate);
        slowest = fmin(slowest, rate);
        mine[0] = cell_number(call[i].ts);
        mine[1] = cell_number(call[i].dur);
        mine[2] = cell_whole(call[i].what.in_elements);
        mine[3] = cell_whole(call[i].what.out_elements);
        mine[4] = cell_number(in);
        mine[5] = cell_number(collectives_mb(c, call + i, true));
        mine[6] = cell_text(strings_text(&c->strings, call[i].what.in_split));
        mine[7] = cell_text(strings_text(&c->strings, call[i].what.out_split));
        skew[0] = cell_number(call[i].start - call[x->first].start);
        skew[1] = cell_number(x->arrived + x->exchange - call[i].end);
    }
    TRY(put_collective_id(s, x));
    put_text(s, g->name);
    put_text(s, g->ranks);
    put_name(s, call);
    put_whole(s, call->what.group_size);
    put_id(s, call->what.dtype);
    put_whole(s, call->stream);
    put_number(s, mb);
    put_whole(s, elements);
    put_number(s, wall);
    put_number(s, longest);
    put_number(s, x->latency);
    put_number(s, sum / n);
    put_number(s, wall > 0 ? mb / gb / (wall / 1e6) : (double)NAN);
    put_number(s, fastest);
    put_number(s, slowest);
    put_number(s, mb > 0 ? most / (mb / n) : (double)NAN);
    put_number(s, x->skew_start);
    put_number(s, x->skew_end);
    if (strcmp(s->t->column[s->t->columns - 1], "node_span") == 0) s->end[-1] = cell_text(g->span);
    return OK;
}

static Status varied_sheet(const Collectives *c, Table *t)
{
    Sheet s;
    const CollectiveSlot **slot = NULL;
    int64_t n = 0;
    int *at[2];
    TRY(sheet_init(&s, c, t, "nccl_all2allv", VARIED, NULL));
    TRY(listed(c, &slot, &n, true));
    TRY(rank_columns(&s, slot, n,
                     "ts|dur|In msg nelems|Out msg nelems|In msg size (MB)|Out msg size (MB)|"
                     "In split size|Out split size",
                     "skew in start time|skew in end time", at));
    for (int64_t i = 0; i < n; i++) {
        TRY(row(&s));
        TRY(varied_row(&s, slot[i], at));
    }
    return sort_table(t, "total data communicated (MB)");
}

/* What rank sends to rank: split j of a group goes to its j-th member, a rank of the world. TraceLens
 * takes j itself for the rank. */
static Status heatmap(const Collectives *c, Table *t)
{
    Sheet s;
    Table sends;
    const Part parts[] = { { "MB", "sum", "total_sent_MB" },
                           { "MB", "mean", "avg_sent_MB" },
                           { "MB", "count", "count" } };
    const Summary by_pair = {
        .name = "nccl_all2allv_heatmap", .keys = "src_rank|dst_rank", .part = parts, .parts = 3
    };
    TRY(sheet_init(&s, c, &sends, "sends", "src_rank|dst_rank|MB", NULL));
    for (int64_t i = 0; i < c->n_calls; i++) {
        const CollectiveCall *x = &c->calls[c->by_rank[i]];
        const CollectiveGroup *g = &c->groups[x->group];
        double all = collectives_mb(c, x, false), each = all / (double)x->what.in_elements;
        int64_t j = 0;
        if (x->kind != ALL_TO_ALLV || !(all > 0)) continue;
        for (const char *p = strings_text(&c->strings, x->what.in_split); *p != '\0'; j++) {
            char *end = NULL;
            p += strcspn(p, "0123456789");
            long long elements = strtoll(p, &end, 10);
            if (end == p || (!c->options.compat && j >= g->members)) break;
            p = end;
            TRY(row(&s));
            put_whole(&s, c->ranks[x->rank].rank);
            put_whole(&s, c->options.compat ? j : g->member[j]);
            put_number(&s, (double)elements * each);
        }
    }
    return summarise(c, &sends, &by_pair, t);
}

/* ---- who makes whom wait ---- */

typedef struct Blame {
    double wait, caused, late, dur;
    int64_t slots, waits, last, first;
} Blame;

static Status causes_sheet(const Collectives *c, Table *t)
{
    Sheet s;
    Table all;
    const Part parts[] = { { "us", "sum", "cause_us" }, { "us", "count", "collectives" } };
    const Summary by_cause = { .name = "straggler_causes",
                               .keys = "rank|cause|where",
                               .order = "cause_us",
                               .part = parts,
                               .parts = 2 };
    TRY(sheet_init(&s, c, &all, "causes", "rank|cause|where|us", NULL));
    for (int64_t i = 0; i < c->n_slots; i++) {
        const CollectiveSlot *x = &c->slots[i];
        if (x->cause_us <= 0 || x->flag[0] == 'p' || x->flag[0] == 'b') continue;
        TRY(row(&s));
        put_whole(&s, c->ranks[c->calls[x->call + x->last].rank].rank);
        put_cause(&s, true, x->cause, x->cause_host, x->cause_us);
    }
    return summarise(c, &all, &by_cause, t);
}

static Status blame_of(const Collectives *c, Blame **out, int64_t *slots)
{
    const CollectiveSlot **slot = NULL;
    Blame *b = NULL;
    int64_t n = 0;
    TRY(ARENA_ZEROED(c->arena, c->n_ranks, out));
    TRY(listed(c, &slot, &n, false));
    b = *out;
    *slots = 0;
    for (int64_t i = 0; i < c->n_calls; i++) b[c->calls[i].rank].dur += c->calls[i].dur;
    for (int64_t i = 0; i < n; i++) {
        const CollectiveCall *x = &c->calls[slot[i]->call];
        if (!c->options.compat && (slot[i]->flag[0] == 'p' || slot[i]->flag[0] == 'b')) continue;
        if (!c->options.compat && slot[i]->calls < 2) continue;
        ++*slots;
        for (int64_t k = 0; k < slot[i]->calls; k++) {
            b[x[k].rank].wait += slot[i]->arrived - x[k].start;
            b[x[k].rank].slots++;
        }
        b[x[slot[i]->first].rank].first++;
        Blame *late = &b[x[slot[i]->last].rank];
        late->last++;
        late->caused += slot[i]->wait_sum;
        late->late += slot[i]->late;
    }
    return OK;
}

static Status straggler_sheet(const Collectives *c, const Table *causes, Table *t)
{
    Sheet s;
    Blame *blame = NULL;
    int64_t n = 0;
    bool compat = c->options.compat;
    TRY(blame_of(c, &blame, &n));
    TRY(sheet_init(&s, c, t, "straggler_summary", STRAGGLER, STRAGGLER_MORE));
    if (compat && c->gpus_per_node <= 0) t->columns--;
    for (int64_t r = 0; r < c->n_ranks; r++) {
        const Blame *b = &blame[r];
        if (b->slots == 0) continue;
        int64_t all = compat ? n : b->slots;
        const double round = compat ? 10 : 1e3;
        TRY(row(&s));
        put_whole(&s, c->ranks[r].rank);
        put_number(&s, nearbyint(b->wait * round) / round);
        put_number(&s, nearbyint(b->wait / (double)b->slots * round) / round);
        put_whole(&s, b->last);
        put_whole(&s, b->first);
        put_number(&s, nearbyint(100.0 * (double)b->last / (double)all * round) / round);
        put_whole(&s, all);
        put_number(&s, nearbyint(b->dur * round) / round);
        put_node(&s, c->ranks[r].rank);
        put_number(&s, b->caused);
        put_number(&s, b->late);
        for (int64_t i = 0; i < causes->rows; i++) {
            const Cell *x = causes->cell + i * causes->columns;
            if (x[0].whole != c->ranks[r].rank) continue;
            put(&s, x[1]), put(&s, x[2]), put(&s, x[3]);
            break;
        }
    }
    if (!compat) return sort_table(t, "caused_wait_us");
    for (int64_t i = 0; i < t->rows; i++) t->cell[i * t->columns + 1].number *= -1; /* rising */
    TRY(sort_table(t, "total_wait_time_us"));
    for (int64_t i = 0; i < t->rows; i++) t->cell[i * t->columns + 1].number *= -1;
    return OK;
}

static Status clock_sheet(const Collectives *c, Table *t)
{
    Sheet s;
    TRY(sheet_init(&s, c, t, "clocks",
                   "rank|file|rank_from|offset_us|drift_ppm|spread_us|collectives", NULL));
    for (int64_t i = 0; i < c->n_ranks; i++) {
        const CollectiveRank *r = &c->ranks[i];
        TRY(row(&s));
        put_whole(&s, r->rank);
        put_text(&s, r->path);
        put_text(&s, r->rank_from);
        put_number(&s, r->offset_us);
        put_number(&s, r->drift * 1e6);
        put_number(&s, r->spread_us);
        put_whole(&s, r->points);
    }
    return OK;
}

/* ---- all ---- */

#define FOUR "mean|median|min|max"

Status collectives_sheets(const Collectives *c, Table sheet[COLLECTIVE_SHEETS], int *n)
{
    static const Part sync[] = { { "Process Group Name", "first", NULL },
                                 { "Group size", "first", NULL },
                                 { "Full msg size (MB)", "first", NULL },
                                 { "comm_latency", FOUR, NULL },
                                 { "skew in start time", FOUR, NULL },
                                 { "skew in end time", FOUR, NULL },
                                 { "algo bw (GB/s)", FOUR, NULL },
                                 { "bus bw (GB/s)", FOUR, NULL },
                                 { "comm_latency", "count", "count" },
                                 { "comm_latency", "sum_ms", "Total comm latency (ms)" } };
    static const Part calls[] = { { "In msg size (MB)", "first", "In msg size (MB)_first" },
                                  { "Out msg size (MB)", "first", "Out msg size (MB)_first" },
                                  { "dur", "sum|mean|std|min|max", NULL },
                                  { "dur", "count", "operation_count" },
                                  { "node_id", "first", NULL },
                                  { "node_span", "first", NULL } };
    static const Part varied[] = { { "total data communicated (MB)", FOUR, NULL },
                                   { "wall_time (us)", FOUR, NULL },
                                   { "wall_time (us)", "sum", "Total wall_time (us)" },
                                   { "throughput (GB/s)", FOUR, NULL },
                                   { "size_imbalance", "mean|max", NULL },
                                   { "max_rank_dur (us)", "mean|max", NULL },
                                   { "skew in start time", "mean|max", NULL },
                                   { "skew in end time", "mean|max", NULL },
                                   { "wall_time (us)", "count", "count" },
                                   { "Process Group Ranks", "first", NULL },
                                   { "Collective name", "first", NULL },
                                   { "Group size", "first", NULL },
                                   { "wall_time (us)", "sum_ms", "Total wall_time (ms)" },
                                   { "node_span", "first", NULL } };
    static const Part group[] = { { "Group size", "first", NULL },
                                  { "node_span", "first", NULL },
                                  { "comm_latency", "count", "count" },
                                  { "comm_latency", "sum_ms", "Total comm latency (ms)" },
                                  { "avg_wait_time", "sum_ms", "Mean wait of a rank (ms)" },
                                  { "skew in start time", FOUR, NULL },
                                  { "bus bw (GB/s)", FOUR, NULL } };
    const bool compat = c->options.compat, nodes = !compat || c->gpus_per_node > 0;
    Table *lines = &sheet[2], *slots = &sheet[3], *all2allv = &sheet[5];
    TRY(long_sheet(c, lines));
    TRY(sync_sheet(c, slots));
    TRY(varied_sheet(c, all2allv));
    const char *flag = compat ? NULL : "flag", *latency = "Total comm latency (ms)";
    const Summary sizes = { .name = "nccl_summary_implicit_sync",
                            .keys = compat ? "Collective name|dtype|In msg nelems"
                                           : "Collective name|dtype|In msg nelems|"
                                             "Process Group Name|node_span",
                            .order = latency,
                            .part = sync + !compat,
                            .parts = 10 - !compat,
                            .compat = compat,
                            .hide = flag,
                            .unknown = compat ? "Unknown" : NULL };
    const Summary of_calls = { .name = "nccl_summary_long",
                               .keys =
                                   "rank|Process Group Name|Process Group Ranks|Collective name|"
                                   "Group size|dtype|In msg nelems|Out msg nelems|In split size|"
                                   "Out split size|stream",
                               .order = "dur_sum",
                               .part = calls,
                               .parts = nodes ? 6 : 4,
                               .compat = compat };
    const Summary of_varied = { .name = "nccl_summary_all2allv",
                                .keys = "Process Group Name|dtype",
                                .order = "Total wall_time (ms)",
                                .part = varied,
                                .parts = nodes ? 14 : 13,
                                .compat = compat };
    const Summary of_groups = { .name = "nccl_summary_group",
                                .keys = "Process Group Name|Process Group Description|"
                                        "Process Group Ranks",
                                .order = latency,
                                .part = group,
                                .parts = 7,
                                .hide = flag };
    TRY(summarise(c, slots, &sizes, &sheet[0]));
    TRY(summarise(c, lines, &of_calls, &sheet[1]));
    TRY(summarise(c, all2allv, &of_varied, &sheet[4]));
    TRY(heatmap(c, &sheet[6]));
    *n = 8;
    if (compat) return straggler_sheet(c, &sheet[6], &sheet[7]);
    TRY(causes_sheet(c, &sheet[8]));
    TRY(straggler_sheet(c, &sheet[8], &sheet[7]));
    TRY(summarise(c, slots, &of_groups, &sheet[9]));
    TRY(clock_sheet(c, &sheet[10]));
    *n = 11;
    return OK;
}
