/* The tokenizer of the data, that of the configuration and the model's vocabulary must fit. */
#include "harness/run_folder.h"

/* Another tokenizer, of 400 ids; the books prepared with it. */
static void prepare_other(Lab *lab)
{
    if (file_exists(lab_path(lab, "other.idx"))) return;
    CHECK_EXIT(RUN(lab, ".", "data", "tokenizer", "train", "--vocab", "400", "--out", "other.json",
                   "books.txt"),
               0);
    CHECK_EXIT(RUN(lab, ".", "data", "prepare", "--tokenizer", "other.json", "--split", "line",
                   "--out", "other", "books.txt"),
               0);
}

#define OTHER "data.sources=[{name: other, path: ../other}]"

static void data_of_another_tokenizer_is_refused_by_its_sum(void **state)
{
    static const char *const row[][8] = {
        { "train", "../tiny.yaml", OTHER },
        { "train", "--dry-run", "../tiny.yaml", OTHER },
        { "train", "../tiny.yaml", OTHER, "--ranks", "2" },
    };
    Lab *lab = *state;
    prepare_other(lab);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        Outcome o = lab_run(lab, &(Launch){ .cell = "refused", .args = row[i] });
        CHECK_REFUSED(o, 2,
                      "../other.bin was prepared with the tokenizer other.json, which is not "
                      "../tokenizer.json (data.tokenizer): prepare it again with switchyard data "
                      "prepare --tokenizer ../tokenizer.json --out ../other FILE...");
        CHECK(!file_exists(lab_path(lab, "refused/run/metrics.jsonl")));
    }
    /* the same bytes in another place are the same tokenizer */
    size_t n = 0;
    char *json = lab_read(lab, lab_path(lab, "other.json"), &n);
    lab_write(lab, lab_path(lab, "moved.json"), json, n);
    Outcome o = RUN(lab, "moved", "train", "../tiny.yaml", OTHER, "train.steps=1",
                    "data.tokenizer=../moved.json");
    CHECK_EXIT(o, 0);
    o = RUN(lab, "moved", "eval", "run", "books=../books");
    CHECK_REFUSED(o, 2,
                  "../books.bin was prepared with the tokenizer tokenizer.json, which is not");
}

static void sources_of_two_tokenizers_are_refused_without_one_in_the_settings(void **state)
{
    Lab *lab = *state;
    prepare_other(lab);
    Outcome o = RUN(lab, "two", "train", "../tiny.yaml", "data.tokenizer=",
                    "data.sources=[{name: web, path: ../web}, {name: other, path: ../other}]");
    CHECK_REFUSED(o, 2,
                  "../other.bin was prepared with the tokenizer other.json, which is not "
                  "tokenizer.json: prepare");
}

static void a_vocabulary_below_the_tokenizers_is_an_error_at_the_start(void **state)
{
    static const char *const set[] = { "data.tokenizer=../tokenizer.json", "data.tokenizer=" };
    Lab *lab = *state;
    for (int i = 0; i < 4; i++) {
        Outcome o = RUN(lab, "small", "train", "../tiny.yaml", "model.vocab=500", set[i % 2],
                        i < 2 ? "train.steps=1" : "--dry-run");
        CHECK_REFUSED(o, 2,
                      "has 512 ids, model.vocab is 500: set "
                      "model.vocab=512");
        CHECK(!file_exists(lab_path(lab, "small/run/metrics.jsonl")));
    }
}

static void a_vocabulary_far_above_the_tokenizers_is_a_warning(void **state)
{
    static const char warning[] =
        "warning: the tokenizer ../tokenizer.json has 512 ids, "
        "model.vocab is 4,096: the rest is never used, and model.vocab=512 would do\n";
    Lab *lab = *state;
    static const char *const how[] = { "--dry-run", "--ranks=1", "--ranks=2" };
    for (int i = 0; i < 3; i++) {
        Outcome o = RUN(lab, how[i] + 2, "train", "../tiny.yaml", "model.vocab=4096",
                        "train.steps=1", how[i]);
        CHECK_EXIT(o, 0);
        const char *says = strstr(o.err, warning);
        CHECK(says != NULL && strstr(says + 1, "warning: ") == NULL); /* by one rank alone */
    }
    Outcome o = RUN(lab, "rounded", "train", "../tiny.yaml", "model.vocab=640", "--dry-run");
    CHECK_EXIT(o, 0);
    CHECK(strstr(o.err, "warning") == NULL);
}

/* As old shards and other programs' have it: nothing is known, and nothing is in the way. */
static void without_a_record_of_the_tokenizer_data_is_taken(void **state)
{
    Lab *lab = *state;
    prepare_other(lab);
    CHECK_OK(file_remove_tree(lab_path(lab, "other.meta")));
    Outcome o = RUN(lab, "old", "train", "../tiny.yaml", OTHER, "train.steps=1");
    CHECK_EXIT(o, 0);
    const char *says =
        strstr(o.err, "../other.meta does not exist, so ../other.bin cannot be checked");
    CHECK(says != NULL && strstr(says + 30, ".meta") == NULL);
    CHECK(strstr(o.err, "warning") == NULL);
    lab_write_text(lab, lab_path(lab, "other.meta"), "vocab: 512\n");
    o = RUN(lab, "old", "train", "../tiny.yaml", OTHER, "train.steps=1");
    CHECK_REFUSED(o, 2, "../other.meta has no lines xxh3_128, vocab and tokenizer");
    CHECK_OK(file_remove_tree(lab_path(lab, "other.idx")));
}

/* The record of an older shard does not outlive it. */
static void data_prepared_anew_has_its_own_record(void **state)
{
    static const char *const tokenizer[] = { "other.json", "tokenizer.json" };
    static const char *const ends[] = { "\nvocab: 400\ntokenizer: other.json\n",
                                        "\nvocab: 512\ntokenizer: tokenizer.json\n" };
    Lab *lab = *state;
    prepare_other(lab);
    for (int i = 0; i < 2; i++) {
        Outcome o = RUN(lab, ".", "data", "prepare", "--tokenizer", tokenizer[i], "--out", "anew",
                        "books.txt");
        CHECK_EXIT(o, 0);
        CHECK_SAYS(lab_read(lab, lab_path(lab, "anew.meta"), NULL), ends[i]);
    }
}

/* A .tiktoken file of the 256 bytes, with a pattern and an end of text of its own. */
static void a_tiktoken_file_is_converted_and_prepares_data(void **state)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    Lab *lab = *state;
    Text file;
    CHECK_OK(text_init(&file, &lab->arena));
    for (int b = 0; b < 256; b++)
        CHECK_OK(text_printf(&file, "%c%c== %d\n", digits[b >> 2], digits[b << 4 & 63], b));
    lab_write(lab, lab_path(lab, "bytes.tiktoken"), file.data, file.used);
    Outcome o =
        RUN(lab, ".", "data", "tokenizer", "convert", "bytes.tiktoken", "--pattern", "\\w+|\\W",
            "--special", "<|endoftext|>=300", "--special", "a=b=301", "--out", "bytes.json");
    CHECK_EXIT(o, 0);
    CHECK_TEXT(o.out, "bytes.json: 302 ids from bytes.tiktoken\n");
    lab_write_text(lab, lab_path(lab, "bytes.txt"), "ab a=b\n");
    o = RUN(lab, ".", "data", "prepare", "--tokenizer", "bytes.json", "--out", "bytes",
            "bytes.txt");
    CHECK_EXIT(o, 0);
    static const uint16_t want[] = { 'a', 'b', ' ', 301, '\n', 300 };
    size_t n = 0;
    const char *bin = lab_read(lab, lab_path(lab, "bytes.bin"), &n);
    CHECK_INT(n, sizeof want);
    CHECK(memcmp(bin, want, sizeof want) == 0);
}

static void a_shard_is_packed_once_and_with_its_own_tokenizer(void **state)
{
    Lab *lab = *state;
    prepare_other(lab);
    Outcome o = RUN(lab, ".", "data", "pack", "--tokenizer", "other.json", "--sequence", "64",
                    "--out", "packed", "other");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "packed: ");
    CHECK_SAYS(o.out, " sequences of 64, ");
    CHECK(file_exists(lab_path(lab, "packed.mask")));
    CHECK(lab_same_files(lab, lab_path(lab, "packed.meta"), lab_path(lab, "other.meta")));
    o = RUN(lab, ".", "data", "pack", "--tokenizer", "other.json", "--out", "twice", "packed");
    CHECK_REFUSED(o, 2, "packed is packed already, in sequences of 64");
    o = RUN(lab, ".", "data", "pack", "--tokenizer", "tokenizer.json", "--out", "twice", "other");
    CHECK_REFUSED(o, 2, "other was prepared with the tokenizer other.json, which is not");
    CHECK(!file_exists(lab_path(lab, "twice.bin")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LAB_TEST(data_of_another_tokenizer_is_refused_by_its_sum),
        LAB_TEST(sources_of_two_tokenizers_are_refused_without_one_in_the_settings),
        LAB_TEST(a_vocabulary_below_the_tokenizers_is_an_error_at_the_start),
        LAB_TEST(a_vocabulary_far_above_the_tokenizers_is_a_warning),
        LAB_TEST(without_a_record_of_the_tokenizer_data_is_taken),
        LAB_TEST(data_prepared_anew_has_its_own_record),
        LAB_TEST(a_tiktoken_file_is_converted_and_prepares_data),
        LAB_TEST(a_shard_is_packed_once_and_with_its_own_tokenizer),
    };
    return LAB_RUN_ALL(tests);
}
