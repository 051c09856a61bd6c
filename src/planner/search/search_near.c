/* search_near: finds a layout that fits near one that does not. It varies the settings that are easiest to change
 * first, then more of them, and stops at the first set with a layout that fits. So it takes a second where a whole
 * search takes many. */
#include "planner/search/search.h"

#define VARY(axis) (1u << SEARCH_##axis)

/* Which axes each set varies; the others keep the values of the layout. Recompute modules always vary: a layout may have
 * a set of them that no axis has. */
static const unsigned near_sets[] = {
    VARY(RECOMPUTE),
    VARY(RECOMPUTE) | VARY(ZERO) | VARY(SHARD) | VARY(MICRO),
    VARY(RECOMPUTE) | VARY(ZERO) | VARY(MICRO) | VARY(SCHEDULE) | VARY(VPP) | VARY(PP),
    VARY(RECOMPUTE) | VARY(ZERO) | VARY(MICRO) | VARY(PP) | VARY(EP) | VARY(CP) | VARY(TP),
};
enum { NEAR_SETS = sizeof near_sets / sizeof *near_sets, NEAR_ROWS = 10 };

/* Gives each axis outside of the set the layout's value. */
static void pin_axes(const PlanLayout *l, unsigned set, SearchAxes *axes)
{
    const int64_t value[SEARCH_AXES] = { [SEARCH_PP] = l->pp,
                                         [SEARCH_CP] = l->cp,
                                         [SEARCH_TP] = l->tp,
                                         [SEARCH_EP] = l->ep,
                                         [SEARCH_VPP] = l->vpp,
                                         [SEARCH_SCHEDULE] = l->schedule - schedule_table,
                                         [SEARCH_MICRO] = l->micro_batch,
                                         [SEARCH_ZERO] = l->zero,
                                         [SEARCH_SHARD] = l->shard };
    for (int i = SEARCH_PP; i < SEARCH_AXES; i++) {
        if ((set >> i & 1) == 0) axes->axis[i] = (ConfigInts){ 1, { value[i] } };
    }
}

/* Prices are not simulated, as memory does not depend on it. A set without a legal layout is passed over. */
Status search_near(const PlanRequest *q, const PlanLayout *l, Arena *a, SearchResult *out)
{
    SearchPricer pricer = search_planner;
    SearchAxes given;
    pricer.simulate = pricer.price;
    *out = (SearchResult){ 0 };
    TRY(search_axes(q->config, &given));
    for (int i = 0; i < NEAR_SETS && out->n_best == 0; i++) {
        SearchAxes axes = given;
        SearchResult r = { 0 };
        pin_axes(l, near_sets[i], &axes);
        Status s = search_run(q, &(SearchOptions){ &axes, &pricer, NEAR_ROWS, 0, NULL }, a, &r);
        if (s == ERR_ARG) {
            status_clear();
            continue;
        }
        TRY(s);
        if (r.n_best > 0 || out->nearest.layout.pp == 0 ||
            r.nearest.price.peak_bytes < out->nearest.price.peak_bytes)
            *out = r;
    }
    return OK;
}
