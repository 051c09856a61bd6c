/* config_private: what the files of this folder share: a document, places for messages, rows. */
#ifndef CONFIG_CONFIG_PRIVATE_H
#define CONFIG_CONFIG_PRIVATE_H

#include "config/config.h"

#include <yaml.h>

enum { CONFIG_PLACE_BYTES = 192, CONFIG_SHOWN_CHARS = 60 };

/* One YAML document and where it came from. */
typedef struct ConfigDoc {
    const char *name; /* a file; or an override as it was typed */
    bool typed;       /* an override: no lines and columns in messages */
    Arena *arena;     /* takes copies of texts */
    yaml_document_t yaml;
} ConfigDoc;

/* The build makes this table from presets/ (tools/embed_presets). */
typedef struct ConfigPreset {
    const char *name, *yaml;
} ConfigPreset;

extern const ConfigPreset config_presets[];
extern const int config_presets_n;

/* The one document in the text. Close with config_doc_close, also after a failure. */
Status config_doc_open(ConfigDoc *d, const char *yaml, size_t yaml_bytes);
void config_doc_close(ConfigDoc *d);
/* Every section and row of a document into *c. */
Status config_doc_read(ConfigDoc *d, Config *c);
/* The text of the top-level key `preset` and where it stands; unchanged if there is none. */
Status config_doc_preset(ConfigDoc *d, const char **name, char place[CONFIG_PLACE_BYTES]);

/* "FILE:LINE:COLUMN" or "override KEY=VALUE". */
const char *config_place(char out[CONFIG_PLACE_BYTES], const ConfigDoc *d, yaml_mark_t at);

/* "section.key" to its row; a failure names the nearest row. `place` goes in front. */
Status config_row_find(const char *place, const char *name, const ConfigRow **out);

/* The text of a scalar; NULL for other nodes and for a scalar with a NUL in it. */
const char *config_scalar_text(const yaml_node_t *n);

/* A node, or the literal text of a TEXT row, into the row's field of *c. */
Status config_value_read(ConfigDoc *d, const ConfigRow *row, const yaml_node_t *node, Config *c);
Status config_value_literal(const ConfigDoc *d, const ConfigRow *row, const char *text, Config *c);

#endif
