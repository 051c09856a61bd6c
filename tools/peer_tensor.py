#!/usr/bin/env python3
"""The dense Llama 3 in PyTorch over several GPUs: tensor, sequence and data parallelism the way
TorchTitan applies them, for tokens/s beside `switchyard bench step llama3-8b`.

    torchrun --nproc-per-node 2 tools/peer_tensor.py --tp 2 [--async-tp] [--batch 8] [--json OUT]
    torchrun --nproc-per-node 2 tools/peer_tensor.py --dp 2 [--reshard always]
    torchrun --nproc-per-node 4 tools/peer_tensor.py --tp 2 --dp 2
    torchrun --nproc-per-node 2 tools/peer_tensor.py --tp 2 --device cpu --dtype f32 --layers 2 \\
             --hidden 64 --heads 4 --kv-heads 2 --ffn 96 --vocab 256 --sequence 32 --batch 4

Needs PyTorch 2.8 or later and no network. Rank 0 prints one line of JSON: the median time of a step on
the slowest rank, tokens/s, peak memory, and the loss and gradient norm of the first and last step.

What runs:
    tensor   parallelize_module: columns of wq, wk, wv, gate and up, rows of wo and down. Norms and the
             residual stream are split by tokens. The vocabulary is split in the embedding and in the
             head, and the loss reads split logits (loss_parallel).
    data     FSDP2, one group of parameters a block. With --dp 1 the mesh of FSDP2 has one rank: FSDP2
             still keeps f32 main weights and computes in bf16. --mixed autocast leaves FSDP2 out.
    compile  each block and the loss by torch.compile
    async    --async-tp lets the compiler overlap gathers and scatters with products by symmetric memory.
             `async_result` says what came of it, `fused` how many fused ops the graphs of a block hold.
             With --micro 1 PyTorch 2.11 fuses no gather: its gather of one sequence is a view, which the
             compiler's pattern does not know. --micro 2 shows what fused gathers bring.
             NCCL_NVLS_ENABLE=0 also keeps symmetric memory from using multicast.
    update   mean over the global batch, gradients clipped by their global norm, fused AdamW on f32
             weights
Tokens and initial weights are random. They depend on --seed alone, not on --tp or --dp.

What differs from TorchTitan: nothing is recomputed. Parameters stay gathered between forward and
backward (--reshard always gathers them again). RoPE turns halves by real sines, where TorchTitan
multiplies complex pairs, for which torch.compile has no kernels. The learning rate is constant.
"""
import argparse
import contextlib
import gc
import json
import os
import resource
import statistics
import sys
import time

os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")  # as TorchTitan's launcher
if os.environ.get("NCCL_NVLS_ENABLE") == "0":
    os.environ["TORCH_SYMM_MEM_DISABLE_MULTICAST"] = "1"

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (ColwiseParallel, PrepareModuleInput, RowwiseParallel,
                                               SequenceParallel, loss_parallel, parallelize_module)
from torch.nn.attention import SDPBackend, sdpa_kernel

DTYPES = {"bf16": torch.bfloat16, "f32": torch.float32}
ATTENTION = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION,
             "efficient": SDPBackend.EFFICIENT_ATTENTION, "math": SDPBackend.MATH}
THETA, EPS, STD = 500000.0, 1e-5, 0.02


# ---- the model ----


def linear(inputs, outputs):
    return nn.Linear(inputs, outputs, bias=False)


class Attention(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.width = args.hidden // args.heads
        self.grouped = args.kv_heads < args.heads
        self.wq = linear(args.hidden, args.hidden)
        self.wk = linear(args.hidden, args.kv_heads * self.width)
        self.wv = linear(args.hidden, args.kv_heads * self.width)
        self.wo = linear(args.hidden, args.hidden)
        # Buffers, because FSDP2 would cast arguments of a block to bf16.
        power = torch.arange(0, self.width, 2, dtype=torch.float64) / self.width
        angle = torch.outer(torch.arange(args.sequence, dtype=torch.float64), THETA ** -power)
        self.register_buffer("cos", angle.cos().float()[:, None], persistent=False)
        self.register_buffer("sin", angle.sin().float()[:, None], persistent=False)

    def turned(self, x):
        """x (B, T, heads, width), cos and sin (T, 1, width / 2)."""
        low, high = x.float().chunk(2, -1)
        low, high = low * self.cos - high * self.sin, high * self.cos + low * self.sin
        return torch.cat((low, high), -1).to(x.dtype)

    def forward(self, x):
        # Of a split projection this rank has some heads; the view finds out how many.
        q, k, v = (w(x).unflatten(-1, (-1, self.width)) for w in (self.wq, self.wk, self.wv))
        q, k, v = (t.transpose(1, 2) for t in (self.turned(q), self.turned(k), v))
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.grouped)
        return self.wo(o.transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.gate, self.up = linear(args.hidden, args.ffn), linear(args.hidden, args.ffn)
        self.down = linear(args.ffn, args.hidden)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.attention_norm, self.mlp_norm = nn.RMSNorm(args.hidden, EPS), nn.RMSNorm(args.hidden, EPS)
        self.attention, self.mlp = Attention(args), Mlp(args)

    def forward(self, h):
        h = h + self.attention(self.attention_norm(h))
        return h + self.mlp(self.mlp_norm(h))


class Model(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.embedding = nn.Embedding(args.vocab, args.hidden)
        self.blocks = nn.ModuleList(Block(args) for _ in range(args.layers))
        self.norm, self.head = nn.RMSNorm(args.hidden, EPS), linear(args.hidden, args.vocab)

    def forward(self, ids):
        # The copy is for PyTorch 2.15: a compiled block that reads the result of the embedding's
        # reduce-scatter directly gives the embedding no gradient.
        h = self.embedding(ids).clone()
        for block in self.blocks:
            h = block(h)
        return self.head(self.norm(h))


def make_model(args, device):
    """All weights on every rank, the same for any mesh; parallelism then keeps its shards."""
    torch.manual_seed(args.seed)
    with torch.device(device):
        model = Model(args)
    with torch.no_grad():
        for p in model.parameters():
            if p.ndim > 1:
                p.normal_(0, STD)
    return model


# ---- parallelism ----


def split_tensors(model, mesh):
    parallelize_module(model, mesh, {
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Shard(-1),
                                use_local_output=False)})
    for block in model.blocks:
        gather = dict(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),))
        plan = {"attention_norm": SequenceParallel(), "mlp_norm": SequenceParallel(),
                "attention": PrepareModuleInput(**gather), "mlp": PrepareModuleInput(**gather)}
        plan |= {name: ColwiseParallel() for name in ("attention.wq", "attention.wk", "attention.wv",
                                                      "mlp.gate", "mlp.up")}
        plan |= {name: RowwiseParallel(output_layouts=Shard(1)) for name in ("attention.wo", "mlp.down")}
        parallelize_module(block, mesh, plan)


def shard_data(model, mesh, args):
    """The head is needed again at once, so it stays gathered in any case."""
    bf16 = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    options = dict(mesh=mesh, mp_policy=bf16 if args.dtype == "bf16" else MixedPrecisionPolicy())
    for part in (model.embedding, *model.blocks):
        fully_shard(part, reshard_after_forward=args.reshard == "always", **options)
    fully_shard([model.norm, model.head], reshard_after_forward=False, **options)
    fully_shard(model, **options)


class CountFused:
    """Runs after the compiler's own passes and counts the ops of symmetric memory that they made."""

    fused = 0

    def __call__(self, graph):
        CountFused.fused += sum("symm_mem.fused_" in str(node.target) for node in graph.nodes)

    def uuid(self):
        return None  # keeps graphs out of the compiler's cache, where this pass would not run


def enable_async(mesh, args):
    """Sets the compiler up; returns what the result says of it."""
    if args.device != "cuda" or args.no_compile or args.tp == 1:
        return "off: it needs a GPU, torch.compile and --tp 2 or more"
    try:
        import torch._inductor.config as inductor
        import torch.distributed._symmetric_memory as symmetric
        from torch._inductor.custom_graph_pass import CustomGraphPass

        inductor._micro_pipeline_tp  # AttributeError where this torch has another name for it
        group = mesh.get_group()
        # Later versions enable every group, and may drop the call.
        getattr(symmetric, "enable_symm_mem_for_group", lambda name: None)(group.group_name)
        trial = symmetric.empty(1024, dtype=torch.bfloat16, device="cuda")
        symmetric.rendezvous(trial, group.group_name)
        inductor._micro_pipeline_tp = True
        inductor.post_grad_custom_post_pass = type("Count", (CountFused, CustomGraphPass), {})()
    except (AttributeError, ImportError, RuntimeError, TypeError) as why:
        return "off: " + " ".join(str(why).split())[:200]
    return "on"


# ---- training ----


def loss_of(logits, targets):
    return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def plain(x):
    return x.full_tensor() if isinstance(x, DTensor) else x


class Trainer:
    def __init__(self, args, device):
        self.args, self.device = args, device
        self.mesh = init_device_mesh(args.device, (args.dp, args.tp), mesh_dim_names=("dp", "tp"))
        self.model, self.loss = make_model(args, device), loss_of
        self.async_tp = enable_async(self.mesh["tp"], args) if args.async_tp else "not asked for"
        if args.tp > 1:
            split_tensors(self.model, self.mesh["tp"])
        if not args.no_compile:
            for i, block in enumerate(self.model.blocks):
                self.model.blocks[i] = torch.compile(block, fullgraph=True)
            self.loss = torch.compile(loss_of) if not args.eager_loss else loss_of
        if args.mixed == "fsdp":
            shard_data(self.model, self.mesh["dp"], args)
        self.parameters = list(self.model.parameters())
        self.optimizer = torch.optim.AdamW(self.parameters, lr=args.lr, betas=(0.9, 0.95), eps=1e-8,
                                           weight_decay=0.1, fused=True)

    def batch(self, step):
        """This rank's micro-batches, (n, B, T + 1), the same sequences for any number of ranks."""
        args, generator, rows = self.args, torch.Generator(), []
        n = args.batch // args.dp
        first = n * self.mesh["dp"].get_local_rank()
        for i in range(first, first + n):
            generator.manual_seed((args.seed << 40) + (step << 20) + i)
            rows.append(torch.randint(args.vocab, (args.sequence + 1,), generator=generator))
        return torch.stack(rows).unflatten(0, (-1, args.micro)).to(self.device)

    def micro(self, ids, scale):
        """Forward and backward of one micro-batch; its share of the loss."""
        autocast = self.args.mixed == "autocast" and self.args.dtype == "bf16"
        with loss_parallel() if self.args.tp > 1 else contextlib.nullcontext():
            with torch.autocast(self.args.device, torch.bfloat16, enabled=autocast):
                loss = self.loss(self.model(ids[:, :-1]), ids[:, 1:]) * scale
            loss.backward()
        return loss.detach()

    def step(self, batch):
        """The mean loss of this rank's sequences and the norm of all gradients, without a wait."""
        losses = []
        for i, ids in enumerate(batch):
            if self.args.sync == "last" and isinstance(self.model, FSDPModule):
                last = i == len(batch) - 1
                self.model.set_requires_gradient_sync(last)
                self.model.set_reshard_after_backward(last)
            losses.append(self.micro(ids, 1 / len(batch)))
        gradients = [p.grad for p in self.parameters]
        norm = plain(nn.utils.get_total_norm(gradients, foreach=True))
        nn.utils.clip_grads_with_norm_(self.parameters, 1.0, norm, foreach=True)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return torch.stack([plain(x) for x in losses]).sum(), norm

    def run(self):
        """(steps, 3): loss, gradient norm and seconds of each."""
        args, cuda = self.args, self.args.device == "cuda"
        batches = [self.batch(i) for i in range(args.warm_up + args.steps)]
        gc.collect()
        gc.disable()  # as TorchTitan, which collects every 50 steps
        if cuda:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        results, marks = [], [self.mark()]
        for i, batch in enumerate(batches):
            results.append(self.step(batch))
            marks.append(self.mark())
            if args.verbose and dist.get_rank() == 0:
                print(f"step {i + 1}  loss {results[-1][0].item():.6f}", file=sys.stderr)
        if cuda:
            torch.cuda.synchronize()
        spans = [a.elapsed_time(b) / 1e3 if cuda else b - a for a, b in zip(marks, marks[1:])]
        rows = [[loss.item(), norm.item(), span] for (loss, norm), span in zip(results, spans)]
        return torch.tensor(rows, device=self.device)

    def mark(self):
        if self.args.device == "cpu":
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event


def kernel_of(args, device):
    """The attention kernel that torch picks for this rank's heads."""
    def heads(n):
        shape = (1, n // args.tp, args.sequence, args.hidden // args.heads)
        return torch.empty(shape, dtype=DTYPES[args.dtype], device=device, requires_grad=True)

    try:
        q, k = heads(args.heads), heads(args.kv_heads)
        choice = torch._fused_sdp_choice(q, k, k, is_causal=True, enable_gqa=args.kv_heads < args.heads)
        return SDPBackend(choice).name.lower()
    except (AttributeError, RuntimeError, TypeError, ValueError) as why:
        return "unknown: " + " ".join(str(why).split())[:80]


def over_ranks(values, op):
    dist.all_reduce(values, op)
    return values.tolist()


def report(trainer, kernel):
    """What rank 0 prints; a collective call."""
    args, values, gpus = trainer.args, trainer.run(), dist.get_world_size()
    losses = over_ranks(values[:, 0] / gpus, dist.ReduceOp.SUM)
    seconds = over_ranks(values[:, 2].clone(), dist.ReduceOp.MAX)
    if args.device == "cuda":
        peaks = [torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()]
    else:
        peaks = [resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024] * 2
    peaks = over_ranks(torch.tensor(peaks, device=trainer.device), dist.ReduceOp.MAX)
    timed, tokens = seconds[args.warm_up:], args.batch * args.sequence
    median = statistics.median(timed)
    return dict(
        torch=torch.__version__, gpus=gpus,
        name=torch.cuda.get_device_name() if args.device == "cuda" else "cpu",
        **{k: v for k, v in vars(args).items() if k not in ("json", "verbose")},
        parameters=sum(p.numel() for p in trainer.parameters), attention_kernel=kernel,
        async_result=trainer.async_tp, fused=CountFused.fused, nvls=os.environ.get("NCCL_NVLS_ENABLE"),
        tokens=tokens, step_s=median, tokens_per_s=tokens / median,
        tokens_per_s_gpu=tokens / median / gpus,
        fastest_s=min(timed), slowest_s=max(timed), first_s=seconds[0],
        peak_bytes=peaks[0], reserved_bytes=peaks[1], first_loss=losses[0], last_loss=losses[-1],
        first_norm=values[0, 1].item(), last_norm=values[-1, 1].item())


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    for name, value in (("layers", 8), ("hidden", 4096), ("heads", 32), ("kv-heads", 8), ("ffn", 14336),
                        ("vocab", 128256), ("sequence", 8192), ("tp", 1), ("dp", 1), ("steps", 10),
                        ("warm-up", 3), ("seed", 1)):
        parser.add_argument("--" + name, type=int, default=value)
    parser.add_argument("--batch", type=int, help="sequences of the global batch")
    parser.add_argument("--micro", type=int, default=1, help="sequences of a micro-batch")
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--dtype", choices=DTYPES, default="bf16", help="of activations and products")
    parser.add_argument("--mixed", choices=("fsdp", "autocast"), default="fsdp", help="how bf16 is had")
    parser.add_argument("--reshard", choices=("never", "always"), default="never",
                        help="whether FSDP2 drops gathered weights after forward")
    parser.add_argument("--sync", choices=("every", "last"), default="every",
                        help="after which micro-batch FSDP2 reduces gradients")
    parser.add_argument("--attention", nargs="+", choices=ATTENTION, default=list(ATTENTION),
                        help="kernels, the first that can is taken")
    parser.add_argument("--async-tp", action="store_true")
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--eager-loss", action="store_true", help="compile blocks only")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--verbose", action="store_true", help="print each step, which waits for it")
    parser.add_argument("--json", metavar="OUT")
    args = parser.parse_args()
    args.batch = args.batch or args.dp * args.micro
    check(parser, args)
    return args


def check(parser, args):
    world = int(os.environ.get("WORLD_SIZE", 1))
    if "RANK" not in os.environ:
        parser.error("start this tool by torchrun")
    if args.tp * args.dp != world:
        parser.error(f"--tp {args.tp} times --dp {args.dp} is not the {world} ranks of torchrun")
    if args.batch % (args.dp * args.micro):
        parser.error(f"--batch {args.batch} is no multiple of --dp {args.dp} times --micro {args.micro}")
    for name in ("heads", "kv_heads", "ffn", "vocab", "sequence"):
        if getattr(args, name) % args.tp:
            parser.error(f"{name} {getattr(args, name)} does not divide over --tp {args.tp}")
    if args.mixed == "autocast" and args.dp > 1:
        parser.error("--mixed autocast leaves FSDP2 out, so --dp must be 1")
    if args.steps < 1 or args.warm_up < 0:
        parser.error("--steps must be at least 1, --warm-up at least 0")


def main():
    args = arguments()
    device = torch.device("cpu")
    if args.device == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if args.device == "cuda" else "gloo",
                            device_id=device if args.device == "cuda" else None)
    with sdpa_kernel([ATTENTION[name] for name in args.attention], set_priority=True):
        result = report(Trainer(args, device), kernel_of(args, device))
    if dist.get_rank() == 0:
        print(json.dumps(result), flush=True)
        if args.json:
            with open(args.json, "w") as f:
                json.dump(result, f)
    gc.collect()  # the trainer, before the groups that it holds
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
