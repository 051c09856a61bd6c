/* flows: how transfers that run at the same time share links, in max-min fair rates. No flow can get more unless one
 * that has no more gets less. Progressive filling finds these rates: all rates rise together until a link is
 * full; its flows keep that rate, the others rise on (Bertsekas, Gallager, "Data Networks", 1992, 6.5.2).
 *
 * A class is a number of equal flows over the same links: symmetric traffic of any number of GPUs is one class. On
 * one link of rate C two classes with m and n flows of a and b bytes each have a closed form. Each flow gets
 * C / (m + n). If a <= b the first class ends after a (m + n) / C, the second after (m a + n b) / C.
 *
 * Not here: latencies, and which links a transfer crosses (collective.c). */
#ifndef PLANNER_PRICE_FLOWS_H
#define PLANNER_PRICE_FLOWS_H

enum { FLOW_HOPS_MAX = 10 };

typedef struct FlowClass {
    double flows, bytes; /* how many flows; bytes that each of them still sends (0: it has ended) */
    int hops;            /* how many links each crosses; 0: nothing limits it */
    int link[FLOW_HOPS_MAX]; /* which, as indices of Flows.link */
} FlowClass;

typedef struct Flows {
    int links, classes;
    const double *link; /* rates in bytes/s, above 0 */
    FlowClass *of;
} Flows;

/* The rate of one flow of each class, in bytes/s: 0 if it has ended, INFINITY without links. */
void flows_share(const Flows *f, double *rate);

/* end_s: when each class has sent its bytes, in seconds; rates are shared again at each end. `rate` is scratch, one
 * for each class. Leaves all bytes 0. */
void flows_run(Flows *f, double *rate, double *end_s);

#endif
