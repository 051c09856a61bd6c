/* planner: the door of the planner: questions and answers; and the command `plan`. */
#ifndef PLANNER_PLANNER_H
#define PLANNER_PLANNER_H

#include "planner/answer.h"

/* page: HTML pages of plans and pipelines */
#include "planner/page/pipeline_page.h"

#include "planner/report.h"

/* search: all legal layouts, bounds, trials on a machine, intervals */
#include "planner/search/verify.h"

/* stack: other software as numbers: Megatron, Primus, torchtitan; their configuration files */
#include "planner/stack/stack.h"

#endif
