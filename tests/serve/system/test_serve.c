/* `switchyard serve` as its clients meet it: answers beside those of other commands, every status code, many at once,
 * and its end. */
#include "serve/service.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>

enum { CLIENTS = 12 };

static void the_text_is_that_of_generate(void **state)
{
    Lab *lab = *state;
    Service s = SERVE(lab, "--name", "tiny");
    Outcome o = RUN(lab, "model", "generate", "run", "--prompt", "ba ko", "--tokens", "12",
                    "--temperature", "0");
    char want[512];
    size_t bad = 0;
    snprintf(
        want, sizeof want, "%s\n",
        written(&s, "{\"prompt\":\"ba ko\",\"max_tokens\":12,\"temperature\":0,\"echo\":true}", 0));
    CHECK_TEXT(o.out, want);
    int same = 0; /* a text with a byte that is no UTF-8 cannot be sent as it is */
    for (int seed = 1; seed <= 12; seed++) {
        char number[16], body[256];
        snprintf(number, sizeof number, "%d", seed);
        snprintf(body, sizeof body,
                 "{\"prompt\":\"ba ko\",\"max_tokens\":12,\"temperature\":0.7,\"top_p\":0.8,"
                 "\"seed\":%d,\"echo\":true,\"model\":\"tiny\"}",
                 seed);
        o = RUN(lab, "model", "generate", "run", "--prompt", "ba ko", "--tokens", "12",
                "--temperature", "0.7", "--top-p", "0.8", "--seed", number);
        snprintf(want, sizeof want, "%s\n", written(&s, body, 0));
        if (!text_utf8_valid(o.out, strlen(o.out), &bad)) continue;
        CHECK_TEXT(o.out, want);
        same++;
    }
    CHECK(same > 0);
    stop(&s);
}

static void a_stop_ends_the_text_before_it(void **state)
{
    Service s = SERVE(*state, "--context", "64");
    const char *whole =
        written(&s, "{\"prompt\":\"ba ko\",\"max_tokens\":24,\"temperature\":0}", 0);
    const char *blank = strchr(whole + 1, ' ');
    char body[256];
    CHECK(blank != NULL && blank[1] != '\0');
    snprintf(
        body, sizeof body,
        "{\"prompt\":\"ba ko\",\"max_tokens\":24,\"temperature\":0,\"stop\":[\"zzz\",\"%.2s\"]}",
        blank);
    const Json *c = choice(&s, body, 0);
    const char *cut = json_string(json_get(c, "text"));
    CHECK_TEXT(json_string(json_get(c, "finish_reason")), "stop");
    CHECK(strlen(cut) < strlen(whole) && strncmp(cut, whole, strlen(cut)) == 0);
    CHECK(strncmp(whole + strlen(cut), blank, 2) == 0);
    stop(&s);
}

/* The logarithm of softmax over a row of `switchyard logits`. */
static double log_share(const float *row, int64_t vocab, int32_t id)
{
    double sum = 0;
    for (int64_t i = 0; i < vocab; i++) sum += exp((double)row[i]);
    return (double)row[id] - log(sum);
}

static void scores_are_those_of_the_logits(void **state)
{
    Lab *lab = *state;
    static const int32_t id[] = { 5, 300, 17, 60, 411, 3 };
    Service s = SERVE(lab, "--name", "tiny");
    lab_write(lab, lab_path(lab, "model/tokens"), id, sizeof id);
    CHECK_EXIT(RUN(lab, "model", "logits", "run", "tokens", "logits"), 0);
    size_t bytes = 0;
    const float *rows =
        (const float *)(const void *)lab_read(lab, lab_path(lab, "model/logits"), &bytes);
    const int64_t vocab = (int64_t)(bytes / sizeof id / sizeof *rows * sizeof *id);
    const Json *c =
        choice(&s,
               "{\"prompt\":[[7,8,9],[5,300,17,60,411,3]],\"max_tokens\":0,\"echo\":true,"
               "\"logprobs\":2}",
               1);
    const Json *scores = json_get(c, "logprobs");
    const Json *p = json_first(json_get(scores, "token_logprobs"));
    const Json *top = json_first(json_get(scores, "top_logprobs"));
    CHECK(json_is(p, JSON_NULL) && json_is(top, JSON_NULL));
    for (int i = 1; i < 6; i++) {
        const float *row = rows + (i - 1) * vocab;
        int32_t best = 0;
        p = p->next;
        top = top->next;
        CHECK_NEAR(p->number, log_share(row, vocab, id[i]), 1e-4);
        for (int32_t k = 1; k < vocab; k++) best = row[k] > row[best] ? k : best;
        CHECK_INT(json_count(top), 2);
        CHECK_NEAR(json_first(top)->number, log_share(row, vocab, best), 1e-4);
        CHECK(json_first(top)->next->number <= json_first(top)->number);
    }
    CHECK(p->next == NULL && top->next == NULL);
    stop(&s);
}

/* All are sent before the first answer is read; each gets the answer that it gets alone. */
static void many_at_once_get_their_own_answers(void **state)
{
    Lab *lab = *state;
    Service s = SERVE(lab, "--places", "5");
    char body[CLIENTS][256];
    const char *want[CLIENTS];
    int fd[CLIENTS];
    for (int i = 0; i < CLIENTS; i++) {
        snprintf(
            body[i], sizeof body[i],
            "{\"prompt\":[[%d,%d,9%s],[4,%d]],\"max_tokens\":%d,\"temperature\":%s,\"seed\":%d}", i,
            7 * i, i % 3 == 0 ? ",8,7,6,5,4,3,2,1,9,9,9" : "", i, 1 + i, i % 2 == 0 ? "0" : "1", i);
        want[i] = written(&s, body[i], 0);
    }
    for (int i = 0; i < CLIENTS; i++) {
        fd[i] = reach(s.port);
        CHECK(fd[i] >= 0);
        send_request(fd[i], COMPLETIONS, body[i]);
    }
    for (int i = 0; i < CLIENTS; i++) {
        int code = 0;
        Json *v = NULL;
        size_t bad = 0;
        char *text = read_answer(lab, fd[i], &code);
        CHECK_INT(code, 200);
        CHECK_OK(json_parse(text, strlen(text), &lab->arena, &v, &bad));
        CHECK_TEXT(json_string(json_get(json_first(json_get(v, "choices")), "text")), want[i]);
    }
    stop(&s);
}

/* tools/soak_server.py sends thousands. */
static void requests_leave_no_memory_behind(void **state)
{
#ifdef __SANITIZE_ADDRESS__
    skip(); /* it keeps what was freed */
#endif
    Service s = SERVE(*state, "--name", "tiny");
    long before = 0;
    for (int i = 0; i < 200; i++) {
        if (i == 50) before = memory_kib(s.child.pid);
        written(&s, "{\"prompt\":[[1,2,3],[4]],\"max_tokens\":2,\"logprobs\":20,\"echo\":true}", 1);
        refused(&s, COMPLETIONS, "{\"prompt\":[1,2,3],\"top_p\":2}", 400, "top_p is 2");
    }
    CHECK(before > 0 && memory_kib(s.child.pid) < before + 1024);
    stop(&s);
}

static void bad_requests_are_refused_by_name(void **state)
{
    static const struct {
        const char *head, *body;
        int code;
        const char *part;
    } cases[] = {
        { COMPLETIONS, "", 400, "the body is empty" },
        { COMPLETIONS, "{\"prompt\":", 400, "not JSON: byte 10" },
        { COMPLETIONS, "[1]", 400, "must be a JSON object" },
        { COMPLETIONS, "{\"promt\":\"a\"}", 400, "promt of a request, did you mean prompt?" },
        { COMPLETIONS, "{\"max_tokens\":1}", 400, "prompt is missing" },
        { COMPLETIONS, "{\"prompt\":\"\"}", 400, "prompt 0 is empty" },
        { COMPLETIONS, "{\"prompt\":true}", 400, "prompt must be" },
        { COMPLETIONS, "{\"prompt\":[1,512]}", 400, "token 1 is no id" },
        { COMPLETIONS, "{\"prompt\":[1,2.5]}", 400, "token 1 is no id" },
        { COMPLETIONS, "{\"prompt\":[\"a\",[1]]}", 400, "prompt must be" },
        { COMPLETIONS, "{\"prompt\":[1,2],\"max_tokens\":32}", 400, "at most 33 fit" },
        { COMPLETIONS, "{\"prompt\":[1],\"max_tokens\":1.5}", 400, "max_tokens is 1.5" },
        { COMPLETIONS, "{\"prompt\":[1],\"max_tokens\":\"5\"}", 400, "max_tokens must be" },
        { COMPLETIONS, "{\"prompt\":[1],\"logprobs\":21}", 400, "logprobs is 21" },
        { COMPLETIONS, "{\"prompt\":[1],\"n\":0}", 400, "n is 0: it must be between 1 and 128" },
        { COMPLETIONS, "{\"prompt\":[1],\"n\":3,\"best_of\":4}", 400, "best_of is 4, and n is 3" },
        { COMPLETIONS, "{\"prompt\":[1],\"stream\":1}", 400, "stream must be true or false" },
        { COMPLETIONS, "{\"prompt\":[1],\"stream\":true,\"stream_options\":{\"usage\":true}}", 400,
          "stream_options has usage" },
        { COMPLETIONS, "{\"prompt\":[1],\"stream_options\":{\"include_usage\":true}}", 400,
          "stream is not true" },
        { COMPLETIONS, "{\"prompt\":[1],\"seed\":-1}", 400,
          "seed is -1: it must be between 0 and" },
        { COMPLETIONS, "{\"prompt\":[1],\"seed\":0.5}", 400, "seed is 0.5" },
        { COMPLETIONS, "{\"prompt\":[1],\"suffix\":\"b\"}", 400, "suffix" },
        { COMPLETIONS, "{\"prompt\":[1],\"stop\":[\"\"]}", 400, "stop 0 is empty" },
        { COMPLETIONS, "{\"prompt\":[1],\"logit_bias\":{\"5\":1}}", 400, "logit_bias" },
        { COMPLETIONS, "{\"prompt\":[1],\"model\":\"other\"}", 404, "no model other" },
        { "GET /v1/completions", "", 405, "only POST" },
        { "POST /v1/models", "", 405, "only GET" },
        { "GET /", "", 404, "/v1/models" },
        { COMPLETIONS " HTTP/1.1\r\nHost: evil.example\r\nX:", "{}", 403, "localhost" },
        { COMPLETIONS " HTTP/1.1\r\nOrigin: http://evil.example\r\nX:", "{}", 403, "browser" },
        { COMPLETIONS " HTTP/1.1\r\nContent-Length: 99999999\r\nX:", "", 413, "4 MiB" },
    };
    Lab *lab = *state;
    Service s = SERVE(lab, "--name", "tiny");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refused(&s, cases[i].head, cases[i].body, cases[i].code, cases[i].part);
    /* it still answers, also what is there in vain */
    written(
        &s,
        "{\"prompt\":[1],\"n\":1,\"stop\":null,\"user\":\"me\",\"logit_bias\":{},\"stream\":false}",
        0);
    stop(&s);
}

static void a_token_is_asked_for(void **state)
{
    Lab *lab = *state;
    int code = 0;
    lab_write_text(lab, lab_path(lab, "token"), "secret-word\n");
    Service s = SERVE(lab, "--token-file", "../token");
    refused(&s, "GET /v1/models", "", 401, "Authorization");
    refused(&s, "GET /v1/models HTTP/1.1\r\nAuthorization: Bearer secret-wor\r\nX:", "", 401,
            "Bearer");
    refused(&s, "GET /v1/models HTTP/1.1\r\nAuthorization: Bearer secret-worx\r\nX:", "", 401,
            "Bearer");
    CHECK_SAYS(
        ask(&s, "GET /v1/models HTTP/1.1\r\nAuthorization: Bearer secret-word\r\nX:", "", &code),
        "\"id\":\"../model/run\"");
    CHECK_INT(code, 200);
    stop(&s);
    Outcome o = RUN(lab, "served", "serve", "../model/run", "--host", "0.0.0.0");
    CHECK_REFUSED(o, 2, "so a token is needed");
}

/* One request computes and one waits; the next finds no place. A client that goes away harms nobody. */
static void what_cannot_wait_is_told_so(void **state)
{
    Lab *lab = *state;
    Service s = SERVE(lab, "--waiting", "1", "--places", "1", "--context", "100000");
    const char *slow =
        "{\"prompt\":[1],\"max_tokens\":2500,\"temperature\":100,\"top_k\":50,\"seed\":1}";
    int fd[16], code = 0, told = 0;
    for (int i = 0; i < 16; i++) {
        fd[i] = reach(s.port);
        send_request(fd[i], COMPLETIONS, slow);
        if (i < 2) usleep(100000); /* the first begins, the second waits */
    }
    close(fd[0]);
    for (int i = 1; i < 16; i++) {
        const char *text = read_answer(lab, fd[i], &code);
        CHECK(code == 200 || code == 429);
        if (code == 429) CHECK_SAYS(text, "too many requests wait");
        told += code == 429;
    }
    CHECK(told > 0 && told < 15);
    stop(&s);
}

typedef struct Slow {
    const char *sends;      /* a byte a second */
    double least_s, most_s; /* when the server closes it */
    int fd;
    double ended_s;
} Slow;

/* Sends each client's next byte. A client whose connection is closed gets the time. */
static void send_slowly(Slow *slow, int n, int second, double since_s)
{
    char byte;
    for (int i = 0; i < n; i++) {
        Slow *c = &slow[i];
        if (c->ended_s > 0) continue;
        if (recv(c->fd, &byte, 1, MSG_DONTWAIT) >= 0 || (errno != EAGAIN && errno != EINTR))
            c->ended_s = clock_s() - since_s;
        else if (second < (int)strlen(c->sends))
            (void)send(c->fd, c->sends + second, 1, MSG_NOSIGNAL);
    }
}

/* Whoever says nothing is closed after ten seconds, and a header that does not end after fifteen. Meanwhile others are
 * answered at once. */
static void slow_clients_are_closed_and_delay_nobody(void **state)
{
    Service s = SERVE(*state, "--name", "tiny");
    Slow slow[] = { { "", 9, 14, 0, 0 },
                    { "POST /v1/completions HTTP/1.1", 14, 19, 0, 0 },
                    { "GET", 12, 17, 0, 0 },
                    { "GET /v1/models HTTP/1.1\r\n", 14, 19, 0, 0 } };
    enum { SLOW = sizeof slow / sizeof *slow };
    const double since_s = clock_s();
    for (int i = 0; i < SLOW; i++) slow[i].fd = reach(s.port);
    for (int second = 0; second < 20; second++) {
        const double asked_s = clock_s();
        send_slowly(slow, SLOW, second, since_s);
        written(&s, "{\"prompt\":[1],\"max_tokens\":1}", 0);
        CHECK(clock_s() < asked_s + 5);
        while (clock_s() < asked_s + 1) child_sleep();
    }
    for (int i = 0; i < SLOW; i++) {
        if (!(slow[i].ended_s >= slow[i].least_s && slow[i].ended_s <= slow[i].most_s))
            fail_msg("\"%s\" was closed after %g s", slow[i].sends, slow[i].ended_s);
        close(slow[i].fd);
    }
    stop(&s);
}

static int open_files(pid_t pid)
{
    char path[64];
    int n = 0;
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *folder = opendir(path);
    CHECK(folder != NULL);
    while (readdir(folder) != NULL) n++;
    closedir(folder);
    return n;
}

/* The bytes that are left to be read, and what the header says of them. */
static size_t drain(int fd, size_t *length)
{
    static char text[1 << 17];
    size_t bytes = 0;
    for (ssize_t got; (got = read(fd, text, sizeof text - 1)) > 0; bytes += (size_t)got) {
        const char *name = bytes == 0 ? strstr(text, "Content-Length: ") : NULL;
        if (name != NULL) (void)sscanf(name, "Content-Length: %zu", length);
    }
    close(fd);
    return bytes;
}

/* Its answer is larger than what sockets buffer, so after ten seconds it is given up. */
static void a_client_that_reads_nothing_delays_nobody(void **state)
{
    Service s = SERVE(*state, "--context", "4000");
    const int before = open_files(s.child.pid);
    int fd = reach(s.port);
    size_t length = 0;
    send_request(fd, COMPLETIONS,
                 "{\"prompt\":[[1],[2],[3],[4],[5],[6],[7],[8],[9],[10],[11],[12],[13],[14],[15]],"
                 "\"max_tokens\":800,\"temperature\":0,\"logprobs\":20}");
    const double since_s = clock_s();
    do {
        const double asked_s = clock_s();
        written(&s, "{\"prompt\":[1],\"max_tokens\":1}", 0);
        CHECK(clock_s() < asked_s + 8);
        usleep(200000);
    } while (open_files(s.child.pid) > before && clock_s() < since_s + 60);
    CHECK(clock_s() < since_s + 60);
    const size_t bytes = drain(fd, &length);
    CHECK(length > 5000000 && bytes < length);
    stop(&s);
}

/* More connections than there may be: those that are kept out are not answered, and the others are. */
static void too_many_connections_keep_others_out_only_for_a_while(void **state)
{
    Lab *lab = *state;
    Service s = SERVE(lab, "--waiting", "1", "--places", "1");
    int silent[100], code = 0, kept = 0;
    for (int i = 0; i < 100; i++) silent[i] = reach(s.port);
    int fd = reach(s.port);
    if (fd >= 0) {
        send_request(fd, "GET /v1/models", "");
        read_answer(lab, fd, &code);
    }
    for (int i = 0; i < 100; i++) {
        kept += silent[i] >= 0;
        if (silent[i] >= 0) close(silent[i]);
    }
    CHECK(kept >= 65);
    const double until_s = clock_s() + 10;
    for (code = 0; code != 200 && clock_s() < until_s;) {
        fd = reach(s.port);
        if (fd < 0) continue;
        send_request(fd, "GET /v1/models", "");
        read_answer(lab, fd, &code);
    }
    CHECK_INT(code, 200);
    stop(&s);
}

/* What has begun is answered after the signal; what waits is refused. */
static void a_signal_ends_it_without_losing_an_answer(void **state)
{
    Lab *lab = *state;
    Service s = SERVE(lab, "--places", "1", "--context", "4000");
    int fd[3], code[3] = { 0 };
    for (int i = 0; i < 3; i++) {
        fd[i] = reach(s.port);
        send_request(fd[i], COMPLETIONS,
                     "{\"prompt\":[1],\"max_tokens\":2000,\"temperature\":1,\"seed\":1}");
        usleep(20000);
    }
    CHECK_INT(kill(s.child.pid, SIGTERM), 0);
    for (int i = 0; i < 3; i++) {
        const char *text = read_answer(lab, fd[i], &code[i]);
        CHECK(code[i] == 200 || code[i] == 503);
        if (code[i] == 503) CHECK_SAYS(text, "the server ends");
    }
    CHECK_INT(code[0], 200);
    Outcome o = lab_wait(lab, &s.child);
    CHECK_EXIT(o, 0);
    CHECK(reach(s.port) < 0);
}

static void a_port_in_use_is_refused(void **state)
{
    Lab *lab = *state;
    char port[16];
    Service s = SERVE(lab, "--name", "tiny");
    snprintf(port, sizeof port, "%d", s.port);
    CHECK_REFUSED(RUN(lab, "served", "serve", "../model/run", "--port", port), 2, "--port ");
    CHECK_REFUSED(RUN(lab, "served", "serve", "../model/run", "--host", "nowhere"), 2, "token");
    stop(&s);
}

/* The model has seen lines of the web: words of it follow, no others. */
static void choices_are_scored_as_the_server_scores_them(void **state)
{
    Lab *lab = *state;
    static const char questions[] =
        "{\"prompt\":\"ba ko ter\",\"choices\":[\" ba\",\" zzzzzzzz\"],\"answer\":0}\n\n"
        "{\"prompt\":\"ba ko \",\"choices\":[\"qqqq\",\"ba sa\"],\"answer\":0}\n"
        "{\"prompt\":\"\",\"choices\":[\"ba ko ba sa\",\"@\"],\"answer\":0}\n";
    lab_write_text(lab, lab_path(lab, "model/questions"), questions);
    Outcome o = RUN(lab, "model", "eval", "run", "--choices", "questions");
    CHECK_EXIT(o, 0);
    CHECK_SAYS(o.out, "questions: 3 questions  acc 0.3333 +- 0.3333");
    CHECK_SAYS(o.out, "acc_norm 0.6667 +- 0.3333");
    lab_write_text(lab, lab_path(lab, "model/bad"),
                   "{\"prompt\":\"a\",\"choices\":[\"b\",\"c\"],\"answer\":2}\n");
    CHECK_REFUSED(RUN(lab, "model", "eval", "run", "--choices", "bad"), 2,
                  "bad:1: answer is no index");
    CHECK_REFUSED(RUN(lab, "model", "eval", "run", "web=../web", "--choices", "bad"), 2,
                  "--choices");
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        LAB_TEST(the_text_is_that_of_generate),
        LAB_TEST(a_stop_ends_the_text_before_it),
        LAB_TEST(scores_are_those_of_the_logits),
        LAB_TEST(many_at_once_get_their_own_answers),
        LAB_TEST(requests_leave_no_memory_behind),
        LAB_TEST(bad_requests_are_refused_by_name),
        LAB_TEST(a_token_is_asked_for),
        LAB_TEST(what_cannot_wait_is_told_so),
        LAB_TEST(slow_clients_are_closed_and_delay_nobody),
        LAB_TEST(a_client_that_reads_nothing_delays_nobody),
        LAB_TEST(too_many_connections_keep_others_out_only_for_a_while),
        LAB_TEST(a_signal_ends_it_without_losing_an_answer),
        LAB_TEST(a_port_in_use_is_refused),
        LAB_TEST(choices_are_scored_as_the_server_scores_them),
    };
    return cmocka_run_group_tests(tests, open_with_a_model, lab_close);
}
