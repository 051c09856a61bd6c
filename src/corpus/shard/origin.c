/* origin: reads and writes PREFIX.meta. */
#include "corpus/shard/origin.h"

#include <stdio.h>
#include <stdlib.h>

/* Room for the longest path and the two other lines, so that no line is ever cut. */
enum { TEXT_BYTES = FILE_PATH_MAX + 128 };

Status origin_of(const char *tokenizer, int vocab, Origin *out)
{
    *out = (Origin){ .vocab = vocab };
    (void)snprintf(out->tokenizer, sizeof out->tokenizer, "%s", tokenizer);
    return file_sum(tokenizer, out->sum);
}

Status origin_write(const Origin *o, const char *prefix)
{
    char path[FILE_PATH_MAX + 8], text[TEXT_BYTES];
    (void)snprintf(path, sizeof path, "%s.meta", prefix);
    int n = snprintf(text, sizeof text, "xxh3_128: %s\nvocab: %d\ntokenizer: %s\n", o->sum,
                     o->vocab, o->tokenizer);
    return file_write_whole(path, text, (size_t)n);
}

Status origin_read(const char *prefix, Origin *out)
{
    /* Nine digits at most, so that strtol cannot overflow an int. sscanf limits each field to its
     * array. */
    char path[FILE_PATH_MAX + 8], text[TEXT_BYTES] = "", vocab[10] = "";
    FileMap map = { 0 };
    *out = (Origin){ 0 };
    (void)snprintf(path, sizeof path, "%s.meta", prefix);
    if (!file_exists(path)) return OK;
    TRY(file_map(path, &map));
    /* A mapped file has no NUL at its end, but sscanf needs one. */
    (void)snprintf(text, sizeof text, "%.*s",
                   map.bytes < TEXT_BYTES ? (int)map.bytes : TEXT_BYTES - 1,
                   (const char *)map.data);
    file_unmap(&map);
    int n = sscanf(text, "xxh3_128: %32[0-9a-f] vocab: %9[0-9] tokenizer: %1023[^\n]", out->sum,
                   vocab, out->tokenizer);
    out->vocab = (int)strtol(vocab, NULL, 10);
    if (n == 3 && out->vocab > 0) return OK;
    return FAIL(
        ERR_FORMAT,
        "%s has no lines xxh3_128, vocab and tokenizer: prepare %s again, or delete the file", path,
        prefix);
}
