/*
 * fields: the table that maps members of config.json to our settings. It is read in both
 * directions: fields.c reads a config.json, fields_write.c writes one.
 *
 * Keys separated by | are alternatives, in the order in which the class of transformers prefers them. +
 * marks the one that is written; without a mark it is the first. A key ~NAME is a member of the object
 * of rotary positions: rope_scaling, or rope_parameters where that is absent, null or empty. `words` has
 * pairs THEIRS=OURS, and the kinds of rope.scaling that have the member.
 *
 * Between JSON and settings a value is text, as config_override accepts it. `absent` is the text to use
 * for a member that is missing, or that is null with a word for null: the default of the family's class.
 * NULL: the setting keeps its default. REQUIRED: the member must exist, because the class's default is
 * the size of a published model. @NAME: the value of a setting that is earlier in the table.
 */
#ifndef CONVERT_FIELDS_H
#define CONVERT_FIELDS_H

#include "convert/family.h"

typedef enum FieldKind {
    SET,    /* the setting's value */
    TRAIN,  /* like SET, for a setting that affects only training */
    CONST,  /* no member: the setting has this value in all models of the family */
    IS,     /* no setting: the family is supported only with this value */
    NEUTER, /* like IS, but never written: a member of other models */
    MSCALE, /* no other than the two factors that the family's class uses */
    WRITE,  /* written, never read */
    FIRST,  /* a list of layers that must be the first ones; the setting is their number */
    TOPK,   /* DeepSeek-V2's topk_method: groups, and whether the router has a bias */
    WIDTH,  /* the width of the shared experts: moe.shared times moe.ffn */
    TYPES,  /* the list layer_types, which is redundant and only checked */
    TEMPER, /* whether layers without positions multiply their queries */
    QUANT,  /* quantization_config: read, never written */
    MOES,   /* the list of layers with experts */
    NOPES,  /* a list with 0 for each layer without positions */
    LINEARS /* the list layer_types of a family with gated delta nets */
} FieldKind;

/* A row of the table. `key` NULL: the file has no such member; `setting` NULL: we have no such
 * setting. */
typedef struct Field {
    unsigned families;
    FieldKind kind;
    const char *key, *setting, *absent, *words;
} Field;

#define FIELD_REQUIRED "!"
#define FIELD_HEAD     "@head" /* model.hidden / attention.heads */

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

/* The i-th alternative of a key. *rope: it is a member of the object of rotary positions. *written: it is
 * the one that is written. False: there are no more. */
bool field_place(const char *keys, int i, FieldValue name, bool *rope, bool *written);
/* The name of the alternative that is written. True: of the object of rotary positions. */
bool field_written(const char *keys, FieldValue name);
/* The member that the first alternative which is there names; NULL: there is none. `rope`: the object of
 * rotary positions, or NULL. */
Json *field_member(const Json *json, const Json *rope, const char *keys);
/* Does a model with this kind of rope.scaling have the member? */
bool field_applies(const Field *f, const char *scaling);
/* The members of rotary positions that the family's class takes if the file has none, as JSON; NULL: it
 * takes positions that are not scaled. */
const char *field_rope_absent(unsigned family);
/* Members that were refused, and the sentence of the first. */
typedef struct Refusals {
    int n;
    char why[256];
} Refusals;

/* family_read that goes on behind a member that it refuses. */
Status family_read_on(const char *path, const Json *json, Arena *a, Config *c,
                      const Family **family, Refusals *refused);

/* A text as JSON: null, true, false, a number, or a string. With `real` a number gets a decimal point,
 * and its spelling is in `room`, which must live as long. */
Json field_json(const char *text, bool real, FieldValue room);

#endif
