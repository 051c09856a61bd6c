/*
 * moe_sort: check, cost and CPU version: a counting sort on one thread, two passes over N * K integers. That is
 * thousandths of the experts' cost. Slots are placed in order, so the rows of an expert stay sorted by token.
 */
#include "kernels/core/index_check.h"
#include "kernels/core/op.h"
#include "kernels/moe/moe.h"

#include <string.h>

/* Sets the experts' offsets, and next[e] to the first row of expert e. Offsets are bounded by
 * `room`: rows from there on do not exist. Returns whether all rows fit. */
static bool count_slots(const MoeSort *a, int64_t room, int32_t *next)
{
    int64_t E = tensor_elems(&a->offsets) - 1, slots = tensor_elems(&a->index), total = 0;
    const int32_t *index = a->index.data;
    int32_t *offsets = a->offsets.data;
    memset(next, 0, (size_t)E * sizeof *next);
    /* First, next[e] is the number of expert e's slots. */
    for (int64_t s = 0; s < slots; s++) {
        if (index[s] >= 0) next[index[s]]++;
    }
    for (int64_t e = 0; e <= E; e++) {
        offsets[e] = (int32_t)(total < room ? total : room);
        if (e == E) break;
        /* Counts become first rows. next[e] may lie above `room`: the caller drops rows from there on. */
        int32_t n = next[e];
        next[e] = (int32_t)total;
        total += n;
    }
    return total <= room;
}

/* This call's rows begin at the pool's top. Returns `room`, bounded by what is left of the pool. */
static int64_t pool_room(const MoeSort *a, int64_t room)
{
    int32_t top = *(const int32_t *)a->top.data;
    int64_t left = a->pool - top;
    *(int32_t *)a->first.data = top;
    return left < room ? left : room;
}

/* Runs in slot order on one thread, so next[e]++ gives an expert's rows to its slots in the order
 * of tokens. A slot without an expert here, or without room, gets row -1, and no table names it. */
Status moe_sort_cpu(Exec *ex, const MoeSort *a)
{
    int64_t slots = tensor_elems(&a->index), K = tensor_cols(&a->index);
    int64_t experts = tensor_elems(&a->offsets) - 1;
    int64_t room = moe_sort_room(a);
    bool pooled = a->top.data != NULL;
    if (pooled) room = pool_room(a, room);
    TRY(index_check_from("moe_sort", "index", &a->index, a->elsewhere ? -1 : 0, experts));
    const int32_t *index = a->index.data;
    int32_t *row_token = a->row_token.data, *row_slot = a->row_slot.data;
    int32_t *slot_row = a->slot_row.data, *next = ex->workspace;

    bool fits = count_slots(a, room, next);
    if (!fits && a->overflow.data != NULL) *(float *)a->overflow.data = 1;
    if (pooled) *(int32_t *)a->top.data += *(int32_t *)tensor_at(&a->offsets, experts);
    for (int64_t s = 0; s < slots; s++) {
        int32_t row = index[s] < 0 ? -1 : next[index[s]]++;
        slot_row[s] = row < room ? row : -1;
        if (slot_row[s] < 0) continue;
        row_token[row] = (int32_t)(s / K);
        row_slot[row] = (int32_t)s;
    }
    return OK;
}

/* next: one number for each offset, one more than there are experts. */
size_t moe_sort_workspace(const Exec *ex, const MoeSort *a)
{
    (void)ex;
    return (size_t)tensor_elems(&a->offsets) * sizeof(int32_t);
}

Status moe_sort_check(const MoeSort *a)
{
    const char *op = "moe_sort";
    int64_t K = tensor_cols(&a->index), slots = tensor_elems(&a->index);
    TRY(op_expect(op, "index", &a->index, -1, K, DTYPE_I32));
    TRY(op_expect(op, "offsets", &a->offsets, 1, -1, DTYPE_I32));
    TRY(op_expect(op, "row_token", &a->row_token, -1, -1, DTYPE_I32));
    TRY(op_expect(op, "row_slot", &a->row_slot, -1, -1, DTYPE_I32));
    TRY(op_expect(op, "slot_row", &a->slot_row, K == 0 ? 0 : slots / K, K, DTYPE_I32));
    int64_t R = tensor_elems(&a->row_token), R_slot = tensor_elems(&a->row_slot);
    /* With `elsewhere`, part of the slots needs no row here; whether the others fit is known only
     * when the call runs. */
    if (!a->elsewhere && (R < slots || R_slot < slots)) {
        return FAIL(ERR_SHAPE,
                    "moe_sort: row_token has %lld rows and row_slot %lld for %lld slots of index",
                    (long long)R, (long long)R_slot, (long long)slots);
    }
    if (slots > INT32_MAX) {
        return FAIL(ERR_SHAPE, "moe_sort: %lld slots, at most %d", (long long)slots, INT32_MAX);
    }
    if (a->top.data != NULL) {
        TRY(op_expect(op, "top", &a->top, 1, 1, DTYPE_I32));
        TRY(op_expect(op, "first", &a->first, 1, 1, DTYPE_I32));
    }
    if (a->pool < 0 || a->pool > INT32_MAX) {
        return FAIL(ERR_SHAPE, "moe_sort: a pool of %lld rows, at most %d", (long long)a->pool,
                    INT32_MAX);
    }
    if (a->overflow.data == NULL) return OK;
    return op_expect(op, "overflow", &a->overflow, 1, 1, DTYPE_F32);
}

/* Reads index once and writes three tables. */
OpCost moe_sort_cost(const MoeSort *a)
{
    return (OpCost){ .bytes = 4.0 * (double)tensor_bytes(&a->index) +
                              (double)tensor_bytes(&a->offsets) };
}

OP_PORTS(moe_sort, IN(MoeSort, index), OUT(MoeSort, offsets), OUT(MoeSort, row_token),
         OUT(MoeSort, row_slot), OUT(MoeSort, slot_row), ADD_OPT(MoeSort, overflow),
         ADD_OPT(MoeSort, top), OUT_OPT(MoeSort, first));
