#include "viz/pipeline_page.h"

#include "viz/page.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PAGE_WIDTH = 1080, STILL_WIDTH = 1000, STILL_GAP = 18, STILL_EDGE = 10, PANELS = 9 };

static const char STYLE[] =
    ".pipe{max-width:none;min-width:900px;width:100%}.pipe .head{font-weight:600;font-size:14px}\n"
    ".pipe .idle{fill:var(--line)}.pipe .win{cursor:grab}.ranks{columns:1}\n";

/* What a still has instead of the page's style: no variables, which not every program draws. */
static const char STILL_STYLE[] =
    "text{font:11px Helvetica,Arial,sans-serif;fill:#111}.head{font-size:13px;font-weight:bold}\n"
    ".end{text-anchor:end}.mid{text-anchor:middle}.dim,.grid text{fill:#555}\n"
    ".grid path{stroke:#ddd;fill:none}.pipe .idle{fill:#e3e6ea}\n";

/* Ctrl and the wheel zoom, dragging pans, a double click shows everything: the boxes are scaled,
 * numbers and ticks made anew. It holds neither < nor &. */
static const char *const SCRIPT[] = {
    "(function(){\n"
    "var tip=document.createElement('div');tip.className='tip';document.body.appendChild(tip);\n"
    "function ms(v){return v>=1?v.toPrecision(5)+' s':(1e3*v).toPrecision(5)+' ms'}\n"
    "document.querySelectorAll('svg.pipe').forEach(function(svg){\n"
    " var win=svg.querySelector('.win'),z=svg.querySelector('.z'),\n"
    "  rows=Array.from(svg.querySelectorAll('.r')),ticks=svg.querySelector('.ticks'),\n"
    "  W=win.width.baseVal.value,H=win.height.baseVal.value,L=win.x.baseVal.value,\n"
    "  T=win.y.baseVal.value,axis=Number(svg.dataset.axis),k=1,x0=0,drag=null,due=false,\n"
    "  boxes=rows.map(function(g){\n"
    "   return Array.from(g.querySelectorAll('[data-m]')).map(function(b){\n"
    "    return{x:b.x.baseVal.value,w:b.width.baseVal.value,h:b.height.baseVal.value,\n"
    "     m:b.dataset.m,c:'t'+b.getAttribute('class')}})});\n"
    " rows=rows.map(function(g){g.querySelectorAll('text').forEach(function(t){t.remove()});\n"
    "  return put(win,'g',{transform:g.getAttribute('transform')})});draw();\n",
    " function put(parent,tag,attributes,text){\n"
    "  var e=document.createElementNS(svg.namespaceURI,tag);\n"
    "  Object.keys(attributes).forEach(function(a){e.setAttribute(a,attributes[a])});\n"
    "  if(text!==undefined)e.textContent=text;return parent.appendChild(e)}\n"
    " function draw(){due=false;\n"
    "  z.setAttribute('transform','scale('+k+' 1) translate('+(-x0)+' 0)');\n"
    "  rows.forEach(function(row,i){row.textContent='';\n"
    "   boxes[i].forEach(function(b){var x=(b.x-x0)*k,w=b.w*k;\n"
    "    if(b.h>=18)if(w>=5*b.m.length+2)if(x+w>0)if(W>x)\n"
    "     put(row,'text',{'class':b.c,x:(Math.max(x,0)+Math.min(x+w,W))/2,y:13},b.m)})});\n",
    "  var span=axis/k,from=x0/W*axis,step=Math.pow(10,Math.floor(Math.log10(span/4)));\n"
    "  if(span/step>20)step*=5;else if(span/step>8)step*=2;ticks.textContent='';\n"
    "  for(var i=Math.ceil(from/step);from+span>=i*step;i++){\n"
    "   var x=L+(i*step-from)/span*W,unit=step>=1?1:step>=1e-3?1e3:1e6;\n"
    "   put(ticks,'path',{d:'M'+x+' '+T+'V'+(T+H+4)});\n"
    "   put(ticks,'text',{'class':'mid',x:x,y:T+H+17},\n"
    "    Number((i*step*unit).toPrecision(9))+(unit===1?' s':unit===1e3?' ms':' µs'))}}\n"
    " function later(){if(!due){due=true;requestAnimationFrame(draw)}}\n"
    " function at(e){var r=win.getScreenCTM();return(e.clientX-r.e)/r.a}\n"
    " function clamp(){x0=Math.max(0,Math.min(x0,W-W/k))}\n",
    " win.addEventListener('wheel',function(e){if(!e.ctrlKey)return;e.preventDefault();\n"
    "  var px=at(e)-L,t=x0+px/k;k=Math.max(1,Math.min(2000,k*Math.exp(-e.deltaY*0.003)));\n"
    "  x0=t-px/k;clamp();later()},{passive:false});\n"
    " win.addEventListener('pointerdown',function(e){drag=[at(e),x0];\n"
    "  win.setPointerCapture(e.pointerId)});\n"
    " win.addEventListener('pointerup',function(){drag=null});\n"
    " win.addEventListener('dblclick',function(){k=1;x0=0;later()});\n"
    " win.addEventListener('pointermove',function(e){\n"
    "  if(drag){x0=drag[1]-(at(e)-drag[0])/k;clamp();later();return}\n"
    "  var b=e.target,c=b.getAttribute('class')||'';\n"
    "  if(!/^k[0-9]/.test(c)){tip.style.display='none';return}\n"
    "  var s=b.x.baseVal.value/W*axis,d=b.width.baseVal.value/W*axis;\n"
    "  tip.textContent='rank '+b.parentNode.dataset.r+', '+KIND[c.charAt(1)]+\n"
    "   (b.dataset.m?', micro-batch '+b.dataset.m:'')+(b.dataset.c?', chunk '+b.dataset.c:'')+\n"
    "   '\\n'+ms(s)+' to '+ms(s+d)+': '+ms(d);\n"
    "  tip.style.display='block';\n"
    "  tip.style.left=Math.max(4,Math.min(e.clientX+14,innerWidth-tip.offsetWidth-8))+'px';\n"
    "  tip.style.top=(e.clientY+14)+'px'});\n"
    " win.addEventListener('pointerleave',function(){tip.style.display='none'})\n"
    "})})();\n",
};

static Status put_script(Text *out)
{
    TRY(text_printf(out, "<script>\nvar KIND=["));
    for (int k = 0; k < TIMELINE_KINDS; k++) {
        TRY(text_printf(out, "%s'%s'", k > 0 ? "," : "", timeline_kind_name((TimelineKind)k)));
    }
    TRY(text_printf(out, "];\n"));
    for (size_t i = 0; i < sizeof SCRIPT / sizeof *SCRIPT; i++) {
        TRY(text_append(out, SCRIPT[i], strlen(SCRIPT[i])));
    }
    return text_printf(out, "</script>\n");
}

static double longest(const PipelineView *v)
{
    double most = 0;
    for (int i = 0; i < v->timelines; i++) {
        const Timeline *t = &v->timeline[i];
        most = fmax(most, t->step_s);
        for (int r = 0; r < t->ranks; r++) {
            const TimelineRank *rank = &t->rank[r];
            for (int s = 0; s < rank->spans; s++) most = fmax(most, rank->span[s].end_s);
        }
    }
    return most;
}

/* ---- the comparison ---- */

static Status comparison_row(Text *out, const Timeline *t, const Timeline *first)
{
    double least = t->rank[0].bubble, most = least;
    int peak = timeline_peak_rank(t);
    char step[32], memory[32] = "-", layout[96];
    for (int i = 1; i < t->ranks; i++) {
        least = fmin(least, t->rank[i].bubble);
        most = fmax(most, t->rank[i].bubble);
    }
    if (peak >= 0) (void)text_bytes(memory, t->rank[peak].peak_bytes);
    (void)snprintf(layout, sizeof layout, "%d ranks, %d chunks, %d micro-batches", t->ranks,
                   t->chunks, t->micros);
    TRY(text_printf(out, "<tr><td>"));
    TRY(svg_escape(out, t->title));
    if (t->iteration > 0) TRY(text_printf(out, ", iteration %lld", (long long)t->iteration));
    return text_printf(out,
                       "</td><td>%s</td><td>%s</td><td>%+.1f %%</td><td>%.2f %%</td><td>%.2f to "
                       "%.2f %%</td><td>%.2f %%</td><td>%s</td></tr>\n",
                       layout, svg_value_text(step, t->step_s, SVG_SECONDS),
                       100 * (t->step_s / first->step_s - 1), 100 * timeline_mean_bubble(t),
                       100 * least, 100 * most, 100 * timeline_theory(t), memory);
}

static Status comparison(Text *out, const PipelineView *v)
{
    TRY(text_printf(out, "<section><div class=\"wide\"><table><thead><tr><th></th><th>layout</th>"
                         "<th>step</th><th>against the first</th><th>bubble, mean</th>"
                         "<th>by rank</th><th>(p-1)/(p-1+m·v)</th><th>peak memory</th></tr>"
                         "</thead><tbody>\n"));
    for (int i = 0; i < v->timelines; i++) {
        TRY(comparison_row(out, &v->timeline[i], &v->timeline[0]));
    }
    TRY(text_printf(out, "</tbody></table></div>\n"));
    TRY(part_note(out, "Bubble: the share of the step in which a rank's compute lane runs nothing; "
                       "(p-1)/(p-1+m·v) is that of 1F1B with equal passes and free communication. "
                       "Timelines share one time axis. Ctrl and the wheel zoom, dragging pans, a "
                       "double click shows everything."));
    return text_printf(out, "</section>\n");
}

/* ---- one timeline ---- */

static Status shown_note(Text *out, const Timeline *t)
{
    int n = timeline_shown(t);
    if (n == t->ranks) return OK;
    return text_printf(out,
                       "<p class=\"note\">%d of %d ranks are shown, evenly chosen from the first "
                       "to the last; sums and peaks are of all.</p>\n",
                       n, t->ranks);
}

static Status time_bars(Text *out, const Timeline *t)
{
    enum { ROWS = 64, PARTS = TIMELINE_EXCHANGE + 1 };
    const char *part[PARTS], *row[ROWS];
    char name[ROWS][16];
    double value[ROWS * PARTS];
    int n = timeline_shown(t);
    for (int p = 0; p < PARTS - 1; p++) part[p] = timeline_kind_name((TimelineKind)p);
    part[PARTS - 1] = "bubble";
    for (int i = 0; i < n; i++) {
        int rank = timeline_shown_rank(t, i);
        const TimelineRank *r = &t->rank[rank];
        (void)snprintf(name[i], sizeof name[i], "rank %d", rank);
        row[i] = name[i];
        for (int p = 0; p < PARTS - 1; p++) value[i * PARTS + p] = r->sum_s[p];
        value[i * PARTS + PARTS - 1] = fmax(t->step_s - r->busy_s, 0);
    }
    const SvgBars bars = { .title = "Time by rank",
                           .row = row,
                           .part = part,
                           .value = value,
                           .rows = n,
                           .parts = PARTS,
                           .width = PAGE_WIDTH,
                           .unit = SVG_SECONDS };
    TRY(text_printf(out, "<details><summary>Where each rank's time goes</summary>"
                         "<div class=\"wide full kinds\">\n"));
    TRY(svg_bars(out, &bars));
    return text_printf(out, "</div></details>\n");
}

static Status memory_panels(Text *out, const Timeline *t)
{
    int peak = timeline_peak_rank(t), n = t->ranks < PANELS ? t->ranks : PANELS;
    double most = peak >= 0 ? t->rank[peak].peak_bytes : 0;
    if (t->memory_kinds == 0 || !(most > 0)) return OK;
    TRY(text_printf(out, "<h3>Memory over the step</h3>\n"));
    TRY(timeline_memory_key(out, t));
    TRY(text_printf(out, "<div class=\"three\">\n"));
    for (int i = 0; i < n; i++) {
        int rank = n == 1 ? 0 : (int)((int64_t)i * (t->ranks - 1) / (n - 1));
        if (t->rank[rank].points > 0) TRY(timeline_memory_svg(out, t, rank, most));
    }
    return text_printf(out, "</div>\n");
}

static Status one_timeline(Text *out, const Timeline *t, double axis_s)
{
    TRY(text_printf(out, "<section>\n"));
    TRY(shown_note(out, t));
    TRY(text_printf(out, "<div class=\"wide\">\n"));
    TRY(timeline_svg(out, t, PAGE_WIDTH, axis_s));
    TRY(text_printf(out, "</div>\n"));
    TRY(memory_panels(out, t));
    TRY(time_bars(out, t));
    return text_printf(out, "</section>\n");
}

Status pipeline_html(Text *out, const PipelineView *v)
{
    TRY(page_begin(out, "Pipeline", STYLE));
    TRY(text_printf(out, "<style>\n"));
    TRY(timeline_colors(out));
    TRY(text_printf(out, "</style><header><h1>Pipeline</h1></header>\n"));
    if (v->timelines > 0) TRY(comparison(out, v));
    for (int i = 0; i < v->timelines; i++) {
        TRY(one_timeline(out, &v->timeline[i], longest(v)));
    }
    TRY(put_script(out));
    return page_end(out, NULL);
}

Status pipeline_still(Text *out, const PipelineView *v)
{
    double height = STILL_GAP, y = 0.5 * STILL_GAP;
    for (int i = 0; i < v->timelines; i++) {
        height += timeline_svg_height(&v->timeline[i]) + (i > 0 ? STILL_GAP : 0);
    }
    TRY(text_printf(out,
                    "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %.0f\" "
                    "width=\"%d\" height=\"%.0f\">\n<style>\n",
                    STILL_WIDTH, height, STILL_WIDTH, height));
    TRY(text_append(out, STILL_STYLE, sizeof STILL_STYLE - 1));
    TRY(timeline_colors(out));
    TRY(text_printf(out, "</style>\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n"));
    for (int i = 0; i < v->timelines; i++) {
        TRY(text_printf(out, "<g transform=\"translate(%d %.0f)\">\n", STILL_EDGE, y));
        TRY(timeline_svg(out, &v->timeline[i], STILL_WIDTH - 2 * STILL_EDGE, longest(v)));
        TRY(text_printf(out, "</g>\n"));
        y += timeline_svg_height(&v->timeline[i]) + STILL_GAP;
    }
    return text_printf(out, "</svg>\n");
}
