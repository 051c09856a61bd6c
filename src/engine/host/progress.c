/* progress: decides when a line is due and formats it; log_progress prints it. */
#include "engine/host/progress.h"

#include "engine/base/clock.h"
#include "engine/base/interrupt.h"
#include "engine/base/log.h"
#include "engine/base/text.h"

#include <stdio.h>
#include <string.h>

enum { BAR_COLUMNS = 20, AMOUNT_BYTES = 96, TIME_BYTES = 64 };

static const double PATIENCE_S = 2; /* a shorter command shows nothing */
static const double REDRAW_S = 0.1;

void progress_begin(Progress *p)
{
    if (p->left != NULL) interrupt_catch();
    p->begin_s = p->stage_s = clock_s();
    p->done = p->shown_ms = 0;
}

void progress_next(Progress *p)
{
    p->done = 0;
    p->stage_s = clock_s();
}

/* "1.20 GiB of 2.70 GiB", "12 of 80 tensors", "12 tensors". Bytes have units that scale, other
 * things are counted in thousands. */
static void amount_text(char out[AMOUNT_BYTES], const Progress *p, int64_t done)
{
    char a[32], b[32];
    bool bytes = p->unit == NULL;
    const char *unit = bytes ? "" : p->unit, *gap = bytes ? "" : " ";
    bytes ? text_bytes(a, (double)done) : text_thousands(a, done);
    bytes ? text_bytes(b, (double)p->total) : text_thousands(b, p->total);
    if (p->total > 0)
        (void)snprintf(out, AMOUNT_BYTES, "%s of %s%s%s", a, b, gap, unit);
    else
        (void)snprintf(out, AMOUNT_BYTES, "%s%s%s", a, gap, unit);
}

/* A total can be too small, for a file that grows. The line then stops at 100 %. The time left
 * assumes that the rest of the stage goes as fast as its work so far. */
static void draw_line(const Progress *p, int64_t done, bool last)
{
    char amount[AMOUNT_BYTES], left[TIME_BYTES] = "", share[BAR_COLUMNS + 16] = "";
    double now = clock_s(), spent = now - p->begin_s;
    if (p->total > 0 && done > p->total) done = p->total;
    amount_text(amount, p, done);
    if (p->total > 0) {
        double part = (double)done / (double)p->total;
        int filled = (int)(part * BAR_COLUMNS);
        char bar[] = "[--------------------] ";
        memset(bar + 1, '#', (size_t)filled);
        (void)snprintf(share, sizeof share, "%s%3.0f %%, ", log_on_terminal() ? bar : "",
                       100 * part);
        if (!last && done > 0)
            (void)snprintf(left, sizeof left, ", %.0f s left", (now - p->stage_s) * (1 / part - 1));
    }
    log_progress(last, "%s%s, %.0f s%s: %s%s%s", share, amount, spent, left, p->what,
                 p->name == NULL ? "" : " ", p->name == NULL ? "" : p->name);
}

Status progress_to(Progress *p, int64_t done)
{
    if (p == NULL) return OK;
    atomic_store(&p->done, done);
    return progress_add(p, 0);
}

/* Of several threads, the one that succeeds in updating shown_ms draws the line. */
Status progress_add(Progress *p, int64_t n)
{
    if (p == NULL) return OK;
    int64_t done = atomic_fetch_add(&p->done, n) + n, shown = atomic_load(&p->shown_ms);
    double spent = clock_s() - p->begin_s;
    if (p->left != NULL) TRY(interrupt_check(p->left));
    if (spent < PATIENCE_S || spent < (double)shown / 1e3 + REDRAW_S) return OK;
    if (atomic_compare_exchange_strong(&p->shown_ms, &shown, (int64_t)(spent * 1e3)))
        draw_line(p, done, false);
    return OK;
}

void progress_end(Progress *p)
{
    if (p->shown_ms > 0) draw_line(p, p->done, true);
}
