/* serve: `switchyard serve`: opens a checkpoint, and answers requests until a signal ends it. This thread drives
 * the engine; the server's thread reads and writes (server.h). */
#include "app/options/options.h"
#include "beside/beside.h"
#include "engine/base/file.h"
#include "engine/base/interrupt.h"
#include "engine/base/log.h"
#include "engine/train/train.h"
#include "serve/answer.h"
#include "serve/server.h"

#include <stdlib.h>
#include <string.h>

enum { PLACES = 16, WAITING = 64, PORT = 8000, TOKEN_LEAST = 8 };
static const double POLL_S = 0.2; /* how soon a signal is seen by an idle server */

/* A request under way: its job and its sequences. */
typedef struct Running {
    Job *job;
    Request request;
    int begun;  /* sequences that have had a place */
    Sent *sent; /* (request.n) of a stream; NULL: the answer is one piece */
} Running;

typedef struct Serve {
    ServerOptions options;
    int64_t places;
    const char *token_file;
    bool average;
    Config config;
    Tokenizer *tokenizer;
    Engine engine;
    Batcher batcher;
    Server *server;
    RequestLimits limits;
    Running **running; /* (places + 1), the oldest first */
    int n_running;
    Arena event_arena;
    Text events; /* of one call of the engine, for one request */
} Serve;

/* ---- requests ---- */

static Status check_model(const Serve *v, const Request *r)
{
    if (r->model == NULL || strcmp(r->model, v->options.model) == 0) return OK;
    return FAIL(ERR_IO, "there is no model %.64s: this server has %s", r->model, v->options.model);
}

static Status add_events(Serve *v, Running *r, bool ends, bool *gone)
{
    v->events.used = 0;
    TRY(answer_events(&r->request, v->tokenizer, v->options.model, r->job->number, r->sent,
                      &v->events));
    if (ends) TRY(answer_end(&r->request, v->options.model, r->job->number, &v->events));
    return job_add(r->job, &v->events, gone);
}

static void finish(Serve *v, Running *r)
{
    Job *job = r->job;
    bool gone = false;
    Status s =
        r->sent != NULL ? add_events(v, r, true, &gone) : text_init(&job->answer, &job->arena);
    if (s == OK && r->sent == NULL)
        s = answer_completion(&r->request, v->tokenizer, v->options.model, job->number,
                              &job->answer);
    job_finish(job, s, s == OK ? 200 : 500);
}

/* Sequences with nothing to do are done from the start. */
static Status begin(Serve *v, Job *job, Running **out)
{
    Running *r = NULL;
    TRY(ARENA_ZEROED(&job->arena, 1, &r));
    TRY(request_read(job->body, (size_t)job->bytes, &v->limits, &job->arena, &r->request));
    TRY(check_model(v, &r->request));
    r->job = job;
    *out = r;
    if (!r->request.stream) return OK;
    TRY(ARENA_ZEROED(&job->arena, r->request.n, &r->sent));
    return job_stream(job);
}

/* Gives places to the sequences of a request. True: all have had one. */
static bool give_places(Serve *v, Running *r)
{
    for (; r->begun < r->request.n; r->begun++) {
        Sequence *s = &r->request.sequence[r->begun];
        if (!s->done && !batcher_add(&v->batcher, s)) return false;
    }
    return true;
}

/* The oldest requests come first. A new one is taken only when those before have their places. */
static void fill_places(Serve *v, double wait_s)
{
    bool free = true;
    for (int i = 0; i < v->n_running && free; i++) free = give_places(v, v->running[i]);
    while (free && v->n_running <= v->batcher.places) {
        Running *r = NULL;
        Job *job = server_take(v->server, v->n_running == 0 ? wait_s : 0);
        if (job == NULL) return;
        const Status s = begin(v, job, &r);
        if (s != OK) {
            job_finish(job, s,
                       s == ERR_IO       ? 404
                       : s == ERR_ARG    ? 400
                       : s == ERR_MEMORY ? 413
                                         : 500);
            continue;
        }
        v->running[v->n_running++] = r;
        free = give_places(v, r);
    }
}

static bool is_done(const Running *r)
{
    for (int i = 0; i < r->request.n; i++) {
        if (!r->request.sequence[i].done) return false;
    }
    return true;
}

static void finish_done(Serve *v)
{
    int kept = 0;
    for (int i = 0; i < v->n_running; i++) {
        Running *r = v->running[i];
        if (is_done(r))
            finish(v, r);
        else
            v->running[kept++] = r;
    }
    v->n_running = kept;
}

/* Frees the places of a request that nobody waits for. */
static void drop(Serve *v, Running *r)
{
    for (int i = 0; i < r->request.n; i++) {
        Sequence *s = &r->request.sequence[i];
        for (int k = 0; k < v->batcher.places; k++)
            if (v->batcher.place[k] == s) v->batcher.place[k] = NULL;
        s->done = true;
    }
}

/* After a call of the engine. What a client has left behind is not computed any further. */
static Status send_events(Serve *v)
{
    for (int i = 0; i < v->n_running; i++) {
        Running *r = v->running[i];
        bool gone = false;
        if (r->sent == NULL) continue;
        TRY(add_events(v, r, false, &gone));
        if (gone) drop(v, r);
    }
    return OK;
}

/* A call that failed answers all requests that took part. Numbers that are not finite come of these tokens; after any
 * other failure the server ends. */
static Status fail_all(Serve *v, Status s)
{
    char why[512];
    status_sentence(why, sizeof why);
    for (int i = 0; i < v->n_running; i++) job_finish(v->running[i]->job, FAIL(s, "%s", why), 500);
    v->n_running = 0;
    batcher_drop_all(&v->batcher);
    if (s != ERR_NUMERIC) return FAIL(s, "%s", why);
    log_warn("%s", why);
    return OK;
}

/* After a signal what has begun is finished, and nothing else begins. */
static Status run_server(Serve *v)
{
    while (interrupt_signal() == 0 || v->n_running > 0) {
        if (interrupt_signal() != 0) server_refuse(v->server);
        fill_places(v, POLL_S);
        Status s = batcher_step(&v->batcher);
        if (s == OK) s = send_events(v);
        if (s != OK) TRY(fail_all(v, s));
        finish_done(v);
    }
    server_refuse(v->server);
    return OK;
}

/* ---- begin and end ---- */

/* The token lies in a file or in the environment, where other users of the machine do not see it. */
static Status read_token(Serve *v, Arena *a)
{
    char *text = NULL;
    size_t n = 0;
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): there is only one thread yet */
    const char *token = getenv("SWITCHYARD_TOKEN");
    if (v->token_file != NULL) {
        TRY(file_read_input(v->token_file, a, &text, &n));
        TRY(arena_text(a, text, strcspn(text, "\r\n"), &token));
    }
    const bool here =
        text_starts(v->options.address, "127.") || strcmp(v->options.address, "::1") == 0;
    if (token == NULL && here) return OK;
    if (token == NULL)
        return FAIL(ERR_ARG,
                    "--host %s: others than this machine can ask, so a token is needed: give "
                    "--token-file FILE, or set SWITCHYARD_TOKEN",
                    v->options.address);
    if (strlen(token) < TOKEN_LEAST)
        return FAIL(ERR_ARG, "the token has %zu characters, at least %d are needed", strlen(token),
                    TOKEN_LEAST);
    v->options.token = token;
    return OK;
}

static Status open_model(Serve *v, const char *checkpoint, Arena *a)
{
    char path[FILE_PATH_MAX];
    TRY(infer_config(checkpoint, a, path, &v->config));
    if (v->config.data_tokenizer[0] == '\0')
        return FAIL(ERR_ARG,
                    "%s: its configuration names no data.tokenizer, so text cannot be turned into "
                    "tokens",
                    path);
    TRY(tokenizer_load(v->config.data_tokenizer, a, &v->tokenizer));
    if (v->options.context == 0) v->options.context = v->config.data_sequence;
    TRY(batcher_open(&v->batcher, &v->engine, &v->config, path,
                     &(BatcherShape){ v->options.context, v->places, v->average }, a));
    v->batcher.tokenizer = v->tokenizer;
    v->limits = (RequestLimits){ v->tokenizer, v->options.context, v->config.model_vocab };
    return ARENA_NEW(a, v->batcher.places + 1, &v->running);
}

static Status serve(Serve *v, const char *checkpoint, Arena *a)
{
    if (v->options.model == NULL) v->options.model = checkpoint;
    TRY(read_token(v, a));
    TRY(open_model(v, checkpoint, a));
    TRY(arena_reserve(&v->event_arena, "events", (size_t)1 << 30));
    TRY(text_init(&v->events, &v->event_arena));
    interrupt_catch();
    TRY(server_open(&v->server, &v->options, a));
    return run_server(v);
}

static Status run_serve(void *state, int n, char **arguments, Arena *a, Text *out)
{
    Serve *v = state;
    (void)n, (void)out;
    const Status s = serve(v, arguments[0], a);
    if (v->server != NULL) server_refuse(v->server);
    server_close(v->server);
    arena_free(&v->event_arena);
    engine_close(&v->engine);
    tokenizer_free(v->tokenizer);
    return s;
}

Status beside_run(int argc, char **argv)
{
    Serve v = { .options = { .address = "127.0.0.1", .port = PORT, .waiting = WAITING },
                .places = PLACES };
    ServerOptions *o = &v.options;
    const Option table[] = {
        { "--host", OPTION_TEXT, &o->address, "ADDR",
          .help = "listen at this address, as 0.0.0.0; beyond this machine a token is needed" },
        { "--port", OPTION_INT, &o->port, "N", "listen at this port; 0: any free one",
          .max = 65535 },
        { "--token-file", OPTION_TEXT, &v.token_file, "FILE",
          .help =
              "ask clients for the token in the first line of FILE; else for SWITCHYARD_TOKEN, if "
              "set" },
        { "--name", OPTION_TEXT, &o->model, "NAME",
          .help = "what clients call the model; else CKPT" },
        { "--context", OPTION_INT, &o->context, "N",
          "most tokens of a prompt and its continuation; 0: data.sequence", .max = 1e7 },
        { "--places", OPTION_INT, &v.places, "N", "sequences that are computed at once", .min = 1,
          .max = 4096 },
        { "--waiting", OPTION_INT, &o->waiting, "N",
          "requests that may wait; more are answered with 429", .min = 1, .max = 4096 },
        { "--average", OPTION_FLAG, &v.average, NULL,
          .help = "take the average of the weights that optimizer.ema kept" },
    };
    const Command command = {
        .name = "switchyard serve",
        .arguments = "CKPT",
        .what =
            "Answer HTTP requests for completions, as OpenAI's interface has them: POST "
            "/v1/completions and GET /v1/models. CKPT is the folder of a run or of a checkpoint.",
        .example = "switchyard serve runs/quickstart --port 8000",
        OPTIONS(table, 1, 1),
    };
    return options_run(&command, argc, argv, run_serve, &v);
}
