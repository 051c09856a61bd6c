/* fuzz_trace: any bytes are refused with a sentence, or are a trace whose columns hold together, and
 * whose blocks, threads and largest event change nothing. The input: a byte for the size of blocks,
 * the rest is the file. */
#include "harness/fuzz.h"
#include "traces/read/events_read.h"
#include "traces/read/kineto.h"

static Status read_as(const char *path, size_t block, size_t element_max, int threads, Events *e)
{
    Arena a = { 0 };
    Source s = { 0 };
    *e = (Events){ .path = path, .rank = -1, .world = -1 };
    need(arena_init(&a, "input", MEM_HOST, (size_t)1 << 20) == OK);
    Status status = source_open(&s, path, &a);
    if (block > 0) s.block = block;
    if (element_max > 0) s.element_max = element_max;
    if (status == OK) status = kineto_read(&s, true, threads, e);
    source_close(&s);
    arena_free(&a);
    if (status != OK) events_free(e);
    return status;
}

static void use_text(const Events *e, uint32_t id)
{
    need(id < e->strings.n);
    const StringEntry *s = &e->strings.entries[id];
    need(s->s[s->bytes] == '\0' && strings_text(&e->strings, id) == s->s);
}

static void use_detail(const Events *e, int64_t i)
{
    uint32_t d = e->detail[i];
    if (e->kind[i] == EVENT_CPU_OP && d != EVENT_NONE) {
        need(d < e->n_ops);
        if (e->ops[d].args != EVENT_NONE) use_text(e, e->args[e->ops[d].args].concrete);
        if (e->ops[d].collective != EVENT_NONE)
            use_text(e, e->collectives[e->ops[d].collective].ranks);
    }
    if (event_on_gpu(e->kind[i])) need(d < e->n_gpu);
}

static void use(const Events *e)
{
    const ReadCounts *c = &e->counts;
    need(e->n + e->n_flows + e->n_memory + c->incomplete + c->unused <= c->seen);
    for (int64_t i = 0; i < e->n; i++) {
        need(e->kind[i] < EVENT_KINDS && e->dur[i] >= 0 && event_end(e, i) >= e->ts[i]);
        need(i == 0 || e->index[i] > e->index[i - 1]);
        need(e->index[i] < c->seen && e->track[i] < e->n_tracks);
        use_text(e, e->name[i]);
        use_detail(e, i);
    }
    for (int64_t i = 0; i < e->n_tracks; i++) {
        use_text(e, e->tracks[i].pid);
        use_text(e, e->tracks[i].thread_name);
    }
    for (int64_t i = 0; i < e->n_flows; i++) need(e->flows[i].track < e->n_tracks);
    for (int64_t i = 0; i < e->n_groups; i++) use_text(e, e->groups[i].ranks);
    for (int64_t i = 0; i < e->n_devices; i++) use_text(e, e->devices[i].name);
}

static void same(const Events *a, const Events *b)
{
    const size_t n = (size_t)a->n;
    need(a->n == b->n && a->strings.n == b->strings.n && a->n_flows == b->n_flows);
    need(a->n_tracks == b->n_tracks && a->n_args == b->n_args && a->n_groups == b->n_groups);
    need(memcmp(&a->counts, &b->counts, sizeof a->counts) == 0);
    if (n == 0) return;
    need(memcmp(a->name, b->name, n * sizeof *a->name) == 0);
    need(memcmp(a->ts, b->ts, n * sizeof *a->ts) == 0);
    need(memcmp(a->index, b->index, n * sizeof *a->index) == 0);
    need(memcmp(a->link, b->link, n * sizeof *a->link) == 0);
}

static Status look(Fuzz *f)
{
    Events whole, parts;
    if (f->bytes < 2) return OK;
    const char *path = fuzz_file("trace.json", f->data + 1, f->bytes - 1);
    const size_t block = 17 + f->data[0] / 2 * 5;
    Status s = read_as(path, 0, 0, 1, &whole);
    need(s == OK || *status_message() != '\0');
    need(read_as(path, block, 0, 1 + f->data[0] % 2, &parts) == s);
    if (s == OK) {
        use(&whole);
        same(&whole, &parts);
        events_free(&whole);
        events_free(&parts);
    }
    if (read_as(path, block, 300, 1, &parts) == OK) {
        use(&parts);
        events_free(&parts);
    }
    return s;
}

const Fuzzer fuzzer = { .look = look, .most_bytes = 1 << 15 };
