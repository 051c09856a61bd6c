/* fuzz: what all fuzzers share. A fuzzer includes this and defines `fuzzer`; fuzz.c calls it for each input.
 *
 * Arenas and files stay from input to input: a map of many MiB or a file on a disk for each input took more time than
 * most parsers. Files are memory (memfd); a folder of such files is a folder of links to them. */
#ifndef HARNESS_FUZZ_H
#define HARNESS_FUZZ_H

#include "engine/base/file.h"
#include "engine/base/text.h"

#include <string.h>

/* An input while it is looked at. `data` and `bytes` are what fuzz_part has not taken yet. */
typedef struct Fuzz {
    const uint8_t *data;
    size_t bytes;
    Arena *a;    /* empty again for each input */
    Arena *page; /* the same, for a text that grows beside others */
} Fuzz;

/* look: parses one input. An error must leave a sentence. What a parser takes is checked with need(). */
typedef struct Fuzzer {
    Status (*look)(Fuzz *f);
    size_t most_bytes; /* longer inputs are left out; 0: 16 KiB */
} Fuzzer;

extern const Fuzzer fuzzer;

/* Like assert: ends the process, which is how a fuzzer finds something. */
#define need(condition) ((condition) ? (void)0 : fuzz_found(__FILE__, __LINE__, #condition))
_Noreturn void fuzz_found(const char *file, int line, const char *condition);

/* What `make` makes for the first input, with memory that stays. One for each fuzzer. */
typedef Status FuzzMake(Arena *a, void **out);
const void *fuzz_once(FuzzMake *make);

/* A copy of all that is left, with a NUL behind it, so that a read beyond the end is a report. */
const char *fuzz_text(const Fuzz *f);

/* Takes the part before the next `end`, and that; all that is left if there is none. */
typedef struct FuzzPart {
    const uint8_t *data;
    size_t bytes;
} FuzzPart;
FuzzPart fuzz_part(Fuzz *f, const char *end);

/* Takes lines as words, at most `most`. The words lie in f->a; returns how many. */
int fuzz_words(Fuzz *f, const char **word, int most);

/* The first line is a number that chooses one of n rows, which gets the rest as a text. */
typedef Status FuzzRow(const char *text, const Fuzz *f);
Status fuzz_row(Fuzz *f, FuzzRow *const *row, size_t n);

/* The path of a file with this content, good until the next call with the same name. */
const char *fuzz_file(const char *name, const void *data, size_t bytes);
/* The folder that holds these files. */
const char *fuzz_folder(void);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

#endif
