/* help_table: --help for programs. `switchyard data prepare --help=table` prints what --help says,
 * as rows of fields separated by tabs. tools/make_help makes man pages, completions and
 * docs/reference/command-line.md from it.
 *
 *     name       switchyard data prepare
 *     what       Turn .jsonl files ...
 *     arguments  FILE...                     positional arguments, as --help shows them
 *     example    switchyard data prepare ...
 *     option     NAME KIND VALUE DEFAULT RULE HELP
 *     command    prepare HELP                a command below this one
 *
 * KIND is flag, number, word (VALUE has all words, separated by |) or text. RULE is required,
 * repeated or empty. In a field \n is a new line, \t a tab and \\ a backslash. */
#ifndef APP_OPTIONS_HELP_TABLE_H
#define APP_OPTIONS_HELP_TABLE_H

#include "app/options/command.h"

/* Is `word` --help=table? */
bool help_table_asked(const char *word);

/* Print the rows of a command, or of a command that only has commands below it. */
Status help_table_command(const Command *c);
Status help_table_group(const char *program, const Subcommand *rows, int n);

#endif
