/* prepare_place: a folder with a tokenizer, for tests that prepare text. */
#ifndef CORPUS_UNIT_PREPARE_PLACE_H
#define CORPUS_UNIT_PREPARE_PLACE_H

#include "corpus/prepare/prepare.h"
#include "corpus/tokenizer/tokenizer.h"
#include "harness/place.h"
#include "harness/texts.h"

static const char TRAINING[] = "the cat sat on the mat and the rat sat on the hat of the cat\n";

/* Of `again`, `lines` and `data` no file is there. */
typedef struct Place {
    char folder[64];
    char tokenizer[FILE_PATH_MAX], out[FILE_PATH_MAX], again[FILE_PATH_MAX];
    char text[FILE_PATH_MAX], lines[FILE_PATH_MAX], data[FILE_PATH_MAX];
    const char *files[2];
    Arena arena;
    Tokenizer *loaded;
    PrepareConfig config; /* of `files` */
} Place;

/* The tokenizer is learned from TRAINING, which `text` holds. */
static inline void place_prepare(Place *p)
{
    *p = (Place){ 0 };
    place_make(p->folder, &p->arena);
    CHECK_OK(file_join(p->tokenizer, p->folder, "tokenizer.json"));
    CHECK_OK(file_join(p->out, p->folder, "out"));
    CHECK_OK(file_join(p->again, p->folder, "again"));
    CHECK_OK(file_join(p->text, p->folder, "a.txt"));
    CHECK_OK(file_join(p->lines, p->folder, "b.jsonl"));
    CHECK_OK(file_join(p->data, p->folder, "data"));
    write_text(p->text, TRAINING);
    p->loaded = learn_tokenizer(p->text, 260, p->tokenizer, &p->arena);
    p->config = (PrepareConfig){ .tokenizer = p->tokenizer, .out = p->out, .files = p->files };
}

static inline int place_close(void **state)
{
    Place *p = *state;
    tokenizer_free(p->loaded);
    place_drop(p->folder, &p->arena);
    return 0;
}

#endif
