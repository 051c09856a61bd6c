/* data parquet: prints columns of Parquet files as JSON lines. */
#include "app/options/options.h"
#include "beside/beside.h"
#include "parquet/parquet.h"

static Status print_files(void *state, int n, char **arguments, Arena *a, Text *out)
{
    const OptionTexts *fields = state;
    (void)out;
    for (int i = 0; i < n; i++) {
        const ArenaMark mark = arena_mark(a);
        TRY(parquet_print(arguments[i], fields->at, fields->n, a));
        arena_release(a, mark);
    }
    return OK;
}

Status beside_run(int argc, char **argv)
{
    OptionTexts fields = { 0 };
    const Option table[] = {
        { "--field", OPTION_TEXTS, &fields, "NAME",
          .help =
              "a column of text, or of lists of text or whole numbers; a.b is b of the group a; "
              "may be repeated",
          .required = true },
    };
    const Command command = {
        .name = "switchyard data parquet",
        .arguments = "FILE...",
        .what =
            "Print columns of Parquet files as JSON lines, one object for each row. A null is an "
            "empty text or list. `switchyard data prepare` reads .parquet files with this "
            "command. Use it for two columns, such as the prompts and answers that `switchyard "
            "data chat` reads.",
        .example = "switchyard data parquet --field prompt --field answer qa.parquet >qa.jsonl",
        OPTIONS(table, 1, -1),
    };
    return options_run(&command, argc, argv, print_files, &fields);
}
