/* by_hand: the schedules whose orders can be written down, one function each: the passes of a rank in the
 * letters of order_play (order.h).
 *
 * In comments p is the number of stages, m of micro-batches, v of chunks a rank. */
#include "engine/schedule/order.h"
#include "engine/schedule/schedule.h"

/* GPipe (arXiv:1811.06965): all micro-batches forward, then all backward. Bubble (p-1)/(m+p-1), as
 * 1F1B's, but every micro-batch keeps its slot, so there are m. Backward takes the micro-batches in the
 * order of forward, so that weight gradients are summed in the same order as on one rank. */
void schedule_gpipe(const ScheduleShape *s, int rank, Hand *h)
{
    (void)rank;
    order_play(h, s->micros, "f0");
    order_play(h, s->micros, "b0");
}

/* 1F1B (PipeDream-Flush, arXiv:2006.09503): rank r of p runs p-1-r forwards ahead, then one forward
 * and one backward alternately. Bubble (p-1)/(m+p-1); p-r slots, however many micro-batches. */
void schedule_1f1b(const ScheduleShape *s, int rank, Hand *h)
{
    int ahead = s->stages - 1 - rank;
    order_play(h, ahead, "f0");
    order_play(h, s->micros, "f0b0");
}

/* Interleaved 1F1B, virtual pipeline parallelism (arXiv:2104.04473): each rank has v chunks, and
 * micro-batches go round the ranks v times, in groups of p. Rank r runs 2(p-1-r) + (v-1)p forwards
 * ahead. Bubble (p-1)/(m*v+p-1), for v times the messages and (on rank 0) p-1 + (v-1)p + p slots of
 * a v-th of the size. */
void schedule_interleaved(const ScheduleShape *s, int rank, Hand *h)
{
    order_play(h, 2 * (s->stages - 1 - rank) + (s->chunks - 1) * s->stages, "f.");
    order_play(h, s->micros * s->chunks, "f.b.");
}

/* 1F1B that hides the exchange of experts (Megatron's combined 1F1B, used by AMD's Primus): a
 * forward and the backward of an earlier micro-batch alternate phase by phase, so that tokens of
 * one travel while the other computes. For that the two must not depend on each other, not even
 * through other ranks: each rank runs one forward more ahead than interleaved 1F1B and keeps a slot
 * more. With one chunk a rank that is twice the memory of 1F1B; chunks make it worth it. */
void schedule_1f1b_overlap(const ScheduleShape *s, int rank, Hand *h)
{
    order_play(h, 2 * (s->stages - 1 - rank) + (s->chunks - 1) * s->stages + 1, "f.");
    order_play(h, s->micros * s->chunks, "F.b.");
}

/* ZB-H1 (arXiv:2401.10241, section 2.2): 1F1B with the weight gradients apart. Rank r leaves those
 * of r micro-batches behind, so that input gradients reach the rank before earlier; they fill the
 * end of the step. Every rank keeps p slots, as 1F1B's first. Bubble (p-1)(F+I-W): (p-1)/(3m+p-1)
 * of the step where the three are equal. */
void schedule_zb_h1(const ScheduleShape *s, int rank, Hand *h)
{
    order_play(h, s->stages - 1 - rank, "f0");
    order_play(h, rank, "f0i0");
    order_play(h, s->micros, "f0i0w0");
}

/* ZBV (arXiv:2401.10241, section 6): two chunks a rank, down the ranks and up again, so that the
 * last chunk is where the first is and input gradients start there without waiting for the other
 * end. Memory of 1F1B's first rank on all (2p slots of half the size); bubble (p-1)/(6m+p-1) where
 * forward, input and weight gradients take the same; the order does not depend on costs. It is made
 * for at least 2p-1 micro-batches; of fewer, the passes that are there keep their places. */
void schedule_zbv(const ScheduleShape *s, int rank, Hand *h)
{
    int p = s->stages, micros = s->micros > 2 * p - 1 ? s->micros : 2 * p - 1;
    order_play(h, 2 * (p - rank) - 1, "f0");
    order_play(h, rank, "f1f0");
    order_play(h, p - rank, "f1i1w1");
    order_play(h, micros - p, "f0i0w0f1i1w1");
    order_play(h, rank, "i0i1");
    order_play(h, p - rank, "i0w0");
    order_play(h, micros, "w1");
    order_play(h, micros, "w0");
}

/* DualPipe (DeepSeek-V3, arXiv:2412.19437, section 3.2.1, and its published code): each rank holds
 * stage r and stage p-1-r, and half of the micro-batches enter at each end. Bubble (p/2-1)(F&B + B
 * - 3W) with B the whole backward, for two copies of the parameters and p+1 slots.
 *
 * Two streams of micro-batches meet on each rank. In the middle of the step a forward of one runs with a
 * backward of the other: the pair F&B, in which each exchange of experts hides behind the other's compute. */

/* The eight steps of the paper. Their lengths are outer: the 1st (twice), 3rd, 5th, 7th; inner: the 2nd, 6th, 8th;
 * middle: the 4th. The sixth defers weight gradients from its middle on. */
static void dualpipe_steps(Hand *h, int outer, int inner, int middle)
{
    order_play(h, 2 * outer, "f0");
    order_play(h, inner, "f0f1");
    order_play(h, outer, "i1w.f1");
    order_play(h, middle, "F0b1F1b0");
    order_play(h, outer, "b1F1b0");
    order_play(h, inner / 2, "b1b0");
    order_play(h, 1, inner % 2 == 0 ? "i1i0" : "b1i0");
    order_play(h, inner - inner / 2 - 1, "i1i0");
    order_play(h, outer, "w.i0");
    order_play(h, inner, "w.");
}

void schedule_dualpipe(const ScheduleShape *s, int rank, Hand *h)
{
    int half = s->stages / 2, from_end = rank < half ? rank : s->stages - 1 - rank;
    h->two_ways = true;
    h->first = rank >= half;
    dualpipe_steps(h, half - from_end - 1, from_end + 1, s->micros / 2 - s->stages + from_end + 1);
}

/* DualPipeV (DeepSeek's DualPipe repository): one half of DualPipe. Each rank holds stage r and
 * stage 2p-1-r of one copy of the model, on half of DualPipe's ranks; all micro-batches enter at
 * rank 0. The same bubble for the same number of stages. */
void schedule_dualpipe_v(const ScheduleShape *s, int rank, Hand *h)
{
    dualpipe_steps(h, s->stages - rank - 1, rank + 1, s->micros - 2 * s->stages + rank + 1);
}
