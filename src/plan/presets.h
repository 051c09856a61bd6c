/* presets: texts that the build puts into the program (tools/embed_presets): hardware/. */
#ifndef PLAN_PRESETS_H
#define PLAN_PRESETS_H

#include "config/config_doc.h"

extern const ConfigPreset hardware_presets[];
extern const int hardware_presets_n;

#endif
