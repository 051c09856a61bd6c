/* verify_run: runs a command under a time limit, and reads the result of `bench step`. */
#include "engine/base/clock.h"
#include "engine/base/interrupt.h"
#include "engine/base/json.h"
#include "planner/search/verify.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { LOOK_MS = 50, GRACE_S = 5 }; /* between two looks; from SIGTERM to SIGKILL */

/* Reads what it prints until it has ended, or until the time is over or Ctrl-C comes: then false. */
static bool watch(Process *p, double seconds)
{
    const double end_s = clock_s() + seconds;
    while (!process_look(p, LOOK_MS))
        if (clock_s() > end_s || interrupt_signal() != 0) return p->ended;
    return true;
}

/* ---- what it says ---- */

/* The first line from `mark` on, without it; else the last line that is not empty. */
static const char *line_of(char *text, const char *mark)
{
    char *at = strstr(text, mark), *rest = NULL, *last = NULL;
    if (at != NULL) return at[strcspn(at, "\n")] = '\0', at + strlen(mark);
    for (char *w = strtok_r(text, "\n", &rest); w != NULL; w = strtok_r(NULL, "\n", &rest))
        last = w;
    return last == NULL ? "it printed nothing" : last;
}

static double number(const Json *object, const char *name)
{
    const Json *v = json_get(object, name);
    return json_is(v, JSON_NUMBER) ? v->number : 0;
}

Status verify_read(char *said, Arena *a, VerifyRun *out)
{
    char *line = strstr(said, "{\"kind\":\"step\"");
    Json *all = NULL;
    size_t bad = 0;
    if (line != NULL) TRY(json_parse(line, strcspn(line, "\n"), a, &all, &bad));
    out->step_s = number(all, "step_p50_s");
    out->spread = number(all, "step_p99_s") / out->step_s;
    out->tokens_per_s = number(all, "tokens_per_s");
    out->on_gpu = number(all, "gpu_bytes") > 0;
    out->bytes = number(all, out->on_gpu ? "gpu_bytes" : "arena_bytes");
    out->machine = json_string(json_get(all, "machine"));
    out->ran = out->step_s > 0 && out->tokens_per_s > 0 && out->machine != NULL;
    if (!out->ran) (void)snprintf(out->why, sizeof out->why, "it printed no result of bench step");
    return OK;
}

Status verify_run(const ProcessWords *c, double limit_s, Arena *a, VerifyRun *out)
{
    Process *p = NULL;
    TRY(ARENA_ZEROED(a, 1, &p));
    TRY(process_start(p, "plan: --verify", c->word, &(ProcessHow){ 0 }));
    const bool ended = watch(p, limit_s);
    if (!ended) process_end(p, SIGTERM, GRACE_S);
    if (!ended) TRY(interrupt_check("the other layouts did not run"));
    const int code = process_code(p);
    if (ended && code == 0) return verify_read(p->said, a, out);
    if (!ended)
        (void)snprintf(out->why, sizeof out->why, "it ran longer than %g s and was ended", limit_s);
    else if (code > 128)
        (void)snprintf(out->why, sizeof out->why, "signal %d ended it", code - 128);
    else
        (void)snprintf(out->why, sizeof out->why, "%.390s", line_of(p->said, "error: "));
    return OK;
}
