/* config_doc: YAML documents as libyaml's trees, and what all readers of such trees need: places
 * for sentences, keys, scalars. */
#ifndef CONFIG_CONFIG_DOC_H
#define CONFIG_CONFIG_DOC_H

#include "base/arena.h"

#include <stdbool.h>
#include <yaml.h>

enum { CONFIG_PLACE_BYTES = 192, CONFIG_SHOWN_CHARS = 60, CONFIG_FOUND_BYTES = 96 };

/* One YAML document and where it came from. */
typedef struct ConfigDoc {
    const char *name; /* a file; or an override as it was typed */
    bool typed;       /* an override: no lines and columns in messages */
    Arena *arena;     /* takes copies of texts */
    yaml_document_t yaml;
} ConfigDoc;

/* A YAML text that the build put into the program (tools/embed_presets). */
typedef struct ConfigPreset {
    const char *name, *yaml;
} ConfigPreset;

/* The preset of that name; if there is none, ERR_ARG: "WHAT NAME, did you mean NAME?" with the
 * nearest, or `otherwise` behind it. */
Status config_preset_find(const ConfigPreset *presets, int n, const char *name, const char *what,
                          const char *otherwise, const ConfigPreset **out);

/* The one document in the text. Close with config_doc_close, also after a failure. */
Status config_doc_open(ConfigDoc *d, const char *yaml, size_t yaml_bytes);
void config_doc_close(ConfigDoc *d);
const yaml_node_t *config_node(ConfigDoc *d, int index);

/* "FILE:LINE:COLUMN" or "override KEY=VALUE". */
const char *config_place(char out[CONFIG_PLACE_BYTES], const ConfigDoc *d, yaml_mark_t at);

/* Is the node empty? So is a file or a section in which everything is commented out. */
bool config_is_nothing(const yaml_node_t *n);
/* ERR_ARG unless the node is a mapping; `what` names it. */
Status config_need_mapping(const ConfigDoc *d, const yaml_node_t *n, const char *what);
/* The text of a pair's key. ERR_ARG if an earlier pair of the mapping has the same key. */
Status config_key_text(ConfigDoc *d, const yaml_node_t *map, const yaml_node_pair_t *pair,
                       const char **out);

/* "PLACE: NAME is WHAT STANDS THERE, must be WANTED" */
Status config_wrong(const ConfigDoc *d, const yaml_node_t *n, const char *name, const char *wanted);

/* The text of a scalar; NULL for other nodes and for a scalar with a NUL in it. */
const char *config_scalar_text(const yaml_node_t *n);
/* An unquoted decimal number (no nan, inf or hexadecimal). */
bool config_scalar_number(const yaml_node_t *n, double *out);
/* Says what a node is, for a sentence: "a list", "5", "the text \"x\"". */
const char *config_found(char out[CONFIG_FOUND_BYTES], const yaml_node_t *n);

#endif
