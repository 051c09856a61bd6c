/*
 * call_trees: traces from a line of text: calls with what they call in braces.
 *
 *     "aten::mm=[[8,4],[4,2]]{@cudaLaunchKernel{#gemm*5}} | aten::add"
 *
 * A name is an operator, @name a call of the runtime, #name a kernel of 10 us, *5 of 5; =JSON its
 * Input Dims; | what follows is another thread. Every call begins and ends 1 us after the last one's
 * beginning or end; kernels run one after the other on one stream.
 */
#ifndef DIFF_CALL_TREES_H
#define DIFF_CALL_TREES_H

#include "traces/read/tree.h"
#include "traces/unit/traces.h"

typedef struct CallWriter {
    const char *at;
    char *out;
    size_t used, room;
    double host, device;
    int thread, link;
} CallWriter;

typedef struct CallTree {
    Events e;
    Tree t;
} CallTree;

__attribute__((format(printf, 2, 3))) static inline void call_printf(CallWriter *w, const char *f,
                                                                     ...)
{
    va_list args;
    va_start(args, f);
    int n = vsnprintf(w->out + w->used, w->room - w->used, f, args);
    va_end(args);
    CHECK(n >= 0 && (size_t)n < w->room - w->used);
    w->used += (size_t)n;
}

static inline void write_call(CallWriter *w, int launch)
{
    char dims[160] = "";
    double dur = 10, begin = w->host++;
    size_t n = strcspn(w->at, "{} =*");
    char *name = strndup(w->at, n);
    CHECK(name != NULL);
    w->at += n;
    if (*w->at == '=') {
        n = strcspn(w->at, "{} *");
        (void)snprintf(dims, sizeof dims, ",\"Input Dims\":%.*s,\"Input type\":[]", (int)n - 1,
                       w->at + 1);
        w->at += n;
    }
    if (*w->at == '*') {
        char *end = NULL;
        dur = strtod(w->at + 1, &end);
        w->at = end;
    }
    if (*name == '#') {
        call_printf(
            w,
            ",\n{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"%s\",\"pid\":0,\"tid\":7,\"ts\":%.0f,"
            "\"dur\":%g,\"args\":{\"correlation\":%d,\"stream\":7,\"device\":0}}"
            ",\n{\"ph\":\"f\",\"cat\":\"ac2g\",\"name\":\"ac2g\",\"pid\":0,\"tid\":7,\"ts\":%.0f,"
            "\"id\":%d,\"bp\":\"e\"}",
            name + 1, w->device, dur, launch, w->device, launch);
        w->device += dur;
        free(name);
        return;
    }
    int link = ++w->link;
    if (*w->at == '{') {
        for (w->at++; *w->at != '}';) {
            CHECK(*w->at != 0);
            if (*w->at == ' ')
                w->at++;
            else
                write_call(w, link);
        }
        w->at++;
    }
    bool runtime = *name == '@';
    call_printf(w,
                ",\n{\"ph\":\"X\",\"cat\":\"%s\",\"name\":\"%s\",\"pid\":1,\"tid\":%d,\"ts\":%.0f,"
                "\"dur\":%.0f,\"args\":{\"correlation\":%d%s}}",
                runtime ? "cuda_runtime" : "cpu_op", name + runtime, w->thread, begin,
                w->host++ - begin, link, dims);
    if (runtime)
        call_printf(
            w,
            ",\n{\"ph\":\"s\",\"cat\":\"ac2g\",\"name\":\"ac2g\",\"pid\":1,\"tid\":%d,\"ts\":%.0f,"
            "\"id\":%d}",
            w->thread, begin, link);
    free(name);
}

/* The caller frees the events and builds the tree. */
static inline CallTree call_tree(const char *text)
{
    CallTree c = { 0 };
    CallWriter w = { .at = text, .room = 4096 + 1000 * strlen(text), .thread = 100, .device = 1e6 };
    w.out = malloc(w.room);
    CHECK(w.out != NULL);
    call_printf(&w, "{\"traceEvents\":[{\"ph\":\"M\"}");
    while (*w.at != 0) {
        if (*w.at == '|') w.thread++;
        if (*w.at == '|' || *w.at == ' ')
            w.at++;
        else
            write_call(&w, 0);
    }
    call_printf(&w, "]}");
    CHECK_OK(trace_read(w.out, &(ReadAs){ 0 }, &c.e));
    free(w.out);
    return c;
}

#endif
