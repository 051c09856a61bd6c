/* supervise: the loop of start, watch, judge, pause. */
#include "supervise/supervise.h"

#include "engine/base/clock.h"
#include "engine/base/interrupt.h"
#include "engine/base/log.h"
#include "supervise/files.h"
#include "supervise/mesh.h"
#include "supervise/orphans.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { LOOK_MS = 50, GRACE_S = 5, TOKEN_BYTES = 64, FAILURES_MAX = 2, UNREAPED_LOOKS = 15 };

/* Seconds: between two looks at the heartbeat; a gap between looks after which this process itself must have stood
 * still; without a step (starts, loads, saves); that a run of an earlier supervisor may take to end. */
static const double BEAT_LOOK_S = 1, ASLEEP_S = 5, START_S = 600, OTHER_RUN_S = 60;
/* How long ranks that a launcher has left behind may take to say why they end. */
static const double LAST_WORDS_S = 2;
static const double HANG_LEAST_S = 60, HANG_STEPS = 4;

typedef struct Supervisor {
    const SuperviseOptions *o;
    const char *run_dir, *program;
    Launch launch;
    OtherMesh mesh; /* ranks 0: the configuration's own */
    Process process;
    Beats beats;
    Arena look; /* of one look */
    Arena *arena;
    IncidentPast past;
    SuperviseSum *sum;
    int lock_fd, shown;
    bool asked;
    double began_s, longest_s;
    char token[TOKEN_BYTES];
} Supervisor;

double supervise_hang_s(const Config *c, bool steps, double longest_s)
{
    const double limit_s = c->comm_timeout_s + fmax(HANG_LEAST_S, HANG_STEPS * longest_s);
    return steps ? limit_s : fmax(limit_s, START_S);
}

Status supervise_check(const SuperviseOptions *o)
{
    if (o->config->checkpoint_every > 0) return OK;
    return FAIL(ERR_ARG,
                "supervise: checkpoint.every is 0, so each restart would lose all of train.steps "
                "%" PRId64 ": set checkpoint.every to the steps that may be lost",
                o->config->train_steps);
}

static double goodput(const Supervisor *s, double running_s)
{
    const double all_s = clock_s() - s->began_s;
    return all_s > 0 ? (s->past.useful_s + running_s) / all_s : 0;
}

static void log_goodput(const Supervisor *s)
{
    const double now_s = beats_busy_s(&s->beats);
    log_info("supervise: start %d, step %" PRId64 ", goodput %.3f: %.1f s of steps in %.1f s",
             s->sum->starts, beats_step(&s->beats), goodput(s, now_s), s->past.useful_s + now_s,
             clock_s() - s->began_s);
}

static int stop_signal(const Supervisor *s)
{
    return s->launch.kind == LAUNCH_RANKS ? SIGTERM : SIGUSR2;
}

/* ---- start ---- */

/* Takes RUN/NAME for a moment, for at most limit_s. ERR_ARG: another process keeps it. */
static Status take_lock(const Supervisor *s, const char *name, const char *holds, double limit_s,
                        int *fd)
{
    char path[FILE_PATH_MAX];
    bool held = false, said = false;
    long holder = 0;
    const double end_s = clock_s() + limit_s;
    TRY(file_join(path, s->run_dir, name));
    for (;;) {
        TRY(file_lock(path, fd, &held, &holder));
        if (held) return OK;
        if (clock_s() >= end_s || *s->o->stops > 0)
            return FAIL(ERR_ARG,
                        "run folder %s is in use by %s, process %ld: wait for its end, or "
                        "set run.dir",
                        s->run_dir, holds, holder);
        if (!said) log_info("supervise: waits for the end of %s, process %ld", holds, holder);
        said = true;
        (void)usleep(LOOK_MS * 1000);
    }
}

/* The launcher's words, then `train` with the settings, those of another mesh last: later ones win. */
static Status command_of(Supervisor *s, ProcessWords *out)
{
    const SuperviseOptions *o = s->o;
    TRY(launch_words(&s->launch, s->arena, out));
    TRY(process_word(out, s->program));
    TRY(process_word(out, "train"));
    for (int i = 0; i < o->n_words; i++) TRY(process_word(out, o->words[i]));
    for (int i = 0; i < s->mesh.settings.n; i++) TRY(process_word(out, s->mesh.settings.word[i]));
    TRY(process_word(out, "--resume=auto"));
    TRY(process_word(out, "--supervised"));
    TRY(process_word(out, s->token));
    if (o->init != NULL) TRY(process_word(out, "--init"));
    if (o->init != NULL) TRY(process_word(out, o->init));
    if (o->commands) TRY(process_word(out, "--allow-commands"));
    for (int i = 0; s->launch.kind == LAUNCH_RANKS && i < o->n_launcher; i++)
        TRY(process_word(out, o->launcher[i]));
    return OK;
}

static Status join_words(const ProcessWords *w, Arena *a, const char **out)
{
    Text t;
    TRY(text_init(&t, a));
    TRY(text_append(&t, "", 0));
    for (int i = 0; i < w->n; i++) TRY(text_printf(&t, "%s%s", i > 0 ? " " : "", w->word[i]));
    *out = t.data;
    return OK;
}

static Status start(Supervisor *s)
{
    ProcessWords *command = NULL;
    JournalStart j = { .number = ++s->sum->starts, .ranks = s->launch.ranks };
    int fd = 0;
    TRY(take_lock(s, "lock", "a run", OTHER_RUN_S, &fd));
    file_unlock(fd);
    (void)snprintf(s->token, sizeof s->token, "%ld-%d-%.6f", (long)getpid(), s->sum->starts,
                   clock_date_s());
    TRY(beats_begin(s->run_dir, s->token));
    TRY(ARENA_ZEROED(s->arena, 1, &command));
    TRY(command_of(s, command));
    TRY(newest_checkpoint(s->run_dir, s->arena, &j.step));
    TRY(join_words(command, s->arena, &j.command));
    TRY(join_words(&s->mesh.settings, s->arena, &j.mesh));
    TRY(journal_start(s->run_dir, &j, s->arena));
    log_debug("supervise: %s", j.command);
    s->beats = (Beats){ 0 };
    return process_start(
        &s->process, "supervise", command->word,
        &(ProcessHow){ .own_stdout = true, .shown = true, .death_signal = stop_signal(s) });
}

/* ---- watch ---- */

/* Passes a signal to stop on; at the second one the run must end at once. True: it was ended. */
static bool pass_stop(Supervisor *s)
{
    if (*s->o->stops == 0) return false;
    if (!s->asked) {
        log_info("supervise: asks the run to save and end");
        process_signal(&s->process, stop_signal(s));
    }
    s->asked = true;
    if (*s->o->stops == 1) return false;
    process_end(&s->process, SIGTERM, GRACE_S);
    return true;
}

/* A heartbeat, and since when it stands still. */
typedef struct Pulse {
    double looked_s, moved_s;
    uint64_t sum;
    bool steps; /* at the look before */
    pid_t ended;
    int looks; /* at which `ended` was a rank whose end the launcher does not see */
} Pulse;

/* Are all ranks in steps, and has one run? */
static bool in_steps(const Beats *b)
{
    for (int i = 0; i < b->n; i++)
        if (b->rank[i].phase != HEARTBEAT_STEPS) return false;
    return beats_step(b) > beats_first(b);
}

/* Looks at the heartbeat. True: it stands still for too long. */
static bool stands_still(Supervisor *s, Pulse *p)
{
    const double now_s = clock_s();
    if (now_s - p->looked_s > ASLEEP_S) p->moved_s += now_s - p->looked_s;
    p->looked_s = now_s;
    arena_release(&s->look, (ArenaMark){ 0 });
    if (beats_read(s->run_dir, &s->look, &s->beats) != OK) {
        status_clear();
        s->beats = (Beats){ 0 };
    }
    const bool steps = in_steps(&s->beats);
    const double still_s = now_s - p->moved_s;
    if (s->beats.sum != p->sum) {
        if (steps && p->steps) s->longest_s = fmax(s->longest_s, still_s);
        p->steps = steps;
        p->moved_s = now_s;
        p->sum = s->beats.sum;
        return false;
    }
    const double given_s = s->o->hang_s;
    return still_s > (given_s > 0 ? given_s : supervise_hang_s(s->o->config, steps, s->longest_s));
}

/* Open MPI's mpirun may miss the end of a rank that dies as it starts. It then waits for that rank without end. */
static bool launcher_hangs(const Supervisor *s, Pulse *p)
{
    const pid_t ended = s->process.ended ? 0 : orphans_unreaped(s->process.pid);
    p->looks = ended != 0 && ended == p->ended ? p->looks + 1 : 0;
    p->ended = ended;
    return p->looks > UNREAPED_LOOKS;
}

/* Looks once a second. */
static bool hangs(Supervisor *s, Pulse *p)
{
    if (clock_s() - p->looked_s < BEAT_LOOK_S) return false;
    const bool still = stands_still(s, p);
    if (still)
        log_warn("supervise: no heartbeat for %.0f s: the run is ended", clock_s() - p->moved_s);
    if (still || !launcher_hangs(s, p)) return still;
    log_warn("supervise: process %ld has ended and its launcher does not see it: the run is ended",
             (long)p->ended);
    return true;
}

/* Until the run has ended. Returns whether it hung. */
static bool watch(Supervisor *s)
{
    Pulse p = { .looked_s = clock_s(), .moved_s = clock_s() };
    bool over = false, hung = false;
    while (!over) {
        over = process_look(&s->process, LOOK_MS) || pass_stop(s);
        hung = !over && hangs(s, &p);
        if (hung) process_end(&s->process, SIGTERM, GRACE_S);
        over = over || hung;
        if (*s->o->shows != s->shown) log_goodput(s);
        s->shown = *s->o->shows;
    }
    const int killed = orphans_end(LAST_WORDS_S);
    if (killed > 0) log_debug("supervise: %d processes were left behind and are killed", killed);
    (void)stands_still(s, &p); /* the last lines */
    return hung;
}

/* ---- judge ---- */

static Status read_incident(Supervisor *s, bool hung, Incident *out)
{
    const Beats *b = &s->beats;
    *out = (Incident){ .code = process_code(&s->process),
                       .asked = s->asked,
                       .last = s->o->config->train_steps };
    TRY(newest_checkpoint(s->run_dir, s->arena, &out->saved));
    const bool began = beats_step(b) > 0; /* else its ranks have not loaded what is saved */
    out->first = began ? beats_first(b) : out->saved;
    out->reached = began ? beats_step(b) : out->saved;
    if (out->first > out->saved) out->saved = out->first; /* a copy in memory (checkpoint.peer) */
    out->busy_s = beats_busy_s(b);
    incident_read(out, hung, b->rank, b->n, s->process.said);
    if (out->end == INCIDENT_DONE || out->end == INCIDENT_REFUSED || out->asked) return OK;
    (void)snprintf(out->host, sizeof out->host, "%s",
                   incident_blame(b->rank, b->n, s->past.last.host));
    return launch_learn(&s->launch, b->rank, b->n, s->arena);
}

/* Without a spare host the ranks that are left need a mesh of their own. */
static Status shrink(Supervisor *s, const char *name)
{
    TRY(supervise_mesh(s->o->config, s->launch.ranks, s->o->cluster, s->arena, &s->mesh));
    s->launch.ranks = s->mesh.ranks;
    log_warn("supervise: host %s is left out: %d ranks go on as %s", name, s->mesh.ranks,
             s->mesh.text);
    return OK;
}

/* Leaves out the host if it failed too often. *out: its name, or "". */
static Status judge_host(Supervisor *s, const Incident *i, const char **out)
{
    LaunchHost *host = i->host[0] == '\0' ? NULL : launch_host(&s->launch, i->host);
    int used = 0, spare = 0;
    *out = "";
    if (host == NULL || ++host->failures < FAILURES_MAX) return OK;
    for (int k = 0; k < s->launch.n_hosts; k++) {
        used += s->launch.host[k].use == LAUNCH_USED;
        spare += s->launch.host[k].use == LAUNCH_SPARE;
    }
    if (used + spare < 2) return OK;
    const Launch before = s->launch;
    const LaunchHost *other = launch_leave_out(&s->launch, host);
    Status status = OK;
    if (other != NULL)
        log_warn("supervise: host %s failed %d times and is left out: %s takes its ranks",
                 host->name, host->failures, other->name);
    else
        status = shrink(s, host->name);
    if (status == ERR_FIT || status == ERR_UNSUPPORTED || status == ERR_ARG) {
        log_failure(LOG_WARN, "host %s stays in the run: ", host->name);
        host->use = LAUNCH_USED;
        s->launch = before;
        status_clear();
        return OK;
    }
    TRY(status);
    *out = host->name;
    s->sum->left_out++;
    return OK;
}

/* The status of a run's end: that of its kind, if it has one. */
static Status end_status(const Incident *i, const char *why)
{
    Status code = i->code == 2 ? ERR_ARG : i->code == 130 ? ERR_INTERRUPTED : ERR_COMM;
    for (int k = OK + 1; k <= ERR_CLOSED; k++) {
        const Status named = (Status)k;
        if (strcmp(status_name(named), i->kind) == 0 &&
            status_exit_code(named) == status_exit_code(code))
            code = named;
    }
    const bool well = i->end == INCIDENT_DONE || (i->asked && i->code == 0);
    return well ? OK : FAIL(code, "supervise: %s: %s", why, i->sentence);
}

/* Until the pause is over, or a signal to stop comes. */
static Status pause_before(Supervisor *s, double seconds)
{
    const double end_s = clock_s() + seconds;
    while (clock_s() < end_s && *s->o->stops == 0) (void)usleep(LOOK_MS * 1000);
    if (*s->o->stops == 0) return OK;
    return FAIL(ERR_INTERRUPTED,
                "interrupted: the run is not running; its newest checkpoint is of step %" PRId64,
                s->past.saved);
}

/* One start and its end. *more: it is to be started again. */
static Status run_once(Supervisor *s, bool *more)
{
    Incident i;
    const char *left_out = "";
    TRY(start(s));
    const bool hung = watch(s);
    TRY(read_incident(s, hung, &i));
    const Verdict v = incident_decide(&s->past, &i);
    if (v.restart) TRY(judge_host(s, &i, &left_out));
    s->sum->step = i.saved;
    if (v.restart && i.reached > i.saved) s->sum->lost += i.reached - i.saved;
    TRY(journal_end(s->run_dir, &i, &v, left_out, goodput(s, 0), s->arena));
    *more = v.restart;
    if (!v.restart) return end_status(&i, v.why);
    log_warn("supervise: %s at step %" PRId64 "%s%s: %s; restart %d from step %" PRId64
             " after %g s, goodput %.3f",
             incident_names[i.end], i.reached, i.host[0] != '\0' ? ", host " : "", i.host,
             i.sentence, s->sum->starts, i.saved, v.pause_s, goodput(s, 0));
    return pause_before(s, v.pause_s);
}

static Status run_all(Supervisor *s)
{
    const SuperviseOptions *o = s->o;
    bool more = true;
    TRY(launch_read(o->launcher, o->n_launcher, o->spare, s->arena, &s->launch));
    TRY(file_make_folders(s->run_dir));
    TRY(take_lock(s, "supervise.lock", "another supervise", 0, &s->lock_fd));
    TRY(process_before("supervise", s->arena, &s->program)); /* the ranks run it */
    TRY(arena_init(&s->look, "heartbeat", MEM_HOST, (size_t)1 << 30));
    orphans_adopt();
    while (more) TRY(run_once(s, &more));
    return OK;
}

Status supervise_run(const SuperviseOptions *o, Arena *a, SuperviseSum *sum)
{
    Supervisor *s = NULL;
    TRY(ARENA_ZEROED(a, 1, &s));
    *sum = (SuperviseSum){ 0 };
    s->o = o;
    s->run_dir = o->config->run_dir;
    s->arena = a;
    s->sum = sum;
    s->began_s = clock_s();
    Status status = run_all(s);
    sum->useful_s = s->past.useful_s;
    sum->all_s = clock_s() - s->began_s;
    if (status != OK && sum->starts > 0)
        log_info("supervise: %d starts, %" PRId64 " steps ran again, goodput %.3f", sum->starts,
                 sum->lost, sum->useful_s / sum->all_s);
    file_unlock(s->lock_fd);
    arena_free(&s->look);
    return status;
}
