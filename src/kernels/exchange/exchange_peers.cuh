/*
 * exchange_peers: how kernels of several ranks work on each other's memory in one launch: addresses, flags
 * and barriers. exchange_direct.cu moves tokens so, exchange_rows.cu the rows of ranks of tp.
 *
 * There are few blocks of PEERS_THREADS threads, because they run concurrently with matrix products, and
 * links are slower than memory.
 *
 * Flags are stored with release and loaded with acquire semantics, at system scope. On entry, thread r of the first
 * block sets the flag at rank r, and thread r of every block waits for rank r. On leaving, the block that ends last
 * does both for all. Waiting threads check a deadline and a word that the host may set. After the deadline a thread
 * records the rank it waited for, and the kernel ends. It then has stored nothing, or only some rows. Rows that did not
 * arrive have no expert, so later kernels are safe. The host ends the step (comm_watch).
 */
#ifndef KERNELS_EXCHANGE_EXCHANGE_PEERS_CUH
#define KERNELS_EXCHANGE_EXCHANGE_PEERS_CUH

#include "kernels/norm/rows.cuh"

#include "kernels/exchange/exchange.h"
#include "kernels/exchange/exchange_peers.h"

enum { PEERS_THREADS = 640, PEERS_LOOK = 128 /* polls between two checks of the clock */ };

static_assert(PEERS_THREADS % WARP == 0 && (int)PEERS_THREADS <= BLOCK_THREADS_MAX,
              "a token has a whole warp");

/* Barriers */

typedef struct Windows {
    char *window[DIRECT_RANKS]; /* each rank's, as this GPU sees it */
    CommSpin *spin;
    size_t flags; /* offset of the flag area in each */
    uint64_t limit_ns, at[PEER_BUFFERS];
    int me, ranks;
} Windows;

static __device__ __forceinline__ DirectHeader *header_of(const Windows &w, int rank)
{
    return reinterpret_cast<DirectHeader *>(w.window[rank] + w.flags);
}

/* Loads what another rank stored before it set its flag: from memory, not from a register or a cache of this thread. */
template <typename V> static __device__ __forceinline__ V load_volatile(const V *at)
{
    return *const_cast<const volatile V *>(at);
}

/* Waits until the flag is at least `epoch`. False: the deadline has passed, or the host has given up. */
static __device__ bool flag_wait(const Windows &w, const uint32_t *flag, uint32_t epoch, int rank)
{
    volatile CommSpin *spin = w.spin;
    uint64_t since = now_ns();
    for (int turn = 1; (int32_t)(load_acquire(flag) - epoch) < 0; turn++) {
        if (turn % PEERS_LOOK != 0) continue;
        if (spin->over != 0) return false;
        if (now_ns() - since <= w.limit_ns) continue;
        spin->lost = 1 + rank;
        spin->over = 1;
        return false;
    }
    return true;
}

/* The first block posts to all ranks. */
static __device__ void barrier_post(const Windows &w, const int32_t *count, uint32_t epoch)
{
    int rank = (int)threadIdx.x;
    if (blockIdx.x > 0 || rank >= w.ranks) return;
    DirectHeader *header = header_of(w, rank);
    DirectPost *post = &header->post[w.me];
    for (int i = 0; i < PEER_BUFFERS; i++) post->at[i] = w.at[i];
    for (int to = 0; count != NULL && to < w.ranks; to++) post->count[to] = count[to];
    store_release(&header->entered[w.me], epoch);
}

/* Each block waits until all ranks have posted here. All threads must call it. False, in all threads of the
 * block: a rank did not arrive. */
static __device__ bool barrier_enter(const Windows &w, uint32_t epoch)
{
    int rank = (int)threadIdx.x;
    bool mine = rank < w.ranks;
    bool ok = !mine || flag_wait(w, &header_of(w, w.me)->entered[rank], epoch, rank);
    return __syncthreads_and(ok) != 0;
}

/* Call after all loads and stores of this rank. The block that ends last sets this rank's flag at
 * every rank, and waits until all ranks have set theirs here. Not `ok`: there was no exchange, so
 * no flag is set. The fences order the stores of all blocks before the flags. */
static __device__ void barrier_leave(const Windows &w, uint32_t epoch, bool ok)
{
    __shared__ bool last;
    DirectHeader *own = header_of(w, w.me);
    int rank = (int)threadIdx.x;
    __syncthreads();
    if (rank == 0) {
        system_fence();
        last = atomicInc(&own->blocks, gridDim.x - 1) == gridDim.x - 1;
        system_fence();
    }
    __syncthreads();
    if (!last) return;
    if (ok && rank < w.ranks) {
        store_release(&header_of(w, rank)->left[w.me], epoch);
        (void)flag_wait(w, &own->left[rank], epoch, rank);
    }
    __syncthreads();
    if (rank == 0) own->epoch = epoch; /* all blocks have read it */
}

/* Copied into the kernel's arguments, so a captured launch keeps the addresses of the window. */
static Windows windows_of(const ExchangeRows *r)
{
    Windows w = {};
    for (int i = 0; i < r->all->size; i++) w.window[i] = (char *)r->peers->peer[i];
    for (int i = 0; i < PEER_BUFFERS; i++) w.at[i] = r->at[i];
    w.flags = r->peers->flags;
    w.spin = r->peers->spin;
    w.limit_ns = (uint64_t)(r->peers->timeout_s * 1e9);
    w.me = r->all->rank;
    w.ranks = r->all->size;
    return w;
}

/* Blocks for n pieces of work, of which a block takes `each` at a time. At least one: other ranks wait for
 * this one even if it has nothing to send. */
static unsigned peers_blocks(int64_t n, int64_t each, unsigned most)
{
    unsigned blocks = grid_of(n, each);
    return blocks < most ? blocks : most;
}

#endif
