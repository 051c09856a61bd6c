/* A server under test, and a client of raw sockets. The server answers with the small model that open_with_a_model
 * trains. */
#ifndef SERVE_SERVICE_H
#define SERVE_SERVICE_H

#include "harness/program.h"

#include "engine/base/clock.h"
#include "engine/base/json.h"

#include <arpa/inet.h>
#include <sys/socket.h>

enum { ANSWER_BYTES = 1 << 17 };

typedef struct Service {
    Lab *lab;
    Child child;
    int port;
} Service;

/* ---- a client ---- */

static inline int reach(int port)
{
    const struct sockaddr_in to = { .sin_family = AF_INET,
                                    .sin_port = htons((uint16_t)port),
                                    .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, (const struct sockaddr *)&to, sizeof to) == 0) return fd;
    close(fd);
    return -1;
}

static inline void send_request(int fd, const char *head, const char *body)
{
    char text[1 << 14];
    int n = snprintf(text, sizeof text,
                     "%s HTTP/1.1\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n%s", head,
                     strlen(body), body);
    CHECK(n > 0 && n < (int)sizeof text);
    CHECK_INT(write(fd, text, (size_t)n), n);
}

/* The body; *code is the status, 0 without an answer. Inlined, gcc 12 takes its memory for a local variable's. */
__attribute__((noinline, unused)) static char *read_answer(Lab *lab, int fd, int *code)
{
    char *text = NULL;
    size_t n = 0;
    CHECK_OK(ARENA_ZEROED(&lab->arena, ANSWER_BYTES, &text));
    for (ssize_t got; n + 1 < ANSWER_BYTES && (got = read(fd, text + n, ANSWER_BYTES - n - 1)) > 0;)
        n += (size_t)got;
    close(fd);
    *code = 0;
    (void)sscanf(text, "HTTP/1.1 %d", code);
    char *body = strstr(text, "\r\n\r\n");
    return body == NULL ? text : body + 4;
}

static inline char *ask(const Service *s, const char *head, const char *body, int *code)
{
    int fd = reach(s->port);
    CHECK(fd >= 0);
    send_request(fd, head, body);
    return read_answer(s->lab, fd, code);
}

#define COMPLETIONS "POST /v1/completions"

/* The choice `index` of a request that must succeed. */
static const Json *choice(const Service *s, const char *body, int index)
{
    int code = 0;
    Json *v = NULL;
    size_t bad = 0;
    char *text = ask(s, COMPLETIONS, body, &code);
    if (code != 200) fail_msg("%d for %s: %s", code, body, text);
    CHECK_OK(json_parse(text, strlen(text), &s->lab->arena, &v, &bad));
    const Json *c = json_first(json_get(v, "choices"));
    while (index-- > 0 && c != NULL) c = c->next;
    CHECK(c != NULL);
    return c;
}

static const char *written(const Service *s, const char *body, int index)
{
    return json_string(json_get(choice(s, body, index), "text"));
}

static inline void refused(const Service *s, const char *head, const char *body, int want,
                           const char *part)
{
    int code = 0;
    const char *text = ask(s, head, body, &code);
    if (code != want) fail_msg("%d, want %d, for %s: %s", code, want, body, text);
    CHECK_SAYS(text, "{\"error\":{\"message\":\"");
    CHECK_SAYS(text, part);
}

/* ---- the server ---- */

/* The port of the address that the log has; 0: not yet. */
static inline int port_said(Lab *lab, const char *path)
{
    int port = 0;
    char *text = lab_read(lab, path, NULL);
    for (char *line = strtok(text, " "); line != NULL && port == 0; line = strtok(NULL, " "))
        (void)sscanf(line, "http://127.0.0.1:%d/", &port);
    return port;
}

static inline Service start(Lab *lab, const char *const *args)
{
    Service s = { .lab = lab };
    s.child = lab_start(lab, &(Launch){ .cell = "served", .args = args });
    while (child_runs(&s.child) && s.port == 0) {
        s.port = port_said(lab, s.child.err);
        child_sleep();
    }
    CHECK(s.port > 0);
    return s;
}

#define SERVE(lab, ...) start((lab), ARGS("serve", "../model/run", "--port", "0", __VA_ARGS__))

static inline void stop(Service *s)
{
    CHECK_INT(kill(s->child.pid, SIGTERM), 0);
    Outcome o = lab_wait(s->lab, &s->child);
    CHECK_EXIT(o, 0);
}

static inline long memory_kib(pid_t pid)
{
    char path[64], line[256];
    long kib = 0;
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *f = fopen(path, "r");
    CHECK(f != NULL);
    while (kib == 0 && fgets(line, sizeof line, f) != NULL) (void)sscanf(line, "VmRSS: %ld", &kib);
    fclose(f);
    return kib;
}

static inline int open_with_a_model(void **state)
{
    if (lab_open(state) != 0) return -1;
    Outcome o = RUN(*state, "model", "train", "../tiny.yaml");
    CHECK_EXIT(o, 0);
    return 0;
}

#endif
