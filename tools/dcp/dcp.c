/* dcp: .metadata becomes an array of tensors with their chunks. Elements are read through maps of the
 * files, a run along the last dimension of a chunk at a time. */
#include "dcp/dcp.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define METADATA    ".metadata"
#define DCP_CLASS   "torch.distributed.checkpoint.metadata."
#define DCP_PLANNER "torch.distributed.checkpoint.planner."

static const char *const globals[] = {
    DCP_CLASS "Metadata",
    DCP_CLASS "TensorStorageMetadata",
    DCP_CLASS "BytesStorageMetadata",
    DCP_CLASS "ChunkStorageMetadata",
    DCP_CLASS "TensorProperties",
    DCP_CLASS "MetadataIndex",
    DCP_CLASS "StorageMeta",
    DCP_CLASS "_MEM_FORMAT_ENCODING",
    "torch.distributed.checkpoint.filesystem._StorageInfo",
    "torch.distributed._shard.sharded_tensor.metadata.TensorProperties",
    "torch.distributed._shard.sharded_tensor.metadata.MEM_FORMAT_ENCODING",
    "torch.serialization._get_layout",
    "torch.Size",
    "collections.OrderedDict",
    "pathlib.PosixPath",
    "pathlib._local.PosixPath",
    DCP_PLANNER "SavePlan",
    DCP_PLANNER "WriteItem",
    DCP_PLANNER "WriteItemType",
    DCP_PLANNER "TensorWriteData",
    DCP_PLANNER "BytesIOWriteData",
    "torch.float32",
    "torch.bfloat16",
    "torch.float16",
    "torch.float64",
    "torch.float8_e4m3fn",
    "torch.float8_e5m2",
    "torch.int64",
    "torch.int32",
    "torch.int16",
    "torch.int8",
    "torch.uint8",
    "torch.bool",
    NULL,
};

int64_t dcp_elems(const DcpTensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++) n *= t->dim[i];
    return n;
}

const char *dcp_text(char out[DCP_TEXT_BYTES], const DcpTensor *t)
{
    int used = snprintf(out, DCP_TEXT_BYTES, "%s (", t->type == NULL ? "a value" : t->type->name);
    for (int i = 0; i < t->rank; i++)
        used += snprintf(out + used, (size_t)(DCP_TEXT_BYTES - used), "%s%" PRId64,
                         i == 0 ? "" : ", ", t->dim[i]);
    (void)snprintf(out + used, (size_t)(DCP_TEXT_BYTES - used), ")");
    return out;
}

DcpTensor *dcp_take(Dcp *d, const char *name)
{
    const int64_t at = names_find(&d->names, name);
    if (at < 0) return NULL;
    d->at[at].taken = true;
    return &d->at[at];
}

/* ---- .metadata ---- */

static Status wrong(const Dcp *d, const char *name, const char *what)
{
    return FAIL(ERR_FORMAT, "%s/" METADATA ": %.200s %s", d->folder, name, what);
}

/* A chunk lies inside its tensor. */
static Status read_chunk(const Dcp *d, const DcpTensor *t, const Pickle *p, DcpChunk *c)
{
    char shown[DCP_TEXT_BYTES];
    bool good = pickle_sizes(pickle_get(p, "offsets"), c->first, ITEM_RANK_MAX) == t->rank &&
                pickle_sizes(pickle_get(p, "sizes"), c->dim, ITEM_RANK_MAX) == t->rank;
    c->file = -1;
    for (int i = 0; good && i < t->rank; i++)
        good = c->dim[i] <= t->dim[i] && c->first[i] <= t->dim[i] - c->dim[i];
    if (good) return OK;
    return FAIL(ERR_FORMAT, "%s/" METADATA ": a chunk of %.200s lies outside of it, which is %s",
                d->folder, t->name, dcp_text(shown, t));
}

static bool overlap(const DcpChunk *a, const DcpChunk *b, int rank)
{
    for (int i = 0; i < rank; i++)
        if (a->first[i] + a->dim[i] <= b->first[i] || b->first[i] + b->dim[i] <= a->first[i])
            return false;
    return true;
}

/* Chunks inside a tensor that do not overlap, and have as many elements as it, leave nothing out. */
static Status check_chunks(const Dcp *d, const DcpTensor *t)
{
    int64_t have = 0;
    const int64_t want = dcp_elems(t);
    for (int64_t i = 0; i < t->chunks; i++) {
        int64_t n = 1;
        for (int k = 0; k < t->rank; k++) n *= t->chunk[i].dim[k];
        for (int64_t k = 0; n > 0 && k < i; k++)
            if (overlap(&t->chunk[i], &t->chunk[k], t->rank))
                return wrong(d, t->name, "has chunks that overlap");
        have += n;
    }
    if (have == want) return OK;
    return FAIL(ERR_FORMAT,
                "%s/" METADATA ": the chunks of %.200s have %" PRId64 " of its %" PRId64
                " elements",
                d->folder, t->name, have, want);
}

/* TensorProperties have a state (type, layout, ...) where they are a class of their own. */
static const ItemType *type_of(const Pickle *tensor, const char **name)
{
    const Pickle *p = pickle_get(tensor, "properties"), *type = pickle_get(p, "dtype");
    const Pickle *state = pickle_is(p, PICKLE_OBJECT) ? p->item[2] : NULL;
    if (pickle_is(state, PICKLE_TUPLE) && state->n > 0) type = state->item[0];
    *name = pickle_is(type, PICKLE_GLOBAL) ? type->text : "of no type";
    return item_type(*name);
}

static Status read_tensor(Dcp *d, const Pickle *p, DcpTensor *t)
{
    const char *type = NULL;
    const Pickle *chunks = pickle_get(p, "chunks");
    int64_t n = 1;
    t->type = type_of(p, &type);
    if (t->type == NULL)
        return FAIL(ERR_FORMAT, "%s/" METADATA ": %.200s is %.60s, a type that is not supported",
                    d->folder, t->name, type);
    t->rank = pickle_sizes(pickle_get(p, "size"), t->dim, ITEM_RANK_MAX);
    bool good = t->rank >= 0 && pickle_is(chunks, PICKLE_LIST) && chunks->n > 0;
    for (int i = 0; good && i < t->rank; i++)
        good = !__builtin_mul_overflow(n, t->dim[i], &n) && n <= INT64_MAX / t->type->bytes;
    if (!good) return wrong(d, t->name, "has no valid shape, or no chunks");
    t->chunks = chunks->n;
    TRY(ARENA_ZEROED(d->arena, t->chunks, &t->chunk));
    for (int64_t i = 0; i < t->chunks; i++) TRY(read_chunk(d, t, chunks->item[i], &t->chunk[i]));
    return check_chunks(d, t);
}

static Status read_tensors(Dcp *d, const Pickle *all)
{
    TRY(ARENA_ZEROED(d->arena, all->n / 2 + 1, &d->at));
    TRY(names_init(&d->names, all->n / 2 + 1, d->arena));
    for (int64_t i = 0; i < all->n; i += 2) {
        const Pickle *key = all->item[i], *value = all->item[i + 1];
        DcpTensor *t = &d->at[d->n];
        if (key->kind != PICKLE_TEXT)
            return FAIL(ERR_FORMAT, "%s/" METADATA ": a key is not a text", d->folder);
        t->name = key->text;
        if (names_add(&d->names, key->text, d->n++) >= 0) return wrong(d, t->name, "appears twice");
        if (pickle_is_object(value, DCP_CLASS "TensorStorageMetadata")) {
            TRY(read_tensor(d, value, t));
        } else if (pickle_is_object(value, DCP_CLASS "BytesStorageMetadata")) {
            t->chunks = 1;
            TRY(ARENA_ZEROED(d->arena, 1, &t->chunk));
            t->chunk->file = -1;
        } else {
            return wrong(d, t->name, "is neither a tensor nor a value");
        }
    }
    return OK;
}

/* ---- places ---- */

/* Files lie in the folder itself; a name must not lead elsewhere. */
static Status file_number(Dcp *d, Names *files, const Pickle *name, int *out)
{
    char path[FILE_PATH_MAX];
    const bool good = pickle_is(name, PICKLE_TEXT) && name->n > 0 && name->n < 256 &&
                      name->text[0] != '.' && strchr(name->text, '/') == NULL;
    if (!good)
        return FAIL(ERR_FORMAT, "%s/" METADATA ": \"%.200s\" is not the name of a file", d->folder,
                    pickle_is(name, PICKLE_TEXT) ? name->text : "");
    const int64_t known = names_add(files, name->text, d->files);
    *out = known < 0 ? d->files : (int)known;
    if (known >= 0) return OK;
    TRY(file_join(path, d->folder, name->text));
    if (!file_exists(path))
        return FAIL(ERR_IO, "%s is missing, but %s/" METADATA " names it", path, d->folder);
    TRY(file_size(path, &d->file_bytes[d->files]));
    return arena_text(d->arena, path, strlen(path), &d->file[d->files++]);
}

/* The chunk that begins at these elements; of a plain value the only one. NULL: none. */
static DcpChunk *find_chunk(DcpTensor *t, const Pickle *offset)
{
    int64_t first[ITEM_RANK_MAX] = { 0 };
    if (t->type == NULL) return t->chunk;
    if (pickle_sizes(offset, first, ITEM_RANK_MAX) != t->rank) return NULL;
    for (int64_t k = 0; k < t->chunks; k++, t->near++) {
        DcpChunk *c = &t->chunk[t->near % t->chunks]; /* chunks mostly come in their order */
        if (memcmp(c->first, first, (size_t)t->rank * sizeof *first) == 0 && c->file < 0) return c;
    }
    return NULL;
}

static Status read_place(Dcp *d, Names *files, const Pickle *index, const Pickle *info)
{
    const Pickle *key = pickle_get(index, "fqn"), *at = pickle_get(info, "offset");
    const Pickle *length = pickle_get(info, "length");
    const Pickle *coded = pickle_get(info, "transform_descriptors");
    const int64_t i = pickle_is(key, PICKLE_TEXT) ? names_find(&d->names, key->text) : -1;
    DcpChunk *c = i < 0 ? NULL : find_chunk(&d->at[i], pickle_get(index, "offset"));
    if (c == NULL)
        return FAIL(ERR_FORMAT,
                    "%s/" METADATA ": there is a place for a chunk of %.200s, which it has not",
                    d->folder, pickle_is(key, PICKLE_TEXT) ? key->text : "no key");
    if (pickle_is(coded, PICKLE_LIST) && coded->n > 0)
        return wrong(d, key->text, "is compressed or encrypted, which is not supported");
    if (!pickle_is(at, PICKLE_INT) || !pickle_is(length, PICKLE_INT) || at->number < 0 ||
        length->number < 0)
        return wrong(d, key->text, "has a place without an offset or a length");
    TRY(file_number(d, files, pickle_get(info, "relative_path"), &c->file));
    c->at = (uint64_t)at->number;
    c->bytes = (uint64_t)length->number;
    const uint64_t bytes = d->file_bytes[c->file];
    if (c->at <= bytes && c->bytes <= bytes - c->at) return OK;
    return FAIL(ERR_FORMAT,
                "%s: %.200s would end at byte %" PRIu64 ", but the file has %" PRIu64 " bytes",
                d->file[c->file], key->text, c->at + c->bytes, bytes);
}

static Status read_places(Dcp *d, const Pickle *all)
{
    Names files;
    TRY(names_init(&files, all->n / 2 + 1, d->arena));
    TRY(ARENA_NEW(d->arena, all->n / 2 + 1, &d->file));
    TRY(ARENA_NEW(d->arena, all->n / 2 + 1, &d->file_bytes));
    for (int64_t i = 0; i < all->n; i += 2)
        TRY(read_place(d, &files, all->item[i], all->item[i + 1]));
    for (int64_t i = 0; i < d->n; i++) {
        for (int64_t k = 0; k < d->at[i].chunks; k++) {
            if (d->at[i].chunk[k].file < 0)
                return wrong(d, d->at[i].name, "has a chunk without a place in a file");
        }
        d->at[i].near = 0;
    }
    return OK;
}

Status dcp_open(Dcp *d, const char *folder, Arena *a)
{
    char path[FILE_PATH_MAX], *data = NULL;
    size_t bytes = 0;
    const Pickle *p = NULL;
    *d = (Dcp){ .folder = folder, .arena = a };
    for (int i = 0; i < DCP_MAPS; i++) d->mapped[i] = -1;
    TRY(file_join(path, folder, METADATA));
    if (!file_exists(path))
        return FAIL(ERR_IO, "%s is missing: %s is not a folder of torch.distributed.checkpoint",
                    path, folder);
    TRY(file_read_all(path, a, &data, &bytes));
    const PickleSource source = { path, (const uint8_t *)data, bytes, globals };
    TRY(pickle_read(&source, a, &p));
    const Pickle *tensors = pickle_get(p, "state_dict_metadata");
    const Pickle *places = pickle_get(p, "storage_data");
    if (!pickle_is_object(p, DCP_CLASS "Metadata") || !pickle_is(tensors, PICKLE_DICT) ||
        !pickle_is(places, PICKLE_DICT))
        return FAIL(ERR_FORMAT, "%s: the pickle is not the Metadata of a checkpoint on files",
                    path);
    TRY(read_tensors(d, tensors));
    return read_places(d, places);
}

void dcp_close(Dcp *d)
{
    for (int i = 0; i < DCP_MAPS; i++) file_unmap(&d->map[i]);
}

/* ---- elements ---- */

static Status map_file(Dcp *d, int file, const uint8_t **out)
{
    int i = 0;
    while (i < DCP_MAPS && d->mapped[i] != file) i++;
    if (i == DCP_MAPS) {
        i = d->next_map++ % DCP_MAPS;
        file_unmap(&d->map[i]);
        d->mapped[i] = -1;
        TRY(file_map(d->file[file], &d->map[i]));
        d->mapped[i] = file;
    }
    if (d->map[i].bytes < d->file_bytes[file])
        return FAIL(ERR_IO, "%s has become shorter while it was read: it has %zu bytes now",
                    d->file[file], d->map[i].bytes);
    *out = d->map[i].data;
    return OK;
}

/* The archive of a chunk must hold what .metadata says of it. */
static Status open_chunk(Dcp *d, const DcpTensor *t, DcpChunk *c, const uint8_t *file)
{
    ItemTensor found = { 0 };
    const Item item = { d->file[c->file], t->name, file + c->at, c->bytes, NULL };
    TRY(item_tensor(&item, d->arena, &found));
    bool same = found.type == t->type && found.rank == t->rank;
    for (int i = 0; same && i < t->rank; i++) same = found.dim[i] == c->dim[i];
    if (!same)
        return FAIL(ERR_FORMAT,
                    "%s: the archive of %.200s holds another type or shape than " METADATA " says",
                    d->file[c->file], t->name);
    c->elements = c->at + found.at;
    return OK;
}

static bool chunk_has(const DcpChunk *c, int rank, const int64_t *place)
{
    for (int i = 0; i < rank; i++)
        if (place[i] < c->first[i] || place[i] - c->first[i] >= c->dim[i]) return false;
    return true;
}

/* Finds the bytes of the element at `place` and how many elements follow it without a gap, in its chunk
 * and in the tensor, itself included. */
static Status find_run(Dcp *d, DcpTensor *t, const int64_t *place, const uint8_t **out,
                       int64_t *run)
{
    const uint8_t *file = NULL;
    int64_t at = 0;
    while (!chunk_has(&t->chunk[t->near], t->rank, place)) t->near = (t->near + 1) % t->chunks;
    DcpChunk *c = &t->chunk[t->near];
    TRY(map_file(d, c->file, &file));
    if (c->elements == 0) TRY(open_chunk(d, t, c, file));
    for (int i = 0; i < t->rank; i++) at = at * c->dim[i] + place[i] - c->first[i];
    const int last = t->rank - 1;
    *run = t->rank == 0 ? 1 : c->first[last] + c->dim[last] - place[last];
    *out = file + c->elements + at * t->type->bytes;
    return OK;
}

Status dcp_read(Dcp *d, DcpTensor *t, int64_t first, int64_t n, float *out)
{
    while (n > 0) {
        int64_t place[ITEM_RANK_MAX] = { 0 }, rest = first, run = 0;
        const uint8_t *from = NULL;
        _Alignas(float) uint8_t part[1 << 12];
        for (int i = t->rank; i > 0; i--) {
            place[i - 1] = rest % t->dim[i - 1];
            rest /= t->dim[i - 1];
        }
        TRY(find_run(d, t, place, &from, &run));
        run = run < n ? run : n;
        if (run > (int64_t)sizeof part / t->type->bytes)
            run = (int64_t)sizeof part / t->type->bytes;
        memcpy(part, from, (size_t)(run * t->type->bytes)); /* archives may be unaligned */
        dtype_to_f32(out, part, (Dtype)t->type->dtype, run);
        first += run;
        out += run;
        n -= run;
    }
    return OK;
}

Status dcp_number(Dcp *d, const char *name, bool *found, double *out)
{
    const uint8_t *at = NULL;
    const Pickle *p = NULL;
    int64_t run = 0;
    const int64_t zero[ITEM_RANK_MAX] = { 0 };
    DcpTensor *t = dcp_take(d, name);
    *found = t != NULL;
    if (t == NULL) return OK;
    ArenaMark mark = arena_mark(d->arena);
    bool good = t->type != NULL && dcp_elems(t) == 1;
    if (good) {
        TRY(find_run(d, t, zero, &at, &run));
        good = item_element(t->type, at, out);
    } else if (t->type == NULL) {
        TRY(map_file(d, t->chunk->file, &at));
        const Item item = { d->file[t->chunk->file], name, at + t->chunk->at, t->chunk->bytes,
                            NULL };
        TRY(item_value(&item, d->arena, &p));
        good = item_number(&item, p, out);
    }
    arena_release(d->arena, mark);
    return good ? OK : wrong(d, name, "should be one number");
}
