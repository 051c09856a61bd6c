/* orphans: processes of a launcher: those that it does not wait for, and those that it leaves behind. */
#ifndef SUPERVISE_ORPHANS_H
#define SUPERVISE_ORPHANS_H

#include <sys/types.h>

/* A child of the launcher that has ended, but that the launcher has not waited for; 0: none. */
pid_t orphans_unreaped(pid_t launcher);

/* After orphans_adopt, what a launcher leaves behind becomes a child of this process. orphans_end waits up to grace_s
 * for the end of all children that there are, then kills them, and returns how many it killed. */
void orphans_adopt(void);
int orphans_end(double grace_s);

#endif
