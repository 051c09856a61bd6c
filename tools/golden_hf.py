"""Hugging Face folders for the tests of `switchyard convert`, for make_golden.py.

    tests/golden/hf/mixtral/           a tiny Mixtral as transformers saves it: two shards and an index
    tests/golden/hf/mixtral.golden.zst id (T), logits (T, V)
    tests/golden/hf/qwen3_next/        a tiny Qwen3-Next: a gated delta net, gated attention, a gated delta net
    tests/golden/hf/qwen3_next.golden.zst  as mixtral's
    tests/golden/hf/mxfp4/             a tiny gpt-oss with experts in MXFP4, of all scales whose products are finite
    tests/golden/hf/mxfp4.golden.zst   LAYER.gate_up_proj, LAYER.down_proj: what transformers makes of them, in f32
    tests/golden/hf/NAME.json          config.json of the model of tests/golden/model/NAME.golden.zst, whose
                                    arrays are the weights
"""
import json
import os
import shutil

import numpy as np
import torch
import transformers
from safetensors import safe_open
from safetensors.torch import save_file
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

import golden_format
import golden_models


def mixtral():
    config = transformers.MixtralConfig(
        vocab_size=31, hidden_size=12, num_hidden_layers=2, intermediate_size=14, num_attention_heads=3,
        num_key_value_heads=1, head_dim=6, num_local_experts=7, num_experts_per_tok=2, rms_norm_eps=1e-5,
        max_position_embeddings=32, tie_word_embeddings=False)
    config._attn_implementation = config._experts_implementation = "eager"
    return transformers.MixtralForCausalLM(config).float().eval()


def qwen3_next():
    """A large epsilon, as in golden_models.py."""
    config = transformers.Qwen3NextConfig(
        vocab_size=31, hidden_size=12, num_hidden_layers=3, intermediate_size=14, num_attention_heads=3,
        num_key_value_heads=1, head_dim=12, layer_types=["linear_attention", "full_attention", "linear_attention"],
        linear_num_key_heads=2, linear_num_value_heads=6, linear_key_head_dim=5, linear_value_head_dim=3,
        linear_conv_kernel_dim=3, num_experts=7, num_experts_per_tok=2, moe_intermediate_size=5,
        shared_expert_intermediate_size=10, rms_norm_eps=0.01, max_position_embeddings=32,
        rope_parameters=dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=0.5))
    config._attn_implementation = config._experts_implementation = "eager"
    return transformers.Qwen3NextForCausalLM(config).float().eval()


def mxfp4(folder, made_by):
    """All 16 values stand in each tensor. Scales of one layer keep its products near 1, of the other they
    are all that there are: from denormal products to 6 times 2^125."""
    config = transformers.GptOssConfig(
        vocab_size=13, hidden_size=32, num_hidden_layers=2, intermediate_size=64, num_attention_heads=2,
        num_key_value_heads=1, head_dim=4, num_local_experts=2, num_experts_per_tok=1, sliding_window=4,
        max_position_embeddings=32, layer_types=["sliding_attention", "full_attention"],
        rope_parameters=dict(rope_type="default", rope_theta=1e4))
    rng, path, out = np.random.default_rng(1), f"{folder}/mxfp4", {}
    shutil.rmtree(path, ignore_errors=True)
    model = transformers.GptOssForCausalLM(config).to(torch.bfloat16)
    model.save_pretrained(path)
    with safe_open(f"{path}/model.safetensors", "pt") as f:
        tensors = {k: f.get_tensor(k) for k in f.keys()}
    for name, w in list(tensors.items()):
        if not name.endswith(("gate_up_proj", "down_proj")):
            continue
        del tensors[name]
        layer, shape = name.split(".")[2], (w.shape[0], w.shape[2], w.shape[1] // 32)
        blocks = torch.tensor(rng.integers(0, 256, (*shape, 16)), dtype=torch.uint8)
        scales = rng.integers(*[(118, 123), (0, 253)][int(layer)], shape)
        scales.flat[:4] = [120, 121, 122, 118] if layer == "0" else [0, 1, 252, 127]
        tensors[f"{name}_blocks"] = blocks
        tensors[f"{name}_scales"] = torch.tensor(scales, dtype=torch.uint8)
        for dtype in (torch.bfloat16, torch.float32):
            wide = convert_moe_packed_tensors(blocks, tensors[f"{name}_scales"], dtype=dtype).float().numpy()
            assert np.array_equal(out.setdefault(f"{layer}.{name.split('.')[-1]}", wide), wide)
    save_file(tensors, f"{path}/model.safetensors", {"format": "pt"})
    with open(f"{path}/config.json") as f:
        settings = json.load(f)
    settings["quantization_config"] = dict(quant_method="mxfp4", modules_to_not_convert=["lm_head"])
    with open(f"{path}/config.json", "w") as f:
        json.dump(settings, f, indent=2, sort_keys=True)
    golden_format.write(f"{folder}/mxfp4.golden.zst", made_by, out)


def make(folder, made_by):
    os.makedirs(folder, exist_ok=True)
    for build, most in (mixtral, "24KB"), (qwen3_next, "5GB"):
        rng, model, path = np.random.default_rng(0), build(), f"{folder}/{build.__name__}"
        golden_models.randomise(model, rng)
        for p in model.parameters():  # norms that are 1 + w here go there and back to the bit
            p.data = (p.data * 65536).round() / 65536 if build is qwen3_next and p.ndim == 1 else p.data
        shutil.rmtree(path, ignore_errors=True)
        model.save_pretrained(path, max_shard_size=most)
        id = rng.integers(0, 31, 11)
        with torch.no_grad():
            logits = model(input_ids=torch.tensor(id)[None], use_cache=False).logits[0]
        golden_format.write(f"{path}.golden.zst", made_by, dict(id=id, logits=logits.numpy()))
    mxfp4(folder, made_by)
    for build in golden_models.MODELS:
        _, config, _ = build()
        config.architectures = [build()[0].__name__]
        config.dtype = "float32"
        config.to_json_file(f"{folder}/{build.__name__}.json")
