/* new_checkpoint: parameters are written one by one as f32 entries. Everything was checked before, so a
 * failure here is one of the disk, or a number that is not finite. */
#include "convert/new_checkpoint.h"

#include "engine/checkpoint/numbers.h"
#include "engine/host/progress.h"

#define SHARD "rank-00000.bin"

/* ENTRY_ELEMS: elements of one entry of the checkpoint, which are in memory at a time. */
enum { ENTRY_ELEMS = 16 << 20, BUFFER_BYTES = 1 << 20 };

Status new_checkpoint_numbers(const char *file, const char *tensor, const NewPart *part,
                              const float *x)
{
    const float least = buffer_desc(part->rule, part->buffer).least;
    int64_t i = numbers_bad(least, (Numbers){ x, DTYPE_F32, part->rows * part->cols });
    if (i < 0) return OK;
    return FAIL(ERR_FORMAT, "%s: %s holds %g; all elements must be finite numbers%s", file, tensor,
                (double)x[i], least == 0 ? ", and none below 0" : "");
}

/* A large parameter becomes several entries, so memory holds only ENTRY_ELEMS at a time. Any mesh
 * reads them. */
static Status write_buffer(NewCheckpoint *w, ManifestShard *shard, NewPart part, float *room)
{
    const Param *p = &w->params->at[part.param];
    const int64_t rows = p->dim[0], most = part.cols < ENTRY_ELEMS ? ENTRY_ELEMS / part.cols : 1;
    for (; part.row < rows; part.row += part.rows) {
        part.rows = rows - part.row < most ? rows - part.row : most;
        ManifestEntry entry = { .param = p->name,
                                .file = SHARD,
                                .buffer = part.buffer,
                                .rule = part.rule,
                                .rank = p->rank,
                                .dim = { p->dim[0], p->dim[1] },
                                .piece = piece_range(part.row * part.cols, part.rows * part.cols) };
        TRY(w->read(w->self, &part, room));
        TRY(manifest_write_entry(shard, &entry, room));
    }
    return OK;
}

static Status write_param(NewCheckpoint *w, ManifestShard *shard, int param, float *room)
{
    const Param *p = &w->params->at[param];
    NewPart part = { .param = param,
                     .buffer = p->first[BUF_STATE] >= 0 ? BUF_STATE : BUF_MAIN,
                     .cols = p->rank == 2 ? p->dim[1] : 1 };
    TRY(write_buffer(w, shard, part, room));
    part.rule = w->moments && part.buffer == BUF_MAIN ? p->rule : NULL;
    for (int i = 0; part.rule != NULL && i < part.rule->n_states; i++) {
        part.buffer = (ParamBuffer)(BUF_OPTIMIZER + i);
        TRY(write_buffer(w, shard, part, room));
    }
    return OK;
}

static Status write_shard(NewCheckpoint *w, ManifestShard *shard)
{
    char path[FILE_PATH_MAX];
    float *room = NULL;
    void *buffer = NULL;
    int64_t most = ENTRY_ELEMS;
    for (int i = 0; i < w->params->n; i++) {
        const Param *p = &w->params->at[i];
        if (p->rank == 2 && p->dim[1] > most) most = p->dim[1];
    }
    TRY(ARENA_NEW(w->arena, most, &room));
    TRY(arena_alloc(w->arena, BUFFER_BYTES, &buffer));
    TRY(manifest_sum_new(w->arena, &shard->sum));
    TRY(file_join(path, w->out.temp, SHARD));
    TRY(file_create_temp_buffered(&shard->file, path, buffer, BUFFER_BYTES));
    Progress bar = { .what = "convert",
                     .name = w->from,
                     .total = w->params->total * (int64_t)sizeof *room * (w->moments ? 3 : 1),
                     .left = "nothing was written" };
    progress_begin(&bar);
    for (int i = 0; i < w->params->n; i++) {
        TRY(write_param(w, shard, i, room));
        TRY(progress_to(&bar, (int64_t)shard->file.written_bytes));
    }
    progress_end(&bar);
    return file_commit(&shard->file);
}

static Status write_manifest(NewCheckpoint *w, const Text *lines)
{
    Manifest m = { 0 };
    Status s = manifest_create(&m, w->out.temp, w->config->model_name, &w->info, w->arena);
    if (s == OK) s = manifest_lines(&m, lines->data, lines->used);
    if (s == OK) s = manifest_commit(&m);
    file_close(&m.file);
    return s;
}

/* The YAML is kept: the manifest's header holds the same text. */
static Status write_config_yaml(NewCheckpoint *w)
{
    char path[FILE_PATH_MAX];
    Text yaml = { 0 };
    TRY(text_init(&yaml, w->arena));
    TRY(config_print(w->config, &yaml));
    w->info.config = yaml.data;
    w->info.products = "";
    TRY(file_join(path, w->out.temp, "config.yaml"));
    return file_write_whole(path, yaml.data, yaml.used);
}

/* The manifest's lines have their own arena, because a Text must be the last allocation of its arena
 * while it grows. */
static Status write_checkpoint_files(NewCheckpoint *w, Arena *lines)
{
    Text text = { 0 };
    ManifestShard shard = { .lines = &text };
    TRY(text_init(&text, lines));
    TRY(write_config_yaml(w));
    if (w->files != NULL) TRY(w->files(w->self));
    Status s = write_shard(w, &shard);
    file_close(&shard.file);
    return s == OK ? write_manifest(w, &text) : s;
}

Status new_checkpoint_write(NewCheckpoint *w)
{
    Arena lines = { 0 };
    TRY(arena_reserve(&lines, "lines", (size_t)8 << 30));
    Status s = out_folder_begin(&w->out);
    if (s == OK) s = write_checkpoint_files(w, &lines);
    arena_free(&lines);
    return out_folder_end(&w->out, s);
}
