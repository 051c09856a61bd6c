/* collective: how long an exchange between GPUs takes, and what bounds it. It prices; running collectives is
 * engine/comm/comm.h's.
 *
 * Alpha-beta (Hockney 1994; Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication
 * Operations in MPICH", 2005): a message costs a latency and its bytes over a rate. Links lie
 * within a scale-up domain (up: xGMI, NVLink) or between domains (out: NICs, through as many tiers
 * of the fat tree as the group spans). With n ranks, g of them in each of d domains, m bytes, U and
 * O the rates up and out of one GPU, b the latency out, i the time to start one message more:
 *
 *   ring      all-gather, reduce-scatter: n-1 steps of m/n; between domains the g rings of a host
 *             leave through g NICs: b + i (n-2) and m (n-1)/n over min(U, g O)
 *   tree      all-reduce: up and down a binary tree, in pieces: 2 log2(n) steps, 2 m over
 *             min(U, g O)
 *   direct    each sends to each other at once, up and out in parallel: b + i (n-g-1) and m (n-g)/n
 *             over O; in an all-to-all over the share of O that so many domains leave of it
 *   two-level between counterparts of all domains, then inside the domains (all-gather;
 *             reduce-scatter in reverse): few far messages, m/g (d-1)/d over O and m (g-1)/g over U
 *
 * All-reduce is reduce-scatter and all-gather, or the tree. The cheapest algorithm is taken and named. In
 * a mesh a group smaller than the domain has only the links between its members. Reductions hide behind
 * the transfer. All-to-all is direct, and two-level only where the library relays (scale_out.relays).
 * Expert dispatch may also send one copy of a token to each destination host, which fans it out (DeepSeek-V3,
 * arXiv:2412.19437 §3.2.2). Routing is uniform; for imbalance the caller scales the tokens.
 *
 * Rails: rail i joins the i-th NICs of all domains under one leaf. Messages to other rails cross the second
 * tier, where nothing relays them. In a direct exchange these are (g-1)/g of all, so with R rates of that
 * tier O is at most R g/(g-1). Rings, two levels and dispatch to hosts stay on their rail.
 *
 * All GPUs of a host run the same exchange, so what a NIC sends is symmetric and closed forms hold. A send of
 * the pipeline shares its NIC, and the tiers of both, with the flows of an exchange (flows.h). */
#ifndef PLANNER_PRICE_COLLECTIVE_H
#define PLANNER_PRICE_COLLECTIVE_H

#include "hardware/hardware.h"

typedef enum CollectiveKind {
    COLLECTIVE_ALL_REDUCE,     /* bytes: the tensor */
    COLLECTIVE_ALL_GATHER,     /* bytes: the whole result */
    COLLECTIVE_REDUCE_SCATTER, /* bytes: the whole input of one rank */
    COLLECTIVE_ALL_TO_ALL      /* bytes: what one rank sends to all, itself included */
} CollectiveKind;

/* The algorithms of the table above. */
typedef enum CollectiveWay {
    COLLECTIVE_RING,
    COLLECTIVE_TREE,
    COLLECTIVE_DIRECT,
    COLLECTIVE_TWO_LEVEL
} CollectiveWay;

/* The members: `ranks` GPUs, `local` of them in each scale-up domain (divides ranks). They lie within `span`
 * consecutive GPUs of the cluster (0: ranks), which decides how many tiers they cross. */
typedef struct CollectiveGroup {
    int64_t ranks, local, span;
} CollectiveGroup;

typedef struct CollectiveCost {
    double s, latency_s;        /* total; the part that does not depend on bytes */
    double up_bytes, out_bytes; /* that leave one GPU over each kind of link */
    double nic_s,
        flows; /* how long a NIC sends, and to how many at once; 0: none leaves the domain */
    CollectiveWay way;
} CollectiveCost;

/* ERR_ARG: no cluster of this GPU has such a group (no ranks; local does not divide ranks or is more than a
 * domain holds; the span is smaller than the group). */
Status collective_cost(const Hardware *h, CollectiveKind kind, const CollectiveGroup *g,
                       double bytes, CollectiveCost *out);

/* One message from a GPU to another, in the same domain or `span` GPUs apart. */
CollectiveCost collective_send(const Hardware *h, bool same_domain, int64_t span, double bytes);

/* What a NIC sends at the same time: an exchange of a group within `span` GPUs. */
typedef struct CollectiveLoad {
    double nic_s, flows; /* of CollectiveCost */
    int64_t span;
} CollectiveLoad;

/* The same message if it starts together with such an exchange. */
CollectiveCost collective_send_beside(const Hardware *h, bool same_domain, int64_t span,
                                      double bytes, const CollectiveLoad *load);

/* How tokens go to the ranks of their experts. */
typedef enum DispatchKind {
    DISPATCH_EACH,  /* a copy for each chosen expert */
    DISPATCH_RANK,  /* a copy for each rank that holds chosen experts */
    DISPATCH_HOST,  /* a copy for each domain, fanned out to ranks inside it as it comes in */
    DISPATCH_RELAY, /* the same, fanned out when all have come in */
    DISPATCH_ALL    /* a copy for each rank */
} DispatchKind;

/* One exchange of tokens with experts. Every rank sends as many tokens. */
typedef struct Dispatch {
    DispatchKind kind;
    double tokens;          /* of one rank */
    double row_bytes;       /* of one token */
    int64_t experts, top_k; /* experts divide over the ranks */
    int64_t domain_limit;   /* node-limited routing: most domains of a token; 0: no limit */
} Dispatch;

/* One direction of the exchange: dispatch, or combine with the bytes of its rows. */
Status collective_dispatch(const Hardware *h, const CollectiveGroup *g, const Dispatch *d,
                           CollectiveCost *out);

/* "ring", "tree", "direct", "two-level". */
const char *collective_way_name(CollectiveWay way);

#endif
