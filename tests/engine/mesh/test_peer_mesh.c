/* Checkpoints in memory over ranks, as threads on two hosts that are names: a lost host's parts come from its
 * neighbours to the bit, whatever is damaged, stale or unfinished is not taken, and the disk remains. */
#include "harness/catch.h"
#include "harness/checkpoint_ranks.h"

#include "engine/base/file.h"
#include "engine/checkpoint/peer.h"

#include <stdlib.h>
#include <unistd.h>

static char place[64], shm[128];

#define PEER "checkpoint.peer=true", shm
static ManyCase four = { .ranks = 4, .settings = { PEER, "mesh.zero=2", "run.compute=bf16" } };
static ManyCase experts = { .ranks = 4, .settings = { PEER, "mesh.zero=3", "mesh.ep=2" } };
static ManyCase replicas = { .ranks = 4, .settings = { PEER, "mesh.zero=3", "mesh.shard=2" } };
static ManyCase stages = { .ranks = 4, .settings = { PEER, "mesh.pp=2", "mesh.zero=1" } };
static ManyCase two = { .ranks = 2, .settings = { PEER, "mesh.zero=1" } };
static ManyCase one = { .ranks = 1, .settings = { PEER } };

static int make_place(void **state)
{
    (void)state;
    (void)snprintf(place, sizeof place, "/tmp/switchyard_test_XXXXXX");
    if (mkdtemp(place) == NULL) return 1;
    (void)snprintf(shm, sizeof shm, "checkpoint.peer_dir=%s/shm", place);
    return 0;
}

static int remove_place(void **state)
{
    (void)state;
    return file_remove_tree(place) != OK;
}

#define PLACE_TEST(name) cmocka_unit_test_setup_teardown(name, make_place, remove_place)

/* Half of the ranks are on each host. */
static const char *host_of_rank(const Rank *r)
{
    return r->world->rank < (r->world->size + 1) / 2 ? "ha" : "hb";
}

/* A shell command in the folder of copies; $C is the run's folder there. */
static void in_copies(const char *command)
{
    char line[512];
    (void)snprintf(line, sizeof line, "cd %s/shm && C=$(echo switchyard-*) && %s", place, command);
    /* NOLINTNEXTLINE(cert-env33-c): a test */
    if (system(line) != 0) fail_msg("%s", line);
}

static Status open_run(Rank *r, bool resume)
{
    TRY(checkpointer_open(&r->saver, &r->t->config, &r->t->engine.params, &r->t->arena));
    return checkpoint_find_copy(&r->saver, resume, host_of_rank(r));
}

static Status save_copy(Rank *r, int64_t step)
{
    put_state(&r->t->engine, step);
    TRY(checkpoint_save_copy(&r->saver, step, (uint64_t)step * 4));
    put_state(&r->t->engine, -step);
    return checkpoint_finish(&r->saver);
}

/* Step 1 on disk, 2 and 3 in memory alone. */
static Status save_three(Rank *r)
{
    TRY(open_run(r, false));
    EXPECT(checkpoint_copy_step(&r->saver) < 0);
    TRY(checkpoint_open_copies(&r->saver, 0));
    TRY(save_step(r, 1));
    TRY(save_copy(r, 2));
    return save_copy(r, 3);
}

static Status expect_copy(Rank *r, int64_t step)
{
    CheckpointInfo info;
    TRY(open_run(r, true));
    EXPECT(checkpoint_copy_step(&r->saver) == step);
    put_state(&r->t->engine, 100);
    TRY(checkpoint_load_copy(&r->saver, NULL, &r->scratch, &info));
    EXPECT(info.step == step && info.position == (uint64_t)step * 4);
    TRY(expect_state(&r->t->engine, step));
    return checkpoint_open_copies(&r->saver, step);
}

static Status expect_copy_two(Rank *r) { return expect_copy(r, 2); }
static Status expect_copy_three(Rank *r) { return expect_copy(r, 3); }

static Status expect_no_copy(Rank *r)
{
    TRY(open_run(r, true));
    EXPECT(checkpoint_copy_step(&r->saver) < 0);
    return expect_loaded(r, 1);
}

#define SAVED(mesh)        RUN_CASE(.layout = &(mesh), .dir = place, .body = save_three)
#define LOADED(mesh, what) RUN_CASE(.layout = &(mesh), .dir = place, .body = (what))

static void copies_come_back_to_the_bit(void **state)
{
    const ManyCase *const meshes[] = { &four, &experts, &replicas, &stages, &two, &one };
    (void)state;
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
        SAVED(*meshes[i]);
        LOADED(*meshes[i], expect_copy_three);
        CHECK_OK(file_remove_tree(place));
    }
}

static void a_lost_host_s_parts_come_from_the_other(void **state)
{
    ManyCase *const meshes[] = { &four, &experts, &stages, &two };
    (void)state;
    for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
        SAVED(*meshes[i]);
        in_copies("rm -r $C/hb");
        LOADED(*meshes[i], expect_copy_three);
        in_copies("test -z \"$(ls -d $C/*/load-* 2>/dev/null)\"");
        CHECK_OK(file_remove_tree(place));
    }
}

/* Both hosts then have all parts again: the first copy behind the start refills the empty host. */
static Status save_four_again(Rank *r)
{
    TRY(expect_copy(r, 3));
    TRY(save_copy(r, 4));
    return OK;
}

static Status expect_copy_four(Rank *r) { return expect_copy(r, 4); }

static void after_a_restart_the_other_host_may_be_lost(void **state)
{
    (void)state;
    SAVED(four);
    in_copies("rm -r $C/hb");
    LOADED(four, save_four_again);
    in_copies("rm -r $C/ha");
    LOADED(four, expect_copy_four);
}

static void a_damaged_part_is_taken_from_its_copy(void **state)
{
    (void)state;
    SAVED(four);
    in_copies("for f in $C/ha/rank-00001/?/rank-00001.bin; do printf x | "
              "dd of=$f bs=1 seek=999 conv=notrunc status=none; done");
    catch_begin();
    LOADED(four, expect_copy_three);
    catch_end();
    CHECK(strstr(caught, "warning: a copy in memory is damaged: ") != NULL);
    CHECK(strstr(caught, "rank-00001.bin: the bytes of ") != NULL);
}

static void a_part_that_is_damaged_everywhere_costs_the_step(void **state)
{
    (void)state;
    SAVED(four);
    in_copies("for f in $(grep -l '\"step\":3,' $C/*/*/*/manifest.jsonl); do printf x | dd "
              "of=$(dirname $f)/rank-00001.bin bs=1 seek=999 conv=notrunc status=none; done");
    catch_begin();
    LOADED(four, expect_copy_two);
    catch_end();
    in_copies("rm $C/*/*/*/manifest.jsonl");
    LOADED(four, expect_no_copy);
}

static Status begin(Rank *r, int64_t step)
{
    put_state(&r->t->engine, step);
    return checkpoint_save_copy(&r->saver, step, (uint64_t)step * 4);
}

/* The processes end while step 4 is on its way: its slots are those of step 2. */
static Status begin_four(Rank *r)
{
    TRY(expect_copy(r, 3));
    return begin(r, 4);
}

static Status begin_five(Rank *r)
{
    TRY(expect_copy(r, 3));
    TRY(save_copy(r, 4));
    return begin(r, 5);
}

static void an_unfinished_copy_leaves_the_one_before(void **state)
{
    (void)state;
    SAVED(four);
    LOADED(four, begin_four);
    LOADED(four, expect_copy_three);
    LOADED(four, begin_five);
    LOADED(four, expect_copy_four);
}

static void another_mesh_loads_them_too(void **state)
{
    (void)state;
    SAVED(four);
    LOADED(two, expect_copy_three);
    CHECK_OK(file_remove_tree(place));
    SAVED(two);
    LOADED(experts, expect_copy_three);
}

/* Goes on from the disk though copies are newer, as after a load that failed. */
static Status go_on_from_disk(Rank *r)
{
    TRY(open_run(r, true));
    EXPECT(checkpoint_copy_step(&r->saver) == 3);
    TRY(expect_loaded(r, 1));
    return checkpoint_open_copies(&r->saver, 1);
}

static void copies_of_steps_that_were_abandoned_are_not_taken(void **state)
{
    (void)state;
    SAVED(four);
    LOADED(four, go_on_from_disk);
    LOADED(four, expect_no_copy);
}

static Status begin_anew(Rank *r) { return open_run(r, false); }

static void copies_of_another_run_are_not_taken(void **state)
{
    (void)state;
    SAVED(four);
    CHECK_OK(file_remove_tree(shm + strlen("checkpoint.peer_dir="))); /* as on new hosts */
    LOADED(four, expect_no_copy);
    CHECK_OK(file_remove_tree(place));
    SAVED(four);
    char checkpoints[128];
    (void)snprintf(checkpoints, sizeof checkpoints, "%s/checkpoints", place);
    CHECK_OK(file_remove_tree(checkpoints));
    LOADED(four, begin_anew); /* another run in the same folder */
    in_copies("test -z \"$(ls -d switchyard-*/*/rank-* 2>/dev/null)\"");
}

/* The start is refused later: it must not cost the copies of the run that is there. */
static void a_start_without_resume_keeps_copies(void **state)
{
    (void)state;
    SAVED(four);
    LOADED(four, begin_anew);
    LOADED(four, expect_copy_three);
}

static Status save_to_disk_alone(Rank *r)
{
    TRY(open_run(r, false));
    TRY(checkpoint_open_copies(&r->saver, 0));
    EXPECT(!r->saver.peer.open);
    TRY(save_copy(r, 2));
    return save_step(r, 1);
}

/* Nobody can make a folder there. */
static void without_room_the_run_goes_on_with_the_disk(void **state)
{
    (void)state;
    (void)snprintf(shm, sizeof shm, "checkpoint.peer_dir=/proc/nowhere");
    catch_begin();
    LOADED(four, save_to_disk_alone);
    catch_end();
    CHECK(strstr(caught, "warning: checkpoint.peer: no checkpoint is kept in memory: ") != NULL);
    LOADED(four, expect_no_copy);
}

static Status save_and_end(Rank *r)
{
    TRY(save_three(r));
    checkpoint_give_back(&r->saver);
    return OK;
}

static void at_the_end_nothing_stays(void **state)
{
    (void)state;
    LOADED(four, save_and_end);
    in_copies("test -z \"$(ls)\"");
}

/* The same bytes as on disk, in both places. */
static Status save_both(Rank *r)
{
    TRY(open_run(r, false));
    TRY(checkpoint_open_copies(&r->saver, 0));
    return save_step(r, 1);
}

static void a_copy_has_the_bytes_of_the_checkpoint_on_disk(void **state)
{
    (void)state;
    LOADED(four, save_both);
    in_copies("test $(ls $C/*/*/?/rank-*.bin | wc -l) = 16 && "
              "for f in $C/*/*/*/manifest.jsonl; do for g in $(dirname $f)/*; do "
              "cmp $g ../checkpoints/step-0000000001/$(basename $g) || exit 1; done; done");
}

/* What plans count is what files take: all parts are alike but for some small parameters. */
static Status compare_with_plan(Rank *r)
{
    size_t planned = 0, slots = 0;
    TRY(save_both(r));
    (void)checkpoint_plan_bytes(&r->t->engine.params, &planned);
    for (int i = 0; i < PEER_SLOTS; i++)
        slots += r->saver.peer.slot[i].own.bytes + r->saver.peer.slot[i].theirs.bytes;
    EXPECT(planned == 4 * r->saver.bytes);
    EXPECT((double)slots > 0.5 * (double)planned && (double)slots < 2 * (double)planned);
    EXPECT(peer_held_bytes(&r->t->config) >= slots);
    return OK;
}

static void plans_count_the_memory_of_slots(void **state)
{
    (void)state;
    LOADED(four, compare_with_plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        PLACE_TEST(copies_come_back_to_the_bit),
        PLACE_TEST(a_lost_host_s_parts_come_from_the_other),
        PLACE_TEST(after_a_restart_the_other_host_may_be_lost),
        PLACE_TEST(a_damaged_part_is_taken_from_its_copy),
        PLACE_TEST(a_part_that_is_damaged_everywhere_costs_the_step),
        PLACE_TEST(an_unfinished_copy_leaves_the_one_before),
        PLACE_TEST(another_mesh_loads_them_too),
        PLACE_TEST(copies_of_steps_that_were_abandoned_are_not_taken),
        PLACE_TEST(copies_of_another_run_are_not_taken),
        PLACE_TEST(a_start_without_resume_keeps_copies),
        PLACE_TEST(without_room_the_run_goes_on_with_the_disk),
        PLACE_TEST(at_the_end_nothing_stays),
        PLACE_TEST(a_copy_has_the_bytes_of_the_checkpoint_on_disk),
        PLACE_TEST(plans_count_the_memory_of_slots),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
