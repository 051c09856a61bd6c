/* The first line is a number that chooses a row of `words`, the rest is a word that this row reads: of an option, of a
 * file's name. Each refuses it with a sentence or keeps its limits. */
#include "app/eval_data.h"
#include "app/options/words.h"
#include "engine/base/log.h"
#include "engine/checkpoint/checkpoint_folder.h"
#include "harness/fuzz.h"
#include "planner/search/verify.h"

enum { NUMBERS_MAX = 16 };

static Status tokens(const char *word, const Fuzz *f)
{
    double n = 0;
    (void)f;
    TRY(words_tokens(word, &n));
    need(n >= 1 && n <= 1e18);
    return OK;
}

static Status cluster(const char *word, const Fuzz *f)
{
    const char *gpu = NULL;
    int64_t gpus = 0;
    TRY(words_cluster(word, f->a, &gpu, &gpus));
    need(gpus >= 1 && gpus <= 100000000 && *gpu != '\0');
    return OK;
}

static Status scale(const char *word, const Fuzz *f)
{
    int64_t gpus[NUMBERS_MAX];
    int n = 0;
    (void)f;
    TRY(words_scale(word, NUMBERS_MAX, gpus, &n));
    need(n >= 1 && n <= NUMBERS_MAX);
    for (int i = 0; i < n; i++) need(gpus[i] >= 1 && gpus[i] <= 100000000);
    return OK;
}

static Status launcher(const char *word, const Fuzz *f)
{
    ProcessWords *words = NULL;
    TRY(ARENA_ZEROED(f->a, 1, &words));
    TRY(verify_words(words, f->a, word));
    need(words->n <= PROCESS_WORDS_MAX);
    for (int i = 0; i < words->n; i++) need(strpbrk(words->word[i], " ") == NULL);
    return OK;
}

static Status verified(const char *word, const Fuzz *f)
{
    VerifyRun run = { 0 };
    char *said = NULL;
    TRY(ARENA_NEW(f->a, strlen(word) + 1, &said));
    memcpy(said, word, strlen(word) + 1);
    TRY(verify_read(said, f->a, &run));
    need(run.ran ? run.step_s > 0 && run.tokens_per_s > 0 : run.why[0] != '\0');
    return OK;
}

static Status level(const char *word, const Fuzz *f)
{
    (void)f;
    TRY(log_set_level_named(word));
    log_set_level(LOG_INFO);
    return OK;
}

static Status checkpoint(const char *word, const Fuzz *f)
{
    int64_t step = 0;
    (void)f;
    if (folder_step(word, &step)) need(step >= 0);
    return OK;
}

/* Bytes of the word are ids of tokens. */
static Status ids(const char *word, const Fuzz *f)
{
    int32_t *id = NULL;
    int64_t n = 0;
    TRY(eval_read_tokens(fuzz_file("ids", word, strlen(word)), 1 << 20, f->a, &id, &n));
    for (int64_t i = 0; i < n; i++) need(id[i] >= 0 && id[i] < 1 << 20);
    return OK;
}

static FuzzRow *const words[] = {
    tokens, cluster, scale, launcher, verified, level, checkpoint, ids
};

static Status look(Fuzz *f) { return fuzz_row(f, words, sizeof words / sizeof *words); }

const Fuzzer fuzzer = { .look = look, .most_bytes = 2048 };
