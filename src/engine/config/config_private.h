/* config_private: functions that the files of this folder share: presets, documents and rows. Other
 * folders use config.h, or config_doc.h for YAML of their own. */
#ifndef ENGINE_CONFIG_CONFIG_PRIVATE_H
#define ENGINE_CONFIG_CONFIG_PRIVATE_H

#include "engine/config/config.h"
#include "engine/config/config_doc.h"

/* The build makes this table from share/presets/. */
extern const ConfigPreset config_presets[];
extern const int config_presets_n;

/* Reads every section and row of a document into *c. `run`: arguments of plan are refused (CONFIG_RUN). */
Status config_doc_read(ConfigDoc *d, Config *c, bool run);
/* Reads the top-level key `preset` and its position; both are unchanged if there is none. */
Status config_doc_preset(ConfigDoc *d, const char **name, char place[CONFIG_PLACE_BYTES]);

/* Is this a removed setting with its old default? Then it is ignored. */
bool config_row_was(const char *name, const yaml_node_t *value);

/* Finds the row "section.key"; an error suggests the nearest row and begins with `place`. `value`: as it was typed, for
 * a sentence that repeats it, or NULL. `run`: an argument of plan is an error, too. */
Status config_row_find(const char *place, const char *name, const char *value, bool run,
                       const ConfigRow **out);

/* config_check's part on data.sources and data.curriculum. */
Status config_check_data(const Config *c);

/* Reads a node, or the literal text of a TEXT row, into the row's field of *c. */
Status config_value_read(ConfigDoc *d, const ConfigRow *row, const yaml_node_t *node, Config *c);
Status config_value_literal(const ConfigDoc *d, const ConfigRow *row, const char *text, Config *c);

#endif
