/* fold: see fold.h. */
#include "analyze/fold.h"
#include "analyze/group.h"
#include "analyze/python_text.h"
#include "analyze/strings.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef enum Way {
    WAY_FIRST,
    WAY_KNOWN,
    WAY_TUPLE,
    WAY_LIST,
    WAY_N,
    WAY_WHOLE,
    WAY_SUM,
    WAY_MEAN,
    WAY_MEDIAN,
    WAY_STD,
    WAY_MIN,
    WAY_MAX,
    WAY_MS,
    WAY_SHARE0,
    WAY_SHARE1,
    WAY_UPTO0,
    WAY_MORE
} Way;

static const char WAYS[] =
    "first|known|tuple|list|n|whole|sum|mean|median|std|min|max|ms|share0|share1|upto0|more";

typedef struct Column {
    Way way;
    int from; /* column of the rows, or DESCRIBED + column of the description; -1: none */
} Column;

enum { DESCRIBED = 1 << 16 };

typedef struct Folding {
    const Fold *f;
    const FoldRows *rows;
    Arena *a, *scratch;
    Column *column;
    int columns;
    Groups g;
    double upto;      /* percent of whole[0] that the rows so far are */
    double *value;    /* room for the numbers of a group */
    Summary *summary; /* by column of the rows, of the group that is written */
    bool *known;      /* by column of the rows: summary is there */
    Table described;  /* one row: of the group that is written */
    Cell more[FOLD_MORE];
    int mores;
} Folding;

/* ---- columns ---- */

/* Adds "NAME=way COLUMN", of several ways a column each, to the columns and their names. */
static Status read_columns(Folding *fold, const char *word, int n, int64_t *room, Text *names)
{
    char from[64] = "";
    const char *equals = memchr(word, '=', (size_t)n), *end = word + n;
    assert(equals != NULL);
    const char *blank = memchr(equals, ' ', (size_t)(end - equals)), *way = equals + 1;
    const char *star = memchr(word, '*', (size_t)(equals - word));
    if (blank != NULL) (void)snprintf(from, sizeof from, "%.*s", (int)(end - blank - 1), blank + 1);
    if (blank != NULL) end = blank;
    while (way < end) {
        char text[16];
        const int length = (int)strcspn(way, ", |");
        (void)snprintf(text, sizeof text, "%.*s", length, way);
        Column column = { (Way)text_word_index(WAYS, text), table_column(&fold->rows->t, from) };
        const int told = column.from >= 0 ? -1 : table_column(&fold->described, from);
        if (told >= 0) column.from = DESCRIBED + told;
        assert((int)column.way >= 0);
        assert(blank == NULL || column.from >= 0 || strchr("?+@", *word) != NULL);
        TRY(text_printf(names, "%s", fold->columns == 0 ? "" : "|"));
        if (star == NULL)
            TRY(text_append(names, word, (size_t)(equals - word)));
        else
            TRY(text_printf(names, "%.*s%s%.*s", (int)(star - word), word, text,
                            (int)(equals - star - 1), star + 1));
        TRY(ARENA_GROW(fold->scratch, fold->columns + 1, room, &fold->column));
        fold->column[fold->columns++] = column;
        way += length + 1;
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

/* Texts are compared by what they say: two files may hold the same category as two literals. */
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

/* Groups rows by hashing, not by sorting: there may be millions. */
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

/* Statistics of one column, once for each group: several columns of the result show them. Cells
 * without a number do not count. */
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

static Cell number_cell(Folding *fold, Way way, const Summary *s)
{
    const double *whole = fold->rows->whole;
    switch (way) {
    case WAY_WHOLE: return cell_whole((int64_t)s->sum);
    case WAY_SUM: return cell_number(s->sum);
    case WAY_MEAN: return cell_number(s->mean);
    case WAY_MEDIAN: return cell_number(s->median);
    case WAY_STD: return cell_number(s->std);
    case WAY_MIN: return cell_number(s->min);
    case WAY_MAX: return cell_number(s->max);
    case WAY_MS: return cell_number(s->sum / 1e3);
    case WAY_SHARE0: return cell_number(percent_of(s->sum, whole[0]));
    case WAY_SHARE1: return cell_number(percent_of(s->sum, whole[1]));
    case WAY_UPTO0: fold->upto += percent_of(s->sum, whole[0]); return cell_number(fold->upto);
    default: return cell_none();
    }
}

static const Cell *first_cell(const Folding *fold, const Column *c, uint32_t row)
{
    if (c->from >= DESCRIBED) return table_at(&fold->described, 0, c->from - DESCRIBED);
    return table_at(&fold->rows->t, row, c->from);
}

static Status make_cell(Folding *fold, const Column *c, const uint32_t *row, int64_t n, Cell *out)
{
    const Table *t = &fold->rows->t;
    const Summary *s = NULL;
    switch (c->way) {
    case WAY_N: *out = cell_whole(n); return OK;
    case WAY_FIRST: *out = *first_cell(fold, c, *row); return OK;
    case WAY_KNOWN:
        for (int64_t i = 0; i < n && out->type == CELL_NONE; i++)
            *out = *table_at(t, row[i], c->from);
        return OK;
    case WAY_TUPLE:
    case WAY_LIST: return python_cell(fold, first_cell(fold, c, *row), c->way == WAY_TUPLE, out);
    case WAY_MORE:
        if (fold->mores == 0) TRY(fold->f->more(fold->rows, row, n, fold->a, fold->more));
        *out = fold->more[fold->mores++];
        return OK;
    default: break;
    }
    TRY(summary_at(fold, c->from, row, n, &s));
    *out = number_cell(fold, c->way, s);
    return OK;
}

/* whole[] that is NaN becomes the sum of all groups, in their final order, so that the last
 * row's upto0 is 100. */
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
