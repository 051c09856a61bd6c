/* infer: opens a checkpoint for reading. */
#include "engine/train/infer.h"

#include "engine/train/fits.h"

Status infer_config(const char *checkpoint, Arena *a, char path[], Config *out)
{
    CheckpointInfo info;
    TRY(checkpoint_resolve(checkpoint, a, path));
    TRY(checkpoint_info(path, a, &info));
    TRY(checkpoint_config(path, &info, a, out));
    config_alone(out);
    out->mesh_vpp = 1, out->mesh_layout = "";
    out->mesh_schedule = "1f1b"; /* the checkpoint's may be a removed one */
    return OK;
}

/* Plans, and checks the host's memory before the arenas are allocated; then opens and loads. */
Status infer_open(Engine *e, const Config *c, const EngineShape *shape, const char *path,
                  bool average, Arena *a, CheckpointInfo *info)
{
    EnginePlan plan;
    HostMemory m;
    TRY(engine_plan(c, ENGINE_INFER, shape, &plan));
    host_memory("/proc", "/sys/fs/cgroup", &m);
    TRY(train_check_bytes("the model takes", train_host_bytes(&plan), &m,
                          "take a host with more memory"));
    TRY(engine_open(e, c, ENGINE_INFER, shape, &plan));
    e->params.takes_average = average;
    return checkpoint_load(&e->params, path, a, info);
}
