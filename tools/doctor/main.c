/* doctor: `switchyard doctor`: parses, runs doctor.h on every rank, prints rank 0's table. The command becomes this
 * program (beside/beside.h). */
#include "app/options/cli.h"
#include "app/options/options.h"
#include "beside/beside.h"
#include "doctor/doctor.h"
#include "engine/base/file.h"
#include "engine/base/interrupt.h"
#include "engine/base/out.h"
#include "engine/host/process.h"

static const double TIMEOUT_S = 30; /* of one wait: a rank that does not answer is named */

typedef struct DoctorCall {
    int64_t ranks;
    bool strict;
    DoctorOptions options;
    Text *out;
    DoctorVerdict verdict; /* of rank 0 */
} DoctorCall;

/* On one rank, in memory of its own. A rank that fails ends the others' waits. */
static Status run_rank(void *state, Comm *world)
{
    DoctorCall *call = state;
    DoctorVerdict verdict = DOCTOR_OK;
    Arena a = { 0 }, text = { 0 }; /* a text must be the last allocation of its arena */
    Text out = { 0 };
    TRY(arena_init(&a, "doctor", MEM_HOST, (size_t)8 << 30));
    Status s = arena_init(&text, "doctor's text", MEM_HOST, (size_t)8 << 30);
    if (s == OK) s = text_init(&out, &text);
    if (s == OK) s = doctor_run(&call->options, world, &a, &out, &verdict);
    if (s == OK && (world == NULL || world->rank == 0)) {
        call->verdict = verdict;
        s = text_append(call->out, out.data, out.used);
    }
    if (s != OK && world != NULL) {
        char why[1024];
        status_sentence(why, sizeof why);
        comm_abort(world, why);
    }
    arena_free(&text);
    arena_free(&a);
    return s;
}

/* Ranks compare these lines: what --version prints, and the checksum of the program that trains, which became this one.
 * Two builds with one version number still differ there. */
static Status list_versions(Arena *a, const char **out)
{
    char sum[FILE_SUM_BYTES];
    const char *program = NULL;
    Text versions = { 0 };
    TRY(process_before("doctor", a, &program));
    TRY(file_sum(program, sum));
    TRY(text_init(&versions, a));
    TRY(cli_print_versions(false, &versions));
    TRY(text_printf(&versions, "sum %s\n", sum));
    *out = versions.data;
    return OK;
}

/* The table is printed before the failure that follows from it. */
static Status run_doctor(void *state, int n, char **arguments, Arena *a, Text *out)
{
    DoctorCall *call = state;
    TRY(list_versions(a, &call->options.versions));
    call->options.folder = n > 0 ? arguments[0] : ".";
    call->out = out;
    interrupt_catch();
    TRY(cli_ranks(call->ranks, TIMEOUT_S, a, run_rank, call));
    TRY(out_text(out));
    out->used = 0;
    DoctorVerdict limit = call->strict ? DOCTOR_SLOW : DOCTOR_BAD;
    if (call->verdict < limit) return OK;
    return FAIL(ERR_DEVICE,
                "doctor: this machine is not ready: the table above says which rows are %s, on "
                "which ranks, and what to do",
                call->verdict == DOCTOR_BAD ? "bad" : "slow");
}

Status beside_run(int argc, char **argv)
{
    DoctorCall call = { .options.shrink = 1 };
    const Option table[] = {
        { "--ranks", OPTION_INT, &call.ranks, "N", "run N ranks on this host, each on its own GPU",
          .min = 1, .max = 1024 },
        { "--strict", OPTION_FLAG, &call.strict,
          .help = "a row that is slow is a failure, too (exit code 3)" },
        { "--shrink", OPTION_INT, &call.options.shrink, "N",
          "divide sizes and times by N, for a quick look; rates are then lower", .min = 1,
          .max = 1e6 },
        { "--json", OPTION_FLAG, &call.options.json, .help = "print one JSON object" },
    };
    const Command command = {
        .name = "switchyard doctor",
        .arguments = "[DIR]",
        .what = "Check the machine before a run: cores, memory, the disk of DIR (default: this "
                "folder), clocks, links between ranks, GPUs, and whether all ranks have the same "
                "program and libraries. It takes less than a minute. Each row has a verdict (ok, "
                "slow, bad, unknown), names the ranks and hosts that are odd, and says what to do. "
                "Exit code 3 if a row is bad. Start it as the run, with --ranks, mpirun or "
                "srun.",
        .example = "mpirun -n 16 -H a:8,b:8 switchyard doctor runs",
        OPTIONS(table, 0, 1),
    };
    return options_run(&command, argc, argv, run_doctor, &call);
}
