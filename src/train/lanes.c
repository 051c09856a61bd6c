#include "train/lanes.h"

#include "backend/backend.h"
#include "backend/cuda.h"
#include "train/engine.h"

Status lanes_make(Engine *e)
{
    for (int i = 0; i < LANE_MARKS && e->lanes.on && !e->counting; i++) {
        TRY(exec_bottom(&e->ex)->event_new(&e->ex, &e->lanes.event[i]));
    }
    return OK;
}

/* All groups' calls go where the Exec's launches go. */
static void use(Engine *e, Lane lane)
{
    e->ex.lane = lane;
    e->ex.scratch = lane == LANE_COMM ? &e->lanes.scratch : &e->arena[ENGINE_SCRATCH];
    if (e->counting) return;
    void *stream = cuda_stream(&e->ex, lane);
    for (int g = 0; g < GROUP_COUNT; g++) comm_set_stream(e->mesh.group[g], stream);
    if (e->mirror != NULL) comm_set_stream(e->mirror, stream);
}

static Status record(Engine *e, LaneMark mark)
{
    return e->counting ? OK : exec_bottom(&e->ex)->record(&e->ex, e->lanes.event[mark]);
}

static Status wait(Engine *e, LaneMark mark)
{
    return e->counting ? OK : exec_bottom(&e->ex)->wait(&e->ex, e->lanes.event[mark]);
}

Status lanes_enter(Engine *e)
{
    if (!e->lanes.on) return OK;
    TRY(record(e, MARK_ENTER));
    use(e, LANE_COMM);
    return wait(e, MARK_ENTER);
}

Status lanes_leave(Engine *e, LaneMark mark)
{
    if (!e->lanes.on) return OK;
    TRY(record(e, mark));
    if (mark != MARK_ALL) TRY(record(e, MARK_ALL));
    e->lanes.due[mark] = e->lanes.due[MARK_ALL] = true;
    use(e, LANE_COMPUTE);
    return OK;
}

Status lanes_wait(Engine *e, LaneMark mark)
{
    if (!e->lanes.on || !e->lanes.due[mark]) return OK;
    for (int i = 0; i < LANE_MARKS; i++) {
        if (i == (int)mark || mark == MARK_ALL) e->lanes.due[i] = false;
    }
    return wait(e, mark);
}

static bool travels(const Engine *e, const Phase *f)
{
    return f->lane == LANE_COMM && (e->spec.ep > 1 || e->spec.cp > 1);
}

Status lanes_begin_phase(Engine *e, LayerRun *r, const Phase *f)
{
    if (travels(e, f))
        TRY(lanes_enter(e));
    else if (!f->beside)
        TRY(lanes_wait(e, MARK_EXCHANGE));
    r->scratch = e->ex.scratch;
    return OK;
}

Status lanes_end_phase(Engine *e, const Phase *f)
{
    return travels(e, f) ? lanes_leave(e, MARK_EXCHANGE) : OK;
}
