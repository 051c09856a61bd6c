/* layout: parses and writes the notation of layouts (layout.h), and makes even ones. balance.c makes those that
 * follow costs. */
#include "engine/schedule/layout.h"

#include "engine/base/text.h"

#include <stdio.h>
#include <string.h>

/* The state of the parser. The text of a group is read again for each repetition. */
typedef struct Reader {
    const char *text;
    int at;
    Layout *out;
    int want_stages, want_layers;
    bool ended; /* the loss has been read */
} Reader;

/* Every error of the parser shows the text with a caret under the character that is wrong. */
static Status fail_at(const Reader *r, int at, const char *says)
{
    char caret[TEXT_CARET_BYTES];
    return FAIL(ERR_ARG, "layout: %s%s", says, text_caret(caret, r->text, at));
}

/* An error about a number: how many there are and how many were expected. */
static Status fail_number(const Reader *r, int at, int is, const char *what, int want)
{
    char says[128];
    (void)snprintf(says, sizeof says, "%d %s, expected %d", is, what, want);
    return fail_at(r, at, says);
}

static void skip_separators(Reader *r)
{
    while (r->text[r->at] == ' ' || r->text[r->at] == ',') r->at++;
}

/* The n of "*n", 1 if there is none. */
static Status read_count(Reader *r, int *out)
{
    int n = 0;
    *out = 1;
    if (r->text[r->at] != '*') return OK;
    int start = ++r->at;
    for (; r->text[r->at] >= '0' && r->text[r->at] <= '9'; r->at++) {
        n = n * 10 + (r->text[r->at] - '0');
        if (n > LAYOUT_LAYERS_MAX) return fail_at(r, start, "more than 65536 times");
    }
    if (n == 0) return fail_at(r, start, "* needs a number of times, at least 1");
    *out = n;
    return OK;
}

/* Begins the next stage. The limit holds while parsing, so a short text with large repetitions
 * cannot fill memory. */
static Status add_stage(Reader *r, int at)
{
    Layout *l = r->out;
    int most = r->want_stages > 0 ? r->want_stages : LAYOUT_STAGES_MAX;
    if (l->stages == most) return fail_number(r, at, most + 1, "or more stages", most);
    l->stage[l->stages++] = (LayoutStage){ .first = l->layers };
    return OK;
}

/* Layers of multi-token prediction are the last ones, so no ordinary layer may follow them. */
static Status add_layers(Reader *r, int at, int n)
{
    Layout *l = r->out;
    int most = r->want_layers > 0 ? r->want_layers : LAYOUT_LAYERS_MAX;
    if (l->predictions > 0) return fail_at(r, at, "a layer after one of multi-token prediction");
    if (n > most - l->layers) return fail_number(r, at, l->layers + n, "or more layers", most);
    l->layers += n;
    l->stage[l->stages - 1].layers += n;
    return OK;
}

/* Adds n of one piece to the current stage. E must be the first piece of all, L the last one, each
 * exactly once. */
static Status add_piece(Reader *r, char c, int at, int n)
{
    Layout *l = r->out;
    LayoutStage *s = &l->stage[l->stages - 1];
    bool empty = l->stages == 1 && s->layers == 0 && s->predictions == 0;
    if (r->ended) return fail_at(r, at, "the loss L is the last piece");
    if (c == 'E' && (!empty || s->embedding || n != 1))
        return fail_at(r, at, "one embedding E, first");
    if (c != 'E' && !l->stage[0].embedding)
        return fail_at(r, at, "the embedding E is the first piece");
    switch (c) {
    case 'E': s->embedding = true; return OK;
    case 't': return add_layers(r, at, n);
    case 'm':
        if (n > LAYOUT_LAYERS_MAX - l->predictions) return fail_at(r, at, "more than 65536 of m");
        l->predictions += n;
        s->predictions += n;
        return OK;
    default:
        if (n != 1) return fail_at(r, at, "one loss L");
        s->loss = r->ended = true;
        return OK;
    }
}

static Status read_group(Reader *r, int depth);

/* Reads ends of stages, groups and pieces, up to the end or a ). */
static Status read_items(Reader *r, int depth)
{
    for (skip_separators(r); r->text[r->at] != '\0' && r->text[r->at] != ')'; skip_separators(r)) {
        int at = r->at, n = 1;
        char c = r->text[at];
        if (c == '(') {
            TRY(read_group(r, depth));
            continue;
        }
        r->at++;
        if (strchr("EtmL|", c) == NULL)
            return fail_at(r, at, "legal are E, t, m, L, (, ), | and *");
        if (c != '|') TRY(read_count(r, &n));
        TRY(c == '|' ? add_stage(r, at) : add_piece(r, c, at, n));
    }
    return OK;
}

/* A group that adds nothing is read only once, so nested empty groups cannot take exponential time. */
static Status read_group(Reader *r, int depth)
{
    int open = r->at, n = 1;
    if (depth == LAYOUT_DEPTH_MAX) return fail_at(r, open, "more than 8 groups within each other");
    for (int i = 0; i < n; i++) {
        Layout before = *r->out;
        r->at = open + 1;
        TRY(read_items(r, depth + 1));
        if (r->text[r->at] != ')') return fail_at(r, open, "a group that does not end");
        r->at++;
        TRY(read_count(r, &n));
        bool added = r->out->stages + r->out->layers + r->out->predictions >
                     before.stages + before.layers + before.predictions;
        if (!added) break;
    }
    return OK;
}

/* A layout always has a first stage, hence the add_stage before any text is read. */
static Status read_all(Reader *r)
{
    TRY(add_stage(r, 0));
    TRY(read_items(r, 0));
    const Layout *l = r->out;
    if (r->text[r->at] == ')') return fail_at(r, r->at, "a ) without its (");
    if (!l->stage[l->stages - 1].loss) return fail_at(r, r->at, "the loss L is missing at the end");
    if (r->want_stages > 0 && l->stages != r->want_stages)
        return fail_number(r, r->at, l->stages, "stages", r->want_stages);
    if (r->want_layers > 0 && l->layers != r->want_layers)
        return fail_number(r, r->at, l->layers, "layers", r->want_layers);
    return OK;
}

/* There is room for the wanted number of stages, or for LAYOUT_STAGES_MAX. If the text is refused, their memory
 * is given back. */
Status layout_parse(const char *text, int want_stages, int want_layers, Arena *a, Layout *out)
{
    Layout l = { 0 };
    Reader r = { .text = text, .out = &l, .want_stages = want_stages, .want_layers = want_layers };
    ArenaMark mark = arena_mark(a);
    TRY(ARENA_NEW(a, want_stages > 0 ? want_stages : LAYOUT_STAGES_MAX, &l.stage));
    Status status = read_all(&r);
    if (status != OK) arena_release(a, mark);
    if (status == OK) *out = l;
    return status;
}

Status layout_check_predictions(const Layout *l, int depths)
{
    int with_loss = l->stage[l->stages - 1].predictions;
    if (l->predictions == 0 || (l->predictions == depths && with_loss == depths)) return OK;
    return FAIL(ERR_ARG,
                "mesh.layout has %d layers of multi-token prediction (m), %d of them on the loss's "
                "stage; mtp.layers is %d: write all of them there, or none",
                l->predictions, with_loss, depths);
}

Status layout_even(int stages, int layers, Arena *a, Layout *out)
{
    if (layers < stages) {
        return FAIL(ERR_ARG,
                    "mesh: %d stages (mesh.pp x mesh.vpp) and model.layers %d: a stage has at "
                    "least a layer, or name mesh.layout",
                    stages, layers);
    }
    LayoutStage *s = NULL;
    TRY(ARENA_ZEROED(a, stages, &s));
    for (int i = 0, first = 0; i < stages; first += s[i++].layers) {
        s[i].first = first;
        s[i].layers = layers / stages + (i < layers % stages);
    }
    s[0].embedding = s[stages - 1].loss = true;
    *out = (Layout){ .stage = s, .stages = stages, .layers = layers };
    return OK;
}

/* Writes nothing for 0, "t" for 1, "t*3" for 3. */
static Status append_pieces(Text *t, const char *piece, int n)
{
    if (n == 0) return OK;
    return n == 1 ? text_printf(t, "%s", piece) : text_printf(t, "%s*%d", piece, n);
}

Status layout_text(const Layout *l, Arena *a, const char **out)
{
    Text t;
    TRY(text_init(&t, a));
    for (int i = 0; i < l->stages; i++) {
        const LayoutStage *s = &l->stage[i];
        if (i > 0) TRY(append_pieces(&t, "|", 1));
        TRY(append_pieces(&t, "E", s->embedding));
        TRY(append_pieces(&t, "t", s->layers));
        TRY(append_pieces(&t, "m", s->predictions));
        TRY(append_pieces(&t, "L", s->loss));
    }
    *out = t.data;
    return OK;
}
