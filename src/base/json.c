/* json: the writer declared in text.h. A comma is due before every value and key but the first of
 * its object or array, and not between a key and its value: that is all the state there is. */
#include "base/text.h"

#include <assert.h>
#include <string.h>

enum { DEPTH_MAX = sizeof((Json *)0)->first / sizeof(bool) };

static Status put(Json *j, const char *s) { return text_append(j->text, s, strlen(s)); }

static Status comma(Json *j)
{
    bool due = !j->after_key && !j->first[j->depth];
    j->after_key = false;
    j->first[j->depth] = false;
    return due ? put(j, ",") : OK;
}

Json json_begin(Text *text)
{
    Json j = { .text = text };
    j.first[0] = true;
    return j;
}

static Status open_level(Json *j, const char *bracket)
{
    assert(j->depth + 1 < DEPTH_MAX);
    TRY(comma(j));
    j->first[++j->depth] = true;
    return put(j, bracket);
}

static Status close_level(Json *j, const char *bracket)
{
    assert(j->depth > 0 && !j->after_key);
    j->depth--;
    return put(j, bracket);
}

Status json_object(Json *j) { return open_level(j, "{"); }
Status json_object_end(Json *j) { return close_level(j, "}"); }
Status json_array(Json *j) { return open_level(j, "["); }
Status json_array_end(Json *j) { return close_level(j, "]"); }

Status json_key(Json *j, const char *key)
{
    TRY(comma(j));
    j->after_key = true;
    return text_json(j->text, "%s:", key);
}

Status json_string(Json *j, const char *s)
{
    TRY(comma(j));
    return text_json(j->text, "%s", s);
}

Status json_double(Json *j, double v)
{
    TRY(comma(j));
    return text_json(j->text, "%g", v);
}

Status json_number(Json *j, const char *key, double v)
{
    TRY(json_key(j, key));
    return json_double(j, v);
}

Status json_int(Json *j, int64_t v)
{
    TRY(comma(j));
    return text_json(j->text, "%lld", (long long)v);
}
