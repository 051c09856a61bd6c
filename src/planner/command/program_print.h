/* program_print: a rank's list of actions as text, as SQL's EXPLAIN prints a plan. For people: programs read the
 * formats of docs/reference/formats.md.
 *
 *    12     3.107     3.220 comm    forward micro 0 slot 0: layer 2 moe.dispatch out 3 waits 4
 *
 * says: the 13th action, from 3.107 to 3.220 ms of the simulated step, on the comm lane, is the phase "dispatch" of
 * the third layer's forward; it waits for event 4; its pass writes entry 3. Links carry transfers. */
#ifndef PLANNER_COMMAND_PROGRAM_PRINT_H
#define PLANNER_COMMAND_PROGRAM_PRINT_H

#include "engine/base/text.h"
#include "engine/schedule/simulate.h"

/* Appends a line for each action. span: by action; NULL: without times. */
Status program_print(const Program *p, const SimSpan *span, Text *out);

#endif
