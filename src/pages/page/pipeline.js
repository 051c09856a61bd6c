/* Script of pages with timelines, inside page.js's function. Ctrl and the wheel zoom, dragging pans, a
 * double click shows everything. Boxes are only scaled; numbers and ticks are made again, because scaling
 * would stretch their text. */
function ms(v){return v>=1?v.toPrecision(5)+' s':(1e3*v).toPrecision(5)+' ms'}
document.querySelectorAll('svg.pipe').forEach(function(svg){
 var win=svg.querySelector('.win'),z=svg.querySelector('.z'),
  rows=Array.from(svg.querySelectorAll('.r')),ticks=svg.querySelector('.ticks'),
  W=win.width.baseVal.value,H=win.height.baseVal.value,L=win.x.baseVal.value,
  T=win.y.baseVal.value,axis=Number(svg.dataset.axis),begin=Number(svg.dataset.from),k=1,x0=0,drag=null,due=false,
  boxes=rows.map(function(g){
   return Array.from(g.querySelectorAll('[data-m]')).map(function(b){
    return{x:b.x.baseVal.value,w:b.width.baseVal.value,h:b.height.baseVal.value,
     m:b.dataset.m,c:'t'+b.getAttribute('class')}})});
 rows=rows.map(function(g){g.querySelectorAll('text').forEach(function(t){t.remove()});
  return put(win,'g',{transform:g.getAttribute('transform')})});draw();
 function put(parent,tag,attributes,text){
  var e=document.createElementNS(svg.namespaceURI,tag);
  Object.keys(attributes).forEach(function(a){e.setAttribute(a,attributes[a])});
  if(text!==undefined)e.textContent=text;return parent.appendChild(e)}
 function draw(){due=false;
  z.setAttribute('transform','scale('+k+' 1) translate('+(-x0)+' 0)');
  rows.forEach(function(row,i){row.textContent='';
   boxes[i].forEach(function(b){var x=(b.x-x0)*k,w=b.w*k;
    if(b.h>=18)if(w>=4*b.m.length)if(x+w>0)if(W>x)
     put(row,'text',{'class':b.c+(w>=5*b.m.length+2?'':' small'),x:(Math.max(x,0)+Math.min(x+w,W))/2,y:13},b.m)})});
  var span=axis/k,from=begin+x0/W*axis,step=Math.pow(10,Math.floor(Math.log10(span/4)));
  if(span/step>20)step*=5;else if(span/step>8)step*=2;ticks.textContent='';
  for(var i=Math.ceil(from/step);from+span>=i*step;i++){
   var x=L+(i*step-from)/span*W,unit=span>=1?1:span>=1e-3?1e3:1e6;
   put(ticks,'path',{d:'M'+x+' '+T+'V'+(T+H+4)});
   put(ticks,'text',{'class':'mid',x:x,y:T+H+17},
    Number((i*step*unit).toPrecision(9))+(unit===1?' s':unit===1e3?' ms':' \u00b5s'))}}
 function later(){if(!due){due=true;requestAnimationFrame(draw)}}
 function at(e){var r=win.getScreenCTM();return(e.clientX-r.e)/r.a}
 function clamp(){x0=Math.max(0,Math.min(x0,W-W/k))}
 win.addEventListener('wheel',function(e){if(!e.ctrlKey)return;e.preventDefault();
  var px=at(e)-L,t=x0+px/k;k=Math.max(1,Math.min(2000,k*Math.exp(-e.deltaY*0.003)));
  x0=t-px/k;clamp();later()},{passive:false});
 win.addEventListener('pointerdown',function(e){drag=[at(e),x0];
  win.setPointerCapture(e.pointerId)});
 win.addEventListener('pointerup',function(){drag=null});
 win.addEventListener('dblclick',function(){k=1;x0=0;later()});
 win.addEventListener('pointermove',function(e){
  if(drag){x0=drag[1]-(at(e)-drag[0])/k;clamp();later();return}
  var b=e.target,c=b.getAttribute('class')||'';
  if(!/^k[0-9]/.test(c)){hide();return}
  var s=begin+b.x.baseVal.value/W*axis,d=b.width.baseVal.value/W*axis,m=b.dataset.m,
   chunk=b.dataset.c;
  var kind='rank '+b.parentNode.dataset.r+', '+svg.dataset.kinds.split(',')[c.charAt(1)];
  if(b.dataset.n){show(e,kind+': '+b.dataset.n+' together, each too short for a box of its own\n'+
   ms(Number(b.dataset.s))+' in all, near '+ms(s));return}
  show(e,kind+
   (m?', micro-batch '+m:'')+(chunk?', chunk '+chunk:'')+'\n'+ms(s)+' to '+ms(s+d)+': '+
   ms(d))});
 win.addEventListener('pointerleave',hide)});
/* Buttons choose which ranks' memory is drawn. */
document.querySelectorAll('.pick button').forEach(function(b){
 b.addEventListener('click',function(){
  var f=b.closest('section').querySelector('figure[data-rank="'+b.dataset.rank+'"]');
  f.hidden=!f.hidden;b.setAttribute('aria-pressed',String(!f.hidden))})});
