/* page: style, theme and script of every page. There are eight series colours of at least 3:1
 * against their background, told apart also with red-green blindness by lightness; below and above
 * in heat maps are blue and orange. */
#include "viz/page.h"

#include <string.h>

static const char *const THEME[] = {
    ":root{--bg:#f6f7f8;--card:#fff;--ink:#1b1f24;--dim:#59636e;--line:#dfe3e8;--over:#fff;"
    "--lo:#0b5cad;--hi:#c2410c;--good:#0a7f5a;"
    "--c0:#0b62b8;--c1:#c8450c;--c2:#0a7f5a;--c3:#8a4fbf;"
    "--c4:#9a6a00;--c5:#0e7f93;--c6:#c2337f;--c7:#4d5965;--cx:#99a2ac}\n",
    "@media(prefers-color-scheme:dark){:root{--bg:#0f1216;--card:#171b21;--ink:#e7eaee;"
    "--dim:#9aa5b1;--line:#2a3038;--over:#0f1216;"
    "--lo:#5fb0ff;--hi:#ff9560;--good:#4fd1a5;"
    "--c0:#5fb0ff;--c1:#ff9560;--c2:#4fd1a5;--c3:#c39bff;"
    "--c4:#e6b84d;--c5:#53cfe0;--c6:#ff85bd;--c7:#b3bdc8;--cx:#66707c}}\n",
};

static const char *const STYLE[] = {
    "*{box-sizing:border-box}html{color-scheme:light dark;-webkit-text-size-adjust:100%}\n"
    "body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.55 system-ui,"
    "-apple-system,\"Segoe UI\",Roboto,\"Helvetica Neue\",Arial,sans-serif}\n"
    "main{max-width:1168px;margin:0 auto;padding:36px 20px 64px}\n"
    "h1{font-size:28px;line-height:1.2;margin:0;font-weight:650;letter-spacing:-.01em}\n"
    "h2{font-size:18px;margin:0 0 4px;font-weight:620}\n"
    "h3{font-size:14px;margin:0 0 6px;font-weight:600}\n"
    "p{margin:0 0 12px;max-width:86ch}.note{color:var(--dim);font-size:13.5px}\n"
    "header{margin-bottom:22px}header p{color:var(--dim);margin:4px 0 0}\n"
    "nav{display:flex;flex-wrap:wrap;gap:2px 18px;margin-top:14px;font-size:14px}\n"
    "a{color:var(--c0);text-decoration:none}a:hover{text-decoration:underline}\n"
    "section{background:var(--card);border:1px solid var(--line);border-radius:10px;"
    "padding:20px 22px;margin:0 0 20px}\n",
    ".facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(max(190px,23%),1fr));"
    "background:var(--card);border:1px solid var(--line);border-radius:10px;overflow:hidden;"
    "margin:0 0 20px}\n"
    ".facts div{padding:13px 18px;box-shadow:0 0 0 .5px var(--line)}\n"
    ".facts dt{color:var(--dim);font-size:12.5px}.facts dl{margin:0}\n"
    ".facts dd{margin:0;font-size:21px;font-weight:600;font-variant-numeric:tabular-nums;"
    "letter-spacing:-.01em;white-space:nowrap}\n"
    ".facts small{display:block;color:var(--dim);font-size:12.5px;font-weight:400;"
    "letter-spacing:0;white-space:normal}\n"
    ".two{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(420px,100%),1fr));"
    "gap:22px 28px}\n"
    ".three{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(300px,100%),1fr));"
    "gap:22px 27px}\n"
    ".tables{display:flex;flex-wrap:wrap;gap:0 36px;align-items:flex-start}\n"
    ".panels{display:flex;flex-wrap:wrap;gap:20px 24px;margin:10px 0 22px}\n"
    "figure{margin:0;min-width:0}.wide{overflow-x:auto}.full svg{min-width:680px}\n"
    "table{border-collapse:collapse;font-size:13.5px;font-variant-numeric:tabular-nums;"
    "margin:6px 0 14px}\n"
    "th,td{padding:4px 0 4px 18px;text-align:right;white-space:nowrap;"
    "border-bottom:1px solid var(--line)}\n"
    "th:first-child,td:first-child{text-align:left;padding-left:0}\n"
    "th{color:var(--dim);font-weight:500}tfoot td{border-bottom:0;color:var(--dim)}\n"
    ".share{display:inline-block;width:72px;height:9px;margin-left:4px;background:var(--line);"
    "border-radius:2px}.share i{display:block;height:9px;background:var(--c0);"
    "border-radius:2px}\n"
    ".swatch{display:inline-block;width:9px;height:9px;border-radius:2px;margin-right:8px}\n"
    "details summary{cursor:pointer;font-weight:620;font-size:18px}\n"
    "pre{font:12.5px/1.5 ui-monospace,\"SF Mono\",Menlo,Consolas,\"Liberation Mono\",monospace;"
    "white-space:pre-wrap;overflow-wrap:anywhere;margin:12px 0 0}\n",
    "svg{display:block;max-width:100%;height:auto;font-size:12px}\n"
    "svg.plot{width:100%;touch-action:pan-y}\n"
    "svg.timeline{min-width:900px}\n"
    "text{fill:var(--ink);font-variant-numeric:tabular-nums}\n"
    ".end{text-anchor:end}.mid{text-anchor:middle}.dim,.grid text{fill:var(--dim)}\n"
    ".over{fill:var(--over)}.timeline text,.over{pointer-events:none}\n"
    ".grid path{stroke:var(--line);fill:none}.axis{stroke:var(--dim);fill:none}\n"
    ".track{stroke:var(--line)}.edge{stroke:var(--card);stroke-width:1.5}\n"
    ".guide{stroke:var(--dim);stroke-dasharray:5 4;fill:none}\n"
    ".cross{stroke:var(--dim);fill:none;pointer-events:none}\n"
    ".line{fill:none;stroke-width:1.8;stroke-linejoin:round;stroke-linecap:round}\n"
    ".faint{stroke-width:1;opacity:.45}.area{opacity:.9}\n"
    ".heat rect{width:var(--w);height:var(--h);rx:2px}.heat text{font-size:11px;"
    "pointer-events:none}\n"
    ".lo{fill:var(--lo)}.hi{fill:var(--hi)}\n"
    ".s0{stroke:var(--c0)}.s1{stroke:var(--c1)}.s2{stroke:var(--c2)}.s3{stroke:var(--c3)}"
    ".s4{stroke:var(--c4)}.s5{stroke:var(--c5)}.s6{stroke:var(--c6)}.s7{stroke:var(--c7)}"
    ".sx{stroke:var(--cx)}\n"
    ".f0{fill:var(--c0)}.f1{fill:var(--c1)}.f2{fill:var(--c2)}.f3{fill:var(--c3)}"
    ".f4{fill:var(--c4)}.f5{fill:var(--c5)}.f6{fill:var(--c6)}.f7{fill:var(--c7)}"
    ".fx{fill:var(--cx)}\n",
    ".tip{position:fixed;display:none;pointer-events:none;background:var(--card);"
    "color:var(--ink);border:1px solid var(--line);border-radius:6px;padding:6px 10px;"
    "font-size:12.5px;line-height:1.45;box-shadow:0 4px 14px rgba(0,0,0,.18);"
    "font-variant-numeric:tabular-nums;white-space:pre}\n"
    "@media print{body{background:#fff}section{break-inside:avoid}nav{display:none}}\n",
};

/* The script computes values from places in the plot, to two decimals of a pixel, and shows four
 * digits. */
static const char *const SCRIPT[] = {
    "'use strict';(function(){\n"
    "var tip=document.createElement('div');tip.className='tip';document.body.appendChild(tip);\n"
    "function hide(){tip.style.display='none'}\n"
    "function show(e,text){tip.textContent=text;tip.style.display='block';\n"
    " var w=tip.offsetWidth,left=e.clientX+16;if(left+w>innerWidth-8)left=e.clientX-w-16;\n"
    " tip.style.left=Math.max(4,left)+'px';tip.style.top=(e.clientY+14)+'px'}\n"
    "function text(v,unit){\n"
    " if(unit===1){var u=['B','KiB','MiB','GiB','TiB'],i=0;while(v>=1024){v/=1024;i++}\n"
    "  return v.toPrecision(3)+' '+u[i]}\n"
    " if(unit===3)return Number((100*v).toPrecision(4))+' %';\n"
    " var a=Math.abs(v);if(a>=1e4)return Math.round(v).toLocaleString('en-US');\n"
    " return String(Number(v.toPrecision(4)))}\n",
    "document.querySelectorAll('svg.plot[data-box]').forEach(function(svg){\n"
    " function pair(k){return svg.dataset[k].split(' ').map(Number)}\n"
    " var box=pair('box'),X=pair('x'),Y=pair('y'),log=svg.dataset.log==='1',\n"
    "  unit=Number(svg.dataset.unit),curves=[];\n"
    " svg.querySelectorAll('path.data:not(.sx)').forEach(function(p){\n"
    "  var at=p.getAttribute('d').split(/[ML]/).slice(1).map(function(t){\n"
    "   return t.split(' ').map(Number)});\n"
    "  if(at.length>0)curves.push({name:p.dataset.name,at:at})});\n"
    " svg.querySelectorAll('g>title').forEach(function(t){t.remove()});\n"
    " var cross=document.createElementNS(svg.namespaceURI,'path');\n"
    " cross.setAttribute('class','cross');svg.appendChild(cross);\n"
    " function value(y){var t=(box[3]-y)/(box[3]-box[1]);\n"
    "  return log?Y[0]*Math.pow(Y[1]/Y[0],t):Y[0]+t*(Y[1]-Y[0])}\n"
    " function step(x){var t=(x-box[0])/(box[2]-box[0]);\n"
    "  return svg.dataset.logx==='1'?X[0]*Math.pow(X[1]/X[0],t):X[0]+t*(X[1]-X[0])}\n",
    " svg.addEventListener('pointermove',function(e){\n"
    "  var r=svg.getBoundingClientRect(),\n"
    "   px=(e.clientX-r.left)*svg.viewBox.baseVal.width/r.width,best=null;\n"
    "  curves.forEach(function(c){\n"
    "   c.near=c.at.reduce(function(a,b){\n"
    "    return Math.abs(a[0]-px)>Math.abs(b[0]-px)?b:a});\n"
    "   if(best===null||Math.abs(best[0]-px)>Math.abs(c.near[0]-px))best=c.near});\n"
    "  if(best===null)return;\n"
    "  cross.setAttribute('d','M'+best[0]+' '+box[1]+'V'+box[3]);\n"
    "  var lines=[svg.dataset.word+' '+Math.round(step(best[0])).toLocaleString('en-US')];\n"
    "  curves.forEach(function(c){if(3>Math.abs(c.near[0]-best[0]))\n"
    "   lines.push(c.name+': '+text(value(c.near[1]),unit))});\n"
    "  show(e,lines.join('\\n'))});\n"
    " svg.addEventListener('pointerleave',function(){hide();cross.removeAttribute('d')})\n"
    "});\n",
};

static Status put_all(Text *out, const char *const *piece, size_t n)
{
    for (size_t i = 0; i < n; i++) TRY(text_append(out, piece[i], strlen(piece[i])));
    return OK;
}

Status page_begin(Text *out, const char *title)
{
    TRY(text_markup(out,
                    "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\n"
                    "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"/>\n"
                    "<title>%s</title>\n<style>\n",
                    title));
    TRY(put_all(out, THEME, sizeof THEME / sizeof THEME[0]));
    TRY(put_all(out, STYLE, sizeof STYLE / sizeof STYLE[0]));
    return text_printf(out, "</style></head>\n<body><main>\n");
}

Status page_end(Text *out, const char *const *script, size_t pieces)
{
    TRY(text_printf(out, "</main>\n<script>\n"));
    TRY(put_all(out, SCRIPT, sizeof SCRIPT / sizeof SCRIPT[0]));
    TRY(put_all(out, script, pieces));
    return text_printf(out, "})();\n</script>\n</body></html>\n");
}

Status part_note(Text *out, const char *text)
{
    return text_printf(out, "<p class=\"note\">%s</p>\n", text);
}

Status part_figure(Text *out, const SvgChart *c)
{
    TRY(text_markup(out, "<figure><h3>%s</h3>\n", c->title));
    TRY(svg_chart(out, c));
    return text_printf(out, "</figure>\n");
}
