/* fold: see fold.h. The description of a sheet is text, which is read once for each sheet. The
 * cells of a group are then made column by column. A text that does not fit is a bug of ours and
 * asserted; it never comes from a trace. */
#include "traces/table/fold.h"
#include "traces/read/strings.h"
#include "traces/table/group.h"
#include "traces/table/python_text.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* What a column of the result shows of a group. fold.h explains each. */
typedef enum Aggregate {
    AGGREGATE_FIRST,
    AGGREGATE_KNOWN,
    AGGREGATE_TUPLE,
    AGGREGATE_LIST,
    AGGREGATE_N,
    AGGREGATE_WHOLE,
    AGGREGATE_SUM,
    AGGREGATE_MEAN,
    AGGREGATE_MEDIAN,
    AGGREGATE_STD,
    AGGREGATE_MIN,
    AGGREGATE_MAX,
    AGGREGATE_MS,
    AGGREGATE_SHARE0,
    AGGREGATE_SHARE1,
    AGGREGATE_UPTO0,
    AGGREGATE_MORE
} Aggregate;

/* The words of fold.h, in the order of Aggregate. */
static const char AGGREGATES[] =
    "first|known|tuple|list|n|whole|sum|mean|median|std|min|max|ms|share0|share1|upto0|more";

/* A column of the result. One that the table lacks has a row here too, and makes no cells. */
typedef struct Column {
    Aggregate how;
    int from; /* column of the rows, or DESCRIBED + column of the description; -1: none */
} Column;

enum { DESCRIBED = 1 << 16 };

/* The state of one fold. a: the result and its texts; scratch: the rows' arena. */
typedef struct Folding {
    const Fold *f;
    const FoldRows *rows;
    Arena *a, *scratch;
    Column *column;
    int columns;
    Groups g;
    double upto;      /* the groups so far, in percent of whole[0] */
    double *value;    /* room for the numbers of a group */
    Summary *summary; /* summary[column of the rows]: of the group that is being written */
    bool *known;      /* known[column of the rows]: summary is there */
    Table described;  /* one row, for the group that is being written */
    Cell more[FOLD_MORE];
    int mores;
} Folding;

/* ---- columns ---- */

/* Reads a word "NAME=how COLUMN". With several aggregates, there is a column for each. Adds to the
 * columns, and to their names. */
static Status read_columns(Folding *fold, const char *word, int n, int64_t *room, Text *names)
{
    /* NAME=how COLUMN: `equals` is before `how`, `blank` before COLUMN, `star` inside NAME */
    char from[64] = "";
    const char *equals = memchr(word, '=', (size_t)n), *end = word + n;
    assert(equals != NULL);
    const char *blank = memchr(equals, ' ', (size_t)(end - equals)), *how = equals + 1;
    const char *star = memchr(word, '*', (size_t)(equals - word));
    if (blank != NULL) (void)snprintf(from, sizeof from, "%.*s", (int)(end - blank - 1), blank + 1);
    if (blank != NULL) end = blank;
    while (how < end) {
        char text[16];
        const int length = (int)strcspn(how, ", |");
        (void)snprintf(text, sizeof text, "%.*s", length, how);
        Column column = { (Aggregate)text_word_index(AGGREGATES, text),
                          table_column(&fold->rows->t, from) };
        const int described = column.from >= 0 ? -1 : table_column(&fold->described, from);
        if (described >= 0) column.from = DESCRIBED + described;
        assert((int)column.how >= 0);
        assert(blank == NULL || column.from >= 0 || strchr("?+@", *word) != NULL);
        TRY(text_printf(names, "%s", fold->columns == 0 ? "" : "|"));
        if (star == NULL)
            TRY(text_append(names, word, (size_t)(equals - word)));
        else
            TRY(text_printf(names, "%.*s%s%.*s", (int)(star - word), word, text,
                            (int)(equals - star - 1), star + 1));
        TRY(ARENA_GROW(fold->scratch, fold->columns + 1, room, &fold->column));
        fold->column[fold->columns++] = column;
        how += length + 1;
    }
    return OK;
}

/* Starts the result with all columns, and notes how each is made. A column that the table lacks
 * stays in the list, so that words and columns keep their order. */
static Status start_table(Folding *fold, const char *without, Table *out)
{
    const char *word = NULL;
    int n = 0;
    int64_t room = 0;
    Text names = { 0 };
    Arena *texts = fold->a; /* both grow at the end of their arena */
    TRY(text_init(&names, texts));
    for (int i = 0; (word = text_word(fold->f->columns, i, &n)) != NULL; i++)
        TRY(read_columns(fold, word, n, &room, &names));
    return table_init(out, out->name, names.data, without, fold->a);
}

/* ---- groups ---- */

enum { KEY_WIDTH = 3 }; /* numbers of a cell: its type, and its value or its text's number */

/* Makes the key of a cell. Texts are compared by content, not by pointer: two files may hold the
 * same category as two literals. */
static Status set_key(const Cell *c, Strings *texts, uint32_t key[KEY_WIDTH])
{
    memset(key, 0, KEY_WIDTH * sizeof *key);
    key[0] = (uint32_t)c->type;
    if (c->type == CELL_TEXT) return strings_id(texts, c->text, strlen(c->text), &key[1]);
    if (c->type == CELL_BOOL)
        key[1] = c->truth;
    else if (c->type != CELL_NONE)
        memcpy(&key[1], &c->whole, sizeof c->whole);
    return OK;
}

/* Makes keys[row] from the cells of all key columns. */
static Status set_keys(Folding *fold, Strings *texts, uint32_t **out, int *width)
{
    const Table *t = &fold->rows->t;
    int at[32], keys = 0, n = 0;
    const char *word = NULL;
    for (; (word = text_word(fold->f->keys, keys, &n)) != NULL; keys++) {
        char name[64];
        (void)snprintf(name, sizeof name, "%.*s", n, word);
        at[keys] = table_column(t, name);
        assert(keys < 31 && at[keys] >= 0);
    }
    *width = keys * KEY_WIDTH;
    TRY(ARENA_NEW(fold->scratch, t->rows * *width + 1, out));
    for (int64_t i = 0; i < t->rows; i++)
        for (int k = 0; k < keys; k++)
            TRY(set_key(table_at(t, i, at[k]), texts, *out + i * *width + (int64_t)k * KEY_WIDTH));
    return OK;
}

/* Groups rows by hashing, not by sorting, because there may be millions. */
static Status make_groups(Folding *fold)
{
    const Table *t = &fold->rows->t;
    double *value = NULL;
    uint32_t *key = NULL;
    int width = 0;
    Strings texts = { 0 };
    TRY(strings_init(&texts));
    Status s = set_keys(fold, &texts, &key, &width);
    strings_free(&texts);
    TRY(s);
    if (fold->f->by != NULL) {
        const int by = table_column(t, fold->f->by);
        TRY(ARENA_NEW(fold->scratch, t->rows + 1, &value));
        for (int64_t i = 0; i < t->rows; i++) {
            const double x = cell_value(table_at(t, i, by));
            value[i] = isnan(x) ? 0 : x; /* what is not known adds nothing */
        }
    }
    return groups_ranked(key, width, value, fold->f->magnitude, t->rows, fold->scratch, &fold->g);
}

/* ---- cells ---- */

/* Returns the statistics of one column over a group. They are computed once, because several
 * columns of the result show them. Cells without a number do not count. */
static Status summary_at(Folding *fold, int from, const uint32_t *row, int64_t n,
                         const Summary **out)
{
    int64_t m = 0;
    *out = &fold->summary[from];
    if (fold->known[from]) return OK;
    for (int64_t i = 0; i < n; i++) {
        const double x = cell_value(table_at(&fold->rows->t, row[i], from));
        if (!isnan(x)) fold->value[m++] = x;
    }
    fold->known[from] = true;
    return summary_of(fold->value, NULL, m, fold->scratch, &fold->summary[from]);
}

/* Shows JSON as Python prints it. An empty text gives an empty cell. */
static Status python_cell(Folding *fold, const Cell *json, bool tuples, Cell *out)
{
    Text t;
    *out = cell_none();
    if (json->type != CELL_TEXT || *json->text == '\0') return OK;
    TRY(text_init(&t, fold->a));
    TRY(python_value(&t, json->text, tuples));
    *out = cell_text(t.data);
    return OK;
}

/* upto0 adds up, so it must be asked for once for each group, in order. */
static Cell number_cell(Folding *fold, Aggregate how, const Summary *s)
{
    const double *whole = fold->rows->whole;
    switch (how) {
    case AGGREGATE_WHOLE: return cell_whole((int64_t)s->sum);
    case AGGREGATE_SUM: return cell_number(s->sum);
    case AGGREGATE_MEAN: return cell_number(s->mean);
    case AGGREGATE_MEDIAN: return cell_number(s->median);
    case AGGREGATE_STD: return cell_number(s->std);
    case AGGREGATE_MIN: return cell_number(s->min);
    case AGGREGATE_MAX: return cell_number(s->max);
    case AGGREGATE_MS: return cell_number(s->sum / 1e3);
    case AGGREGATE_SHARE0: return cell_number(percent_of(s->sum, whole[0]));
    case AGGREGATE_SHARE1: return cell_number(percent_of(s->sum, whole[1]));
    case AGGREGATE_UPTO0:
        fold->upto += percent_of(s->sum, whole[0]);
        return cell_number(fold->upto);
    default: return cell_none();
    }
}

/* The cell of the group's first row, or of its description. */
static const Cell *first_cell(const Folding *fold, const Column *c, uint32_t row)
{
    if (c->from >= DESCRIBED) return table_at(&fold->described, 0, c->from - DESCRIBED);
    return table_at(&fold->rows->t, row, c->from);
}

/* `more` is called at the first of its columns, and gives the cells of all of them. */
static Status make_cell(Folding *fold, const Column *c, const uint32_t *row, int64_t n, Cell *out)
{
    const Table *t = &fold->rows->t;
    const Summary *s = NULL;
    switch (c->how) {
    case AGGREGATE_N: *out = cell_whole(n); return OK;
    case AGGREGATE_FIRST: *out = *first_cell(fold, c, *row); return OK;
    case AGGREGATE_KNOWN:
        for (int64_t i = 0; i < n && out->type == CELL_NONE; i++)
            *out = *table_at(t, row[i], c->from);
        return OK;
    case AGGREGATE_TUPLE:
    case AGGREGATE_LIST:
        return python_cell(fold, first_cell(fold, c, *row), c->how == AGGREGATE_TUPLE, out);
    case AGGREGATE_MORE:
        if (fold->mores == 0) TRY(fold->f->more(fold->rows, row, n, fold->a, fold->more));
        *out = fold->more[fold->mores++];
        return OK;
    default: break;
    }
    TRY(summary_at(fold, c->from, row, n, &s));
    *out = number_cell(fold, c->how, s);
    return OK;
}

/* A NaN in rows->whole stands for the sum of all groups. They are added in their final order, so
 * that upto0 of the last row is 100. */
Status fold_rows(FoldRows *rows, const Fold *f, const char *without, Arena *a, Table *out)
{
    const Table *t = &rows->t;
    Folding fold = { .f = f, .rows = rows, .a = a, .scratch = t->arena };
    if (f->optional && t->rows == 0) return OK;
    if (f->described != NULL)
        TRY(table_init(&fold.described, "description", f->described, "", t->arena));
    TRY(start_table(&fold, without, out));
    TRY(make_groups(&fold));
    TRY(ARENA_NEW(t->arena, t->rows + 1, &fold.value));
    TRY(ARENA_NEW(t->arena, t->columns, &fold.summary));
    TRY(ARENA_NEW(t->arena, t->columns, &fold.known));
    double sum = 0;
    for (int64_t k = 0; k < fold.g.n; k++) sum += fold.g.sum[k];
    for (int k = 0; k < 2; k++)
        if (isnan(rows->whole[k])) rows->whole[k] = sum;
    for (int64_t k = 0; k < fold.g.n; k++) {
        int64_t n = 0;
        const uint32_t *row = groups_rows(&fold.g, k, &n);
        memset(fold.known, 0, (size_t)t->columns * sizeof *fold.known);
        fold.mores = 0;
        fold.described.rows = 0;
        if (f->describe != NULL) TRY(f->describe(rows, row[0], &fold.described));
        TRY(table_put(out, NULL, 0));
        for (int i = 0; i < fold.columns; i++) {
            Cell cell = cell_none();
            if (!out->lacks[i]) TRY(make_cell(&fold, &fold.column[i], row, n, &cell));
            table_more(out, &cell, 1);
        }
    }
    return OK;
}
