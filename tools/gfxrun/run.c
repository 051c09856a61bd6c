/* run: the start of a kernel's waves, their order, and the instructions that steer them. */
#include "gfxrun/machine.h"

#include "engine/base/rng.h"

#include <stdio.h>
#include <string.h>

static bool run_end(Wave *w, const Op *o)
{
    (void)o;
    w->state = WAVE_ENDED;
    return true;
}

static bool run_barrier(Wave *w, const Op *o)
{
    (void)o;
    w->state = WAVE_AT_BARRIER;
    return true;
}

static bool run_trap(Wave *w, const Op *o)
{
    (void)o;
    return fault(w, -1, "the kernel stops itself");
}

/* Fields of the registers that describe the wave; hwreg_of has left id, first bit and bits - 1. */
static bool run_getreg(Wave *w, const Op *o)
{
    uint64_t field = o->src[0].value;
    unsigned first = field >> 6 & 31, bits = (field >> 11 & 31) + 1;
    uint64_t v = 0;
    if ((field & 63) == HWREG_MODE) v = w->group->launch->kernel->rsrc1 >> 12 & 255;
    if ((field & 63) == HWREG_ID) v = (uint64_t)w->number;
    return write_scalar(w, &o->dst[0], v >> first & (((uint64_t)1 << bits) - 1));
}

static bool run_nothing(Wave *w, const Op *o)
{
    (void)w;
    (void)o;
    return true;
}

/* With loads that may overtake each other, a wait for n > 0 says nothing about any one of them. */
static void wait_for(Counter *c, int left)
{
    if (left < 0 || (left > 0 && c->unordered > c->done)) return;
    if (c->issued > (uint32_t)left && c->issued - (uint32_t)left > c->done)
        c->done = c->issued - (uint32_t)left;
}

static bool run_wait(Wave *w, const Op *o)
{
    wait_for(&w->vm, o->with.vmcnt);
    wait_for(&w->lgkm, o->with.lgkmcnt);
    return true;
}

enum { ALWAYS, IF_SCC0, IF_SCC1, IF_VCCZ, IF_VCCNZ, IF_EXECZ, IF_EXECNZ };

static bool run_branch(Wave *w, const Op *o)
{
    uint64_t vcc = 0;
    static const Operand vcc_operand = { .kind = OPERAND_SCALAR,
                                         .type = 'm',
                                         .type_words = 2,
                                         .read_words = 3,
                                         .reg = VCC,
                                         .words = 2 };
    bool taken = true;
    if ((o->row->a == IF_SCC0 || o->row->a == IF_SCC1) && !scc_ready(w)) return false;
    if ((o->row->a == IF_VCCZ || o->row->a == IF_VCCNZ) && !read_scalar(w, &vcc_operand, &vcc))
        return false;
    switch (o->row->a) {
    case IF_SCC0: taken = !w->scc; break;
    case IF_SCC1: taken = w->scc; break;
    case IF_VCCZ: taken = vcc == 0; break;
    case IF_VCCNZ: taken = vcc != 0; break;
    case IF_EXECZ: taken = exec_mask(w) == 0; break;
    case IF_EXECNZ: taken = exec_mask(w) != 0; break;
    default: break;
    }
    if (!taken) return true;
    if (o->target < 0) return fault(w, -1, "the branch leads to no instruction");
    w->at = o->target;
    return true;
}

static uint64_t image_address(const Wave *w)
{
    return (uint64_t)(uintptr_t)w->group->launch->code->image;
}

static bool run_getpc(Wave *w, const Op *o)
{
    return write_scalar(w, &o->dst[0], image_address(w) + o->address + 4);
}

/* s_setpc, and s_swappc, which also keeps where to come back to. */
static bool run_setpc(Wave *w, const Op *o)
{
    uint64_t to;
    if (!read_scalar(w, &o->src[0], &to)) return false;
    int index = op_at(&w->group->launch->kernel->program, to - image_address(w));
    if (index < 0) return fault(w, -1, "the jump leads to no instruction");
    w->at = index;
    return o->n_dst == 0 || write_scalar(w, &o->dst[0], image_address(w) + o->address + 4);
}

const Row control_rows[] = {
    { "s_endpgm", "=", .run = run_end },
    { "s_barrier", "=", .run = run_barrier },
    { "s_waitcnt", "=", .run = run_wait },
    { "s_trap", "=i", .run = run_trap },
    { "s_getreg_b32", "u=i", .run = run_getreg },
    { "s_nop", "=i", .run = run_nothing },
    { "v_nop", "=", .run = run_nothing },
    { "s_sleep", "=i", .run = run_nothing },
    { "s_setprio", "=i", .run = run_nothing },
    { "s_sethalt", "=i", .run = run_nothing },
    { "s_icache_inv", "=", .run = run_nothing },
    { "s_dcache_wb", "=", .run = run_nothing },
    { "s_dcache_inv", "=", .run = run_nothing },
    { "buffer_wbl2", "=", .run = run_nothing },
    { "buffer_inv", "=", .run = run_nothing },
    { "s_branch", "=j", .run = run_branch, .a = ALWAYS },
    { "s_cbranch_scc0", "=j", .run = run_branch, .a = IF_SCC0 },
    { "s_cbranch_scc1", "=j", .run = run_branch, .a = IF_SCC1 },
    { "s_cbranch_vccz", "=j", .run = run_branch, .a = IF_VCCZ },
    { "s_cbranch_vccnz", "=j", .run = run_branch, .a = IF_VCCNZ },
    { "s_cbranch_execz", "=j", .run = run_branch, .a = IF_EXECZ },
    { "s_cbranch_execnz", "=j", .run = run_branch, .a = IF_EXECNZ },
    { "s_getpc_b64", "q=", .run = run_getpc },
    { "s_setpc_b64", "=q", .run = run_setpc },
    { "s_swappc_b64", "q=q", .run = run_setpc },
    { 0 },
};

/* One instruction. A branch has set `at` already when it is taken. */
static bool step(Wave *w)
{
    Launch *l = w->group->launch;
    const Op *o = &l->kernel->program.ops[w->at++];
    l->counts.instructions++;
    if (o->row == NULL) return fault(w, -1, "this instruction or form is not known");
    if (o->row->run(w, o)) return true;
    if (w->undefined_reg < 0) return false;
    return o->visible ? undefined_fault(w) : run_undefined(w, o);
}

static Status failed(const Wave *w, int at)
{
    const Launch *l = w->group->launch;
    const Op *o = &l->kernel->program.ops[at];
    char lane[32] = "", text[160];
    text_of(l, o, text, sizeof text);
    if (w->fault_lane >= 0) (void)snprintf(lane, sizeof lane, ", lane %d", w->fault_lane);
    return FAIL(ERR_DEVICE, "%s: %s (`%s`, line %d, workgroup %u %u %u, wave %d%s)",
                l->kernel->name, w->fault, text, o->line, w->group->id[0], w->group->id[1],
                w->group->id[2], w->number, lane);
}

static int64_t limit_of(const Launch *l)
{
    return l->request->n_instructions > 0 ? l->request->n_instructions : (int64_t)1 << 31;
}

static Status run_some(Wave *w, uint64_t steps)
{
    const Launch *l = w->group->launch;
    const Program *p = &l->kernel->program;
    char text[160];
    if (l->counts.instructions > limit_of(l)) {
        text_of(l, &p->ops[w->at], text, sizeof text);
        return FAIL(ERR_DEVICE, "%s: no end after %lld instructions, wave %d is at `%s`",
                    l->kernel->name, (long long)l->counts.instructions, w->number, text);
    }
    while (steps-- > 0 && w->state == WAVE_RUNS) {
        int at = w->at;
        if (at < 0 || at >= p->n)
            return FAIL(ERR_DEVICE, "%s: wave %d left the code", l->kernel->name, w->number);
        if (!step(w)) return failed(w, at);
    }
    return OK;
}

/* What a wave has waited for before a barrier, the others may rely on after it. Its own accesses are in
 * their order anyway. */
static void release_barrier(Group *g)
{
    for (int i = 0; i < g->n_waves; i++) {
        Wave *w = &g->waves[i];
        if (w->state != WAVE_AT_BARRIER) continue;
        w->state = WAVE_RUNS;
        for (int k = 0; k < g->n_waves; k++)
            if (k != i) g->waves[k].before[i] = w->lgkm.done;
    }
}

static Status run_group(Group *g, uint64_t *draws)
{
    uint64_t seed = g->launch->request->seed;
    for (;;) {
        int running[WAVES_MAX], n = 0, waiting = 0;
        for (int i = 0; i < g->n_waves; i++) {
            if (g->waves[i].state == WAVE_RUNS) running[n++] = i;
            waiting += g->waves[i].state == WAVE_AT_BARRIER;
        }
        if (n == 0 && waiting == 0) return OK;
        if (n == 0)
            release_barrier(g);
        else {
            uint64_t r = rng_u32(seed, 0, (*draws)++);
            TRY(run_some(&g->waves[running[r % (uint64_t)n]], 1 + (r >> 16) % 64));
        }
    }
}

enum { /* bits of kernel_code_properties and compute_pgm_rsrc2 */
       HAS_PRIVATE_BUFFER = 1,
       HAS_DISPATCH = 2,
       HAS_QUEUE = 4,
       HAS_KERNARG = 8,
       HAS_DISPATCH_ID = 16,
       HAS_FLAT_SCRATCH = 32,
       HAS_PRIVATE_SIZE = 64,
};

static void first_scalars(Wave *w)
{
    const Launch *l = w->group->launch;
    const Kernel *k = l->kernel;
    int s = 0;
    if (k->properties & HAS_PRIVATE_BUFFER) s += 4;
    if (k->properties & HAS_DISPATCH) {
        write_scalar_reg(w, s, 2, (uint64_t)(uintptr_t)&l->packet);
        s += 2;
    }
    if (k->properties & HAS_QUEUE) s += 2;
    if (k->properties & HAS_KERNARG) {
        write_scalar_reg(w, s, 2, (uint64_t)(uintptr_t)l->args);
        s += 2;
    }
    if (k->properties & HAS_DISPATCH_ID) s += 2;
    if (k->properties & HAS_FLAT_SCRATCH) s += 2;
    if (k->properties & HAS_PRIVATE_SIZE) write_scalar_reg(w, s++, 1, k->scratch_bytes);
    for (int i = 0; i < 3; i++)
        if (k->rsrc2 >> (7 + i) & 1) write_scalar_reg(w, s++, 1, w->group->id[i]);
}

/* v0 holds x, y and z in ten bits each, as many of them as the kernel asked for. */
static void first_vector(Wave *w, uint64_t items)
{
    const unsigned *block = w->group->launch->request->block;
    int dims = (int)(w->group->launch->kernel->rsrc2 >> 11 & 3);
    for (unsigned l = 0; l < LANES; l++) {
        unsigned i = (unsigned)w->number * LANES + l;
        unsigned x = i % block[0], y = i / block[0] % block[1], z = i / block[0] / block[1];
        w->v[0][l] = x | (dims > 0 ? y << 10 : 0) | (dims > 1 ? z << 20 : 0);
    }
    w->v_defined[0] = items;
}

static void start_wave(Group *g, int number, unsigned items)
{
    Wave *w = &g->waves[number];
    unsigned mine = items - (unsigned)number * LANES;
    uint64_t lanes = mine >= LANES ? ~(uint64_t)0 : ((uint64_t)1 << mine) - 1;
    uint8_t *scratch = w->scratch, *scratch_undefined = w->scratch_undefined;
    memset(w, 0, offsetof(Wave, v)); /* the vector registers' values stay: they are undefined */
    memset(w->s_undefined, 0xff, sizeof w->s_undefined);
    memset(scratch_undefined, 0xff, g->launch->kernel->scratch_bytes * (size_t)LANES);
    w->group = g;
    w->number = number;
    w->at = op_at(&g->launch->kernel->program, g->launch->kernel->entry);
    w->scratch = scratch;
    w->scratch_undefined = scratch_undefined;
    w->undefined_reg = -1;
    w->before[number] = UINT32_MAX;
    write_scalar_reg(w, EXEC, 2, lanes);
    first_scalars(w);
    first_vector(w, lanes);
}

static uint64_t hidden_value(const GfxLaunch *r, const char *what)
{
    static const char *const counts[] = { "block_count_x", "block_count_y", "block_count_z" };
    static const char *const sizes[] = { "group_size_x", "group_size_y", "group_size_z" };
    for (int i = 0; i < 3; i++) {
        if (strcmp(what, counts[i]) == 0) return r->grid[i];
        if (strcmp(what, sizes[i]) == 0) return r->block[i];
    }
    if (strcmp(what, "grid_dims") == 0) return r->grid[2] > 1 ? 3 : r->grid[1] > 1 ? 2 : 1;
    if (strcmp(what, "dynamic_lds_size") == 0) return r->dynamic_lds_bytes;
    return 0; /* remainders and global offsets: a grid of whole workgroups that begins at 0 */
}

/* Compilers load up to 16 scalars from an aligned address though there are fewer arguments. */
enum { SCALARS_MOST = 64 };

static Status make_args(Launch *l, Arena *scratch)
{
    const GfxLaunch *r = l->request;
    size_t bytes = l->kernel->args_bytes > r->args_bytes ? l->kernel->args_bytes : r->args_bytes;
    bytes = (bytes + SCALARS_MOST - 1) / SCALARS_MOST * SCALARS_MOST;
    TRY(ARENA_ZEROED(scratch, bytes + 1, &l->args));
    if (r->args_bytes > 0) memcpy(l->args, r->args, r->args_bytes);
    for (int i = 0; i < l->kernel->n_arguments; i++) {
        const Argument *v = &l->code->arguments[l->kernel->first_argument + i];
        uint64_t hidden = v->hidden == NULL ? 0 : hidden_value(r, v->hidden);
        if (v->hidden != NULL && v->offset + v->bytes <= bytes && v->bytes <= sizeof hidden)
            memcpy(l->args + v->offset, &hidden, v->bytes);
    }
    l->packet = (Packet){ .dimensions = 3, .scratch_bytes = l->kernel->scratch_bytes };
    l->packet.lds_bytes = l->kernel->lds_bytes + r->dynamic_lds_bytes;
    l->packet.args = (uint64_t)(uintptr_t)l->args;
    for (int i = 0; i < 3; i++) {
        l->packet.block[i] = (uint16_t)r->block[i];
        l->packet.items[i] = r->grid[i] * r->block[i];
    }
    l->own[0] = (GfxBuffer){ "the code object", l->code->image, l->code->image_bytes };
    l->own[1] = (GfxBuffer){ "the arguments", l->args, bytes };
    l->own[2] = (GfxBuffer){ "the packet", &l->packet, sizeof l->packet };
    return OK;
}

static Status check_launch(const Launch *l, unsigned items, unsigned lds)
{
    const Kernel *k = l->kernel;
    enum { ROUNDING = 15 << 12, SUBNORMALS = 15 << 16 };
    if (items == 0 || items > WAVES_MAX * LANES)
        return FAIL(ERR_ARG, "%s: %u work-items in a workgroup, at most 1024", k->name, items);
    if (lds > LDS_BYTES) return FAIL(ERR_ARG, "%s: %u bytes of LDS, at most 65536", k->name, lds);
    if (k->preload != 0)
        return FAIL(ERR_UNSUPPORTED, "%s: arguments preloaded to registers are not modelled",
                    k->name);
    if ((k->rsrc1 & ROUNDING) != 0 || (k->rsrc1 & SUBNORMALS) != SUBNORMALS)
        return FAIL(ERR_UNSUPPORTED,
                    "%s: only rounding to nearest with subnormal numbers is modelled", k->name);
    return OK;
}

static Status make_group(Launch *l, Group *g, Arena *scratch)
{
    const GfxLaunch *r = l->request;
    unsigned items = r->block[0] * r->block[1] * r->block[2];
    *g = (Group){ .launch = l, .n_waves = (int)(items + LANES - 1) / LANES };
    g->lds_bytes = (l->kernel->lds_bytes + r->dynamic_lds_bytes + 3) & ~3u;
    TRY(check_launch(l, items, g->lds_bytes));
    TRY(ARENA_NEW(scratch, g->n_waves, &g->waves));
    TRY(ARENA_NEW(scratch, g->lds_bytes + 16, &g->lds));
    TRY(ARENA_NEW(scratch, g->lds_bytes + 16, &g->lds_undefined));
    TRY(ARENA_NEW(scratch, g->lds_bytes / 4 + 1, &g->lds_words));
    for (int i = 0; i < g->n_waves; i++) {
        Wave *w = &g->waves[i];
        TRY(ARENA_NEW(scratch, l->kernel->scratch_bytes * LANES + 1, &w->scratch));
        TRY(ARENA_NEW(scratch, l->kernel->scratch_bytes * LANES + 1, &w->scratch_undefined));
    }
    return OK;
}

static Status run_all(Launch *l, Arena *scratch)
{
    const GfxLaunch *r = l->request;
    unsigned items = r->block[0] * r->block[1] * r->block[2];
    Group g;
    uint64_t draws = 0;
    TRY(make_args(l, scratch));
    TRY(order_buffers(l, scratch));
    TRY(make_group(l, &g, scratch));
    for (unsigned i = 0; i < r->grid[0] * r->grid[1] * r->grid[2]; i++) {
        g.id[0] = i % r->grid[0];
        g.id[1] = i / r->grid[0] % r->grid[1];
        g.id[2] = i / r->grid[0] / r->grid[1];
        memset(g.lds_words, 0, (g.lds_bytes / 4 + 1) * sizeof *g.lds_words);
        for (int k = 0; k < g.n_waves; k++) start_wave(&g, k, items);
        TRY(run_group(&g, &draws));
    }
    return OK;
}

Status gfx_run(const CodeObject *c, const GfxLaunch *launch, Arena *scratch, GfxCounts *counts)
{
    Kernel *kernel = find_kernel(c, launch->kernel);
    Launch l = { .code = c, .request = launch, .kernel = kernel, .scratch = scratch };
    if (kernel == NULL) return FAIL(ERR_ARG, "the code object has no kernel %s", launch->kernel);
    ArenaMark mark = arena_mark(scratch);
    Status s = decode_kernel(c, kernel, scratch);
    if (s == OK) s = run_all(&l, scratch);
    arena_release(scratch, mark);
    if (counts != NULL) *counts = l.counts;
    return s;
}
