/* holdout: which tokens of a source are held out of training, for the held-out loss.
 *
 * A hash of (source name, document number) selects whole documents. So neither more text nor another
 * order of training moves a document to the other side. A source with few documents (a book in one
 * file) might have none held out, or none to train on. Then the end of the source is held out instead:
 * its last `share` of tokens, or its last packs of chats. Nothing depends on the seed, the sequence
 * length, the mesh or the step, so a resumed training holds out the same text. */
#ifndef CORPUS_SHARD_HOLDOUT_H
#define CORPUS_SHARD_HOLDOUT_H

#include "corpus/shard/shard.h"

typedef struct HoldOut {
    const char *name;          /* of the source; must live as long */
    double share;              /* data.validation */
    int64_t tail;              /* tokens at the end that are held out; 0: whole documents are */
    int64_t documents, tokens; /* held out, at least in part; in all */
} HoldOut;

HoldOut holdout_of(const Shard *s, const char *name, double share);

/* How many tokens of document d are held out (or, not `held`, trained on); *first: where they begin. */
int64_t holdout_part(const HoldOut *h, const Shard *s, int64_t d, bool held, int64_t *first);

/* Does the hash hold this document out? */
bool holdout_by_hash(const char *source, int64_t document, double share);

#endif
