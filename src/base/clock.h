/* clock: seconds of a clock that never goes back, and what the kernel says of this process. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stddef.h>

double clock_s(void);            /* CLOCK_MONOTONIC */
size_t process_peak_bytes(void); /* VmHWM; 0 if the system does not say */
size_t process_now_bytes(void);  /* VmRSS */

#endif
