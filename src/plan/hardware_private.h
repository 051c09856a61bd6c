/* hardware_private: what the reader, the checks and the table of presets share. */
#ifndef PLAN_HARDWARE_PRIVATE_H
#define PLAN_HARDWARE_PRIVATE_H

#include "config/config_doc.h"
#include "plan/hardware.h"

/* The build makes this table from hardware/ (tools/embed_presets). */
extern const ConfigPreset hardware_presets[];
extern const int hardware_presets_n;

/* Every section of a text into *h, and what is missing; not what rows say of each other. */
Status hardware_read(Hardware *h, Arena *a, const char *name, const char *yaml, size_t yaml_bytes);

/* A type's curve and peak. */
const HardwareCurve *hardware_curve(const Hardware *h, OpWork work, HardwareDtype dtype);

#endif
