/* corpus: the door of the corpus: tokenizers, preparation, shards, the loader; and the command `data`. */
#ifndef CORPUS_CORPUS_H
#define CORPUS_CORPUS_H

/* command: commands that users give, read as files or run beside the program */
#include "corpus/command/beside.h"
#include "corpus/command/fetch.h"

/* prepare: files to documents to shards, on many threads, with a journal; duplicates left out */
#include "corpus/prepare/documents.h"

/* shard: PREFIX.bin and PREFIX.idx, the loader, mixing of sources, what is held out */
#include "corpus/shard/fingerprint.h"
#include "corpus/shard/holdout.h"
#include "corpus/shard/loader.h"
#include "corpus/shard/origin.h"
#include "corpus/shard/shard.h"

/* tokenizer: tokenizer.json, patterns of other programs, classes of characters */
#include "corpus/tokenizer/tokenizer.h"
#include "corpus/tokenizer/tokenizer_private.h"

#endif
