/* live: the server of a run's figures (libmicrohttpd), and their history. */
#include "engine/train/live.h"

#include "engine/base/clock.h"
#include "engine/host/http.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <string.h>

enum { CONNECTIONS = 64, IDLE_S = 10, PAGE_S = 2, TEXT_BYTES = 64 << 20 };

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

static Status view_make(LiveView *v, const Config *c, const char *model, const SeriesTable *t,
                        Arena *a)
{
    *v = (LiveView){ model, c->run_dir, .steps = c->train_steps, .n = t->n, .width = 1 };
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
    return http_send(&l->http, c, code, type, header, sizeof header / sizeof *header, t);
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
    if (!http_host_is_here(&l->http, c)) return refuse(l, c, 403, "ask for 127.0.0.1 or localhost");
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

static Status start_server(Live *l, int fd)
{
    const HttpUse use = { .setting = "run.http",
                          .answer = answer,
                          .state = l,
                          .connections = CONNECTIONS,
                          .idle_s = IDLE_S };
    return http_start(&l->http, fd, &use, &l->server);
}

Status live_open(Live **out, const Config *c, const char *model, const SeriesTable *t,
                 LivePage *page, Arena *a)
{
    int fd = -1;
    Live *l = NULL;
    TRY(ARENA_ZEROED(a, 1, &l));
    TRY(http_open("the page of run.http", "install libmicrohttpd12, or set run.http=0", &l->http));
    l->page = page;
    l->html_s = -PAGE_S;
    TRY(view_make(&l->shared, c, model, t, a));
    TRY(view_make(&l->copy, c, model, t, a));
    TRY(http_listen("run.http=", "127.0.0.1", (int)c->run_http,
                    "choose another port, or 0 for none", &fd));
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
