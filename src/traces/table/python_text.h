/* python_text: values as Python prints them. Sheets show arguments this way, because users read
 * them into Python again. It reads no Python. */
#ifndef TRACES_TABLE_PYTHON_TEXT_H
#define TRACES_TABLE_PYTHON_TEXT_H

#include "engine/base/text.h"

/* A JSON value in Python's form: [[8, 4], []] or, with `tuples`, ((8, 4), ()). What is not JSON
 * is copied as it is. */
Status python_value(Text *out, const char *json, bool tuples);
/* A text in quotes, as repr() writes it. */
Status python_string(Text *out, const char *s, size_t n);
/* "np.float64(1.5)" */
Status python_float64(Text *out, double x);

#endif
