/* report_sheets: which sheets there are, and when. */
#include "analyze/report.h"

static bool always(const Report *r) { return r->gpus > 0; }
static bool operators(const Report *r) { return r->launchers > 0; }
static bool more(const Report *r) { return r->gpus > 0 && !r->o->compat; }
static bool kernels(const Report *r) { return r->o->kernels; }
static bool short_kernels(const Report *r) { return r->o->short_us > 0; }

const Sheet report_sheets[] = {
    { "gpu_timeline", always, sheet_gpu_timeline },
    { "ops_summary_by_category", operators, sheet_ops_by_category },
    { "ops_summary", operators, sheet_ops_summary },
    { "ops_unique_args", operators, sheet_ops_unique_args },
    { "kernel_summary", kernels, sheet_kernel_summary },
    { "short_kernel_histogram", short_kernels, sheet_short_histogram },
    { "short_kernels_summary", short_kernels, sheet_short_summary },
    { "coll_analysis", always, sheet_coll_analysis },
    { "GEMM", operators, sheet_perf },
    { "GroupedGEMM_fwd", operators, sheet_perf },
    { "CONV_fwd", operators, sheet_perf },
    { "CONV_bwd", operators, sheet_perf },
    { "SDPA_fwd", operators, sheet_perf },
    { "SDPA_bwd", operators, sheet_perf },
    { "Normalization", operators, sheet_perf },
    { "RMSNorm_fwd", operators, sheet_perf },
    { "UnaryElementwise", operators, sheet_perf },
    { "BinaryElementwise", operators, sheet_perf },
    { "Reduce_fwd", operators, sheet_perf },
    { "Reduce_bwd", operators, sheet_perf },
    { "RoPE_fwd", operators, sheet_perf },
    { "CrossEntropy_fwd", operators, sheet_perf },
    { "SSM_fwd", operators, sheet_perf },
    { "MoE_comm_fwd", operators, sheet_perf },
    { "unified_perf_summary", operators, sheet_unified },
    { "gpu_timeline_by_step", more, sheet_timeline_by_step },
    { "idle_by_cause", more, sheet_idle_by_cause },
    { "idle_by_operator", more, sheet_idle_by_operator },
    { "idle_gaps", more, sheet_idle_gaps },
    { "launch_delays", more, sheet_launch_delays },
    { "sync_delays", more, sheet_sync_delays },
    { "memory_summary", more, sheet_memory_summary },
    { "trace_counts", always, sheet_trace_counts },
};
const int report_sheets_n = sizeof report_sheets / sizeof *report_sheets;
