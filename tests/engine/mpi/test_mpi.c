/* The cases of tests/engine/unit/comm over processes. tools/run_mpi starts it on 1 to 4 ranks; it is no
 * cmocka binary, for a test is passed only if all ranks end as they should.
 *
 *     test_mpi collectives | transfers | split | window     exit code 0
 *     test_mpi pipelines                           the same; on 2 or 4 ranks
 *     test_mpi lost | abort | killed               rank 1 stops answering, fails, is killed once all
 *                                                  have met: the others end with a sentence that names it
 */
#include "harness/comm_cases.h"
#include "harness/pipeline.h"

#include <stdio.h>
#include <time.h>

static const double DEADLINE_S = 1, STOP_PATIENCE_S = 0.1;
static volatile sig_atomic_t stopped;

typedef Status MpiCase(Comm *c, Arena *a);

/* All have met when this returns. A rank that ends before is lost while the ranks meet, which is another case. */
static Status met(Comm *c) { return comm_barrier(c); }

static void on_signal(int number) { stopped = number; }

static Status is_lost(Comm *c, Arena *a)
{
    (void)a;
    TRY(met(c));
    if (c->rank != 1) return comm_barrier(c);
    nanosleep(&(struct timespec){ .tv_sec = 10 }, NULL);
    return FAIL(ERR_COMM, "slept long enough");
}

static Status fails(Comm *c, Arena *a)
{
    (void)a;
    TRY(met(c));
    return c->rank == 1 ? FAIL(ERR_DISK, "no room for the checkpoint") : comm_barrier(c);
}

static Status dies(Comm *c, Arena *a)
{
    (void)a;
    TRY(met(c));
    if (c->rank == 1) raise(SIGKILL);
    return comm_barrier(c);
}

/* A process reaches no other's memory, and says so; alone it reaches its own. */
static Status window(Comm *c, Arena *a)
{
    int32_t mine = 0;
    CommWindow w = { 0 };
    if (c->size == 1) return case_window(c, a);
    EXPECT(comm_window(c, &mine, sizeof mine, a, &w) == ERR_UNSUPPORTED && w.peer == NULL);
    EXPECT(strstr(status_message(), "window of group world: its ranks are processes") != NULL);
    return comm_barrier(c);
}

/* Each rank holds its stage against a whole of its own. */
static Status pipelines(Comm *c, Arena *a)
{
    (void)a;
    Whole w = { 0 };
    const char *const *more = TINY("attention.q_rank=9");
    whole_open(&w, more);
    for (int i = 0; i < schedule_table_n; i++) {
        const ScheduleDesc *d = &schedule_table[i];
        Case k = { .whole = &w };
        settings_of(&k, d, c->size, d->chunks_least, more);
        TRY(stage(&k, c));
        check_stage(&k, c->rank);
    }
    tiny_close(&w.tiny);
    return OK;
}

static Status run(const char *name, Comm *c, Arena *a)
{
    static const struct {
        const char *name;
        MpiCase *run;
    } cases[] = { { "collectives", case_collectives },
                  { "transfers", case_transfers },
                  { "split", case_split },
                  { "window", window },
                  { "pipelines", pipelines },
                  { "lost", is_lost },
                  { "abort", fails },
                  { "killed", dies } };
    if (c->size != comm_launched()) return FAIL(ERR_NUMERIC, "%d launched", comm_launched());
    comm_set_stop(c, &stopped, STOP_PATIENCE_S);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (strcmp(name, cases[i].name) == 0) return cases[i].run(c, a);
    }
    return FAIL(ERR_ARG, "there is no case %s", name);
}

int main(int argc, char **argv)
{
    const char *name = argv[argc - 1];
    char why[512];
    Arena a = { 0 };
    Comm *c = NULL;
    signal(SIGTERM, on_signal);
    Status s = arena_init(&a, "mpi", MEM_HOST, (size_t)64 << 20);
    if (s == OK) s = comm_processes(&a, strcmp(name, "lost") == 0 ? DEADLINE_S : 30, "test", &c);
    if (s == OK) s = run(name, c, &a);
    if (s != OK) {
        status_sentence(why, sizeof why);
        fprintf(stderr, "from %d: %s\n", c == NULL ? -1 : c->rank, why);
        if (c != NULL) comm_abort(c, why);
    }
    comm_free(c);
    return status_exit_code(s);
}
