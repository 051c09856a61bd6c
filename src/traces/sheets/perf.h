/*
 * perf: how much work a call of an operator is, from its name and the shapes of its arguments.
 *
 * It counts the least work: each tensor is moved once, and a multiply-add is two operations. What a
 * kernel moves in fact (caches, padding, workspaces) is not in a trace. Times are not looked at
 * here: see perf_rates.c. docs/reference/trace.md, "Work of operators", has the formulas.
 */
#ifndef TRACES_SHEETS_PERF_H
#define TRACES_SHEETS_PERF_H

#include "traces/sheets/perf_query.h"

/* The work of a call. out->sheet is NULL if the operator has no model, or if the arguments are
 * not what the model needs. */
Status perf_model(const Events *e, const PerfQuery *q, Arena *a, Perf *out);
/* Does an operator of that name have a model? */
bool perf_has_model(const char *name, const struct PerfRules *rules);

/* The category of an operator; first_kernel: the name of the first kernel that it launched, or
 * NULL. */
const char *perf_category(const char *name, const char *first_kernel);
/* The same; where that is "other", words in either name decide. */
const char *perf_category_by_words(const char *name, const char *first_kernel);

#endif
