/* Golden files on disk: each unpacks whole and is small. A program unpacks each once, and a damaged one is named. */
#include "harness/compressed.h"
#include "harness/packed.h"
#include "harness/place.h"

#include "engine/base/text.h"

enum { TEXT = 5000, ROOM = 1 << 15, READERS = 8, FILE_BYTES_MAX = 1 << 20 };

typedef struct Bench {
    Arena arena;
    char folder[64], path[FILE_PATH_MAX];
    char text[TEXT], packed[ROOM];
    size_t used;
} Bench;

/* A file of a text that compresses little. */
static int place_open(void **state)
{
    static Bench bench;
    Bench *b = *state = &bench;
    *b = (Bench){ 0 };
    place_make(b->folder, &b->arena);
    CHECK_OK(file_join(b->path, b->folder, "file.zst"));
    for (int i = 0; i < TEXT; i++) b->text[i] = (char)(i * i % 251 ^ i >> 3);
    add_zstd(b->text, TEXT, b->packed, ROOM, &b->used);
    CHECK_OK(file_write_whole(b->path, b->packed, b->used));
    return 0;
}

static int place_close(void **state)
{
    Bench *b = *state;
    place_drop(b->folder, &b->arena);
    return 0;
}

static void a_file_is_its_bytes_and_a_nul(void **state)
{
    Bench *b = *state;
    const Packed p = packed_read(b->path);
    CHECK_INT(p.bytes, TEXT);
    CHECK(memcmp(p.text, b->text, TEXT) == 0);
    CHECK_INT(p.text[TEXT], '\0');
}

static void a_file_is_unpacked_once(void **state)
{
    Bench *b = *state;
    char other[FILE_PATH_MAX];
    CHECK_OK(file_join(other, b->folder, "file.zst.zst"));
    CHECK_OK(file_write_whole(other, b->packed, b->used));
    const Packed first = packed_read(b->path), second = packed_read(other);
    CHECK(second.text != first.text);
    CHECK_OK(file_remove_tree(b->path));
    CHECK(packed_read(b->path).text == first.text);
    CHECK(packed_read(other).text == second.text);
}

static void *reader(void *path) { return (void *)(uintptr_t)packed_read(path).text; }

static void threads_share_what_one_of_them_unpacks(void **state)
{
    Bench *b = *state;
    pthread_t thread[READERS];
    void *text[READERS];
    for (int i = 0; i < READERS; i++)
        CHECK_INT(pthread_create(&thread[i], NULL, reader, b->path), 0);
    for (int i = 0; i < READERS; i++) CHECK_INT(pthread_join(thread[i], &text[i]), 0);
    for (int i = 1; i < READERS; i++) CHECK(text[i] == text[0]);
}

static void a_damaged_file_is_named(void **state)
{
    Bench *b = *state;
    Packed p = { 0 };
    for (size_t at = 4; at < b->used; at += 97) {
        b->packed[at] ^= 1;
        CHECK_OK(file_write_whole(b->path, b->packed, b->used));
        CHECK_FAILS(packed_unpack(b->path, &p), ERR_FORMAT, b->path);
        b->packed[at] ^= 1;
    }
    CHECK_OK(file_write_whole(b->path, b->packed, b->used - 1));
    CHECK_FAILS(packed_unpack(b->path, &p), ERR_FORMAT, b->path);
    CHECK_OK(file_write_whole(b->path, b->text, TEXT));
    CHECK_FAILS(packed_unpack(b->path, &p), ERR_FORMAT, "tools/golden_file.py did not make it");
    CHECK(p.text == NULL);
}

/* Returns how many there are. What people do not read is packed. */
static int check_folder(const char *folder, Arena *a)
{
    const char *const *name = NULL;
    int n = 0, packed = 0;
    CHECK_OK(file_list(folder, a, &name, &n));
    for (int i = 0; i < n; i++) {
        char path[FILE_PATH_MAX];
        uint64_t bytes = 0;
        CHECK_OK(file_join(path, folder, name[i]));
        if (!file_is_file(path)) {
            packed += check_folder(path, a);
            continue;
        }
        CHECK_OK(file_size(path, &bytes));
        if (bytes >= FILE_BYTES_MAX) fail_msg("%s has %llu bytes", path, (unsigned long long)bytes);
        if (strstr(name[i], ".golden") == NULL && !text_ends(name[i], ".zst")) continue;
        if (!text_ends(name[i], ".zst")) fail_msg("%s is not packed", path);
        CHECK(packed_read(path).bytes > bytes);
        packed++;
    }
    return packed;
}

static void all_golden_files_unpack_and_are_small(void **state)
{
    Bench *b = *state;
    CHECK(check_folder("tests/golden", &b->arena) >= 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        PLACE_TEST(a_file_is_its_bytes_and_a_nul),          PLACE_TEST(a_file_is_unpacked_once),
        PLACE_TEST(threads_share_what_one_of_them_unpacks), PLACE_TEST(a_damaged_file_is_named),
        PLACE_TEST(all_golden_files_unpack_and_are_small),
    };
    return TEST_RUN(tests);
}
