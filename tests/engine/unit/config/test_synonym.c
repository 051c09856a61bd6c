/* Names of other trainers: each has an answer, and each answer is right here (share/names.tsv). */
#include "harness/arena.h"

#include "engine/base/file.h"
#include "engine/base/synonym.h"
#include "engine/config/config.h"
#include "engine/schedule/schedule.h"

#include <stdio.h>
#include <string.h>

static const char GUIDE[] = "docs/guides/coming-from-megatron-or-torchtitan.md";

static char *contents(const char *path)
{
    char *text = NULL;
    size_t bytes = 0;
    CHECK_OK(file_read_all(path, &arena, &text, &bytes));
    return text;
}

static const ConfigRow *row_of(const char *ours)
{
    const size_t n = strcspn(ours, "=");
    for (int i = 0; i < config_row_count; i++)
        if (strncmp(config_rows[i].name, ours, n) == 0 && config_rows[i].name[n] == '\0')
            return &config_rows[i];
    return NULL;
}

static bool is_value(const Synonym *s) { return *s->typed == '='; }

/* Is it a word of some setting? */
static bool is_word(const char *word)
{
    for (int i = 0; i < schedule_table_n; i++)
        if (strcmp(schedule_table[i].name, word) == 0) return true;
    for (int i = 0; i < config_row_count; i++)
        if (text_word_index(config_rows[i].choices, word) >= 0) return true;
    return text_word_index(CONFIG_BOOL_WORDS, word) >= 0;
}

static void what_is_ours_is_a_setting_an_option_or_a_word(void **state)
{
    (void)state;
    const char *options = contents("docs/reference/command-line.md");
    for (int i = 0; i < synonyms_n; i++) {
        const Synonym *s = &synonyms[i];
        const size_t n = strlen(s->ours);
        char option[64];
        bool right = *s->note != '\0';
        if (is_value(s) && n > 0) {
            right = is_word(s->ours);
        } else if (text_starts(s->ours, "--")) {
            snprintf(option, sizeof option, "\n- `%.*s", (int)strcspn(s->ours, "="), s->ours);
            right = strstr(options, option) != NULL;
        } else if (n > 0) {
            Config c;
            right = row_of(s->ours) != NULL;
            CHECK_OK(config_default(&c, &arena));
            if (strchr(s->ours, '=') != NULL && s->ours[n - 1] != '=')
                CHECK_OK(config_override(&c, &arena, s->ours));
        }
        if (!right) fail_msg("%s: there is no \"%s\" (%s)", s->typed, s->ours, s->note);
    }
}

/* A row behind another one of the same name would never be found. */
static void every_name_is_found_however_it_is_written(void **state)
{
    (void)state;
    static const char *const trainers[] = { "Megatron-LM", "TorchTitan", "Hugging Face",
                                            "DeepSpeed" };
    int rows = 0, of[4] = { 0 };
    for (int i = 0; i < synonyms_n; i++) {
        const Synonym *s = &synonyms[i];
        char other[96];
        if (is_value(s)) {
            CHECK(synonym_of_value(s->typed + 1) == s);
            continue;
        }
        if (synonym_of(s->typed) != s) fail_msg("%s is there twice", s->typed);
        snprintf(other, sizeof other, "--%s", s->typed + strspn(s->typed, "-"));
        for (char *c = other + 2; *c != '\0'; c++) *c = *c == '-' ? '_' : *c == '_' ? '-' : *c;
        CHECK(synonym_of(other) == s);
        for (int t = 0; t < 4; t++) of[t] += strcmp(s->whose, trainers[t]) == 0;
        rows++;
    }
    CHECK(rows >= 60);
    for (int t = 0; t < 4; t++) CHECK(of[t] >= 8);
    CHECK(synonym_of("train.global_batch_size") == synonym_of("--global-batch-size"));
    CHECK(synonym_of("--l") == NULL && synonym_of("--lrr") == NULL && synonym_of("") == NULL);
}

/* An own setting must not be hidden, and no value but one of a flag may carry over as another one. */
static void settings_of_other_trainers_are_answered(void **state)
{
    (void)state;
    for (int i = 0; i < synonyms_n; i++) {
        const Synonym *s = &synonyms[i];
        char assignment[128], answer[SYNONYM_BYTES];
        Config c;
        if (is_value(s) || row_of(s->typed + strspn(s->typed, "-")) != NULL) continue;
        CHECK_OK(config_default(&c, &arena));
        snprintf(assignment, sizeof assignment, "%s=7", s->typed + strspn(s->typed, "-"));
        CHECK_FAILS(config_override(&c, &arena, assignment), ERR_ARG,
                    synonym_answer(answer, s, "7"));
    }
}

static void the_answer_carries_the_value_that_means_the_same(void **state)
{
    (void)state;
    static const struct {
        const char *name, *value, *answer;
    } cases[] = {
        { "--lr", "3e-4", "write optimizer.lr=3e-4" },
        { "--lr", NULL, "it is optimizer.lr here" },
        { "torch_dtype", "bfloat16", "write run.compute=bf16" },
        { "--optimizer", "AdamW", "write optimizer.kind=adamw" },
        { "--bf16", "mine.yaml", "write run.compute=bf16" },
        { "--fp16", "x", "write run.compute=f16 (on a CPU only, GPUs use bf16)" },
        { "--lr-warmup-fraction", "0.01",
          "it is optimizer.warmup_steps here (steps, so fraction x train.steps)" },
        { "mesh.dp", "2",
          "data parallel ranks are what pp, cp and tp leave of the ranks: ranks / (mesh.pp x "
          "mesh.cp x mesh.tp)" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char answer[SYNONYM_BYTES];
        CHECK_TEXT(synonym_answer(answer, synonym_of(cases[i].name), cases[i].value),
                   cases[i].answer);
    }
}

static void files_of_other_trainers_are_told_with_their_place(void **state)
{
    (void)state;
    static const struct {
        const char *yaml, *part;
    } cases[] = {
        { "parallelism:\n  tensor_parallel_degree: 2\n",
          "a.yaml:2:3: there is no setting parallelism.tensor_parallel_degree: it is mesh.tp "
          "here" },
        { "zero_optimization: {stage: 2}\n",
          "a.yaml:1:21: there is no setting zero_optimization.stage: it is mesh.zero here" },
        { "train:\n  global_batch_size: 2\n",
          "a.yaml:2:3: there is no setting train.global_batch_size: it is train.batch here" },
        { "learning_rate: 1\n",
          "a.yaml:1:1: there is no setting learning_rate: it is optimizer.lr" },
        { "parallelism: {}\n", "there is no setting parallelism (`switchyard train --settings`" },
        { "parallelism:\n", "there is no setting parallelism (`switchyard train --settings`" },
        { "trian: {steps_: 2}\n", "a.yaml:1:1: there is no section trian, did you mean train?" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Config c;
        CHECK_FAILS(config_parse(&c, &arena, "a.yaml", cases[i].yaml, strlen(cases[i].yaml)),
                    ERR_ARG, cases[i].part);
    }
}

static void values_of_other_languages_are_answered(void **state)
{
    (void)state;
    static const struct {
        const char *assignment, *end;
    } cases[] = {
        { "run.compute=bfloat16", "run.compute is the text \"bfloat16\", must be one of "
                                  "f32|bf16|f16: write run.compute=bf16 [" },
        { "run.compute=FP16", ": write run.compute=f16 [" },
        { "run.compute=fp8", "must be one of f32|bf16|f16; 8-bit products are fp8.recipe=block" },
        { "mesh.reduce=fp32", ": write mesh.reduce=f32 [" },
        { "mesh.reduce=float16", "must be one of f32|bf16 [" },
        { "run.tune=True", "must be true or false: write run.tune=true [" },
        { "run.tune=no", ": write run.tune=false [" },
        { "optimizer.kind=Adam", ": write optimizer.kind=adamw [" },
        { "optimizer.kind=sgd", "; there are AdamW and Muon [" },
        { "train.steps=1k",
          "must be a whole number from 0 to 9e+15: write train.steps=1000 or 1024 [" },
        { "train.steps=2M", ": write train.steps=2000000 [" },
        { "train.steps=4_096", ": write train.steps=4096 [" },
        { "train.steps=1.5k", ": write train.steps=1500 or 1536 [" },
        { "train.steps=1.0001k", "from 0 to 9e+15 [" },
        { "train.steps=1kk", "from 0 to 9e+15 [" },
        { "train.steps=0x10", "from 0 to 9e+15 [" },
        { "train.steps=2.5", "from 0 to 9e+15 [" },
        { "train.steps=-1", "from 0 to 9e+15 [" },
        { "fp8.layers=[1k]", ": write 1000 or 1024 [" },
    };
    Config c;
    CHECK_OK(config_default(&c, &arena));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK_FAILS(config_override(&c, &arena, cases[i].assignment), ERR_ARG, cases[i].end);
    CHECK_FAILS(config_parse(&c, &arena, "a.yaml", "run: {compute: bfloat16}", 24), ERR_ARG,
                "a.yaml:1:16: run.compute is the text \"bfloat16\", must be one of f32|bf16|f16: "
                "write bf16 [");
    CHECK_OK(config_override(&c, &arena, "train.steps=1e3"));
    CHECK_INT(c.train_steps, 1000);
}

static void the_guide_has_the_table_else_run_make_docs(void **state)
{
    (void)state;
    const char *guide = strstr(contents(GUIDE), "<!-- names");
    int lines = 0;
    CHECK(guide != NULL);
    for (int i = 0; i < synonyms_n; i++) {
        const Synonym *s = &synonyms[i];
        char line[512], ours[64] = "—";
        if (*s->ours != '\0') snprintf(ours, sizeof ours, "`%s`", s->ours);
        snprintf(line, sizeof line, "\n| `%s` | %s | %s | %s |\n", s->typed + is_value(s), s->whose,
                 ours, s->note);
        if (strstr(guide, line) == NULL) fail_msg("%s lacks %s", GUIDE, line);
    }
    for (const char *at = guide; (at = strstr(at, "\n| `")) != NULL; at++) lines++;
    CHECK_INT(lines, synonyms_n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_is_ours_is_a_setting_an_option_or_a_word),
        TEST(every_name_is_found_however_it_is_written),
        TEST(settings_of_other_trainers_are_answered),
        TEST(the_answer_carries_the_value_that_means_the_same),
        TEST(files_of_other_trainers_are_told_with_their_place),
        TEST(values_of_other_languages_are_answered),
        TEST(the_guide_has_the_table_else_run_make_docs),
    };
    return ARENA_RUN(tests);
}
