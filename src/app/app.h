/* app: the door of app: what other houses may include of it. */
#ifndef APP_APP_H
#define APP_APP_H

/* options: command lines, `--help`, ranks as threads: all commands use them */
#include "app/options/cli.h"
#include "app/options/options.h"
#include "app/options/words.h"

#endif
