/* switchyard convert as its user meets it: a trained model goes out and comes back as the same one,
 * and is trained on; what is wrong is one sentence and exit code 2, and leaves nothing behind. */
#include "harness/run_folder.h"

static void train_and_export(Lab *lab)
{
    if (file_exists(lab_path(lab, "there/hf"))) return;
    CHECK_OK(file_make_folders(lab_path(lab, "there")));
    Outcome o = RUN(lab, "there", "train", "../tiny.yaml", "train.steps=3");
    CHECK_EXIT(o, 0);
    o = RUN(lab, "there", "convert", "to-hf", "run", "hf", "--shard-gb", "1e-5");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "hf: deepseek_v2");
    CHECK(file_exists(lab_path(lab, "there/hf/tokenizer.json")));
    /* without these AutoTokenizer has no token that ends a text, nor one that fills it */
    CHECK_SAYS(lab_read(lab, lab_path(lab, "there/hf/tokenizer_config.json"), NULL),
               "\"eos_token\":\t\"<|endoftext|>\",\n\t\"pad_token\":\t\"<|endoftext|>\"");
    CHECK_SAYS(lab_read(lab, lab_path(lab, "there/hf/generation_config.json"), NULL),
               "\"eos_token_id\":\t511,\n\t\"pad_token_id\":\t511");
    CHECK(file_exists(lab_path(lab, "there/hf/model.safetensors.index.json")));
    o = RUN(lab, "there", "convert", "from-hf", "hf/", "back/");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "back/: deepseek_v2");
}

static void a_trained_model_goes_out_and_comes_back(void **state)
{
    Lab *lab = *state;
    train_and_export(lab);
    int32_t ids[29];
    for (int i = 0; i < 29; i++) ids[i] = (7 * i * i + 3) % 512;
    lab_write(lab, lab_path(lab, "there/ids"), ids, sizeof ids);
    Outcome a = RUN(lab, "there", "logits", "run", "ids", "a.f32"),
            b = RUN(lab, "there", "logits", "back", "ids", "b.f32");
    CHECK_EXIT(a, 0);
    CHECK_EXIT(b, 0);
    CHECK(lab_same_files(lab, lab_path(lab, "there/a.f32"), lab_path(lab, "there/b.f32")));
    a = RUN(lab, "there", "eval", "back", "web=../web");
    CHECK_EXIT(a, 0);
    CHECK_SAYS(a.out, "bits a byte");
    a = RUN(lab, "there", "generate", "run", "--prompt", "ba", "--tokens", "8", "--temperature",
            "0");
    b = RUN(lab, "there", "generate", "back", "--prompt", "ba", "--tokens", "8", "--temperature",
            "0");
    CHECK_EXIT(a, 0);
    CHECK_EXIT(b, 0);
    CHECK_TEXT(b.out, a.out);
    CHECK(!file_exists(lab_path(lab, "there/back.tmp")) &&
          !file_exists(lab_path(lab, "there/hf.tmp")));
}

/* --init may name the folder of Hugging Face's itself. */
static void a_training_begins_from_a_folder_of_hugging_face_s(void **state)
{
    Lab *lab = *state;
    train_and_export(lab);
    int32_t ids[] = { 5, 1, 300, 41, 7 };
    lab_write(lab, lab_path(lab, "there/few"), ids, sizeof ids);
    Outcome o = RUN(lab, "there", "train", "back/config.yaml", "--init", "hf",
                    "run.dir=runs/direct", "train.steps=0", "train.batch=4", "data.sequence=32",
                    "data.sources=[{name: web, path: ../web}]");
    CHECK_EXIT(o, 0);
    CHECK(file_exists(lab_path(lab, "there/runs/direct-init/config.yaml")));
    Outcome a = RUN(lab, "there", "logits", "runs/direct", "few", "c.f32"),
            b = RUN(lab, "there", "logits", "back", "few", "d.f32");
    CHECK_EXIT(a, 0);
    CHECK_EXIT(b, 0);
    CHECK(lab_same_files(lab, lab_path(lab, "there/c.f32"), lab_path(lab, "there/d.f32")));
    o = RUN(lab, "there", "train", "back/config.yaml", "--init", "hf", "run.dir=runs/deeper",
            "train.steps=0", "train.batch=4", "data.sequence=32", "mtp.layers=1",
            "data.sources=[{name: web, path: ../web}]");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.err, " on) begin as run.seed gives them\n");
    CHECK_EXIT(RUN(lab, "there", "logits", "runs/deeper", "few", "c.f32"), 0);
    CHECK(lab_same_files(lab, lab_path(lab, "there/c.f32"), lab_path(lab, "there/d.f32")));
    o = RUN(lab, "there", "train", "back/config.yaml", "--init", "hf", "run.dir=runs/direct",
            "data.sources=[{name: web, path: ../web}]");
    CHECK_EXIT(o, 2);
    /* the same command again and again: killed before the first checkpoint, and behind it */
    for (int i = 0; i < 3; i++) {
        if (i == 1) CHECK_OK(file_remove_tree(lab_path(lab, "there/runs/again/checkpoints")));
        o = RUN(lab, "there", "train", "back/config.yaml", "--init", "hf", "--resume=auto",
                "run.dir=runs/again", "train.steps=0", "train.batch=4", "data.sequence=32",
                "data.sources=[{name: web, path: ../web}]");
        CHECK_EXIT(o, 0);
        CHECK_SAYS(o.err, i < 2 ? "init: weights of runs/again-init" : "resumed from runs/again");
    }
}

/* The folder that from-hf makes has a configuration that fits; a run that begins from it goes on
 * where the first one was, and can be exported in its turn. */
static void a_training_begins_from_what_came_back(void **state)
{
    Lab *lab = *state;
    train_and_export(lab);
    Outcome o = RUN(lab, "there", "train", "back/config.yaml", "--init", "back", "run.dir=next",
                    "train.steps=0", "train.batch=4", "data.sequence=32",
                    "data.sources=[{name: web, path: ../web}]");
    CHECK_EXIT(o, 0);
    o = RUN(lab, "there", "convert", "to-hf", "next", "again");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "again: deepseek_v2");
    o = RUN(lab, "there", "convert", "to-hf", "back", "second", "--dtype", "f32");
    CHECK_EXIT(o, 0);
    CHECK(lab_same_files(lab, lab_path(lab, "there/again/model.safetensors"),
                         lab_path(lab, "there/second/model.safetensors")));
}

/* The quickstart's model, with fewer and narrower layers: its router has softmax scores (as the preset
 * says) or sigmoid ones, and a bias that two steps have moved. It goes out with that bias and comes back
 * with the same logits; what the format has no member for stands in one line. */
static void the_quickstart_s_model_goes_out_and_comes_back(void **state)
{
    static const struct {
        const char *cell, *score, *family;
    } rows[] = {
        { "quick-softmax", "moe.score=softmax", "hf: deepseek_v2" },
        { "quick-sigmoid", "moe.score=sigmoid", "hf: deepseek_v3" },
    };
    Lab *lab = *state;
    int32_t ids[64];
    for (int i = 0; i < 64; i++) ids[i] = (7 * i * i + 3) % 512;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *cell = rows[i].cell;
        CHECK_OK(file_make_folders(lab_path(lab, "%s", cell)));
        Outcome o = RUN(lab, cell, "train", "quickstart", rows[i].score, "run.dir=run",
                        "model.hidden=64", "model.ffn=96", "moe.ffn=48", "train.steps=2",
                        "train.batch=4", "train.micro_batch=4", "train.eval_every=0",
                        "data.sequence=32", "data.tokenizer=../tokenizer.json",
                        "run.trace_steps=[]", "data.sources=[{name: web, path: ../web}]");
        CHECK_EXIT(o, 0);
        o = RUN(lab, cell, "convert", "to-hf", "run", "hf");
        CHECK_EXIT(o, 0);
        CHECK_SAYS(o.out, rows[i].family);
        CHECK_SAYS(o.out, "not carried by the format: moe.bias_rate 0.001\n");
        CHECK(i == 1 || strstr(o.err, "topk_method noaux_tc") != NULL);
        o = RUN(lab, cell, "convert", "from-hf", "hf", "back");
        CHECK_EXIT(o, 0);
        lab_write(lab, lab_path(lab, "%s/ids", cell), ids, sizeof ids);
        CHECK_EXIT(RUN(lab, cell, "logits", "run", "ids", "a.f32"), 0);
        CHECK_EXIT(RUN(lab, cell, "logits", "back", "ids", "b.f32"), 0);
        CHECK(
            lab_same_files(lab, lab_path(lab, "%s/a.f32", cell), lab_path(lab, "%s/b.f32", cell)));
    }
}

/* DeepSeek-V3's files have a bias of the router; a model without one has zeros there. */
static void a_router_without_a_bias_gets_zeros(void **state)
{
    Lab *lab = *state;
    CHECK_OK(file_make_folders(lab_path(lab, "zeros")));
    Outcome o = RUN(lab, "zeros", "train", "../tiny.yaml", "train.steps=2", "moe.score=sigmoid",
                    "moe.normalise=true");
    CHECK_EXIT(o, 0);
    o = RUN(lab, "zeros", "convert", "to-hf", "run", "hf");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "hf: deepseek_v3");
    o = RUN(lab, "zeros", "convert", "from-hf", "hf", "back");
    CHECK_EXIT(o, 0);
    int32_t ids[5] = { 5, 6, 7, 80, 9 };
    lab_write(lab, lab_path(lab, "zeros/ids"), ids, sizeof ids);
    CHECK_EXIT(RUN(lab, "zeros", "logits", "run", "ids", "a.f32"), 0);
    CHECK_EXIT(RUN(lab, "zeros", "logits", "back", "ids", "b.f32"), 0);
    CHECK(lab_same_files(lab, lab_path(lab, "zeros/a.f32"), lab_path(lab, "zeros/b.f32")));
}

/* data.tokenizer goes out, whatever its name. A tokenizer.json beside it is another one. */
static void the_tokenizer_of_the_settings_goes_out(void **state)
{
    Lab *lab = *state;
    CHECK_OK(file_make_folders(lab_path(lab, "named")));
    lab_write_text(lab, lab_path(lab, "named/own.json"),
                   lab_read(lab, lab_path(lab, "tokenizer.json"), NULL));
    lab_write_text(lab, lab_path(lab, "named/tokenizer.json"), "{}");
    Outcome o =
        RUN(lab, "named", "train", "../tiny.yaml", "train.steps=1", "data.tokenizer=own.json");
    CHECK_EXIT(o, 0);
    o = RUN(lab, "named", "convert", "to-hf", "run", "hf");
    CHECK_EXIT(o, 0);
    CHECK(!file_exists(lab_path(lab, "named/hf/own.json")));
    CHECK(file_exists(lab_path(lab, "named/hf/tokenizer_config.json")));
    CHECK(lab_same_files(lab, lab_path(lab, "named/own.json"),
                         lab_path(lab, "named/hf/tokenizer.json")));
    CHECK_OK(file_remove_tree(lab_path(lab, "named/own.json")));
    o = RUN(lab, "named", "convert", "to-hf", "run", "without");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.err, "own.json does not exist: OUT has no tokenizer");
    CHECK(!file_exists(lab_path(lab, "named/without/tokenizer.json")));
}

static void bad_calls_are_refused_and_leave_nothing(void **state)
{
    static const struct {
        const char *args[8], *says;
    } rows[] = {
        { { "convert" }, "switchyard convert needs a command" },
        { { "convert", "from_hf", "hf", "x" }, "did you mean from-hf?" },
        { { "convert", "from-hf", "hf" }, "needs DIR OUT, got 1" },
        { { "convert", "from-hf", "nowhere", "x" }, "nowhere/config.json" },
        { { "convert", "from-hf", "hf", "back" }, "back exists already" },
        { { "convert", "to-hf", "nowhere", "x" }, "nowhere: there is no such checkpoint" },
        { { "convert", "to-hf", "run", "x", "--dtype", "f64" }, "auto|f32|bf16" },
        { { "convert", "to-hf", "run", "x", "--shard-gb", "0" }, "--shard-gb is 0" },
        { { "convert", "from-hf", "small", "x" },
          "small/tokenizer.json has 512 ids, but vocab_size gives the embedding 31 rows" },
    };
    Lab *lab = *state;
    train_and_export(lab);
    CHECK_OK(file_make_folders(lab_path(lab, "there/small")));
    lab_write_text(lab, lab_path(lab, "there/small/config.json"),
                   lab_read(lab, "tests/golden/hf/mixtral/config.json", NULL));
    lab_write_text(lab, lab_path(lab, "there/small/tokenizer.json"),
                   lab_read(lab, lab_path(lab, "tokenizer.json"), NULL));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        Outcome o = lab_run(lab, &(Launch){ .cell = "there", .args = rows[i].args });
        CHECK_REFUSED(o, 2, rows[i].says);
        CHECK(!file_exists(lab_path(lab, "there/x")) && !file_exists(lab_path(lab, "there/x.tmp")));
    }
}

/* A file cannot grow further, as on a full disk. */
static void a_full_disk_leaves_nothing(void **state)
{
    Lab *lab = *state;
    train_and_export(lab);
    Outcome o = lab_run(lab, &(Launch){ .cell = "there",
                                        .args = ARGS("convert", "from-hf", "hf", "full"),
                                        .file_limit = 100000 });
    CHECK_EXIT(o, 3);
    CHECK_SAYS(o.err, "rank-00000.bin");
    CHECK(!file_exists(lab_path(lab, "there/full")) &&
          !file_exists(lab_path(lab, "there/full.tmp")));
    o = lab_run(lab, &(Launch){ .cell = "there",
                                .args = ARGS("convert", "to-hf", "back", "full"),
                                .file_limit = 50000 });
    CHECK_EXIT(o, 3);
    CHECK(!file_exists(lab_path(lab, "there/full")) &&
          !file_exists(lab_path(lab, "there/full.tmp")));
}

/* What a command refuses before it writes. *left: a file that must stay. */
static void check_out_refused(Lab *lab, const char *before, const char *left, const char *says)
{
    Outcome o = SHELL(lab, "there", before);
    CHECK_EXIT(o, 0);
    o = RUN(lab, "there", "convert", "to-hf", "run", "taken");
    CHECK_REFUSED(o, 2, says);
    o = RUN(lab, "there", "convert", "from-hf", "hf", "taken");
    CHECK_REFUSED(o, 2, says);
    CHECK(file_exists(lab_path(lab, "there/%s", left)));
    o = SHELL(lab, "there", "test ! -e taken.tmp/.switchyard && rm -rf taken taken.tmp");
    CHECK_EXIT(o, 0);
}

static void an_out_that_is_in_the_way_stays_and_is_refused(void **state)
{
    Lab *lab = *state;
    train_and_export(lab);
    check_out_refused(lab, "mkdir taken.tmp && touch taken.tmp/mine", "taken.tmp/mine",
                      "taken.tmp is in the way, and this program did not make it");
    check_out_refused(lab, "touch taken.tmp", "taken.tmp", "taken.tmp is in the way");
    check_out_refused(lab, "mkdir real && ln -s real taken", "taken",
                      "taken.tmp cannot be renamed to ");
    check_out_refused(lab, "ln -s nowhere taken", "real",
                      "taken exists already and is not an empty folder");
    Outcome o = RUN(lab, "there/real", "convert", "to-hf", "../run", ".");
    CHECK_EXIT(o, 2);
    o = SHELL(lab, "there",
              "mkdir -m 700 taken && \"$0\" convert to-hf run taken && "
              "test -e taken/config.json -a ! -e taken/.switchyard && rm -r taken");
    CHECK_EXIT(o, 0);
    /* as a killed one leaves it */
    o = SHELL(lab, "there",
              "mkdir taken.tmp && echo 1 > taken.tmp/.switchyard && touch taken.tmp/x && "
              "\"$0\" convert to-hf run taken && test ! -e taken/x && rm -r taken");
    CHECK_EXIT(o, 0);
}

/* Two at once, many times: one is whole, and no file of the other is in it. */
static void of_two_conversions_into_one_folder_one_is_refused(void **state)
{
    static const char line[] =
        "i=0; while [ $i -lt 20 ]; do i=$((i + 1)); rm -rf two\n"
        "\"$0\" convert to-hf run two --dtype f32 2>e1 & a=$!\n"
        "\"$0\" convert to-hf run two --dtype bf16 --shard-gb 1e-5 2>e2 & b=$!\n"
        "wait $a; x=$?; wait $b; y=$?\n"
        "if [ $x$y = 02 ]; then diff -r two f32 || exit 8; grep -q two e2 || exit 7\n"
        "elif [ $x$y = 20 ]; then diff -r two bf16 || exit 8; grep -q two e1 || exit 7\n"
        "else echo $x $y; cat e1 e2; exit 9; fi; test ! -e two.tmp || exit 6; done";
    Lab *lab = *state;
    train_and_export(lab);
    Outcome o = RUN(lab, "there", "convert", "to-hf", "run", "f32", "--dtype", "f32");
    CHECK_EXIT(o, 0);
    o = RUN(lab, "there", "convert", "to-hf", "run", "bf16", "--dtype", "bf16", "--shard-gb",
            "1e-5");
    CHECK_EXIT(o, 0);
    o = SHELL(lab, "there", line);
    if (o.code != 0) fail_msg("%d: %s %s", o.code, o.out, o.err);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LAB_TEST(a_trained_model_goes_out_and_comes_back),
        LAB_TEST(a_training_begins_from_a_folder_of_hugging_face_s),
        LAB_TEST(a_training_begins_from_what_came_back),
        LAB_TEST(the_quickstart_s_model_goes_out_and_comes_back),
        LAB_TEST(a_router_without_a_bias_gets_zeros),
        LAB_TEST(the_tokenizer_of_the_settings_goes_out),
        LAB_TEST(bad_calls_are_refused_and_leave_nothing),
        LAB_TEST(a_full_disk_leaves_nothing),
        LAB_TEST(an_out_that_is_in_the_way_stays_and_is_refused),
        LAB_TEST(of_two_conversions_into_one_folder_one_is_refused),
    };
    return LAB_RUN_ALL(tests);
}
