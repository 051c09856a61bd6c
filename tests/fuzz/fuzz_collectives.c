/* Two traces, with a line of %% between, as those of two ranks: refused with a sentence, or collectives whose waits are
 * not below 0, and their sheets. */
#include "compat/compat.h"
#include "harness/fuzz.h"

static Status use(const Collectives *c, const Fuzz *f)
{
    Table sheet[COLLECTIVE_SHEETS];
    Text text = { 0 };
    int n = 0;
    for (int64_t i = 0; i < c->n_slots; i++) {
        const CollectiveSlot *s = &c->slots[i];
        need(s->wait_sum >= 0 && s->calls > 0 && s->call + s->calls <= c->n_calls);
        need(s->group >= 0 && s->group < c->n_groups);
    }
    TRY(collectives_sheets(c, sheet, &n));
    need(n <= COLLECTIVE_SHEETS);
    TRY(text_init(&text, f->page));
    return collectives_text(c, sheet, &text);
}

static Status look(Fuzz *f)
{
    Collectives c = { 0 };
    const CollectivesOptions o = { .partial = true,
                                   .threads = 1,
                                   .gpus_per_node = (int64_t)(f->bytes % 3),
                                   .rules = f->bytes % 2 == 1 ? &compat_collective_rules : NULL };
    const FuzzPart first = fuzz_part(f, "\n%%\n");
    const char *path[] = { fuzz_file("rank0.json", first.data, first.bytes),
                           fuzz_file("rank1.json", f->data, f->bytes) };
    Status s = collectives_open(&c, path, f->bytes > 0 ? 2 : 1, &o, f->a);
    if (s == OK) s = use(&c, f);
    collectives_close(&c);
    return s;
}

const Fuzzer fuzzer = { .look = look };
