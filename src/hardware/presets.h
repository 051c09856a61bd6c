/* presets: the YAML texts of share/hardware/, which the build embeds into the program (tools/embed_presets). */
#ifndef HARDWARE_PRESETS_H
#define HARDWARE_PRESETS_H

#include "engine/config/config_doc.h"

extern const ConfigPreset hardware_presets[];
extern const int hardware_presets_n;

#endif
