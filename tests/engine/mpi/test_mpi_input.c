/* What ranks cannot start with: one sentence of rank 0, exit code 2, and no rank waits. */
#include "harness/program.h"

#define TINY "train", "../tiny.yaml", "train.micro_batch=1", "moe.buffers=worst"

static int count(const char *text, const char *part)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, part)) != NULL; at++) n++;
    return n;
}

/* mpirun adds sentences of its own. */
#define CHECK_ONE_SAYS(outcome, part)                                                              \
    do {                                                                                           \
        CHECK_EXIT((outcome), 2);                                                                  \
        CHECK_SAYS((outcome).err, (part));                                                         \
        if (count((outcome).err, "error: ") != 1) fail_msg("not once: %s", (outcome).err);         \
    } while (0)

static void too_few_ranks_for_the_mesh(void **state)
{
    Outcome o = RUN_MPI(*state, 3, "a", TINY, "mesh.pp=2");
    CHECK_ONE_SAYS(o, "3 ranks do not fit mesh.pp 2 x mesh.cp 1: 2 or 4 ranks would");
}

static void threads_under_mpirun(void **state)
{
    Outcome o = RUN_MPI(*state, 2, "a", TINY, "--ranks", "4");
    CHECK_ONE_SAYS(o, "--ranks 4 starts ranks on one host, and mpirun or srun started 2 already");
}

static void a_rank_with_other_settings(void **state)
{
    Lab *lab = *state;
    Outcome o = RUN_MPI(lab, 3, "a", TINY, ":", "-n", "1", lab->program, TINY, "optimizer.lr=0.01");
    CHECK_ONE_SAYS(o, "rank 3: the configuration is not rank 0's: line");
    CHECK_SAYS(o.err, "\"  lr: 0.01\" here, \"  lr: 0.001\" there");
}

static void a_rank_that_begins_otherwise(void **state)
{
    Lab *lab = *state;
    Outcome o = RUN_MPI(lab, 1, "begin", TINY, "train.steps=1", ":", "-n", "1", lab->program, TINY,
                        "train.steps=1", "--resume=auto");
    CHECK_ONE_SAYS(o, "rank 1: the begin (--resume, --init) is not rank 0's: line 1 is "
                      "\"--resume=auto\" here, \"\" there");
    o = RUN_MPI(lab, 1, "begin", TINY, "train.steps=1", ":", "-n", "1", lab->program, TINY,
                "train.steps=1", "--init", "other");
    CHECK_ONE_SAYS(o, "line 1 is \"--init other\" here, \"\" there");
}

/* One name, other contents: each rank works in a folder of its own. */
static void a_rank_with_other_data(void **state)
{
    Lab *lab = *state;
    Outcome o =
        SHELL(lab, "folders",
              "for f in 0 1; do mkdir -p $f; cp ../web.bin $f/z.bin; cp ../web.idx $f/z.idx; done; "
              "printf x | dd of=1/z.bin conv=notrunc status=none");
    CHECK_EXIT(o, 0);
    o = SHELL(lab, "folders",
              "R=\"train ../../tiny.yaml train.micro_batch=1 moe.buffers=worst data.tokenizer= "
              "data.sources=[{name:\\ web,path:\\ z}] run.dir=$PWD/run\"; "
              "eval exec mpirun --oversubscribe -n 1 -wdir 0 \"$0\" $R : -n 1 -wdir 1 \"$0\" $R");
    CHECK_ONE_SAYS(o, "rank 1: the data is not rank 0's: line 2 is \".bin of ");
}

static void a_rank_of_another_build(void **state)
{
    Lab *lab = *state;
    size_t n = 0;
    const char *other = lab_path(lab, "other"), *data = lab_read(lab, lab->program, &n);
    lab_write(lab, other, data, n);
    FILE *f = fopen(other, "a");
    CHECK(f != NULL && fputc('x', f) == 'x' && fclose(f) == 0 && chmod(other, 0755) == 0);
    Outcome o = RUN_MPI(lab, 3, "a", TINY, ":", "-n", "1", other, TINY);
    CHECK_ONE_SAYS(o, "rank 3: the program is not rank 0's");
}

static void ranks_that_do_not_reach_each_others_memory(void **state)
{
    Outcome o = RUN_MPI(*state, 2, "a", TINY, "run.device=cpu", "mesh.ep=2", "moe.exchange=direct");
    CHECK_ONE_SAYS(o, "window of group ep: its ranks are processes, which do not reach");
    CHECK_SAYS(o.err, "moe.exchange=alltoall needs no window");
}

static void a_missing_shard(void **state)
{
    Outcome o = RUN_MPI(*state, 2, "a", TINY, "data.sources=[{name: web, path: nowhere}]");
    CHECK_ONE_SAYS(o, "nowhere.idx cannot be read");
}

/* Only one of the hosts has it. */
static void a_shard_that_one_rank_does_not_see(void **state)
{
    Lab *lab = *state;
    const char *files[] = { "tiny.yaml", "tokenizer.json", "web.idx", "web.bin" };
    CHECK_OK(file_make_folders(lab_path(lab, "poor/b")));
    for (int i = 0; i < 4; i++) {
        CHECK(link(lab_path(lab, "%s", files[i]), lab_path(lab, "poor/%s", files[i])) == 0);
    }
    Outcome o = RUN_MPI(lab, 1, "a", TINY, ":", "-n", "1", "--wdir", lab_path(lab, "poor/b"),
                        lab->program, TINY);
    CHECK_ONE_SAYS(o, "rank 1: ../books.idx cannot be read");
}

static void run_folders_that_are_not_one(void **state)
{
    Lab *lab = *state;
    CHECK_OK(file_make_folders(lab_path(lab, "c")));
    Outcome o = RUN_MPI(lab, 1, "a", TINY, ":", "-n", "1", "--wdir", lab_path(lab, "c"),
                        lab->program, TINY);
    CHECK_ONE_SAYS(o, "run.dir must be one folder that all ranks share");
}

static void a_resume_without_a_checkpoint(void **state)
{
    Outcome o = RUN_MPI(*state, 2, "d", TINY, "--resume");
    CHECK_ONE_SAYS(o, "holds no checkpoint to continue from");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        LAB_TEST(too_few_ranks_for_the_mesh),
        LAB_TEST(threads_under_mpirun),
        LAB_TEST(a_rank_with_other_settings),
        LAB_TEST(a_rank_that_begins_otherwise),
        LAB_TEST(a_rank_with_other_data),
        LAB_TEST(a_rank_of_another_build),
        LAB_TEST(ranks_that_do_not_reach_each_others_memory),
        LAB_TEST(a_missing_shard),
        LAB_TEST(a_shard_that_one_rank_does_not_see),
        LAB_TEST(run_folders_that_are_not_one),
        LAB_TEST(a_resume_without_a_checkpoint),
    };
    return LAB_RUN_ALL(tests);
}
