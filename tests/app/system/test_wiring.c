/* What lies between the configuration and the arithmetic, seen from outside: which tokens a step
 * reads, on how many ranks, with which weights and learning rate it begins. Runs are held against
 * numbers of their own kind that were found another way: a loop over the engine that stands here,
 * one rank for many, and sums of bytes that must never change. */
#include "corpus/shard/holdout.h"
#include "harness/run_folder.h"

#include "corpus/shard/shard.h"
#include "corpus/tokenizer/tokenizer.h"
#include "engine/step/engine.h"
#include "serve/generate.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { VOCAB = 512 };

/* ---- a corpus that depends on nothing else ---- */

/* 150 documents of 1 to 120 ids: Knuth's linear congruential generator (MMIX). */
static void write_shard(Lab *lab, const char *name, uint64_t x)
{
    ShardWriter w = { 0 };
    CHECK_OK(shard_create(&w, lab_path(lab, "%s", name), VOCAB, 0, &lab->arena));
    for (int d = 0; d < 150; d++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        for (uint64_t left = 1 + (x >> 33) % 120; left > 0; left--) {
            x = x * 6364136223846793005u + 1442695040888963407u;
            int32_t id = (int32_t)((x >> 33) % VOCAB);
            CHECK_OK(shard_append(&w, &id, 1));
        }
        CHECK_OK(shard_end_document(&w));
    }
    CHECK_OK(shard_commit(&w));
    shard_writer_close(&w);
}

static int open_with_shards(void **state)
{
    int rc = lab_open(state);
    write_shard(*state, "a", 1);
    write_shard(*state, "b", 2);
    return rc;
}

#define SHARDS   "data.sources=[{name: a, path: ../a}, {name: b, path: ../b}]"
#define WEIGHTED "data.sources=[{name: a, path: ../a, weight: 3}, {name: b, path: ../b, weight: 1}]"

/* ---- metrics ---- */

/* As strstr, but to the end; gcc 12 believes that strstr's result dangles. */
static const char *behind(const char *text, const char *part)
{
    const char *at = memmem(text, strlen(text), part, strlen(part));
    return at == NULL ? NULL : at + strlen(part);
}

/* What stands under `key` in the line of this kind and step. */
static const char *value_of(const char *metrics, const char *kind, int step, const char *key)
{
    char begin[64], field[64];
    snprintf(begin, sizeof begin, "{\"kind\":\"%s\",\"step\":%d,", kind, step);
    snprintf(field, sizeof field, "\"%s\":", key);
    const char *line = behind(metrics, begin), *at = line == NULL ? NULL : behind(line, field);
    if (at == NULL) fail_msg("there is no %s of %s %d", key, kind, step);
    return at;
}

static double number_of(const char *metrics, const char *kind, int step, const char *key)
{
    char *end = NULL;
    const char *at = value_of(metrics, kind, step, key);
    double number = strtod(at, &end);
    return end == at ? (double)NAN : number;
}

static void check_relative(const char *cell, int step, const char *what, double have, double want)
{
    if (fabs(have - want) <= 1e-5 * fabs(want)) return;
    fail_msg("%s, step %d: %s is %.9g, want %.9g", cell, step, what, have, want);
}

/* ---- held-out text ---- */

/* Of a source: the documents that the rule takes lie end to end, and all but their first token are
 * targets. */
typedef struct Held {
    double targets, bytes;
} Held;

static Held held_of(Lab *lab, const char *name, double share)
{
    Held h = { -1, 0 };
    Shard s;
    Tokenizer *t = NULL;
    CHECK_OK(shard_open(&s, lab_path(lab, "%s", name)));
    CHECK_OK(tokenizer_load(lab_path(lab, "tokenizer.json"), &lab->arena, &t));
    for (int64_t d = 0; d < s.documents; d++) {
        if (!holdout_by_hash(name, d, share)) continue;
        for (int64_t i = shard_start(&s, d); i < shard_start(&s, d + 1); i++) {
            const char *bytes = NULL;
            int32_t id = 0, n = 0;
            shard_read(&s, i, 1, &id);
            tokenizer_bytes(t, id, &bytes, &n);
            if (h.targets >= 0) h.bytes += n;
            h.targets++;
        }
    }
    tokenizer_free(t);
    shard_close(&s);
    return h;
}

/* A number of one source in the evaluation before the first step. */
static double eval_number(const char *metrics, const char *source, const char *key)
{
    char *end = NULL;
    const char *at = value_of(metrics, "eval", 0, source);
    at = behind(at, key);
    CHECK(at != NULL);
    double number = strtod(at, &end);
    CHECK(end > at);
    return number;
}

static void all_held_out_text_is_evaluated(void **state)
{
    static const char *const name[] = { "a", "b" };
    Lab *lab = *state;
    Outcome o = RUN(lab, "held", "train", "../tiny.yaml", "train.steps=1", "train.eval_every=1",
                    "train.eval_sequences=100000", "data.validation=0.3", SHARDS);
    CHECK_EXIT(o, 0);
    const char *metrics = run_metrics(lab, "held");
    for (int i = 0; i < 2; i++) {
        Held h = held_of(lab, name[i], 0.3);
        CHECK(h.targets > 1000);
        CHECK_NEAR(eval_number(metrics, name[i], "\"targets\":"), h.targets, 0);
        CHECK_NEAR(eval_number(metrics, name[i], "\"bytes\":"), h.bytes, 0);
    }
}

/* Each source has its share of the sequences, rounded up. */
static void no_more_is_evaluated_than_asked_for(void **state)
{
    enum { T = 32, ASKED = 20 };
    static const char *const name[] = { "a", "b" };
    Lab *lab = *state;
    Outcome o = RUN(lab, "asked", "train", "../tiny.yaml", "train.steps=1", "train.eval_every=1",
                    "train.eval_sequences=20", "data.validation=0.3", SHARDS);
    CHECK_EXIT(o, 0);
    double n[2];
    for (int i = 0; i < 2; i++) n[i] = ceil(held_of(lab, name[i], 0.3).targets / T);
    const char *metrics = run_metrics(lab, "asked");
    for (int i = 0; i < 2; i++) {
        double share = ceil(n[i] * ASKED / (n[0] + n[1]));
        CHECK(share < n[i]);
        CHECK_NEAR(eval_number(metrics, name[i], "\"targets\":"), T * share, 0);
    }
}

static void what_is_said_of_a_step_is_what_is_written(void **state)
{
    Lab *lab = *state;
    char want[2][128];
    Outcome o = RUN(lab, "said", "train", "../tiny.yaml", "train.steps=1", "train.eval_every=1",
                    "data.validation=0.3", SHARDS);
    CHECK_EXIT(o, 0);
    const char *m = run_metrics(lab, "said");
    snprintf(want[0], sizeof want[0], "step 1/1  128 tokens  loss %.4f  lr %.2e  norm %.2f  ",
             number_of(m, "step", 1, "loss"), number_of(m, "step", 1, "lr"),
             number_of(m, "step", 1, "grad_norm"));
    snprintf(want[1], sizeof want[1], "step 1: held-out loss %.4f, %.4f bits a byte",
             number_of(m, "eval", 1, "loss"), number_of(m, "eval", 1, "bits_per_byte"));
    for (int i = 0; i < 2; i++) CHECK_SAYS(o.err, want[i]);
}

/* ---- the run is its plain loop ---- */

enum { LOOP_STEPS = 12, WARMUP = 4, DECAY = 10 };

/* As docs/reference/config.md says: linear to the peak at the last step of the warm-up, then half a
 * cosine to the least rate at DECAY, which stays. */
static double rate_of(int step)
{
    static const double peak = 4e-3, least = 1e-3;
    if (step <= WARMUP) return peak * step / WARMUP;
    if (step >= DECAY) return least;
    double at = (double)(step - WARMUP) / (DECAY - WARMUP);
    return least + (peak - least) * (1 + cos(acos(-1) * at)) / 2;
}

typedef struct Loop {
    Config config;
    Engine engine;
    Loader *loader;
} Loop;

static void open_loop(Lab *lab, Loop *l)
{
    static const char *const set[] = {
        "run.seed=99",          "train.batch=4",        "train.micro_batch=2",
        "optimizer.lr=4e-3",    "moe.experts=4",        "moe.bias_rate=0.01",
        "train.clip_norm=0.05", "moe.ffn=24",           "run.threads=1",
        "model.vocab=512",      "model.hidden=32",      "model.layers=3",
        "model.ffn=48",         "attention.heads=2",    "attention.kv_rank=16",
        "attention.nope_dim=8", "attention.rope_dim=4", "attention.v_dim=8",
        "data.sequence=32",     "optimizer.eps=1e-5",   "run.device=cpu",
    };
    CHECK_OK(config_default(&l->config, &lab->arena));
    for (size_t i = 0; i < sizeof set / sizeof *set; i++)
        CHECK_OK(config_override(&l->config, &lab->arena, set[i]));
    const EngineShape shape = {
        .batch = 4, .micro_batch = 2, .sequence = 32, .positions = 32, .domains = 2, .threads = 1
    };
    const LoaderSource sources[] = { { .name = "a", .path = lab_path(lab, "a"), .weight = 3 },
                                     { .name = "b", .path = lab_path(lab, "b"), .weight = 1 } };
    const LoaderConfig data = { .sources = sources,
                                .n_sources = 2,
                                .sequence = 32,
                                .batch = 4,
                                .vocab = VOCAB,
                                .seed = 99,
                                .validation = 0.3,
                                .shuffle = true };
    EnginePlan plan;
    CHECK_OK(engine_plan(&l->config, ENGINE_TRAIN, &shape, &plan));
    CHECK_OK(engine_open(&l->engine, &l->config, ENGINE_TRAIN, &shape, &plan));
    CHECK_OK(engine_init_weights(&l->engine.params, 99));
    CHECK_OK(loader_open(&data, &lab->arena, &l->loader));
}

static void a_run_is_a_plain_loop_over_the_engine(void **state)
{
    Lab *lab = *state;
    Loop l = { 0 };
    Outcome o = RUN(lab, "loop", "train", "../tiny.yaml", "run.seed=99", "train.steps=12",
                    "data.validation=0.3", "optimizer.lr=4e-3", "optimizer.min_lr=1e-3",
                    "optimizer.warmup_steps=4", "optimizer.decay_steps=10", "optimizer.eps=1e-5",
                    "moe.bias_rate=0.01", "train.clip_norm=0.05", "train.eval_every=5", WEIGHTED);
    CHECK_EXIT(o, 0);
    const char *metrics = run_metrics(lab, "loop");
    open_loop(lab, &l);
    for (int step = 1; step <= LOOP_STEPS; step++) {
        const Batch *batch = NULL;
        StepResult r;
        CHECK_OK(loader_next(l.loader, &batch));
        CHECK_OK(engine_step(&l.engine, batch, rate_of(step), step, &r));
        const struct {
            const char *key;
            double want;
        } each[] = { { "loss", r.loss },
                     { "aux_loss", r.aux_loss },
                     { "grad_norm", r.grad_norm },
                     { "lr", rate_of(step) } };
        for (size_t k = 0; k < sizeof each / sizeof *each; k++)
            check_relative("loop", step, each[k].key, number_of(metrics, "step", step, each[k].key),
                           each[k].want);
    }
    loader_close(l.loader);
    engine_close(&l.engine);
}

/* ---- many ranks read and learn what one does ---- */

#define RANKS_STEPS 6
#define RANKS_TRAIN                                                                                \
    "train", "../tiny.yaml", "train.steps=6", "train.batch=8", "train.micro_batch=2",              \
        "optimizer.eps=1e-5", "optimizer.warmup_steps=2", "train.eval_every=6",                    \
        "train.eval_sequences=24", "data.validation=0.3", "moe.bias_rate=0.001", SHARDS

static void check_like_one_rank(Lab *lab, const char *cell)
{
    static const char *const key[] = { "loss", "aux_loss", "grad_norm", "lr", "tokens" };
    static const char *const held[] = { "loss", "bits_per_byte" };
    const char *many = run_metrics(lab, cell), *one = run_metrics(lab, "one");
    for (int step = 1; step <= RANKS_STEPS; step++) {
        for (size_t k = 0; k < sizeof key / sizeof *key; k++)
            check_relative(cell, step, key[k], number_of(many, "step", step, key[k]),
                           number_of(one, "step", step, key[k]));
    }
    for (int step = 0; step <= RANKS_STEPS; step += RANKS_STEPS) {
        for (size_t k = 0; k < sizeof held / sizeof *held; k++)
            check_relative(cell, step, held[k], number_of(many, "eval", step, held[k]),
                           number_of(one, "eval", step, held[k]));
    }
}

static void ranks_have_the_losses_of_one_rank(void **state)
{
    Lab *lab = *state;
    CHECK_EXIT(RUN(lab, "one", RANKS_TRAIN), 0);
    CHECK_EXIT(RUN(lab, "two", RANKS_TRAIN, "--ranks", "2"), 0);
    CHECK_EXIT(RUN(lab, "four", RANKS_TRAIN, "--ranks", "4", "mesh.zero=3", "mesh.shard=2"), 0);
    CHECK_EXIT(RUN(lab, "experts", RANKS_TRAIN, "--ranks", "4", "mesh.pp=2", "mesh.ep=2"), 0);
    CHECK_EXIT(RUN(lab, "context", RANKS_TRAIN, "--ranks", "4", "mesh.cp=2", "mesh.zero=2"), 0);
    Outcome o = RUN(lab, "tensor", RANKS_TRAIN, "--ranks", "4", "mesh.tp=2", "mesh.zero=2",
                    "mesh.ranks_per_host=1");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.err, "mesh.tp 2 gathers rows in every layer between hosts of 1 ranks each");
    check_like_one_rank(lab, "two");
    check_like_one_rank(lab, "four");
    check_like_one_rank(lab, "experts");
    check_like_one_rank(lab, "context");
    check_like_one_rank(lab, "tensor");
}

static int rising(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* `rows` of each of 4 ranks beside what they said of themselves. */
static void check_rows(const char *metrics, double rows[4])
{
    double said[3];
    const char *spread = value_of(metrics, "step", RANKS_STEPS, "expert_rows");
    CHECK_INT(sscanf(spread, "[%lf,%lf,%lf]", &said[0], &said[1], &said[2]), 3);
    qsort(rows, 4, sizeof *rows, rising);
    CHECK(rows[0] < rows[3]);
    CHECK_NEAR(said[0], rows[0], 0);
    CHECK_NEAR(said[1], rows[1], 0);
    CHECK_NEAR(said[2], rows[3], 0);
}

/* Of 4 experts in each of 2 layers a rank holds a half: in every layer, where 4 ranks of one stage
 * are two groups that take half of the rows each, or in the one layer of its stage. */
static void ranks_count_the_rows_of_their_own_experts(void **state)
{
    Lab *lab = *state;
    CHECK_EXIT(RUN(lab, "groups", RANKS_TRAIN, "--ranks", "4", "mesh.ep=2"), 0);
    CHECK_EXIT(RUN(lab, "stages", RANKS_TRAIN, "--ranks", "4", "mesh.ep=2", "mesh.pp=2",
                   "mesh.layout=Ett|tL"),
               0);
    const char *groups = run_metrics(lab, "groups"), *stages = run_metrics(lab, "stages");
    double half[2][2] = { { 0 } };
    const char *load = value_of(groups, "step", RANKS_STEPS, "expert_load");
    for (int i = 0; i < 8; i++) {
        char *end = NULL;
        load += strspn(load, "[],");
        half[i / 4][i % 4 / 2] += strtod(load, &end);
        CHECK(end > load);
        load = end;
    }
    double first = (half[0][0] + half[1][0]) / 2, second = (half[0][1] + half[1][1]) / 2;
    check_rows(groups, (double[]){ first, first, second, second });
    check_rows(stages, (double[]){ half[0][0], half[0][1], half[1][0], half[1][1] });
}

/* ---- resuming ---- */

static void a_run_goes_on_where_it_ended(void **state)
{
    Lab *lab = *state;
    CHECK_EXIT(RUN(lab, "whole", RANKS_TRAIN, "optimizer.decay_steps=9", "train.eval_every=2"), 0);
    CHECK_EXIT(RUN(lab, "parts", RANKS_TRAIN, "optimizer.decay_steps=9", "train.eval_every=2",
                   "train.steps=4"),
               0);
    CHECK_EXIT(
        RUN(lab, "parts", RANKS_TRAIN, "optimizer.decay_steps=9", "train.eval_every=2", "--resume"),
        0);
    check_same_steps(lab, "whole", "parts", 1, 3); /* a last step says more */
    check_same_steps(lab, "whole", "parts", 5, RANKS_STEPS);
    const char *metrics = run_metrics(lab, "parts");
    int evaluations = 0;
    for (const char *at = metrics; (at = behind(at, "\"kind\":\"eval\"")) != NULL;) evaluations++;
    CHECK_INT(evaluations, 4); /* at 0, 2, 4 and 6 */
}

/* Looking at the model or saving it is no part of training it. */
static void evaluations_and_checkpoints_change_no_step(void **state)
{
    Lab *lab = *state;
    CHECK_EXIT(RUN(lab, "quiet", RANKS_TRAIN, "train.eval_every=0"), 0);
    CHECK_EXIT(RUN(lab, "busy", RANKS_TRAIN, "train.eval_every=1", "checkpoint.every=1"), 0);
    const char *quiet = run_metrics(lab, "quiet"), *busy = run_metrics(lab, "busy");
    static const char *const key[] = { "loss", "aux_loss", "grad_norm" };
    for (int step = 1; step <= RANKS_STEPS; step++) {
        for (int k = 0; k < 3; k++)
            CHECK_NEAR(number_of(busy, "step", step, key[k]),
                       number_of(quiet, "step", step, key[k]), 0);
    }
}

/* ---- figures of a step ---- */

/* What `bench step` prints of the median step belongs together. */
static void bench_times_steps_of_the_configuration(void **state)
{
    Lab *lab = *state;
    double tokens = 0, p50 = 0, p99 = 0, gflops = 0;
    Outcome o = RUN(lab, "bench", "bench", "step", "--steps", "9", "../tiny.yaml");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "9 steps of 128 tokens");
    const char *at = behind(o.out, "tokens/s");
    CHECK(at != NULL);
    for (at += strspn(at, " "); *at != ' '; at++) {
        if (*at != ',') tokens = 10 * tokens + (*at - '0');
    }
    CHECK((at = behind(o.out, "  step ")) != NULL);
    CHECK_INT(sscanf(at, "%lf ms p50, %lf ms p99", &p50, &p99), 2);
    CHECK((at = behind(o.out, "FLOP/s ")) != NULL);
    CHECK_INT(sscanf(at, "%lf", &gflops), 1);
    CHECK(p50 > 0 && p99 >= p50);
    CHECK_NEAR(tokens * p50 * 1e-3 / 128, 1, 0.05);
    Outcome dry = RUN(lab, "bench", "train", "--dry-run", "../tiny.yaml");
    double mflop = 0;
    CHECK((at = behind(dry.out, "128 tokens, ")) != NULL);
    CHECK_INT(sscanf(at, "%lf MFLOP", &mflop), 1);
    CHECK_NEAR(gflops * p50 / mflop, 1, 0.1);
}

/* Both counts of a step's FLOPs are told by their names; of two ranks each has half of the tokens. */
static void bench_names_both_counts_of_flops(void **state)
{
    Lab *lab = *state;
    static const char *const formula[] = { "causal", "torchtitan" };
    const char *const ranks[] = { "--ranks=1", "--ranks=2" };
    double one = 0;
    Outcome text = RUN(lab, "bench", "bench", "step", "--steps=1", "../tiny.yaml");
    CHECK_EXIT(text, 0);
    CHECK_SAYS(text.out,
               "(causal: of each op, in attention the pairs that documents and windows leave)");
    CHECK_SAYS(text.out,
               "(TorchTitan's: 6 N + 6 l h (qk + v) t a token, all pairs, frozen or not)");
    for (int r = 0; r < 2; r++) {
        Outcome o = RUN(lab, "bench", "bench", "step", "--json", "--steps=3", ranks[r],
                        "../tiny.yaml", "train.micro_batch=1");
        CHECK_EXIT(o, 0);
        CHECK_SAYS(o.out, "{\"kind\":\"step\",\"model\":");
        CHECK_NEAR(strtod(behind(o.out, "\"ranks\":"), NULL), r + 1, 0);
        CHECK_NEAR(strtod(behind(o.out, "\"tokens\":"), NULL), 128, 0);
        double p50 = strtod(behind(o.out, "\"step_p50_s\":"), NULL);
        double roof = strtod(behind(o.out, "\"roof_flops\":"), NULL);
        CHECK_NEAR(strtod(behind(o.out, "\"tokens_per_s\":"), NULL) * p50 / 128, 1, 1e-9);
        double flops[2];
        for (int f = 0; f < 2; f++) {
            const char *at = behind(o.out, formula[f]);
            CHECK(at != NULL);
            flops[f] = strtod(behind(at, "\"flops\":"), NULL);
            double share = strtod(behind(at, "\"roof_share\":"), NULL);
            CHECK(flops[f] > 0);
            CHECK_NEAR(share * roof * p50 / flops[f], 1, 1e-9);
        }
        CHECK(fabs(flops[0] / flops[1] - 1) > 1e-3);
        if (r == 0) one = flops[1];
        CHECK_NEAR(flops[1] * (r + 1) / one, 1, 1e-9);
    }
}

/* One command tells of a step and of what its ops leave to gain. */
static void bench_step_tells_of_its_ops(void **state)
{
    Lab *lab = *state;
    Outcome o = RUN(lab, "bench", "bench", "step", "--ops", "--steps=1", "../tiny.yaml");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "1 steps of 128 tokens");
    CHECK_SAYS(o.out, "tokens; measured peak: ");
    CHECK_SAYS(o.out, "\nwhat the measured peak leaves to gain, in ms of a step of ");
    o = RUN(lab, "bench", "bench", "step", "--ops", "--json", "../tiny.yaml");
    CHECK_EXIT(o, 2);
    CHECK_SAYS(o.err, "--ops is text of one rank");
    o = RUN(lab, "bench", "bench", "step", "--ops", "--ranks=2", "../tiny.yaml");
    CHECK_EXIT(o, 2);
    CHECK_SAYS(o.err, "--ops is text of one rank");
    o = RUN(lab, "bench", "bench", "ops", "--device=h100", "../tiny.yaml");
    CHECK_EXIT(o, 2);
    CHECK_SAYS(o.err, "--device names a GPU for --why");
    o = RUN(lab, "bench", "bench", "ops", "--why", "--device=h100", "../tiny.yaml");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "NVIDIA H100 80 GB SXM");
    CHECK_SAYS(o.out, "which kernel takes each call of a step");
    CHECK(strstr(RUN(lab, "bench", "bench", "step", "--steps=1", "../tiny.yaml").out, "gain") ==
          NULL);
}

/* A step of two stages, where `viz` finds it. */
static void bench_records_a_step(void **state)
{
    Lab *lab = *state;
    Outcome o = RUN(lab, "timeline", "bench", "step", "../tiny.yaml", "--steps=1", "--ranks=2",
                    "mesh.pp=2", "train.micro_batch=1", "--timeline=step");
    CHECK_EXIT(o, 0);
    o = RUN(lab, "timeline", "viz", "step");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "2 ranks, 1 chunks a rank");
    o = RUN(lab, "timeline", "bench", "step", "../tiny.yaml", "--steps=1", "--timeline=none");
    CHECK_EXIT(o, 2);
    CHECK_SAYS(o.err, "--timeline none records pipeline stages");
    o = RUN(lab, "timeline", "bench", "step", "../tiny.yaml", "--ranks=2", "train.micro_batch=1",
            "--timeline=none");
    CHECK_EXIT(o, 2);
    CHECK_SAYS(o.err, "--timeline none records pipeline stages");
    /* before anything is made of the model: this one is refused when it is */
    o = RUN(lab, "timeline", "bench", "step", "llama4-scout", "--timeline=none");
    CHECK_EXIT(o, 2);
    CHECK_SAYS(o.err, "--timeline none records pipeline stages");
}

/* Where nobody watches, the first line is told, the last one, and in between one now and then. */
static void progress_is_told_every_so_many_steps(void **state)
{
    Lab *lab = *state;
    Outcome o =
        RUN(lab, "log", "train", "../tiny.yaml", "train.steps=5", "train.log_every=2", SHARDS);
    CHECK_EXIT(o, 0);
    CHECK(strstr(o.err, "step 1/5 ") == NULL);
    CHECK_SAYS(o.err, "step 2/5 ");
    CHECK_SAYS(o.err, "step 5/5 ");
    CHECK_SAYS(o.err, " % of measured peak  ");
    CHECK(strstr(o.err, "roof") == NULL);
    for (int step = 1; step <= 5; step++) {
        double share = number_of(run_metrics(lab, "log"), "step", step, "roof_share");
        CHECK(share > 0 && share <= 1);
    }
}

/* Shares of a peak count the model's work, not what is done twice to save memory. */
static void recompute_does_not_raise_the_share(void **state)
{
    Lab *lab = *state;
    double flops[2];
    static const char *const layers[] = { "recompute.layers=[]", "recompute.layers=[0, 1, 2]" };
    for (int i = 0; i < 2; i++) {
        Outcome o =
            RUN(lab, layers[i], "train", "../tiny.yaml", "train.steps=1", SHARDS, layers[i]);
        CHECK_EXIT(o, 0);
        const char *metrics = run_metrics(lab, layers[i]);
        flops[i] = number_of(metrics, "step", 1, "roof_flops") *
                   number_of(metrics, "step", 1, "roof_share") *
                   number_of(metrics, "step", 1, "step_s");
    }
    CHECK_NEAR(flops[1] / flops[0], 1, 1e-4);
    Outcome dry = RUN(lab, "bench", "train", "--dry-run", "../tiny.yaml", SHARDS);
    const char *at = behind(dry.out, "128 tokens, ");
    double mflop = 0;
    CHECK(at != NULL);
    CHECK_INT(sscanf(at, "%lf MFLOP", &mflop), 1);
    CHECK_NEAR(flops[0] / (1e6 * mflop), 1, 0.01);
}

/* ---- text ---- */

/* Goes on from the prompt by `switchyard logits` of all tokens so far and a draw of its own. */
static const char *text_by_logits(Lab *lab, const GenerateOptions *o)
{
    Tokenizer *t = NULL;
    int32_t *prompt = NULL, id[64], ids[VOCAB];
    float p[VOCAB];
    int64_t n = 0;
    char text[512];
    int used = snprintf(text, sizeof text, "%s", o->prompt);
    CHECK_OK(tokenizer_load(lab_path(lab, "tokenizer.json"), &lab->arena, &t));
    CHECK_OK(tokenizer_encode(t, o->prompt, strlen(o->prompt), &lab->arena, &prompt, &n));
    memcpy(id, prompt, (size_t)n * sizeof *id);
    for (int64_t i = 0; i < o->tokens; i++) {
        const char *bytes = NULL;
        int32_t length = 0;
        lab_write(lab, lab_path(lab, "text/tokens"), id, (size_t)n * sizeof *id);
        CHECK_EXIT(RUN(lab, "text", "logits", "run", "tokens", "logits"), 0);
        const void *logits = lab_read(lab, lab_path(lab, "text/logits"), NULL);
        double u = rng_uniform(o->seed, rng_stream("generate"), (uint64_t)i);
        id[n] = generate_sample((const float *)logits + (n - 1) * VOCAB, VOCAB, o, u, ids, p);
        if (id[n] == tokenizer_end_of_text(t)) break;
        tokenizer_bytes(t, id[n++], &bytes, &length);
        used += snprintf(text + used, sizeof text - (size_t)used, "%.*s", (int)length, bytes);
    }
    tokenizer_free(t);
    return lab_path(lab, "%s\n", text) + strlen(lab->folder) + 1;
}

static void generate_draws_as_its_options_say(void **state)
{
    static const struct {
        GenerateOptions o;
        const char *flags[8];
    } c[] = {
        { { "ba ko", 5, 1.5, 0, 1, 3 }, { "--temperature", "1.5", "--seed", "3" } },
        { { "ba ko", 5, 3, 2, 1, 1 }, { "--temperature", "3", "--top-k", "2" } },
        { { "ba ko", 5, 3, 0, 0.1, 1 }, { "--temperature", "3", "--top-p", "0.1" } },
        { { "ba ko", 5, 0, 0, 1, 1 }, { "--temperature", "0" } },
    };
    Lab *lab = *state;
    CHECK_EXIT(RUN(lab, "text", "train", "../tiny.yaml", "train.steps=4", SHARDS), 0);
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        const char *const *f = c[i].flags;
        const char *args[16] = { "generate", "run", "--prompt", c[i].o.prompt, "--tokens", "5" };
        for (int k = 0; f[k] != NULL; k++) args[6 + k] = f[k];
        Outcome o = lab_run(lab, &(Launch){ .cell = "text", .args = args });
        CHECK_EXIT(o, 0);
        CHECK_TEXT(o.out, text_by_logits(lab, &c[i].o));
    }
}

/* A model that has read nothing else goes on from the prompt with the end of the text, and from
 * there with another token, which nobody may see. */
static void end_of_text_ends_a_text(void **state)
{
    enum { OTHER = 300 };
    static const char prompt[] = "ba ko";
    Lab *lab = *state;
    ShardWriter w = { 0 };
    Tokenizer *t = NULL;
    int32_t *ids = NULL;
    int64_t n = 0;
    CHECK_OK(tokenizer_load(lab_path(lab, "tokenizer.json"), &lab->arena, &t));
    CHECK_OK(tokenizer_encode(t, prompt, strlen(prompt), &lab->arena, &ids, &n));
    const int32_t behind_it[] = { tokenizer_end_of_text(t), OTHER };
    tokenizer_free(t);
    CHECK_OK(shard_create(&w, lab_path(lab, "ends"), VOCAB, 0, &lab->arena));
    for (int i = 0; i < 100; i++) {
        CHECK_OK(shard_append(&w, ids, n));
        CHECK_OK(shard_append(&w, behind_it, 2));
    }
    CHECK_OK(shard_end_document(&w));
    CHECK_OK(shard_commit(&w));
    shard_writer_close(&w);
    Outcome o = RUN(lab, "ends", "train", "../tiny.yaml", "train.steps=60", "optimizer.lr=1e-2",
                    "data.validation=0", "data.sources=[{name: ends, path: ../ends}]");
    CHECK_EXIT(o, 0);
    CHECK(number_of(run_metrics(lab, "ends"), "step", 60, "loss") < 0.5);
    o = RUN(lab, "ends", "generate", "run", "--prompt", prompt, "--tokens", "50", "--temperature",
            "0");
    CHECK_EXIT(o, 0);
    CHECK_TEXT(o.out, "ba ko\n");
}

/* ---- the order of data ---- */

static uint64_t batches_sum(Lab *lab, const char *seed, const char *shuffle)
{
    size_t n = 0;
    Outcome o = RUN(lab, "batches", "data", "batches", "../tiny.yaml", "--steps", "40", "--out",
                    "batches", "data.validation=0.2", SHARDS, seed, shuffle);
    CHECK_EXIT(o, 0);
    const char *bytes = lab_read(lab, lab_path(lab, "batches/batches"), &n);
    CHECK(n > (size_t)40 * 4 * (4 * 32 + 1) * sizeof(int32_t));
    return XXH3_64bits(bytes, n);
}

/* The sums never change: an old run that is resumed reads on where it stopped. Forty steps are more
 * than an epoch. */
static void batches_depend_on_the_seed_and_on_shuffling_alone(void **state)
{
    static const struct {
        const char *seed, *shuffle;
        uint64_t sum;
    } want[] = {
        { "run.seed=1", "data.shuffle=true", 0xe272c2c7418520d3 },
        { "run.seed=2", "data.shuffle=true", 0xa1c8b99c1e33d462 },
        { "run.seed=1", "data.shuffle=false", 0x534f6c1f1e85e84f },
        { "run.seed=2", "data.shuffle=false", 0x534f6c1f1e85e84f }, /* in the order of the files */
    };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        uint64_t sum = batches_sum(*state, want[i].seed, want[i].shuffle);
        if (sum != want[i].sum)
            fail_msg("%s %s: sum 0x%016llx, want 0x%016llx", want[i].seed, want[i].shuffle,
                     (unsigned long long)sum, (unsigned long long)want[i].sum);
    }
}

/* ---- preparing ---- */

/* Of a text in two blocks of two lines and one: how many documents. */
static void prepare_cuts_texts_as_asked_for(void **state)
{
    static const struct {
        const char *split;
        int documents;
    } c[] = { { "file", 1 }, { "blank", 2 }, { "line", 3 } };
    Lab *lab = *state;
    lab_write_text(lab, lab_path(lab, "blocks.txt"), "ba ko\nlin ter\n\nsa mu\n");
    for (int i = 0; i < 3; i++) {
        Shard s;
        Outcome o = RUN(lab, ".", "data", "prepare", "--tokenizer", "tokenizer.json", "--out",
                        "blocks", "--split", c[i].split, "blocks.txt");
        CHECK_EXIT(o, 0);
        CHECK_OK(shard_open(&s, lab_path(lab, "blocks")));
        CHECK_INT(s.documents, c[i].documents);
        shard_close(&s);
    }
}

static void prepare_reads_the_field_asked_for(void **state)
{
    Lab *lab = *state;
    Tokenizer *t = NULL;
    Shard s;
    char text[64];
    int used = 0;
    lab_write_text(lab, lab_path(lab, "fields.jsonl"),
                   "{\"text\": \"sa mu\", \"body\": \"ba ko\"}\n");
    Outcome o = RUN(lab, ".", "data", "prepare", "--tokenizer", "tokenizer.json", "--out", "fields",
                    "--field", "body", "fields.jsonl");
    CHECK_EXIT(o, 0);
    CHECK_OK(tokenizer_load(lab_path(lab, "tokenizer.json"), &lab->arena, &t));
    CHECK_OK(shard_open(&s, lab_path(lab, "fields")));
    CHECK(s.tokens < 16);
    for (int64_t i = 0; i < s.tokens; i++) {
        const char *bytes = NULL;
        int32_t id = 0, n = 0;
        shard_read(&s, i, 1, &id);
        tokenizer_bytes(t, id, &bytes, &n);
        used += snprintf(text + used, sizeof text - (size_t)used, "%.*s", (int)n, bytes);
    }
    CHECK_TEXT(text, "ba ko");
    shard_close(&s);
    tokenizer_free(t);
}

/* ---- initial weights ---- */

/* The embedding comes first. */
static const float *initial_weights(Lab *lab, const char *cell, const char *seed)
{
    Outcome o = RUN(lab, cell, "train", "../tiny.yaml", "train.steps=0", "model.init_std=0.05",
                    SHARDS, seed);
    CHECK_EXIT(o, 0);
    const void *bytes = lab_read(
        lab, lab_path(lab, "%s/run/checkpoints/step-0000000000/rank-00000.bin", cell), NULL);
    return bytes;
}

static void initial_weights_depend_on_the_seed(void **state)
{
    enum { N = VOCAB * 32 };
    Lab *lab = *state;
    const float *a = initial_weights(lab, "seed1", "run.seed=1");
    const float *b = initial_weights(lab, "seed2", "run.seed=2");
    const float *c = initial_weights(lab, "seed1again", "run.seed=1");
    double square = 0, same = 0;
    for (int i = 0; i < N; i++) {
        square += (double)a[i] * (double)a[i];
        same += a[i] == b[i];
    }
    CHECK(memcmp(a, c, N * sizeof *a) == 0);
    CHECK(same < 0.01 * N);
    CHECK_NEAR(sqrt(square / N) / 0.05, 1, 0.03);
    CHECK_NEAR(a[0], -0.00518587942, 1e-7);
    CHECK_NEAR(a[1], -0.028968437, 1e-7);
    CHECK_NEAR(a[N - 1], 0.0394797977, 1e-7);
    CHECK_NEAR(b[0], 0.00268238568, 1e-7);
    CHECK_NEAR(b[N - 1], -0.0490688532, 1e-7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LAB_TEST(all_held_out_text_is_evaluated),
        LAB_TEST(no_more_is_evaluated_than_asked_for),
        LAB_TEST(what_is_said_of_a_step_is_what_is_written),
        LAB_TEST(a_run_is_a_plain_loop_over_the_engine),
        LAB_TEST(ranks_have_the_losses_of_one_rank),
        LAB_TEST(ranks_count_the_rows_of_their_own_experts),
        LAB_TEST(a_run_goes_on_where_it_ended),
        LAB_TEST(evaluations_and_checkpoints_change_no_step),
        LAB_TEST(bench_times_steps_of_the_configuration),
        LAB_TEST(bench_names_both_counts_of_flops),
        LAB_TEST(bench_step_tells_of_its_ops),
        LAB_TEST(bench_records_a_step),
        LAB_TEST(recompute_does_not_raise_the_share),
        LAB_TEST(progress_is_told_every_so_many_steps),
        LAB_TEST(generate_draws_as_its_options_say),
        LAB_TEST(end_of_text_ends_a_text),
        LAB_TEST(batches_depend_on_the_seed_and_on_shuffling_alone),
        LAB_TEST(prepare_cuts_texts_as_asked_for),
        LAB_TEST(prepare_reads_the_field_asked_for),
        LAB_TEST(initial_weights_depend_on_the_seed),
    };
    return cmocka_run_group_tests(tests, open_with_shards, lab_close);
}
