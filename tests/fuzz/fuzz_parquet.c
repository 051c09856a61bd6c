/* Any bytes as a Parquet file: every row is JSON, but for bytes that are no UTF-8, and a file is read to its end or to an
 * error. */
#include "engine/base/json.h"
#include "harness/fuzz.h"
#include "parquet/parquet.h"

enum { MOST = 1 << 18 }; /* a few bytes can stand for millions of rows */

static Status read_column(Fuzz *f, const char *field)
{
    Parquet *p = NULL;
    Text out;
    Json *json = NULL;
    bool more = true;
    size_t bad = 0;
    TRY(text_init(&out, f->page));
    Status s = parquet_open("fuzz", field, f->data, f->bytes, f->a, &p);
    while (s == OK && more && out.used < MOST) {
        const size_t before = out.used;
        s = text_append(&out, "{", 1);
        if (s == OK) s = parquet_row(p, &out, &more);
        if (s != OK || !more) break;
        s = text_append(&out, "}", 1);
        const char *row = out.data + before;
        if (s != OK || !text_utf8_valid(row, out.used - before, &bad)) continue;
        need(json_parse(row, out.used - before, f->a, &json, &bad) != OK || json != NULL);
    }
    parquet_close(p);
    return s;
}

static Status look(Fuzz *f)
{
    const Status s = read_column(f, "text");
    const Status t = read_column(f, "ids");
    return s != OK ? s : t;
}

const Fuzzer fuzzer = { .look = look };
