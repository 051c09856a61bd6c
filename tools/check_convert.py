#!/usr/bin/env python3
"""switchyard convert against transformers: random small models of every family, there and back.

    check_convert.py PROGRAM FOLDER [FAMILY ...] [--seeds N] [--steps]

needs the versions of make_golden.py.

Each model is made by its class of transformers with sizes drawn from the seed (odd heads, prime
vocabularies, 7 or 12 experts, rope halves or pairs), saved as transformers saves it, in shards or
in one file, and then:

    from-hf, logits      equal to transformers' in f64 within 2e-6 of their norm, and each row within 6e-6 of its own
    to-hf                the same tensors, bit by bit, under the same names
    from_pretrained      of what to-hf wrote: the same logits, bit by bit, and no key missing or left
    bf16                 the same tensors, bit by bit, for a model that was saved in bf16
    --steps              `train --init` of it: losses of 50 steps equal to transformers' within 1e-4
    eighths              DeepSeek-V3's 8-bit weights with scales of blocks give the products

Prints a line a model and ends with `N models, M failed`; exit code 1 if any failed.
"""
import argparse
import contextlib
import copy
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import torch
import transformers
import yaml
from safetensors import safe_open
from safetensors.torch import save_file

import golden_steps
import make_golden

TOKENS = 13
WHOLE, ROW = 2e-6, 6e-6  # how far f32 may be from f64
FOLDER = None


def mla(rng, **more):
    """An even rank of the latent: DeepSeek-V2's class sees rotated columns as complex numbers."""
    return dict(num_attention_heads=3, num_key_value_heads=3, kv_lora_rank=int(rng.choice([10, 18])),
                qk_nope_head_dim=int(rng.choice([8, 12])), qk_rope_head_dim=int(rng.choice([6, 10])),
                v_head_dim=5, first_k_dense_replace=int(rng.integers(0, 3)),
                n_shared_experts=int(rng.integers(1, 3)),
                moe_intermediate_size=11, rms_norm_eps=1e-6, **more)


def gqa(rng, **more):
    heads, kv = [(3, 1), (3, 3), (4, 2), (6, 3)][rng.integers(4)]
    return dict(num_attention_heads=heads, num_key_value_heads=kv, head_dim=int(rng.choice([6, 10])),
                rms_norm_eps=float(rng.choice([1e-5, 1e-6])), **more)


def experts(rng):
    return int(rng.choice([7, 12]))


def scaling(rng, *kinds):
    """rope_parameters of a kind that is drawn."""
    kind = kinds[rng.integers(len(kinds))]
    more = dict(default={}, linear=dict(factor=3.0),
                llama3=dict(factor=8.0, original_max_position_embeddings=32, low_freq_factor=1.0,
                            high_freq_factor=4.0),
                yarn=dict(factor=4.0, original_max_position_embeddings=16, beta_fast=4.0, beta_slow=0.5))
    return dict(rope_type=kind, rope_theta=float(rng.choice([1e4, 5e5])), **more[kind])


def latent_scaling(rng):
    rope = scaling(rng, "default", "yarn")
    m = float(rng.choice([0.707, 1.0]))
    return dict(rope, mscale=m, mscale_all_dim=m) if rope["rope_type"] == "yarn" else rope


def deepseek_v2(rng):
    group = bool(rng.integers(2))
    more = (dict(topk_method="group_limited_greedy", n_group=4, topk_group=2, n_routed_experts=12) if group
            else dict(topk_method="greedy", n_routed_experts=experts(rng)))
    return transformers.DeepseekV2ForCausalLM, transformers.DeepseekV2Config, mla(
        rng, q_lora_rank=[None, 14][rng.integers(2)], num_experts_per_tok=3, norm_topk_prob=False,
        rope_parameters=latent_scaling(rng),
        routed_scaling_factor=float(rng.choice([1.0, 2.5])), **more)


def deepseek_v3(rng):
    return transformers.DeepseekV3ForCausalLM, transformers.DeepseekV3Config, mla(
        rng, q_lora_rank=[None, 14][rng.integers(2)], n_routed_experts=12, num_experts_per_tok=3,
        rope_parameters=latent_scaling(rng), attention_bias=bool(rng.integers(2)),
        n_group=int(rng.choice([1, 4])), topk_group=1, norm_topk_prob=bool(rng.integers(2)),
        routed_scaling_factor=2.5, rope_interleave=bool(rng.integers(2)))


def llama(rng):
    return transformers.LlamaForCausalLM, transformers.LlamaConfig, gqa(
        rng, rope_parameters=scaling(rng, "default", "llama3", "linear"), attention_bias=bool(rng.integers(2)),
        tie_word_embeddings=bool(rng.integers(2)))


def qwen3(rng):
    return transformers.Qwen3ForCausalLM, transformers.Qwen3Config, gqa(
        rng, rope_parameters=scaling(rng, "default", "yarn"), tie_word_embeddings=bool(rng.integers(2)))


def qwen3_moe(rng):
    return transformers.Qwen3MoeForCausalLM, transformers.Qwen3MoeConfig, gqa(
        rng, num_experts=experts(rng), num_experts_per_tok=int(rng.integers(1, 4)), moe_intermediate_size=11,
        norm_topk_prob=bool(rng.integers(2)), decoder_sparse_step=int(rng.integers(1, 3)),
        mlp_only_layers=list(range(rng.integers(0, 3))))


def olmoe(rng):
    heads, kv = [(3, 1), (3, 3), (4, 2), (6, 3)][rng.integers(4)]
    return transformers.OlmoeForCausalLM, transformers.OlmoeConfig, dict(
        num_attention_heads=heads, num_key_value_heads=kv, rms_norm_eps=float(rng.choice([1e-5, 1e-6])),
        num_experts=experts(rng), num_experts_per_tok=int(rng.integers(1, 4)),
        norm_topk_prob=bool(rng.integers(2)), attention_bias=bool(rng.integers(2)))


def qwen2_moe(rng):
    return transformers.Qwen2MoeForCausalLM, transformers.Qwen2MoeConfig, gqa(
        rng, num_experts=experts(rng), num_experts_per_tok=int(rng.integers(1, 4)), moe_intermediate_size=11,
        shared_expert_intermediate_size=11 * int(rng.integers(1, 4)), qkv_bias=bool(rng.integers(2)),
        norm_topk_prob=bool(rng.integers(2)), decoder_sparse_step=int(rng.integers(1, 3)),
        mlp_only_layers=list(range(rng.integers(0, 3))))


def mixtral(rng):
    return transformers.MixtralForCausalLM, transformers.MixtralConfig, gqa(
        rng, num_local_experts=experts(rng), num_experts_per_tok=2, sliding_window=[None, 5][rng.integers(2)])


def glm4_moe(rng):
    share = float(rng.choice([0.5, 1.0]))
    sizes = gqa(rng)
    sizes["head_dim"] = 12
    return transformers.Glm4MoeForCausalLM, transformers.Glm4MoeConfig, dict(
        sizes, n_routed_experts=12, n_shared_experts=1, num_experts_per_tok=3, moe_intermediate_size=11,
        n_group=2, topk_group=1, norm_topk_prob=True, routed_scaling_factor=1.5, first_k_dense_replace=1,
        use_qk_norm=bool(rng.integers(2)), partial_rotary_factor=share, attention_bias=bool(rng.integers(2)),
        rope_parameters=dict(scaling(rng, "default"), partial_rotary_factor=share))


def llama4(rng):
    """Lists of layers may say other things than the intervals do."""
    lists = [{}, dict(no_rope_layers=[1, 1, 1]), dict(no_rope_layers=[1, 0, 1], moe_layers=[1, 2]),
             dict(moe_layers=[2])][rng.integers(4)]
    return transformers.Llama4ForCausalLM, transformers.Llama4TextConfig, gqa(
        rng, **lists, intermediate_size_mlp=44, num_local_experts=5, num_experts_per_tok=1,
        interleave_moe_layer_step=int(rng.integers(1, 3)), no_rope_layer_interval=int(rng.integers(2, 4)),
        attention_chunk_size=int(rng.choice([5, 64])), use_qk_norm=bool(rng.integers(2)),
        attn_temperature_tuning=True, floor_scale=3, attn_scale=0.2,
        rope_parameters=scaling(rng, "default", "llama3"))


def gpt_oss(rng):
    return transformers.GptOssForCausalLM, transformers.GptOssConfig, gqa(
        rng, num_local_experts=experts(rng), num_experts_per_tok=2, sliding_window=5,
        rope_parameters=dict(scaling(rng, "yarn"), truncate=False))


def qwen3_next(rng):
    """Attention in each layer, in none, or in the last of two or three; heads of values that share those of keys. A
    large epsilon: the norm after the recurrence is steep where outputs are small, so that f32 is 1e-5 from f64."""
    sizes = dict(gqa(rng), head_dim=12, rms_norm_eps=0.01)
    every, share = int(rng.integers(1, 5)), float(rng.choice([0.5, 1.0]))
    kinds = ["full_attention" if (i + 1) % every == 0 else "linear_attention" for i in range(3)]
    keys = int(rng.integers(1, 4))
    return transformers.Qwen3NextForCausalLM, transformers.Qwen3NextConfig, dict(
        sizes, layer_types=kinds, linear_num_key_heads=keys, linear_num_value_heads=keys * int(rng.integers(1, 4)),
        linear_key_head_dim=int(rng.choice([5, 8])), linear_value_head_dim=int(rng.choice([3, 6])),
        linear_conv_kernel_dim=int(rng.integers(2, 6)), num_experts=experts(rng),
        num_experts_per_tok=int(rng.integers(1, 4)), moe_intermediate_size=11,
        shared_expert_intermediate_size=11 * int(rng.integers(1, 4)), norm_topk_prob=bool(rng.integers(2)),
        decoder_sparse_step=int(rng.integers(1, 3)), mlp_only_layers=list(range(rng.integers(0, 3))),
        attention_bias=bool(rng.integers(2)), rope_parameters=dict(scaling(rng, "default"), partial_rotary_factor=share))


FAMILIES = [deepseek_v2, deepseek_v3, llama, qwen3, qwen3_moe, olmoe, qwen2_moe, qwen3_next, mixtral, glm4_moe, llama4,
            gpt_oss]


def randomise(model, rng):
    """Vectors are multiples of 2^-16: norms of Qwen3-Next are 1 + w here, which rounds what is finer."""
    with torch.no_grad():
        for p in model.parameters():
            values = 0.2 * rng.standard_normal(tuple(p.shape)) + (1 if p.ndim == 1 else 0)
            if p.ndim == 1:
                values = np.round(values * 65536) / 65536
            p.copy_(torch.tensor(values, dtype=torch.float32))
        for name, b in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                b.copy_(torch.tensor(0.1 * rng.standard_normal(tuple(b.shape)), dtype=torch.float32))


def make(family, seed):
    rng = np.random.default_rng(seed)
    cls, config, sizes = family(rng)
    sizes.setdefault("rope_parameters", scaling(rng, "default"))
    config = config(vocab_size=int(rng.choice([61, 97, 131])), hidden_size=24, num_hidden_layers=3,
                    intermediate_size=40, max_position_embeddings=64, **sizes)
    config._attn_implementation = config._experts_implementation = "eager"
    model = cls(config).float().eval()
    randomise(model, rng)
    return model, config, rng


def logits_of(model, ids):
    with torch.no_grad():
        return model(input_ids=torch.tensor(ids)[None], use_cache=False).logits[0].float().numpy()


@contextlib.contextmanager
def doubled():
    """Classes compute norms, gates, recurrences and angles in float32, whatever their weights are: here in float64."""
    kept = torch.float32, torch.float, torch.Tensor.float
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double
    try:
        yield
    finally:
        torch.float32, torch.float, torch.Tensor.float = kept


def precise_logits(model, ids):
    """In f32 transformers may be the one that is off: a recurrence in chunks cancels what a step for each token keeps."""
    wide = copy.deepcopy(model).double()
    with torch.no_grad(), doubled():
        return wide(input_ids=torch.tensor(ids)[None], use_cache=False).logits[0].numpy()


def aligned(model):
    """Weights where their file was mapped lie at any address, and other addresses give products other bits."""
    for p in model.parameters():
        p.data = p.data.clone()
    return model.eval()


def tensors(folder):
    """{name: tensor} of all safetensors files of a folder."""
    out = {}
    for file in sorted(os.listdir(folder)):
        if file.endswith(".safetensors"):
            with safe_open(f"{folder}/{file}", "pt") as f:
                out.update({k: f.get_tensor(k) for k in f.keys()})
    return out


def run(program, *arguments):
    done = subprocess.run([program, *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(arguments)}: {done.stderr.strip()}")


def same_tensors(a, b):
    if a.keys() != b.keys():
        raise RuntimeError(f"tensors {sorted(a.keys() ^ b.keys())[:4]} are on one side alone")
    for name in a:
        x, y = a[name], b[name]
        if x.dtype != y.dtype or x.shape != y.shape or not torch.equal(x, y):
            raise RuntimeError(f"{name} is {x.dtype} {tuple(x.shape)} before, {y.dtype} "
                               f"{tuple(y.shape)} after, or other values")


def our_logits(program, checkpoint, ids, vocab):
    np.asarray(ids, "<i4").tofile(f"{FOLDER}/ids")
    run(program, "logits", checkpoint, f"{FOLDER}/ids", f"{FOLDER}/logits")
    return np.fromfile(f"{FOLDER}/logits", "<f4").reshape(len(ids), vocab)


def farthest(got, want):
    return float(np.max(np.linalg.norm(got - want, axis=1) / np.linalg.norm(want, axis=1)))


def fresh(*names):
    for name in names:
        shutil.rmtree(f"{FOLDER}/{name}", ignore_errors=True)
    return [f"{FOLDER}/{name}" for name in names]


def there_and_back(program, family, seed):
    model, config, rng = make(family, seed)
    source, checkpoint, back = fresh("hf", "checkpoint", "back")
    model.save_pretrained(source, max_shard_size=["5GB", "20KB"][seed % 2])
    ids = rng.integers(0, config.vocab_size, TOKENS)
    want = precise_logits(model, ids)
    theirs = farthest(logits_of(model, ids), want)
    run(program, "convert", "from-hf", source, checkpoint)
    have = our_logits(program, checkpoint, ids, config.vocab_size)
    error, whole = farthest(have, want), float(np.linalg.norm(have - want) / np.linalg.norm(want))
    if not (error <= ROW and whole <= WHOLE):
        raise RuntimeError(f"logits differ by {whole:.3g}, a row by {error:.3g} from f64, one of transformers' f32 "
                           f"by {theirs:.3g}")
    run(program, "convert", "to-hf", checkpoint, back, "--shard-gb", ["5", "2e-5"][seed % 2])
    same_tensors(tensors(source), tensors(back))
    loaded, info = transformers.AutoModelForCausalLM.from_pretrained(
        back, output_loading_info=True, attn_implementation="eager", experts_implementation="eager")
    wrong = {k: v for k, v in info.items() if v and k != "error_msgs"}
    if wrong:
        raise RuntimeError(f"from_pretrained says {wrong}")
    again = transformers.AutoModelForCausalLM.from_pretrained(
        source, attn_implementation="eager", experts_implementation="eager")
    loaded, again = aligned(loaded), aligned(again)
    if type(loaded) is not type(model) or not np.array_equal(logits_of(loaded, ids), logits_of(again, ids)):
        raise RuntimeError("what to-hf wrote has other logits")
    return f"logits within {whole:.1e} of f64, rows {error:.1e}; rows of transformers' f32 {theirs:.1e}"


def low_precision(program, family, seed):
    """bf16 there and back; and from a config.json that nothing is left of: to-hf writes all of it."""
    model, _, _ = make(family, seed)
    source, checkpoint, back, again = fresh("hf", "checkpoint", "back", "again")
    model.to(torch.bfloat16)
    for name, b in model.named_buffers():
        if seed % 2 == 0 and name.endswith("e_score_correction_bias"):  # as published files have it
            b.data = b.data.float()
    model.save_pretrained(source)
    run(program, "convert", "from-hf", source, checkpoint)
    run(program, "convert", "to-hf", checkpoint, back)
    same_tensors(tensors(source), tensors(back))
    os.remove(f"{checkpoint}/config.json")
    run(program, "convert", "to-hf", checkpoint, again)
    same_tensors(tensors(source), tensors(again))
    with open(f"{again}/config.json") as f:
        if json.load(f)["model_type"] not in (model.config.model_type, "llama", "mixtral"):
            raise RuntimeError("another family was chosen")
    return "bf16 bit-equal"


def eighths(program, seed):
    """Matrices of 8 bits with scales of blocks of 128 x 128, as DeepSeek-V3's files have them."""
    rng = np.random.default_rng(seed)
    cls, config, sizes = deepseek_v3(rng)
    sizes.update(moe_intermediate_size=131, kv_lora_rank=129)
    config = config(vocab_size=61, hidden_size=257, num_hidden_layers=2, intermediate_size=300,
                    max_position_embeddings=64, **sizes)
    config._attn_implementation = config._experts_implementation = "eager"
    model = cls(config).float().eval()
    randomise(model, rng)
    source, checkpoint = fresh("hf", "checkpoint")
    model.save_pretrained(source)
    plain, stored = tensors(source), {}
    for name, w in plain.items():
        stored[name] = w
        if not name.endswith("_proj.weight"):
            continue
        blocks = [-(-n // 128) for n in w.shape]
        scale = torch.tensor(rng.uniform(0.5, 2, blocks), dtype=torch.float32)
        wide = scale.repeat_interleave(128, 0).repeat_interleave(128, 1)[:w.shape[0], :w.shape[1]]
        stored[name] = (w / wide).to(torch.float8_e4m3fn)
        stored[name + "_scale_inv"] = scale
        plain[name] = stored[name].float() * wide
    os.remove(f"{source}/model.safetensors")
    save_file(stored, f"{source}/model.safetensors", {"format": "pt"})
    with open(f"{source}/config.json") as f:
        settings = json.load(f)
    settings["quantization_config"] = dict(quant_method="fp8", fmt="e4m3", weight_block_size=[128, 128])
    with open(f"{source}/config.json", "w") as f:
        json.dump(settings, f)
    run(program, "convert", "from-hf", source, checkpoint)
    back, = fresh("back")
    run(program, "convert", "to-hf", checkpoint, back)
    same_tensors(plain, tensors(back))
    return "8-bit products bit-equal"


def write_shard(path, tokens, documents):
    """Files as Megatron-LM has them, ids of 16 bits."""
    ends = np.cumsum(documents)
    with open(f"{path}.bin", "wb") as f:
        f.write(np.asarray(tokens, "<u2").tobytes())
    with open(f"{path}.idx", "wb") as f:
        f.write(b"MMIDIDX\0\0" + np.uint64(1).tobytes() + b"\x08")
        f.write(np.array([len(ends), len(ends) + 1], "<u8").tobytes())
        f.write(np.asarray(documents, "<i4").tobytes())
        f.write((2 * (ends - documents)).astype("<i8").tobytes())
        f.write(np.arange(len(ends) + 1, dtype="<i8").tobytes())


def steps(program, family, seed):
    """A training that begins from the folder, and AdamW in torch."""
    model, config, rng = make(family, seed)
    source, checkpoint, run_dir = fresh("hf", "checkpoint", "run")
    model.save_pretrained(source)
    run(program, "convert", "from-hf", source, checkpoint)
    rows = dict(golden_steps.ROWS, model=dict(vocab=config.vocab_size), attention=dict(document_mask=False),
                moe=dict(bias_rate=1 / 1024, aux_loss=0))
    with open(f"{checkpoint}/config.yaml") as f:
        ours = yaml.safe_load(f)
    if not ours["moe"]["bias_rate"]:
        rows["moe"]["bias_rate"] = 0
    want = golden_steps.steps(model, rows, rng, 1e-3, 4)
    if want is None:
        raise RuntimeError("no sequence was found whose routes are steady")
    write_shard(f"{FOLDER}/stream", want["token"], want["document"])
    ours["data"]["sources"] = [dict(name="stream", path=f"{FOLDER}/stream", weight=1)]
    for section in ("data", "train", "optimizer", "attention", "moe"):
        ours[section].update(rows[section])
    ours["run"].update(dir=run_dir, device="cpu")
    with open(f"{FOLDER}/train.yaml", "w") as f:
        yaml.safe_dump(ours, f)
    run(program, "train", f"{FOLDER}/train.yaml", "--init", checkpoint)
    with open(f"{run_dir}/metrics.jsonl") as f:
        lines = [json.loads(line) for line in f]
    have = np.array([line["loss"] for line in lines if line["kind"] == "step"])
    error = float(np.max(np.abs(have - want["loss"]) / want["loss"])) if have.shape == want["loss"].shape else np.inf
    if not error <= 1e-4:
        raise RuntimeError(f"losses of {len(have)} steps differ by {error:.3g}")
    return f"losses of {len(have)} steps within {error:.1e}, from {have[0]:.3f} to {have[-1]:.3f}"


def main():
    global FOLDER
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("folder")
    parser.add_argument("family", nargs="*")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", action="store_true")
    options = parser.parse_args()
    FOLDER = options.folder
    make_golden.check_versions()
    torch.set_num_threads(1)
    os.makedirs(FOLDER, exist_ok=True)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    jobs = [(f.__name__, seed, lambda f=f, s=seed, c=check: c(options.program, f, s))
            for f in FAMILIES if not options.family or f.__name__ in options.family
            for check in (there_and_back, low_precision) + (steps,) * options.steps
            for seed in range(options.seeds)]
    if not options.family or "deepseek_v3" in options.family:
        jobs += [("deepseek_v3", s, lambda s=s: eighths(options.program, s)) for s in range(options.seeds)]
    failed = 0
    for name, seed, job in jobs:
        try:
            print(f"{name} seed {seed}: {job()}", flush=True)
        except RuntimeError as e:
            failed += 1
            print(f"FAILED {name} seed {seed}: {e}", flush=True)
    print(f"{len(jobs)} models, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
