/* hardware: what a GPU and its network reach, as data. A GPU is a YAML file: presets are in
 * plan/hardware/ (built into the program), any other chip is a file of the same form. hardware.def
 * has every number with its unit; docs/reference/formats.md describes the file. Every section says
 * where its numbers are from.
 *
 * Rates by shape are a few points (size, TFLOP/s), joined by straight lines over the logarithm of
 * the size; beyond the last point the last, below the first in proportion to the size. For products
 * the size is the smallest of m, n and k: on an H200 shapes of one smallest dimension lie within
 * 7 % of each other, from 768 (511 TFLOP/s) to 8192 (798). A type without a curve takes bf16's in
 * the ratio of the peaks. Gradients of grouped products without curves have those of grouped ones,
 * grouped ones and the head those of plain ones, mixed ones those of plain ones in f32, our own kernels
 * for attention those of attention.
 *
 * Units are in the names: GiB, GB/s = 1e9 bytes a second, TFLOP/s = 1e12, us. A multiply-add is two
 * FLOPs, causal attention counts the pairs under the diagonal alone. */
#ifndef PLAN_HARDWARE_H
#define PLAN_HARDWARE_H

#include "base/arena.h"
#include "base/dtype.h"
#include "base/text.h"
#include "op/work.h"

#include <stdbool.h>
#include <stdint.h>

enum { HARDWARE_POINTS_MAX = 32, HARDWARE_TIERS_MAX = 8 };

typedef enum HardwareDtype { HARDWARE_F32, HARDWARE_BF16, HARDWARE_FP8 } HardwareDtype;

static inline HardwareDtype hardware_dtype(Dtype type)
{
    return type == DTYPE_F32 ? HARDWARE_F32 : type == DTYPE_E4M3 ? HARDWARE_FP8 : HARDWARE_BF16;
}

typedef enum HardwareFabric { FABRIC_MESH, FABRIC_SWITCH } HardwareFabric;

typedef struct HardwarePoint {
    double size, tflops;
} HardwarePoint;

typedef struct HardwareCurve {
    int n; /* 0: none */
    HardwarePoint at[HARDWARE_POINTS_MAX];
} HardwareCurve;

typedef struct HardwareTier {
    double gpus, share, latency_us;
} HardwareTier;

typedef struct HardwareTiers {
    int n;
    HardwareTier at[HARDWARE_TIERS_MAX];
} HardwareTiers;

#define HW_FIELD_TEXT   const char *
#define HW_FIELD_FLAG   bool
#define HW_FIELD_RATE   double
#define HW_FIELD_COUNT  double
#define HW_FIELD_TIME   double
#define HW_FIELD_FABRIC HardwareFabric
#define HW_FIELD_CURVE  HardwareCurve
#define HW_FIELD_TIERS  HardwareTiers

/* Rates that a file does not give are 0, texts NULL. */
typedef struct Hardware {
    const char *name; /* of the preset or the file */
#define HW(section, name, TYPE, need, help) HW_FIELD_##TYPE section##_##name;
#include "plan/hardware.def"
#undef HW
} Hardware;

/* `source` is a file or a preset's name. ERR_ARG or ERR_FORMAT in one sentence: neither a file nor
 * a preset, with the nearest name; a number that is missing, not positive or above its limit, with
 * its place and meaning. Texts live in the arena. */
Status hardware_load(Hardware *h, Arena *a, const char *source);
/* The same from a YAML text in memory; `name` stands in messages in place of a file name. */
Status hardware_parse(Hardware *h, Arena *a, const char *name, const char *yaml, size_t yaml_bytes);

/* A file that hardware_parse reads back to the same numbers. */
Status hardware_print(const Hardware *h, Text *out);

/* FLOP/s that work of this size reaches. ERR_ARG if the GPU has no rate for the type. */
Status hardware_rate(const Hardware *h, OpWork work, HardwareDtype dtype, double size,
                     double *flop_s);
/* Where a GPU's curve and its section's source stand; `work` has a rate (op/work.h). */
HardwareCurve *hardware_curve(Hardware *h, OpWork work, HardwareDtype dtype);
const char **hardware_source(Hardware *h, OpWork work);
/* FLOP/s of the data sheet; 0: none. */
double hardware_peak(const Hardware *h, HardwareDtype dtype);
/* The preset whose gpu.driver is `gpu`, without its texts; all 0: none has that name. */
Status hardware_of_driver(const char *gpu, Hardware *out);
/* The peak of that preset, for the type that products compute in; 0: none
 * has that name. Chips of one family differ (H100 SXM, PCIe, NVL), so all of the name counts. */
Status hardware_sheet_flops(const char *gpu, Dtype type, double *out);

/* Bytes a second that leave such a GPU for the others of its domain, of the data sheet; 0: it is not
 * known, or a domain has fewer than `ranks`. */
Status hardware_sheet_link(const char *gpu, int64_t ranks, double *out);

/* calibrate.c: a GPU's file from what `switchyard bench ops` measured on one. The rates of products
 * and attention by size, and of memory, are those measured; everything else (peaks, links, host) is
 * the base GPU's. Ops of one kind of work and size count by the time that they take. `bench` is the output of bench
 * ops on a GPU (several runs may stand one after the other), `name`
 * its file for messages. Texts live in `a`. ERR_FORMAT: no such output, or a line that is cut. */
Status calibrate(const char *name, const char *bench, Arena *a, Hardware *h);

#endif
