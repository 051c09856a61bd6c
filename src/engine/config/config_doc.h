/* config_doc: YAML documents as libyaml trees, and helpers for everyone who reads such trees:
 * positions for error messages, keys, scalars. It knows nothing of settings; config.h does. */
#ifndef ENGINE_CONFIG_CONFIG_DOC_H
#define ENGINE_CONFIG_CONFIG_DOC_H

#include "engine/base/arena.h"

#include <stdbool.h>
#include <yaml.h>

enum { CONFIG_PLACE_BYTES = 192, CONFIG_SHOWN_CHARS = 60, CONFIG_FOUND_BYTES = 96 };

/* One YAML document and where it came from. */
typedef struct ConfigDoc {
    const char *name; /* a file's name; or an override as it was typed */
    bool typed;       /* an override: messages have no lines and columns */
    Arena *arena;     /* for copies of texts */
    yaml_document_t yaml;
} ConfigDoc;

/* A YAML text that the build embeds in the program (tools/embed_presets). */
typedef struct ConfigPreset {
    const char *name, *yaml;
} ConfigPreset;

/* Finds a preset by name, ignoring case. If there is none, ERR_ARG: "WHAT NAME, did you mean NAME?"
 * with the nearest name, or "WHAT NAME" followed by `otherwise`. */
Status config_preset_find(const ConfigPreset *presets, int n, const char *name, const char *what,
                          const char *otherwise, const ConfigPreset **out);

/* Parses the only document in the text. Call config_doc_close afterwards, even if this fails. */
Status config_doc_open(ConfigDoc *d, const char *yaml, size_t yaml_bytes);
void config_doc_close(ConfigDoc *d);
const yaml_node_t *config_node(ConfigDoc *d, int index);

/* "FILE:LINE:COLUMN" or "override KEY=VALUE". */
const char *config_place(char out[CONFIG_PLACE_BYTES], const ConfigDoc *d, yaml_mark_t at);

/* Is the node empty? A file or section in which everything is commented out counts as empty. */
bool config_is_nothing(const yaml_node_t *n);
/* ERR_ARG unless the node is a mapping; `what` names it. */
Status config_need_mapping(const ConfigDoc *d, const yaml_node_t *n, const char *what);
/* The text of a pair's key. ERR_ARG if an earlier pair of the mapping has the same key. */
Status config_key_text(ConfigDoc *d, const yaml_node_t *map, const yaml_node_pair_t *pair,
                       const char **out);

/* Fails with "PLACE: NAME is WHAT WAS FOUND, must be WANTED". */
Status config_wrong(const ConfigDoc *d, const yaml_node_t *n, const char *name, const char *wanted);

/* The text of a scalar; NULL for other nodes and for a scalar with a NUL in it. */
const char *config_scalar_text(const yaml_node_t *n);
/* An unquoted decimal number (no nan, inf or hexadecimal). */
bool config_scalar_number(const yaml_node_t *n, double *out);
/* Describes a node for an error message: "a list", "5", "the text \"x\"". */
const char *config_found(char out[CONFIG_FOUND_BYTES], const yaml_node_t *n);

#endif
