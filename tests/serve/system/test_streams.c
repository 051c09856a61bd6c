/* `switchyard serve`: several choices of a prompt, and answers as a stream of events. */
#include "serve/service.h"

/* Puts the pieces of a body together, which an answer without a length comes in. False: the last one is missing. */
static bool join_chunks(char *body)
{
    char *to = body, *end = NULL;
    for (unsigned long n = strtoul(body, &end, 16); strncmp(end, "\r\n", 2) == 0;
         n = strtoul(body, &end, 16)) {
        if (n == 0) return true;
        if (strlen(end + 2) < n + 2) break;
        memmove(to, end + 2, n);
        to += n;
        *to = '\0';
        body = end + 2 + n + 2;
    }
    return false;
}

/* The data of the events of a stream that must end well; the last one is not JSON, but [DONE]. */
static int events_of(const Service *s, const char *body, Json **event, int most)
{
    int fd = reach(s->port), n = 0, code = 0;
    size_t bad = 0;
    CHECK(fd >= 0);
    send_request(fd, COMPLETIONS, body);
    char *text = read_answer(s->lab, fd, &code), *line = text;
    if (code != 200 || !join_chunks(text)) fail_msg("%d for %s: %s", code, body, text);
    for (; text_starts(line, "data: {") && n < most; n++) {
        char *end = strstr(line, "\n\n");
        CHECK(end != NULL);
        CHECK_OK(json_parse(line + 6, (size_t)(end - line - 6), &s->lab->arena, &event[n], &bad));
        line = end + 2;
    }
    CHECK_TEXT(line, "data: [DONE]\n\n");
    return n;
}

/* A choice as its events have it. */
typedef struct Streamed {
    char text[1024], tokens[4096]; /* tokens: their texts and offsets */
    const char *reason;
    int events;
} Streamed;

static void add_tokens(Streamed *c, const Json *scores)
{
    const Json *token = json_first(json_get(scores, "tokens"));
    const Json *at = json_first(json_get(scores, "text_offset"));
    for (; token != NULL; token = token->next, at = at->next)
        (void)text_add(c->tokens, sizeof c->tokens, strlen(c->tokens), "%s@%g ", json_string(token),
                       at->number);
}

static void add_event(Streamed *c, const Json *choice)
{
    CHECK(c->reason == NULL);
    (void)text_add(c->text, sizeof c->text, strlen(c->text), "%s",
                   json_string(json_get(choice, "text")));
    add_tokens(c, json_get(choice, "logprobs"));
    c->reason = json_string(json_get(choice, "finish_reason"));
    c->events++;
}

/* Fills `out` by the choices' indexes; the usage is what is returned, NULL if there is none. */
static const Json *streamed(const Service *s, const char *body, Streamed *out)
{
    Json *event[256];
    const Json *usage = NULL;
    const int n = events_of(s, body, event, 256);
    for (int i = 0; i < n; i++) {
        const Json *c = json_first(json_get(event[i], "choices"));
        CHECK((c != NULL) != (i == n - 1 && json_get(event[i], "usage") != NULL));
        if (c == NULL) usage = json_get(event[i], "usage");
        if (c != NULL && out != NULL) add_event(&out[(int)json_get(c, "index")->number], c);
    }
    return usage;
}

static double count(const Json *usage, const char *of)
{
    const Json *n = json_get(usage, of);
    CHECK(n != NULL);
    return n->number;
}

/* Choice k of a prompt is what the request with the next seed but k writes. The prompt counts once. */
static void choices_of_a_prompt_have_their_own_seeds(void **state)
{
    Service s = SERVE(*state, "--places", "2");
    static const char *const prompt[] = { "[1,2,3]", "[9,8]" };
    const char *first[3];
    char body[256];
    int code = 0, differ = 0;
    size_t bad = 0;
    Json *v = NULL;
    char *text = ask(
        &s, COMPLETIONS,
        "{\"prompt\":[[1,2,3],[9,8]],\"n\":3,\"best_of\":3,\"max_tokens\":9,\"seed\":5}", &code);
    CHECK_OK(json_parse(text, strlen(text), &s.lab->arena, &v, &bad));
    const Json *c = json_first(json_get(v, "choices"));
    double written_tokens = 0;
    for (int i = 0; i < 6; i++, c = c->next) {
        CHECK_INT((int)json_get(c, "index")->number, i);
        snprintf(body, sizeof body, "{\"prompt\":%s,\"max_tokens\":9,\"seed\":%d,\"logprobs\":0}",
                 prompt[i / 3], 5 + i % 3);
        const Json *alone = choice(&s, body, 0);
        if (i < 3) first[i] = json_string(json_get(alone, "text"));
        if (i < 3) differ += strcmp(first[i], first[0]) != 0;
        CHECK_TEXT(json_string(json_get(c, "text")), json_string(json_get(alone, "text")));
        written_tokens += json_count(json_get(json_get(alone, "logprobs"), "tokens"));
    }
    CHECK(c == NULL && differ > 0);
    CHECK_NEAR(count(json_get(v, "usage"), "prompt_tokens"), 5, 0);
    CHECK_NEAR(count(json_get(v, "usage"), "completion_tokens"), written_tokens, 0);
    refused(&s, COMPLETIONS, "{\"prompt\":[[1],[2],[3],[4],[5],[6],[7],[8],[9]],\"n\":128}", 400,
            "more than 1024 choices");
    stop(&s);
}

/* At a high temperature the bytes are hardly ever whole characters. Stops that nearly appear are held back. */
static void a_stream_adds_up_to_the_answer_in_one_piece(void **state)
{
    static const char *const rest[] = {
        "\"prompt\":\"ba ko\",\"max_tokens\":24,\"temperature\":0",
        "\"prompt\":[[1,2,3],[4]],\"n\":2,\"seed\":7,\"max_tokens\":20,\"temperature\":9",
        "\"prompt\":\"ba ko\",\"echo\":true,\"logprobs\":2,\"seed\":3,\"max_tokens\":12",
        "\"prompt\":\"ba ko\",\"max_tokens\":24,\"temperature\":0,\"stop\":[\"a ~\",\"o zz\",\"a "
        "te\"]",
        "\"prompt\":\"ba ko\",\"max_tokens\":0,\"echo\":true,\"logprobs\":1",
        "\"prompt\":\"ba ko\",\"max_tokens\":0",
    };
    Service s = SERVE(*state, "--places", "3", "--context", "64");
    int pieces = 0;
    for (int i = 0; i < (int)(sizeof rest / sizeof *rest); i++) {
        char body[512];
        Streamed have[4] = { 0 };
        snprintf(body, sizeof body,
                 "{%s,\"stream\":true,\"stream_options\":{\"include_usage\":%s}}", rest[i],
                 i % 2 == 0 ? "true" : "false");
        const Json *usage = streamed(&s, body, have);
        CHECK((usage != NULL) == (i % 2 == 0));
        snprintf(body, sizeof body, "{%s}", rest[i]);
        for (int k = 0; k < (i == 1 ? 4 : 1); k++) {
            const Json *c = choice(&s, body, k);
            Streamed whole = { 0 };
            add_event(&whole, c);
            CHECK_TEXT(have[k].text, whole.text);
            CHECK_TEXT(have[k].tokens, whole.tokens);
            CHECK_TEXT(have[k].reason, whole.reason);
            pieces += have[k].events > 5;
        }
        if (i == 0) CHECK_NEAR(count(usage, "completion_tokens"), 24, 0);
    }
    CHECK(pieces >= 3);
    stop(&s);
}

/* Stops that begin anywhere in the text: where one lies across tokens, its first part must not be sent. */
static void no_part_of_a_stop_is_streamed(void **state)
{
    Service s = SERVE(*state, "--context", "64");
    static const char begins[] = "{\"prompt\":\"ba ko\",\"max_tokens\":24,\"temperature\":0";
    char body[256];
    snprintf(body, sizeof body, "%s}", begins);
    const char *whole = written(&s, body, 0);
    CHECK(strlen(whole) > 20);
    for (int at = 1; at < 12; at++) {
        Streamed have = { 0 };
        snprintf(body, sizeof body, "%s,\"stop\":[\"zzz\",\"%.5s\"]}", begins, whole + at);
        const char *cut = written(&s, body, 0);
        snprintf(body, sizeof body, "%s,\"stop\":[\"zzz\",\"%.5s\"],\"stream\":true}", begins,
                 whole + at);
        streamed(&s, body, &have);
        CHECK_TEXT(have.text, cut);
        CHECK_TEXT(have.reason, "stop");
    }
    stop(&s);
}

/* Reads the first event of a stream that would take minutes, and leaves. */
static void leave_a_stream(const Service *s)
{
    char text[1 << 10] = "", body[1 << 13] = "{\"prompt\":[1";
    int fd = reach(s->port);
    size_t n = 0;
    for (int i = 0; i < 2000; i++) (void)text_add(body, sizeof body, strlen(body), ",%d", i % 10);
    (void)text_add(body, sizeof body, strlen(body),
                   "],\"max_tokens\":90000,\"temperature\":0,\"stream\":true}");
    send_request(fd, COMPLETIONS, body);
    while (strstr(text, "\"finish_reason\":null") == NULL && n + 1 < sizeof text) {
        const ssize_t got = read(fd, text + n, sizeof text - 1 - n);
        CHECK(got > 0);
        n += (size_t)got;
    }
    CHECK_SAYS(text, "Content-Type: text/event-stream\r\n");
    CHECK_SAYS(text, "Transfer-Encoding: chunked\r\n");
    close(fd);
}

/* The only place is free at once, and nothing of the request stays. */
static void a_client_that_leaves_a_stream_frees_its_place(void **state)
{
    Service s = SERVE(*state, "--places", "1", "--context", "100000");
    long before = 0;
    for (int i = 0; i < 60; i++) {
        if (i == 20) before = memory_kib(s.child.pid);
        leave_a_stream(&s);
        const double left_s = clock_s();
        streamed(&s, "{\"prompt\":[1],\"max_tokens\":2,\"stream\":true}", NULL);
        CHECK(clock_s() < left_s + 10);
    }
#ifndef __SANITIZE_ADDRESS__ /* it keeps what was freed */
    CHECK(before > 0 && memory_kib(s.child.pid) < before + 512);
#endif
    stop(&s);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        LAB_TEST(choices_of_a_prompt_have_their_own_seeds),
        LAB_TEST(a_stream_adds_up_to_the_answer_in_one_piece),
        LAB_TEST(no_part_of_a_stop_is_streamed),
        LAB_TEST(a_client_that_leaves_a_stream_frees_its_place),
    };
    return cmocka_run_group_tests(tests, open_with_a_model, lab_close);
}
