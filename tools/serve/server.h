/*
 * server: HTTP requests for completions, as jobs for the thread that drives the engine.
 *
 * A thread of libmicrohttpd reads requests and writes answers; it never touches the engine. A request that may be
 * answered becomes a job: its connection is suspended, the other thread takes the job, and finishes it. Errors that
 * need no engine are answered at once. Nothing is kept of a client between its requests. The answer is one piece, or a
 * stream to which the other thread adds: then the connection is suspended whenever all of it has been sent.
 *
 *   401 the token is missing or wrong     403 another host's name, or a page of another site
 *   404 no such address                   405 another method
 *   413 the body is too large             429 too many requests wait
 *   503 the server ends
 *
 * A connection that sends or reads nothing for ten seconds is closed. So is one whose header takes more than fifteen
 * seconds, or whose body takes more than a minute.
 */
#ifndef SERVE_SERVER_H
#define SERVE_SERVER_H

#include "engine/base/text.h"
#include "engine/host/http.h"

typedef struct Server Server;

typedef struct ServerOptions {
    const char *address, *token;    /* token NULL: none is asked for */
    const char *model;              /* its name */
    int64_t port, context, waiting; /* waiting: the most jobs that wait at once */
} ServerOptions;

/* A completion to be answered. Its arena is the taker's until job_finish. */
typedef struct Job {
    Arena arena;
    char *body; /* NUL-terminated */
    int64_t bytes, number;
    /* the server's */
    Server *server;
    struct MHD_Connection *connection;
    int64_t room;
    double begun_s;
    bool finished, large;
    unsigned code;
    Text answer;
    struct Job *next;
    /* of a stream; its server's lock guards them */
    bool streams, sleeps, gone; /* sleeps: suspended; gone: the client has left */
    Arena stream_arena;
    Text stream; /* of which the first stream_sent bytes were sent */
    size_t stream_sent;
} Job;

/* Listens, and says where in the log. Everything lies in `a`. ERR_ARG: the address or port cannot be used. */
Status server_open(Server **out, const ServerOptions *o, Arena *a);

/* The job that came first, or NULL if `seconds` pass without one. */
Job *server_take(Server *s, double seconds);

/* Begins a stream: the answer has code 200 from now on. */
Status job_stream(Job *job);
/* Adds to the stream. *gone: the client has left, so nobody reads it. */
Status job_add(Job *job, const Text *t, bool *gone);

/* Ends the stream, or sends job->answer, or, if the status is not OK, its sentence with the code, in a stream as its
 * last event; the job is gone. */
void job_finish(Job *job, Status status, unsigned code);

/* From now on requests are refused, with 503; also those that wait. */
void server_refuse(Server *s);
void server_close(Server *s); /* after all jobs were finished; safe on NULL */

#endif
