/* documents: which documents a step read, what is in them, and what a checkpoint from before the step thinks of them.
 *
 * The order of documents is a function of the settings and of what a run has read of each source. A checkpoint knows the
 * latter, so the walk begins at the newest one before the step; without one it begins at step 1, by RUN/config.yaml. */
#include "spike/spike.h"

#include "corpus/tokenizer/tokenizer.h"
#include "engine/checkpoint/checkpoint_folder.h"
#include "engine/checkpoint/manifest.h"
#include "engine/step/engine.h"
#include "engine/train/infer.h"
#include "engine/train/train.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_SHOWN = 60, IDS_SHOWN = 48 };

/* A part of a document in the batch: tokens [first, first + n) of row `row`. */
typedef struct Part {
    int64_t row, first, n, document;
    int source, order;
    double nats; /* of its targets, by the checkpoint */
    int64_t targets;
} Part;

typedef struct Spike {
    const SpikeOptions *o;
    Arena *a;
    Config config;
    LoaderConfig data;
    Loader *loader;
    const Batch *batch;
    BatchRamp ramp;
    char checkpoint[FILE_PATH_MAX]; /* "": there is none before the step */
    CheckpointInfo info;
    Part *part;
    int64_t parts, room;
} Spike;

/* ---- the batch ---- */

/* The newest checkpoint before the step that has a whole manifest. */
static Status find_checkpoint(Spike *k)
{
    char folder[FILE_PATH_MAX], path[FILE_PATH_MAX];
    const char *const *name = NULL;
    int n = 0;
    TRY(file_join(folder, k->o->run, "checkpoints"));
    if (!file_exists(folder)) return OK;
    TRY(file_list(folder, k->a, &name, &n));
    for (int i = n - 1; i >= 0; i--) {
        int64_t step = 0;
        TRY(file_join(path, folder, name[i]));
        if (!folder_step(path, &step) || step >= k->o->step) continue;
        if (checkpoint_info(path, k->a, &k->info) == OK) {
            memcpy(k->checkpoint, path, sizeof path);
            return OK;
        }
        status_clear();
    }
    return OK;
}

/* What a checkpoint read of each source, in the order of the loader's sources. */
static void taken_by_source(const Spike *k, int64_t taken[CONFIG_SOURCES_MAX])
{
    const SourcesTaken *was = &k->info.taken;
    for (int i = 0; i < loader_sources(k->loader); i++) {
        for (int j = 0; j < was->n; j++)
            if (strcmp(was->name[j], loader_source_name(k->loader, i)) == 0)
                taken[i] = was->sequences[j];
    }
}

static Status read_batch(Spike *k)
{
    int64_t taken[CONFIG_SOURCES_MAX] = { 0 }, step = k->o->step - 1;
    TRY(train_loader_config(&k->config, NULL, NULL, k->a, &k->data));
    TRY(loader_open(&k->data, k->a, &k->loader));
    if (k->checkpoint[0] != '\0' && k->info.taken.n > 0) {
        step = k->info.step;
        taken_by_source(k, taken);
        TRY(loader_resume(k->loader, step, k->info.position, taken));
    } else {
        TRY(loader_seek(k->loader, ramp_sequences(&k->ramp, step)));
    }
    for (; step < k->o->step; step++) TRY(loader_next(k->loader, &k->batch));
    return loader_wait(k->loader);
}

/* The number of a row's sequence in its source: rows of a source are its sequences, and taken counts them all. */
static int64_t sequence_of(const Batch *b, int64_t row)
{
    const int32_t *source = b->domain.data;
    int64_t behind = 0;
    for (int64_t r = row + 1; r < b->domain.dim[0]; r++) behind += source[r] == source[row];
    return b->taken[source[row]] - behind - 1;
}

static Status cut_row(Spike *k, int64_t row)
{
    const Batch *b = k->batch;
    const int64_t tokens = b->doc.dim[1];
    const int32_t *target = (const int32_t *)b->target.data + row * tokens;
    const int source = ((const int32_t *)b->domain.data)[row];
    int64_t used = tokens; /* behind the last target there is padding, or the text's last token */
    while (used > 0 && target[used - 1] < 0) used--;
    for (int64_t at = 0, end = 0; at < used; at = end) {
        const int64_t document = loader_document(k->loader, source, sequence_of(b, row), at, &end);
        if (end > tokens) end = tokens;
        TRY(ARENA_GROW(k->a, k->parts + 1, &k->room, &k->part));
        k->part[k->parts] = (Part){ .row = row,
                                    .first = at,
                                    .n = end - at,
                                    .document = document,
                                    .source = source,
                                    .order = (int)k->parts };
        k->parts++;
    }
    return OK;
}

/* ---- losses ---- */

/* Adds the losses of rows [first, first + n) to their parts. The target of a token is the next one, and counts for the
 * document of that one; a row's last target counts for the document of its token. */
static void add_losses(Spike *k, const float *loss, int64_t first, int64_t n)
{
    const int64_t tokens = k->batch->doc.dim[1];
    const int32_t *target = k->batch->target.data;
    for (int64_t i = 0; i < k->parts; i++) {
        Part *p = &k->part[i];
        if (p->row < first || p->row >= first + n) continue;
        const int64_t end = p->first + p->n;
        for (int64_t t = p->first > 0 ? p->first - 1 : 0; t < (end == tokens ? end : end - 1);
             t++) {
            if (target[p->row * tokens + t] < 0) continue;
            p->nats += (double)loss[(p->row - first) * tokens + t];
            p->targets++;
        }
    }
}

/* Rows beyond the batch are padding. */
static void copy_rows(const Batch *from, int64_t first, int64_t n, Batch *to)
{
    const int64_t tokens = from->doc.dim[1], rows = to->doc.dim[0];
    const Tensor *const source[] = { &from->id, &from->target, &from->pos, &from->doc };
    const Tensor *const dest[] = { &to->id, &to->target, &to->pos, &to->doc };
    for (int i = 0; i < 4; i++)
        memcpy(dest[i]->data, (const int32_t *)source[i]->data + first * tokens,
               (size_t)(n * tokens) * sizeof(int32_t));
    memcpy(to->domain.data, (const int32_t *)from->domain.data + first,
           (size_t)n * sizeof(int32_t));
    for (int64_t t = n * tokens; t < rows * tokens; t++) ((int32_t *)to->target.data)[t] = -1;
}

static Status run_batch(Spike *k, Engine *e, const Config *c)
{
    TrainPlan plan;
    CheckpointInfo info;
    Batch rows;
    TRY(train_plan(c, NULL, 1, &plan));
    TRY(infer_open(e, c, &plan.shape, k->checkpoint, false, k->a, &info));
    const int64_t most = e->shape.micro_batch, all = k->batch->domain.dim[0];
    TRY(batch_new(k->a, most, c->data_sequence, &rows));
    memset(rows.id.data, 0, tensor_bytes(&rows.id));
    memset(rows.pos.data, 0, tensor_bytes(&rows.pos));
    memset(rows.doc.data, 0, tensor_bytes(&rows.doc));
    memset(rows.domain.data, 0, tensor_bytes(&rows.domain));
    for (int64_t first = 0; first < all; first += most) {
        const float *loss = NULL;
        const int64_t n = all - first < most ? all - first : most;
        copy_rows(k->batch, first, n, &rows);
        TRY(engine_losses(e, &rows, &loss));
        add_losses(k, loss, first, n);
    }
    return OK;
}

static Status find_losses(Spike *k)
{
    char path[FILE_PATH_MAX];
    Config alone;
    Engine e = { 0 };
    TRY(infer_config(k->checkpoint, k->a, path, &alone));
    Status s = run_batch(k, &e, &alone);
    engine_close(&e);
    return s;
}

/* ---- print ---- */

static double loss_of(const Part *p) { return p->targets > 0 ? p->nats / (double)p->targets : -1; }

static int by_loss(const void *a, const void *b)
{
    const Part *x = a, *y = b;
    const double more = loss_of(y) - loss_of(x);
    return more > 0 ? 1 : more < 0 ? -1 : x->order - y->order;
}

/* The beginning of a part as text, in one line; without a tokenizer its ids. */
static Status print_text(const Spike *k, const Tokenizer *t, const Part *p, Arena *scratch,
                         Text *out)
{
    char shown[4 * TEXT_SHOWN + 1];
    const int32_t *id =
        (const int32_t *)k->batch->id.data + p->row * k->batch->doc.dim[1] + p->first;
    const int64_t n = p->n < IDS_SHOWN ? p->n : IDS_SHOWN;
    Text text;
    ArenaMark mark = arena_mark(scratch);
    TRY(text_init(&text, scratch));
    for (int64_t i = 0; t == NULL && i < n; i++) TRY(text_printf(&text, "%d ", (int)id[i]));
    if (t != NULL) TRY(tokenizer_decode(t, id, n, &text));
    size_t used = text.used < TEXT_SHOWN ? text.used : TEXT_SHOWN;
    while (used < text.used && used > 0 && ((unsigned char)text.data[used] & 0xC0) == 0x80) used--;
    for (size_t i = 0; i < used; i++)
        if (text.data[i] == '\n' || text.data[i] == '\t') text.data[i] = ' ';
    shown[text_visible(shown, sizeof shown - 1, text.data, used)] = '\0';
    arena_release(scratch, mark);
    return text_printf(out, "  %s\n", shown);
}

static Status print_parts(const Spike *k, const Tokenizer *t, Arena *scratch, Text *out)
{
    const bool losses = k->checkpoint[0] != '\0';
    TRY(text_printf(out, "\n%8s %-16s %10s %8s%s  text\n", "sequence", "source", "document",
                    "tokens", losses ? "     loss" : ""));
    for (int64_t i = 0; i < k->parts && i < k->o->documents; i++) {
        const Part *p = &k->part[i];
        TRY(text_printf(out, "%8lld %-16s %10lld %8lld", (long long)p->row,
                        loader_source_name(k->loader, p->source), (long long)p->document,
                        (long long)p->n));
        if (losses) TRY(text_printf(out, " %8.4f", p->targets > 0 ? loss_of(p) : (double)NAN));
        TRY(print_text(k, t, p, scratch, out));
    }
    if (k->parts > k->o->documents)
        TRY(text_printf(out, "(%lld of %lld: --documents N)\n", (long long)k->o->documents,
                        (long long)k->parts));
    if (losses) return text_printf(out, "(losses by %s)\n", k->checkpoint);
    return text_printf(out, "(no losses: the run has no checkpoint from before the step)\n");
}

static Status explain(Spike *k, bool resumed, Text *out)
{
    const char *path = k->config.data_tokenizer;
    Tokenizer *t = NULL;
    Arena scratch = { 0 };
    TRY(find_checkpoint(k));
    TRY(read_batch(k));
    for (int64_t row = 0; row < k->batch->domain.dim[0]; row++) TRY(cut_row(k, row));
    if (k->checkpoint[0] != '\0') {
        TRY(find_losses(k));
        if (k->parts > 0) qsort(k->part, (size_t)k->parts, sizeof *k->part, by_loss);
    }
    if (path[0] != '\0' && file_exists(path)) TRY(tokenizer_load(path, k->a, &t));
    Status s = arena_reserve(&scratch, "text of documents", (size_t)1 << 30);
    if (s == OK) s = print_parts(k, t, &scratch, out);
    arena_free(&scratch);
    tokenizer_free(t);
    TRY(s);
    if (!resumed || k->checkpoint[0] != '\0') return OK;
    return text_printf(
        out, "(the run was resumed: if that changed its data or its batch, it read other documents "
             "before)\n");
}

Status spike_documents(const SpikeOptions *o, bool resumed, Arena *a, Text *out)
{
    char path[FILE_PATH_MAX];
    Spike k = { .o = o, .a = a };
    TRY(file_join(path, o->run, "config.yaml"));
    TRY(config_load(&k.config, a, path, NULL, 0));
    config_alone(&k.config);
    k.ramp = ramp_of(&k.config);
    Status s = explain(&k, resumed, out);
    loader_close(k.loader);
    return s;
}
