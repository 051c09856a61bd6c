/* log: messages for people, on stderr: a lowercase sentence, values after words. Rank 0 speaks from
 * info, others from warn. The progress line is rewritten in place on a terminal and printed as an
 * ordinary line now and then elsewhere; any log line first ends it. */
#ifndef BASE_LOG_H
#define BASE_LOG_H

#include "base/status.h"

#include <stdbool.h>

typedef enum LogLevel { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG } LogLevel;

/* Messages above this level are dropped: --verbose, --quiet, SWITCHYARD_LOG. LOG_INFO unless set. */
void log_set_level(LogLevel least);
LogLevel log_level(void);
Status log_set_level_named(const char *name);

/* Sets the rank that the calling thread logs for (0 unless set), and a file that gets its messages
 * from info on (-1: none). Ranks above 0 write to stderr from warn on, behind their number. */
void log_rank(int rank, int fd);
/* Stops what this thread writes to stderr: rank 0 says it for all. */
void log_quiet(void);

void log_message(LogLevel level, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* The last failure behind a text: its sentence, and from LOG_DEBUG on the source locations. */
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
