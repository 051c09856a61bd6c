/* Any lines as the words of a launcher: refused with a sentence, or hosts and ranks. When a host is left out, the words
 * for the others can be read again. The first line names spare hosts; from a line of %% on it is a hostfile, for which
 * HOSTFILE stands. */
#include "harness/fuzz.h"
#include "supervise/hosts.h"

enum { WORDS_MAX = 64 };

static Status read_again(const Launch *l, Arena *a)
{
    Launch again;
    ProcessWords *words = NULL;
    TRY(ARENA_ZEROED(a, 1, &words));
    TRY(launch_words(l, a, words));
    need(words->n <= PROCESS_WORDS_MAX);
    return words->n == 0 ? OK : launch_read(words->word, words->n, NULL, a, &again);
}

static Status look(Fuzz *f)
{
    const char *word[WORDS_MAX], *spare = NULL;
    Launch *l = NULL;
    FuzzPart words = fuzz_part(f, "\n%%\n");
    const char *hosts = fuzz_file("hosts", f->data, f->bytes);
    f->data = words.data;
    f->bytes = words.bytes;
    const int n = fuzz_words(f, &spare, 1) == 1 ? fuzz_words(f, word, WORDS_MAX) : 0;
    for (int i = 0; i < n; i++)
        if (strcmp(word[i], "HOSTFILE") == 0) word[i] = hosts;
    TRY(ARENA_ZEROED(f->a, 1, &l));
    TRY(launch_read(word, n, spare != NULL && *spare != '\0' ? spare : NULL, f->a, l));
    need(l->ranks >= 0 && l->n_hosts <= LAUNCH_HOSTS_MAX && l->words.n == n);
    for (int i = 0; i < l->n_hosts; i++) need(l->host[i].slots >= 0 && *l->host[i].name != '\0');
    for (int i = 0; i < l->n_hosts && i < 4; i++) {
        LaunchHost *host = launch_host(l, l->host[i].name);
        if (host == NULL) continue;
        (void)launch_leave_out(l, host);
        need(l->ranks >= 0);
        (void)read_again(l, f->a);
        status_clear();
    }
    return OK;
}

const Fuzzer fuzzer = { .look = look, .most_bytes = 4096 };
