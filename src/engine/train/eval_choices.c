/* eval_choices: see eval_choices.h. */
#include "engine/train/eval_choices.h"

#include <math.h>
#include <string.h>

/* A question for each line, at most. */
static Status read_all(QuestionReader *r, const char *text, size_t bytes, Questions *out)
{
    int64_t lines = 1;
    for (size_t i = 0; i < bytes; i++) lines += text[i] == '\n';
    TRY(ARENA_NEW(r->kept, lines, &out->question));
    for (const char *at = text, *end = text + bytes; at < end;) {
        const ArenaMark mark = arena_mark(r->arena);
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        const size_t n = (size_t)((stop == NULL ? end : stop) - at);
        Question *q = &out->question[out->n];
        TRY(question_read(r, at, n, q));
        out->n += q->n > 0;
        out->choices += q->n;
        arena_release(r->arena, mark);
        at += n + 1;
    }
    if (out->n > 0) return OK;
    return FAIL(ERR_FORMAT, "%s has no question", r->file);
}

static Status read_file(const Config *c, Arena *scratch, Arena *a, Questions *out)
{
    char *text = NULL;
    size_t bytes = 0;
    Tokenizer *t = NULL;
    TRY(file_sum(out->file, out->sum));
    TRY(file_read_input(out->file, scratch, &text, &bytes));
    TRY(tokenizer_load(c->data_tokenizer, scratch, &t));
    QuestionReader r = { out->file, t, c->data_sequence, 0, .arena = scratch, .kept = a };
    const Status s = read_all(&r, text, bytes, out);
    tokenizer_free(t);
    return s;
}

/* The last token of a choice is a target alone, so a choice takes one place less than it has tokens. */
static Status place_choices(const Config *c, Arena *a, Questions *q)
{
    int64_t row = 0, at = 0, n = 0;
    TRY(ARENA_NEW(a, q->choices, &q->asked));
    TRY(ARENA_NEW(a, q->choices, &q->logprob));
    TRY(ARENA_NEW(a, c->train_micro_batch * c->data_sequence, &q->owner));
    for (int64_t i = 0; i < q->n; i++) {
        for (int k = 0; k < q->question[i].n; k++) {
            Choice *choice = &q->question[i].choice[k];
            const int64_t takes = choice->n - 1;
            if (at > 0 && (!c->attention_document_mask || at + takes > c->data_sequence))
                row++, at = 0;
            q->asked[n++] = (struct Asked){ choice, row, at };
            at += takes;
        }
    }
    q->rows = row + 1;
    return OK;
}

Status questions_load(const Config *c, Arena *a, Questions **out)
{
    Arena scratch = { 0 };
    *out = NULL;
    if (c->eval_choices[0] == '\0') return OK;
    TRY(ARENA_ZEROED(a, 1, out));
    (*out)->file = c->eval_choices;
    TRY(arena_reserve(&scratch, "questions", (size_t)8 << 30));
    Status s = read_file(c, &scratch, a, *out);
    arena_free(&scratch);
    return s == OK ? place_choices(c, a, *out) : s;
}

/* ---- asking ---- */

/* Padding, which no choice has taken yet. */
static void clear_batch(const Batch *b, int64_t sequence, int32_t *owner)
{
    const int64_t n = b->domain.dim[0] * sequence;
    int32_t *pos = b->pos.data, *target = b->target.data;
    memset(b->id.data, 0, tensor_bytes(&b->id));
    memset(b->doc.data, 0, tensor_bytes(&b->doc));
    memset(b->domain.data, 0, tensor_bytes(&b->domain));
    for (int64_t i = 0; i < n; i++) {
        pos[i] = (int32_t)(i % sequence);
        target[i] = owner[i] = -1;
    }
}

/* Tokens of a prompt are targets, too, or they would be padding; they belong to no choice. */
static void put_choice(const Batch *b, int64_t sequence, int64_t row, const Questions *q, int64_t n)
{
    const struct Asked *a = &q->asked[n];
    const int64_t from = row * sequence + a->at;
    int32_t *id = b->id.data, *target = b->target.data, *doc = b->doc.data;
    for (int64_t i = 0; i + 1 < a->choice->n; i++) {
        id[from + i] = a->choice->id[i];
        target[from + i] = a->choice->id[i + 1];
        doc[from + i] = (int32_t)a->at;
        if (i + 1 >= a->choice->first) q->owner[from + i] = (int32_t)n;
    }
    for (int64_t i = from + a->choice->n - 1; i < (row + 1) * sequence; i++)
        doc[i] = (int32_t)(a->at + a->choice->n - 1);
}

/* The place in its sequence of a rank's token i: write_own_tokens of engine_batch.c cuts them so. */
static int64_t whole_place(const EngineShape *s, int64_t i)
{
    const int64_t cp = s->mesh != NULL ? s->mesh->shape.cp : 1, piece = s->sequence / 2;
    if (cp == 1) return i;
    const int64_t c = s->mesh->at.cp;
    return i < piece ? c * piece + i : (2 * cp - 1 - c) * piece + i - piece;
}

static Status ask_batch(Evaluator *v, const Questions *q)
{
    const float *losses = NULL; /* stays NULL on stages without the head */
    const EngineShape *s = &v->engine->shape;
    const int64_t whole = v->engine->config->data_sequence;
    TRY(engine_losses(v->engine, &v->batch, &losses));
    if (s->mesh != NULL && s->mesh->at.tp > 0) losses = NULL; /* the first rank of tp counts them */
    for (int64_t i = 0; losses != NULL && i < s->micro_batch * s->sequence; i++) {
        const int64_t row = i / s->sequence, place = whole_place(s, i % s->sequence);
        const int32_t owner = q->owner[row * whole + place];
        if (owner >= 0) q->logprob[owner] -= losses[i];
    }
    return OK;
}

/* Micro-batches are dealt to the data-parallel ranks as eval_run deals them. */
static Status ask_all(Evaluator *v, const Questions *q)
{
    const Engine *e = v->engine;
    const Mesh *m = e->shape.mesh;
    const int64_t micro = e->shape.micro_batch, ranks = m == NULL ? 1 : mesh_data_ranks(&m->shape);
    int64_t n = 0;
    v->batch.targets = q->choices; /* a scale of gradients that nobody computes */
    for (int64_t first = 0; first < q->rows; first += ranks * micro) {
        const int64_t mine = first + (m == NULL ? 0 : mesh_data_rank(m) * micro);
        clear_batch(&v->batch, e->config->data_sequence, q->owner);
        while (n < q->choices && q->asked[n].row < mine) n++;
        for (; n < q->choices && q->asked[n].row < mine + micro; n++)
            put_choice(&v->batch, e->config->data_sequence, q->asked[n].row - mine, q, n);
        TRY(ask_batch(v, q));
        heartbeat_again(v->beat);
    }
    return OK;
}

Status questions_ask(Evaluator *v, int64_t step, Answers *out)
{
    const Questions *q = v->questions;
    const Mesh *m = v->engine->shape.mesh;
    Tensor sums = { q->logprob, DTYPE_F32, 1, { q->choices } };
    *out = (Answers){ 0 };
    memset(q->logprob, 0, (size_t)q->choices * sizeof *q->logprob);
    TRY(ask_all(v, q));
    if (m != NULL) TRY(comm_all_reduce(m->group[GROUP_WORLD], &sums, REDUCE_SUM));
    for (int64_t i = 0; i < q->choices; i++) {
        q->asked[i].choice->logprob = (double)q->logprob[i];
        if (isfinite(q->logprob[i])) continue;
        return FAIL(ERR_NUMERIC,
                    "step %lld: the log-likelihood of a choice of %s is %g: take an earlier "
                    "checkpoint, or lower optimizer.lr",
                    (long long)step, q->file, (double)q->logprob[i]);
    }
    for (int64_t i = 0; i < q->n; i++) question_count(&q->question[i], out);
    return OK;
}
