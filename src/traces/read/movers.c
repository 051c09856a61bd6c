/* movers: see movers.h. Names are C++ as a profiler demangles them, plain, or mangled. */
#include "traces/read/movers.h"

#include "engine/base/text.h"
#include "traces/read/strings.h"

#include <stdio.h>
#include <string.h>

enum { NAME_BYTES = 512 };

static const struct {
    const char *library, *words;
} movers[] = {
#define MOVER(library, words) { library, words },
#include "traces/read/movers.def"
#undef MOVER
};

/* What sounds like moving data, and what sounds so but computes: split attention is combined, too. */
static const char SOUNDS[] =
    "dispatch|combine|all_to_all|alltoall|all2all|a2a|allgather|all_gather|allreduce|all_reduce|"
    "reduce_scatter|reducescatter|sendrecv|send_recv|putmem|getmem|put_nbi|get_nbi|put_signal|"
    "remote_put|remote_get|rdma|ibgda|one_sided|p2p_copy|peer_copy|multimem|shmem";
static const char COMPUTES[] =
    "at::native|at::cuda|::cub::|::thrust::|rocprim|hipcub|attn|flash|"
    "attention|combined|split|fmha|mla_|merge_state|softmax|layout|_fused_";

/* Writes "::" and the function's name, without a result type, template arguments and parameters. */
static void function_name(const char *kernel, char out[NAME_BYTES])
{
    static const char NAMELESS[] = "(anonymous namespace)";
    size_t n = 0;
    const char *at = text_starts(kernel, "void ") ? kernel + 5 : kernel;
    while (at[n] != '\0' && at[n] != '<') {
        if (at[n] == '(' && !text_starts(at + n, NAMELESS)) break;
        n += at[n] == '(' ? sizeof NAMELESS - 1 : 1;
    }
    (void)snprintf(out, NAME_BYTES, "::%.*s", (int)(n < NAME_BYTES ? n : NAME_BYTES), at);
}

const char *mover_library(const char *kernel)
{
    char name[NAME_BYTES];
    function_name(kernel, name);
    for (size_t i = 0; i < sizeof movers / sizeof *movers; i++)
        if (strings_has_word(name, movers[i].words)) return movers[i].library;
    return NULL;
}

bool mover_maybe(const char *kernel)
{
    char name[NAME_BYTES];
    function_name(kernel, name);
    return mover_library(kernel) == NULL && strings_has_word(name, SOUNDS) &&
           !strings_has_word(name, COMPUTES);
}
