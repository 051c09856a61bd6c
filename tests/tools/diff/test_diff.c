/* Two traces as one tree: known edits are found, times are gained and lost where they are, and
 * TraceLens' rules give its files. */
#include "call_trees.h"

#include "compat/compat.h"

#define LAUNCH(kernel) "{@cudaLaunchKernel{#" kernel "}}"
#define TIMESFORMER    "facebook_timesformer-base-finetuned-k400__1016002.json.gz"

static const char TRACES[] = "../shared/traces/tracelens";

typedef struct Pair {
    Arena a, scratch;
    CallTree side[DIFF_SIDES];
    Diff d;
    Table sheet[DIFF_SHEETS];
    char *text; /* the merged tree */
} Pair;

static void build(Pair *p, bool compat)
{
    char path[32];
    File f = { 0 };
    size_t n = 0;
    for (int s = 0; s < DIFF_SIDES; s++) {
        const TreeOptions o = { .link = compat ? LINK_AC2G : LINK_CORRELATION,
                                .drop_crossing = compat };
        CHECK_OK(tree_build(&p->side[s].e, &o, &p->a, &p->side[s].t));
    }
    CHECK_OK(diff_trees(&p->side[0].t, &p->side[1].t, compat ? &compat_diff_rules : NULL, &p->a,
                        &p->scratch, &p->d));
    trace_file(path, "", 0);
    CHECK_OK(file_create_temp(&f, path, &p->scratch));
    CHECK_OK(diff_text(&p->d, &p->scratch, &f));
    CHECK_OK(file_commit(&f));
    CHECK_OK(file_read_all(path, &p->a, &p->text, &n));
    unlink(path);
    CHECK_OK(diff_report(&p->d, &p->a, &p->scratch, p->sheet));
}

static void open_pair(Pair *p)
{
    *p = (Pair){ 0 };
    CHECK_OK(arena_init(&p->a, "test", MEM_HOST, (size_t)1 << 32));
    CHECK_OK(arena_init(&p->scratch, "scratch", MEM_HOST, (size_t)1 << 32));
}

static void compare(Pair *p, const char *old, const char *new, bool compat)
{
    open_pair(p);
    p->side[0] = call_tree(old);
    p->side[1] = call_tree(new);
    build(p, compat);
}

static void close_pair(Pair *p)
{
    diff_free(&p->d);
    for (int s = 0; s < DIFF_SIDES; s++) events_free(&p->side[s].e);
    arena_free(&p->a);
    arena_free(&p->scratch);
}

static const Cell *cell(const Table *t, int64_t row, const char *column)
{
    for (int i = 0; i < t->columns; i++) {
        if (strcmp(t->column[i], column) == 0 && row < t->rows)
            return &t->cell[row * t->columns + i];
    }
    fail_msg("%s has no row %lld, or no column %s", t->name, (long long)row, column);
    return NULL;
}

static const Cell *total(const Pair *p, const char *name, const char *column)
{
    const Table *t = &p->sheet[DIFF_TOTALS];
    for (int64_t i = 0; i < t->rows; i++) {
        if (strcmp(cell(t, i, "type")->text, name) == 0) return cell(t, i, column);
    }
    fail_msg("no total %s", name);
    return NULL;
}

static int64_t whole_total(const Pair *p, const char *name, const char *column)
{
    return total(p, name, column)->whole;
}

/* ---- edits ---- */

static const char LAYER[] =
    "aten::linear{aten::addmm" LAUNCH("gemm") "} aten::gelu" LAUNCH("gelu") //
    " aten::add" LAUNCH("add") " aten::view";

static void a_trace_is_the_same_as_itself(void **state)
{
    (void)state;
    Pair p;
    compare(&p, LAYER, LAYER, false);
    CHECK_INT(p.d.roots, 4);
    CHECK(strstr(p.text, "trace1") == NULL && strstr(p.text, "trace2") == NULL);
    CHECK(strstr(p.text, "combined") == NULL);
    CHECK_INT(p.sheet[DIFF_KERNELS].rows, 0);
    CHECK_INT(p.sheet[DIFF_WORK].rows, 0);
    CHECK_INT(p.sheet[DIFF_OPS].rows, 3);
    for (int64_t i = 0; i < 3; i++)
        CHECK_NEAR(cell(&p.sheet[DIFF_OPS], i, "delta_us (new - old)")->number, 0, 0);
    CHECK_TEXT(p.text, "├── aten::linear\n"
                       "│   └── aten::addmm\n"
                       "│       └── cudaLaunchKernel\n"
                       "│           └── gemm\n"
                       "├── aten::gelu\n"
                       "│   └── cudaLaunchKernel\n"
                       "│       └── gelu\n"
                       "├── aten::add\n"
                       "│   └── cudaLaunchKernel\n"
                       "│       └── add\n"
                       "└── aten::view\n");
    close_pair(&p);
}

/* TraceLens pairs roots by position: one more at the front shifts all behind it. */
static void an_inserted_root_shifts_nothing(void **state)
{
    (void)state;
    Pair p;
    char longer[512];
    (void)snprintf(longer, sizeof longer, "aten::zero_%s %s", LAUNCH("zero"), LAYER);
    compare(&p, LAYER, longer, false);
    CHECK_INT(p.d.roots, 5);
    CHECK_INT(p.sheet[DIFF_WORK].rows, 1);
    CHECK_TEXT(cell(&p.sheet[DIFF_WORK], 0, "change")->text, "new");
    CHECK_TEXT(cell(&p.sheet[DIFF_WORK], 0, "name")->text, "aten::zero_");
    CHECK_INT(cell(&p.sheet[DIFF_WORK], 0, "kernels")->whole, 1);
    CHECK_NEAR(total(&p, "of it under others (us)", "new")->number, 10, 1e-9);
    CHECK_NEAR(total(&p, "of it under matched calls (us)", "new")->number, 30, 1e-9);
    close_pair(&p);
    compare(&p, LAYER, longer, true);
    CHECK(strstr(p.text, "combined: aten::linear | aten::zero_") != NULL);
    close_pair(&p);
}

static void a_deleted_child_has_vanished(void **state)
{
    (void)state;
    Pair p;
    compare(&p, "f{a" LAUNCH("ka") " b" LAUNCH("kb*4") " c" LAUNCH("kc") "}",
            "f{a" LAUNCH("ka") " c" LAUNCH("kc") "}", false);
    CHECK_INT(p.sheet[DIFF_WORK].rows, 1);
    CHECK_TEXT(cell(&p.sheet[DIFF_WORK], 0, "change")->text, "vanished");
    CHECK_TEXT(cell(&p.sheet[DIFF_WORK], 0, "parent")->text, "f");
    CHECK_NEAR(cell(&p.sheet[DIFF_WORK], 0, "kernel_time")->number, 4, 1e-9);
    /* its kernel is work of f, the deepest operator that both have */
    CHECK_TEXT(cell(&p.sheet[DIFF_OPS], 0, "name_old")->text, "f");
    CHECK_NEAR(cell(&p.sheet[DIFF_OPS], 0, "delta_us (new - old)")->number, -4, 1e-9);
    CHECK_INT(cell(&p.sheet[DIFF_OPS], 0, "kernels_new")->whole, 0);
    close_pair(&p);
}

static void a_wrapper_hides_nothing(void **state)
{
    (void)state;
    Pair p;
    const char *plain = "a" LAUNCH("ka") " b" LAUNCH("kb");
    compare(&p, plain, "wrap{a" LAUNCH("ka") " b" LAUNCH("kb") "}", false);
    CHECK_INT(p.d.roots, 2);
    CHECK_INT(p.sheet[DIFF_WORK].rows, 0);
    CHECK_INT(p.sheet[DIFF_OPS].rows, 2);
    close_pair(&p);
    compare(&p, "f{g{h{a" LAUNCH("ka") " b" LAUNCH("kb") "}}}",
            "f{a" LAUNCH("ka") " b" LAUNCH("kb") "}", false);
    CHECK_TEXT(p.text, "└── f\n"
                       "    ├── a\n"
                       "    │   └── cudaLaunchKernel\n"
                       "    │       └── ka\n"
                       "    └── b\n"
                       "        └── cudaLaunchKernel\n"
                       "            └── kb\n");
    close_pair(&p);
}

static void a_renamed_operator_on_the_same_sizes_is_matched(void **state)
{
    (void)state;
    Pair p;
    compare(&p, "f{old=[[8,4]]" LAUNCH("k1*8") " x" LAUNCH("kx") "}",
            "f{new=[[8,4]]" LAUNCH("k2*2") " x" LAUNCH("kx") "}", false);
    CHECK_INT(p.sheet[DIFF_WORK].rows, 0);
    CHECK_TEXT(cell(&p.sheet[DIFF_OPS], 0, "name_old")->text, "old");
    CHECK_TEXT(cell(&p.sheet[DIFF_OPS], 0, "name_new")->text, "new");
    CHECK_NEAR(cell(&p.sheet[DIFF_OPS], 0, "speedup (old/new)")->number, 4, 1e-9);
    CHECK(strstr(p.text, "combined: old | new") != NULL);
    CHECK(strstr(p.text, "combined: k1 | k2") != NULL);
    close_pair(&p);
    compare(&p, "f{old=[[8,4]]" LAUNCH("k1") "}", "f{new=[[8,5]]" LAUNCH("k2") "}", false);
    CHECK_INT(p.sheet[DIFF_WORK].rows, 2);
    close_pair(&p);
}

/* Of calls with one name those with the same sizes belong together. */
static void duplicates_are_told_apart_by_their_sizes(void **state)
{
    (void)state;
    Pair p;
    compare(&p, "f{mm=[[1]]" LAUNCH("k*1") " mm=[[2]]" LAUNCH("k*2") " mm=[[3]]" LAUNCH("k*3") "}",
            "f{mm=[[1]]" LAUNCH("k*1") " mm=[[2]]" LAUNCH("k*2") "}", false);
    CHECK_INT(p.sheet[DIFF_WORK].rows, 1);
    CHECK_NEAR(cell(&p.sheet[DIFF_WORK], 0, "kernel_time")->number, 3, 1e-9);
    CHECK_INT(p.sheet[DIFF_ARGS].rows, 3);
    for (int64_t i = 0; i < 3; i++) {
        const Cell *old = cell(&p.sheet[DIFF_ARGS], i, "Input Dims_old");
        if (old->type != CELL_TEXT) continue;
        CHECK_TEXT(old->text, cell(&p.sheet[DIFF_ARGS], i, "Input Dims_new")->text);
    }
    close_pair(&p);
}

/* TraceLens matches lists of one length without a look at names. */
static void lists_of_one_length_are_matched_by_name(void **state)
{
    (void)state;
    Pair p;
    const char *old = "f{a" LAUNCH("ka") " b" LAUNCH("kb") "}";
    const char *new = "f{b" LAUNCH("kb") " c" LAUNCH("kc") "}";
    compare(&p, old, new, false);
    CHECK(strstr(p.text, "├── b\n") != NULL);
    CHECK_INT(p.sheet[DIFF_WORK].rows, 2);
    close_pair(&p);
    compare(&p, old, new, true);
    CHECK(strstr(p.text, "combined: a | b") != NULL && strstr(p.text, "combined: b | c") != NULL);
    close_pair(&p);
}

static void other_kernels_of_an_operator_are_listed(void **state)
{
    (void)state;
    Pair p;
    compare(&p, "mm{@hipLaunchKernel{#cijk*6}} add" LAUNCH("s"),
            "mm{@cudaLaunchKernel{#split*1} @cudaLaunchKernel{#cutlass*2}} add" LAUNCH("s"), false);
    CHECK_INT(p.sheet[DIFF_KERNELS].rows, 1);
    CHECK_TEXT(cell(&p.sheet[DIFF_KERNELS], 0, "kernel_names_old")->text, "cijk");
    CHECK_TEXT(cell(&p.sheet[DIFF_KERNELS], 0, "kernel_names_new")->text, "split; cutlass");
    CHECK_NEAR(cell(&p.sheet[DIFF_KERNELS], 0, "speedup (old/new)")->number, 2, 1e-9);
    CHECK_INT(p.sheet[DIFF_WORK].rows, 0);
    CHECK(strstr(p.text, "combined: hipLaunchKernel | cudaLaunchKernel") != NULL);
    close_pair(&p);
}

/* The second thread of the old trace is the first of the new one. */
static void threads_are_paired_by_what_they_call(void **state)
{
    (void)state;
    Pair p;
    compare(&p, "a" LAUNCH("ka") " b" LAUNCH("kb") " | c" LAUNCH("kc") " d" LAUNCH("kd") " c",
            "c" LAUNCH("kc") " d" LAUNCH("kd") " c | a" LAUNCH("ka") " b" LAUNCH("kb"), false);
    CHECK_INT(p.d.roots, 5);
    CHECK_INT(p.sheet[DIFF_WORK].rows, 0);
    close_pair(&p);
}

static void addresses_and_lines_of_code_are_no_names(void **state)
{
    (void)state;
    Pair p;
    compare(&p, "f.py(12):run{<obj_at_0x7fA0>" LAUNCH("k") "}",
            "f.py(345):run{<obj_at_0x9>" LAUNCH("k") "}", false);
    CHECK_INT(p.d.roots, 1);
    CHECK(strstr(p.text, ">>") == NULL && strstr(p.text, "<<") == NULL);
    CHECK(strstr(p.text, "combined: <obj_at_0x7fA0> | <obj_at_0x9>") != NULL);
    close_pair(&p);
}

/* ---- sums ---- */

static void what_is_linked_is_the_sum_of_its_parts(void **state)
{
    (void)state;
    Pair p;
    compare(&p, "old{@cudaLaunchKernel{#alone*3}} f{a" LAUNCH("k*5") " b" LAUNCH("k*7") "}",
            "f{a" LAUNCH("k*4") " c{d" LAUNCH("k*6") " e" LAUNCH("k*1") "}}", false);
    CHECK_NEAR(total(&p, "device work (us)", "old")->number, 15, 1e-9);
    CHECK_NEAR(total(&p, "of it under matched calls (us)", "old")->number, 12, 1e-9);
    CHECK_NEAR(total(&p, "of it under others (us)", "old")->number, 3, 1e-9);
    CHECK_NEAR(total(&p, "of it under matched calls (us)", "new")->number, 11, 1e-9);
    CHECK_NEAR(total(&p, "device work (us)", "speedup (old/new)")->number, 15.0 / 11, 1e-9);
    double sum[DIFF_SIDES] = { 0 };
    const Table *t = &p.sheet[DIFF_OPS];
    for (int64_t i = 0; i < t->rows; i++) {
        sum[0] += cell(t, i, "kernel_time_old")->number;
        sum[1] += cell(t, i, "kernel_time_new")->number;
    }
    CHECK_NEAR(sum[0], 12, 1e-9);
    CHECK_NEAR(sum[1], 11, 1e-9);
    CHECK_INT(whole_total(&p, "device events", "old"), 3);
    CHECK_INT(whole_total(&p, "device events", "new"), 3);
    close_pair(&p);
}

static void work_of_no_operator_is_that_of_the_root(void **state)
{
    (void)state;
    Pair p;
    compare(&p, "@cudaLaunchKernel{#k*3}", "@cudaLaunchKernel{#k*2}", false);
    CHECK_INT(p.sheet[DIFF_OPS].rows, 1);
    CHECK_TEXT(cell(&p.sheet[DIFF_OPS], 0, "name_old")->text, "cudaLaunchKernel");
    CHECK_NEAR(cell(&p.sheet[DIFF_OPS], 0, "delta_us (new - old)")->number, -1, 1e-9);
    CHECK_NEAR(total(&p, "of it under others (us)", "old")->number, 0, 0);
    close_pair(&p);
}

static void the_hosts_own_time_is_without_its_calls(void **state)
{
    (void)state;
    Pair p;
    compare(&p, "f{a b}", "f{a b a}", false); /* f: 5 us and 7, of it 3 and 4 its own */
    const Table *t = &p.sheet[DIFF_HOST];
    bool found = false;
    for (int64_t i = 0; i < t->rows; i++) {
        if (strcmp(cell(t, i, "name")->text, "f") != 0) continue;
        found = true;
        CHECK_NEAR(cell(t, i, "host_time_old")->number, 5, 1e-9);
        CHECK_NEAR(cell(t, i, "self_time_old")->number, 3, 1e-9);
        CHECK_NEAR(cell(t, i, "self_time_new")->number, 4, 1e-9);
    }
    CHECK(found);
    close_pair(&p);
}

/* ---- long lists ---- */

/* 3,000 roots of 7 names and 600 more in the middle: lists that are aligned in windows. */
static void long_lists_are_aligned_in_windows(void **state)
{
    (void)state;
    enum { ROOTS = 3000, MORE = 600 };
    size_t room = (ROOTS + MORE) * 64;
    char *old = malloc(room), *new = malloc(room);
    size_t n = 0, m = 0;
    Pair p;
    for (int i = 0; i < ROOTS; i++) {
        n += (size_t)snprintf(old + n, room - n, "op%d=[[%d]] ", i % 7, i % 11);
        m += (size_t)snprintf(new + m, room - m, "op%d=[[%d]] ", i % 7, i % 11);
        for (int k = 0; i == ROOTS / 2 && k < MORE; k++)
            m += (size_t)snprintf(new + m, room - m, "more%d ", k % 5);
    }
    compare(&p, old, new, false);
    CHECK((int64_t)ROOTS * (ROOTS + MORE) > DIFF_CELLS);
    CHECK_INT(p.d.roots, ROOTS + MORE);
    for (int64_t i = 0; i < p.d.roots; i++) {
        const DiffNode *root = &p.d.node[p.d.root[i]];
        if (root->event[DIFF_OLD] == EVENT_NONE) continue;
        CHECK(root->event[DIFF_NEW] != EVENT_NONE);
        double at = p.side[0].e.ts[root->event[DIFF_OLD]]; /* a root takes 2 us */
        CHECK_NEAR(p.side[1].e.ts[root->event[DIFF_NEW]], at + (at > ROOTS ? 2 * MORE : 0), 0);
    }
    CHECK_INT(whole_total(&p, "calls on the way to device work, in one", "new"), MORE);
    close_pair(&p);
    free(old);
    free(new);
}

/* One root a step around what are roots in the old trace. */
static void steps_that_were_wrapped_are_still_the_same(void **state)
{
    (void)state;
    enum { STEPS = 60, OPS = 45 };
    size_t room = STEPS * OPS * 64, n = 0, m = 0;
    char *old = malloc(room), *new = malloc(room);
    Pair p;
    for (int i = 0; i < STEPS; i++) {
        m += (size_t)snprintf(new + m, room - m, "step{");
        for (int k = 0; k < OPS; k++) {
            n += (size_t)snprintf(old + n, room - n, "op%d" LAUNCH("k") " ", k % 9);
            m += (size_t)snprintf(new + m, room - m, "op%d" LAUNCH("k") " ", k % 9);
        }
        m += (size_t)snprintf(new + m, room - m, "} ");
    }
    compare(&p, old, new, false);
    CHECK_INT(p.d.roots, STEPS * OPS);
    CHECK_INT(p.sheet[DIFF_WORK].rows, 0);
    CHECK_INT(p.sheet[DIFF_OPS].rows, 9);
    close_pair(&p);
    free(old);
    free(new);
}

static void a_deep_tree_is_compared(void **state)
{
    (void)state;
    enum { DEEP = 2000 };
    char *text = malloc(4 * DEEP + 64);
    size_t n = 0;
    Pair p;
    for (int i = 0; i < DEEP; i++) n += (size_t)snprintf(text + n, 4, "f{");
    n += (size_t)snprintf(text + n, 64, "@cudaLaunchKernel{#k}");
    memset(text + n, '}', DEEP);
    text[n + DEEP] = 0;
    compare(&p, text, text, false);
    CHECK_INT(p.d.nodes, DEEP + 2);
    close_pair(&p);
    free(text);
}

/* Names of templates of C++ are longer than a line that is formatted at once. */
static void long_names_are_written_whole(void **state)
{
    (void)state;
    enum { LONG = 6000 };
    char *text = malloc(LONG + 8);
    Pair p;
    memset(text, 'f', LONG);
    memcpy(text + LONG, "{g{}}", 6);
    compare(&p, text, "h{g{}}", false);
    text[LONG] = 0;
    CHECK(strstr(p.text, text) != NULL);
    close_pair(&p);
    free(text);
}

/* ---- TraceLens ---- */

/* Calls of one name are matched by what is below them: the first of the new trace has the kernels of
 * the second of the old one. */
static void compat_matches_duplicates_by_what_is_below(void **state)
{
    (void)state;
    Pair p;
    const char *x = "x{p" LAUNCH("k1") " q" LAUNCH("k2") "}", *y = "x{r" LAUNCH("k3") "}";
    char old[256], new[256];
    (void)snprintf(old, sizeof old, "f{%s %s g" LAUNCH("kg") "}", x, y);
    (void)snprintf(new, sizeof new, "f{%s %s}", y, x);
    compare(&p, old, new, true);
    const char *text = p.text;
    CHECK_TEXT(text, "└── f\n"
                     "    ├── x\n"
                     "    │   ├── p\n"
                     "    │   │   └── cudaLaunchKernel\n"
                     "    │   │       └── k1\n"
                     "    │   └── q\n"
                     "    │       └── cudaLaunchKernel\n"
                     "    │           └── k2\n"
                     "    ├── x\n"
                     "    │   └── r\n"
                     "    │       └── cudaLaunchKernel\n"
                     "    │           └── k3\n"
                     "    └── >> trace1: g\n"
                     "        └── >> trace1: cudaLaunchKernel\n"
                     "            └── >> trace1: kg\n");
    close_pair(&p);
}

/* Lists of one length with launches in them are aligned by name. */
static void compat_looks_at_names_of_launches(void **state)
{
    (void)state;
    Pair p;
    compare(&p, "f{@cudaLaunchKernel{#k1} @cudaMemsetAsync{#k2}}",
            "f{@cudaMemsetAsync{#k2} @cudaLaunchKernel{#k1}}", true);
    CHECK(strstr(p.text, "combined") == NULL);
    CHECK(strstr(p.text, "trace1") == NULL && strstr(p.text, "trace2") == NULL);
    close_pair(&p);
}

static void write_table(const Table *t, Arena *a, char **out)
{
    char path[32];
    File f = { 0 };
    size_t n = 0;
    trace_file(path, "", 0);
    CHECK_OK(file_create_temp(&f, path, a));
    CHECK_OK(table_csv(t, &f));
    CHECK_OK(file_commit(&f));
    CHECK_OK(file_read_all(path, a, out, &n));
    unlink(path);
}

static void check_same(const char *name, const char *got, Arena *a)
{
    char folder[FILE_PATH_MAX], path[FILE_PATH_MAX], *want = NULL;
    size_t n = 0, i = 0;
    CHECK_OK(file_join(folder, TRACES, "tracediff_test"));
    CHECK_OK(file_join(path, folder, name));
    CHECK_OK(file_read_all(path, a, &want, &n));
    while (got[i] != 0 && got[i] == want[i]) i++;
    if (got[i] != want[i])
        fail_msg("%s at byte %zu: \"%.80s\", want \"%.80s\"", name, i, got + i, want + i);
}

/* 3,438 nodes, 983 device events, and which operator has which kernels: byte by byte. */
static void compat_writes_the_files_that_tracelens_does(void **state)
{
    (void)state;
    static const char *const gpu[] = { "mi300", "h100" };
    static const char *const map[] = { "cpu_op_map_trace1.json", "cpu_op_map_trace2.json",
                                       "cpu_op_map.json" };
    Pair p;
    CompatDiff stats = { 0 };
    char *csv = NULL;
    open_pair(&p);
    if (!file_exists(TRACES)) {
        print_message("skipped: %s is not there\n", TRACES);
        close_pair(&p);
        skip();
    }
    for (int s = 0; s < DIFF_SIDES; s++) {
        char path[FILE_PATH_MAX];
        (void)snprintf(path, sizeof path, "%s/%s/%s", TRACES, gpu[s], TIMESFORMER);
        CHECK_OK(trace_read_file(path, &(ReadAs){ .no_python = true }, &p.side[s].e));
    }
    build(&p, true);
    int64_t of[3] = { 0 };
    for (int64_t i = 0; i < p.d.nodes; i++)
        of[p.d.node[i].event[0] == EVENT_NONE ? 2 : p.d.node[i].event[1] == EVENT_NONE]++;
    CHECK_INT(p.d.nodes, 3438);
    CHECK_INT(of[0], 1471);
    CHECK_INT(of[1], 898);
    CHECK_INT(of[2], 1069);
    check_same("merged_tree_output.txt", p.text, &p.a);
    CHECK_OK(compat_diff(&p.d, &p.a, &p.scratch, &stats));
    CHECK_INT(stats.stats.rows, 983);
    write_table(&stats.stats, &p.a, &csv);
    check_same("diff_stats.csv", csv, &p.a);
    write_table(&stats.unique, &p.a, &csv);
    check_same("diff_stats_unique_args_summary.csv", csv, &p.a);
    for (int i = 0; i < 3; i++) check_same(map[i], stats.map[i], &p.a);
    close_pair(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_trace_is_the_same_as_itself),
        TEST(an_inserted_root_shifts_nothing),
        TEST(a_deleted_child_has_vanished),
        TEST(a_wrapper_hides_nothing),
        TEST(a_renamed_operator_on_the_same_sizes_is_matched),
        TEST(duplicates_are_told_apart_by_their_sizes),
        TEST(lists_of_one_length_are_matched_by_name),
        TEST(other_kernels_of_an_operator_are_listed),
        TEST(threads_are_paired_by_what_they_call),
        TEST(addresses_and_lines_of_code_are_no_names),
        TEST(what_is_linked_is_the_sum_of_its_parts),
        TEST(work_of_no_operator_is_that_of_the_root),
        TEST(the_hosts_own_time_is_without_its_calls),
        TEST(long_lists_are_aligned_in_windows),
        TEST(steps_that_were_wrapped_are_still_the_same),
        TEST(a_deep_tree_is_compared),
        TEST(long_names_are_written_whole),
        TEST(compat_matches_duplicates_by_what_is_below),
        TEST(compat_looks_at_names_of_launches),
        TEST(compat_writes_the_files_that_tracelens_does),
    };
    return TEST_RUN(tests);
}
