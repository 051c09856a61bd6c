/* How a training goes on: with more steps, and under a supervisor that knows nothing of checkpoints. */
#include "harness/forge.h"
#include "harness/run_folder.h"

static double rate_of(Lab *lab, const char *cell, int step)
{
    char *end = NULL;
    const char *at = strstr(run_step_text(lab, run_metrics(lab, cell), step), "\"lr\":");
    CHECK(at != NULL);
    double rate = strtod(at + 5, &end);
    CHECK(end > at + 5);
    return rate;
}

/* The refusal has a line for each way, and both lines do what they say. */
static void more_steps_keep_the_rate_curve_or_stretch_it(void **state)
{
    static const char soon[] = "optimizer.warmup_steps=1";
    Lab *lab = *state;
    CHECK_EXIT(RUN(lab, "keep", "train", "../tiny.yaml", soon, "train.steps=4"), 0);
    CHECK_EXIT(RUN(lab, "stretch", "train", "../tiny.yaml", soon, "train.steps=4"), 0);
    CHECK_EXIT(RUN(lab, "eight", "train", "../tiny.yaml", soon, "train.steps=8"), 0);
    Outcome o = RUN(lab, "keep", "train", "../tiny.yaml", soon, "train.steps=8", "--resume");
    CHECK_REFUSED(o, 2, "\n  optimizer.decay_steps=4 keeps the curve, which ends at step 4\n");
    CHECK_SAYS(o.err, "\n  --change train.steps stretches the curve to step 8\n");
    o = RUN(lab, "keep", "train", "../tiny.yaml", soon, "train.steps=8", "optimizer.decay_steps=4",
            "--resume");
    CHECK_EXIT(o, 0);
    o = RUN(lab, "stretch", "train", "../tiny.yaml", soon, "train.steps=8", "--resume", "--change",
            "train.steps");
    CHECK_EXIT(o, 0);
    CHECK(rate_of(lab, "keep", 3) > rate_of(lab, "keep", 4));
    for (int step = 5; step <= 8; step++) {
        CHECK_NEAR(rate_of(lab, "keep", step), rate_of(lab, "keep", 4), 0);
        CHECK_NEAR(rate_of(lab, "stretch", step), rate_of(lab, "eight", step), 0);
    }
    CHECK(rate_of(lab, "eight", 5) > rate_of(lab, "keep", 5));
}

/* 8-bit copies of weights are in no checkpoint: they are made again, with the same bits. */
static void a_recipe_goes_on_bitwise_and_cannot_be_changed_on_the_way(void **state)
{
    static const char *const recipes[] = { "fp8.recipe=block", "fp8.recipe=row",
                                           "fp8.recipe=tensor" };
    static const char *const heads[] = { "fp8.head=true", "fp8.head=false", "fp8.head=false" };
    static const char until[] = "optimizer.decay_steps=4";
    Lab *lab = *state;
    for (int i = 0; i < 3; i++) {
        char whole[16], parts[16];
        (void)snprintf(whole, sizeof whole, "whole%d", i);
        (void)snprintf(parts, sizeof parts, "parts%d", i);
        CHECK_EXIT(
            RUN(lab, whole, "train", "../tiny.yaml", recipes[i], heads[i], until, "train.steps=4"),
            0);
        CHECK_EXIT(
            RUN(lab, parts, "train", "../tiny.yaml", recipes[i], heads[i], until, "train.steps=2"),
            0);
        Outcome o = RUN(lab, parts, "train", "../tiny.yaml", recipes[(i + 1) % 3],
                        heads[(i + 1) % 3], until, "train.steps=4", "--resume");
        CHECK_REFUSED(o, 2, "fp8.recipe");
        o = RUN(lab, parts, "train", "../tiny.yaml", recipes[i], heads[i], until, "train.steps=4",
                "--resume", "--change", "train.steps");
        CHECK_EXIT(o, 0);
        check_same_checkpoint(lab, whole, parts, 4);
    }
}

/* A large loss of a far prediction overflows f16 under the first scales: the checkpoint lies behind
 * skipped steps, and has the scale, its age and the number of skipped steps. */
static void a_scale_of_the_loss_goes_on_bitwise(void **state)
{
    static const char *const steps[] = { "train.steps=9", "train.steps=5" };
    static const char half[] = "run.compute=f16", far[] = "mtp.layers=1", large[] = "mtp.loss=100";
    static const char curve[] = "optimizer.decay_steps=9";
    Lab *lab = *state;
    for (int i = 0; i < 2; i++) {
        Outcome o = RUN(lab, i == 0 ? "whole" : "parts", "train", "../tiny.yaml", half, far, large,
                        curve, steps[i]);
        CHECK_EXIT(o, 0);
        CHECK_SAYS(o.err, " skipped");
    }
    Outcome o = RUN(lab, "parts", "train", "../tiny.yaml", half, far, large, curve, steps[0],
                    "--resume", "--change", "train.steps");
    CHECK_EXIT(o, 0);
    check_same_checkpoint(lab, "whole", "parts", 9);
    CHECK_SAYS(run_metrics(lab, "parts"), "\"loss_scale\":65536,\"skipped\":true");
}

/* The rates are those of the run without a break, and so are the limits: with 1.0001 times the mean about
 * each second norm is a spike, on both sides of the break. */
static void a_guard_and_a_curve_go_on_bitwise(void **state)
{
    static const char *const steps[] = { "train.steps=40", "train.steps=30" };
    static const char guard[] = "optimizer.skip_spikes=1.0001", wsd[] = "optimizer.schedule=wsd";
    static const char fall[] = "optimizer.decay=sqrt", length[] = "optimizer.decay_length=20";
    static const char end[] = "optimizer.decay_steps=40", soon[] = "optimizer.warmup_steps=2";
    Lab *lab = *state;
    for (int i = 0; i < 2; i++) {
        Outcome o = RUN(lab, i == 0 ? "calm" : "calm_parts", "train", "../tiny.yaml", guard, wsd,
                        fall, length, end, soon, steps[i]);
        CHECK_EXIT(o, 0);
        CHECK_SAYS(o.err, " is a spike and skipped: gradient norm ");
        CHECK_SAYS(o.err, " skipped\n");
    }
    Outcome o = RUN(lab, "calm_parts", "train", "../tiny.yaml", guard, wsd, fall, length, end, soon,
                    steps[0], "--resume");
    CHECK_EXIT(o, 0);
    check_same_checkpoint(lab, "calm", "calm_parts", 40);
    static const char manifest[] = "%s/run/checkpoints/step-0000000040/manifest.jsonl";
    char whole[FILE_PATH_MAX];
    (void)snprintf(whole, sizeof whole, "%s", lab_path(lab, manifest, "calm"));
    CHECK_SAYS(lab_read(lab, whole, NULL), "\"norm_steps\":40");
    CHECK(lab_same_files(lab, whole, lab_path(lab, manifest, "calm_parts")));
    CHECK_SAYS(run_metrics(lab, "calm"), "\"skipped\":true,\"norm_limit\":");
    CHECK_NEAR(rate_of(lab, "calm_parts", 20), 1e-3, 0);
    CHECK(rate_of(lab, "calm_parts", 21) < 1e-3);
    for (int step = 31; step <= 40; step++)
        CHECK_NEAR(rate_of(lab, "calm_parts", step), rate_of(lab, "calm", step), 0);
    o = RUN(lab, "calm", "train", "../tiny.yaml", "optimizer.skip_spikes=0.5");
    CHECK_REFUSED(o, 2, "optimizer.skip_spikes 0.5 must be above 1, or 0: steps are skipped whose");
}

/* Maxima of logits are those of a step: a checkpoint needs none. Two ranks share the state, on both
 * sides of the break. */
static void clipped_heads_go_on_bitwise(void **state)
{
    static const char clip[] = "optimizer.qk_clip=0.02", end[] = "optimizer.decay_steps=8";
    static const char muon[] = "optimizer.kind=muon", two[] = "--ranks=2",
                      lr[] = "optimizer.lr=0.1";
    Lab *lab = *state;
    Outcome o = RUN(lab, "qk", "train", "../tiny.yaml", two, clip, muon, end, lr, "train.steps=8");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.err, ", clipped heads ");
    o = RUN(lab, "qk2", "train", "../tiny.yaml", two, clip, muon, end, lr, "train.steps=5");
    CHECK_EXIT(o, 0);
    o = RUN(lab, "qk2", "train", "../tiny.yaml", two, clip, muon, end, lr, "train.steps=8",
            "--resume");
    CHECK_EXIT(o, 0);
    check_same_checkpoint(lab, "qk", "qk2", 8);
    CHECK_SAYS(run_metrics(lab, "qk"), "\"qk_logit\":");
    o = RUN(lab, "qk", "train", "../tiny.yaml", clip, "attention.kind=gqa", "attention.kv_heads=2",
            "attention.qk_norm=rms");
    CHECK_REFUSED(o, 2, "optimizer.qk_clip 0.02 scales the weights of queries and keys, which");
    o = RUN(lab, "qk3", "train", "../tiny.yaml", clip, "init.frozen=[\"*.0.*.kv_b_proj.*\"]");
    CHECK_REFUSED(o, 2, " of a layer together, and init.frozen names only one of them: name both");
}

/* The average is a part of the checkpoint. It begins when optimizer.ema is set; an evaluation takes it only
 * where that is asked for. */
static void an_average_of_weights_goes_on_bitwise(void **state)
{
    static const char ema[] = "optimizer.ema=0.8", end[] = "optimizer.decay_steps=9";
    static const char lr[] = "optimizer.lr=0.01", held[] = "data.validation=0.02";
    Lab *lab = *state;
    CHECK_EXIT(RUN(lab, "mean", "train", "../tiny.yaml", held, ema, end, lr, "train.steps=9"), 0);
    CHECK_EXIT(RUN(lab, "mean2", "train", "../tiny.yaml", held, ema, end, lr, "train.steps=4"), 0);
    Outcome o =
        RUN(lab, "mean2", "train", "../tiny.yaml", held, ema, end, lr, "train.steps=9", "--resume");
    CHECK_EXIT(o, 0);
    check_same_checkpoint(lab, "mean", "mean2", 9);
    CHECK_EXIT(RUN(lab, "no", "train", "../tiny.yaml", held, end, lr, "train.steps=4"), 0);
    CHECK_REFUSED(RUN(lab, "no", "eval", "run", "--average"), 2,
                  "has no average of weights, because its optimizer.ema is 0: leave out --average");
    o = RUN(lab, "no", "train", "../tiny.yaml", held, ema, end, lr, "train.steps=5", "--resume",
            "--change", "optimizer.ema");
    CHECK_EXIT(o, 0);
    Outcome plain = RUN(lab, "no", "eval", "run"),
            first = RUN(lab, "no", "eval", "run", "--average");
    CHECK_EXIT(plain, 0);
    CHECK_EXIT(first, 0);
    CHECK_TEXT(plain.out, first.out); /* a mean of one step's weights */
    /* the exported average, which is not the last step's weights */
    static const char text[] = "web=../web";
    CHECK_EXIT(RUN(lab, "mean", "convert", "to-hf", "run", "hf", "--average", "--dtype", "f32"), 0);
    CHECK_EXIT(RUN(lab, "mean", "convert", "from-hf", "hf", "back"), 0);
    plain = RUN(lab, "mean", "eval", "run", text);
    Outcome mean = RUN(lab, "mean", "eval", "run", text, "--average");
    Outcome back = RUN(lab, "mean", "eval", "back", text);
    CHECK_EXIT(back, 0);
    CHECK_TEXT(mean.out, back.out);
    CHECK(strcmp(plain.out, mean.out) != 0);
}

/* One command for all starts: a folder without a checkpoint, one with what a killed run was writing,
 * one with a checkpoint. */
static void resume_auto_begins_anew_where_there_is_no_checkpoint(void **state)
{
    Lab *lab = *state;
    const char *const again[] = { "train", "../tiny.yaml", "train.steps=3", "--resume=auto", NULL };
    Outcome o = RUN(lab, "auto", "train", "../tiny.yaml", "train.steps=3", "--resume");
    CHECK_REFUSED(o, 2, "--resume=auto, which then begins from the start");
    CHECK_OK(file_make_folders(lab_path(lab, "auto/run/checkpoints/step-0000000002.tmp")));
    lab_write_text(lab, lab_path(lab, "auto/run/checkpoints/step-0000000002.tmp/rank-00000.bin"),
                   "half");
    o = lab_run(lab, &(Launch){ .cell = "auto", .args = again });
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.err, "run/checkpoints has no checkpoint yet: training begins\n");
    CHECK(run_has_checkpoint(lab, "auto", 3));
    CHECK_EXIT(RUN(lab, "plain", "train", "../tiny.yaml", "train.steps=3"), 0);
    check_same_checkpoint(lab, "plain", "auto", 3);
    o = lab_run(lab, &(Launch){ .cell = "auto", .args = again });
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.err, "resumed from run/checkpoints/step-0000000003: step 3");
    o = RUN(lab, "auto", "train", "../tiny.yaml", "train.steps=3", "--resume=always");
    CHECK_REFUSED(o, 2, "--resume is \"always\", must be one of auto");
}

/* A damaged checkpoint is one all the same: to begin anew would throw it away. */
static void resume_auto_does_not_begin_anew_beside_a_damaged_checkpoint(void **state)
{
    Lab *lab = *state;
    CHECK_EXIT(RUN(lab, "bad", "train", "../tiny.yaml", "train.steps=2"), 0);
    lab_flip_byte(lab, lab_path(lab, "bad/run/checkpoints/step-0000000002/rank-00000.bin"), 5000);
    Outcome o = RUN(lab, "bad", "train", "../tiny.yaml", "train.steps=2", "--resume=auto");
    CHECK_REFUSED(o, 2, "there is no whole checkpoint to load");
}

/* The first start takes the weights, the next ones the run's own. */
static void resume_auto_and_init_stand_in_one_command(void **state)
{
    Lab *lab = *state;
    CHECK_EXIT(RUN(lab, "from", "train", "../tiny.yaml", "train.steps=1"), 0);
    for (int i = 0; i < 2; i++) {
        Outcome o = RUN(lab, "both", "train", "../tiny.yaml", "train.steps=2", "--init",
                        "../from/run", "--resume=auto");
        CHECK_EXIT(o, 0);
        CHECK_SAYS(o.err, i == 0 ? "init: weights of ../from/run/checkpoints/step-0000000001"
                                 : "resumed from run/checkpoints/step-0000000002");
    }
}

/* Weights change at step 2 and the run stops at 3; it ends as one that never stopped. */
static void a_changing_mix_goes_on_bitwise(void **state)
{
    static const char even[] = "data.sources=[{name: web, path: ../web, weight: 1}, {name: books, "
                               "path: ../books, weight: 1}]";
    static const char then[] = "data.curriculum=[\"2: books=3 web=1\", \"4: web=1\"]";
    static const char until[] = "optimizer.decay_steps=6";
    Lab *lab = *state;
    CHECK_EXIT(RUN(lab, "mixed", "train", "../tiny.yaml", even, then, until, "train.steps=6"), 0);
    CHECK_EXIT(RUN(lab, "stops", "train", "../tiny.yaml", even, then, until, "train.steps=3"), 0);
    Outcome o = RUN(lab, "stops", "train", "../tiny.yaml", even, then, until, "train.steps=6",
                    "--resume", "--change", "train.steps");
    CHECK_EXIT(o, 0);
    check_same_checkpoint(lab, "mixed", "stops", 6);
    /* 2 steps of 2 and 2 sequences, 2 of 1 and 3, 2 of 4 and 0 */
    CHECK_SAYS(run_metrics(lab, "stops"), "\"domain_tokens\":{\"web\":448,\"books\":320}");
}

/* Of the model, in the step that a run recorded last. */
static double recorded_flops(Lab *lab, const char *run)
{
    size_t size = 0;
    const char *path = lab_path(lab, "%s/run/recording/rank-00000.syr", run);
    const char *bytes = lab_read(lab, path, &size);
    static const char key[] = "\"micro_batches\":";
    const char *at = memmem(bytes, size, key, sizeof key - 1);
    CHECK(at != NULL && (at = strstr(at, "\"flops\":")) != NULL);
    return strtod(at + strlen("\"flops\":"), NULL);
}

/* 2 sequences, then 3, then 4; the run stops within the second size. The first step of a
 * size is recorded with that size. */
static void a_growing_batch_goes_on_bitwise(void **state)
{
    static const char ramp[] = "train.batch_ramp=[\"2: 2\", \"5: 3\"]";
    static const char until[] = "optimizer.decay_steps=7", one[] = "train.micro_batch=1";
    static const char seen[] = "run.trace_steps=[3,6]";
    static const char open[] =
        "attention.document_mask=false"; /* FLOPs follow the sequences alone */
    Lab *lab = *state;
    Outcome o = RUN(lab, "grows", "train", "../tiny.yaml", ramp, one, "train.steps=7", "--dry-run");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "2 up to step 2, 3 up to step 5, then 4; 672 tokens in 7 steps");
    o = RUN(lab, "grows", "train", "../tiny.yaml", ramp, one, until, "train.steps=7", seen, open);
    CHECK_EXIT(o, 0);
    o = RUN(lab, "paused", "train", "../tiny.yaml", ramp, one, until, "train.steps=3", seen, open);
    CHECK_EXIT(o, 0);
    double flops = recorded_flops(lab, "grows");
    CHECK(flops > 0 && fabs(recorded_flops(lab, "paused") / flops - 0.75) < 1e-6);
    o = RUN(lab, "paused", "train", "../tiny.yaml", ramp, one, until, "train.steps=7", seen, open,
            "--resume", "--change", "train.steps");
    CHECK_EXIT(o, 0);
    check_same_checkpoint(lab, "grows", "paused", 7);
    const char *metrics = run_metrics(lab, "grows");
    const char *const says[] = { "\"tokens\":64,", "\"tokens\":96,", "\"tokens\":128," };
    const int64_t steps[] = { 2, 3, 2 };
    for (int i = 0; i < 3; i++) {
        int64_t n = 0;
        for (const char *at = metrics; (at = strstr(at, says[i])) != NULL; at++) n++;
        CHECK_INT(n, steps[i]);
    }
    CHECK_SAYS(
        lab_read(lab, lab_path(lab, "paused/run/checkpoints/step-0000000003/manifest.jsonl"), NULL),
        "\"position\":7,");
    o = RUN(lab, "grows", "train", "../tiny.yaml", one, until, "train.steps=8", "--resume");
    CHECK_REFUSED(o, 2, "--change train.batch_ramp");
}

/* By name, in another order and with other weights: 6 and 2 sequences, then 2 and 6. */
static void sources_go_on_where_each_was(void **state)
{
    static const char before[] = "data.sources=[{name: web, path: ../web, weight: 3}, "
                                 "{name: books, path: ../books, weight: 1}]";
    static const char after[] = "data.sources=[{name: books, path: ../books, weight: 3}, "
                                "{name: web, path: ../web, weight: 1}]";
    Lab *lab = *state;
    Outcome o = RUN(lab, "swapped", "train", "../tiny.yaml", "train.steps=2", before);
    CHECK_EXIT(o, 0);
    o = RUN(lab, "swapped", "train", "../tiny.yaml", "train.steps=4", "--resume", "--change",
            "train.steps", "--change", "data.sources", after);
    CHECK_EXIT(o, 0);
    CHECK_SAYS(run_metrics(lab, "swapped"), "\"domain_tokens\":{\"books\":256,\"web\":256}");
    CHECK_SAYS(lab_read(lab,
                        lab_path(lab, "swapped/run/checkpoints/step-0000000002/manifest.jsonl"),
                        NULL),
               "\"taken\":{\"web\":6,\"books\":2}");
}

#define OWN_DATA                                                                                   \
    "data.sources=[{name: web, path: web}, {name: books, path: books}]", "checkpoint.every=2"
#define MORE "train.steps=6", "optimizer.decay_steps=4", "--resume"

/* A cell with shards of its own, trained for 4 steps. */
static void train_on_copies(Lab *lab, const char *cell)
{
    char line[256];
    snprintf(line, sizeof line, "cp ../web.bin ../web.idx ../books.bin ../books.idx .");
    Outcome o = SHELL(lab, cell, line);
    CHECK_EXIT(o, 0);
    o = RUN(lab, cell, "train", "../tiny.yaml", OWN_DATA, "train.steps=4",
            "optimizer.decay_steps=4");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(lab_read(lab,
                        lab_path(lab, "%s/run/checkpoints/step-0000000004/manifest.jsonl", cell),
                        NULL),
               "},\"data\":{\"web\":\"");
}

/* Other text; two ids exchanged. */
static void other_data_under_the_same_path_is_refused_unless_it_is_allowed(void **state)
{
    static const char *const change[] = {
        "cp web.bin books.bin; cp web.idx books.idx",
        "head -c 1400 ../books.bin | tail -c 2 > x; head -c 1402 ../books.bin | tail -c 2 > y; "
        "cat y x | dd of=books.bin bs=2 seek=699 conv=notrunc 2>x; ! cmp -s books.bin ../books.bin",
    };
    Lab *lab = *state;
    train_on_copies(lab, "data");
    for (size_t i = 0; i < sizeof change / sizeof *change; i++) {
        char line[512];
        snprintf(line, sizeof line, "cp ../books.bin ../books.idx .; %s", change[i]);
        Outcome o = SHELL(lab, "data", line);
        CHECK_EXIT(o, 0);
        o = RUN(lab, "data", "train", "../tiny.yaml", OWN_DATA, MORE);
        CHECK_REFUSED(o, 2,
                      "step-0000000004 was trained on other data of source books: put the files of "
                      "then at books, or allow what is there now with --change data.sources");
        o = RUN(lab, "data", "train", "../tiny.yaml", OWN_DATA, MORE, "--ranks", "2");
        CHECK_REFUSED(o, 2, "was trained on other data of source books");
        CHECK(!run_has_checkpoint(lab, "data", 6));
    }
    Outcome o = SHELL(lab, "data", "cp ../books.bin ../books.idx .");
    CHECK_EXIT(o, 0);
    o = RUN(lab, "data", "train", "../tiny.yaml", OWN_DATA, MORE, "--change", "data.sources");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.err, "resume: --change data.sources: it has not changed");
    o = SHELL(lab, "data", "cp web.bin books.bin; cp web.idx books.idx");
    CHECK_EXIT(o, 0);
    o = RUN(lab, "data", "train", "../tiny.yaml", OWN_DATA, "train.steps=8",
            "optimizer.decay_steps=4", "--resume", "--change", "data.sources");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.err, "resume: source books has other data than run/checkpoints/step-0000000006");
    CHECK_SAYS(o.err, "warning: data.sources: web and books have the same data");
    o = RUN(lab, "data", "train", "../tiny.yaml", OWN_DATA, "train.steps=9",
            "optimizer.decay_steps=4", "--resume");
    CHECK_EXIT(o, 0); /* the new data is that of the newest checkpoint */
}

/* The sums say that it is the same data. With other data the place is a change as before. */
static void data_that_lies_elsewhere_goes_on(void **state)
{
    static const char moved[] =
        "data.sources=[{name: web, path: far/web}, {name: books, path: far/books}]";
    static const char swapped[] =
        "data.sources=[{name: web, path: far/books}, {name: books, path: far/web}]";
    Lab *lab = *state;
    train_on_copies(lab, "moved");
    Outcome o = SHELL(lab, "moved", "mkdir far && mv web.* books.* far");
    CHECK_EXIT(o, 0);
    o = RUN(lab, "moved", "train", "../tiny.yaml", swapped, MORE);
    CHECK_EXIT(o, 2);
    CHECK_SAYS(o.err, "was trained with other mathematics or on other data: ");
    o = RUN(lab, "moved", "train", "../tiny.yaml", moved, MORE);
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.err, "resume: source web lies at far/web now: its data is the same");
    CHECK(strstr(o.err, "was trained on as") == NULL);
}

/* As older versions write. */
static void forget_sums(const char *folder, Arena *a)
{
    char path[FILE_PATH_MAX], member[256] = "", *text = NULL;
    size_t n = 0;
    CHECK_OK(file_join(path, folder, MANIFEST_NAME));
    CHECK_OK(file_read_all(path, a, &text, &n));
    const char *at = strstr(text, ",\"data\":{\"web\"");
    CHECK(at != NULL);
    snprintf(member, sizeof member, "%.*s", (int)(strchr(at, '}') + 1 - at), at);
    forge_text(folder, member, "");
}

static void a_checkpoint_without_sums_goes_on_with_a_word(void **state)
{
    Lab *lab = *state;
    train_on_copies(lab, "old");
    forget_sums(run_checkpoint(lab, "old", 2), &lab->arena);
    forget_sums(run_checkpoint(lab, "old", 4), &lab->arena);
    Outcome o = RUN(lab, "old", "eval", "run", "other=web");
    CHECK_EXIT(o, 0); /* then the run's own files are asked */
    CHECK_SAYS(o.err, "other is source web of the run: what was held out of it is measured");
    o = RUN(lab, "old", "train", "../tiny.yaml", OWN_DATA, MORE);
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.err, "step-0000000004 has no sums of its data, as it is of an older version");
}

/* What a renamed source held out is now trained on, and the other way round. */
static void a_renamed_source_is_said_to_have_been_trained_on(void **state)
{
    static const char now[] = "data.sources=[{name: pages, path: web}, {name: books, path: books}]";
    Lab *lab = *state;
    train_on_copies(lab, "renamed");
    Outcome o = RUN(lab, "renamed", "train", "../tiny.yaml", now, MORE, "--change", "data.sources");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.err, "warning: resume: the data of source pages was trained on as web");
    o = RUN(lab, "renamed", "train", "../tiny.yaml", now, "train.steps=1", "run.dir=next", "--init",
            "run/checkpoints/step-0000000004");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.err, "warning: init: the data of source pages was trained on as web");
    o = RUN(lab, "renamed", "train", "../tiny.yaml", OWN_DATA, "train.steps=1", "run.dir=same",
            "--init", "run/checkpoints/step-0000000004");
    CHECK_EXIT(o, 0);
    CHECK(strstr(o.err, "was trained on as") == NULL);
}

/* A killed run's copy in memory is newer than its checkpoint on disk. */
static void other_data_is_refused_by_copies_in_memory_too(void **state)
{
    Lab *lab = *state;
    char dir[FILE_PATH_MAX + 64];
    snprintf(dir, sizeof dir, "checkpoint.peer_dir=%s/shm", lab->folder);
    Outcome o = SHELL(lab, "memory", "cp ../web.bin ../web.idx ../books.bin ../books.idx .");
    CHECK_EXIT(o, 0);
    Child c = START(lab, "memory", "train", "../tiny.yaml", OWN_DATA, "checkpoint.every=50",
                    "checkpoint.peer=true", "checkpoint.peer_every=4", "train.steps=5000", dir);
    while (run_count_steps(lab, "memory") < 70 && child_runs(&c)) child_sleep();
    kill(c.pid, SIGKILL);
    (void)lab_wait(lab, &c);
    o = SHELL(lab, "memory", "cp web.bin books.bin; cp web.idx books.idx");
    CHECK_EXIT(o, 0);
    o = RUN(lab, "memory", "supervise", "../tiny.yaml", OWN_DATA, "checkpoint.every=50",
            "checkpoint.peer=true", "checkpoint.peer_every=4", "train.steps=5000", dir, "--",
            "--ranks", "1");
    CHECK_EXIT(o, 2);
    CHECK_SAYS(o.err, "is not taken: ");
    CHECK_SAYS(o.err, "was trained on other data of source books");
}

/* What reads a checkpoint on one rank has no stages: neither its layout nor its schedule counts. */
static void a_checkpoint_of_stages_is_evaluated_on_one_rank(void **state)
{
    Lab *lab = *state;
    Outcome o =
        RUN(lab, "stages", "train", "../tiny.yaml", "--ranks", "2", "train.steps=1", "mesh.pp=2",
            "mesh.vpp=2", "mesh.schedule=zbv", "mesh.layout=Et|t||L", "model.layers=2");
    CHECK_EXIT(o, 0);
    o = RUN(lab, "stages", "eval", "run", "web=../web");
    CHECK_EXIT(o, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LAB_TEST(more_steps_keep_the_rate_curve_or_stretch_it),
        LAB_TEST(a_recipe_goes_on_bitwise_and_cannot_be_changed_on_the_way),
        LAB_TEST(a_scale_of_the_loss_goes_on_bitwise),
        LAB_TEST(a_guard_and_a_curve_go_on_bitwise),
        LAB_TEST(clipped_heads_go_on_bitwise),
        LAB_TEST(an_average_of_weights_goes_on_bitwise),
        LAB_TEST(a_changing_mix_goes_on_bitwise),
        LAB_TEST(sources_go_on_where_each_was),
        LAB_TEST(a_growing_batch_goes_on_bitwise),
        LAB_TEST(other_data_under_the_same_path_is_refused_unless_it_is_allowed),
        LAB_TEST(data_that_lies_elsewhere_goes_on),
        LAB_TEST(a_checkpoint_without_sums_goes_on_with_a_word),
        LAB_TEST(a_renamed_source_is_said_to_have_been_trained_on),
        LAB_TEST(other_data_is_refused_by_copies_in_memory_too),
        LAB_TEST(a_checkpoint_of_stages_is_evaluated_on_one_rank),
        LAB_TEST(resume_auto_begins_anew_where_there_is_no_checkpoint),
        LAB_TEST(resume_auto_does_not_begin_anew_beside_a_damaged_checkpoint),
        LAB_TEST(resume_auto_and_init_stand_in_one_command),
    };
    return LAB_RUN_ALL(tests);
}
