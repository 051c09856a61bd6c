/* table: see table.h. Numbers are written with the fewest digits that give the same double again,
 * as pandas does, so that tables can be compared byte by byte. */
#include "traces/table/table.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

Status table_init(Table *t, const char *name, const char *columns, const char *without, Arena *a)
{
    *t = (Table){ .name = name, .arena = a };
    return table_add(t, "", columns, without);
}

/* Each name is copied, because `columns` may be a text that does not live long. */
Status table_add(Table *t, const char *prefix, const char *columns, const char *without)
{
    int n = 0;
    const char *word = NULL;
    for (int i = 0; (word = text_word(columns, i, &n)) != NULL; i++) {
        /* a mark before the name is not part of it */
        int mark = (int)strspn(word, "?+@");
        bool lacks = mark > 0 && strchr(without, *word) != NULL;
        Text name = { 0 };
        TRY(ARENA_GROW(t->arena, t->words + 1, &t->word_room, &t->lacks));
        t->lacks[t->words++] = lacks;
        if (lacks) continue;
        TRY(ARENA_GROW(t->arena, t->columns + 1, &t->column_room, &t->column));
        TRY(text_init(&name, t->arena));
        TRY(text_printf(&name, "%s%.*s", prefix, n - mark, word + mark));
        t->column[t->columns++] = name.data;
    }
    return OK;
}

/* The rows may move, so pointers into earlier rows are not valid afterwards. */
Status table_row(Table *t, Cell **out)
{
    /* The array doubles when it is full, so adding a row is cheap on average. */
    int64_t used = t->rows * t->columns;
    TRY(ARENA_GROW(t->arena, used + t->columns, &t->room, &t->cell));
    memset(t->cell + used, 0, (size_t)t->columns * sizeof *t->cell);
    t->rows++;
    *out = t->cell + used;
    return OK;
}

Status table_put(Table *t, const Cell *cell, int n)
{
    Cell *row = NULL;
    TRY(table_row(t, &row));
    /* a new row starts at the first word */
    t->word = t->filled = 0;
    table_more(t, cell, n);
    return OK;
}

/* Cells come in the order of words. The cell of a word that is not a column is dropped. */
void table_more(Table *t, const Cell *cell, int n)
{
    for (int i = 0; i < n && t->word < t->words; i++)
        if (!t->lacks[t->word++]) *table_at(t, t->rows - 1, t->filled++) = cell[i];
}

/* Cells are moved forward in place. */
Status table_drop(Table *t, const char *names)
{
    bool *gone = NULL;
    int64_t kept = 0;
    int columns = 0;
    TRY(ARENA_ZEROED(t->arena, t->columns, &gone));
    for (int i = 0; i < t->columns; i++) gone[i] = text_word_index(names, t->column[i]) >= 0;
    for (int64_t i = 0; i < t->rows * t->columns; i++)
        if (!gone[i % t->columns]) t->cell[kept++] = t->cell[i];
    for (int i = 0; i < t->columns; i++)
        if (!gone[i]) t->column[columns++] = t->column[i];
    t->columns = columns;
    return OK;
}

/* Rows only move forward, so memmove in place is safe. */
void table_filter(Table *t, const bool *keep)
{
    const size_t row_bytes = (size_t)t->columns * sizeof *t->cell;
    int64_t kept = 0;
    for (int64_t i = 0; i < t->rows; i++)
        if (keep[i]) memmove(table_at(t, kept++, 0), table_at(t, i, 0), row_bytes);
    t->rows = kept;
}

/* Tables have tens of columns, so a linear search will do. */
int table_column(const Table *t, const char *name)
{
    int i = 0;
    while (i < t->columns && strcmp(t->column[i], name) != 0) i++;
    return i < t->columns ? i : -1;
}

double cell_value(const Cell *c)
{
    if (c->type == CELL_WHOLE) return (double)c->whole;
    return c->type == CELL_NUMBER ? c->number : (double)NAN;
}

/* Every decimal of 15 digits is that of at most one double, and 17 digits always read back (IEEE
 * 754). So 15, 16 or 17 digits are tried. Python switches to an exponent below 1e-4 and from 1e16
 * on. */
const char *table_number(char out[TABLE_NUMBER_BYTES], double x)
{
    char e[32], digit[20] = "";
    int n = 0, used = 0;
    if (!isfinite(x)) {
        (void)snprintf(out, TABLE_NUMBER_BYTES, isnan(x) ? "nan" : x < 0 ? "-inf" : "inf");
        return out;
    }
    for (int p = 14; p <= 16; p++) { /* p digits after the first one */
        (void)snprintf(e, sizeof e, "%.*e", p, x);
        if (strtod(e, NULL) == x) break;
    }
    for (const char *c = e; *c != 'e'; c++) {
        if (*c >= '0' && *c <= '9') digit[n++] = *c;
    }
    /* trailing zeros are not needed to read the number back */
    while (n > 1 && digit[n - 1] == '0') n--;
    int exponent = (int)strtol(strchr(e, 'e') + 1, NULL, 10);
    if (e[0] == '-') out[used++] = '-';
    if (exponent < -4 || exponent >= 16) {
        (void)snprintf(out + used, (size_t)(TABLE_NUMBER_BYTES - used), "%c%s%.*se%c%02d", digit[0],
                       n > 1 ? "." : "", n - 1, digit + 1, exponent < 0 ? '-' : '+', abs(exponent));
        return out;
    }
    /* power: of ten, of the digit that is written next */
    for (int power = exponent < 0 ? 0 : exponent; power >= 0 || exponent - power < n; power--) {
        int at = exponent - power;
        if (power == -1) out[used++] = '.';
        out[used] = '0';
        if (at >= 0 && at < n) out[used] = digit[at];
        used++;
    }
    (void)snprintf(out + used, (size_t)(TABLE_NUMBER_BYTES - used), n - 1 <= exponent ? ".0" : "");
    return out;
}

/* ---- CSV ---- */

static Status write_text(File *f, const char *s) { return file_write(f, s, strlen(s)); }

/* Quotes a text only if it has to be quoted. */
static Status csv_text(File *f, const char *s)
{
    if (strpbrk(s, ",\"\r\n") == NULL) return write_text(f, s);
    TRY(write_text(f, "\""));
    for (const char *quote; (quote = strchr(s, '"')) != NULL; s = quote + 1) {
        TRY(file_write(f, s, (size_t)(quote - s)));
        TRY(write_text(f, "\"\""));
    }
    TRY(write_text(f, s));
    return write_text(f, "\"");
}

static Status csv_cell(File *f, const Cell *c)
{
    char number[TABLE_NUMBER_BYTES];
    switch (c->type) {
    case CELL_NONE: return OK;
    case CELL_TEXT: return csv_text(f, c->text);
    case CELL_NUMBER: return isnan(c->number) ? OK : write_text(f, table_number(number, c->number));
    case CELL_WHOLE: return file_printf(f, "%lld", (long long)c->whole);
    case CELL_BOOL: return write_text(f, c->truth ? "True" : "False");
    }
    return OK;
}

/* Cells are written one by one; the file buffers them. */
Status table_csv(const Table *t, File *out)
{
    for (int i = 0; i < t->columns; i++) {
        TRY(csv_text(out, t->column[i]));
        TRY(write_text(out, i + 1 < t->columns ? "," : "\n"));
    }
    for (int64_t i = 0; i < t->rows * t->columns; i++) {
        TRY(csv_cell(out, &t->cell[i]));
        TRY(write_text(out, (i + 1) % t->columns != 0 ? "," : "\n"));
    }
    return OK;
}

/* ---- JSON ---- */

static Status json_cell(Text *line, const Cell *c)
{
    switch (c->type) {
    case CELL_NONE: return text_printf(line, "null");
    case CELL_TEXT: return text_json(line, "%s", c->text);
    case CELL_NUMBER: return text_json(line, "%g", c->number);
    case CELL_WHOLE: return text_printf(line, "%lld", (long long)c->whole);
    case CELL_BOOL: return text_printf(line, c->truth ? "true" : "false");
    }
    return OK;
}

/* One text a row, so that a row is one write. */
static Status json_row(const Table *t, int64_t row, File *out)
{
    Text line;
    TRY(text_init(&line, t->arena));
    TRY(text_printf(&line, row == 0 ? "{" : ",\n {"));
    for (int i = 0; i < t->columns; i++) {
        TRY(text_json(&line, i == 0 ? "%s: " : ", %s: ", t->column[i]));
        TRY(json_cell(&line, &t->cell[row * t->columns + i]));
    }
    TRY(text_printf(&line, "}"));
    return file_write(out, line.data, line.used);
}

/* Writes row by row, so that memory does not grow with the table. */
Status table_json(const Table *t, File *out)
{
    ArenaMark mark = arena_mark(t->arena);
    TRY(write_text(out, "["));
    for (int64_t i = 0; i < t->rows; i++) {
        Status s = json_row(t, i, out);
        arena_release(t->arena, mark);
        TRY(s);
    }
    return write_text(out, "]\n");
}
