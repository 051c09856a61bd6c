/* plan_mesh: which GPUs exchange what. GPUs are numbered as ranks are (engine/comm/mesh.h), and fill one scale-up
 * domain after the other. */
#include "pages/charts/page.h"
#include "pages/charts/svg.h"
#include "planner/page/plan_page.h"

#include <stdio.h>

enum {
    WIDTH = 1080,
    CELL = 15, /* pixels of a GPU and the gap behind it */
    INNER = 13,
    EDGE = 5, /* between the edge of a host and its GPUs */
    GAP = 12, /* between hosts */
    NAME = 16,
    HOST_MOST = 16 /* GPUs; a larger domain is a rack, not a host */
};

static const char *const axis_names[PLAN_AXES] = { "tp", "cp", "ep", "dp", "pp" };

const char *plan_mesh_domain(const Hardware *h)
{
    return h->scale_up_gpus > HOST_MOST ? "domain" : "host";
}

/* ---- the picture ---- */

/* Sizes that all rows of the picture share, in GPUs and pixels. */
typedef struct Hosts {
    int64_t gpus, each; /* of the cluster, of a host */
    int columns, across, high, wide;
    const char *word;
} Hosts;

static Hosts hosts_of(const PlanRequest *q)
{
    Hosts h = { q->gpus, (int64_t)q->hardware->scale_up_gpus,
                .word = plan_mesh_domain(q->hardware) };
    if (h.each > h.gpus) h.each = h.gpus;
    h.columns = h.each <= HOST_MOST ? (int)(h.each + 1) / 2 : (int)(h.each + 3) / 4;
    h.wide = h.columns * CELL + 2 * EDGE;
    h.high = (int)((h.each + h.columns - 1) / h.columns) * CELL + 2 * EDGE;
    h.across = WIDTH / (h.wide + GAP);
    if (h.across < 1) h.across = 1;
    return h;
}

/* Which group of its kind a GPU is in: those of `stride` neighbours interleave. */
static int64_t group_number(const PlanGroup *g, int64_t gpu)
{
    return gpu / (g->ranks * g->stride) * g->stride + gpu % g->stride;
}

static Status draw_gpu(Text *out, const Hosts *h, const PlanGroup *g, int64_t gpu)
{
    int at = (int)(gpu % h->each), x = EDGE + at % h->columns * CELL,
        y = NAME + EDGE + at / h->columns * CELL;
    int64_t number = group_number(g, gpu), member = gpu / g->stride % g->ranks;
    TRY(text_printf(out,
                    "<rect class=\"gpu f%c%s\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\">"
                    "<title>GPU %lld: group %lld, rank %lld of %lld</title></rect>",
                    svg_color((int)(number % SVG_COLORS)), number == 0 ? "" : " far", x, y, INNER,
                    INNER, (long long)gpu, (long long)number, (long long)member,
                    (long long)g->ranks));
    if (number > 0 || member > 99) return OK;
    return text_printf(out, "<text class=\"over mid\" x=\"%.1f\" y=\"%d\">%lld</text>",
                       x + 0.5 * INNER, y + 10, (long long)member);
}

static Status draw_host(Text *out, const Hosts *h, const PlanGroup *g, int64_t host, int x, int y)
{
    TRY(text_printf(out,
                    "<g transform=\"translate(%d %d)\"><text class=\"dim\" x=\"0\" y=\"11\">%s "
                    "%lld</text><rect class=\"host\" x=\"0\" y=\"%d\" width=\"%d\" "
                    "height=\"%d\"/>\n",
                    x, y, h->word, (long long)host, NAME, h->wide, h->high));
    for (int64_t i = host * h->each; i < (host + 1) * h->each && i < h->gpus; i++)
        TRY(draw_gpu(out, h, g, i));
    return text_printf(out, "</g>\n");
}

/* The hosts on which the first group lies, from left to right, as many as have room. */
static Status draw_group(Text *out, const Hosts *h, const PlanGroup *g, int y)
{
    int shown = 0;
    int64_t last = -1, hosts = 0;
    char more[64] = "";
    for (int64_t m = 0; m < g->ranks; m++) {
        int64_t host = m * g->stride / h->each;
        if (host == last) continue;
        last = host;
        if (hosts++ < h->across)
            TRY(draw_host(out, h, g, host, shown++ * (h->wide + GAP), y + NAME));
    }
    if (hosts > shown) (void)snprintf(more, sizeof more, "; the first %d are shown", shown);
    return text_printf(
        out,
        "<text x=\"0\" y=\"%d\">%s: %lld ranks, stride %lld: the first group lies on "
        "%lld %s%s%s</text>\n",
        y + 11, axis_names[g->axis], (long long)g->ranks, (long long)g->stride, (long long)hosts,
        h->word, hosts == 1 ? "" : "s", more);
}

/* Do groups a and b have the same members? */
static bool same_members(const PlanGroup *a, const PlanGroup *b)
{
    return a->axis == b->axis && a->ranks == b->ranks && a->stride == b->stride;
}

/* One row for groups with the same members. */
static Status mesh_picture(Text *out, const Hosts *h, const PlanGroups *groups)
{
    int row[PLAN_GROUPS_MAX], rows = 0, high = 2 * NAME + h->high + GAP;
    for (int i = 0; i < groups->n; i++) {
        bool known = false;
        for (int k = 0; k < rows; k++) known |= same_members(&groups->at[row[k]], &groups->at[i]);
        if (!known) row[rows++] = i;
    }
    TRY(svg_open(out, "mesh", WIDTH, rows * high, "Groups of GPUs on hosts"));
    TRY(text_printf(out, ">\n"));
    for (int i = 0; i < rows; i++) TRY(draw_group(out, h, &groups->at[row[i]], i * high));
    return text_printf(out, "</svg>\n");
}

/* ---- the table ---- */

static const char *place_text(char out[64], const PlanGroup *g, const char *word)
{
    if (g->local == g->ranks)
        (void)snprintf(out, 64, "inside a %s", word);
    else
        (void)snprintf(out, 64, "across %lld %ss, %lld in each", (long long)(g->ranks / g->local),
                       word, (long long)g->local);
    return out;
}

static Status group_row(Text *out, const PlanGroup *g, const char *word)
{
    char place[64], bytes[32] = "-", rate[32] = "-", seconds[32];
    if (g->bytes > 0) (void)text_bytes(bytes, g->bytes);
    if (g->bytes > 0 && g->s > 0)
        (void)snprintf(rate, sizeof rate, "%.1f GB/s", g->bytes / g->s / 1e9);
    return text_markup(out,
                       "<tr><td>%s</td><td class=\"words\">%s</td><td>%lld</td><td>%lld</td>"
                       "<td class=\"words%s\">%s</td><td>%s</td><td>%s</td><td>%s</td></tr>\n",
                       axis_names[g->axis], g->what, (long long)g->ranks, (long long)g->stride,
                       g->local == g->ranks ? "" : " cross", place_text(place, g, word), bytes,
                       svg_value_text(seconds, g->s, SVG_SECONDS), rate);
}

Status plan_mesh_section(Text *out, const PlanRequest *q, const PlanGroups *groups)
{
    Hosts h = hosts_of(q);
    if (groups->n == 0) return OK;
    TRY(text_printf(out, "<section id=\"mesh\"><h2>Which GPUs exchange what</h2>\n"));
    TRY(part_note(out,
                  "GPUs of one colour are a group; the numbers are ranks of the first one. tp is "
                  "innermost, then cp, dp and pp; groups of ep lie over tp, cp and dp."));
    TRY(text_printf(out, "<div class=\"wide\">\n"));
    TRY(mesh_picture(out, &h, groups));
    TRY(text_printf(out,
                    "<table class=\"fit\"><thead><tr><th>group</th><th class=\"words\">exchanges"
                    "</th><th>ranks</th><th>stride</th><th class=\"words\">where</th><th>a GPU "
                    "sends a step</th><th>which takes</th><th>rate</th></tr></thead><tbody>\n"));
    for (int i = 0; i < groups->n; i++) TRY(group_row(out, &groups->at[i], h.word));
    TRY(text_printf(out, "</tbody></table></div>\n"));
    TRY(part_note(out,
                  "Times are those of the exchange alone, also where compute hides it. Gradients "
                  "are those of the pipeline rank whose take longest, the rest is the mean."));
    return text_printf(out, "</section>\n");
}
