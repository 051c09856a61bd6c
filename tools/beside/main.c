/* main of the programs beside switchyard, which has checked processor and stack. */
#include "beside/beside.h"

#include "engine/base/file_changed.h"
#include "engine/base/log.h"
#include "engine/base/out.h"

#include <stdlib.h>

int main(int argc, char **argv)
{
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): there is only one thread yet */
    const char *level = getenv("SWITCHYARD_LOG");
    out_begin();
    file_changed_catch();
    Status s = level == NULL ? OK : log_set_level_named(level);
    if (s == OK) s = beside_run(argc, argv);
    if (s == OK) s = out_end();
    /* what reads as damaged may have been cut while it was read */
    if ((s == OK || s == ERR_FORMAT || s == ERR_IO) && file_changed_check() != OK) s = ERR_CHANGED;
    if (s != OK && s != ERR_CLOSED) log_failure(LOG_ERROR, "%s", "");
    return status_exit_code(s);
}
