/* formula_private: what the reader and the arithmetic of formula sheets share. */
#ifndef PLAN_FORMULA_PRIVATE_H
#define PLAN_FORMULA_PRIVATE_H

#include "config/config_doc.h"
#include "plan/formula.h"

/* The build makes this table from formula/ (tools/embed_presets). */
extern const ConfigPreset formula_presets[];
extern const int formula_presets_n;

/* May a definition be called that? */
bool formula_is_name(const char *name);

/* ERR_ARG if the text is no expression. Names are not looked up. */
Status formula_check(const FormulaDef *def);

#endif
