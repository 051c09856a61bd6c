/* http: see http.h. */
#include "engine/host/http.h"

#include "engine/host/library.h"

#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { BACKLOG = 64 };

Status http_open(const char *what, const char *advice, Http *out)
{
    static const LibraryCall call[] = {
        { "MHD_start_daemon", .offset = offsetof(Http, start) },
        { "MHD_stop_daemon", .offset = offsetof(Http, stop) },
        { "MHD_create_response_from_buffer", .offset = offsetof(Http, make) },
        { "MHD_create_response_from_callback", .offset = offsetof(Http, make_stream) },
        { "MHD_add_response_header", .offset = offsetof(Http, add_header) },
        { "MHD_queue_response", .offset = offsetof(Http, queue) },
        { "MHD_destroy_response", .offset = offsetof(Http, drop) },
        { "MHD_lookup_connection_value", .offset = offsetof(Http, value) },
        { "MHD_suspend_connection", .offset = offsetof(Http, suspend) },
        { "MHD_resume_connection", .offset = offsetof(Http, resume) },
        { "MHD_get_connection_info", .offset = offsetof(Http, info) },
        { "MHD_get_version", .offset = offsetof(Http, version) },
    };
    const Library library = { .file = "libmicrohttpd.so.12",
                              .what = what,
                              .advice = advice,
                              .call = call,
                              .calls = sizeof call / sizeof *call };
    void *file = NULL; /* stays open: it may have been opened before */
    return library_open(&library, out, &file);
}

const char *http_version(void)
{
    Http http = { 0 };
    if (http_open("", "", &http) == OK) return http.version();
    status_clear();
    return "not found";
}

/* The socket, or -1 with errno set. */
static int listen_at(const struct addrinfo *to)
{
    const int one = 1;
    int fd = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) == 0 &&
        bind(fd, to->ai_addr, to->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    (void)close(fd); /* which leaves errno as it is */
    return -1;
}

Status http_listen(const char *setting, const char *address, int port, const char *advice, int *fd)
{
    const struct addrinfo hints = { .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
                                    .ai_socktype = SOCK_STREAM };
    struct addrinfo *to = NULL;
    char number[16], why[128];
    (void)snprintf(number, sizeof number, "%d", port);
    const int wrong = getaddrinfo(address, number, &hints, &to);
    *fd = wrong == 0 ? listen_at(to) : -1;
    const char *reason = wrong == 0 ? strerror_r(errno, why, sizeof why) : gai_strerror(wrong);
    if (wrong == 0) freeaddrinfo(to);
    if (*fd >= 0) return OK;
    return FAIL(ERR_ARG, "%s%d: nothing can be served at %s:%d (%s); %s", setting, port, address,
                port, reason, advice);
}

Status http_start(const Http *h, int fd, const HttpUse *use, struct MHD_Daemon **out)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    *out = h->start(MHD_USE_AUTO | MHD_USE_INTERNAL_POLLING_THREAD | MHD_ALLOW_SUSPEND_RESUME, 0,
                    NULL, NULL, use->answer, use->state, MHD_OPTION_LISTEN_SOCKET, fd,
                    MHD_OPTION_CONNECTION_LIMIT, use->connections, MHD_OPTION_CONNECTION_TIMEOUT,
                    use->idle_s, MHD_OPTION_NOTIFY_COMPLETED, use->completed, use->state,
                    MHD_OPTION_NOTIFY_CONNECTION, use->connects, use->state, MHD_OPTION_END);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (*out != NULL) return OK;
    (void)close(fd);
    return FAIL(ERR_MEMORY, "%s: the server's thread could not be started", use->setting);
}

bool http_host_is_here(const Http *h, struct MHD_Connection *c)
{
    static const char *const name[] = { "127.0.0.1", "localhost", "[::1]" };
    const char *host = h->value(c, MHD_HEADER_KIND, "Host");
    for (int i = 0; i < 3 && host != NULL; i++) {
        size_t n = strlen(name[i]);
        if (strncmp(host, name[i], n) == 0 && (host[n] == '\0' || host[n] == ':')) return true;
    }
    return host == NULL; /* HTTP/1.0, which no browser speaks */
}

enum MHD_Result http_send(const Http *h, struct MHD_Connection *c, unsigned code, const char *type,
                          const char *const header[][2], int headers, const Text *text)
{
    struct MHD_Response *r = h->make(text->used, text->data, MHD_RESPMEM_MUST_COPY);
    if (r == NULL) return MHD_NO;
    bool ok = h->add_header(r, "Content-Type", type) == MHD_YES;
    for (int i = 0; i < headers && ok; i++)
        ok = h->add_header(r, header[i][0], header[i][1]) == MHD_YES;
    enum MHD_Result sent = ok ? h->queue(c, code, r) : MHD_NO;
    h->drop(r);
    return sent;
}
