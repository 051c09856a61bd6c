/*
 * Members of config.json, one after the other absent, null, bent, and doubled at other levels.
 * tests/golden/hf/folders.txt.zst has what becomes of each, for every family. tools/check_folders wrote it, and held
 * what is read to transformers' classes:
 *
 *     base NAME JSON
 *     PLACE.MEMBER <tab> VERDICT <tab> VALUE <tab> ...     of the last base; VALUE - : no such member
 *
 * VERDICT: refused, = (settings of the base), the settings that differ, or later: the member is read, but
 * then contradicts the tensors or the length of sequences.
 */
#include "harness/arena.h"
#include "harness/packed.h"

#include "convert/family.h"
#include "engine/base/file.h"

#define GOLDEN "tests/golden/hf/folders.txt.zst"

enum { VERDICT_BYTES = 1024 };

/* A parsed text, which a base is: members are changed in the tree. */
static Json *parse(const char *text)
{
    Json *json = NULL;
    size_t bad = 0;
    CHECK_OK(json_parse(text, strlen(text), &arena, &json, &bad));
    if (json == NULL) fail_msg("%s is not JSON at byte %zu", text, bad);
    return json;
}

static void drop_member(Json *object, const char *name)
{
    Json kept = json_of(JSON_OBJECT);
    for (Json *v = object->child; v != NULL; v = v->next) {
        if (strcmp(v->name, name) != 0) CHECK_OK(json_add(&arena, &kept, v->name, *v));
    }
    object->child = kept.child;
    object->last = kept.last;
}

/* place.member of the file gets the value; "-": it goes. */
static void change_member(Json *json, const char *member, const char *value)
{
    char place[64];
    const char *dot = strchr(member, '.');
    snprintf(place, sizeof place, "%.*s", (int)(dot - member), member);
    if (place[0] != '\0' && !json_is(json_get(json, place), JSON_OBJECT))
        CHECK_OK(json_put(&arena, json, place, json_of(JSON_OBJECT)));
    Json *object = place[0] == '\0' ? json : json_get(json, place);
    if (strcmp(value, "-") == 0)
        drop_member(object, dot + 1);
    else
        CHECK_OK(json_put(&arena, object, dot + 1, *parse(value)));
}

/* As from-hf reads a config.json. */
static Status read_settings(const Json *json, Config *c)
{
    const Family *family = NULL;
    CHECK_OK(config_default(c, &arena));
    TRY(family_read("config.json", json, &arena, c, &family));
    c->train_micro_batch = 1;
    return config_check(c);
}

/* A refusal is one sentence that shows no row of a table and no override. */
static void check_sentence(const char *member)
{
    char says[512];
    status_sentence(says, sizeof says);
    status_clear();
    if (strstr(says, "override ") != NULL || strchr(says, '~') != NULL ||
        strchr(says, '\n') != NULL)
        fail_msg("%s: %s", member, says);
}

static void verdict_of(const char *member, const Json *json, const Config *base, char *out)
{
    Config c;
    const ConfigChange *change = NULL;
    int n = 0, used = 0;
    if (read_settings(json, &c) != OK) {
        check_sentence(member);
        snprintf(out, VERDICT_BYTES, "refused");
        return;
    }
    snprintf(out, VERDICT_BYTES, "=");
    CHECK_OK(config_changes(base, &c, &arena, &change, &n));
    for (int i = 0; i < n; i++) {
        if (text_starts(change[i].row->name, "mtp.")) continue; /* from-hf counts their tensors */
        used += snprintf(out + used, (size_t)(VERDICT_BYTES - used), "%s%s=%s", used > 0 ? " " : "",
                         change[i].row->name, change[i].now);
    }
}

/* The next part of a line that tabs divide; *line goes behind it. */
static char *next_part(char **line)
{
    char *part = *line;
    size_t n = strcspn(part, "\t");
    *line = part[n] == '\0' ? NULL : part + n + 1;
    part[n] = '\0';
    return part;
}

static int check_line(char *line, const char *text, const Config *base)
{
    int n = 0;
    const char *member = next_part(&line), *want = next_part(&line);
    while (line != NULL) {
        char got[VERDICT_BYTES];
        const char *value = next_part(&line);
        ArenaMark mark = arena_mark(&arena);
        Json *json = parse(text);
        change_member(json, member, value);
        verdict_of(member, json, base, got);
        const bool fits =
            strcmp(want, "later") == 0 ? strcmp(got, "refused") != 0 : strcmp(got, want) == 0;
        if (!fits) fail_msg("%s %s: %s, wanted %s, in %s", member, value, got, want, text);
        arena_release(&arena, mark);
        n++;
    }
    return n;
}

static void members_are_read_as_their_class_reads_them_or_refused(void **state)
{
    const Packed golden = packed_read(GOLDEN);
    const char *text = NULL;
    char *base = NULL;
    Config c;
    int n = 0, bases = 0;
    (void)state;
    CHECK_OK(arena_text(&arena, golden.text, golden.bytes, &text));
    for (char *line = strtok((char *)(uintptr_t)text, "\n"); line != NULL;
         line = strtok(NULL, "\n")) {
        if (strncmp(line, "base ", 5) == 0) {
            base = strchr(line + 5, ' ') + 1;
            CHECK_OK(read_settings(parse(base), &c));
            bases++;
        } else if (line[0] != '#') {
            n += check_line(line, base, &c);
        }
    }
    CHECK(bases >= 50 && n >= 10000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(members_are_read_as_their_class_reads_them_or_refused),
    };
    return ARENA_RUN(tests);
}
