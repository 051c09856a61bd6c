#!/usr/bin/env python3
"""Trainings that docs/convergence.md compares: runs those that are missing, one at a time, and writes
the page from all that are there.

    convergence.py [--seeds 3] [--steps 900] [--work build/convergence] [--page docs/convergence.md]
                   [--only NAME ...] [--minutes 0] [--write]

Needs the quickstart's data (`tools/quickstart --data`), torch and PyYAML in this interpreter. A run
leaves WORK/NAME-SEED.json, which a later call takes as it is if settings and steps are the same; so a
stopped call goes on where it was. --minutes ends after the first run that is over this limit;
--write runs nothing and writes the page.
PyTorch's runs are tools/peer_torch.py: the same initial weights, tokens, schedule and optimizer.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import time

import peer_torch

# The quickstart with half the width and one layer less: a training takes about two minutes on a core.
SMALL = ["model.hidden=128", "model.layers=3", "model.ffn=384", "attention.heads=4",
         "attention.kv_rank=32", "moe.ffn=128", "data.sequence=128"]
QUIET = ["run.threads=1", "run.trace_steps=[]", "checkpoint.every=0", "train.eval_sequences=200"]
LAST = 50  # steps whose mean loss is the final one

# name: what tables call it, its settings, and the version of tools/peer_torch.py (None: ours)
RUNS = {
    "f32": ("ours, f32", ["run.compute=f32"], None),
    "torch-f32": ("PyTorch, f32", ["run.compute=f32"], "sorted"),
    "bf16": ("ours, bf16", ["run.compute=bf16"], None),
    "torch-bf16": ("PyTorch, bf16", ["run.compute=bf16"], "bf16"),
    "f32-avx2": ("ours, f32, AVX2", ["run.compute=f32", "run.cpu_isa=x86-64-v3"], None),
    "muon": ("Muon", ["run.compute=f32", "optimizer.kind=muon"], None),
    "none": ("none", ["moe.aux_loss=0", "moe.bias_rate=0"], None),
    "aux-0.001": ("aux loss 0.001", ["moe.aux_loss=0.001", "moe.bias_rate=0"], None),
    "aux-0.01": ("aux loss 0.01", ["moe.aux_loss=0.01", "moe.bias_rate=0"], None),
    "sign-0.001": ("bias, sign, rate 0.001", ["moe.aux_loss=0", "moe.bias_rate=0.001"], None),
    "sign-0.01": ("bias, sign, rate 0.01", ["moe.aux_loss=0", "moe.bias_rate=0.01"], None),
    "quantile": ("bias, quantile, rate 0.5",
                 ["moe.aux_loss=0", "moe.bias_rate=0.5", "moe.bias_rule=quantile"], None),
}
BALANCE = [name for name in RUNS if "moe." in " ".join(RUNS[name][1])]


class Runs:
    def __init__(self, args):
        self.args = args
        os.makedirs(args.work, exist_ok=True)

    def settings(self, name, seed):
        steps = self.args.steps
        return [*SMALL, *QUIET, *RUNS[name][1], f"run.seed={seed}", f"train.eval_every={steps}",
                f"optimizer.decay_steps={steps}"]

    def path(self, name, seed):
        return f"{self.args.work}/{name}-{seed}.json"

    def read(self, name, seed):
        """The run's results; None if it is missing or was another one."""
        try:
            with open(self.path(name, seed)) as f:
                run = json.load(f)
        except FileNotFoundError:
            return None
        return run if run["settings"] == self.settings(name, seed) and run["steps"] == self.args.steps else None

    def switchyard(self, *words):
        done = subprocess.run([self.args.switchyard, *words], stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True)
        if done.returncode != 0:
            raise SystemExit(f"switchyard {' '.join(words)}: {done.stderr.strip()}")

    def ours(self, name, seed, folder):
        self.switchyard("train", "quickstart", *self.settings(name, seed), f"train.steps={self.args.steps}",
                        f"run.dir={folder}")
        with open(f"{folder}/metrics.jsonl") as f:
            lines = [json.loads(line) for line in f]
        steps = [line for line in lines if line["kind"] == "step"]
        peak = lambda line: [max(layer) * len(layer) / sum(layer) for layer in line["expert_load"]]
        return dict(losses=[line["loss"] for line in steps],
                    peaks=[statistics.mean(peak(line)) for line in steps],
                    held_out=[line["loss"] for line in lines if line["kind"] == "eval"][-1])

    def torch(self, name, seed, folder):
        args, settings = self.args, self.settings(name, seed)
        self.switchyard("train", "quickstart", *settings, "train.steps=0", f"run.dir={folder}")
        self.switchyard("data", "batches", "quickstart", *settings, "--steps", str(args.steps), "--out",
                        f"{folder}/batches.i32")
        out = f"{folder}/peer.json"
        peer_torch.call([sys.executable, peer_torch.__file__, "run", "--config", f"{folder}/config.yaml",
                         "--checkpoint", f"{folder}/checkpoints/step-0000000000", "--batches",
                         f"{folder}/batches.i32", "--version", RUNS[name][2], "--threads", "1", "--steps",
                         str(args.steps), "--json", out], env=peer_torch.environments(folder, 1)[1])
        with open(out) as f:
            peer = json.load(f)
        return dict(losses=peer["losses"], torch=peer["torch"])

    def run(self, name, seed):
        folder, start = f"{self.args.work}/{name}-{seed}", time.time()
        subprocess.run(["rm", "-rf", folder], check=True)
        result = (self.torch if RUNS[name][2] else self.ours)(name, seed, folder)
        result |= dict(settings=self.settings(name, seed), steps=self.args.steps)
        with open(self.path(name, seed) + ".tmp", "w") as f:
            json.dump(result, f)
        os.rename(self.path(name, seed) + ".tmp", self.path(name, seed))
        subprocess.run(["rm", "-rf", folder], check=True)
        print(f"{name}, seed {seed}: {final(result):.4f} in {time.time() - start:.0f} s", flush=True)

    def run_missing(self):
        """Seed by seed, so that a stopped call has compared everything on the first seeds."""
        start = time.time()
        for seed in range(1, self.args.seeds + 1):
            for name in self.args.only or RUNS:
                if self.read(name, seed) is not None:
                    continue
                self.run(name, seed)
                if 0 < self.args.minutes * 60 < time.time() - start:
                    return

    def of(self, names):
        """{name: {seed: results}} of those of the names that are there, with the seeds that all have."""
        seeds = range(1, self.args.seeds + 1)
        found = {name: {s: self.read(name, s) for s in seeds} for name in names}
        found = {name: {s: r for s, r in all.items() if r is not None} for name, all in found.items()}
        found = {name: all for name, all in found.items() if all}
        common = set(seeds).intersection(*found.values())
        return {name: {s: all[s] for s in sorted(common)} for name, all in found.items()}


def mean(values):
    values = list(values)
    return statistics.mean(values) if values else float("nan")


def final(run):
    return mean(run["losses"][-LAST:])


def around(run, step):
    """Mean loss of the LAST steps up to `step`; step 1 alone."""
    return run["losses"][0] if step == 1 else mean(run["losses"][max(0, step - LAST):step])


def table(head, rows):
    lines = ["| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows]]
    return "\n".join(lines).replace("| --- ", "|---").replace("|--- |", "|---|").replace("---|---", "---|---") + "\n"


def spread(values):
    """Mean, and least to largest if there are several."""
    values = list(values)
    if len(values) < 2:
        return f"{mean(values):.4f}"
    return f"{mean(values):.4f} ({min(values):.4f} - {max(values):.4f})"


# ---- the page ----


def curve(runs, names, steps):
    """Rows of losses at some steps."""
    points = [1, *(s for s in (50, 100, 200, 300, 400, 500, 600, 700, 800, 900) if s <= steps)]
    columns = runs.of(names)
    rows = [[str(step), *(f"{mean(around(r, step) for r in c.values()):.4f}" for c in columns.values())]
            for step in points]
    rows.append(["seeds", *(str(len(c)) for c in columns.values())])
    return table(["step", *(RUNS[name][0] for name in columns)], rows)


def differences(runs, one, other):
    """A row for each seed that both have: final losses, how far apart, and how long together."""
    rows, both = [], runs.of([one, other])
    a, b = both.get(one, {}), both.get(other, {})
    for seed in a.keys() & b.keys():
        apart = [abs(x - y) / y for x, y in zip(a[seed]["losses"], b[seed]["losses"])]
        together = next((i for i, x in enumerate(apart) if x > peer_torch.TOGETHER), len(apart))
        rows.append([f"{RUNS[one][0]} - {RUNS[other][0]}", str(seed), f"{final(a[seed]):.4f}", f"{final(b[seed]):.4f}",
                     f"{final(a[seed]) - final(b[seed]):+.4f}", f"{apart[0]:.1e}", str(together)])
    return rows


def svg(path, series, steps):
    """Curves of several runs: {label: losses}, each a running mean over LAST steps."""
    width, height, left, bottom = 640, 320, 48, 32
    colours = ["#1b6ca8", "#d1495b", "#2e8b57", "#b8860b", "#6a4c93", "#555555"]
    points = {k: [(s, mean(v[max(0, s - LAST):s])) for s in range(10, steps + 1, 10)] for k, v in series.items()}
    low = min(y for p in points.values() for _, y in p)
    high = max(y for p in points.values() for _, y in p)
    place = lambda x, y: (left + (width - left - 20) * x / steps,
                          8 + (height - bottom - 8) * (high - y) / (high - low))
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
           f'font-size="12"><rect width="{width}" height="{height}" fill="white"/>']
    for i in range(5):
        value = low + (high - low) * i / 4
        y = place(0, value)[1]
        out.append(f'<path d="M{left} {y:.1f}H{width - 20}" stroke="#dddddd"/>'
                   f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{value:.2f}</text>')
    for step in range(0, steps + 1, max(1, steps // 6)):
        out.append(f'<text x="{place(step, low)[0]:.1f}" y="{height - 12}" text-anchor="middle">{step}</text>')
    for i, (label, line) in enumerate(points.items()):
        path_of = "L".join("{:.1f} {:.1f}".format(*place(x, y)) for x, y in line)
        dash = ' stroke-dasharray="5 4"' if i % 2 else ""
        out.append(f'<path d="M{path_of}" fill="none" stroke="{colours[i % 6]}" stroke-width="1.6"{dash}/>'
                   f'<text x="{width - 190}" y="{28 + 16 * i}" fill="{colours[i % 6]}">{label}</text>')
    with open(path, "w") as f:
        f.write("\n".join(out) + "\n</svg>\n")


def average(runs):
    return [mean(values) for values in zip(*(r["losses"] for r in runs.values()))]


def drawn(runs, names, path, steps):
    series = {RUNS[name][0]: average(found) for name, found in runs.of(names).items() if found}
    if series:
        svg(path, series, steps)


def balance_rows(runs):
    for name, found in runs.of(BALANCE).items():
        peak = lambda first, end: f"{mean(mean(r['peaks'][first:end]) for r in found.values()):.2f}"
        yield [RUNS[name][0], str(len(found)), spread(final(r) for r in found.values()),
               spread(r["held_out"] for r in found.values()), peak(0, 100), peak(-LAST, None)]


def optimizer_rows(runs):
    for name, found in runs.of(["f32", "muon"]).items():
        yield [{"f32": "AdamW", "muon": "Muon"}[name], str(len(found)), spread(final(r) for r in found.values()),
               spread(r["held_out"] for r in found.values())]


PAGE = """# Convergence

`make convergence` makes this page: `tools/convergence.py` runs what is missing and writes the tables. Runs are kept
in `build/convergence`, so that a stopped command goes on.

- **Text**: the quickstart's, two domains of English, 4,096 ids. {steps} steps of 8 sequences of 128 tokens, less than one
  epoch. All runs of a seed read the same tokens in the same order.
- **Model**: the quickstart's small sibling: hidden 128, 3 layers (one dense), MLA with 4 heads, 8 experts of 128,
  top 2, one shared expert. All else is the preset `quickstart`: AdamW, peak rate 3e-3, softmax scores.
- **Machine**: {machine}, one thread a run, PyTorch {torch} on the CPU.
- **Final loss**: mean training loss of the last {last} steps, in nats a token. Curves are such means, too. Held-out
  loss: 200 sequences that no run trains on. A number is followed by its least and its largest value over seeds.
- **Seeds**: a table takes the seeds that all of its runs have, and says how many. A seed sets weights and order of
  tokens.

## PyTorch next to ours

Same initial weights, tokens, schedule and AdamW (`tools/peer_torch.py`). PyTorch's bf16 has no autocast: main weights,
norms, router and loss are f32, activations and operands of products bf16, as with `run.compute=bf16`.

![Training loss](convergence-torch.svg)

{curve}
{differences}
The last columns say how far the first loss is apart, relatively, and for how many steps losses stay within 1e-4. Then
some token's two best experts are nearly tied, a rounding chooses, and the runs are two samples of one kind. The
third pair shows what roundings alone do: one program and one type, on two instruction sets that add in other orders.

## AdamW next to Muon

f32, the same tokens and rates: `optimizer.kind=muon` with its default scale, which suits AdamW's rates.

![AdamW and Muon](convergence-muon.svg)

{optimizers}
## Balance

Each rule alone; peak load is the busiest expert's tokens over the mean, averaged over layers, steps and seeds.

{balance}
"""


def write_page(args, runs):
    folder = os.path.dirname(args.page)
    drawn(runs, ["f32", "torch-f32", "bf16", "torch-bf16"], f"{folder}/convergence-torch.svg", args.steps)
    drawn(runs, ["f32", "muon"], f"{folder}/convergence-muon.svg", args.steps)
    pairs = [("f32", "torch-f32"), ("bf16", "torch-bf16"), ("f32", "f32-avx2"), ("f32", "bf16")]
    rows = [row for pair in pairs for row in differences(runs, *pair)]
    with open("/proc/cpuinfo") as f:
        machine = next(line.split(": ")[1].strip() for line in f if line.startswith("model name"))
    torch = {r["torch"] for name in ("torch-f32", "torch-bf16") for r in (runs.of([name]).get(name) or {}).values()}
    text = PAGE.format(
        steps=args.steps, last=LAST, machine=machine, torch=", ".join(sorted(v.split("+")[0] for v in torch)),
        curve=curve(runs, ["f32", "torch-f32", "bf16", "torch-bf16"], args.steps),
        differences=table(["runs", "seed", "final loss", "of the other", "difference", "first step",
                           "steps within 1e-4"], rows),
        optimizers=table(["optimizer", "seeds", "final loss", "held-out loss"], optimizer_rows(runs)),
        balance=table(["rule", "seeds", "final loss", "held-out loss", "peak load, steps 1 - 100",
                       f"last {LAST}"], balance_rows(runs)))
    with open(args.page, "w") as f:
        f.write(text.rstrip("\n") + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=900)
    parser.add_argument("--work", default="build/convergence")
    parser.add_argument("--page", default="docs/convergence.md")
    parser.add_argument("--only", nargs="+", choices=list(RUNS), help="run no others")
    parser.add_argument("--minutes", type=float, default=0)
    parser.add_argument("--switchyard", default="build/switchyard")
    parser.add_argument("--write", action="store_true", help="run nothing")
    args = parser.parse_args()
    runs = Runs(args)
    if not args.write:
        runs.run_missing()
    write_page(args, runs)


if __name__ == "__main__":
    main()
