/* charset_table: rows of names and characters of Unicode 16. The build makes them of share/unicode16.txt; tools/make_unicode,
 * which wrote that, says what the numbers are. */
#ifndef CORPUS_TOKENIZER_CHARSET_TABLE_H
#define CORPUS_TOKENIZER_CHARSET_TABLE_H

extern const char *const charset_table[]; /* "NAME|NAME... NUMBERS" */
extern const int charset_table_n;

#endif
