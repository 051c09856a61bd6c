/* Script of every page: shows the values of a plot at the pointer. It turns coordinates of the drawn path,
 * which have two decimals of a pixel, back into values, and shows four digits. The function that begins
 * here is closed by page.c, after the page's own script, which may use show and hide. */
'use strict';(function(){
var tip=document.createElement('div');tip.className='tip';document.body.appendChild(tip);
function hide(){tip.style.display='none'}
function show(e,text){tip.textContent=text;tip.style.display='block';
 var w=tip.offsetWidth,left=e.clientX+16;if(left+w>innerWidth-8)left=e.clientX-w-16;
 tip.style.left=Math.max(4,left)+'px';tip.style.top=(e.clientY+14)+'px'}
function text(v,unit){
 if(unit===1){var u=['B','KiB','MiB','GiB','TiB'],i=0;while(v>=1024){v/=1024;i++}
  return v.toPrecision(3)+' '+u[i]}
 if(unit===3)return Number((100*v).toPrecision(4))+' %';
 var a=Math.abs(v);if(a>=1e4)return Math.round(v).toLocaleString('en-US');
 return String(Number(v.toPrecision(4)))}
document.querySelectorAll('svg.plot[data-box]').forEach(function(svg){
 function pair(k){return svg.dataset[k].split(' ').map(Number)}
 var box=pair('box'),X=pair('x'),Y=pair('y'),log=svg.dataset.log==='1',
  unit=Number(svg.dataset.unit),curves=[];
 svg.querySelectorAll('path.data:not(.sx)').forEach(function(p){
  var at=p.getAttribute('d').split(/[ML]/).slice(1).map(function(t){
   return t.split(' ').map(Number)});
  if(at.length>0)curves.push({name:p.dataset.name,at:at})});
 svg.querySelectorAll('g>title').forEach(function(t){t.remove()});
 var cross=document.createElementNS(svg.namespaceURI,'path');
 cross.setAttribute('class','cross');svg.appendChild(cross);
 function value(y){var t=(box[3]-y)/(box[3]-box[1]);
  return log?Y[0]*Math.pow(Y[1]/Y[0],t):Y[0]+t*(Y[1]-Y[0])}
 function step(x){var t=(x-box[0])/(box[2]-box[0]);
  return svg.dataset.logx==='1'?X[0]*Math.pow(X[1]/X[0],t):X[0]+t*(X[1]-X[0])}
 svg.addEventListener('pointermove',function(e){
  var r=svg.getBoundingClientRect(),
   px=(e.clientX-r.left)*svg.viewBox.baseVal.width/r.width,best=null;
  curves.forEach(function(c){
   c.near=c.at.reduce(function(a,b){
    return Math.abs(a[0]-px)>Math.abs(b[0]-px)?b:a});
   if(best===null||Math.abs(best[0]-px)>Math.abs(c.near[0]-px))best=c.near});
  if(best===null)return;
  cross.setAttribute('d','M'+best[0]+' '+box[1]+'V'+box[3]);
  var at=step(best[0]),lines=[svg.dataset.word+' '+
   (svg.dataset.real==='1'?text(at,0):Math.round(at).toLocaleString('en-US'))];
  curves.forEach(function(c){if(3>Math.abs(c.near[0]-best[0]))
   lines.push(c.name+': '+text(value(c.near[1]),unit))});
  show(e,lines.join('\n'))});
 svg.addEventListener('pointerleave',function(){hide();cross.removeAttribute('d')})
});
