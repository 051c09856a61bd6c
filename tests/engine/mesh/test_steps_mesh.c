/* Fifty steps of transformers' models: over ranks they have the losses of one rank, and both those of
 * transformers. Under a sanitizer the first steps. */
#include "harness/trajectory.h"

static const double LIMIT = 1e-5;
enum { STEPS = 50 };
static const bool SHORT = RUNS(false, true);

static void a_mesh_has_the_losses_of_one_rank(void **state)
{
    static const char *const few[] = { "train.steps=2", NULL };
    const TrajectoryCase *c = *state;
    const char *all[10] = { 0 };
    double alone[STEPS], mesh[STEPS], worst = 0;
    Trajectory t;
    int n = 0;
    for (; n < 8 && c->settings[n] != NULL; n++) all[n] = c->settings[n];
    if (SHORT) all[n] = few[0];
    trajectory_open(&t, c->model);
    CHECK_OK(trajectory_run(&t, 1, SHORT ? few : NULL, false));
    trajectory_losses(&t, alone);
    CHECK_OK(file_remove_tree(t.run));
    CHECK_OK(trajectory_run(&t, c->ranks, all, false));
    trajectory_losses(&t, mesh);
    for (int64_t i = 0; i < t.steps; i++) {
        worst = fmax(worst, fabs(mesh[i] - alone[i]) / alone[i]);
        if (!(worst <= LIMIT))
            fail_msg("step %lld: loss %.9g, of one rank %.9g", (long long)i + 1, mesh[i], alone[i]);
    }
    trajectory_check(&t, &steps_f32);
    print_message("%s, %s: %.1e from one rank, %.1e from transformers\n", c->model, c->name, worst,
                  t.worst_loss);
    trajectory_close(&t);
}

int main(void)
{
    struct CMUnitTest tests[STEPS_MESHES];
    for (int i = 0; i < STEPS_MESHES; i++) {
        const TrajectoryCase *c = &steps_meshes[i];
        tests[i] = (struct CMUnitTest){ c->name, a_mesh_has_the_losses_of_one_rank, NULL, NULL,
                                        (void *)(uintptr_t)c };
    }
    return TEST_RUN(tests);
}
