/* events: which reader a file takes, and the memory of what was read. */
#include "analyze/events.h"

#include "analyze/kineto.h"
#include "analyze/recording.h"

#include <math.h>

const char *const event_kind_name[EVENT_KINDS] = {
    [EVENT_CPU_OP] = "cpu_op",
    [EVENT_RUNTIME] = "cuda_runtime",
    [EVENT_DRIVER] = "cuda_driver",
    [EVENT_KERNEL] = "kernel",
    [EVENT_MEMCPY] = "gpu_memcpy",
    [EVENT_MEMSET] = "gpu_memset",
    [EVENT_PYTHON] = "python_function",
    [EVENT_ANNOTATION] = "user_annotation",
    [EVENT_GPU_ANNOTATION] = "gpu_user_annotation",
    [EVENT_SYNC] = "cuda_sync",
    [EVENT_OVERHEAD] = "overhead",
    [EVENT_OTHER] = "other",
};

/* A recording goes the way of all traces, as the text that Perfetto would read. */
static Status take_recording(const Recording *r, const EventsOptions *o, Events *e)
{
    Arena a = { 0 };
    Source source = { 0 };
    Text text = { 0 };
    TRY(arena_init(&a, "recording's events", MEM_HOST, (size_t)16 << 30));
    Status s = text_init(&text, &a);
    if (s == OK) s = recording_json(&r, 1, &text);
    if (s == OK) {
        source_text(&source, e->path, (unsigned char *)text.data, text.used);
        s = kineto_read(&source, o, e);
    }
    e->counts.truncated |= r->file.cut;
    arena_free(&a);
    return s;
}

/* All of it is in memory before anything of it is believed: others may write to the file. */
static Status read_recording(Source *source, const EventsOptions *o, Events *e)
{
    Arena a = { 0 };
    uint8_t *data = NULL;
    size_t bytes = 0;
    TRY(arena_init(&a, "recording's file", MEM_HOST, (size_t)16 << 30));
    Status s = source_all(source, &a, &data, &bytes);
    if (s == OK) s = recording_parse(e->path, data, bytes, &e->recording);
    arena_free(&a);
    TRY(s);
    e->run = e->recording->began_us;
    return take_recording(e->recording, o, e);
}

Status events_read(const char *path, const EventsOptions *o, Events *out)
{
    Arena buffers = { 0 };
    Source source = { 0 };
    Events e = { .path = path, .rank = -1, .world = -1 };
    Status s = arena_init(&buffers, "input", MEM_HOST, (size_t)1 << 20);
    if (s == OK) s = source_open(&source, path, &buffers);
    source.bar = o->bar;
    bool recorded = s == OK && record_is(source.in, source.in_bytes);
    if (s == OK) s = recorded ? read_recording(&source, o, &e) : kineto_read(&source, o, &e);
    source_close(&source);
    arena_free(&buffers);
    if (s != OK)
        events_free(&e);
    else
        *out = e;
    return s;
}

void events_free(Events *e)
{
    EventsMemory *m = e->own;
    recording_close(e->recording);
    strings_free(&e->strings);
    if (m != NULL) {
        Rows *rows[] = { &m->places, &m->named, &m->args, &m->collectives };
        for (int i = 0; i < COLUMNS; i++) arena_free(&m->column[i].arena);
        for (int i = 0; i < 4; i++) {
            arena_free(&rows[i]->column.arena);
            arena_free(&rows[i]->table);
        }
        Arena self = m->self;
        arena_free(&self);
    }
    *e = (Events){ 0 };
}

Status events_same_run(const char *path, int64_t run, const char *other, int64_t other_run)
{
    if (run == other_run || run == 0 || other_run == 0) return OK;
    return FAIL(ERR_ARG, "%s and %s are of runs that began %.6g s apart: name files of one run",
                path, other, fabs((double)(run - other_run)) / 1e6);
}

double event_dtype_bytes(const char *dtype)
{
    static const struct {
        const char *names;
        double bytes;
    } sizes[] = {
        { "Double|Long|double|long|long int|ComplexFloat|UInt64", 8 },
        { "Float|Int|float|int|UInt32", 4 },
        { "BFloat16|Half|Short|c10::BFloat16|c10::Half|short int|UInt16", 2 },
        { "Bool|Byte|Char|bool|unsigned char|signed char", 1 },
        { "ComplexDouble", 16 },
    };
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (text_word_index(sizes[i].names, dtype) >= 0) return sizes[i].bytes;
    }
    return text_starts(dtype, "Float8") || text_starts(dtype, "c10::Float8") ? 1 : (double)NAN;
}
