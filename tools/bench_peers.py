#!/usr/bin/env python3
"""The ops of `switchyard bench shapes` beside PyTorch's, on the same shapes in the same call.

    bench_peers.py [--only GROUP]... [--rounds 2] [--seed DATE] [--json OUT] [section.key=value ...]

For each group of ops switchyard and PyTorch run in turn (ours, peer, ours, peer); what is printed
are medians over the rounds, PyTorch's time over ours (above 1: ours is faster), and geometric means.
Both sides time alike: the median of 20 runs after 5, events in the stream, a stream that waits until
the host is ahead, random data in as many sets as make the L2 cache useless, experts with the same
numbers of rows. Needs PyTorch 2.8 or later and a GPU. --cpu --shrink 64 tries the tool without one.

What PyTorch runs (all in bf16, gradients of weights in f32):
    products   F.grouped_mm; the gather (index_select) and SwiGLU or its gradient (torch.compile) are
               kernels of their own; a weight gradient is the product and its addition to f32. `bare`
               is the product alone.
    layers     the same with router (linear, softmax, topk), sort (argsort, bincount) and combine
    attention  cuDNN through scaled_dot_product_attention(is_causal=True), backward with
               torch.use_deterministic_algorithms; `bare` is backward in any order. With a window: cuDNN
               through its Python frontend, where nvidia-cudnn-frontend is installed. With documents:
               flex_attention, compiled, which skips blocks that its mask hides
    delta      chunk_gated_delta_rule of flash-linear-attention's Triton kernels, where that package is
               installed: q and k normalised inside, decays given. Convolution and norm: torch.compile
    head       in chunks of 4096 tokens: product, compiled cross-entropy and its gradient, two products
    adamw      torch.optim.AdamW(fused=True); adamw_low also copies the weights to bf16
    others     torch.compile; router and sort as in layers; quant has no counterpart
The router's product is f32 on our side, as in training, and bf16 on PyTorch's.
"""
import argparse
import collections
import json
import math
import statistics
import subprocess
import sys
import time

import peer_torch

GROUPS = ["products", "layers", "routing", "norm", "swiglu", "rope", "attention", "delta", "head", "quant",
          "adamw"]
DRAWN = ["products", "layers"]  # groups that --seed draws shapes of
BY_BYTES = {"routing", "norm", "swiglu", "rope", "quant", "adamw"}
WARM_UP, RUNS, COLD_BYTES, HEAD_CHUNK = 5, 20, 192e6, 4096

torch = F = None


def import_torch(cpu):
    global torch, F
    try:
        peer_torch.import_torch()
    except ImportError as missing:
        raise SystemExit2(f"bench_peers needs PyTorch, which is not here ({missing})")
    torch, F = peer_torch.torch, peer_torch.F
    import torch._functorch.config as compiled  # backward runs again on what forward kept

    compiled.donated_buffer = False
    if not cpu and not torch.cuda.is_available():
        raise SystemExit2("bench_peers needs a GPU, and PyTorch sees none (--cpu tries the tool "
                          "without one)")


class SystemExit2(Exception):
    pass


# ---- what is timed ----


class Case:
    """A row's tensors and one call on them. `run` is what is compared, `bare` its product alone."""

    def __init__(self, row, device, compiled):
        self.device, self.compiled, self.bare = device, compiled, None
        for size in (*"ndfekbth", "window", "tokens", "shared"):
            setattr(self, size, row[size])
        if row["rows"]:
            self.route(row["rows"])
        getattr(self, row["op"])()

    def random(self, *shape, dtype=None, scale=1.0):
        dtype = dtype or torch.bfloat16
        return (torch.randn(shape, device=self.device) * scale).to(dtype)

    def route(self, rows):
        """Experts get as many rows as ours: of their list in order, token i takes entries i + j n."""
        counts = torch.tensor(rows, device=self.device)
        experts = torch.repeat_interleave(torch.arange(self.e, device=self.device), counts)
        mixed = torch.randperm(self.n, device=self.device)
        self.index = experts.view(self.k, self.n).t()[mixed].contiguous()
        self.offsets, self.order, self.inverse = sort_slots(self.index, self.e)
        self.row_token = self.order // self.k
        self.r = len(experts)

    # grouped products

    def weights(self):
        self.w1 = self.random(self.e, 2 * self.f, self.d, scale=0.02)
        self.w2 = self.random(self.e, self.d, self.f, scale=0.02)

    def grouped(self, a, b):
        return grouped_product(a, b, self.offsets)

    def fwd1(self):
        x, w = self.random(self.n, self.d), self.random(self.e, 2 * self.f, self.d, scale=0.02)
        swiglu = self.compiled(swiglu_forward)
        rows = x.index_select(0, self.row_token)
        self.bare = lambda: self.grouped(rows, w.transpose(1, 2))

        def run():
            pre = self.grouped(x.index_select(0, self.row_token), w.transpose(1, 2))
            return pre, swiglu(pre)

        self.run = run

    def fwd1_bare(self):
        x, w = self.random(self.r, self.d), self.random(self.e, 2 * self.f, self.d, scale=0.02)
        self.run = lambda: self.grouped(x, w.transpose(1, 2))

    def fwd2(self):
        x, w = self.random(self.r, self.f), self.random(self.e, self.d, self.f, scale=0.02)
        self.run = lambda: self.grouped(x, w.transpose(1, 2))

    def dgrad2(self):
        dy, w = self.random(self.n, self.d), self.random(self.e, self.d, self.f, scale=0.02)
        pre, weight = self.random(self.r, 2 * self.f), torch.rand(self.r, 1, device=self.device)
        backward = self.compiled(swiglu_weighted_backward)
        rows = dy.index_select(0, self.row_token)
        self.bare = lambda: self.grouped(rows, w)
        self.run = lambda: backward(self.grouped(dy.index_select(0, self.row_token), w), pre, weight)

    def dgrad1(self):
        dpre, w = self.random(self.r, 2 * self.f), self.random(self.e, 2 * self.f, self.d, scale=0.02)
        self.run = lambda: self.grouped(dpre, w)

    def wgrad2(self):
        dy, act = self.random(self.n, self.d), self.random(self.r, self.f)
        dw = self.random(self.e, self.d, self.f, dtype=torch.float32)
        rows = dy.index_select(0, self.row_token)
        self.bare = lambda: self.grouped(rows.t(), act)
        self.run = lambda: dw.add_(self.grouped(dy.index_select(0, self.row_token).t(), act))

    def wgrad1(self):
        dpre, x = self.random(self.r, 2 * self.f), self.random(self.n, self.d)
        dw = self.random(self.e, 2 * self.f, self.d, dtype=torch.float32)
        rows = x.index_select(0, self.row_token)
        self.bare = lambda: self.grouped(dpre.t(), rows)
        self.run = lambda: dw.add_(self.grouped(dpre.t(), x.index_select(0, self.row_token)))

    # a layer; backward is written out, so that autograd costs it nothing

    def forward(self):
        x, w_router = self.random(self.n, self.d), self.random(self.e, self.d, scale=0.02)
        self.weights()
        swiglu, combine = self.compiled(swiglu_forward), self.compiled(combine_slots)

        def run():
            weight, _ = route(F.linear(x, w_router), self.k)
            offsets, order, inverse = sort_slots(self.index, self.e)
            rows = x.index_select(0, order // self.k)
            pre = grouped_product(rows, self.w1.transpose(1, 2), offsets)
            out = grouped_product(swiglu(pre), self.w2.transpose(1, 2), offsets)
            return combine(out, inverse, weight)

        self.run = run

    def backward(self):
        x, dy = self.random(self.n, self.d), self.random(self.n, self.d)
        pre, weight = self.random(self.r, 2 * self.f), torch.rand(self.r, 1, device=self.device)
        logits = self.random(self.n, self.e)
        w_router = self.random(self.e, self.d, scale=0.02)
        dw_router = self.random(self.e, self.d, dtype=torch.float32)
        self.weights()
        dw1, dw2 = torch.randn_like(self.w1, dtype=torch.float32), torch.randn_like(
            self.w2, dtype=torch.float32)
        swiglu_backward = self.compiled(swiglu_weighted_backward)
        route_back, add = self.compiled(route_backward), self.compiled(sum_slots)

        def run():
            rows = dy.index_select(0, self.row_token)
            dpre, act, dweight = swiglu_backward(self.grouped(rows, self.w2), pre, weight)
            dw2.add_(self.grouped(rows.t(), act))
            dw1.add_(self.grouped(dpre.t(), x.index_select(0, self.row_token)))
            dx = add(self.grouped(dpre, self.w1), self.inverse, self.n)
            dlogits = route_back(logits, self.index, dweight[self.inverse].view(self.n, self.k))
            dx.addmm_(dlogits, w_router)
            dw_router.add_(dlogits.t() @ x)
            return dx

        self.run = run

    def router(self):
        logits = self.random(self.n, self.e, dtype=torch.float32)
        self.run = lambda: route(logits, self.k)

    def sort(self):
        self.run = lambda: sort_slots(self.index, self.e)

    def combine(self):
        out, weight = self.random(self.r, self.d), torch.rand(self.n, self.k, device=self.device)
        combine = self.compiled(combine_slots)
        self.run = lambda: combine(out, self.inverse, weight)

    # elementwise

    def gradients(self, function, inputs, of):
        """Backward of a compiled function through autograd. The forward pass runs here."""
        for i in of:
            inputs[i].requires_grad_()
        outputs = self.compiled(function)(*inputs)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        grads = [torch.randn_like(y) for y in outputs]
        wanted = [inputs[i] for i in of]
        self.run = lambda: torch.autograd.grad(outputs, wanted, grads, retain_graph=True)

    def norm_inputs(self):
        return [self.random(self.n, self.d), self.random(self.d, dtype=torch.float32)]

    def rmsnorm_fwd(self):
        inputs, norm = self.norm_inputs(), self.compiled(rmsnorm)
        self.run = lambda: norm(*inputs)

    def rmsnorm_bwd(self):
        self.gradients(rmsnorm, self.norm_inputs(), [0, 1])

    def swiglu_fwd(self):
        pre, swiglu = self.random(self.n, 2 * self.f), self.compiled(swiglu_forward)
        self.run = lambda: swiglu(pre)

    def swiglu_bwd(self):
        self.gradients(swiglu_forward, [self.random(self.n, 2 * self.f)], [0])

    def rope_inputs(self):
        turned, h = self.d // 3, self.h
        angle = torch.rand(self.n, 1, turned // 2, device=self.device)
        return [self.random(self.n, h, self.d), self.random(self.n, h, self.d - turned + self.f),
                self.random(self.n, 1, turned), angle.cos(), angle.sin()]

    def rope_fwd(self):
        inputs, rope = self.rope_inputs(), self.compiled(rope_mla)
        self.run = lambda: rope(*inputs)

    def rope_bwd(self):
        self.gradients(rope_mla, self.rope_inputs(), [0, 1, 2])

    # attention, head, optimizer

    def attention_inputs(self):
        # (b, t, h, width) in memory, as projections write it
        return [self.random(self.b, self.t, self.h, width).transpose(1, 2)
                for width in (self.d, self.d, self.f)]

    def attention(self):
        """The function of q, k and v that the row times."""
        if not self.tokens:
            return attention
        from torch.nn.attention import flex_attention as flex

        def visible(b, h, q, k):
            return (q >= k) & (q // self.tokens == k // self.tokens)

        mask = flex.create_block_mask(visible, None, None, self.t, self.t, device=self.device)
        function = self.compiled(flex.flex_attention)
        return lambda q, k, v: function(q, k, v, block_mask=mask)

    def attention_fwd(self):
        inputs = self.attention_inputs()
        if self.window:
            self.run = WindowAttention(self).forward(*inputs)[0]
        else:
            function = self.attention()
            self.run = lambda: function(*inputs)

    def attention_bwd(self):
        inputs = self.attention_inputs()
        if self.window:
            peer = WindowAttention(self)
            forward, out, lse = peer.forward(*inputs)
            forward()
            self.run = peer.backward(*inputs, out, torch.randn_like(out), lse)
            return
        inputs = [x.requires_grad_() for x in inputs]
        out = self.attention()(*inputs)
        dout = torch.randn_like(out)

        def run():
            return torch.autograd.grad(out, inputs, dout, retain_graph=True)

        def ordered():
            torch.use_deterministic_algorithms(True)
            try:
                run()
            finally:
                torch.use_deterministic_algorithms(False)

        self.run = run if self.tokens else ordered
        self.bare = None if self.tokens else run

    def delta_rule(self):
        """The peer's output, and its inputs: q, k, v, log decays, beta. A row's documents are sequences."""
        from fla.ops.gated_delta_rule import chunk_gated_delta_rule

        b, t, h, documents = self.b, self.t, self.h, None
        if self.tokens:
            starts = [i * t + j for i in range(b) for j in range(0, t, self.tokens)] + [b * t]
            documents = torch.tensor(starts, device=self.device)
            b, t = 1, b * t
        keys = [self.random(b, t, h // self.shared, self.d).repeat_interleave(self.shared, 2)
                for _ in range(2)]
        inputs = [*keys, self.random(b, t, h, self.f),
                  F.logsigmoid(self.random(b, t, h, dtype=torch.float32)),
                  self.random(b, t, h).sigmoid()]
        inputs = [x.requires_grad_() for x in inputs]
        return (lambda: chunk_gated_delta_rule(*inputs, use_qk_l2norm_in_kernel=True,
                                               cu_seqlens=documents)[0], inputs)

    def delta_rule_fwd(self):
        function, _ = self.delta_rule()

        def run():
            with torch.no_grad():
                return function()

        self.run = run

    def delta_rule_bwd(self):
        function, inputs = self.delta_rule()
        out = function()
        dout = torch.randn_like(out)
        self.run = lambda: torch.autograd.grad(out, inputs, dout, retain_graph=True)

    def delta_conv(self):
        width = (2 * self.d // self.shared + self.f) * self.h
        x = self.random(self.b, width, self.t)
        weight = self.random(width, 1, 4)

        def convolve(x, weight):
            return F.silu(F.conv1d(x, weight, groups=width, padding=3)[..., :self.t])

        return convolve, [x, weight]

    def delta_conv_fwd(self):
        function, inputs = self.delta_conv()
        compiled = self.compiled(function)
        self.run = lambda: compiled(*inputs)

    def delta_conv_bwd(self):
        function, inputs = self.delta_conv()
        self.gradients(function, inputs, [0, 1])

    def delta_norm(self):
        def normed(o, z, w):
            return F.rms_norm(o.float(), (self.f,), w, 1e-6) * F.silu(z.float())

        return (lambda o, z, w: normed(o, z, w).to(o.dtype),
                [self.random(self.n, self.h, self.f), self.random(self.n, self.h, self.f),
                 self.random(self.f, dtype=torch.float32)])

    def delta_norm_fwd(self):
        function, inputs = self.delta_norm()
        compiled = self.compiled(function)
        self.run = lambda: compiled(*inputs)

    def delta_norm_bwd(self):
        function, inputs = self.delta_norm()
        self.gradients(function, inputs, [0, 1, 2])

    def head_loss(self):
        x, w = self.random(self.n, self.d), self.random(self.e, self.d, scale=0.02)
        dw = self.random(self.e, self.d, dtype=torch.float32)
        target = torch.randint(self.e, (self.n,), device=self.device)
        loss_of, dx = self.compiled(cross_entropy), torch.empty_like(x)

        def run():
            for first in range(0, self.n, HEAD_CHUNK):
                part = slice(first, first + HEAD_CHUNK)
                _, dlogits = loss_of(x[part] @ w.t(), target[part])
                torch.mm(dlogits, w, out=dx[part])
                dw.add_(dlogits.t() @ x[part])
            return dx

        self.run = run

    def adamw(self):
        weights = torch.nn.Parameter(self.random(self.n, self.d, dtype=torch.float32))
        weights.grad = torch.randn_like(weights)
        self.optimizer = torch.optim.AdamW([weights], fused=True)
        self.run = self.optimizer.step
        return weights

    def adamw_low(self):
        weights = self.adamw()
        low = weights.detach().bfloat16()

        def run():
            self.optimizer.step()
            low.copy_(weights.detach())

        self.run = run


def grouped_product(a, b, offsets):
    """bf16 in and out. Older versions have it under another name."""
    function = getattr(F, "grouped_mm", None) or torch._grouped_mm
    return function(a, b, offs=offsets)


def sort_slots(index, experts):
    """Ends of the experts' rows, the slot of each row, the row of each slot."""
    slots = index.flatten()
    order = slots.argsort(stable=True)
    inverse = torch.empty_like(order)
    inverse[order] = torch.arange(len(order), device=order.device)
    ends = torch.zeros(experts, dtype=torch.int32, device=order.device)
    ends.scatter_add_(0, slots, torch.ones_like(slots, dtype=torch.int32))
    return ends.cumsum(0, dtype=torch.int32), order, inverse


def route(logits, k):
    weight, index = logits.float().softmax(-1).topk(k)
    return weight / weight.sum(-1, keepdim=True), index


def route_backward(logits, index, dweight):
    p = logits.float().softmax(-1)
    chosen = p.gather(-1, index)
    total = chosen.sum(-1, keepdim=True)
    dchosen = (dweight - (dweight * chosen).sum(-1, keepdim=True) / total) / total
    dp = p.new_zeros(p.shape).scatter(-1, index, dchosen)
    return (p * (dp - (p * dp).sum(-1, keepdim=True))).to(logits.dtype)


def swiglu_forward(pre):
    gate, up = pre.float().chunk(2, -1)
    return (F.silu(gate) * up).to(pre.dtype)


def swiglu_weighted_backward(dact, pre, weight):
    gate, up = pre.float().chunk(2, -1)
    s = gate.sigmoid()
    act, d = gate * s * up, dact.float()
    dweight, d = (d * act).sum(-1), d * weight
    dpre = torch.cat([d * up * s * (1 + gate * (1 - s)), d * gate * s], -1)
    return dpre.to(pre.dtype), (weight * act).to(pre.dtype), dweight


def combine_slots(out, inverse, weight):
    rows = out[inverse].view(*weight.shape, -1)
    return (rows.float() * weight.unsqueeze(-1)).sum(1).to(out.dtype)


def sum_slots(out, inverse, n):
    return out[inverse].view(n, -1, out.shape[1]).float().sum(1).to(out.dtype)


def rmsnorm(x, w):
    return F.rms_norm(x.float(), (x.shape[-1],), w, 1e-6).to(x.dtype)


def rope_mla(q, kv, k_rope, cos, sin):
    """Neighbours turn, as in DeepSeek's models; the key's turned part is shared by all heads."""
    turned = k_rope.shape[-1]
    nope = q.shape[-1] - turned

    def turn(x):
        a, b = x.float().unflatten(-1, (-1, 2)).unbind(-1)
        return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2).to(x.dtype)

    k_turned = turn(k_rope).expand(-1, q.shape[1], -1)
    return (torch.cat([q[..., :nope], turn(q[..., nope:])], -1),
            torch.cat([kv[..., :nope], k_turned], -1), kv[..., nope:].contiguous())


def attention(q, k, v):
    if not q.is_cuda:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.CUDNN_ATTENTION):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


class WindowAttention:
    """cuDNN's causal attention of a window, through its frontend: one graph each way, backward in one
    order. Tensors are (b, h, t, width)."""

    def __init__(self, case):
        import cudnn

        self.cudnn, self.case = cudnn, case
        self.band = dict(attn_scale=case.d ** -0.5, diagonal_alignment=cudnn.diagonal_alignment.TOP_LEFT,
                         diagonal_band_left_bound=case.window, diagonal_band_right_bound=0)

    def graph(self):
        types = self.cudnn.data_type
        return self.cudnn.pygraph(io_data_type=types.BFLOAT16, intermediate_data_type=types.FLOAT,
                                  compute_data_type=types.FLOAT)

    def built(self, graph, outputs, tensors):
        for node, tensor in outputs:
            node.set_output(True).set_dim(list(tensor.shape)).set_stride(list(tensor.stride()))
            if tensor.dtype == torch.float32:
                node.set_data_type(self.cudnn.data_type.FLOAT)
        graph.build([self.cudnn.heur_mode.A, self.cudnn.heur_mode.FALLBACK])
        space = torch.empty(graph.get_workspace_size(), device="cuda", dtype=torch.uint8)
        pack = {**tensors, **dict(outputs)}
        return lambda: graph.execute(pack, space)

    def forward(self, q, k, v):
        graph = self.graph()
        nodes = {graph.tensor_like(x): x for x in (q, k, v)}
        out, lse = torch.empty_like(q), torch.empty(*q.shape[:3], 1, device="cuda")
        outputs = graph.sdpa(*nodes, generate_stats=True, **self.band)
        return self.built(graph, list(zip(outputs, (out, lse))), nodes), out, lse

    def backward(self, q, k, v, out, dout, lse):
        graph = self.graph()
        nodes = {graph.tensor_like(x): x for x in (q, k, v, out, dout, lse)}
        outputs = graph.sdpa_backward(*nodes, use_deterministic_algorithm=True, **self.band)
        return self.built(graph, list(zip(outputs, map(torch.empty_like, (q, k, v)))), nodes)


def cross_entropy(logits, target):
    x = logits.float()
    lse = x.logsumexp(-1, keepdim=True)
    hit = torch.arange(x.shape[-1], device=x.device) == target.unsqueeze(-1)
    loss = lse.squeeze(-1) - x.gather(-1, target.unsqueeze(-1)).squeeze(-1)
    return loss, ((x - lse).exp() - hit.float()).to(logits.dtype)


# ---- timing ----


def seconds_of(calls):
    """The median of the runs, on the calls in turn."""
    cuda = torch.cuda.is_available()
    for i in range(WARM_UP):
        calls[i % len(calls)]()
    if not cuda:
        spans = []
        for i in range(RUNS):
            start = time.perf_counter()
            calls[i % len(calls)]()
            spans.append(time.perf_counter() - start)
        return statistics.median(spans)
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(2 * RUNS)]
    torch.cuda.synchronize()
    torch.cuda._sleep(100_000_000)  # about 50 ms, in which the host gets ahead
    for i in range(RUNS):
        marks[2 * i].record()
        calls[(WARM_UP + i) % len(calls)]()
        marks[2 * i + 1].record()
    torch.cuda.synchronize()
    return statistics.median(marks[2 * i].elapsed_time(marks[2 * i + 1])
                             for i in range(RUNS)) / 1e3


class Peer:
    def __init__(self, cpu):
        self.device, self.functions = "cpu" if cpu else "cuda", {}

    def compiled(self, function):
        if self.device == "cpu":
            return function
        if function not in self.functions:
            self.functions[function] = torch.compile(function, dynamic=False)
        return self.functions[function]

    def time(self, row):
        """Seconds of the row's op and of its bare product, or why there are none."""
        if not hasattr(Case, row["op"]):
            return dict(why="PyTorch has no counterpart")
        sets = min(WARM_UP + RUNS, math.ceil(COLD_BYTES / row["bytes"]))
        try:
            with torch.no_grad() if not row["op"].endswith("_bwd") else torch.enable_grad():
                cases = [Case(row, self.device, self.compiled) for _ in range(sets)]
                result = dict(seconds=seconds_of([c.run for c in cases]))
                if cases[0].bare:
                    result["bare"] = seconds_of([c.bare for c in cases])
        except (RuntimeError, AttributeError, ValueError, TypeError, ImportError) as why:
            return dict(why=" ".join(str(why).split())[:120])
        finally:
            cases = None
            if self.device == "cuda":
                torch.cuda.empty_cache()
        return result


# ---- side by side ----


def ours(args, group, check):
    command = [args.switchyard, "bench", "shapes", "--json", "--only", group, *args.settings]
    command += ["--shrink", str(args.shrink), "run.compute=bf16"]
    command += [f"run.device={'cpu' if args.cpu else 'cuda'}"]
    command += ["--seed", args.seed] if args.seed else []
    command += [] if check else ["--no-check"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr}")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return lines[0], lines[1:]


class Table:
    """Rows by group, op, shape and routing; each has one entry a round."""

    def __init__(self):
        self.rounds = collections.defaultdict(list)

    def add(self, row, peer):
        self.rounds[row["group"], row["op"], row["shape"], row["routing"]].append((row, peer))

    def rows(self):
        for key, rounds in self.rounds.items():
            first = rounds[0][0]
            us = statistics.median(row["seconds"] for row, _ in rounds)
            times = [peer["seconds"] for _, peer in rounds if "seconds" in peer]
            bare = [peer["bare"] for _, peer in rounds if "bare" in peer]
            yield dict(zip(("group", "op", "shape", "routing"), key), seconds=us,
                       flops=first["flops"], bytes=first["bytes"], error=first["error"],
                       share=first["share"] * first["seconds"] / us, verdict=first["verdict"],
                       peer_s=statistics.median(times) if times else None,
                       bare_s=statistics.median(bare) if bare else None,
                       why=next((peer["why"] for _, peer in rounds if "why" in peer), None))


def print_row(row):
    amount = row["bytes" if row["group"] in BY_BYTES else "flops"]
    rate = f"{amount / row['seconds'] / 1e12:.4g} T{'B' if row['group'] in BY_BYTES else 'FLOP'}/s"
    peer = row["why"] or "none"
    if row["peer_s"]:
        peer = f"{row['peer_s'] * 1e6:10.1f} {amount / row['peer_s'] / 1e12:8.4g}  "
        peer += f"{row['peer_s'] / row['seconds']:6.2f}"
    if row["bare_s"]:
        peer += f"  {row['bare_s'] * 1e6:9.1f} {row['bare_s'] / row['seconds']:6.2f}"
    error = "        " if row["error"] is None else f"{row['error']:8.1e}"
    print(f"{row['op']:<14} {row['shape']:<22} {row['routing']:<9} {row['seconds'] * 1e6:10.1f} "
          f"{rate:>16} {100 * row['share']:5.1f} {error} {row['verdict']:<9} {peer}", flush=True)


def mean(ratios):
    return math.exp(statistics.fmean(math.log(r) for r in ratios))


def print_group(group, rows):
    print(f"\n{group}\n{'op':<14} {'shape':<22} {'routing':<9} {'ours us':>10} {'':>16} {'peak%':>5} "
          f"{'error':>8} {'':<9} {'torch us':>10} {'':>8}  {'ratio':>6}  {'bare us':>9} {'ratio':>6}")
    by_op = collections.defaultdict(list)
    for row in rows:
        print_row(row)
        if row["peer_s"]:
            by_op[row["op"]].append(row["peer_s"] / row["seconds"])
    for op, ratios in by_op.items():
        print(f"geometric mean of {op}: {mean(ratios):.3f} over {len(ratios)} rows, "
              f"{min(ratios):.2f} to {max(ratios):.2f}")
    everything = [r for ratios in by_op.values() for r in ratios]
    if everything:
        print(f"geometric mean of {group}: {mean(everything):.3f}")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("settings", nargs="*", default=[])
    parser.add_argument("--only", action="append", choices=GROUPS, help="may be repeated")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seed", help=f"draw shapes from this text, of {' and '.join(DRAWN)}")
    parser.add_argument("--shrink", type=int, default=1)
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--switchyard", default="build/switchyard")
    parser.add_argument("--json")
    args = parser.parse_intermixed_args()
    for group in args.only or []:
        if args.seed and group not in DRAWN:
            parser.error(f"--seed draws shapes of {' and '.join(DRAWN)}, not of {group}: "
                         "leave out --seed or --only " + group)
    return args


def main():
    args = arguments()
    import_torch(args.cpu)
    peer, everything = Peer(args.cpu), []
    for group in args.only or GROUPS:
        if args.seed and group not in DRAWN:
            continue
        table = Table()
        for number in range(args.rounds):
            machine, rows = ours(args, group, check=number == 0)
            for row in rows:
                table.add(row, peer.time(row))
            print(f"{group}, round {number + 1}: {machine['name']}, torch {torch.__version__}; measured peak "
                  f"{machine['flops'] / 1e12:.0f} TFLOP/s, {machine['bytes'] / 1e12:.2f} TB/s",
                  flush=True)
        rows = list(table.rows())
        print_group(group, rows)
        everything += rows
        if args.json:
            with open(args.json, "w") as f:
                json.dump(everything, f)
    wrong = sum(row["verdict"] == "WRONG" for row in everything)
    if wrong:
        raise SystemExit(f"{wrong} rows are not what the CPU computes")


if __name__ == "__main__":
    try:
        main()
    except SystemExit2 as why:
        print(why, file=sys.stderr)
        sys.exit(2)
