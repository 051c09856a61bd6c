/*
 * fields: the table that maps members of config.json to our settings. It is read in both
 * directions: fields.c reads a config.json, fields_write.c writes one.
 *
 * Keys separated by | are alternatives. A key ~NAME is a member of rope_scaling or of rope_parameters,
 * depending on the version of transformers that wrote the file. `words` has pairs THEIRS=OURS, or the
 * kinds of rope.scaling for which the member is written.
 *
 * Between JSON and settings a value is text, as config_override accepts it. `absent` is the text to use
 * for a member that is missing, or that is null without a word for null. NULL: the setting keeps its
 * default. REQUIRED: the member must exist. @NAME: the value of a setting that is earlier in the table.
 */
#ifndef CONVERT_FIELDS_H
#define CONVERT_FIELDS_H

#include "convert/family.h"

typedef enum FieldKind {
    SET,   /* the setting's value */
    TRAIN, /* like SET, for a setting that affects only training */
    CONST, /* no member: the setting has this value in all models of the family */
    IS,    /* no setting: the family is supported only with this value */
    WRITE, /* written, never read */
    FIRST, /* a list of layers that must be the first ones; the setting is their number */
    TOPK,  /* DeepSeek-V2's topk_method: groups, and whether the router has a bias */
    WIDTH, /* the width of the shared experts: moe.shared times moe.ffn */
    TYPES, /* the list layer_types, which is redundant and only checked */
    QUANT, /* quantization_config: read, never written */
    MOES,  /* the list of layers with experts */
    NOPES  /* a list with 0 for each layer without positions */
} FieldKind;

/* A row of the table. `key` NULL: the file has no such member; `setting` NULL: we have no such
 * setting. */
typedef struct Field {
    unsigned families;
    FieldKind kind;
    const char *key, *setting, *absent, *words;
} Field;

enum { FIELD_VALUE_BYTES = 64 };
typedef char FieldValue[FIELD_VALUE_BYTES];

extern const Field fields[];
extern const int field_count;

/* The row of a setting; the name must exist in rows.def. */
const ConfigRow *field_row(const char *setting);
/* The value of a setting as text. */
Status field_setting_text(const Config *c, const char *setting, Arena *a, FieldValue out);
/* Replaces a text by the other side of its pair; a text without a pair is unchanged. */
void field_translate(const char *words, bool to_ours, FieldValue text);

/* The i-th location that a key allows: the names of the object ("" is the whole file) and of the member.
 * False: there are no more. */
bool field_place(const char *keys, int i, const char **object, FieldValue name);
/* The object of that name in the file; NULL: there is none. */
Json *field_object(Json *json, const char *name);
/* The member that one of the alternatives names; NULL: there is none. */
Json *field_member(const Json *json, const char *keys);
/* A text as JSON: null, true, false, a number, or a string. With `real` a number gets a decimal point,
 * and its spelling is in `room`, which must live as long. */
Json field_json(const char *text, bool real, FieldValue room);

#endif
