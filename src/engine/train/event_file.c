/* event_file: protocol buffers by hand. A field is its number and wire type in one byte, then a varint
 * (0), eight bytes (1), a length and bytes (2), or four bytes (5). */
#include "engine/train/event_file.h"

#include "engine/base/clock.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { VARINT, EIGHT_BYTES, LENGTH, FOUR_BYTES = 5 };
enum { HEADER_BYTES = 12, FIELDS_BYTES = 64, VALUE_BYTES = 32, BUFFER_BYTES = 64 << 10 };

/* CRC-32C (Castagnoli), reflected, masked as records want it: a checksum of bytes that hold their own
 * checksum would be weak. */
static uint32_t masked_sum(const uint8_t *data, size_t n)
{
    uint32_t crc = ~0u;
    for (size_t i = 0; i < n; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78u : 0);
    }
    crc = ~crc;
    return (crc >> 15 | crc << 17) + 0xA282EAD8u;
}

static uint8_t *put_little(uint8_t *at, uint64_t v, int bytes)
{
    for (int i = 0; i < bytes; i++) *at++ = (uint8_t)(v >> 8 * i);
    return at;
}

static uint8_t *put_varint(uint8_t *at, uint64_t v)
{
    for (; v >= 0x80; v >>= 7) *at++ = (uint8_t)(v | 0x80);
    *at++ = (uint8_t)v;
    return at;
}

static uint8_t *put_field(uint8_t *at, int field, int wire)
{
    return put_varint(at, (uint64_t)(field << 3 | wire));
}

static uint8_t *put_bytes(uint8_t *at, int field, const void *data, size_t n)
{
    at = put_varint(put_field(at, field, LENGTH), n);
    memcpy(at, data, n);
    return at + n;
}

/* The length of a tag: NAME, or NAME/KEY_LABEL. */
static size_t tag_bytes(const Series *s)
{
    return strlen(s->name) + strlen(s->key) + strlen(s->label) + (*s->key == '\0' ? 0 : 2);
}

static int varint_bytes(size_t v) { return v < 0x80 ? 1 : 1 + varint_bytes(v >> 7); }

/* Summary's field 1, a Value: tag 1 and simple_value 2. */
static uint8_t *put_value(uint8_t *at, const Series *s)
{
    float value = (float)s->now;
    uint32_t bits;
    size_t tag = tag_bytes(s);
    bool one = *s->key == '\0';
    memcpy(&bits, &value, sizeof bits);
    at = put_varint(put_field(at, 1, LENGTH), 1 + (size_t)varint_bytes(tag) + tag + 5);
    at = put_varint(put_field(at, 1, LENGTH), tag);
    (void)snprintf((char *)at, tag + 1, "%s%s%s%s%s", s->name, one ? "" : "/", s->key,
                   one ? "" : "_", s->label); /* the next byte takes the NUL's place */
    return put_little(put_field(at + tag, 2, FOUR_BYTES), bits, 4);
}

/* Event: wall_time 1, step 2, and one more field with n bytes. */
static Status write_event(EventFile *f, int64_t step, int field, const void *data, size_t n)
{
    const double wall_s = clock_date_s();
    uint64_t bits;
    memcpy(&bits, &wall_s, sizeof bits);
    uint8_t *body = f->event + HEADER_BYTES, *at = body;
    at = put_little(put_field(at, 1, EIGHT_BYTES), bits, 8);
    at = put_varint(put_field(at, 2, VARINT), (uint64_t)step);
    at = put_bytes(at, field, data, n);
    size_t bytes = (size_t)(at - body);
    put_little(f->event, bytes, 8);
    put_little(f->event + 8, masked_sum(f->event, 8), 4);
    at = put_little(at, masked_sum(body, bytes), 4);
    return file_write(&f->file, f->event, (size_t)(at - f->event));
}

Status event_file_open(EventFile *f, const char *run_dir, const SeriesTable *t, Arena *a)
{
    char host[256] = "", name[FILE_PATH_MAX], path[FILE_PATH_MAX];
    void *buffer = NULL;
    size_t bytes = 0;
    for (int i = 0; i < t->n; i++) bytes += tag_bytes(&t->all[i]) + VALUE_BYTES;
    TRY(ARENA_NEW(a, bytes, &f->summary));
    TRY(ARENA_NEW(a, bytes + FIELDS_BYTES, &f->event));
    TRY(arena_alloc(a, BUFFER_BYTES, &buffer));
    (void)gethostname(host, sizeof host - 1);
    (void)snprintf(name, sizeof name, "events.out.tfevents.%010lld.%s.%ld", (long long)time(NULL),
                   host, (long)getpid());
    TRY(file_join(path, run_dir, name));
    TRY(file_open_append(&f->file, path, buffer, BUFFER_BYTES));
    static const char version[] = "brain.Event:2";
    return write_event(f, 0, 3, version, sizeof version - 1);
}

Status event_file_put(EventFile *f, int64_t step, const SeriesTable *t)
{
    static const uint8_t start[] = { 1 << 3 | VARINT, 1 }; /* SessionLog: status 1 is START */
    uint8_t *at = f->summary;
    if (!f->begun) TRY(write_event(f, step, 7, start, sizeof start));
    f->begun = true;
    for (int i = 0; i < t->n; i++) {
        if (t->all[i].fresh) at = put_value(at, &t->all[i]);
    }
    TRY(write_event(f, step, 5, f->summary, (size_t)(at - f->summary)));
    return file_flush(&f->file);
}

void event_file_close(EventFile *f) { file_close(&f->file); }
