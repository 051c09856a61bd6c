/* study_print: a study as text, CSV and JSON. It computes nothing. */
#include "study/study.h"

#include <inttypes.h>
#include <string.h>

static const double DAY_S = 86400;

/* A part's share of the step, in percent. */
static double percent(const StudyRow *r, PlanPart part)
{
    return 100 * r->price.part_s[part] / r->price.step_s;
}

static double room_gib(const StudyRow *r) { return plan_room_bytes(&r->request) / PLAN_GIB; }

/* The width of the first column. */
static int label_width(const Study *s)
{
    size_t most = strlen(s->kind->axis);
    for (int i = 0; i < s->n; i++) {
        const size_t n = strlen(s->row[i].label);
        if (n > most) most = n;
    }
    return (int)most;
}

/* ---- text ---- */

static Status print_question(const Study *s, Text *out)
{
    const PlanRequest *q = &s->base;
    const Config *c = q->config;
    char batch[32], gpus[32];
    TRY(text_printf(out, "training    %s, %s x %" PRId64 " tokens a step, on %s x %s, stack %s\n",
                    c->model_name, text_thousands(batch, c->train_batch), c->data_sequence,
                    text_thousands(gpus, q->gpus), q->hardware->gpu_title, s->stack));
    TRY(plan_report_basis(q, true, out));
    return text_printf(out, "study       %s\n", s->kind->name);
}

/* Tokens/s/GPU of the first legal row. */
static double first_speed(const Study *s)
{
    int i = 0;
    while (!study_legal(&s->row[i])) i++;
    return s->row[i].price.tokens_per_s_per_gpu;
}

/* What stands behind the figures of a row. */
static Status print_notes(const Study *s, const StudyRow *r, Text *out)
{
    char layout[PLAN_LAYOUT_BYTES], batch[32];
    const char *before = "  ";
    if (!r->price.fits) {
        TRY(text_printf(
            out, r->price.tight ? "  tight: %.2f GiB may be used" : "  does not fit into %.2f GiB",
            room_gib(r)));
        before = "; ";
    }
    if (s->n_gpus > 0) {
        TRY(text_printf(out, "%sbatch %s", before,
                        text_thousands(batch, r->request.config->train_batch)));
        before = "; ";
        if (r->moved != NULL) TRY(text_printf(out, ", %s", r->moved));
        TRY(text_printf(out, "; %.1f %% of the first row's speed",
                        100 * r->price.tokens_per_s_per_gpu / first_speed(s)));
    }
    if (r->goodput.full_s > 0) TRY(text_printf(out, "; %.1f days", r->goodput.full_s / DAY_S));
    if (r->goodput.share > 0)
        TRY(text_printf(out, ", %.1f with failures", r->goodput.mean_s / DAY_S));
    if (s->search) TRY(text_printf(out, "; %s", plan_layout_text(layout, &r->layout, &r->price)));
    return text_printf(out, "\n");
}

static Status print_row(const Study *s, const StudyRow *r, int width, Text *out)
{
    const PlanPrice *p = &r->price;
    TRY(text_printf(out, "  %-*s", width, r->label));
    if (!study_legal(r)) return text_printf(out, "  not legal: %s\n", r->why);
    TRY(text_printf(out, " %13.1f %8.2f %5.1f %9.3f %10.1f %8.1f %6.1f", p->tokens_per_s_per_gpu,
                    p->peak_bytes / PLAN_GIB, 100 * p->mfu, p->step_s, percent(r, PLAN_EXCHANGE),
                    percent(r, PLAN_BUBBLE), percent(r, PLAN_HOST)));
    return print_notes(s, r, out);
}

static Status print_kinds_head(const char *first, int width, Text *out)
{
    TRY(text_printf(out, "  %-*s", width, first));
    for (int k = 0; k < PLAN_KINDS; k++) TRY(text_printf(out, " %11s", plan_kind_names[k]));
    return text_printf(out, " %9s\n", "GiB");
}

static Status print_kinds(const double kind[PLAN_KINDS], Text *out)
{
    double sum = 0;
    for (int k = 0; k < PLAN_KINDS; k++) {
        TRY(text_printf(out, " %11.3f", kind[k] / PLAN_GIB));
        sum += kind[k];
    }
    return text_printf(out, " %9.2f", sum / PLAN_GIB);
}

/* The fullest rank of each layout, and all pipeline ranks of the layout that was given. */
static Status print_memory(const Study *s, int width, Text *out)
{
    TRY(print_kinds_head("fullest rank", width, out));
    for (int i = 0; i < s->n; i++) {
        const StudyRow *r = &s->row[i];
        if (!study_legal(r)) continue;
        TRY(text_printf(out, "  %-*s", width, r->label));
        TRY(print_kinds(r->price.memory, out));
        TRY(text_printf(out, "\n"));
    }
    for (int i = 0; i < s->n; i++) {
        const StudyRow *r = &s->row[i];
        if (!r->listed || !study_legal(r)) continue;
        TRY(print_kinds_head(r->label, width, out));
        for (int rank = 0; rank < r->layout.pp; rank++) {
            TRY(text_printf(out, "  pipeline rank %-*d", width - 14, rank));
            TRY(print_kinds(r->memory[rank], out));
            TRY(text_printf(out, "\n"));
        }
    }
    return OK;
}

Status study_print_text(const Study *s, Text *out)
{
    int width = label_width(s);
    if (s->row[0].by_rank && width < 18) width = 18;
    TRY(print_question(s, out));
    TRY(text_printf(out, "  %-*s %13s %8s %5s %9s %10s %8s %6s\n", width, s->kind->axis,
                    "tokens/s/GPU", "GiB", "MFU %", "step s", "exchange %", "bubble %", "host %"));
    for (int i = 0; i < s->n; i++) TRY(print_row(s, &s->row[i], width, out));
    if (s->row[0].by_rank) TRY(print_memory(s, width, out));
    TRY(s->kind->says(s, out));
    return text_printf(out, "\n");
}

/* ---- CSV ---- */

/* Quoted, as RFC 4180 says. */
static Status csv_text(const char *text, Text *out)
{
    TRY(text_printf(out, ",\""));
    for (; *text != '\0'; text++) TRY(text_printf(out, *text == '"' ? "\"\"" : "%c", *text));
    return text_printf(out, "\"");
}

static Status csv_head(Text *out)
{
    TRY(text_printf(out, "study,row,settings,not_legal,gpus,batch,batch_note,layout,rank,fits,"
                         "tokens_per_s_per_gpu,mfu,step_s,days"));
    for (int k = 0; k < PLAN_PARTS; k++) TRY(text_printf(out, ",%s_s", plan_part_names[k]));
    for (int k = 0; k < PLAN_KINDS; k++) TRY(text_printf(out, ",%s_bytes", plan_kind_names[k]));
    return text_printf(out, "\n");
}

/* A line: of a row's fullest pipeline rank, or of one of its ranks. */
static Status csv_line(const Study *s, const StudyRow *r, int rank, Text *out)
{
    char layout[PLAN_LAYOUT_BYTES] = "";
    const PlanPrice *p = &r->price;
    const double *kind = r->memory != NULL && rank >= 0 ? r->memory[rank] : p->memory;
    if (study_legal(r)) (void)plan_layout_text(layout, &r->layout, p);
    TRY(text_printf(out, "%s", s->kind->name));
    TRY(csv_text(r->label, out));
    TRY(csv_text(r->settings, out));
    TRY(csv_text(study_legal(r) ? "" : r->why, out));
    TRY(text_printf(out, ",%" PRId64 ",%" PRId64, r->request.gpus, r->request.config->train_batch));
    TRY(csv_text(r->moved == NULL ? "" : r->moved, out));
    TRY(csv_text(layout, out));
    if (!study_legal(r)) {
        for (int k = 0; k < 6 + PLAN_PARTS + PLAN_KINDS; k++) TRY(text_printf(out, ","));
        return text_printf(out, "\n");
    }
    TRY(text_printf(out, ",%d,%s,%.6g,%.6g,%.6g,", rank >= 0 ? rank : p->worst_rank,
                    p->fits    ? "yes"
                    : p->tight ? "tight"
                               : "no",
                    p->tokens_per_s_per_gpu, p->mfu, p->step_s));
    if (r->goodput.full_s > 0) TRY(text_printf(out, "%.6g", r->goodput.full_s / DAY_S));
    for (int k = 0; k < PLAN_PARTS; k++) TRY(text_printf(out, ",%.6g", p->part_s[k]));
    for (int k = 0; k < PLAN_KINDS; k++) TRY(text_printf(out, ",%.0f", kind[k]));
    return text_printf(out, "\n");
}

Status study_print_csv(const Study *s, Text *out)
{
    TRY(csv_head(out));
    for (int i = 0; i < s->n; i++) {
        const StudyRow *r = &s->row[i];
        const int ranks = r->memory != NULL && study_legal(r) ? r->layout.pp : 0;
        if (ranks == 0) TRY(csv_line(s, r, -1, out));
        for (int rank = 0; rank < ranks; rank++) TRY(csv_line(s, r, rank, out));
    }
    return OK;
}

/* ---- JSON ---- */

static Status json_values(const char *key, const char *const *names, const double *value, int n,
                          Text *out)
{
    TRY(text_json(out, ",%s:{", key));
    for (int k = 0; k < n; k++)
        TRY(text_json(out, k > 0 ? ",%s:%.9g" : "%s:%.9g", names[k], value[k]));
    return text_printf(out, "}");
}

static Status json_row(const StudyRow *r, Text *out)
{
    char layout[PLAN_LAYOUT_BYTES];
    const PlanPrice *p = &r->price;
    TRY(text_json(out, "{\"row\":%s,\"settings\":%s,\"gpus\":%lld,\"batch\":%lld", r->label,
                  r->settings, (long long)r->request.gpus,
                  (long long)r->request.config->train_batch));
    if (r->moved != NULL) TRY(text_json(out, ",\"batch_note\":%s", r->moved));
    if (!study_legal(r)) return text_json(out, ",\"not_legal\":%s}", r->why);
    TRY(text_json(out,
                  ",\"layout\":%s,\"tokens_per_s_per_gpu\":%.9g,\"mfu\":%.9g,"
                  "\"peak_bytes\":%.0f,\"step_s\":%.9g",
                  plan_layout_text(layout, &r->layout, p), p->tokens_per_s_per_gpu, p->mfu,
                  p->peak_bytes, p->step_s));
    TRY(text_printf(out, ",\"fits\":%s,\"tight\":%s", p->fits ? "true" : "false",
                    p->tight ? "true" : "false"));
    if (r->goodput.full_s > 0) TRY(text_json(out, ",\"days\":%.9g", r->goodput.full_s / DAY_S));
    TRY(json_values("time", plan_part_names, p->part_s, PLAN_PARTS, out));
    TRY(json_values("memory", plan_kind_names, p->memory, PLAN_KINDS, out));
    if (r->memory == NULL) return text_printf(out, "}");
    TRY(text_printf(out, ",\"ranks\":["));
    for (int rank = 0; rank < r->layout.pp; rank++) {
        TRY(text_json(out, rank > 0 ? ",{\"rank\":%d" : "{\"rank\":%d", rank));
        TRY(json_values("memory", plan_kind_names, r->memory[rank], PLAN_KINDS, out));
        TRY(text_printf(out, "}"));
    }
    return text_printf(out, "]}");
}

Status study_print_json(const Study *s, Text *out)
{
    const char *says = NULL;
    Text sentence;
    TRY(text_init(&sentence, s->a));
    TRY(s->kind->says(s, &sentence));
    says = sentence.data;
    TRY(text_json(out, "{\"study\":%s,\"model\":%s,\"gpu\":%s,\"stack\":%s,\"says\":%s,\"rows\":[",
                  s->kind->name, s->base.config->model_name, s->base.hardware->name, s->stack,
                  says));
    for (int i = 0; i < s->n; i++) {
        if (i > 0) TRY(text_printf(out, ","));
        TRY(json_row(&s->row[i], out));
    }
    return text_printf(out, "]}\n");
}
