/*
 * timeline_file: reads a folder in the form of Primus' pp_vis into a Timeline: config.json and a
 * pp_rank_N.json for each pipeline rank (docs/reference/formats.md). Times in files are ms, memory
 * GiB.
 *
 * Unknown keys are ignored. A folder has each rank's peak of memory; only a simulation has memory
 * over time (timeline.c). The files come from other programs, so every count and order is checked.
 */
#include "viz/timeline_file.h"

#include "engine/base/file.h"
#include "engine/base/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The file that is being read. */
typedef struct Source {
    char path[FILE_PATH_MAX];
    Json *at;     /* its JSON object; in a rank's file then the chosen iteration */
    Arena *arena; /* the timeline's */
    Arena texts;  /* text and JSON of one file at a time */
    Timeline *t;
    TimelineRank *r;
} Source;

typedef struct List {
    double *at;
    int n;
} List;

/* A rank's lists of a kind of pass: "fwd_start", ... */
enum { START, END, MICRO, CHUNK, LISTS };
static const size_t FILE_BYTES = (size_t)8 << 30; /* reserved; what is read counts */
static const char *const lists[LISTS] = { "start", "end", "minibatch", "chunk" };

#define BAD(f, fmt, ...)                                                                           \
    FAIL(ERR_FORMAT, "%s, iteration %lld: " fmt "; record it again or take another", (f)->path,    \
         (long long)(f)->t->iteration, __VA_ARGS__)

static Status open_file(Source *f, const char *folder, const char *name)
{
    char *text = NULL;
    size_t bytes = 0, bad = 0;
    TRY(file_join(f->path, folder, name));
    if (!file_exists(f->path))
        return FAIL(ERR_IO, "%s is missing; name a folder of config.json and pp_rank_0.json to %d",
                    f->path, f->t->ranks > 0 ? f->t->ranks - 1 : 0);
    arena_release(&f->texts, (ArenaMark){ 0 });
    TRY(file_read_all(f->path, &f->texts, &text, &bytes));
    TRY(json_parse(text, bytes, &f->texts, &f->at, &bad));
    if (json_is(f->at, JSON_OBJECT)) return OK;
    return FAIL(ERR_FORMAT,
                "%s is not a complete JSON object: it breaks at byte %zu of %zu; copy it again",
                f->path, f->at == NULL ? bad : 0, bytes);
}

/* Reads a number from 0 to 1e18. False: the value is something else. */
static bool read_real(const Json *v, double *out)
{
    bool good = json_is(v, JSON_NUMBER) && v->number >= 0 && v->number <= 1e18;
    if (good) *out = v->number;
    return good;
}

/* Reads a list; a value of another kind counts as an empty one. */
static Status read_list(const Source *f, const char *key, const Json *array, List *out)
{
    *out = (List){ 0 };
    if (!json_is(array, JSON_ARRAY)) return OK;
    TRY(ARENA_NEW(f->arena, json_count(array), &out->at));
    for (const Json *v = array->child; v != NULL; v = v->next) {
        if (read_real(v, &out->at[out->n++])) continue;
        return BAD(f, "number %d of \"%s\" is not from 0 to 1e18", out->n, key);
    }
    return OK;
}

/* ---- passes ---- */

/* Numbers a rank's i-th pass where the file does not give micro-batch and chunk. Interleaved 1F1B
 * is assumed (arXiv:2104.04473): groups of `ranks` micro-batches go through one chunk after the
 * other, backward from the last chunk to the first. */
static void number_pass_by_order(const Timeline *t, int i, TimelineSpan *s)
{
    int first = i / (t->ranks * t->chunks) * t->ranks, left = t->micros - first;
    int size = left < t->ranks ? left : t->ranks, at = i - first * t->chunks;
    s->micro = first + at % size;
    s->chunk = s->kind == TIMELINE_FORWARD ? at / size : t->chunks - 1 - at / size;
}

/* Reads number i of a list that may be missing (then *out stays). False: it is no whole number up
 * to `most`. */
static bool list_number(const List *l, int i, int most, int *out)
{
    if (l->n > 0) *out = (int)fmin(l->at[i], most);
    return l->n == 0 || l->at[i] == *out;
}

/* Adds the passes of a kind to the rank's spans. Starts must not fall. */
static Status add_passes(const Source *f, int kind, const List list[LISTS])
{
    const Timeline *t = f->t;
    const char *prefix = timeline_kind[kind].prefix;
    double before = 0;
    for (int i = 0; i < list[START].n; i++) {
        double start = list[START].at[i], end = list[END].at[i];
        TimelineSpan s = { 1e-3 * start, 1e-3 * end, (TimelineKind)kind, -1, 0 };
        if (end < start || start < before)
            return BAD(f, "time runs backwards in pass %d of \"%s\", %g to %g ms after one from %g",
                       i + 1, prefix, start, end, before);
        before = start;
        if (kind < TIMELINE_OTHER) s.micro = 0;
        if (kind < TIMELINE_OTHER && list[START].n == t->chunks * t->micros)
            number_pass_by_order(t, i, &s);
        if (!list_number(&list[MICRO], i, t->micros, &s.micro) ||
            !list_number(&list[CHUNK], i, t->chunks - 1, &s.chunk))
            return BAD(f, "pass %d of \"%s\" has no micro-batch up to %d or no chunk below %d",
                       i + 1, prefix, t->micros, t->chunks);
        f->r->span[f->r->spans++] = s;
    }
    return OK;
}

/* Reads the four lists of a kind of pass and checks their lengths. Without micro-batch and chunk
 * there must be exactly one pass of each, or the passes could not be numbered. */
static Status read_lists(const Source *f, int kind, List list[LISTS])
{
    const char *prefix = timeline_kind[kind].prefix;
    for (int i = 0; i < LISTS; i++) {
        char key[32];
        (void)snprintf(key, sizeof key, "%s_%s", prefix, lists[i]);
        TRY(read_list(f, key, json_get(f->at, key), &list[i]));
        if (list[i].n == list[START].n || (i >= MICRO && list[i].n == 0)) continue;
        return BAD(f, "%s_start has %d numbers, %s %d", prefix, list[START].n, key, list[i].n);
    }
    bool numbered = list[MICRO].n > 0 && (list[CHUNK].n > 0 || f->t->chunks == 1);
    int n = list[START].n, want = f->t->chunks * f->t->micros;
    if (numbered || n == 0 || n == want || kind >= TIMELINE_OTHER) return OK;
    return BAD(f, "\"%s\" has %d passes, %d chunks of %d micro-batches have %d", prefix, n,
               f->t->chunks, f->t->micros, want);
}

/* A backward pass is only the input half if the weight half of the same micro-batch and chunk has a
 * pass of its own. */
static Status split_backwards(const Source *f)
{
    size_t micros = (size_t)f->t->micros + 1;
    char *is_apart = NULL;
    ArenaMark mark = arena_mark(f->arena);
    TRY(ARENA_ZEROED(f->arena, micros * (size_t)f->t->chunks, &is_apart));
    for (int i = f->r->spans - 1; i >= 0; i--) { /* weight gradients are last */
        TimelineSpan *s = &f->r->span[i];
        if (s->kind > TIMELINE_WEIGHT) continue;
        char *apart = is_apart + (size_t)s->chunk * micros + (size_t)s->micro;
        if (s->kind == TIMELINE_WEIGHT) *apart = 1;
        if (s->kind == TIMELINE_BACKWARD && *apart != 0) s->kind = TIMELINE_INPUT;
    }
    arena_release(f->arena, mark);
    return OK;
}

static Status read_passes(const Source *f)
{
    List list[TIMELINE_KINDS][LISTS] = { 0 };
    int n = 0;
    for (int kind = 0; kind < TIMELINE_KINDS; kind++) {
        if (timeline_kind[kind].prefix != NULL) TRY(read_lists(f, kind, list[kind]));
        n += list[kind][START].n;
    }
    if (list[TIMELINE_FORWARD][START].n == 0) return BAD(f, "%s", "it has no forward pass");
    TRY(ARENA_NEW(f->arena, n, &f->r->span));
    for (int kind = 0; kind < TIMELINE_KINDS; kind++) TRY(add_passes(f, kind, list[kind]));
    return split_backwards(f);
}

/* ---- files ---- */

/* Finds each iteration's longest total over ranks, and the object of the wanted iteration. Rank 0's
 * file gives the list of iterations and their order; `last` picks the highest number there. */
static Status read_iterations(const Source *f, bool last, Json **out)
{
    Timeline *t = f->t;
    TimelineIteration *all = t->recorded;
    int64_t room = t->n_recorded;
    int i = 0;
    for (Json *value = f->at->child; value != NULL; value = value->next) {
        char *end = NULL;
        int64_t number = strtoll(value->name, &end, 10);
        double total = 0;
        if (end == value->name || *end != '\0' || number < 0) continue;
        if (last && number > t->iteration && read_real(json_get(value, "total"), &total))
            t->iteration = number;
        if (number == t->iteration) *out = value;
        if (!read_real(json_get(value, "total"), &total)) continue;
        if (f->r == t->rank) {
            TRY(ARENA_GROW(f->arena, i + 1, &room, &all));
            all[t->n_recorded++] = (TimelineIteration){ number, 0 };
        }
        if (i < t->n_recorded && all[i].number == number)
            all[i].step_s = fmax(all[i].step_s, 1e-3 * total);
        i++;
    }
    t->recorded = all;
    return OK;
}

static Status read_rank(Source *f, bool last)
{
    Json *at = NULL;
    double gib = 0;
    TRY(read_iterations(f, last && f->r == f->t->rank, &at));
    f->at = at;
    if (!read_real(json_get(f->at, "total"), &f->r->total_s) || f->r->total_s == 0)
        return BAD(f, "the file has no total above 0 for it; rank 0 has %d iterations",
                   f->t->n_recorded);
    f->r->total_s *= 1e-3;
    f->r->peak_bytes =
        read_real(json_get(f->at, "memory"), &gib) ? gib * TIMELINE_GIB : (double)NAN;
    return read_passes(f);
}

/* Reads a whole number from 1 to `most` under its key, or under the key of older files. */
static Status read_count(const Source *f, const char *key, const char *old, int most, int *out)
{
    double v = 0;
    bool found = read_real(json_get(f->at, key), &v) || read_real(json_get(f->at, old), &v);
    *out = (int)fmin(v, most);
    if (found && v >= 1 && v == *out) return OK;
    return FAIL(ERR_FORMAT, "%s: \"%s\" is missing or not a whole number from 1 to %d", f->path,
                key, most);
}

static Status read_config(Source *f, const char *folder)
{
    Timeline *t = f->t;
    bool chunks = json_get(f->at, "vp_size") != NULL || json_get(f->at, "vpp_size") != NULL;
    t->chunks = 1;
    TRY(read_count(f, "pp_size", "pp_size", SCHEDULE_STAGES_MAX, &t->ranks));
    TRY(read_count(f, "num_mbs", "micro_batches", SCHEDULE_MICROS_MAX, &t->micros));
    if (chunks) TRY(read_count(f, "vp_size", "vpp_size", SCHEDULE_CHUNKS_MAX, &t->chunks));
    const char *title = json_string(json_get(f->at, "title"));
    if (title == NULL) return file_last_part(folder, f->arena, &t->title);
    return arena_text(f->arena, title, strlen(title), &t->title);
}

static Status open_rank(Source *f, const char *folder, int rank)
{
    char name[32];
    (void)snprintf(name, sizeof name, "pp_rank_%d.json", rank);
    f->r = &f->t->rank[rank];
    return open_file(f, folder, name);
}

/* Finds the iteration of the median step. A step is the longest of all ranks, so all files are read for it. Without
 * iterations the last one is asked for, which has the sentence for that. */
static Status find_median(Source *f, const char *folder)
{
    Timeline *t = f->t;
    Json *unused = NULL;
    for (int i = 0; i < t->ranks; i++) {
        TRY(open_rank(f, folder, i));
        TRY(read_iterations(f, false, &unused));
    }
    const TimelineIteration *median = timeline_median(t);
    t->iteration = median == NULL ? TIMELINE_LAST : median->number;
    t->n_recorded = 0;
    t->recorded = NULL;
    return OK;
}

static Status read_files(Source *f, const char *folder, int64_t iteration)
{
    Timeline *t = f->t;
    TRY(arena_reserve(&f->texts, "pipeline", FILE_BYTES));
    TRY(open_file(f, folder, "config.json"));
    TRY(read_config(f, folder));
    TRY(ARENA_ZEROED(f->arena, t->ranks, &t->rank));
    if (iteration == TIMELINE_MEDIAN) TRY(find_median(f, folder));
    const bool last = t->iteration == TIMELINE_LAST;
    for (int i = 0; i < t->ranks; i++) {
        TRY(open_rank(f, folder, i));
        TRY(read_rank(f, last));
    }
    return OK;
}

Status timeline_read(const char *folder, int64_t iteration, Arena *a, Timeline *out)
{
    Timeline t = { .iteration = iteration };
    Source f = { .arena = a, .t = &t };
    Status s = read_files(&f, folder, iteration);
    arena_free(&f.texts);
    TRY(s);
    timeline_sum(&t);
    *out = t;
    return OK;
}
