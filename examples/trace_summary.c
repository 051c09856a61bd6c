/*
 * trace_summary: where the time of a trace went, in a screenful: gpu_timeline, the ten kernels that
 * took longest, and the first rows of a sheet.
 *
 *     make lib
 *     cc -Iinclude examples/trace_summary.c -Lbuild/lib -lswitchyard -o trace_summary
 *     LD_LIBRARY_PATH=build/lib ./trace_summary rank0.json.gz ops_summary
 */
#include <switchyard_trace.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TOP = 10, ROWS = 5 };

static int complain(void)
{
    (void)fprintf(stderr, "%s\n", switchyard_trace_error());
    return 1;
}

static int print_timeline(SwitchyardTrace *t)
{
    SwitchyardTraceTimeline time;
    if (switchyard_trace_timeline(t, &time) != SWITCHYARD_TRACE_OK) return complain();
    printf(
        "computation %.3f ms, exposed communication %.3f, exposed copies %.3f, idle %.3f of %.3f\n",
        time.computation / 1e3, time.exposed_comm / 1e3, time.exposed_memcpy / 1e3, time.idle / 1e3,
        time.total / 1e3);
    return 0;
}

static int by_duration(const void *a, const void *b)
{
    const double x = ((const SwitchyardTraceEvent *)a)->duration;
    const double y = ((const SwitchyardTraceEvent *)b)->duration;
    return (x < y) - (x > y);
}

static int print_kernels(const SwitchyardTrace *t, int64_t events)
{
    SwitchyardTraceEvent *kernel = calloc((size_t)events + 1, sizeof *kernel);
    int64_t n = 0;
    if (kernel == NULL) return 1;
    for (int64_t i = 0; i < events; i++) {
        if (switchyard_trace_event(t, i, &kernel[n]) != SWITCHYARD_TRACE_OK) {
            free(kernel);
            return complain();
        }
        n += strcmp(kernel[n].category, "kernel") == 0;
    }
    qsort(kernel, (size_t)n, sizeof *kernel, by_duration);
    for (int64_t i = 0; i < n && i < TOP; i++)
        printf("%10.1f us  stream %d  %.60s\n", kernel[i].duration, (int)kernel[i].stream,
               kernel[i].name);
    free(kernel);
    return 0;
}

static void print_cell(const SwitchyardTraceCell *c)
{
    switch (c->type) {
    case SWITCHYARD_TRACE_NONE: printf("-"); break;
    case SWITCHYARD_TRACE_TEXT: printf("%.40s", c->text); break;
    case SWITCHYARD_TRACE_NUMBER: printf("%.6g", c->number); break;
    case SWITCHYARD_TRACE_WHOLE: printf("%lld", (long long)c->whole); break;
    case SWITCHYARD_TRACE_BOOL: printf(c->truth ? "yes" : "no"); break;
    }
}

static int print_sheet(SwitchyardTrace *t, const char *name)
{
    SwitchyardTraceSheet sheet;
    SwitchyardTraceCell cell;
    int32_t at = 0;
    if (switchyard_trace_find_sheet(t, name, &at) != SWITCHYARD_TRACE_OK) return complain();
    if (switchyard_trace_sheet(t, at, &sheet) != SWITCHYARD_TRACE_OK) return complain();
    printf("%s: %lld rows of %d columns\n", sheet.name, (long long)sheet.rows, (int)sheet.columns);
    for (int64_t row = 0; row < sheet.rows && row < ROWS; row++) {
        for (int32_t column = 0; column < sheet.columns; column++) {
            if (switchyard_trace_cell(t, at, row, column, &cell) != SWITCHYARD_TRACE_OK)
                return complain();
            printf("%s%s=", column == 0 ? "  " : ", ", sheet.column[column]);
            print_cell(&cell);
        }
        printf("\n");
    }
    return 0;
}

int main(int argc, char **argv)
{
    SwitchyardTrace *t = NULL;
    SwitchyardTraceCounts counts;
    if (argc < 2 || argc > 3) {
        (void)fprintf(stderr, "usage: trace_summary FILE [SHEET]\n");
        return 2;
    }
    if (switchyard_trace_open(argv[1], NULL, &t) != SWITCHYARD_TRACE_OK) return complain();
    int failed = switchyard_trace_counts(t, &counts) != SWITCHYARD_TRACE_OK;
    printf("%lld events, %lld of them device work; left out: %lld that are not JSON, %lld "
           "incomplete%s\n",
           (long long)counts.events, (long long)counts.device_events, (long long)counts.malformed,
           (long long)counts.incomplete, counts.truncated ? "; the file ends early" : "");
    if (!failed) failed = print_timeline(t);
    if (!failed) failed = print_kernels(t, counts.events);
    if (!failed && argc == 3) failed = print_sheet(t, argv[2]);
    switchyard_trace_close(t);
    return failed;
}
