/* tcp: ranks are processes, or threads in tests, that are joined by TCP connections. tcp_start.c lets them
 * meet, tcp.c carries their messages. For files of comm/ and its tests.
 *
 * Every two ranks share one connection, from the start on. So the end of a process is seen at once by all
 * others, and no connection can fail later. A rank has one open file for each other rank. */
#ifndef ENGINE_COMM_TCP_H
#define ENGINE_COMM_TCP_H

#include "engine/comm/comm.h"
#include "engine/comm/launch.h"

/* What a connection begins with, sent by the rank that connects. Rank 0 answers with its own, without the
 * token. All numbers are little-endian, as on every processor that the program runs on. */
typedef struct TcpHello {
    char magic[8];
    uint32_t wire;        /* version of this struct and of frames; what follows has its layout */
    uint32_t ranks, rank; /* of the sender */
    uint32_t port;        /* where the sender waits for higher ranks */
    uint64_t job;
    char token[LAUNCH_TOKEN_BYTES], program[32];
} TcpHello;

/* Everything else. Behind DATA, STOP and SEATS come `bytes` bytes. */
typedef enum TcpFrameKind {
    TCP_READY = 1, /* a receive was posted: `slot` of the sender of this frame, with `key` */
    TCP_DATA,      /* a piece of a message, for `slot` of the receiver of this frame */
    TCP_WAITS,     /* the sender waits for rank `key` (-1: for none) */
    TCP_STOP, /* rank `key` has failed, the text says why; while ranks meet, `slot` is the Status */
    TCP_BYE,  /* the sender ends as it should */
    TCP_SEATS, /* from rank 0, when all have come: the addresses of all ranks */
} TcpFrameKind;

typedef struct TcpFrame {
    uint32_t kind;
    int32_t slot, key, unused;
    uint64_t bytes;
} TcpFrame;

/* Lets all ranks meet: fd (ranks; -1: this rank itself) are connections to them, which do not block.
 * ERR_ARG, ERR_COMM: as comm_processes; then nothing is open. */
Status tcp_meet(const CommLaunch *l, const char *program, double timeout_s, Arena *a, int *fd);

/* Meets and opens the world. */
Status tcp_open(const CommLaunch *l, const char *program, double timeout_s, Arena *a, Comm **out);

#endif
