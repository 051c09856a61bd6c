/* timeline_write: the form that timeline_read reads and pp_vis can draw. */
#include "viz/timeline.h"

#include "base/file.h"

#include <math.h>
#include <stdio.h>

static Status put_list(Json *j, const char *key, const double *v, int n, int stride, double unit)
{
    TRY(json_key(j, key));
    TRY(json_array(j));
    for (int i = 0; i < n; i++) TRY(json_double(j, unit * v[(int64_t)i * stride]));
    return json_array_end(j);
}

static Status put_passes(Json *j, const TimelineRank *r, TimelineKind kind)
{
    for (int list = 0; list < (kind < TIMELINE_OTHER ? TIMELINE_LISTS : 2); list++) {
        char key[32];
        (void)snprintf(key, sizeof key, "%s_%s", timeline_kind[kind].prefix, timeline_list[list]);
        TRY(json_key(j, key));
        TRY(json_array(j));
        for (int i = 0; i < r->spans; i++) {
            const TimelineSpan *s = &r->span[i];
            const double value[] = { 1e3 * s->start_s, 1e3 * s->end_s, s->micro, s->chunk };
            TimelineKind of = s->kind == TIMELINE_INPUT ? TIMELINE_BACKWARD : s->kind;
            if (of == kind) TRY(json_double(j, value[list]));
        }
        TRY(json_array_end(j));
    }
    return OK;
}

/* A kind of memory that does not change is one number. */
static Status put_rank(Text *out, const Timeline *t, const TimelineRank *r)
{
    int n = t->memory_kinds;
    TRY(text_json(out, "{\"%lld\":", (long long)t->iteration));
    Json j = json_begin(out);
    TRY(json_object(&j));
    TRY(json_number(&j, "total", 1e3 * r->total_s));
    if (!isnan(r->peak_bytes)) TRY(json_number(&j, "memory", r->peak_bytes / TIMELINE_GIB));
    for (int k = 0; k < TIMELINE_KINDS; k++) {
        if (timeline_kind[k].prefix != NULL) TRY(put_passes(&j, r, (TimelineKind)k));
    }
    if (r->points > 0) {
        TRY(put_list(&j, "memory_at", r->at_s, r->points, 1, 1e3));
        TRY(json_key(&j, "memory_bytes"));
        TRY(json_object(&j));
        for (int k = 0; k < n; k++) {
            const double *v = r->bytes + k;
            bool same = true;
            for (int i = 1; i < r->points; i++) same &= v[(int64_t)i * n] == *v;
            TRY(same ? json_number(&j, t->memory_kind[k], *v)
                     : put_list(&j, t->memory_kind[k], v, r->points, n, 1));
        }
        TRY(json_object_end(&j));
    }
    TRY(json_object_end(&j));
    return text_json(out, "}");
}

/* rank -1: the config. */
static Status write_one(const char *folder, const Timeline *t, int rank, Arena *scratch)
{
    char path[FILE_PATH_MAX], name[32] = "config.json";
    Text text = { 0 };
    if (rank >= 0) (void)snprintf(name, sizeof name, "pp_rank_%d.json", rank);
    TRY(file_join(path, folder, name));
    TRY(text_init(&text, scratch));
    TRY(rank >= 0 ? put_rank(&text, t, &t->rank[rank])
                  : text_json(&text,
                              "{\"title\":%s,\"world_size\":%d,\"pp_size\":%d,\"vp_size\":%d,"
                              "\"num_mbs\":%d,\"dp_size\":1,\"tp_size\":1,\"ep_size\":1,"
                              "\"train_iters\":1}",
                              t->title, t->ranks, t->ranks, t->chunks, t->micros));
    return file_write_whole(path, text.data, text.used, scratch);
}

Status timeline_write(const char *folder, const Timeline *t, Arena *scratch)
{
    TRY(file_make_folders(folder));
    for (int i = -1; i < t->ranks; i++) {
        ArenaMark mark = arena_mark(scratch);
        TRY(write_one(folder, t, i, scratch));
        arena_release(scratch, mark);
    }
    return OK;
}
