/* kernels: finds and runs the first candidate of a table that supports a call, and says why others
 * do not. The tables are in attention_kernels.c and product_kernels.c. */
#include "kernels/core/kernels.h"

#include "engine/base/text.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

const KernelDevice kernel_device_full = { .vendor = VENDOR_NVIDIA, .capability = 90 };
static const KernelDevice amd_device_full = { .vendor = VENDOR_AMD, .capability = 94 };

bool kernel_refuses(KernelWhy *why, bool expected, const char *format, ...)
{
    va_list args;
    why->expected = expected;
    va_start(args, format);
    (void)vsnprintf(why->text, sizeof why->text, format, args);
    va_end(args);
    return false;
}

/* VENDOR_ANY as the device's vendor means that there is no GPU at all. */
static bool fits_device(const KernelDesc *k, const KernelDevice *d, KernelWhy *why)
{
    if (d->vendor == VENDOR_ANY) return kernel_refuses(why, true, "there is no GPU");
    if (k->vendor == VENDOR_ANY) return true;
    if (k->vendor != d->vendor)
        return kernel_refuses(why, true, "it is made for another vendor's GPUs");
    if (d->capability < k->capability_least)
        return kernel_refuses(why, true, "compute capability is %d.%d, %d.%d is the least",
                              d->capability / 10, d->capability % 10, k->capability_least / 10,
                              k->capability_least % 10);
    if (k->capability_most > 0 && d->capability > k->capability_most)
        return kernel_refuses(why, true, "compute capability is %d.%d, %d.%d is the most",
                              d->capability / 10, d->capability % 10, k->capability_most / 10,
                              k->capability_most % 10);
    if (k->capability_most > 0 && d->lacks_code != NULL)
        return kernel_refuses(why, false, "%s", d->lacks_code);
    return true;
}

/* The call is asked before the library: "your heads are too wide" helps more than "install hipBLASLt". */
bool kernel_can(const KernelDesc *k, const KernelDevice *d, const void *call, KernelWhy *why)
{
    *why = (KernelWhy){ .expected = true };
    if (!fits_device(k, d, why)) return false;
    if (k->can != NULL && !k->can(call, why)) return false;
    const char *lacks = k->library == 0 ? NULL : d->lacks[k->library - 1];
    return lacks == NULL || kernel_refuses(why, false, "%s", lacks);
}

const KernelDesc *kernels_first(const KernelTable *t, const KernelDevice *d, int asked,
                                const void *call)
{
    KernelWhy why;
    for (int i = 0; i < t->n; i++) {
        if (asked > 0 && asked != i + 1) continue;
        if (kernel_can(&t->row[i], d, call, &why)) return &t->row[i];
    }
    return NULL;
}

/* The largest, because a row may refuse when it runs, and the next one must then find enough room. */
size_t kernels_workspace(const KernelTable *t, int asked, const void *call)
{
    KernelWhy why;
    size_t most = 0;
    for (int i = 0; i < t->n; i++) {
        const KernelDesc *k = &t->row[i];
        const KernelDevice *full = k->vendor == VENDOR_AMD ? &amd_device_full : &kernel_device_full;
        if (asked > 0 && asked != i + 1) continue;
        if (k->workspace == NULL || !kernel_can(k, full, call, &why)) continue;
        size_t bytes = k->workspace(call);
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* The refusal that is worth telling, for a note or an error. */
typedef struct Refusals {
    const KernelDesc *missed; /* the first row that a user could expect to run here */
    KernelWhy why;            /* its reason; without such a row the last row's reason */
} Refusals;

/* Rows that were never meant for this device are no news. The first that a user could expect is. */
static void refusal_add(Refusals *r, const KernelDesc *k, const KernelWhy *why)
{
    if (r->missed != NULL) return;
    r->why = *why;
    if (!why->expected) r->missed = k;
}

/* *done: the row ran the call. Otherwise *why has the reason. A kernel may also refuse at run time,
 * with ERR_UNSUPPORTED, before it launched anything. */
static Status row_run(Exec *ex, const KernelDesc *k, const void *call, KernelWhy *why, bool *done)
{
    *done = false;
    if (!kernel_can(k, ex->device, call, why)) return OK;
    assert(k->run != NULL);
    Status s = k->run(ex, call);
    *done = s == OK;
    if (s != ERR_UNSUPPORTED) return s;
    why->expected = false;
    status_sentence(why->text, sizeof why->text);
    status_clear();
    return OK;
}

/* Asks again in every call: `can` costs nothing next to a launch, and shapes may change. */
Status kernels_run(Exec *ex, const KernelTable *t, const char *op, int asked, const void *call)
{
    Refusals refused = { 0 };
    for (int i = 0; i < t->n; i++) {
        const KernelDesc *k = &t->row[i];
        char note[EXEC_NOTE_BYTES];
        KernelWhy why;
        bool done = false;
        if (asked > 0 && asked != i + 1) continue;
        TRY(row_run(ex, k, call, &why, &done));
        if (!done) refusal_add(&refused, k, &why);
        if (!done) continue;
        if (op == NULL || refused.missed == NULL) return OK;
        (void)snprintf(note, sizeof note, "a slower kernel runs, %s instead of %s: %s", k->name,
                       refused.missed->name, refused.why.text);
        exec_note_once(ex, op, note);
        return OK;
    }
    if (asked > 0)
        return FAIL(ERR_UNSUPPORTED, "%s is %s, which cannot run here: %s", t->setting,
                    t->row[asked - 1].name, refused.why.text);
    return FAIL(ERR_UNSUPPORTED, "%s: no kernel can run this call: %s", op == NULL ? "product" : op,
                refused.why.text);
}
