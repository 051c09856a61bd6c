/* tokenizer_private: the data of a tokenizer, for tokenizer*.c and tools/tokenizer. There are two kinds of
 * vocabularies. In a byte-level one tokens are bytes; in one of characters they are texts, and there is a
 * token for each byte of characters that are no tokens (byte fall-back). The file of a byte-level
 * vocabulary writes each byte as one printable character. Bytes that are printable in Latin-1 represent
 * themselves; the other 68 are, in order, the characters from U+0100 on (Radford et al. 2019). In memory
 * tokens are bytes again. */
#ifndef CORPUS_TOKENIZER_TOKENIZER_PRIVATE_H
#define CORPUS_TOKENIZER_TOKENIZER_PRIVATE_H

#include "corpus/tokenizer/added.h"
#include "corpus/tokenizer/normalize.h"
#include "corpus/tokenizer/split.h"
#include "corpus/tokenizer/tokenizer.h"

#include <stdbool.h>
#include <string.h>

enum {
    TOKENIZER_ALPHABET = 256 + 68, /* one past the last code point that stands for a byte */
    TOKENIZER_MAX_VOCAB =
        1 << 24, /* far above any published one; bounds the tables of a bad file */
    TOKENIZER_NO_TOKEN = -1,
    TOKENIZER_CLASSES = 256,
    TOKENIZER_SIGN = 0x80, /* no character begins with this byte */
};

typedef struct TokenText {
    const char *bytes;
    int32_t n;
    bool whole; /* a piece with these bytes is this token, without a look at the merges */
} TokenText;

typedef struct TokenSlot {
    uint32_t tag; /* upper half of the hash of the bytes */
    int32_t id;   /* TOKENIZER_NO_TOKEN: empty */
} TokenSlot;

typedef struct MergeSlot {
    int32_t left, right; /* left TOKENIZER_NO_TOKEN: empty */
    uint32_t rank;       /* place in the list of merges: the smallest goes first */
    int32_t result;
} MergeSlot;

struct Tokenizer { /* all in the arena of tokenizer_load */
    int32_t vocab, end_of_text;
    bool of_characters;     /* the kind of vocabulary; otherwise byte-level */
    bool adds_space;        /* encoding puts a space before the text, which decoding takes away */
    TokenText *token;       /* (vocab); no bytes: special, or no token has this id */
    const TokenText *shown; /* (vocab): what ids decode to: special ones to nothing */
    int32_t byte_id[256];
    TokenSlot *slot;  /* hash table: bytes of a token to its id */
    MergeSlot *merge; /* hash table: pair of ids to their merge */
    uint64_t slot_mask, merge_mask;
    const uint8_t *joins; /* (class, class): 0: no token has such characters beside each other;
                           * NULL: not known */
    const char *sign;     /* for a space, in a vocabulary of characters */
    Splitter splitter;
    Normalizer normalizer, metaspace; /* the second one's steps come after the added tokens */
    size_t growth;                    /* ids of a text of n bytes: at most this many times n */
    AddedSet added[ADDED_SETS];
};

/* The document separator of files that this program trains. */
#define TOKENIZER_END_OF_TEXT "<|endoftext|>"

/* The code point that stands for a byte; the byte that a code point stands for, or -1. */
int32_t tokenizer_code_point(uint8_t byte);
int tokenizer_byte(uint32_t code_point);

/* tokenizer_load from memory; `name` is for messages. */
Status tokenizer_parse(const char *name, const char *text, size_t bytes, Arena *a, Tokenizer **out);

/* The least power of two that is at least n, and at least 16. So a mask replaces a division. */
uint64_t tokenizer_slots(int64_t n);

/* Make empty tables; find an id by its bytes (or TOKENIZER_NO_TOKEN); add tokens and merges. */
Status tokenizer_tables(Tokenizer *t, int64_t n_tokens, Arena *a);
Status tokenizer_merge_table(Tokenizer *t, int64_t n_merges, Arena *a);
int32_t tokenizer_find(const Tokenizer *t, const char *bytes, int32_t n);
void tokenizer_put(Tokenizer *t, int32_t id);
void tokenizer_put_merge(Tokenizer *t, int32_t left, int32_t right, uint32_t rank, int32_t result);

/* The class of the character that begins at a byte of a text: its first byte, or TOKENIZER_SIGN for the
 * sign of a space. -1: no character begins there. */
static inline int tokenizer_class(const Tokenizer *t, const char *at, int32_t n)
{
    uint8_t lead = (uint8_t)*at;
    if (lead < 0x80) return lead;
    if (lead < 0xC0) return -1;
    size_t n_sign = strlen(t->sign);
    bool sign = (size_t)n >= n_sign && memcmp(at, t->sign, n_sign) == 0 && n_sign > 1;
    return sign ? TOKENIZER_SIGN : lead;
}

/* Find the tokens of single bytes. ERR_UNSUPPORTED: a byte has none; `name` is the file's. */
Status tokenizer_find_bytes(Tokenizer *t, const char *name);

/* Appends the ids of a piece that no shortcut knows. The piece has n bytes. */
Status tokenizer_merge(const Tokenizer *t, const char *piece, int32_t n, Arena *scratch,
                       int32_t *ids, int64_t *n_ids);

/* Find the tokens that their own bytes are encoded to; `all`: every one that has bytes. */
Status tokenizer_mark_whole(Tokenizer *t, bool all, Arena *scratch);

#endif
