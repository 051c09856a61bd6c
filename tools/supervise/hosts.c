/* hosts: two tables of options, one for each launcher, and lists of hosts. */
#include "supervise/hosts.h"

#include "engine/base/file.h"
#include "engine/base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What an option of a launcher says. */
typedef enum OptionSays { SAYS_HOSTS, SAYS_HOSTFILE, SAYS_RANKS, SAYS_NODES, SAYS_EACH } OptionSays;

typedef struct LaunchOption {
    LaunchKind kind;
    const char *name;
    OptionSays says;
} LaunchOption;

static const LaunchOption options[] = {
    { LAUNCH_MPIRUN, "--host", SAYS_HOSTS },
    { LAUNCH_MPIRUN, "-host", SAYS_HOSTS },
    { LAUNCH_MPIRUN, "-H", SAYS_HOSTS },
    { LAUNCH_MPIRUN, "--hostfile", SAYS_HOSTFILE },
    { LAUNCH_MPIRUN, "-hostfile", SAYS_HOSTFILE },
    { LAUNCH_MPIRUN, "--machinefile", SAYS_HOSTFILE },
    { LAUNCH_MPIRUN, "-machinefile", SAYS_HOSTFILE },
    { LAUNCH_MPIRUN, "-n", SAYS_RANKS },
    { LAUNCH_MPIRUN, "--n", SAYS_RANKS },
    { LAUNCH_MPIRUN, "-np", SAYS_RANKS },
    { LAUNCH_MPIRUN, "--np", SAYS_RANKS },
    { LAUNCH_MPIRUN, "-c", SAYS_RANKS },
    { LAUNCH_SRUN, "-w", SAYS_HOSTS },
    { LAUNCH_SRUN, "--nodelist", SAYS_HOSTS },
    { LAUNCH_SRUN, "-n", SAYS_RANKS },
    { LAUNCH_SRUN, "--ntasks", SAYS_RANKS },
    { LAUNCH_SRUN, "-N", SAYS_NODES },
    { LAUNCH_SRUN, "--nodes", SAYS_NODES },
    { LAUNCH_SRUN, "--ntasks-per-node", SAYS_EACH },
    { LAUNCH_RANKS, "--ranks", SAYS_RANKS },
};

/* Counts of the words; 0: not given. */
typedef struct Counts {
    int ranks, nodes, each;
} Counts;

enum { RANKS_MAX = 1000000 };

static Status read_count(const char *option, const char *text, int *out)
{
    char *end = NULL;
    const long n = strtol(text, &end, 10);
    if (end == text || *end != '\0' || n < 1 || n > RANKS_MAX)
        return FAIL(ERR_ARG, "supervise: %s %.60s is not a number from 1 to 1,000,000", option,
                    text);
    *out = (int)n;
    return OK;
}

/* ---- lists of hosts ---- */

static Status add_host(Launch *l, const char *name, size_t n, int slots, LaunchUse use, Arena *a)
{
    for (int i = 0; i < l->n_hosts; i++) { /* mpirun takes a host twice as two slots */
        LaunchHost *h = &l->host[i];
        if (h->use != use || strlen(h->name) != n || strncmp(h->name, name, n) != 0) continue;
        if (h->slots > RANKS_MAX - slots)
            return FAIL(ERR_ARG, "supervise: host %.60s has more than %d slots", h->name,
                        RANKS_MAX);
        h->slots += slots;
        return OK;
    }
    if (l->n_hosts == LAUNCH_HOSTS_MAX)
        return FAIL(ERR_ARG, "supervise: there are more than %d hosts", LAUNCH_HOSTS_MAX);
    LaunchHost *h = &l->host[l->n_hosts];
    *h = (LaunchHost){ .slots = slots, .use = use };
    TRY(arena_text(a, name, n, &h->name));
    l->n_hosts++;
    return OK;
}

/* "a:2,b:2"; `slots` where there is no colon. */
static Status add_list(Launch *l, const char *option, const char *list, int slots, LaunchUse use,
                       Arena *a)
{
    if (strpbrk(list, "[]") != NULL)
        return FAIL(ERR_ARG, "supervise: %s %.100s has brackets: write the names of hosts out",
                    option, list);
    for (size_t n; *list != '\0'; list += n + (list[n] == ',')) {
        char count[16] = "";
        int here = slots;
        n = strcspn(list, ",");
        const size_t name = strcspn(list, ":,");
        if (name == 0)
            return FAIL(ERR_ARG, "supervise: %s has an empty name before \"%.60s\"", option, list);
        if (name < n) {
            (void)snprintf(count, sizeof count, "%.*s", (int)(n - name - 1), list + name + 1);
            TRY(read_count(option, count, &here));
        }
        TRY(add_host(l, list, name, here, use, a));
    }
    return OK;
}

/* A line of mpirun's hostfile, as Open MPI 4.1 reads it: a name, then words such as slots=2 or max_slots = 4. */
static Status add_host_line(Launch *l, const char *path, char *line, Arena *a)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
    static const char blanks[] = " \t\r=";
    char *rest = NULL;
    const char *name = strtok_r(line, blanks, &rest);
    int slots = 0, most = 0;
    if (name == NULL) return OK;
    if (name[strspn(name, letters)] != '\0')
        return FAIL(ERR_ARG, "%s: %.60s is not the name of a host alone", path, name);
    for (const char *key; (key = strtok_r(NULL, blanks, &rest)) != NULL;) {
        const char *value = strtok_r(NULL, blanks, &rest);
        const bool max = strstr(key, "max") != NULL, count = strcmp(key, "slots") == 0 ||
                                                             strcmp(key, "cpu") == 0 ||
                                                             strcmp(key, "count") == 0;
        if (!max && !count)
            return FAIL(ERR_ARG,
                        "%s: host %.60s: %.60s is not understood, only slots= and max_slots=", path,
                        name, key);
        TRY(read_count(key, value == NULL ? "" : value, max ? &most : &slots));
    }
    TRY(add_host(l, name, strlen(name), slots > 0 ? slots : most > 0 ? most : 1, LAUNCH_USED, a));
    LaunchHost *h = &l->host[l->n_hosts - 1];
    while (strcmp(h->name, name) != 0) h--;
    h->bare = slots + most == 0 && h->slots == 1;
    return OK;
}

/* # and // begin a comment. mpirun takes a name without slots, which stands there once, for the cores of that host. */
static Status add_hostfile(Launch *l, const char *path, Arena *a)
{
    char *text = NULL, *rest = NULL;
    size_t bytes = 0;
    bool any = false;
    TRY(file_read_input(path, a, &text, &bytes));
    for (char *line = strtok_r(text, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        char *comment = strstr(line, "//");
        if (comment != NULL) *comment = '\0';
        line[strcspn(line, "#")] = '\0';
        any = any || line[strspn(line, " \t\r")] != '\0';
        TRY(add_host_line(l, path, line, a));
    }
    if (!any) return FAIL(ERR_ARG, "%s names no host: write a line such as node1 slots=8", path);
    for (int i = 0; i < l->n_hosts; i++)
        if (l->host[i].bare)
            return FAIL(ERR_ARG,
                        "%s: host %.60s: how many ranks it takes is not said: write slots=N", path,
                        l->host[i].name);
    return OK;
}

/* ---- reading ---- */

static Status take(Launch *l, const LaunchOption *o, const char *value, Counts *c, Arena *a)
{
    switch (o->says) {
    case SAYS_HOSTS: return add_list(l, o->name, value, 1, LAUNCH_USED, a);
    case SAYS_HOSTFILE: return add_hostfile(l, value, a);
    case SAYS_RANKS: return read_count(o->name, value, &c->ranks);
    case SAYS_NODES: return read_count(o->name, value, &c->nodes);
    default: return read_count(o->name, value, &c->each);
    }
}

/* The option that a word is, "--ntasks=4" too; *value: its value in the same word, or NULL. */
static const LaunchOption *option_of(LaunchKind kind, const char *word, const char **value)
{
    const size_t n = strcspn(word, "=");
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        const LaunchOption *o = &options[i];
        if (o->kind != kind || strlen(o->name) != n || strncmp(o->name, word, n) != 0) continue;
        *value = word[n] == '=' ? word + n + 1 : NULL;
        return o;
    }
    return NULL;
}

static Status kind_of(const char *word, LaunchKind *out)
{
    static const char *const mpi[] = { "mpirun", "mpiexec", "orterun", "prterun" };
    const char *slash = strrchr(word, '/'), *name = slash == NULL ? word : slash + 1;
    for (size_t i = 0; i < sizeof mpi / sizeof *mpi; i++)
        if (strcmp(name, mpi[i]) == 0) return *out = LAUNCH_MPIRUN, OK;
    if (strcmp(name, "srun") == 0) return *out = LAUNCH_SRUN, OK;
    if (text_starts(word, "--ranks")) return *out = LAUNCH_RANKS, OK;
    return FAIL(ERR_ARG,
                "supervise: %.80s after -- is no launcher: write --ranks N, or mpirun or srun with "
                "its options; the command itself is not written there",
                word);
}

/* mpirun takes a rank for each slot, srun the same number of ranks on each node. */
static Status share_out(Launch *l, const Counts *c)
{
    int64_t slots = 0;
    int used = 0;
    for (int i = 0; i < l->n_hosts; i++) {
        used += l->host[i].use == LAUNCH_USED;
        if (l->host[i].use == LAUNCH_USED) slots += l->host[i].slots;
    }
    const int nodes = c->nodes > 0 ? c->nodes : used;
    int64_t ranks = c->ranks > 0 ? c->ranks : (int64_t)c->each * nodes;
    if (ranks == 0 && l->kind == LAUNCH_MPIRUN) ranks = slots;
    if (ranks > RANKS_MAX)
        return FAIL(ERR_ARG,
                    "supervise: the launcher would start %lld ranks, at most %d are possible",
                    (long long)ranks, RANKS_MAX);
    l->ranks = (int)ranks;
    if (l->kind != LAUNCH_SRUN || nodes == 0) return OK;
    for (int i = 0; i < l->n_hosts; i++) l->host[i].slots = (l->ranks + nodes - 1) / nodes;
    return OK;
}

Status launch_read(const char *const *words, int n, const char *spare, Arena *a, Launch *out)
{
    Counts c = { 0 };
    *out = (Launch){ 0 };
    if (n == 0)
        return FAIL(ERR_ARG, "supervise: there is nothing after --: write --ranks N, or mpirun or "
                             "srun with its options");
    TRY(kind_of(words[0], &out->kind));
    TRY(ARENA_NEW(a, LAUNCH_HOSTS_MAX, &out->host));
    for (int i = 0; i < n; i++) {
        const char *value = NULL;
        const LaunchOption *o = option_of(out->kind, words[i], &value);
        TRY(process_word(&out->words, words[i]));
        if (o == NULL && out->kind == LAUNCH_RANKS)
            return FAIL(ERR_ARG, "supervise: %.80s after --ranks N: nothing else belongs there",
                        words[i]);
        if (o == NULL) TRY(process_word(&out->rest, words[i]));
        if (o == NULL) continue;
        if (value == NULL && i + 1 == n)
            return FAIL(ERR_ARG, "supervise: %s after -- lacks its value", words[i]);
        if (value == NULL) TRY(process_word(&out->words, value = words[++i]));
        TRY(take(out, o, value, &c, a));
    }
    if (spare != NULL && out->kind == LAUNCH_RANKS)
        return FAIL(ERR_ARG, "supervise: --spare %.60s: ranks of --ranks have no hosts", spare);
    if (spare != NULL) TRY(add_list(out, "--spare", spare, 1, LAUNCH_SPARE, a));
    return share_out(out, &c);
}

Status launch_learn(Launch *l, const RankBeat *rank, int n, Arena *a)
{
    bool named = l->kind == LAUNCH_RANKS;
    for (int i = 0; i < l->n_hosts; i++) named |= l->host[i].use != LAUNCH_SPARE;
    if (l->ranks == 0) l->ranks = n;
    if (named || n < l->ranks) return OK;
    for (int i = 0; i < n; i++)
        TRY(add_host(l, rank[i].host, strlen(rank[i].host), 1, LAUNCH_USED, a));
    return OK;
}

/* ---- leaving out ---- */

static bool same_host(const char *a, const char *b)
{
    const size_t n = strcspn(a, "."), m = strcspn(b, ".");
    const bool number =
        strspn(a, "0123456789.") == strlen(a); /* dots of an address are no domain */
    return strcmp(a, b) == 0 ||
           (!number && n == m && strncmp(a, b, n) == 0 && (a[n] == '\0' || b[m] == '\0'));
}

LaunchHost *launch_host(const Launch *l, const char *name)
{
    for (int i = 0; i < l->n_hosts; i++)
        if (l->host[i].use == LAUNCH_USED && same_host(l->host[i].name, name)) return &l->host[i];
    return NULL;
}

LaunchHost *launch_leave_out(Launch *l, LaunchHost *host)
{
    host->use = LAUNCH_OUT;
    l->changed = true;
    for (int i = 0; i < l->n_hosts; i++) {
        LaunchHost *h = &l->host[i];
        if (h->use != LAUNCH_SPARE) continue;
        h->use = LAUNCH_USED;
        h->slots = host->slots;
        return h;
    }
    int64_t left = 0;
    for (int i = 0; i < l->n_hosts; i++)
        if (l->host[i].use == LAUNCH_USED) left += l->host[i].slots;
    l->ranks = left < l->ranks ? (int)left : l->ranks;
    return NULL;
}

/* ---- words ---- */

/* The list of hosts that the ranks need, in their order; *n: how many. */
static Status print_hosts(const Launch *l, Text *out, int *n)
{
    int ranks = 0;
    *n = 0;
    for (int i = 0; i < l->n_hosts && ranks < l->ranks; i++) {
        const LaunchHost *h = &l->host[i];
        if (h->use != LAUNCH_USED) continue;
        TRY(text_printf(out, "%s%s", *n > 0 ? "," : "", h->name));
        if (l->kind == LAUNCH_MPIRUN) TRY(text_printf(out, ":%d", h->slots));
        ranks += h->slots;
        ++*n;
    }
    return OK;
}

Status launch_words(const Launch *l, Arena *a, ProcessWords *out)
{
    const ProcessWords *from = l->changed ? &l->rest : &l->words;
    Text list, counts;
    int n = 0;
    if (l->kind == LAUNCH_RANKS) return OK;
    for (int i = 0; i < from->n; i++) TRY(process_word(out, from->word[i]));
    if (!l->changed) return OK;
    TRY(text_init(&list, a));
    TRY(text_printf(&list, "%s", l->kind == LAUNCH_SRUN ? "--nodelist=" : ""));
    TRY(print_hosts(l, &list, &n));
    if (l->kind == LAUNCH_MPIRUN) TRY(process_word(out, "--host"));
    TRY(process_word(out, list.data));
    TRY(text_init(&counts, a));
    TRY(text_printf(&counts, "%d", l->ranks));
    if (l->kind == LAUNCH_SRUN) {
        Text nodes;
        TRY(process_word(out, "-n"));
        TRY(process_word(out, counts.data));
        TRY(text_init(&nodes, a));
        TRY(text_printf(&nodes, "--nodes=%d", n));
        return process_word(out, nodes.data);
    }
    TRY(process_word(out, "-n"));
    return process_word(out, counts.data);
}
