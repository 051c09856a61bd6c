/* operate: the door of what keeps trainings alive: the commands `supervise` and `doctor`. */
#ifndef OPERATE_OPERATE_H
#define OPERATE_OPERATE_H

#endif
