/* mesh: a search, as `plan --search` makes it. */
#include "supervise/mesh.h"

#include "planner/answer.h"
#include "planner/search/verify.h"
#include "planner/stack/stack.h"

/* Sizes of a forward pass may differ only where the mathematics does not depend on them. */
static Status keep_mathematics(Config *c, Arena *a)
{
    const ConfigChange *changes = NULL;
    Config other = *c;
    int n = 0;
    if (c->moe_aux_scope == AUX_GLOBAL && c->moe_aux_loss != 0)
        return FAIL(ERR_UNSUPPORTED,
                    "supervise: with moe.aux_scope=global another mesh changes the "
                    "loss, so the run keeps its mesh: name --spare hosts");
    other.train_micro_batch = c->train_micro_batch + 1;
    TRY(config_changes(c, &other, a, &changes, &n));
    for (int i = 0; i < n; i++)
        if (!changes[i].free)
            c->search_micro_batch = (ConfigInts){ .n = 1, .at = { c->train_micro_batch } };
    return OK;
}

Status supervise_mesh(const Config *c, int ranks, const char *cluster, Arena *a, OtherMesh *out)
{
    Config *own = NULL;
    Hardware *gpu = NULL;
    PlanStack *stack = NULL;
    PlanAnswer *answer = NULL;
    *out = (OtherMesh){ 0 };
    TRY(ARENA_NEW(a, 1, &own));
    TRY(ARENA_ZEROED(a, 1, &gpu));
    TRY(ARENA_ZEROED(a, 1, &stack));
    TRY(ARENA_ZEROED(a, 1, &answer));
    *own = *c;
    TRY(keep_mathematics(own, a));
    TRY(hardware_load(gpu, a, cluster));
    TRY(stack_load(stack, a, "switchyard"));
    const PlanQuestion q = {
        .request = { .config = own, .hardware = gpu, .stack = stack, .gpus = ranks },
        .search = true,
        .top = 1
    };
    Status s = plan_answer(&q, a, answer);
    SearchRow *row = answer->found.best;
    if (s == OK && answer->found.n_best == 0)
        s = FAIL(ERR_FIT, "supervise: no mesh of %d ranks or fewer fits into %s", ranks, cluster);
    if (s == OK) s = planner_partition(answer->planner, &row->layout, a, &row->partition);
    if (s == OK) s = verify_settings(&answer->config, row, a, &out->settings);
    if (s == OK) (void)plan_layout_text(out->text, &row->layout, &row->price);
    out->ranks = (int)answer->request.gpus;
    plan_answer_free(answer);
    return s;
}
