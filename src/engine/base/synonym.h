/* synonym: names that people know from other trainers (Megatron-LM, TorchTitan, Hugging Face, DeepSpeed) or from 0.9.0,
 * and what they are here, for the end of an error's sentence. The table is share/names.tsv; tools/names makes C of it, and
 * tables of docs/guides/coming-from-megatron-or-torchtitan.md. */
#ifndef ENGINE_BASE_SYNONYM_H
#define ENGINE_BASE_SYNONYM_H

/* `typed`: "--lr", "zero_optimization.stage", of a value "=bfloat16", of an address "s3://". `ours` is a setting, an option
 * or a word. It ends in `=` where the value means the same here, and has a value where there is only one. "": there is
 * nothing of the kind, and `note` says why. */
typedef struct Synonym {
    const char *typed, *whose, *ours, *note;
} Synonym;

extern const Synonym synonyms[];
extern const int synonyms_n;

/* The row of a name, or else of what follows its last dot; the row of a value; that of an address. NULL: there is none.
 * Capitals, leading dashes, and `-` for `_` make no difference. */
const Synonym *synonym_of(const char *name);
const Synonym *synonym_of_value(const char *value);
const Synonym *synonym_of_address(const char *path);

/* "write optimizer.lr=1e-3" with the value that was typed, "it is optimizer.lr here" with NULL; or the note. */
enum { SYNONYM_BYTES = 320 };
const char *synonym_answer(char out[SYNONYM_BYTES], const Synonym *s, const char *value);

/* A whole number that was written as 4_096, 1k, 2M, 1e3 or 1,024, in digits; of a k "1000 or 1024". NULL: it is none. */
enum { SYNONYM_NUMBER_BYTES = 64 };
const char *synonym_number(char out[SYNONYM_NUMBER_BYTES], const char *text);

#endif
