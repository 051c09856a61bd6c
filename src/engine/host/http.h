/* http: what servers of this program share over libmicrohttpd (engine/train/live.c, tools/serve/server.c). */
#ifndef ENGINE_HOST_HTTP_H
#define ENGINE_HOST_HTTP_H

#include "engine/base/text.h"

#include <microhttpd.h>

/* The library is opened when something is served: it brings nine libraries of TLS along, which would
 * double the time and the memory with which every command starts. */
typedef struct Http {
    __typeof__(&MHD_start_daemon) start;
    __typeof__(&MHD_stop_daemon) stop;
    __typeof__(&MHD_create_response_from_buffer) make;
    __typeof__(&MHD_create_response_from_callback) make_stream;
    __typeof__(&MHD_add_response_header) add_header;
    __typeof__(&MHD_queue_response) queue;
    __typeof__(&MHD_destroy_response) drop;
    __typeof__(&MHD_lookup_connection_value) value;
    __typeof__(&MHD_suspend_connection) suspend;
    __typeof__(&MHD_resume_connection) resume;
    __typeof__(&MHD_get_connection_info) info;
    __typeof__(&MHD_get_version) version;
} Http;

/* what, advice: for the error where the library is missing, as Library has them. */
Status http_open(const char *what, const char *advice, Http *out);

const char *http_version(void); /* of the library; "not found" without it */

/* A socket that listens at a numeric address. ERR_ARG: that is not possible. The sentence begins with
 * `setting` and the port, and ends with `advice`. */
Status http_listen(const char *setting, const char *address, int port, const char *advice, int *fd);

typedef struct HttpUse {
    const char *setting; /* for the error */
    MHD_AccessHandlerCallback answer;
    MHD_RequestCompletedCallback completed; /* NULL: none */
    MHD_NotifyConnectionCallback connects;  /* begins and ends of connections; NULL: none */
    void *state;                            /* of all three */
    unsigned connections, idle_s; /* how many at once; when one that sends nothing is closed */
} HttpUse;

/* Answers in a thread of its own, which blocks all signals. Takes the socket, also if it fails. */
Status http_start(const Http *h, int fd, const HttpUse *use, struct MHD_Daemon **out);

/* Is the request addressed to 127.0.0.1, [::1] or localhost, at whatever port a tunnel has? A page of another site that
 * had its name point to this machine would ask for that name. */
bool http_host_is_here(const Http *h, struct MHD_Connection *c);

/* Sends a copy of the text. type: its Content-Type. header: names and values. */
enum MHD_Result http_send(const Http *h, struct MHD_Connection *c, unsigned code, const char *type,
                          const char *const header[][2], int headers, const Text *text);

#endif
