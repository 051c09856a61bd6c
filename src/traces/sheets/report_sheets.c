/* report_sheets: which sheets a report has, and when each is made. The order is that of files and
 * pages; tools/compat and the pages find sheets by name or function. How a sheet is made is in the file
 * of its function. */
#include "traces/sheets/report.h"

static bool has_work(const Report *r) { return r->gpus > 0; }
static bool has_launchers(const Report *r) { return r->launchers > 0; }
static bool wants_kernels(const Report *r) { return r->o->kernels; }
static bool wants_short_kernels(const Report *r) { return r->o->short_us > 0; }

const Sheet report_sheets[] = {
    { "gpu_timeline", has_work, sheet_gpu_timeline },
    { "ops_summary_by_category", has_launchers, sheet_ops_by_category },
    { "ops_summary", has_launchers, sheet_ops_summary },
    { "ops_unique_args", has_launchers, sheet_ops_unique_args },
    { "kernel_summary", wants_kernels, sheet_kernel_summary },
    { "short_kernel_histogram", wants_short_kernels, sheet_short_histogram },
    { "short_kernels_summary", wants_short_kernels, sheet_short_summary },
    { "coll_analysis", has_work, sheet_coll_analysis },
    { "not_known_as_communication", has_work, sheet_maybe_comm },
    { "GEMM", has_launchers, sheet_perf },
    { "GroupedGEMM_fwd", has_launchers, sheet_perf },
    { "CONV_fwd", has_launchers, sheet_perf },
    { "CONV_bwd", has_launchers, sheet_perf },
    { "SDPA_fwd", has_launchers, sheet_perf },
    { "SDPA_bwd", has_launchers, sheet_perf },
    { "Normalization", has_launchers, sheet_perf },
    { "RMSNorm_fwd", has_launchers, sheet_perf },
    { "UnaryElementwise", has_launchers, sheet_perf },
    { "BinaryElementwise", has_launchers, sheet_perf },
    { "Reduce_fwd", has_launchers, sheet_perf },
    { "Reduce_bwd", has_launchers, sheet_perf },
    { "RoPE_fwd", has_launchers, sheet_perf },
    { "CrossEntropy_fwd", has_launchers, sheet_perf },
    { "SSM_fwd", has_launchers, sheet_perf },
    { "MoE_comm_fwd", has_launchers, sheet_perf },
    { "unified_perf_summary", has_launchers, sheet_unified },
    { "gpu_timeline_by_step", has_work, sheet_timeline_by_step },
    { "idle_by_cause", has_work, sheet_idle_by_cause },
    { "idle_by_operator", has_work, sheet_idle_by_operator },
    { "idle_gaps", has_work, sheet_idle_gaps },
    { "launch_delays", has_work, sheet_launch_delays },
    { "sync_delays", has_work, sheet_sync_delays },
    { "memory_summary", has_work, sheet_memory_summary },
    { "trace_counts", has_work, sheet_trace_counts },
};
const int report_sheets_n = sizeof report_sheets / sizeof *report_sheets;
