/* Damaged folders of torch.distributed.checkpoint: what is wrong is one sentence, and nothing that a pickle names is
 * run. Some are a folder of TorchTitan with a few bytes changed, others a .metadata that is made here. */
#include "harness/place.h"

#include "dcp/dcp.h"
#include "engine/base/text.h"

#define GOLDEN "tests/golden/dcp/llama/titan"
#define KEY    "layers.0.attention.wo.weight"
#define SHARD  "__0_0.distcp"

typedef struct Place {
    char folder[64];
    Arena arena, text;
} Place;

static int place_open(void **state)
{
    static Place place;
    Place *p = *state = &place;
    place_make(p->folder, &p->arena);
    CHECK_OK(arena_init(&p->text, "text", MEM_HOST, 1 << 20));
    return 0;
}

static int place_close(void **state)
{
    Place *p = *state;
    arena_free(&p->text);
    place_drop(p->folder, &p->arena);
    return 0;
}

static void put(Place *p, const char *name, const void *data, size_t bytes)
{
    char path[FILE_PATH_MAX];
    CHECK_OK(file_join(path, p->folder, name));
    CHECK_OK(file_write_whole(path, data, bytes));
}

/* Opens the folder and reads all of it that has a type. */
static Status read_all(Place *p)
{
    Dcp d = { 0 };
    float *room = NULL;
    Status s = dcp_open(&d, p->folder, &p->arena);
    for (int64_t i = 0; s == OK && i < d.n; i++) {
        DcpTensor *t = &d.at[i];
        double number = 0;
        bool found = false;
        if (t->type == NULL) s = dcp_number(&d, t->name, &found, &number);
        if (t->type == NULL || t->type->dtype < 0) continue;
        CHECK_OK(ARENA_NEW(&p->arena, dcp_elems(t) + 1, &room));
        s = dcp_read(&d, t, 0, dcp_elems(t), room);
    }
    dcp_close(&d);
    return s;
}

/* ---- bytes of a whole folder that change ---- */

static void put_changed(Place *p, const char *name, const char *from, const char *to, int64_t keep)
{
    char path[FILE_PATH_MAX], *data = NULL;
    size_t bytes = 0;
    CHECK_OK(file_join(path, GOLDEN, name));
    CHECK_OK(file_read_all(path, &p->arena, &data, &bytes));
    char *at = from == NULL ? NULL : memmem(data, bytes, from, strlen(from));
    if (from != NULL && at == NULL) fail_msg("%s has no %s", name, from);
    for (size_t i = 0; at != NULL && to[i] != '\0'; i++) at[i] = to[i];
    put(p, name, data, keep > 0 ? (size_t)keep : bytes);
}

static void bytes_that_changed_are_a_sentence(void **state)
{
    static const struct {
        const char *file, *from, *to;
        int64_t keep; /* bytes that are left; 0: all */
        const char *says;
    } rows[] = {
        { ".metadata", NULL, NULL, 1000, "the pickle is damaged before byte" },
        { ".metadata", "_get_layout", "_get_l4yout", 0, "names torch.serialization._get_l4yout" },
        { ".metadata", "float32", "float99", 0, "names torch.float99" },
        { ".metadata", SHARD, "../_0.distcp", 0, "\"../_0.distcp\" is not the name of a file" },
        { ".metadata", SHARD, "__0_1.distcp", 0, "__0_1.distcp is missing, but" },
        { ".metadata", "MetadataIndex", "MetadataIndux", 0,
          "which no checkpoint of this kind needs" },
        { ".metadata", "state_dict_metadata", "state_dict_metadatu", 0, "is not the Metadata" },
        { ".metadata", "chunks", "chunkz", 0, "has no valid shape, or no chunks" },
        { SHARD, NULL, NULL, 3000, "would end at byte" },
        { SHARD, "PK\5\6", "PK\5\7", 0, "has no end record" },
        { SHARD, "PK\6\6", "PK\6\5", 0, "has a locator that leads nowhere" },
        { SHARD, "PK\1\2", "PK\1\3", 0, "has a damaged directory" },
        { SHARD, "PK\3\4", "PK\3\5", 0, "has an entry that leads nowhere" },
        { SHARD, "little", "biggle", 0, "another order of bytes" },
        { SHARD, "FloatStorage", "FloatStorago", 0, "names torch.FloatStorago" },
        { SHARD, "_rebuild_tensor_v2", "_rebuild_tensor_v3", 0,
          "names torch._utils._rebuild_tensor_v3" },
    };
    Place *p = *state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const bool metadata = rows[i].file[0] == '.';
        put_changed(p, ".metadata", NULL, NULL, 0);
        put_changed(p, SHARD, NULL, NULL, 0);
        CHECK_OK(read_all(p));
        put_changed(p, rows[i].file, rows[i].from, rows[i].to, rows[i].keep);
        Status s = read_all(p);
        if (s != ERR_FORMAT && s != ERR_IO) fail_msg("row %zu is read", i);
        if (strstr(status_message(), rows[i].says) == NULL)
            fail_msg("row %zu says %s", i, status_message());
        CHECK(strstr(status_message(), metadata ? p->folder : SHARD) != NULL);
    }
}

/* ---- a .metadata of one tensor ---- */

typedef struct Made {
    const char *type;
    int64_t dim[2];
    struct {
        int64_t first[2], dim[2];
    } chunk[2];
    int chunks, places;
    const char *place_of; /* the key in the places; NULL: the tensor's */
    int64_t offset, length;
} Made;

static void op_text(Text *t, const char *s)
{
    const uint32_t n = (uint32_t)strlen(s);
    CHECK_OK(text_append(t, "X", 1));
    CHECK_OK(text_append(t, (const char *)&n, sizeof n));
    CHECK_OK(text_append(t, s, n));
}

static void op_number(Text *t, int64_t x)
{
    CHECK_OK(text_append(t, "\x8a\x08", 2));
    CHECK_OK(text_append(t, (const char *)&x, sizeof x));
}

static void op_sizes(Text *t, const char *name, const int64_t x[2])
{
    op_text(t, name);
    op_number(t, x[0]);
    op_number(t, x[1]);
    CHECK_OK(text_append(t, "\x86", 1));
}

/* Begins an object; "ub" ends its fields. */
static void op_object(Text *t, const char *name) { CHECK_OK(text_printf(t, "c%s\n)\x81}(", name)); }

#define CLASS "torch.distributed.checkpoint.metadata\n"

static void put_places(Text *t, const Made *m)
{
    for (int i = 0; i < m->places; i++) {
        op_object(t, CLASS "MetadataIndex");
        op_text(t, "fqn");
        op_text(t, m->place_of != NULL ? m->place_of : KEY);
        op_sizes(t, "offset", m->chunk[i].first);
        CHECK_OK(text_append(t, "ub", 2));
        op_object(t, "torch.distributed.checkpoint.filesystem\n_StorageInfo");
        op_text(t, "relative_path");
        op_text(t, SHARD);
        op_text(t, "offset");
        op_number(t, m->offset);
        op_text(t, "length");
        op_number(t, m->length);
        CHECK_OK(text_append(t, "ub", 2));
    }
}

static void put_made(Place *p, const Made *m)
{
    Text t;
    char type[64];
    arena_release(&p->text, (ArenaMark){ 0 });
    CHECK_OK(text_init(&t, &p->text));
    CHECK_OK(text_append(&t, "\x80\x02", 2));
    op_object(&t, CLASS "Metadata");
    op_text(&t, "state_dict_metadata");
    CHECK_OK(text_append(&t, "}(", 2));
    op_text(&t, KEY);
    op_object(&t, CLASS "TensorStorageMetadata");
    op_text(&t, "properties");
    op_object(&t, CLASS "TensorProperties");
    CHECK_OK(text_append(&t, "ub(", 3)); /* no fields, but a state */
    (void)snprintf(type, sizeof type, "ctorch\n%s\ntb", m->type);
    CHECK_OK(text_append(&t, type, strlen(type)));
    op_sizes(&t, "size", m->dim);
    op_text(&t, "chunks");
    CHECK_OK(text_append(&t, "](", 2));
    for (int i = 0; i < m->chunks; i++) {
        op_object(&t, CLASS "ChunkStorageMetadata");
        op_sizes(&t, "offsets", m->chunk[i].first);
        op_sizes(&t, "sizes", m->chunk[i].dim);
        CHECK_OK(text_append(&t, "ub", 2));
    }
    CHECK_OK(text_append(&t, "eubu", 4));
    op_text(&t, "storage_data");
    CHECK_OK(text_append(&t, "}(", 2));
    put_places(&t, m);
    CHECK_OK(text_append(&t, "uub.", 4));
    put(p, ".metadata", t.data, t.used);
    put(p, SHARD, "0123456789", 10);
}

static Made good(void)
{
    return (Made){ .type = "float32",
                   .dim = { 6, 4 },
                   .chunk = { { { 0, 0 }, { 3, 4 } }, { { 3, 0 }, { 3, 4 } } },
                   .chunks = 2,
                   .places = 2,
                   .length = 10 };
}

static void check_made(Place *p, const Made *m, const char *says)
{
    Dcp d = { 0 };
    put_made(p, m);
    Status s = dcp_open(&d, p->folder, &p->arena);
    dcp_close(&d);
    if (says == NULL) CHECK_OK(s);
    if (says == NULL) return;
    CHECK_INT(s, ERR_FORMAT);
    if (strstr(status_message(), says) == NULL) fail_msg("it says: %s", status_message());
    CHECK(strstr(status_message(), KEY) != NULL || strstr(says, "other.key") != NULL);
}

static void chunks_must_cover_a_tensor_once(void **state)
{
    Place *p = *state;
    Made m = good();
    check_made(p, &m, NULL);
    m.chunk[1].first[0] = 2;
    check_made(p, &m, "has chunks that overlap");
    m = good();
    m.chunk[1].dim[1] = 3;
    check_made(p, &m, "have 21 of its 24 elements");
    m = good();
    m.chunks = 1;
    check_made(p, &m, "have 12 of its 24 elements");
    m = good();
    m.chunk[1].dim[0] = 4;
    check_made(p, &m, "a chunk of " KEY " lies outside of it, which is torch.float32 (6, 4)");
    m = good();
    m.chunk[1].first[0] = INT64_MAX;
    check_made(p, &m, "lies outside of it");
    m = good();
    m.chunk[0].first[0] = -1;
    check_made(p, &m, "lies outside of it");
    m = good();
    m.dim[0] = INT64_MAX / 8;
    check_made(p, &m, "has no valid shape");
    m = good();
    m.chunks = 0;
    check_made(p, &m, "has no valid shape, or no chunks");
}

static void each_chunk_has_one_place_inside_a_file(void **state)
{
    Place *p = *state;
    Made m = good();
    m.places = 1;
    check_made(p, &m, "has a chunk without a place");
    m = good();
    m.length = 11;
    check_made(p, &m, "would end at byte 11, but the file has 10 bytes");
    m = good();
    m.offset = INT64_MAX;
    check_made(p, &m, "but the file has 10 bytes");
    m = good();
    m.offset = -1;
    check_made(p, &m, "without an offset or a length");
    m = good();
    m.place_of = "other.key";
    check_made(p, &m, "a place for a chunk of other.key, which it has not");
    m = good();
    m.type = "float8_e4m3fn";
    check_made(p, &m, "is torch.float8_e4m3fn, a type that is not supported");
}

/* ---- pickles ---- */

static void pickles_that_call_or_are_not_whole_are_refused(void **state)
{
    static const struct {
        const char *bytes, *says;
    } rows[] = {
        { "cposix\nsystem\n(X\2\0\0\0idtR.", "names posix.system before byte 14" },
        { "\x80\4\x8c\2os\x8c\6system\x93\x8c\2id\x85R.", "names os.system" },
        { "c__builtin__\neval\n.", "names __builtin__.eval" },
        { "ctorch\nload\n.", "names torch.load" },
        { "(iposix\nsystem\n.", "opcode 0x69 at byte 1" },
        { "", "it ends too early" },
        { "K", "it ends too early" },
        { "X\xff\xff\xff\x7f", "it ends too early" },
        { "\x8a\x09", "more than 64 bits" },
        { "ctorch", "a name has no end" },
        { ".", "lacks its operands" },
        { "(.", "lacks its operands" },
        { "K\1K\2.", "left over" },
        { "u.", "lacks its operands" },
        { "K\1(K\2e.", "something else than a list" },
        { "}(K\1u.", "something else than a list" },
        { "K\1r\xff\xff\xff\x7f.", "the memo has a wrong number" },
        { "h\7.", "the memo lacks" },
        { "K\1K\2R.", "a call has no function" },
        { "]}b.", "a state has no object" },
        { "X\3\0\0\0a\0b.", "a text has a NUL" },
        { "}.", "is not the Metadata" },
    };
    Place *p = *state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Dcp d = { 0 };
        size_t n = strlen(rows[i].bytes);
        if (strstr(rows[i].bytes, "X\3") != NULL) n = 9;
        if (strstr(rows[i].bytes, "(X\2") != NULL) n = 26;
        put(p, ".metadata", rows[i].bytes, n);
        Status s = dcp_open(&d, p->folder, &p->arena);
        if (s != ERR_FORMAT) fail_msg("row %zu is read", i);
        if (strstr(status_message(), rows[i].says) == NULL)
            fail_msg("row %zu says %s", i, status_message());
    }
    CHECK_OK(file_remove_tree(p->folder));
    CHECK_OK(file_make_folders(p->folder));
    CHECK_FAILS(read_all(p), ERR_IO, "is not a folder of torch.distributed.checkpoint");
}

/* A list in itself, and a memo of itself. */
static void pickles_that_contain_themselves_are_read(void **state)
{
    static const char bytes[] = "]q\0h\0a.";
    static const char *const globals[] = { NULL };
    Place *p = *state;
    const Pickle *out = NULL;
    const PickleSource source = { "p", (const uint8_t *)bytes, sizeof bytes - 1, globals };
    CHECK_OK(pickle_read(&source, &p->arena, &out));
    CHECK(pickle_is(out, PICKLE_LIST) && out->n == 1 && out->item[0] == out);
}

static const Pickle *read_text(Place *p, const char *bytes, size_t n)
{
    static const char *const globals[] = { "torch.Size", NULL };
    const Pickle *out = NULL;
    const PickleSource source = { "p", (const uint8_t *)bytes, n, globals };
    CHECK_OK(pickle_read(&source, &p->arena, &out));
    return out;
}

static void numbers_keep_their_sign_and_all_bits(void **state)
{
    Place *p = *state;
    int64_t size[ITEM_RANK_MAX];
    CHECK_INT(read_text(p, "J\xfe\xff\xff\xff.", 6)->number, -2);
    CHECK_INT(read_text(p, "M\xfe\xff.", 4)->number, 65534);
    CHECK_INT(read_text(p, "\x8a\1\xfe.", 4)->number, -2);
    CHECK_INT(read_text(p, "\x8a\0.", 3)->number, 0);
    CHECK_INT(read_text(p, "\x8a\5\0\0\0\0\1.", 8)->number, (int64_t)1 << 32);
    CHECK_NEAR(read_text(p, "G\xc0\4\0\0\0\0\0\0.", 10)->real, -2.5, 0);
    CHECK_INT(pickle_sizes(read_text(p, "ctorch\nSize\nK\3K\5\x86\x85R.", 20), size, 2), 2);
    CHECK_INT(size[1], 5);
    CHECK_INT(pickle_sizes(read_text(p, "K\3K\5\x86.", 6), size, 1), -1);
    CHECK_INT(pickle_sizes(read_text(p, "J\xfe\xff\xff\xff\x85.", 7), size, 2), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        PLACE_TEST(bytes_that_changed_are_a_sentence),
        PLACE_TEST(chunks_must_cover_a_tensor_once),
        PLACE_TEST(each_chunk_has_one_place_inside_a_file),
        PLACE_TEST(pickles_that_call_or_are_not_whole_are_refused),
        PLACE_TEST(pickles_that_contain_themselves_are_read),
        PLACE_TEST(numbers_keep_their_sign_and_all_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
