/* input: the bytes of a file, a pipe or a command ("cmd: COMMAND") from front to back, decompressed if they are gzip or zstd. The first
 * bytes tell the compression, whatever the name is. Several compressed streams one after the other are
 * one file. Memory does not depend on the size of the file. */
#ifndef CORPUS_PREPARE_INPUT_H
#define CORPUS_PREPARE_INPUT_H

#include "corpus/command/shell.h"
#include "engine/base/file.h"

typedef enum InputKind { INPUT_PLAIN, INPUT_GZIP, INPUT_ZSTD } InputKind;

typedef struct InputHow {
    const char *field; /* the column of a Parquet file */
    double wait_s;     /* how long a command may print nothing; 0: SHELL_WAIT_S */
} InputHow;

typedef struct Input {
    const char *path; /* the caller's */
    InputKind kind;
    bool pipe;       /* or a command: there is nothing to seek in */
    bool rows;       /* a Parquet file, of which `switchyard data parquet` prints JSON lines */
    bool inside;     /* a compressed stream has begun and not ended */
    File file;       /* neither this nor `shell` is open: all bytes are in `raw` already */
    Shell *shell;    /* of a command or that program, in `arena` */
    const char *raw; /* bytes of the file, as many as raw_bytes, of which raw_used are done */
    size_t raw_bytes, raw_used;
    char *room;          /* of `raw`, in `arena` */
    void *stream;        /* zlib's or zstd's state */
    int64_t read, given; /* bytes of the file, and of what is in it, so far */
    Arena arena;
} Input;

/* ERR_IO: there is no such file, the pipe is empty, or the command failed (shell_read). ERR_FORMAT: an archive,
 * another compression, or Parquet that is no file; the sentence says how to convert it. */
Status input_open(Input *in, const char *path, const InputHow *how);
/* Over bytes in memory, which must live as long. */
Status input_from_memory(Input *in, const char *name, const void *data, size_t bytes);
void input_close(Input *in); /* safe on { 0 } */

/* Up to n bytes; *got is 0 at the end alone. ERR_FORMAT: the compressed data is damaged or cut off. */
Status input_read(Input *in, void *out, size_t n, size_t *got);
/* ERR_FORMAT: what is compressed in the file begins with these bytes, and is no text either. */
Status input_check_inside(const Input *in, const char *text, size_t bytes);
/* Goes on to byte `at` of what is in the file, or to its end. A compressed file is read up to there. */
Status input_seek(Input *in, int64_t at);

#endif
