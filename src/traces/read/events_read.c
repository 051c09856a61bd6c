/* events_read: chooses the reader of a trace by its first bytes, and frees what readers made. The
 * formats themselves are known to kineto.c and recording.c. */
#include "traces/read/events_read.h"

#include "traces/read/kineto.h"
#include "traces/read/kineto_commit.h"
#include "traces/read/recording.h"

/* Writes a recording as the JSON that Perfetto would read, and reads that like any trace. So there
 * is one way into Events. */
static Status read_as_json(const Recording *r, const EventsOptions *o, Arena *a, Events *e)
{
    Source source = { 0 };
    Text text = { 0 };
    TRY(text_init(&text, a));
    TRY(recording_json(&r, 1, &text));
    source_text(&source, e->path, (unsigned char *)text.data, text.used);
    Status s = kineto_read(&source, o->python, o->threads, e);
    e->counts.truncated |= r->file.cut;
    return s;
}

/* Reads a recording. The whole file is in memory before it is checked, because others may write to
 * it meanwhile. The memory is then used again for the JSON. */
static Status read_recording(Source *source, const EventsOptions *o, Events *e)
{
    Arena a = { 0 };
    uint8_t *data = NULL;
    size_t bytes = 0;
    TRY(arena_reserve(&a, "recording", (size_t)16 << 30));
    Status s = source_all(source, &a, &data, &bytes);
    if (s == OK) s = recording_parse(e->path, data, bytes, &e->recording);
    arena_release(&a, (ArenaMark){ 0 });
    if (s == OK) e->run = e->recording->began_us;
    if (s == OK) s = read_as_json(e->recording, o, &a, e);
    arena_free(&a);
    return s;
}

Status events_read(const char *path, const EventsOptions *o, Events *out)
{
    Arena buffers = { 0 };
    Source source = { 0 };
    /* `*out` is set only on success, so e is built here. */
    Events e = { .path = path, .rank = -1, .world = -1 };
    Status s = arena_init(&buffers, "input", MEM_HOST, (size_t)1 << 20);
    if (s == OK) s = source_open(&source, path, &buffers);
    source.bar = o->bar;
    bool recorded = s == OK && record_is(source.in, source.in_bytes);
    if (s == OK)
        s = recorded ? read_recording(&source, o, &e)
                     : kineto_read(&source, o->python, o->threads, &e);
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
        Rows *rows[] = { &m->track_ids, &m->named, &m->args, &m->collectives };
        for (int i = 0; i < COLUMNS; i++) arena_free(&m->column[i].arena);
        for (int i = 0; i < 4; i++) {
            arena_free(&rows[i]->column.arena);
            arena_free(&rows[i]->table);
        }
        Arena self = m->self; /* m lies in it */
        arena_free(&self);
    }
    *e = (Events){ 0 };
}
