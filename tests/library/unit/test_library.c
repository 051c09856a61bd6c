/* What the library gives to a program that has only its header, but for traces (test_trace_library.c). */
#include "corpus/shard/shard.h"
#include "engine/base/file.h"
#include "harness/test.h"

#include <math.h>
#include <pthread.h>
#include <switchyard.h>
#include <unistd.h>

enum { VOCAB = 64, DOCUMENTS = 40, DOCUMENT = 33 };

/* A folder with a shard of random ids, in which the tests run. */
static char folder[] = "/tmp/switchyard_library_XXXXXX";

static int open_folder(void **state)
{
    Arena a = { 0 };
    ShardWriter w = { 0 };
    (void)state;
    CHECK(mkdtemp(folder) != NULL && chdir(folder) == 0);
    CHECK_OK(arena_init(&a, "test", MEM_HOST, 64 << 20));
    CHECK_OK(shard_create(&w, "text", VOCAB, 0, &a));
    for (int d = 0, k = 7; d < DOCUMENTS; d++) {
        int32_t ids[DOCUMENT];
        for (int i = 0; i < DOCUMENT; i++) ids[i] = (k = k * 37 % 1009) % VOCAB;
        CHECK_OK(shard_append(&w, ids, DOCUMENT));
        CHECK_OK(shard_end_document(&w));
    }
    CHECK_OK(shard_commit(&w));
    shard_writer_close(&w);
    arena_free(&a);
    return 0;
}

static int drop_folder(void **state)
{
    (void)state;
    CHECK(chdir("/") == 0);
    CHECK_OK(file_remove_tree(folder));
    return 0;
}

#define FAILS(call, want, says)                                                                    \
    do {                                                                                           \
        CHECK_INT(call, want);                                                                     \
        if (strstr(switchyard_error(), (says)) == NULL)                                            \
            fail_msg("\"%s\" is not in: %s", (says), switchyard_error());                          \
    } while (0)

/* A tiny model with this run.dir and two more settings. */
static SwitchyardConfig *tiny(const char *run, const char *a, const char *b)
{
    static const char yaml[] =
        "model: {vocab: 64, hidden: 16, layers: 2, dense_layers: 1, ffn: 24}\n"
        "attention: {heads: 2, kv_rank: 8, nope_dim: 4, rope_dim: 4, v_dim: 4}\n"
        "moe: {experts: 4, top_k: 2, ffn: 8}\n"
        "data: {sequence: 16, validation: 0, sources: [{name: t, path: text}]}\n"
        "train: {batch: 4, micro_batch: 1, steps: 10}\n"
        "run: {threads: 1}\n";
    SwitchyardConfig *c = NULL;
    char where[64];
    (void)snprintf(where, sizeof where, "run.dir=%s", run);
    CHECK_OK(file_write_whole("tiny.yaml", yaml, sizeof yaml - 1));
    CHECK_INT(switchyard_config_open("tiny.yaml", (const char *const[]){ where, a, b }, 3, &c),
              SWITCHYARD_OK);
    return c;
}

static SwitchyardTrainer *open_trainer(const SwitchyardConfig *c, int ranks, int resume)
{
    SwitchyardTrainer *t = NULL;
    const SwitchyardTrainOptions o = { .ranks = ranks, .resume = resume };
    if (switchyard_train_open(c, &o, &t) != SWITCHYARD_OK) fail_msg("%s", switchyard_error());
    return t;
}

/* ---- configurations and plans ---- */

static void a_configuration_is_that_of_the_program(void **state)
{
    SwitchyardConfig *c = tiny("run", "train.steps=7", "optimizer.lr=1e-3"), *again = NULL;
    const char *text = NULL, *same = NULL;
    (void)state;
    CHECK_INT(switchyard_config_text(c, &text), SWITCHYARD_OK);
    CHECK(strstr(text, "\n  steps: 7\n") != NULL && strstr(text, "\n  vocab: 64\n") != NULL);
    CHECK_OK(file_write_whole("again.yaml", text, strlen(text)));
    CHECK_INT(switchyard_config_open("again.yaml", NULL, 0, &again), SWITCHYARD_OK);
    CHECK_INT(switchyard_config_text(again, &same), SWITCHYARD_OK);
    assert_string_equal(text, same);
    switchyard_config_close(again);
    switchyard_config_close(c);
    switchyard_config_close(NULL);
    CHECK_INT(switchyard_version(), SWITCHYARD_VERSION);
}

static void bad_settings_are_sentences_and_no_configuration(void **state)
{
    SwitchyardConfig *c = NULL;
    const char *text = "train.stps=3";
    (void)state;
    FAILS(switchyard_config_open("tiny", &text, 1, &c), SWITCHYARD_BAD_INPUT, "tiny");
    FAILS(switchyard_config_open("quickstart", &text, 1, &c), SWITCHYARD_BAD_INPUT,
          "did you mean train.steps?");
    FAILS(switchyard_config_open(NULL, NULL, 0, &c), SWITCHYARD_BAD_INPUT, "config_open");
    FAILS(switchyard_config_open("quickstart", NULL, 1, &c), SWITCHYARD_BAD_INPUT, "config_open");
    FAILS(switchyard_config_text(NULL, &text), SWITCHYARD_BAD_INPUT, "config_text");
    FAILS(switchyard_log(4), SWITCHYARD_BAD_INPUT, "level 4");
    CHECK(c == NULL && strchr(switchyard_error(), '\n') == NULL);
}

static void a_plan_has_numbers_and_all_that_the_command_prints(void **state)
{
    SwitchyardConfig *c = NULL;
    SwitchyardPlan *p = NULL, *best = NULL;
    const char *const settings[] = { "run.compute=bf16", "mesh.pp=8", "mesh.ep=8" };
    (void)state;
    CHECK_INT(switchyard_config_open("deepseek-v3", settings, 3, &c), SWITCHYARD_OK);
    CHECK_INT(switchyard_plan_open(c, "h200:512", 0, &p), SWITCHYARD_OK);
    CHECK_INT(p->gpus, 512);
    CHECK_INT(p->fits, 0);
    CHECK(p->peak_bytes > p->room_bytes && p->room_bytes > 100e9);
    CHECK(p->step_s > 0 && p->mfu > 0.05 && p->mfu < 1);
    CHECK_NEAR(p->tokens_per_s / 512, p->tokens_per_s_per_gpu, 1e-9 * p->tokens_per_s);
    CHECK(strstr(p->json, "\"fits\":false") != NULL &&
          strstr(p->json, "\"stack\":\"switchyard\"") != NULL);
    FAILS(switchyard_plan_open(c, "h200", 0, &best), SWITCHYARD_BAD_INPUT, "how many GPUs");
    FAILS(switchyard_plan_open(c, "h20:8", 0, &best), SWITCHYARD_BAD_INPUT, "h20");
    FAILS(switchyard_plan_open(c, "h200:1", 1, &best), SWITCHYARD_FAILED, "fit");
    switchyard_plan_close(p);
    switchyard_config_close(c);
    c = tiny("run", "run.threads=1", "train.batch=8");
    CHECK_INT(switchyard_plan_open(c, "h200:2", 1, &best), SWITCHYARD_OK);
    CHECK(best->fits == 1 && best->peak_bytes < best->room_bytes);
    switchyard_plan_close(best);
    switchyard_plan_close(NULL);
    switchyard_config_close(c);
}

/* ---- training ---- */

/* Weight `name`; *elems: how many. */
static float *read_weight(SwitchyardWeights *w, const char *name, int64_t *elems)
{
    int64_t n = 0, i = 0;
    SwitchyardWeight at = { 0 };
    static float out[2][64 * 16];
    static int which;
    float *to = out[which ^= 1];
    CHECK_INT(switchyard_weights_count(w, &n), SWITCHYARD_OK);
    for (; i < n; i++) {
        CHECK_INT(switchyard_weights_at(w, i, &at), SWITCHYARD_OK);
        if (strcmp(at.name, name) == 0) break;
    }
    if (i == n) fail_msg("there is no %s", name);
    *elems = at.elems;
    FAILS(switchyard_weights_read(w, i, to, at.elems - 1), SWITCHYARD_BAD_INPUT, name);
    CHECK_INT(switchyard_weights_read(w, i, to, at.elems), SWITCHYARD_OK);
    return to;
}

static const char HEAD[] = "lm_head.weight";
static const char EXPERT[] = "model.layers.1.mlp.experts.3.down_proj.weight";

/* Plans, trains ten steps, and reads losses, figures and weights. */
static void ten_steps_leave_figures_and_weights(void **state)
{
    SwitchyardConfig *c = tiny("ten", "optimizer.lr=1e-2", "optimizer.warmup_steps=1");
    SwitchyardTrainer *t = open_trainer(c, 0, 0);
    SwitchyardWeights *live = NULL, *saved = NULL;
    SwitchyardMetrics *m = NULL;
    SwitchyardStep step = { 0 };
    double loss[11] = { 0 }, number = 0;
    int64_t n = 0;
    const char *line = NULL;
    (void)state;
    CHECK_INT(switchyard_train_weights(t, &live), SWITCHYARD_OK);
    const float before = read_weight(live, HEAD, &n)[5];
    CHECK_INT(n, 64 * 16);
    for (int i = 1; i <= 10; i++) {
        CHECK_INT(switchyard_train_step(t, &step), SWITCHYARD_OK);
        CHECK_INT(step.step, i);
        CHECK_INT(step.tokens, 64);
        CHECK_INT(step.last, i == 10);
        CHECK(step.lr > 0 && step.grad_norm > 0 && step.seconds > 0 && step.skipped == 0);
        loss[i] = step.loss;
    }
    CHECK(loss[10] < loss[1] && fabs(loss[1] - log(64)) < 0.5);
    float kept[64 * 16];
    memcpy(kept, read_weight(live, HEAD, &n), sizeof kept);
    CHECK(kept[5] != before);
    FAILS(switchyard_train_step(t, &step), SWITCHYARD_BAD_INPUT, "train.steps=10 are done");
    CHECK_INT(switchyard_train_close(t), SWITCHYARD_OK);

    CHECK_INT(switchyard_weights_open("ten", &saved), SWITCHYARD_OK);
    CHECK(memcmp(read_weight(saved, HEAD, &n), kept, sizeof kept) == 0);
    switchyard_weights_close(saved);
    CHECK_INT(switchyard_metrics_open("ten", &m), SWITCHYARD_OK);
    for (int i = 0; i < 11; i++) {
        CHECK_INT(switchyard_metrics_next(m, 0, &line), SWITCHYARD_OK);
        CHECK(line != NULL);
        CHECK_INT(switchyard_metrics_number(m, "loss", &number), SWITCHYARD_OK);
        CHECK(i == 0 ? isnan(number) : fabs(number - loss[i]) < 1e-6);
    }
    CHECK_INT(switchyard_metrics_next(m, 0, &line), SWITCHYARD_OK);
    CHECK(line == NULL);
    switchyard_metrics_close(m);
    switchyard_config_close(c);
}

/* A sanitizer has seen memory and threads in the other trainings, and each takes seconds to measure the peak. */
static void skip_if_short(void)
{
    if (RUNS(true, false)) return;
    print_message("skip: trainings are slow under a sanitizer\n");
    skip();
}

/* Four ranks as threads, whose stages, experts and main weights lie on different ones. */
static void weights_of_all_ranks_are_one_model(void **state)
{
    (void)state;
    skip_if_short();
    SwitchyardConfig *c = tiny("alone", "train.steps=3", "mesh.zero=0"), *d = NULL;
    const char *const mesh[] = { "mesh.pp=2", "mesh.ep=2", "mesh.zero=1", "train.steps=3",
                                 "run.dir=many" };
    SwitchyardTrainer *t[2] = { open_trainer(c, 1, 0), NULL };
    SwitchyardStep step[2];
    SwitchyardWeights *w[2];
    int64_t n = 0;
    CHECK_INT(switchyard_config_open("tiny.yaml", mesh, 5, &d), SWITCHYARD_OK);
    t[1] = open_trainer(d, 4, 0);
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < 3; i++) CHECK_INT(switchyard_train_step(t[k], &step[k]), SWITCHYARD_OK);
        CHECK_INT(switchyard_train_weights(t[k], &w[k]), SWITCHYARD_OK);
    }
    CHECK_NEAR(step[0].loss, step[1].loss, 1e-5);
    static const char *const names[] = { HEAD, EXPERT, "model.embed_tokens.weight" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const float *a = read_weight(w[0], names[i], &n), *b = read_weight(w[1], names[i], &n);
        for (int64_t k = 0; k < n; k++) CHECK_NEAR(a[k], b[k], 1e-4);
    }
    for (int k = 0; k < 2; k++) CHECK_INT(switchyard_train_close(t[k]), SWITCHYARD_OK);
    switchyard_config_close(d);
    switchyard_config_close(c);
}

static void a_training_that_is_closed_goes_on_later(void **state)
{
    (void)state;
    skip_if_short();
    SwitchyardConfig *c = tiny("later", "train.steps=6", "mesh.zero=0"), *whole = NULL;
    SwitchyardStep a = { 0 }, b = { 0 };
    SwitchyardTrainer *t = open_trainer(c, 0, 2);
    for (int i = 0; i < 2; i++) CHECK_INT(switchyard_train_step(t, &a), SWITCHYARD_OK);
    CHECK_INT(switchyard_train_close(t), SWITCHYARD_OK);
    t = open_trainer(c, 0, 1);
    for (int i = 0; i < 4; i++) CHECK_INT(switchyard_train_step(t, &a), SWITCHYARD_OK);
    CHECK_INT(switchyard_train_close(t), SWITCHYARD_OK);
    whole = tiny("whole", "train.steps=6", "mesh.zero=0");
    t = open_trainer(whole, 0, 0);
    while (!b.last) CHECK_INT(switchyard_train_step(t, &b), SWITCHYARD_OK);
    CHECK_INT(switchyard_train_close(t), SWITCHYARD_OK);
    CHECK(a.step == 6 && a.last && a.loss == b.loss && a.grad_norm == b.grad_norm);
    switchyard_config_close(whole);
    switchyard_config_close(c);
}

static void a_training_that_fails_says_why_and_ends(void **state)
{
    SwitchyardConfig *c = tiny("fails", "train.steps=6", "mesh.zero=0");
    SwitchyardTrainer *t = NULL, *other = NULL;
    SwitchyardStep step;
    SwitchyardWeights *w = NULL;
    float x = 0;
    (void)state;
    const SwitchyardTrainOptions three = { .ranks = 3 }, resumed = { .resume = 1 },
                                 odd = { .resume = 5 };
    FAILS(switchyard_train_open(c, &three, &other), SWITCHYARD_BAD_INPUT, "train.batch 4");
    FAILS(switchyard_train_open(c, &resumed, &other), SWITCHYARD_BAD_INPUT, "no checkpoint");
    FAILS(switchyard_train_open(c, &odd, &other), SWITCHYARD_BAD_INPUT, "resume 5");
    t = open_trainer(c, 2, 0);
    FAILS(switchyard_train_open(c, NULL, &other), SWITCHYARD_BAD_INPUT, "is in use by process");
    CHECK_INT(switchyard_train_step(t, &step), SWITCHYARD_OK);
    CHECK_OK(file_remove_tree("fails"));
    FAILS(switchyard_train_step(t, &step), SWITCHYARD_FAILED, "run folder fails was removed");
    FAILS(switchyard_train_step(t, &step), SWITCHYARD_BAD_INPUT, "the training has ended");
    CHECK_INT(switchyard_train_weights(t, &w), SWITCHYARD_OK);
    FAILS(switchyard_weights_read(w, 0, &x, 1 << 20), SWITCHYARD_BAD_INPUT, "has ended");
    CHECK_INT(switchyard_train_close(t), SWITCHYARD_OK);
    CHECK_INT(switchyard_train_close(NULL), SWITCHYARD_OK);
    CHECK(other == NULL);
    switchyard_config_close(c);
}

/* ---- figures, weights and tokens ---- */

/* Appends text to run/metrics.jsonl a moment later. */
static void *write_later(void *text)
{
    FILE *f = fopen("written/metrics.jsonl", "a");
    (void)usleep(200000);
    (void)fputs(text, f);
    (void)fclose(f);
    return NULL;
}

static void lines_come_as_they_are_written(void **state)
{
    static const char first[] = "{\"kind\":\"step\",\"step\":1,\"skipped\":true}\n{\"kind\":\"st\n"
                                "{\"kind\":\"step\",\"step\":2,\"loss\":null}\n{\"kind\":\"step\",";
    char rest[] = "\"step\":3}\n";
    SwitchyardMetrics *m = NULL;
    const char *line = NULL;
    double number = 0;
    pthread_t writer;
    (void)state;
    CHECK_OK(file_make_folders("written"));
    FAILS(switchyard_metrics_open("written", &m), SWITCHYARD_BAD_INPUT, "written/metrics.jsonl");
    CHECK_OK(file_write_whole("written/metrics.jsonl", first, sizeof first - 1));
    CHECK_INT(switchyard_metrics_open("written", &m), SWITCHYARD_OK);
    CHECK_INT(switchyard_metrics_number(m, "step", &number), SWITCHYARD_OK);
    CHECK(isnan(number));
    CHECK_INT(switchyard_metrics_next(m, 0, &line), SWITCHYARD_OK);
    CHECK_INT(switchyard_metrics_number(m, "skipped", &number), SWITCHYARD_OK);
    CHECK(number == 1);
    CHECK_INT(switchyard_metrics_next(m, 0, &line), SWITCHYARD_OK);
    CHECK_INT(switchyard_metrics_number(m, "step", &number), SWITCHYARD_OK);
    CHECK(number == 2);
    CHECK_INT(switchyard_metrics_number(m, "loss", &number), SWITCHYARD_OK);
    CHECK(isnan(number));
    CHECK_INT(switchyard_metrics_next(m, 0, &line), SWITCHYARD_OK);
    CHECK(line == NULL);
    CHECK_INT(pthread_create(&writer, NULL, write_later, rest), 0);
    CHECK_INT(switchyard_metrics_next(m, 30, &line), SWITCHYARD_OK);
    assert_string_equal(line, "{\"kind\":\"step\",\"step\":3}");
    CHECK_INT(pthread_join(writer, NULL), 0);
    CHECK_OK(file_write_whole("other", "{}\n", 3));
    CHECK(truncate("written/metrics.jsonl", 3) == 0);
    FAILS(switchyard_metrics_next(m, 0, &line), SWITCHYARD_FAILED, "another run began there");
    switchyard_metrics_close(m);
    switchyard_metrics_close(NULL);
}

static void documents_are_those_of_the_shard(void **state)
{
    SwitchyardTokens *t = NULL;
    SwitchyardTokenCounts counts;
    const void *ids = NULL;
    int64_t n = 0;
    (void)state;
    CHECK_INT(switchyard_tokens_open("text", &t), SWITCHYARD_OK);
    CHECK_INT(switchyard_tokens_counts(t, &counts), SWITCHYARD_OK);
    CHECK(counts.documents == DOCUMENTS && counts.tokens == DOCUMENTS * DOCUMENT &&
          counts.id_bytes == 2);
    for (int d = 0, k = 7; d < DOCUMENTS; d++) {
        CHECK_INT(switchyard_tokens_document(t, d, &ids, &n), SWITCHYARD_OK);
        CHECK_INT(n, DOCUMENT);
        for (int i = 0; i < DOCUMENT; i++)
            CHECK_INT(((const uint16_t *)ids)[i], (k = k * 37 % 1009) % VOCAB);
    }
    FAILS(switchyard_tokens_document(t, DOCUMENTS, &ids, &n), SWITCHYARD_BAD_INPUT, "document 40");
    FAILS(switchyard_tokens_document(t, -1, &ids, &n), SWITCHYARD_BAD_INPUT, "document -1");
    switchyard_tokens_close(t);
    switchyard_tokens_close(NULL);
    FAILS(switchyard_tokens_open("none", &t), SWITCHYARD_BAD_INPUT, "none.idx");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_configuration_is_that_of_the_program),
        TEST(bad_settings_are_sentences_and_no_configuration),
        TEST(a_plan_has_numbers_and_all_that_the_command_prints),
        TEST(ten_steps_leave_figures_and_weights),
        TEST(weights_of_all_ranks_are_one_model),
        TEST(a_training_that_is_closed_goes_on_later),
        TEST(a_training_that_fails_says_why_and_ends),
        TEST(lines_come_as_they_are_written),
        TEST(documents_are_those_of_the_shard),
    };
    return cmocka_run_group_tests(tests, open_folder, drop_folder);
}
