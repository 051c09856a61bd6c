/* collectives_sheets: tables of collectives. Columns that TraceLens has stand first, in its order. */
#include "analyze/collectives.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Words with + before them are not in --compat tracelens; those with @ only where ranks' nodes are
 * known, or said to be unknown. */
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

static bool has_nodes(const Collectives *c) { return !c->options.compat || c->gpus_per_node > 0; }

static const char *left_out(const Collectives *c)
{
    return !c->options.compat ? "" : has_nodes(c) ? "+" : "+@";
}

static Status begin(const Collectives *c, Table *t, const char *name, const char *columns)
{
    return table_init(t, name, columns, left_out(c), c->arena);
}

static Cell text(const char *x) { return cell_text(*x == '\0' ? NULL : x); }
static Cell real(double x) { return cell_number(x); }
static Cell whole(int64_t x) { return cell_count(x); }
static Cell id(const Collectives *c, uint32_t x) { return text(strings_text(&c->strings, x)); }
static Cell rank(const Collectives *c, const CollectiveCall *x)
{
    return whole(c->ranks[x->rank].rank);
}

/* What it is called, else what its kernel's name says, else that name. */
static Cell name(const Collectives *c, const CollectiveCall *x)
{
    if (x->what.name != 0 || c->options.compat) return id(c, x->what.name);
    return x->kind == OTHER_COLLECTIVE ? id(c, x->kernel) : text(collective_rule[x->kind].name);
}

static Cell node(const Collectives *c, int32_t rank_row)
{
    int64_t each = c->gpus_per_node;
    return each > 0 ? whole(c->ranks[rank_row].rank / each) : cell_none();
}

static Cell cause_text(const Collectives *c, const CollectiveSlot *x)
{
    const char *what = strings_text(&c->strings, x->cause);
    return x->cause_us <= 0 ? cell_none() : cell_text(*what == '\0' ? "(nothing recorded)" : what);
}

static Cell cause_where(const CollectiveSlot *x)
{
    return x->cause_us <= 0 ? cell_none() : cell_text(x->cause_host ? "host" : "device");
}

static Status collective_id(const Collectives *c, const CollectiveSlot *x, Cell *out)
{
    Text t = { 0 };
    TRY(text_init(&t, c->arena));
    if (!c->simplified) TRY(text_printf(&t, "%s_", c->groups[x->group].name));
    TRY(text_printf(&t, "%lld", (long long)x->index));
    *out = cell_text(t.data);
    return OK;
}

/* ---- groups of rows ---- */

/* A column of a summary: a column of the table, and how its values become one: mean, std, median,
 * min, max, sum, sum_ms (divided by 1000), first, count. Of several words each is a column
 * COLUMN_WORD; of one the name is `as` if there is one. */
typedef struct Part {
    const char *column, *how, *as;
} Part;

typedef struct Fold {
    const char *name, *keys, *order; /* order: a column, falling; NULL: as the keys */
    const Part *part;
    int parts;
    bool compat;         /* rows without a key and bandwidths without a value are left out */
    const char *hide;    /* a column of flags: rows that are in no sum are left out */
    const char *unknown; /* NULL, or what stands for a missing key, so that its row stays */
} Fold;

typedef struct Rows {
    const Table *t;
    int key[16], keys;
} Rows;

static int compare_cells(const Cell *a, const Cell *b)
{
    if (a->type == CELL_TEXT && b->type == CELL_TEXT) return strcmp(a->text, b->text);
    if (a->type != b->type) return a->type == CELL_NONE ? 1 : b->type == CELL_NONE ? -1 : 0;
    double x = cell_value(a), y = cell_value(b);
    return (x > y) - (x < y);
}

static int compare_keys(const Rows *r, int64_t i, int64_t j)
{
    int way = 0;
    for (int k = 0; k < r->keys && way == 0; k++)
        way = compare_cells(table_at(r->t, i, r->key[k]), table_at(r->t, j, r->key[k]));
    return way;
}

static int compare_rows(const void *a, const void *b, void *state)
{
    const int64_t i = *(const int64_t *)a, j = *(const int64_t *)b;
    int way = compare_keys(state, i, j);
    return way != 0 ? way : (i > j) - (i < j);
}

/* Rows by a column's numbers, falling, or with sign -1 rising. */
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

static bool has_values(const Table *t, int column)
{
    bool any = false;
    for (int64_t i = 0; i < t->rows; i++) any |= !isnan(cell_value(table_at(t, i, column)));
    return any;
}

static Status part_columns(const Part *p, Table *out)
{
    char prefix[128];
    if (strchr(p->how, '|') == NULL)
        return table_add(out, "", p->as == NULL ? p->column : p->as, "");
    (void)snprintf(prefix, sizeof prefix, "%s_", p->column);
    return table_add(out, prefix, p->how, "");
}

/* A column's values in rows row[0 .. n) as cells; x has room for n. */
static Status fold_part(const Table *from, const int64_t *row, int64_t n, const Part *p, double *x,
                        Table *out)
{
    static const char WAYS[] = "mean|std|median|min|max|sum|sum_ms";
    int column = table_column(from, p->column), length = 0;
    int64_t k = 0;
    Cell first = cell_none();
    Summary s;
    for (int64_t i = 0; i < n; i++) {
        const Cell *cell = table_at(from, row[i], column);
        if (first.type == CELL_NONE) first = *cell;
        if (!isnan(cell_value(cell))) x[k++] = cell_value(cell);
    }
    TRY(summary_of(x, NULL, k, from->arena, &s));
    const double value[] = { s.mean, s.std, s.median, s.min, s.max, s.sum, s.sum / 1000 };
    const char *word = NULL;
    for (int i = 0; (word = text_word(p->how, i, &length)) != NULL; i++) {
        char how[16];
        (void)snprintf(how, sizeof how, "%.*s", length, word);
        int way = text_word_index(WAYS, how);
        TABLE_MORE(out, way >= 0                    ? cell_number(value[way])
                        : strcmp(how, "first") == 0 ? first
                                                    : cell_whole(n));
    }
    return OK;
}

/* Does a row count? */
static bool takes(const Rows *by, const Fold *f, int64_t row, int flags)
{
    const Cell *flag = flags < 0 ? NULL : table_at(by->t, row, flags);
    bool take = flag == NULL || flag->type == CELL_NONE || strcmp(flag->text, "outlier") == 0;
    for (int k = 0; k < by->keys && f->compat && f->unknown == NULL; k++)
        take &= table_at(by->t, row, by->key[k])->type != CELL_NONE;
    return take;
}

static Status fold(const Collectives *c, const Table *from, const Fold *f, Table *out)
{
    Rows by = { .t = from };
    int64_t *row = NULL, n = 0;
    double *room = NULL;
    bool skip[16] = { false };
    TRY(table_init(out, f->name, f->keys, "", c->arena));
    by.keys = out->columns;
    for (int i = 0; i < by.keys; i++) by.key[i] = table_column(from, out->column[i]);
    for (int i = 0; i < f->parts; i++) {
        skip[i] = f->compat && strstr(f->part[i].column, " bw ") != NULL &&
                  !has_values(from, table_column(from, f->part[i].column));
        if (!skip[i]) TRY(part_columns(&f->part[i], out));
    }
    TRY(ARENA_NEW(c->arena, from->rows, &row));
    TRY(ARENA_NEW(c->arena, from->rows, &room));
    for (int64_t i = 0; i < from->rows; i++) row[i] = i;
    qsort_r(row, (size_t)from->rows, sizeof *row, compare_rows, &by);
    const int flags = f->hide == NULL ? -1 : table_column(from, f->hide);
    for (int64_t i = 0; i < from->rows; i++)
        if (takes(&by, f, row[i], flags)) row[n++] = row[i];
    for (int64_t i = 0, size = 0; i < n; i += size) {
        for (size = 1; i + size < n && compare_keys(&by, row[i], row[i + size]) == 0;) size++;
        TRY(table_put(out, NULL, 0));
        for (int k = 0; k < by.keys; k++) {
            const Cell *key = table_at(from, row[i], by.key[k]);
            TABLE_MORE(out, key->type == CELL_NONE ? cell_text(f->unknown) : *key);
        }
        for (int k = 0; k < f->parts; k++)
            if (!skip[k]) TRY(fold_part(from, row + i, size, &f->part[k], room, out));
    }
    return f->order == NULL ? OK : sort_table(out, f->order, 1);
}

/* ---- collectives ---- */

static Status long_sheet(const Collectives *c, Table *t)
{
    TRY(begin(c, t, "nccl_long", LONG));
    for (int64_t i = 0; i < c->n_calls; i++) {
        const CollectiveCall *x = &c->calls[c->by_rank[i]];
        const CollectiveSlot *slot = &c->slots[x->slot];
        const CollectiveGroup *g = &c->groups[x->group];
        const Collective *w = &x->what;
        Cell number;
        TRY(collective_id(c, slot, &number));
        TRY(TABLE_ROW(t, number, whole(slot->index), rank(c, x), text(g->name), text(g->ranks),
                      name(c, x), whole(w->group_size), id(c, w->dtype), whole(w->in_elements),
                      real(collectives_mb(c, x, false)), whole(w->out_elements),
                      real(collectives_mb(c, x, true)), id(c, w->in_split), id(c, w->out_split),
                      whole(x->stream), real(x->ts), real(x->dur), node(c, x->rank), text(g->span),
                      whole(w->peer), id(c, x->kernel), real(x->start),
                      real(slot->arrived - x->start), text(slot->flag)));
    }
    return OK;
}

/* Slots as their sheets list them: by first appearance in rank after rank. */
static Status listed(const Collectives *c, bool varied, const CollectiveSlot ***out, int64_t *n)
{
    bool *seen = NULL;
    TRY(ARENA_NEW(c->arena, c->n_slots, out));
    TRY(ARENA_ZEROED(c->arena, c->n_slots, &seen));
    *n = 0;
    for (int64_t i = 0; i < c->n_calls; i++) {
        const CollectiveSlot *s = &c->slots[c->calls[c->by_rank[i]].slot];
        const CollectiveKind kind = (CollectiveKind)c->calls[s->call].kind;
        bool sync =
            !c->options.compat || kind <= ALL_TO_ALL || (c->simplified && kind == OTHER_COLLECTIVE);
        if (seen[s - c->slots] || !(varied ? kind == ALL_TO_ALLV : sync)) continue;
        seen[s - c->slots] = true;
        (*out)[(*n)++] = s;
    }
    return OK;
}

/* Columns rank_R_NAME: of a slot's new ranks those of `first`, then those of `then`; where they
 * begin by rank. */
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

static Status sync_row(const Collectives *c, const CollectiveSlot *x, Table *t)
{
    const CollectiveGroup *g = &c->groups[x->group];
    const CollectiveCall *call = &c->calls[x->call], *first = call + x->first;
    const Collective *w = &call->what;
    Cell number;
    TRY(collective_id(c, x, &number));
    return TABLE_ROW(t, number, text(g->name), text(g->ranks), name(c, call), whole(w->group_size),
                     id(c, w->dtype), whole(w->in_elements), whole(w->out_elements),
                     real(collectives_mb(c, call, false)), real(collectives_mb(c, call, true)),
                     real(x->mb), real(x->latency), real(x->skew_start), rank(c, first),
                     real(x->wait_sum / (double)x->calls), real(x->skew_end), real(x->algorithm_bw),
                     real(x->bus_bw), text(g->description), real(first->start), real(x->exchange),
                     rank(c, call + x->last), whole(x->calls), text(x->flag), real(x->late),
                     cause_text(c, x), cause_where(x), real(x->cause_us));
}

static Status sync_sheet(const Collectives *c, Table *t)
{
    static const char *const words[] = { "ts|dur", "wait_time" };
    const CollectiveSlot **slot = NULL;
    int64_t n = 0;
    int *at[2];
    TRY(begin(c, t, "nccl_implicit_sync", SYNC));
    TRY(listed(c, false, &slot, &n));
    TRY(rank_columns(c, slot, n, words, at, t));
    for (int64_t i = 0; i < n; i++) {
        TRY(sync_row(c, slot[i], t));
        Cell *cell = table_at(t, t->rows - 1, 0);
        for (int64_t k = slot[i]->call; k < slot[i]->call + slot[i]->calls; k++) {
            const CollectiveCall *x = &c->calls[k];
            cell[at[0][x->rank]] = real(x->ts);
            cell[at[0][x->rank] + 1] = real(x->dur);
            cell[at[1][x->rank]] = real(slot[i]->arrived - x->start);
        }
        if (has_nodes(c)) cell[t->columns - 1] = text(c->groups[slot[i]->group].span);
    }
    return OK;
}

/* all_to_allv: ranks bring different amounts, so its time is from the first start to the last end. */
static Status varied_row(const Collectives *c, const CollectiveSlot *x, int *at[2], Table *t)
{
    const CollectiveGroup *g = &c->groups[x->group];
    const CollectiveCall *call = &c->calls[x->call];
    const double gb = c->options.compat ? 1024 : 1000, first = call[x->first].start;
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
    TRY(TABLE_ROW(t, number, text(g->name), text(g->ranks), name(c, call),
                  whole(call->what.group_size), id(c, call->what.dtype), whole(call->stream),
                  real(mb), whole(elements), real(wall), real(longest), real(x->latency),
                  real(sum / n), real(wall > 0 ? mb / gb / (wall / 1e6) : unknown), real(fastest),
                  real(slowest), real(mb > 0 ? most / (mb / n) : unknown), real(x->skew_start),
                  real(x->skew_end)));
    Cell *cell = table_at(t, t->rows - 1, 0);
    for (const CollectiveCall *k = call; k < call + x->calls; k++) {
        const Collective *w = &k->what;
        const Cell mine[] = { real(k->ts),
                              real(k->dur),
                              whole(w->in_elements),
                              whole(w->out_elements),
                              real(collectives_mb(c, k, false)),
                              real(collectives_mb(c, k, true)),
                              id(c, w->in_split),
                              id(c, w->out_split) };
        memcpy(cell + at[0][k->rank], mine, sizeof mine);
        cell[at[1][k->rank]] = real(k->start - first);
        cell[at[1][k->rank] + 1] = real(x->arrived + x->exchange - k->end);
    }
    if (has_nodes(c)) cell[t->columns - 1] = text(g->span);
    return OK;
}

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
    TRY(begin(c, t, "nccl_all2allv", VARIED));
    TRY(listed(c, true, &slot, &n));
    TRY(rank_columns(c, slot, n, words, at, t));
    for (int64_t i = 0; i < n; i++) TRY(varied_row(c, slot[i], at, t));
    return sort_table(t, "total data communicated (MB)", 1);
}

/* What rank sends to rank: split j of a group goes to its j-th member, a rank of the world. TraceLens
 * takes j itself for the rank. */
static Status heatmap(const Collectives *c, Table *t)
{
    static const Part parts[] = { { "MB", "sum", "total_sent_MB" },
                                  { "MB", "mean", "avg_sent_MB" },
                                  { "MB", "count", "count" } };
    const Fold by_pair = {
        .name = "nccl_all2allv_heatmap", .keys = "src_rank|dst_rank", .part = parts, .parts = 3
    };
    Table sends;
    int32_t *split = NULL;
    int64_t most = c->n_ranks;
    for (int64_t i = 0; i < c->n_groups; i++)
        most = c->groups[i].members > most ? c->groups[i].members : most;
    TRY(ARENA_NEW(c->arena, most, &split));
    TRY(begin(c, &sends, "sends", "src_rank|dst_rank|MB"));
    for (int64_t i = 0; i < c->n_calls; i++) {
        const CollectiveCall *x = &c->calls[c->by_rank[i]];
        const CollectiveGroup *g = &c->groups[x->group];
        double all = collectives_mb(c, x, false), each = all / (double)x->what.in_elements;
        if (x->kind != ALL_TO_ALLV || !(all > 0)) continue;
        int64_t n = collectives_wholes(strings_text(&c->strings, x->what.in_split), split,
                                       c->options.compat ? c->n_ranks : g->members);
        for (int64_t j = 0; j < n; j++)
            TRY(TABLE_ROW(&sends, rank(c, x), whole(c->options.compat ? j : g->member[j]),
                          real((double)split[j] * each)));
    }
    return fold(c, &sends, &by_pair, t);
}

/* ---- who makes whom wait ---- */

typedef struct Blame {
    double wait, caused, late, dur;
    int64_t slots, last, first;
} Blame;

static bool in_sums(const CollectiveSlot *s)
{
    return s->calls > 1 && s->flag[0] != 'p' && s->flag[0] != 'b';
}

static Status causes_sheet(const Collectives *c, Table *t)
{
    static const Part parts[] = { { "us", "sum", "cause_us" }, { "us", "count", "collectives" } };
    const Fold by_cause = { .name = "straggler_causes",
                            .keys = "rank|cause|where",
                            .order = "cause_us",
                            .part = parts,
                            .parts = 2 };
    Table all;
    TRY(begin(c, &all, "causes", "rank|cause|where|us"));
    for (const CollectiveSlot *x = c->slots; x < c->slots + c->n_slots; x++) {
        if (x->cause_us > 0 && in_sums(x))
            TRY(TABLE_ROW(&all, rank(c, &c->calls[x->call + x->last]), cause_text(c, x),
                          cause_where(x), real(x->cause_us)));
    }
    return fold(c, &all, &by_cause, t);
}

static Status blame_of(const Collectives *c, Blame **out, int64_t *slots)
{
    const CollectiveSlot **slot = NULL;
    int64_t n = 0;
    TRY(ARENA_ZEROED(c->arena, c->n_ranks, out));
    TRY(listed(c, false, &slot, &n));
    Blame *b = *out;
    *slots = 0;
    for (int64_t i = 0; i < c->n_calls; i++) b[c->calls[i].rank].dur += c->calls[i].dur;
    for (int64_t i = 0; i < n; i++) {
        const CollectiveSlot *s = slot[i];
        const CollectiveCall *x = &c->calls[s->call];
        if (!c->options.compat && !in_sums(s)) continue;
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

static double tenths(double x) { return nearbyint(10 * x) / 10; }

static Status straggler_sheet(const Collectives *c, const Table *causes, Table *t)
{
    Blame *blame = NULL;
    int64_t n = 0;
    TRY(blame_of(c, &blame, &n));
    TRY(begin(c, t, "straggler_summary", STRAGGLER));
    for (int64_t r = 0; r < c->n_ranks; r++) {
        const Blame *b = &blame[r];
        int64_t all = c->options.compat ? n : b->slots, k = 0;
        if (b->slots == 0) continue;
        TRY(TABLE_ROW(t, whole(c->ranks[r].rank), real(tenths(b->wait)),
                      real(tenths(b->wait / (double)b->slots)), whole(b->last), whole(b->first),
                      real(tenths(100.0 * (double)b->last / (double)all)), whole(all),
                      real(tenths(b->dur)), node(c, (int32_t)r), real(b->caused), real(b->late)));
        while (k < causes->rows && table_at(causes, k, 0)->whole != c->ranks[r].rank) k++;
        if (k < causes->rows) table_more(t, table_at(causes, k, 1), 3);
    }
    return c->options.compat ? sort_table(t, "total_wait_time_us", -1)
                             : sort_table(t, "caused_wait_us", 1);
}

static Status clock_sheet(const Collectives *c, Table *t)
{
    TRY(begin(c, t, "clocks", "rank|file|rank_from|offset_us|drift_ppm|spread_us|collectives"));
    for (const CollectiveRank *r = c->ranks; r < c->ranks + c->n_ranks; r++)
        TRY(TABLE_ROW(t, whole(r->rank), text(r->path), text(r->rank_from), real(r->offset_us),
                      real(r->drift * 1e6), real(r->spread_us), whole(r->points)));
    return OK;
}

/* ---- all ---- */

#define FOUR           "mean|median|min|max"
#define PARTS(list, n) .part = (list), .parts = (n)

static const Part sync_parts[] = {
    { "Process Group Name", "first", NULL }, { "Group size", "first", NULL },
    { "Full msg size (MB)", "first", NULL }, { "comm_latency", FOUR, NULL },
    { "skew in start time", FOUR, NULL },    { "skew in end time", FOUR, NULL },
    { "algo bw (GB/s)", FOUR, NULL },        { "bus bw (GB/s)", FOUR, NULL },
    { "comm_latency", "count", "count" },    { "comm_latency", "sum_ms", "Total comm latency (ms)" }
};
static const Part call_parts[] = { { "In msg size (MB)", "first", "In msg size (MB)_first" },
                                   { "Out msg size (MB)", "first", "Out msg size (MB)_first" },
                                   { "dur", "sum|mean|std|min|max", NULL },
                                   { "dur", "count", "operation_count" },
                                   { "node_id", "first", NULL },
                                   { "node_span", "first", NULL } };
static const Part varied_parts[] = { { "total data communicated (MB)", FOUR, NULL },
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
static const Part group_parts[] = { { "Group size", "first", NULL },
                                    { "node_span", "first", NULL },
                                    { "comm_latency", "count", "count" },
                                    { "comm_latency", "sum_ms", "Total comm latency (ms)" },
                                    { "avg_wait_time", "sum_ms", "Mean wait of a rank (ms)" },
                                    { "skew in start time", FOUR, NULL },
                                    { "bus bw (GB/s)", FOUR, NULL } };

Status collectives_sheets(const Collectives *c, Table sheet[COLLECTIVE_SHEETS], int *n)
{
    const bool compat = c->options.compat, nodes = has_nodes(c);
    const char *flag = compat ? NULL : "flag", *latency = "Total comm latency (ms)";
    const Fold sizes = { .name = "nccl_summary_implicit_sync",
                         .keys = compat ? "Collective name|dtype|In msg nelems"
                                        : "Collective name|dtype|In msg nelems|"
                                          "Process Group Name|node_span",
                         .order = latency,
                         PARTS(sync_parts + !compat, 10 - !compat),
                         .compat = compat,
                         .hide = flag,
                         .unknown = compat ? "Unknown" : NULL };
    const Fold calls = { .name = "nccl_summary_long",
                         .keys = "rank|Process Group Name|Process Group Ranks|Collective name|"
                                 "Group size|dtype|In msg nelems|Out msg nelems|In split size|"
                                 "Out split size|stream",
                         .order = "dur_sum",
                         PARTS(call_parts, nodes ? 6 : 4),
                         .compat = compat };
    const Fold varied = { .name = "nccl_summary_all2allv",
                          .keys = "Process Group Name|dtype",
                          .order = "Total wall_time (ms)",
                          PARTS(varied_parts, nodes ? 14 : 13),
                          .compat = compat };
    const Fold groups = { .name = "nccl_summary_group",
                          .keys = "Process Group Name|Process Group Description|"
                                  "Process Group Ranks",
                          .order = latency,
                          PARTS(group_parts, 7),
                          .hide = flag };
    TRY(long_sheet(c, &sheet[2]));
    TRY(sync_sheet(c, &sheet[3]));
    TRY(varied_sheet(c, &sheet[5]));
    TRY(fold(c, &sheet[3], &sizes, &sheet[0]));
    TRY(fold(c, &sheet[2], &calls, &sheet[1]));
    TRY(fold(c, &sheet[5], &varied, &sheet[4]));
    TRY(heatmap(c, &sheet[6]));
    *n = compat ? 8 : COLLECTIVE_SHEETS;
    if (!compat) TRY(causes_sheet(c, &sheet[8]));
    TRY(straggler_sheet(c, compat ? &(Table){ 0 } : &sheet[8], &sheet[7]));
    if (compat) return OK;
    TRY(fold(c, &sheet[3], &groups, &sheet[9]));
    return clock_sheet(c, &sheet[10]);
}
