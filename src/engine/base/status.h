/* status: how a function reports that it failed, and why. The function that first knows the cause calls
 * FAIL, which stores one sentence in a thread-local record. Every caller uses TRY, which adds its
 * file:line and returns the same code. main() prints the record. So a message is written once, where
 * the facts are known, and the call path is added for free. */
#ifndef ENGINE_BASE_STATUS_H
#define ENGINE_BASE_STATUS_H

#include <stdbool.h>

/* Dropping a Status is a compile error: in C with clang, which `make lint` runs (gcc has no such
 * check for an enum); in C++ with every compiler, nvcc included. */
#if defined __cplusplus
#define STATUS_MUST_USE [[nodiscard]]
#elif defined __clang__
#define STATUS_MUST_USE __attribute__((warn_unused_result))
#else
#define STATUS_MUST_USE
#endif

typedef enum STATUS_MUST_USE Status {
    OK = 0,
    ERR_ARG,         /* the caller or the user asked for something that is invalid */
    ERR_SHAPE,       /* tensors do not fit each other */
    ERR_MEMORY,      /* an arena or the device is full */
    ERR_IO,          /* a file cannot be opened, read or found: the user's input is at fault */
    ERR_FORMAT,      /* a file is there but is not what it claims to be */
    ERR_UNSUPPORTED, /* valid, but not compiled in or not implemented */
    ERR_DISK,        /* writing failed: full disk, quota, read-only (the run cannot go on) */
    ERR_DEVICE,      /* CUDA, cuBLAS */
    ERR_COMM,        /* MPI, NCCL */
    ERR_FIT,         /* a plan: no candidate fits the GPUs */
    ERR_PARTIAL,     /* the input ends early: its complete part was processed */
    ERR_NUMERIC,     /* NaN, Inf, or a check against the reference failed */
    ERR_INTERRUPTED, /* SIGINT, SIGTERM or SIGHUP asked the command to end (engine/base/interrupt.h) */
    ERR_CHANGED,     /* a file was changed by others while it was read */
    ERR_CLOSED,      /* the reader of stdout has gone: end quietly (engine/base/out.h) */
} Status;

/* Record a failure and return its code. The message names the thing, the value and the limit. */
Status status_fail(const char *file, int line, Status code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* Add a frame to the record on the way up. */
Status status_frame(const char *file, int line, Status code);

/* The last failure of this thread as text: the sentence, then one "at file:line" per frame. Valid
 * until this thread's next failure. */
const char *status_message(void);

/* How many bytes of status_message() come before its code, and before its frames: then with the code and the newline. */
int status_sentence_bytes(void);
int status_head_bytes(void);

/* Only the sentence of the last failure, without code and frames, into `out`. */
void status_sentence(char *out, int out_bytes);

/* Carry a failure from another thread into this one: `text` is that thread's status_message(). */
Status status_adopt(Status code, const char *text);

const char *status_name(Status code);
int status_exit_code(Status code); /* 0, 2, 3 or 130: design.md §7 */
void status_clear(void);
/* For a loop over many trials of which most fail: while muted, failures of this thread have a code and no text, which
 * would take most of the time. */
void status_mute(bool muted);

/* The static analyser cannot see into status_fail. This form shows it that FAIL returns its code, so
 * it knows that after a TRY the callee's results are set. */
#ifdef __clang_analyzer__
#define FAIL(code, ...) ((void)status_fail(__FILE__, __LINE__, (code), __VA_ARGS__), (code))
#else
#define FAIL(code, ...) status_fail(__FILE__, __LINE__, (code), __VA_ARGS__)
#endif

#define TRY(expr)                                                                                  \
    do {                                                                                           \
        Status try_status = (expr);                                                                \
        if (try_status != OK)                                                                      \
            return (void)status_frame(__FILE__, __LINE__, try_status), try_status;                 \
    } while (0)

#endif
