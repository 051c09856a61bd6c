/*
 * head_split: head_loss over ranks that are threads and have equal parts of a vocabulary, on the CPU
 * or on GPUs. A body that fails returns its status: only the main thread checks.
 *
 * With a GPU for each rank they communicate through NCCL. If there are fewer they share the first,
 * and each all-reduce goes through host memory, so one GPU is enough to run the kernels.
 */
#ifndef TESTS_OP_HEAD_SPLIT_H
#define TESTS_OP_HEAD_SPLIT_H

#include "harness/optest.h"

#include "comm/comm_private.h"

enum { PARTS_MOST = 4, SPLIT_DEVICE_BYTES = 128 << 20 };

typedef struct Part {
    OpTest t;
    Mesh mesh;
    HeadLoss a; /* in host memory */
    Exec gpu;
    Arena device, scratch;
    Comm staged;
} Part;

typedef struct Split {
    int ranks;
    bool on_gpu;
    Part part[PARTS_MOST];
} Split;

/* Each rank has memory of its own, and what it must not touch is poisoned by the arena. */
static inline void split_open(Split *s, int ranks, bool on_gpu)
{
    *s = (Split){ .ranks = ranks, .on_gpu = on_gpu };
    for (int r = 0; r < ranks; r++) {
        OpTest *t = &s->part[r].t;
        optest_open(t, 1 + r % 2);
        for (int l = 0; l < t->ex.depth; l++) { /* the mirror serves one thread */
            if (t->ex.front[l] == &backend_mirror) t->ex.front[l] = &backend_guard;
        }
    }
}

static inline void split_close(Split *s)
{
    for (int r = 0; r < s->ranks; r++) optest_close(&s->part[r].t);
}

/* Cuts `whole` into parts. The last rank adds the loss. */
static inline void split_cut(Split *s, const HeadLoss *whole)
{
    int64_t V = whole->w.data.dim[0] / s->ranks;
    for (int r = 0; r < s->ranks; r++) {
        OpTest *t = &s->part[r].t;
        HeadLoss *a = &s->part[r].a;
        Tensor w = tensor_rows(&whole->w.data, r * V, V);
        *a = *whole;
        a->w = operand_plain(optest_copy(t, &w));
        a->loss = optest_poisoned(t, DTYPE_F32, whole->loss.dim);
        a->loss_sum = optest_copy(t, &whole->loss_sum);
        if (a->dx.data != NULL) a->dx = optest_poisoned(t, whole->dx.dtype, whole->dx.dim);
        if (a->dw.data != NULL) {
            Tensor dw = tensor_rows(&whole->dw, r * V, V);
            a->dw = optest_copy(t, &dw);
        }
        a->vocab_first = r * V, a->ranks = s->ranks;
        a->silent = r < s->ranks - 1;
    }
}

/* GPUs */

static inline Status staged_all_reduce(Comm *c, const Tensor *t, ReduceOp op)
{
    Part *p = c->own;
    Tensor host = *t;
    ArenaMark mark = arena_mark(&p->t.arena);
    TRY(arena_alloc(&p->t.arena, tensor_bytes(t), &host.data));
    TRY(p->gpu.backend->read(&p->gpu, host.data, t->data, tensor_bytes(t)));
    TRY(comm_all_reduce(p->mesh.group[GROUP_TP], &host, op));
    TRY(p->gpu.backend->copy(&p->gpu, t->data, host.data, tensor_bytes(t)));
    TRY(p->gpu.backend->sync(&p->gpu));
    arena_release(&p->t.arena, mark);
    return OK;
}

static inline Status part_gpu_open(Part *p, bool own, Mesh *mesh)
{
    static const CommTable table = { .all_reduce = staged_all_reduce };
    Comm *host = p->mesh.group[GROUP_TP];
    Arena *blocks[] = { &p->device, &p->scratch };
    TRY(gpu_exec_init(&p->gpu, own ? host->rank : 0, &p->t.arena, &p->scratch));
    for (int i = 0; i < 2; i++) {
        void *at = NULL;
        TRY(p->gpu.backend->alloc(&p->gpu, MEM_DEVICE, SPLIT_DEVICE_BYTES, &at));
        arena_over(blocks[i], "part", MEM_DEVICE, at, SPLIT_DEVICE_BYTES);
    }
    *mesh = p->mesh;
    p->gpu.mesh = mesh;
    p->staged = *host;
    p->staged.table = &table, p->staged.own = p;
    mesh->group[GROUP_TP] = &p->staged;
    if (!own) return OK;
    void *stream = p->gpu.backend->streams->of_lane(&p->gpu, LANE_COMPUTE);
    return comm_nccl(host, stream, &p->t.arena, &mesh->group[GROUP_TP]);
}

static inline void part_gpu_close(Part *p, bool own, Mesh *mesh)
{
    Arena *blocks[] = { &p->device, &p->scratch };
    if (own) comm_free(mesh->group[GROUP_TP]);
    for (int i = 0; i < 2; i++) {
        if (blocks[i]->base != NULL)
            p->gpu.backend->free(&p->gpu, MEM_DEVICE, blocks[i]->base, SPLIT_DEVICE_BYTES);
    }
    exec_free(&p->gpu);
}

/* Copies all tensors to the device; or back from it. */
static inline Status part_copy(Part *p, HeadLoss *device, bool back)
{
    const Exec *ex = &p->gpu;
    for (const OpPort *port = op_desc(OP_HEAD_LOSS)->ports; port->dir != PORT_END; port++) {
        const Tensor *host = op_port_tensor(port, &p->a);
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
    HeadLoss device = p->a;
    Mesh mesh;
    Status s = part_gpu_open(p, own, &mesh);
    if (s == OK) s = part_copy(p, &device, false);
    if (s == OK) s = comm_barrier(p->mesh.group[GROUP_TP]); /* allocations may wait for kernels */
    if (s == OK) s = head_loss(&p->gpu, device);
    if (s == OK) s = p->gpu.backend->sync(&p->gpu);
    if (s == OK) s = part_copy(p, &device, true);
    part_gpu_close(p, own, &mesh);
    return s;
}

static inline Status split_body(void *state, Comm *world)
{
    Split *s = state;
    Part *p = &s->part[world->rank];
    const MeshShape shape = { 1, 1, 1, 1, 1, .tp = s->ranks };
    TRY(mesh_make(world, &shape, false, &p->t.arena, &p->mesh));
    p->t.ex.mesh = &p->mesh;
    TRY(s->on_gpu ? part_on_gpu(p) : head_loss(&p->t.ex, p->a));
    mesh_free(&p->mesh);
    return OK;
}

static inline Status split_run(Split *s)
{
    int failed = -1;
    return comm_threads(s->ranks, 60, split_body, s, &failed);
}

#endif
