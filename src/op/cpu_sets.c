/* cpu_sets: which sets this build has, and which of them a run takes. */
#include "op/cpu_set.h"

#include <stdio.h>

#ifdef HAVE_V4
extern const OpSet op_set_v4;
#define BEST &op_set_v4,
#else
#define BEST /* sanitizers and ARM: one set, that of the compiler's flags */
#endif

static const OpSet *const sets[] = { BEST & op_set_base }; /* the best first */
enum { SETS = sizeof sets / sizeof *sets };

static const char *best_name(const Cpu *cpu)
{
    const OpSet *best = NULL;
    return op_set_find(CPU_AUTO, cpu, &best) == OK ? cpu_isa_names[best->isa] : "none";
}

Status op_set_find(CpuIsa asked, const Cpu *cpu, const OpSet **out)
{
    for (int i = 0; i < SETS; i++) {
        if (sets[i]->isa > cpu->isa || (asked != CPU_AUTO && sets[i]->isa != asked)) continue;
        *out = sets[i];
        return OK;
    }
    if (asked == CPU_AUTO)
        return FAIL(ERR_UNSUPPORTED, "this build needs a processor with %s, this one has %s",
                    cpu_isa_names[op_set_base.isa], cpu_isa_names[cpu->isa]);
    const char *who = asked > cpu->isa ? "processor" : "build";
    return FAIL(ERR_UNSUPPORTED,
                "run.cpu_isa=%s: this %s does not have it; %s is the best here, which auto takes",
                cpu_isa_names[asked], who, best_name(cpu));
}

void op_set_text(const Exec *ex, bool bf16, char out[OP_SET_TEXT_BYTES])
{
    out[0] = '\0';
    if (ex->set == NULL) return;
    const char *name = cpu_isa_names[ex->set->isa], *unit = bf16 ? gemm_bf16(ex->gemm) : "";
    (void)snprintf(out, OP_SET_TEXT_BYTES, "%s%s%s", name, *unit != '\0' ? ", " : "", unit);
}
