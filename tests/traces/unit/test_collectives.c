/* Collectives over ranks, in traces that the test writes from a run it knows: when each rank came,
 * how its clock ran, which kernels its window or its profiler lost, and what made it late. */
#include "harness/test.h"

#include "compat/compat.h"
#include "engine/base/file.h"

#include <stdarg.h>
#include <unistd.h>

enum { RANKS_MAX = 8, ROUNDS = 60 };

static Arena arena;
static char folder[] = "/tmp/switchyard_test_XXXXXX";
static char path[RANKS_MAX][128];
static const char *const paths[RANKS_MAX] = { path[0], path[1], path[2], path[3],
                                              path[4], path[5], path[6], path[7] };
static Collectives c;
static Table sheet[COLLECTIVE_SHEETS];

/* ---- a trace under construction ---- */

static struct Trace {
    FILE *f;
    int rank, ids;
    double skew, drift; /* its clock says t + skew + drift * t */
} trace;

static void begin(int rank, const char *file, const char *head)
{
    snprintf(path[rank], sizeof path[rank], "%s/%s", folder, file);
    trace = (struct Trace){ .f = fopen(path[rank], "w"), .rank = rank };
    CHECK(trace.f != NULL);
    fprintf(trace.f, "{%s\"traceEvents\":[{\"ph\":\"i\",\"name\":\"none\",\"ts\":0}", head);
}

static void finish(void) { CHECK(fprintf(trace.f, "]}") > 0 && fclose(trace.f) == 0); }

static void event(const char *cat, const char *name, int tid, double t, double dur, const char *fmt,
                  ...)
{
    va_list args;
    va_start(args, fmt);
    fprintf(trace.f,
            ",\n{\"ph\":\"X\",\"cat\":\"%s\",\"name\":\"%s\",\"pid\":1,\"tid\":%d,\"ts\":%.3f,"
            "\"dur\":%.3f,\"args\":{",
            cat, name, tid, t + trace.skew + trace.drift * t, dur);
    vfprintf(trace.f, fmt, args);
    fprintf(trace.f, "}}");
    va_end(args);
}

/* A kernel with its operator and its launch, 5 us before. */
static void kernel(const char *op, const char *name, int stream, double t, double dur,
                   const char *fields)
{
    int id = ++trace.ids;
    event("cpu_op", op, 1, t - 6, 4, "\"External id\":%d", id);
    event("cuda_runtime", "cudaLaunchKernel", 1, t - 5, 2, "\"correlation\":%d", id);
    event("kernel", name, stream, t, dur, "\"correlation\":%d,\"stream\":%d,\"device\":0%s", id,
          stream, fields);
}

static const char *fields_of(const char *name, const char *group, const char *ranks, int size,
                             int elements, int tag)
{
    static char text[512];
    snprintf(text, sizeof text,
             ",\"Collective name\":\"%s\",\"dtype\":\"Float\",\"In msg nelems\":%d,"
             "\"Out msg nelems\":%d,\"Group size\":%d,\"In split size\":\"[]\","
             "\"Out split size\":\"[%d]\",\"Process Group Name\":\"%s\","
             "\"Process Group Ranks\":\"%s\"",
             name, elements, elements, size, tag, group, ranks);
    return text;
}

static void read_ranks(int n, CollectivesOptions o)
{
    int sheets = 0;
    collectives_close(&c);
    arena_release(&arena, (ArenaMark){ 0 });
    CHECK_OK(collectives_open(&c, paths, n, &o, &arena));
    CHECK_OK(collectives_sheets(&c, sheet, &sheets));
    CHECK_INT(sheets, o.rules != NULL ? 8 : 11);
}

/* The sheet's cell in a row that has `key` in column `where`. */
static const Cell *cell_in(const char *name, int64_t row, const char *column)
{
    int t = 0, i = 0;
    while (t < COLLECTIVE_SHEETS - 1 && strcmp(sheet[t].name, name) != 0) t++;
    while (i < sheet[t].columns && strcmp(sheet[t].column[i], column) != 0) i++;
    if (i == sheet[t].columns || row >= sheet[t].rows)
        fail_msg("%s: no column %s or row %d", name, column, (int)row);
    return &sheet[t].cell[row * sheet[t].columns + i];
}

static double number_in(const char *name, int64_t row, const char *column)
{
    const Cell *x = cell_in(name, row, column);
    return x->type == CELL_WHOLE    ? (double)x->whole
           : x->type == CELL_NUMBER ? x->number
                                    : (double)NAN;
}

/* ---- a run that is known ---- */

typedef struct Run {
    int ranks, rounds;
    bool metadata, jitter;
    double skew[RANKS_MAX], drift[RANKS_MAX];
    int from[RANKS_MAX], to[RANKS_MAX]; /* the window: rounds; to 0: all */
    int lost[RANKS_MAX];                /* a round whose kernel is not in the trace; 0: none */
    int slow, slow_host;                /* ranks with slow work on device or host; 0: none */
} Run;

static double came[ROUNDS][RANKS_MAX], went[ROUNDS];

static double noise(int a, int b) { return fmod((a * 7919 + b * 104729) * 0.6180339887, 1.0); }

static const double SLOW_US = 700, EXCHANGE_US = 25;

static void play(const Run *r)
{
    double t = 1000;
    for (int k = 0; k < r->rounds; k++) {
        double last = 0;
        for (int i = 0; i < r->ranks; i++) {
            came[k][i] = t + 900 + (r->jitter ? 400 * noise(k, i) : 50 * i);
            if (i > 0 && (i == r->slow || i == r->slow_host)) came[k][i] += SLOW_US;
            last = fmax(last, came[k][i]);
        }
        t = went[k] = last + EXCHANGE_US;
    }
}

static void round_of(const Run *r, int i, int k)
{
    double before = k > 0 ? went[k - 1] : 1000, work = came[k][i] - before;
    bool slow = i > 0 && i == r->slow, waits = i > 0 && i == r->slow_host;
    double mm = slow || waits ? work - SLOW_US - 20 : work - 20;
    kernel("aten::mm", "gemm", 7, before + 10, mm, "");
    if (slow) kernel("moe::permute", "permute_kernel", 7, before + 12 + mm, SLOW_US, "");
    if (waits)
        event("user_annotation", "load_batch", 1, before + 10 + mm - 4, SLOW_US + 2, "\"a\":1");
    if (r->lost[i] > 0 && r->lost[i] == k) return;
    kernel("record_param_comms", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 9, came[k][i],
           went[k] - came[k][i] + noise(k, 10 + i),
           r->metadata ? fields_of("allreduce", "0", "[0, 1, 2, 3]", r->ranks, 1000000, k) : "");
}

static void write_run(const Run *r)
{
    play(r);
    for (int i = 0; i < r->ranks; i++) {
        char file[64], head[128];
        snprintf(file, sizeof file, "rank%d.json", i);
        snprintf(head, sizeof head, "\"distributedInfo\":{\"rank\":%d,\"world_size\":%d},", i,
                 r->ranks);
        begin(i, file, head);
        trace.skew = r->skew[i];
        trace.drift = r->drift[i];
        for (int k = r->from[i]; k < (r->to[i] > 0 ? r->to[i] : r->rounds); k++) round_of(r, i, k);
        finish();
    }
}

/* Every matched collective is one round; tags are of their Out split size. */
static int check_slots(const Run *r)
{
    int whole = 0;
    for (int64_t s = 0; s < c.n_slots; s++) {
        const CollectiveCall *x = &c.calls[c.slots[s].call];
        for (int64_t i = 1; i < c.slots[s].calls; i++)
            CHECK_TEXT(strings_text(&c.strings, x[i].what.out_split),
                       strings_text(&c.strings, x[0].what.out_split));
        whole += c.slots[s].calls == r->ranks;
    }
    return whole;
}

/* ---- clocks and matches ---- */

static void ranks_of_equal_clocks_give_their_waits(void **state)
{
    (void)state;
    Run r = { .ranks = 4, .rounds = 10, .metadata = true };
    write_run(&r);
    read_ranks(4, (CollectivesOptions){ 0 });
    CHECK_INT(c.n_slots, 10);
    for (int k = 0; k < 10; k++) {
        const CollectiveSlot *s = &c.slots[k];
        CHECK_INT(s->calls, 4);
        CHECK_INT(s->last, 3);
        CHECK_INT(s->first, 0);
        CHECK_NEAR(s->skew_start, 150, 1.5);
        CHECK_NEAR(s->wait_sum, 150 + 100 + 50, 4);
        CHECK_NEAR(s->latency, EXCHANGE_US, 1.1);
        CHECK_NEAR(s->exchange, EXCHANGE_US, 1.5);
        CHECK_NEAR(s->mb, 4, 1e-12);
        CHECK_NEAR(s->algorithm_bw, 4e6 / 1e9 / (s->latency * 1e-6), 1e-9);
        CHECK_NEAR(s->bus_bw, 1.5 * s->algorithm_bw, 1e-9);
    }
    for (int i = 1; i < 4; i++) CHECK_NEAR(c.ranks[i].offset_us, 0, 1.1);
    CHECK_TEXT(cell_in("clocks", 2, "rank_from")->text, "distributedInfo");
    CHECK_INT((int)number_in("straggler_summary", 0, "rank"), 3);
    CHECK_NEAR(number_in("straggler_summary", 0, "caused_wait_us"), 10 * 300, 40);
}

static void clocks_that_are_off_and_drift_are_found(void **state)
{
    (void)state;
    Run r = { .ranks = 4,
              .rounds = ROUNDS,
              .metadata = true,
              .jitter = true,
              .skew = { 0, 5000, -123456, 1e9 },
              .drift = { 0, 400e-6, -800e-6, 0 } };
    write_run(&r);
    read_ranks(4, (CollectivesOptions){ 0 });
    CHECK_INT(check_slots(&r), ROUNDS);
    CHECK_NEAR(c.ranks[1].drift, -400e-6, 40e-6);
    CHECK_NEAR(c.ranks[2].drift, 800e-6, 40e-6);
    CHECK_NEAR(c.ranks[3].drift, 0, 0);
    CHECK_NEAR(c.ranks[3].offset_us, -1e9, 2);
    for (int k = 0; k < ROUNDS; k++) {
        for (int i = 0; i < 4; i++) CHECK_NEAR(c.calls[c.slots[k].call + i].start, came[k][i], 2);
    }
}

/* The bases of the ranks' clocks are whole ns; times are relative to them. */
static void times_are_relative_to_the_base_of_the_clock(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        char file[32], head[160];
        snprintf(file, sizeof file, "rank%d.json", i);
        snprintf(head, sizeof head,
                 "\"baseTimeNanoseconds\":%lld,"
                 "\"distributedInfo\":{\"rank\":%d,\"world_size\":2},",
                 1767189312000000000LL + i * 4000000LL, i);
        begin(i, file, head);
        trace.skew = -4000.0 * i;
        for (int k = 0; k < 3; k++)
            kernel("op", "ncclDevKernel_Generic", 9, 9000 + 100 * k + 10 * i, 50 - 10 * i,
                   fields_of("allreduce", "0", "[0, 1]", 2, 8, k));
        finish();
    }
    read_ranks(2, (CollectivesOptions){ 0 });
    CHECK_NEAR(c.ranks[1].offset_us, 0, 1e-6);
    CHECK_NEAR(c.slots[0].skew_start, 10, 1e-6);
}

static void a_window_that_begins_late_matches(void **state)
{
    (void)state;
    Run r = { .ranks = 4,
              .rounds = ROUNDS,
              .metadata = true,
              .jitter = true,
              .skew = { 0, 0, 777777, 0 },
              .from = { 0, 0, 7, 3 },
              .to = { 50, 0, 0, 0 } };
    write_run(&r);
    read_ranks(4, (CollectivesOptions){ 0 });
    CHECK_INT(check_slots(&r), 50 - 7);
    CHECK_INT(c.n_slots, ROUNDS);
    CHECK_NEAR(c.ranks[2].offset_us, -777777, 2);
    int partial = 0;
    for (int64_t s = 0; s < c.n_slots; s++) partial += strcmp(c.slots[s].flag, "partial") == 0;
    CHECK_INT(partial, 7 + 10);
    CHECK_NEAR(number_in("nccl_summary_group", 0, "count"), 43, 0); /* partial ones do not count */
    read_ranks(4, (CollectivesOptions){ .rules = &compat_collective_rules }); /* here they do */
    CHECK_INT((int)number_in("straggler_summary", 0, "num_collectives"), (int)c.n_slots);
}

static void lost_kernels_do_not_shift_the_rest(void **state)
{
    (void)state;
    Run r = { .ranks = 4,
              .rounds = ROUNDS,
              .metadata = true,
              .jitter = true,
              .skew = { 0, -4444, 0, 0 },
              .lost = { 0, 31, 12, 0 },
              .from = { 5, 0, 0, 0 } };
    write_run(&r);
    read_ranks(4, (CollectivesOptions){ 0 });
    CHECK_INT(check_slots(&r), ROUNDS - 5 - 2);
    CHECK_INT(c.n_slots, ROUNDS);
}

static void kernels_without_metadata_match_by_stream_and_name(void **state)
{
    (void)state;
    Run r = { .ranks = 3, .rounds = 30, .jitter = true, .from = { 0, 4, 0 } };
    write_run(&r);
    read_ranks(3, (CollectivesOptions){ 0 });
    CHECK_INT(c.n_groups, 1);
    CHECK_TEXT(c.groups[0].name, "all");
    CHECK_INT(check_slots(&r), 26);
    CHECK_NEAR(c.slots[4].skew_start,
               fmax(fmax(came[4][0], came[4][1]), came[4][2]) -
                   fmin(fmin(came[4][0], came[4][1]), came[4][2]),
               2);
    CHECK_TEXT(cell_in("nccl_implicit_sync", 0, "Collective name")->text, "all_reduce");
    read_ranks(3, (CollectivesOptions){ .rules = &compat_collective_rules });
    CHECK_TEXT(cell_in("nccl_implicit_sync", 5, "collective_id")->text, "5");
    CHECK(cell_in("nccl_implicit_sync", 5, "Collective name")->type == CELL_NONE);
}

/* Rank 0 sends to 1, 1 on to 2 and back to 0; 1 knows its peers from its group of two alone. */
static void sends_and_receives_match_both_ways(void **state)
{
    (void)state;
    static const struct {
        int from, to;
        const char *group, *ranks;
    } way[] = { { 0, 1, "p", "[0, 1]" }, { 1, 2, "q", "[1, 2]" }, { 1, 0, "p", "[0, 1]" } };
    for (int i = 0; i < 3; i++) {
        char file[32], fields[600];
        snprintf(file, sizeof file, "x-rank-%d.json", i);
        begin(i, file, "");
        for (int k = 0; k < 12; k++) {
            int w = k % 3;
            bool sends = way[w].from == i;
            if (!sends && way[w].to != i) continue;
            snprintf(fields, sizeof fields, "%s",
                     fields_of(sends ? "send" : "recv", way[w].group, way[w].ranks, 2, 64, k));
            if (i != 1)
                snprintf(fields + strlen(fields), 40, ",\"%s Rank\":%d", sends ? "Dst" : "Src",
                         sends ? way[w].to : way[w].from);
            kernel("c10d::send", "ncclDevKernel_SendRecv", 9, 1000 * k + 100 + (sends ? 30 : 0),
                   sends ? 50 : 80, fields);
        }
        finish();
    }
    read_ranks(3, (CollectivesOptions){ 0 });
    CHECK_TEXT(c.ranks[2].rank_from, "the file's name");
    CHECK_INT(c.n_groups, 3);
    CHECK_INT(c.n_slots, 12);
    for (int64_t s = 0; s < c.n_slots; s++) {
        const CollectiveCall *x = &c.calls[c.slots[s].call];
        CHECK_INT(c.slots[s].calls, 2);
        CHECK_INT(x[0].what.out_split, x[1].what.out_split);
        CHECK_NEAR(c.slots[s].skew_start, 30, 1e-6);
        CHECK_NEAR(c.slots[s].bus_bw, 256e-9 / 50e-6, 1e-12);
    }
}

/* ---- whom they wait for, and why ---- */

static void a_straggler_is_named_with_its_operator(void **state)
{
    (void)state;
    Run r = { .ranks = 4, .rounds = 20, .metadata = true, .jitter = true, .slow = 2 };
    write_run(&r);
    read_ranks(4, (CollectivesOptions){ 0 });
    CHECK_INT((int)number_in("straggler_summary", 0, "rank"), 2);
    CHECK_INT((int)number_in("straggler_summary", 0, "times_arrived_last"), 20);
    CHECK_TEXT(cell_in("straggler_summary", 0, "cause")->text, "moe::permute");
    CHECK_TEXT(cell_in("straggler_summary", 0, "cause_where")->text, "device");
    CHECK_NEAR(number_in("straggler_summary", 0, "cause_us"), 20 * SLOW_US, 1);
    Text out = { 0 };
    CHECK_OK(text_init(&out, &arena));
    CHECK_OK(collectives_text(&c, sheet, &out));
    CHECK(strstr(out.data, "rank 2 makes the others wait most") != NULL);
    CHECK(strstr(out.data, "by moe::permute on the device") != NULL);
}

static void a_straggler_on_the_host_is_named_with_what_ran_there(void **state)
{
    (void)state;
    Run r = { .ranks = 4, .rounds = 20, .metadata = true, .jitter = true, .slow_host = 1 };
    write_run(&r);
    read_ranks(4, (CollectivesOptions){ 0 });
    CHECK_INT((int)number_in("straggler_summary", 0, "rank"), 1);
    CHECK_TEXT(cell_in("straggler_summary", 0, "cause")->text, "load_batch");
    CHECK_TEXT(cell_in("straggler_summary", 0, "cause_where")->text, "host");
    CHECK_NEAR(number_in("straggler_summary", 0, "cause_us"), 20 * SLOW_US, 200);
}

static void an_outlier_at_the_border_is_in_no_sum(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        char file[32];
        snprintf(file, sizeof file, "rank%d", i);
        begin(i, file, "");
        for (int k = 0; k < 8; k++) {
            double wait = i == 1 ? 0 : k == 0 ? 90000 : k == 4 ? 5000 : 20;
            kernel("op", "ncclDevKernel_Generic", 9, 100000 * (k + 1) - wait, 50 + wait,
                   fields_of("allreduce", "0", "[0, 1]", 2, 8, k));
        }
        finish();
    }
    read_ranks(2, (CollectivesOptions){ 0 });
    CHECK_TEXT(c.slots[0].flag, "border outlier");
    CHECK_TEXT(c.slots[4].flag, "outlier");
    CHECK_TEXT(c.slots[5].flag, "");
    CHECK_NEAR(number_in("straggler_summary", 0, "caused_wait_us"), 5000 + 6 * 20, 1);
    CHECK_NEAR(number_in("nccl_summary_group", 0, "count"), 7, 0);
}

/* ---- sizes ---- */

static void bandwidth_counts_what_the_collective_moves(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int in, out;
        double mb, bus; /* bus over algorithm */
    } cases[] = {
        { "allreduce", 1000000, 1000000, 4, 1.5 },
        { "_reduce_scatter_base", 1000000, 250000, 4, 0.75 },
        { "_allgather_base", 250000, 1000000, 4, 0.75 },
        { "all_to_all", 1000000, 1000000, 4, 0.75 },
        { "broadcast", 1000000, 1000000, 4, 1 },
        { "reduce", 1000000, 1000000, 4, 1 },
        { "gather", 250000, 1000000, 4, 0.75 },
        { "scatter", 1000000, 250000, 4, 0.75 },
    };
    for (int i = 0; i < 4; i++) {
        char file[32], fields[600];
        snprintf(file, sizeof file, "rank%d", i);
        begin(i, file, "\"deviceProperties\":[{\"id\":0},{\"id\":1}],");
        for (int k = 0; k < 8; k++) {
            snprintf(fields, sizeof fields,
                     ",\"Collective name\":\"%s\",\"dtype\":\"Float\",\"In msg nelems\":%d,"
                     "\"Out msg nelems\":%d,\"Group size\":4,\"Process Group Name\":\"0\","
                     "\"Process Group Ranks\":\"[0, 1, 2, 3]\"",
                     cases[k].name, cases[k].in, cases[k].out);
            kernel("op", "ncclDevKernel_Generic", 9, 1000 * (k + 1), 100, fields);
        }
        finish();
    }
    read_ranks(4, (CollectivesOptions){ 0 });
    CHECK_INT(c.n_slots, 8);
    for (int k = 0; k < 8; k++) {
        CHECK_NEAR(c.slots[k].mb, cases[k].mb, 1e-12);
        CHECK_NEAR(c.slots[k].algorithm_bw, 40, 1e-9);
        CHECK_NEAR(c.slots[k].bus_bw, 40 * cases[k].bus, 1e-9);
    }
    CHECK_TEXT(c.groups[0].span, "inter_node");
    read_ranks(4, (CollectivesOptions){ .gpus_per_node = 4 });
    CHECK_TEXT(c.groups[0].span, "intra_node");
    read_ranks(4, (CollectivesOptions){ .rules = &compat_collective_rules }); /* MiB, GiB */
    CHECK_NEAR(number_in("nccl_implicit_sync", 1, "Full msg size (MB)"), 4e6 / 1048576, 1e-12);
    CHECK_NEAR(number_in("nccl_implicit_sync", 1, "algo bw (GB/s)"), 4e6 / 1073741824 / 100e-6,
               1e-9);
    CHECK_INT((int)sheet[3].rows, 4); /* what TraceLens knows */
}

/* Ranks 1 and 3 of four are a group: what they send to its second member goes to rank 3. */
static void splits_go_to_ranks_of_the_world(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        char file[32], fields[600];
        snprintf(file, sizeof file, "rank_%d", i);
        begin(i, file, "");
        const char *group = i % 2 == 1 ? "odd" : "even";
        for (int k = 0; k < 2; k++) {
            snprintf(fields, sizeof fields,
                     ",\"Collective name\":\"all_to_allv\",\"dtype\":\"BFloat16\","
                     "\"In msg nelems\":%d,\"Out msg nelems\":70,\"Group size\":2,"
                     "\"In split size\":[%d,%d],\"Out split size\":\"[]\","
                     "\"Process Group Name\":\"%s\",\"Process Group Ranks\":\"%s\"",
                     3000000 + i, 1000000 + i, 2000000, group, i % 2 == 1 ? "[1, 3]" : "[0, 2]");
            kernel("op", "ncclDevKernel_SendRecv", 9, 1000 * (k + 1) + i, 100 - i, fields);
        }
        finish();
    }
    read_ranks(4, (CollectivesOptions){ 0 });
    CHECK_INT((int)sheet[6].rows, 8);
    CHECK_INT((int)number_in("nccl_all2allv_heatmap", 2, "src_rank"), 1); /* (0,0) (0,2) (1,1) */
    CHECK_INT((int)number_in("nccl_all2allv_heatmap", 2, "dst_rank"), 1);
    CHECK_INT((int)number_in("nccl_all2allv_heatmap", 3, "dst_rank"), 3);
    CHECK_NEAR(number_in("nccl_all2allv_heatmap", 3, "total_sent_MB"), 8, 1e-12);
    CHECK_NEAR(number_in("nccl_all2allv_heatmap", 2, "avg_sent_MB"), 2.000002, 1e-12);
    CHECK_NEAR(number_in("nccl_all2allv", 0, "wall_time (us)"), 100, 1.5);
    CHECK_NEAR(number_in("nccl_all2allv", 0, "total data communicated (MB)"), 12.000008, 1e-9);
    CHECK_NEAR(number_in("nccl_summary_all2allv", 0, "count"), 2, 0);
    read_ranks(4, (CollectivesOptions){ .rules = &compat_collective_rules });
    CHECK_INT((int)number_in("nccl_all2allv_heatmap", 3, "dst_rank"), 1); /* of 1: its place */
}

static void kernels_are_known_by_their_names(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int kind; /* -1: no collective */
    } cases[] = {
        { "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgs)", ALL_REDUCE },
        { "ncclKernel_ReduceScatter_RING_LL_Sum_half", REDUCE_SCATTER },
        { "ncclSymDevKernel_AllGather_LL", ALL_GATHER },
        { "ncclDevKernel_Broadcast_RING_LL", BROADCAST },
        { "ncclDevKernel_Reduce_Sum_f32_RING_LL", REDUCE },
        { "ncclDevKernel_Generic_4(ncclDevKernelArgs)", OTHER_COLLECTIVE },
        { "void vllm::cross_device_reduce_1stage<float, 2>", ALL_REDUCE },
        { "two_shot_all_reduce_kernel", ALL_REDUCE },
        { "void deep_ep::internode_ll::dispatch<true>", DISPATCH },
        { "void deep_ep::intranode::combine<bf16>", COMBINE },
        { "void deep_ep::layout::get_dispatch_layout<256>", -1 },
        { "nvshmemi_barrier_all", BARRIER },
        { "rccl_main_kernel", OTHER_COLLECTIVE },
        { "void at::native::reduce_kernel<512>", -1 },
    };
    const int n = sizeof cases / sizeof *cases;
    begin(0, "rank0", "");
    for (int k = 0; k < n; k++) kernel("op", cases[k].name, 7, 100 * (k + 1), 50, "");
    finish();
    read_ranks(1, (CollectivesOptions){ 0 });
    int64_t found = 0;
    for (int k = 0; k < n; k++) {
        if (cases[k].kind < 0) continue;
        const CollectiveCall *x = &c.calls[c.by_rank[found++]];
        CHECK_TEXT(strings_text(&c.strings, x->kernel), cases[k].name);
        CHECK_INT(x->kind, cases[k].kind);
    }
    CHECK_INT(c.n_calls, found);
}

/* ---- wrong ranks ---- */

static Status open_ranks(int n, CollectivesOptions o)
{
    collectives_close(&c);
    arena_release(&arena, (ArenaMark){ 0 });
    return collectives_open(&c, paths, n, &o, &arena);
}

static void ranks_that_do_not_make_a_run_are_one_sentence(void **state)
{
    (void)state;
    Run r = { .ranks = 4, .rounds = 5, .metadata = true };
    write_run(&r);
    CHECK_FAILS(open_ranks(3, (CollectivesOptions){ 0 }), ERR_ARG, "rank 3 of 4 is missing");
    CHECK_OK(open_ranks(3, (CollectivesOptions){ .partial = true }));
    CHECK_INT(c.slots[0].calls, 3);
    CHECK_INT(c.groups[0].members, 4);
    CHECK_TEXT(c.slots[0].flag, ""); /* of those that were named all are there */
    snprintf(path[3], sizeof path[3], "%s", path[1]);
    CHECK_FAILS(open_ranks(4, (CollectivesOptions){ 0 }), ERR_ARG,
                "are both rank 1 by distributed");
    begin(3, "other", "\"distributedInfo\":{\"rank\":3,\"world_size\":8},");
    finish();
    CHECK_FAILS(open_ranks(4, (CollectivesOptions){ 0 }), ERR_ARG, "a run of 4 ranks");
    begin(0, "alone", "");
    finish();
    CHECK_FAILS(open_ranks(1, (CollectivesOptions){ 0 }), ERR_ARG, "no collective in");
    begin(0, "rank0", "");
    kernel("op", "ncclDevKernel_Generic", 9, 10, 5, fields_of("allreduce", "0", "[0, 1]", 2, 8, 0));
    finish();
    begin(1, "rank1", "");
    kernel("op", "ncclDevKernel_Generic", 9, 10, 5, fields_of("allreduce", "9", "[4, 5]", 2, 9, 0));
    finish();
    CHECK_FAILS(open_ranks(2, (CollectivesOptions){ 0 }), ERR_ARG, "on any other rank");
}

/* ---- traces of others ---- */

static void eight_ranks_of_dlrm_have_their_known_numbers(void **state)
{
    (void)state;
    static const char *const name[] = { "0_step_12.1694128201545", "1_step_12.1694128201556",
                                        "2_step_12.1694128201554", "3_step_12.1694128201557",
                                        "4_step_12.1694128201547", "5_step_12.1694128201549",
                                        "6_step_12.1694128201553", "7_step_12.1694128201553" };
    FILE *f = fopen("../shared/traces/computed/dlrm_8rank_collectives.txt", "r");
    if (f == NULL) {
        print_message("no ../shared/traces: skipped\n");
        skip();
    }
    for (int i = 0; i < 8; i++)
        snprintf(path[i], sizeof path[i],
                 "../shared/traces/param_dlrm_8rank/worker%s.pt.trace.json.gz", name[i]);
    read_ranks(8, (CollectivesOptions){ .rules = &compat_collective_rules });
    char line[512];
    int found = 0;
    while (fgets(line, sizeof line, f) != NULL) {
        double latency, skew, wait, end;
        int last;
        const char *at = strstr(line, "(min dur)");
        if (at == NULL) continue;
        CHECK_INT(sscanf(at,
                         "(min dur) %lf skew_start %lf avg_wait %lf skew_end %lf "
                         "last_arrival_rank [%d]",
                         &latency, &skew, &wait, &end, &last),
                  5);
        CHECK_NEAR(number_in("nccl_implicit_sync", found, "comm_latency"), latency, 1e-6 * latency);
        CHECK_NEAR(number_in("nccl_implicit_sync", found, "skew in start time"), skew, 1e-6 * skew);
        CHECK_NEAR(number_in("nccl_implicit_sync", found, "avg_wait_time"), wait, 1e-6 * wait);
        CHECK_NEAR(number_in("nccl_implicit_sync", found, "skew in end time"), end, 1e-6 * end);
        CHECK_INT(c.slots[found].last, last);
        found++;
    }
    CHECK_INT(found, 8);
    CHECK_INT(fclose(f), 0);
    read_ranks(8, (CollectivesOptions){ 0 });
    CHECK_INT(c.n_slots, 8);
    for (int i = 1; i < 8; i++) CHECK_NEAR(c.ranks[i].offset_us, 0, 3); /* one host */
    CHECK_TEXT(c.slots[0].flag, "border outlier");
    CHECK_INT((int)number_in("straggler_summary", 0, "rank"), 7);
    CHECK_TEXT(c.groups[0].span, "intra_node");
}

static void columns_are_those_of_tracelens(void **state)
{
    (void)state;
    static const char *const names[] = { "nccl_summary_implicit_sync", "nccl_summary_long" };
    Run r = { .ranks = 4, .rounds = 5, .metadata = true };
    write_run(&r);
    read_ranks(4, (CollectivesOptions){ .rules = &compat_collective_rules, .gpus_per_node = 8 });
    for (int i = 0; i < 2; i++) {
        char file[256], line[4096] = "";
        snprintf(file, sizeof file,
                 "../shared/traces/tracelens/mi300/llama_70b_fsdp/nccl_analysis_report_csvs/%s.csv",
                 names[i]);
        FILE *f = fopen(file, "r");
        if (f == NULL) skip();
        CHECK(fgets(line, sizeof line, f) != NULL);
        CHECK_INT(fclose(f), 0);
        line[strcspn(line, "\r\n")] = '\0';
        char *rest = line;
        for (int k = 0; k < sheet[i].columns; k++) {
            char *word = strsep(&rest, ",");
            CHECK(word != NULL);
            CHECK_TEXT(sheet[i].column[k], word);
        }
        CHECK(rest == NULL);
    }
    CHECK_INT((int)sheet[1].rows, 4 * 5); /* the tags differ */
}

/* What TraceLens says of one rank's collectives: the last six columns of its sheet. */
static void numbers_of_one_rank_are_those_of_tracelens(void **state)
{
    (void)state;
    static const char *const column[] = { "dur_sum", "dur_mean", "dur_std",
                                          "dur_min", "dur_max",  "operation_count" };
    char line[4096];
    FILE *f = fopen("../shared/traces/tracelens/mi300/"
                    "resnet_act_checkpoint_recompute_perf_report_csvs/coll_analysis.csv",
                    "r");
    if (f == NULL) skip();
    snprintf(path[0], sizeof path[0],
             "../shared/traces/tracelens/mi300/resnet_act_checkpoint.json.gz");
    read_ranks(1, (CollectivesOptions){ .rules = &compat_collective_rules, .partial = true });
    CHECK(fgets(line, sizeof line, f) != NULL);
    int rows = 0;
    for (; fgets(line, sizeof line, f) != NULL; rows++) {
        for (int k = 5; k >= 0; k--) {
            char *comma = strrchr(line, ',');
            CHECK(comma != NULL);
            double want = strtod(comma + 1, NULL);
            CHECK_NEAR(number_in("nccl_summary_long", rows, column[k]), want, 1e-6 * want);
            *comma = '\0';
        }
    }
    CHECK_INT(fclose(f), 0);
    CHECK_INT(rows, 4);
    CHECK_INT((int)sheet[1].rows, 4);
    CHECK_INT((int)sheet[2].rows, 17); /* and not those of defect 2 */
}

static int open_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) == NULL || arena_init(&arena, "test", MEM_HOST, (size_t)1 << 36) != OK;
}

static int close_folder(void **state)
{
    (void)state;
    collectives_close(&c);
    arena_free(&arena);
    return file_remove_tree(folder) != OK;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(ranks_of_equal_clocks_give_their_waits),
        TEST(clocks_that_are_off_and_drift_are_found),
        TEST(times_are_relative_to_the_base_of_the_clock),
        TEST(a_window_that_begins_late_matches),
        TEST(lost_kernels_do_not_shift_the_rest),
        TEST(kernels_without_metadata_match_by_stream_and_name),
        TEST(sends_and_receives_match_both_ways),
        TEST(a_straggler_is_named_with_its_operator),
        TEST(a_straggler_on_the_host_is_named_with_what_ran_there),
        TEST(an_outlier_at_the_border_is_in_no_sum),
        TEST(bandwidth_counts_what_the_collective_moves),
        TEST(splits_go_to_ranks_of_the_world),
        TEST(kernels_are_known_by_their_names),
        TEST(ranks_that_do_not_make_a_run_are_one_sentence),
        TEST(eight_ranks_of_dlrm_have_their_known_numbers),
        TEST(columns_are_those_of_tracelens),
        TEST(numbers_of_one_rank_are_those_of_tracelens),
    };
    return cmocka_run_group_tests(tests, open_folder, close_folder);
}
