/* server: see server.h. */
#include "serve/server.h"

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "serve/answer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum {
    IDLE_S = 10,
    HEAD_S = 15,
    BODY_S = 60,
    OTHER_CONNECTIONS = 64, /* beyond those that wait */
    BODY_MAX = 4 << 20,
    TEXT_BYTES = 1 << 20,
    STREAM_BLOCK = 4096, /* most bytes that the library asks for at once */
    SENTENCE_BYTES = 1024
};

/* A connection whose request has not come whole. */
typedef struct Guest {
    int fd;         /* 0: this place is free */
    double since_s; /* 0: its header is there */
} Guest;

struct Server {
    Http http;
    ServerOptions options;
    bool loopback;
    struct MHD_Daemon *daemon;
    pthread_mutex_t lock; /* guards the members up to `guests`, Job.finished, and streams */
    pthread_cond_t arrived;
    Job *first, **last;
    int64_t waiting, number;
    int64_t open; /* jobs that exist */
    bool refuses;
    Guest *guest; /* (guests) */
    int guests;
    /* of the library's thread alone */
    Arena arena;
    Text text;
};

/* ---- answers ---- */

static const char *const plain[] = { "X-Content-Type-Options", "nosniff" };

static enum MHD_Result send_json(const Server *s, struct MHD_Connection *c, unsigned code,
                                 const char *const more[2], const Text *t)
{
    const char *const header[][2] = { { "Cache-Control", "no-store" }, { more[0], more[1] } };
    return http_send(&s->http, c, code, "application/json", header, 2, t);
}

static enum MHD_Result refuse(Server *s, struct MHD_Connection *c, unsigned code,
                              const char *const more[2], const char *why)
{
    s->text.used = 0;
    if (answer_error((int)code, why, &s->text) != OK) return MHD_NO;
    return send_json(s, c, code, more, &s->text);
}

/* Takes as long for any wrong token, so that time tells nothing of it. */
static bool has_token(const Server *s, struct MHD_Connection *c)
{
    static const char scheme[] = "Bearer ";
    const char *want = s->options.token,
               *given = s->http.value(c, MHD_HEADER_KIND, "Authorization");
    if (want == NULL) return true;
    if (given == NULL || !text_starts(given, scheme)) return false;
    given += strlen(scheme);
    const size_t n = strlen(given);
    unsigned differ = n != strlen(want);
    for (size_t i = 0; want[i] != '\0'; i++)
        differ |= (unsigned)(unsigned char)(want[i] ^ (n > 0 ? given[i % n] : '\0'));
    return differ == 0 && n > 0;
}

/* What is refused before the body is read. True: *sent is the answer's result. */
static bool refuse_early(Server *s, struct MHD_Connection *c, const char *url, const char *method,
                         enum MHD_Result *sent)
{
    static const char *const get[] = { "Allow", "GET" }, *const post[] = { "Allow", "POST" },
                             *const bearer[] = { "WWW-Authenticate", "Bearer" };
    const bool completions = strcmp(url, "/v1/completions") == 0;
    const bool models = strcmp(url, "/v1/models") == 0;
    const char *want = completions ? "POST" : "GET";
    const char *length = s->http.value(c, MHD_HEADER_KIND, "Content-Length");
    unsigned code = 0;
    const char *const *more = plain;
    const char *why = NULL;
    if (s->loopback && !http_host_is_here(&s->http, c))
        code = 403, why = "ask for 127.0.0.1 or localhost: --host ADDR serves other names";
    else if (s->http.value(c, MHD_HEADER_KIND, "Origin") != NULL)
        code = 403, why = "a page of a browser may not ask: programs send no Origin";
    else if (!has_token(s, c))
        code = 401, more = bearer, why = "send the header Authorization: Bearer TOKEN";
    else if (!completions && !models)
        code = 404, why = "there are POST /v1/completions and GET /v1/models";
    else if (strcmp(method, want) != 0)
        code = 405, more = completions ? post : get,
        why = completions ? "/v1/completions takes only POST" : "/v1/models takes only GET";
    else if (length != NULL && (strlen(length) > 9 || strtol(length, NULL, 10) > BODY_MAX))
        code = 413, why = "the body has more than 4 MiB: send fewer prompts at once";
    if (code == 0) return false;
    *sent = refuse(s, c, code, more, why);
    return true;
}

/* ---- connections ---- */

static int fd_of(const Server *s, struct MHD_Connection *c)
{
    return s->http.info(c, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
}

/* Notes when a connection began to send a header; 0: it is there. The first call for a connection takes a place. */
static void note_header(Server *s, struct MHD_Connection *c, double since_s)
{
    const int fd = fd_of(s, c);
    int at = 0;
    pthread_mutex_lock(&s->lock);
    while (at < s->guests && s->guest[at].fd != fd) at++;
    for (int i = 0; i < s->guests && at == s->guests; i++) at = s->guest[i].fd == 0 ? i : at;
    if (at < s->guests) s->guest[at] = (Guest){ fd, since_s };
    pthread_mutex_unlock(&s->lock);
}

static void forget(Server *s, struct MHD_Connection *c)
{
    const int fd = fd_of(s, c);
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < s->guests; i++) {
        if (s->guest[i].fd == fd) s->guest[i] = (Guest){ 0 };
    }
    pthread_mutex_unlock(&s->lock);
}

/* The library calls this before it closes a socket, so a number in the table is never another file's. */
static void on_connection(void *state, struct MHD_Connection *c, void **socket,
                          enum MHD_ConnectionNotificationCode code)
{
    (void)socket;
    if (code == MHD_CONNECTION_NOTIFY_STARTED)
        note_header(state, c, clock_s());
    else
        forget(state, c);
}

/* The library's timeout begins again with every byte, so a header byte by byte would hold a connection for hours. The
 * library closes what was shut down. The lock is held. */
static void drop_slow(Server *s)
{
    const double now_s = clock_s();
    for (int i = 0; i < s->guests; i++) {
        Guest *g = &s->guest[i];
        if (g->fd == 0 || g->since_s == 0 || now_s < g->since_s + HEAD_S) continue;
        (void)shutdown(g->fd, SHUT_RDWR);
        g->since_s = 0;
    }
}

/* ---- jobs ---- */

static enum MHD_Result begin_job(Server *s, struct MHD_Connection *c, void **request)
{
    Arena arena = { 0 };
    Job *job = NULL;
    Status made = arena_reserve(&arena, "request", (size_t)1 << 30);
    if (made == OK) made = ARENA_ZEROED(&arena, 1, &job);
    if (made != OK) {
        arena_free(&arena);
        status_clear();
        return refuse(s, c, 503, plain, "there is no memory for another request: try again later");
    }
    *job = (Job){ .arena = arena, .server = s, .connection = c, .begun_s = clock_s() };
    pthread_mutex_lock(&s->lock);
    job->number = ++s->number;
    s->open++;
    pthread_mutex_unlock(&s->lock);
    *request = job;
    return MHD_YES;
}

/* Room for the NUL after the body, too. A body that is too large is read to its end and dropped. */
static enum MHD_Result add_body(Job *job, const char *data, size_t n)
{
    if (clock_s() > job->begun_s + BODY_S) return MHD_NO;
    job->large = job->large || job->bytes + (int64_t)n > BODY_MAX;
    if (job->large) return MHD_YES;
    if (ARENA_GROW(&job->arena, job->bytes + (int64_t)n + 1, &job->room, &job->body) != OK) {
        status_clear();
        return MHD_NO;
    }
    memcpy(job->body + job->bytes, data, n);
    job->bytes += (int64_t)n;
    job->body[job->bytes] = '\0';
    return MHD_YES;
}

/* The connection is suspended before the other thread can resume it. */
static enum MHD_Result queue_job(Server *s, Job *job)
{
    static const char *const later[] = { "Retry-After", "1" };
    struct MHD_Connection *c = job->connection;
    if (job->large)
        return refuse(s, c, 413, plain, "the body has more than 4 MiB: send fewer prompts at once");
    if (job->body == NULL) return refuse(s, c, 400, plain, "the body is empty: send a JSON object");
    pthread_mutex_lock(&s->lock);
    const bool ends = s->refuses, full = s->waiting >= s->options.waiting;
    if (!ends && !full) {
        s->http.suspend(c);
        *s->last = job;
        s->last = &job->next;
        s->waiting++;
        pthread_cond_signal(&s->arrived);
    }
    pthread_mutex_unlock(&s->lock);
    if (ends) return refuse(s, c, 503, plain, "the server ends");
    return full ? refuse(s, c, 429, later, "too many requests wait: ask again later") : MHD_YES;
}

static enum MHD_Result send_answer(Server *s, const Job *job)
{
    return send_json(s, job->connection, job->code, plain, &job->answer);
}

/* The library asks for the next bytes of a stream. A connection that has all there are sleeps until there are more. */
static ssize_t next_of_stream(void *state, uint64_t at, char *to, size_t most)
{
    Job *job = state;
    Server *s = job->server;
    (void)at;
    pthread_mutex_lock(&s->lock);
    const size_t left = job->stream.used - job->stream_sent;
    ssize_t n = (ssize_t)(left < most ? left : most);
    if (n > 0) {
        memcpy(to, job->stream.data + job->stream_sent, (size_t)n);
        job->stream_sent += (size_t)n;
    } else if (job->finished) {
        n = MHD_CONTENT_READER_END_OF_STREAM;
    } else {
        s->http.suspend(job->connection);
        job->sleeps = true;
    }
    pthread_mutex_unlock(&s->lock);
    return n;
}

static enum MHD_Result send_stream(const Server *s, Job *job)
{
    static const char *const header[][2] = { { "Content-Type", "text/event-stream" },
                                             { "Cache-Control", "no-store" },
                                             { "X-Content-Type-Options", "nosniff" } };
    struct MHD_Response *r =
        s->http.make_stream(MHD_SIZE_UNKNOWN, STREAM_BLOCK, next_of_stream, job, NULL);
    bool ok = r != NULL;
    for (int i = 0; i < 3 && ok; i++)
        ok = s->http.add_header(r, header[i][0], header[i][1]) == MHD_YES;
    const enum MHD_Result sent = ok ? s->http.queue(job->connection, 200, r) : MHD_NO;
    if (r != NULL) s->http.drop(r);
    return sent;
}

static enum MHD_Result send_models(Server *s, struct MHD_Connection *c)
{
    s->text.used = 0;
    if (answer_models(s->options.model, s->options.context, &s->text) != OK) return MHD_NO;
    return send_json(s, c, 200, plain, &s->text);
}

/* NOLINTBEGIN(readability-function-size,readability-non-const-parameter): the library calls it so */
static enum MHD_Result answer(void *state, struct MHD_Connection *c, const char *url,
                              const char *method, const char *version, const char *data,
                              size_t *bytes, void **request)
{
    Server *s = state;
    Job *job = *request;
    enum MHD_Result sent = MHD_NO;
    (void)version;
    if (job == NULL) {
        note_header(s, c, 0);
        if (refuse_early(s, c, url, method, &sent)) return sent;
        return strcmp(method, "GET") == 0 ? send_models(s, c) : begin_job(s, c, request);
    }
    if (*bytes > 0) {
        sent = add_body(job, data, *bytes);
        *bytes = 0;
        return sent;
    }
    pthread_mutex_lock(&s->lock);
    const bool finished = job->finished, streams = job->streams;
    pthread_mutex_unlock(&s->lock);
    if (streams) return send_stream(s, job);
    return finished ? send_answer(s, job) : queue_job(s, job);
}
/* NOLINTEND(readability-function-size,readability-non-const-parameter) */

/* The job lies in its arena. */
static void free_job(Job *job)
{
    Arena arena = job->arena;
    arena_free(&job->stream_arena);
    arena_free(&arena);
}

/* The library calls this once for each request, also where the client has gone. A stream that is not finished is still
 * the other thread's. */
static void end_job(void *state, struct MHD_Connection *c, void **request,
                    enum MHD_RequestTerminationCode code)
{
    Server *s = state;
    Job *job = *request;
    (void)code;
    note_header(s, c, clock_s()); /* of the next request of this connection */
    if (job == NULL) return;
    *request = NULL;
    pthread_mutex_lock(&s->lock);
    job->gone = job->streams && !job->finished;
    const bool keep = job->gone;
    s->open--;
    pthread_cond_signal(&s->arrived);
    pthread_mutex_unlock(&s->lock);
    if (!keep) free_job(job);
}

/* ---- for the thread that drives the engine ---- */

Job *server_take(Server *s, double seconds)
{
    const struct timespec until = clock_after(seconds);
    pthread_mutex_lock(&s->lock);
    drop_slow(s);
    while (s->first == NULL && seconds > 0 &&
           pthread_cond_timedwait(&s->arrived, &s->lock, &until) != ETIMEDOUT) {}
    Job *job = s->first;
    if (job != NULL) {
        s->first = job->next;
        s->waiting--;
        if (s->first == NULL) s->last = &s->first;
    }
    pthread_mutex_unlock(&s->lock);
    return job;
}

Status job_stream(Job *job)
{
    TRY(arena_reserve(&job->stream_arena, "stream", (size_t)1 << 30));
    TRY(text_init(&job->stream, &job->stream_arena));
    pthread_mutex_lock(&job->server->lock);
    job->streams = true;
    pthread_mutex_unlock(&job->server->lock);
    job->server->http.resume(job->connection);
    return OK;
}

/* The lock is held, so the connection has not ended. */
static void wake(Job *job)
{
    if (job->sleeps) job->server->http.resume(job->connection);
    job->sleeps = false;
}

Status job_add(Job *job, const Text *t, bool *gone)
{
    pthread_mutex_lock(&job->server->lock);
    if (job->stream_sent == job->stream.used) job->stream_sent = job->stream.used = 0;
    const Status s = text_append(&job->stream, t->data, t->used);
    if (t->used > 0) wake(job);
    *gone = job->gone;
    pthread_mutex_unlock(&job->server->lock);
    return s;
}

/* An error that comes after the header is an event. */
static Status put_error(Job *job, unsigned code)
{
    char why[SENTENCE_BYTES];
    bool gone = false;
    status_sentence(why, sizeof why);
    TRY(text_init(&job->answer, &job->arena));
    if (job->streams) TRY(text_printf(&job->answer, "data: "));
    TRY(answer_error((int)code, why, &job->answer));
    if (!job->streams) return OK;
    TRY(text_append(&job->answer, "\n", 1));
    return job_add(job, &job->answer, &gone);
}

void job_finish(Job *job, Status status, unsigned code)
{
    Server *s = job->server;
    if (status != OK && put_error(job, code) != OK) job->answer = (Text){ 0 };
    if (status != OK) status_clear();
    pthread_mutex_lock(&s->lock);
    job->code = code;
    job->finished = true;
    const bool gone = job->gone, streams = job->streams;
    if (streams && !gone) wake(job);
    pthread_mutex_unlock(&s->lock);
    if (gone) free_job(job); /* else the library's thread frees it, perhaps already */
    if (!streams) s->http.resume(job->connection);
}

void server_refuse(Server *s)
{
    pthread_mutex_lock(&s->lock);
    s->refuses = true;
    pthread_mutex_unlock(&s->lock);
    for (Job *job = server_take(s, 0); job != NULL; job = server_take(s, 0))
        job_finish(job, FAIL(ERR_INTERRUPTED, "the server ends"), 503);
}

/* ---- begin and end ---- */

/* Port 0 is any free one, so the log says which. Addresses of both families have the port in the same place. */
static void say_where(const Server *s, int fd)
{
    struct sockaddr_in6 at = { 0 };
    socklen_t n = sizeof at;
    unsigned port = (unsigned)s->options.port;
    const bool six = strchr(s->options.address, ':') != NULL;
    if (getsockname(fd, (struct sockaddr *)&at, &n) == 0) port = ntohs(at.sin6_port);
    log_info("serving %s at http://%s%s%s:%u/v1/completions, context %lld tokens", s->options.model,
             six ? "[" : "", s->options.address, six ? "]" : "", port,
             (long long)s->options.context);
}

Status server_open(Server **out, const ServerOptions *o, Arena *a)
{
    int fd = -1;
    Server *s = NULL;
    TRY(ARENA_ZEROED(a, 1, &s));
    s->options = *o;
    s->last = &s->first;
    s->loopback = text_starts(o->address, "127.") || strcmp(o->address, "::1") == 0;
    TRY(http_open("the server", "install libmicrohttpd12", &s->http));
    TRY(http_listen("--port ", o->address, (int)o->port, "choose another --port or --host", &fd));
    pthread_mutex_init(&s->lock, NULL);
    clock_cond_init(&s->arrived);
    say_where(s, fd);
    s->guests = (int)o->waiting + OTHER_CONNECTIONS;
    Status done = ARENA_ZEROED(a, s->guests, &s->guest);
    if (done == OK) done = arena_init(&s->arena, "server text", MEM_HOST, TEXT_BYTES);
    if (done == OK) done = text_init(&s->text, &s->arena);
    const HttpUse use = { .setting = "--port",
                          .answer = answer,
                          .completed = end_job,
                          .connects = on_connection,
                          .state = s,
                          .connections = (unsigned)s->guests,
                          .idle_s = IDLE_S };
    if (done == OK) done = http_start(&s->http, fd, &use, &s->daemon);
    *out = s;
    return done;
}

/* Answers leave for clients that read them; others are given up after a while. */
void server_close(Server *s)
{
    if (s == NULL) return;
    const struct timespec until = clock_after(IDLE_S);
    pthread_mutex_lock(&s->lock);
    while (s->open > 0 && pthread_cond_timedwait(&s->arrived, &s->lock, &until) != ETIMEDOUT) {}
    pthread_mutex_unlock(&s->lock);
    if (s->daemon != NULL) s->http.stop(s->daemon);
    arena_free(&s->arena);
    pthread_cond_destroy(&s->arrived);
    pthread_mutex_destroy(&s->lock);
}
