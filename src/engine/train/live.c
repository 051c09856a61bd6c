/* live: the server of a run's figures (libmicrohttpd), and their history. */
#include "engine/train/live.h"

#include "engine/base/clock.h"
#include "engine/host/library.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <microhttpd.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

enum { CONNECTIONS = 64, IDLE_S = 10, BACKLOG = 16, PAGE_S = 2, TEXT_BYTES = 64 << 20 };

/* The library's calls. It is opened when a run is watched: it brings nine libraries of TLS along, which would
 * double the time and the memory with which every command starts. */
typedef struct Http {
    __typeof__(&MHD_start_daemon) start;
    __typeof__(&MHD_stop_daemon) stop;
    __typeof__(&MHD_create_response_from_buffer) make;
    __typeof__(&MHD_add_response_header) add_header;
    __typeof__(&MHD_queue_response) queue;
    __typeof__(&MHD_destroy_response) drop;
    __typeof__(&MHD_lookup_connection_value) value;
    __typeof__(&MHD_get_version) version;
} Http;

static Status open_http(Http *out)
{
    static const LibraryCall call[] = {
        { "MHD_start_daemon", .offset = offsetof(Http, start) },
        { "MHD_stop_daemon", .offset = offsetof(Http, stop) },
        { "MHD_create_response_from_buffer", .offset = offsetof(Http, make) },
        { "MHD_add_response_header", .offset = offsetof(Http, add_header) },
        { "MHD_queue_response", .offset = offsetof(Http, queue) },
        { "MHD_destroy_response", .offset = offsetof(Http, drop) },
        { "MHD_lookup_connection_value", .offset = offsetof(Http, value) },
        { "MHD_get_version", .offset = offsetof(Http, version) },
    };
    static const Library library = { .file = "libmicrohttpd.so.12",
                                     .what = "the page of run.http",
                                     .advice = "install libmicrohttpd12, or set run.http=0",
                                     .call = call,
                                     .calls = sizeof call / sizeof *call };
    void *file = NULL; /* stays open: it may have been opened before */
    return library_open(&library, out, &file);
}

const char *live_library_version(void)
{
    Http http = { 0 };
    if (open_http(&http) == OK) return http.version();
    status_clear();
    return "not found";
}

struct Live {
    Http http;
    pthread_mutex_t lock; /* guards `shared` */
    LiveView shared, copy;
    LivePage *page;
    Arena arena, html_arena; /* of these texts, which only the server's thread uses */
    Text text, html;
    double html_s; /* when the page was written */
    struct MHD_Daemon *server;
};

/* ---- history ---- */

static Status view_make(LiveView *v, const char *model, int64_t steps, const SeriesTable *t,
                        Arena *a)
{
    *v = (LiveView){ .model = model, .steps = steps, .n = t->n, .width = 1 };
    TRY(ARENA_NEW(a, v->n, &v->series));
    memcpy(v->series, t->all, (size_t)v->n * sizeof *v->series);
    TRY(ARENA_NEW(a, LIVE_POINTS, &v->x));
    return ARENA_NEW(a, (size_t)v->n * LIVE_POINTS, &v->y);
}

static void view_copy(LiveView *to, const LiveView *from)
{
    LiveView own = *to;
    *to = *from;
    to->series = own.series;
    to->x = own.x;
    to->y = own.y;
    memcpy(to->series, from->series, (size_t)from->n * sizeof *from->series);
    memcpy(to->x, from->x, LIVE_POINTS * sizeof *from->x);
    memcpy(to->y, from->y, (size_t)from->n * LIVE_POINTS * sizeof *from->y);
}

/* Makes one point of two. */
static void halve(LiveView *v)
{
    for (ptrdiff_t p = 0; p < LIVE_POINTS / 2; p++) {
        v->x[p] = v->x[2 * p + 1];
        for (int i = 0; i < v->n; i++) {
            double *y = v->y + (int64_t)i * LIVE_POINTS;
            y[p] = isnan(y[2 * p + 1]) ? y[2 * p] : y[2 * p + 1];
        }
    }
    v->from -= v->width;
    v->points = LIVE_POINTS / 2;
    v->width *= 2;
}

static void view_put(LiveView *v, int64_t step, const SeriesTable *t)
{
    if (v->points == LIVE_POINTS && step >= v->from + v->width) halve(v);
    if (v->points == 0 || step >= v->from + v->width) {
        for (int i = 0; i < v->n; i++) v->y[(int64_t)i * LIVE_POINTS + v->points] = (double)NAN;
        v->from = step;
        v->points++;
    }
    v->step = step;
    v->x[v->points - 1] = (double)step;
    for (int i = 0; i < v->n; i++) {
        v->series[i] = t->all[i];
        if (t->all[i].fresh) v->y[(int64_t)i * LIVE_POINTS + v->points - 1] = t->all[i].now;
    }
}

/* ---- answers ---- */

/* Prometheus' numbers are C's, except for the names of those that are not finite. */
static Status put_number(Text *t, double v)
{
    if (isnan(v)) return text_printf(t, "NaN\n");
    if (isinf(v)) return text_printf(t, v > 0 ? "+Inf\n" : "-Inf\n");
    return text_json(t, "%g\n", v); /* the fewest digits that read back */
}

/* The three bytes that a label's value must escape. */
static Status put_label(Text *t, const char *s)
{
    for (; *s != '\0'; s++) {
        if (*s == '\n')
            TRY(text_append(t, "\\n", 2));
        else
            TRY(text_printf(t, *s == '"' || *s == '\\' ? "\\%c" : "%c", *s));
    }
    return OK;
}

static Status metrics_text(const LiveView *v, Text *t)
{
    const char *last = "";
    TRY(text_printf(t,
                    "# HELP switchyard_step Steps done\n# TYPE switchyard_step gauge\n"
                    "switchyard_step %" PRId64 "\n",
                    v->step));
    for (const Series *s = v->series; s < v->series + v->n; s++) {
        const char *end = s->total ? "_total" : "";
        if (!s->seen) continue;
        if (strcmp(last, s->name) != 0)
            TRY(text_printf(t, "# HELP switchyard_%s%s %s\n# TYPE switchyard_%s%s %s\n", s->name,
                            end, s->help, s->name, end, s->total ? "counter" : "gauge"));
        last = s->name;
        TRY(text_printf(t, "switchyard_%s%s", s->name, end));
        if (*s->key != '\0') {
            TRY(text_printf(t, "{%s=\"", s->key));
            TRY(put_label(t, s->label));
            TRY(text_append(t, "\"}", 2));
        }
        TRY(text_append(t, " ", 1));
        TRY(put_number(t, s->now));
    }
    return OK;
}

static void take_copy(Live *l)
{
    pthread_mutex_lock(&l->lock);
    view_copy(&l->copy, &l->shared);
    pthread_mutex_unlock(&l->lock);
}

/* All who ask within two seconds get one page. */
static Status page_text(Live *l, Text *t)
{
    if (clock_s() < l->html_s + PAGE_S) return OK;
    take_copy(l);
    t->used = 0;
    l->html_s = -PAGE_S;
    TRY(l->page(&l->copy, t));
    l->html_s = clock_s();
    return OK;
}

/* Is the request addressed to 127.0.0.1 or localhost, at whatever port a tunnel has? */
static bool host_is_here(const Live *l, struct MHD_Connection *c)
{
    static const char *const name[] = { "127.0.0.1", "localhost" };
    const char *host = l->http.value(c, MHD_HEADER_KIND, "Host");
    for (int i = 0; i < 2 && host != NULL; i++) {
        size_t n = strlen(name[i]);
        if (strncmp(host, name[i], n) == 0 && (host[n] == '\0' || host[n] == ':')) return true;
    }
    return host == NULL; /* HTTP/1.0, which no browser speaks */
}

static enum MHD_Result send_text(const Live *l, struct MHD_Connection *c, unsigned code,
                                 const char *type, Text *t)
{
    static const char *const header[][2] = {
        { "Cache-Control", "no-store" },
        { "Content-Security-Policy",
          "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'" },
        { "Refresh", "5" },
        { "Allow", "GET" },
    };
    struct MHD_Response *r = l->http.make(t->used, t->data, MHD_RESPMEM_MUST_COPY);
    if (r == NULL) return MHD_NO;
    bool ok = l->http.add_header(r, "Content-Type", type) == MHD_YES;
    for (size_t i = 0; i < sizeof header / sizeof *header && ok; i++)
        ok = l->http.add_header(r, header[i][0], header[i][1]) == MHD_YES;
    enum MHD_Result sent = ok ? l->http.queue(c, code, r) : MHD_NO;
    l->http.drop(r);
    return sent;
}

static enum MHD_Result refuse(Live *l, struct MHD_Connection *c, unsigned code, const char *why)
{
    l->text.used = 0;
    if (text_printf(&l->text, "%s\n", why) != OK) return MHD_NO;
    return send_text(l, c, code, "text/plain; charset=utf-8", &l->text);
}

/* NOLINTBEGIN(readability-function-size,readability-non-const-parameter): the library calls it so */
static enum MHD_Result answer(void *state, struct MHD_Connection *c, const char *url,
                              const char *method, const char *version, const char *data,
                              size_t *bytes, void **request)
{
    Live *l = state;
    (void)version, (void)data, (void)bytes, (void)request;
    bool metrics = strcmp(url, "/metrics") == 0;
    if (!host_is_here(l, c)) return refuse(l, c, 403, "ask for 127.0.0.1 or localhost");
    if (strcmp(method, "GET") != 0) return refuse(l, c, 405, "only GET is answered");
    if (!metrics && strcmp(url, "/") != 0) return refuse(l, c, 404, "there are / and /metrics");
    Text *t = metrics ? &l->text : &l->html;
    Status s;
    if (metrics) {
        take_copy(l);
        t->used = 0;
        s = metrics_text(&l->copy, t);
    } else {
        s = page_text(l, t);
    }
    if (s == OK)
        return send_text(
            l, c, 200,
            metrics ? "text/plain; version=0.0.4; charset=utf-8" : "text/html; charset=utf-8", t);
    status_clear();
    return refuse(l, c, 500, "the answer could not be written");
}
/* NOLINTEND(readability-function-size,readability-non-const-parameter) */

/* ---- the server ---- */

static Status listen_here(int port, int *out)
{
    const struct sockaddr_in to = { .sin_family = AF_INET,
                                    .sin_port = htons((uint16_t)port),
                                    .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0 &&
        bind(fd, (const struct sockaddr *)&to, sizeof to) == 0 && listen(fd, BACKLOG) == 0) {
        *out = fd;
        return OK;
    }
    char why[128];
    const char *reason = strerror_r(errno, why, sizeof why);
    if (fd >= 0) (void)close(fd);
    return FAIL(
        ERR_ARG,
        "run.http=%d: nothing can be served at 127.0.0.1:%d (%s); choose another port, or 0 "
        "for none",
        port, port, reason);
}

/* Signals are for the thread that drives the run, so the new thread inherits a mask of all. */
static Status start_server(Live *l, int fd)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    l->server = l->http.start(MHD_USE_AUTO | MHD_USE_INTERNAL_POLLING_THREAD, 0, NULL, NULL, answer,
                              l, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT,
                              (unsigned)CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT,
                              (unsigned)IDLE_S, MHD_OPTION_END);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (l->server != NULL) return OK;
    (void)close(fd);
    return FAIL(ERR_MEMORY, "run.http: the server's thread could not be started");
}

Status live_open(Live **out, int port, const char *model, int64_t steps, const SeriesTable *t,
                 LivePage *page, Arena *a)
{
    int fd = -1;
    Live *l = NULL;
    TRY(ARENA_ZEROED(a, 1, &l));
    TRY(open_http(&l->http));
    l->page = page;
    l->html_s = -PAGE_S;
    TRY(view_make(&l->shared, model, steps, t, a));
    TRY(view_make(&l->copy, model, steps, t, a));
    TRY(listen_here(port, &fd));
    pthread_mutex_init(&l->lock, NULL);
    Status s = arena_init(&l->arena, "live text", MEM_HOST, TEXT_BYTES);
    if (s == OK) s = arena_init(&l->html_arena, "live page", MEM_HOST, TEXT_BYTES);
    if (s == OK) s = text_init(&l->text, &l->arena);
    if (s == OK) s = text_init(&l->html, &l->html_arena);
    if (s == OK)
        s = start_server(l, fd);
    else
        (void)close(fd);
    *out = l;
    return s;
}

void live_put(Live *l, int64_t step, const SeriesTable *t)
{
    pthread_mutex_lock(&l->lock);
    view_put(&l->shared, step, t);
    pthread_mutex_unlock(&l->lock);
}

void live_close(Live *l)
{
    if (l == NULL) return;
    if (l->server != NULL) l->http.stop(l->server);
    arena_free(&l->arena);
    arena_free(&l->html_arena);
    pthread_mutex_destroy(&l->lock);
}
