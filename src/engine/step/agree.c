/* agree: small exchanges between the hosts of all ranks. */
#include "engine/step/agree.h"

#include <stdio.h>
#include <string.h>

static bool is_alone(const Comm *host) { return host == NULL || host->size == 1; }

/* Bytes travel as a tensor of u8, since no call takes a raw count. */
static Status broadcast_bytes(Comm *host, void *data, size_t bytes, int root)
{
    const Tensor t = { data, DTYPE_U8, 1, { (int64_t)bytes } };
    return comm_broadcast(host, &t, root);
}

/* First a maximum finds who failed first, then that rank's code and sentence go to all. All ranks
 * know the maximum, so all of them take the same path. */
Status agree_status(Comm *host, Status mine)
{
    struct {
        Status code;
        char why[1020];
    } said = { .code = mine };
    if (is_alone(host)) return mine;
    if (mine != OK) status_sentence(said.why, sizeof said.why);
    /* the maximum of size - rank is that of the lowest rank that failed */
    int32_t worst = mine == OK ? 0 : host->size - host->rank;
    TRY(agree_most(host, &worst, 1));
    if (worst == 0) return OK;
    int first = host->size - worst;
    bool own = first == 0 && host->rank == 0; /* rank 0 need not name itself */
    TRY(broadcast_bytes(host, &said, sizeof said, first));
    return own ? mine : FAIL(said.code, "rank %d: %s", first, said.why);
}

/* NOLINTNEXTLINE(readability-non-const-parameter): what is agreed on is written there */
Status agree_most(Comm *host, int32_t *value, int64_t n)
{
    const Tensor t = { value, DTYPE_I32, 1, { n } };
    return is_alone(host) ? OK : comm_all_reduce(host, &t, REDUCE_MAX);
}

Status agree_first(Comm *host, void *data, size_t bytes)
{
    return is_alone(host) ? OK : broadcast_bytes(host, data, bytes, 0);
}

/* Texts are padded to the longest one, in words, because agree_most compares int32. */
Status agree_texts(Comm *host, const char *mine, Arena *a, const char *const **out)
{
    int32_t words = (int32_t)(strlen(mine) / sizeof(int32_t)) + 1;
    const char **texts = NULL;
    char *own = NULL, *all = NULL;
    TRY(agree_most(host, &words, 1));
    int64_t bytes = (int64_t)words * (int64_t)sizeof(int32_t);
    TRY(ARENA_NEW(a, host->size, &texts));
    TRY(ARENA_ZEROED(a, bytes, &own));
    TRY(ARENA_NEW(a, bytes * host->size, &all));
    (void)snprintf(own, (size_t)bytes, "%s", mine);
    Tensor in = { own, DTYPE_I32, 1, { words } };
    Tensor gathered = { all, DTYPE_I32, 1, { (int64_t)words * host->size } };
    TRY(comm_all_gather(host, &in, &gathered));
    for (int i = 0; i < host->size; i++) texts[i] = all + i * bytes;
    *out = texts;
    return OK;
}
