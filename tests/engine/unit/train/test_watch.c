/* What watches a run: TensorBoard's files, read back by a reader of its own, and the server on loopback. */
#include "engine/unit/train/run_place.h"
#include "pages/live_page.h"
#include "pages/unit/xml_check.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <math.h>
#include <unistd.h>

/* ---- TensorBoard ---- */

/* One scalar, or an event without (tag ""). */
typedef struct Scalar {
    char tag[64];
    int64_t step, session;
    float value;
} Scalar;

enum { SCALARS = 256 };

/* CRC-32C by long division over bits from the lowest on. */
static uint32_t sum_of(const uint8_t *data, size_t n)
{
    uint32_t rest = 0xFFFFFFFF;
    for (size_t bit = 0; bit < 8 * n; bit++) {
        uint32_t in = (uint32_t)(data[bit / 8] >> bit % 8) & 1;
        bool odd = (rest & 1) != in;
        rest = rest >> 1 ^ (odd ? 0x82F63B78 : 0);
    }
    rest = ~rest;
    return ((rest << 17) | (rest >> 15)) + 0xa282ead8;
}

static uint64_t little(const uint8_t *at, int n)
{
    uint64_t v = 0;
    while (n-- > 0) v = v << 8 | at[n];
    return v;
}

static uint64_t varint(const uint8_t **at)
{
    uint64_t v = 0;
    int shift = 0;
    do v |= (uint64_t)(**at & 0x7F) << shift, shift += 7;
    while (*(*at)++ & 0x80);
    return v;
}

/* Reads fields until `end`. Those that hold messages are read into the same scalar; each tag with its value
 * makes one. */
static void read_fields(const uint8_t *at, const uint8_t *end, int level, Scalar *s, int *n)
{
    while (at < end) {
        uint64_t key = varint(&at), field = key >> 3, wire = key & 7;
        uint64_t bytes = wire == 0 ? 0 : wire == 1 ? 8 : wire == 5 ? 4 : varint(&at);
        CHECK(wire == 0 || bytes <= (uint64_t)(end - at));
        if (wire == 0) {
            uint64_t v = varint(&at);
            if (level == 0) s[*n].step = (int64_t)v;
            if (level == 1) s[*n].session = (int64_t)v;
        } else if (level == 0 && field == 5) {
            read_fields(at, at + bytes, 2, s, n); /* Summary */
        } else if (level == 0 && field == 7) {
            read_fields(at, at + bytes, 1, s, n); /* SessionLog */
        } else if (level == 2 && field == 1) {
            s[*n].value = NAN;
            read_fields(at, at + bytes, 3, s, n); /* Value */
            CHECK(*n < SCALARS - 1);
            if (isnan(
                    s[*n]
                        .value)) /* the configuration: tests/engine/system/test_events.c reads it */
                s[*n].tag[0] = '\0';
            else
                s[++*n] = (Scalar){ .step = s[*n - 1].step };
        } else if (level == 3 && field == 1) {
            CHECK(bytes < sizeof s->tag);
            memcpy(s[*n].tag, at, bytes);
        } else if (level == 3 && field == 2) {
            memcpy(&s[*n].value, at, 4);
        }
        at += bytes;
    }
    CHECK(at == end);
}

/* Reads the only events file of the folder; events without scalars leave one with tag "". */
static int read_events(RunPlace *p, Scalar s[SCALARS])
{
    const char *const *name = NULL;
    char path[FILE_PATH_MAX], *text = NULL;
    size_t bytes = 0;
    int names = 0, n = 0, found = 0;
    CHECK_OK(file_list(p->folder, &p->t.arena, &name, &names));
    for (int i = 0; i < names; i++) {
        if (strncmp(name[i], "events.out.tfevents.", 20) != 0) continue;
        CHECK_OK(file_join(path, p->folder, name[i]));
        found++;
    }
    CHECK_INT(found, 1);
    CHECK_OK(file_read_all(path, &p->t.arena, &text, &bytes));
    const uint8_t *at = (const uint8_t *)text, *end = at + bytes;
    while (at < end) {
        size_t length = little(at, 8);
        CHECK(length + 16 <= (size_t)(end - at));
        CHECK_INT(little(at + 8, 4), sum_of(at, 8));
        CHECK_INT(little(at + 12 + length, 4), sum_of(at + 12, length));
        s[n] = (Scalar){ 0 };
        int before = n;
        read_fields(at + 12, at + 12 + length, 0, s, &n);
        n += n == before;
        at += length + 16;
    }
    return n;
}

static float scalar_at(const Scalar *s, int n, const char *tag, int64_t step)
{
    float v = NAN;
    for (int i = 0; i < n; i++) {
        if (strcmp(s[i].tag, tag) == 0 && s[i].step == step) v = s[i].value;
    }
    return v;
}

static StepMetrics step_of(RunPlace *p, int64_t step)
{
    static const int64_t taken[] = { 12, 5 };
    return (StepMetrics){ .step = step,
                          .tokens = 96,
                          .lr = 0.25,
                          .step_s = 0.5,
                          .tokens_per_s = 192,
                          .mfu = 0.125,
                          .seen = 96.0 * (double)step,
                          .run_s = 59 * (double)step,
                          .left_s = 7500,
                          .taken = taken,
                          .result = tiny_steps(&p->t, step, 1) };
}

/* Most over mean, and entropy over ln E, of one layer's load in both domains. */
static void load_of(const int32_t *load, int layer, double *most, double *even)
{
    double sum = 0, row[6];
    *most = *even = 0;
    for (int e = 0; e < 6; e++) {
        row[e] = load[layer * 12 + e] + load[layer * 12 + 6 + e];
        sum += row[e];
        *most = fmax(*most, row[e]);
    }
    for (int e = 0; e < 6; e++) *even -= row[e] > 0 ? row[e] / sum * log2(row[e] / sum) : 0;
    *most /= sum / 6;
    *even /= log2(6);
}

static void tensorboard_reads_every_figure_of_a_step(void **state)
{
    RunPlace *p = *state;
    static Scalar s[SCALARS];
    double most = 0, even = 0;
    p->t.config.run_tensorboard = true;
    CHECK_OK(metrics_watch(&p->metrics, p->folder, live_page));
    StepMetrics m = step_of(p, 7);
    m.result.retried = true;
    CHECK_OK(metrics_step(&p->metrics, &m));
    int n = read_events(p, s);  /* before anything is closed */
    CHECK_INT(s[1].session, 1); /* START, after the file's version */
    CHECK_INT(s[1].step, 7);
    static const char *const first[] = { "loss", "aux_loss", "lr", "grad_norm" };
    for (int i = 0; i < 4; i++) CHECK_TEXT(s[3 + i].tag, first[i]); /* s[2]: the configuration */
    load_of(m.result.load, 1, &most, &even);
    const struct {
        const char *tag;
        double want;
    } cases[] = { { "loss", m.result.loss },
                  { "grad_norm", m.result.grad_norm },
                  { "group_grad_norm/group_router", m.result.group_norm[GRAD_ROUTER] },
                  { "router_z/layer_2", (double)m.result.router_z[1] / 96 },
                  { "lr", 0.25 },
                  { "tokens_per_s", 192 },
                  { "mfu", 0.125 },
                  { "steps_again", 1 },
                  { "expert_load_max/layer_2", most },
                  { "expert_load_entropy/layer_2", even },
                  { "source_tokens/source_books", 5.0 * (double)p->t.config.data_sequence },
                  { "source_epochs/source_we\"b", 12 / 25.0 } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        float got = scalar_at(s, n, cases[i].tag, 7);
        if (!(fabs((double)got - cases[i].want) <= 1e-6 * fabs(cases[i].want)))
            fail_msg("%s is %g, not %g", cases[i].tag, (double)got, cases[i].want);
    }
    CHECK(isnan(scalar_at(s, n, "roof_share", 7))); /* unknown */
    CHECK(isnan(scalar_at(s, n, "eval_loss", 7)));
}

static void an_evaluation_is_an_event_with_its_figures_alone(void **state)
{
    RunPlace *p = *state;
    static Scalar s[SCALARS];
    int64_t load[24] = { 0 };
    EvalMetrics v = { .step = 300, .n_domains = 2, .domain = { { 10, 4, 8 }, { 2, 4, 2 } } };
    v.load = load;
    p->t.config.run_tensorboard = true;
    CHECK_OK(metrics_watch(&p->metrics, p->folder, live_page));
    StepMetrics m = step_of(p, 1);
    CHECK_OK(metrics_step(&p->metrics, &m));
    CHECK_OK(metrics_eval(&p->metrics, &v));
    int n = read_events(p, s);
    CHECK_NEAR(scalar_at(s, n, "eval_loss", 300), 1.5, 0);
    CHECK_NEAR(scalar_at(s, n, "source_eval_loss/source_we\"b", 300), 2.5, 0);
    CHECK(isnan(scalar_at(s, n, "loss", 300)));
    CHECK(!isnan(scalar_at(s, n, "loss", 1)));
}

/* ---- the server ---- */

static int socket_at(int port, bool serve)
{
    const struct sockaddr_in to = { .sin_family = AF_INET,
                                    .sin_port = htons((uint16_t)port),
                                    .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(fd >= 0);
    if (serve)
        CHECK_INT(bind(fd, (const struct sockaddr *)&to, sizeof to) + listen(fd, 1), 0);
    else
        CHECK_INT(connect(fd, (const struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

/* A port that is free, and a socket that holds it. */
static int held_port(int *fd)
{
    struct sockaddr_in at;
    socklen_t n = sizeof at;
    *fd = socket_at(0, true);
    CHECK_INT(getsockname(*fd, (struct sockaddr *)&at, &n), 0);
    return ntohs(at.sin_port);
}

/* `tools/packages aarch64` installs what is linked; this library is opened. */
static void skip_without_http(void)
{
    if (dlopen("libmicrohttpd.so.12", RTLD_LAZY) == NULL)
        skip_under_emulator("there is no libmicrohttpd for its processor");
}

static void serve(RunPlace *p)
{
    skip_without_http();
    int fd, port = held_port(&fd);
    CHECK_INT(close(fd), 0);
    p->t.config.run_http = port;
    CHECK_OK(metrics_watch(&p->metrics, p->folder, live_page));
}

/* The whole reply to a request line for this host. */
static const char *ask_host(RunPlace *p, const char *request, const char *host)
{
    enum { ROOM = 4 << 20 };
    char text[256], *reply = NULL;
    size_t used = 0;
    ssize_t got = 0;
    int fd = socket_at((int)p->t.config.run_http, false);
    int n = snprintf(text, sizeof text, "%s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n",
                     request, host);
    CHECK_INT(write(fd, text, (size_t)n), n);
    CHECK_OK(ARENA_ZEROED(&p->t.arena, ROOM, &reply));
    while ((got = read(fd, reply + used, ROOM - 1 - used)) > 0) used += (size_t)got;
    CHECK_INT(close(fd), 0);
    return reply;
}

static const char *ask(RunPlace *p, const char *request)
{
    return ask_host(p, request, "127.0.0.1:1");
}

static int count_of(const char *text, const char *part)
{
    int n = 0;
    while ((text = strstr(text, part)) != NULL) n++, text++;
    return n;
}

static void prometheus_reads_the_last_figures(void **state)
{
    RunPlace *p = *state;
    char want[128];
    serve(p);
    StepMetrics m = step_of(p, 1);
    CHECK_OK(metrics_step(&p->metrics, &m));
    m = step_of(p, 2);
    m.result.grad_norm = (double)NAN;
    CHECK_OK(metrics_step(&p->metrics, &m));
    const char *reply = ask(p, "GET /metrics");
    CHECK(strncmp(reply, "HTTP/1.1 200 ", 13) == 0);
    CHECK(strstr(reply, "Content-Type: text/plain; version=0.0.4") != NULL);
    snprintf(want, sizeof want, "\nswitchyard_source_tokens_total{source=\"we\\\"b\"} %lld\n",
             12 * (long long)p->t.config.data_sequence);
    CHECK(strstr(reply, want) != NULL);
    CHECK(strstr(reply, "\n# TYPE switchyard_source_tokens_total counter\n") != NULL);
    CHECK_INT(count_of(reply, "# TYPE switchyard_expert_load_max gauge\n"), 1);
    CHECK_INT(count_of(reply, "\nswitchyard_expert_load_max{layer=\""), 2);
    CHECK(strstr(reply, "\nswitchyard_step 2\n") != NULL);
    CHECK(strstr(reply, "\nswitchyard_grad_norm NaN\n") != NULL);
    CHECK(strstr(reply, "switchyard_eval_loss") == NULL);
    const char *loss = strstr(reply, "\nswitchyard_loss ");
    CHECK(loss != NULL);
    CHECK_NEAR(atof(loss + 17), m.result.loss, 0);
}

static void the_page_needs_nothing_else_and_is_loaded_again(void **state)
{
    RunPlace *p = *state;
    serve(p);
    for (int i = 1; i <= 2; i++) {
        StepMetrics m = step_of(p, i);
        CHECK_OK(metrics_step(&p->metrics, &m));
    }
    const char *reply = ask(p, "GET /"), *page = strstr(reply, "<!DOCTYPE"), *place = NULL;
    CHECK(page != NULL);
    CHECK(strstr(reply, "\r\nRefresh: ") != NULL);
    const char *error = xml_error(page, &place);
    if (error != NULL) fail_msg("%s, before: %.60s", error, place);
    CHECK(strstr(page, "http://") == NULL && strstr(page, "https://") == NULL);
    CHECK(strstr(page, "src=") == NULL && strstr(page, "@import") == NULL);
    CHECK_INT(count_of(page, "<h3>"), 16); /* none of evaluations */
    CHECK_INT(count_of(page, "<h3>Busiest expert over the mean</h3>"), 1);
    CHECK(strstr(page, "data-name=\"we&quot;b\"") != NULL);
    CHECK(strstr(page, "step 2 of ") != NULL);
    static const char *const facts[] = { "<p>Training run ",
                                         "<dt>Tokens so far</dt><dd>192<small></small>",
                                         "<dt>Time since the start</dt><dd>1 min 58 s<small>",
                                         "<dt>Time to the last step</dt><dd>2 h 05 min<small>",
                                         "<dt>Share of the data sheet's peak</dt><dd>12.5 %<small>",
                                         "<dt>Training loss</dt>",
                                         "<dt>Tokens a second</dt><dd>192<small>all ranks</small>",
                                         "<dt>Seconds of a step</dt><dd>0.5 s<small>",
                                         "<small>nats a token</small>" };
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++)
        if (strstr(page, facts[i]) == NULL) fail_msg("%s is not in the page", facts[i]);
}

/* Norms from 1e-3 to 10 on an axis of powers of ten, a rate of the same range on a linear one: it may not. */
static void an_axis_is_logarithmic_where_values_and_figure_are_made_for_it(void **state)
{
    RunPlace *p = *state;
    serve(p);
    for (int i = 1; i <= 40; i++) {
        StepMetrics m = step_of(p, i);
        m.result.grad_norm = i < 30 ? 1e-3 : 10;
        m.lr = i < 30 ? 1e-3 : 10;
        CHECK_OK(metrics_step(&p->metrics, &m));
    }
    const char *page = ask(p, "GET /");
    const char *norm = strstr(page, "<h3>Gradient norm before clipping</h3>");
    const char *rate = strstr(page, "<h3>Learning rate</h3>"),
               *again = strstr(page, "<h3>Steps that ran twice</h3>");
    CHECK(norm != NULL && rate != NULL && again != NULL);
    CHECK(strstr(norm, ">0.01</text>") != NULL &&
          strstr(norm, ">0.01</text>") < strstr(norm, "</svg>"));
    CHECK(strstr(rate, ">0.01</text>") == NULL ||
          strstr(rate, ">0.01</text>") > strstr(rate, "</svg>"));
    /* a counter that is 0 has no axis below 0 */
    CHECK(strstr(again, ">-1</text>") == NULL ||
          strstr(again, ">-1</text>") > strstr(again, "</svg>"));
}

static void only_get_of_two_paths_from_this_machine_is_answered(void **state)
{
    RunPlace *p = *state;
    static const struct {
        const char *request, *host, *code;
    } cases[] = { { "GET /", "127.0.0.1", "200" },
                  { "GET /", "localhost:80", "200" },
                  { "GET /x", "127.0.0.1", "404" },
                  { "GET /metrics/", "127.0.0.1", "404" },
                  { "POST /", "127.0.0.1", "405" },
                  { "HEAD /metrics", "127.0.0.1", "405" },
                  { "DELETE /x", "127.0.0.1", "405" },
                  { "GET /", "evil.example", "403" },
                  { "GET /", "127.0.0.1.evil.example", "403" } };
    serve(p);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *reply = ask_host(p, cases[i].request, cases[i].host);
        if (strncmp(reply + 9, cases[i].code, 3) != 0)
            fail_msg("%s of %s: %.12s, not %s", cases[i].request, cases[i].host, reply,
                     cases[i].code);
    }
}

/* As the kernel lists it: 127.0.0.1 is 0100007F, 0A is LISTEN. */
static void it_listens_at_loopback_alone(void **state)
{
    RunPlace *p = *state;
    char line[512], want[64], port[16];
    bool found = false;
    serve(p);
    snprintf(port, sizeof port, ":%04X ", (unsigned)p->t.config.run_http);
    snprintf(want, sizeof want, " 0100007F%s00000000:0000 0A ", port);
    FILE *f = fopen("/proc/net/tcp", "r");
    CHECK(f != NULL);
    while (fgets(line, sizeof line, f) != NULL) {
        if (strstr(line, " 0A ") == NULL || strstr(line, port) == NULL) continue;
        if (strstr(line, want) == NULL) fail_msg("it listens elsewhere: %s", line);
        found = true;
    }
    CHECK_INT(fclose(f), 0);
    CHECK(found);
}

static void a_port_in_use_is_an_error_that_names_it(void **state)
{
    skip_without_http();
    RunPlace *p = *state;
    int fd;
    char want[64];
    p->t.config.run_http = held_port(&fd);
    snprintf(want, sizeof want, "run.http=%d: nothing can be served at 127.0.0.1",
             (int)p->t.config.run_http);
    CHECK_FAILS(metrics_watch(&p->metrics, p->folder, live_page), ERR_ARG, want);
    CHECK_INT(close(fd), 0);
}

/* ---- history ---- */

static LiveView seen;
static double seen_x[LIVE_POINTS], seen_y[LIVE_POINTS];

static Status look(const LiveView *v, Text *out)
{
    seen = *v;
    memcpy(seen_x, v->x, sizeof seen_x);
    memcpy(seen_y, v->y, sizeof seen_y);
    return text_printf(out, "x");
}

/* 1,000 steps take 250 points of 4 steps, each with its last value. */
static void a_long_run_keeps_every_part_of_its_curves(void **state)
{
    skip_without_http();
    RunPlace *p = *state;
    SeriesTable t = { 0 };
    Live *l = NULL;
    int fd, port = held_port(&fd);
    CHECK_INT(close(fd), 0);
    p->t.config.run_http = port;
    CHECK_OK(series_make(&t, (SeriesLabels[EACH_LABELLED]){ 0 }, &p->t.arena));
    CHECK_OK(live_open(&l, &p->t.config, "m", &t, look, &p->t.arena));
    for (int64_t step = 1; step <= 1000; step++) {
        series_set(&t, FIGURE_LOSS, 0, (double)step * 2);
        live_put(l, step, &t);
        series_taken(&t);
    }
    CHECK(strncmp(ask(p, "GET /"), "HTTP/1.1 200 ", 13) == 0);
    live_close(l);
    CHECK_INT(seen.points, 250);
    CHECK_INT(seen.width, 4);
    CHECK_INT(seen.step, 1000);
    for (int i = 0; i < 250; i++) {
        CHECK_NEAR(seen_x[i], 4 * (i + 1), 0);
        CHECK_NEAR(seen_y[i], 8 * (i + 1), 0);
    }
}

/* ---- alerts ---- */

/* 2 and 4 in turn: mean 3, deviation 1. */
static void a_band_is_left_once_above_its_end(void **state)
{
    Band b = { 0 };
    (void)state;
    for (int i = 0; i < 40; i++) {
        if (i == BAND_FIRST - 1) CHECK(isinf(band_end(&b, 3)));
        CHECK(!band_leaves(&b, 2 + i % 2 * 2, band_end(&b, 3)));
        band_add(&b, 2 + i % 2 * 2);
    }
    CHECK_NEAR(band_end(&b, 3), 6, 1e-12);
    CHECK(!band_leaves(&b, 6, 6.0 + 1e-9));
    CHECK(band_leaves(&b, 6.5, 6));
    CHECK(!band_leaves(&b, 6.5, 6)); /* still outside */
    CHECK(!band_leaves(&b, 5, 6));
    CHECK(band_leaves(&b, (double)NAN, 6));
    band_add(&b, (double)NAN);
    CHECK_NEAR(b.mean, 3, 1e-12);
    for (int i = 0; i < 2000; i++) band_add(&b, 100);
    CHECK_NEAR(b.mean, 100, 1e-6);
}

static int count_in(const char *text, const char *part)
{
    int n = 0;
    while ((text = strstr(text, part)) != NULL) text++, n++;
    return n;
}

static void alerts_are_counted_and_stand_in_the_lines_of_their_steps(void **state)
{
    RunPlace *p = *state;
    p->t.config.run_alert_loss = 3;
    p->t.config.run_alert_load = 1.0001;
    CHECK_OK(metrics_watch(&p->metrics, p->folder, live_page));
    StepMetrics m = step_of(p, 1);
    m.result.loss = 3;
    CHECK_OK(metrics_step(&p->metrics, &m));
    CHECK_INT(p->metrics.alerts, 1); /* no layer is quite even */
    for (int i = 2; i <= 30; i++) {
        m.step = i;
        m.result.loss = 3 + 0.1 * (i % 2);
        CHECK_OK(metrics_step(&p->metrics, &m));
    }
    CHECK_INT(p->metrics.alerts, 1);
    m.result.loss = 4;
    CHECK_OK(metrics_step(&p->metrics, &m));
    CHECK_INT(p->metrics.alerts, 2);
    CHECK_NEAR(p->metrics.series.all[p->metrics.series.first[FIGURE_ALERTS]].now, 2, 0);
    char *lines = NULL;
    size_t bytes = 0;
    CHECK_OK(file_read_all(p->path, &p->t.arena, &lines, &bytes));
    CHECK_INT(count_in(lines, "\"alert\":[\"load\"],"), 30);
    CHECK_INT(count_in(lines, "\"alert\":[\"loss\",\"load\"],"), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        PLACE_TEST(tensorboard_reads_every_figure_of_a_step),
        PLACE_TEST(an_evaluation_is_an_event_with_its_figures_alone),
        PLACE_TEST(prometheus_reads_the_last_figures),
        PLACE_TEST(the_page_needs_nothing_else_and_is_loaded_again),
        PLACE_TEST(an_axis_is_logarithmic_where_values_and_figure_are_made_for_it),
        PLACE_TEST(only_get_of_two_paths_from_this_machine_is_answered),
        PLACE_TEST(it_listens_at_loopback_alone),
        PLACE_TEST(a_port_in_use_is_an_error_that_names_it),
        PLACE_TEST(a_long_run_keeps_every_part_of_its_curves),
        TEST(a_band_is_left_once_above_its_end),
        PLACE_TEST(alerts_are_counted_and_stand_in_the_lines_of_their_steps),
    };
    return TEST_RUN(tests);
}
