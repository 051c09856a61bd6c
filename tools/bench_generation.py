#!/usr/bin/env python3
"""Tokens a second of `switchyard serve` beside transformers, on one folder of weights.

    bench_generation.py PROGRAM [--rounds 5] [--batches 1,32] [--prompt 16] [--tokens 64] [--threads 2] [--gpu]
                        [--model llama|qwen3_moe] [--json OUT] [section.key=value ...]

A model of random weights is saved by `train train.steps=0` and exported by `convert to-hf`; transformers loads that
folder. Both continue the same prompts of random tokens by the same number of tokens, always the likeliest one, with
the same number of threads and the same type (f32; bf16 with --gpu). They take turns, ours first, after one call of
each that is not counted; a call is timed from the prompts to the last token, ours over HTTP. What is printed are
medians over the rounds; the median over rounds of ours over theirs, and its spread; the same by time of processors,
which with --threads 1 hardly depends on what else runs; how many texts are the same, and the load of the machine
before. transformers generates with its dynamic cache, which is its default, under inference_mode.

Needs transformers and torch. The last line is `N passed, M failed, 0 skipped`: of the batches with the same texts. With
--gpu random weights and bf16 let close logits change places, so texts are only counted.
"""
import argparse
import json
import os
import random
import statistics
import subprocess
import tempfile
import time
import urllib.request

os.environ.setdefault("HF_HUB_OFFLINE", "1")

VOCAB = 4096
COMMON = """
run: {dir: run, threads: %d, compute: %s, device: %s}
data: {sources: [{name: text, path: text}], tokenizer: tokenizer.json, sequence: 1024, validation: 0.1}
train: {steps: 0, batch: 1, micro_batch: 1}
model: {vocab: 4096, hidden: 512, layers: 8, dense_layers: %d, ffn: 1408, init_std: 0.05}
attention: {kind: gqa, heads: 8, kv_heads: 4, head_dim: 64, rope_interleaved: false%s}
moe: {experts: 16, top_k: 2, ffn: 512, shared: 0, normalise: true}
"""
MODELS = {"llama": (8, ""), "qwen3_moe": (0, ", qk_norm: rms")}


def run(*words):
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def make_model(program, args):
    """The folders `run` and `hf`, in the working folder. The text has 4,096 tokens in it: numbers as words."""
    rng = random.Random(1)
    with open("text.txt", "w", encoding="utf-8") as f:
        for _ in range(20000):
            f.write("".join(rng.choice("bdfgklmnprstvz") + rng.choice("aeiou") for _ in range(rng.randint(1, 5))) + " ")
    run(program, "data", "tokenizer", "train", "--vocab", str(VOCAB), "--out", "tokenizer.json", "text.txt")
    run(program, "data", "prepare", "--tokenizer", "tokenizer.json", "--out", "text", "text.txt")
    dense, norm = MODELS[args.model]
    with open("model.yaml", "w", encoding="utf-8") as f:
        f.write(COMMON % (args.threads, "bf16" if args.gpu else "f32", "gpu" if args.gpu else "cpu", dense, norm))
    run(program, "train", "model.yaml", *args.settings)
    run(program, "convert", "to-hf", "run", "hf")


class Ours:
    def __init__(self, program, args):
        words = [program, "serve", "run", "--port", "0", "--name", "m", "--places", str(max(args.batches))]
        self.server = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
        self.address, said = None, ""
        while self.address is None:
            line = self.server.stderr.readline()
            said += line
            if not line:
                raise SystemExit("bench_generation: the server ended before it listened: " + (said.strip() or "it said nothing"))
            if "http://" in line:
                self.address = line.split(" at ")[1].split(",")[0]

    def generate(self, prompts, tokens):
        body = {"prompt": prompts, "max_tokens": tokens, "temperature": 0}
        with urllib.request.urlopen(self.address, json.dumps(body).encode(), timeout=600) as answer:
            got = json.load(answer)
        self.written = got["usage"]["completion_tokens"]
        return [c["text"] for c in got["choices"]]

    def cpu_s(self):
        with open(f"/proc/{self.server.pid}/stat", encoding="utf-8") as f:
            times = f.read().rsplit(")", 1)[1].split()[11:13]
        return sum(map(int, times)) / os.sysconf("SC_CLK_TCK")

    def close(self):
        self.server.terminate()
        self.server.wait()


class Theirs:
    def __init__(self, args):
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer
        torch.set_num_threads(args.threads)
        self.torch, self.device = torch, "cuda" if args.gpu else "cpu"
        dtype = torch.bfloat16 if args.gpu else torch.float32
        self.model = AutoModelForCausalLM.from_pretrained("hf", dtype=dtype).to(self.device).eval()
        self.tokenizer = AutoTokenizer.from_pretrained("hf")

    def generate(self, prompts, tokens):
        torch = self.torch
        ids = torch.tensor(prompts, device=self.device)
        with torch.inference_mode():
            out = self.model.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=tokens,
                                      min_new_tokens=tokens, pad_token_id=0)
        out = out[:, ids.shape[1]:].tolist()  # which waits for the GPU
        self.written = sum(len(row) for row in out)
        return self.tokenizer.batch_decode(out, clean_up_tokenization_spaces=False)

    def cpu_s(self):
        return time.process_time()


def timed(side, prompts, tokens):
    """Tokens a second, a second of processors, and the texts."""
    begin, cpu = time.monotonic(), side.cpu_s()
    texts = side.generate(prompts, tokens)
    return side.written / (time.monotonic() - begin), side.written / max(0.01, side.cpu_s() - cpu), texts


def compare(ours, theirs, batch, args):
    rng = random.Random(batch)
    prompts = [[rng.randrange(300, VOCAB - 300) for _ in range(args.prompt)] for _ in range(batch)]
    rates, of_cpu = {ours: [], theirs: []}, {ours: [], theirs: []}
    for r in range(args.rounds + 1):
        texts = []
        for side in (ours, theirs):
            rate, by_cpu, text = timed(side, prompts, args.tokens)
            texts.append(text)
            if r > 0:
                rates[side].append(rate)
                of_cpu[side].append(by_cpu)
    same = sum(a == b for a, b in zip(*texts, strict=True))
    mine, other = (statistics.median(rates[side]) for side in (ours, theirs))
    ratios, cpu = ([a / b for a, b in zip(r[ours], r[theirs], strict=True)] for r in (rates, of_cpu))
    print(f"batch {batch:4}  ours {mine:8.1f} tokens/s  transformers {other:8.1f} tokens/s  ours / theirs "
          f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f} in {args.rounds} rounds)  by CPU time "
          f"{statistics.median(cpu):.2f}  same text {same} of {batch}", flush=True)
    return {"batch": batch, "ours": rates[ours], "theirs": rates[theirs], "same": same}


def main():
    parser = argparse.ArgumentParser(description="tokens a second of generation beside transformers")
    parser.add_argument("program")
    parser.add_argument("settings", nargs="*")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batches", type=lambda s: [int(x) for x in s.split(",")], default=[1, 32])
    parser.add_argument("--prompt", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--model", choices=MODELS, default="llama")
    parser.add_argument("--json")
    args = parser.parse_args()
    program = os.path.abspath(args.program)
    out = os.path.abspath(args.json) if args.json else None
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        make_model(program, args)
        print("load of the machine before: %.2f %.2f %.2f" % os.getloadavg(), flush=True)
        theirs, ours = Theirs(args), Ours(program, args)
        try:
            rows = [compare(ours, theirs, batch, args) for batch in args.batches]
        finally:
            ours.close()
        os.chdir("/")
    if out:
        with open(out, "w", encoding="utf-8") as f:
            json.dump(rows, f)
    good = sum(args.gpu or r["same"] == r["batch"] for r in rows)
    print(f"{good} passed, {len(rows) - good} failed, 0 skipped")
    return good < len(rows)


if __name__ == "__main__":
    raise SystemExit(main())
