/* verify: chooses layouts, writes their settings, and fits factors to their times; verify_run.c runs them. */
#include "planner/search/verify.h"

#include <math.h>
#include <string.h>

const char *const verify_part_names[VERIFY_PARTS] = { "compute", "exchange", "gradients" };

/* ---- which layouts ---- */

static bool same_mesh(const PlanLayout *a, const PlanLayout *b)
{
    return a->pp == b->pp && a->ep == b->ep && a->cp == b->cp;
}

static bool same_kind(const PlanLayout *a, const PlanLayout *b)
{
    return same_mesh(a, b) && a->zero == b->zero && a->recompute == b->recompute &&
           a->recompute_blocks == b->recompute_blocks;
}

/* In a pass a row is taken if none that is taken is the same by its rule; the last pass has none. */
int verify_choose(const SearchRow *row, int n, int want, int chosen[VERIFY_MAX])
{
    static bool (*const same[])(const PlanLayout *, const PlanLayout *) = { same_mesh, same_kind,
                                                                            NULL };
    bool taken[SEARCH_TOP_MAX] = { false };
    int count = 0, all = want < VERIFY_MAX ? want : VERIFY_MAX;
    for (int pass = 0; pass < 3; pass++) {
        for (int i = 0; i < n && count < (pass == 0 ? (all + 1) / 2 : all); i++) {
            bool known = taken[i];
            for (int k = 0; k < n && same[pass] != NULL; k++)
                known |= taken[k] && same[pass](&row[k].layout, &row[i].layout);
            count += !known;
            taken[i] |= !known;
        }
    }
    for (int i = count = 0; i < n; i++)
        if (taken[i]) chosen[count++] = i;
    return count;
}

/* ---- its command ---- */

Status verify_words(ProcessWords *out, Arena *a, const char *words)
{
    for (size_t n; *(words += strspn(words, " ")) != '\0'; words += n) {
        const char *word = NULL;
        n = strcspn(words, " ");
        TRY(arena_text(a, words, n, &word));
        TRY(process_word(out, word));
    }
    return OK;
}

/* What plan_config_of sets, as overrides. */
Status verify_settings(const Config *c, const SearchRow *row, Arena *a, ProcessWords *out)
{
    static const char set[] =
        "mesh.pp|mesh.vpp|mesh.ep|mesh.cp|mesh.tp|mesh.zero|mesh.shard|mesh.schedule|mesh.layout|"
        "train.micro_batch|run.compute|moe.buffers|fp8.recipe|optimizer.offload|recompute.layers|"
        "recompute.pieces";
    Config now;
    TRY(plan_config_of(c, &row->layout, &row->price, row->partition, a, &now));
    for (int i = 0; i < config_row_count; i++) {
        const ConfigRow *setting = &config_rows[i];
        const void *value = (const char *)&now + setting->offset;
        Text word;
        if (text_word_index(set, setting->name) < 0) continue;
        TRY(text_init(&word, a));
        TRY(text_printf(&word, "%s=", setting->name));
        /* an override's text has no quotes */
        TRY(setting->type == CONFIG_TEXT ? text_printf(&word, "%s", *(const char *const *)value)
                                         : config_print_value(setting, &now, &word));
        TRY(process_word(out, word.data));
    }
    return OK;
}

/* ---- factors ---- */

/* A step's seconds by group. */
static void groups_of(const PlanPrice *p, double out[VERIFY_PARTS])
{
    const double *s = p->part_s;
    out[VERIFY_COMPUTE] = s[PLAN_COMPUTE] + s[PLAN_SLOWED] + s[PLAN_SLOWEST] + s[PLAN_UPDATE] +
                          s[PLAN_HOST] + s[PLAN_CHECKPOINT];
    out[VERIFY_EXCHANGE] = s[PLAN_EXCHANGE] + s[PLAN_CONTEXT] + s[PLAN_SEND];
    out[VERIFY_GRADIENTS] = s[PLAN_GRADIENTS];
    double bubble = s[PLAN_BUBBLE] / (out[VERIFY_COMPUTE] + out[VERIFY_EXCHANGE]);
    out[VERIFY_COMPUTE] *= 1 + bubble;
    out[VERIFY_EXCHANGE] *= 1 + bubble;
}

double verify_step_s(const VerifyFit *f, const PlanPrice *p)
{
    double part[VERIFY_PARTS], s = 0;
    groups_of(p, part);
    for (int k = 0; k < VERIFY_PARTS; k++) s += f->factor[k] * part[k];
    return s;
}

/* Mean distance of the corrected plan from what was measured. */
static double mean_error(const VerifyRun *run, int n, const VerifyFit *f)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        if (run[i].ran) sum += fabs(verify_step_s(f, &run[i].row->price) / run[i].step_s - 1);
    return sum / f->n;
}

enum { COLUMNS = VERIFY_PARTS + 1 };

/* Solves the normal equations by elimination; the ridge makes the diagonal positive, so no pivot is needed. */
static void solve(double m[VERIFY_PARTS][COLUMNS], double out[VERIFY_PARTS])
{
    for (int k = 0; k < VERIFY_PARTS; k++) {
        for (int i = k + 1; i < VERIFY_PARTS; i++) {
            double q = m[i][k] / m[k][k];
            for (int j = k; j < COLUMNS; j++) m[i][j] -= q * m[k][j];
        }
    }
    for (int k = VERIFY_PARTS - 1; k >= 0; k--) {
        out[k] = m[k][VERIFY_PARTS];
        for (int j = k + 1; j < VERIFY_PARTS; j++) out[k] -= m[k][j] * out[j];
        out[k] /= m[k][k];
    }
}

/* The weight of the second term: as that of a part of 3 % of the steps. A factor stays above a tenth of the common
 * one, since noise may ask for less. */
static const double RIDGE = 1e-3, LEAST = 0.1;

void verify_fit(const VerifyRun *run, int n, VerifyFit *out)
{
    double m[VERIFY_PARTS][COLUMNS] = { { 0 } }, g[VERIFY_PARTS], ab = 0, aa = 0;
    *out = (VerifyFit){ .factor = { 1, 1, 1 } };
    for (int i = 0; i < n; i++) {
        if (!run[i].ran) continue;
        double planned = verify_step_s(out, &run[i].row->price) / run[i].step_s;
        ab += planned, aa += planned * planned;
        out->n++;
    }
    if (out->n == 0) return;
    out->before = mean_error(run, n, out);
    const double common = ab / aa;
    for (int i = 0; i < n; i++) {
        double x[VERIFY_PARTS];
        if (!run[i].ran) continue;
        groups_of(&run[i].row->price, x);
        for (int k = 0; k < VERIFY_PARTS; k++) x[k] *= common / run[i].step_s;
        for (int k = 0; k < VERIFY_PARTS; k++) {
            for (int j = 0; j < VERIFY_PARTS; j++) m[k][j] += x[k] * x[j];
            m[k][VERIFY_PARTS] += x[k];
        }
    }
    for (int k = 0; k < VERIFY_PARTS; k++) m[k][k] += RIDGE, m[k][VERIFY_PARTS] += RIDGE;
    solve(m, g);
    for (int k = 0; k < VERIFY_PARTS; k++) out->factor[k] = common * fmax(g[k], LEAST);
    out->after = mean_error(run, n, out);
}
