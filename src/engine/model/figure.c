/* figure: the table itself. */
#include "engine/model/figure.h"

#define UNWATCHED                .place = 0
#define WATCHED(p, n, h)         .place = (p), .name = (n), .help = (h)
#define TOTAL(p, n, h)           WATCHED(p, n, h), .total = true
#define WATCHED_ABOVE_0(p, n, h) WATCHED(p, n, h), .above_0 = true
#define NO_CURVE                 .alone = false
#define CURVE(p, s, ...)         .curve = { (p), SECTION_##s, __VA_ARGS__ }
#define CURVE_ALONE(...)         CURVE(__VA_ARGS__), .alone = true
#define PLAIN                    false
#define PERCENT                  true

const FigureRow figure_rows[FIGURES] = {
#define FIGURE(NAME, name, each, record, read, json, ...)                                          \
    [FIGURE_##NAME] = { EACH_##each, RECORD_##record, READ_##read, MEMBER_##json, __VA_ARGS__ },
#include "engine/model/figure.def"
};
