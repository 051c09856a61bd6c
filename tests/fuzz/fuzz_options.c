/* Any lines as the words of a command line: refused with a sentence, or values within the limits of their table. */
#include "app/options/options.h"
#include "engine/base/log.h"
#include "harness/fuzz.h"

#include <math.h>

enum { WORDS_MAX = 64 };

static struct {
    bool flag;
    int again, choice;
    int64_t whole, free;
    double real, open;
    const char *path, *text;
    OptionInts wholes;
    OptionTexts texts;
} of;

static const Option table[] = {
    { "--flag", OPTION_FLAG, &of.flag, NULL, .help = "" },
    { "--again", OPTION_SWITCH, &of.again, "auto|never", .help = "" },
    { "--choice", OPTION_CHOICE, &of.choice, "one|two|three", .help = "" },
    { "--whole", OPTION_INT, &of.whole, "N", .help = "", .min = 1, .max = 1e6 },
    { "--free", OPTION_INT, &of.free, "N", .help = "" },
    { "--real", OPTION_REAL, &of.real, "X", .help = "", .min = 0, .max = 1 },
    { "--open", OPTION_REAL, &of.open, "X", .help = "" },
    { "--path", OPTION_TEXT, &of.path, "FILE", .help = "" },
    { "--text", OPTION_TEXT, &of.text, "TEXT", .help = "", .required = true },
    { "--wholes", OPTION_INTS, &of.wholes, "N", .help = "", .min = -5, .max = 5 },
    { "--texts", OPTION_TEXTS, &of.texts, "NAME", .help = "" },
};

static const Command command = { .name = "switchyard fuzz", .what = "", OPTIONS(table, 1, 3) };

static Status look(Fuzz *f)
{
    const char *word[WORDS_MAX + 1] = { command.name };
    char *argv[WORDS_MAX + 1];
    int positional = 0;
    bool help = false;
    const int n = 1 + fuzz_words(f, word + 1, WORDS_MAX);
    for (int i = 0; i < n; i++) {
        if (strncmp(word[i], "--help", 6) == 0 || strcmp(word[i], "-h") == 0)
            return OK;                            /* prints */
        memcpy(&argv[i], &word[i], sizeof *word); /* nothing writes to the words */
    }
    memset(&of, 0, sizeof of);
    of.whole = 1;
    log_set_level(LOG_INFO);
    TRY(options_parse(&command, n, argv, &positional, &help));
    need(!help && positional >= 1 && positional <= 3 && of.text != NULL);
    need(of.whole >= 1 && of.whole <= 1000000 && of.real >= 0 && of.real <= 1 && !isnan(of.open));
    need(of.choice >= 0 && of.choice < 3 && of.again >= 0 && of.again <= 3);
    need(of.wholes.n <= OPTION_LIST_MAX && of.texts.n <= OPTION_LIST_MAX);
    for (int i = 0; i < of.wholes.n; i++) need(of.wholes.at[i] >= -5 && of.wholes.at[i] <= 5);
    need(of.path == NULL || *of.path != '\0');
    return OK;
}

const Fuzzer fuzzer = { .look = look, .most_bytes = 4096 };
