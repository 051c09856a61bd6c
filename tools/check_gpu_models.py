#!/usr/bin/env python3
"""Cuts of published models with random weights, on a GPU: `switchyard` against transformers.

    check_gpu_models.py PROGRAM FOLDER [--families NAME ...] [--layers N] [--tokens N]
                        [--device cuda|cpu] [--seed N]

Needs torch and transformers of any version that has the classes; FOLDER is made anew. Each model has
the published dimensions but for its number of layers (6). With --device cpu all widths are small, and
both programs stay off the GPU: the script's own test.

Weights are drawn from the seed by transformers' own initialisation, norms around 1. They are rounded
to bf16 and saved so (about 9 GB for Qwen3-30B-A3B), once with `dtype` float32 and once with bfloat16
in config.json, and `convert from-hf` reads both folders. So fp32 and bf16 have the same weights, and
in fp32 both sides compute in f32 without TF32. Checks, one line each:

    fp32 logits   largest |ours - theirs| <= 1e-5 of the largest |theirs|
    bf16 logits   the same, of both in bf16, <= 2e-2
    fp32 greedy   `generate --temperature 0` gives the 64 tokens that transformers' greedy loop gives

Rounding changes which experts a token takes where two of them are equal but for that rounding, and
one other expert changes more than any tolerance. So logits are compared where the last expert taken
and the first that is not lie apart in every layer: by 1e-4 (fp32) or 0.03 (bf16) of the deviation of
the token's router logits, as transformers computes them in f32. Each line says how many tokens these
are, and how far all of them are apart. Exit code 1 if a check failed.
"""
import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
import transformers

GREEDY, PROMPT = 64, 16
LIMITS = {"fp32": 1e-5, "bf16": 2e-2}
APART = {"fp32": 1e-4, "bf16": 0.03}
LEAST = 8  # tokens whose logits are compared
SINGLE = 256  # ids below are single bytes


def deepseek_v2_lite(small):
    sizes = dict(
        vocab_size=102400, hidden_size=2048, intermediate_size=10944, moe_intermediate_size=1408,
        num_attention_heads=16, num_key_value_heads=16, q_lora_rank=None, kv_lora_rank=512,
        qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128, n_routed_experts=64,
        n_shared_experts=2, num_experts_per_tok=6, first_k_dense_replace=1, topk_method="greedy",
        n_group=1, topk_group=1, norm_topk_prob=False, routed_scaling_factor=1.0, rms_norm_eps=1e-6,
        max_position_embeddings=163840,
        rope_parameters=dict(rope_type="yarn", rope_theta=1e4, factor=40.0, beta_fast=32.0, beta_slow=1.0,
                             original_max_position_embeddings=4096, mscale=0.707, mscale_all_dim=0.707))
    if small:
        sizes.update(vocab_size=1009, hidden_size=96, intermediate_size=160, moe_intermediate_size=40,
                     num_attention_heads=3, num_key_value_heads=3, kv_lora_rank=24, qk_nope_head_dim=16,
                     qk_rope_head_dim=8, v_head_dim=12, n_routed_experts=12)
    return transformers.DeepseekV2ForCausalLM, transformers.DeepseekV2Config(**sizes, **COMMON)


def qwen3_30b_a3b(small):
    sizes = dict(
        vocab_size=151936, hidden_size=2048, intermediate_size=6144, moe_intermediate_size=768,
        num_attention_heads=32, num_key_value_heads=4, head_dim=128, num_experts=128,
        num_experts_per_tok=8, norm_topk_prob=True, decoder_sparse_step=1, mlp_only_layers=[],
        rms_norm_eps=1e-6, max_position_embeddings=40960,
        rope_parameters=dict(rope_type="default", rope_theta=1e6))
    if small:
        sizes.update(vocab_size=997, hidden_size=80, moe_intermediate_size=24, num_attention_heads=6,
                     num_key_value_heads=2, head_dim=12, num_experts=12, num_experts_per_tok=3)
    return transformers.Qwen3MoeForCausalLM, transformers.Qwen3MoeConfig(**sizes, **COMMON)


FAMILIES = {f.__name__: f for f in (deepseek_v2_lite, qwen3_30b_a3b)}
COMMON = dict(tie_word_embeddings=False, bos_token_id=None, eos_token_id=None, pad_token_id=None)


# ---- transformers ----


def exact_products():
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.set_float32_matmul_precision("highest")


def make_model(family, options):
    cls, config = FAMILIES[family](options.device == "cpu")
    config.num_hidden_layers = options.layers
    config._attn_implementation = config._experts_implementation = "eager"
    torch.manual_seed(options.seed)
    with torch.device(options.device):
        model = cls(config).eval()
    with torch.no_grad():
        for p in model.parameters():
            if p.ndim == 1:
                p.copy_(1 + 0.1 * torch.randn_like(p))
    return model


def set_type(model, dtype):
    """Of parameters alone: buffers hold the frequencies of positions."""
    for p in model.parameters():
        p.data = p.data.to(dtype)


class Margins:
    """How far a model's router logits decide on experts, by token: the least of all layers."""

    def __init__(self, model):
        self.least, self.top_k = None, model.config.num_experts_per_tok
        self.hooks = [m.register_forward_pre_hook(self.see) for m in model.modules()
                      if hasattr(m, "gate") and hasattr(m, "experts")]

    def see(self, module, args):
        logits = args[0].flatten(0, -2).float() @ module.gate.weight.float().T
        order = logits.sort(-1, descending=True).values
        margin = (order[:, self.top_k - 1] - order[:, self.top_k]) / logits.std(-1)
        self.least = margin if self.least is None else torch.minimum(self.least, margin)

    def take(self):
        for hook in self.hooks:
            hook.remove()
        return self.least.cpu().numpy()


def logits_of(model, ids):
    with torch.no_grad():
        return model(input_ids=ids[None], use_cache=False).logits[0].float().cpu().numpy()


def greedy(model, ids):
    """The tokens that follow, and by how much the least decided one was ahead of the second."""
    tokens, cache, least = [], None, math.inf
    with torch.no_grad():
        for _ in range(GREEDY):
            out = model(input_ids=ids[None], past_key_values=cache, use_cache=True)
            cache, best = out.past_key_values, out.logits[0, -1].topk(2)
            least = min(least, (best.values[0] - best.values[1]).item())
            tokens.append(best.indices[0].item())
            ids = best.indices[:1]
    return tokens, least


# ---- files ----


def byte_letters():
    """The letters by which tokenizer.json writes bytes: printable ones stand for themselves."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    return {b: chr(b) for b in plain} | {b: chr(256 + i) for i, b in enumerate(others)}


def text_of(token):
    """In the tokenizer that is written, id 1234 is the text " 1234"."""
    return bytes([token]) if token < SINGLE else f" {token}".encode()


def write_tokenizer(path, vocab):
    letter = byte_letters()
    tokens = {letter[b]: b for b in range(SINGLE)}
    tokens |= {"".join(letter[b] for b in text_of(i)): i for i in range(SINGLE, vocab)}
    pieces = dict(type="ByteLevel", add_prefix_space=False, trim_offsets=True, use_regex=True)
    model = dict(type="BPE", dropout=None, unk_token=None, continuing_subword_prefix=None,
                 end_of_word_suffix=None, fuse_unk=False, byte_fallback=False, ignore_merges=True,
                 vocab=tokens, merges=[])
    with open(path, "w") as f:
        json.dump(dict(version="1.0", truncation=None, padding=None, added_tokens=[], normalizer=None,
                       pre_tokenizer=pieces, post_processor=None, decoder=pieces, model=model), f)


def save(model, folder, vocab):
    """Two folders with the same weights, which config.json calls float32 and bfloat16."""
    source = {"bf16": f"{folder}/hf-bf16", "fp32": f"{folder}/hf-fp32"}
    model.save_pretrained(source["bf16"], max_shard_size="5GB")
    write_tokenizer(f"{source['bf16']}/tokenizer.json", vocab)
    os.makedirs(source["fp32"])
    for name in os.listdir(source["bf16"]):
        os.link(f"{source['bf16']}/{name}", f"{source['fp32']}/{name}")
    with open(f"{source['bf16']}/config.json") as f:
        config = json.load(f)
    for kind, word in (("fp32", "float32"), ("bf16", "bfloat16")):
        os.remove(f"{source[kind]}/config.json")
        config["dtype"] = word
        with open(f"{source[kind]}/config.json", "w") as f:
            json.dump(config, f)
    return source


# ---- ours ----


def run(options, *arguments):
    hidden = dict(os.environ, CUDA_VISIBLE_DEVICES="") if options.device == "cpu" else None
    done = subprocess.run([options.program, *arguments], capture_output=True, env=hidden)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(arguments)[:200]}: {done.stderr.decode().strip()}")
    return done.stdout


def our_logits(options, folder, kind, ids, vocab):
    out = f"{folder}/logits-{kind}"
    run(options, "logits", f"{folder}/{kind}", f"{folder}/ids", out)
    return np.fromfile(out, "<f4").reshape(len(ids), vocab)


def our_greedy(options, folder, prompt):
    return run(options, "generate", f"{folder}/fp32", "--prompt", prompt.decode(), "--temperature", "0",
               "--tokens", str(GREEDY))


# ---- checks ----


def distance(a, b):
    return float(np.max(np.abs(a - b)) / np.max(np.abs(b))) if len(a) else math.nan


def logits_line(kind, ours, theirs, margin):
    where = margin >= APART[kind]
    error, all_of = distance(ours[where], theirs[where]), distance(ours, theirs)
    good = error <= LIMITS[kind] and where.sum() >= LEAST
    return good, (f"{kind} logits: {error:.2e} of the largest (limit {LIMITS[kind]:g}) at {where.sum()} of "
                  f"{len(where)} tokens, {all_of:.2e} at all")


def greedy_line(said, prompt, tokens, least):
    want = prompt + b"".join(map(text_of, tokens)) + b"\n"
    if said == want:
        return True, f"fp32 greedy: {GREEDY} tokens are equal, the closest second {least:.1e} behind"
    same = len(os.path.commonprefix([said, want]))
    return False, f"fp32 greedy: {said[:same].count(b' ') - PROMPT} tokens are equal, then others come"


def lines_of(family, options):
    """Good or not, and the line, of each check."""
    folder, start = f"{options.folder}/{family}", time.time()
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    model = make_model(family, options)
    vocab = model.config.vocab_size
    rng = np.random.default_rng(options.seed)
    ids = rng.integers(SINGLE, vocab, options.tokens)
    ids.astype("<i4").tofile(f"{folder}/ids")
    on_device = torch.tensor(ids, device=options.device)
    set_type(model, torch.bfloat16)
    theirs = {"bf16": logits_of(model, on_device)}
    source = save(model, folder, vocab)
    set_type(model, torch.float32)
    margins = Margins(model)
    theirs["fp32"] = logits_of(model, on_device)
    margin = margins.take()
    tokens, least = greedy(model, on_device[:PROMPT])
    parameters = sum(p.numel() for p in model.parameters())
    del model
    if options.device == "cuda":
        torch.cuda.empty_cache()
    torch_s = time.time() - start
    prompt = b"".join(map(text_of, ids[:PROMPT]))
    with ThreadPoolExecutor() as pool:
        for job in [pool.submit(run, options, "convert", "from-hf", source[k], f"{folder}/{k}") for k in theirs]:
            job.result()
        convert_s = time.time() - start - torch_s
        ours = {k: pool.submit(our_logits, options, folder, k, ids, vocab) for k in theirs}
        said = pool.submit(our_greedy, options, folder, prompt)
        ours, said = {k: job.result() for k, job in ours.items()}, said.result()
    own = distance(theirs["bf16"], theirs["fp32"])
    yield True, (f"{parameters:,} parameters; transformers {torch_s:.0f} s, convert {convert_s:.0f} s, logits and "
                 f"generate {time.time() - start - torch_s - convert_s:.0f} s; transformers' bf16 is {own:.2e} "
                 f"from its fp32, ours {distance(ours['bf16'], theirs['fp32']):.2e}")
    for kind in LIMITS:
        yield logits_line(kind, ours[kind], theirs[kind], margin)
    yield greedy_line(said, prompt, tokens, least)
    shutil.rmtree(folder)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("folder")
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    options.folder = os.path.abspath(options.folder)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    exact_products()
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, {options.layers} layers, "
          f"seed {options.seed}, {options.device}", flush=True)
    checks = failed = 0
    for family in options.families:
        try:
            for good, line in lines_of(family, options):
                checks, failed = checks + 1, failed + (not good)
                print(f"{'ok    ' if good else 'FAILED'} {family}: {line}", flush=True)
        except RuntimeError as e:
            failed += 1
            print(f"FAILED {family}: {e}", flush=True)
    print(f"{checks} lines, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
