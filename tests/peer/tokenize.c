/* tokenize TOKENIZER TEXT IDS [THREADS]: encodes a text in pieces that end at the first newline after 4096
 * bytes, and writes the ids as 32-bit numbers. Prints the processor's seconds of the busiest of THREADS that
 * share the pieces, and `same` if the ids of each piece decode to the piece. tools/check_tokenizers cuts
 * the same way and compares the ids with those of other programs. */
#include "corpus/tokenizer/tokenizer.h"
#include "engine/base/file.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PIECE_BYTES = 4096, THREADS_MAX = 16 };

typedef struct Part {
    const Tokenizer *t;
    const char *text;
    size_t bytes;
    Arena ids, counts, scratch;
    int64_t *count; /* of the ids of each piece */
    int64_t n_ids;
    double cpu_s;
    Status status;
} Part;

static double thread_s(void)
{
    struct timespec t = { 0 };
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static size_t piece_end(const char *text, size_t n)
{
    const char *newline =
        n > PIECE_BYTES ? memchr(text + PIECE_BYTES, '\n', n - PIECE_BYTES) : NULL;
    return newline == NULL ? n : (size_t)(newline + 1 - text);
}

static Status encode(Part *p)
{
    int32_t *all = NULL;
    TokenizerCache *cache = NULL;
    TRY(arena_init(&p->ids, "ids", MEM_HOST, sizeof(int32_t) * (2 * p->bytes + 4096)));
    TRY(arena_init(&p->counts, "counts", MEM_HOST, p->bytes / 256 + 4096));
    TRY(ARENA_NEW(&p->counts, p->bytes / PIECE_BYTES + 1, &p->count));
    TRY(arena_init(&p->scratch, "scratch", MEM_HOST, (size_t)16 << 30));
    TRY(ARENA_NEW(&p->ids, 2 * p->bytes + 1, &all));
    TRY(tokenizer_cache_make(&p->scratch, &cache));
    for (size_t at = 0, piece = 0; at < p->bytes; piece++) {
        size_t n = piece_end(p->text + at, p->bytes - at);
        int32_t *ids = NULL;
        int64_t n_ids = 0;
        ArenaMark mark = arena_mark(&p->scratch);
        TRY(tokenizer_encode_cached(p->t, cache, p->text + at, n, &p->scratch, &ids, &n_ids));
        memcpy(all + p->n_ids, ids, (size_t)n_ids * sizeof *ids);
        arena_release(&p->scratch, mark);
        p->n_ids += n_ids;
        p->count[piece] = n_ids;
        at += n;
    }
    return OK;
}

static void *run(void *part)
{
    Part *p = part;
    double begin = thread_s();
    p->status = encode(p);
    p->cpu_s = thread_s() - begin;
    if (p->status != OK) (void)fprintf(stderr, "%s\n", status_message());
    return NULL;
}

/* A normalizer or a special token in the text makes them differ. */
static Status compare_decoded(const Part *p, bool *same)
{
    const int32_t *ids = (const int32_t *)(const void *)p->ids.base;
    Arena arena = { 0 };
    TRY(arena_init(&arena, "decoded", MEM_HOST, 64 * p->bytes + 4096));
    for (size_t at = 0, piece = 0, n = 0; at < p->bytes; at += n) {
        Text text;
        ArenaMark mark = arena_mark(&arena);
        n = piece_end(p->text + at, p->bytes - at);
        TRY(text_init(&text, &arena));
        TRY(tokenizer_decode(p->t, ids, p->count[piece], &text));
        *same &= text.used == n && memcmp(text.data, p->text + at, n) == 0;
        arena_release(&arena, mark);
        ids += p->count[piece++];
    }
    arena_free(&arena);
    return OK;
}

static Status tokenize(char **argv, int threads)
{
    static Part part[THREADS_MAX];
    pthread_t thread[THREADS_MAX];
    Arena arena = { 0 };
    FileMap map = { 0 };
    Tokenizer *t = NULL;
    File out = { 0 };
    TRY(arena_init(&arena, "tokenizer", MEM_HOST, (size_t)4 << 30));
    TRY(tokenizer_load(argv[1], &arena, &t));
    TRY(file_map(argv[2], &map));
    const char *text = (const char *)map.data;
    size_t at = 0;
    double busiest_s = 0;
    bool same = true;
    for (int i = 0; i < threads; i++) {
        size_t share = (map.bytes - at) / (size_t)(threads - i);
        size_t end = i + 1 == threads ? map.bytes : at;
        while (end < at + share) end += piece_end(text + end, map.bytes - end);
        part[i] = (Part){ .t = t, .text = text + at, .bytes = end - at };
        at = end;
        (void)pthread_create(&thread[i], NULL, run, &part[i]);
    }
    for (int i = 0; i < threads; i++) {
        (void)pthread_join(thread[i], NULL);
        TRY(part[i].status);
        if (part[i].cpu_s > busiest_s) busiest_s = part[i].cpu_s;
        TRY(compare_decoded(&part[i], &same));
    }
    printf("%.6f %s\n", busiest_s, same ? "same" : "other");
    TRY(file_create_temp(&out, argv[3], &arena));
    for (int i = 0; i < threads; i++) {
        TRY(file_write(&out, part[i].ids.base, (size_t)part[i].n_ids * sizeof(int32_t)));
    }
    return file_commit(&out);
}

int main(int argc, char **argv)
{
    int threads = argc == 5 ? atoi(argv[4]) : 1;
    if (argc < 4 || argc > 5 || threads < 1 || threads > THREADS_MAX) return 2;
    if (tokenize(argv, threads) == OK) return 0;
    (void)fprintf(stderr, "%s\n", status_message());
    return 1;
}
