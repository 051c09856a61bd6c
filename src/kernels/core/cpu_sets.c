/* cpu_sets: lists the sets of CPU ops that this build has, and finds the one that a run uses. */
#include "kernels/core/cpu_set.h"

#include <stdio.h>

static const OpSet *const sets[] = { /* the best first */
#ifdef HAVE_V4 /* sanitizers and ARM have one set, that of the compiler's flags */
                                     &op_set_v4,
#endif
                                     &op_set_base
};
enum { SETS = sizeof sets / sizeof *sets };

Status op_set_find(CpuIsa asked, const Cpu *cpu, const OpSet **out)
{
    for (int i = 0; i < SETS; i++) {
        if (sets[i]->isa > cpu->isa || (asked != CPU_AUTO && sets[i]->isa != asked)) continue;
        *out = sets[i];
        return OK;
    }
    return FAIL(ERR_UNSUPPORTED,
                "run.cpu_isa=%s: this %s does not have it; auto takes the best there is",
                asked == CPU_AUTO ? "auto" : cpu_isa_names[asked],
                asked > cpu->isa ? "processor" : "build");
}

void op_set_text(const Exec *ex, bool bf16, char out[OP_SET_TEXT_BYTES])
{
    out[0] = '\0';
    if (ex->set == NULL) return;
    const char *unit = bf16 ? gemm_bf16(ex->gemm) : "", *comma = *unit != '\0' ? ", " : "";
    (void)snprintf(out, OP_SET_TEXT_BYTES, "%s%s%s", cpu_isa_names[ex->set->isa], comma, unit);
}
