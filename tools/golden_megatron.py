#!/usr/bin/env python3
"""Folders of Megatron-Core for the tests of `switchyard convert from-dcp`.

    golden_megatron.py [FOLDER]      needs torch and megatron-core 0.16.1 with psutil; no GPU

    tests/golden/dcp/megatron/KIND         a model of Megatron-Core as its dist_checkpointing saves it; alike: all
                                           layers have experts, mixed: the first has none
    tests/golden/dcp/megatron/KIND.f32     its own logits (13, 64) for ids (7 i i + 3) % 31
    tests/golden/dcp/megatron/KIND.yaml    written by hand: the same model in our settings
    tests/golden/dcp/megatron/trained      as `alike`, in bfloat16 with a module of multi-token prediction, after three
                                           steps of its distributed optimizer, saved as fully_reshardable
    tests/golden/dcp/megatron/buckets      a smaller model, saved as dp_reshardable
    tests/golden/dcp/megatron/flat         the tensors of `alike`, and a moment in the flat parts of
                                           fully_sharded_model_space, which 0.16 does not write any more

Of `trained` the first moment is half of each weight and the second its square, so that a test knows them from the
weights. The module's layer is the last layer. Its norms are 2 (embedding), 3 (stream) and 4 (at its end).
"""
import argparse
import contextlib
import os
import shutil
import sys

import megatron.core.tensor_parallel.random as random
import megatron.core.transformer.moe.moe_utils as moe_utils
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from megatron.core import dist_checkpointing, parallel_state
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
from megatron.core.models.gpt import GPTModel
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_decoder_block_spec, get_gpt_mtp_block_spec
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.transformer.enums import AttnBackend
from megatron.core.transformer.transformer_config import TransformerConfig
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

UPDATES, STEP = 3, 7


def on_cpus():
    """Takes what asks for a GPU out of Megatron-Core. Its optimizers know a type by the name that it has on a GPU."""
    def here(make):
        return lambda *a, **k: make(*a, **{**k, "device": "cpu"} if str(k.get("device", "")).startswith("cuda") else k)
    kind = torch.Tensor.type
    torch.Tensor.type = lambda t, *a: kind(t, *a) if a else kind(t).replace("torch.", "torch.cuda.")
    torch.Tensor.cuda = lambda t, *a, **k: t
    for name in ("tensor", "zeros", "empty", "ones"):
        setattr(torch, name, here(getattr(torch, name)))
    moe_utils.te_general_gemm = None
    random.CudaRNGStatesTracker.fork = lambda self, name=None: contextlib.nullcontext()
    torch.cuda.synchronize = lambda *a: None
    torch.cuda.current_device = lambda: "cpu"


def megatron_config(kind):
    sizes = dict(num_layers=2, hidden_size=24, num_attention_heads=4, ffn_hidden_size=20, num_moe_experts=3,
                 moe_ffn_hidden_size=11, moe_router_topk=2, moe_router_load_balancing_type="none",
                 use_cpu_initialization=True, gated_linear_unit=True, activation_func=torch.nn.functional.silu,
                 add_bias_linear=False, normalization="RMSNorm", params_dtype=torch.float32,
                 bias_activation_fusion=False, bias_dropout_fusion=False, apply_rope_fusion=False,
                 masked_softmax_fusion=False, gradient_accumulation_fusion=False, persist_layer_norm=False,
                 layernorm_epsilon=1e-6, hidden_dropout=0, attention_dropout=0)
    sizes.update(num_query_groups=2, kv_channels=6, qk_layernorm=kind in ("alike", "trained"))
    if kind == "mixed":
        sizes.update(moe_layer_freq=[0, 1], moe_router_score_function="sigmoid", moe_router_enable_expert_bias=True,
                     moe_shared_expert_intermediate_size=22, moe_router_topk_scaling_factor=2.5)
    if kind == "trained":
        sizes.update(mtp_num_layers=1, bf16=True, params_dtype=torch.bfloat16, pipeline_dtype=torch.bfloat16)
    if kind == "buckets":
        sizes.update(num_layers=1, hidden_size=8, kv_channels=2, num_moe_experts=None,
                     moe_ffn_hidden_size=None, ffn_hidden_size=4)
    return TransformerConfig(**sizes)


def megatron_model(kind):
    config = megatron_config(kind)
    spec = get_gpt_decoder_block_spec(config, use_transformer_engine=False, normalization="RMSNorm")
    more = get_gpt_mtp_block_spec(config, spec, use_transformer_engine=False) if kind == "trained" else None
    return GPTModel(config=config, transformer_layer_spec=spec, vocab_size=64, max_sequence_length=32,
                    position_embedding_type="rope", rotary_base=10000, share_embeddings_and_output_weights=False,
                    mtp_block_spec=more)


def hide_place(path, saved):
    """Megatron-Core writes where it saved. As many letters keep the pickle whole."""
    name = os.path.abspath(saved).encode()
    with open(path, "rb") as f:
        data = f.read()
    with open(path, "wb") as f:
        f.write(data.replace(name, b"/" + b"x" * (len(name) - 1)))


def make_megatron(folder, kind):
    torch.manual_seed(1)
    model = megatron_model(kind).eval()
    with torch.no_grad():
        for name, p in [*model.named_parameters(), *model.named_buffers()]:
            if p.is_floating_point() and "inv_freq" not in name:
                p.copy_(p + 0.1 * torch.randn_like(p))
        ids = torch.tensor([(7 * i * i + 3) % 31 for i in range(13)])[None]
        hidden = torch.triu(torch.ones(13, 13), 1).bool()[None, None]
        logits = model(ids, torch.arange(13)[None], hidden)[0]
    shutil.rmtree(f"{folder}/{kind}", ignore_errors=True)
    os.makedirs(f"{folder}/{kind}")
    dist_checkpointing.save(model.sharded_state_dict(prefix="", metadata={}), f"{folder}/{kind}")
    hide_place(f"{folder}/{kind}/.metadata", f"{folder}/{kind}")
    for name in ("common.pt", "metadata.json"):
        os.remove(f"{folder}/{kind}/{name}")
    logits.numpy().tofile(f"{folder}/{kind}.f32")


def set_gradients(model):
    """The module's layer has those of the last layer, so it stays the same."""
    grads = {}
    for name, p in model.named_parameters():
        twin = name.replace("mtp.layers.0.transformer_layer.", "decoder.layers.1.")
        grads[name] = torch.randn_like(p.main_grad) if twin == name else grads[twin]
        p.main_grad.copy_(grads[name])


def set_module(model):
    weights = dict(model.named_parameters())
    with torch.no_grad():
        for name, p in weights.items():
            p.copy_(p + 0.1 * torch.randn_like(p))
            if name.startswith("mtp.layers.0.transformer_layer."):
                p.copy_(weights[name.replace("mtp.layers.0.transformer_layer.", "decoder.layers.1.")])
        for name, value in (("enorm", 2), ("hnorm", 3), ("final_layernorm", 4)):
            weights[f"mtp.layers.0.{name}.weight"].fill_(value)


def make_trained(folder, kind, sharding):
    """Trains, sets the moments, and saves what Megatron-LM's trainer saves, its arguments included."""
    torch.manual_seed(1)
    dtype = torch.bfloat16 if kind == "trained" else torch.float32
    model = megatron_model(kind).to(dtype)
    if kind == "trained":
        set_module(model)
    ddp = DistributedDataParallelConfig(grad_reduce_in_fp32=True, use_distributed_optimizer=True)
    optimizer = get_megatron_optimizer(
        OptimizerConfig(optimizer="adam", lr=1e-3, bf16=kind == "trained", params_dtype=dtype,
                        use_distributed_optimizer=True), [DistributedDataParallel(model.config, ddp, model)])
    for _ in range(UPDATES):
        set_gradients(model)
        optimizer.step()
    for inner in optimizer.chained_optimizers:
        for p, state in inner.optimizer.state.items():
            state["exp_avg"].copy_(p.detach() * 0.5)
            state["exp_avg_sq"].copy_(p.detach() * p.detach())
    shutil.rmtree(f"{folder}/{kind}", ignore_errors=True)
    os.makedirs(f"{folder}/{kind}")
    how = {"distrib_optim_sharding_type": sharding, "chained_optim_avoid_prefix": True}
    weights = model.sharded_state_dict(prefix="", metadata=how)
    args = argparse.Namespace(lr=1e-3, params_dtype=dtype, attention_backend=AttnBackend.auto, data_path=["text"],
                              rampup_batch_size=None, activation_func=torch.nn.functional.silu)
    dist_checkpointing.save({**weights, "optimizer": optimizer.sharded_state_dict(weights, metadata=how),
                             "iteration": STEP, "checkpoint_version": 3.0, "args": args,
                             "opt_param_scheduler": {"max_lr": 1e-3, "num_steps": 28}}, f"{folder}/{kind}")
    hide_place(f"{folder}/{kind}/.metadata", f"{folder}/{kind}")
    os.remove(f"{folder}/{kind}/metadata.json")


def make_flat(folder):
    """torch writes the path that it was given, so that is a relative one."""
    os.chdir(folder)
    alike, table = "alike", "embedding.word_embeddings.weight"
    known = dcp.FileSystemReader(alike).read_metadata().state_dict_metadata
    state = {k: torch.empty(m.size, dtype=m.properties.dtype) for k, m in known.items()
             if isinstance(m, TensorStorageMetadata)}
    dcp.load(state, checkpoint_id=alike, no_dist=True)
    for name in ("exp_avg", "exp_avg_sq"):
        state[f"optimizer.state.{name}.{table}"] = state[table].reshape(1, 1, -1)
    shutil.rmtree("flat", ignore_errors=True)
    dcp.save(state, checkpoint_id="flat", no_dist=True)


def main(folder):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29513")
    dist.init_process_group("gloo", rank=0, world_size=1)
    parallel_state.initialize_model_parallel(1, 1)
    on_cpus()
    for kind in ("alike", "mixed"):
        make_megatron(folder, kind)
    make_trained(folder, "trained", "fully_reshardable")
    make_trained(folder, "buckets", "dp_reshardable")
    make_flat(folder)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "tests/golden/dcp/megatron")
