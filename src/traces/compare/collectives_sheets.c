/*
 * collectives_sheets: the tables of collectives.
 *
 * Three tables are made directly: by call, by collective, and by all_to_allv. The summaries are
 * folds of them (fold.h). Columns that TraceLens also has come first, in its order, so that scripts
 * read both. Nothing is measured here: collectives.c does that.
 */
#include "traces/compare/collectives.h"
#include "traces/table/fold.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Marks of columns that not all rules have (CollectiveRules.lacks): + is ours, ? is others'. A column
 * with @ needs the number of GPUs per node. */
static const char
    LONG[] = "collective_id|index_in_group|rank|Process Group Name|Process Group Ranks|"
             "Collective name|Group size|dtype|In msg nelems|In msg size (MB)|Out msg nelems|"
             "Out msg size (MB)|In split size|Out split size|stream|ts|dur|@node_id|@node_span|"
             "+peer|+kernel|+start_us|+wait_us|+flag",
    SYNC[] = "collective_id|Process Group Name|Process Group Ranks|Collective name|Group size|"
             "dtype|In msg nelems|Out msg nelems|In msg size (MB)|Out msg size (MB)|"
             "Full msg size (MB)|comm_latency|skew in start time|earliest arrival rank|"
             "avg_wait_time|skew in end time|algo bw (GB/s)|bus bw (GB/s)|"
             "+Process Group Description|+start_us|+last start to end (us)|+latest arrival rank|"
             "+ranks|+flag|+late_us|+cause|+cause_where|+cause_us",
    VARIED[] = "collective_id|Process Group Name|Process Group Ranks|Collective name|Group size|"
               "dtype|stream|total data communicated (MB)|total nelems communicated|"
               "wall_time (us)|max_rank_dur (us)|min_rank_dur (us)|avg_rank_dur (us)|"
               "throughput (GB/s)|max_rank_throughput (GB/s)|min_rank_throughput (GB/s)|"
               "size_imbalance|skew in start time|skew in end time",
    STRAGGLER[] = "rank|total_wait_time_us|mean_wait_time_us|times_arrived_last|"
                  "times_arrived_first|pct_arrived_last|num_collectives|total_nccl_dur_us|"
                  "@node_id|+caused_wait_us|+late_us|+cause|+cause_where|+cause_us";

/* ---- columns and cells ---- */

/* TraceLens has no columns of nodes where the number of GPUs per node is unknown; ours stay and are
 * empty. */
static bool has_nodes(const Collectives *c)
{
    return !c->options.rules->drop_unknown || c->gpus_per_node > 0;
}

/* The marks of columns that this run's sheets lack. */
static const char *left_out(const Collectives *c)
{
    return has_nodes(c) ? c->options.rules->lacks : c->options.rules->lacks_nodes;
}

static Status begin_sheet(const Collectives *c, Table *t, const char *name, const char *columns)
{
    return table_init(t, name, columns, left_out(c), c->arena);
}

static Cell text_cell(const char *x) { return cell_text(*x == '\0' ? NULL : x); }
static Cell string_cell(const Collectives *c, uint32_t x)
{
    return text_cell(strings_text(&c->strings, x));
}
static Cell rank_cell(const Collectives *c, const CollectiveCall *x)
{
    return cell_count(c->ranks[x->rank].rank);
}

const char *collective_name(const Collectives *c, const CollectiveCall *x)
{
    if (x->what.name != 0 || c->options.rules->kernel_alone)
        return strings_text(&c->strings, x->what.name);
    return x->kind == OTHER_COLLECTIVE ? strings_text(&c->strings, x->kernel)
                                       : collective_rule[x->kind].name;
}

static Cell name_cell(const Collectives *c, const CollectiveCall *x)
{
    return text_cell(collective_name(c, x));
}

/* The node of a rank, counted from 0; empty if the GPUs per node are not known. */
static Cell node_cell(const Collectives *c, int32_t rank_row)
{
    int64_t each = c->gpus_per_node;
    return each > 0 ? cell_count(c->ranks[rank_row].rank / each) : cell_none();
}

/* cause_us is 0 where no cause was found. */
static Cell cause_text(const Collectives *c, const CollectiveSlot *x)
{
    const char *what = strings_text(&c->strings, x->cause);
    return x->cause_us <= 0 ? cell_none() : cell_text(*what == '\0' ? "(nothing recorded)" : what);
}

/* Where the cause ran: device work, or the host while the device was idle. */
static Cell cause_where(const CollectiveSlot *x)
{
    return x->cause_us <= 0 ? cell_none() : cell_text(x->cause_host ? "host" : "device");
}

/* "GROUP_INDEX", as in TraceLens. */
static Status collective_id(const Collectives *c, const CollectiveSlot *x, Cell *out)
{
    Text t = { 0 };
    TRY(text_init(&t, c->arena));
    if (!c->simplified) TRY(text_printf(&t, "%s_", c->groups[x->group].name));
    TRY(text_printf(&t, "%lld", (long long)x->index));
    *out = cell_text(t.data);
    return OK;
}

/* ---- summaries ---- */

/* A sheet that folds another one. `keys` become its first columns, `columns` those after them. */
typedef struct Summing {
    const char *name, *keys, *by, *columns;
    bool in_sums;        /* leaves out rows whose flag says that they are in no sum */
    const char *unknown; /* text instead of a missing key; NULL: it stays empty */
} Summing;

/* The key columns of a table that is folded. */
typedef struct Keys {
    const Table *t;
    int at[16], n;
} Keys;

/* Texts by strcmp, numbers by value, empty cells last. */
static int compare_cells(const Cell *a, const Cell *b)
{
    if (a->type == CELL_TEXT && b->type == CELL_TEXT) return strcmp(a->text, b->text);
    if (a->type != b->type) return a->type == CELL_NONE ? 1 : b->type == CELL_NONE ? -1 : 0;
    double x = cell_value(a), y = cell_value(b);
    return (x > y) - (x < y);
}

static int compare_rows(const void *a, const void *b, void *state)
{
    const Keys *k = state;
    const int64_t i = *(const int64_t *)a, j = *(const int64_t *)b;
    for (int n = 0; n < k->n; n++) {
        int order = compare_cells(table_at(k->t, i, k->at[n]), table_at(k->t, j, k->at[n]));
        if (order != 0) return order;
    }
    return (i > j) - (i < j);
}

/* Sorts rows by the numbers of a column: falling, or with sign -1 rising. Equal rows keep their
 * order. Rows without a number come last. */
static Status sort_table(Table *t, const char *column, double sign)
{
    double *value = NULL;
    uint32_t *row = NULL;
    Cell *cell = NULL;
    TRY(ARENA_NEW(t->arena, t->rows, &value));
    for (int64_t i = 0; i < t->rows; i++) {
        double x = cell_value(table_at(t, i, table_column(t, column)));
        value[i] = isnan(x) ? -(double)INFINITY : sign * x;
    }
    TRY(groups_by(value, t->rows, t->arena, &row));
    TRY(ARENA_NEW(t->arena, t->rows * t->columns, &cell));
    for (int64_t i = 0; i < t->rows; i++)
        memcpy(cell + i * t->columns, table_at(t, row[i], 0), (size_t)t->columns * sizeof *cell);
    t->cell = cell;
    t->room = t->rows * t->columns;
    return OK;
}

/* Does a row count? flags: the column of flags, or -1. whole: rows that lack a key do not. */
static bool counts_row(const Keys *k, int64_t row, int flags, bool whole)
{
    const Cell *flag = flags < 0 ? NULL : table_at(k->t, row, flags);
    bool take = flag == NULL || flag->type == CELL_NONE || strcmp(flag->text, "outlier") == 0;
    for (int n = 0; n < k->n && whole; n++)
        take &= table_at(k->t, row, k->at[n])->type != CELL_NONE;
    return take;
}

/* Copies the rows that count, sorted by their keys. So groups with equal sums come by keys. */
static Status copy_counted_rows(const Collectives *c, const Table *from, const Summing *s,
                                Keys *keys, Table *out)
{
    int64_t *row = NULL;
    const int flags = s->in_sums ? table_column(from, "flag") : -1;
    const bool whole = c->options.rules->drop_unknown && s->unknown == NULL;
    TRY(ARENA_NEW(out->arena, from->rows, &row));
    for (int64_t i = 0; i < from->rows; i++)
        if (counts_row(keys, i, flags, whole)) row[out->rows++] = i;
    qsort_r(row, (size_t)out->rows, sizeof *row, compare_rows, keys);
    TRY(ARENA_NEW(out->arena, out->rows * from->columns, &out->cell));
    for (int64_t i = 0; i < out->rows; i++) {
        memcpy(table_at(out, i, 0), table_at(from, row[i], 0),
               (size_t)from->columns * sizeof *out->cell);
        for (int k = 0; k < keys->n && s->unknown != NULL; k++) {
            Cell *cell = table_at(out, i, keys->at[k]);
            if (cell->type == CELL_NONE) *cell = cell_text(s->unknown);
        }
    }
    return OK;
}

/* Finds the key columns that this run has, and puts them before the other columns of the fold. */
static Status read_keys(const Collectives *c, const Table *from, const Summing *s, Arena *a,
                        Keys *keys, Fold *fold)
{
    Table names = { 0 };
    Text text = { 0 };
    TRY(table_init(&names, "", s->keys, left_out(c), a));
    *keys = (Keys){ .t = from, .n = names.columns };
    TRY(text_init(&text, a));
    for (int i = 0; i < keys->n; i++) {
        keys->at[i] = table_column(from, names.column[i]);
        TRY(text_printf(&text, "%s=first %s|", names.column[i], names.column[i]));
    }
    TRY(text_printf(&text, "%s", s->columns));
    fold->columns = text.data;
    TRY(text_init(&text, a));
    for (int i = 0; i < keys->n; i++)
        TRY(text_printf(&text, i == 0 ? "%s" : "|%s", names.column[i]));
    fold->keys = text.data;
    return OK;
}

/* Drops the columns of bandwidths that are unknown in all rows. */
static Status drop_unknown_rates(Table *t)
{
    for (int i = t->columns - 1; i >= 0; i--) {
        bool any = strstr(t->column[i], " bw ") == NULL;
        for (int64_t k = 0; k < t->rows; k++) any |= !isnan(cell_value(table_at(t, k, i)));
        if (!any) TRY(table_drop(t, t->column[i]));
    }
    return OK;
}

/* Makes a summary. The copied rows lie in scratch memory, because there may be millions. */
static Status fold_sheet(const Collectives *c, const Table *from, const Summing *s, Table *out)
{
    FoldRows rows = { .t = *from };
    Fold fold = { .by = s->by };
    Keys keys;
    Arena scratch = { 0 };
    TRY(arena_reserve(&scratch, "summary", (size_t)64 << 30));
    rows.t.arena = &scratch;
    rows.t.rows = 0;
    out->name = s->name;
    Status status = read_keys(c, from, s, &scratch, &keys, &fold);
    if (status == OK) status = copy_counted_rows(c, from, s, &keys, &rows.t);
    if (status == OK) status = fold_rows(&rows, &fold, left_out(c), c->arena, out);
    arena_free(&scratch);
    TRY(status);
    return c->options.rules->drop_unknown ? drop_unknown_rates(out) : OK;
}

/* ---- collectives ---- */

/* One row for each call of each rank. */
static Status long_sheet(const Collectives *c, Table *t)
{
    TRY(begin_sheet(c, t, "nccl_long", LONG));
    for (int64_t i = 0; i < c->n_calls; i++) {
        const CollectiveCall *x = &c->calls[c->by_rank[i]];
        const CollectiveSlot *slot = &c->slots[x->slot];
        const CollectiveGroup *g = &c->groups[x->group];
        const Collective *w = &x->what;
        Cell number;
        TRY(collective_id(c, slot, &number));
        TRY(TABLE_ROW(t, number, cell_count(slot->index), rank_cell(c, x), text_cell(g->name),
                      text_cell(g->ranks), name_cell(c, x), cell_count(w->group_size),
                      string_cell(c, w->dtype), cell_count(w->in_elements),
                      cell_number(collectives_mb(c, x, false)), cell_count(w->out_elements),
                      cell_number(collectives_mb(c, x, true)), string_cell(c, w->in_split),
                      string_cell(c, w->out_split), cell_count(x->stream), cell_number(x->ts),
                      cell_number(x->dur), node_cell(c, x->rank), text_cell(g->span),
                      cell_count(w->peer), string_cell(c, x->kernel), cell_number(x->start),
                      cell_number(slot->arrived - x->start), text_cell(slot->flag)));
    }
    return OK;
}

/* Lists the collectives in the order of their sheets: by where they first appear, rank after
 * rank. */
static Status list_slots(const Collectives *c, bool varied, const CollectiveSlot ***out, int64_t *n)
{
    bool *seen = NULL;
    TRY(ARENA_NEW(c->arena, c->n_slots, out));
    TRY(ARENA_ZEROED(c->arena, c->n_slots, &seen));
    *n = 0;
    for (int64_t i = 0; i < c->n_calls; i++) {
        const CollectiveSlot *s = &c->slots[c->calls[c->by_rank[i]].slot];
        const CollectiveKind kind = (CollectiveKind)c->calls[s->call].kind;
        bool sync = !c->options.rules->main_kinds || kind <= ALL_TO_ALL ||
                    (c->simplified && kind == OTHER_COLLECTIVE);
        if (seen[s - c->slots] || !(varied ? kind == ALL_TO_ALLV : sync)) continue;
        seen[s - c->slots] = true;
        (*out)[(*n)++] = s;
    }
    return OK;
}

/* Adds columns rank_R_NAME for two lists of names. Ranks come in the order in which they first appear
 * in collectives. at[list][rank]: the index of that rank's first column. */
static Status rank_columns(const Collectives *c, const CollectiveSlot *const *slot, int64_t n,
                           const char *const words[2], int *at[2], Table *t)
{
    TRY(ARENA_ZEROED(c->arena, c->n_ranks, &at[0]));
    TRY(ARENA_ZEROED(c->arena, c->n_ranks, &at[1]));
    for (int64_t i = 0; i < 2 * n; i++) {
        const CollectiveSlot *x = slot[i / 2];
        for (int64_t k = x->call; k < x->call + x->calls; k++) {
            int *at_rank = &at[i % 2][c->calls[k].rank];
            char prefix[32];
            if (*at_rank > 0) continue;
            *at_rank = t->columns;
            (void)snprintf(prefix, sizeof prefix, "rank_%lld_",
                           (long long)c->ranks[c->calls[k].rank].rank);
            TRY(table_add(t, prefix, words[i % 2], ""));
        }
    }
    return table_add(t, "", "@node_span", left_out(c));
}

/* Sizes and names are those of the lowest rank's call, which is the first one of a slot. */
static Status sync_row(const Collectives *c, const CollectiveSlot *x, Table *t)
{
    const CollectiveGroup *g = &c->groups[x->group];
    const CollectiveCall *call = &c->calls[x->call], *first = call + x->first;
    const Collective *w = &call->what;
    Cell number;
    TRY(collective_id(c, x, &number));
    return TABLE_ROW(
        t, number, text_cell(g->name), text_cell(g->ranks), name_cell(c, call),
        cell_count(w->group_size), string_cell(c, w->dtype), cell_count(w->in_elements),
        cell_count(w->out_elements), cell_number(collectives_mb(c, call, false)),
        cell_number(collectives_mb(c, call, true)), cell_number(x->mb), cell_number(x->latency),
        cell_number(x->skew_start), rank_cell(c, first),
        cell_number(x->wait_sum / (double)x->calls), cell_number(x->skew_end),
        cell_number(x->algorithm_bw), cell_number(x->bus_bw), text_cell(g->description),
        cell_number(first->start), cell_number(x->exchange), rank_cell(c, call + x->last),
        cell_count(x->calls), text_cell(x->flag), cell_number(x->late), cause_text(c, x),
        cause_where(x), cell_number(x->cause_us));
}

/* One row for each collective, with the start, duration and wait of each rank in columns at the
 * end. Ranks that do not take part have empty cells. */
static Status sync_sheet(const Collectives *c, Table *t)
{
    static const char *const words[] = { "ts|dur", "wait_time" };
    const CollectiveSlot **slot = NULL;
    int64_t n = 0;
    int *at[2];
    TRY(begin_sheet(c, t, "nccl_implicit_sync", SYNC));
    TRY(list_slots(c, false, &slot, &n));
    TRY(rank_columns(c, slot, n, words, at, t));
    for (int64_t i = 0; i < n; i++) {
        TRY(sync_row(c, slot[i], t));
        Cell *cell = table_at(t, t->rows - 1, 0);
        for (int64_t k = slot[i]->call; k < slot[i]->call + slot[i]->calls; k++) {
            const CollectiveCall *x = &c->calls[k];
            cell[at[0][x->rank]] = cell_number(x->ts);
            cell[at[0][x->rank] + 1] = cell_number(x->dur);
            cell[at[1][x->rank]] = cell_number(slot[i]->arrived - x->start);
        }
        if (has_nodes(c)) cell[t->columns - 1] = text_cell(c->groups[slot[i]->group].span);
    }
    return OK;
}

/* In all_to_allv ranks bring different amounts. So its time runs from the first start to the last
 * end, and its bandwidth is that of all data together. */
static Status varied_row(const Collectives *c, const CollectiveSlot *x, int *at[2], Table *t)
{
    const CollectiveGroup *g = &c->groups[x->group];
    const CollectiveCall *call = &c->calls[x->call];
    const double gb = c->options.rules->gb, first = call[x->first].start;
    double n = (double)x->calls, mb = 0, longest = 0, sum = 0, most = 0, unknown = (double)NAN;
    double fastest = unknown, slowest = unknown, wall = x->arrived - first + x->exchange;
    int64_t elements = 0;
    Cell number;
    for (const CollectiveCall *k = call; k < call + x->calls; k++) {
        double in = collectives_mb(c, k, false);
        double rate = in > 0 && k->dur > 0 ? in / gb / (k->dur / 1e6) : unknown;
        mb += in;
        elements += k->what.in_elements;
        longest = fmax(longest, k->dur);
        sum += k->dur;
        most = fmax(most, in);
        fastest = fmax(fastest, rate);
        slowest = fmin(slowest, rate);
    }
    TRY(collective_id(c, x, &number));
    TRY(TABLE_ROW(t, number, text_cell(g->name), text_cell(g->ranks), name_cell(c, call),
                  cell_count(call->what.group_size), string_cell(c, call->what.dtype),
                  cell_count(call->stream), cell_number(mb), cell_count(elements),
                  cell_number(wall), cell_number(longest), cell_number(x->latency),
                  cell_number(sum / n), cell_number(wall > 0 ? mb / gb / (wall / 1e6) : unknown),
                  cell_number(fastest), cell_number(slowest),
                  cell_number(mb > 0 ? most / (mb / n) : unknown), cell_number(x->skew_start),
                  cell_number(x->skew_end)));
    Cell *cell = table_at(t, t->rows - 1, 0);
    for (const CollectiveCall *k = call; k < call + x->calls; k++) {
        const Collective *w = &k->what;
        const Cell mine[] = { cell_number(k->ts),
                              cell_number(k->dur),
                              cell_count(w->in_elements),
                              cell_count(w->out_elements),
                              cell_number(collectives_mb(c, k, false)),
                              cell_number(collectives_mb(c, k, true)),
                              string_cell(c, w->in_split),
                              string_cell(c, w->out_split) };
        memcpy(cell + at[0][k->rank], mine, sizeof mine);
        cell[at[1][k->rank]] = cell_number(k->start - first);
        cell[at[1][k->rank] + 1] = cell_number(x->arrived + x->exchange - k->end);
    }
    if (has_nodes(c)) cell[t->columns - 1] = text_cell(g->span);
    return OK;
}

/* One row for each all_to_allv, the largest first. */
static Status varied_sheet(const Collectives *c, Table *t)
{
    static const char *const words[] = {
        "ts|dur|In msg nelems|Out msg nelems|In msg size (MB)|Out msg size (MB)|In split size|"
        "Out split size",
        "skew in start time|skew in end time"
    };
    const CollectiveSlot **slot = NULL;
    int64_t n = 0;
    int *at[2];
    TRY(begin_sheet(c, t, "nccl_all2allv", VARIED));
    TRY(list_slots(c, true, &slot, &n));
    TRY(rank_columns(c, slot, n, words, at, t));
    for (int64_t i = 0; i < n; i++) TRY(varied_row(c, slot[i], at, t));
    return sort_table(t, "total data communicated (MB)", 1);
}

/* The MB that each rank sends to each other rank. Split j goes to the j-th member of the group.
 * TraceLens takes j itself as a rank of the world. */
static Status heatmap_sheet(const Collectives *c, Table *t)
{
    static const Summing by_pair = { .name = "nccl_all2allv_heatmap",
                                     .keys = "src_rank|dst_rank",
                                     .columns =
                                         "total_sent_MB=sum MB|avg_sent_MB=mean MB|count=n" };
    Table sends;
    int32_t *split = NULL;
    int64_t most = c->n_ranks;
    for (int64_t i = 0; i < c->n_groups; i++)
        most = c->groups[i].members > most ? c->groups[i].members : most;
    TRY(ARENA_NEW(c->arena, most, &split));
    TRY(begin_sheet(c, &sends, "sends", "src_rank|dst_rank|MB"));
    for (int64_t i = 0; i < c->n_calls; i++) {
        const CollectiveCall *x = &c->calls[c->by_rank[i]];
        const CollectiveGroup *g = &c->groups[x->group];
        double all = collectives_mb(c, x, false), each = all / (double)x->what.in_elements;
        if (x->kind != ALL_TO_ALLV || !(all > 0)) continue;
        int64_t n = collectives_wholes(strings_text(&c->strings, x->what.in_split), split,
                                       c->options.rules->files_are_ranks ? c->n_ranks : g->members);
        for (int64_t j = 0; j < n; j++)
            TRY(TABLE_ROW(&sends, rank_cell(c, x),
                          cell_count(c->options.rules->files_are_ranks ? j : g->member[j]),
                          cell_number((double)split[j] * each)));
    }
    TRY(fold_sheet(c, &sends, &by_pair, t));
    TRY(sort_table(t, "dst_rank", -1));
    return sort_table(t, "src_rank", -1);
}

/* ---- ranks that make others wait ---- */

/* A rank's part in all collectives: how long it waited, and how long it made others wait. */
typedef struct Blame {
    double wait, caused, late, dur;
    int64_t slots, last, first;
} Blame;

/* By rank, the work that made it late, with the time that it cost. */
static Status causes_sheet(const Collectives *c, Table *t)
{
    static const Summing by_cause = { .name = "straggler_causes",
                                      .keys = "rank|cause|where",
                                      .by = "us",
                                      .columns = "cause_us=sum us|collectives=n" };
    Table all;
    TRY(begin_sheet(c, &all, "causes", "rank|cause|where|us"));
    for (const CollectiveSlot *x = c->slots; x < c->slots + c->n_slots; x++) {
        if (x->cause_us > 0 && collective_in_sums(x))
            TRY(TABLE_ROW(&all, rank_cell(c, &c->calls[x->call + x->last]), cause_text(c, x),
                          cause_where(x), cell_number(x->cause_us)));
    }
    return fold_sheet(c, &all, &by_cause, t);
}

/* Kernel time counts for all calls. Waits count only for collectives that sums take, unless the
 * rules say otherwise. */
static Status sum_blame(const Collectives *c, Blame **out, int64_t *slots)
{
    const CollectiveSlot **slot = NULL;
    int64_t n = 0;
    TRY(ARENA_ZEROED(c->arena, c->n_ranks, out));
    TRY(list_slots(c, false, &slot, &n));
    Blame *b = *out;
    *slots = 0;
    for (int64_t i = 0; i < c->n_calls; i++) b[c->calls[i].rank].dur += c->calls[i].dur;
    for (int64_t i = 0; i < n; i++) {
        const CollectiveSlot *s = slot[i];
        const CollectiveCall *x = &c->calls[s->call];
        if (!c->options.rules->all_count && !collective_in_sums(s)) continue;
        ++*slots;
        for (int64_t k = 0; k < s->calls; k++) {
            b[x[k].rank].wait += s->arrived - x[k].start;
            b[x[k].rank].slots++;
        }
        b[x[s->first].rank].first++;
        b[x[s->last].rank].last++;
        b[x[s->last].rank].caused += s->wait_sum;
        b[x[s->last].rank].late += s->late;
    }
    return OK;
}

static double round_to_tenth(double x) { return nearbyint(10 * x) / 10; }

/* `causes` is sorted by time, so the first row of a rank is its main cause. */
static Status straggler_sheet(const Collectives *c, const Table *causes, Table *t)
{
    Blame *blame = NULL;
    int64_t n = 0;
    TRY(sum_blame(c, &blame, &n));
    TRY(begin_sheet(c, t, "straggler_summary", STRAGGLER));
    for (int64_t r = 0; r < c->n_ranks; r++) {
        const Blame *b = &blame[r];
        int64_t all = c->options.rules->all_count ? n : b->slots, k = 0;
        if (b->slots == 0) continue;
        TRY(TABLE_ROW(t, cell_count(c->ranks[r].rank), cell_number(round_to_tenth(b->wait)),
                      cell_number(round_to_tenth(b->wait / (double)b->slots)), cell_count(b->last),
                      cell_count(b->first),
                      cell_number(round_to_tenth(100.0 * (double)b->last / (double)all)),
                      cell_count(all), cell_number(round_to_tenth(b->dur)),
                      node_cell(c, (int32_t)r), cell_number(b->caused), cell_number(b->late)));
        while (k < causes->rows && table_at(causes, k, 0)->whole != c->ranks[r].rank) k++;
        if (k < causes->rows) table_more(t, table_at(causes, k, 1), 3);
    }
    return c->options.rules->causes ? sort_table(t, "caused_wait_us", 1)
                                    : sort_table(t, "total_wait_time_us", -1);
}

/* How each rank's clock was corrected, and how well that fits. */
static Status clock_sheet(const Collectives *c, Table *t)
{
    TRY(begin_sheet(c, t, "clocks",
                    "rank|file|rank_from|offset_us|drift_ppm|spread_us|collectives"));
    for (const CollectiveRank *r = c->ranks; r < c->ranks + c->n_ranks; r++)
        TRY(TABLE_ROW(t, cell_count(r->rank), text_cell(r->path), text_cell(r->rank_from),
                      cell_number(r->offset_us), cell_number(r->drift * 1e6),
                      cell_number(r->spread_us), cell_count(r->points)));
    return OK;
}

/* ---- all ---- */

/* Statistics that most columns of the summaries have. */
#define FOUR "mean,median,min,max"

static const Summing by_size = {
    .name = "nccl_summary_implicit_sync",
    .keys = "Collective name|dtype|In msg nelems|+Process Group Name|+node_span",
    .by = "comm_latency",
    .columns = "?Process Group Name=known Process Group Name|Group size=known Group size|"
               "Full msg size (MB)=known Full msg size (MB)|comm_latency_*=" FOUR " comm_latency|"
               "skew in start time_*=" FOUR " skew in start time|"
               "skew in end time_*=" FOUR " skew in end time|"
               "algo bw (GB/s)_*=" FOUR " algo bw (GB/s)|bus bw (GB/s)_*=" FOUR " bus bw (GB/s)|"
               "count=n|Total comm latency (ms)=ms comm_latency",
    .in_sums = true
};
static const Summing by_call = {
    .name = "nccl_summary_long",
    .keys = "rank|Process Group Name|Process Group Ranks|Collective name|Group size|dtype|"
            "In msg nelems|Out msg nelems|In split size|Out split size|stream",
    .by = "dur",
    .columns = "In msg size (MB)_first=known In msg size (MB)|"
               "Out msg size (MB)_first=known Out msg size (MB)|dur_*=sum,mean,std,min,max dur|"
               "operation_count=n|@node_id=known node_id|@node_span=known node_span"
};
static const Summing by_varied = {
    .name = "nccl_summary_all2allv",
    .keys = "Process Group Name|dtype",
    .by = "wall_time (us)",
    .columns = "total data communicated (MB)_*=" FOUR " total data communicated (MB)|"
               "wall_time (us)_*=" FOUR " wall_time (us)|Total wall_time (us)=sum wall_time (us)|"
               "throughput (GB/s)_*=" FOUR " throughput (GB/s)|"
               "size_imbalance_*=mean,max size_imbalance|"
               "max_rank_dur (us)_*=mean,max max_rank_dur (us)|"
               "skew in start time_*=mean,max skew in start time|"
               "skew in end time_*=mean,max skew in end time|count=n|"
               "Process Group Ranks=known Process Group Ranks|"
               "Collective name=known Collective name|Group size=known Group size|"
               "Total wall_time (ms)=ms wall_time (us)|@node_span=known node_span"
};
static const Summing by_group = {
    .name = "nccl_summary_group",
    .keys = "Process Group Name|Process Group Description|Process Group Ranks",
    .by = "comm_latency",
    .columns = "Group size=known Group size|node_span=known node_span|count=n|"
               "Total comm latency (ms)=ms comm_latency|Mean wait of a rank (ms)=ms avg_wait_time|"
               "skew in start time_*=" FOUR " skew in start time|"
               "bus bw (GB/s)_*=" FOUR " bus bw (GB/s)",
    .in_sums = true
};

/* The indices are the order in which sheets are written. Folds come after the sheets that they
 * fold. */
Status collectives_sheets(const Collectives *c, Table sheet[COLLECTIVE_SHEETS], int *n)
{
    const CollectiveRules *rules = c->options.rules;
    Summing sizes = by_size;
    sizes.in_sums = !rules->all_count;
    sizes.unknown = rules->unknown_key;
    TRY(long_sheet(c, &sheet[2]));
    TRY(sync_sheet(c, &sheet[3]));
    TRY(varied_sheet(c, &sheet[5]));
    TRY(fold_sheet(c, &sheet[3], &sizes, &sheet[0]));
    TRY(fold_sheet(c, &sheet[2], &by_call, &sheet[1]));
    TRY(fold_sheet(c, &sheet[5], &by_varied, &sheet[4]));
    TRY(heatmap_sheet(c, &sheet[6]));
    *n = rules->causes ? COLLECTIVE_SHEETS : 8;
    if (rules->causes) TRY(causes_sheet(c, &sheet[8]));
    TRY(straggler_sheet(c, rules->causes ? &sheet[8] : &(Table){ 0 }, &sheet[7]));
    if (!rules->causes) return OK;
    TRY(fold_sheet(c, &sheet[3], &by_group, &sheet[9]));
    return clock_sheet(c, &sheet[10]);
}
