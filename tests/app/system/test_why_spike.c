/* why-spike beside what it tells: the run's lines, the batches that it read, the documents of its shards. */
#include "corpus/shard/shard.h"
#include "harness/program.h"

enum { STEPS = 8, BATCH = 4, T = 32, PARTS = 64 };

/* A run of 8 steps that saves each 3 and has no tokenizer, so that why-spike prints ids. */
static void train(Lab *lab, const char *cell, const char *more)
{
    Outcome o = RUN(lab, cell, "train", "../tiny.yaml", "train.steps=8", "checkpoint.every=3",
                    "checkpoint.keep=9", "data.tokenizer=", more);
    CHECK_EXIT(o, 0);
}

/* A line of the table of documents. */
typedef struct Line {
    int row, document, tokens, n, id[T];
    char source[32];
    double loss;
} Line;

/* Reads the table of documents; with losses, if `losses`. Returns how many there are. */
static int read_lines(const char *text, bool losses, Line line[PARTS])
{
    int n = 0;
    const char *at = strstr(text, "sequence source");
    CHECK(at != NULL);
    at = strchr(at, '\n') + 1;
    for (; *at == ' ' && n < PARTS; at = strchr(at, '\n') + 1) {
        Line *l = &line[n++];
        int used = 0;
        CHECK_INT(
            sscanf(at, "%d %31s %d %d%n", &l->row, l->source, &l->document, &l->tokens, &used), 4);
        at += used;
        if (losses) {
            CHECK_INT(sscanf(at, "%lf%n", &l->loss, &used), 1);
            at += used;
        }
        for (l->n = 0; l->n < T && sscanf(at, " %d%n", &l->id[l->n], &used) == 1 && used > 0;
             l->n++) {
            const char *end = strchr(at, '\n');
            if (at + used > end) break;
            at += used;
        }
    }
    return n;
}

/* Each printed part is what the step read, and stands in the document that is named. */
static void documents_are_those_that_the_step_read(void **state)
{
    Lab *lab = *state;
    static Line line[PARTS];
    Shard shard[2] = { { 0 }, { 0 } };
    static int32_t step[BATCH * (4 * T + 1)], ids[1 << 16];
    int seen[BATCH] = { 0 };
    train(lab, "read", "train.eval_every=0");
    Outcome o =
        RUN(lab, "read", "data", "batches", "run/config.yaml", "--steps", "8", "--out", "batches");
    CHECK_EXIT(o, 0);
    size_t bytes = 0;
    const char *file = lab_read(lab, lab_path(lab, "read/batches"), &bytes);
    const size_t head = strcspn(file, "\n") + 1;
    CHECK_INT(bytes - head, STEPS * sizeof step);
    CHECK_OK(shard_open(&shard[0], lab_path(lab, "web")));
    CHECK_OK(shard_open(&shard[1], lab_path(lab, "books")));
    for (int s = 1; s <= STEPS; s += 3) {
        char number[8];
        (void)snprintf(number, sizeof number, "%d", s);
        memcpy(step, file + head + (size_t)(s - 1) * sizeof step, sizeof step);
        memset(seen, 0, sizeof seen);
        o = RUN(lab, "read", "why-spike", "run", number, "--documents", "64");
        CHECK_EXIT(o, 0);
        for (int i = 0, n = read_lines(o.out, s > 3, line); i < n; i++) {
            const Line *l = &line[i];
            const int source = step[BATCH * 4 * T + l->row];
            CHECK_TEXT(l->source, source == 0 ? "web" : "books");
            const int64_t first = shard_start(&shard[source], l->document);
            const int64_t tokens = shard_start(&shard[source], l->document + 1) - first;
            CHECK(l->n > 1 && l->n <= l->tokens && l->tokens <= tokens);
            shard_read(&shard[source], first, tokens, ids);
            bool found = false, read = false;
            for (int64_t k = 0; k + l->tokens <= tokens; k++)
                found |= memcmp(ids + k, l->id, (size_t)l->n * sizeof *ids) == 0;
            for (int k = 0; k + l->n <= T; k++)
                read |= memcmp(step + l->row * T + k, l->id, (size_t)l->n * sizeof *ids) == 0;
            if (!found || !read)
                fail_msg("step %d: document %d of %s is not there", s, l->document, l->source);
            seen[l->row] += l->tokens;
        }
        for (int row = 0; row < BATCH; row++) CHECK_INT(seen[row], T);
    }
    for (int i = 0; i < 2; i++) shard_close(&shard[i]);
}

/* The checkpoint of step 3 is the state in which step 4 began, so its losses are those of the step. */
static void losses_by_document_are_those_of_the_step(void **state)
{
    Lab *lab = *state;
    static Line line[PARTS];
    double loss = 0, sum = 0;
    int tokens = 0;
    train(lab, "losses", "optimizer.lr=2e-2");
    Outcome o = RUN(lab, "losses", "why-spike", "run", "4", "--documents", "64");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "(losses by run/checkpoints/step-0000000003)\n");
    CHECK_INT(sscanf(strstr(o.out, ">"), "> 4 %lf", &loss), 1);
    const int n = read_lines(o.out, true, line);
    for (int i = 0; i < n; i++) {
        CHECK(i == 0 || line[i].loss <= line[i - 1].loss);
        sum += line[i].loss * line[i].tokens;
        tokens += line[i].tokens;
    }
    CHECK_INT(tokens, BATCH * T);
    CHECK_NEAR(sum / tokens, loss, 0.003 * loss);
    o = RUN(lab, "losses", "why-spike", "run", "3", "--documents", "2");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "(no losses: the run has no checkpoint from before the step)\n");
    CHECK_SAYS(o.out, "(2 of ");
}

/* Hand-made lines: the last one of a step counts, and means are of the steps before. */
static void figures_are_those_of_the_last_lines(void **state)
{
    Lab *lab = *state;
    train(lab, "figures", "train.eval_every=0");
    lab_write_text(
        lab, lab_path(lab, "figures/run/metrics.jsonl"),
        "{\"kind\":\"start\",\"moe_layers\":[2]}\n"
        "{\"kind\":\"step\",\"step\":1,\"loss\":2,\"lr\":0.5,\"grad_norm\":1,\"grad_norm_head\":3,"
        "\"expert_load\":[[2,2,2,2]]}\n"
        "{\"kind\":\"step\",\"step\":2,\"loss\":9,\"lr\":0.5,\"grad_norm\":9,\"grad_norm_head\":9,"
        "\"expert_load\":[[8,0,0,0]]}\n"
        "{\"kind\":\"step\",\"step\":2,\"lo\n"
        "{\"kind\":\"start\",\"moe_layers\":[2]}\n"
        "{\"kind\":\"step\",\"step\":2,\"loss\":4,\"lr\":0.5,\"grad_norm\":3,\"grad_norm_head\":5,"
        "\"expert_load\":[[4,4,0,0]]}\n"
        "{\"kind\":\"step\",\"step\":3,\"loss\":7,\"lr\":0.25,\"grad_norm\":null,\"grad_norm_"
        "head\":8,"
        "\"skipped\":true,\"expert_load\":[[0,1,7,0]]}\n");
    Outcome o = RUN(lab, "figures", "why-spike", "run", "3", "--documents", "1");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "           2     4.0000          3        0.5\n"
                      ">          3     7.0000        nan       0.25  skipped: it changed nothing\n"
                      "        mean     3.0000          2            of the 2 steps before\n");
    CHECK_SAYS(o.out, "head                          8          4          2\n");
    CHECK_SAYS(o.out, "layer 2                     3.5        1.5          2\n");
    CHECK_SAYS(o.out, "(the run was resumed: ");
    o = RUN(lab, "figures", "why-spike", "run", "5");
    CHECK_EXIT(o, 2);
    CHECK_SAYS(o.err, "run/metrics.jsonl has no line of step 5");
    o = RUN(lab, "figures", "why-spike", "run", "0");
    CHECK_EXIT(o, 2);
    CHECK_SAYS(o.err, "\"0\" is not the number of a step");
    o = RUN(lab, "figures", "why-spike", "none", "3");
    CHECK_EXIT(o, 2);
    CHECK_SAYS(o.err, "none/metrics.jsonl");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LAB_TEST(documents_are_those_that_the_step_read),
        LAB_TEST(losses_by_document_are_those_of_the_step),
        LAB_TEST(figures_are_those_of_the_last_lines),
    };
    return LAB_RUN_ALL(tests);
}
