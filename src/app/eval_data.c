/* eval_data: finds out which sources the run was trained on, and reads token ids. */
#include "app/eval_data.h"

#include "corpus/shard/fingerprint.h"
#include "engine/base/file.h"
#include "engine/base/log.h"

#include <inttypes.h>
#include <string.h>

static Status sum_of(const char *prefix, Arena *a, char sum[FILE_SUM_BYTES])
{
    Text lines = { 0 };
    ArenaMark mark = arena_mark(a);
    Status s = text_init(&lines, a);
    if (s == OK) s = fingerprint_shard(prefix, &lines, sum);
    arena_release(a, mark);
    return s;
}

/* Is this the sum of source k of the training? An old checkpoint has none: then the files of today count. */
static bool is_source(const ConfigSources *trained, const SourcesTaken *was, int k, const char *sum,
                      Arena *a)
{
    char today[FILE_SUM_BYTES] = "";
    if (was->sum[0] != NULL) return was->sum[k] != NULL && strcmp(was->sum[k], sum) == 0;
    if (sum_of(trained->at[k].path, a, today) != OK) status_clear();
    return strcmp(today, sum) == 0;
}

Status eval_sources(const ConfigSources *trained, const CheckpointInfo *info, LoaderConfig *data,
                    Arena *a)
{
    const SourcesTaken *was = &info->taken;
    const bool old = was->n == 0 || was->sum[0] == NULL;
    LoaderSource *own = NULL;
    TRY(ARENA_NEW(a, data->n_sources, &own));
    for (int i = 0, n = old ? trained->n : was->n; i < data->n_sources; i++) {
        char sum[FILE_SUM_BYTES];
        int k = 0;
        own[i] = data->sources[i];
        TRY(sum_of(own[i].path, a, sum));
        while (k < n && !is_source(trained, was, k, sum, a)) k++;
        if (k < n) own[i].held_as = old ? trained->at[k].name : was->name[k];
        if (k == n)
            log_warn(
                "%s is not what the run was trained on, as a whole: whether its documents were "
                "trained on is not known; a share of %g of them is measured",
                own[i].name, data->validation);
        else if (strcmp(own[i].held_as, own[i].name) != 0)
            log_info("%s is source %s of the run: what was held out of it is measured", own[i].name,
                     own[i].held_as);
    }
    data->sources = own;
    return OK;
}

/* The file is not ours, so each id is checked. */
Status eval_read_tokens(const char *path, int64_t vocab, Arena *a, int32_t **ids, int64_t *n)
{
    char *bytes = NULL;
    size_t size = 0;
    TRY(file_read_input(path, a, &bytes, &size));
    if (size == 0 || size % sizeof(int32_t) != 0)
        return FAIL(ERR_FORMAT, "%s: %zu bytes are not a list of 32-bit token ids", path, size);
    *ids = (int32_t *)(void *)bytes;
    *n = (int64_t)(size / sizeof(int32_t));
    for (int64_t i = 0; i < *n; i++) {
        if ((*ids)[i] < 0 || (*ids)[i] >= vocab)
            return FAIL(ERR_FORMAT,
                        "%s: token %" PRId64 " has id %d, the vocabulary ends at %" PRId64, path, i,
                        (int)(*ids)[i], vocab - 1);
    }
    return OK;
}
