#!/usr/bin/env python3
"""The training of a switchyard run in PyTorch on the CPU: the same model, weights, tokens, schedule
and optimizer, in f32, for losses and speed side by side.

    peer_torch.py compare CONFIG [section.key=value ...] [--steps 100] [--rounds 3] [--json OUT]
    peer_torch.py run --config RUN/config.yaml --checkpoint RUN/checkpoints/step-0000000000 \\
                      --batches FILE --version loop|sorted|compiled|stock|float64|bf16 [--json OUT]

`compare` makes the initial checkpoint and the batches with `switchyard train` and `switchyard data
batches`, then runs switchyard and each version in turn, one process each, several rounds, and prints
a table. `run` is one of these processes. Needs torch (2.15 was used) and PyYAML; `compare` itself
imports neither torch nor numpy, so that it disturbs nothing.

The versions differ in the experts only:
    loop      for each expert: find its tokens, two products, index_add: what trainers without a
              grouped kernel do
    sorted    tokens sorted by expert once, products over contiguous rows written into one buffer,
              rows added up again by gathering: no copy that is not needed
    compiled  `sorted` under torch.compile, one graph for the whole model
    stock     `sorted` with torch as it comes
    float64   `sorted` in double precision: how far f32 itself drifts from exact arithmetic
    bf16      `sorted` with the types of run.compute=bf16 (docs/explain/numerics.md): main weights,
              router, norms and loss in f32, activations and operands of products in bf16. No
              autocast. Gradients of weights leave torch's products rounded to bf16; ours stay f32

In `compare`, all but `stock` get what somebody who tunes torch for this CPU would give it: malloc
keeps freed memory (10 % faster), and on an AMD CPU the matrix library (MKL) is told to use AVX-512,
which it else keeps for Intel's (2.3 times the speed of products: the greatest difference of all).

All but `stock` also add up the gradient norm in double precision. torch's clip_grad_norm_ adds
squares in f32 and is off by 1e-5 for tensors of a million elements; the learning rate being large
and routing discrete, losses then part from those in double precision by 1e-4 within 25 steps, where
f32 with an exact norm follows them to 1e-7. Later every f32 run drifts; the table says from when on.

Two more choices were measured and are the same for all versions. Attention is torch's fused kernel;
on the CPU it wants keys and values of one width, so values are padded to the keys' width (three
times as fast as the fallback for unequal widths); documents become a mask only where a batch has
some. torch's own grouped product (F.grouped_mm) is ten times slower than a loop over experts here.

Peak memory counts from the second step on, so that compiling does not count against torch.
"""
import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time


def status_bytes(key):
    """VmHWM or VmRSS of this process."""
    with open("/proc/self/status") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith(key + ":"))


def forget_peak():
    """VmHWM starts again from what is resident now."""
    with open("/proc/self/clear_refs", "w") as f:
        f.write("5")


# ---- the model; torch is imported by run() ----

torch = F = np = None


def import_torch():
    global torch, F, np
    import numpy
    import torch as torch_module
    import torch.nn.functional as functional

    torch, F, np = torch_module, functional, numpy


def read_checkpoint(folder):
    """{name: array} of the main weights and the state."""
    out = {}
    with open(f"{folder}/manifest.jsonl") as f:
        for line in f:
            entry = json.loads(line)
            if entry.get("buffer") in ("main", "state"):
                flat = np.fromfile(f"{folder}/{entry['file']}", "<f4", entry["count"],
                                   offset=entry["offset"])
                out[entry["param"]] = torch.from_numpy(flat.reshape(entry["shape"]))
    return out


class Batches:
    """Steps of id, target, pos, doc (B, T) and domain (B): tools/batches/main.c."""

    def __init__(self, path):
        with open(path, "rb") as f:
            words = f.readline().split()
            if words[:3] != [b"switchyard", b"batches", b"1"]:
                raise SystemExit(f"{path} is no file of `switchyard data batches`")
            self.steps, self.b, self.t = map(int, words[3:])
            self.data = np.memmap(path, "<i4", "r", f.tell()).reshape(self.steps, -1)

    def __getitem__(self, step):
        n = self.b * self.t
        parts = [self.data[step, i * n:(i + 1) * n].reshape(self.b, self.t) for i in range(4)]
        id, target, _, doc = (torch.from_numpy(p.astype(np.int64)) for p in parts)
        return id, target, doc


def make_ops():
    """A product by groups of rows as one op, so that torch.compile sees one node and no list of
    lengths. x (R, I) sorted by group, w (E, O, I), ends (E) -> (R, O)."""

    @torch.library.custom_op("peer::grouped", mutates_args=())
    def grouped(x: torch.Tensor, w: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        out, first = x.new_empty(x.shape[0], w.shape[1]), 0
        for e, end in enumerate(ends.tolist()):
            if end > first:
                torch.mm(x[first:end], w[e].t(), out=out[first:end])
            first = end
        return out

    @torch.library.custom_op("peer::grouped_backward", mutates_args=())
    def grouped_backward(dy: torch.Tensor, x: torch.Tensor, w: torch.Tensor,
                         ends: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        dx, dw, first = torch.empty_like(x), torch.empty_like(w), 0
        for e, end in enumerate(ends.tolist()):
            if end > first:
                torch.mm(dy[first:end], w[e], out=dx[first:end])
                torch.mm(dy[first:end].t(), x[first:end], out=dw[e])
            else:
                dw[e].zero_()
            first = end
        return dx, dw

    @grouped.register_fake
    def _(x, w, ends):
        return x.new_empty(x.shape[0], w.shape[1])

    @grouped_backward.register_fake
    def _(dy, x, w, ends):
        return torch.empty_like(x), torch.empty_like(w)

    def save(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    def backward(ctx, dy):
        return (*grouped_backward(dy.contiguous(), *ctx.saved_tensors), None)

    grouped.register_autograd(backward, setup_context=save)
    return grouped


def make_gather():
    """y[row_token] whose backward gathers too: a token's K rows are added up in order."""

    class Gather(torch.autograd.Function):
        @staticmethod
        def forward(y, row_token, slot_row):
            return y[row_token]

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(inputs[2])

        @staticmethod
        def backward(ctx, drows):
            (slot_row,) = ctx.saved_tensors
            return drows[slot_row].sum(1), None, None

    return Gather.apply


def make_model(c, weights, version):
    nn = torch.nn
    grouped, gather = make_ops(), make_gather()
    m, a, r = c["model"], c["attention"], c["moe"]
    eps, dense_layers = float(m["norm_eps"]), int(m["dense_layers"])
    heads, mla = int(a["heads"]), a["kind"] == "mla"
    kv_heads = heads if mla else int(a["kv_heads"])
    nope, v_dim = int(a["nope_dim"]), int(a["v_dim"])
    rope = int(a["rope_dim"]) if mla else int(a["head_dim"])
    kv_rank, q_rank = int(a["kv_rank"]), int(a["q_rank"])
    experts, top_k = int(r["experts"]), int(r["top_k"])
    aux_coefficient = float(r["aux_loss"])

    def narrow(x):
        """An activation or a weight as products read it."""
        return x.bfloat16() if version == "bf16" else x

    def wide(x):
        """What is computed in f32 whatever the activations are."""
        return x.float() if version == "bf16" else x

    def linear(x, w):
        return F.linear(x, narrow(w))

    def gated(gate, up):
        return narrow(F.silu(wide(gate)) * wide(up))

    def parameter(*names):
        """One parameter of several weights that read the same input, as switchyard fuses them."""
        parts = [weights[n] for n in names]
        return nn.Parameter(torch.cat(parts) if len(parts) > 1 else parts[0].clone())

    def stacked(*lists):
        return nn.Parameter(torch.stack([torch.cat([weights[n] for n in names])
                                         for names in zip(*lists)]))

    def norm(x, w):
        return narrow(F.rms_norm(wide(x), (x.shape[-1],), w, eps))

    def turned(x, cos, sin):
        """x (B, T, heads, d), cos and sin (T, 1, d / 2)."""
        x = wide(x)
        if a["rope_interleaved"]:
            even, odd = x.unflatten(-1, (-1, 2)).unbind(-1)
            return narrow(torch.stack((even * cos - odd * sin, odd * cos + even * sin), -1).flatten(-2))
        low, high = x.chunk(2, -1)
        return narrow(torch.cat((low * cos - high * sin, high * cos + low * sin), -1))

    class Attention(nn.Module):
        def __init__(self, p):
            super().__init__()
            p = p + "self_attn."
            if mla:
                self.a = parameter(*([p + "q_a_proj.weight"] if q_rank else []),
                                   p + "kv_a_proj_with_mqa.weight")
                self.q = parameter(p + ("q_b_proj.weight" if q_rank else "q_proj.weight"))
                self.q_norm = parameter(p + "q_a_layernorm.weight") if q_rank else None
                self.kv_norm = parameter(p + "kv_a_layernorm.weight")
                self.kv = parameter(p + "kv_b_proj.weight")
            else:
                self.qkv = parameter(*(p + f"{x}_proj.weight" for x in "qkv"))
            self.o = parameter(p + "o_proj.weight")

        def mla_qkv(self, y, cos, sin):
            b, t, _ = y.shape
            q_a, kv_a, k_rope = linear(y, self.a).split([q_rank, kv_rank, rope], -1)
            q = linear(norm(q_a, self.q_norm) if q_rank else y, self.q)
            q_nope, q_rope = q.view(b, t, heads, -1).split([nope, rope], -1)
            kv = linear(norm(kv_a, self.kv_norm), self.kv).view(b, t, heads, -1)
            k_nope, v = kv.split([nope, v_dim], -1)
            k_rope = turned(k_rope.unsqueeze(2), cos, sin).expand(b, t, heads, rope)
            return (torch.cat((q_nope, turned(q_rope, cos, sin)), -1),
                    torch.cat((k_nope, k_rope), -1), v)

        def gqa_qkv(self, y, cos, sin):
            b, t, _ = y.shape
            qkv = linear(y, self.qkv).view(b, t, heads + 2 * kv_heads, rope)
            q, k, v = qkv.split([heads, kv_heads, kv_heads], 2)
            return turned(q, cos, sin), turned(k, cos, sin), v

        def forward(self, y, cos, sin, mask):
            q, k, v = (self.mla_qkv if mla else self.gqa_qkv)(y, cos, sin)
            width, pad = v.shape[-1], q.shape[-1] - v.shape[-1]
            if pad > 0:
                v = F.pad(v, (0, pad))
            o = F.scaled_dot_product_attention(
                q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), attn_mask=mask,
                is_causal=mask is None, enable_gqa=kv_heads < heads)
            return linear(o[..., :width].transpose(1, 2).flatten(2), self.o)

    class Mlp(nn.Module):
        def __init__(self, p):
            super().__init__()
            self.gate_up = parameter(p + "gate_proj.weight", p + "up_proj.weight")
            self.down = parameter(p + "down_proj.weight")

        def forward(self, y):
            gate, up = linear(y, self.gate_up).chunk(2, -1)
            return linear(gated(gate, up), self.down)

    class Moe(nn.Module):
        def __init__(self, p):
            super().__init__()
            each = lambda part: [f"{p}experts.{e}.{part}_proj.weight" for e in range(experts)]
            self.router = parameter(p + "gate.weight")
            self.gate_up = stacked(each("gate"), each("up"))
            self.down = stacked(each("down"))
            self.shared = Mlp(p + "shared_experts.") if int(r["shared"]) else None
            bias = weights.get(p + "gate.e_score_correction_bias", torch.zeros(experts))
            self.register_buffer("bias", bias.reshape(-1).clone())

        def route(self, y, sequences):
            logits = F.linear(wide(y), self.router)
            p = logits.softmax(-1) if r["score"] == "softmax" else logits.sigmoid()
            choice = p.detach() + self.bias
            groups = int(r["groups"])
            if groups > 1:
                best = choice.view(-1, groups, experts // groups)
                best = best.topk(int(r["group_score_top"]), -1).values.sum(-1)
                kept = torch.zeros_like(best).scatter_(
                    1, best.topk(int(r["top_groups"]), -1).indices, 1)
                out = kept.repeat_interleave(experts // groups, 1) == 0
                choice = choice.masked_fill(out, -math.inf)
            index = choice.topk(top_k, -1).indices
            weight = p.gather(1, index)
            if r["normalise"]:
                weight = weight / (weight.sum(-1, keepdim=True) + 1e-20)
            aux, load = self.balance(p, index, sequences)
            return index, weight * float(r["scaling"]), aux, load

        def balance(self, p, index, sequences):
            """The auxiliary loss, a mean over its groups of tokens, and tokens of each expert."""
            groups = sequences if r["aux_scope"] == "sequence" else 1
            chosen = torch.zeros_like(p, requires_grad=False).scatter(1, index, 1.0)
            count = chosen.view(groups, -1, experts).sum(1)
            if aux_coefficient == 0:
                return p.new_zeros(()), count.sum(0)
            q = p if r["score"] == "softmax" else p / p.sum(-1, keepdim=True)
            mean = q.view(groups, -1, experts).mean(1)
            scale = aux_coefficient * experts / (top_k * (p.shape[0] // groups) * groups)
            return (count * mean).sum() * scale, count.sum(0)

        def loop(self, y, index, weight):
            out = torch.zeros_like(y)
            for e, (w1, w2) in enumerate(zip(self.gate_up.unbind(0), self.down.unbind(0))):
                token, slot = torch.where(index == e)
                gate, up = linear(y[token], w1).chunk(2, -1)
                rows = linear(gated(gate, up), w2) * weight[token, slot, None]
                out.index_add_(0, token, rows)
            return out

        def sorted(self, y, index, weight):
            flat = index.flatten()
            row_slot = flat.argsort(stable=True)
            slot_row = torch.empty_like(row_slot)
            slot_row = slot_row.scatter(0, row_slot, torch.arange(flat.numel()))
            slot_row = slot_row.view(index.shape)
            ends = torch.zeros(experts, dtype=torch.int64).scatter_add(
                0, flat, torch.ones_like(flat)).cumsum(0)
            rows = gather(y, row_slot // top_k, slot_row)
            gate, up = grouped(rows, narrow(self.gate_up), ends).chunk(2, -1)
            out = grouped(gated(gate, up), narrow(self.down), ends)
            return narrow((wide(out[slot_row]) * weight.unsqueeze(-1)).sum(1))

        def forward(self, y):
            b, t, d = y.shape
            flat = y.reshape(-1, d)
            index, weight, aux, load = self.route(flat, b)
            routed = (self.loop if version == "loop" else self.sorted)(flat, index, weight)
            out = routed.view(b, t, d)
            return (out if self.shared is None else out + self.shared(y)), aux, load

    class Block(nn.Module):
        def __init__(self, i):
            super().__init__()
            p = f"model.layers.{i}."
            self.norm1 = parameter(p + "input_layernorm.weight")
            self.attention = Attention(p)
            self.norm2 = parameter(p + "post_attention_layernorm.weight")
            self.mlp = Mlp(p + "mlp.") if i < dense_layers else Moe(p + "mlp.")

        def forward(self, h, cos, sin, mask):
            h = h + self.attention(norm(h, self.norm1), cos, sin, mask)
            y = norm(h, self.norm2)
            if isinstance(self.mlp, Mlp):
                return h + self.mlp(y), None, None
            out, aux, load = self.mlp(y)
            return h + out, aux, load

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = parameter("model.embed_tokens.weight")
            self.blocks = nn.ModuleList(Block(i) for i in range(int(m["layers"])))
            self.norm = parameter("model.norm.weight")
            self.head = self.table if m["tied"] else parameter("lm_head.weight")
            t = int(c["data"]["sequence"])
            theta = float(a["rope_theta"]) ** (-2.0 * np.arange(rope // 2) / rope)
            angle = np.arange(t)[:, None, None] * theta
            self.register_buffer("cos", torch.from_numpy(np.cos(angle).astype(np.float32)))
            self.register_buffer("sin", torch.from_numpy(np.sin(angle).astype(np.float32)))

        def forward(self, id, target, mask, scale):
            """scale * sum of the cross-entropies, auxiliary loss, load of each MoE layer."""
            h, aux, loads = narrow(F.embedding(id, self.table)), torch.zeros(()), []
            for block in self.blocks:
                h, block_aux, load = block(h, self.cos, self.sin, mask)
                if load is not None:
                    aux = aux + block_aux
                    loads.append(load)
            logits = wide(linear(norm(h, self.norm), self.head))
            loss = F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=-1,
                                   reduction="sum")
            return loss * scale, aux, loads

    return Model()


# ---- training ----


def learning_rate(c, step):
    """src/engine/step/update.c"""
    o, steps = c["optimizer"], int(c["train"]["steps"])
    lr, low, warm = float(o["lr"]), float(o["min_lr"]), int(o["warmup_steps"])
    if step <= warm:
        return lr * step / warm
    end = int(o["decay_steps"]) or steps
    at = min(1, (step - warm) / (end - warm)) if end > warm else 1
    return low + (lr - low) * (1 + math.cos(math.pi * at)) / 2


def mask_of(c, doc):
    """(B, 1, T, T) to add to scores, None where causal attention needs none."""
    if not c["attention"]["document_mask"] or not doc.any():
        return None
    at = torch.arange(doc.shape[1])
    hidden = (at[None, None] > at[None, :, None]) | (at[None, None] < doc[:, :, None])
    return torch.zeros(hidden.shape).masked_fill_(hidden, -math.inf).unsqueeze(1)


class Trainer:
    def __init__(self, c, weights, version):
        self.c, self.stock, o = c, version == "stock", c["optimizer"]
        self.model = make_model(c, weights, version)
        self.act = {"float64": torch.float64, "bf16": torch.bfloat16}.get(version, torch.float32)
        if version == "float64":
            self.model.double()
        self.call = torch.compile(self.model, fullgraph=True) if version == "compiled" else self.model
        self.moes = [b.mlp for b in self.model.blocks if hasattr(b.mlp, "router")]
        params = list(self.model.parameters())
        self.optimizer = torch.optim.AdamW(
            [dict(params=[p for p in params if p.ndim > 1], weight_decay=float(o["weight_decay"])),
             dict(params=[p for p in params if p.ndim == 1], weight_decay=0.0)],
            betas=(float(o["beta1"]), float(o["beta2"])), eps=float(o["eps"]), fused=True)

    def gradients(self, id, target, doc):
        micro = int(self.c["train"]["micro_batch"])
        scale, total, loads = 1 / int((target >= 0).sum()), 0.0, 0
        # the auxiliary loss is a mean over the groups of the whole batch
        share = micro / id.shape[0]
        for first in range(0, id.shape[0], micro):
            part = slice(first, first + micro)
            mask = mask_of(self.c, doc[part])
            if mask is not None:
                mask = mask.to(self.act)
            loss, aux, load = self.call(id[part], target[part], mask, scale)
            (loss + aux * share).backward()
            total += float(loss.detach())
            loads = loads + torch.stack(load) if load else loads
        return total, loads

    def clip(self):
        limit, params = float(self.c["train"]["clip_norm"]), list(self.model.parameters())
        if limit == 0:
            return
        if self.stock:
            torch.nn.utils.clip_grad_norm_(params, limit)
            return
        norm = torch.linalg.vector_norm(torch.stack(
            [torch.linalg.vector_norm(p.grad, dtype=torch.float64) for p in params]))
        torch._foreach_mul_([p.grad for p in params], min(1.0, limit / (float(norm) + 1e-6)))

    def balance(self, loads):
        rate = float(self.c["moe"]["bias_rate"])
        for moe, load in zip(self.moes, loads if rate > 0 else []):
            moe.bias += rate * torch.sign(load.mean() - load)

    def step(self, number, batch):
        total, loads = self.gradients(*batch)
        self.clip()
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.c, number)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.balance(loads)
        return total


def run(args):
    import_torch()
    import yaml

    torch.set_num_threads(args.threads)
    imported = status_bytes("VmRSS")
    with open(args.config) as f:
        c = yaml.safe_load(f)
    trainer = Trainer(c, read_checkpoint(args.checkpoint), args.version)
    batches = Batches(args.batches)
    losses, seconds = [], []
    for i in range(min(args.steps, batches.steps)):
        if i == 1:
            forget_peak()
        start = time.perf_counter()
        losses.append(trainer.step(i + 1, batches[i]))
        seconds.append(time.perf_counter() - start)
        if args.verbose:
            print(f"step {i + 1}  loss {losses[-1]:.6f}  {seconds[-1]:.3f} s", file=sys.stderr)
    steady = seconds[min(args.warm_up, len(seconds) - 1):]
    tokens = batches.b * batches.t
    result = dict(version=args.version, torch=torch.__version__, threads=args.threads, losses=losses,
                  step_s=seconds, tokens_per_s=tokens / statistics.median(steady),
                  peak_bytes=status_bytes("VmHWM"), imported_bytes=imported)
    if args.json:
        with open(args.json, "w") as f:
            json.dump(result, f)
    print(f"{args.version}: {result['tokens_per_s']:.0f} tokens/s (median of {len(steady)} steps), "
          f"{(result['peak_bytes'] - imported) / 2**20:.0f} MiB above {imported / 2**20:.0f} MiB of "
          f"torch, losses " + " ".join(f"{x:.6f}" for x in losses[:args.show]))


# ---- side by side ----


def call(command, **options):
    """Run to the end; peak resident bytes of the process."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, **options)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: exit code {process.returncode}")
    return usage.ru_maxrss * 1024


TOGETHER = 1e-4  # relative
SHIM = "int mkl_serv_intel_cpu_true(void) { return 1; }"


def environments(work, threads):
    """Environment variables for torch as it comes, and tuned."""
    stock = dict(os.environ, OMP_NUM_THREADS=str(threads), TORCHINDUCTOR_CACHE_DIR=f"{work}/inductor")
    tuned = dict(stock, MALLOC_MMAP_MAX_="0", MALLOC_TRIM_THRESHOLD_="100000000000")
    with open("/proc/cpuinfo") as f:
        if "AuthenticAMD" in f.read():
            library = f"{work}/mkl_avx512.so"
            subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", library], check=True,
                           input=SHIM.encode())
            tuned["LD_PRELOAD"] = os.path.abspath(library)
    return stock, tuned


class Comparison:
    def __init__(self, args):
        self.args = args
        self.settings = args.settings + [f"run.threads={args.threads}", "run.compute=f32",
                                         "train.eval_every=0", "checkpoint.every=0",
                                         f"optimizer.decay_steps={args.steps}"]
        self.batches = f"{args.work}/batches.i32"
        self.results = {name: [] for name in ["switchyard", *args.versions]}

    def switchyard(self, *words):
        return call([self.args.switchyard, *words], stderr=subprocess.DEVNULL)

    def prepare(self):
        args, start = self.args, f"run.dir={self.args.work}/start"
        subprocess.run(["rm", "-rf", args.work], check=True)
        os.makedirs(args.work)
        self.stock, self.tuned = environments(args.work, args.threads)
        self.switchyard("train", args.config, *self.settings, "train.steps=0", start)
        self.switchyard("data", "batches", args.config, *self.settings, "--steps", str(args.steps),
                        "--out", self.batches)

    def ours(self, steps, round):
        folder = f"{self.args.work}/ours-{round}"
        peak = self.switchyard("train", self.args.config, *self.settings, f"train.steps={steps}",
                               f"run.dir={folder}")
        with open(f"{folder}/metrics.jsonl") as f:
            lines = [json.loads(line) for line in f]
        lines = [line for line in lines if line["kind"] == "step"]
        steady = [line["step_s"] for line in lines][min(self.args.warm_up, len(lines) - 1):]
        return dict(losses=[line["loss"] for line in lines], peak_bytes=peak, imported_bytes=0,
                    tokens_per_s=lines[0]["tokens"] / statistics.median(steady))

    def peer(self, version, steps, round):
        out = f"{self.args.work}/{version}-{round}.json"
        environment = self.stock if version == "stock" else self.tuned
        call([sys.executable, __file__, "run", "--config", f"{self.args.work}/start/config.yaml",
              "--checkpoint", f"{self.args.work}/start/checkpoints/step-0000000000", "--batches",
              self.batches, "--version", version, "--threads", str(self.args.threads), "--steps",
              str(steps), "--warm-up", str(self.args.warm_up), "--json", out],
             env=environment, stderr=subprocess.DEVNULL)
        with open(out) as f:
            return json.load(f)

    def run(self):
        """All steps in the first round, for the losses; then short ones, in turn, for the speed."""
        self.prepare()
        for round in range(self.args.rounds):
            steps = self.args.steps if round == 0 else min(self.args.steps, self.args.speed_steps)
            for name in self.results:
                one = self.ours(steps, round) if name == "switchyard" else self.peer(name, steps, round)
                self.results[name].append(one)
                print(f"round {round + 1}/{self.args.rounds}  {name:<10} {steps} steps, "
                      f"{one['tokens_per_s']:.0f} tokens/s", file=sys.stderr)

    def rows(self):
        ours = self.results["switchyard"]
        for name, rounds in self.results.items():
            apart = [abs(a - b) / abs(b) for a, b in zip(ours[0]["losses"], rounds[0]["losses"])]
            yield dict(
                name=name, tokens_per_s=statistics.median(r["tokens_per_s"] for r in rounds),
                spread=[min(r["tokens_per_s"] for r in rounds), max(r["tokens_per_s"] for r in rounds)],
                peak_bytes=min(r["peak_bytes"] - r["imported_bytes"] for r in rounds),
                last_loss=rounds[0]["losses"][-1],
                loss_difference=max(apart),
                steps_together=next((i for i, x in enumerate(apart) if x > TOGETHER), len(apart)))

    def report(self):
        args, rows = self.args, list(self.rows())
        ours = rows[0]
        print(f"{args.config}, f32, {args.threads} threads, {args.steps} steps, medians of "
              f"{args.rounds} rounds\n")
        print("              tokens/s  ours is    peak MiB  ours is   loss at the end  largest difference  "
              f"steps within {TOGETHER:g}")
        for row in rows:
            print(f"{row['name']:<12} {row['tokens_per_s']:>9.0f}  "
                  f"{ours['tokens_per_s'] / row['tokens_per_s']:>6.2f}x  "
                  f"{row['peak_bytes'] / 2**20:>9.0f}  {ours['peak_bytes'] / row['peak_bytes']:>6.2f}x  "
                  f"{row['last_loss']:>16.6f}  {row['loss_difference']:>18.1e}  "
                  f"{row['steps_together']:>18}")
        print("\nPeak: of the whole process for switchyard; above what importing torch takes for torch.\n"
              "Differences of losses are relative to torch's.")
        if args.json:
            with open(args.json, "w") as f:
                json.dump(dict(config=args.config, settings=self.settings, steps=args.steps, rows=rows,
                               losses={n: r[0]["losses"] for n, r in self.results.items()}), f)


VERSIONS = ["loop", "sorted", "compiled", "stock", "float64", "bf16"]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("run")
    one.set_defaults(function=run)
    one.add_argument("--config", required=True)
    one.add_argument("--checkpoint", required=True)
    one.add_argument("--batches", required=True)
    one.add_argument("--version", default="sorted", choices=VERSIONS)
    one.add_argument("--show", type=int, default=5, help="losses to print")
    one.add_argument("--verbose", action="store_true")
    both = commands.add_parser("compare")
    both.set_defaults(function=compare)
    both.add_argument("config")
    both.add_argument("settings", nargs="*", default=[])
    both.add_argument("--rounds", type=int, default=3)
    both.add_argument("--speed-steps", type=int, default=25, help="steps of all rounds but the first")
    both.add_argument("--versions", nargs="+", default=VERSIONS[:-2], choices=VERSIONS)
    both.add_argument("--switchyard", default="build/switchyard")
    both.add_argument("--work", default="runs/peer", help="a folder that is made anew")
    for p in (one, both):
        p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
        p.add_argument("--steps", type=int, default=100)
        p.add_argument("--warm-up", type=int, default=5, help="steps that do not count for the speed")
        p.add_argument("--json")
    return parser.parse_args()


def compare(args):
    comparison = Comparison(args)
    comparison.run()
    comparison.report()


if __name__ == "__main__":
    chosen = arguments()
    chosen.function(chosen)
