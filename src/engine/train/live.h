/*
 * live: a run watched while it trains, over HTTP on the loopback address 127.0.0.1 alone.
 *
 *   GET /          a page with the run's charts, which the browser loads again every few seconds
 *   GET /metrics   the last values in Prometheus' text format, version 0.0.4
 *
 * Other paths are 404, other methods 405. A request whose Host is not this machine's name for itself is 403:
 * a web page elsewhere could else read the figures through a name that it points at 127.0.0.1.
 * One thread of libmicrohttpd answers. It copies the figures under a lock and writes its answer after it has
 * let go, so a step waits for a copy at most. A page is written at most every two seconds.
 */
#ifndef ENGINE_TRAIN_LIVE_H
#define ENGINE_TRAIN_LIVE_H

#include "engine/base/text.h"
#include "engine/config/config.h"
#include "engine/train/series.h"

enum { LIVE_POINTS = 400 };

/* Figures over the steps: x (points), y (series, LIVE_POINTS) with NaN as gaps. If there are more steps than
 * points, each point is the last value of `width` steps. */
typedef struct LiveView {
    const char *model, *folder;
    int64_t step, steps; /* done, of all */
    Series *series;
    int n, points;
    double *x, *y;
    int64_t from, width; /* the first step of the last point */
} LiveView;

/* Writes the page. */
typedef Status LivePage(const LiveView *v, Text *out);

typedef struct Live Live;

/* Serves run.http until live_close. ERR_ARG: the port is in use, or may not be used. ERR_UNSUPPORTED: there is no
 * libmicrohttpd. */
Status live_open(Live **out, const Config *c, const char *model, const SeriesTable *t,
                 LivePage *page, Arena *a);
/* Takes the fresh series of a step. Steps come in rising order; one may come twice. */
void live_put(Live *l, int64_t step, const SeriesTable *t);
void live_close(Live *l);
#endif
