/* What goes wrong while running: damaged checkpoints, full disks, numbers that are not finite. The
 * last good checkpoint is never lost, and what happened is named. */
#include "harness/forge.h"
#include "harness/run_folder.h"

#include <float.h>
#include <sched.h>
#include <sys/mount.h>

/* A run of 6 steps with checkpoints after 2, 4 and 6, of which 4 and 6 are kept. */
static const char *const six_steps[] = { "train", "../tiny.yaml", "train.steps=6",
                                         "checkpoint.every=2", NULL };
static const char *const six_steps_more[] = { "train",         "../tiny.yaml",
                                              "train.steps=6", "checkpoint.every=2",
                                              "--resume",      NULL };

static void run_whole(Lab *lab)
{
    if (file_exists(lab_path(lab, "whole"))) return;
    Outcome o = lab_run(lab, &(Launch){ .cell = "whole", .args = six_steps });
    CHECK_EXIT(o, 0);
    CHECK(!run_has_checkpoint(lab, "whole", 2));
    CHECK(run_has_checkpoint(lab, "whole", 4) && run_has_checkpoint(lab, "whole", 6));
}

/* The same run again in `cell`, whose files a test may spoil. */
static const char *fresh_run(Lab *lab, const char *cell, const char *file)
{
    run_whole(lab);
    CHECK_OK(file_remove_tree(lab_path(lab, "%s", cell)));
    Outcome o = lab_run(lab, &(Launch){ .cell = cell, .args = six_steps });
    CHECK_EXIT(o, 0);
    return lab_path(lab, "%s/run/checkpoints/step-0000000006/%s", cell, file);
}

/* ---- damaged checkpoints ---- */

/* The newest checkpoint is damaged: resume says so and goes on from the one before to the same
 * bits; asked for directly, it is refused. */
static void check_falls_back(Lab *lab, const char *cell, const char *says)
{
    Outcome direct =
        RUN(lab, cell, "generate", "run/checkpoints/step-0000000006", "--prompt", "ba");
    CHECK_REFUSED(direct, 2, says);
    CHECK_SAYS(direct.err, "run/checkpoints/step-0000000006");
    Outcome o = lab_run(lab, &(Launch){ .cell = cell, .args = six_steps_more });
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.err, "warning: checkpoint run/checkpoints/step-0000000006 is damaged: ");
    CHECK_SAYS(o.err, says);
    CHECK_SAYS(o.err, "resumed from run/checkpoints/step-0000000004: step 4, 16 sequences read");
    check_same_checkpoint(lab, "whole", cell, 4);
    check_same_checkpoint(lab, "whole", cell, 6);
    check_same_steps(lab, "whole", cell, 1, 6);
}

static void a_flipped_byte_in_the_weights_is_found(void **state)
{
    Lab *lab = *state;
    const char *path = fresh_run(lab, "flipped", "rank-00000.bin");
    lab_flip_byte(lab, path, 100000);
    check_falls_back(lab, "flipped", "rank-00000.bin: the bytes of model.");
}

static void a_truncated_file_of_weights_is_found(void **state)
{
    Lab *lab = *state;
    const char *path = fresh_run(lab, "truncated", "rank-00000.bin");
    lab_truncate(lab, path, 600000);
    check_falls_back(lab, "truncated", "rank-00000.bin ends at byte");
}

static void a_missing_file_of_weights_is_found(void **state)
{
    Lab *lab = *state;
    const char *path = fresh_run(lab, "weightless", "rank-00000.bin");
    CHECK_OK(file_remove_tree(path));
    check_falls_back(lab, "weightless", "rank-00000.bin cannot be read");
}

static void a_flipped_byte_in_the_manifest_is_found(void **state)
{
    Lab *lab = *state;
    const char *path = fresh_run(lab, "manifest", "manifest.jsonl");
    lab_flip_byte(lab, path, 2000);
    check_falls_back(lab, "manifest", "manifest.jsonl is not whole");
}

static void a_truncated_manifest_is_found(void **state)
{
    Lab *lab = *state;
    const char *path = fresh_run(lab, "short", "manifest.jsonl");
    lab_truncate(lab, path, 100);
    check_falls_back(lab, "short", "manifest.jsonl is not whole");
}

static void a_missing_manifest_is_found(void **state)
{
    Lab *lab = *state;
    const char *path = fresh_run(lab, "headless", "manifest.jsonl");
    CHECK_OK(file_remove_tree(path));
    Outcome o = lab_run(lab, &(Launch){ .cell = "headless", .args = six_steps_more });
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.err, "checkpoint run/checkpoints/step-0000000006 is damaged");
    CHECK_SAYS(o.err, "manifest.jsonl cannot be read");
    check_same_checkpoint(lab, "whole", "headless", 6);
}

static void without_any_whole_checkpoint_resume_is_refused_and_changes_nothing(void **state)
{
    Lab *lab = *state;
    lab_flip_byte(lab, fresh_run(lab, "none", "rank-00000.bin"), 5000);
    const char *older = lab_path(lab, "none/run/checkpoints/step-0000000004/manifest.jsonl");
    lab_truncate(lab, older, 1);
    Outcome o = lab_run(lab, &(Launch){ .cell = "none", .args = six_steps_more });
    CHECK_EXIT(o, 2);
    CHECK_SAYS(o.err, "error: run/checkpoints: there is no whole checkpoint to load");
    CHECK(run_has_checkpoint(lab, "none", 4) && run_has_checkpoint(lab, "none", 6));
}

static void what_a_killed_run_was_writing_is_removed(void **state)
{
    Lab *lab = *state;
    fresh_run(lab, "unfinished", "");
    const char *folder = lab_path(lab, "unfinished/run/checkpoints/step-0000000005.tmp");
    CHECK_OK(file_make_folders(folder));
    lab_write_text(lab, lab_path(lab, "unfinished/run/checkpoints/step-0000000005.tmp/x"), "half");
    Outcome o = lab_run(lab, &(Launch){ .cell = "unfinished", .args = six_steps_more });
    CHECK_EXIT(o, 0);
    CHECK(!file_exists(folder));
    CHECK(run_has_checkpoint(lab, "unfinished", 6));
}

static void half_a_line_of_metrics_does_not_swallow_the_next(void **state)
{
    Lab *lab = *state;
    fresh_run(lab, "line", "");
    const char *path = lab_path(lab, "line/run/metrics.jsonl");
    lab_truncate(lab, path, 10);
    Outcome o = RUN(lab, "line", "train", "../tiny.yaml", "train.steps=8",
                    "optimizer.decay_steps=6", "--resume");
    CHECK_EXIT(o, 0);
    const char *text = lab_read(lab, path, NULL);
    CHECK_SAYS(text, "\n{\"kind\":\"start\"");
    int starts = 0;
    for (const char *at = text; (at = strstr(at, "\n{\"kind\":\"start\"")) != NULL; at++) starts++;
    CHECK_INT(starts, 1); /* the second one; the first begins the file */
    CHECK_SAYS(text, "\n{\"kind\":\"step\",\"step\":8,");
}

/* ---- full disks ---- */

static void check_full_disk(Lab *lab, const char *cell, Outcome o)
{
    CHECK_REFUSED(o, 3, "checkpoint of step 6: ");
    CHECK_SAYS(o.err, "bytes were to be written");
    CHECK_SAYS(o.err, "older checkpoints are untouched");
    CHECK(!run_has_checkpoint(lab, cell, 6));
    CHECK(!file_exists(lab_path(lab, "%s/run/checkpoints/step-0000000006.tmp", cell)));
    o = lab_run(lab, &(Launch){ .cell = cell, .args = six_steps_more });
    CHECK_EXIT(o, 0);
    check_same_checkpoint(lab, "whole", cell, 6);
    check_same_steps(lab, "whole", cell, 1, 6);
}

/* A run whose files may not grow to the size of a checkpoint. */
static void a_file_that_may_not_grow_fails_the_save_and_keeps_the_old_checkpoint(void **state)
{
    Lab *lab = *state;
    fresh_run(lab, "limit", "");
    CHECK_OK(file_remove_tree(lab_path(lab, "limit/run/checkpoints/step-0000000006")));
    Outcome o =
        lab_run(lab, &(Launch){ .cell = "limit", .args = six_steps_more, .file_limit = 100000 });
    CHECK_SAYS(o.err, "File too large");
    check_full_disk(lab, "limit", o);
}

/* A file system of 2 MB: two checkpoints fit, the third does not. It is this process' own, so it
 * goes with it. */
static void a_full_disk_fails_the_save_and_keeps_the_old_checkpoint(void **state)
{
    Lab *lab = *state;
    run_whole(lab);
    const char *disk = lab_path(lab, "disk/run");
    CHECK_OK(file_make_folders(disk));
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("none", disk, "tmpfs", 0, "size=2m") != 0) {
        print_message("skip: mounting a small file system is not permitted\n");
        skip();
    }
    Outcome o = lab_run(lab, &(Launch){ .cell = "disk", .args = six_steps });
    CHECK(run_has_checkpoint(lab, "disk", 2) && run_has_checkpoint(lab, "disk", 4));
    check_same_checkpoint(lab, "whole", "disk", 4);
    CHECK_REFUSED(o, 3, "No space left on device");
    CHECK_OK(file_remove_tree(lab_path(lab, "disk/run/checkpoints/step-0000000002")));
    check_full_disk(lab, "disk", o);
}

static int unmount(void **state)
{
    umount2(lab_path(*state, "disk/run"), MNT_DETACH);
    return 0;
}

/* ---- numbers that are not finite ---- */

static void a_nan_names_step_layer_and_op_and_keeps_the_checkpoint(void **state)
{
    Lab *lab = *state;
    Outcome o = RUN(lab, "nan", "train", "../tiny.yaml", "optimizer.lr=100", "optimizer.min_lr=100",
                    "optimizer.weight_decay=10", "train.clip_norm=0", "checkpoint.every=1");
    CHECK_EXIT(o, 3);
    int step = 0, layer = -1, steps = run_count_steps(lab, "nan");
    char op[64] = "", wrote[64] = "";
    const char *error = strstr(o.err, "error: ");
    CHECK(error != NULL && one_sentence(error));
    CHECK_INT(
        sscanf(error, "error: step %d, layer %d: %63s wrote %63s into", &step, &layer, op, wrote),
        4);
    CHECK(step > 1 && step <= 40);
    CHECK(layer >= 0 && layer < 3);
    CHECK(strstr(op, "_fwd") != NULL || strstr(op, "_bwd") != NULL);
    CHECK(strstr(wrote, "nan") != NULL || strstr(wrote, "inf") != NULL);
    CHECK_INT(steps, step - 1);
    CHECK(run_has_checkpoint(lab, "nan", step - 1));
    Outcome again = RUN(lab, "nan", "train", "../tiny.yaml", "optimizer.lr=1e-5",
                        "optimizer.min_lr=0", "train.clip_norm=0", "optimizer.weight_decay=10",
                        "--resume", "--change", "optimizer.lr", "--change", "optimizer.min_lr");
    CHECK_SAYS(again.err, "resumed from run/checkpoints/");
}

static const char EMBED[] = "model.embed_tokens.weight";

/* Both moments are finite, but what AdamW makes of them is not: the last good checkpoint stays
 * although one is kept and one is written after every step. */
static void an_update_that_spoils_a_weight_is_not_saved_and_named(void **state)
{
    Lab *lab = *state;
    const char *newest = fresh_run(lab, "moment", "");
    forge_number(newest, EMBED, BUF_OPTIMIZER, 3, FLT_MAX);
    Outcome o =
        RUN(lab, "moment", "train", "../tiny.yaml", "train.steps=12", "train.log_every=1",
            "optimizer.decay_steps=6", "checkpoint.every=1", "checkpoint.keep=1", "--resume");
    CHECK_EXIT(o, 3);
    CHECK_SAYS(o.err, "error: checkpoint of step 7: adamw, in step 7 or before, left "
                      "model.embed_tokens.weight (main) with -inf at element 3");
    CHECK_SAYS(o.err, "older checkpoints are untouched");
    CHECK(run_has_checkpoint(lab, "moment", 6) && !run_has_checkpoint(lab, "moment", 7));
}

/* Of a run that an older program spoiled. */
static void a_checkpoint_that_is_not_finite_is_refused_by_all_who_read_it(void **state)
{
    Lab *lab = *state;
    const char *newest = fresh_run(lab, "spoiled", "");
    const char *says = "holds model.embed_tokens.weight (main) with nan at element 0";
    forge_number(newest, EMBED, BUF_MAIN, 0, NAN);
    lab_write(lab, lab_path(lab, "spoiled/tokens"), (int32_t[]){ 5, 6, 7 }, 12);
    CHECK_REFUSED(RUN(lab, "spoiled", "eval", "run"), 3, says);
    CHECK_REFUSED(RUN(lab, "spoiled", "eval", "run", "hellaswag"), 2,
                  "eval: there is no hellaswag.idx: eval measures the loss on held-out text");
    CHECK_REFUSED(RUN(lab, "spoiled", "generate", "run", "--prompt", "ba"), 3, says);
    CHECK_REFUSED(RUN(lab, "spoiled", "logits", "run", "tokens", "out"), 3, says);
    CHECK_REFUSED(RUN(lab, "spoiled", "train", "../tiny.yaml", "run.dir=b", "--init", "run"), 3,
                  says);
    Outcome o = lab_run(lab, &(Launch){ .cell = "spoiled", .args = six_steps_more });
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.err, "warning: checkpoint run/checkpoints/step-0000000006 is unusable: ");
    CHECK_SAYS(o.err, "resumed from run/checkpoints/step-0000000004");
    check_same_checkpoint(lab, "whole", "spoiled", 6);
}

/* Weights that are finite, and a model that is not. */
static void a_loss_or_a_logit_that_is_not_finite_is_an_error(void **state)
{
    Lab *lab = *state;
    const char *newest = fresh_run(lab, "huge", "");
    for (int i = 0; i < 32; i++) {
        forge_number(newest, "model.norm.weight", BUF_MAIN, i, i % 2 == 0 ? FLT_MAX : -FLT_MAX);
    }
    lab_write(lab, lab_path(lab, "huge/tokens"), (int32_t[]){ 5, 6, 7 }, 12);
    CHECK_REFUSED(RUN(lab, "huge", "eval", "run"), 3, "the held-out loss of web is ");
    CHECK_REFUSED(RUN(lab, "huge", "generate", "run", "--prompt", "ba"), 3, "the logit of id ");
    CHECK_REFUSED(RUN(lab, "huge", "logits", "run", "tokens", "out"), 3, "the logit of id ");
    CHECK(!file_exists(lab_path(lab, "huge/out")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LAB_TEST(a_flipped_byte_in_the_weights_is_found),
        LAB_TEST(a_truncated_file_of_weights_is_found),
        LAB_TEST(a_missing_file_of_weights_is_found),
        LAB_TEST(a_flipped_byte_in_the_manifest_is_found),
        LAB_TEST(a_truncated_manifest_is_found),
        LAB_TEST(a_missing_manifest_is_found),
        LAB_TEST(without_any_whole_checkpoint_resume_is_refused_and_changes_nothing),
        LAB_TEST(what_a_killed_run_was_writing_is_removed),
        LAB_TEST(half_a_line_of_metrics_does_not_swallow_the_next),
        LAB_TEST(a_file_that_may_not_grow_fails_the_save_and_keeps_the_old_checkpoint),
        cmocka_unit_test_setup_teardown(a_full_disk_fails_the_save_and_keeps_the_old_checkpoint,
                                        lab_forget, unmount),
        LAB_TEST(a_nan_names_step_layer_and_op_and_keeps_the_checkpoint),
        LAB_TEST(an_update_that_spoils_a_weight_is_not_saved_and_named),
        LAB_TEST(a_checkpoint_that_is_not_finite_is_refused_by_all_who_read_it),
        LAB_TEST(a_loss_or_a_logit_that_is_not_finite_is_an_error),
    };
    return LAB_RUN_ALL(tests);
}
