/* A training from its configuration to text: what it prints, what it leaves, and that the same
 * settings give the same bits, resumed or not. */
#include "corpus/shard/holdout.h"
#include "corpus/shard/loader.h"
#include "corpus/shard/shard.h"
#include "harness/run_folder.h"

#include <cjson/cJSON.h>
#include <math.h>

/* ---- before a run ---- */

static void dry_run_tells_what_it_would_take_and_writes_nothing(void **state)
{
    static const char *const wanted[] = {
        "hidden: 32",
        "threads: 1",
        "parameters  68,240 total, 59,024 active",
        "  run  ",
        "  slot  ",
        "  ring  ",
        "  step  ",
        "  scratch  ",
        "  tables  ",
        "  loader  ",
        "  data  ",
        "  save  ",
        "  libraries",
        "  total  ",
        "128 tokens",
        "precision   f32\n",
        "balance     groups of 1 sequence, 32 tokens each\n",
        "\nfits        on this host: the plan takes ",
    };
    Outcome o = RUN(*state, "dry", "train", "--dry-run", "../tiny.yaml");
    CHECK_EXIT(o, 0);
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) CHECK_SAYS(o.out, wanted[i]);
    CHECK_TEXT(o.err, "");
    const char *const *names = NULL;
    int n = 0;
    Lab *lab = *state;
    CHECK_OK(file_list(lab_path(lab, "dry"), &lab->arena, &names, &n));
    CHECK_INT(n, 0);
    o = RUN(*state, "dry", "train", "--dry-run", "../tiny.yaml", "optimizer.moments=bf16");
    CHECK_SAYS(o.out, "precision   f32; bf16 moments\n");
    o = RUN(*state, "dry", "train", "--dry-run", "../tiny.yaml", "--ranks", "2");
    CHECK_SAYS(o.out, "\nmemory of rank 0 of 2\n");
    const char *one = strstr(o.out, "\n  total "),
               *both = strstr(o.out, "2 ranks like rank 0 take ");
    double total = 0, take = 0;
    CHECK(one != NULL && both != NULL);
    CHECK_INT(sscanf(one, " total %lf MiB", &total), 1);
    CHECK_INT(sscanf(both, "2 ranks like rank 0 take %lf MiB", &take), 1);
    CHECK_NEAR(take / total, 2, 0.1); /* pages of data files aside */
    CHECK_REFUSED(RUN(*state, "dry", "train", "--all", "../tiny.yaml"), 2,
                  "--all is for --dry-run");
}

/* What is printed of the settings makes the same run, whether it is what differs from defaults or all. */
static void settings_of_a_dry_run_read_back(void **state)
{
    Outcome o = RUN(*state, "read", "train", "--dry-run", "../tiny.yaml", "train.clip_norm=2");
    CHECK_SAYS(o.out, "\ntrain:\n");
    CHECK_SAYS(o.out, "\n  clip_norm: 2\n");
    CHECK(strstr(o.out, "beta2") == NULL);
    o = SHELL(
        *state, "read",
        "say() { \"$0\" train --dry-run \"$@\" | sed '/  available /d; /^fits/d'; };"
        "say ../tiny.yaml train.clip_norm=2 >plain; say ../tiny.yaml train.clip_norm=2 --all >all;"
        "sed '/^#/q' plain >plain.yaml; sed '/^$/q' all >all.yaml; grep -c : plain.yaml all.yaml;"
        "grep -q '^  beta2: 0.95$' all && say plain.yaml | cmp - plain && say plain.yaml --all | "
        "cmp - all &&"
        "say all.yaml | cmp - plain");
    CHECK_EXIT(o, 0);
}

/* ---- what a run leaves ---- */

enum { MOE_LAYERS = 2, EXPERTS = 4, TOP_K = 2, STEPS = 12, STEP_TOKENS = 128 };

/* A run of 12 steps with an evaluation every 5, once for all tests that only look. */
static void look_at_a_run(Lab *lab)
{
    if (file_exists(lab_path(lab, "look"))) return;
    Outcome o = RUN(lab, "look", "train", "../tiny.yaml", "train.steps=12", "train.eval_every=5",
                    "train.eval_sequences=100000", "run.trace_steps=[3]", "moe.aux_loss=0.01");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "report");
    CHECK_SAYS(o.err, "step 12/12");
}

static double number(const cJSON *line, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(line, key);
    if (!cJSON_IsNumber(item)) fail_msg("%s is no number in %s", key, cJSON_Print(line));
    return item->valuedouble;
}

/* expert_load is [layer][expert], and every token takes TOP_K of each layer's experts. */
static void check_load(const cJSON *table, double tokens)
{
    CHECK_INT(cJSON_GetArraySize(table), MOE_LAYERS);
    for (int layer = 0; layer < MOE_LAYERS; layer++) {
        const cJSON *row = cJSON_GetArrayItem(table, layer), *item = NULL;
        double sum = 0;
        CHECK_INT(cJSON_GetArraySize(row), EXPERTS);
        cJSON_ArrayForEach(item, row) sum += item->valuedouble;
        CHECK_NEAR(sum, tokens * TOP_K, 0);
    }
}

static double load_of(const cJSON *table, int layer, int expert)
{
    return cJSON_GetArrayItem(cJSON_GetArrayItem(table, layer), expert)->valuedouble;
}

/* What both domains took is what was taken. */
static void check_domains(const cJSON *line, const cJSON *by)
{
    const cJSON *all = cJSON_GetObjectItemCaseSensitive(line, "expert_load");
    const cJSON *web = cJSON_GetObjectItemCaseSensitive(by, "web");
    const cJSON *books = cJSON_GetObjectItemCaseSensitive(by, "books");
    CHECK_INT(cJSON_GetArraySize(web), MOE_LAYERS);
    CHECK_INT(cJSON_GetArraySize(books), MOE_LAYERS);
    for (int layer = 0; layer < MOE_LAYERS; layer++) {
        for (int e = 0; e < EXPERTS; e++)
            CHECK_NEAR(load_of(web, layer, e) + load_of(books, layer, e), load_of(all, layer, e),
                       0);
    }
}

static void check_step(const cJSON *line, int step)
{
    static const char *const arena[] = { "run", "slot", "ring", "step", "scratch" };
    CHECK_NEAR(number(line, "step"), step, 0);
    CHECK_NEAR(number(line, "tokens"), STEP_TOKENS, 0);
    CHECK_NEAR(number(line, "loss"), log(512), 1);
    CHECK(number(line, "aux_loss") > 0);
    CHECK(number(line, "lr") > 0 && number(line, "lr") <= 1e-3);
    CHECK(number(line, "grad_norm") > 0);
    CHECK(number(line, "step_s") > 0);
    CHECK_NEAR(number(line, "tokens_per_s") * number(line, "step_s") / STEP_TOKENS, 1, 1e-6);
    CHECK(number(line, "roof_share") > 0);
    CHECK(cJSON_GetObjectItemCaseSensitive(line, "mfu") == NULL); /* a CPU has no data sheet */
    const cJSON *memory = cJSON_GetObjectItemCaseSensitive(line, "memory_bytes");
    for (int i = 0; i < 5; i++) CHECK(number(memory, arena[i]) > 0);
    check_load(cJSON_GetObjectItemCaseSensitive(line, "expert_load"), STEP_TOKENS);
    const cJSON *by = cJSON_GetObjectItemCaseSensitive(line, "expert_load_by_domain");
    CHECK((by != NULL) == (step == STEPS)); /* every so often, and at the end */
    if (by != NULL) check_domains(line, by);
}

static void check_eval(const cJSON *line)
{
    const cJSON *domains = cJSON_GetObjectItemCaseSensitive(line, "domains"), *d = NULL;
    const cJSON *load = cJSON_GetObjectItemCaseSensitive(line, "expert_load_by_domain");
    double nats = 0, targets = 0;
    CHECK_INT(cJSON_GetArraySize(domains), 2);
    cJSON_ArrayForEach(d, domains)
    {
        nats += number(d, "loss") * number(d, "targets");
        targets += number(d, "targets");
        check_load(cJSON_GetObjectItemCaseSensitive(load, d->string), number(d, "targets"));
        double bits = number(d, "loss") * number(d, "targets") / log(2) / number(d, "bytes");
        CHECK_NEAR(number(d, "bits_per_byte") / bits, 1, 1e-9);
    }
    CHECK(targets > 0);
    CHECK_NEAR(number(line, "loss"), nats / targets, 1e-9);
}

static int count_twice(Lab *lab, const char *cell)
{
    int n = 0;
    for (const char *at = run_metrics(lab, cell); (at = strstr(at, "\"again\":true")); at++) n++;
    return n;
}

/* With so little room some of the steps have to; none with room for all. */
static void steps_that_ran_twice_are_told_and_counted(void **state)
{
    enum { STEPS_HERE = 24 };
    Lab *lab = *state;
    char wanted[64];
    Outcome o = RUN(lab, "twice", "train", "../tiny.yaml", "train.steps=24", "train.log_every=24",
                    "--ranks=2", "mesh.ep=2", "moe.top_k=1", "moe.buffer_factor=1.2");
    CHECK_EXIT(o, 0);
    int n = count_twice(lab, "twice");
    CHECK(n > 0 && n < STEPS_HERE);
    snprintf(wanted, sizeof wanted, "s left  %d ran twice", n);
    CHECK_SAYS(o.err, wanted);
    snprintf(wanted, sizeof wanted, "steps that ran twice  %d of %d", n, STEPS_HERE);
    CHECK_SAYS(o.out, wanted);
    snprintf(wanted, sizeof wanted, "%d of %d steps ran twice", n, STEPS_HERE);
    CHECK_SAYS(lab_read(lab, lab_path(lab, "twice/run/report.html"), NULL), wanted);
    o = RUN(lab, "twice", "bench", "step", "../tiny.yaml", "--steps=9", "--ranks=2", "mesh.ep=2",
            "moe.top_k=1", "moe.buffer_factor=1");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "ran twice    9 of 9 steps");
    CHECK_SAYS(o.out,
               "rows         pools for 2 times the balanced number of rows keep what backward");
    o = RUN(lab, "twice", "bench", "step", "../tiny.yaml", "--steps=2", "--ranks=2", "mesh.ep=2",
            "moe.top_k=1", "moe.buffers=worst");
    CHECK_EXIT(o, 0);
    CHECK(strstr(o.out, "ran twice") == NULL);
}

/* Pools that are too small get larger, once for two such steps in a row, and the bits stay. */
static void a_run_whose_steps_run_twice_takes_more_room(void **state)
{
    enum { STEPS_HERE = 24 };
    Lab *lab = *state;
    const char *metrics;
    int times = 0;
    Outcome o = RUN(lab, "grows", "train", "../tiny.yaml", "train.steps=24", "--ranks=2",
                    "mesh.ep=2", "moe.top_k=1", "moe.pool_factor=0.9");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.err, "step 2: rows had no room in two steps running: from here on pools hold 1.1 "
                      "times the balanced rows (0.9 before)");
    for (const char *at = o.err; (at = strstr(at, "from here on pools hold")) != NULL; at++)
        times++;
    metrics = run_metrics(lab, "grows");
    int n = count_twice(lab, "grows"), captures = 0;
    for (const char *at = metrics; (at = strstr(at, "\"capture_s\":")) != NULL; at++) captures++;
    CHECK(n >= 2 * times && n < STEPS_HERE);
    CHECK(captures >= times); /* a second way's first run may count as one, too */
    const char *told = strstr(o.out, "rows had no room: ");
    CHECK(told != NULL && strtod(told + strlen("rows had no room: "), NULL) > 0);
    CHECK_SAYS(told, " s of second runs, ");
    o = RUN(lab, "roomy", "train", "../tiny.yaml", "train.steps=24", "--ranks=2", "mesh.ep=2",
            "moe.top_k=1", "moe.buffers=worst");
    CHECK_EXIT(o, 0);
    check_same_steps(lab, "grows", "roomy", 1, STEPS_HERE);
    CHECK(lab_same_files(lab, lab_path(lab, "grows/run/checkpoints/step-0000000024/rank-00000.bin"),
                         lab_path(lab, "roomy/run/checkpoints/step-0000000024/rank-00000.bin")));
}

/* A step that is skipped has a clip that is no number. */
static void under_guard_steps_run_twice_too(void **state)
{
    Lab *lab = *state;
    CHECK_EXIT(RUN(lab, "guarded", "train", "../tiny.yaml", "train.steps=4", "--ranks=2",
                   "mesh.ep=2", "moe.top_k=1", "moe.pool_factor=0.9", "run.guard=true"),
               0);
    CHECK(count_twice(lab, "guarded") > 0);
}

/* 2 x 2 ranks stand for hosts. Some of the steps run twice, for want of room at relays. */
#define ON_HOSTS                                                                                   \
    "train", "../tiny.yaml", "train.batch=8", "train.micro_batch=1", "optimizer.decay_steps=8",    \
        "--ranks=4", "mesh.ep=4", "moe.top_k=1", "moe.buffer_factor=1.7", "moe.exchange=hier",     \
        "mesh.ranks_per_host=2"

static void hosts_have_the_same_bits_run_to_run_and_resumed(void **state)
{
    Lab *lab = *state;
    CHECK_EXIT(RUN(lab, "hosts", ON_HOSTS, "train.steps=8"), 0);
    CHECK_EXIT(RUN(lab, "hosts2", ON_HOSTS, "train.steps=8"), 0);
    CHECK_EXIT(RUN(lab, "hosts_half", ON_HOSTS, "train.steps=4"), 0);
    CHECK_EXIT(RUN(lab, "hosts_half", ON_HOSTS, "train.steps=8", "--resume"), 0);
    int twice = count_twice(lab, "hosts");
    CHECK(twice > 0 && twice < 8);
    check_same_steps(lab, "hosts", "hosts2", 1, 8);
    check_same_steps(lab, "hosts", "hosts_half", 5, 8);
    check_same_checkpoint(lab, "hosts", "hosts2", 8);
    check_same_checkpoint(lab, "hosts", "hosts_half", 8);
}

#define OVER_RANKS                                                                                 \
    "train", "../tiny.yaml", "train.batch=8", "train.micro_batch=1", "optimizer.decay_steps=8",    \
        "--ranks=4", "mesh.ep=4", "moe.buffers=worst"

static void stores_have_the_bits_of_calls_and_resume(void **state)
{
    Lab *lab = *state;
    CHECK_EXIT(RUN(lab, "calls", OVER_RANKS, "train.steps=8"), 0);
    CHECK_EXIT(RUN(lab, "stores", OVER_RANKS, "train.steps=8", "moe.exchange=direct"), 0);
    CHECK_EXIT(RUN(lab, "stores2", OVER_RANKS, "train.steps=4", "moe.exchange=direct"), 0);
    CHECK_EXIT(RUN(lab, "stores2", OVER_RANKS, "train.steps=8", "moe.exchange=direct", "--resume"),
               0);
    for (int rank = 0; rank < 4; rank++) {
        static const char file[] = "%s/run/checkpoints/step-0000000008/rank-%05d.bin";
        CHECK(lab_same_files(lab, lab_path(lab, file, "calls", rank),
                             lab_path(lab, file, "stores", rank)));
    }
    check_same_steps(lab, "stores", "stores2", 5, 8);
    check_same_checkpoint(lab, "stores", "stores2", 8);
}

/* 2 of 4 experts, each on a rank of its own, are 2 rows: 1 to the other host, where 5/6 would do. */
static void the_exchange_that_is_chosen_says_why(void **state)
{
    Lab *lab = *state;
    Outcome o = RUN(lab, "auto", "train", "../tiny.yaml", "train.batch=8", "train.micro_batch=1",
                    "train.steps=1", "--ranks=4", "mesh.ep=4", "moe.exchange=auto", "moe.top_k=2",
                    "mesh.ranks_per_host=2");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.err, "moe.exchange=auto takes hier; rows a token between hosts (each counts as 9) "
                      "and inside them: alltoall 1.00 and 0.50, allgather 2.00 and 1.00, hier 0.83 "
                      "and 1.00; 2 of 4 ranks are on each host");
    o = RUN(lab, "auto", "train", "../tiny.yaml", "train.batch=8", "train.micro_batch=1",
            "--ranks=4", "mesh.ep=4", "moe.exchange=auto", "moe.top_k=2", "--dry-run");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "exchange    moe.exchange=auto takes alltoall;");
    CHECK_SAYS(o.out,
               "rows        pools for 2 times the balanced number of rows keep what backward");
    o = RUN(lab, "one", "train", "../tiny.yaml", "train.batch=8", "train.micro_batch=1",
            "train.steps=1", "--ranks=4", "mesh.ep=4", "moe.exchange=auto", "moe.top_k=2");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.err, "takes alltoall;");
    CHECK_SAYS(o.err, "4 of 4 ranks are on each host");
}

static void shards_are_inspected_and_measured(void **state)
{
    Outcome o =
        RUN(*state, "shards", "data", "inspect", "../web", "--tokenizer", "../tokenizer.json");
    CHECK_EXIT(o, 0);
    o = RUN(*state, "shards", "data", "ngram", "--tokenizer", "../tokenizer.json", "--validation",
            "0.3", "web=../web");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "bits per byte of held-out text");
}

static void metrics_have_a_line_a_step_and_an_evaluation(void **state)
{
    Lab *lab = *state;
    look_at_a_run(lab);
    int steps = 0, evals = 0, starts = 0;
    for (char *line = strtok(run_metrics(lab, "look"), "\n"); line; line = strtok(NULL, "\n")) {
        cJSON *j = cJSON_Parse(line);
        if (j == NULL) fail_msg("no JSON: %s", line);
        const char *kind = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(j, "kind"));
        CHECK(kind != NULL);
        if (strcmp(kind, "step") == 0) check_step(j, ++steps);
        if (strcmp(kind, "eval") == 0) check_eval(j), evals++;
        if (strcmp(kind, "start") == 0) starts++;
        cJSON_Delete(j);
    }
    CHECK_INT(starts, 1);
    CHECK_INT(steps, STEPS);
    CHECK_INT(evals, 4); /* at 0, 5, 10 and the end */
}

/* The configuration that was run, printed by --dry-run up to the empty line. */
static const char *printed_config(Lab *lab, const char *config)
{
    Outcome o = RUN(lab, "look", "train", "--dry-run", "--all", config);
    CHECK_EXIT(o, 0);
    const char *end = strstr(o.out, "\n\n"), *out = NULL;
    CHECK(end != NULL);
    CHECK_OK(arena_text(&lab->arena, o.out, (size_t)(end + 1 - o.out), &out));
    return out;
}

static void config_yaml_reads_back_to_the_same_settings(void **state)
{
    Lab *lab = *state;
    look_at_a_run(lab);
    const char *written = lab_read(lab, lab_path(lab, "look/run/config.yaml"), NULL);
    CHECK_SAYS(written, "aux_loss: 0.01");
    CHECK_TEXT(printed_config(lab, "run/config.yaml"), written);
}

static void report_and_trace_are_written(void **state)
{
    Lab *lab = *state;
    look_at_a_run(lab);
    const char *html = lab_read(lab, lab_path(lab, "look/run/report.html"), NULL);
    CHECK_SAYS(html, "<html");
    CHECK_SAYS(html, "</html>");
    CHECK(strstr(html, "src=\"http") == NULL && strstr(html, "href=\"http") == NULL);
    cJSON *trace = cJSON_Parse(lab_read(lab, lab_path(lab, "look/run/trace.json"), NULL));
    CHECK(trace != NULL);
    const cJSON *events = cJSON_GetObjectItemCaseSensitive(trace, "traceEvents"), *e = NULL;
    CHECK(cJSON_GetArraySize(events) > 100);
    cJSON_ArrayForEach(e, events)
    {
        const cJSON *args = cJSON_GetObjectItemCaseSensitive(e, "args");
        if (cJSON_HasObjectItem(args, "step")) CHECK_NEAR(number(args, "step"), 3, 0);
    }
    cJSON_Delete(trace);
}

/* ---- what can be done with it ---- */

#define GENERATE(lab, path, ...)                                                                   \
    RUN((lab), "look", "generate", (path), "--prompt", "ba ko", "--tokens", "20", __VA_ARGS__)

static void generate_writes_text_from_a_run_and_from_its_checkpoint(void **state)
{
    Lab *lab = *state;
    look_at_a_run(lab);
    Outcome a = GENERATE(lab, "run", "--seed", "3");
    Outcome b = GENERATE(lab, "run/checkpoints/step-0000000012", "--seed", "3");
    Outcome c = GENERATE(lab, "run", "--seed", "4");
    CHECK_EXIT(a, 0);
    CHECK_EXIT(b, 0);
    CHECK(strncmp(a.out, "ba ko", 5) == 0 && strlen(a.out) > 15);
    CHECK_TEXT(a.out, b.out);
    CHECK(strcmp(a.out, c.out) != 0);
}

/* The same held-out text as the last evaluation of the run, so the same figures. */
static void eval_agrees_with_the_last_evaluation_of_the_run(void **state)
{
    Lab *lab = *state;
    look_at_a_run(lab);
    const char *last = NULL;
    for (const char *at = run_metrics(lab, "look"); (at = strstr(at, "\"kind\":\"eval\"")); at++) {
        last = at;
    }
    double loss = 0, bits = 0;
    char wanted[96];
    CHECK(last != NULL);
    CHECK_INT(sscanf(strstr(last, "\"loss\""), "\"loss\":%lf,\"bits_per_byte\":%lf", &loss, &bits),
              2);
    snprintf(wanted, sizeof wanted, "loss %.4f  %.4f bits a byte", loss, bits);
    Outcome o = RUN(lab, "look", "eval", "run");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "web ");
    CHECK_SAYS(o.out, "books ");
    CHECK_SAYS(strstr(o.out, "all "), wanted);
    o = RUN(lab, "look", "eval", "run", "web=../web");
    CHECK_EXIT(o, 0);
    CHECK(strstr(o.out, "books ") == NULL);
}

/* Logits of a sequence; those of its beginning alone must be the same, because nothing looks
 * ahead. */
static const float *logits_of(Lab *lab, const int32_t *id, size_t n)
{
    size_t bytes = 0;
    lab_write(lab, lab_path(lab, "look/tokens"), id, n * sizeof *id);
    Outcome o = RUN(lab, "look", "logits", "run", "tokens", "logits");
    CHECK_EXIT(o, 0);
    void *data = lab_read(lab, lab_path(lab, "look/logits"), &bytes);
    CHECK_INT(bytes, n * 512 * sizeof(float));
    return data;
}

static void logits_of_a_beginning_do_not_depend_on_the_rest(void **state)
{
    Lab *lab = *state;
    look_at_a_run(lab);
    int32_t id[9];
    for (int i = 0; i < 9; i++) id[i] = 37 * i % 512;
    const float *whole = logits_of(lab, id, 9), *part = logits_of(lab, id, 4);
    double difference = 0, size = 0;
    for (int i = 0; i < 4 * 512; i++) {
        difference += fabs((double)whole[i] - (double)part[i]);
        size += fabs((double)whole[i]);
    }
    CHECK(size > 0);
    CHECK(difference <= 1e-5 * size);
}

/* ---- the same bits ---- */

static void running_twice_gives_the_same_bits(void **state)
{
    static const char *const cell[] = { "once", "again" };
    for (int i = 0; i < 2; i++) {
        Outcome o = RUN(*state, cell[i], "train", "../tiny.yaml", "train.steps=20",
                        "train.eval_every=10", "checkpoint.every=10", "run.threads=2");
        CHECK_EXIT(o, 0);
    }
    check_same_steps(*state, "once", "again", 1, 20);
    check_same_checkpoint(*state, "once", "again", 10);
    check_same_checkpoint(*state, "once", "again", 20);
}

/* Kill the run of this cell somewhere behind its checkpoint of step 20; false if it was faster. */
static bool kill_behind_20(Lab *lab, const Launch *l)
{
    CHECK_OK(file_remove_tree(lab_path(lab, "%s", l->cell)));
    Child c = lab_start(lab, l);
    bool there = false;
    while (!there && child_runs(&c)) {
        child_sleep();
        there = run_has_checkpoint(lab, l->cell, 20) && run_count_steps(lab, l->cell) >= 23;
    }
    kill(c.pid, SIGKILL);
    Outcome o = lab_wait(lab, &c);
    if (o.code == 0) return false;
    CHECK_EXIT(o, 128 + SIGKILL);
    return !run_has_checkpoint(lab, l->cell, 40);
}

static void check_resume_of_two(Lab *lab, const char *setting, const char *other)
{
    const char *const *args = ARGS("train", "../tiny.yaml", "checkpoint.every=20", setting, other);
    const Launch cut = { .cell = "cut", .args = args };
    CHECK_OK(file_remove_tree(lab_path(lab, "whole")));
    Outcome o = lab_run(lab, &(Launch){ .cell = "whole", .args = args });
    CHECK_EXIT(o, 0);
    int tries = 0;
    while (!kill_behind_20(lab, &cut)) {
        if (++tries == 10) fail_msg("the run was always faster than the signal");
    }
    o = RUN(lab, "cut", "train", "../tiny.yaml", "checkpoint.every=20", setting, other, "--resume");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.err, "step 20, 80 sequences read");
    check_same_steps(lab, "whole", "cut", 1, 40);
    check_same_checkpoint(lab, "whole", "cut", 20);
    check_same_checkpoint(lab, "whole", "cut", 40);
}

static void check_resume(Lab *lab, const char *setting)
{
    check_resume_of_two(lab, setting, setting);
}

static void twenty_steps_kill_and_twenty_more_are_forty_steps(void **state)
{
    check_resume(*state, "run.compute=f32");
}

static void resume_is_exact_in_bf16(void **state) { check_resume(*state, "run.compute=bf16"); }

static void resume_is_exact_with_bf16_moments(void **state)
{
    check_resume(*state, "optimizer.moments=bf16");
}

static void resume_is_exact_with_the_router_bias(void **state)
{
    check_resume(*state, "moe.bias_rate=0.01");
}

static void resume_is_exact_with_quantile_balancing(void **state)
{
    check_resume_of_two(*state, "moe.bias_rate=0.5", "moe.bias_rule=quantile");
}

static void resume_is_exact_with_recompute(void **state)
{
    check_resume(*state, "recompute.layers=[0, 1, 2]");
}

static void moments_may_change_their_type_where_that_is_allowed(void **state)
{
    static const char bf16[] = "optimizer.moments=bf16";
    const char *const *args = ARGS("train", "../tiny.yaml", "train.steps=4");
    Lab *lab = *state;
    CHECK_EXIT(lab_run(lab, &(Launch){ .cell = "type", .args = args }), 0);
    Outcome o = RUN(lab, "type", "train", "../tiny.yaml", "train.steps=6", bf16, "--resume",
                    "--change", "train.steps");
    CHECK_REFUSED(o, 2, "optimizer.moments");
    o = RUN(lab, "type", "train", "../tiny.yaml", "train.steps=6", bf16, "--resume", "--change",
            "train.steps", "--change", "optimizer.moments");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.err, "resume: optimizer.moments is bf16, was f32");
    CHECK(run_has_checkpoint(lab, "type", 6));
}

/* One by one the documents add up to what eval says of all, and have the numbers of the shard. */
static void eval_tells_the_loss_of_each_document(void **state)
{
    Lab *lab = *state;
    look_at_a_run(lab);
    Outcome o = RUN(lab, "look", "eval", "run", "--documents", "documents.jsonl");
    CHECK_EXIT(o, 0);
    char *text = lab_read(lab, lab_path(lab, "look/documents.jsonl"), NULL);
    Shard shard[2] = { { 0 }, { 0 } };
    CHECK_OK(shard_open(&shard[0], lab_path(lab, "web")));
    CHECK_OK(shard_open(&shard[1], lab_path(lab, "books")));
    double nats[2] = { 0 }, tokens[2] = { 0 };
    long long before = -1;
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        cJSON *json = cJSON_Parse(line);
        const char *name = cJSON_GetStringValue(cJSON_GetObjectItem(json, "source"));
        int source = strcmp(name, "books") == 0;
        double n = number(json, "tokens"), sum = number(json, "nats");
        long long document = (long long)number(json, "document");
        bool first = tokens[source] == 0;
        int64_t length =
            shard_start(&shard[source], document + 1) - shard_start(&shard[source], document);
        CHECK_NEAR(n, length - first, 0); /* nothing precedes a source's first token */
        if (first) before = -1;
        CHECK(document > before && holdout_by_hash(name, document, 0.1));
        before = document;
        CHECK_NEAR(number(json, "perplexity"), exp(sum / n), 1e-9 * exp(sum / n));
        nats[source] += sum;
        tokens[source] += n;
        cJSON_Delete(json);
    }
    for (int i = 0; i < 2; i++) shard_close(&shard[i]);
    char wanted[2][64];
    for (int i = 0; i < 2; i++)
        snprintf(wanted[i], sizeof wanted[i], "%10.0f tokens  loss %.4f", tokens[i],
                 nats[i] / tokens[i]);
    CHECK_SAYS(strstr(o.out, "web "), wanted[0]);
    CHECK_SAYS(strstr(o.out, "books "), wanted[1]);
}

static double loss_of(Lab *lab, const char *cell, const char *step)
{
    double loss = NAN;
    for (const char *at = run_metrics(lab, cell); (at = strstr(at, step)) != NULL; at++) {
        CHECK_INT(sscanf(strstr(at, "\"loss\""), "\"loss\":%lf", &loss), 1);
    }
    return loss;
}

/* Fine-tuning on conversations: the loss of a step is that of all answers of the batch, however ranks
 * share it, and it is one that falls. */
static void chats_train_alike_on_any_mesh(void **state)
{
    static const char *const mesh[][2] = { { "mesh.ep=1", "1" }, { "mesh.ep=2", "2" },
                                           { "mesh.pp=2", "2" }, { "mesh.zero=3", "2" },
                                           { "mesh.cp=2", "2" }, { "mesh.tp=2", "2" } };
    enum { MESHES = sizeof mesh / sizeof *mesh, CHATS = 300 };
    Lab *lab = *state;
    char lines[CHATS * 128] = "";
    size_t used = 0;
    for (int i = 0; i < CHATS; i++)
        used += (size_t)snprintf(lines + used, sizeof lines - used,
                                 "{\"parts\":[{\"text\":\"user:%d\",\"learned\":false},"
                                 "{\"text\":\"assistant:%d\",\"learned\":true}]}\n",
                                 i, i % 10);
    lab_write_text(lab, lab_path(lab, "asked.jsonl"), lines);
    Outcome o = RUN(lab, "asked", "data", "prepare", "--tokenizer", "../tokenizer.json", "--parts",
                    "--sequence", "32", "--out", "../asked", "../asked.jsonl");
    CHECK_EXIT(o, 0);
    double loss[MESHES][2];
    for (int i = 0; i < MESHES; i++) {
        char cell[16];
        snprintf(cell, sizeof cell, "asked-%d", i);
        o = RUN(lab, cell, "train", "../tiny.yaml", "train.steps=10", "train.micro_batch=2",
                "optimizer.lr=1e-2", "data.sources=[{name: asked, path: ../asked}]", mesh[i][0],
                "--ranks", mesh[i][1]);
        CHECK_EXIT(o, 0);
        loss[i][0] = loss_of(lab, cell, "\"step\":1,");
        loss[i][1] = loss_of(lab, cell, "\"step\":10,");
        CHECK_NEAR(loss[i][0] / loss[0][0], 1, 1e-5);
        CHECK_NEAR(loss[i][1] / loss[0][1], 1, 1e-3);
    }
    CHECK(loss[0][1] < 0.8 * loss[0][0]);
}

/* The run's own settings drop tokens where routing is learnt; where it is even none is. */
static void dropped_tokens_and_forced_balance_are_in_every_line(void **state)
{
    Lab *lab = *state;
    Outcome o = RUN(lab, "drops", "train", "../tiny.yaml", "train.steps=3", "train.log_every=1",
                    "run.dir=run", "moe.capacity=0.5");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.err, " dropped");
    const char *lines = lab_read(lab, lab_path(lab, "drops/run/metrics.jsonl"), NULL);
    CHECK_SAYS(lines, ",\"dropped\":[");
    CHECK(strstr(lines, "forced_balance") == NULL);
    o = RUN(lab, "even", "train", "../tiny.yaml", "train.steps=3", "train.log_every=1",
            "run.dir=run", "moe.forced_balance=true", "moe.capacity=2");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.err, "  forced balance");
    CHECK(strstr(o.err, " dropped") == NULL);
    lines = lab_read(lab, lab_path(lab, "even/run/metrics.jsonl"), NULL);
    CHECK_SAYS(lines, "{\"kind\":\"start\",\"forced_balance\":true,");
    CHECK_SAYS(lines, "{\"kind\":\"step\",\"forced_balance\":true,");
    CHECK(strstr(lines, "dropped") == NULL);
    o = RUN(lab, "even", "train", "../tiny.yaml", "--dry-run", "moe.forced_balance=true");
    CHECK_SAYS(o.out, "benchmark   moe.forced_balance");
    o = RUN(lab, "even", "train", "../tiny.yaml", "--dry-run", "--ranks=2", "moe.capacity=1",
            "mesh.cp=2");
    CHECK_EXIT(o, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LAB_TEST(dry_run_tells_what_it_would_take_and_writes_nothing),
        LAB_TEST(settings_of_a_dry_run_read_back),
        LAB_TEST(steps_that_ran_twice_are_told_and_counted),
        LAB_TEST(a_run_whose_steps_run_twice_takes_more_room),
        LAB_TEST(under_guard_steps_run_twice_too),
        LAB_TEST(hosts_have_the_same_bits_run_to_run_and_resumed),
        LAB_TEST(stores_have_the_bits_of_calls_and_resume),
        LAB_TEST(the_exchange_that_is_chosen_says_why),
        LAB_TEST(shards_are_inspected_and_measured),
        LAB_TEST(metrics_have_a_line_a_step_and_an_evaluation),
        LAB_TEST(config_yaml_reads_back_to_the_same_settings),
        LAB_TEST(report_and_trace_are_written),
        LAB_TEST(generate_writes_text_from_a_run_and_from_its_checkpoint),
        LAB_TEST(eval_agrees_with_the_last_evaluation_of_the_run),
        LAB_TEST(logits_of_a_beginning_do_not_depend_on_the_rest),
        LAB_TEST(moments_may_change_their_type_where_that_is_allowed),
        LAB_TEST(chats_train_alike_on_any_mesh),
        LAB_TEST(eval_tells_the_loss_of_each_document),
        LAB_TEST(running_twice_gives_the_same_bits),
        LAB_TEST(dropped_tokens_and_forced_balance_are_in_every_line),
        LAB_TEST(twenty_steps_kill_and_twenty_more_are_forty_steps),
        LAB_TEST(resume_is_exact_in_bf16),
        LAB_TEST(resume_is_exact_with_bf16_moments),
        LAB_TEST(resume_is_exact_with_the_router_bias),
        LAB_TEST(resume_is_exact_with_quantile_balancing),
        LAB_TEST(resume_is_exact_with_recompute),
    };
    return LAB_RUN_ALL(tests);
}
