/* figures: the numbers of a step and of those around it, from RUN/metrics.jsonl. A resumed run writes steps again: the
 * last line of a step counts. */
#include "spike/spike.h"

#include "engine/base/file.h"
#include "engine/base/json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { LINES = SPIKE_BEFORE + SPIKE_AROUND + 1, NAME_BYTES = 64 };

/* Lines of steps [step - SPIKE_BEFORE, step + SPIKE_AROUND]; NULL: there is none. */
typedef struct Figures {
    const Json *line[LINES];
    const Json *layers; /* moe_layers of the start line */
    int starts;
} Figures;

static const Json *at_step(const Figures *f, int64_t after)
{
    return f->line[SPIKE_BEFORE + after];
}

static double number(const Json *line, const char *name)
{
    const Json *v = json_get(line, name);
    return json_is(v, JSON_NUMBER) ? v->number : (double)NAN;
}

/* Of a line that is a whole JSON object. Other steps are not parsed: a long run has millions. */
static Status take_line(Figures *f, int64_t step, const char *text, size_t n, Arena *a)
{
    static const char start[] = "{\"kind\":\"start\"", begin[] = "{\"kind\":\"step\",\"step\":";
    Json *line = NULL;
    size_t bad = 0;
    const bool starts = n > sizeof start && memcmp(text, start, sizeof start - 1) == 0;
    if (!starts && (n < sizeof begin || memcmp(text, begin, sizeof begin - 1) != 0)) return OK;
    int64_t i = 0;
    for (const char *c = text + sizeof begin - 1;
         !starts && *c >= '0' && *c <= '9' && i < INT32_MAX; c++)
        i = 10 * i + *c - '0';
    if (!starts && (i < step - SPIKE_BEFORE || i > step + SPIKE_AROUND)) return OK;
    TRY(json_parse(text, n, a, &line, &bad));
    if (line == NULL) return OK; /* what a killed run left */
    f->starts += starts;
    if (starts) f->layers = json_get(line, "moe_layers");
    if (!starts) f->line[i - step + SPIKE_BEFORE] = line;
    return OK;
}

static Status read_figures(const SpikeOptions *o, Arena *a, Figures *f)
{
    char path[FILE_PATH_MAX];
    FileMap map;
    Status s = OK;
    TRY(file_join(path, o->run, "metrics.jsonl"));
    TRY(file_map(path, &map));
    const char *text = (const char *)map.data, *end = text + map.bytes;
    while (s == OK && text < end) {
        const char *stop = memchr(text, '\n', (size_t)(end - text));
        if (stop == NULL) break;
        s = take_line(f, o->step, text, (size_t)(stop - text), a);
        text = stop + 1;
    }
    file_unmap(&map);
    TRY(s);
    if (at_step(f, 0) != NULL) return OK;
    return FAIL(ERR_ARG, "%s has no line of step %lld", path, (long long)o->step);
}

/* The mean of a number over the steps before that have it; *n: how many. */
static double mean_before(const Figures *f, const char *name, int *n)
{
    double sum = 0;
    *n = 0;
    for (int i = 0; i < SPIKE_BEFORE; i++) {
        const double x = number(f->line[i], name);
        if (!isfinite(x)) continue;
        sum += x;
        ++*n;
    }
    return *n > 0 ? sum / *n : (double)NAN;
}

/* ---- the steps around it ---- */

static const char *note(const Json *line)
{
    if (json_get(line, "skipped") != NULL) return "  skipped: it changed nothing";
    return isfinite(number(line, "loss")) && isfinite(number(line, "grad_norm")) ? ""
                                                                                 : "  not finite";
}

static Status print_steps(const Figures *f, int64_t step, Text *out)
{
    int n = 0, m = 0;
    const double loss = mean_before(f, "loss", &n), norm = mean_before(f, "grad_norm", &m);
    TRY(text_printf(out, "%12s %10s %10s %10s\n", "step", "loss", "norm", "lr"));
    for (int i = -SPIKE_AROUND; i <= SPIKE_AROUND; i++) {
        const Json *line = at_step(f, i);
        if (line == NULL) continue;
        TRY(text_printf(out, "%c %10lld %10.4f %10.4g %10.3g%s\n", i == 0 ? '>' : ' ',
                        (long long)(step + i), number(line, "loss"), number(line, "grad_norm"),
                        number(line, "lr"), note(line)));
    }
    if (n == 0) return OK;
    return text_printf(out, "%12s %10.4f %10.4g            of the %d steps before\n", "mean", loss,
                       norm, n);
}

/* ---- groups of parameters, experts ---- */

/* The group that rose most is the first thing to look at, so each has its ratio. */
static Status print_groups(const Figures *f, Text *out)
{
    static const char prefix[] = "grad_norm_";
    TRY(text_printf(out, "\n%-20s %10s %10s %10s\n", "gradient norm of", "step", "before",
                    "times"));
    for (const Json *v = json_first(at_step(f, 0)); v != NULL; v = v->next) {
        int n = 0;
        if (!text_starts(v->name, prefix) || v->type != JSON_NUMBER) continue;
        const double before = mean_before(f, v->name, &n);
        TRY(text_printf(out, "%-20s %10.4g %10.4g %10.3g\n", v->name + sizeof prefix - 1, v->number,
                        before, v->number / before));
    }
    return OK;
}

/* Tokens of the busiest expert of a layer over the mean; *expert: its number. NaN: the line has no loads. */
static double busiest(const Json *line, int layer, int *expert)
{
    const Json *row = json_first(json_get(line, "expert_load"));
    double sum = 0, most = -1;
    int n = 0;
    for (int i = 0; row != NULL && i < layer; i++) row = row->next;
    for (const Json *v = json_first(row); v != NULL; v = v->next, n++) {
        sum += v->number;
        if (v->number <= most) continue;
        most = v->number;
        *expert = n;
    }
    return sum > 0 ? most * n / sum : (double)NAN;
}

static Status print_experts(const Figures *f, Text *out)
{
    const int64_t layers = json_count(json_get(at_step(f, 0), "expert_load"));
    const Json *name = json_first(f->layers);
    if (layers == 0) return OK;
    TRY(text_printf(out, "\n%-20s %10s %10s %10s\n", "busiest expert of", "step", "before",
                    "expert"));
    for (int i = 0; i < layers; i++) {
        char layer[NAME_BYTES];
        int expert = 0, other = 0, n = 0;
        double sum = 0;
        for (int k = 0; k < SPIKE_BEFORE; k++) {
            const double x = busiest(f->line[k], i, &other);
            if (!isfinite(x)) continue;
            sum += x;
            n++;
        }
        const double now = busiest(at_step(f, 0), i, &expert);
        (void)snprintf(layer, sizeof layer, "layer %d", name == NULL ? i : (int)name->number);
        TRY(text_printf(out, "%-20s %10.3g %10.3g %10d\n", layer, now,
                        n > 0 ? sum / n : (double)NAN, expert));
        if (name != NULL) name = name->next;
    }
    return text_printf(out, "(tokens of an expert over the mean of its layer)\n");
}

Status spike_figures(const SpikeOptions *o, Arena *a, bool *resumed, Text *out)
{
    Figures f = { 0 };
    TRY(read_figures(o, a, &f));
    *resumed = f.starts > 1;
    TRY(print_steps(&f, o->step, out));
    TRY(print_groups(&f, out));
    return print_experts(&f, out);
}
