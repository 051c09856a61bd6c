/* collective: times of collectives over the links of a cluster. The header has the model and its sources. */
#include "planner/price/collective.h"

#include "kernels/exchange/exchange.h"
#include "planner/price/flows.h"

#include <math.h>

static const char *const way_names[] = { "ring", "tree", "direct", "two-level" };

const char *collective_way_name(CollectiveWay way) { return way_names[way]; }

/* The links of a group: rates in bytes/s out of one GPU; latencies in seconds, of the first message and of each
 * further one (_more_s). */
typedef struct Links {
    double n, g, d;       /* ranks, in a domain, domains */
    double up, out, ring; /* rates; ring: of a ring over all ranks */
    double mixed, crowd;  /* mixed: out over all rails; crowd: share of it in an all-to-all */
    bool relays;
    double up_s, up_more_s;          /* latencies */
    double out_s, out_more_s, far_s; /* far_s: of a ring's slowest step */
} Links;

/* The lowest tier of the fat tree that spans this number of GPUs. */
static int tier_index(const Hardware *h, int64_t span)
{
    const HardwareTiers *t = &h->scale_out_tiers;
    int i = 0;
    while (i < t->n - 1 && t->at[i].gpus < (double)span) i++;
    return i;
}

static const HardwareTier *tier_of(const Hardware *h, int64_t span)
{
    return &h->scale_out_tiers.at[tier_index(h, span)];
}

/* In a mesh a GPU has one link to each other GPU, so a group of g uses g - 1 of them. */
static double up_rate(const Hardware *h, double g)
{
    double rate = h->scale_up_achieved_gb_s * 1e9;
    if (h->scale_up_fabric == FABRIC_SWITCH || g < 2) return rate;
    return rate * (g - 1) / (h->scale_up_gpus - 1);
}

/* A GPU's share of the NICs of its domain. */
static double nic_rate(const Hardware *h)
{
    return h->scale_out_achieved_gb_s * 1e9 * (h->scale_out_rails / h->scale_up_gpus);
}

/* The same, times the share that the tiers between let through. */
static double out_rate(const Hardware *h, int64_t span)
{
    return nic_rate(h) * tier_of(h, span)->share;
}

/* A direct exchange's rate out: of its flows (g - 1) / g go to other rails, through the second tier. */
static double mixed_rate(const Hardware *h, int64_t span, double g)
{
    const HardwareTiers *t = &h->scale_out_tiers;
    double out = out_rate(h, span);
    if (h->scale_out_relays || h->scale_out_rails < 2 || t->n < 2 || g < 2) return out;
    return fmin(out, nic_rate(h) * t->at[1].share * g / (g - 1));
}

/* The NIC's latency and that of the tiers between. */
static double out_latency(const Hardware *h, int64_t span)
{
    return 1e-6 * (h->scale_out_latency_us + tier_of(h, span)->latency_us);
}

/* Checks a group and computes its links. */
static Status links_of(const Hardware *h, const CollectiveGroup *g, Links *out)
{
    int64_t span = g->span == 0 ? g->ranks : g->span;
    if (g->ranks < 1 || g->local < 1 || g->ranks % g->local != 0)
        return FAIL(ERR_ARG,
                    "a group of %lld ranks cannot have %lld in each domain, which must be "
                    "a divisor from 1",
                    (long long)g->ranks, (long long)g->local);
    if ((double)g->local > h->scale_up_gpus)
        return FAIL(ERR_ARG, "a group has %lld ranks in each domain, a domain of %s holds %g",
                    (long long)g->local, h->name, h->scale_up_gpus);
    if (span < g->ranks)
        return FAIL(ERR_ARG, "a group of %lld ranks cannot lie within %lld GPUs",
                    (long long)g->ranks, (long long)span);
    Links l = { .n = (double)g->ranks,
                .g = (double)g->local,
                .d = (double)g->ranks / (double)g->local,
                .up = up_rate(h, (double)g->local),
                .out = out_rate(h, span),
                .mixed = mixed_rate(h, span, (double)g->local),
                .crowd = hardware_crowd(h, (double)g->ranks / (double)g->local),
                .relays = h->scale_out_relays,
                .up_s = 1e-6 * h->scale_up_latency_us,
                .up_more_s = 1e-6 * h->scale_up_issue_us,
                .out_s = out_latency(h, span),
                .out_more_s = 1e-6 * h->scale_out_issue_us };
    l.ring = l.d == 1 ? l.up : l.g > 1 ? fmin(l.up, l.g * l.out) : l.out;
    l.far_s = l.d > 1 ? l.out_s : l.up_s;
    *out = l;
    return OK;
}

/* The latency of n messages: the first one, and what each further one adds. */
static double messages_s(double first_s, double more_s, double n)
{
    return n > 0 ? first_s + more_s * (n - 1) : 0;
}

/* Latency and transfer add up: alpha-beta. The caller adds what the NICs do. */
static CollectiveCost collective_cost_of(CollectiveWay way, double latency_s, double transfer_s,
                                         double up, double out)
{
    return (CollectiveCost){ .s = latency_s + transfer_s,
                             .latency_s = latency_s,
                             .up_bytes = up,
                             .out_bytes = out,
                             .way = way };
}

/* Adds how long a NIC sends at this rate, in so many flows. */
static CollectiveCost with_nics(CollectiveCost c, double rate, double flows)
{
    if (c.out_bytes > 0) c.nic_s = c.out_bytes / rate, c.flows = flows;
    return c;
}

static void keep_cheaper(CollectiveCost *best, CollectiveCost other)
{
    if (other.s < best->s) *best = other;
}

/* A ring or a tree. Steps after the first need no host: they cost one more message, not the start of a collective.
 * Of g ranks of a ring in a domain one sends out of it. */
static CollectiveCost stepwise_cost(const Links *l, CollectiveWay way, double steps, double bytes)
{
    double far = l->d > 1 ? 1 / l->g : 0, more_s = l->d > 1 ? l->out_more_s : l->up_more_s;
    CollectiveCost c = collective_cost_of(way, messages_s(l->far_s, more_s, steps), bytes / l->ring,
                                          bytes * (1 - far), bytes * far);
    return with_nics(c, l->out, l->d > 1);
}

/* Each rank sends m/n to each other rank, inside the domain and out of it at the same time; `share`: of the rate
 * out that it reaches. */
static CollectiveCost direct_cost(const Links *l, double m, double share)
{
    double up = m * (l->g - 1) / l->n, out = m * (l->n - l->g) / l->n;
    double up_s = messages_s(l->up_s, l->up_more_s, l->g - 1);
    double out_s = messages_s(l->out_s, l->out_more_s, l->n - l->g);
    double rate = l->mixed * share;
    CollectiveCost c = collective_cost_of(COLLECTIVE_DIRECT, fmax(up_s, out_s),
                                          fmax(up / l->up, out / rate), up, out);
    return with_nics(c, rate, l->n - l->g);
}

/* Messages inside the domain, then one to each other domain. */
static double two_level_latency(const Links *l)
{
    return messages_s(l->up_s, l->up_more_s, l->g - 1) +
           messages_s(l->out_s, l->out_more_s, l->d - 1);
}

/* One level after the other. All-gather: each GPU gathers m/g from the other domains, then all GPUs of a
 * domain gather the rest from each other. All-to-all (`whole`): each GPU sends m/d to its counterpart in
 * every other domain, which forwards it locally. */
static CollectiveCost two_level_cost(const Links *l, double m, bool whole)
{
    double out = (whole ? m : m / l->g) * (l->d - 1) / l->d, up = m * (l->g - 1) / l->g;
    CollectiveCost c = collective_cost_of(COLLECTIVE_TWO_LEVEL, two_level_latency(l),
                                          up / l->up + out / l->out, up, out);
    return with_nics(c, l->out, l->d - 1);
}

/* The cheapest all-gather; a reduce-scatter is the same in reverse. */
static CollectiveCost gather_cost(const Links *l, double m)
{
    CollectiveCost best = stepwise_cost(l, COLLECTIVE_RING, l->n - 1, m * (l->n - 1) / l->n);
    keep_cheaper(&best, direct_cost(l, m, 1));
    if (l->d > 1 && l->g > 1) keep_cheaper(&best, two_level_cost(l, m, false));
    return best;
}

/* Gathers and reduce-scatters may have a measured rate of their own, and two GPUs alone one below it. */
static Links shard_links(const Hardware *h, Links l)
{
    const double pair = l.n == 2 ? h->scale_up_pair_gb_s : 0;
    const double rate = pair > 0 ? pair : h->scale_up_shard_gb_s;
    if (rate > 0) l.up *= rate / h->scale_up_achieved_gb_s;
    l.ring = fmin(l.ring, l.up);
    return l;
}

/* A reduce-scatter and an all-gather, or a tree if that is cheaper (few bytes). */
static CollectiveCost all_reduce_cost(const Links *l, double m)
{
    CollectiveCost twice = gather_cost(l, m);
    twice.s *= 2;
    twice.latency_s *= 2;
    twice.up_bytes *= 2;
    twice.out_bytes *= 2;
    twice.nic_s *= 2;
    keep_cheaper(&twice, stepwise_cost(l, COLLECTIVE_TREE, 2 * ceil(log2(l->n)), 2 * m));
    return twice;
}

/* A group of one GPU costs nothing. */
Status collective_cost(const Hardware *h, CollectiveKind kind, const CollectiveGroup *g,
                       double bytes, CollectiveCost *out)
{
    Links l = { 0 };
    TRY(links_of(h, g, &l));
    if (g->ranks == 1) {
        *out = (CollectiveCost){ .way = COLLECTIVE_DIRECT };
        return OK;
    }
    switch (kind) {
    case COLLECTIVE_ALL_REDUCE: *out = all_reduce_cost(&l, bytes); break;
    case COLLECTIVE_ALL_GATHER:
    case COLLECTIVE_REDUCE_SCATTER:
        l = shard_links(h, l);
        *out = gather_cost(&l, bytes);
        break;
    case COLLECTIVE_ALL_TO_ALL:
        *out = direct_cost(&l, bytes, l.crowd);
        if (l.relays && l.d > 1 && l.g > 1) keep_cheaper(out, two_level_cost(&l, bytes, true));
        break;
    }
    return OK;
}

/* One message: its latency and its bytes over the one link that it uses. */
CollectiveCost collective_send(const Hardware *h, bool same_domain, int64_t span, double bytes)
{
    if (same_domain) { /* in a mesh: over the one link of this pair */
        return collective_cost_of(COLLECTIVE_DIRECT, 1e-6 * h->scale_up_latency_us,
                                  bytes / up_rate(h, 2), bytes, 0);
    }
    return collective_cost_of(COLLECTIVE_DIRECT, out_latency(h, span), bytes / out_rate(h, span), 0,
                              bytes);
}

/* Links of the network between domains: the NIC, then the tiers from the leaf up. Returns how many a flow within
 * `span` GPUs crosses. */
static int links_crossed(const Hardware *h, int64_t span, int *link)
{
    int n = tier_index(h, span) + 2;
    for (int i = 0; i < n; i++) link[i] = i;
    return n;
}

/* All GPUs of the host do the same, so the links are one GPU's share of them. */
CollectiveCost collective_send_beside(const Hardware *h, bool same_domain, int64_t span,
                                      double bytes, const CollectiveLoad *load)
{
    CollectiveCost c = collective_send(h, same_domain, span, bytes);
    if (same_domain || load->flows <= 0 || load->nic_s <= 0) return c;
    double link[1 + HARDWARE_TIERS_MAX] = { nic_rate(h) }, rate[2], end_s[2];
    for (int i = 0; i < h->scale_out_tiers.n; i++)
        link[i + 1] = link[0] * h->scale_out_tiers.at[i].share;
    FlowClass of[2] = { { .flows = load->flows,
                          .bytes = load->nic_s * out_rate(h, load->span) / load->flows },
                        { .flows = 1, .bytes = bytes } };
    of[0].hops = links_crossed(h, load->span, of[0].link);
    of[1].hops = links_crossed(h, span, of[1].link);
    flows_run(&(Flows){ 1 + h->scale_out_tiers.n, 2, link, of }, rate, end_s);
    c.s = c.latency_s + end_s[1];
    return c;
}

/* exchange_distinct gives the expected number of different ranks, or domains, of a token's experts. */
Status collective_dispatch(const Hardware *h, const CollectiveGroup *g, const Dispatch *d,
                           CollectiveCost *out)
{
    Links l = { 0 };
    TRY(links_of(h, g, &l));
    if (d->top_k < 1 || d->top_k > d->experts)
        return FAIL(ERR_ARG, "a token cannot take %lld of %lld experts", (long long)d->top_k,
                    (long long)d->experts);
    if (d->experts % g->ranks != 0)
        return FAIL(ERR_ARG, "%lld experts do not divide over %lld ranks", (long long)d->experts,
                    (long long)g->ranks);
    double rows = d->tokens * d->row_bytes;
    double ranks = exchange_distinct(d->experts, d->top_k, g->ranks);
    double domains = exchange_distinct(d->experts, d->top_k, g->ranks / g->local);
    if (d->domain_limit > 0) {
        /* The same experts lie in fewer domains, so they lie on at most the ranks of these. */
        domains = fmin(domains, (double)d->domain_limit);
        ranks = fmin(ranks, domains * l.g);
    }
    double copies = d->kind == DISPATCH_EACH ? (double)d->top_k : ranks;
    if (d->kind == DISPATCH_ALL)
        return collective_cost(h, COLLECTIVE_ALL_GATHER, g, rows * l.n, out);
    if (d->kind == DISPATCH_EACH || d->kind == DISPATCH_RANK)
        return collective_cost(h, COLLECTIVE_ALL_TO_ALL, g, rows * copies, out);
    /* One copy goes to each other domain. Inside a domain, all copies cross its links except those for the
     * GPU at which a row arrives. */
    double far = rows * domains * (l.d - 1) / l.d, near = rows * ranks * (l.g - 1) / l.g;
    /* If rows are forwarded as they arrive, both kinds of links are busy at the same time. */
    double up_s = near / l.up, out_s = far / l.out;
    double transfer_s = d->kind == DISPATCH_HOST ? fmax(up_s, out_s) : up_s + out_s;
    *out = with_nics(
        collective_cost_of(COLLECTIVE_TWO_LEVEL, two_level_latency(&l), transfer_s, near, far),
        l.out, l.d - 1);
    return OK;
}
