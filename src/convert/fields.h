/*
 * fields: the table that maps members of config.json to our settings. It is read in both
 * directions: fields.c reads a config.json, fields_write.c writes one.
 *
 * Keys with | between are alternatives. A key ~NAME lies in rope_scaling or rope_parameters, as the
 * generation of the file has it. `words` holds pairs THEIRS=OURS, or the kinds of rope.scaling for
 * which the member is written.
 *
 * Between JSON and settings a value is text, as config_override takes it. `absent` is the text of a
 * member that is missing, or that is null and has no word for null. NULL: the setting keeps its
 * fallback. REQUIRED: the member must be there. @NAME: the value of another setting, which stands
 * earlier in the table.
 */
#ifndef CONVERT_FIELDS_H
#define CONVERT_FIELDS_H

#include "convert/family.h"

typedef enum FieldKind {
    SET,   /* the setting's value */
    TRAIN, /* the same, for a setting that changes only the training */
    CONST, /* no member: the setting has this value in all models of the family */
    IS,    /* no setting: the family is supported with this value alone */
    WRITE, /* written, never read */
    FIRST, /* a list of layers that must be the first ones; the setting is their number */
    TOPK,  /* DeepSeek-V2's topk_method: groups, and whether the router has a bias */
    WIDTH, /* the width of the shared experts: moe.shared times moe.ffn */
    TYPES, /* the list layer_types, which repeats what other members say */
    QUANT, /* quantization_config: read, never written */
    MOES,  /* the list of layers with experts */
    NOPES  /* a list with 0 for each layer without positions */
} FieldKind;

typedef struct Field {
    unsigned families;
    FieldKind kind;
    const char *key, *setting, *absent, *words;
} Field;

enum { FIELD_VALUE_BYTES = 64 };
typedef char FieldValue[FIELD_VALUE_BYTES];

extern const Field fields[];
extern const int field_count;

/* The row of a setting in rows.def, which has it. */
const ConfigRow *field_row(const char *setting);
/* The value of a setting as text. */
Status field_setting_text(const Config *c, const char *setting, Arena *a, FieldValue out);
/* Replaces a text by the other side of its pair; a text without a pair stays. */
void field_translate(const char *words, bool to_ours, FieldValue text);
/* Are two texts the same number, or else the same word? */
bool field_same_value(const char *a, const char *b);

/* The i-th place of a key: the name of the object ("" is the whole file) and of the member. False:
 * there is no such place. */
bool field_place(const char *keys, int i, const char **object, FieldValue name);
/* The object of that name in the file; NULL: there is none. */
Json *field_object(Json *json, const char *name);
/* The member that one of the alternatives names; NULL: there is none. */
Json *field_member(const Json *json, const char *keys);
/* A text as JSON: null, true, false, a number (with `real` one with a point, written in `room`), or
 * else a string. */
Json field_json(const char *text, bool real, FieldValue room);

#endif
