/*
 * study: a question of the papers over one training, a layout a row: which micro-batch, how many ranks of experts, how
 * it scales, what to recompute, which precision, where memory goes. `switchyard plan MODEL ... --study NAME` becomes
 * this program (tools/beside).
 *
 * Each row is priced and simulated by the functions of `plan` (plan.h, answer.h): a row has the digits that `plan` prints
 * for its settings alone. A row that does not fit is priced, too. A row that is not legal says why.
 *
 * Not here: how a layout is priced (src/planner/price), and searches over all axes (`plan --search`), but for
 * --study scale, which may search on each number of GPUs.
 */
#ifndef STUDY_STUDY_H
#define STUDY_STUDY_H

#include "planner/planner.h"

enum { STUDY_ROWS = 256 };

typedef struct StudyRow {
    const char *label;    /* what differs from the other rows: "8", "norm" */
    const char *settings; /* what `plan` takes for this row; "": no settings say it */
    const char *moved;    /* the batch, where it was moved to a legal one; NULL: it was not */
    const char *why;      /* why it is not legal; NULL: it is */
    double x;             /* the number on the axis of the chart */
    int curve;            /* rows with and without an option of the stack are two curves */
    bool by_rank;         /* memory of each pipeline rank is asked for */
    bool listed;          /* and printed as a table */
    double
        share; /* of the blocks of each chunk that recompute whole layers; 0: as the settings say */
    PlanRequest request;
    PlanLayout layout;
    PlanPrice price;
    double (*memory)[PLAN_KINDS]; /* of each pipeline rank; NULL: not asked */
    Goodput goodput;              /* of --tokens; full_s 0: not asked */
} StudyRow;

typedef struct Study Study;

/* A row of the table of studies. */
typedef struct StudyKind {
    const char *name, *axis, *title;
    bool number;                               /* the axis is a number */
    Status (*rows)(Study *s);                  /* makes and prices the rows */
    Status (*says)(const Study *s, Text *out); /* one sentence of what they show */
} StudyKind;

struct Study {
    const StudyKind *kind;
    PlanRequest base;  /* as the command line says */
    const char *stack; /* as written after --stack */
    double tokens;     /* of the whole training, for --study scale; 0: not asked */
    bool strong, search;
    int64_t gpus[SCALING_POINTS]; /* of --scale */
    int n_gpus;
    const char *curve[2]; /* names of curves; NULL: there is one, without a name */
    Arena *a;
    StudyRow row[STUDY_ROWS];
    int n;
};

/* ERR_ARG, with the nearest name: there is no such study. */
Status study_find(const char *name, const StudyKind **out);

/* Makes all rows. ERR_ARG: no row is legal; where the batch is the reason the sentence has the nearest legal ones. */
Status study_run(Study *s);
/* ERR_FIT: no legal row fits. */
Status study_fits(const Study *s);

/* Is the row legal? */
static inline bool study_legal(const StudyRow *r) { return r->why == NULL; }
static inline bool study_row_fits(const StudyRow *r) { return study_legal(r) && r->price.fits; }

/* ---- rows (study.c), for studies ---- */

/* A new row of the base's configuration, which the caller may change, with `value` as its label. */
__attribute__((format(printf, 3, 4))) Status study_add(Study *s, StudyRow **out, const char *fmt,
                                                       ...);
/* Prices and simulates the row; sets `why` if it is not legal. */
Status study_price(Study *s, StudyRow *r);
/* A text of the arena. */
__attribute__((format(printf, 3, 4))) Status study_text(Arena *a, const char **out, const char *fmt,
                                                        ...);
/* The row's configuration, which is its own. */
Config *study_config(StudyRow *r);
/* Takes the last failure as the row's reason; other codes than ERR_ARG are returned. */
Status study_refuse(Study *s, StudyRow *r, Status failed);

/* ---- the batch (study_batch.c) ---- */

/* The legal batch of a layout nearest to `wanted`, at most and at least `wanted`; 0: none. Of the schedule, the ramp and
 * what must divide; dp and micro_batch are the layout's. */
void study_batches(const Config *c, const PlanLayout *l, int64_t wanted, int64_t *below,
                   int64_t *above);
/* Sets train.batch of a row to the nearest legal one of `wanted`, and says in the row that it was moved. */
Status study_move_batch(Study *s, StudyRow *r, int64_t wanted);

/* study_scale.c */
Status study_scale_rows(Study *s);

/* ---- studies' sentences (study_says.c) ---- */
Status study_says_micro(const Study *s, Text *out);
Status study_says_ep(const Study *s, Text *out);
Status study_says_scale(const Study *s, Text *out);
Status study_says_recompute(const Study *s, Text *out);
Status study_says_precision(const Study *s, Text *out);
Status study_says_memory(const Study *s, Text *out);

/* ---- what is printed (study_print.c, study_page.c) ---- */
Status study_print_text(const Study *s, Text *out);
Status study_print_csv(const Study *s, Text *out);
Status study_print_json(const Study *s, Text *out);
/* A page with charts; `out` is in an arena of its own and is left as it was. */
Status study_page_write(const Study *s, const char *path, Text *out);

#endif
