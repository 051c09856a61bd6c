/* log: messages for people, on stderr: a lowercase sentence with values after words. Rank 0 writes from
 * info on, other ranks from warn on. On a terminal the progress line is redrawn in place; elsewhere it
 * is printed as an ordinary line every 10 s. Any other message first ends it with a newline. Metrics
 * are not logs: train/ writes those to files. */
#ifndef ENGINE_BASE_LOG_H
#define ENGINE_BASE_LOG_H

#include "engine/base/status.h"

#include <stdbool.h>

typedef enum LogLevel { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG } LogLevel;

/* Messages above this level are dropped: --verbose, --quiet, SWITCHYARD_LOG. LOG_INFO unless set. */
void log_set_level(LogLevel least);
LogLevel log_level(void);
Status log_set_level_named(const char *name);

/* Sets the rank for which the calling thread logs (0 unless set), and a file that receives its
 * messages too (-1: none). On stderr, ranks above 0 write from warn on, after "rank N: ". */
void log_rank(int rank, int fd);
/* Keeps this thread's messages off stderr, because rank 0 writes the same ones. */
void log_quiet(void);

void log_message(LogLevel level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Logs the text, then the last failure: its sentence, and at LOG_DEBUG also its kind and the source locations. After
 * log_kinds the kind is always there, "[communication]": for `supervise`, which reads it. */
void log_kinds(void);
void log_failure(LogLevel level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Is stderr a terminal, where a line can be redrawn? */
bool log_on_terminal(void);
/* Replace the progress line. Not on a terminal: printed at most every 10 s, and always if `last`.
 */
void log_progress(bool last, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define log_error(...) log_message(LOG_ERROR, __VA_ARGS__)
#define log_warn(...)  log_message(LOG_WARN, __VA_ARGS__)
#define log_info(...)  log_message(LOG_INFO, __VA_ARGS__)
#define log_debug(...) log_message(LOG_DEBUG, __VA_ARGS__)

#endif
