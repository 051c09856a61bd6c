/* figure: the table of the numbers that a step reports (figure.def). From it follow the record on the device
 * (engine/model/layer.h), StepResult, a line of metrics.jsonl, what TensorBoard and Prometheus are given, and
 * the curves of reports. */
#ifndef ENGINE_MODEL_FIGURE_H
#define ENGINE_MODEL_FIGURE_H

#include <stdbool.h>
#include <stddef.h>

typedef enum Figure {
#define FIGURE(NAME, ...) FIGURE_##NAME,
#include "engine/model/figure.def"
    FIGURES
} Figure;

/* What a figure has one number for. Those before EACH_LABELLED have labels; the others are only in the record. */
typedef enum FigureEach {
    EACH_RUN,
    EACH_DEPTH,   /* of multi-token prediction */
    EACH_GROUP,   /* of parameters (grad_group.def) */
    EACH_LAYER,   /* with experts */
    EACH_DROPPED, /* the same, where tokens may be dropped */
    EACH_SOURCE,  /* of text */
    EACH_LABELLED,
    EACH_LOAD = EACH_LABELLED, /* (MoE layers, domains, E) */
    EACH_MARGIN,               /* (MoE layers, E, MARGIN_BINS), with moe.bias_rule=quantile */
    EACH_HEAD,                 /* (blocks, H) */
    EACH_FLAG,                 /* 2, or 3 with run.verify_every */
    EACH_CHECK,                /* (layers + 1, VERIFY_POINTS), with run.verify_every */
    EACH_COUNT
} FigureEach;

/* How the record holds a figure. The first four are 0 when a step begins. */
typedef enum FigureRecord {
    RECORD_SUM,     /* f32, added over all ranks at the step's end */
    RECORD_COUNT,   /* i32, added over all ranks */
    RECORD_MAX,     /* f32, the largest of all ranks */
    RECORD_OWN,     /* i32, of this rank alone */
    RECORD_WRITTEN, /* f32, the same on all ranks */
    RECORD_HOST     /* it does not: the host sets it (series_set) */
} FigureRecord;

/* What the host makes of the record's numbers. */
typedef enum FigureRead {
    READ_UNREAD,
    READ_PLAIN,
    READ_UNSCALED,   /* over the loss scale */
    READ_UNWEIGHTED, /* that, and over the weight of a depth */
    READ_ROOT,       /* the root over the loss scale; 0: this model has none */
    READ_PER_TOKEN   /* metrics divide it by the tokens of the batch */
} FigureRead;

/* How a line of metrics.jsonl has a figure that was set in its step. */
typedef enum FigureMember {
    MEMBER_NONE,
    MEMBER_NUMBER,         /* "key":0.5, or for each label "keylabel":0.5 */
    MEMBER_COUNT,          /* "key":5 */
    MEMBER_TRUE,           /* "key":true */
    MEMBER_LIST,           /* "key":[0.5,0.25] */
    MEMBER_COUNTS_IF_ANY,  /* "key":[5,0]; nothing if all are 0 */
    MEMBER_BY_NAME,        /* "key":{"label":0.5}, in lines that have tables by domain */
    MEMBER_COUNTS_BY_NAME, /* "key":{"label":5} */
    MEMBER_BY_HAND,        /* put_by_hand of engine/train/metrics.c writes it */
    MEMBER_EVAL            /* it stands in lines of evaluations */
} FigureMember;

enum { FIGURE_PLACES = 99 };

/* The charts that a figure has a curve in: sections of report.html, or only with several runs. */
typedef enum FigureSection {
    SECTION_NONE,
    SECTION_COMPARED,
    SECTION_RATES,
    SECTION_NORMS,
    SECTION_THROUGHPUT
} FigureSection;

typedef struct FigureCurve {
    int place; /* from 1 to FIGURE_PLACES, among the charts of a page */
    FigureSection section;
    const char *title;
    bool percent, from_zero, may_log; /* the axis */
} FigureCurve;

typedef struct FigureRow {
    FigureEach each;
    FigureRecord record;
    FigureRead read;
    FigureMember member;
    const char *key;
    int place; /* from 1 to FIGURE_PLACES, among the figures that can be watched; 0: it cannot */
    const char *name, *help;
    bool total;   /* it only grows */
    bool above_0; /* 0 is unknown */
    FigureCurve curve;
    bool alone; /* not for several runs */
} FigureRow;

extern const FigureRow figure_rows[FIGURES];

#endif
