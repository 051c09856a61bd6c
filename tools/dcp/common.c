/* common: see common.h. The paths to numbers are walked by hand, as a pickle's lists and dicts may contain themselves. */
#include "dcp/common.h"

#include "dcp/item.h"
#include "engine/base/file.h"

static const char *const globals[] = { "torch.*",
                                       "megatron.*",
                                       "transformer_engine.*",
                                       "apex.*",
                                       "numpy.*",
                                       "argparse.Namespace",
                                       "types.SimpleNamespace",
                                       "collections.OrderedDict",
                                       "collections.defaultdict",
                                       "collections.deque",
                                       "datetime.*",
                                       "pathlib.*",
                                       "_codecs.encode",
                                       "__builtin__.set",
                                       "__builtin__.getattr",
                                       "builtins.set",
                                       "builtins.getattr",
                                       NULL };

static void note_updates(const Item *item, const Pickle *p, DcpCommon *out)
{
    double now = 0;
    if (p == NULL || p->kind == PICKLE_NONE) return;
    if (!item_number(item, p, &now)) now = -2;
    out->updates = out->updates == -1 || out->updates == now ? now : -2;
}

/* p: one optimizer's state. */
static void read_optimizer(const Item *item, const Pickle *p, DcpCommon *out)
{
    const Pickle *inner = pickle_get(p, "optimizer");
    const Pickle *groups = pickle_get(inner != NULL ? inner : p, "param_groups");
    const Pickle *state = pickle_get(inner != NULL ? inner : p, "state");
    note_updates(item, pickle_get(state, "common_step"), out);
    for (int64_t i = 0; pickle_is(groups, PICKLE_LIST) && i < groups->n; i++)
        note_updates(item, pickle_get(groups->item[i], "step"), out);
}

static void read_numbers(const Item *item, const Pickle *p, DcpCommon *out)
{
    const Pickle *step = pickle_get(p, "iteration"), *all = pickle_get(p, "optimizer");
    if (step != NULL) out->has_step = item_number(item, step, &out->step);
    read_optimizer(item, all, out);
    for (int64_t i = 0; pickle_is(all, PICKLE_DICT) && i < all->n; i += 2)
        if (pickle_is(all->item[i], PICKLE_INT)) read_optimizer(item, all->item[i + 1], out);
}

Status dcp_common_read(const char *folder, Arena *a, DcpCommon *out)
{
    char path[FILE_PATH_MAX], *data = NULL;
    size_t bytes = 0;
    const Pickle *p = NULL;
    *out = (DcpCommon){ .updates = -1 };
    TRY(file_join(path, folder, DCP_COMMON));
    if (!file_exists(path)) return OK;
    ArenaMark mark = arena_mark(a);
    TRY(file_read_all(path, a, &data, &bytes));
    const Item item = { path, DCP_COMMON, (const uint8_t *)data, bytes, globals };
    TRY(item_value(&item, a, &p));
    read_numbers(&item, p, out);
    arena_release(a, mark);
    return OK;
}
