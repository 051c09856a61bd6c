/* The test of a GPU's memory: what was written is read back, and a word that changed is counted. */
#include "engine/gpu/gpu_memory.h"
#include "harness/gpu.h"
#include "harness/test.h"

/* Past one block's share, and not a multiple of it. */
enum { WORDS = 256 * 16 * 3 + 77 };

typedef struct Block {
    GpuStream s;
    void *word, *found;
} Block;

static void open_block(Block *b)
{
    GpuInfo info;
    CHECK_OK(gpu_info(0, &info));
    CHECK_OK(gpu_stream_make(false, &b->s));
    CHECK_OK(gpu_alloc(WORDS * sizeof(uint32_t), &b->word));
    CHECK_OK(gpu_alloc_pinned(sizeof(uint64_t), &b->found));
}

static void close_block(Block *b)
{
    gpu_free(b->word);
    gpu_free_pinned(b->found);
    gpu_stream_free(b->s);
}

static uint64_t count_wrong(const Block *b, uint32_t seed)
{
    CHECK_OK(gpu_count_wrong(b->s, b->word, WORDS, seed, b->found));
    CHECK_OK(gpu_stream_sync(b->s));
    return *(uint64_t *)b->found;
}

static void what_was_written_is_read_back(void **state)
{
    NEEDS_GPU();
    Block b;
    open_block(&b);
    CHECK_OK(gpu_fill_pattern(b.s, b.word, WORDS, 0x55555555));
    CHECK_INT(count_wrong(&b, 0x55555555), 0);
    CHECK_INT(count_wrong(&b, 0xAAAAAAAA), WORDS);
    close_block(&b);
}

static void a_bit_that_flips_is_counted_wherever_it_is(void **state)
{
    NEEDS_GPU();
    Block b;
    static uint32_t word[WORDS];
    static const int at[] = { 0, 1, 4095, 4096, WORDS - 1 };
    open_block(&b);
    CHECK_OK(gpu_fill_pattern(b.s, b.word, WORDS, 0));
    for (int i = 0; i < 5; i++) {
        CHECK_OK(gpu_copy(word, b.word, sizeof word, b.s));
        CHECK_OK(gpu_stream_sync(b.s));
        word[at[i]] ^= 1u << 7 * i % 32;
        CHECK_OK(gpu_copy(b.word, word, sizeof word, b.s));
        CHECK_OK(gpu_stream_sync(b.s));
        CHECK_INT(count_wrong(&b, 0), i + 1);
    }
    close_block(&b);
}

/* Neighbours differ, so that a line that is stuck or crossed is seen. */
static void words_differ_from_their_neighbours(void **state)
{
    NEEDS_GPU();
    Block b;
    static uint32_t word[WORDS];
    int same = 0;
    open_block(&b);
    CHECK_OK(gpu_fill_pattern(b.s, b.word, WORDS, 0));
    CHECK_OK(gpu_copy(word, b.word, sizeof word, b.s));
    CHECK_OK(gpu_stream_sync(b.s));
    for (int step = 1; step < WORDS; step *= 2) {
        for (int i = 0; i + step < WORDS; i++) same += word[i] == word[i + step];
    }
    CHECK_INT(same, 0);
    close_block(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_was_written_is_read_back),
        TEST(a_bit_that_flips_is_counted_wherever_it_is),
        TEST(words_differ_from_their_neighbours),
    };
    return TEST_RUN(tests);
}
