#!/usr/bin/env python3
"""Make tests/golden/ops/, model/, trajectory/, steps/ and hf/: what PyTorch and transformers say.

    make_golden.py [ops|model|trajectory|steps|hf]    run from the top of the tree; needs the versions below

The witness of tests/kernels/op/test_golden_ops.c, tests/engine/unit/model/test_golden_model.c and, for whole steps
(golden_trajectory.py, golden_steps.py), tests/engine/unit/train/test_trajectory.c and test_steps.c. Ops are computed in float64 from float32
inputs, gradients by autograd, and rounded at the end; models are Hugging Face's own classes in
float32. Array names are the names of the op's ports (src/kernels/FAMILY/NAME.c), so the
test binds them in a loop: CASE/PORT, and CASE/PORT.before for what an accumulating port starts with.
"""
import math
import sys

import numpy as np
import torch
import torch.nn.functional as F
import transformers

import golden_format
import golden_hf
import golden_models
import golden_mtp
import golden_steps
import golden_trajectory

VERSIONS = {"torch": (torch.__version__, "2.15.0"), "transformers": (transformers.__version__, "5.23.0")}
OUT = "tests/golden"


def check_versions():
    """Other versions would do, but then every file changes by a rounding: better on purpose."""
    for name, (have, want) in VERSIONS.items():
        if have.split("+")[0] != want:
            raise SystemExit(f"{name} is {have}, the goldens were made with {want}: "
                             "change VERSIONS and make all of them again")
    return "made by make_golden.py" + "".join(f", {n} {w}" for n, (_, w) in VERSIONS.items())


# ---- helpers ----


class Draw:
    """Random inputs: float32 values held as float64 tensors that ask for a gradient."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def __call__(self, *shape, std=1.0, mean=0.0, grad=True):
        x = (mean + std * self.rng.standard_normal(shape)).astype(np.float32)
        return torch.tensor(x, dtype=torch.float64, requires_grad=grad)

    def below(self, n, *shape):
        return torch.tensor(self.rng.integers(0, n, shape))


def plain(x):
    return x.detach().numpy() if isinstance(x, torch.Tensor) else np.asarray(x)


class Cases(dict):
    """Arrays of one file. add("case", port=tensor ...)."""

    def add(self, case, **ports):
        for port, value in ports.items():
            self[f"{case}/{port}"] = plain(value)

    def add_sum(self, case, before, **ports):
        """Accumulating ports: what was there, and that plus the value."""
        for port, value in ports.items():
            start = plain(before(*value.shape, grad=False))
            self[f"{case}/{port}.before"] = start
            self[f"{case}/{port}"] = start + plain(value)


def grads(outputs, d_outputs, *inputs):
    return torch.autograd.grad(outputs, inputs, d_outputs, retain_graph=True)


# ---- norm, activation, embedding, linear ----


def rmsnorm_of(x, w, eps):
    rstd = (x.pow(2).mean(-1, keepdim=True) + eps).rsqrt()
    return F.rms_norm(x, x.shape[-1:], w.reshape(-1), eps), rstd


def window(wide, col, values):
    """A wide array of NaN ("left alone") with a window."""
    out = np.full(wide.shape, np.nan)
    out[:, col:col + values.shape[1]] = plain(values)
    return out


def rmsnorm(draw):
    out, eps = Cases(), 1e-5
    for case, n, d in (("one", 1, 3), ("plain", 13, 37), ("wide", 5, 257)):
        x, w, dy = draw(n, d), draw(1, d, mean=1, std=0.3), draw(n, d)
        y, rstd = rmsnorm_of(x, w, eps)
        dx, dw = grads(y, dy, x, w)
        out.add(f"fwd.{case}", x=x, w=w, y=y, rstd=rstd)
        out.add(f"bwd.{case}", dy=dy, x=x, w=w, rstd=rstd, dx=dx)
        out.add_sum(f"bwd.{case}", draw, dw=dw)

    x, w, dy, dres = draw(11, 23), draw(1, 23), draw(11, 23), draw(11, 23)
    y, rstd = rmsnorm_of(x, w, eps)
    dx, dw = grads([y, x], [dy, dres], x, w)
    out.add("fwd.residual", x=x, w=w, y=y, rstd=rstd)
    out.add("bwd.residual", dy=dy, x=x, w=w, rstd=rstd, dres=dres, dx=dx)
    out.add_sum("bwd.residual", draw, dw=dw)

    col, d, x, w, dy = 11, 19, draw(7, 41), draw(1, 19), draw(7, 19)
    y, rstd = rmsnorm_of(x[:, col:col + d], w, eps)
    dx, dw = grads(y, dy, x, w)
    out.add("fwd.window", x=x, w=w, y=y, rstd=rstd)
    out.add("bwd.window", dy=dy, x=x, w=w, rstd=rstd, dx=window(x, col, dx[:, col:col + d]))
    out.add_sum("bwd.window", draw, dw=dw)

    col, heads, d, x, w, dy = 11, 3, 19, draw(7, 91), draw(1, 19), draw(7, 57)
    y, rstd = rmsnorm_of(x[:, col:col + heads * d].reshape(7, heads, d), w, eps)
    dx, dw = grads(y, dy.reshape(y.shape), x, w)
    out.add("fwd.heads", x=x, w=w, y=y.reshape(7, -1), rstd=rstd.reshape(7, heads))
    out.add("bwd.heads", dy=dy, x=x, w=w, rstd=rstd.reshape(7, heads),
            dx=window(x, col, dx[:, col:col + heads * d]))
    out.add_sum("bwd.heads", draw, dw=dw)
    return out


def swiglu(draw):
    out = Cases()
    for case, n, f in (("one", 1, 1), ("plain", 11, 23), ("wide", 3, 131)):
        gu, dy = draw(n, 2 * f, std=3), draw(n, f)
        y = F.silu(gu[:, :f]) * gu[:, f:]
        out.add(f"fwd.{case}", gu=gu, y=y)
        out.add(f"bwd.{case}", dy=dy, gu=gu, dgu=grads(y, dy, gu)[0])
    return out


def simple(draw):
    """embed and linear."""
    out = Cases()
    n, v, d = 29, 17, 11
    id, table, dh = draw.below(v - 2, n), draw(v, d), draw(n, d)  # the last two ids never occur
    h = F.embedding(id, table)
    out.add("embed_fwd", id=id, table=table, h=h)
    out.add("embed_bwd", id=id, dh=dh)
    out.add_sum("embed_bwd", draw, dtable=grads(h, dh, table)[0])
    for case, n, i, o in (("one", 1, 1, 1), ("plain", 31, 37, 41)):
        x, w, r, dy, dr = draw(n, i), draw(o, i), draw(n, o), draw(n, o), draw(n, i)
        y = F.linear(x, w)
        dx, dw = grads(y, dy, x, w)
        out.add(f"linear_fwd.{case}", x=x, w=w, r=r, y=y + r)
        out.add(f"linear_bwd_input.{case}", dy=dy, w=w, r=dr, dx=dx + dr)
        out.add(f"linear_bwd_weight.{case}", dy=dy, x=x)
        out.add_sum(f"linear_bwd_weight.{case}", draw, dw=dw)
    return out


# ---- rope and attention ----


def rope_table(positions, dim, theta=10000.0):
    angle = np.arange(positions)[:, None] * theta ** (-2.0 * np.arange(dim // 2)[None] / dim)
    return [torch.tensor(f(angle).astype(np.float32), dtype=torch.float64) for f in (np.cos, np.sin)]


def turn(x, cos, sin, interleaved):
    """x (N, heads, d) by cos, sin (N, d/2). Neighbours as complex numbers (DeepSeek); halves by
    Hugging Face's own function for Llama."""
    if interleaved:
        z = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2).contiguous())
        return torch.view_as_real(z * torch.complex(cos, sin)[:, None]).flatten(-2)
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    both = lambda t: torch.cat((t, t), -1)
    return apply_rotary_pos_emb(x, x, both(cos), both(sin), unsqueeze_dim=1)[0]


def rope_mla(draw, out, case, heads, dims, q_col, k_col, interleaved):
    n, (nope, rope, v) = 13, dims
    q_width = heads * (nope + rope)
    q, k_rope = draw(n, q_col + q_width + (3 if q_col else 0)), draw(n, k_col + rope)
    kv = draw(n, heads * (nope + v))
    pos = draw.below(31, n)
    cos, sin = rope_table(31, rope)
    c, s = cos[pos], sin[pos]
    qh = q[:, q_col:q_col + q_width].reshape(n, heads, nope + rope)
    kvh = kv.reshape(n, heads, nope + v)
    shared = turn(k_rope[:, None, k_col:], c, s, interleaved).expand(n, heads, rope)
    q_out = torch.cat((qh[..., :nope], turn(qh[..., nope:], c, s, interleaved)), -1).reshape(n, -1)
    k_out = torch.cat((kvh[..., :nope], shared), -1).reshape(n, -1)
    v_out = kvh[..., nope:].reshape(n, -1)
    outs = [q_out, k_out, v_out]
    d_outs = [draw(*o.shape) for o in outs]
    dq, dkv, dk_rope = grads(outs, d_outs, q, kv, k_rope)
    out.add(f"mla_fwd.{case}", q=q, kv=kv, k_rope=k_rope, pos=pos, cos=cos, sin=sin, q_out=q_out,
            k_out=k_out, v_out=v_out)
    out.add(f"mla_bwd.{case}", dq_out=d_outs[0], dk_out=d_outs[1], dv_out=d_outs[2], pos=pos, cos=cos,
            sin=sin, dq=window(q, q_col, dq[:, q_col:q_col + q_width]), dkv=dkv,
            dk_rope=window(k_rope, k_col, dk_rope[:, k_col:]))


def rope_gqa(draw, out, case, heads, kv_heads, d, interleaved):
    n = 17
    qkv = draw(n, (heads + 2 * kv_heads) * d)
    pos = draw.below(23, n)
    cos, sin = rope_table(23, d)
    q, k, v = qkv.split([heads * d, kv_heads * d, kv_heads * d], -1)
    rotated = lambda x: turn(x.reshape(n, -1, d), cos[pos], sin[pos], interleaved).reshape(n, -1)
    outs = [rotated(q), rotated(k), v]
    d_outs = [draw(*o.shape) for o in outs]
    dqkv = grads(outs, d_outs, qkv)[0]
    out.add(f"gqa_fwd.{case}", qkv=qkv, pos=pos, cos=cos, sin=sin, q_out=outs[0], k_out=outs[1],
            v_out=outs[2])
    out.add(f"gqa_bwd.{case}", dq_out=d_outs[0], dk_out=d_outs[1], dv_out=d_outs[2], pos=pos, cos=cos,
            sin=sin, dqkv=dqkv)


def rope(draw):
    out = Cases()
    rope_mla(draw, out, "neighbours", 3, (7, 6, 5), 0, 0, True)
    rope_mla(draw, out, "windows", 3, (5, 8, 9), 4, 11, True)
    rope_mla(draw, out, "halves", 2, (3, 10, 4), 0, 7, False)
    rope_gqa(draw, out, "halves", 6, 2, 10, False)
    rope_gqa(draw, out, "neighbours", 3, 1, 14, True)
    return out


def attention_of(q, k, v, mask, scale):
    """(B, T, H, d) as the op has it; also the log of the sum of exponentials (B, H, Tq)."""
    group = q.shape[2] // k.shape[2]
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    o = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale, enable_gqa=True)
    scores = q @ k.repeat_interleave(group, 1).transpose(2, 3) * scale
    lse = scores.masked_fill(~mask, -math.inf).logsumexp(-1)
    return o.transpose(1, 2), lse


def sees(tq, tk, doc):
    """(B, 1, Tq, Tk): key j is seen by query i if doc[i] <= j <= its own position."""
    at = torch.arange(tq)[:, None] + tk - tq
    key = torch.arange(tk)[None]
    return ((key <= at) & (key >= doc[:, :, None]))[:, None]


def attention_case(draw, out, case, sizes, doc=None, std=1.0):
    b, tq, tk, heads, kv_heads, dk, dv = sizes
    q, k, v = draw(b, tq, heads, dk, std=std), draw(b, tk, kv_heads, dk), draw(b, tk, kv_heads, dv)
    scale = float(np.float32(dk ** -0.5))
    starts = torch.zeros(b, tq, dtype=torch.int64) if doc is None else doc
    o, lse = attention_of(q, k, v, sees(tq, tk, starts), scale)
    shared = dict(q=q, k=k, v=v, **({} if doc is None else dict(doc=doc)))
    out.add(f"fwd.{case}", o=o, lse=lse, **shared)
    if tq != tk:
        return
    d_o = draw(*o.shape)
    dq, dk_, dv_ = grads(o, d_o, q, k, v)
    out.add(f"bwd.{case}", d_o=d_o, o=o, lse=lse, dq=dq, dk=dk_, dv=dv_, **shared)


def starts_of(t, *documents):
    """Position of the first token of each token's document, a row of first positions a sequence."""
    rows = [[max(s for s in starts if s <= i) for i in range(t)] for starts in documents]
    return torch.tensor(rows)


def attention(draw):
    out = Cases()
    attention_case(draw, out, "one", (1, 1, 1, 1, 1, 2, 3))
    attention_case(draw, out, "mla", (2, 37, 37, 3, 3, 24, 16),
                   doc=starts_of(37, [0, 1, 5, 22], [0, 36]))
    attention_case(draw, out, "gqa", (2, 29, 29, 6, 2, 10, 10), doc=starts_of(29, [0], [0, 13, 14]))
    attention_case(draw, out, "tile", (1, 131, 131, 2, 1, 8, 8), doc=starts_of(131, [0, 17, 64, 129]))
    attention_case(draw, out, "sharp", (1, 41, 41, 2, 2, 12, 7), std=3.0)
    attention_case(draw, out, "cache", (1, 5, 23, 4, 2, 6, 9))
    return out


# ---- head, router, experts ----


def head(draw):
    out = Cases()
    for case, n, d, v in (("one", 1, 1, 2), ("plain", 29, 13, 101), ("wide", 5, 7, 1031)):
        x, w, target = draw(n, d), draw(v, d), draw.below(v, n)
        if n > 5:
            target[torch.tensor([0, 7, n - 1])] = -1
        scale = float(np.float32(1 / int((target >= 0).sum())))
        loss = F.cross_entropy(F.linear(x, w), target, ignore_index=-1, reduction="none")
        total = loss.sum() * scale
        dx, dw = grads(total, None, x, w)
        out.add(case, x=x, w=w, target=target, scale=[scale], loss=loss, dx=dx)
        out.add_sum(case, draw, loss_sum=total.reshape(1), dw=dw)
    return out


def route_of(logits, bias, b, rule):
    """index (by falling score + bias), weight, aux loss and tokens of each sequence by expert."""
    n, e = logits.shape
    p = logits.softmax(-1) if rule["score"] == "softmax" else logits.sigmoid()
    choice = p.detach() + (0 if bias is None else bias.detach())
    if rule["groups"] > 1:
        best = choice.view(n, rule["groups"], -1).topk(rule["group_score_top"], -1).values.sum(-1)
        kept = F.one_hot(best.topk(rule["top_groups"], -1).indices, rule["groups"]).sum(1)
        choice = choice.masked_fill(kept.repeat_interleave(e // rule["groups"], 1) == 0, -math.inf)
    index = choice.topk(rule["top_k"], -1).indices
    weight = p.gather(1, index)
    if rule["normalise"]:
        weight = weight / (weight.sum(-1, keepdim=True) + 1e-20)
    count = F.one_hot(index, e).sum(1).view(b, -1, e).sum(1)
    q = (p / p.sum(-1, keepdim=True)).view(b, -1, e)
    groups, n_e = (1, count.sum(0, keepdim=True)) if rule["per_batch"] else (b, count)
    mean = q.reshape(groups, -1, e).mean(1)
    aux = (n_e * mean).sum() * e / (rule["top_k"] * (n // groups)) * rule["aux_scale"]
    return index, weight * rule["scaling"], aux, count


def route_case(draw, out, case, b, t, e, **rule):
    rule = dict(dict(score="softmax", top_k=2, groups=1, top_groups=1, group_score_top=1,
                     normalise=False, scaling=1.0, aux_scale=0.0, per_batch=False), **rule)
    domains = 3
    logits = draw(b * t, e, std=1.5)
    bias = draw(1, e, std=0.2) if rule["score"] == "sigmoid" else None
    domain = draw.below(domains, b)
    index, weight, aux, count = route_of(logits, bias, b, rule)
    dweight = draw(*weight.shape)
    dlogits = grads([weight, aux], [dweight, None], logits)[0]
    load = torch.zeros(domains, e, dtype=torch.int64).index_add_(0, domain, count)
    given = {} if bias is None else dict(bias=bias)
    out.add(f"fwd.{case}", logits=logits, domain=domain, index=index, weight=weight, seq_count=count,
            **given)
    out.add_sum(f"fwd.{case}", draw, aux_loss=aux.reshape(1))
    start = draw.below(50, domains, e)
    out.add(f"fwd.{case}", **{"load.before": start, "load": start + load})
    out.add(f"bwd.{case}", logits=logits, index=index, seq_count=count, dweight=dweight,
            dlogits=dlogits)


def route(draw):
    """The rules stand a second time in tests/kernels/op/test_golden_ops.c."""
    out = Cases()
    route_case(draw, out, "softmax", 3, 11, 7, top_k=2, scaling=2.5)
    route_case(draw, out, "groups", 2, 17, 12, top_k=3, groups=4, top_groups=2, aux_scale=0.25)
    route_case(draw, out, "sigmoid", 3, 13, 16, score="sigmoid", top_k=4, groups=4, top_groups=2,
               group_score_top=2, normalise=True, scaling=2.5, aux_scale=0.5)
    route_case(draw, out, "batch", 4, 7, 5, top_k=3, normalise=True, aux_scale=0.75, per_batch=True)
    route_case(draw, out, "all", 1, 5, 3, score="sigmoid", top_k=3, aux_scale=1.0)
    return out


def sorted_rows(index, e):
    """offsets (1, E+1), row_token (R), row_slot (R), slot_row (N, K): by expert, then by token."""
    k = index.shape[1]
    flat = index.reshape(-1)
    row_slot = torch.argsort(flat, stable=True)
    slot_row = torch.empty_like(row_slot)
    slot_row[row_slot] = torch.arange(row_slot.numel())
    offsets = torch.cat((torch.zeros(1, dtype=torch.int64), torch.bincount(flat, minlength=e).cumsum(0)))
    return offsets[None], row_slot // k, row_slot, slot_row.reshape(index.shape)


def moe_case(draw, out, case, n, k, e, d, f, crowd):
    """crowd: more of the tokens choose expert 0; expert e - 2 stays empty."""
    taste = draw(n, e)
    taste.data[:, 0] += crowd
    taste.data[:, e - 2] = -math.inf
    index = taste.topk(k, -1).indices
    offsets, row_token, row_slot, slot_row = sorted_rows(index, e)
    x, w1, w2 = draw(n, d), draw(e, 2 * f, d, std=0.5), draw(e, d, f, std=0.5)
    weight, shared, residual = draw(n, k), draw(n, d), draw(n, d)
    cuts = offsets[0].tolist()
    each = [slice(a, b) for a, b in zip(cuts, cuts[1:])]
    rows = x[row_token]
    pre = torch.cat([F.linear(rows[s], w) for s, w in zip(each, w1)])
    act = F.silu(pre[:, :f]) * pre[:, f:]
    out_rows = torch.cat([F.linear(act[s], w) for s, w in zip(each, w2)])
    y = (weight[..., None] * out_rows[slot_row]).sum(1) + shared + residual
    dy = draw(n, d)
    drows, dpre, dw1, dw2, dweight = grads(y, dy, rows, pre, w1, w2, weight)
    wact = weight.reshape(-1)[row_slot][:, None] * act

    sort = dict(offsets=offsets, row_token=row_token)
    out.add(f"sort.{case}", index=index, row_slot=row_slot, slot_row=slot_row, **sort)
    out.add(f"up_fwd.{case}", x=x, w=w1, pre=pre, act=act, **sort)
    out.add(f"down_fwd.{case}", act=act, w=w2, offsets=offsets, out=out_rows)
    out.add(f"combine.{case}", out=out_rows, slot_row=slot_row, weight=weight, shared=shared,
            residual=residual, y=y)
    out.add(f"down_bwd_input.{case}", dy=dy, w=w2, pre=pre, row_slot=row_slot, weight=weight, dpre=dpre,
            wact=wact, dweight=dweight, **sort)
    out.add(f"down_bwd_weight.{case}", dy=dy, wact=wact, **sort)
    out.add_sum(f"down_bwd_weight.{case}", draw, dw=dw2)
    out.add(f"up_bwd_input.{case}", dpre=dpre, w=w1, offsets=offsets, dx=drows)
    out.add(f"up_bwd_weight.{case}", dpre=dpre, x=x, **sort)
    out.add_sum(f"up_bwd_weight.{case}", draw, dw=dw1)
    dx = grads(y, dy, x)[0]
    out.add(f"gather_back.{case}", out=drows, slot_row=slot_row, y=dx)


def moe(draw):
    out = Cases()
    moe_case(draw, out, "even", 23, 3, 7, 11, 13, 0.0)
    moe_case(draw, out, "crowd", 67, 2, 5, 7, 17, 3.0)
    load = draw.below(40, 3, 7)
    load[:, 2] = 0
    load[0, 0] += -load.sum() % 6
    load[1, 2] = load.sum() // 6  # exactly the mean: its bias stays
    total = load.sum(0).double()
    bias = draw(1, 7, std=0.1)
    rate = float(np.float32(1e-3))
    out.add("bias_update", load=load, gate=[1.0],
            **{"bias.before": bias, "bias": bias + rate * torch.sign(total.mean() - total)})
    return out


def in_turn(halves):
    """Columns gate | up as gpt-oss has them: gate, up, gate, up ..."""
    return torch.stack(halves.chunk(2, -1), -1).flatten(-2)


def halves(in_turn):
    return torch.cat((in_turn[..., ::2], in_turn[..., 1::2]), -1)


def gpt_oss_case(draw, out, case, n, k, e, d, f, limit, crowd):
    """Hugging Face's experts of gpt-oss gives y and the gradients of all that it was given."""
    from transformers.models.gpt_oss.modeling_gpt_oss import GptOssExperts

    taste = draw(n, e)
    taste.data[:, 0] += crowd
    taste.data[:, e - 2] = -math.inf
    index = taste.topk(k, -1).indices
    offsets, row_token, row_slot, slot_row = sorted_rows(index, e)
    config = transformers.GptOssConfig(hidden_size=d, intermediate_size=f, num_local_experts=e,
                                       num_experts_per_tok=k, swiglu_limit=limit)
    config._experts_implementation = "eager"
    experts = GptOssExperts(config).double()
    x, weight, dy = draw(n, d), draw(n, k), draw(n, d)
    w1, w2 = draw(e, 2 * f, d, std=0.5), draw(e, d, f, std=0.5)
    b1, b2 = draw(e, 2 * f), draw(e, d)
    given = dict(gate_up_proj=in_turn(w1.mT), gate_up_proj_bias=in_turn(b1), down_proj=w2.mT,
                 down_proj_bias=b2)
    y = torch.func.functional_call(experts, given, (x, index, weight))
    dx, dweight, dw1, dw2, db1, db2 = grads(y, dy, x, weight, w1, w2, b1, b2)

    expert = index.reshape(-1)[row_slot]
    rows, w_row = x[row_token], weight.reshape(-1)[row_slot][:, None]
    pre = torch.einsum("rd,rfd->rf", rows, w1[expert]) + b1[expert]
    act = experts._apply_gate(in_turn(pre))
    out_rows = torch.einsum("rf,rdf->rd", act, w2[expert]) + b2[expert]
    dpre, drows = grads((w_row * out_rows)[slot_row].sum(1), dy, pre, rows)
    sort = dict(offsets=offsets, row_token=row_token)
    out.add(f"sort.{case}", index=index, row_slot=row_slot, slot_row=slot_row, **sort)
    out.add(f"up_fwd.{case}", x=x, w=w1, bias=b1, pre=pre, act=act, **sort)
    out.add(f"down_fwd.{case}", act=act, w=w2, bias=b2, offsets=offsets, out=out_rows)
    out.add(f"combine.{case}", out=out_rows, slot_row=slot_row, weight=weight, y=y)
    out.add(f"down_bwd_input.{case}", dy=dy, w=w2, bias=b2, pre=pre, row_slot=row_slot, weight=weight,
            dpre=dpre, wact=w_row * act, dweight=dweight, **sort)
    out.add(f"down_bwd_weight.{case}", dy=dy, wact=w_row * act, **sort)
    out.add_sum(f"down_bwd_weight.{case}", draw, dw=dw2)
    out.add(f"down_bias.{case}", dy=dy, row_slot=row_slot, weight=weight, **sort)
    out.add_sum(f"down_bias.{case}", draw, db=db2)
    out.add(f"up_bwd_input.{case}", dpre=dpre, w=w1, offsets=offsets, dx=drows)
    out.add(f"up_bwd_weight.{case}", dpre=dpre, x=x, **sort)
    out.add_sum(f"up_bwd_weight.{case}", draw, dw=dw1)
    out.add(f"up_bias.{case}", dy=dpre, offsets=offsets)
    out.add_sum(f"up_bias.{case}", draw, db=db1)
    out.add(f"gather_back.{case}", out=drows, slot_row=slot_row, y=dx)


def gpt_oss(draw):
    """The limits stand a second time in tests/kernels/op/test_golden_ops.c."""
    out = Cases()
    gpt_oss_case(draw, out, "even", 23, 3, 7, 11, 13, 7.0, 0.0)
    gpt_oss_case(draw, out, "crowd", 67, 2, 5, 7, 17, 1.5, 3.0)
    return out


# ---- optimizer ----


def adamw(draw):
    """Five steps of two groups, one without decay, under one global norm; some steps are clipped."""
    out, n, plain_n, max_norm = Cases(), 1003, 37, 30.0
    lr, betas, eps, decay = [3e-2, 1e-2, 5e-2, 2e-2, 1e-3], (0.9, 0.95), 1e-8, 0.1
    f32 = lambda v: float(np.float32(v))
    w = [draw(n), draw(plain_n)]
    out.add("start", w=torch.cat(w))
    optimizer = torch.optim.AdamW(
        [dict(params=[w[0]], weight_decay=f32(decay)), dict(params=[w[1]], weight_decay=0.0)],
        betas=tuple(map(f32, betas)), eps=f32(eps))
    for step, rate in enumerate(lr):
        g = [draw(n, std=0.2 + step), draw(plain_n, std=0.2 + step)]
        for p, dp in zip(w, g):
            p.grad = dp.detach().clone()
        norm = torch.nn.utils.clip_grad_norm_(w, max_norm)
        for group in optimizer.param_groups:
            group["lr"] = f32(rate)
        optimizer.step()
        state = [optimizer.state[p] for p in w]
        out.add(f"step{step}", g=torch.cat(g), norm=[float(norm)], lr=[rate], w=torch.cat(w),
                m=torch.cat([s["exp_avg"] for s in state]),
                v=torch.cat([s["exp_avg_sq"] for s in state]))
    return out


def orthogonal(u, steps):
    """Newton-Schulz iterations of a matrix or of matrices side by side, as they are published."""
    x = u.mT if u.size(-2) > u.size(-1) else u
    x = x / (torch.linalg.matrix_norm(x, keepdim=True) + 1e-7)
    for _ in range(steps):
        a = x @ x.mT
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.mT if u.size(-2) > u.size(-1) else x


def muon(draw):
    """Three steps each of a wide and a tall matrix, a square one, and experts."""
    f32 = lambda v: float(np.float32(v))
    out, momentum, decay, scale = Cases(), f32(0.95), f32(0.1), f32(1.7)
    for case, shape, nesterov in [("wide", (24, 61), True), ("tall", (67, 20), True),
                                  ("square", (33, 33), False), ("experts", (5, 21, 34), True)]:
        w, m = draw(*shape, std=0.02, grad=False), draw(*shape, grad=False)
        out.add(case, w=w, m=m)
        for step, (lr, clip) in enumerate([(3e-2, 1.0), (1e-2, 0.25), (5e-2, 0.5)]):
            g = draw(*shape, grad=False)
            m = momentum * m + clip * g
            u = clip * g + momentum * m if nesterov else m
            w = w - f32(lr) * (decay * w + scale * orthogonal(u, 5))
            out.add(f"{case}{step}", g=g, lr=[lr], clip=[clip], w=w, m=m)
    return out


def spun(x):
    """Rotates neighbouring columns by angles that grow with the token, (B, T, heads, even)."""
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2).contiguous())
    angle = torch.arange(x.shape[1]).reshape(-1, 1, 1) / 10.0 ** torch.arange(pairs.shape[-1])
    return torch.view_as_real(pairs * torch.polar(torch.ones_like(angle), angle)).reshape(x.shape).to(x.dtype)


def causal_logits(q, k, scale):
    """(B, H, T, T); -inf where a query does not see."""
    k = k.repeat_interleave(q.shape[2] // k.shape[2], 2)
    s = scale * torch.einsum("bihd,bjhd->bhij", q, k)
    return s.masked_fill(torch.ones_like(s[0, 0]).triu(1).bool(), -torch.inf)


def largest_logits(out, case, q, k, scale, tau):
    """The case of attention_max, whose result is 0 where it is not above tau; returns gamma of each head."""
    s = causal_logits(q, k, scale)
    most = s.amax((0, 2, 3))
    assert (most > tau).any() and (most < tau).any(), most
    noted = torch.where(most > tau, most, 0)
    out.add(case, **{"of.q": q, "of.k": k, "of.lse": s.logsumexp(-1)})
    out.add(case, **{"max": noted, "max.before": torch.zeros_like(most)})
    return noted, torch.clamp(tau / most, max=1)


def add_clip(out, case, noted, w, factor):
    """The case of qk_clip: factor (rows) of the matrix, or of a vector. Returns the clipped one."""
    clipped = w * factor.reshape(-1, *[1] * (w.dim() - 1))
    out.add(case, w=clipped, max=noted, clip=[1.0])
    out.add(case, **{"w.before": w})
    return clipped


def check_scaled(before, after, gamma):
    """All logits of a head are gamma times what they were."""
    want = causal_logits(*before, 1) * gamma.reshape(1, -1, 1, 1)
    torch.testing.assert_close(causal_logits(*after, 1), want)


def qk_clip(draw):
    """MLA with a latent of queries, and GQA with biases: the projections of a step's rows, the largest
    logits, the clipped weights, with which each head's logits are gamma times what they were. Sizes
    and taus stand a second time in tests/kernels/op/test_golden_ops.c."""
    out, b, t, scale = Cases(), 2, 37, 0.3

    heads, nope, rot, v, rank, tau = 4, 6, 4, 5, 9, 4.5
    cq, ckv = draw(b, t, rank, grad=False), draw(b, t, rank, grad=False)
    shared = spun(draw(b, t, 1, rot, grad=False)).expand(b, t, heads, rot)
    wq = draw(heads * (nope + rot), rank, std=0.4, grad=False)
    wkv = draw(heads * (nope + v), rank, std=0.4, grad=False)

    def mla(wq, wkv):
        q = (cq @ wq.mT).reshape(b, t, heads, nope + rot)
        k = (ckv @ wkv.mT).reshape(b, t, heads, nope + v)
        return (torch.cat([q[..., :nope], spun(q[..., nope:])], -1),
                torch.cat([k[..., :nope], shared], -1))

    before = mla(wq, wkv)
    noted, gamma = largest_logits(out, "max.mla", *before, scale, tau)
    root = gamma.sqrt().repeat(nope, 1)
    query = torch.cat([root, gamma.repeat(rot, 1)]).mT.reshape(-1)
    wq = add_clip(out, "clip.mla_q", noted, wq, query)
    wkv = add_clip(out, "clip.mla_kv", noted, wkv, torch.cat([root, torch.ones(v, heads)]).mT.reshape(-1))
    check_scaled(before, mla(wq, wkv), gamma)

    heads, groups, width, hidden, tau = 6, 2, 8, 11, 8.0
    x, w = draw(b, t, hidden, grad=False), draw((heads + 2 * groups) * width, hidden, std=0.4, grad=False)
    bias = draw((heads + 2 * groups) * width, std=0.4, grad=False)

    def gqa(w, bias):
        a = (x @ w.mT + bias).reshape(b, t, heads + 2 * groups, width)
        return spun(a[:, :, :heads]), spun(a[:, :, heads:heads + groups])

    before = gqa(w, bias)
    noted, gamma = largest_logits(out, "max.gqa", *before, scale, tau)
    key = gamma.reshape(groups, -1).amin(1).sqrt()
    factor = torch.cat([gamma / key.repeat_interleave(heads // groups), key, torch.ones(groups)])
    factor = factor.repeat_interleave(width)
    w, bias = add_clip(out, "clip.gqa", noted, w, factor), add_clip(out, "clip.bias", noted, bias, factor)
    check_scaled(before, gqa(w, bias), gamma)
    return out


OPS = [rmsnorm, swiglu, simple, rope, attention, head, route, moe, adamw, gpt_oss, muon, qk_clip]


def make_ops(made_by):
    for seed, family in enumerate(OPS):
        path = f"{OUT}/ops/{family.__name__}.golden.zst"
        golden_format.write(path, made_by, family(Draw(seed)))


if __name__ == "__main__":
    torch.set_num_threads(1)
    made_by = check_versions()
    wanted = sys.argv[1:] or ["ops", "model", "trajectory", "steps", "hf"]
    if "ops" in wanted:
        make_ops(made_by)
    if "model" in wanted:
        golden_models.make(f"{OUT}/model", made_by)
    if "model" in wanted or "mtp" in wanted:
        golden_mtp.make(f"{OUT}/model", made_by)
    if "trajectory" in wanted:
        golden_trajectory.make(f"{OUT}/trajectory", made_by)
    if "steps" in wanted:
        golden_steps.make(f"{OUT}/steps", made_by)
    if "hf" in wanted:
        golden_hf.make(f"{OUT}/hf", made_by)
