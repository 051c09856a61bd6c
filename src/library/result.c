/* result: errors as sentences, checks of arguments, and handles in arenas of their own. */
#include "engine/base/log.h"
#include "library/handle.h"

#include <string.h>

static _Thread_local char sentence[1024]; /* of the thread's last error */

Status library_keep(Status s)
{
    if (s != OK) status_sentence(sentence, sizeof sentence);
    return s;
}

SwitchyardResult library_result(Status s)
{
    return (SwitchyardResult)status_exit_code(library_keep(s));
}

int32_t switchyard_version(void) { return SWITCHYARD_VERSION; }
const char *switchyard_error(void) { return sentence; }

/* A library says nothing of its own accord. */
static __attribute__((constructor)) void begin_silent(void) { log_set_level((LogLevel)-1); }

SwitchyardResult switchyard_log(int32_t level)
{
    if (level < -1 || level > LOG_DEBUG)
        return library_result(FAIL(ERR_ARG, "switchyard_log: level %d is not -1 to 3", (int)level));
    log_set_level((LogLevel)level);
    return SWITCHYARD_OK;
}

Status library_given(const char *function, const void *a, const void *b)
{
    if (a != NULL && b != NULL) return OK;
    return FAIL(ERR_ARG, "switchyard_%s: a handle, a text or a place for the answer is NULL",
                function);
}

Status library_index(const char *what, int64_t i, int64_t n)
{
    if (i >= 0 && i < n) return OK;
    return FAIL(ERR_ARG, "%s %lld is not there: there are %lld, counted from 0", what, (long long)i,
                (long long)n);
}

Status library_make(const char *what, size_t bytes, size_t gib, void *pointer)
{
    Arena a = { 0 };
    void *handle = NULL;
    TRY(arena_reserve(&a, what, gib << 30));
    Status s = arena_array_zero(&a, bytes, 1, &handle);
    if (s != OK) {
        arena_free(&a);
        return s;
    }
    memcpy(handle, &a, sizeof a);
    memcpy(pointer, &handle, sizeof handle);
    return OK;
}

/* The handle lies in its own arena, so the arena is copied out before it is freed. */
void library_free(void *handle)
{
    Arena self;
    if (handle == NULL) return;
    memcpy(&self, handle, sizeof self);
    arena_free(&self);
}
