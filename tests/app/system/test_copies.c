/* checkpoint.peer in the program: memory without room, plans, settings that do not fit, runs that fail. Restarts are in
 * test_supervise.c and tests/engine/mpi/test_mpi_peer.c. */
#include "harness/run_folder.h"

static void memory_without_room_is_a_warning_and_the_disk_has_checkpoints(void **state)
{
    Lab *lab = *state;
    Outcome o = ON_SMALL_DISK(
        lab, "full",
        "\"$0\" train ../tiny.yaml train.steps=6 checkpoint.every=3 checkpoint.peer=true "
        "checkpoint.peer_every=2 checkpoint.peer_dir=$PWD/disk mesh.ep=2 train.micro_batch=1 "
        "--ranks 2 || exit 1; find disk");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.err, "warning: checkpoint.peer: no checkpoint is kept in memory: ");
    CHECK_SAYS(o.err, "rank-00000.bin cannot be made with ");
    CHECK_SAYS(o.err, " bytes: No space left on device");
    CHECK(strstr(o.out, "disk/switchyard-") == NULL);
    CHECK(run_has_checkpoint(lab, "full", 3) && run_has_checkpoint(lab, "full", 6));
}

static void a_dry_run_shows_the_memory_of_copies(void **state)
{
    Lab *lab = *state;
    Outcome o = RUN(lab, "plan", "train", "../tiny.yaml", "--dry-run");
    CHECK_EXIT(o, 0);
    CHECK(strstr(o.out, "\n  peer ") == NULL);
    o = RUN(lab, "plan", "train", "../tiny.yaml", "checkpoint.peer=true", "--dry-run");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "\n  peer ");
}

static void settings_that_contradict_copies_are_refused(void **state)
{
    Lab *lab = *state;
    Outcome o = RUN(lab, "bad", "train", "../tiny.yaml", "checkpoint.peer_every=5");
    CHECK_REFUSED(o, 2, "checkpoint.peer_every=5 makes checkpoints in memory");
    o = RUN(lab, "bad", "train", "../tiny.yaml", "checkpoint.peer=true", "checkpoint.async=false");
    CHECK_REFUSED(o, 2, "checkpoint.peer needs checkpoint.async=true");
    o = RUN(lab, "bad", "train", "../tiny.yaml", "checkpoint.peer=true", "checkpoint.peer_dir=shm");
    CHECK_REFUSED(o, 2, "checkpoint.peer_dir \"shm\" does not begin with /");
}

/* The weights grow until a loss is not finite. */
static void after_a_failure_copies_stay_and_the_log_says_where(void **state)
{
    Lab *lab = *state;
    Outcome o = SHELL(lab, "nan",
                      "exec \"$0\" train ../tiny.yaml checkpoint.peer=true checkpoint.peer_every=1 "
                      "checkpoint.peer_dir=$PWD/shm optimizer.lr=100 optimizer.min_lr=100 "
                      "train.clip_norm=0 optimizer.weight_decay=10");
    CHECK_EXIT(o, 3);
    CHECK_SAYS(o.err, " stays in memory until the run goes on: ");
    o = SHELL(lab, "nan", "ls shm/switchyard-*/*/rank-00000/?/manifest.jsonl");
    CHECK_EXIT(o, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LAB_TEST(memory_without_room_is_a_warning_and_the_disk_has_checkpoints),
        LAB_TEST(a_dry_run_shows_the_memory_of_copies),
        LAB_TEST(settings_that_contradict_copies_are_refused),
        LAB_TEST(after_a_failure_copies_stay_and_the_log_says_where),
    };
    return cmocka_run_group_tests(tests, lab_open, lab_close);
}
