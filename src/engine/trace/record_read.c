/* record_read: parses a recording in memory, checks it, and writes it as events that Perfetto reads. The
 * file may come from anywhere, so every index, length and time is checked before use. */
#include "engine/base/lane.h"
#include "engine/trace/record.h"

#include <stdio.h>
#include <string.h>

/* ---- chunks ---- */

/* For contents that contradict each other although every checksum is right. */
static Status not_ours(const char *path, const char *what)
{
    return FAIL(ERR_FORMAT, "%s: %s, so the file was not written by this program", path, what);
}

/* Copies a chunk's data to aligned memory, because chunks begin at any byte of the file. */
static Status copy_aligned(const RecordChunk *c, Arena *a, const void **out)
{
    char *copy = NULL;
    TRY(ARENA_NEW(a, c->bytes + 1, &copy));
    memcpy(copy, c->data, c->bytes);
    copy[c->bytes] = '\0';
    *out = copy;
    return OK;
}

/* Texts are found by walking, so `name` gives each its number. */
static Status read_names(const char *path, const char *text, size_t bytes, Arena *a, Recorded *r)
{
    if (bytes > 0 && text[bytes - 1] != '\0') return not_ours(path, "its names do not end");
    r->names = 0;
    for (size_t i = 0; i < bytes; i++) r->names += text[i] == '\0';
    TRY(ARENA_NEW(a, r->names + 1, &r->name));
    for (uint32_t i = 0; i < r->names; i++, text += strlen(text) + 1) r->name[i] = text;
    return OK;
}

/* An action's row has its own index as `action`. A phase has the index of an earlier row, and marks
 * it as a range. */
static Status read_rows(const char *path, const char *at, size_t bytes, Arena *a, Recorded *r)
{
    uint32_t head[2];
    bool *range = NULL;
    if (bytes < sizeof head) return not_ours(path, "a list of rows is too short");
    memcpy(head, at, sizeof head);
    if (head[0] >= RECORD_WAYS || bytes != sizeof head + head[1] * sizeof(RecordRow))
        return not_ours(path, "a list of rows has another length than it says");
    TRY(ARENA_ZEROED(a, head[1] + 1, &range));
    r->way[head[0]] = (RecordWay){ (const void *)(at + sizeof head), range, head[1] };
    for (uint32_t i = 0; i < head[1]; i++) {
        const RecordRow *row = &r->way[head[0]].row[i];
        if (row->action < 0 || row->action > (int32_t)i || row->part > RECORD_WEIGHT)
            return not_ours(path, "a row belongs to no action");
        range[row->action] |= row->action != (int32_t)i;
    }
    return OK;
}

/* Limits in ns for a Unix time and a duration, so that their sums and differences cannot overflow. */
static bool is_moment(int64_t ns) { return ns >= 0 && ns < (int64_t)1 << 61; }
static bool is_span(int64_t ns) { return ns >= 0 && ns < (int64_t)1 << 55; }

/* A step may have fewer rows than its mode's list, never more. Its times lie in the chunk and are
 * not copied again. */
static Status read_step(const char *path, const char *at, size_t bytes, Arena *a, int64_t *room,
                        Recorded *r)
{
    RecordedStep s = { 0 };
    if (bytes < sizeof s.head) return not_ours(path, "a step is too short");
    memcpy(&s.head, at, sizeof s.head);
    size_t times = s.head.rows * sizeof *s.times;
    if (s.head.way >= RECORD_WAYS || s.head.rows > r->way[s.head.way].rows ||
        bytes != sizeof s.head + times + s.head.loads * sizeof *s.load)
        return not_ours(path, "a step has other rows than the list of rows");
    s.times = (const void *)(at + sizeof s.head);
    s.load = (const void *)(at + sizeof s.head + times);
    bool holds = is_moment(s.head.unix_ns);
    for (uint32_t i = 0; i < s.head.rows; i++)
        holds &= is_span(s.times[i].begin) && is_span(s.times[i].end);
    if (!holds) return not_ours(path, "a step has a time that none can have");
    TRY(ARENA_GROW(a, r->steps + 1, room, &r->step));
    r->step[r->steps++] = s;
    return OK;
}

/* Data is copied once, to aligned memory, and everything parsed points into that copy. */
static Status read_chunk(const char *path, const RecordChunk *c, Arena *a, int64_t *room,
                         Recorded *r)
{
    const void *at = NULL;
    TRY(copy_aligned(c, a, &at));
    if (strcmp(c->tag, "META") == 0) r->meta = at;
    if (strcmp(c->tag, "NAME") == 0) return read_names(path, at, c->bytes, a, r);
    if (strcmp(c->tag, "ROWS") == 0) return read_rows(path, at, c->bytes, a, r);
    if (strcmp(c->tag, "STEP") == 0) return read_step(path, at, c->bytes, a, room, r);
    if (strcmp(c->tag, "OPS_") == 0) {
        if (c->bytes % sizeof *r->op != 0) return not_ours(path, "its ops have another length");
        r->op = at;
        r->ops = (int64_t)(c->bytes / sizeof *r->op);
        for (int64_t i = 0; i < r->ops; i++)
            if (!is_moment(r->op[i].start_ns) || !is_span(r->op[i].dur_ns))
                return not_ours(path, "an op has a time that none can have");
    }
    return OK; /* unknown chunks are skipped: a later version may have more kinds */
}

static bool names_in_range(const Recorded *r)
{
    for (int w = 0; w < RECORD_WAYS; w++) {
        for (uint32_t i = 0; i < r->way[w].rows; i++)
            if (r->way[w].row[i].name >= r->names) return false;
    }
    for (int64_t i = 0; i < r->ops; i++)
        if (r->op[i].name >= r->names) return false;
    return true;
}

/* A later ROWS chunk may replace a list of rows, so the steps are checked again at the end. */
static bool steps_in_range(const Recorded *r)
{
    for (int64_t i = 0; i < r->steps; i++) {
        const RecordStep *s = &r->step[i].head;
        if (s->rows > r->way[s->way].rows || s->loads != r->step[0].head.loads) return false;
    }
    return true;
}

Status record_parse(const char *path, const uint8_t *data, size_t bytes, Arena *a, Recorded *out)
{
    size_t at = 0;
    int64_t room = 0;
    RecordChunk c = { 0 };
    *out = (Recorded){ .meta = "{}" };
    TRY(record_open(path, data, bytes, &at));
    while (record_next(data, bytes, &at, &c, &out->cut)) TRY(read_chunk(path, &c, a, &room, out));
    if (!steps_in_range(out))
        return not_ours(path, "steps have rows or experts that others have not");
    if (!names_in_range(out)) {
        if (!out->cut) return not_ours(path, "a row has no name");
        out->ops = 0; /* names of ops come after the ops and may be cut off */
        if (!names_in_range(out)) return not_ours(path, "a row has no name");
    }
    return OK;
}

/* ---- events ---- */

typedef struct EventWriter {
    const Recorded *r;
    Text *out;
    int rank;
    int64_t base_ns;
} EventWriter;

/* Each transfer queue has its own lane, after those of the device, numbered by its name. */
static int lane_of(const RecordRow *row)
{
    return row->transfer ? LANE_COUNT + (int)row->name : row->lane;
}

/* Writes an event up to its open "args" object; the caller adds members and closes both. */
static Status open_event(const EventWriter *p, const char *cat, const char *name, int lane,
                         int64_t from_ns, int64_t ns)
{
    return text_json(p->out,
                     ",\n{\"ph\":\"X\",\"cat\":%s,\"name\":%s,\"pid\":%d,\"tid\":%d,\"ts\":%.3f,"
                     "\"dur\":%.3f,\"args\":{\"device\":%d,\"stream\":%d",
                     cat, name, p->rank, lane, (double)(from_ns - p->base_ns) / 1e3,
                     (double)ns / 1e3, p->rank, lane);
}

static Status write_row(const EventWriter *p, const RecordedStep *s, uint32_t i)
{
    const RecordRow *row = &p->r->way[s->head.way].row[i];
    bool range = p->r->way[s->head.way].range[i];
    bool comm = row->transfer || row->lane == LANE_COMM;
    char name[256];
    (void)snprintf(name, sizeof name, "%s%s%s%s", comm && !range ? "comm: " : "",
                   p->r->name[row->name], row->part == RECORD_WHOLE ? "" : " ",
                   record_part_name[row->part]);
    TRY(open_event(p, range ? "gpu_user_annotation" : "kernel", name, lane_of(row),
                   s->head.unix_ns + s->times[i].begin, s->times[i].end - s->times[i].begin));
    if (row->layer >= 0) TRY(text_json(p->out, ",\"layer\":%d", row->layer));
    if (row->micro >= 0) TRY(text_json(p->out, ",\"micro\":%d", row->micro));
    if (row->chunk >= 0) TRY(text_json(p->out, ",\"chunk\":%d", row->chunk));
    if (row->flops > 0) TRY(text_json(p->out, ",\"flops\":%g", row->flops));
    return text_json(p->out, ",\"step\":%lld}}", (long long)s->head.step);
}

/* A step is a range on a lane of its own. Rows of no length are left out: an action that did
 * nothing. */
static Status write_step(const EventWriter *p, const RecordedStep *s)
{
    const RecordTime *t = s->times;
    int64_t end = 0;
    char name[48];
    for (uint32_t i = 0; i < s->head.rows; i++) end = t[i].end > end ? t[i].end : end;
    (void)snprintf(name, sizeof name, "ProfilerStep#%lld", (long long)s->head.step);
    TRY(open_event(p, "user_annotation", name, RECORD_STEPS_LANE, s->head.unix_ns, end));
    TRY(text_json(p->out, ",\"loss\":%g,\"ran_again\":%d}}", s->head.loss,
                  (int)(s->head.flags & RECORD_RAN_AGAIN)));
    for (uint32_t i = 0; i < s->head.rows; i++) {
        if (t[i].end > t[i].begin) TRY(write_row(p, s, i));
    }
    return OK;
}

/* Names of processes and threads. A transfer's lane gets the name of its first row. */
static Status write_names(const EventWriter *p)
{
    bool transfer[LANE_COUNT + 64] = { false };
    char other[RECORD_LANE_BYTES];
    TRY(text_json(p->out,
                  "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%d,\"args\":{\"name\":\"rank "
                  "%d\"}}",
                  p->rank, p->rank));
    for (int lane = 0; lane < LANE_COUNT; lane++)
        TRY(text_json(p->out,
                      ",\n{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%d,\"tid\":%d,\"args\":{"
                      "\"name\":%s}}",
                      p->rank, lane, record_lane_name(other, lane)));
    for (int w = 0; w < RECORD_WAYS; w++) {
        for (uint32_t i = 0; i < p->r->way[w].rows; i++) {
            const RecordRow *row = &p->r->way[w].row[i];
            int lane = lane_of(row);
            if (!row->transfer || lane >= LANE_COUNT + 64 || transfer[lane]) continue;
            transfer[lane] = true;
            TRY(text_json(p->out,
                          ",\n{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%d,\"tid\":%d,"
                          "\"args\":{\"name\":%s}}",
                          p->rank, lane, p->r->name[row->name]));
        }
    }
    return OK;
}

static Status write_op(const EventWriter *p, const RecordOp *o)
{
    TRY(open_event(p, "op", p->r->name[o->name], o->lane, o->start_ns, o->dur_ns));
    if (o->layer >= 0) TRY(text_json(p->out, ",\"layer\":%d", o->layer));
    return text_json(p->out, ",\"flops\":%g,\"bytes\":%g,\"step\":%lld}}", o->flops, o->bytes,
                     (long long)o->step);
}

Status record_events(const Recorded *r, int rank, int64_t base_ns, Text *out)
{
    const EventWriter p = { r, out, rank, base_ns };
    TRY(write_names(&p));
    for (int64_t i = 0; i < r->steps; i++) TRY(write_step(&p, &r->step[i]));
    for (int64_t i = 0; i < r->ops; i++) TRY(write_op(&p, &r->op[i]));
    return OK;
}
