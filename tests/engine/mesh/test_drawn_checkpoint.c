/* A drawn model's checkpoint goes from one drawn mesh to another, each element to its place. */
#include "harness/checkpoint_ranks.h"
#include "harness/draw_mesh.h"

static void any_drawn_mesh_loads_any_other_s(void **state)
{
    enum { PAIRS = RUNS(40, 4), OTHER = 1 << 20 };
    (void)state;
    char place[64] = "/tmp/switchyard_test_XXXXXX";
    int first = 0, n = PAIRS, ran = 0, wrong = 0;
    const char *other = getenv("DRAWN");
    if (other != NULL) CHECK_INT(sscanf(other, "%d:%d", &first, &n), 2);
    CHECK(mkdtemp(place) != NULL);
    for (int i = first; i < first + n; i++) {
        static Drawn c[2];
        for (int k = 0; k < 2; k++) draw_case(i, i + k * OTHER, RANKS_MOST, &c[k]);
        Status s = run_case((Case){ .layout = &c[0].what, .dir = place, .body = save_two });
        if (s == OK) s = run_case((Case){ .layout = &c[1].what, .dir = place, .body = expect_two });
        CHECK_OK(file_remove_tree(place));
        ran += !refused(s);
        wrong += s != OK && !refused(s);
        if (s != OK) print_error("%d: %s\n", i, status_message());
        for (int k = 0; k < 2 && s != OK; k++) print_case(&c[k]);
        status_clear();
    }
    print_message("%d of %d ran\n", ran, n);
    CHECK_INT(wrong, 0);
    CHECK(ran >= n / 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = { TEST(any_drawn_mesh_loads_any_other_s) };
    return TEST_RUN(tests);
}
