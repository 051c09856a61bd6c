/* from_dcp: finds who wrote a folder by the name of the embedding, then for each parameter the tensor that
 * holds it. Everything is checked before the output is begun. */
#include "dcp/from_dcp.h"

#include "convert/new_checkpoint.h"
#include "convert/rotated.h"
#include "dcp/common.h"
#include "dcp/dcp.h"
#include "dcp/layouts.h"
#include "engine/base/log.h"
#include "engine/model/optimizer.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { COPY_ELEMS = 1 << 16, KEY_BYTES = 512 };

/* Where a parameter is: element (r, c) is element first + r' * row_step + c * col_step of the tensor. r' is
 * the row in the order of their rotated columns. In a fused matrix, runs of `block` rows begin `stride` rows
 * apart. */
typedef struct View {
    DcpTensor *tensor;
    DcpTensor *whole;                    /* the optimizer's copy with all bits; NULL: none */
    DcpTensor *moment[OPTIMIZER_STATES]; /* of the same shape */
    Rotated rotated;
    int64_t first, row_step, col_step, block, stride;
} View;

typedef struct FromDcp {
    const ConvertFromDcp *o;
    Dcp dcp;
    const DcpLayout *layout;
    char prefix[KEY_BYTES]; /* before the names of the layout: "model." */
    char moments[32];       /* before the keys of moments: "optimizer.state." */
    unsigned family;        /* for names of transformers */
    bool pairs;             /* how the folder stores rotated columns */
    DcpCommon common;       /* of Megatron-Core */
    Config alone;           /* the configuration on one rank */
    ModelSpec spec;
    ParamTable params;
    View *view; /* by parameter */
    NewCheckpoint new;
    Arena *arena;
} FromDcp;

/* ---- who wrote it ---- */

/* Does AdamW update it? State that is not trained has no moments. */
static bool is_trained(const Param *p) { return p->rule != NULL && p->first[BUF_STATE] < 0; }

/* Moments have the names of weights in their keys. */
static bool is_moment(const char *key) { return strstr(key, "state.") != NULL; }

static Status find_layout(FromDcp *f)
{
    for (int l = 0; l < dcp_layout_count; l++) {
        const char *name = dcp_layouts[l].embedding;
        for (int64_t i = 0; i < f->dcp.n; i++) {
            const char *key = f->dcp.at[i].name;
            const size_t n = strlen(key) - (text_ends(key, name) ? strlen(name) : 0);
            const bool whole = n == 0 || (n < strlen(key) && key[n - 1] == '.');
            if (n == strlen(key) || !whole || is_moment(key) || n >= KEY_BYTES) continue;
            f->layout = &dcp_layouts[l];
            (void)snprintf(f->prefix, sizeof f->prefix, "%.*s", (int)n, key);
            return OK;
        }
    }
    return FAIL(ERR_UNSUPPORTED,
                "%s has %" PRId64 " keys, but none is an embedding: %s (TorchTitan), %s "
                "(Megatron-Core) or %s (transformers)",
                f->o->folder, f->dcp.n, dcp_layouts[0].embedding, dcp_layouts[1].embedding,
                dcp_layouts[2].embedding);
}

/* Names of transformers depend on the family, and so does the order of rotated columns. */
static Status find_family(FromDcp *f)
{
    const Config *c = f->o->config;
    Config theirs = *c;
    Json *json = NULL;
    const Family *family = NULL;
    if (f->layout->rule == NULL) {
        TRY(family_write(c, NULL, f->arena, &json, &family, &theirs));
        f->family = family->bit;
    }
    f->pairs = dcp_layout_pairs(f->layout, c, theirs.attention_rope_interleaved);
    if (f->o->rope != DCP_ROPE_AUTO) f->pairs = f->o->rope == DCP_ROPE_PAIRS;
    return OK;
}

/* ---- tensors ---- */

static Status check_tensor(const FromDcp *f, const FamilyTensor *want, const DcpTensor *t)
{
    char found[DCP_TEXT_BYTES], expected[DCP_TEXT_BYTES];
    DcpTensor w = { .type = t->type, .rank = want->rank };
    bool same = t->rank == want->rank;
    for (int i = 0; i < want->rank; i++) {
        w.dim[i] = want->dim[i];
        const bool longer = i == 0 && f->layout->megatron && want->layout == 0 && want->rank == 2 &&
                            strstr(t->name, "layers.") == NULL;
        same = same && (t->dim[i] == want->dim[i] || (longer && t->dim[i] > want->dim[i]));
    }
    if (same && want->rank > 0 && t->dim[0] > want->dim[0])
        log_info("%s: %s has %" PRId64 " rows; those after the vocabulary of %" PRId64
                 " are left out",
                 f->o->folder, t->name, t->dim[0], want->dim[0]);
    if (same && t->type != NULL && t->type->dtype >= 0) return OK;
    if (same)
        return FAIL(ERR_FORMAT, "%s: %s is %s; its type must be float32, bfloat16 or float16",
                    f->o->folder, t->name, dcp_text(found, t));
    return FAIL(ERR_FORMAT, "%s: %s is %s; by the configuration it must be %s", f->o->folder,
                t->name, dcp_text(found, t), dcp_text(expected, &w));
}

static Status fail_without(const FromDcp *f, const Param *p, const char *name)
{
    char dims[64];
    (void)snprintf(dims, sizeof dims, p->rank == 2 ? "%" PRId64 " x %" PRId64 : "%" PRId64,
                   p->dim[0], p->dim[1]);
    return FAIL(ERR_FORMAT, "%s has no tensor %s%s, which %s (%s) of the configuration needs",
                f->o->folder, f->prefix, name, p->name, dims);
}

/* In a fused matrix each key head has `shared` query heads, then its key, then its value. */
static void set_fused(const Config *c, unsigned layout, View *v)
{
    const int64_t head = c->attention_head_dim, shared = c->attention_heads / c->attention_kv_heads;
    const int64_t before = (layout & LAYOUT_QUERY) ? 0 : shared + ((layout & LAYOUT_VALUE) != 0);
    if ((layout & (LAYOUT_QUERY | LAYOUT_KEY | LAYOUT_VALUE)) == 0) return;
    v->block = layout & LAYOUT_QUERY ? shared * head : head;
    v->stride = (shared + 2) * head;
    v->first += before * head * v->row_step;
}

static DcpTensor *take(FromDcp *f, const char *before, const char *name, const char *behind)
{
    char key[KEY_BYTES];
    const int n = snprintf(key, sizeof key, "%s%s%s", before, name, behind);
    return n < KEY_BYTES ? dcp_take(&f->dcp, key) : NULL;
}

/* State of the optimizer. Its name stands behind the parameter's in TorchTitan, before it in Megatron-Core, which may
 * have several optimizers. */
static DcpTensor *take_state(FromDcp *f, const char *name, const char *state)
{
    enum { OPTIMIZERS = 16 };
    char before[2 * KEY_BYTES];
    DcpTensor *found = NULL;
    if (!f->layout->megatron) {
        (void)snprintf(before, sizeof before, ".%s", state);
        return take(f, f->moments, name, before);
    }
    (void)snprintf(before, sizeof before, "optimizer.state.%s.%s", state, f->prefix);
    found = take(f, before, name, "");
    for (int i = 0; i < OPTIMIZERS && found == NULL; i++) {
        (void)snprintf(before, sizeof before, "chained_%d.optimizer.state.%s.%s", i, state,
                       f->prefix);
        found = take(f, before, name, "");
    }
    return found;
}

/* Before 0.16 Megatron-Core also saved the parts of its ranks, each without its shape. */
static Status check_flat(const FromDcp *f, const FamilyTensor *want, const DcpTensor *t)
{
    char found[DCP_TEXT_BYTES];
    if (!f->layout->megatron || t->rank != want->rank + 1) return OK;
    return FAIL(ERR_UNSUPPORTED,
                "%s: %s is %s, flat parts as fully_sharded_model_space has them: load it with "
                "Megatron-Core and save it with --dist-ckpt-optim-fully-reshardable, or leave out "
                "the moments (--weights-only)",
                f->o->folder, t->name, dcp_text(found, t));
}

/* Moments, and in Megatron-Core the weights of which the model's are rounded copies. */
static Status find_states(FromDcp *f, const FamilyTensor *want, View *out)
{
    static const char *const names[OPTIMIZER_STATES] = { "exp_avg", "exp_avg_sq" };
    for (int i = 0; i < OPTIMIZER_STATES; i++) {
        out->moment[i] = take_state(f, want->name, names[i]);
        if (out->moment[i] == NULL)
            return FAIL(ERR_FORMAT, "%s has no %s of %s%s: --weights-only leaves out the moments",
                        f->o->folder, names[i], f->prefix, want->name);
        TRY(check_flat(f, want, out->moment[i]));
        TRY(check_tensor(f, want, out->moment[i]));
    }
    if (!f->layout->megatron) return OK;
    out->whole = take_state(f, want->name, "fp32_param");
    if (out->whole == NULL) out->whole = take_state(f, want->name, "param");
    return out->whole == NULL ? OK : check_tensor(f, want, out->whole);
}

/* All names that the layout has for a parameter are tried. */
static Status find_view(FromDcp *f, const Param *p, View *out)
{
    const Config *c = f->o->config;
    FamilyTensor want = { 0 }, next;
    char first[PARAM_NAME_MAX] = "";
    *out = (View){ 0 };
    for (int i = 0; out->tensor == NULL && dcp_layout_tensor(f->layout, f->family, p, c, i, &next);
         i++) {
        want = next;
        if (i == 0) (void)snprintf(first, sizeof first, "%s", want.name);
        out->tensor = take(f, f->prefix, want.name, "");
    }
    if (want.rank == 0)
        return FAIL(ERR_UNSUPPORTED,
                    "%s: the layout of %s has no place for %s of the configuration", f->o->folder,
                    f->layout->name, p->name);
    if (out->tensor == NULL) return fail_without(f, p, first);
    TRY(check_tensor(f, &want, out->tensor));
    int64_t part = 1;
    const int leading =
        ((want.layout & LAYOUT_STACKED) != 0) + ((want.layout & LAYOUT_LAYERS) != 0);
    for (int i = leading; i < want.rank; i++) part *= want.dim[i];
    out->first = want.first + want.expert * part;
    out->row_step = want.row_step;
    out->col_step = want.col_step;
    out->rotated = rotated_rows(c, p->name, f->pairs);
    set_fused(c, want.layout, out);
    return f->new.moments &&is_trained(p) ? find_states(f, &want, out) : OK;
}

/* A key that nobody uses means that the model would be computed wrongly. */
static Status check_rest(FromDcp *f)
{
    char shown[DCP_TEXT_BYTES];
    const char *first = NULL;
    int64_t n = 0;
    for (int64_t i = 0; i < f->dcp.n; i++) {
        const DcpTensor *t = &f->dcp.at[i];
        const bool trainer = dcp_layout_leaves_out(t->name);
        if (!t->taken && trainer && t->type != NULL && n++ == 0) first = t->name;
        if (t->taken || trainer) continue;
        return FAIL(ERR_FORMAT, "%s: the model of the configuration has no tensor %s, which is %s",
                    f->o->folder, t->name, dcp_text(shown, t));
    }
    if (n > 0)
        log_info("%s: %" PRId64 " tensors of the trainer's state are left out, the first is %s",
                 f->o->folder, n, first);
    return OK;
}

/* ---- moments ---- */

/* Megatron-Core's other ways to save its distributed optimizer have the order of its buffers, which depends on how many
 * ranks there were. */
static Status refuse_buckets(const FromDcp *f)
{
    for (int64_t i = 0; i < f->dcp.n && f->layout->megatron; i++) {
        const char *key = f->dcp.at[i].name;
        if (strstr(key, "optimizer.distributed.") == NULL) continue;
        return FAIL(ERR_UNSUPPORTED,
                    "%s: %s is state of the optimizer in the order of its buffers, not by "
                    "parameter: save with --dist-ckpt-optim-fully-reshardable, or leave out the "
                    "moments (--weights-only)",
                    f->o->folder, key);
    }
    return OK;
}

/* Moments are taken from AdamW to AdamW. The key of the embedding's first moment says where they are. */
static Status find_moments(FromDcp *f)
{
    static const char *const before[] = { "optimizer.state.", "optim.state.", "state." };
    DcpTensor *found = NULL, *third = NULL;
    const size_t places = f->layout->megatron ? 1 : sizeof before / sizeof *before;
    for (size_t i = 0; i < places && found == NULL; i++) {
        (void)snprintf(f->moments, sizeof f->moments, "%s", before[i]);
        found = take_state(f, f->layout->embedding, "exp_avg");
    }
    if (f->o->weights) return OK;
    if (found == NULL) return refuse_buckets(f);
    if (f->o->config->optimizer_kind != OPTIMIZER_ADAMW) {
        log_info("%s has moments of AdamW, which are left out: optimizer.kind is another one",
                 f->o->folder);
        return OK;
    }
    third = take_state(f, f->layout->embedding, "max_exp_avg_sq");
    if (third != NULL)
        return FAIL(ERR_UNSUPPORTED,
                    "%s: the moments are of AdamW with amsgrad, which is not supported: "
                    "--weights-only leaves them out",
                    f->o->folder);
    f->new.moments = true;
    return OK;
}

static bool is_count(double x) { return x >= 0 && x <= 1e15 && x == floor(x); }

/* Of TorchTitan: a number for each tensor. */
static Status read_updates(FromDcp *f, double *out)
{
    double updates = -1;
    for (int i = 0; i < f->params.n; i++) {
        char key[KEY_BYTES];
        double now = 0;
        bool found = false;
        if (!is_trained(&f->params.at[i])) continue;
        const char *name = f->view[i].tensor->name + strlen(f->prefix);
        if (i > 0 && f->view[i].tensor == f->view[i - 1].tensor) continue;
        (void)snprintf(key, sizeof key, "%s%.300s.step", f->moments, name);
        TRY(dcp_number(&f->dcp, key, &found, &now));
        if (!found || !is_count(now) || (updates >= 0 && now != updates))
            return FAIL(ERR_FORMAT,
                        "%s: %s is %s; the moments of all tensors must have had the same number of "
                        "updates: --weights-only leaves them out",
                        f->o->folder, key, found ? "another number" : "missing");
        updates = now;
    }
    *out = updates;
    return OK;
}

/* Megatron-Core has the updates and the step in a file of its own. Without moments neither is needed. */
static Status read_common(FromDcp *f)
{
    const Status s = dcp_common_read(f->o->folder, f->arena, &f->common);
    if (s == OK || !f->o->weights) return s;
    char why[KEY_BYTES];
    status_sentence(why, sizeof why);
    log_info("%s; the step is taken to be 0", why);
    status_clear();
    return OK;
}

/* The updates that the moments have had, which their correction depends on: the same for all of them. */
static Status find_updates(FromDcp *f)
{
    double updates = 0;
    if (f->layout->megatron) TRY(read_common(f));
    if (!f->new.moments) return OK;
    if (!f->layout->megatron) TRY(read_updates(f, &updates));
    if (f->layout->megatron) updates = f->common.updates;
    if (!is_count(updates))
        return FAIL(ERR_FORMAT,
                    "%s/" DCP_COMMON " does not have one count of updates for all groups of the "
                    "optimizer: --weights-only leaves out the moments",
                    f->o->folder);
    for (int i = 0; i < AGE_COUNT && updates > 0; i++)
        f->new.info.moment_steps[i] = (int64_t)updates;
    return OK;
}

static Status find_step(FromDcp *f)
{
    double step = 0;
    bool found = false;
    TRY(dcp_number(&f->dcp, "train_state.step", &found, &step));
    if (f->common.has_step) found = true, step = f->common.step;
    if (!found) step = (double)f->new.info.moment_steps[AGE_MODEL];
    if (!is_count(step))
        return FAIL(ERR_FORMAT, "%s: the step is %g; it must be a whole number >= 0", f->o->folder,
                    step);
    f->new.info.step = (int64_t)step;
    return OK;
}

/* ---- a head that is the embedding ---- */

/* Folders repeat the embedding as the head where both are one. The copy must have the same elements. */
static Status check_head(FromDcp *f)
{
    static const char *const heads[] = { "lm_head.weight", "output.weight", "output_layer.weight" };
    DcpTensor *head = NULL, *table = f->view[0].tensor;
    float *room[2];
    for (size_t i = 0; i < sizeof heads / sizeof *heads && head == NULL; i++)
        head = take(f, f->prefix, heads[i], "");
    if (head == NULL || !f->o->config->model_tied) return OK;
    const int64_t n = dcp_elems(table);
    bool same = head->type == table->type && head->rank == 2 && head->dim[0] == table->dim[0] &&
                head->dim[1] == table->dim[1];
    for (int k = 0; k < 2; k++) TRY(ARENA_NEW(f->arena, COPY_ELEMS, &room[k]));
    for (int64_t i = 0; same && i < n; i += COPY_ELEMS) {
        const int64_t part = n - i < COPY_ELEMS ? n - i : COPY_ELEMS;
        TRY(dcp_read(&f->dcp, table, i, part, room[0]));
        TRY(dcp_read(&f->dcp, head, i, part, room[1]));
        same = memcmp(room[0], room[1], (size_t)part * sizeof(float)) == 0;
    }
    if (same) return OK;
    return FAIL(ERR_FORMAT, "%s: %s differs from %s, but model.tied is true: set it to false",
                f->o->folder, head->name, table->name);
}

/* ---- reading ---- */

/* Where row r begins in the tensor. */
static int64_t row_place(const FromDcp *f, const View *v, int64_t r)
{
    r = rotated_row(v->rotated, f->o->config->attention_rope_interleaved, r);
    if (v->block > 0) r = r / v->block * v->stride + r % v->block;
    return v->first + r * v->row_step;
}

/* Rows that follow each other in the tensor are read at once. */
static Status read_part(void *self, const NewPart *part, float *out)
{
    FromDcp *f = self;
    const View *v = &f->view[part->param];
    const bool moment = buffer_is_optimizers(part->buffer);
    DcpTensor *t = moment             ? v->moment[buffer_state(part->buffer)]
                   : v->whole != NULL ? v->whole
                                      : v->tensor;
    for (int64_t i = 0, n = 0; i < part->rows; i += n) {
        const int64_t at = row_place(f, v, part->row + i);
        float *to = out + i * part->cols;
        n = 1;
        while (v->col_step == 1 && i + n < part->rows &&
               row_place(f, v, part->row + i + n) == at + n * part->cols)
            n++;
        if (v->col_step == 1) TRY(dcp_read(&f->dcp, t, at, n * part->cols, to));
        for (int64_t c = 0; v->col_step != 1 && c < part->cols; c++)
            TRY(dcp_read(&f->dcp, t, at + c * v->col_step, 1, to + c));
    }
    return new_checkpoint_numbers(f->o->folder, t->name, part, out);
}

static Status check_folder(FromDcp *f)
{
    TRY(dcp_open(&f->dcp, f->o->folder, f->arena));
    TRY(find_layout(f));
    TRY(find_family(f));
    TRY(find_moments(f));
    f->alone = *f->o->config;
    config_alone(&f->alone);
    TRY(spec_build(&f->alone, f->arena, &f->spec));
    TRY(params_build(&f->spec, 0, NULL, f->arena, &f->params));
    TRY(ARENA_NEW(f->arena, f->params.n, &f->view));
    for (int i = 0; i < f->params.n; i++) TRY(find_view(f, &f->params.at[i], &f->view[i]));
    TRY(check_head(f));
    TRY(find_updates(f));
    TRY(find_step(f));
    return check_rest(f);
}

Status convert_from_dcp(const ConvertFromDcp *o, Arena *a, Text *said)
{
    FromDcp f = { .o = o, .arena = a };
    f.new = (NewCheckpoint){ .from = o->folder,
                             .config = o->config,
                             .params = &f.params,
                             .read = read_part,
                             .self = &f,
                             .arena = a };
    TRY(out_folder(&f.new.out, o->out));
    Status s = check_folder(&f);
    if (s == OK) s = new_checkpoint_write(&f.new);
    dcp_close(&f.dcp);
    if (s != OK) return s;
    TRY(text_printf(said, "%s: %s, step %" PRId64 ", %" PRId64 " parameters in %d tensors", o->out,
                    f.layout->name, f.new.info.step, f.params.total, f.params.n));
    if (f.new.moments)
        TRY(text_printf(said, ", with moments after %" PRId64 " updates",
                        f.new.info.moment_steps[AGE_MODEL]));
    return text_append(said, "\n", 1);
}
