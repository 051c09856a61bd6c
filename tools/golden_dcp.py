#!/usr/bin/env python3
"""Folders of torch.distributed.checkpoint for the tests of `switchyard convert from-dcp`.

    golden_dcp.py [FOLDER]      needs torch, transformers, torchtitan 0.3.0 with spmd_types; no GPU

    tests/golden/dcp/NAME/hf       a tiny model as transformers saves it
    tests/golden/dcp/qwen3_moe/plain   the state_dict of the class of transformers, under "model"
    tests/golden/dcp/NAME/titan    the same weights as TorchTitan saves them: its own adapters name them

TorchTitan's optimizer has a first moment that is half of each weight and a second that is its square, so
that a test knows them from the weights. llama is written by one process; qwen3_moe by two, which shard
every tensor (Shard(0), the experts' last one Shard(1)); deepseek_v3 by one, in bfloat16.
"""
import os
import shutil
import sys
import types

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
import transformers
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from torchtitan.models.common.rope import ComplexRoPE, CosSinRoPE
from torchtitan.models.deepseek_v3.state_dict_adapter import DeepSeekV3StateDictAdapter
from torchtitan.models.llama3.state_dict_adapter import Llama3StateDictAdapter
from torchtitan.models.qwen3.state_dict_adapter import Qwen3StateDictAdapter

UPDATES, STEP = 5, 7
SIZES = dict(vocab_size=31, hidden_size=12, num_hidden_layers=1, intermediate_size=14, max_position_embeddings=32,
             rms_norm_eps=1e-6, tie_word_embeddings=False)
GQA = dict(num_attention_heads=4, num_key_value_heads=2, head_dim=6, attention_bias=False)


def llama():
    return transformers.LlamaForCausalLM, transformers.LlamaConfig(**SIZES, **GQA, mlp_bias=False)


def qwen3_moe():
    return transformers.Qwen3MoeForCausalLM, transformers.Qwen3MoeConfig(
        **SIZES, **GQA, decoder_sparse_step=1, mlp_only_layers=[], num_experts=5, num_experts_per_tok=2,
        moe_intermediate_size=7, norm_topk_prob=True)


def deepseek_v3():
    return transformers.DeepseekV3ForCausalLM, transformers.DeepseekV3Config(
        **{**SIZES, "num_hidden_layers": 2}, num_attention_heads=3, num_key_value_heads=3, kv_lora_rank=10, qk_nope_head_dim=8, qk_rope_head_dim=6,
        v_head_dim=5, first_k_dense_replace=1, n_shared_experts=2, moe_intermediate_size=7, q_lora_rank=8,
        n_routed_experts=4, num_experts_per_tok=2, n_group=2, topk_group=1, norm_topk_prob=True,
        routed_scaling_factor=2.5, rope_interleave=True)


MODELS = {"llama": (llama, Llama3StateDictAdapter, ComplexRoPE, torch.float32),
          "qwen3_moe": (qwen3_moe, Qwen3StateDictAdapter, CosSinRoPE, torch.float32),
          "deepseek_v3": (deepseek_v3, DeepSeekV3StateDictAdapter, ComplexRoPE, torch.bfloat16)}


def randomise(model, dtype):
    rng = np.random.default_rng(1)
    with torch.no_grad():
        for name, p in [*model.named_parameters(), *model.named_buffers()]:
            if name.endswith("inv_freq"):
                continue
            values = 0.2 * rng.standard_normal(tuple(p.shape)) + (p.ndim == 1 and name.endswith("norm.weight"))
            p.copy_(torch.tensor(values, dtype=torch.float32).to(dtype))


def shape_of(config, rope):
    """What the adapters ask of a model of TorchTitan."""
    rope = rope.Config(dim=6, max_seq_len=32)
    attention = types.SimpleNamespace(rope=rope, n_heads=config.num_attention_heads, head_dim=getattr(config, "head_dim", 0),
                                      n_kv_heads=config.num_key_value_heads, q_lora_rank=getattr(config, "q_lora_rank", 0))
    experts = getattr(config, "num_experts", getattr(config, "n_routed_experts", 0))
    layer = types.SimpleNamespace(attention=attention, moe=types.SimpleNamespace(num_experts=experts) if experts else None)
    return types.SimpleNamespace(layers=[layer] * config.num_hidden_layers, dim=config.hidden_size, mtp_layers=[],
                                 enable_weight_tying=False)


def of_files(folder):
    """{name: tensor} of what transformers wrote: experts one by one."""
    from safetensors import safe_open
    out = {}
    for file in sorted(os.listdir(folder)):
        if file.endswith(".safetensors"):
            with safe_open(f"{folder}/{file}", "pt") as f:
                out.update({k: f.get_tensor(k) for k in f.keys()})
    return out


def state_of(weights):
    """A training's state as TorchTitan's checkpointer hands it over."""
    optimizer = {}
    for name, w in weights.items():
        if "expert_bias" in name:
            continue
        optimizer[f"state.{name}.step"] = torch.tensor(float(UPDATES))
        optimizer[f"state.{name}.exp_avg"] = w.float() * 0.5
        optimizer[f"state.{name}.exp_avg_sq"] = w.float() * w.float()
    optimizer["param_groups.norm.weight.lr"] = 1e-3  # one of the many that TorchTitan has
    return {**weights, "optimizer": optimizer, "lr_scheduler": {"last_epoch": STEP},
            "train_state": {"step": STEP, "ntokens_seen": 100}}


def shard(state, mesh):
    out = {}
    for key, value in state.items():
        if isinstance(value, dict):
            value = shard(value, mesh)
        elif isinstance(value, torch.Tensor) and value.ndim > 0:
            value = distribute_tensor(value, mesh, [Shard(1 if "w2" in key else 0)])
        out[key] = value
    return out


def one_rank(rank, folder, path):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511")
    dist.init_process_group("gloo", rank=rank, world_size=2)
    state = shard(torch.load(path), init_device_mesh("cpu", (2,)))
    dcp.save(state, checkpoint_id=folder)
    dist.destroy_process_group()


def make(folder, name):
    build, adapter, rope, dtype = MODELS[name]
    cls, config = build()
    model = cls(config).float().eval()
    randomise(model, dtype)
    shutil.rmtree(f"{folder}/{name}", ignore_errors=True)
    os.makedirs(f"{folder}/{name}")
    (model.to(dtype) if dtype != torch.float32 else model).save_pretrained(f"{folder}/{name}/hf")
    if name == "qwen3_moe":
        dcp.save({"model": model.state_dict()}, checkpoint_id=f"{folder}/{name}/plain", no_dist=True)
    weights = adapter(shape_of(config, rope), None).from_hf(of_files(f"{folder}/{name}/hf"))
    state = state_of({k: v.contiguous() for k, v in weights.items()})
    if name == "qwen3_moe":
        torch.save(state, f"{folder}/{name}/whole")
        mp.spawn(one_rank, (f"{folder}/{name}/titan", f"{folder}/{name}/whole"), nprocs=2)
        os.remove(f"{folder}/{name}/whole")
    else:
        dcp.save(state, checkpoint_id=f"{folder}/{name}/titan", no_dist=True)
    os.remove(f"{folder}/{name}/hf/generation_config.json")


if __name__ == "__main__":
    out = sys.argv[1] if len(sys.argv) > 1 else "tests/golden/dcp"
    for model_name in MODELS:
        make(out, model_name)
