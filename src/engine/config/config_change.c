/* config_change: finds what differs between two configurations, and decides by the rows' marks whether
 * a training that began with one may continue with the other. */
#include "engine/config/config_private.h"

#include <stdio.h>
#include <string.h>

/* The step at which the curve of the learning rate ends; a constant rate has no end. */
static int64_t decay_end(const Config *c)
{
    if (c->optimizer_schedule == RATE_CONSTANT) return 0;
    return c->optimizer_decay_steps > 0 ? c->optimizer_decay_steps : c->train_steps;
}

/* Does the mathematics depend on the micro-batch size? It does if the auxiliary loss or the capacity
 * factor counts the tokens of a micro-batch. */
static bool aux_of_micro_batch(const Config *c)
{
    bool aux = c->moe_aux_scope != AUX_SEQUENCE && c->moe_aux_loss > 0;
    return (aux || c->moe_capacity > 0) && config_moe_layers(c) > 0;
}

/* May a row change? Its mark decides, except for three rows that depend on others. Two rows determine
 * where the curve of the learning rate ends. train.steps is blamed only if decay_steps did not
 * change, so that one change is reported once. */
static bool is_free(const ConfigRow *row, const Config *then, const Config *now)
{
    bool same_end = decay_end(then) == decay_end(now);
    bool same_decay = then->optimizer_decay_steps == now->optimizer_decay_steps;
    if (row->offset == offsetof(Config, train_steps)) return same_end || !same_decay;
    if (row->offset == offsetof(Config, optimizer_decay_steps)) return same_end;
    if (row->offset == offsetof(Config, train_micro_batch))
        return !aux_of_micro_batch(then) && !aux_of_micro_batch(now);
    return row->mark == CONFIG_FREE;
}

/* Values are compared as they are printed, so one rule serves all types. */
static Status value_text(const ConfigRow *row, const Config *c, Arena *a, const char **out)
{
    Text t = { 0 };
    TRY(text_init(&t, a));
    TRY(config_print_value(row, c, &t));
    *out = t.data;
    return OK;
}

/* The texts of rows that did not change are given back at once. */
Status config_changes(const Config *then, const Config *now, Arena *a, const ConfigChange **out,
                      int *n)
{
    ConfigChange *all = NULL;
    int found = 0;
    TRY(ARENA_NEW(a, config_row_count, &all));
    for (int i = 0; i < config_row_count; i++) {
        const ConfigRow *row = &config_rows[i];
        if (row->level == CONFIG_PLAN) continue;
        ConfigChange c = { .row = row, .free = is_free(row, then, now) };
        ArenaMark mark = arena_mark(a);
        TRY(value_text(row, then, a, &c.then));
        TRY(value_text(row, now, a, &c.now));
        if (strcmp(c.then, c.now) == 0) {
            arena_release(a, mark);
        } else {
            all[found++] = c;
        }
    }
    *out = all;
    *n = found;
    return OK;
}

static bool names(const char *const *keys, int n, const char *key)
{
    for (int i = 0; i < n; i++) {
        if (strcmp(keys[i], key) == 0) return true;
    }
    return false;
}

/* The two ways to continue with another train.steps, one line each. */
static void curve_hint(const ConfigChange *c, char *out, size_t out_bytes)
{
    if (c->row->offset != offsetof(Config, train_steps)) return;
    (void)snprintf(out, out_bytes,
                   "; train.steps moves the end of the learning-rate curve:"
                   "\n  optimizer.decay_steps=%s keeps the curve, which ends at step %s"
                   "\n  --change train.steps stretches the curve to step %s",
                   c->then, c->then, c->now);
}

/* All changes are in one error with the words that would allow them, so that a user can copy
 * them. */
Status config_check_changes(const char *what, const ConfigChange *changes, int n,
                            const char *const *allowed, int n_allowed)
{
    enum { LIST_BYTES = 640, HINT_BYTES = 256 };
    char list[LIST_BYTES] = "", hint[HINT_BYTES] = "";
    size_t used = 0;
    const ConfigRow *row = NULL;
    for (int i = 0; i < n_allowed; i++)
        TRY(config_row_find("--change", allowed[i], NULL, true, &row));
    for (int i = 0; i < n; i++) {
        const char *name = changes[i].row->name;
        if (changes[i].free || names(allowed, n_allowed, name)) continue;
        curve_hint(&changes[i], hint, sizeof hint);
        if (used < sizeof list)
            used += (size_t)snprintf(list + used, sizeof list - used, " --change %s", name);
    }
    if (used == 0) return OK;
    return FAIL(ERR_ARG,
                "%s was trained with other mathematics or on other data: take its values, or allow "
                "each other one with%s%s",
                what, list, hint);
}
