/* run_folder: what a run left in CELL/run, and what two runs must share: checkpoints to the byte,
 * and of every step all but its times. */
#ifndef TESTS_HARNESS_RUN_FOLDER_H
#define TESTS_HARNESS_RUN_FOLDER_H

#include "harness/program.h"

#include "engine/base/clock.h"
#include "engine/base/text.h"

static inline const char *run_checkpoint(Lab *lab, const char *cell, int step)
{
    return lab_path(lab, "%s/run/checkpoints/step-%010d", cell, step);
}

static inline bool run_has_checkpoint(Lab *lab, const char *cell, int step)
{
    return file_exists(run_checkpoint(lab, cell, step));
}

/* The run that was never stopped, in the cell "whole", once; how long it took. */
static inline double run_whole_s(Lab *lab, const Launch *l)
{
    static double took_s;
    if (took_s > 0) return took_s;
    Launch whole = *l;
    whole.cell = "whole";
    double start = clock_s();
    Outcome o = lab_run(lab, &whole);
    CHECK_EXIT(o, 0);
    return took_s = clock_s() - start;
}

/* How many checkpoints there are that are whole, or else that are not. */
static inline int run_count_checkpoints(Lab *lab, const char *cell, bool whole)
{
    const char *const *names = NULL, *folder = lab_path(lab, "%s/run/checkpoints", cell);
    int n = 0, found = 0;
    ArenaMark mark = arena_mark(&lab->arena);
    if (file_exists(folder) && file_list(folder, &lab->arena, &names, &n) != OK) n = 0;
    for (int i = 0; i < n; i++) found += text_ends(names[i], ".tmp") != whole;
    arena_release(&lab->arena, mark);
    return found;
}

static inline char *run_metrics(Lab *lab, const char *cell)
{
    return lab_read(lab, lab_path(lab, "%s/run/metrics.jsonl", cell), NULL);
}

/* Whole lines "kind":"step" so far; a run that has just begun has no file yet. */
static inline int run_count_steps(Lab *lab, const char *cell)
{
    const char *path = lab_path(lab, "%s/run/metrics.jsonl", cell);
    if (!file_exists(path)) return 0;
    int n = 0;
    ArenaMark mark = arena_mark(&lab->arena);
    for (const char *at = lab_read(lab, path, NULL); (at = strstr(at, "\"kind\":\"step\"")); at++) {
        if (strchr(at, '\n') != NULL) n++;
    }
    arena_release(&lab->arena, mark);
    return n;
}

/* The last line of a step without what times and memory depend on; the last one counts, because a
 * resumed run repeats steps. */
static inline const char *run_step_text(Lab *lab, const char *metrics, int step)
{
    char begin[64];
    const char *out = NULL, *line = NULL;
    snprintf(begin, sizeof begin, "{\"kind\":\"step\",\"step\":%d,", step);
    for (const char *at = metrics; (at = strstr(at, begin)) != NULL; at++) line = at;
    if (line == NULL) fail_msg("there is no step %d in metrics.jsonl", step);
    const char *times = strstr(line, ",\"step_s\""), *rest = strstr(line, ",\"expert_load\"");
    const char *end = strchr(line, '\n');
    CHECK(times != NULL && rest != NULL && end != NULL && times < rest && rest < end);
    size_t head = (size_t)(times - line), tail = (size_t)(end - rest);
    char text[1 << 14];
    CHECK(head + tail < sizeof text);
    memcpy(text, line, head);
    memcpy(text + head, rest, tail);
    CHECK_OK(arena_text(&lab->arena, text, head + tail, &out));
    return out;
}

static inline void check_same_steps(Lab *lab, const char *a, const char *b, int first, int last)
{
    const char *x = run_metrics(lab, a), *y = run_metrics(lab, b);
    for (int i = first; i <= last; i++) {
        CHECK_TEXT(run_step_text(lab, x, i), run_step_text(lab, y, i));
    }
}

static inline void check_same_checkpoint(Lab *lab, const char *a, const char *b, int step)
{
    static const char *const file[] = { "manifest.jsonl", "rank-00000.bin" };
    for (int i = 0; i < 2; i++) {
        const char *x = lab_path(lab, "%s/run/checkpoints/step-%010d/%s", a, step, file[i]);
        const char *y = lab_path(lab, "%s/run/checkpoints/step-%010d/%s", b, step, file[i]);
        if (!lab_same_files(lab, x, y)) fail_msg("%s and %s differ", x, y);
    }
}

#endif
