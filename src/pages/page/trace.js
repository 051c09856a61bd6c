/* Script of pages with traces, inside page.js's function: draws the boxes of all lanes on one canvas. A
 * lane has four numbers for each box: ns since the previous box began, its length in ns, its name (or for
 * a box of several events their number), its kind (of several events: 8 more). traces/page/trace_lanes.c writes
 * them. */
document.querySelectorAll('canvas.trace').forEach(function(canvas){
 var data=JSON.parse(document.getElementById('trace').textContent),LEFT=190,ROW=22,AXIS=24,
  colors=['--c0','--c1','--c2','--c7','--c3'],lanes=[],from=Infinity,to=-Infinity,drag=null,
  due=false,view={a:0,b:1};
 data.lanes.forEach(function(l){
  var n=l.box.length/4,start=new Float64Array(n),end=new Float64Array(n),at=0,i;
  for(i=0;n>i;i++){at+=l.box[4*i];start[i]=at;end[i]=at+l.box[4*i+1]}
  if(n>0){from=Math.min(from,start[0]);to=Math.max(to,end[n-1])}
  lanes.push({name:data.lane_names[l.lane],n:n,start:start,end:end,box:l.box})});
 lanes.sort(function(x,y){var a=x.name.slice(1,4)+x.name,b=y.name.slice(1,4)+y.name;
  return a.localeCompare(b,'en',{numeric:true})});
 if(!(to>from))to=from+1;
 view={a:from,b:to};
 function color(k){return getComputedStyle(document.documentElement).getPropertyValue(colors[k])}
 function time(ns){var v=Math.abs(ns);
  return v>=1e9?+(ns/1e9).toPrecision(5)+' s':v>=1e6?+(ns/1e6).toPrecision(5)+' ms':
   +(ns/1e3).toPrecision(5)+' us'}
 function first(l,t){var lo=0,hi=l.n;while(hi>lo){var m=(lo+hi)>>1;
  if(l.end[m]>=t)hi=m;else lo=m+1}return lo}
 function draw(){due=false;
  var wide=canvas.parentNode.clientWidth-44,high=AXIS+ROW*lanes.length,dot=devicePixelRatio||1,
   c=canvas.getContext('2d'),inks=colors.map(function(_,k){return color(k)}),
   style=getComputedStyle(document.documentElement);
  canvas.style.width=wide+'px';canvas.style.height=high+'px';
  canvas.width=wide*dot;canvas.height=high*dot;c.scale(dot,dot);
  c.font='12px system-ui,sans-serif';
  var W=wide-LEFT,scale=W/(view.b-view.a),span=view.b-view.a,
   step=Math.pow(10,Math.floor(Math.log10(span/4)));
  if(span/step>20)step*=5;else if(span/step>8)step*=2;
  c.fillStyle=style.getPropertyValue('--dim');
  for(var t=Math.ceil((view.a-from)/step)*step+from;view.b>=t;t+=step){
   var x=LEFT+(t-view.a)*scale;c.fillRect(x,AXIS-6,1,high);c.fillText(time(t-from),x+3,AXIS-10)}
  lanes.forEach(function(l,row){
   var y=AXIS+row*ROW,last=-1;
   for(var i=first(l,view.a);l.n>i;i++){
    if(l.start[i]>view.b)break;
    var x0=LEFT+Math.max(0,(l.start[i]-view.a)*scale),
     x1=LEFT+Math.min(W,(l.end[i]-view.a)*scale),kind=l.box[4*i+3]%8;
    if(last>=x1-0.25)continue;
    last=Math.max(x1,x0+0.5);
    c.fillStyle=inks[kind];c.fillRect(x0,y+2,Math.max(0.5,x1-x0),ROW-4);
    if(x1-x0>40){c.fillStyle=style.getPropertyValue('--over');
     var s=title(l,i),n=Math.floor((x1-x0-8)/6.6);
     c.fillText(s.length>n?s.slice(0,n):s,x0+4,y+15)}}
   c.fillStyle=style.getPropertyValue('--card');c.fillRect(0,y,LEFT-2,ROW);
   c.fillStyle=style.getPropertyValue('--ink');
   c.fillText((data.ranks.length>1?'trace '+Number(l.name.slice(1,4))+' ':'')+l.name.slice(5),4,y+15)})}
 function title(l,i){var many=l.box[4*i+3]>=8;
  return many?l.box[4*i+2]+' short ones together':data.names[l.box[4*i+2]]}
 function later(){if(!due){due=true;requestAnimationFrame(draw)}}
 function clamp(){var w=Math.min(view.b-view.a,to-from);w=Math.max(w,100);
  view.a=Math.max(from,Math.min(view.a,to-w));view.b=view.a+w;later()}
 function zoom(k,t){view.b=t+(view.b-t)*k;view.a=t-(t-view.a)*k;clamp()}
 function pan(d){var w=view.b-view.a;view.a+=d*w;view.b=view.a+w;clamp()}
 function at(e){var r=canvas.getBoundingClientRect();
  return{t:view.a+(e.clientX-r.left-LEFT)/(r.width-LEFT)*(view.b-view.a),
   row:Math.floor((e.clientY-r.top-AXIS)/ROW)}}
 canvas.addEventListener('wheel',function(e){if(!e.ctrlKey)return;e.preventDefault();
  zoom(Math.exp(e.deltaY*0.003),at(e).t)},{passive:false});
 canvas.addEventListener('pointerdown',function(e){drag=[e.clientX,view.a,view.b];
  canvas.setPointerCapture(e.pointerId)});
 canvas.addEventListener('pointerup',function(){drag=null});
 canvas.addEventListener('dblclick',function(){view={a:from,b:to};later()});
 canvas.addEventListener('keydown',function(e){var m=(view.a+view.b)/2;
  if(e.key==='w')zoom(0.7,m);if(e.key==='s')zoom(1.4,m);
  if(e.key==='a')pan(-0.2);if(e.key==='d')pan(0.2)});
 canvas.addEventListener('pointermove',function(e){
  if(drag){var d=(e.clientX-drag[0])/(canvas.clientWidth-LEFT)*(drag[2]-drag[1]);
   view={a:drag[1]-d,b:drag[2]-d};clamp();return}
  var p=at(e),l=lanes[p.row],i=l?first(l,p.t):0;
  if(!l||i>=l.n||l.start[i]>p.t){hide();return}
  show(e,title(l,i)+'\n'+time(l.start[i]-from)+' to '+time(l.end[i]-from)+': '+
   time(l.end[i]-l.start[i]))});
 canvas.addEventListener('pointerleave',hide);
 addEventListener('resize',later);
 canvas.dataset.lanes=lanes.length;
 canvas.dataset.boxes=lanes.reduce(function(n,l){return n+l.n},0);draw()});
