/* eval.choices: questions that a run asks while it trains, beside `eval --choices`, which asks its last checkpoint. */
#include "harness/run_folder.h"

enum { QUESTIONS = 300 };

/* Three choices of one to four words, so the three measures differ. Whether they are right is chance. */
static void write_questions(Lab *lab)
{
    static const char *const name = "questions.jsonl";
    File f = { 0 };
    char word[16];
    uint64_t n = 0;
    CHECK_OK(file_create_temp(&f, lab_path(lab, "%s", name), &lab->arena));
    for (int i = 0; i < QUESTIONS; i++) {
        CHECK_OK(file_printf(&f, "{\"prompt\":\""));
        for (int w = 0; w < 1 + i % 5; w++) {
            lab_word(word, 0, n++);
            CHECK_OK(file_printf(&f, "%s%s", w == 0 ? "" : " ", word));
        }
        CHECK_OK(file_printf(&f, "\",\"answer\":%d,\"choices\":[", i % 3));
        for (int c = 0; c < 3; c++) {
            CHECK_OK(file_printf(&f, "%s\"", c == 0 ? "" : ","));
            for (int w = 0; w < 1 + (i + c) % 4; w++) {
                lab_word(word, (uint64_t)(w % 2), n++);
                CHECK_OK(file_printf(&f, " %s", word));
            }
            CHECK_OK(file_printf(&f, "\""));
        }
        CHECK_OK(file_printf(&f, "]}\n%s", i == 7 ? "\n" : ""));
    }
    CHECK_OK(file_commit(&f));
}

/* The last value of a key in metrics.jsonl. */
static double last_of(Lab *lab, const char *cell, const char *key)
{
    const char *text = lab_read(lab, lab_path(lab, "%s/run/metrics.jsonl", cell), NULL);
    double value = -1;
    for (const char *at = text; (at = strstr(at, key)) != NULL;)
        value = strtod(at += strlen(key), NULL);
    return value;
}

static void shares_are_those_of(Lab *lab, const char *cell, const char *wanted)
{
    char line[256];
    const double acc = last_of(lab, cell, "\"choices_acc\":");
    (void)snprintf(line, sizeof line, "acc %.4f +-", acc);
    CHECK_SAYS(wanted, line);
    (void)snprintf(line, sizeof line, "acc_norm %.4f +-",
                   last_of(lab, cell, "\"choices_acc_norm\":"));
    CHECK_SAYS(wanted, line);
    (void)snprintf(line, sizeof line, "acc_bytes %.4f +-",
                   last_of(lab, cell, "\"choices_acc_bytes\":"));
    CHECK_SAYS(wanted, line);
    CHECK(last_of(lab, cell, "\"choices\":") == QUESTIONS);
    CHECK(acc > 0 && acc < 1);
}

#define TRAIN(lab, cell, ...)                                                                      \
    RUN(lab, cell, "train", "../tiny.yaml", "train.eval_every=20",                                 \
        "eval.choices=../questions.jsonl", __VA_ARGS__)

/* Most choices of a sequence with documents, one without; the last batch is not full. */
static void a_run_asks_as_eval_does(void **state)
{
    Lab *lab = *state;
    static const char *const masks[] = { "attention.document_mask=true",
                                         "attention.document_mask=false" };
    for (int i = 0; i < 2; i++) {
        const char *cell = i == 0 ? "packed" : "alone";
        Outcome o = TRAIN(lab, cell, masks[i], "optimizer.lr=0.01");
        CHECK_EXIT(o, 0);
        CHECK_SAYS(o.err, "step 40: 300 questions, acc 0.");
        o = RUN(lab, cell, "eval", "run", "--choices", "../questions.jsonl");
        CHECK_EXIT(o, 0);
        shares_are_those_of(lab, cell, o.out);
        CHECK_SAYS(lab_read(lab, lab_path(lab, "%s/run/report.html", cell), NULL),
                   "Right answers to eval.choices");
    }
}

static void every_mesh_gives_the_same_answers(void **state)
{
    Lab *lab = *state;
    static const char *const mesh[] = { "mesh.pp=2", "mesh.ep=2", "mesh.tp=2", "mesh.cp=2" };
    Outcome o = TRAIN(lab, "one", "attention.document_mask=true", "optimizer.lr=0.01");
    CHECK_EXIT(o, 0);
    o = RUN(lab, "one", "eval", "run", "--choices", "../questions.jsonl");
    CHECK_EXIT(o, 0);
    for (int i = 0; i < 4; i++) {
        const Outcome run = TRAIN(lab, mesh[i], mesh[i], "attention.document_mask=true",
                                  "optimizer.lr=0.01", "--ranks", "2");
        CHECK_EXIT(run, 0);
        shares_are_those_of(lab, mesh[i], o.out);
    }
}

/* Nothing is held out here. */
static void questions_need_no_held_out_text(void **state)
{
    Lab *lab = *state;
    Outcome o = TRAIN(lab, "bare", "data.validation=0", "train.steps=20");
    CHECK_EXIT(o, 0);
    CHECK(last_of(lab, "bare", "\"choices\":") == QUESTIONS);
    CHECK_SAYS(lab_read(lab, lab_path(lab, "bare/run/metrics.jsonl"), NULL), "\"loss\":null");
    CHECK_SAYS(lab_read(lab, lab_path(lab, "bare/run/report.html"), NULL),
               "Right answers to eval.choices");
}

static void what_cannot_be_asked_is_refused_before_the_first_step(void **state)
{
    Lab *lab = *state;
    static const struct {
        const char *file, *text, *part;
    } cases[] = {
        { "none.jsonl", NULL, "none.jsonl" },
        { "empty.jsonl", "\n\n", "empty.jsonl has no question" },
        { "bad.jsonl", "\n{\"prompt\":\"a\",\"choices\":[\"b\"],\"answer\":0}\n", "bad.jsonl:2: " },
        { "long.jsonl",
          "{\"prompt\":\"@#@#@#@#@#@#@#@#@#@#@#@#@#@#@#@#@#@#@#\",\"choices\":[\"b\",\"c\"],"
          "\"answer\":0}\n",
          "sequence has 32: shorten the prompt" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char set[64];
        (void)snprintf(set, sizeof set, "eval.choices=%s", cases[i].file);
        if (cases[i].text != NULL)
            lab_write_text(lab, lab_path(lab, "refused/%s", cases[i].file), cases[i].text);
        CHECK_REFUSED(RUN(lab, "refused", "train", "../tiny.yaml", "train.eval_every=5", set), 2,
                      cases[i].part);
        CHECK_REFUSED(
            RUN(lab, "refused", "train", "../tiny.yaml", "train.eval_every=5", set, "--dry-run"), 2,
            cases[i].part);
    }
    static const char *const command[] = { "train", "plan" };
    for (int i = 0; i < 2; i++) {
        CHECK_REFUSED(RUN(lab, "refused", command[i], "../tiny.yaml", "eval.choices=q"), 2,
                      "train.eval_every is 0");
        CHECK_REFUSED(RUN(lab, "refused", command[i], "../tiny.yaml", "eval.choices=q",
                          "train.eval_every=5", "data.tokenizer="),
                      2, "set data.tokenizer");
    }
}

static int open_with_questions(void **state)
{
    if (lab_open(state) != 0) return -1;
    write_questions(*state);
    CHECK_EXIT(RUN(*state, "refused", "--version"), 0);
    return 0;
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        LAB_TEST(a_run_asks_as_eval_does),
        LAB_TEST(every_mesh_gives_the_same_answers),
        LAB_TEST(questions_need_no_held_out_text),
        LAB_TEST(what_cannot_be_asked_is_refused_before_the_first_step),
    };
    return cmocka_run_group_tests(tests, open_with_questions, lab_close);
}
