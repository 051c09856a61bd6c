/* Any bytes as a pickle: a tree of known kinds, or an error. Then as .metadata of a folder with one file of a few bytes, and
 * as an archive of torch.save. */
#include "dcp/dcp.h"
#include "dcp/pickle.h"
#include "harness/fuzz.h"

enum { LEVELS = 6 };

/* Lists and dicts may contain themselves. Texts end with a NUL. */
static void walk(const Pickle *p, int levels)
{
    if (p == NULL || levels == 0) return;
    need(p->kind < PICKLE_MARK);
    const bool text = p->kind == PICKLE_TEXT || p->kind == PICKLE_GLOBAL;
    if (text) need(p->text[strlen(p->text)] == '\0');
    need(p->n >= 0);
    const bool leaf = text || p->kind <= PICKLE_BYTES;
    for (int64_t i = 0; !leaf && i < p->n && i < 64; i++) walk(p->item[i], levels - 1);
}

/* A name outside of the list must not come out of any pickle. */
static Status read_tree(Fuzz *f)
{
    static const char *const globals[] = { "torch.Size", "collections.OrderedDict", NULL };
    const Pickle *p = NULL;
    int64_t size[4];
    const PickleSource source = { "fuzz", f->data, f->bytes, globals };
    TRY(pickle_read(&source, f->a, &p));
    walk(p, LEVELS);
    (void)pickle_get(p, "state_dict_metadata");
    need(pickle_sizes(p, size, 4) <= 4);
    return OK;
}

static Status read_archive(Fuzz *f)
{
    ItemTensor t;
    const Item item = { "fuzz", "key", f->data, f->bytes, NULL };
    TRY(item_tensor(&item, f->a, &t));
    need(t.rank >= 0 && t.rank <= ITEM_RANK_MAX);
    need(t.at <= f->bytes && t.bytes <= f->bytes - t.at);
    return OK;
}

static Status read_folder(const Fuzz *f)
{
    Dcp d = { 0 };
    (void)fuzz_file("__0_0.distcp", "0123456789abcdef", 16);
    (void)fuzz_file(".metadata", f->data, f->bytes);
    const Status s = dcp_open(&d, fuzz_folder(), f->a);
    for (int64_t i = 0; s == OK && i < d.n; i++) need(d.at[i].rank <= ITEM_RANK_MAX);
    dcp_close(&d);
    return s;
}

static Status look(Fuzz *f)
{
    const Status tree = read_tree(f), archive = read_archive(f), folder = read_folder(f);
    return tree != OK ? tree : archive != OK ? archive : folder;
}

const Fuzzer fuzzer = { .look = look };
