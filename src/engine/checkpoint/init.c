/* init: compares the configuration of a checkpoint with the one that is asked for, by building both tables
 * of parameters. So there is no list of settings that change shapes. */
#include "engine/checkpoint/init.h"

#include "engine/base/file.h"
#include "engine/base/log.h"
#include "engine/base/text.h"
#include "engine/checkpoint/checkpoint.h"

#include <stdio.h>
#include <string.h>

bool init_is_hf(const char *path)
{
    char manifest[FILE_PATH_MAX], config[FILE_PATH_MAX];
    bool joined = file_join(manifest, path, MANIFEST_NAME) == OK &&
                  file_join(config, path, "config.json") == OK;
    if (!joined) status_clear();
    return joined && file_exists(config) && !file_exists(manifest);
}

Status init_resolve(const char *path, Arena *scratch, char out[])
{
    if (init_is_hf(path))
        return FAIL(ERR_ARG,
                    "%s is a Hugging Face folder (it has config.json): make a checkpoint of it "
                    "first, with switchyard convert from-hf",
                    path);
    return checkpoint_resolve(path, scratch, out);
}

void init_log_changes(const char *who, const ConfigChange *changes, int n)
{
    for (int i = 0; i < n; i++) {
        log_info("%s: %s is %.200s, was %.200s", who, changes[i].row->name, changes[i].now,
                 changes[i].then);
    }
}

/* The whole model's parameters, as one rank without shards would hold them. No role is frozen:
 * freezing moves parameters between buckets, but changes neither their names nor their shapes. */
static Status table_of(const Config *c, Arena *a, ParamTable *out)
{
    Config alone = *c;
    ModelSpec spec;
    config_alone(&alone);
    alone.init_frozen.n = 0;
    TRY(spec_build(&alone, a, &spec));
    return params_build(&spec, 0, NULL, a, out);
}

/* Parameters of both tables stand in the same order, so a comparison by index finds any
 * difference. */
static bool same_tables(const ParamTable *x, const ParamTable *y)
{
    bool same = x->n == y->n;
    for (int i = 0; i < x->n && same; i++) {
        const Param *p = &x->at[i], *q = &y->at[i];
        same = strcmp(p->name, q->name) == 0 && p->rank == q->rank;
        for (int d = 0; d < p->rank; d++) same &= p->dim[d] == q->dim[d];
    }
    return same;
}

/* Would this change alone give the checkpoint's model other parameters? */
static Status changes_parameters(const Config *then, const ParamTable *was, const ConfigChange *c,
                                 Arena *a, bool *out)
{
    char text[1024];
    Config trial = *then;
    ParamTable table;
    ArenaMark mark = arena_mark(a);
    (void)snprintf(text, sizeof text, "%s=%.900s", c->row->name, c->now);
    TRY(config_override(&trial, a, text));
    trial.mtp_layers = then->mtp_layers; /* modules may differ */
    TRY(table_of(&trial, a, &table));
    *out = !same_tables(was, &table);
    arena_release(a, mark);
    return OK;
}

/* Fails if the checkpoint's model has parameters of other names or shapes. Changes are tried one at a time on
 * the checkpoint's own configuration, so the error names only the settings that are to blame. */
static Status check_parameters(const Config *then, const ParamTable *was,
                               const ConfigChange *changes, int n, const char *path, Arena *a)
{
    enum { LIST_BYTES = 640 };
    char list[LIST_BYTES] = "";
    size_t used = 0;
    for (int i = 0; i < n; i++) {
        const ConfigChange *c = &changes[i];
        bool other = false;
        if (c->row->mark == CONFIG_MATH) TRY(changes_parameters(then, was, c, a, &other));
        if (other && used < sizeof list)
            used += (size_t)snprintf(list + used, sizeof list - used,
                                     "%s %s is %.40s there, %.40s here", used > 0 ? "," : "",
                                     c->row->name, c->then, c->now);
    }
    if (used == 0) return OK;
    return FAIL(ERR_ARG, "%s has parameters of other names or shapes:%s; take its values", path,
                list);
}

/* Parameters are compared as if both models had the smaller number of modules of multi-token prediction. */
Status init_check(const Config *now, const char *path, CheckpointInfo *info, bool is_rank0,
                  Arena *a)
{
    char count[32];
    const ConfigChange *changes = NULL;
    Config then, both;
    ParamTable was, more;
    int n = 0;
    TRY(checkpoint_config(path, info, a, &then));
    TRY(config_changes(&then, now, a, &changes, &n));
    if (is_rank0) init_log_changes("init", changes, n);
    const bool fewer = now->mtp_layers < then.mtp_layers;
    info->modules = then.mtp_layers;
    both = then;
    both.mtp_layers = fewer ? now->mtp_layers : then.mtp_layers;
    TRY(table_of(&both, a, &was));
    TRY(check_parameters(&both, &was, changes, n, path, a));
    if (now->mtp_layers == then.mtp_layers) return OK;
    if (now->init_moments && !fewer && then.mtp_layers > 0)
        return FAIL(ERR_ARG,
                    "init.moments: %s has moments of %d of %d modules of multi-token prediction, "
                    "which share one number of updates; take its mtp.layers, or no moments",
                    path, (int)then.mtp_layers, (int)now->mtp_layers);
    TRY(table_of(fewer ? &then : now, a, &more));
    if (is_rank0)
        log_info("init: %s parameters of multi-token prediction (model.layers.%d on) %s",
                 text_thousands(count, more.total - was.total),
                 (int)(both.model_layers + both.mtp_layers),
                 fewer ? "are left out" : "begin as run.seed gives them");
    return OK;
}
