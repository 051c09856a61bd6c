/* why-spike: puts together what the files of a run say of one step. */
#include "spike/spike.h"

#include "app/options/options.h"
#include "beside/beside.h"

#include <stdlib.h>

static Status read_step(const char *word, int64_t *out)
{
    char *end = NULL;
    *out = strtoll(word, &end, 10);
    if (end != word && *end == '\0' && *out >= 1) return OK;
    return FAIL(ERR_ARG, "why-spike: \"%.40s\" is not the number of a step, which count from 1",
                word);
}

/* A text must be the last allocation of its arena while it grows. */
static Status explain(void *state, int n, char **words, Arena *a, Text *out)
{
    SpikeOptions *o = state;
    Arena work = { 0 };
    bool resumed = false;
    (void)n, (void)a;
    o->run = words[0];
    TRY(read_step(words[1], &o->step));
    TRY(arena_reserve(&work, "why-spike", (size_t)64 << 30));
    Status s = spike_figures(o, &work, &resumed, out);
    if (s == OK) s = spike_documents(o, resumed, &work, out);
    arena_free(&work);
    return s;
}

Status beside_run(int argc, char **argv)
{
    SpikeOptions o = { .documents = 10 };
    const Option table[] = {
        { "--documents", OPTION_INT, &o.documents, "N",
          .help = "print N documents of the step; 10 without it", .min = 0, .max = 1e6 },
    };
    const Command command = {
        .name = "switchyard why-spike",
        .arguments = "RUN STEP",
        .what = "Put together what a run's files say of one step. First come loss and gradient "
                "norm of the steps around it, then norms by group of parameters and the load of "
                "experts. Last come the documents that the step read, with their losses if a "
                "checkpoint is older than the step.",
        .example = "switchyard why-spike runs/mine 1234",
        OPTIONS(table, 2, 2),
    };
    return options_run(&command, argc, argv, explain, &o);
}
