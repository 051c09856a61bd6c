/* `data prepare` of Parquet files, and of documents that are token ids already. */
#include "corpus/shard/shard.h"
#include "harness/run_folder.h"

/* A file of tests/golden/parquet, in the lab. */
static const char *take(Lab *lab, const char *name)
{
    char from[FILE_PATH_MAX];
    char *data = NULL;
    size_t bytes = 0;
    CHECK_OK(file_join(from, "tests/golden/parquet", name));
    CHECK_OK(file_read_all(from, &lab->arena, &data, &bytes));
    const char *to = lab_path(lab, "parquet/%s", name);
    CHECK_OK(file_make_folders(lab_path(lab, "parquet")));
    lab_write(lab, to, data, bytes);
    return to;
}

#define PREPARE(out, field, file)                                                                  \
    RUN(lab, "parquet", "data", "prepare", "--tokenizer", "../tokenizer.json", "--out", out,       \
        "--field", field, "--on-bad-line", "skip", file)

static void a_column_gives_the_shard_of_its_json_lines(void **state)
{
    static const char *const FILES[][2] = { { "text-checked", "text" },
                                            { "text-inside", "meta.text" },
                                            { "ids-zstd-v2-dictionary", "ids" } };
    Lab *lab = *state;
    for (int i = 0; i < 3; i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "%s.parquet", FILES[i][0]);
        CHECK_EXIT(PREPARE("rows", FILES[i][1], take(lab, name)), 0);
        (void)snprintf(name, sizeof name, "%s.jsonl", FILES[i][0]);
        CHECK_EXIT(PREPARE("lines", FILES[i][1], take(lab, name)), 0);
        CHECK(lab_same_files(lab, lab_path(lab, "parquet/rows.bin"),
                             lab_path(lab, "parquet/lines.bin")));
        CHECK(lab_same_files(lab, lab_path(lab, "parquet/rows.idx"),
                             lab_path(lab, "parquet/lines.idx")));
    }
}

static void two_columns_are_one_object_a_line(void **state)
{
    Lab *lab = *state;
    Outcome o = RUN(lab, "parquet", "data", "parquet", "--field", "title", "--field", "text",
                    take(lab, "text-one.parquet"));
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "{\"title\": \"x0\", \"text\": \"same\"}\n{\"title\": \"x1\", \"text\"");
}

/* Each ends with one end-of-text id. Ids that the tokenizer does not have, nulls and fractions are bad lines. */
static void documents_may_be_token_ids(void **state)
{
    Lab *lab = *state;
    Shard s = { 0 };
    int32_t ids[16];
    lab_write_text(lab, lab_path(lab, "ids.jsonl"),
                   "{\"ids\": [7, 8, 9]}\n{\"ids\": []}\n{\"ids\": [5, 0]}\n{\"ids\": [1, 99999]}\n"
                   "{\"ids\": [1, null]}\n{\"ids\": [1.5]}\n{\"ids\": [-1]}\n{\"ids\": [3]}\n");
    Outcome o = PREPARE("ids", "ids", "../ids.jsonl");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.err, "4 bad lines were left out");
    CHECK_SAYS(o.err, "1 empty documents were left out");
    CHECK_OK(shard_open(&s, lab_path(lab, "parquet/ids")));
    CHECK_INT(s.documents, 3);
    const int64_t n = shard_start(&s, 3);
    CHECK(n > 8 && n <= 10); /* 0 may be the end-of-text id */
    shard_read(&s, 0, n, ids);
    CHECK(ids[0] == 7 && ids[1] == 8 && ids[2] == 9 && ids[4] == 5 && ids[n - 2] == 3);
    CHECK_INT(ids[n - 1], ids[3]);
    shard_close(&s);
    o = RUN(lab, "parquet", "data", "prepare", "--tokenizer", "../tokenizer.json", "--out", "bad",
            "--field", "ids", "../ids.jsonl");
    CHECK_REFUSED(o, 2, "ids.jsonl:4: not all of the list are token ids, whole numbers from 0 to ");
}

/* The command is printed before it runs. */
static void a_command_of_the_command_line_runs_and_is_shown(void **state)
{
    Lab *lab = *state;
    Outcome o = RUN(lab, "parquet", "data", "prepare", "--tokenizer", "../tokenizer.json", "--out",
                    "few", "--split", "line", "cmd: yes the cat | head -n 5");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.err, "runs the command: yes the cat | head -n 5");
    CHECK_SAYS(o.out, "few: 5 documents");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LAB_TEST(a_column_gives_the_shard_of_its_json_lines),
        LAB_TEST(two_columns_are_one_object_a_line),
        LAB_TEST(documents_may_be_token_ids),
        LAB_TEST(a_command_of_the_command_line_runs_and_is_shown),
    };
    return LAB_RUN_ALL(tests);
}
