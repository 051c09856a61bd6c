/* library: the door of the library. Other houses include nothing of it: include/switchyard.h is for programs. */
#ifndef LIBRARY_LIBRARY_H
#define LIBRARY_LIBRARY_H

#endif
