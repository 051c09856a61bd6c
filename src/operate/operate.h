/* operate: the door of the command `doctor`, which checks machines before a run. */
#ifndef OPERATE_OPERATE_H
#define OPERATE_OPERATE_H

#endif
