/*
 * op_ranks: runs an op on ranks of tp that are threads, each with arguments of its own, on the CPU or
 * on GPUs. A body that fails returns its status: only the main thread checks.
 *
 * With a GPU for each rank they communicate through NCCL. If there are fewer they share the first,
 * and each collective goes through host memory, so one GPU is enough to run the kernels.
 */
#ifndef KERNELS_OP_OP_RANKS_H
#define KERNELS_OP_OP_RANKS_H

#include "harness/optest.h"

#include "engine/comm/comm_private.h"

enum { PARTS_MOST = 4, PART_DEVICE_BYTES = 128 << 20, PART_ARGS_BYTES = 1024 };

typedef struct Part {
    OpTest t;
    Mesh mesh;
    OpId op;
    void *args; /* in host memory */
    Exec gpu;
    Arena device, scratch;
    Comm staged;
} Part;

typedef struct Ranks {
    int n;
    bool on_gpu;
    Part *part[PARTS_MOST];
} Ranks;

/* Each rank has memory of its own, and what it must not touch is poisoned by the arena. */
static inline void part_open(Part *p, int rank, OpId op, void *args)
{
    OpTest *t = &p->t;
    *p = (Part){ .op = op, .args = args };
    optest_open(t, 1 + rank % 2);
    for (int l = 0; l < t->ex.depth; l++) { /* the mirror serves one thread */
        if (t->ex.front[l] == &backend_mirror) t->ex.front[l] = &backend_guard;
    }
}

/* GPUs */

/* Copies in to host memory, calls, and copies out back. The two may be one. */
static inline Status staged(Part *p, const Tensor *in, const Tensor *out,
                            Status (*call)(Comm *, const Tensor *, const Tensor *, ReduceOp),
                            ReduceOp op)
{
    Tensor from = *in, to = *out;
    ArenaMark mark = arena_mark(&p->t.arena);
    TRY(arena_alloc(&p->t.arena, tensor_bytes(in), &from.data));
    TRY(arena_alloc(&p->t.arena, tensor_bytes(out), &to.data));
    TRY(p->gpu.backend->read(&p->gpu, from.data, in->data, tensor_bytes(in)));
    TRY(call(p->mesh.group[GROUP_TP], &from, &to, op));
    TRY(p->gpu.backend->copy(&p->gpu, out->data, to.data, tensor_bytes(out)));
    TRY(p->gpu.backend->sync(&p->gpu));
    arena_release(&p->t.arena, mark);
    return OK;
}

static inline Status host_all_reduce_to(Comm *c, const Tensor *in, const Tensor *out, ReduceOp op)
{
    memcpy(out->data, in->data, tensor_bytes(in));
    return comm_all_reduce(c, out, op);
}

static inline Status host_all_to_all_of(Comm *c, const Tensor *in, const Tensor *out, ReduceOp op)
{
    (void)op;
    return comm_all_to_all(c, in, out);
}

static inline Status host_all_gather_of(Comm *c, const Tensor *in, const Tensor *out, ReduceOp op)
{
    (void)op;
    return comm_all_gather(c, in, out);
}

static inline Status staged_all_reduce(Comm *c, const Tensor *t, ReduceOp op)
{
    return staged(c->own, t, t, host_all_reduce_to, op);
}

static inline Status staged_all_to_all(Comm *c, const Tensor *in, const Tensor *out)
{
    return staged(c->own, in, out, host_all_to_all_of, REDUCE_SUM);
}

static inline Status staged_all_gather(Comm *c, const Tensor *in, const Tensor *out)
{
    return staged(c->own, in, out, host_all_gather_of, REDUCE_SUM);
}

static inline Status part_gpu_open(Part *p, bool own, Mesh *mesh)
{
    static const CommTable table = { .all_reduce = staged_all_reduce,
                                     .all_to_all = staged_all_to_all,
                                     .all_gather = staged_all_gather };
    Comm *host = p->mesh.group[GROUP_TP];
    Arena *blocks[] = { &p->device, &p->scratch };
    TRY(gpu_exec_init(&p->gpu, own ? host->rank : 0, &p->t.arena, &p->scratch));
    for (int i = 0; i < 2; i++) {
        void *at = NULL;
        TRY(p->gpu.backend->alloc(&p->gpu, MEM_DEVICE, PART_DEVICE_BYTES, &at));
        arena_over(blocks[i], "part", MEM_DEVICE, at, PART_DEVICE_BYTES);
    }
    *mesh = p->mesh;
    p->gpu.mesh = mesh;
    p->staged = *host;
    p->staged.table = &table, p->staged.own = p;
    mesh->group[GROUP_TP] = &p->staged;
    if (!own) return OK;
    void *stream = p->gpu.backend->streams->of_lane(&p->gpu, LANE_COMPUTE);
    return comm_nccl(host, stream, COMM_BLOCKS, &p->t.arena, &mesh->group[GROUP_TP]);
}

static inline void part_gpu_close(Part *p, bool own, Mesh *mesh)
{
    Arena *blocks[] = { &p->device, &p->scratch };
    if (own) comm_free(mesh->group[GROUP_TP]);
    for (int i = 0; i < 2; i++) {
        if (blocks[i]->base != NULL)
            p->gpu.backend->free(&p->gpu, MEM_DEVICE, blocks[i]->base, PART_DEVICE_BYTES);
    }
    exec_free(&p->gpu);
}

/* Copies all tensors to the device; or back from it. */
static inline Status part_copy(Part *p, void *device, bool back)
{
    const Exec *ex = &p->gpu;
    for (const OpPort *port = op_desc(p->op)->ports; port->dir != PORT_END; port++) {
        const Tensor *host = op_port_tensor(port, p->args);
        Tensor *t = (Tensor *)(void *)((char *)device + port->offset);
        size_t bytes = tensor_bytes(host);
        if (host->data == NULL) continue;
        if (!back) TRY(arena_alloc(&p->device, bytes, &t->data));
        void *to = back ? host->data : t->data, *from = back ? t->data : host->data;
        TRY(ex->backend->copy(&p->gpu, to, from, bytes));
    }
    return ex->backend->sync(&p->gpu);
}

static inline Status part_on_gpu(Part *p)
{
    bool own = gpu_devices() >= p->mesh.shape.tp;
    _Alignas(16) char device[PART_ARGS_BYTES];
    Mesh mesh;
    assert(op_desc(p->op)->args_bytes <= sizeof device);
    memcpy(device, p->args, op_desc(p->op)->args_bytes);
    Status s = part_gpu_open(p, own, &mesh);
    if (s == OK) s = part_copy(p, device, false);
    if (s == OK) s = comm_barrier(p->mesh.group[GROUP_TP]); /* allocations may wait for kernels */
    if (s == OK) s = op_run(&p->gpu, p->op, device);
    if (s == OK) s = p->gpu.backend->sync(&p->gpu);
    if (s == OK) s = part_copy(p, device, true);
    part_gpu_close(p, own, &mesh);
    return s;
}

static inline Status part_body(void *state, Comm *world)
{
    const Ranks *s = state;
    Part *p = s->part[world->rank];
    const MeshShape shape = { 1, 1, 1, 1, 1, .tp = s->n };
    ArenaMark mark = arena_mark(&p->t.arena);
    TRY(mesh_make(world, &shape, false, &p->t.arena, &p->mesh));
    p->t.ex.mesh = &p->mesh;
    TRY(s->on_gpu ? part_on_gpu(p) : op_run(&p->t.ex, p->op, p->args));
    mesh_free(&p->mesh);
    arena_release(&p->t.arena, mark);
    return OK;
}

static inline Status ranks_run(Ranks *s)
{
    int failed = -1;
    return comm_threads(s->n, 60, part_body, s, &failed);
}

#endif
