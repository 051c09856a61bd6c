/* trace_out: see trace_out.h. Files are made in a temporary folder, which gets its name at the end.
 * So a command that fails or is interrupted leaves no half output. */
#include "traces/command/trace_out.h"
#include "engine/base/interrupt.h"
#include "traces/page/trace_page.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Reads --format. Without a folder no format is written, so `has` stays false. */
static Status read_formats(TraceOut *o)
{
    const char *at = o->format == NULL ? "csv" : o->format;
    for (bool more = true; more;) {
        char word[16];
        size_t n = strcspn(at, ",");
        /* longer words are cut, and are then no format */
        (void)snprintf(word, sizeof word, "%.*s", (int)(n < 15 ? n : 15), at);
        int format = text_word_index("csv|json|html", word);
        if (format < 0) return FAIL(ERR_ARG, "--format has \"%s\", not csv, json or html", word);
        o->has[format] = o->folder != NULL;
        more = at[n] == ',';
        at += n + more;
    }
    return OK;
}

/* All is checked before the trace is read, which may take minutes. */
Status trace_out_file(const char *option, const char *path, char **input, int n)
{
    char folder[FILE_PATH_MAX];
    (void)snprintf(folder, sizeof folder, "%s", path);
    /* The folder of a path is all before its last slash; of "/x" it is "/". */
    char *last = strrchr(folder, '/');
    if (last != NULL) last[last == folder] = '\0';
    if (*path == '\0' || (file_exists(path) && !file_is_file(path)))
        return FAIL(ERR_ARG, "%s \"%s\" is not a file: name one", option, path);
    if (last != NULL && (!file_exists(folder) || file_is_file(folder)))
        return FAIL(ERR_ARG, "%s %s: there is no folder %s: make it first", option, path, folder);
    for (int i = 0; i < n; i++) {
        if (file_same(path, input[i]))
            return FAIL(ERR_ARG, "%s %s would write over the trace itself: name another file",
                        option, path);
    }
    return OK;
}

/* A pipe has no size, so the progress bar then has no total. */
Status trace_out_begin(TraceOut *o, char **path, int n)
{
    o->bar = (Progress){ .what = "read", .name = path[n - 1], .left = "nothing was written" };
    for (int i = 0; i < n; i++) {
        uint64_t bytes = 0;
        /* a pipe has no size */
        if (file_size(path[i], &bytes) == OK) o->bar.total += (int64_t)bytes;
    }
    progress_begin(&o->bar);
    if (o->folder == NULL && o->format != NULL)
        return FAIL(ERR_ARG, "--format %s needs --out DIR", o->format);
    TRY(read_formats(o));
    if (o->folder == NULL) return OK;
    TRY(out_folder(&o->at, o->folder));
    return out_folder_begin(&o->at);
}

/* Writes FOLDER/NAME.ENDING by `write`. */
static Status write_table_file(const char *folder, const Table *t, const char *ending,
                               Status (*write)(const Table *, File *), Arena *a)
{
    char name[128], path[FILE_PATH_MAX];
    File f = { 0 };
    ArenaMark mark = arena_mark(a);
    (void)snprintf(name, sizeof name, "%s.%s", t->name, ending);
    TRY(file_join(path, folder, name));
    Status s = file_create_temp(&f, path, a);
    if (s == OK) s = write(t, &f);
    if (s == OK) s = file_commit(&f);
    file_close(&f);
    arena_release(a, mark);
    return s;
}

/* Checks for an interrupt before each table, because tables of millions of rows take a while. */
Status trace_out_tables(const TraceOut *o, const char *sub, const char *title, const Table *table,
                        int n, Arena *a)
{
    char folder[FILE_PATH_MAX], path[FILE_PATH_MAX];
    bool page = o->has[TRACE_HTML] && !o->own_page;
    if (!page && !o->has[TRACE_CSV] && !o->has[TRACE_JSON]) return OK;
    if (*sub == '\0')
        (void)snprintf(folder, sizeof folder, "%s", o->at.temp);
    else
        TRY(file_join(folder, o->at.temp, sub));
    TRY(file_make_folders(folder));
    for (int i = 0; i < n; i++) {
        TRY(interrupt_check(o->bar.left));
        if (o->has[TRACE_CSV]) TRY(write_table_file(folder, &table[i], "csv", table_csv, a));
        if (o->has[TRACE_JSON]) TRY(write_table_file(folder, &table[i], "json", table_json, a));
    }
    if (!page) return OK;
    TRY(file_join(path, folder, "report.html"));
    return trace_page_tables(title, table, n, path);
}

/* ---- text ---- */

/* More columns than TEXT_COLUMNS are not printed; cells are cut to TEXT_WIDEST bytes. */
enum { TEXT_COLUMNS = 16, TEXT_WIDEST = 52 };

/* A cell as people read it: yes and no, three decimals, nothing for NaN. */
static void cell_words(const Cell *c, char out[TEXT_WIDEST + 1])
{
    *out = '\0';
    if (c->type == CELL_TEXT) (void)snprintf(out, TEXT_WIDEST + 1, "%s", c->text);
    if (c->type == CELL_WHOLE) (void)snprintf(out, TEXT_WIDEST + 1, "%lld", (long long)c->whole);
    if (c->type == CELL_BOOL) (void)snprintf(out, TEXT_WIDEST + 1, c->truth ? "yes" : "no");
    if (c->type == CELL_NUMBER && !isnan(c->number))
        (void)snprintf(out, TEXT_WIDEST + 1, "%.*f", fabs(c->number) < 1e3 ? 3 : 1, c->number);
}

/* Characters on the screen: bytes that continue a UTF-8 character take no room. */
static int width_of(const char *s)
{
    int n = 0;
    for (; *s != '\0'; s++) n += ((unsigned char)*s & 0xC0) != 0x80;
    return n;
}

static Status put_word(Text *out, const char *s, int width, bool right)
{
    int pad = width - width_of(s);
    return text_printf(out, "  %*s%s%*s", right ? pad : 0, "", s, right ? 0 : pad, "");
}

/* Columns are as wide as their widest cell. Text is aligned left, everything else right. */
Status trace_out_text(Text *out, const Table *t, const char *columns, int64_t rows)
{
    int column[TEXT_COLUMNS], width[TEXT_COLUMNS], n = 0;
    char words[TEXT_WIDEST + 1];
    if (rows > t->rows) rows = t->rows;
    if (rows == 0) return OK;
    for (int i = 0; i < t->columns && n < TEXT_COLUMNS; i++)
        if (columns == NULL || text_word_index(columns, t->column[i]) >= 0) column[n++] = i;
    for (int k = 0; k < n; k++) {
        width[k] = width_of(t->column[column[k]]);
        for (int64_t i = 0; i < rows; i++) {
            cell_words(&t->cell[i * t->columns + column[k]], words);
            if (width_of(words) > width[k]) width[k] = width_of(words);
        }
    }
    TRY(text_printf(out, "\n%s\n", t->name));
    for (int64_t i = -1; i < rows; i++) {
        for (int k = 0; k < n; k++) {
            /* Row -1 is the head, aligned as the first row's cells. */
            const Cell *c = &t->cell[(i < 0 ? 0 : i) * t->columns + column[k]];
            cell_words(c, words);
            TRY(put_word(out, i < 0 ? t->column[column[k]] : words, width[k],
                         c->type != CELL_TEXT));
        }
        TRY(text_printf(out, "\n"));
    }
    if (rows < t->rows) return text_printf(out, "  ... %lld more\n", (long long)(t->rows - rows));
    return OK;
}

Status trace_out_end(TraceOut *o, Status s)
{
    if (s == OK) progress_end(&o->bar);
    return o->folder == NULL ? s : out_folder_end(&o->at, s);
}
