/* Words of launchers: hosts, ranks, and the words for other hosts. */
#include "harness/test.h"

#include "engine/base/text.h"
#include "supervise/hosts.h"

#include <unistd.h>

enum { WORDS_MAX = 32 };

/* Splits `line` at blanks, reads it and returns the status. */
static Status read_line(const char *line, const char *spare, Arena *a, Launch *out)
{
    const char *words[WORDS_MAX];
    int n = 0;
    for (size_t bytes; *(line += strspn(line, " ")) != '\0'; line += bytes) {
        bytes = strcspn(line, " ");
        CHECK_OK(arena_text(a, line, bytes, &words[n++]));
    }
    return launch_read(words, n, spare, a, out);
}

static const char *words_of(const Launch *l, Arena *a)
{
    ProcessWords *w = NULL;
    Text t;
    CHECK_OK(ARENA_ZEROED(a, 1, &w));
    CHECK_OK(launch_words(l, a, w));
    CHECK_OK(text_init(&t, a));
    CHECK_OK(text_append(&t, "", 0));
    for (int i = 0; i < w->n; i++) CHECK_OK(text_printf(&t, "%s%s", i > 0 ? " " : "", w->word[i]));
    return t.data;
}

static Arena arena;

static int begin(void **state)
{
    (void)state;
    CHECK_OK(arena_init(&arena, "test", MEM_HOST, (size_t)1 << 28));
    return 0;
}

static int end(void **state)
{
    (void)state;
    arena_free(&arena);
    return 0;
}

static void hosts_and_ranks_are_read(void **state)
{
    (void)state;
    static const struct {
        const char *line;
        int ranks, hosts, slots; /* slots: of the last host */
    } cases[] = {
        { "--ranks 4", 4, 0, 0 },
        { "mpirun -n 4", 4, 0, 0 },
        { "/opt/bin/mpirun --oversubscribe --host a:2,b:3", 5, 2, 3 },
        { "mpiexec -H a,a,b -np 3 --bind-to none", 3, 2, 1 },
        { "srun --mpi=pmix -n 8 -w a,b", 8, 2, 4 },
        { "srun --nodelist=a,b,c --ntasks-per-node=2", 6, 3, 2 },
        { "srun -N 4 --ntasks-per-node 8", 32, 0, 0 },
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        Launch l;
        CHECK_OK(read_line(cases[k].line, NULL, &arena, &l));
        CHECK_INT(l.ranks, cases[k].ranks);
        CHECK_INT(l.n_hosts, cases[k].hosts);
        if (l.n_hosts > 0) CHECK_INT(l.host[l.n_hosts - 1].slots, cases[k].slots);
        if (l.kind != LAUNCH_RANKS) CHECK_TEXT(words_of(&l, &arena), cases[k].line);
    }
}

/* The status of mpirun with a hostfile of this text. */
static Status read_hostfile(const char *text, Launch *l)
{
    char path[] = "/tmp/switchyard_hosts_XXXXXX", line[64];
    int fd = mkstemp(path);
    CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
    snprintf(line, sizeof line, "mpirun --hostfile %s --oversubscribe", path);
    Status s = read_line(line, NULL, &arena, l);
    unlink(path);
    return s;
}

static void a_hostfile_is_read(void **state)
{
    (void)state;
    Launch l;
    CHECK_OK(read_hostfile("# ours\na slots=2 max_slots=4\n\n  b   # one\nb\r\n", &l));
    CHECK_INT(l.ranks, 4);
    CHECK_INT(launch_host(&l, "a")->slots, 2);
    (void)launch_leave_out(&l, launch_host(&l, "b"));
    CHECK_TEXT(words_of(&l, &arena), "mpirun --oversubscribe --host a:2 -n 2");
}

/* The slots of the first host are those that mpirun 4.1.4 has. */
static void slots_of_a_hostfile_are_those_of_open_mpi(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int slots;
    } cases[] = {
        { "a slots=4", 4 },
        { "a slots = 4\n", 4 },
        { "a max_slots=4\n", 4 },
        { "a max-slots=4 slots=3\n", 3 },
        { "a max_slots=8 slots=3 # slots=5\n", 3 },
        { "a slots=2 max_slots=4\n", 2 },
        { "// c slots=2\na slots=3 // slots=4\n", 3 },
        { "a cpu=3\n", 3 },
        { "a\tcount=3\r\n", 3 },
        { "a\na\na\n", 3 },
    };
    static const struct {
        const char *text, *says;
    } bad[] = {
        { "a slots=0\n", "slots 0 is not a number" },
        { "a slots=\n", "slots  is not a number" },
        { "a slots=4x\n", "slots 4x is not a number" },
        { "a slots=3,max_slots=4\n", "slots 3,max_slots is not a number" },
        { "a sockets=2\n", "host a: sockets is not understood" },
        { "me@a slots=2\n", "me@a is not the name of a host alone" },
        { "/* x */ a slots=2\n", "/* is not the name of a host alone" },
        { "", "names no host: write a line such as node1 slots=8" },
        { "# a slots=2\n \t\n", "names no host" },
        { "a slots=2\nb\n", "host b: how many ranks it takes is not said: write slots=N" },
    };
    Launch l;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        CHECK_OK(read_hostfile(cases[k].text, &l));
        CHECK_INT(l.n_hosts, 1);
        CHECK_INT(l.host[0].slots, cases[k].slots);
    }
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++)
        CHECK_FAILS(read_hostfile(bad[k].text, &l), ERR_ARG, bad[k].says);
}

static void a_host_is_left_out(void **state)
{
    (void)state;
    static const struct {
        const char *line, *host, *spare, *want;
    } cases[] = {
        { "mpirun --oversubscribe --host a:2,b:2,c:2 -n 6", "b", NULL,
          "mpirun --oversubscribe --host a:2,c:2 -n 4" },
        { "mpirun --host a:2,b:2 -n 4", "b", "d", "mpirun --host a:2,d:2 -n 4" },
        { "mpirun --host a:4,b:4,c:4 -n 6", "c", NULL, "mpirun --host a:4,b:4 -n 6" },
        { "srun --mpi=pmix -N 3 -n 6 -w a,b,c", "a", NULL,
          "srun --mpi=pmix --nodelist=b,c -n 4 --nodes=2" },
        { "srun -n 4 -w a,b", "a", "d", "srun --nodelist=b,d -n 4 --nodes=2" },
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        Launch l;
        CHECK_OK(read_line(cases[k].line, cases[k].spare, &arena, &l));
        const LaunchHost *came = launch_leave_out(&l, launch_host(&l, cases[k].host));
        CHECK((came == NULL) == (cases[k].spare == NULL));
        CHECK(launch_host(&l, cases[k].host) == NULL);
        CHECK_TEXT(words_of(&l, &arena), cases[k].want);
    }
}

static void a_host_is_known_with_and_without_its_domain(void **state)
{
    (void)state;
    Launch l;
    CHECK_OK(read_line("mpirun --host a.lab:1,b:1,10.0.0.1:1", NULL, &arena, &l));
    CHECK(launch_host(&l, "a") == &l.host[0]);
    CHECK(launch_host(&l, "b.lab") == &l.host[1]);
    CHECK(launch_host(&l, "a.other") == NULL);
    CHECK(launch_host(&l, "10.0.0.1") == &l.host[2]);
    CHECK(launch_host(&l, "10.0.0.2") == NULL && launch_host(&l, "10") == NULL);
}

/* Words without hosts: those of the ranks that came are taken. */
static void hosts_are_learned_from_the_ranks(void **state)
{
    (void)state;
    const RankBeat came[] = { { .rank = 0, .host = "a" },
                              { .rank = 1, .host = "a" },
                              { .rank = 2, .host = "b" },
                              { .rank = 3, .host = "b" } };
    Launch l;
    CHECK_OK(read_line("srun -N 2 -n 4", NULL, &arena, &l));
    CHECK_OK(launch_learn(&l, came, 3, &arena)); /* not all have come */
    CHECK_INT(l.n_hosts, 0);
    CHECK_OK(launch_learn(&l, came, 4, &arena));
    (void)launch_leave_out(&l, launch_host(&l, "a"));
    CHECK_TEXT(words_of(&l, &arena), "srun --nodelist=b -n 2 --nodes=1");
}

static void what_is_no_launcher_or_no_number_is_refused(void **state)
{
    (void)state;
    Launch l;
    CHECK_FAILS(read_line("", NULL, &arena, &l), ERR_ARG, "nothing after --");
    CHECK_FAILS(read_line("bash run.sh", NULL, &arena, &l), ERR_ARG,
                "bash after -- is no launcher");
    CHECK_FAILS(read_line("--ranks 0", NULL, &arena, &l), ERR_ARG, "--ranks 0 is not a number");
    CHECK_FAILS(read_line("--ranks 2 x", NULL, &arena, &l), ERR_ARG, "x after --ranks N");
    CHECK_FAILS(read_line("mpirun -n", NULL, &arena, &l), ERR_ARG, "-n after -- lacks its value");
    CHECK_FAILS(read_line("mpirun --host a:x", NULL, &arena, &l), ERR_ARG, "--host x is not");
    CHECK_FAILS(read_line("mpirun --host a,,b", NULL, &arena, &l), ERR_ARG, "an empty name");
    CHECK_FAILS(read_line("srun -w a[1-4]", NULL, &arena, &l), ERR_ARG, "has brackets");
    CHECK_FAILS(read_line("--ranks 2", "a", &arena, &l), ERR_ARG, "ranks of --ranks have no hosts");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(hosts_and_ranks_are_read),
        TEST(a_hostfile_is_read),
        TEST(slots_of_a_hostfile_are_those_of_open_mpi),
        TEST(a_host_is_left_out),
        TEST(a_host_is_known_with_and_without_its_domain),
        TEST(hosts_are_learned_from_the_ranks),
        TEST(what_is_no_launcher_or_no_number_is_refused),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
