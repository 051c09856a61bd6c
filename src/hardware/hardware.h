/* hardware: the rates that a GPU and its network reach, as data. A GPU is a YAML file: presets are in
 * share/hardware/ (built into the program), any other chip is a file of the same format. hardware.def has
 * every number with its unit; docs/reference/formats.md describes the file. Every section names the source
 * of its numbers. Not here: the GPU of this machine (engine/gpu).
 *
 * Rates by shape are a few points (size, TFLOP/s), interpolated linearly over the logarithm of the size.
 * Above the last point the rate is constant, below the first it is proportional to the size. For products
 * the size is the smallest of m, n and k: on an H200 shapes with the same smallest dimension lie within
 * 7 % of each other, from 768 (511 TFLOP/s) to 8192 (798).
 *
 * A type without a curve takes bf16's, scaled by the ratio of the peaks. A kind of work without curves
 * takes another's: gradients of grouped products those of grouped ones; grouped ones and the head those of
 * plain ones; mixed ones those of plain ones in f32; our own attention kernels those of attention.
 *
 * Units are in the names: GiB, GB/s = 1e9 bytes a second, TFLOP/s = 1e12, us. A multiply-add is two
 * FLOPs; causal attention counts only the pairs under the diagonal. */
#ifndef HARDWARE_HARDWARE_H
#define HARDWARE_HARDWARE_H

#include "engine/base/arena.h"
#include "engine/base/dtype.h"
#include "engine/base/text.h"
#include "kernels/core/work.h"

#include <stdbool.h>
#include <stdint.h>

enum { HARDWARE_POINTS_MAX = 32, HARDWARE_TIERS_MAX = 8 };

typedef enum HardwareDtype {
    HARDWARE_F32,
    HARDWARE_BF16,
    HARDWARE_FP8,
    HARDWARE_FP6, /* these have peaks, but no curves of their own */
    HARDWARE_FP4
} HardwareDtype;

/* The column of rates for a type of products. */
static inline HardwareDtype hardware_dtype(Dtype type)
{
    if (!dtype_is_narrow(type)) return type == DTYPE_F32 ? HARDWARE_F32 : HARDWARE_BF16;
    return dtype_bits(type) == 4   ? HARDWARE_FP4
           : dtype_bits(type) == 6 ? HARDWARE_FP6
                                   : HARDWARE_FP8;
}

/* How GPUs of one domain are joined. In a mesh each pair has a link of its own; a switch gives any
 * pair the full rate. */
typedef enum HardwareFabric { FABRIC_MESH, FABRIC_SWITCH } HardwareFabric;

/* TFLOP/s that work of this size reaches. */
typedef struct HardwarePoint {
    double size, tflops;
} HardwarePoint;

typedef struct HardwareCurve {
    int n; /* 0: none */
    HardwarePoint at[HARDWARE_POINTS_MAX];
} HardwareCurve;

/* A tier of the network between domains: the GPUs under one of its switches, the share of a NIC's
 * rate that crosses it, and its latency. */
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
#include "hardware/hardware.def"
#undef HW
} Hardware;

/* `source` is a file or a preset's name. ERR_ARG or ERR_FORMAT: it is neither (with the nearest name); or a number is
 * missing, not positive or above its limit (with its position and meaning). Texts live in the arena. */
Status hardware_load(Hardware *h, Arena *a, const char *source);
/* The same from a YAML text in memory; messages use `name` as its file name. */
Status hardware_parse(Hardware *h, Arena *a, const char *name, const char *yaml, size_t yaml_bytes);

/* A file that hardware_parse reads back to the same numbers. */
Status hardware_print(const Hardware *h, Text *out);

/* What the rates of a section are, by the first word of its `source` that says so: measured, published (or
 * benchmarked), assumed (or "as of" another GPU). A source without these words is assumed. */
typedef enum HardwareBasis { BASIS_MEASURED, BASIS_PUBLISHED, BASIS_ASSUMED, BASES } HardwareBasis;
extern const char *const hardware_basis_names[BASES];

typedef struct HardwareRates {
    const char *section; /* gemm, scale_up ... */
    HardwareBasis basis;
} HardwareRates;

/* All sections with achieved rates; returns how many. */
enum { HARDWARE_SECTIONS_MAX = 24 };
int hardware_bases(const Hardware *h, HardwareRates out[HARDWARE_SECTIONS_MAX]);

/* Makes a section's achieved rates `times` lower, and its times as much longer; data sheets stay. */
void hardware_slow(Hardware *h, const char *section, double times);

/* The share of a NIC's rate that an unordered all-to-all between this number of domains reaches, from
 * scale_out.crowd; 1: the file has none, or one domain. */
double hardware_crowd(const Hardware *h, double domains);

/* FLOP/s that work of this size reaches. ERR_ARG if the GPU has no rate for the type. */
Status hardware_rate(const Hardware *h, OpWork work, HardwareDtype dtype, double size,
                     double *flop_s);
/* The same in bf16 of a kernel for attention, by its name in attention.kernel. False: the file has no row of it. */
bool hardware_kernel_rate(const Hardware *h, const char *kernel, bool backward, double size,
                          double *flop_s);
/* By how much of itself a second of this work takes longer beside a kernel that holds the share x of the
 * multiprocessors, over x / (1 - x). It is 1 for work that takes what is left: kernels of many blocks, and
 * persistent ones whose blocks take tiles in turn, as our grouped products do. WORK_MEMORY stands for all
 * that memory bounds: 0. If the file has what bench contention measured, that counts. _times: the field of
 * what it measured, for each kind of work. */
double hardware_contention(const Hardware *h, OpWork work);
double *hardware_contention_times(Hardware *h, OpWork work);
/* The fields of a GPU's curve and of its section's source. `work` must have a rate (kernels/core/work.h). */
HardwareCurve *hardware_curve(Hardware *h, OpWork work, HardwareDtype dtype);
const char **hardware_source(Hardware *h, OpWork work);
/* Rates within steps of this program are of one chip: where `h` has other rates of libraries than `base`, it loses those
 * within steps that it has from there. */
void hardware_drop_steps(Hardware *h, const Hardware *base);
/* FLOP/s of the data sheet; 0: none. */
double hardware_peak(const Hardware *h, HardwareDtype dtype);
/* The preset whose gpu.driver is `gpu`, without its texts; all 0: none has that name. */
Status hardware_of_driver(const char *gpu, Hardware *out);
/* The peak of that preset for this type of products; 0: no preset has the name. The whole name must match,
 * because chips of one family differ (H100 SXM, PCIe, NVL). */
Status hardware_sheet_flops(const char *gpu, Dtype type, double *out);

/* Bytes/s out of such a GPU to the others of its domain, by the data sheet; 0: unknown, or a domain has fewer
 * than `ranks` GPUs. */
Status hardware_sheet_link(const char *gpu, int64_t ranks, double *out);

#endif
