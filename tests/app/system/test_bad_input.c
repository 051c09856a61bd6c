/* What is wrong with the input is said in one sentence with the thing, the value, the limit and
 * where; the exit code is 2; nothing is written that was not asked for. */
#include "harness/run_folder.h"

#include "engine/comm/comm.h"
#include "engine/host/cpu.h"

#include <sys/stat.h>

/* One call that must be refused, and what its sentence must name. */
typedef struct Refusal {
    const char *args[10];
    const char *says[4];
} Refusal;

static void check_refusals(Lab *lab, const char *cell, const Refusal *r, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        Outcome o = lab_run(lab, &(Launch){ .cell = cell, .args = r[i].args });
        for (int k = 0; k < 4 && r[i].says[k] != NULL; k++) CHECK_REFUSED(o, 2, r[i].says[k]);
        CHECK_TEXT(o.out, "");
    }
}

#define CHECK_REFUSALS(lab, cell, table)                                                           \
    check_refusals((lab), (cell), (table), sizeof(table) / sizeof *(table))

/* ---- arguments ---- */

static void unknown_commands_and_options_name_the_nearest(void **state)
{
    static const Refusal table[] = {
        { { "train" }, { "CONFIG is missing" } },
        { { "train", "nothing.yaml" }, { "nothing.yaml" } },
        { { "train", "../tiny.yaml", "--dry-rum" }, { "--dry-rum", "--dry-run" } },
        { { "train", "../tiny.yaml", "--lr", "1" }, { "--lr", "write optimizer.lr=1" } },
        { { "train", "../tiny.yml" }, { "did you mean ../tiny.yaml?" } },
        { { "train", "../tiny.yaml", "mesh.ep=2", "mesh.pp=2" },
          { "mesh.pp=2 with mesh.ep=2 needs 4 ranks: add --ranks 4" } },
        { { "train", "../tiny.yaml", "--dry-run", "mesh.ep=2" },
          { "mesh.ep=2 needs 2 ranks: add --ranks 2" } },
        { { "supervise", "../tiny.yaml", "--ranks", "2" }, { "after --, as in -- --ranks 2" } },
        { { "eval", "run", "--tasks", "hellaswag" }, { "switchyard serve", "--choices" } },
        { { "generate", "run" }, { "--prompt" } },
        { { "generate", "run", "--prompt", "x", "--top-p", "2" }, { "--top-p", "2", "1" } },
        { { "generate", "run", "--prompt", "x", "--seed", "abc" }, { "--seed", "abc" } },
        { { "logits", "run" }, { "logits", "TOKENS" } },
        { { "data", "prepair" }, { "prepair", "prepare" } },
    };
    CHECK_REFUSALS(*state, "words", table);
    Outcome o = RUN(*state, "words", "trian");
    CHECK_EXIT(o, 2);
    CHECK_SAYS(o.err, "no command \"trian\", did you mean train?");
    o = lab_run(*state, &(Launch){ .cell = "words", .args = ARGS("--quiet") });
    CHECK_REFUSED(o, 2, "switchyard needs a command: one of the list above");
    CHECK_SAYS(o.out, "\n  train        train a model");
}

/* ---- settings ---- */

static void a_wrong_setting_names_file_line_value_and_limits(void **state)
{
    static const struct {
        const char *yaml, *says[3];
    } rows[] = {
        { "model:\n  hidden: 32\n  hiden: 3\n", { "a.yaml:3:3", "model.hiden", "model.hidden" } },
        { "modell:\n  hidden: 4\n", { "a.yaml:1:1", "modell", "model" } },
        { "lr: 1\n", { "a.yaml:1:1", "optimizer.lr" } },
        { "model:\n  hidden: 4.5\n", { "a.yaml:2:11", "4.5", "whole number from 1 to 1000000" } },
        { "model:\n  hidden: [3]\n", { "a.yaml:2:11", "model.hidden" } },
        { "optimizer: {lr: 1e5}\n", { "a.yaml:1:17", "1e5", "from 0 to 100" } },
        { "run:\n  compute: f64\n", { "a.yaml:2:12", "f64", "f32|bf16" } },
        { "run:\n  guard: maybe\n", { "a.yaml:2:10", "maybe" } },
        { "model:\n  hidden: 32\n  hidden: 64\n", { "a.yaml:3:3", "second time" } },
        { "model:\n  hidden: [3\n", { "a.yaml:3:1", "not YAML" } },
        { "preset: nosuch\n", { "a.yaml:1", "nosuch" } },
    };
    Lab *lab = *state;
    CHECK_OK(file_make_folders(lab_path(lab, "settings")));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        lab_write_text(lab, lab_path(lab, "settings/a.yaml"), rows[i].yaml);
        Outcome o = RUN(lab, "settings", "train", "a.yaml");
        for (int k = 0; k < 3 && rows[i].says[k]; k++) CHECK_REFUSED(o, 2, rows[i].says[k]);
    }
}

static void sizes_that_do_not_fit_each_other_are_refused_with_both(void **state)
{
    static const Refusal table[] = {
        { { "train", "../tiny.yaml", "model.hiden=3" }, { "model.hiden", "model.hidden" } },
        { { "train", "../tiny.yaml", "model.hidden=abc" }, { "model.hidden is", "\"abc\"" } },
        { { "train", "../tiny.yaml", "model.hidden" }, { "model.hidden", "=" } },
        { { "train", "../tiny.yaml", "train.micro_batch=3" },
          { "train.micro_batch 3", "train.batch 4" } },
        { { "train", "../tiny.yaml", "train.batch=1000000000", "train.micro_batch=1000000000" },
          { "train.micro_batch 1000000000 x data.sequence 32", "lower train.micro_batch" } },
        { { "train", "../tiny.yaml", "train.batch=1000000000", "train.micro_batch=1" },
          { "micro-batches (train.batch / train.micro_batch", "1 to 65536" } },
        { { "train", "../tiny.yaml", "moe.top_k=9" }, { "moe.top_k 9", "4 experts" } },
        { { "train", "../tiny.yaml", "moe.groups=3" }, { "moe.groups 3", "moe.experts 4" } },
        { { "train", "../tiny.yaml", "attention.rope_dim=3" }, { "attention.rope_dim 3" } },
        { { "train", "../tiny.yaml", "attention.kind=gqa", "attention.kv_heads=3" },
          { "attention.kv_heads 3", "attention.heads 2" } },
        { { "train", "../tiny.yaml", "model.dense_layers=7" },
          { "model.dense_layers 7", "model.layers 3" } },
        { { "train", "../tiny.yaml", "recompute.layers=[5]" }, { "layer 5", "model.layers is 3" } },
        { { "train", "../tiny.yaml", "fp8.recipe=block", "fp8.layers=[3]" },
          { "fp8.layers names layer 3", "model.layers is 3" } },
        { { "train", "../tiny.yaml", "fp8.wgrad=bf16" }, { "fp8.wgrad", "fp8.recipe=none" } },
        { { "train", "../tiny.yaml", "fp8.recipe=tensor", "fp8.dispatch=fp8" },
          { "fp8.dispatch=fp8", "powers of two", "set fp8.recipe=block" } },
        { { "train", "../tiny.yaml", "optimizer.min_lr=1" },
          { "optimizer.min_lr 1", "optimizer.lr 0.001" } },
        { { "train", "../tiny.yaml", "optimizer.moments=bf16", "optimizer.beta2=0.999" },
          { "optimizer.beta2 0.999", "less than 1/512 of itself", "set optimizer.beta2=0.95" } },
        { { "train", "../tiny.yaml", "data.sequence=2000000" }, { "source web", "2000001" } },
        { { "train", "../tiny.yaml", "--ranks=4", "train.micro_batch=1", "mesh.ranks_per_host=3" },
          { "mesh.ranks_per_host 3 does not divide the 4 ranks" } },
        { { "train", "../tiny.yaml", "--ranks=6", "train.batch=6", "train.micro_batch=1",
            "mesh.ep=2", "moe.exchange=hier", "mesh.ranks_per_host=3" },
          { "3 ranks on each host", "the 2 ranks of mesh.ep", "1 and 2 do" } },
        { { "train", "../tiny.yaml", "model.vocab=100" },
          { "../tokenizer.json", "512 ids", "model.vocab is 100" } },
    };
    CHECK_REFUSALS(*state, "sizes", table);
}

/* ---- text and tokenizers ---- */

static void broken_json_lines_are_named_or_counted(void **state)
{
    static const char lines[] =
        "{\"text\": \"ba ko\"}\n{\"text\": 3}\n{\"text\": \"x\"\n{\"text\": \"lin\"}\n";
    Lab *lab = *state;
    CHECK_OK(file_make_folders(lab_path(lab, "lines")));
    lab_write_text(lab, lab_path(lab, "lines/a.jsonl"), lines);
    Outcome o = RUN(lab, "lines", "data", "prepare", "--tokenizer", "../tokenizer.json", "--out",
                    "a", "a.jsonl");
    CHECK_REFUSED(o, 2, "a.jsonl:2: no text in field \"text\"");
    CHECK(!file_exists(lab_path(lab, "lines/a.bin")) && !file_exists(lab_path(lab, "lines/a.idx")));
    o = RUN(lab, "lines", "data", "prepare", "--tokenizer", "../tokenizer.json", "--out", "a",
            "--on-bad-line", "skip", "a.jsonl");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.err, "2 bad lines were left out");
    CHECK_SAYS(o.out, "2 documents");
}

static void bad_chats_and_templates_leave_nothing_behind(void **state)
{
    static const Refusal table[] = {
        { { "data", "chat", "--template=good.jinja", "--out=a.jsonl", "no_answer.jsonl" },
          { "no_answer.jsonl:1: a chat of 1 messages without an answer" } },
        { { "data", "chat", "--template=good.jinja", "--out=a.jsonl", "role.jsonl" },
          { "role.jsonl:1: message 1 has the role tool", "good.jinja" } },
        { { "data", "chat", "--template=macro.jinja", "--out=a.jsonl", "no_answer.jsonl" },
          { "macro.jinja:2: macro is not among" } },
        { { "data", "chat", "--model=..", "--out=a.jsonl", "no_answer.jsonl" },
          { "the folder .. has no chat_template", "--template" } },
        { { "data", "chat", "--out=a.jsonl", "no_answer.jsonl" },
          { "data chat needs a template", "--model", "--template" } },
        { { "data", "prepare", "--tokenizer=../tokenizer.json", "--out=new/a", "--parts",
            "no_answer.jsonl" },
          { "no_answer.jsonl:1: no list \"parts\"", "switchyard data chat" } },
        { { "data", "prepare", "--tokenizer=../tokenizer.json", "--out=new/a", "--parts",
            "good.jinja" },
          { "good.jinja: parts come in JSON lines" } },
        { { "data", "prepare", "--tokenizer=../tokenizer.json", "--out=new/a", "--chat",
            "good.jinja", "no_answer.jsonl" },
          { "switchyard data chat --model", "switchyard data prepare --parts" } },
        { { "data", "prepare", "--tokenizer=../tokenizer.json", "--out=new/a", "--chat=good.jinja",
            "no_answer.jsonl" },
          { "--chat is a command of its own" } },
    };
    Lab *lab = *state;
    CHECK_OK(file_make_folders(lab_path(lab, "chats")));
    lab_write_text(lab, lab_path(lab, "chats/good.jinja"),
                   "{% for m in messages %}{% if m.role != 'tool' %}{{ m.role + m.content }}"
                   "{% endif %}{% endfor %}");
    lab_write_text(lab, lab_path(lab, "chats/macro.jinja"), "a\n{% macro x() %}");
    lab_write_text(lab, lab_path(lab, "chats/no_answer.jsonl"),
                   "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}\n");
    lab_write_text(lab, lab_path(lab, "chats/role.jsonl"),
                   "{\"messages\":[{\"role\":\"tool\",\"content\":\"a\"},"
                   "{\"role\":\"assistant\",\"content\":\"b\"}]}\n");
    CHECK_REFUSALS(lab, "chats", table);
    CHECK(!file_exists(lab_path(lab, "chats/a.jsonl")) &&
          !file_exists(lab_path(lab, "chats/new/a.bin")) &&
          !file_exists(lab_path(lab, "chats/new/a.mask")) &&
          !file_exists(lab_path(lab, "chats/new/a.idx")));
}

static void missing_and_broken_text_and_tokenizers_are_named(void **state)
{
    static const Refusal table[] = {
        { { "data", "prepare", "--tokenizer", "../tokenizer.json", "--out", "a", "none.txt" },
          { "none.txt" } },
        { { "data", "prepare", "--tokenizer", "../tokenizer.json", "--out", "a", "empty.txt" },
          { "0 bytes" } },
        { { "data", "prepare", "--tokenizer", "none.json", "--out", "a", "../books.txt" },
          { "none.json" } },
        { { "data", "prepare", "--tokenizer", "half.json", "--out", "a", "../books.txt" },
          { "half.json", "broken JSON at byte" } },
        { { "train", "../tiny.yaml", "data.tokenizer=half.json" },
          { "half.json", "broken JSON at byte" } },
        { { "train", "../tiny.yaml", "data.tokenizer=none.json" }, { "none.json" } },
        { { "data", "tokenizer", "train", "--vocab", "512", "--out=a.json", "empty.txt" },
          { "512" } },
        { { "data", "prepare", "--tokenizer", "../books.txt", "--out", "a", "../books.txt" },
          { "../books.txt is no tokenizer.json", "switchyard data tokenizer convert" } },
        { { "data", "prepare", "--tokenizer", "odd.tiktoken", "--out", "a", "../books.txt" },
          { "odd.tiktoken is no tokenizer.json", "switchyard data tokenizer convert" } },
        { { "data", "tokenizer", "convert", "odd.tiktoken", "--out=a.json" },
          { "odd.tiktoken has 2 tokens", "gpt2 of 50256", "--pattern" } },
        { { "data", "tokenizer", "convert", "odd.tiktoken", "--out=a.json", "--encoding=gpt3" },
          { "encoding \"gpt3\" is not known", "o200k_base of 199998" } },
        { { "data", "tokenizer", "convert", "odd.tiktoken", "--out=a.json", "--pattern=a(" },
          { "odd.tiktoken has no token for the byte 0" } },
        { { "data", "tokenizer", "convert", "odd.tiktoken", "--out=a.json", "--encoding=qwen",
            "--special=end" },
          { "special token \"end\" is not TEXT=ID" } },
        { { "data", "tokenizer", "convert", "half.json", "--out=a.json" },
          { "half.json is no .tiktoken file" } },
    };
    Lab *lab = *state;
    CHECK_OK(file_make_folders(lab_path(lab, "texts")));
    size_t n = 0;
    char *whole = lab_read(lab, lab_path(lab, "tokenizer.json"), &n);
    lab_write(lab, lab_path(lab, "texts/half.json"), whole, n / 2);
    lab_write(lab, lab_path(lab, "texts/empty.txt"), "", 0);
    lab_write_text(lab, lab_path(lab, "texts/odd.tiktoken"), "IQ== 0\nIg== 1\n");
    CHECK_REFUSALS(lab, "texts", table);
    CHECK(!file_exists(lab_path(lab, "texts/a.bin")) &&
          !file_exists(lab_path(lab, "texts/a.json")));
}

static void corpora_that_cannot_be_read_are_named(void **state)
{
#define PREPARE "data", "prepare", "--tokenizer=../tokenizer.json", "--out=a"
    static const Refusal table[] = {
        { { PREPARE, "cut.jsonl.gz" }, { "cut.jsonl.gz is damaged before byte", "gzip -t" } },
        { { PREPARE, "x.parquet" }, { "x.parquet is no whole Parquet file", "copy it again" } },
        { { PREPARE, "parquet" }, { "parquet/x.parquet is no whole Parquet file" } },
        { { PREPARE, "parquet/*.par*" }, { "parquet/x.parquet is no whole Parquet file" } },
        { { PREPARE, "parquet/y.jsonl" }, { "parquet/y.jsonl is no whole Parquet file" } },
        { { "data", "parquet", "--field=text", "x.parquet" }, { "x.parquet is no whole Parquet" } },
        { { "data", "parquet", "x.parquet" }, { "--field" } },
        { { PREPARE, "cmd: cat x.parquet" },
          { "cmd: cat x.parquet is Parquet", "switchyard data parquet --field NAME /dev/stdin" } },
        { { PREPARE, "--command-timeout=1", "cmd: echo asks >&2; sleep 100" },
          { "printed nothing for 1 s", "its stderr ends with: asks" } },
        { { PREPARE, "cmd:" }, { "names no command" } },
        { { "data", "prepare", "--tokenizer=../tokenizer.json", "--out=held", "a.jsonl" },
          { "held is being prepared by process ", "wait for it, or give another --out" } },
        { { PREPARE, "none/" }, { "the folder none/ holds no .jsonl" } },
        { { PREPARE, "no*.jsonl" }, { "no file matches no*.jsonl" } },
        { { PREPARE, "--field=a.b", "a.jsonl" }, { "a.jsonl:1: no field \"a.b\"" } },
        { { PREPARE, "--threads=0", "a.jsonl" }, { "--threads", "1" } },
        { { PREPARE, "--dedup=fuzzy", "a.jsonl" }, { "--dedup", "exact" } },
        { { PREPARE, "--pack=best-fit", "a.jsonl" },
          { "--pack is a command of its own", "switchyard data pack" } },
        { { "data", "pack", "--tokenizer=../tokenizer.json", "--out=b", "--sequence=2000000", "a" },
          { "--sequence", "1048576" } },
        { { "train", "../tiny.yaml", "train.batch_ramp=[\"5 2\"]" },
          { "train.batch_ramp[0] is \"5 2\", must be \"STEP: SEQUENCES\"" } },
        { { "train", "../tiny.yaml", "data.curriculum=[\"5 web=1\"]" },
          { "data.curriculum[0] is \"5 web=1\", must be \"STEP: NAME=WEIGHT" } },
        { { "train", "../tiny.yaml", "data.curriculum=[\"5: nobody=1\"]" },
          { "data.curriculum[0]: \"nobody=1\" names no source" } },
        { { "train", "../tiny.yaml", "data.curriculum=[\"5: web=0\"]" },
          { "data.curriculum[0] gives no source a weight" } },
        { { "train", "../tiny.yaml", "data.curriculum=[\"5: web=1\", \"5: web=2\"]" },
          { "data.curriculum[1] begins at step 5", "steps must rise" } },
        { { "train", "../tiny.yaml",
            "data.sources=[{name: a, path: x, weight: 0.5}, {name: b, path: y, weight: 0.3}]" },
          { "data.sources: the weights are shares, but sum to 0.8" } },
        { { "train", "../tiny.yaml", "data.sources=[{name: a, path: x, weight: 1, epochs: 2}]" },
          { "data.sources[0]", "weight", "epochs" } },
    };
#undef PREPARE
    Lab *lab = *state;
    CHECK_OK(file_make_folders(lab_path(lab, "corpora/none")));
    lab_write_text(lab, lab_path(lab, "corpora/a.jsonl"), "{\"text\": \"ba\"}\n");
    lab_write(lab, lab_path(lab, "corpora/cut.jsonl.gz"), "\x1F\x8B\x08\0\0\0\0\0\0\3\xAB", 11);
    static const char *const parquet[] = { "x.parquet", "parquet/x.parquet", "parquet/y.jsonl" };
    CHECK_OK(file_make_folders(lab_path(lab, "corpora/parquet")));
    for (int i = 0; i < 3; i++)
        lab_write(lab, lab_path(lab, "corpora/%s", parquet[i]), "PAR1\x15\x04PAR1", 10);
    int lock = 0;
    bool held = false;
    long holder = 0;
    CHECK_OK(file_lock(lab_path(lab, "corpora/held.lock"), &lock, &held, &holder));
    CHECK_REFUSALS(lab, "corpora", table);
    file_unlock(lock);
    CHECK(!file_exists(lab_path(lab, "corpora/a.bin")) &&
          !file_exists(lab_path(lab, "corpora/a.bin.tmp")));
}

/* ---- shards ---- */

static const char shard_source[] = "data.sources=[{name: web, path: shard}]";

/* The shard of the web, cut to these sizes (-1: all of it). */
static void cut_shard(Lab *lab, long bin_bytes, long idx_bytes)
{
    size_t n = 0;
    char *data = lab_read(lab, lab_path(lab, "web.bin"), &n);
    lab_write(lab, lab_path(lab, "shards/shard.bin"), data, bin_bytes < 0 ? n : (size_t)bin_bytes);
    data = lab_read(lab, lab_path(lab, "web.idx"), &n);
    lab_write(lab, lab_path(lab, "shards/shard.idx"), data, idx_bytes < 0 ? n : (size_t)idx_bytes);
}

static void check_shard(Lab *lab, const char *says)
{
    Outcome o = RUN(lab, "shards", "train", "../tiny.yaml", shard_source);
    CHECK_REFUSED(o, 2, says);
    CHECK(!file_exists(lab_path(lab, "shards/run/checkpoints")));
}

static void missing_empty_and_truncated_shards_are_named(void **state)
{
    Lab *lab = *state;
    CHECK_OK(file_make_folders(lab_path(lab, "shards")));
    check_shard(lab, "shard.idx cannot be read");
    cut_shard(lab, 0, -1);
    check_shard(lab, "shard.bin has 0 bytes");
    cut_shard(lab, 1000, -1);
    check_shard(lab, "shard.bin has 1000 bytes");
    cut_shard(lab, -1, 0);
    check_shard(lab, "shard.idx has 0 bytes");
    cut_shard(lab, -1, 1000);
    check_shard(lab, "shard.idx has 1000 bytes");
    CHECK_OK(file_remove_tree(lab_path(lab, "shards/shard.bin")));
    check_shard(lab, "shard.bin cannot be read");
}

/* Lengths begin behind 34 bytes of header: two documents that trade a token still add up, so only
 * the place of the second one tells. */
static void an_index_that_disagrees_with_itself_or_its_tokens_is_named(void **state)
{
    Lab *lab = *state;
    CHECK_OK(file_make_folders(lab_path(lab, "shards")));
    cut_shard(lab, -1, -1);
    lab_flip_byte(lab, lab_path(lab, "shards/shard.idx"), 34);
    check_shard(lab, "shard.idx: sequence 1");
    cut_shard(lab, -1, -1);
    lab_flip_byte(lab, lab_path(lab, "shards/shard.idx"), 0);
    check_shard(lab, "MMIDIDX");
    cut_shard(lab, -1, -1);
    lab_flip_byte(lab, lab_path(lab, "shards/shard.idx"), 18);
    check_shard(lab, "sequences");
}

/* Ids are checked as they are read: what was learned by then is saved. Ids from 400 on are rare
 * merges here, so the run gets some way. */
static void an_id_beyond_the_vocabulary_ends_the_run_with_its_steps_saved(void **state)
{
    Lab *lab = *state;
    size_t n = 0;
    char *data = lab_read(lab, lab_path(lab, "web.bin"), &n);
    uint16_t id = 512;
    memcpy(data + n / 4 * 2, &id, sizeof id);
    CHECK_OK(file_make_folders(lab_path(lab, "ids")));
    lab_write(lab, lab_path(lab, "ids/web.bin"), data, n);
    data = lab_read(lab, lab_path(lab, "web.idx"), &n);
    lab_write(lab, lab_path(lab, "ids/web.idx"), data, n);
    const char *const *args = ARGS("train", "../tiny.yaml", "data.sources=[{name: web, path: web}]",
                                   "train.steps=100000", "data.shuffle=false");
    Outcome o = lab_run(lab, &(Launch){ .cell = "ids", .args = args });
    CHECK_REFUSED(o, 2, "is id 512, the vocabulary has 512");
    CHECK_SAYS(o.err, "source web: token ");
    CHECK_SAYS(o.err, "of document ");
    int steps = run_count_steps(lab, "ids");
    CHECK(steps > 10);
    CHECK(run_has_checkpoint(lab, "ids", steps));
}

/* ---- what is not a file ---- */

/* Nothing is read for ever, nothing waits for ever, nothing counts as empty. */
static void devices_and_pipes_are_refused_where_a_file_is_needed(void **state)
{
    static const Refusal table[] = {
        { { "train", "/dev/zero" }, { "/dev/zero is a device" } },
        { { "plan", "/dev/null", "--cluster", "h200:8" }, { "/dev/null is a device" } },
        { { "data", "prepare", "--tokenizer=../tokenizer.json", "--out=a", "../books.txt",
            "/dev/urandom" },
          { "/dev/urandom is a device" } },
        { { "train", "../tiny.yaml", "data.tokenizer=fifo" }, { "fifo is a pipe" } },
        { { "train", "../tiny.yaml", "data.sources=[{name: a, path: shard}]" },
          { "shard.bin is a pipe" } },
        { { "data", "inspect", "shard" }, { "shard.bin is a pipe" } },
        { { "logits", "run", "/dev/zero", "out" }, { "/dev/zero is a device" } },
        { { "eval", "part" }, { "rank-00000.bin is a pipe" } },
        { { "generate", "part", "--prompt", "x" }, { "rank-00000.bin is a pipe" } },
        { { "train", "../tiny.yaml", "--init", "part", "run.dir=new" },
          { "rank-00000.bin is a pipe" } },
        { { "eval", "list" }, { "manifest.jsonl is a pipe" } },
    };
    static const char *const part[] = { "part/rank-00000.bin", "list/manifest.jsonl" };
    static const char *const kept[] = { "manifest.jsonl", "rank-00000.bin" };
    Lab *lab = *state;
    Outcome o = RUN(lab, "kinds", "train", "../tiny.yaml", "train.steps=1");
    CHECK_EXIT(o, 0);
    size_t n = 0;
    char *data = lab_read(lab, lab_path(lab, "web.idx"), &n);
    lab_write(lab, lab_path(lab, "kinds/shard.idx"), data, n);
    CHECK_INT(mkfifo(lab_path(lab, "kinds/shard.bin"), 0600), 0);
    CHECK_INT(mkfifo(lab_path(lab, "kinds/fifo"), 0600), 0);
    for (int i = 0; i < 2; i++) {
        const char *from = lab_path(lab, "kinds/run/checkpoints/step-0000000001/%s", kept[i]);
        const char *folder = i == 0 ? "kinds/part" : "kinds/list";
        CHECK_OK(file_make_folders(lab_path(lab, "%s", folder)));
        CHECK_INT(mkfifo(lab_path(lab, "kinds/%s", part[i]), 0600), 0);
        data = lab_read(lab, from, &n);
        lab_write(lab, lab_path(lab, "%s/%s", folder, kept[i]), data, n);
    }
    CHECK_REFUSALS(lab, "kinds", table);
}

/* ---- run folders ---- */

static void a_folder_with_checkpoints_needs_resume_and_keeps_its_files(void **state)
{
    Lab *lab = *state;
    Outcome o = RUN(lab, "used", "train", "../tiny.yaml", "train.steps=3");
    CHECK_EXIT(o, 0);
    const char *config = lab_read(lab, lab_path(lab, "used/run/config.yaml"), NULL);
    const char *metrics = run_metrics(lab, "used");
    o = RUN(lab, "used", "train", "../tiny.yaml", "train.steps=5");
    CHECK_REFUSED(o, 2, "run/checkpoints already holds checkpoints (the newest of step 3)");
    CHECK_SAYS(o.err, "--resume");
    CHECK_TEXT(lab_read(lab, lab_path(lab, "used/run/config.yaml"), NULL), config);
    CHECK_TEXT(run_metrics(lab, "used"), metrics);
    CHECK(run_has_checkpoint(lab, "used", 3));
}

static void resume_without_a_checkpoint_is_refused(void **state)
{
    static const Refusal table[] = {
        { { "train", "../tiny.yaml", "--resume" }, { "run/checkpoints", "--resume" } },
        { { "generate", "run", "--prompt", "x" }, { "run/checkpoints", "no whole checkpoint" } },
        { { "generate", "none", "--prompt", "x" }, { "none" } },
        { { "eval", "run" }, { "run/checkpoints" } },
        { { "logits", "none", "tokens", "out" }, { "none" } },
        { { "train", "../tiny.yaml", "--init", "none" }, { "none" } },
    };
    CHECK_REFUSALS(*state, "resume", table);
}

static void a_checkpoint_of_another_model_names_the_first_difference(void **state)
{
    Lab *lab = *state;
    Outcome o = RUN(lab, "other", "train", "../tiny.yaml", "train.steps=2");
    CHECK_EXIT(o, 0);
    static const struct {
        const char *key, *setting, *says;
    } rows[] = {
        { "model.hidden", "model.hidden=48",
          "model.embed_tokens.weight is (512, 32) f32 there, (512, 48) f32 here" },
        { "model.layers", "model.layers=2",
          "it has model.layers.2.input_layernorm.weight, which this model lacks" },
        { "moe.experts", "moe.experts=5",
          "model.layers.1.mlp.gate.weight is (4, 32) f32 there, (5, 32) f32 here" },
        { "moe.bias_rate", "moe.bias_rate=0.1", "model.layers.1.mlp.gate.e_score_correction_bias" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        o = RUN(lab, "other", "train", "../tiny.yaml", "optimizer.decay_steps=2", rows[i].setting,
                "--resume", "--change", rows[i].key);
        CHECK_REFUSED(o, 2, "run/checkpoints/step-0000000002 is of another model");
        CHECK_SAYS(o.err, rows[i].says);
    }
    o = RUN(lab, "other", "train", "../tiny.yaml", "optimizer.decay_steps=2", "--resume");
    CHECK_EXIT(o, 0);
}

/* Bits change with it: so it is a change, and another processor's choice is said. */
static void another_instruction_set_is_named_and_needs_leave(void **state)
{
    Lab *lab = *state;
    Outcome o = RUN(lab, "isa", "train", "../tiny.yaml", "train.steps=2", "run.cpu_isa=x86-64-v3");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.err, "ops run on the CPU, in x86-64-v3\n");
    bool lower = cpu_here().isa < CPU_V4;
    if (lower || strstr(lab->program, "-v3/") != NULL) { /* make ISA=v3 */
        o = RUN(lab, "isa4", "train", "../tiny.yaml", "run.cpu_isa=x86-64-v4", "--dry-run");
        CHECK_REFUSED(o, 2,
                      lower ? "run.cpu_isa=x86-64-v4: this processor does not have it"
                            : "run.cpu_isa=x86-64-v4: this build does not have it");
        return;
    }
    o = RUN(lab, "isa", "train", "../tiny.yaml", "optimizer.decay_steps=2", "--resume");
    CHECK_REFUSED(o, 2, "--change run.cpu_isa");
    o = RUN(lab, "isa", "train", "../tiny.yaml", "optimizer.decay_steps=2", "--resume", "--change",
            "run.cpu_isa");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.err, "was computed with x86-64-v3, this run computes with x86-64-v4: from here ");
}

/* One of each kind, and what must not be in the way. */
static void a_resume_goes_on_with_the_checkpoints_mathematics_and_data(void **state)
{
    Lab *lab = *state;
    Outcome o = RUN(lab, "same", "train", "../tiny.yaml", "train.steps=2");
    CHECK_EXIT(o, 0);
    o = RUN(lab, "same", "train", "../tiny.yaml", "moe.top_k=1", "data.validation=0.5",
            "checkpoint.keep=3", "--resume");
    CHECK_REFUSED(o, 2,
                  "run/checkpoints/step-0000000002 was trained with other mathematics or on other "
                  "data: take its values, or allow each other one with --change moe.top_k --change "
                  "data.validation --change train.steps; train.steps moves the end of the "
                  "learning-rate curve:\n  optimizer.decay_steps=2 keeps the curve");
    CHECK_SAYS(o.err, "resume: moe.top_k is 1, was 2\n");
    CHECK_SAYS(o.err, "resume: data.validation is 0.5, was 0.1\n");
    CHECK_SAYS(o.err, "resume: checkpoint.keep is 3, was 2\n");
    CHECK_SAYS(o.err, "resume: train.steps is 40, was 2\n");
    o = RUN(lab, "same", "train", "../tiny.yaml", "--change", "moe.top_k");
    CHECK_REFUSED(o, 2, "--change moe.top_k is for --resume");
    o = RUN(lab, "same", "train", "../tiny.yaml", "--resume", "--change", "moe.topk");
    CHECK_REFUSED(o, 2, "--change: there is no setting moe.topk, did you mean moe.top_k?");
    o = RUN(lab, "same", "train", "../tiny.yaml", "train.steps=4", "moe.top_k=1", "--resume",
            "--change", "moe.top_k", "--change=train.steps", "--change", "model.hidden");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.err, "resume: --change model.hidden: it has not changed\n");
    CHECK(run_has_checkpoint(lab, "same", 4));
    o = RUN(lab, "same", "train", "../tiny.yaml", "train.steps=6", "optimizer.decay_steps=4",
            "moe.top_k=1", "train.micro_batch=1", "train.log_every=2", "--resume");
    CHECK_EXIT(o, 0);
    CHECK(run_has_checkpoint(lab, "same", 6));
}

/* 4 times 10^15 bytes: no host has them. A plan is no run, so --dry-run tells both. */
static void a_model_that_no_host_holds_is_refused_before_anything_is_written(void **state)
{
    Lab *lab = *state;
    static const char *const huge[] = { "train",
                                        "../tiny.yaml",
                                        "model.hidden=1000000",
                                        "model.ffn=1e7",
                                        "model.vocab=4000000",
                                        "model.layers=8",
                                        "model.dense_layers=8",
                                        NULL,
                                        NULL };
    const char *with[9];
    memcpy(with, huge, sizeof with);
    Outcome o = lab_run(lab, &(Launch){ .cell = "huge", .args = with });
    CHECK_REFUSED(o, 2, "the plan takes ");
    CHECK_SAYS(o.err, " are available (Mem");
    CHECK_SAYS(o.err, "take a host with more memory");
    CHECK(!file_exists(lab_path(lab, "huge/run")));
    with[7] = "--dry-run";
    o = lab_run(lab, &(Launch){ .cell = "huge", .args = with });
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "\n  total ");
    CHECK_SAYS(o.out, "\n  available ");
    CHECK_SAYS(o.out, "\nfits        no, on this machine: the plan takes ");
}

static void a_second_process_in_the_same_folder_is_refused(void **state)
{
    Lab *lab = *state;
    char says[64];
    Child first = START(lab, "two", "train", "../tiny.yaml", "train.steps=1000000");
    while (run_count_steps(lab, "two") < 1 && child_runs(&first)) child_sleep();
    Outcome o = RUN(lab, "two", "train", "../tiny.yaml");
    snprintf(says, sizeof says, "run folder run is in use by process %d", (int)first.pid);
    CHECK_REFUSED(o, 2, says);
    o = RUN(lab, "two", "train", "../tiny.yaml", "--resume");
    CHECK_REFUSED(o, 2, says);
    kill(first.pid, SIGTERM);
    o = lab_wait(lab, &first);
    CHECK_EXIT(o, 0);
    o = RUN(lab, "two", "train", "../tiny.yaml", "train.steps=1", "--resume", "--change",
            "train.steps");
    CHECK_EXIT(o, 0);
}

/* ---- pipelines ---- */

static void pipelines_are_drawn_or_refused_with_the_file(void **state)
{
    static const Refusal table[] = {
        { { "viz" }, { "PATH" } },
        { { "viz", "none" }, { "none/config.json is missing" } },
        { { "viz", "cut", "--out", "x.html" },
          { "cut/pp_rank_1.json", "not a complete JSON object" } },
        { { "viz", "less", "--out", "x.html" }, { "less/pp_rank_1.json is missing" } },
        { { "viz", "good", "--out", "x.png" }, { "x.png", ".html", ".svg" } },
        { { "viz", "good", "--iteration", "9" }, { "good/pp_rank_0.json", "iteration 9" } },
    };
    static const char *const folder[] = { "good", "cut", "less" };
    Lab *lab = *state;
    for (int i = 0; i < 3; i++) {
        CHECK_OK(file_make_folders(lab_path(lab, "viz/%s", folder[i])));
        lab_write_text(lab, lab_path(lab, "viz/%s/config.json", folder[i]),
                       "{\"pp_size\": 2, \"num_mbs\": 1}");
        for (int rank = 0; rank < (i == 2 ? 1 : 2); rank++) {
            const char *path = lab_path(lab, "viz/%s/pp_rank_%d.json", folder[i], rank);
            lab_write_text(lab, path,
                           "{\"4\": {\"total\": 8, \"memory\": 3, \"fwd_start\": [0], "
                           "\"fwd_end\": [2], \"bwd_start\": [4], \"bwd_end\": [7]}}");
            if (i == 1 && rank == 1) lab_truncate(lab, path, 9);
        }
    }
    CHECK_REFUSALS(lab, "viz", table);
    CHECK(!file_exists(lab_path(lab, "viz/x.html")));
    Outcome o = RUN(lab, "viz", "viz", "good", "good", "--out", "x.html");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "step 8.000 ms, bubble 37.50 % (mean), (p-1)/(p-1+m*v) 50.00 %");
    CHECK(file_exists(lab_path(lab, "viz/x.html")));
    o = RUN(lab, "viz", "viz", "good", "--out", "x.svg");
    CHECK_EXIT(o, 0);
    CHECK(file_exists(lab_path(lab, "viz/x.svg")));
}

/* mpirun says how many it starts; without MPI each of them would train alone. */
static void a_build_without_mpi_is_no_rank_of_mpirun(void **state)
{
    Lab *lab = *state;
    if (comm_mpi_built()) skip();
    setenv("OMPI_COMM_WORLD_SIZE", "2", 1);
    Outcome first = RUN(lab, "mpi", "train", "../tiny.yaml");
    setenv("OMPI_COMM_WORLD_RANK", "1", 1);
    Outcome other = RUN(lab, "mpi", "train", "../tiny.yaml");
    unsetenv("OMPI_COMM_WORLD_RANK");
    unsetenv("OMPI_COMM_WORLD_SIZE");
    CHECK_REFUSED(first, 2, "this build has no MPI");
    CHECK_TEXT(other.err, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LAB_TEST(unknown_commands_and_options_name_the_nearest),
        LAB_TEST(a_wrong_setting_names_file_line_value_and_limits),
        LAB_TEST(sizes_that_do_not_fit_each_other_are_refused_with_both),
        LAB_TEST(broken_json_lines_are_named_or_counted),
        LAB_TEST(bad_chats_and_templates_leave_nothing_behind),
        LAB_TEST(missing_and_broken_text_and_tokenizers_are_named),
        LAB_TEST(corpora_that_cannot_be_read_are_named),
        LAB_TEST(missing_empty_and_truncated_shards_are_named),
        LAB_TEST(an_index_that_disagrees_with_itself_or_its_tokens_is_named),
        LAB_TEST(an_id_beyond_the_vocabulary_ends_the_run_with_its_steps_saved),
        LAB_TEST(devices_and_pipes_are_refused_where_a_file_is_needed),
        LAB_TEST(a_folder_with_checkpoints_needs_resume_and_keeps_its_files),
        LAB_TEST(resume_without_a_checkpoint_is_refused),
        LAB_TEST(a_checkpoint_of_another_model_names_the_first_difference),
        LAB_TEST(another_instruction_set_is_named_and_needs_leave),
        LAB_TEST(a_resume_goes_on_with_the_checkpoints_mathematics_and_data),
        LAB_TEST(a_model_that_no_host_holds_is_refused_before_anything_is_written),
        LAB_TEST(a_second_process_in_the_same_folder_is_refused),
        LAB_TEST(pipelines_are_drawn_or_refused_with_the_file),
        LAB_TEST(a_build_without_mpi_is_no_rank_of_mpirun),
    };
    return LAB_RUN_ALL(tests);
}
