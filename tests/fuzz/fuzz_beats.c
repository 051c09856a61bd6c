/* Any bytes as the lines of ranks in a heartbeat: lines of them, and a verdict. Each line of the input is filled up with
 * blanks to the size of a line there. */
#include "harness/fuzz.h"
#include "supervise/files.h"

static void judge(const Beats *b)
{
    IncidentPast past = { 0 };
    static const int codes[] = { 0, 2, 3, 137, 139 };
    for (int i = 0; i < 5; i++) {
        Incident incident = { .code = codes[i],
                              .first = beats_first(b),
                              .reached = beats_step(b),
                              .busy_s = beats_busy_s(b) };
        incident_read(&incident, i == 4, b->rank, b->n, "error: step 3: fuzz\n");
        need(incident_blame(b->rank, b->n, "before") != NULL);
        const Verdict v = incident_decide(&past, &incident);
        need(v.pause_s >= 0 && v.pause_s <= 300 && (v.restart || v.why != NULL));
    }
}

static Status look(Fuzz *f)
{
    Beats beats;
    Text lines;
    TRY(text_init(&lines, f->page));
    while (f->bytes > 0) {
        const FuzzPart line = fuzz_part(f, "\n");
        const size_t n = line.bytes < HEARTBEAT_BYTES ? line.bytes : HEARTBEAT_BYTES;
        TRY(text_room(&lines, HEARTBEAT_BYTES));
        memset(lines.data + lines.used, ' ', HEARTBEAT_BYTES);
        if (n > 0) memcpy(lines.data + lines.used, line.data, n);
        lines.used += HEARTBEAT_BYTES;
    }
    (void)fuzz_file(HEARTBEAT_FOLDER "/host" HEARTBEAT_SUFFIX, lines.data, lines.used);
    TRY(beats_read(fuzz_folder(), f->a, &beats));
    for (int i = 1; i < beats.n; i++) need(beats.rank[i].rank >= beats.rank[i - 1].rank);
    for (int i = 0; i < beats.n; i++) {
        const RankBeat *r = &beats.rank[i];
        need(r->phase < HEARTBEAT_PHASES && r->rank >= 0 && r->step >= 0 && r->first >= 0);
    }
    judge(&beats);
    return OK;
}

const Fuzzer fuzzer = { .look = look, .most_bytes = 4096 };
