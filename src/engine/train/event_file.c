/* event_file: protocol buffers by hand. A field is its number and wire type in one byte, then a varint
 * (0), eight bytes (1), a length and bytes (2), or four bytes (5). */
#include "engine/train/event_file.h"

#include "engine/base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { VARINT, EIGHT_BYTES, LENGTH, FOUR_BYTES = 5 };
enum { HEADER_BYTES = 12, FIELDS_BYTES = 64, VALUE_BYTES = 32, BUFFER_BYTES = 64 << 10 };
enum {
    WIDE_BYTES = 5,
    SETTING_BYTES = 256
}; /* of a length before it is known; besides the text of a setting */

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

/* A message whose length is not known yet. close_message gets what this returned. */
static uint8_t *open_message(uint8_t *at, int field)
{
    return put_field(at, field, LENGTH) + WIDE_BYTES;
}

/* A varint may be longer than it must be. */
static uint8_t *close_message(uint8_t *from, uint8_t *at)
{
    for (int i = 0; i < WIDE_BYTES; i++)
        from[i - WIDE_BYTES] =
            (uint8_t)(((size_t)(at - from) >> 7 * i & 0x7F) | (i < WIDE_BYTES - 1 ? 0x80 : 0));
    return at;
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

/* ---- the configuration ---- */

/* A tensor of one string for the plugin of texts. A page shows it as Markdown, so the YAML stands between fences. */
static uint8_t *put_yaml(uint8_t *at, const Text *yaml)
{
    static const char tag[] = "configuration/text_summary", fence[] = "```\n";
    static const uint8_t plugin[] = {
        9 << 3 | LENGTH, 8, 1 << 3 | LENGTH, 6, 1 << 3 | LENGTH, 4, 't', 'e', 'x', 't'
    };
    static const uint8_t one_string[] = { 1 << 3 | VARINT, 7, 2 << 3 | LENGTH, 4,
                                          2 << 3 | LENGTH, 2, 1 << 3 | VARINT, 1 };
    uint8_t *value = open_message(at, 1);
    at = put_bytes(value, 1, tag, sizeof tag - 1);
    at = (uint8_t *)memcpy(at, plugin, sizeof plugin) + sizeof plugin;
    uint8_t *tensor = open_message(at, 8);
    at = (uint8_t *)memcpy(tensor, one_string, sizeof one_string) + sizeof one_string;
    uint8_t *text = open_message(at, 8);
    at = (uint8_t *)memcpy(text, fence, sizeof fence - 1) + sizeof fence - 1;
    at = (uint8_t *)memcpy(at, yaml->data, yaml->used) + yaml->used;
    at = (uint8_t *)memcpy(at, fence, sizeof fence - 1) + sizeof fence - 1;
    return close_message(value, close_message(tensor, close_message(text, at)));
}

/* An entry of SessionStartInfo's map: a name, and a number, a bool or a text. `printed` is the value as YAML. */
static uint8_t *put_setting(uint8_t *at, const ConfigRow *row, const Config *c, const char *printed)
{
    uint8_t *entry = open_message(at, 1);
    uint8_t *value = open_message(put_bytes(entry, 1, row->name, strlen(row->name)), 2);
    if (row->type == CONFIG_TEXT)
        printed = *(const char *const *)(const void *)((const char *)c + row->offset);
    if (row->type == CONFIG_INT || row->type == CONFIG_REAL) {
        const double number = strtod(printed, NULL);
        uint64_t bits;
        memcpy(&bits, &number, sizeof bits);
        at = put_little(put_field(value, 2, EIGHT_BYTES), bits, 8);
    } else if (row->type == CONFIG_BOOL) {
        at = put_varint(put_field(value, 4, VARINT), *printed == 't');
    } else {
        at = put_bytes(value, 3, printed, strlen(printed));
    }
    return close_message(entry, close_message(value, at));
}

/* The settings that most people choose, and others that have not their defaults, for the plugin of hyperparameters: as
 * the start of a session, which lies in the plugin's content. */
static Status put_settings(uint8_t **at, const Config *c, const ConfigChange *changed, int n,
                           Text *text)
{
    static const char tag[] = "_hparams_/session_start_info", plugin[] = "hparams";
    uint8_t *value = open_message(*at, 1);
    uint8_t *metadata = open_message(put_bytes(value, 1, tag, sizeof tag - 1), 9);
    uint8_t *data = open_message(metadata, 1);
    uint8_t *content = open_message(put_bytes(data, 1, plugin, sizeof plugin - 1), 2);
    uint8_t *info = open_message(content, 3), *to = info;
    for (const ConfigRow *row = config_rows; row < config_rows + config_row_count; row++) {
        text->used = 0;
        TRY(config_print_value(row, c, text));
        const bool differs = n > 0 && changed->row == row;
        if (differs) changed++, n--;
        if (row->level == CONFIG_PLAN || (row->level == CONFIG_EXPERT && !differs)) continue;
        to = put_setting(to, row, c, text->data);
    }
    to = close_message(data, close_message(content, close_message(info, to)));
    *at = close_message(value, close_message(metadata, to));
    return OK;
}

/* Made once, for the first event. No text of a setting is longer than the YAML. */
static Status make_about(EventFile *f, const Config *c, Arena *a)
{
    Text yaml = { 0 }, text = { 0 };
    Config plain;
    const ConfigChange *changed = NULL;
    int n = 0;
    TRY(config_default(&plain, a));
    TRY(config_changes(&plain, c, a, &changed, &n));
    TRY(text_init(&yaml, a));
    TRY(config_print(c, &yaml));
    const int64_t settings = 1 + config_row_count;
    TRY(ARENA_NEW(a, 2 * (int64_t)yaml.used + settings * SETTING_BYTES, &f->about));
    TRY(text_init(&text, a));
    uint8_t *at = put_yaml(f->about, &yaml);
    TRY(put_settings(&at, c, changed, n, &text));
    f->about_bytes = (size_t)(at - f->about);
    return OK;
}

Status event_file_open(EventFile *f, const char *run_dir, const Config *c, const SeriesTable *t,
                       Arena *a)
{
    char host[256] = "", name[FILE_PATH_MAX], path[FILE_PATH_MAX];
    void *buffer = NULL;
    size_t bytes = 0;
    for (int i = 0; i < t->n; i++) bytes += tag_bytes(&t->all[i]) + VALUE_BYTES;
    TRY(ARENA_NEW(a, bytes, &f->summary));
    TRY(make_about(f, c, a));
    const size_t most = bytes > f->about_bytes ? bytes : f->about_bytes;
    TRY(ARENA_NEW(a, most + FIELDS_BYTES, &f->event));
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
    if (!f->begun) TRY(write_event(f, step, 5, f->about, f->about_bytes));
    f->begun = true;
    for (int i = 0; i < t->n; i++) {
        if (t->all[i].fresh) at = put_value(at, &t->all[i]);
    }
    TRY(write_event(f, step, 5, f->summary, (size_t)(at - f->summary)));
    return file_flush(&f->file);
}

void event_file_close(EventFile *f) { file_close(&f->file); }
