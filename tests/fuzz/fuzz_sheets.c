/* Any bytes as a trace: refused with a sentence, or all sheets of it, ours and TraceLens', lists of its operators, or
 * its timeline, which can be written. The first byte chooses which. */
#include "compat/compat.h"
#include "harness/fuzz.h"
#include "replay/replay.h"
#include "traces/page/trace_page.h"
#include "traces/read/events_read.h"
#include "traces/read/recording.h"

#include <fcntl.h>

typedef enum Wanted { OURS, COMPAT, REPLAY, PAGE, WANTED } Wanted;

static Status replay(const Tree *t, const Fuzz *f)
{
    Replay r = { 0 };
    ReplayCount count = { 0 };
    Arena scratch = { 0 };
    Text list = { 0 };
    TRY(arena_init(&scratch, "scratch", MEM_HOST, (size_t)1 << 24));
    Status s = replay_find(t, NULL, 0, f->a, &scratch, &r);
    if (s == OK) s = text_init(&list, f->page);
    if (s == OK) s = replay_json(&r, &scratch, &list, &count);
    if (s == OK) s = replay_bench(&r, &scratch, &list, &(ReplayCount){ 0 });
    need(count.ops <= r.n && count.calls <= r.calls && count.lefts <= REPLAY_LEFT_MAX);
    arena_free(&scratch);
    return s;
}

static Status draw(Report *r, const Fuzz *f)
{
    TracePage page = { 0 };
    Text text = { 0 };
    Status s = trace_page_begin(&page, 1);
    if (s == OK) s = trace_page_add(&page, r, "fuzz", NULL, 0);
    if (s == OK) s = text_init(&text, f->page);
    if (s == OK) s = trace_page_timeline(&page, &text);
    trace_page_free(&page);
    return s;
}

static Status sheets(const Events *e, const Tree *t, ReportOptions *o, Wanted wanted, const Fuzz *f)
{
    Report r;
    Table table[REPORT_SHEETS_MOST];
    double us[TIMELINE_ROWS];
    int n = 0;
    static char buffer[1 << 16];
    static int fd = -1;
    if (fd < 0) fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    TRY(report_make(e, t, o, f->a, &r));
    TRY(report_timeline(&r, us));
    need(us[TIMELINE_BUSY] <= us[TIMELINE_TOTAL] * (1 + 1e-9) + 1e-3);
    if (wanted == PAGE) return draw(&r, f);
    TRY((wanted == COMPAT ? compat_tables : report_tables)(&r, table, &n));
    need(n <= REPORT_SHEETS_MOST);
    File nowhere = {
        .fd = fd, .path = "/dev/null", .buffer = buffer, .buffer_bytes = sizeof buffer
    };
    for (int i = 0; i < n; i++)
        TRY((f->bytes % 2 == 0 ? table_csv : table_json)(&table[i], &nowhere));
    return file_flush(&nowhere);
}

static Status work(const Events *e, int choice, const Fuzz *f)
{
    const Wanted wanted = (Wanted)(choice % WANTED);
    TreeOptions how = { .link = (TreeLink)(choice / 4 % 2), .python = true };
    ReportOptions what = { .step = -1,
                           .recompute = choice / 8 % 2 == 1,
                           .kernels = true,
                           .short_us = 10,
                           .micro_idle_us = choice / 16 % 2 };
    Tree tree = { 0 };
    if (wanted == COMPAT) compat_options(&how, &what, choice / 32 % 2 == 1);
    if (wanted != REPLAY) TRY(report_need_work(e));
    TRY(tree_build(e, &how, f->a, &tree));
    return wanted == REPLAY ? replay(&tree, f) : sheets(e, &tree, &what, wanted, f);
}

static Status look(Fuzz *f)
{
    Events e = { 0 };
    if (f->bytes < 2) return OK;
    const char *path = fuzz_file("trace.json", f->data + 1, f->bytes - 1);
    TRY(events_read(path, &(EventsOptions){ .python = true, .threads = 1 }, &e));
    Status s = work(&e, f->data[0], f);
    events_free(&e);
    return s;
}

const Fuzzer fuzzer = { .look = look };
