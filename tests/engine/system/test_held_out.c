/* Held-out text as a user meets it: a book in one file has some, and where there is none no figure is
 * told. */
#include "harness/run_folder.h"

/* All the lab's books as one document. */
#define BOOK "data.sources=[{name: book, path: ../book}]"

static void prepare_book(Lab *lab)
{
    if (file_exists(lab_path(lab, "book.idx"))) return;
    Outcome o = RUN(lab, ".", "data", "prepare", "--tokenizer", "tokenizer.json", "--out", "book",
                    "books.txt");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "book: 1 documents");
}

static void a_book_in_one_document_holds_out_its_end(void **state)
{
    double loss = 0;
    Lab *lab = *state;
    prepare_book(lab);
    Outcome o =
        RUN(lab, "book", "train", "../tiny.yaml", BOOK, "train.steps=2", "train.eval_every=2");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.err, "held out: the last ");
    CHECK_SAYS(o.err, " tokens of book, which has too few documents");
    const char *says = strstr(o.err, "step 2: held-out loss ");
    CHECK(says != NULL);
    CHECK_INT(sscanf(says, "step 2: held-out loss %lf", &loss), 1);
    CHECK(loss > 3 && loss < 7);
    o = RUN(lab, "book", "eval", "run");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, " bits a byte\n");
    CHECK(strstr(o.out, " 0 tokens") == NULL && strstr(o.out, "loss 0.0000") == NULL);
}

/* The same text on two ranks. */
static void ranks_hold_out_the_same_end(void **state)
{
    double loss[2] = { 0 };
    static const char *const ranks[] = { "1", "2" }, *const cell[] = { "one", "two" };
    Lab *lab = *state;
    prepare_book(lab);
    for (int i = 0; i < 2; i++) {
        Outcome o = RUN(lab, cell[i], "train", "../tiny.yaml", BOOK, "train.steps=1",
                        "train.eval_every=1", "train.eval_sequences=1000000", "--ranks", ranks[i]);
        CHECK_EXIT(o, 0);
        const char *says = strstr(o.err, "step 0: held-out loss ");
        CHECK(says != NULL);
        CHECK_INT(sscanf(says, "step 0: held-out loss %lf", &loss[i]), 1);
    }
    CHECK_NEAR(loss[0], loss[1], 1.5e-4);
}

static void where_nothing_is_held_out_no_figure_is_told(void **state)
{
    Lab *lab = *state;
    prepare_book(lab);
    Outcome o = RUN(lab, "none", "train", "../tiny.yaml", BOOK, "train.steps=4",
                    "train.eval_every=2", "data.validation=0");
    CHECK_EXIT(o, 0);
    const char *says =
        strstr(o.err, "warning: nothing is held out with data.validation 0: set it to");
    CHECK(says != NULL && strstr(says + 12, "nothing is held out") == NULL); /* once */
    CHECK(strstr(o.err, "held-out loss 0") == NULL && strstr(o.err, "bits a byte") == NULL);
    CHECK(strstr(run_metrics(lab, "none"), "\"eval\"") == NULL);
    CHECK(strstr(o.out, "bits a byte") == NULL);
    CHECK(strstr(lab_read(lab, lab_path(lab, "none/run/report.html"), NULL), "Held out") == NULL);
    o = RUN(lab, "none", "eval", "run");
    CHECK_REFUSED(o, 2, "nothing is held out with data.validation 0: set it to the share");
    CHECK_TEXT(o.out, "");
}

/* Bytes of text are known with a tokenizer alone. */
static void without_a_tokenizer_there_are_no_bits_a_byte(void **state)
{
    Lab *lab = *state;
    prepare_book(lab);
    Outcome o = RUN(lab, "bytes", "train", "../tiny.yaml", BOOK, "train.steps=1",
                    "train.eval_every=1", "data.tokenizer=");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.err, "step 1: held-out loss ");
    CHECK(strstr(o.err, "bits a byte") == NULL && strstr(o.out, "bits a byte") == NULL);
    CHECK_SAYS(run_metrics(lab, "bytes"), "\"bits_per_byte\":null");
    CHECK(strstr(run_metrics(lab, "bytes"), "\"loss\":null") == NULL);
    o = RUN(lab, "bytes", "eval", "run");
    CHECK_EXIT(o, 0);
    CHECK(strstr(o.out, "bits a byte") == NULL);
}

/* The loss of a line of `eval`. */
static double loss_of(const char *out, const char *name)
{
    double loss = 0;
    char line[64];
    snprintf(line, sizeof line, "%s ", name);
    const char *at = strstr(out, line);
    CHECK(at != NULL);
    CHECK_INT(sscanf(strstr(at, "loss "), "loss %lf", &loss), 1);
    return loss;
}

/* The same documents are held out, under another name and at another place. */
static void a_source_by_another_name_holds_out_what_was_held_out(void **state)
{
    Lab *lab = *state;
    Outcome o = RUN(lab, "names", "train", "../tiny.yaml", "train.steps=2");
    CHECK_EXIT(o, 0);
    o = RUN(lab, "names", "eval", "run");
    CHECK_EXIT(o, 0);
    CHECK(strstr(o.err, "warning: ") == NULL);
    const double web = loss_of(o.out, "web"), books = loss_of(o.out, "books");
    o = SHELL(lab, "names",
              "cp ../web.bin other.bin; cp ../web.idx other.idx; \"$0\" eval run "
              "other=other web=../books --documents lines");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.err, "other is source web of the run: what was held out of it is measured");
    CHECK_SAYS(o.err, "web is source books of the run: what was held out of it is measured");
    CHECK_NEAR(loss_of(o.out, "other"), web, 0);
    CHECK_NEAR(loss_of(o.out, "web"), books, 0);
}

static void documents_that_may_have_been_trained_on_are_said(void **state)
{
    Lab *lab = *state;
    Outcome o = RUN(lab, "part", "train", "../tiny.yaml", "train.steps=2");
    CHECK_EXIT(o, 0);
    o = SHELL(lab, "part",
              "head -n 100 ../web.jsonl > part.jsonl; \"$0\" data prepare --tokenizer "
              "../tokenizer.json --out part part.jsonl && \"$0\" eval run part");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.err, "warning: part is not what the run was trained on, as a whole: whether its "
                      "documents were trained on is not known");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LAB_TEST(a_book_in_one_document_holds_out_its_end),
        LAB_TEST(ranks_hold_out_the_same_end),
        LAB_TEST(where_nothing_is_held_out_no_figure_is_told),
        LAB_TEST(without_a_tokenizer_there_are_no_bits_a_byte),
        LAB_TEST(a_source_by_another_name_holds_out_what_was_held_out),
        LAB_TEST(documents_that_may_have_been_trained_on_are_said),
    };
    return LAB_RUN_ALL(tests);
}
